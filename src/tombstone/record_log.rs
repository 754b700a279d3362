//! The log of an index: one record for each tombstone, in order of arrival. All nodes of the index
//! are derived from the records.
//!
//! ```text
//!   record   sequence | start prefix | end prefix | skip (8), 0 (24), node (32) | check
//! ```
//! * LOG-1: the check word of a record is stored last. Until then it holds the record's pending
//!   mark. Any third value is damage, so zeroed memory is never taken for a record that is being
//!   written.
//! * LOG-2: a record that has the pending mark, or no segment, is being written if the tally says
//!   that a writer is at work. Otherwise it was lost (its memory again holds an earlier value),
//!   which is damage. Tally and records are in different cache lines.
//!
//! Any thread may call everything. Readers never wait. Writers contend only for the tally. While a
//! `push` is running, its record may be invisible, and a lost record may look like one that is
//! being written.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;
use std::hint::black_box;

use crate::error::{Corruption, Error, Result};
use crate::halves::{low, pair};
use crate::integrity::index_checks::{Checks, SKIP_SHIFT};
use crate::key::SequenceNumber;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::common_prefix::{CommonPrefix, Probe, SKIP_MIN};
use crate::tombstone::counter::Tally;
use crate::tombstone::segments::Segments;
use crate::tombstone::span::{Checked, End, Keys, Source, Tombstone, damage};

/// Most records of a log. One bit of a boundary's name says whether it is a start or an end, and
/// the largest name belongs to no boundary.
pub(crate) const RECORDS_MAX: u32 = (1 << 31) - 1;
const _: () = assert!(RECORDS_MAX == u32::MAX / 2, "what a name holds");
const RECORD_WORDS: usize = 5;
const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;
/// Records of each of the first segments: a multiple of a block, so that no block is in two
/// segments.
pub(crate) const FIRST_RECORDS: u32 = if cfg!(loom) { 2 } else { 32 };
/// The number of the counters that count records. The index owns these counters, so that an empty
/// index needs no log.
pub(crate) const COUNTS: u32 = 1;

/// The painter of a piece that no tombstone covers. The painter of a piece is the index of the
/// newest record that covers it.
pub(crate) const NO_PAINTER: u32 = u32::MAX;

/// The name of a boundary: record index and end, in 32 bits.
#[inline(always)]
pub(crate) const fn boundary(index: u32, end: End) -> u32 {
    index << 1 | end as u32
}

/// A complete record whose check was verified. Its node is read only when a query needs a key,
/// which is rare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) sequence: SequenceNumber,
    pub(crate) index: u32,
    prefixes: [u64; 2],
    /// Number of bytes that the prefixes leave out (8) | 0 (24) | name of the node (32).
    place: u64,
}

impl Record {
    /// The first eight bytes of a bound, without those that the record leaves out.
    #[inline(always)]
    pub(crate) fn prefix(&self, end: End) -> u64 {
        self.prefixes[end as usize]
    }

    /// The boundaries of the record in the form in which a node stores pieces: a prefix, and a word
    /// with name and painter.
    pub(crate) fn pieces(&self) -> [(u64, u64); 2] {
        let piece = |end, painter| (self.prefix(end), pair(boundary(self.index, end), painter));
        [piece(End::Start, self.index), piece(End::Stop, NO_PAINTER)]
    }

    /// Number of bytes that the prefixes leave out.
    #[inline(always)]
    pub(crate) fn skip(&self) -> u32 {
        u32::from(self.place.to_be_bytes()[0])
    }

    /// The name of the list's node.
    #[inline(always)]
    pub(crate) fn node(&self) -> u32 {
        low(self.place)
    }

    /// A bound of the tombstone, read from its node and verified. All reads of bounds come here.
    #[inline(always)]
    pub(crate) fn bound<'t>(&self, source: Source<'t>, end: End) -> Checked<&'t [u8]> {
        source.spans.bound(self.node(), end)
    }

    /// Length of both bounds in bytes, verified.
    pub(crate) fn key_bytes(&self, source: Source<'_>) -> Checked<u64> {
        source.spans.key_bytes(self.node())
    }
}

/// The stored form of a [`Record`].
pub(crate) type RecordWords = [AtomicU64; RECORD_WORDS];

/// The log of one index.
pub(crate) struct RecordLog {
    records: Segments<RecordWords, FIRST_RECORDS>,
    bytes: AtomicU64,
    /// Number of bytes that the prefixes of the latest record leave out; a hint for later records.
    skip: AtomicU64,
    pub(crate) common_prefix: CommonPrefix,
    checks: Checks,
}

impl RecordLog {
    pub(crate) fn new(checks: Checks, common_prefix: CommonPrefix) -> Self {
        RecordLog {
            records: Segments::new(),
            bytes: AtomicU64::new(0),
            skip: AtomicU64::new(u64::MAX),
            common_prefix,
            checks,
        }
    }

    /// Bytes of heap memory of the log, and of what [`grown`](Self::grown) was called for.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        // ORDERING: relaxed; a statistic.
        size_of::<Self>() as u64 + self.bytes.load(Ordering::Relaxed)
    }

    /// Adds to the statistic of allocated bytes.
    pub(crate) fn grown(&self, bytes: u64) {
        // ORDERING: relaxed; a statistic.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Appends a tombstone, whose start the caller has compared with its end, and returns the index
    /// of its record.
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
        // A record is written only over its pending mark, so no lost record is overwritten.
        // ORDERING: relaxed; only the writer that claimed this index stores here.
        let (found, pending) = (slot[4].load(Ordering::Relaxed), self.checks.pending(index));
        if found != pending {
            return Err(damage(u64::from(index) * RECORD_BYTES, pending, found).into());
        }
        for (stored, word) in slot.iter().zip([sequence, prefixes[0], prefixes[1], place]) {
            // ORDERING: relaxed; published by the check word after the loop.
            stored.store(word, Ordering::Relaxed);
        }
        // ORDERING: release; partner: the acquire load of the check word in `decode`. Publishes
        // the record (LOG-1) and the node that it names (SPAN-1).
        slot[4].store(check, Ordering::Release);
        tally.end(one)?;
        self.compare(source, index, black_box(tombstone))?;
        Ok(index)
    }

    /// Compares a stored record with its tombstone. If a processor computed a prefix wrongly, the
    /// record's check was computed over the wrong prefix, and does not show it.
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

    /// Number of bytes that the prefixes of a new record leave out: at most as many as those of the
    /// latest record, so that the number seldom changes.
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
        // Not stored needlessly: readers load other words of this cache line.
        if skip != last {
            // ORDERING: relaxed; a hint.
            self.skip.store(skip, Ordering::Relaxed);
        }
        Ok(low(skip))
    }

    /// The words of a record that is not written.
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

    /// The record at `index`, verified. `None` if its `push` is still running, which is possible
    /// only from record `complete` on (LOG-2).
    #[inline(always)]
    pub(crate) fn record(&self, index: u32, complete: u32) -> Checked<Option<Record>> {
        match self.records.get(index) {
            Some(stored) => self.decode(stored, index, complete),
            None => self.unfinished(index, complete, 0, 0, self.checks.pending(index)),
        }
    }

    /// Whether there is a segment for the record at `index`. A loop over records ends at the first
    /// one without a segment, even if a processor that errs misses the last index.
    pub(crate) fn has_place(&self, index: u32) -> bool {
        self.records.get(index).is_some()
    }

    /// The stored records `from..to`, if one segment holds them all.
    #[inline(always)]
    pub(crate) fn run(&self, from: u32, to: u32) -> Option<&[RecordWords]> {
        self.records.run(from, to.checked_sub(from)? as usize)
    }

    /// Decodes and verifies `stored`, the record at `index`. Returns the same as
    /// [`record`](Self::record).
    #[inline(always)]
    pub(crate) fn decode(
        &self,
        stored: &RecordWords,
        index: u32,
        complete: u32,
    ) -> Checked<Option<Record>> {
        // ORDERING: acquire; partner: the release store of the check word in `push`.
        let check = stored[4].load(Ordering::Acquire);
        // ORDERING: relaxed; ordered after the acquire load of the check word.
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

    /// Decides whether a record whose check does not agree is being written, or damaged (LOG-2).
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

    /// The record at `index`, verified. It must be complete: a node or the caller's index names it.
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

    /// The first record at or after `from` that does not read as unwritten, with the report of
    /// damage for the case that no writer has begun it.
    pub(crate) fn first_written(&self, from: u32) -> Option<(u32, Corruption)> {
        let unwritten = self.records.items().filter(|(index, _)| *index >= from);
        for (index, words) in unwritten {
            for (word, expected) in words.iter().zip(self.pending(index)) {
                // ORDERING: relaxed; the caller waits for writers before it believes that no writer
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

    /// Compares a bound that has this prefix with the probe's key. `bound` reads the whole bound,
    /// if the prefixes are equal. Both prefixes must leave out the same number of bytes.
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

    /// Calls `visit` for each published segment, with a function that makes it read as unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        self.records
            .cells(&mut |lose| visit("segment of records", lose));
    }

    /// Calls `visit` for every region of stored words.
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

#[cfg(all(test, not(loom)))]
mod tests;
