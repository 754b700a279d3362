//! Views: what a set shows at one sequence number, and point reads over all of its tables.
//!
//! ```text
//!   key?  active -> immutables, newest first       the first table that says more than "not found" has the answer;
//!           a merge operand: go on below it        a range tombstone of a newer table counts as one
//!           nobody has it: the base is asked by the engine
//! ```
//! * VIEW-1: a view reads at min(visible, last number of its active table), both asked after its tables were loaded.
//!   Each number up to it is in a table of the view or in its base (TABLES-2, TABLES-3), and its entry is inserted
//!   (PUBLICATION-1): no view sees a gap, or a batch in part.
//!
//! Any thread; a view never changes and never waits.

#![forbid(unsafe_code)]

use std::iter::FusedIterator;
use std::ops::Bound;
use std::sync::Arc;

use paranoid_memtable::read::{Base, Operand, Operands};
use paranoid_memtable::scan::{KeyRange, SortedSource};
use paranoid_memtable::sibling::Direction;
use paranoid_memtable::{Lookup, Result, SequenceNumber, TableReader, ValueRef, shown};

use crate::merging_cursor::{MergeOperator, MergedEntry, MergingCursor, Source, apply};
use crate::publication::{Loaded, Publication, Swapped};
use crate::tables::{LastNumber, Tables};

/// What a set shows at one sequence number: its tables, and the engine's base. `'static`, `Send` and `Sync`. It keeps
/// the memory of its tables alive, also after they were flushed; a [`Snapshot`](crate::Snapshot) does not.
///
/// ```
/// use paranoid_memtable::{Lookup, WriteBatch};
/// use paranoid_set::{MemTableSet, SetOptions, View};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), "files 1 and 2")?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// set.write(&batch)?;
/// let view: View<&str> = set.view();
/// match view.get(b"k")? {
///     Lookup::Value(value) => assert_eq!(*value, *b"v"),
///     Lookup::NotFound => println!("to be looked for in {}", view.base()),
///     Lookup::Deleted { .. } | Lookup::Merge(_) => unreachable!("it was put"),
/// }
/// # Ok(()) }
/// ```
pub struct View<B> {
    tables: Loaded<Tables<B>>,
    sequence: SequenceNumber,
}

impl<B> View<B> {
    /// What is visible now (VIEW-1).
    pub(crate) fn latest(tables: &Swapped<Tables<B>>, publication: &Publication) -> Self {
        let tables = tables.load();
        let sequence = read_at(publication, &tables.active.last);
        View { tables, sequence }
    }

    /// What a registered snapshot sees. Its number is not over the last one of the active table: that table, or an
    /// older one, had the number when the snapshot was made.
    pub(crate) fn at(tables: &Swapped<Tables<B>>, sequence: SequenceNumber) -> Self {
        View { tables: tables.load(), sequence }
    }

    /// The last sequence number that reads of this view see.
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The engine's own version: what [`open`](crate::MemTableSet::open) or the last flush gave the set.
    #[must_use]
    pub fn base(&self) -> &Arc<B> {
        &self.tables.base
    }

    /// The tables, newest first, for what is asked of single ones: counts, bytes, estimates, a scrub.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// set.write(&batch)?;
    /// let view = set.view();
    /// assert_eq!(view.readers().map(|table| table.len()).sum::<usize>(), 1);
    /// assert!(view.readers().all(|table| table.scrub(|_| {}).findings.is_empty()));
    /// # Ok(()) }
    /// ```
    pub fn readers(&self) -> impl DoubleEndedIterator<Item = &TableReader> + FusedIterator {
        self.tables.newest_first().map(|slot| &*slot.table)
    }

    /// Looks a key up in all tables, newest first. Expected O(tables * log n).
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, WriteBatch};
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// set.write(&batch)?;
    /// set.switch()?;
    /// batch.clear();
    /// batch.delete_range(b"a", b"z")?;
    /// set.write(&batch)?;
    /// assert!(matches!(set.view().get(b"k")?, Lookup::Deleted { sequence: 2, .. }));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damage could change the answer.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Lookup<ValueRef<'_>, PendingMerge<'_>>> {
        self.find(key.as_ref())
    }

    fn find(&self, key: &[u8]) -> Result<Lookup<ValueRef<'_>, PendingMerge<'_>>> {
        let mut operands = Vec::new();
        for slot in self.tables.newest_first() {
            let sequence = slot.read_at(self.sequence);
            if let Some(lookup) = decide(slot.table.get(key, sequence)?, &mut operands)? {
                return Ok(lookup);
            }
        }
        Ok(at_the_base(operands))
    }

    /// Looks many keys up; the results are in the order asked. The searches in each table overlap, see
    /// [`multi_get`](paranoid_memtable::TableReader::multi_get).
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, WriteBatch};
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// set.write(&batch)?;
    /// let view = set.view();
    /// let found = view.multi_get(&["a", "b"]);
    /// assert!(matches!(&found[0], Ok(Lookup::Value(value)) if **value == *b"1"));
    /// assert!(matches!(found[1], Ok(Lookup::NotFound)));
    /// # Ok(()) }
    /// ```
    ///
    /// Each result is what [`get`](Self::get) returns for its key, errors included.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> Vec<Result<Lookup<ValueRef<'_>, PendingMerge<'_>>>> {
        self.find_many(keys.iter().map(|key| (key.as_ref(), Vec::new(), None)).collect())
    }

    fn find_many<'v>(
        &'v self,
        mut all: Vec<Asked<'_, 'v>>,
    ) -> Vec<Result<Lookup<ValueRef<'v>, PendingMerge<'v>>>> {
        for slot in self.tables.newest_first() {
            let open: Vec<_> = all.iter_mut().filter(|(_, _, found)| found.is_none()).collect();
            let asked: Vec<&[u8]> = open.iter().map(|(key, ..)| *key).collect();
            let answers = slot.table.multi_get(&asked, slot.read_at(self.sequence));
            for ((_, operands, found), answer) in open.into_iter().zip(answers) {
                *found = answer.and_then(|answer| decide(answer, operands)).transpose();
            }
        }
        let found = all.into_iter();
        found.map(|(_, operands, found)| found.unwrap_or_else(|| Ok(at_the_base(operands)))).collect()
    }
}

impl<B> View<B> {
    /// A cursor over what this view sees in its tables alone; see [`merging_cursor`](Self::merging_cursor).
    ///
    /// # Errors
    /// Those of [`merging_cursor`](Self::merging_cursor).
    pub fn cursor(&self) -> Result<MergingCursor<'static>> {
        self.merging_cursor(Vec::new())
    }

    /// What this view sees between two bounds in its tables alone, as an iterator from both ends; see
    /// [`merging_range`](Self::merging_range).
    ///
    /// # Errors
    /// Those of [`merging_range`](Self::merging_range).
    pub fn range(&self, range: impl KeyRange) -> Result<SetRange<'static>> {
        self.merging_range(Vec::new, range)
    }

    /// A cursor over what this view sees in its tables and in `sources`, the engine's own files. Sources are given newest
    /// first: if two of them have one key, every version and range tombstone of the earlier one is newer. All are older than
    /// the tables. The cursor is not positioned yet. O(tables and sources).
    ///
    /// A move is O(tables and sources), expected, for each key that it comes to; backward it seeks twice in each that
    /// has the key. Keys below a range tombstone are passed by one seek per older table or source, and in its own table as well
    /// if nothing there is newer. See [`SortedSource`].
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let older = MemTable::default(); // stands for the files of the view's base
    /// older.put(0, b"a", b"1")?;
    /// older.put(0, b"b", b"2")?;
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// set.delete(b"a")?;
    /// let mut cursor = set.view().merging_cursor(vec![older.source()])?;
    /// assert_eq!(cursor.first()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// None at present: what is damaged is an error of the move that comes to it.
    pub fn merging_cursor<'s>(&self, sources: Vec<Box<dyn SortedSource + 's>>) -> Result<MergingCursor<'s>> {
        let tables = self.tables.newest_first();
        let tables = tables.map(|slot| Source::new(slot.table.source(), slot.read_at(self.sequence)));
        let below = sources.into_iter().map(|items| Source::new(items, self.sequence));
        let comparator = self.tables.active.table.key_comparator().clone();
        Ok(MergingCursor::under(comparator, tables.chain(below).collect()))
    }

    /// What this view sees between two bounds in its tables and in the engine's own sources, as an iterator from both
    /// ends. `sources` is asked twice, for each end once; for what it returns see
    /// [`merging_cursor`](Self::merging_cursor). The range borrows nothing else.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let older = MemTable::default(); // stands for the files of the view's base
    /// older.put(0, b"a", b"value")?;
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// set.put(b"b", b"value")?;
    /// set.put(b"c", b"value")?;
    /// let range = set.view().merging_range(|| vec![older.source()], ..b"c".as_slice())?;
    /// let keys: Vec<_> = range.rev().map(|entry| Ok(entry?.user_key().to_vec())).collect();
    /// assert_eq!(keys.into_iter().collect::<Result<Vec<_>, paranoid_memtable::Error>>()?, [b"b", b"a"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`merging_cursor`](Self::merging_cursor).
    pub fn merging_range<'s>(
        &self,
        mut sources: impl FnMut() -> Vec<Box<dyn SortedSource + 's>>,
        range: impl KeyRange,
    ) -> Result<SetRange<'s>> {
        let ends = [self.merging_cursor(sources())?, self.merging_cursor(sources())?];
        Ok(SetRange::new(ends, &range))
    }
}

/// A key, its operands so far, and its answer once that is known.
type Asked<'k, 'v> = (&'k [u8], Vec<Operand<'v>>, Option<Result<Lookup<ValueRef<'v>, PendingMerge<'v>>>>);

/// The number at which tables that were loaded before are read (VIEW-1).
pub(crate) fn read_at(publication: &Publication, active: &LastNumber) -> SequenceNumber {
    let visible = publication.visible();
    // After `visible` (TABLES-2).
    visible.min(active.get())
}

/// The answer, if a table's own decides it. Operands whose base is below are kept for it.
fn decide<'v>(
    lookup: Lookup<ValueRef<'v>, Operands<'v>>,
    operands: &mut Vec<Operand<'v>>,
) -> Result<Option<Lookup<ValueRef<'v>, PendingMerge<'v>>>> {
    let base = match lookup {
        Lookup::NotFound => return Ok(None),
        Lookup::Value(value) if operands.is_empty() => return Ok(Some(Lookup::Value(value))),
        Lookup::Deleted { sequence, by } if operands.is_empty() => {
            return Ok(Some(Lookup::Deleted { sequence, by }));
        }
        Lookup::Value(value) => Base::Value(value.bytes()),
        Lookup::Deleted { .. } => Base::Deleted,
        Lookup::Merge(found) => {
            let base = found.base()?;
            for operand in found {
                operands.push(operand?);
            }
            base
        }
    };
    if matches!(base, Base::Below) {
        return Ok(None);
    }
    Ok(Some(Lookup::Merge(PendingMerge { operands: std::mem::take(operands), base })))
}

/// The answer if it depends on the base.
fn at_the_base(operands: Vec<Operand<'_>>) -> Lookup<ValueRef<'_>, PendingMerge<'_>> {
    if operands.is_empty() {
        return Lookup::NotFound;
    }
    Lookup::Merge(PendingMerge { operands, base: Base::Below })
}

impl<B> Clone for View<B> {
    fn clone(&self) -> Self {
        View { tables: Arc::clone(&self.tables), sequence: self.sequence }
    }
}

shown! {
    "View": impl [B] View<B>, |view| { "tables": view.readers().count(), "sequence": view.sequence }
    "PendingMerge": impl [] PendingMerge<'_>, |merge| { "operands": merge.operands.len(), "base": merge.base }
}

/// The merge operands that the tables have of a key, and what they apply to.
///
/// ```
/// use paranoid_memtable::{Lookup, WriteBatch};
/// use paranoid_memtable::read::Base;
/// use paranoid_set::{MemTableSet, SetOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let mut batch = WriteBatch::new();
/// batch.merge(b"count", b"+1")?;
/// set.write(&batch)?;
/// set.switch()?;
/// set.write(&batch)?;
/// let view = set.view();
/// let Lookup::Merge(pending) = view.get(b"count")? else { panic!("merge operands") };
/// assert_eq!(pending.operands().len(), 2);
/// assert!(matches!(pending.base(), Base::Below), "the engine's files may have it");
/// # Ok(()) }
/// ```
pub struct PendingMerge<'v> {
    operands: Vec<Operand<'v>>,
    base: Base<&'v [u8]>,
}

impl<'v> PendingMerge<'v> {
    /// The operands, newest first.
    #[must_use]
    pub fn operands(&self) -> &[Operand<'v>] {
        &self.operands
    }

    /// The key's value: the operands applied to their base, or to `below` if the tables do not know it. `below` is what
    /// the engine's base has of the key.
    ///
    /// ```
    /// use std::error::Error;
    /// use paranoid_memtable::{Lookup, WriteBatch};
    /// use paranoid_set::{MemTableSet, MergeOperator, SetOptions};
    /// struct Append;
    /// impl MergeOperator for Append {
    ///     fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    ///         Ok([base.unwrap_or_default(), &operands.concat()].concat())
    ///     }
    /// }
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.merge(b"k", b"2")?;
    /// batch.merge(b"k", b"3")?;
    /// set.write(&batch)?;
    /// let view = set.view();
    /// let Lookup::Merge(pending) = view.get(b"k")? else { panic!("merge operands") };
    /// assert_eq!(pending.apply(&Append, b"k", Some(b"1"))?, b"123");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Merge` if the operator fails.
    pub fn apply(
        &self,
        operator: &(impl MergeOperator + ?Sized),
        key: impl AsRef<[u8]>,
        below: Option<&[u8]>,
    ) -> Result<Vec<u8>> {
        apply(operator, key.as_ref(), self.base, below, self.operands.iter().map(|operand| operand.value))
    }

    /// What they apply to; [`Base::Below`] if the tables do not know, and the engine's base is to be asked.
    #[must_use]
    pub fn base(&self) -> Base<&'v [u8]> {
        self.base
    }
}

// Ranges over a set: iterators with a merging cursor at each end.
//
// ```text
//   front ->  a  b  [unread]  e  f  <- back        the two ends stop where they meet
// ```
// * SET-RANGE-1: the place of an end, which is the last key that it showed, is the bound at which the other
//   end's cursor stops.
//
// One thread at a time moves a range; sets may be written meanwhile.

/// What a view shows between two bounds, iterated from both ends: it lends entries, by [`next_entry`](Self::next_entry)
/// and [`next_back_entry`](Self::next_back_entry), and is an iterator over copies of them. `Send`, and `'static` if the
/// engine's own sources in it are; it keeps the memory of its tables alive. Made by [`View::range`](crate::View::range)
/// and [`View::merging_range`](crate::View::merging_range).
///
/// What cannot be read is an error of the end that comes to it, which then goes on after it. The other end may report it
/// once more.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{MemTableSet, SetOptions, SetRange};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::builder().max_write_buffer_number(9).build()?, ())?;
/// for key in [b"a", b"b", b"c", b"d"] {
///     let mut batch = WriteBatch::new();
///     batch.put(key, b"value")?;
///     set.write(&batch)?;
///     set.switch()?;
/// }
/// let mut range: SetRange<'static> = set.view().range(b"b".as_slice()..)?;
/// drop(set);
/// assert_eq!(range.next_back_entry()?.map(|entry| entry.user_key()), Some(b"d".as_slice()));
/// let rest = range.map(|entry| Ok(entry?.user_key().to_vec())).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
/// assert_eq!(rest, [b"b", b"c"]);
/// # Ok(()) }
/// ```
pub struct SetRange<'s> {
    front: RangeEnd<'s>,
    back: RangeEnd<'s>,
}

/// One end of a range.
struct RangeEnd<'s> {
    cursor: MergingCursor<'s>,
    /// Whether the end goes on from its cursor, and not from its place.
    is_moving: bool,
}

impl<'s> SetRange<'s> {
    /// A range with a cursor over one set of sources at each end.
    pub(crate) fn new(cursors: [MergingCursor<'s>; 2], range: &impl KeyRange) -> Self {
        let bounds = range.key_bounds();
        let [front, back] =
            cursors.map(|cursor| RangeEnd { cursor: cursor.with_bounds(bounds), is_moving: false });
        SetRange { front, back }
    }

    /// The next entry from the front, lent until the next call.
    ///
    /// # Errors
    /// Those of [`MergingCursor::first`]; the next call goes on after what could not be read.
    pub fn next_entry(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Forward)
    }

    /// The next entry from the back, lent until the next call.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// set.write(&batch)?;
    /// let mut range = set.view().range(..)?;
    /// assert_eq!(range.next_back_entry()?.map(|entry| entry.value()), Some(b"1".as_slice()));
    /// assert!(range.next_entry()?.is_none(), "the ends have met");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`next_entry`](Self::next_entry).
    pub fn next_back_entry(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Backward)
    }

    /// The end that goes this way, and the other one.
    fn ends(&mut self, way: Direction) -> [&mut RangeEnd<'s>; 2] {
        let SetRange { front, back } = self;
        if way == Direction::Forward { [front, back] } else { [back, front] }
    }

    fn step(&mut self, way: Direction) -> Result<Option<&MergedEntry>> {
        let [own, other] = self.ends(way);
        let place = other.cursor.end_of(way.opposite());
        let entry = if std::mem::replace(&mut own.is_moving, true) {
            own.cursor.step(way)?
        } else {
            own.cursor.enter(way, place.as_ref().map(Vec::as_slice))?
        };
        if let Some(entry) = entry {
            *place = Bound::Excluded(entry.user_key().to_vec());
        }
        Ok(entry)
    }
}

impl Iterator for SetRange<'_> {
    type Item = Result<MergedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(Option::<&_>::cloned).transpose()
    }
}

impl DoubleEndedIterator for SetRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_back_entry().map(Option::<&_>::cloned).transpose()
    }
}

impl FusedIterator for SetRange<'_> {}

shown! {
    "SetRange": impl [] SetRange<'_>, |range| {
        "front": range.front.cursor, "back": range.back.cursor
    }
}
