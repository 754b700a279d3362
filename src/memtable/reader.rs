//! `TableReader`: the reading side of a table, mutable or frozen. Each method is documented here
//! and implemented in the file that it calls.
//!
//! Any number of threads may call every method at once.

#![forbid(unsafe_code)]

use std::any::Any;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::comparator::{Comparator, KeyComparator};
use crate::error::Result;
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::arena::layout::entry_bytes_max;
use crate::memtable::core::Core;
use crate::memtable::heals::Healed;
use crate::memtable::lifecycle::scrub::{ScrubProgress, ScrubReport, scrub};
use crate::memtable::options::MemTableOptions;
use crate::memtable::read::entry::Entry;
#[cfg(feature = "bytes")]
use crate::memtable::read::get::pin;
use crate::memtable::read::get::{Lookup, Operands, ValueRef, get, get_entry, get_into};
use crate::memtable::read::multi_get::multi_get;
use crate::memtable::scan::bounds::{scan_bounds, version_bounds};
use crate::memtable::scan::cursor::Cursor;
use crate::memtable::scan::estimate::{RangeStats, approximate_range_stats};
use crate::memtable::scan::handle::Borrowed;
use crate::memtable::scan::key_range::KeyRange;
use crate::memtable::scan::range::Range;
use crate::memtable::scan::source::{SortedSource, TableSource};
use crate::memtable::scan::tombstones::range_tombstones;
use crate::memtable::scan::visibility::{AtSnapshot, Visible};
use crate::memtable::stats::Stats;
use crate::tombstone::capacity::Load;
use crate::tombstone::fragments::Fragments;

/// The reading side of a table, mutable or frozen. [`MemTable`](crate::MemTable) and
/// [`ImmutableMemTable`](crate::ImmutableMemTable) dereference to it, as `Vec` does to a slice.
///
/// A read at snapshot S sees each entry with sequence number <= S whose insert returned before the
/// read began.
///
/// ```
/// use paranoid_memtable::{MemTable, TableReader};
/// fn count(table: &TableReader) -> usize {
///     table.range(..).filter(|entry| entry.is_ok()).count()
/// }
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// assert_eq!(count(&table), 1);
/// let frozen = table.freeze()?;
/// assert_eq!(count(&frozen), 1);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct TableReader {
    pub(crate) core: Arc<Core>,
}

impl TableReader {
    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The options of the table.
    #[must_use]
    pub fn options(&self) -> &MemTableOptions {
        &self.core().options
    }

    /// The comparator that orders the keys.
    #[must_use]
    pub fn comparator(&self) -> &dyn Comparator {
        self.core().comparator.get()
    }

    /// The comparator with the order of bytes inlined.
    #[doc(hidden)]
    #[must_use]
    pub fn key_comparator(&self) -> &KeyComparator {
        &self.core().comparator
    }

    /// Whether the table is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.core().is_frozen()
    }

    /// The number of entries: point entries and range tombstones, without replaced entries. Exact
    /// while no write is running. O(shards).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// table.delete_range(2, b"a", b"b")?;
    /// assert_eq!(table.len(), 2);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.core().shards.totals().entries).unwrap_or(usize::MAX)
    }

    /// Whether the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of allocated memory: arena, side structures, and the table's own struct. Never
    /// shrinks.
    ///
    /// The small chunks of the arena, of 3.75 and 28.25 KiB, count as a whole once they are allocated. Of
    /// later chunks, the part that writers have taken counts. A writer takes up to 256 KiB at a
    /// time, but at most a quarter of the bytes that it has; [`used_bytes`](Self::used_bytes)
    /// leaves out bytes that it has not used yet.
    ///
    /// `should_flush` counts what writers have taken, the side structures, what a freeze will add,
    /// and the table's own struct. The hard limit counts the same without the table's own struct.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.core().allocated_bytes()
    }

    /// Bytes of memory in use: [`allocated_bytes`](Self::allocated_bytes) without the rest of the
    /// small chunks, and without space that writers took or reserved and have not used yet. Use it
    /// to add up many small tables. Exact while no write is running; never waits. O(writers).
    ///
    /// ```
    /// # use paranoid_memtable::{MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// for sequence in 0..50 {
    ///     table.put(sequence, b"key", &[7; 100])?;
    /// }
    /// assert!(table.used_bytes() < 24 << 10 && table.allocated_bytes() > 32 << 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.core()
            .taken_bytes()
            .saturating_sub(self.core().shards.unused_bytes())
    }

    /// Bytes left below the hard limit, as `MemTableFull` reports them: the limit minus the
    /// allocated memory, and minus what range tombstones may still add, mostly at the freeze.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// let options = MemTableOptions::builder().write_buffer_size(1 << 20).hard_limit(2 << 20).build()?;
    /// let table = MemTable::new(options)?;
    /// assert!(table.remaining() <= 2 << 20);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.core().arena.limit.remaining_bytes()
    }

    /// Whether an entry of this kind and these lengths, at any tower height, is within the table's
    /// limits and fits below the hard limit. For a range tombstone, `value_len` is the length of
    /// the end of its range, and the bytes that it adds to the tombstone index and to the freeze
    /// count too.
    ///
    /// If `true`, an insert cannot fail for size unless another writer takes the space or the
    /// machine runs out of memory. If `false`, the entry may still fit the space that its writer
    /// has reserved.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let options = MemTableOptions::builder().write_buffer_size(64 << 10).hard_limit(128 << 10).build()?;
    /// let table = MemTable::new(options)?;
    /// assert!(table.can_fit(Kind::PUT, 10, 1000) && !table.can_fit(Kind::PUT, 10, 128 << 10));
    /// let mut sequence = 0;
    /// while table.can_fit(Kind::RANGE_DELETE, 1, 1) {
    ///     sequence += 1;
    ///     table.delete_range(sequence, b"a", b"b")?;
    /// }
    /// table.freeze()?;
    /// assert!(sequence > 9 && table.allocated_bytes() < 144 << 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn can_fit(&self, kind: Kind, key_len: u64, value_len: u64) -> bool {
        let MemTableOptions {
            key_len_max,
            value_len_max,
            ..
        } = self.core().options;
        let is_range = kind == Kind::RANGE_DELETE;
        let value_len_max = if is_range {
            value_len_max.min(key_len_max)
        } else {
            value_len_max
        };
        if self.is_frozen() || key_len > key_len_max || value_len > value_len_max {
            return false;
        }
        let range = is_range.then(|| Load::of(1));
        let beside = range.map_or(0, |range| self.core().tombstones.bytes_for(range));
        entry_bytes_max(key_len, value_len).saturating_add(beside) <= self.remaining()
    }

    /// Keeps a value alive as long as the table's memory, such as a permit of a memory budget or a
    /// lock on a log file. The table drops the value after it has freed its memory, so after the
    /// last handle, writer, owned cursor and pinned value.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let permit = Arc::new("64 MiB of the budget");
    /// let table = MemTable::default();
    /// table.attach(permit.clone());
    /// table.put(1, b"k", b"v")?;
    /// let value = table.get(b"k", 1)?.into_value().expect("it was put");
    /// let pinned = value.to_pinned();
    /// drop(table);
    /// assert_eq!(Arc::strong_count(&permit), 2, "the value keeps the memory, and the memory the permit");
    /// drop(pinned);
    /// assert_eq!(Arc::strong_count(&permit), 1);
    /// # Ok(()) }
    /// ```
    pub fn attach(&self, attachment: Arc<dyn Any + Send + Sync>) {
        self.core().attached.lock().push(attachment);
    }

    /// Counts of the table's entries. O(shards).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// table.delete_range(2, b"a", b"b")?;
    /// let stats = table.stats();
    /// assert_eq!((stats.range_deletes, stats.data_bytes, stats.largest_sequence), (1, 10, Some(2)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let (totals, sequences) = (core.shards.totals(), core.shards.sequences());
        Stats {
            deletes: totals.deletes,
            range_deletes: totals.range_deletes,
            displaced: totals.displaced,
            data_bytes: totals.data_bytes,
            healed: core.arena.heals().count(),
            smallest_sequence: sequences.map(|(smallest, _)| smallest),
            largest_sequence: sequences.map(|(_, largest)| largest),
        }
    }

    /// The places of the table's memory that were damaged and put right, in the order of their
    /// repair. Each is told once, also if it is damaged again. The option
    /// [`repair`](crate::ParanoidOptionsBuilder::repair) limits their number. O(places).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// assert_eq!(table.healed(), []);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn healed(&self) -> Vec<Healed> {
        self.core().arena.heals().all()
    }

    /// Looks up `key` at `snapshot` (inclusive). The result is a value, a deletion, merge operands,
    /// or nothing. Expected O(log n).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.put(5, b"apple", b"green")?;
    /// assert!(table.get(b"apple", 4)?.value() == Some(b"red"));
    /// assert!(table.get(b"apple", 5)?.value() == Some(b"green"));
    /// assert!(table.get(b"pear", 5)?.found().is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damaged memory could change the answer. The [fault
    /// model](crate::guide::fault_model) says which damage a read notices.
    #[inline]
    pub fn get(
        &self,
        key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
    ) -> Result<Lookup<ValueRef<'_>, Operands<'_>>> {
        get(self.core(), key.as_ref(), snapshot)
    }

    /// The newest entry of `key` at or below `snapshot`, as stored; range tombstones are not
    /// applied. Expected O(log n).
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.delete(5, b"apple")?;
    /// let entry = table.get_entry(b"apple", 9)?.expect("two versions");
    /// assert_eq!((entry.sequence(), entry.kind()), (5, Kind::DELETE));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damaged memory could change the answer.
    #[inline]
    pub fn get_entry(
        &self,
        key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
    ) -> Result<Option<Entry<'_>>> {
        get_entry(self.core(), key.as_ref(), snapshot)
    }

    /// Key and value of an entry of this table as `Bytes`, which keep the table's memory alive.
    /// Verifies both, copies nothing, and allocates once. O(length).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(7, b"apple", b"red")?;
    /// let (key, value) = table.pin(&table.get_entry(b"apple", 7)?.expect("it was put"))?;
    /// drop(table); // key and value keep the memory alive
    /// assert_eq!((&*key, &*value), (b"apple".as_slice(), b"red".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if key or value is damaged; `InvalidArgument` for an entry of another table.
    #[cfg(feature = "bytes")]
    #[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
    pub fn pin(&self, entry: &Entry<'_>) -> Result<(bytes::Bytes, bytes::Bytes)> {
        pin(self.core(), entry)
    }

    /// Copies the value of `key` at `snapshot` into `buffer`, which is cleared first, and verifies
    /// the copy. Allocates only if the buffer is too small.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut buffer = Vec::with_capacity(16);
    /// let (sequence, kind) = table.get_into(b"apple", 1, &mut buffer)?.into_value().expect("it was put");
    /// assert_eq!((sequence, kind, &buffer[..]), (1, Kind::PUT, &b"red"[..]));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get); the buffer is then empty.
    #[inline]
    pub fn get_into(
        &self,
        key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
        buffer: &mut Vec<u8>,
    ) -> Result<Lookup<(SequenceNumber, Kind), ()>> {
        get_into(self.core(), key.as_ref(), snapshot, buffer)
    }

    /// Looks up several keys at one snapshot. The results are in the order of `keys`, which need
    /// not be sorted or distinct. Each result is what [`get`](Self::get) returns for its key, and
    /// damage affects only the keys that it touches ([fault model](crate::guide::fault_model)).
    /// Much faster than a loop of gets, because the searches overlap.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, Result};
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"x")?;
    /// let found: Vec<_> = table.multi_get(&[b"b", b"a"], 1).into_iter().collect::<Result<_>>()?;
    /// assert!(found[0].value().is_none());
    /// assert!(found[1].value() == Some(b"x"));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        snapshot: SequenceNumber,
    ) -> Vec<Result<Lookup<ValueRef<'_>, Operands<'_>>>> {
        let mut results = Vec::with_capacity(keys.len());
        self.multi_get_into(keys, snapshot, &mut results);
        results
    }

    /// Looks up several keys, as [`multi_get`](Self::multi_get) does, and writes the results to a
    /// buffer, which is cleared first. Allocates only if the buffer is too small.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, Result};
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let mut lookups = Vec::with_capacity(2);
    /// table.multi_get_into(&[b"apple".as_slice(), b"pear"], 1, &mut lookups);
    /// let found: Vec<_> = lookups.drain(..).collect::<Result<_>>()?;
    /// assert!(found[0].value() == Some(b"red"));
    /// assert!(found[1].value().is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn multi_get_into<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        snapshot: SequenceNumber,
        results: &mut Vec<Result<Lookup<ValueRef<'a>, Operands<'a>>>>,
    ) {
        multi_get(self.core(), keys, snapshot, results);
    }

    /// Iterates over every version of the keys in a range, from both ends. An inverted range is
    /// empty.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// for (sequence, key) in (1..).zip([b"a", b"b", b"c"]) {
    ///     table.put(sequence, key, b"")?;
    /// }
    /// let range = table.range("a".."c");
    /// let keys: Result<Vec<&[u8]>, Error> = range.map(|entry| Ok(entry?.user_key())).collect();
    /// assert_eq!(keys?, [b"a", b"b"]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> Range<Borrowed<'_>> {
        Range::new(Borrowed(self.core()), Visible::All, scan_bounds(&range))
    }

    /// Iterates over the versions in a range of (user key, sequence number), from both ends. In the
    /// order of the table the sequence numbers of a key descend: `(k, u64::MAX)` is the first
    /// position of key k, and `(k, 0)` the last one.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// for sequence in 1..=3 {
    ///     table.put(sequence, b"k", b"")?;
    /// }
    /// let versions: Result<Vec<u64>, Error> = table.versions(("k", 2)..).map(|entry| Ok(entry?.sequence())).collect();
    /// assert_eq!(versions?, [2, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn versions<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<(K, SequenceNumber)>,
    ) -> Range<Borrowed<'_>> {
        Range::new(Borrowed(self.core()), Visible::All, version_bounds(&range))
    }

    /// Iterates over the entries of a range of keys that a snapshot (inclusive) sees, from both
    /// ends: the newest visible version of each key, with deletes and range deletes applied. An
    /// inverted range is empty.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable};
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// table.delete(3, b"a")?;
    /// let keys: Result<Vec<&[u8]>, Error> = table.range_at(.., 3).map(|entry| Ok(entry?.user_key())).collect();
    /// assert_eq!(keys?, [b"b"]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn range_at(
        &self,
        range: impl KeyRange,
        snapshot: SequenceNumber,
    ) -> Range<Borrowed<'_>, AtSnapshot> {
        let visible = Visible::At(snapshot);
        Range::new(Borrowed(self.core()), visible, scan_bounds(&range))
    }

    /// The range tombstones that a snapshot (inclusive) sees, as fragments, each with its newest
    /// visible sequence number, for engines that merge this table with other sources. Verifies
    /// every tombstone. O(n log n) for n range tombstones. The tombstones of a frozen table never
    /// change, so the result may be kept.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.delete_range(3, b"a", b"g")?;
    /// table.delete_range(7, b"c", b"k")?;
    /// let seen = table.range_tombstones(u64::MAX)?;
    /// let shown: Vec<_> = seen.iter().map(|it| (it.start(), it.end(), it.newest())).collect();
    /// assert_eq!(shown, [(&b"a"[..], &b"c"[..], 3), (b"c", b"k", 7)]);
    /// assert_eq!(table.range_tombstones(6)?.max_covering_sequence(b"d", u64::MAX), Some(3));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if a stored range tombstone is damaged.
    pub fn range_tombstones(&self, snapshot: SequenceNumber) -> Result<Fragments> {
        range_tombstones(self.core(), snapshot)
    }

    /// Estimates the number and the bytes of the entries in a range of keys. Expected O(log n).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"1")?;
    /// table.put(2, b"b", b"2")?;
    /// let stats = table.approximate_range_stats("a".."b")?;
    /// assert_eq!((stats.entries, stats.data_bytes), (1, 2)); // exact for few entries
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if damage makes an estimate impossible.
    pub fn approximate_range_stats(&self, range: impl KeyRange) -> Result<RangeStats> {
        approximate_range_stats(self.core(), scan_bounds(&range))
    }

    /// A cursor over every version of every key. It neither shows nor applies range tombstones, and
    /// is not positioned yet.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.put(2, b"apple", b"green")?;
    /// let mut cursor = table.cursor();
    /// assert_eq!(cursor.first()?.map(|entry| entry.sequence()), Some(2)); // newest version first
    /// assert_eq!(cursor.next()?.map(|entry| entry.sequence()), Some(1));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn cursor(&self) -> Cursor<Borrowed<'_>> {
        Cursor::new(Borrowed(self.core()), Visible::All)
    }

    /// A cursor over the entries that a snapshot (inclusive) sees: the newest visible version of
    /// each key, with deletes and range deletes applied. For a key with merge operands it shows the
    /// newest operand. It is not positioned yet.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// table.put(2, b"apple", b"green")?;
    /// let mut cursor = table.cursor_at(1);
    /// assert_eq!(cursor.first()?.map(|entry| entry.sequence()), Some(1));
    /// assert!(cursor.next()?.is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn cursor_at(&self, snapshot: SequenceNumber) -> Cursor<Borrowed<'_>, AtSnapshot> {
        Cursor::new(Borrowed(self.core()), Visible::At(snapshot))
    }

    /// All versions of all keys, and the range tombstones, as a source of a merge. The source keeps
    /// the table's memory alive.
    ///
    /// ```
    /// use paranoid_memtable::{Bytewise, MemTable};
    /// use paranoid_memtable::scan::SourceMove;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"b", b"value")?;
    /// table.delete_range(2, b"a", b"c")?;
    /// let mut source = table.source();
    /// assert_eq!(source.go(SourceMove::First)?.map(|key| key.user_key), Some(&b"b"[..]));
    /// let cover = source.cover(&Bytewise, b"b", u64::MAX)?.expect("a range tombstone");
    /// assert_eq!((cover.sequence, cover.span), (2, Some((&b"a"[..], &b"c"[..]))));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn source(&self) -> Box<dyn SortedSource> {
        Box::new(TableSource::new(self.cursor().owned()))
    }

    /// Verifies every entry, link and control word and reports every finding (see the [fault
    /// model](crate::guide::fault_model)). In a frozen table it also compares counts and digest
    /// sums with those that the freeze sealed. Calls `progress` every 1024 entries and at the end.
    /// O(entries).
    ///
    /// ```
    /// # use paranoid_memtable::{MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"key", b"value")?;
    /// let report = table.scrub(|_| {});
    /// assert!(report.findings.is_empty());
    /// assert_eq!(report.entries, 1);
    /// # Ok(()) }
    /// ```
    pub fn scrub(&self, mut progress: impl FnMut(ScrubProgress)) -> ScrubReport {
        scrub(self.core(), &mut progress)
    }
}

/// Iterates over every version of every key, as [`range(..)`](TableReader::range) does.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.put(1, "apple", "red")?;
/// for entry in &table {
///     assert_eq!(entry?.parts()?, (b"apple".as_slice(), b"red".as_slice()));
/// }
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
impl<'t> IntoIterator for &'t TableReader {
    type Item = Result<Entry<'t>>;
    type IntoIter = Range<Borrowed<'t>>;

    fn into_iter(self) -> Range<Borrowed<'t>> {
        self.range(..)
    }
}
