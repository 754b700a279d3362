//! Non-overlapping fragments of range tombstones: immutable, sealed, searchable.
//!
//! ```text
//!   spans       a-----------g@3           fragments   a--c  [3]
//!                  c-----------k@7                    c--g  [7, 3]
//!                                                     g--k  [7]
//! ```
//! * FRAGMENTS-1: fragments ascend and do not overlap; start < end; every fragment has at least one sequence number.
//! * FRAGMENTS-2: the sequence numbers of a fragment strictly descend.
//! * FRAGMENTS-3: touching fragments differ in their sequence numbers.
//! * FRAGMENTS-4: fragments never change once they are built; `verify` compares a digest over all of them.
//!
//! Who may call what: everything, any thread. Not promised: that the digest's value stays the same in other versions.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::iter::FusedIterator;
use std::sync::Arc;

use crate::error::{Corruption, Place, Result, not_a_range};
use crate::integrity::digest::{hash, mix};
use crate::key::{Comparator, KeyComparator, SequenceNumber};

/// An interval of keys, with the sequence numbers of the tombstones that cover it, newest first.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::Bytewise;
/// use paranoid_memtable::tombstone::Fragmenter;
/// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
/// fragmenter.add("a", "g", 3)?;
/// fragmenter.add("a", "g", 9)?;
/// let fragments = fragmenter.finish();
/// let fragment = fragments.get(0).unwrap();
/// assert_eq!((fragment.start(), fragment.end()), (&b"a"[..], &b"g"[..]));
/// assert_eq!(fragment.sequences(), [9, 3]);
/// assert_eq!(fragment.newest(), 9);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    start: &'a [u8],
    end: &'a [u8],
    sequences: &'a [SequenceNumber],
}

impl<'a> Fragment<'a> {
    /// The first key of the interval.
    #[must_use]
    pub fn start(&self) -> &'a [u8] {
        self.start
    }

    /// The end of the interval: the first key after it.
    #[must_use]
    pub fn end(&self) -> &'a [u8] {
        self.end
    }

    /// The visible sequence numbers, newest first. Never empty.
    #[must_use]
    pub fn sequences(&self) -> &'a [SequenceNumber] {
        self.sequences
    }

    /// The newest visible sequence number.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("a", "c", 5)?;
    /// assert_eq!(fragmenter.finish().get(0).expect("one fragment").newest(), 5);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn newest(&self) -> SequenceNumber {
        self.sequences.first().copied().unwrap_or(0)
    }
}

/// Where the keys and sequence numbers of one fragment end in the arrays that hold those of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    start: (u64, u64),
    end: (u64, u64),
    sequences: (u64, u64),
}

/// The fragments of a set of range tombstones, made by [`Fragmenter`](crate::tombstone::Fragmenter).
///
/// Searches take O(log fragments) comparisons. Shared freely between threads.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::Bytewise;
/// use paranoid_memtable::tombstone::Fragmenter;
/// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
/// fragmenter.add("a", "g", 3)?;
/// fragmenter.add("c", "k", 7)?;
/// let fragments = fragmenter.finish();
/// assert_eq!(fragments.len(), 3);
/// assert_eq!(fragments.max_covering_sequence(b"d", u64::MAX), Some(7));
/// assert_eq!(fragments.max_covering_sequence(b"d", 6), Some(3));
/// assert_eq!(fragments.max_covering_sequence(b"k", 9), None);
/// fragments.verify()?;
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct Fragments {
    comparator: KeyComparator,
    keys: Vec<u8>,
    rows: Vec<Row>,
    sequences: Vec<SequenceNumber>,
    /// Number of tombstones that were fragmented, and bytes of their starts and ends.
    pub(crate) unfragmented_len: u64,
    pub(crate) unfragmented_bytes: u64,
    digest: u64,
}

impl Fragments {
    /// Number of fragments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no fragments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of heap memory that the fragments take.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        (self.keys.capacity() + self.rows.capacity() * size_of::<Row>() + self.sequences.capacity() * 8)
            as u64
    }

    /// The fragment number `index` in key order, with all its sequence numbers.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// let fragments = fragmenter.finish();
    /// assert_eq!(fragments.get(0).map(|fragment| fragment.sequences()), Some([3].as_slice()));
    /// assert!(fragments.get(1).is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Fragment<'_>> {
        self.rows.get(index).map(|row| self.fragment(row))
    }

    /// Iterates over all fragments in key order, with all their sequence numbers.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("b", "d", 5)?;
    /// let starts: Vec<Vec<u8>> = fragmenter.finish().iter().map(|fragment| fragment.start().to_vec()).collect();
    /// assert_eq!(starts, [b"a", b"b", b"c"]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Fragment<'_>> + ExactSizeIterator + FusedIterator {
        self.rows.iter().map(|row| self.fragment(row))
    }

    fn fragment(&self, row: &Row) -> Fragment<'_> {
        Fragment {
            start: run(&self.keys, row.start),
            end: run(&self.keys, row.end),
            sequences: run(&self.sequences, row.sequences),
        }
    }

    /// The largest sequence number, at most `snapshot`, of the tombstones that cover `key`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("a", "c", 5)?;
    /// let fragments = fragmenter.finish();
    /// assert_eq!(fragments.max_covering_sequence(b"b", 4), Some(3));
    /// assert_eq!(fragments.max_covering_sequence(b"c", 4), None);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn max_covering_sequence(
        &self,
        key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
    ) -> Option<SequenceNumber> {
        self.newest_over(key.as_ref(), snapshot)
    }

    fn newest_over(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        let index = self.ended_before(key);
        if index >= self.started_by(key) {
            return None;
        }
        let newest = self.get(index)?.sequences;
        newest.get(newest.partition_point(|&sequence| sequence > snapshot)).copied()
    }

    /// Recomputes the digest over all keys and sequence numbers and compares it with the stored one. O(bytes).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.finish().verify()?;
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corruption`](crate::Error::Corruption) if the memory of the fragments was damaged since they were
    /// built.
    pub fn verify(&self) -> Result<()> {
        let digest = self.compute_digest();
        if digest == self.digest {
            return Ok(());
        }
        Err(Corruption::new(Place::Fragment, 0, digest, self.digest).into())
    }

    fn compute_digest(&self) -> u64 {
        let sums = (self.unfragmented_len, self.unfragmented_bytes);
        let mut digest = mix(self.rows.len() as u64, 0x6672_6167) ^ mix(sums.0, sums.1);
        for fragment in self.iter() {
            digest = hash(fragment.start, digest);
            digest = hash(fragment.end, digest);
            for &sequence in fragment.sequences {
                digest = mix(sequence, digest);
            }
            digest = mix(fragment.sequences.len() as u64, digest);
        }
        digest
    }

    /// Number of fragments that end at or before `key`, which is the index of the first one that covers `key` or
    /// starts after it.
    pub(crate) fn ended_before(&self, key: &[u8]) -> usize {
        self.rows.partition_point(|row| self.comparator.compare(run(&self.keys, row.end), key).is_le())
    }

    /// Number of fragments that start at or before `key`.
    pub(crate) fn started_by(&self, key: &[u8]) -> usize {
        self.rows.partition_point(|row| self.comparator.compare(run(&self.keys, row.start), key).is_le())
    }
}

fn run<T>(items: &[T], (from, to): (u64, u64)) -> &[T] {
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) => items.get(from..to).unwrap_or_default(),
        _ => &[],
    }
}

/// What collects fragments in key order, and joins adjacent ones with equal sequence numbers (FRAGMENTS-3).
impl Fragments {
    pub(crate) fn new(comparator: KeyComparator) -> Self {
        let (keys, rows, sequences) = (Vec::new(), Vec::new(), Vec::new());
        Fragments { comparator, keys, rows, sequences, unfragmented_len: 0, unfragmented_bytes: 0, digest: 0 }
    }

    fn store(&mut self, key: &[u8]) -> (u64, u64) {
        let from = self.keys.len() as u64;
        self.keys.extend_from_slice(key);
        (from, self.keys.len() as u64)
    }

    /// Appends the next fragment; `sequences` descend strictly. It touches the one before it if it starts with the
    /// bytes where that one ends.
    pub(crate) fn push(&mut self, start: &[u8], end: &[u8], sequences: &[SequenceNumber]) {
        let last = self.rows.last().copied().filter(|last| run(&self.keys, last.end) == start);
        let start = match last {
            Some(last) if run(&self.sequences, last.sequences) == sequences => {
                // The end of the last fragment is the last key that was stored, and no other fragment uses it yet.
                self.keys.truncate(usize::try_from(last.end.0).unwrap_or(usize::MAX));
                let end = self.store(end);
                self.rows.pop();
                return self.rows.push(Row { end, ..last });
            }
            Some(last) => last.end,
            None => self.store(start),
        };
        let end = self.store(end);
        let from = self.sequences.len() as u64;
        self.sequences.extend_from_slice(sequences);
        self.rows.push(Row { start, end, sequences: (from, self.sequences.len() as u64) });
    }

    /// Counts a tombstone with so many bytes of keys.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.unfragmented_len += 1;
        self.unfragmented_bytes += bytes;
    }

    /// Completes the fragments of the tombstones that were counted.
    pub(crate) fn seal(mut self) -> Self {
        self.digest = self.compute_digest();
        self
    }
}

// A range tombstone: one deletion of an interval of keys.
//
// ```text
//   start          end
//   |--------------)        every key from start up to, not including, end;
//        sequence           every entry with a smaller sequence number
// ```
// * SPAN-1: start < end under the comparator of the fragmenter that the span is added to, which refuses everything else.
//
// Who may call what: plain data, `Send` and `Sync`.

/// The interval of a range tombstone, and its sequence number.
#[derive(Clone)]
struct Span {
    start: Vec<u8>,
    end: Vec<u8>,
    sequence: SequenceNumber,
}

// Cuts overlapping range tombstones into fragments: admit, cut, emit.
//
// ```text
//   admit    keep start, end, sequence
//   cut      all distinct boundaries, sorted and numbered: spans become pairs of numbers
//   emit     sweep over the numbers; between two of them the set of active spans is constant
// ```
// An example of two spans, which have four distinct boundaries:
//
// ```text
//   a-----------g @3          boundaries   a  c  g  k       spans as numbers   (0, 2) @3
//      c-----------k @7       numbers      0  1  2  3                          (1, 3) @7
//
//   at 0, key a: @3 begins           emit a--c [3]
//   at 1, key c: @7 begins           emit c--g [7, 3]
//   at 2, key g: @3 has ended        emit g--k [7]
//   at 3, key k: the last boundary
// ```
// With an empty list of snapshots a fragment keeps one number, so c--g [7] and g--k [7] are emitted and joined: the
// result is a--c [3], c--k [7].
//
// * FRAGMENTER-1: a list of snapshots divides the sequence numbers into stripes, and a fragment keeps only the
//   newest number of each stripe. Readers at these snapshots cannot tell the difference. Work and size are O(n log n
//   + n * snapshots), however much the tombstones overlap.
// * FRAGMENTER-2: without a list a fragment keeps every sequence number, so n nested spans make O(n^2) pairs.
//
// Who may call what: a fragmenter belongs to one thread; its result may be shared.

/// Turns range tombstones, sorted or not, into [`Fragments`].
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::Bytewise;
/// use paranoid_memtable::tombstone::Fragmenter;
/// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise)).with_snapshots(&[10]);
/// for sequence in 1..=20 {
///     fragmenter.add("b", "y", sequence)?;
/// }
/// fragmenter.add("a", "c", 3)?;
/// let fragments = fragmenter.finish();
/// let shown: Vec<_> = fragments.iter().map(|f| (f.start(), f.end(), f.sequences().to_vec())).collect();
/// assert_eq!(shown, [
///     (&b"a"[..], &b"b"[..], vec![3]),
///     (&b"b"[..], &b"y"[..], vec![20, 10]),   // one a stripe: up to 10, and over 10
/// ]);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Fragmenter {
    comparator: KeyComparator,
    spans: Vec<Span>,
    /// Upper limits of the stripes, ascending, the last one `u64::MAX`. `None` keeps every sequence number.
    stripes: Option<Vec<SequenceNumber>>,
}

impl Fragmenter {
    /// A fragmenter that keeps every sequence number.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("a", "c", 5)?;
    /// assert_eq!(fragmenter.finish().get(0).expect("one fragment").sequences(), [5, 3]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn new(comparator: Arc<dyn Comparator>) -> Self {
        Fragmenter::under(comparator.into())
    }

    /// A fragmenter in an order that is known already.
    #[doc(hidden)]
    pub fn under(comparator: KeyComparator) -> Self {
        Fragmenter { comparator, spans: Vec::new(), stripes: None }
    }

    /// Keeps only the sequence numbers that readers at these snapshots, or without a snapshot, can tell apart: for
    /// ascending snapshots s1 < ... < sn the newest one in each of [0, s1], (s1, s2], ..., (sn, max]. An empty list
    /// keeps one number per fragment.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise)).with_snapshots(&[]);
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("a", "c", 5)?;
    /// assert_eq!(fragmenter.finish().get(0).expect("one fragment").sequences(), [5]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn with_snapshots(mut self, snapshots: &[SequenceNumber]) -> Self {
        let mut stripes = snapshots.to_vec();
        stripes.push(SequenceNumber::MAX);
        stripes.sort_unstable();
        stripes.dedup();
        self.stripes = Some(stripes);
        self
    }

    /// Adds a tombstone. Tombstones may come in any order, and several may have one range.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::{Bytewise, Error};
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// assert!(matches!(fragmenter.add("c", "a", 4), Err(Error::InvalidArgument(_))));
    /// assert_eq!(fragmenter.finish().len(), 1);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) unless `start` is before `end`; nothing is added.
    pub fn add(
        &mut self,
        start: impl Into<Vec<u8>>,
        end: impl Into<Vec<u8>>,
        sequence: SequenceNumber,
    ) -> Result<()> {
        let (start, end) = (start.into(), end.into());
        if self.comparator.compare(&start, &end).is_ge() {
            return Err(not_a_range()); // SPAN-1
        }
        self.spans.push(Span { start, end, sequence });
        Ok(())
    }

    /// Cuts all added tombstones into fragments. O(n log n) comparisons, and time proportional to the size of the
    /// result.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "g", 3)?;
    /// fragmenter.add("c", "k", 7)?;
    /// let fragments = fragmenter.finish();
    /// let shown: Vec<_> = fragments.iter().map(|f| (f.start(), f.end(), f.sequences())).collect();
    /// assert_eq!(shown[1], (b"c".as_slice(), b"g".as_slice(), [7, 3].as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn finish(self) -> Fragments {
        let Fragmenter { comparator, spans, stripes } = self;
        let (keys, numbers) = cut(&comparator, &spans);
        let mut fragments = Fragments::new(comparator);
        spans.iter().for_each(|span| fragments.count((span.start.len() + span.end.len()) as u64));
        let mut coming: Vec<_> =
            numbers.iter().zip(&spans).map(|(numbers, span)| (numbers, span.sequence)).collect();
        coming.sort_unstable();
        let mut coming = coming.into_iter().peekable();
        let (mut active, mut sequences) = (BTreeMap::new(), Vec::new());
        for (now, ends) in (0..).zip(keys.windows(2)) {
            while let Some(([_, end], sequence)) = coming.next_if(|([start, _], _)| *start == now) {
                let last = active.entry(sequence).or_insert(*end);
                *last = *end.max(last);
            }
            sequences.clear();
            visible(&mut active, stripes.as_deref(), now, &mut sequences);
            if !sequences.is_empty() {
                fragments.push(ends[0], ends[1], &sequences);
            }
        }
        fragments.seal()
    }
}

/// The distinct boundaries of the spans in key order, and the numbers of each span's start and end among these.
fn cut<'s>(comparator: &KeyComparator, spans: &'s [Span]) -> (Vec<&'s [u8]>, Vec<[usize; 2]>) {
    let bounds = spans.iter().enumerate().flat_map(|(at, span)| [(&*span.start, at, 0), (&*span.end, at, 1)]);
    let mut all: Vec<(&[u8], usize, usize)> = bounds.collect();
    let compare = |(left, ..): &(&[u8], usize, usize), (right, ..): &(&[u8], usize, usize)| {
        let images = comparator.image(left, 0).cmp(&comparator.image(right, 0));
        images.then_with(|| comparator.compare(left, right))
    };
    all.sort_unstable_by(|left, right| compare(left, right).then((left.1, left.2).cmp(&(right.1, right.2))));
    let (mut keys, mut numbers) = (Vec::new(), vec![[0; 2]; spans.len()]);
    for same in all.chunk_by(|left, right| compare(left, right).is_eq()) {
        same.iter().for_each(|&(_, span, side)| numbers[span][side] = keys.len());
        keys.push(same[0].0);
    }
    (keys, numbers)
}

/// Collects the sequence numbers of the fragment that starts at boundary `now`, newest first, and removes spans that
/// have ended. `active` has the number of the boundary where the span of each sequence number ends.
fn visible(
    active: &mut BTreeMap<SequenceNumber, usize>,
    stripes: Option<&[SequenceNumber]>,
    now: usize,
    sequences: &mut Vec<SequenceNumber>,
) {
    let Some(stripes) = stripes else {
        active.retain(|_, end| *end > now);
        return sequences.extend(active.keys().rev());
    };
    // The newest span of each stripe that has not ended; older ones stay until they are the newest.
    for (at, upper) in stripes.iter().enumerate().rev() {
        let least = at.checked_sub(1).map_or(0, |below| stripes[below] + 1);
        while let Some((&sequence, &end)) = active.range(least..=*upper).next_back() {
            if end > now {
                sequences.push(sequence);
                break;
            }
            active.remove(&sequence);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::key::BYTEWISE;

    /// FRAGMENTS-4, and that touching fragments share a key.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut fragments = Fragments::new(BYTEWISE.clone());
        fragments.push(b"a", b"c", &[9, 4]);
        fragments.push(b"c", b"d", &[4]);
        fragments.push(b"d", b"f", &[4]);
        fragments.push(b"m", b"p", &[7, 2]);
        (0..4).for_each(|_| fragments.count(3));
        let whole = fragments.seal();
        whole.verify().unwrap();
        assert_eq!(whole.keys, b"acfmp");
        assert_eq!(whole.clone().allocated_bytes(), 5 + 3 * 6 * 8 + 5 * 8);
        let flip = |bit: usize, change: fn(&mut Fragments) -> Vec<&mut u64>| {
            let mut damaged = whole.clone();
            let mut words = change(&mut damaged);
            *words[bit / 64] ^= 1 << (bit % 64);
            assert!(damaged.verify().is_err(), "bit {bit}");
        };
        (0..64 * 18).for_each(|bit| {
            flip(bit, |damaged| {
                let pairs = damaged
                    .rows
                    .iter_mut()
                    .flat_map(|row| [&mut row.start, &mut row.end, &mut row.sequences]);
                pairs.flat_map(|(from, to)| [from, to]).collect()
            });
        });
        (0..64 * 5).for_each(|bit| flip(bit, |damaged| damaged.sequences.iter_mut().collect()));
        (0..64 * 3).for_each(|bit| {
            flip(bit, |Fragments { unfragmented_len, unfragmented_bytes, digest, .. }| {
                vec![unfragmented_len, unfragmented_bytes, digest]
            });
        });
        for bit in 0..8 * 5 {
            let mut damaged = whole.clone();
            damaged.keys[bit / 8] ^= 1 << (bit % 8);
            assert!(damaged.verify().is_err(), "key bit {bit}");
        }
    }
}
