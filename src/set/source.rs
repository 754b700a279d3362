//! Sorted sources: what a merging cursor merges. The tables of a set are such sources, and an engine's files can be.
//!
//! ```text
//!   a@9  a@4  b@7  d@2  d@1        user keys ascend, the versions of each descend
//!        ^
//!        where the source stands   every move returns the entry that it leads to, or none past an end
//! ```
//! One thread at a time moves a source.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::key::{Kind, SequenceNumber};
use crate::memtable::debug::shown;
use crate::memtable::read::entry::Entry;
use crate::memtable::scan::cursor::OwnedCursor;
use crate::set::tables::Slot;
use crate::tombstone::index::live::CoveringRun;
use crate::tombstone::index::query::Question;

/// Where a sorted source stands: an entry without its value.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::set::SourceKey;
/// let key = SourceKey { user_key: b"k", sequence: 7, kind: Kind::PUT };
/// assert_eq!(key.sequence, 7);
/// ```
#[derive(Clone, Copy)]
pub struct SourceKey<'s> {
    /// The user key.
    pub user_key: &'s [u8],
    /// The sequence number.
    pub sequence: SequenceNumber,
    /// The kind: any but a range delete.
    pub kind: Kind,
}

/// A range tombstone that covers a key.
///
/// ```
/// use paranoid_memtable::set::Cover;
/// let cover = Cover { sequence: 7, span: Some((b"a", b"c")), hides_own: false };
/// assert_eq!(cover.sequence, 7);
/// ```
#[derive(Clone, Copy)]
pub struct Cover<'s> {
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// If known, keys around the one that was asked for, start to end (exclusive), which tombstones of this number or
    /// newer ones of the same source cover as well. A cursor passes them in older sources by one seek.
    pub span: Option<(&'s [u8], &'s [u8])>,
    /// Whether every visible entry of this source in the span is older than the tombstone, so that a cursor passes them by a seek, too.
    /// `false` if that is not known.
    pub hides_own: bool,
}

/// A sorted source of entries beside the tables of a set, such as a table file or all files of a level. Its entries are
/// in the set's order: user keys ascend, the versions of a key descend.
///
/// A move that fails returns its error once; the next one goes on at the other side of what could not be read, or stands
/// past the end if nothing is known to be there.
///
/// ```
/// use paranoid_memtable::set::{Cover, MemTableSet, SetOptions, SortedSource, SourceKey};
/// use paranoid_memtable::{Kind, Result, SequenceNumber, WriteBatch};
///
/// /// Keys with one version each, in memory. Positions are from 0 to the length, inclusive.
/// struct Level(Vec<(&'static str, &'static str)>, usize);
/// impl Level {
///     fn go(&mut self, place: usize) -> Result<Option<SourceKey<'_>>> {
///         self.1 = place;
///         let entry = self.0.get(place);
///         Ok(entry.map(|(key, _)| SourceKey { user_key: key.as_bytes(), sequence: 1, kind: Kind::PUT }))
///     }
/// }
/// impl SortedSource for Level {
///     fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.partition_point(|it| it.0.as_bytes() < key || it.0.as_bytes() == key && sequence < 1))
///     }
///     fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.partition_point(|it| it.0.as_bytes() < key).wrapping_sub(1))
///     }
///     fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.partition_point(|it| it.0.as_bytes() <= key).wrapping_sub(1))
///     }
///     fn first(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(0)
///     }
///     fn last(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.0.len().wrapping_sub(1))
///     }
///     fn next(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.1.wrapping_add(1))
///     }
///     fn prev(&mut self) -> Result<Option<SourceKey<'_>>> {
///         self.go(self.1.wrapping_sub(1))
///     }
///     fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
///         value.clear();
///         value.extend_from_slice(self.0[self.1].1.as_bytes());
///         Ok(())
///     }
///     fn cover(&mut self, _: &[u8], _: SequenceNumber) -> Result<Option<Cover<'_>>> {
///         Ok(None)
///     }
/// }
/// # fn main() -> Result<()> {
/// let set = MemTableSet::open(SetOptions::builder().last_sequence(1).build()?, ())?;
/// let mut batch = WriteBatch::new();
/// batch.delete(b"b")?;
/// batch.put(b"c", b"new")?;
/// set.write(&batch)?;
/// let level = Level(vec![("a", "1"), ("b", "2"), ("c", "old")], 0);
/// let mut cursor = set.view().merging_cursor(vec![Box::new(level)])?;
/// assert_eq!(cursor.first()?.map(|entry| (entry.user_key(), entry.value())), Some((&b"a"[..], &b"1"[..])));
/// assert_eq!(cursor.next()?.map(|entry| (entry.user_key(), entry.value())), Some((&b"c"[..], &b"new"[..])));
/// assert!(cursor.next()?.is_none());
/// # Ok(()) }
/// ```
pub trait SortedSource: Send {
    /// Goes to the first entry at or after (`key`, `sequence`): the newest version of `key` up to `sequence`, or else
    /// the newest one of the next key.
    ///
    /// # Errors
    /// What could not be read, as for every move.
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the last entry whose user key is before `key`.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the last entry whose user key is `key` or before it.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the first entry.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn first(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the last entry.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn last(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the next entry.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn next(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Goes to the entry before.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    fn prev(&mut self) -> Result<Option<SourceKey<'_>>>;

    /// Clears the buffer and copies the value of the entry into it on which the source stands; the copy is verified.
    /// Called only while it stands on one.
    ///
    /// # Errors
    /// What could not be read.
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()>;

    /// The newest range tombstone up to `snapshot` that covers `key`. The answer does not depend on where the source
    /// stands.
    ///
    /// # Errors
    /// What could not be read.
    fn cover(&mut self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<Cover<'_>>>;
}

/// A table of a set as a source. Whether a key is covered, and how far, is asked of the table's index.
pub(crate) struct TableSource {
    cursor: OwnedCursor,
    slot: Arc<Slot>,
    /// The interval of the tombstone that was asked for last.
    run: CoveringRun,
}

impl TableSource {
    pub(crate) fn new(slot: &Arc<Slot>) -> Self {
        TableSource { cursor: slot.table.owned_cursor(), slot: Arc::clone(slot), run: CoveringRun::default() }
    }
}

fn key_of(entry: Option<Entry<'_>>) -> Option<SourceKey<'_>> {
    let entry = entry?;
    Some(SourceKey { user_key: entry.user_key(), sequence: entry.sequence(), kind: entry.kind() })
}

shown! {
    "SourceKey": impl [] SourceKey<'_>, |key| { "sequence": key.sequence, "kind": key.kind }
    "Cover": impl [] Cover<'_>, |cover| { "sequence": cover.sequence }
}

impl SortedSource for TableSource {
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<SourceKey<'_>>> {
        self.cursor.seek_version(key, sequence).map(key_of)
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
        self.cursor.seek_before(key).map(key_of)
    }
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<SourceKey<'_>>> {
        self.cursor.seek_for_prev(key).map(key_of)
    }
    fn first(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.first().map(key_of)
    }
    fn last(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.last().map(key_of)
    }
    fn next(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.next().map(key_of)
    }
    fn prev(&mut self) -> Result<Option<SourceKey<'_>>> {
        self.cursor.prev().map(key_of)
    }
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        self.cursor.entry()?.map_or(Ok(()), |entry| entry.value_into(value))
    }
    fn cover(&mut self, key: &[u8], snapshot: SequenceNumber) -> Result<Option<Cover<'_>>> {
        let core = self.slot.table.core();
        let question = Question::new(key, snapshot);
        let covering = core.tombstones.covering_run(core.ground(), question, &mut self.run)?;
        Ok(covering.map(|sequence| Cover {
            sequence,
            span: (!self.run.is_empty()).then_some((&self.run.start, &self.run.end)),
            hides_own: core.is_dead(&self.run, snapshot),
        }))
    }
}
