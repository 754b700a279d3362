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

use crate::error::{Corruption, Error, Result};
use crate::integrity::index_checks::{Checks, SKIP_SHIFT};
use crate::key::SequenceNumber;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::common_prefix::{CommonPrefix, Probe, SKIP_MIN};
use crate::tombstone::counter::Tally;
use crate::tombstone::segments::{Segments, damage, low, pair};
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

#[cfg(all(test, not(loom)))]
#[allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;
    use crate::integrity::Place;
    use crate::tombstone::counter::Extent;
    use crate::tombstone::segments::SLOTS;
    use crate::tombstone::segments::SegmentSpan;
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
