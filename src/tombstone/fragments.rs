//! Non-overlapping fragments of range tombstones: immutable, sealed, searchable.
//!
//! ```text
//!   spans       a-----------g@3           fragments   a--c  [3]
//!                  c-----------k@7                    c--g  [7, 3]
//!                                                     g--k  [7]
//! ```
//! * FRAGMENTS-1: two fragments that touch have different sequence numbers.
//!
//! Fragments ascend and do not overlap. Each has a start before its end, and at least one sequence
//! number; its numbers strictly descend. Fragments never change after they are built: `verify`
//! compares a digest over all of them, which may differ in other versions.
//!
//! Any thread may call everything.

#![forbid(unsafe_code)]

use std::iter::FusedIterator;

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place, Result};
use crate::integrity::hash::{hash, mix};
use crate::key::SequenceNumber;

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
    pub(crate) start: &'a [u8],
    pub(crate) end: &'a [u8],
    pub(crate) sequences: &'a [SequenceNumber],
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

    /// The sequence numbers that are kept for the interval, newest first. Never empty.
    #[must_use]
    pub fn sequences(&self) -> &'a [SequenceNumber] {
        self.sequences
    }

    /// The newest of the [`sequences`](Self::sequences).
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

    /// The digest over the fragments up to this one; `digest` is that of the fragments before it.
    #[inline(never)]
    pub(crate) fn digest_after(&self, digest: u64) -> u64 {
        let keys = hash(self.end, hash(self.start, digest));
        let all = self
            .sequences
            .iter()
            .fold(keys, |digest, &sequence| mix(sequence, digest));
        mix(self.sequences.len() as u64, all)
    }
}

/// Where one fragment's keys and sequence numbers begin and end in the arrays of all fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    start: (u64, u64),
    end: (u64, u64),
    sequences: (u64, u64),
}

/// The fragments of a set of range tombstones, cut by a
/// [`Fragmenter`](crate::tombstone::Fragmenter).
///
/// A search takes O(log fragments) comparisons. Any number of threads may share the fragments.
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
    /// Number of tombstones that were cut into fragments.
    pub(crate) unfragmented_len: u64,
    /// Bytes of the starts and ends of these tombstones.
    pub(crate) unfragmented_bytes: u64,
    digest: u64,
}

impl Fragments {
    /// The number of fragments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no fragments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The bytes of heap memory that the fragments take.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        (self.keys.capacity()
            + self.rows.capacity() * size_of::<Row>()
            + self.sequences.capacity() * 8) as u64
    }

    /// The fragment at `index` in key order, with all its sequence numbers.
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
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = Fragment<'_>> + ExactSizeIterator + FusedIterator {
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
        newest
            .get(newest.partition_point(|&sequence| sequence > snapshot))
            .copied()
    }

    /// Computes the digest over all keys and sequence numbers again and compares it with the stored
    /// one. O(bytes).
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
    /// [`Error::Corruption`](crate::Error::Corruption) if the memory of the fragments was damaged
    /// after they were built.
    pub fn verify(&self) -> Result<()> {
        let digest = self.compute_digest();
        if digest == self.digest {
            return Ok(());
        }
        Err(Corruption::new(Place::Fragment, 0, digest, self.digest).into())
    }

    fn compute_digest(&self) -> u64 {
        let sums = (self.unfragmented_len, self.unfragmented_bytes);
        let begin = mix(self.rows.len() as u64, 0x6672_6167) ^ mix(sums.0, sums.1);
        self.iter()
            .fold(begin, |digest, fragment| fragment.digest_after(digest))
    }

    /// Number of fragments that end at or before `key`. It is the index of the first fragment that
    /// covers `key` or starts after it.
    pub(crate) fn ended_before(&self, key: &[u8]) -> usize {
        self.rows.partition_point(|row| {
            self.comparator
                .compare(run(&self.keys, row.end), key)
                .is_le()
        })
    }

    /// Number of fragments that start at or before `key`.
    pub(crate) fn started_by(&self, key: &[u8]) -> usize {
        self.rows.partition_point(|row| {
            self.comparator
                .compare(run(&self.keys, row.start), key)
                .is_le()
        })
    }
}

fn run<T>(items: &[T], (from, to): (u64, u64)) -> &[T] {
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) => items.get(from..to).unwrap_or_default(),
        _ => &[],
    }
}

/// How the fragments are built, in key order.
impl Fragments {
    pub(crate) fn new(comparator: KeyComparator) -> Self {
        let (keys, rows, sequences) = (Vec::new(), Vec::new(), Vec::new());
        Fragments {
            comparator,
            keys,
            rows,
            sequences,
            unfragmented_len: 0,
            unfragmented_bytes: 0,
            digest: 0,
        }
    }

    fn store(&mut self, key: &[u8]) -> (u64, u64) {
        let from = self.keys.len() as u64;
        self.keys.extend_from_slice(key);
        (from, self.keys.len() as u64)
    }

    /// Appends the next fragment; `sequences` strictly descend. If it touches the last fragment and
    /// has the same sequence numbers, it extends that one (FRAGMENTS-1). Two fragments touch if the
    /// bytes of an end and a start are equal.
    pub(crate) fn push(&mut self, start: &[u8], end: &[u8], sequences: &[SequenceNumber]) {
        let last = self
            .rows
            .last()
            .copied()
            .filter(|last| run(&self.keys, last.end) == start);
        let start = match last {
            Some(last) if run(&self.sequences, last.sequences) == sequences => {
                // The end of the last fragment is the key that was stored last, and no other
                // fragment uses it yet.
                self.keys
                    .truncate(usize::try_from(last.end.0).unwrap_or(usize::MAX));
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
        self.rows.push(Row {
            start,
            end,
            sequences: (from, self.sequences.len() as u64),
        });
    }

    /// Counts a tombstone whose start and end have `bytes` bytes together.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.unfragmented_len += 1;
        self.unfragmented_bytes += bytes;
    }

    /// Computes the digest, which completes the fragments.
    pub(crate) fn seal(mut self) -> Self {
        self.digest = self.compute_digest();
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;

    /// `verify` notices every flipped bit, and touching fragments share a key.
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
            flip(
                bit,
                |Fragments {
                     unfragmented_len,
                     unfragmented_bytes,
                     digest,
                     ..
                 }| { vec![unfragmented_len, unfragmented_bytes, digest] },
            );
        });
        for bit in 0..8 * 5 {
            let mut damaged = whole.clone();
            damaged.keys[bit / 8] ^= 1 << (bit % 8);
            assert!(damaged.verify().is_err(), "key bit {bit}");
        }
    }
}
