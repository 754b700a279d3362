//! Views: what a set shows at one sequence number, and point reads over all of its tables.
//!
//! ```text
//!   key?  active -> immutables, newest first       the first table that says more than "not found" has the answer;
//!           a merge operand: go on below it        a range tombstone of a newer table counts as one
//!           nobody has it: the base is asked by the engine
//! ```
//! * VIEW-1: a view reads at min(visible, last number of its active table), both asked after its
//!   tables were loaded. Each number up to it is in a table of the view or in its base (TABLES-2,
//!   TABLES-3), and its entry is inserted (PUBLICATION-1): no view sees a gap, or a batch in part.
//!
//! Any thread; a view never changes and never waits.

#![forbid(unsafe_code)]

use std::iter::FusedIterator;
use std::sync::Arc;

use paranoid_memtable::read::{Base, Operand, Operands};
use paranoid_memtable::scan::SortedSource;
use paranoid_memtable::{Kind, Lookup, Result, SequenceNumber, TableReader, ValueRef, shown};

use crate::merged_entry::MergedEntry;
use crate::merging_cursor::MergingCursor;
use crate::merging_source::Source;
use crate::publication::Publication;
use crate::swapped::Loaded;
use crate::tables::{LastNumber, Tables};

/// What a set shows at one sequence number: its tables, and the engine's base. `'static`, `Send`
/// and `Sync`. It keeps the memory of its tables alive, also after they were flushed; a
/// [`Snapshot`](crate::Snapshot) does not.
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
    pub(crate) tables: Loaded<Tables<B>>,
    pub(crate) sequence: SequenceNumber,
}

impl<B> View<B> {
    /// The last sequence number that reads of this view see.
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The engine's own version: what [`open`](crate::MemTableSet::open) or the last flush gave the
    /// set.
    #[must_use]
    pub fn base(&self) -> &Arc<B> {
        &self.tables.base
    }

    /// The tables, newest first, for what is asked of single ones: counts, bytes, estimates, a
    /// scrub.
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
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Lookup<ValueRef<'_>, Box<MergedEntry>>> {
        self.find(key.as_ref())
    }

    fn find(&self, key: &[u8]) -> Result<Lookup<ValueRef<'_>, Box<MergedEntry>>> {
        let mut so_far = None;
        for slot in self.tables.newest_first() {
            let found = slot.table.get(key, slot.read_at(self.sequence))?;
            if let Some(lookup) = decide(key, found, &mut so_far)? {
                return Ok(lookup);
            }
        }
        Ok(at_the_base(so_far))
    }

    /// Looks many keys up; the results are in the order asked. The searches in each table overlap,
    /// see [`multi_get`](paranoid_memtable::TableReader::multi_get).
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
    ) -> Vec<Result<Lookup<ValueRef<'_>, Box<MergedEntry>>>> {
        let mut all: Vec<Asked<'_, '_>> =
            keys.iter().map(|key| (key.as_ref(), None, None)).collect();
        for slot in self.tables.newest_first() {
            let open: Vec<_> = all
                .iter_mut()
                .filter(|(_, _, found)| found.is_none())
                .collect();
            let asked: Vec<&[u8]> = open.iter().map(|(key, ..)| *key).collect();
            let answers = slot.table.multi_get(&asked, slot.read_at(self.sequence));
            for ((key, so_far, found), answer) in open.into_iter().zip(answers) {
                *found = answer
                    .and_then(|answer| decide(key, answer, so_far))
                    .transpose();
            }
        }
        let found = all.into_iter();
        found
            .map(|(_, so_far, found)| found.unwrap_or_else(|| Ok(at_the_base(so_far))))
            .collect()
    }

    /// A cursor over what this view sees in its tables alone; see
    /// [`merging_cursor`](Self::merging_cursor).
    ///
    /// # Errors
    /// Those of [`merging_cursor`](Self::merging_cursor).
    pub fn cursor(&self) -> Result<MergingCursor<'static>> {
        self.merging_cursor(Vec::new())
    }

    /// A cursor over what this view sees in its tables and in `sources`, the engine's own files.
    /// Sources are given newest first: if two of them have one key, every version and range
    /// tombstone of the earlier one is newer. All are older than the tables. The cursor is not
    /// positioned yet. O(tables and sources).
    ///
    /// A move is O(tables and sources), expected, for each key that it comes to; backward it seeks
    /// twice in each that has the key. Keys below a range tombstone are passed by one seek per
    /// older table or source, and in its own table as well if nothing there is newer. See
    /// [`SortedSource`].
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
    pub fn merging_cursor<'s>(
        &self,
        sources: Vec<Box<dyn SortedSource + 's>>,
    ) -> Result<MergingCursor<'s>> {
        let tables = self.tables.newest_first();
        let tables =
            tables.map(|slot| Source::new(slot.table.source(), slot.read_at(self.sequence)));
        Ok(self
            .over(tables.collect(), sources)
            .watching(&self.tables.active))
    }

    /// The value, or the merge operands and their base, that this view has of a key in its tables,
    /// or else in the engine's sources, which are asked one after the other as far as the answer
    /// needs; `None` if there is none, or if the key is deleted. `sources` is called if the tables
    /// do not decide; for what it returns see [`merging_cursor`](Self::merging_cursor). If the
    /// comparator takes several spellings for one key, the entry may have the one that was asked
    /// for.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let older = MemTable::default(); // stands for the files of the view's base
    /// older.put(1, b"a", b"1")?;
    /// let set = MemTableSet::open(SetOptions::builder().last_sequence(1).build()?, ())?;
    /// set.put(b"b", b"2")?;
    /// let view = set.view();
    /// let value = |key| Ok::<_, paranoid_memtable::Error>(view.merging_get(key, || vec![older.source()])?.map(|it| it.value().to_vec()));
    /// assert_eq!((value("a")?, value("b")?, value("c")?), (Some(b"1".to_vec()), Some(b"2".to_vec()), None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and of the sources, and `InvalidArgument` for a source that a
    /// seek leads before the key.
    pub fn merging_get<'s>(
        &self,
        key: impl AsRef<[u8]>,
        sources: impl FnOnce() -> Vec<Box<dyn SortedSource + 's>>,
    ) -> Result<Option<MergedEntry>> {
        let entry = so_far(key.as_ref(), self.find(key.as_ref())?);
        if entry.is_complete() {
            return Ok(entry.if_shown());
        }
        self.over(Vec::new(), sources()).complete(entry)
    }

    /// Looks many keys up, as [`merging_get`](Self::merging_get) does; the results are in the order
    /// asked. The searches in each table overlap, and all keys are looked for in one set of
    /// sources.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let older = MemTable::default(); // stands for the files of the view's base
    /// older.put(0, b"a", b"1")?;
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let found = set.view().merging_multi_get(&["a", "b"], vec![older.source()]);
    /// assert!(matches!(&found[..], [Ok(Some(entry)), Ok(None)] if entry.value() == b"1"));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn merging_multi_get<'s, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        sources: Vec<Box<dyn SortedSource + 's>>,
    ) -> Vec<Result<Option<MergedEntry>>> {
        let mut below = self.over(Vec::new(), sources);
        let found = keys.iter().zip(self.multi_get(keys));
        found
            .map(|(key, found)| below.complete(so_far(key.as_ref(), found?)))
            .collect()
    }

    /// A cursor over these sources and, below them, the engine's own.
    fn over<'s>(
        &self,
        mut all: Vec<Source<'s>>,
        sources: Vec<Box<dyn SortedSource + 's>>,
    ) -> MergingCursor<'s> {
        let sources = sources.into_iter().enumerate();
        let source = |(place, items)| Source {
            place: Some(place),
            ..Source::new(items, self.sequence)
        };
        all.extend(sources.map(source));
        MergingCursor::under(self.tables.active.table.key_comparator().clone(), all)
    }
}

/// What the tables say of a key, as an entry: complete, or to be completed by older sources.
fn so_far(key: &[u8], found: Lookup<ValueRef<'_>, Box<MergedEntry>>) -> MergedEntry {
    let mut entry = MergedEntry::of(key);
    match found {
        Lookup::NotFound => {}
        Lookup::Deleted { .. } => entry.base = Some(Kind::DELETE),
        Lookup::Value(value) => {
            entry.value.extend_from_slice(&value);
            entry.take_value(value.kind(), value.sequence());
        }
        Lookup::Merge(merge) => return *merge,
    }
    entry
}

/// A key, what is known of it so far, and its answer once that is known.
type Asked<'k, 'v> = (
    &'k [u8],
    Option<Box<MergedEntry>>,
    Option<Result<Lookup<ValueRef<'v>, Box<MergedEntry>>>>,
);

/// The number at which tables that were loaded before are read (VIEW-1).
pub(crate) fn read_at(publication: &Publication, active: &LastNumber) -> SequenceNumber {
    let visible = publication.visible();
    // After `visible` (TABLES-2).
    visible.min(active.get())
}

/// The answer, if a table's own decides it. Operands whose base is below are kept for it.
fn decide<'v>(
    key: &[u8],
    found: Lookup<ValueRef<'v>, Operands<'v>>,
    so_far: &mut Option<Box<MergedEntry>>,
) -> Result<Option<Lookup<ValueRef<'v>, Box<MergedEntry>>>> {
    let base = match found {
        Lookup::NotFound => return Ok(None),
        Lookup::Value(value) if so_far.is_none() => return Ok(Some(Lookup::Value(value))),
        Lookup::Deleted { sequence, by } if so_far.is_none() => {
            return Ok(Some(Lookup::Deleted { sequence, by }));
        }
        Lookup::Value(value) => Base::Value(value.bytes()),
        Lookup::Deleted { .. } => Base::Deleted,
        Lookup::Merge(operands) => {
            let base = operands.base()?;
            let entry = so_far.get_or_insert_with(|| Box::new(MergedEntry::of(key)));
            for operand in operands {
                let Operand { sequence, value } = operand?;
                entry.value.extend_from_slice(value);
                entry.take_operand(sequence);
            }
            base
        }
    };
    match (base, so_far.as_mut()) {
        (Base::Below, _) | (_, None) => return Ok(None),
        (Base::Deleted, Some(entry)) => entry.base = Some(Kind::DELETE),
        (Base::Value(value), Some(entry)) => {
            entry.value.extend_from_slice(value);
            entry.base = Some(Kind::PUT);
        }
    }
    Ok(so_far.take().map(Lookup::Merge))
}

/// The answer if it depends on the base.
fn at_the_base(so_far: Option<Box<MergedEntry>>) -> Lookup<ValueRef<'static>, Box<MergedEntry>> {
    so_far.map_or(Lookup::NotFound, Lookup::Merge)
}

impl<B> Clone for View<B> {
    fn clone(&self) -> Self {
        View {
            tables: Arc::clone(&self.tables),
            sequence: self.sequence,
        }
    }
}

shown! {
    "View": impl [B] View<B>, |view| { "tables": view.readers().count(), "sequence": view.sequence }
}
