//! The log: every tombstone of an index in order of arrival, with its keys. The nodes of the index are derived from
//! it.
//!
//! ```text
//!   tallies   of records, and of words of keys           two counters each: what was begun, what has ended
//!   common prefix      what all bounds begin with
//!   record    sequence | start prefix | end prefix | keys: check (32), place (32) | skip (8), lengths (24 each) | check
//!   keys      start bytes, padded to words | hash | end bytes, padded to words | hash
//! ```
//! * LOG-1: the check word of a record is stored last and holds the record's pending mark until then. Any other value
//!   that is not the check is damage, so zeroed memory is never taken for a record that is still missing.
//! * LOG-2: keys are written before the record that names them is complete, and never change.
//! * LOG-3: key bytes are copied, and the copy is used only after its hash was verified.
//! * LOG-4: place and lengths of keys are used only after their check was verified, and only inside their segment.
//! * LOG-5: a record with the pending mark, or without a segment, is being written only if the tally says that a
//!   writer is at work. Otherwise it was lost, because a word went back to an earlier value, and that is damage.
//!   Tally and records are in different cache lines.
//! * LOG-6: a record is written only over its pending mark.
//! * LOG-7: the prefix of a bound is that of its bytes after the first `skip`, which are those of the common prefix.
//!
//! Who may call what: everything, any thread. Readers never wait. Writers contend for the two tallies only. Not
//! promised: that a record whose `push` is still running is seen, and LOG-5 while a `push` is running.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;

use crate::error::{Corruption, Error, Result};
use crate::key::{KeyComparator, SequenceNumber};
use crate::sync::{AtomicU64, Ordering, Published};
use crate::tombstone::index::checks::{Checks, SKIP_SHIFT, Tally, damage, high, low, pair};
use crate::tombstone::index::common_prefix::{
    Begins, CheckedPrefix, CommonPrefix, KeyRange, Probe, prefix_of,
};

/// Longest key of a tombstone, in bytes.
pub(crate) const KEY_LEN_MAX: usize = (1 << 24) - 1;
/// Most records of a log. One bit of a boundary's name says whether it is a start or an end, and the largest name
/// stands for no boundary.
pub(crate) const RECORDS_MAX: u32 = (1 << 31) - 1;
/// A word holds the lengths of start and end, each in the low 24 bits of a half. The top byte of the first half is
/// the number of bytes left out.
const LEN_BITS: u32 = 0xff_ffff;
const _: () =
    assert!(KEY_LEN_MAX == LEN_BITS as usize && RECORDS_MAX == u32::MAX / 2, "what the fields hold");
const RECORD_WORDS: usize = 6;
const RECORD_BYTES: u64 = 8 * RECORD_WORDS as u64;
/// Records of the first segments. A multiple of a block, so that no block straddles segments.
pub(crate) const FIRST_RECORDS: u32 = if cfg!(loom) { 2 } else { 32 };
pub(crate) const FIRST_KEY_WORDS: u32 = if cfg!(loom) { 8 } else { 64 };
const COUNTS: u32 = 1;
const KEY_WORDS: u32 = 2;

/// One of a tombstone's two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Start,
    Stop,
}

/// The name of a boundary: record index and end, in 32 bits.
#[inline(always)]
pub(crate) const fn boundary(index: u32, end: End) -> u32 {
    index << 1 | matches!(end, End::Stop) as u32
}

/// A complete record whose check was verified. Its keys are verified when a query needs them, which is rare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) sequence: SequenceNumber,
    start_prefix: u64,
    end_prefix: u64,
    index: u32,
    keys: u64,
    lengths: u64,
}

impl Record {
    pub(crate) fn prefix(&self, end: End) -> u64 {
        match end {
            End::Start => self.start_prefix,
            End::Stop => self.end_prefix,
        }
    }

    /// Number of bytes that its prefixes leave out.
    #[inline(always)]
    pub(crate) fn skip(&self) -> u32 {
        skip_of(self.lengths)
    }
}

/// The stored form of a [`Record`].
#[derive(Debug)]
pub(crate) struct RecordWords([AtomicU64; RECORD_WORDS]);

/// The log of one index.
#[derive(Debug)]
pub(crate) struct Log {
    records: Segments<RecordWords, FIRST_RECORDS>,
    keys: Segments<AtomicU64, FIRST_KEY_WORDS>,
    key_words: Tally,
    bytes: AtomicU64,
    /// Number of bytes that the prefixes of the latest record leave out; a hint for later records.
    skip: AtomicU64,
    common_prefix: CommonPrefix,
    checks: Checks,
}

impl Log {
    pub(crate) fn new(checks: Checks, common_prefix: CommonPrefix) -> Self {
        Log {
            records: Segments::new(),
            keys: Segments::new(),
            key_words: Tally::new(checks, KEY_WORDS),
            bytes: AtomicU64::new(0),
            skip: AtomicU64::new(u64::MAX),
            common_prefix,
            checks,
        }
    }

    /// The tally of records. The index owns it, so that an empty index needs no log.
    pub(crate) fn tally(checks: Checks) -> Tally {
        Tally::new(checks, COUNTS)
    }

    /// Verifies the tally of key words; see [`Tally::verify`].
    pub(crate) fn verify_tally(&self, wait: &mut dyn FnMut()) -> std::result::Result<(), Corruption> {
        self.key_words.verify(self.checks, wait)
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

    /// Appends a tombstone and returns its index. The caller has checked that `start` is before `end`.
    pub(crate) fn push(
        &self,
        comparator: &KeyComparator,
        tally: &Tally,
        range: KeyRange<'_>,
        sequence: SequenceNumber,
    ) -> Result<u32> {
        let skip = self.skip_for(range)?;
        let prefix = |key| prefix_of(comparator, key, skip);
        let [start_prefix, end_prefix] = [range.start, range.end].map(prefix);
        let lengths = [key_len(range.start)?, key_len(range.end)?];
        let place = self.write_keys(range, lengths)?;
        let (index, one) = tally.begin(self.checks, |count| match count {
            RECORDS_MAX.. => Err(Error::MemTableFull { needed: RECORD_BYTES, remaining: 0 }),
            _ => Ok((count, count + 1)),
        })?;
        let lengths = pair(skip << (SKIP_SHIFT - 32) | lengths[0], lengths[1]);
        let keys = pair(self.checks.keys(index, place, lengths), place);
        let words = [sequence, start_prefix, end_prefix, keys, lengths];
        let check = self.checks.record(index, &[sequence, start_prefix, end_prefix], lengths);
        let slot = self.records.ensure_run(index, 1, |index| self.pending(index), |bytes| self.grown(bytes));
        let Some([slot]) = slot else {
            return Err(damage(u64::from(index) * RECORD_BYTES, 0, 0).into());
        };
        // ORDERING: relaxed; only the writer that claimed this index stores here.
        let (found, pending) = (slot.0[5].load(Ordering::Relaxed), self.checks.pending(index));
        if found != pending {
            return Err(damage(u64::from(index) * RECORD_BYTES, pending, found).into()); // LOG-6
        }
        for (stored, word) in slot.0.iter().zip(words) {
            // ORDERING: relaxed; published by the check word below.
            stored.store(word, Ordering::Relaxed);
        }
        // ORDERING: release; partner: the acquire load of the check word in `record`. Publishes record and keys.
        slot.0[5].store(check, Ordering::Release);
        tally.end(self.checks, one)?;
        Ok(index)
    }

    /// Number of bytes that the prefixes of a new tombstone leave out: at most as many as those of the latest record,
    /// so that the number seldom changes.
    fn skip_for(&self, range: KeyRange<'_>) -> Result<u32> {
        // ORDERING: relaxed; a hint.
        let last = self.skip.load(Ordering::Relaxed);
        if last == 0 {
            return Ok(0);
        }
        let skip =
            self.common_prefix.skip_of(self.checks, range)?.min(u32::try_from(last).unwrap_or(u32::MAX));
        // ORDERING: relaxed; a hint.
        self.skip.store(u64::from(skip), Ordering::Relaxed);
        Ok(skip)
    }

    /// The common prefix, and the functions that verify it.
    #[inline(always)]
    pub(crate) fn common_prefix(&self) -> CheckedPrefix<'_> {
        CheckedPrefix { common_prefix: &self.common_prefix, checks: self.checks }
    }

    fn pending(&self, index: u32) -> RecordWords {
        RecordWords(std::array::from_fn(|word| {
            AtomicU64::new(if word + 1 == RECORD_WORDS { self.checks.pending(index) } else { 0 })
        }))
    }

    /// Copies both keys with their hashes into the key store and returns their place.
    fn write_keys(&self, range: KeyRange<'_>, [start_len, end_len]: [u32; 2]) -> Result<u32> {
        let (middle, rest) = (span_words(start_len), span_words(end_len));
        let total = u64::from(middle) + u64::from(rest);
        let full = || Error::MemTableFull { needed: total * 8, remaining: 0 };
        let (place, claimed) = self.key_words.begin(self.checks, |used| {
            let at = Segments::<AtomicU64, FIRST_KEY_WORDS>::fit(used, total).ok_or_else(full)?;
            let after = u64::from(at) + total;
            Ok((at, u32::try_from(after).map_err(|_| full())?))
        })?;
        let len = usize::try_from(total).map_err(|_| full())?;
        let run = self.keys.ensure_run(place, len, |_| AtomicU64::new(0), |bytes| self.grown(bytes));
        if let Some(run) = run {
            self.write_key(run, place, range.start);
            self.write_key(run.get(middle as usize..).unwrap_or_default(), place + middle, range.end);
        }
        self.key_words.end(self.checks, claimed)?;
        run.map(|_| place).ok_or_else(full)
    }

    fn write_key(&self, run: &[AtomicU64], place: u32, key: &[u8]) {
        let mut slots = run.iter();
        let mut write = |word: u64| {
            if let Some(slot) = slots.next() {
                // ORDERING: relaxed; published by the record's check word.
                slot.store(word, Ordering::Relaxed);
            }
        };
        let (words, rest) = key.as_chunks::<8>();
        words.iter().for_each(|word| write(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            write(rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        }
        write(self.checks.key(place, key));
    }

    /// The record at `index`; `None` if its push is still running, which it cannot be before `complete` (LOG-5).
    #[inline(always)]
    pub(crate) fn record(
        &self,
        index: u32,
        complete: u32,
    ) -> std::result::Result<Option<Record>, Corruption> {
        match self.records.get(index) {
            Some(stored) => self.decode(stored, index, complete),
            None => self.unfinished(index, complete, 0, 0, self.checks.pending(index)),
        }
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
        RecordWords(stored): &RecordWords,
        index: u32,
        complete: u32,
    ) -> std::result::Result<Option<Record>, Corruption> {
        // ORDERING: acquire; partner: the release store in `push`.
        let check = stored[5].load(Ordering::Acquire);
        // ORDERING: relaxed; ordered by the check word's acquire.
        let [sequence, start_prefix, end_prefix, keys, lengths] =
            std::array::from_fn(|word| stored[word].load(Ordering::Relaxed));
        let expected = self.checks.record(index, &[sequence, start_prefix, end_prefix], lengths);
        if check != expected {
            return self.unfinished(index, complete, sequence, expected, check);
        }
        Ok(Some(Record { sequence, start_prefix, end_prefix, index, keys, lengths }))
    }

    /// Decides whether a record whose check fails is still being written (LOG-5) or damaged.
    #[cold]
    fn unfinished(
        &self,
        index: u32,
        complete: u32,
        sequence: SequenceNumber,
        expected: u64,
        found: u64,
    ) -> std::result::Result<Option<Record>, Corruption> {
        let excused = index >= complete;
        if found == self.checks.pending(index) && excused {
            return Ok(None);
        }
        Err(damage(u64::from(index) * RECORD_BYTES, expected, found).with_sequence(sequence))
    }

    /// The record at `index`, which must be complete because a piece of a node names it.
    #[inline(always)]
    pub(crate) fn named(&self, index: u32) -> std::result::Result<Record, Corruption> {
        let record = self.record(index, u32::MAX)?;
        record.ok_or_else(|| damage(u64::from(index) * RECORD_BYTES, 0, self.checks.pending(index)))
    }

    /// The first record from number `from` on that does not read as unwritten, with the report if nobody has begun it.
    pub(crate) fn first_written(&self, from: u32) -> Option<(u32, Corruption)> {
        let unwritten = self.records.items().filter(|(index, _)| *index >= from);
        for (index, RecordWords(words)) in unwritten {
            for (word, expected) in words.iter().zip(self.pending(index).0) {
                // ORDERING: relaxed; the caller waits for writers before it believes that nobody has begun the record.
                let (found, expected) = (word.load(Ordering::Relaxed), expected.load(Ordering::Relaxed));
                if found != expected {
                    return Some((index, damage(u64::from(index) * RECORD_BYTES, expected, found)));
                }
            }
        }
        None
    }

    /// Where the keys of `record` are; verified, as are their lengths (LOG-4).
    #[inline(always)]
    fn place(&self, record: &Record) -> std::result::Result<u32, Corruption> {
        let place = low(record.keys);
        let (expected, found) = (self.checks.keys(record.index, place, record.lengths), high(record.keys));
        if expected != found {
            let offset = u64::from(record.index) * RECORD_BYTES;
            return Err(damage(offset, u64::from(expected), u64::from(found)).with_sequence(record.sequence));
        }
        Ok(place)
    }

    /// Calls `judge` with a verified copy of one key of `record`.
    #[inline(always)]
    pub(crate) fn with_key<R>(
        &self,
        record: &Record,
        end: End,
        judge: impl FnOnce(&[u8]) -> R,
    ) -> std::result::Result<R, Corruption> {
        let (place, len) = key_at(end, self.place(record)?, record.lengths);
        let words = span_words(len) as usize;
        let Some(run) = self.keys.run(place, words) else {
            return Err(damage(u64::from(place) * 8, u64::from(len), 0).with_sequence(record.sequence));
        };
        match len {
            0..=32 => self.verify_copy(&mut [[0; 8]; 4], run, place, len, judge),
            33..=256 => self.verify_copy(&mut [[0; 8]; 32], run, place, len, judge),
            _ => self.verify_copy(&mut vec![[0; 8]; words], run, place, len, judge),
        }
        .map_err(|corruption| corruption.with_sequence(record.sequence))
    }

    /// Copies one key of `record` into a buffer, and verifies the copy.
    pub(crate) fn copy_key(
        &self,
        record: &Record,
        end: End,
        buffer: &mut Vec<u8>,
    ) -> std::result::Result<(), Corruption> {
        self.with_key(record, end, |key| {
            buffer.clear();
            buffer.extend_from_slice(key);
        })
    }

    /// Bytes of both keys of `record`.
    pub(crate) fn key_bytes(&self, record: &Record) -> std::result::Result<u64, Corruption> {
        let place = self.place(record)?;
        Ok([End::Start, End::Stop].map(|end| u64::from(key_at(end, place, record.lengths).1)).iter().sum())
    }

    #[inline(always)]
    fn verify_copy<R>(
        &self,
        buffer: &mut [[u8; 8]],
        run: &[AtomicU64],
        place: u32,
        len: u32,
        judge: impl FnOnce(&[u8]) -> R,
    ) -> std::result::Result<R, Corruption> {
        let Some((hash, words)) = run.split_last() else {
            return Err(damage(u64::from(place) * 8, 0, 0));
        };
        for (bytes, word) in buffer.iter_mut().zip(words) {
            // ORDERING: relaxed; ordered by the acquire load of the record that names the place.
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let copy = buffer.as_flattened().get(..len as usize).unwrap_or_default();
        let expected = self.checks.key(place, copy);
        // ORDERING: relaxed; ordered by the acquire load of the record that names the place.
        let found = hash.load(Ordering::Relaxed);
        if found == expected { Ok(judge(copy)) } else { Err(damage(u64::from(place) * 8, expected, found)) }
    }

    /// Compares the key at `end` of `record` with the probe's key. Probe and record must leave out equally many
    /// bytes.
    #[inline(always)]
    pub(crate) fn order(
        &self,
        comparator: &KeyComparator,
        record: &Record,
        end: End,
        probe: &Probe<'_>,
    ) -> std::result::Result<Order, Corruption> {
        let prefix = record.prefix(end);
        if prefix != probe.prefix {
            return Ok(prefix.cmp(&probe.prefix));
        }
        self.with_key(record, end, |key| comparator.compare(key, probe.key))
    }

    /// Compares a boundary with the probe's key in full, for boundaries whose prefix equals the probe's.
    pub(crate) fn boundary_order(
        &self,
        comparator: &KeyComparator,
        name: u32,
        probe: &Probe<'_>,
    ) -> std::result::Result<Order, Corruption> {
        let record = self.named(name >> 1)?;
        self.with_key(&record, end_of(name), |key| comparator.compare(key, probe.key))
    }

    /// Compares a boundary that is not verified with the probe's key: a hint for searches, which verify the place
    /// where they end.
    pub(crate) fn boundary_hint(
        &self,
        comparator: &KeyComparator,
        name: u32,
        probe: &Probe<'_>,
    ) -> Option<Order> {
        let RecordWords(stored) = self.records.get(name >> 1)?;
        // ORDERING: relaxed; the record is complete, because a published node names it.
        let [place, lengths] = [3, 4].map(|word: usize| stored[word].load(Ordering::Relaxed));
        let (place, len) = key_at(end_of(name), low(place), lengths);
        let words = span_words(len) as usize - 1;
        let run = self.keys.run(place, words)?;
        let compare = |buffer: &mut [[u8; 8]]| {
            for (bytes, word) in buffer.iter_mut().zip(run) {
                // ORDERING: relaxed; ordered by the acquire load of the record that names the place.
                *bytes = word.load(Ordering::Relaxed).to_le_bytes();
            }
            Some(comparator.compare(buffer.as_flattened().get(..len as usize)?, probe.key))
        };
        match len {
            0..=32 => compare(&mut [[0; 8]; 4]),
            33..=256 => compare(&mut [[0; 8]; 32]),
            _ => compare(&mut vec![[0; 8]; words]),
        }
    }

    /// Compares two boundaries with equal prefixes.
    pub(crate) fn tie(
        &self,
        comparator: &KeyComparator,
        left: u32,
        right: u32,
    ) -> std::result::Result<Order, Corruption> {
        if left == right {
            return Ok(Order::Equal);
        }
        let (left_record, right_record) = (self.named(left >> 1)?, self.named(right >> 1)?);
        self.with_key(&left_record, end_of(left), |left_key| {
            self.with_key(&right_record, end_of(right), |right_key| comparator.compare(left_key, right_key))
        })?
    }

    /// Whether the tombstone covers the probe's key.
    #[inline(always)]
    pub(crate) fn covers(
        &self,
        comparator: &KeyComparator,
        record: &Record,
        probe: &mut Probe<'_>,
    ) -> std::result::Result<bool, Corruption> {
        match probe.leave_out(self.common_prefix(), comparator, record.skip()) {
            Begins::Same => {}
            Begins::Otherwise => return Ok(false),
            Begins::Damaged => return Err(self.common_prefix.damage(self.checks)),
        }
        if probe.prefix < record.start_prefix || probe.prefix > record.end_prefix {
            return Ok(false);
        }
        let before_end = self.order(comparator, record, End::Stop, probe)? == Order::Greater;
        Ok(before_end && self.order(comparator, record, End::Start, probe)? != Order::Greater)
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&'static str, &mut dyn FnMut())) {
        self.records.cells(&mut |lose| visit("segment of records", lose));
        self.keys.cells(&mut |lose| visit("segment of keys", lose));
    }

    /// Passes every region of stored words to `visit`.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        for words in self.key_words.words() {
            visit("tombstone key counter", words);
        }
        visit("skip of later records", std::slice::from_ref(&self.skip));
        self.common_prefix.regions(visit);
        self.keys.segments().for_each(|segment| visit("tombstone keys", segment));
        for segment in self.records.segments() {
            segment.iter().for_each(|RecordWords(words)| visit("tombstone record", words));
        }
    }
}

#[inline(always)]
pub(crate) const fn end_of(name: u32) -> End {
    if name & 1 == 0 { End::Start } else { End::Stop }
}

/// Number of words that a key of `len` bytes takes, including its hash.
#[inline(always)]
const fn span_words(len: u32) -> u32 {
    len.div_ceil(8) + 1
}

/// Place and length of one key, computed from the place and the lengths of both.
#[inline(always)]
const fn key_at(end: End, place: u32, lengths: u64) -> (u32, u32) {
    match end {
        End::Start => (place, high(lengths) & LEN_BITS),
        End::Stop => (place.wrapping_add(span_words(high(lengths) & LEN_BITS)), low(lengths)),
    }
}

#[inline(always)]
const fn skip_of(lengths: u64) -> u32 {
    high(lengths) >> LEN_BITS.count_ones()
}

fn key_len(key: &[u8]) -> Result<u32> {
    match u32::try_from(key.len()) {
        Ok(len) if key.len() <= KEY_LEN_MAX => Ok(len),
        _ => Err(Error::KeyTooLarge { len: key.len() as u64, max: KEY_LEN_MAX as u64 }),
    }
}

// An array that grows at its end and whose items never move, so that readers may keep references to them.
//
// ```text
//   group 0: 4 segments of F items | group 1: 4 of 2F | group 2: 4 of 4F | ...      at most a quarter is unused
// ```
// * SEGMENTS-1: a segment is filled with items before it is published, and never replaced.
// * SEGMENTS-2: every index is compared with the bounds of its segment; one outside gives `None`.
//
// Who may call what: everything through `&self`, any thread. Readers never wait; if two writers build one segment at
// a time, one of the two is dropped.

const GROUPS: usize = if cfg!(loom) { 2 } else { 26 };
const SLOTS: usize = 4 * GROUPS;

/// A growing array whose first segments hold `FIRST` items each.
#[derive(Debug)]
pub(crate) struct Segments<T, const FIRST: u32> {
    slots: [Published<Box<[T]>>; SLOTS],
}

/// The segment of an index.
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
        Segments { slots: std::array::from_fn(|_| Published::new()) }
    }

    #[inline(always)]
    fn span_of(index: u32) -> SegmentSpan {
        let unit = u64::from(index / FIRST);
        let group = (unit / 4 + 1).ilog2();
        let group_first = 4 * ((1u64 << group) - 1);
        let quarter = (unit - group_first) >> group;
        let first = (group_first + (quarter << group)) * u64::from(FIRST);
        let slot = 4 * group as usize + usize::from(quarter.to_le_bytes()[0]);
        SegmentSpan { slot, first, len: u64::from(FIRST) << group }
    }

    /// The item at `index`, if its segment is published.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let span = Self::span_of(index);
        let segment = self.slots.get(span.slot)?.get()?;
        segment.get(usize::try_from(u64::from(index) - span.first).ok()?)
    }

    /// The `len` items from `index` on, if one published segment holds them all.
    #[inline(always)]
    pub(crate) fn run(&self, index: u32, len: usize) -> Option<&[T]> {
        let span = Self::span_of(index);
        let segment = self.slots.get(span.slot)?.get()?;
        segment.get(usize::try_from(u64::from(index) - span.first).ok()?..)?.get(..len)
    }

    /// The `len` cells from `index` on. Publishes their segment if it is missing: `make` fills it, index by index,
    /// and `grown` is told how many bytes were added.
    pub(crate) fn ensure_run(
        &self,
        index: u32,
        len: usize,
        make: impl Fn(u32) -> T,
        grown: impl FnOnce(u64),
    ) -> Option<&[T]> {
        if let Some(run) = self.run(index, len) {
            return Some(run);
        }
        let span = Self::span_of(index);
        let first = u32::try_from(span.first).ok()?;
        let segment_len = u32::try_from(span.len).ok()?;
        let last = first.checked_add(segment_len - 1)?;
        self.slots.get(span.slot)?.get_or_publish(
            || (first..=last).map(make).collect(),
            |_| grown(span.len * size_of::<T>() as u64),
        );
        self.run(index, len)
    }

    /// Bytes of the segments of the first `items` items.
    pub(crate) fn bytes_max(items: u64) -> u64 {
        let last = u32::try_from(items).unwrap_or(u32::MAX).checked_sub(1).map(Self::span_of);
        last.map_or(0, |span| (span.first + span.len) * size_of::<T>() as u64)
    }

    /// The first place at or after `index` where `len` items fit into one segment: `index` itself, or the start of a
    /// later segment.
    pub(crate) fn fit(index: u32, len: u64) -> Option<u32> {
        let mut at = u64::from(index);
        loop {
            let span = Self::span_of(u32::try_from(at).ok()?);
            if at + len <= span.first + span.len {
                return u32::try_from(at).ok();
            }
            at = span.first + span.len;
        }
    }

    /// Iterates over the items of all published segments, with their indices, in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u32, &T)> {
        let firsts = (0..SLOTS as u64).map(|slot| {
            let (group, quarter) = (slot / 4, slot % 4);
            u64::from(FIRST) * (4 * ((1 << group) - 1) + (quarter << group))
        });
        let segments = self.slots.iter().zip(firsts).filter_map(|(slot, first)| Some((slot.get()?, first)));
        segments.flat_map(|(segment, first)| {
            (first..).map_while(|index| u32::try_from(index).ok()).zip(segment.iter())
        })
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&mut dyn FnMut())) {
        for slot in self.slots.iter_mut().filter(|slot| slot.get().is_some()) {
            visit(&mut || *slot = Published::new());
        }
    }

    /// Iterates over the published segments, in order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &[T]> {
        self.slots.iter().filter_map(|slot| slot.get().map(|segment| &**segment))
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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::error::Place;
    use crate::integrity::digest::Secret;
    use crate::key::BYTEWISE;

    #[test]
    fn every_index_has_one_spot() {
        let mut expected_first = 0;
        let mut previous: Option<SegmentSpan> = None;
        for index in 0..if cfg!(miri) { 3_000u32 } else { 100_000 } {
            let span = Segments::<u8, 8>::span_of(index);
            if previous != Some(span) {
                assert_eq!(span.first, expected_first, "index {index}");
                assert_eq!(span.slot, previous.map_or(0, |span| span.slot + 1));
                expected_first += span.len;
                previous = Some(span);
            }
            assert!((span.first..span.first + span.len).contains(&u64::from(index)));
        }
        assert!(Segments::<u8, 32>::span_of(u32::MAX).slot < SLOTS);
        assert!(Segments::<u8, 8>::new().get(u32::MAX).is_none());
    }

    #[test]
    fn runs_do_not_straddle() {
        let segments = Segments::<u32, 8>::new();
        let mut at = 0;
        for len in [3u32, 5, 1, 8, 9, 30, 2, 1000, 1] {
            let start = Segments::<u32, 8>::fit(at, u64::from(len)).unwrap();
            assert!(start >= at);
            let run = segments.ensure_run(start, len as usize, |index| index, |_| ()).unwrap();
            assert_eq!(run, (start..start + len).collect::<Vec<_>>());
            assert_eq!(segments.get(start), Some(&start));
            at = start + len;
        }
        let far = Segments::<u32, 8>::fit(at + 5000, 1).unwrap();
        segments.ensure_run(far, 1, |index| index, |_| ()).unwrap();
        assert!(
            segments.items().all(|(index, item)| index == *item)
                && segments.items().any(|(index, _)| index == far)
        );
    }
    /// Four segments of each length, and bytes that are counted once per segment.
    #[test]
    fn segments_are_as_long_as_their_group_says() {
        let (segments, bytes) = (Segments::<u16, 8>::new(), std::cell::Cell::new(0));
        for index in (0..8 * 4 * 15).chain(0..20) {
            let grown = |more| bytes.set(bytes.get() + more);
            assert!(segments.ensure_run(index, 1, |_| 7, grown).is_some_and(|run| run == [7]));
        }
        let lengths: Vec<usize> = segments.segments().map(<[u16]>::len).collect();
        assert_eq!(lengths, [[8; 4], [16; 4], [32; 4], [64; 4]].concat());
        assert_eq!(bytes.get(), 2 * 4 * 120);
        assert!(segments.items().map(|(index, _)| index).eq(0..480));
        assert!(
            segments.run(0, 9).is_none() && segments.run(7, 2).is_none() && segments.run(480, 1).is_none()
        );
    }

    const CHECKS: Checks = Checks::new(Secret::from_seed(1));

    fn log(start: &[u8], end: &[u8]) -> (Log, Tally) {
        let common_prefix = CommonPrefix::new(CHECKS, &BYTEWISE, KeyRange { start, end });
        (Log::new(CHECKS, common_prefix), Log::tally(CHECKS))
    }

    fn push((log, tally): &(Log, Tally), start: &[u8], end: &[u8]) -> Result<u32> {
        log.push(&BYTEWISE, tally, KeyRange { start, end }, 1000 + u64::from(tally.extent(CHECKS)?.count))
    }

    /// Forty records whose keys are of all lengths from 0 to 39, and of 300 bytes.
    fn filled() -> (Log, Tally) {
        let filled = log(b"", b"z");
        for len in 0..40 {
            let (start, end) = (vec![b'a'; len], vec![b'z'; if len == 7 { 300 } else { 40 - len }]);
            assert_eq!(push(&filled, &start, &end).ok(), Some(len as u32));
        }
        filled
    }

    fn flip(word: &AtomicU64, bit: u32) {
        // ORDERING: relaxed; one thread.
        word.fetch_xor(1 << bit, Ordering::Relaxed);
    }

    /// The head of `common_prefix`: a record leaves out at most as many bytes as the one before it, and no fewer than it
    /// may.
    #[test]
    fn records_leave_out_what_they_share() {
        let log = log(b"tenant-7/users/a", b"tenant-7/users/b");
        let ends: [&[u8]; 7] =
            [b"users/b", b"users/cc", b"usual", b"users/b", b"v", b"users/zz", b"users/users/x"];
        for (at, (end, skip)) in ends.into_iter().zip([15, 15, 11, 11, 9, 9, 9]).enumerate() {
            let index = push(&log, b"tenant-7/users/a", &[b"tenant-7/", end].concat()).unwrap();
            assert_eq!(index as usize, at);
            assert_eq!(log.0.record(index, 0).unwrap().unwrap().skip(), skip, "record {at}");
        }
        for (end, skip) in [(&b"tenor"[..], 0), (b"tenant-7/users/b", 0)] {
            let index = push(&log, b"tenant-7/users/a", end).unwrap();
            assert_eq!(log.0.record(index, 0).unwrap().unwrap().skip(), skip);
        }
    }

    #[test]
    fn a_full_log_refuses() {
        let (start, end) = (vec![1; 8], vec![2; 2210]);
        let words = 2 + 278;
        for (used, needed) in
            [(u32::MAX - 300, Some(8 * words)), (u32::MAX - 255, Some(8 * words)), (0, None)]
        {
            let log = log(b"a", b"b");
            log.0.key_words.begin(CHECKS, |_| Ok((0, used))).unwrap();
            match (push(&log, &start, &end), needed) {
                (Err(Error::MemTableFull { needed, remaining: 0 }), Some(expected)) => {
                    assert_eq!(needed, expected)
                }
                (found, needed) => assert_eq!((found.ok(), needed), (Some(0), None), "{used}"),
            }
            assert_eq!(log.1.extent(CHECKS).unwrap().count, u32::from(needed.is_none()));
        }
        let log = log(b"a", b"b");
        log.1.begin(CHECKS, |_| Ok((0, RECORDS_MAX))).unwrap();
        let full = log.0.push(&BYTEWISE, &log.1, KeyRange { start: b"a", end: b"b" }, 1);
        assert!(matches!(full, Err(Error::MemTableFull { needed: RECORD_BYTES, remaining: 0 })), "{full:?}");
    }

    /// Records of one segment are read at once.
    #[test]
    fn runs_are_of_one_segment() {
        let (log, _) = filled();
        for (from, to) in [(0, 8), (0, 32), (24, 32), (32, 40), (32, 33), (31, 32)] {
            let run = log.run(from, to).unwrap();
            assert_eq!(run.len(), (to - from) as usize);
            for (stored, index) in run.iter().zip(from..to) {
                let record = log.decode(stored, index, 40).unwrap().unwrap();
                assert_eq!(record.sequence, 1000 + u64::from(index));
            }
        }
        assert!(log.run(31, 33).is_none() && log.run(5, 4).is_none() && log.run(400, 401).is_none());
    }

    /// Where a record is damaged: at its own offset, with its sequence number if that was read.
    #[test]
    fn damaged_records_are_named() {
        let filled = filled();
        let (log, tally) = &filled;
        for index in 0..40 {
            let RecordWords(words) = log.records.get(index).unwrap();
            let at = u64::from(index) * 48;
            for (word, bit) in [0, 1, 2, 5].into_iter().flat_map(|word| [(word, 0), (word, 63)]) {
                flip(&words[word], bit);
                let report = log.record(index, 40).unwrap_err();
                assert_eq!((report.place, report.offset), (Place::Fragment, at), "word {word}");
                flip(&words[word], bit);
            }
            let record = log.record(index, 40).unwrap().unwrap();
            assert_eq!((record.sequence, record.index), (1000 + u64::from(index), index));
            for (word, bit) in [(3, 0), (3, 63), (4, 0), (4, 33)] {
                flip(&words[word], bit);
                let record = log.record(index, 40).unwrap().unwrap();
                let report = log.with_key(&record, End::Start, |_| ()).unwrap_err();
                assert_eq!((report.offset, report.sequence), (at, Some(record.sequence)), "word {word}");
                flip(&words[word], bit);
            }
        }
        // LOG-6: the mark of a record that is not there yet.
        let RecordWords(words) = log.records.get(40).unwrap();
        flip(&words[5], 9);
        let report = *push(&filled, b"a", b"b").unwrap_err().corruption().unwrap();
        let pending = CHECKS.pending(40);
        assert_eq!((report.offset, report.expected, report.found), (40 * 48, pending, pending ^ 1 << 9));
        assert_eq!(
            tally.extent(CHECKS),
            Ok(crate::tombstone::index::checks::Extent { count: 41, complete: 0 })
        );
    }

    /// Where a key is damaged or lost: at its own offset, with the sequence number of its record.
    #[test]
    fn damaged_keys_are_named() {
        let (mut log, _) = filled();
        let records: Vec<Record> = (0..40).map(|index| log.named(index).unwrap()).collect();
        let mut place = 0;
        for record in &records {
            for (end, len) in
                [(End::Start, high(record.lengths) & LEN_BITS), (End::Stop, low(record.lengths))]
            {
                let words = len.div_ceil(8) + 1;
                // No key lies across two segments.
                place = if end == End::Start { low(record.keys) } else { place };
                let key = log.with_key(record, end, <[u8]>::to_vec).unwrap();
                assert_eq!(key, vec![if end == End::Start { b'a' } else { b'z' }; len as usize]);
                for word in place..place + words {
                    flip(log.keys.get(word).unwrap(), 3);
                    let report = log.with_key(record, end, |_| ()).unwrap_err();
                    let found = (report.place, report.offset, report.sequence);
                    assert_eq!(found, (Place::Fragment, 8 * u64::from(place), Some(record.sequence)));
                    flip(log.keys.get(word).unwrap(), 3);
                }
                place += words;
            }
        }
        log.cells(&mut |name, lose| {
            if name == "segment of keys" {
                lose()
            }
        });
        for record in &records {
            let report = log.with_key(record, End::Start, |_| ()).unwrap_err();
            let found = (report.offset, report.expected, report.sequence);
            let len = u64::from(high(record.lengths) & LEN_BITS);
            assert_eq!(found, (8 * u64::from(low(record.keys)), len, Some(record.sequence)));
        }
    }
}
