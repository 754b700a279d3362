//! Sorted sources: what a merging cursor of an engine merges. A table is such a source, and an
//! engine's files can be.
//!
//! ```text
//!   a@9  a@4  b@7  d@2  d@1        user keys ascend, the versions of each descend
//!        ^
//!        where the source stands   every move returns the entry that it leads to, or none past an end
//! ```
//! One thread at a time moves a source.

#![forbid(unsafe_code)]

use crate::comparator::Comparator;
use crate::error::Result;
use crate::key::{Kind, SequenceNumber};
use crate::memtable::scan::cursor::OwnedCursor;
use crate::memtable::scan::tombstones::each_tombstone;
use crate::tombstone::live::CoveringRun;
use crate::tombstone::query::Question;

/// Where a sorted source stands: an entry without its value.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::scan::SourceKey;
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
/// use paranoid_memtable::scan::Cover;
/// let cover = Cover { sequence: 7, span: Some((b"a", b"c")), hides_own: false };
/// assert_eq!(cover.sequence, 7);
/// ```
#[derive(Clone, Copy)]
pub struct Cover<'s> {
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// If known, keys around the one that was asked for, start to end (exclusive), which tombstones
    /// of this number or newer ones of the same source cover as well. A cursor passes them in older
    /// sources by one seek.
    pub span: Option<(&'s [u8], &'s [u8])>,
    /// Whether every visible entry of this source in the span is older than the tombstone, so that
    /// a cursor passes them by a seek, too. `false` if that is not known.
    pub hides_own: bool,
}

/// Where a sorted source is to go.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::scan::{SortedSource, SourceMove};
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// table.put(2, b"pear", b"green")?;
/// let mut source = table.source();
/// let mut key = |to| Ok::<_, paranoid_memtable::Error>(source.go(to)?.map(|key| key.user_key.to_vec()));
/// assert_eq!(key(SourceMove::Seek(b"b", u64::MAX))?, Some(b"pear".to_vec()));
/// assert_eq!(key(SourceMove::Prev)?, Some(b"apple".to_vec()));
/// assert_eq!(key(SourceMove::SeekBefore(b"apple"))?, None);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SourceMove<'k> {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the next entry.
    Next,
    /// To the entry before.
    Prev,
    /// To the first entry at or after a key and a sequence number: the newest version of the key up
    /// to that number, or else the newest one of the next key.
    Seek(&'k [u8], SequenceNumber),
    /// To the last entry whose user key is this one or before it.
    SeekForPrev(&'k [u8]),
    /// To the last entry whose user key is before this one.
    SeekBefore(&'k [u8]),
}

/// A sorted source of entries: a table, a table file, all files of a level. User keys ascend, the
/// versions of a key descend. The merging cursor and the compactions of `paranoid-set` merge such
/// sources, and `paranoid-sst` has one of a table file.
///
/// A move that fails returns its error once; the next one goes on at the other side of what could
/// not be read, or stands past the end if nothing is known to be there. A step leads strictly on, a
/// seek never to the wrong side of its key: the merging cursor and the compactions check that, and
/// return `InvalidArgument` with the place of a source that does not.
///
/// ```
/// use paranoid_memtable::scan::{SortedSource, SourceKey, SourceMove};
/// use paranoid_memtable::{Kind, Result, SequenceNumber};
///
/// /// Keys with one version each, in memory. Positions are from 0 to the length, inclusive.
/// struct Level(Vec<(&'static str, &'static str)>, usize);
/// impl SortedSource for Level {
///     fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
///         let count = |is_passed: &dyn Fn(&[u8]) -> bool| self.0.partition_point(|it| is_passed(it.0.as_bytes()));
///         self.1 = match to {
///             SourceMove::First => 0,
///             SourceMove::Last => self.0.len().wrapping_sub(1),
///             SourceMove::Next => self.1.wrapping_add(1),
///             SourceMove::Prev => self.1.wrapping_sub(1),
///             SourceMove::Seek(key, sequence) => count(&|it| it < key || it == key && sequence < 1),
///             SourceMove::SeekForPrev(key) => count(&|it| it <= key).wrapping_sub(1),
///             SourceMove::SeekBefore(key) => count(&|it| it < key).wrapping_sub(1),
///         };
///         let entry = self.0.get(self.1);
///         Ok(entry.map(|(key, _)| SourceKey { user_key: key.as_bytes(), sequence: 1, kind: Kind::PUT }))
///     }
///     fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
///         value.clear();
///         value.extend_from_slice(self.0[self.1].1.as_bytes());
///         Ok(())
///     }
///     fn range_tombstones(&mut self, _: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>) -> Result<()> {
///         Ok(())
///     }
/// }
/// # fn main() -> Result<()> {
/// let mut level = Level(vec![("a", "1"), ("b", "2")], 0);
/// assert_eq!(level.go(SourceMove::Seek(b"aa", 9))?.map(|key| key.user_key), Some(&b"b"[..]));
/// assert!(level.go(SourceMove::Next)?.is_none());
/// # Ok(()) }
/// ```
pub trait SortedSource: Send {
    /// Makes a move, and returns the entry that it leads to.
    ///
    /// # Errors
    /// What could not be read.
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>>;

    /// Clears the buffer and copies the value of the entry into it on which the source stands; the
    /// copy is verified. Called only while it stands on one.
    ///
    /// # Errors
    /// What could not be read.
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()>;

    /// Passes start, end and sequence number of every range tombstone to `take`, in any order. The
    /// source stands where it stood.
    ///
    /// # Errors
    /// What could not be read, and errors of `take`.
    #[expect(
        clippy::type_complexity,
        reason = "a name for it would be one more to be known"
    )]
    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()>;

    /// The newest range tombstone up to `snapshot` that covers `key` in this order of keys. The
    /// answer does not depend on where the source stands. O(range tombstones), unless a source has
    /// its own.
    ///
    /// # Errors
    /// What could not be read.
    fn cover(
        &mut self,
        order: &dyn Comparator,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Cover<'_>>> {
        let mut newest = None;
        self.range_tombstones(&mut |start, end, sequence| {
            let covers = order.compare(start, key).is_le() && order.compare(key, end).is_lt();
            newest = newest.max((covers && sequence <= snapshot).then_some(sequence));
            Ok(())
        })?;
        Ok(newest.map(|sequence| Cover {
            sequence,
            span: None,
            hides_own: false,
        }))
    }

    /// Whether there may be versions of `key`: what a filter says. Point reads ask it first.
    ///
    /// # Errors
    /// What could not be read.
    fn may_hold(&mut self, key: &[u8]) -> Result<bool> {
        let _ = key;
        Ok(true)
    }
}

/// All versions of a table as a source. Whether a key is covered, and how far, is asked of the
/// table's index.
pub(crate) struct TableSource {
    cursor: OwnedCursor,
    /// The interval of the tombstone that was asked for last.
    run: CoveringRun,
}

impl TableSource {
    pub(crate) fn new(cursor: OwnedCursor) -> Self {
        TableSource {
            cursor,
            run: CoveringRun::default(),
        }
    }
}

impl SortedSource for TableSource {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        let entry = match to {
            SourceMove::First => self.cursor.first(),
            SourceMove::Last => self.cursor.last(),
            SourceMove::Next => self.cursor.next(),
            SourceMove::Prev => self.cursor.prev(),
            SourceMove::Seek(key, sequence) => self.cursor.seek_version(key, sequence),
            SourceMove::SeekForPrev(key) => self.cursor.seek_for_prev(key),
            SourceMove::SeekBefore(key) => self.cursor.seek_before(key),
        };
        let (user_key, sequence, kind) = match entry? {
            Some(entry) => (entry.user_key(), entry.sequence(), entry.kind()),
            None => return Ok(None),
        };
        Ok(Some(SourceKey {
            user_key,
            sequence,
            kind,
        }))
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        value.clear();
        self.cursor
            .entry()?
            .map_or(Ok(()), |entry| entry.value_into(value))
    }

    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()> {
        let core = &self.cursor.handle.0;
        each_tombstone(core, |entry, end, _| {
            take(entry.key(), end, entry.node().sequence())
        })
    }

    fn cover(
        &mut self,
        _: &dyn Comparator,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Cover<'_>>> {
        let core = &self.cursor.handle.0;
        let question = Question::new(key, snapshot);
        let covering = core
            .tombstones
            .covering_run(core.ground(), question, &mut self.run)?;
        Ok(covering.map(|sequence| Cover {
            sequence,
            span: (!self.run.is_empty()).then_some((&self.run.start, &self.run.end)),
            hides_own: core.is_dead(&self.run),
        }))
    }
}
