//! Sorted sources: the inputs of an engine's merging cursor. A table is such a source, and an
//! engine's files can be.
//!
//! ```text
//!   a@9  a@4  b@7  d@2  d@1        user keys ascend, the versions of each descend
//!        ^
//!        position of the source    a move returns the entry that it leads to, or none past an end
//! ```
//! One thread at a time moves a source.

#![forbid(unsafe_code)]

use crate::comparator::Comparator;
use crate::error::Result;
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::scan::cursor::OwnedCursor;
use crate::memtable::scan::tombstones::each_tombstone;
use crate::tombstone::index::CoveringRun;
use crate::tombstone::query::Question;

/// The entry that a sorted source is on, without its value.
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
    /// The sequence number of the tombstone.
    pub sequence: SequenceNumber,
    /// If known, an interval around the key, start to end (exclusive), that tombstones of this
    /// source with this number or newer ones cover whole. A cursor passes the interval in older
    /// sources by one seek.
    pub span: Option<(&'s [u8], &'s [u8])>,
    /// Whether every visible entry of this source in the span is older than the tombstone, so that
    /// a cursor passes these entries by a seek, too. `false` if unknown.
    pub hides_own: bool,
}

/// A move of a sorted source.
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
    /// To the previous entry.
    Prev,
    /// To the first entry at or after a key and a sequence number: the newest version of the key up
    /// to that number, or else the newest version of the next key.
    Seek(&'k [u8], SequenceNumber),
    /// To the last entry whose user key is this one or before it.
    SeekForPrev(&'k [u8]),
    /// To the last entry whose user key is before this one.
    SeekBefore(&'k [u8]),
}

/// A sorted source of entries: a table, a table file, all files of a level. User keys ascend, and
/// the versions of a key descend. The merging cursor and the compactions of `paranoid-set` merge
/// such sources, and `paranoid-sst` makes one of a table file.
///
/// A move that fails returns its error once. The next move continues on the other side of the part
/// that could not be read, or ends past an end if no entry is known to be there.
///
/// A step leads strictly forward or backward, and a seek never to the wrong side of its key. The
/// merging cursor and the compactions check both, and return `InvalidArgument` with the place of a
/// source that breaks one.
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
    /// Those of reading the source.
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>>;

    /// Clears the buffer, and copies the value of the entry that the source is on into the buffer.
    /// The copy is verified. Called only while the source is on an entry.
    ///
    /// # Errors
    /// Those of reading the source.
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()>;

    /// Passes start, end and sequence number of every range tombstone to `take`, in any order. The
    /// source stays on its entry.
    ///
    /// # Errors
    /// Those of reading the source, and errors of `take`.
    #[expect(
        clippy::type_complexity,
        reason = "a name for this type would be one more name to learn"
    )]
    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()>;

    /// The newest range tombstone up to `snapshot` that covers `key` in this order of keys. The
    /// answer does not depend on the source's position. O(range tombstones); a source with an index
    /// replaces this method.
    ///
    /// # Errors
    /// Those of reading the source.
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

    /// Whether the source may have versions of `key`, according to its filter. Point reads ask this
    /// first.
    ///
    /// # Errors
    /// Those of reading the source.
    fn may_hold(&mut self, key: &[u8]) -> Result<bool> {
        let _ = key;
        Ok(true)
    }
}

impl<S: SortedSource + ?Sized> SortedSource for Box<S> {
    #[inline]
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        (**self).go(to)
    }

    #[inline]
    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        (**self).value_into(value)
    }

    #[inline]
    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()> {
        (**self).range_tombstones(take)
    }

    #[inline]
    fn cover(
        &mut self,
        order: &dyn Comparator,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Cover<'_>>> {
        (**self).cover(order, key, snapshot)
    }

    #[inline]
    fn may_hold(&mut self, key: &[u8]) -> Result<bool> {
        (**self).may_hold(key)
    }
}

/// All versions of a table as a source. The table's index answers whether a key is covered.
pub(crate) struct TableSource {
    cursor: OwnedCursor,
    /// The interval of the tombstone that `cover` found last.
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
            take(entry.key(), end, entry.sequence())
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
