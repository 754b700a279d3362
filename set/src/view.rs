//! Views: a set at one sequence number, and point reads over all of its tables.
//!
//! ```text
//!   get(key)  active -> immutables, newest first    the first table with an answer ends the search
//!               a value, a delete, a range delete   an answer
//!               merge operands                      kept; the search continues below them
//!             no table has an answer                the engine asks the base
//! ```
//! * VIEW-1: a view reads at min(visible, last number of its active table), both loaded after its
//!   tables. Each number up to this one is in a table of the view or in its base, and its entry is
//!   inserted. So no view sees a gap, or a part of a batch.
//!
//! Any thread; a view never changes and never waits.

#![forbid(unsafe_code)]

use std::borrow::BorrowMut;
use std::iter::FusedIterator;
use std::sync::Arc;

use paranoid_memtable::read::{Base, Operand, Operands};
use paranoid_memtable::scan::SortedSource;
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::{Kind, Lookup, Result, SequenceNumber, TableReader, ValueRef, shown};

use crate::merged_entry::MergedEntry;
use crate::merging_cursor::MergingCursor;
use crate::merging_source::Source;
use crate::publication::Publication;
use crate::swapped::Loaded;
use crate::tables::{LastNumber, Tables};

/// A set at one sequence number: its tables, and the engine's base. A view is `'static`, `Send` and
/// `Sync`. It keeps the memory of its tables alive after they are flushed; a
/// [`Snapshot`](crate::Snapshot) does not.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{MemTableSet, SetOptions, View};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), "files 1 and 2")?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// set.write(&batch)?;
/// let view: View<&str> = set.view();
/// match view.get(b"k")?.found() {
///     Some(answer) => assert!(answer.value() == Some(b"v")),
///     None => println!("to be looked for in {}", view.base()),
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

    /// The engine's own version of its files: the base that the set had when the view was made.
    #[must_use]
    pub fn base(&self) -> &Arc<B> {
        &self.tables.base
    }

    /// The readers of the view's tables, newest first, for counts, bytes, estimates and scrubs of
    /// single tables.
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
    /// use paranoid_memtable::WriteBatch;
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
    /// assert!(set.view().get(b"k")?.is_deleted());
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

    /// Looks many keys up. The results are in the order of `keys`. The searches in each table
    /// overlap; see [`multi_get`](paranoid_memtable::TableReader::multi_get).
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// set.write(&batch)?;
    /// let view = set.view();
    /// let found: Vec<_> = view.multi_get(&["a", "b"]).into_iter().collect::<Result<_, _>>()?;
    /// assert!(found[0].value() == Some(b"1"));
    /// assert!(found[1].value().is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// Each result is that of [`get`](Self::get) for its key, errors included.
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

    /// A cursor over the entries that this view sees in its tables alone; see
    /// [`merging_cursor`](Self::merging_cursor).
    ///
    /// # Errors
    /// Those of [`merging_cursor`](Self::merging_cursor).
    pub fn cursor(&self) -> Result<MergingCursor<'static>> {
        self.merging_cursor(Vec::new())
    }

    /// A cursor over the entries that this view sees in its tables and in `sources`, the engine's
    /// own files. The sources are newest first: for each key, every version and range tombstone of
    /// a source is newer than those of the sources after it. All are older than the tables. The
    /// cursor is on no entry yet. O(tables and sources).
    ///
    /// A move costs O(tables and sources), expected, for each key that it reads. Backward, it seeks
    /// twice in each table or source that has the key. Keys under a range tombstone are skipped by
    /// one seek in each older table or source, and by one in the tombstone's own table if nothing
    /// there is newer. See [`SortedSource`].
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let older = MemTable::default(); // in place of the files of the base
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
    /// None at present. Damage is an error of the move that meets it.
    pub fn merging_cursor<'s>(
        &self,
        sources: Vec<Box<dyn SortedSource + 's>>,
    ) -> Result<MergingCursor<'s>> {
        let tables = self.tables.newest_first();
        let tables =
            tables.map(|slot| Source::new(slot.table.source(), None, slot.read_at(self.sequence)));
        let below = sources.into_iter().enumerate().map(|at| self.below(at));
        let all = tables.chain(below).collect();
        Ok(MergingCursor::under(self.comparator().clone(), all).watching(&self.tables.active))
    }

    /// Looks a key up in the tables and then in the engine's sources, one after the other as far as
    /// the answer needs. Returns the value, or the merge operands and their base; `None` if the key
    /// is absent or deleted. `sources` is called only if the tables do not decide, and returns the
    /// sources in the order of [`merging_cursor`](Self::merging_cursor). Sources of one type need no
    /// box each, and an iterator makes each one only when it is asked. If several byte strings
    /// compare equal, the entry may have the bytes of `key`.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let older = MemTable::default(); // in place of the files of the base
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
    /// Those of [`get`](Self::get) and of the sources, and `InvalidArgument` for a source whose
    /// seek ends before the key.
    pub fn merging_get<I: IntoIterator<Item: SortedSource>>(
        &self,
        key: impl AsRef<[u8]>,
        sources: impl FnOnce() -> I,
    ) -> Result<Option<MergedEntry>> {
        let entry = so_far(key.as_ref(), self.find(key.as_ref())?);
        let sources = std::iter::once_with(sources).flatten();
        let sources = sources.enumerate().map(|at| self.below(at));
        complete::<I::Item>(self.comparator(), sources, entry)
    }

    /// Looks many keys up, each as [`merging_get`](Self::merging_get) does. The results are in the
    /// order of `keys`. The searches in each table overlap, and all keys share one set of sources.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let older = MemTable::default(); // in place of the files of the base
    /// older.put(0, b"a", b"1")?;
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let found = set.view().merging_multi_get(&["a", "b"], vec![older.source()]);
    /// assert!(matches!(&found[..], [Ok(Some(entry)), Ok(None)] if entry.value() == b"1"));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn merging_multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        sources: impl IntoIterator<Item: SortedSource>,
    ) -> Vec<Result<Option<MergedEntry>>> {
        let sources = sources.into_iter().enumerate();
        let mut below: Vec<_> = sources.map(|at| self.below(at)).collect();
        let found = keys.iter().zip(self.multi_get(keys));
        found
            .map(|(key, found)| {
                complete(self.comparator(), &mut below, so_far(key.as_ref(), found?))
            })
            .collect()
    }

    /// The engine's source at a place.
    fn below<S: SortedSource>(&self, (place, items): (usize, S)) -> Source<S> {
        Source::new(items, Some(place), self.sequence)
    }

    fn comparator(&self) -> &KeyComparator {
        self.tables.active.table.key_comparator()
    }
}

/// Completes a point read. `entry` has the versions of newer tables; the sources are read one after
/// the other as far as the answer needs.
fn complete<S: SortedSource>(
    comparator: &KeyComparator,
    sources: impl IntoIterator<Item: BorrowMut<Source<S>>>,
    mut entry: MergedEntry,
) -> Result<Option<MergedEntry>> {
    let mut sources = sources.into_iter();
    while !entry.is_complete()
        && let Some(mut source) = sources.next()
    {
        source.borrow_mut().look_up(comparator, &mut entry)?;
    }
    Ok(entry.if_shown())
}

/// The answer of the tables as an entry, which is complete or waits for older sources.
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

/// A key, the operands found so far, and the answer once it is known.
type Asked<'k, 'v> = (
    &'k [u8],
    Option<Box<MergedEntry>>,
    Option<Result<Lookup<ValueRef<'v>, Box<MergedEntry>>>>,
);

/// The number at which a view reads tables that were loaded before this call (VIEW-1).
pub(crate) fn read_at(publication: &Publication, active: &LastNumber) -> SequenceNumber {
    let visible = publication.visible();
    // Loaded after `visible`: a table is closed before the next table gets a number. So a visible
    // number of the next table shows that this one is closed.
    visible.min(active.get())
}

/// The final answer for a key, if a table's answer decides it. Operands whose base is in an older
/// table are collected in `so_far`.
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

/// The answer if no table decides: operands that wait for the base, or nothing.
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
