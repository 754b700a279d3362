//! The log: every tombstone of an index in order of arrival, by the name of its entry (`span.rs`).
//! The nodes of the index are derived from it. What all of them are checked with stands here too.
//!
//! ```text
//!   tally              of records: two counters, what was begun and what has ended
//!   common prefix      what all bounds begin with
//!   record             sequence | start prefix | end prefix | skip (8), 0 (24), node (32) | check
//! ```
//! * LOG-1: the check word of a record is stored last and holds the record's pending mark until
//!   then. Any other value that is not the check is damage, so zeroed memory is never taken for a
//!   record that is still missing.
//! * LOG-2: a record with the pending mark, or without a segment, is being written only if the
//!   tally says that a writer is at work. Otherwise it was lost, because a word went back to an
//!   earlier value, and that is damage. Tally and records are in different cache lines.
//! * LOG-3: a record is written only over its pending mark.
//! * LOG-4: the prefix of a bound is that of its bytes after the first `skip`, which are those of
//!   the common prefix.
//!
//! Who may call what: everything, any thread. Readers never wait. Writers contend for the tally
//! only. Not promised: that a record whose `push` is still running is seen, and LOG-2 while a
//! `push` is running.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;
use std::hint::black_box;

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::digest::{Checks, SKIP_SHIFT};
use crate::key::{KeyComparator, KeyOrder, SequenceNumber, bytes_at};
use crate::sync::{AtomicU64, Ordering, Published};
use crate::tombstone::span::{Checked, End, Keys, Source, Tombstone};

/// Most records of a log. One bit of a boundary's name says whether it is a start or an end, and
/// the largest name stands for no boundary.
pub(crate) const RECORDS_MAX: u32 = (1 << 31) - 1;
const _: () = assert!(RECORDS_MAX == u32::MAX / 2, "what a name holds");
const RECORD_WORDS: usize = 5;
const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;
/// Records of the first segments. A multiple of a block, so that no block straddles segments.
pub(crate) const FIRST_RECORDS: u32 = if cfg!(loom) { 2 } else { 32 };
/// Which counters count records. The index owns these, so that an empty index needs no log.
pub(crate) const COUNTS: u32 = 1;

/// The painter of a piece that no tombstone covers.
pub(crate) const NOBODY: u32 = u32::MAX;

/// The name of a boundary: record index and end, in 32 bits.
#[inline(always)]
pub(crate) const fn boundary(index: u32, end: End) -> u32 {
    index << 1 | end as u32
}

/// A complete record whose check was verified. Its node is read when a query needs a key, which is
/// rare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) sequence: SequenceNumber,
    pub(crate) index: u32,
    prefixes: [u64; 2],
    /// Number of bytes that its prefixes leave out (8) | 0 (24) | node (32).
    place: u64,
}

impl Record {
    #[inline(always)]
    pub(crate) fn prefix(&self, end: End) -> u64 {
        self.prefixes[end as usize]
    }

    /// Its boundaries, as a node stores pieces: a prefix, and name with painter.
    pub(crate) fn pieces(&self) -> [(u64, u64); 2] {
        let piece = |end, painter| (self.prefix(end), pair(boundary(self.index, end), painter));
        [piece(End::Start, self.index), piece(End::Stop, NOBODY)]
    }

    /// Number of bytes that its prefixes leave out.
    #[inline(always)]
    pub(crate) fn skip(&self) -> u32 {
        u32::from(self.place.to_be_bytes()[0])
    }

    /// The name of its node.
    #[inline(always)]
    pub(crate) fn node(&self) -> u32 {
        low(self.place)
    }

    /// One of its keys, verified: all keys are read here.
    #[inline(always)]
    pub(crate) fn bound<'t>(&self, source: Source<'t>, end: End) -> Checked<&'t [u8]> {
        source.spans.bound(self.node(), end)
    }

    /// Length of both its keys in bytes, verified.
    pub(crate) fn key_bytes(&self, source: Source<'_>) -> Checked<u64> {
        source.spans.key_bytes(self.node())
    }
}

/// The stored form of a [`Record`].
pub(crate) type RecordWords = [AtomicU64; RECORD_WORDS];

/// The log of one index.
pub(crate) struct Log {
    records: Segments<RecordWords, FIRST_RECORDS>,
    bytes: AtomicU64,
    /// Number of bytes that the prefixes of the latest record leave out; a hint for later records.
    skip: AtomicU64,
    pub(crate) common_prefix: CommonPrefix,
    checks: Checks,
}

impl Log {
    pub(crate) fn new(checks: Checks, common_prefix: CommonPrefix) -> Self {
        Log {
            records: Segments::new(),
            bytes: AtomicU64::new(0),
            skip: AtomicU64::new(u64::MAX),
            common_prefix,
            checks,
        }
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        // ORDERING: relaxed; a statistic.
        size_of::<Self>() as u64 + self.bytes.load(Ordering::Relaxed)
    }

    /// Adds to the statistic of allocated bytes.
    pub(crate) fn grown(&self, bytes: u64) {
        // ORDERING: relaxed; a statistic.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Appends a tombstone and returns its index. The caller has checked that it starts before it
    /// ends.
    pub(crate) fn push(
        &self,
        source: Source<'_>,
        tally: &Tally,
        tombstone: &Tombstone<'_>,
    ) -> Result<u32> {
        let Tombstone {
            node,
            keys,
            sequence,
        } = *tombstone;
        let skip = self.skip_for(keys)?;
        let prefixes = keys.map(|key| source.comparator.image(key, skip as usize));
        let (index, one) = tally.begin(|count| match count {
            RECORDS_MAX.. => Err(Error::MemTableFull {
                needed: RECORD_BYTES,
                remaining: 0,
            }),
            _ => Ok((count, count + 1)),
        })?;
        let place = pair(skip << (SKIP_SHIFT - 32), node);
        let check = self.checks.record(index, sequence, prefixes, place);
        let slot = self.records.ensure(
            index,
            |index| self.pending(index),
            |bytes| self.grown(bytes),
        );
        let Some(slot) = slot else {
            return Err(damage(u64::from(index) * RECORD_BYTES, 0, 0).into());
        };
        // ORDERING: relaxed; only the writer that claimed this index stores here.
        let (found, pending) = (slot[4].load(Ordering::Relaxed), self.checks.pending(index));
        if found != pending {
            return Err(damage(u64::from(index) * RECORD_BYTES, pending, found).into()); // LOG-3
        }
        for (stored, word) in slot.iter().zip([sequence, prefixes[0], prefixes[1], place]) {
            // ORDERING: relaxed; published by the check word below.
            stored.store(word, Ordering::Relaxed);
        }
        // ORDERING: release; partner: the acquire load of the check word in `decode`. Publishes
        // the record, and the node that it names (TRUTH-1).
        slot[4].store(check, Ordering::Release);
        tally.end(one)?;
        self.compare(source, index, black_box(tombstone))?;
        Ok(index)
    }

    /// Compares a record with what it was made of: a processor that erred has made its check of
    /// what it got wrong.
    fn compare(&self, source: Source<'_>, index: u32, tombstone: &Tombstone<'_>) -> Checked<()> {
        let record = self.named(index)?;
        for (end, key) in [End::Start, End::Stop].into_iter().zip(tombstone.keys) {
            let image = source.comparator.image(key, record.skip() as usize);
            if record.prefix(end) != image || record.bound(source, end)? != key {
                return Err(damage(0, 0, 0));
            }
        }
        Ok(())
    }

    /// Number of bytes that the prefixes of a new tombstone leave out: at most as many as those of
    /// the latest record, so that the number seldom changes.
    fn skip_for(&self, range: Keys<'_>) -> Result<u32> {
        // ORDERING: relaxed; a hint.
        let last = self.skip.load(Ordering::Relaxed);
        if last == 0 {
            return Ok(0);
        }
        let shared = self
            .common_prefix
            .shared(range[0])?
            .min(self.common_prefix.shared(range[1])?);
        let skip = u64::from(if shared < SKIP_MIN { 0 } else { shared }).min(last);
        // Readers load what lies beside it.
        if skip != last {
            // ORDERING: relaxed; a hint.
            self.skip.store(skip, Ordering::Relaxed);
        }
        Ok(low(skip))
    }

    fn pending(&self, index: u32) -> RecordWords {
        let pending = |word| {
            if word + 1 == RECORD_WORDS {
                self.checks.pending(index)
            } else {
                0
            }
        };
        std::array::from_fn(|word| AtomicU64::new(pending(word)))
    }

    /// The record at `index`; `None` if its push is still running, which it cannot be before
    /// `complete` (LOG-2).
    #[inline(always)]
    pub(crate) fn record(&self, index: u32, complete: u32) -> Checked<Option<Record>> {
        match self.records.get(index) {
            Some(stored) => self.decode(stored, index, complete),
            None => self.unfinished(index, complete, 0, 0, self.checks.pending(index)),
        }
    }

    /// Whether there is a segment for a record: where counting ends if a processor that errs has
    /// missed the end.
    pub(crate) fn has_place(&self, index: u32) -> bool {
        self.records.get(index).is_some()
    }

    /// The stored records `from..to`, if one segment holds them all.
    #[inline(always)]
    pub(crate) fn run(&self, from: u32, to: u32) -> Option<&[RecordWords]> {
        self.records.run(from, to.checked_sub(from)? as usize)
    }

    /// Decodes and verifies `stored`, the record at `index`; see [`record`](Self::record).
    #[inline(always)]
    pub(crate) fn decode(
        &self,
        stored: &RecordWords,
        index: u32,
        complete: u32,
    ) -> Checked<Option<Record>> {
        // ORDERING: acquire; partner: the release store in `push`.
        let check = stored[4].load(Ordering::Acquire);
        // ORDERING: relaxed; ordered by the check word's acquire.
        let [sequence, start_prefix, end_prefix, place] =
            std::array::from_fn(|word| stored[word].load(Ordering::Relaxed));
        let prefixes = [start_prefix, end_prefix];
        let expected = self.checks.record(index, sequence, prefixes, place);
        if check != expected {
            return self.unfinished(index, complete, sequence, expected, check);
        }
        Ok(Some(Record {
            sequence,
            index,
            prefixes,
            place,
        }))
    }

    /// Decides whether a record whose check fails is still being written (LOG-2) or damaged.
    #[cold]
    fn unfinished(
        &self,
        index: u32,
        complete: u32,
        sequence: SequenceNumber,
        expected: u64,
        found: u64,
    ) -> Checked<Option<Record>> {
        let is_excused = index >= complete;
        if found == self.checks.pending(index) && is_excused {
            return Ok(None);
        }
        Err(damage(u64::from(index) * RECORD_BYTES, expected, found).with_sequence(sequence))
    }

    /// The record at `index`, which must be complete because a piece of a node names it.
    #[inline(always)]
    pub(crate) fn named(&self, index: u32) -> Checked<Record> {
        let record = self.record(index, u32::MAX)?;
        record.ok_or_else(|| {
            damage(
                u64::from(index) * RECORD_BYTES,
                0,
                self.checks.pending(index),
            )
        })
    }

    /// The first record from number `from` on that does not read as unwritten, with the report if
    /// nobody has begun it.
    pub(crate) fn first_written(&self, from: u32) -> Option<(u32, Corruption)> {
        let unwritten = self.records.items().filter(|(index, _)| *index >= from);
        for (index, words) in unwritten {
            for (word, expected) in words.iter().zip(self.pending(index)) {
                // ORDERING: relaxed; the caller waits for writers before it believes that nobody
                // has begun the record.
                let (found, expected) = (
                    word.load(Ordering::Relaxed),
                    expected.load(Ordering::Relaxed),
                );
                if found != expected {
                    return Some((
                        index,
                        damage(u64::from(index) * RECORD_BYTES, expected, found),
                    ));
                }
            }
        }
        None
    }

    /// The key of a boundary, verified.
    #[inline(always)]
    pub(crate) fn boundary_key<'t>(&self, source: Source<'t>, name: u32) -> Checked<&'t [u8]> {
        let end = if name & 1 == 0 { End::Start } else { End::Stop };
        self.named(name >> 1)?.bound(source, end)
    }

    /// Compares a bound that has this prefix with the probe's key; `bound` reads its key. Both
    /// prefixes must leave out equally many bytes.
    #[inline(always)]
    fn order<'t>(
        source: Source<'t>,
        prefix: u64,
        probe: &Probe<'_>,
        bound: impl FnOnce() -> Checked<&'t [u8]>,
    ) -> Checked<Order> {
        match prefix.cmp(&probe.prefix) {
            Order::Equal => Ok(source.comparator.compare(bound()?, probe.key)),
            order => Ok(order),
        }
    }

    /// Compares the boundary of this name and prefix with the probe's key.
    #[inline(always)]
    pub(crate) fn boundary_order(
        &self,
        source: Source<'_>,
        (prefix, name): (u64, u32),
        probe: &Probe<'_>,
    ) -> Checked<Order> {
        Self::order(source, prefix, probe, || self.boundary_key(source, name))
    }

    /// Whether the tombstone covers the probe's key.
    #[inline(always)]
    pub(crate) fn covers(
        &self,
        source: Source<'_>,
        record: &Record,
        probe: &mut Probe<'_>,
    ) -> Checked<bool> {
        let [start, end] = record.prefixes;
        let is_alike = probe.leave_out(&self.common_prefix, source.comparator, record.skip())?;
        if !is_alike || probe.prefix < start || probe.prefix > end {
            return Ok(false);
        }
        let order = |end| {
            Self::order(source, record.prefix(end), probe, || {
                record.bound(source, end)
            })
        };
        Ok(order(End::Stop)?.is_gt() && order(End::Start)?.is_le())
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as
    /// unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        self.records
            .cells(&mut |lose| visit("segment of records", lose));
    }

    /// Passes every region of stored words to `visit`.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("skip of later records", std::slice::from_ref(&self.skip));
        self.common_prefix.regions(visit);
        for segment in self.records.segments() {
            segment
                .iter()
                .for_each(|words| visit("tombstone record", words));
        }
    }
}

// An array that grows at its end and whose items never move, so that readers may keep references to
// them.
//
// ```text
//   group 0: 4 segments of F items | group 1: 4 of 2F | group 2: 4 of 4F | ...      at most a quarter is unused
// ```
// * SEGMENTS-1: a segment is filled with items before it is published, and never replaced.
// * SEGMENTS-2: every index is compared with the bounds of its segment; one outside gives `None`.
//
// Who may call what: everything through `&self`, any thread. Readers never wait; if two writers
// build one segment at a time, one of the two is dropped.

const GROUPS: usize = if cfg!(loom) { 2 } else { 26 };
const SLOTS: usize = 4 * GROUPS;

/// A growing array whose first segments hold `FIRST` items each.
pub(crate) struct Segments<T, const FIRST: u32> {
    slots: [Published<Box<[T]>>; SLOTS],
}

/// The place of an index: its segment, and its offset there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SegmentSpan {
    slot: usize,
    /// First index of the segment.
    first: u64,
    /// Number of items of the segment.
    len: u64,
}

impl<T, const FIRST: u32> Segments<T, FIRST> {
    pub(crate) fn new() -> Self {
        Segments {
            slots: std::array::from_fn(|_| Published::new()),
        }
    }

    #[inline(always)]
    fn span(index: u32) -> SegmentSpan {
        let unit = u64::from(index / FIRST);
        let group = (unit / 4 + 1).ilog2();
        let group_first = 4 * ((1u64 << group) - 1);
        let quarter = (unit - group_first) >> group;
        let first = (group_first + (quarter << group)) * u64::from(FIRST);
        let slot = 4 * group as usize + usize::from(quarter.to_le_bytes()[0]);
        SegmentSpan {
            slot,
            first,
            len: u64::from(FIRST) << group,
        }
    }

    /// The item at `index`, if its segment is published.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.run(index, 1)?.first()
    }

    /// The `len` items from `index` on, if one published segment holds them all.
    #[inline(always)]
    pub(crate) fn run(&self, index: u32, len: usize) -> Option<&[T]> {
        let span = Self::span(index);
        let segment = self.slots.get(span.slot)?.get()?;
        segment
            .get(usize::try_from(u64::from(index) - span.first).ok()?..)?
            .get(..len)
    }

    /// The cell at `index`. Publishes its segment if it is missing: `make` fills it,
    /// index by index, and `grown` is told how many bytes were added.
    pub(crate) fn ensure(
        &self,
        index: u32,
        make: impl Fn(u32) -> T,
        grown: impl FnOnce(u64),
    ) -> Option<&T> {
        if let Some(cell) = self.get(index) {
            return Some(cell);
        }
        let span = Self::span(index);
        let first = u32::try_from(span.first).ok()?;
        let segment_len = u32::try_from(span.len).ok()?;
        let last = first.checked_add(segment_len - 1)?;
        self.slots.get(span.slot)?.get_or_publish(
            || (first..=last).map(make).collect(),
            |_| grown(span.len * size_of::<T>() as u64),
        );
        self.get(index)
    }

    /// Bytes of the segments of the first `items` items.
    pub(crate) fn bytes_max(items: u64) -> u64 {
        let last = u32::try_from(items)
            .unwrap_or(u32::MAX)
            .checked_sub(1)
            .map(Self::span);
        last.map_or(0, |span| (span.first + span.len) * size_of::<T>() as u64)
    }

    /// Iterates over the items of all published segments, with their indices, in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u32, &T)> {
        let firsts = (0..SLOTS as u64).map(|slot| {
            let (group, quarter) = (slot / 4, slot % 4);
            u64::from(FIRST) * (4 * ((1 << group) - 1) + (quarter << group))
        });
        let segments = self
            .slots
            .iter()
            .zip(firsts)
            .filter_map(|(slot, first)| Some((slot.get()?, first)));
        segments.flat_map(|(segment, first)| {
            (first..)
                .map_while(|index| u32::try_from(index).ok())
                .zip(segment.iter())
        })
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as
    /// unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&mut dyn FnMut())) {
        for slot in self.slots.iter_mut().filter(|slot| slot.get().is_some()) {
            visit(&mut || *slot = Published::new());
        }
    }

    /// Iterates over the published segments, in order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &[T]> {
        self.slots
            .iter()
            .filter_map(|slot| slot.get().map(|segment| &**segment))
    }
}

#[cfg(all(test, not(loom)))]
impl<T, const FIRST: u32> Segments<Published<T>, FIRST> {
    /// Visits the cells in the segments.
    pub(crate) fn items_cells(&mut self, visit: &mut dyn FnMut(&mut dyn FnMut())) {
        let segments = self.slots.iter_mut().filter_map(Published::get_mut);
        for cell in segments.flatten().filter(|cell| cell.get().is_some()) {
            visit(&mut || *cell = Published::new());
        }
    }
}

pub(crate) const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[cold]
pub(crate) fn damage(offset: u64, expected: u64, found: u64) -> Corruption {
    Corruption::new(Place::Fragment, offset, expected, found)
}

// Counters with a check, and tallies: two counters on two cache lines that vouch for each other.
//
// ```text
//   begun   value (32) | check (32)     incremented before a writer stores          one line
//   ended   value (32) | check (32)     incremented once everything is stored       another line
// ```
// * COUNTER-1: one word holds value and check, so a reader never sees half of a change.
// * COUNTER-2: readers load `ended` before `begun`, so `ended` <= `begun`. If `ended` is larger,
//   `begun` went back to an earlier value.
// * COUNTER-3: if both are equal, no writer is at work, so everything that was begun is stored, and
//   what is missing was lost.
// * COUNTER-4: an `ended` that went back hides no record. It looks as if a writer were at work,
//   until a scrub waits for all writers and finds that the two still differ.
//
// Who may call what: everything, any thread. Not promised while a writer is at work: that a `begun`
// that went back to `ended` or more is noticed, or that a lost record is told from one that is
// being written.

/// A counter (COUNTER-1) in a cache line of its own.
#[repr(align(64))]
pub(crate) struct Counter {
    word: AtomicU64,
    which: u32,
    checks: Checks,
}

impl Counter {
    pub(crate) fn new(checks: Checks, which: u32) -> Self {
        Counter {
            word: AtomicU64::new(sealed(checks, which, 0)),
            which,
            checks,
        }
    }

    #[inline(always)]
    fn value(&self, word: u64) -> Checked<u32> {
        let expected = sealed(self.checks, self.which, high(word));
        if word == expected {
            Ok(high(word))
        } else {
            Err(damage(0, expected, word))
        }
    }

    pub(crate) fn load(&self) -> Checked<u32> {
        // ORDERING: relaxed; what the count makes findable is published by its own word (records,
        // nodes), and a caller that is ordered after a push reads at least that push's count
        // (coherence).
        self.value(self.word.load(Ordering::Relaxed))
    }

    /// The unverified value.
    #[inline(always)]
    pub(crate) fn hint(&self) -> u32 {
        // ORDERING: relaxed; as in `load`.
        high(self.word.load(Ordering::Relaxed))
    }

    /// Calls `next` with the counter's value v, sets the counter to the second number of the
    /// result, and returns v and the first.
    pub(crate) fn advance(&self, next: impl Fn(u32) -> Result<(u32, u32)>) -> Result<(u32, u32)> {
        loop {
            // ORDERING: relaxed; as in `load`.
            let seen = self.word.load(Ordering::Relaxed);
            let value = self.value(seen)?;
            let (claimed, after) = next(value)?;
            if self.replace(seen, after) {
                return Ok((claimed, after - value));
            }
        }
    }

    /// Sets the counter to `after` if its word is `seen` still.
    fn replace(&self, seen: u64, after: u32) -> bool {
        let sealed = sealed(self.checks, self.which, after);
        // ORDERING: release; partner: the acquire load of `ended` in `Tally::read`: what a writer
        // stored before its larger `ended` is visible after it. Relaxed on failure: the word is
        // read again.
        self.word
            .compare_exchange_weak(seen, sealed, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        std::slice::from_ref(&self.word)
    }
}

/// Counter `which` with this value: value and check.
#[inline(always)]
const fn sealed(checks: Checks, which: u32, value: u32) -> u64 {
    pair(value, checks.counter(pair(which, value)))
}

/// The length of a log, as its tally tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// What was begun.
    pub(crate) count: u32,
    /// Records before this one are stored completely (COUNTER-3).
    pub(crate) complete: u32,
}

/// Two counters that vouch for each other.
pub(crate) struct Tally {
    begun: Counter,
    ended: Counter,
}

impl Tally {
    pub(crate) fn new(checks: Checks, which: u32) -> Self {
        Tally {
            begun: Counter::new(checks, which),
            ended: Counter::new(checks, which),
        }
    }

    #[inline(always)]
    pub(crate) fn extent(&self) -> Checked<Extent> {
        Ok(self.read()?.1)
    }

    /// The word of `begun`, and what it says.
    #[inline(always)]
    fn read(&self) -> Checked<(u64, Extent)> {
        // ORDERING: acquire; partner: the release exchange in `Counter::replace` (COUNTER-2).
        let ended = self.ended.word.load(Ordering::Acquire);
        // ORDERING: relaxed; ordered after the acquire load above.
        let begun = self.begun.word.load(Ordering::Relaxed);
        let count = self.begun.value(begun)?;
        let extent = if begun == ended {
            Extent {
                count,
                complete: count,
            }
        } else {
            self.apart(count, ended)?
        };
        Ok((begun, extent))
    }

    /// Handles counters that differ: a writer is at work, or one of them is damaged.
    #[cold]
    #[inline(never)]
    fn apart(&self, count: u32, ended: u64) -> Checked<Extent> {
        let ended = self.ended.value(ended)?;
        if ended > count {
            return Err(damage(0, u64::from(ended), u64::from(count)));
        }
        Ok(Extent { count, complete: 0 })
    }

    /// Claims the range that `next` returns, from the first number up to the second. Returns the
    /// first number, and the amount to pass to [`end`](Self::end).
    pub(crate) fn begin(&self, next: impl Fn(u32) -> Result<(u32, u32)>) -> Result<(u32, u32)> {
        loop {
            let (begun, Extent { count, .. }) = self.read()?;
            let (claimed, after) = next(count)?;
            if self.begun.replace(begun, after) {
                return Ok((claimed, after - count));
            }
        }
    }

    /// Reports that a claimed range is stored, or given up.
    pub(crate) fn end(&self, by: u32) -> Result<()> {
        self.ended
            .advance(|value| Ok((value, value.wrapping_add(by))))
            .map(|_| ())
    }

    /// Compares both counters once all writers at work have left, for which `wait` waits
    /// (COUNTER-4).
    pub(crate) fn verify(&self, wait: &mut dyn FnMut()) -> Checked<()> {
        let Extent { count, complete } = self.extent()?;
        if complete == count {
            return Ok(());
        }
        wait();
        self.extent()?;
        // ORDERING: relaxed; every writer that had begun has left.
        let ended = self.ended.value(self.ended.word.load(Ordering::Relaxed))?;
        if ended < count {
            Err(damage(0, u64::from(count), u64::from(ended)))
        } else {
            Ok(())
        }
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> [&[AtomicU64]; 2] {
        [&self.begun, &self.ended].map(Counter::words)
    }
}

// The common prefix: bytes that all bounds of an index begin with, and which their prefixes
// therefore leave out.
//
// ```text
//   common prefix     tenant-7/users/              what start and end of the first tombstone share; it never changes
//   bound    tenant-7/users/00417x        leaves out 15 bytes: its prefix is 00417x\0\0
//   bound    tenant-7/groups/a            leaves out  9 bytes: its prefix is groups/a
// ```
// The prefixes of a record or node leave out `skip` bytes if all its bounds begin with the first
// `skip` bytes of the common prefix. A record leaves out at most as many as the one before it.
//
// * COMMON-PREFIX-1: the common prefix is empty unless the comparator orders keys by their bytes.
// * COMMON-PREFIX-2: a key that begins with the bytes left out is compared with a bound by what
//   follows these bytes in both. Any other key is before all such bounds or after all of them, so
//   no tombstone between them covers it.
// * COMMON-PREFIX-3: bytes of the common prefix are used only if its check holds. How much a record
//   or node leaves out is believed only after the check of the record, piece or head that is read
//   with it.
//
// The index has these bytes itself: almost every question needs them, and one damaged entry must not
// make them unknown.
//
// Who may call what: everything, any thread. A common prefix never changes.

/// Length limit of a common prefix, in bytes.
const COMMON_PREFIX_LEN_MAX: usize = 128;
const WORDS: usize = COMMON_PREFIX_LEN_MAX / 8;
/// With fewer shared bytes than this there is no common prefix, because eight bytes of prefix still
/// differ early enough.
const SKIP_MIN: u32 = 6;

/// Bytes that all bounds begin with.
pub(crate) struct CommonPrefix {
    len: AtomicU64,
    check: AtomicU64,
    words: [AtomicU64; WORDS],
    checks: Checks,
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    // ORDERING: relaxed; a common prefix is published with the log that holds it.
    word.load(Ordering::Relaxed)
}

impl CommonPrefix {
    /// The common prefix of an index whose first tombstone has these bounds.
    pub(crate) fn new(checks: Checks, comparator: &KeyComparator, [start, end]: Keys<'_>) -> Self {
        let shared = start
            .iter()
            .zip(end)
            .take(COMMON_PREFIX_LEN_MAX)
            .take_while(|(left, right)| left == right);
        let len = if comparator.key_order() == KeyOrder::Bytes {
            shared.count()
        } else {
            0
        };
        let bytes = start.get(..len).unwrap_or_default();
        let words: [u64; WORDS] = std::array::from_fn(|at| bytes_at(bytes, 8 * at).swap_bytes());
        let used = words.iter().take(len.div_ceil(8));
        let check = used.fold(checks.common_prefix(len as u64), |sum, word| {
            checks.common_prefix_word(sum, *word)
        });
        CommonPrefix {
            len: AtomicU64::new(len as u64),
            check: AtomicU64::new(check),
            words: words.map(AtomicU64::new),
            checks,
        }
    }

    /// Passes each word of the common prefix to `visit`, and returns the length if the check holds
    /// (COMMON-PREFIX-3).
    #[inline(always)]
    fn read(&self, mut visit: impl FnMut(usize, u64)) -> Checked<u32> {
        let len = load(&self.len);
        let used = usize::try_from(len.div_ceil(8)).unwrap_or(WORDS).min(WORDS);
        let mut sum = self.checks.common_prefix(len);
        for (at, word) in self.words.iter().take(used).map(load).enumerate() {
            sum = self.checks.common_prefix_word(sum, word);
            visit(at, word);
        }
        let found = load(&self.check);
        match u32::try_from(len) {
            Ok(len) if found == sum => Ok(len),
            _ => Err(damage(len, sum, found)),
        }
    }

    /// Number of leading bytes that `key` shares with the common prefix, all of which is verified.
    #[inline]
    pub(crate) fn shared(&self, key: &[u8]) -> Checked<u32> {
        let mut same = usize::MAX;
        let len = self.read(|at, word| {
            let differs = word ^ bytes_at(key, 8 * at).swap_bytes();
            if differs != 0 && same == usize::MAX {
                same = 8 * at + differs.trailing_zeros() as usize / 8;
            }
        })?;
        Ok(u32::try_from(same.min(key.len())).unwrap_or(len).min(len))
    }

    /// What turns a prefix that leaves out `from` bytes into one that leaves out `to` bytes, at
    /// most as many.
    pub(crate) fn lift(&self, from: u32, to: u32) -> Checked<Lift> {
        let mut bytes = [0; COMMON_PREFIX_LEN_MAX];
        let len = self.read(|at, word| {
            if let Some(place) = bytes.get_mut(8 * at..8 * at + 8) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        })?;
        let left_out = bytes
            .get(to as usize..from as usize)
            .filter(|_| from <= len);
        let left_out =
            left_out.ok_or_else(|| damage(u64::from(len), u64::from(from), u64::from(to)))?;
        let shift = 8 * (from - to).min(8);
        Ok(Lift {
            bytes: bytes_at(left_out, 0),
            shift,
        })
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("common prefix length", std::slice::from_ref(&self.len));
        visit("common prefix check", std::slice::from_ref(&self.check));
        visit("common prefix", &self.words);
    }
}

/// Puts bytes that a prefix left out back at its front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lift {
    bytes: u64,
    /// How far the prefix moves right, in bits; 64 if none of it remains.
    shift: u32,
}

impl Lift {
    pub(crate) const NONE: Lift = Lift { bytes: 0, shift: 0 };

    #[inline(always)]
    pub(crate) fn apply(self, prefix: u64) -> u64 {
        let half = self.shift / 2;
        self.bytes | prefix >> half >> half
    }
}

/// The key of a query, with its prefix: that of the key without its first `skip` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    skip: u32,
    /// Number of leading bytes that the key shares with the common prefix, once computed.
    shared: Option<u32>,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(crate) fn new(comparator: &KeyComparator, key: &'k [u8]) -> Self {
        Probe {
            key,
            prefix: comparator.image(key, 0),
            skip: 0,
            shared: None,
        }
    }

    /// Changes the prefix to one that leaves out `skip` bytes, if the key begins with these. If
    /// not, no tombstone between such bounds covers the key (COMMON-PREFIX-2).
    #[inline(always)]
    pub(crate) fn leave_out(
        &mut self,
        common_prefix: &CommonPrefix,
        comparator: &KeyComparator,
        skip: u32,
    ) -> Checked<bool> {
        if self.skip == skip {
            Ok(true)
        } else {
            self.turn(common_prefix, comparator, skip)
        }
    }

    #[inline(never)]
    fn turn(
        &mut self,
        common_prefix: &CommonPrefix,
        comparator: &KeyComparator,
        skip: u32,
    ) -> Checked<bool> {
        if skip > 0 {
            let shared = match self.shared {
                Some(shared) => shared,
                None => common_prefix.shared(self.key)?,
            };
            self.shared = Some(shared);
            if skip > shared {
                return Ok(false);
            }
        }
        self.skip = skip;
        self.prefix = comparator.image(self.key, skip as usize);
        Ok(true)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]
mod tests {
    use super::*;
    use crate::key::BYTEWISE;
    use crate::tombstone::tests::parts::{CHECKS, Filled, filled, log, push};

    #[test]
    fn every_index_has_one_segment() {
        let mut expected_first = 0;
        let mut previous: Option<SegmentSpan> = None;
        for index in 0..if cfg!(miri) { 3_000u32 } else { 100_000 } {
            let span = Segments::<u8, 8>::span(index);
            if previous != Some(span) {
                assert_eq!(span.first, expected_first, "index {index}");
                assert_eq!(span.slot, previous.map_or(0, |span| span.slot + 1));
                expected_first += span.len;
                previous = Some(span);
            }
            assert!((span.first..span.first + span.len).contains(&u64::from(index)));
        }
        assert!(Segments::<u8, 32>::span(u32::MAX).slot < SLOTS);
        assert!(Segments::<u8, 8>::new().get(u32::MAX).is_none());
    }

    fn flip(word: &AtomicU64, bit: u32) {
        // ORDERING: relaxed; one thread.
        word.fetch_xor(1 << bit, Ordering::Relaxed);
    }

    #[test]
    fn a_full_log_refuses() {
        let log = log(b"a", b"b");
        log.tally.begin(|_| Ok((0, RECORDS_MAX))).unwrap();
        let full = push(&log, b"a", b"b");
        assert!(
            matches!(
                full,
                Err(Error::MemTableFull {
                    needed: RECORD_BYTES,
                    remaining: 0
                })
            ),
            "{full:?}"
        );
    }

    /// Where a record is damaged: at its own offset, with its sequence number if that was read.
    #[test]
    fn damaged_records_are_named() {
        let filled = filled();
        let Filled { log, tally, .. } = &filled;
        for index in 0..40 {
            let words = log.records.get(index).unwrap();
            let at = u64::from(index) * 40;
            for (word, bit) in (0..5).flat_map(|word| [(word, 0), (word, 33), (word, 63)]) {
                flip(&words[word], bit);
                let report = log.record(index, 40).unwrap_err();
                assert_eq!(
                    (report.place, report.offset),
                    (Place::Fragment, at),
                    "word {word}"
                );
                flip(&words[word], bit);
            }
            let record = log.record(index, 40).unwrap().unwrap();
            assert_eq!(
                (record.sequence, record.index),
                (1000 + u64::from(index), index)
            );
        }
        // LOG-3: the mark of a record that is not there yet.
        let words = log.records.get(40).unwrap();
        flip(&words[4], 9);
        let report = *push(&filled, b"a", b"b").unwrap_err().corruption().unwrap();
        let pending = CHECKS.pending(40);
        assert_eq!(
            (report.offset, report.expected, report.found),
            (40 * 40, pending, pending ^ 1 << 9)
        );
        assert_eq!(
            tally.extent(),
            Ok(Extent {
                count: 41,
                complete: 0
            })
        );
    }

    /// A key is read from the node of its record: the right one, or a report.
    #[test]
    fn damaged_keys_are_noticed() {
        let filled = filled();
        for (index, len) in (0..40).zip(0..) {
            let record = filled.log.named(index).unwrap();
            let source = filled.nodes.source(&BYTEWISE);
            let ends = [
                (End::Start, b'a', len),
                (End::Stop, b'z', if len == 7 { 300 } else { 40 - len }),
            ];
            for (end, byte, len) in ends {
                assert_eq!(record.bound(source, end).unwrap(), vec![byte; len]);
                filled.nodes.each_word(record.node(), end, &mut |word| {
                    flip(word, 3);
                    assert!(record.bound(source, end).is_err());
                    flip(word, 3);
                });
            }
            assert_eq!(
                record.key_bytes(source),
                Ok(if len == 7 { 307 } else { 40 })
            );
        }
    }
}
