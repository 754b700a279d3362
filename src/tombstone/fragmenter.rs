//! Cuts overlapping range tombstones into fragments that do not overlap.
//!
//! ```text
//!   add      keeps start, end, sequence: a span
//!   cut      sorts and numbers all distinct boundaries: spans become pairs of numbers
//!   sweep    visits the numbers in order; between two of them the set of active spans is constant
//! ```
//! Two spans with four distinct boundaries:
//!
//! ```text
//!   a-----------g @3          boundaries   a  c  g  k       spans as numbers   (0, 2) @3
//!      c-----------k @7       numbers      0  1  2  3                          (1, 3) @7
//!
//!   at 0, key a: @3 begins           a--c [3]
//!   at 1, key c: @7 begins           c--g [7, 3]
//!   at 2, key g: @3 has ended        g--k [7]
//!   at 3, key k: the last boundary
//! ```
//! A list of snapshots divides the sequence numbers into stripes, and a fragment keeps only the
//! newest number of each stripe: readers at these snapshots cannot tell the difference. With an
//! empty list a fragment keeps one number, so c--g [7] and g--k [7] are one fragment, and the
//! result is a--c [3], c--k [7]. Work and size are O(n log n + n * snapshots), however much the
//! tombstones overlap.
//!
//! Without a list a fragment keeps every sequence number, so n nested spans have fragments with
//! O(n^2) numbers. A `FragmentIter` holds the numbers of one fragment at a time, `finish` those of
//! all.
//!
//! A compaction that cuts its output cuts the fragments too. A fragment over a cut is returned in
//! parts, one on each side:
//!
//! ```text
//!   cut at e     a--c [3]   c--e [7] | e--k [7]
//! ```
//!
//! * FRAGMENTER-1: a `FragmentIter` ends without an error only if its spans and its cuts still have
//!   the digests that were computed when they were added, and the fragments that it returned have
//!   the digest of a second sweep over the spans, cut at the same keys.
//!
//! A fragmenter belongs to one thread, and so does its iterator. `Fragments` may be shared.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::comparator::{Comparator, KeyComparator};
use crate::error::{Corruption, Place, Result, not_a_range};
use crate::integrity::hash::{hash, mix};
use crate::key::SequenceNumber;
use crate::sort::sorted_by;
use crate::tombstone::fragments::{Fragment, Fragments};

/// The interval of a range tombstone, which is not empty, and its sequence number.
#[derive(Clone)]
struct Span {
    start: Vec<u8>,
    end: Vec<u8>,
    sequence: SequenceNumber,
}

impl Span {
    fn digest_after(&self, digest: u64) -> u64 {
        span_digest((&self.start, &self.end, self.sequence), digest)
    }
}

/// The digest over the spans up to this one; `digest` is that of the spans before it.
#[inline(never)]
pub(crate) fn span_digest(
    (start, end, sequence): (&[u8], &[u8], SequenceNumber),
    digest: u64,
) -> u64 {
    mix(sequence, hash(end, hash(start, digest)))
}

/// Cuts range tombstones, added in any order, into [`Fragments`].
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
    /// Upper limits of the stripes, ascending; the last one is `u64::MAX`. `None` keeps every
    /// sequence number.
    stripes: Option<Vec<SequenceNumber>>,
    /// The digest over all spans, computed as they were added.
    digest: u64,
}

impl Fragmenter {
    /// Creates a fragmenter that keeps every sequence number.
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

    /// Creates a fragmenter for an order of keys that is prepared already.
    #[doc(hidden)]
    pub fn under(comparator: KeyComparator) -> Self {
        Fragmenter {
            comparator,
            spans: Vec::new(),
            stripes: None,
            digest: 0,
        }
    }

    /// Makes fragments keep only the sequence numbers that readers at these snapshots, or without a
    /// snapshot, can tell apart: for ascending snapshots s1 < ... < sn the newest one in each of
    /// [0, s1], (s1, s2], ..., (sn, max]. With an empty list a fragment keeps one number.
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
        let mut stripes = sorted_by(snapshots, Ord::cmp);
        stripes.push(SequenceNumber::MAX);
        stripes.dedup();
        self.stripes = Some(stripes);
        self
    }

    /// Adds a tombstone. Tombstones may be added in any order, and several may have the same range.
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
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) unless `start` is before `end`;
    /// nothing is added.
    pub fn add(
        &mut self,
        start: impl Into<Vec<u8>>,
        end: impl Into<Vec<u8>>,
        sequence: SequenceNumber,
    ) -> Result<()> {
        let (start, end) = (start.into(), end.into());
        if self.comparator.compare(&start, &end).is_ge() {
            return Err(not_a_range());
        }
        let span = Span {
            start,
            end,
            sequence,
        };
        self.digest = span.digest_after(self.digest);
        self.spans.push(span);
        Ok(())
    }

    /// Compares the digest over the added spans with `listed`, the caller's digest over the
    /// tombstones that it meant to add.
    pub(crate) fn compare(&self, listed: u64) -> Result<()> {
        if listed == self.digest {
            return Ok(());
        }
        Err(Corruption::new(Place::Fragment, 0, listed, self.digest).into())
    }

    /// Cuts all added tombstones into fragments. Takes O(n log n) comparisons, and time and memory
    /// proportional to the size of the result: without snapshots up to n sequence numbers in each
    /// of 2n fragments, which [`finish_iter`](Self::finish_iter) returns one by one.
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
        let mut fragments = Fragments::new(self.comparator.clone());
        self.spans
            .iter()
            .for_each(|span| fragments.count((span.start.len() + span.end.len()) as u64));
        let mut cut = self.finish_iter();
        while cut.sweep.step(cut.stripes.as_deref()) {
            if let Some(Fragment {
                start,
                end,
                sequences,
            }) = cut.last()
            {
                fragments.push(start, end, sequences);
            }
        }
        fragments.seal()
    }

    /// Cuts all added tombstones into fragments and returns these one by one. Takes O(n log n)
    /// comparisons, time proportional to the size of all fragments together, and O(n) memory,
    /// however much the tombstones overlap.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "g", 3)?;
    /// fragmenter.add("c", "k", 7)?;
    /// let mut fragments = fragmenter.finish_iter();
    /// let mut numbers = vec![];
    /// while let Some(fragment) = fragments.next()? {
    ///     numbers.push(fragment.sequences().to_vec());
    /// }
    /// assert_eq!(numbers, [vec![3], vec![7, 3], vec![7]]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn finish_iter(self) -> FragmentIter {
        let Fragmenter {
            comparator,
            spans,
            stripes,
            digest,
        } = self;
        let sweep = Sweep::new(&comparator, &spans, stripes.as_deref());
        FragmentIter {
            comparator,
            spans,
            stripes,
            added: digest,
            sweep,
            returned: 0,
            cuts: Vec::new(),
            cuts_added: 0,
            passed: 0,
            stand: Stand::Returned,
        }
    }
}

/// Returns fragments one by one, in key order. Made by [`Fragmenter::finish_iter`].
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::Bytewise;
/// use paranoid_memtable::tombstone::Fragmenter;
/// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
/// fragmenter.add("a", "c", 3)?;
/// let mut fragments = fragmenter.finish_iter();
/// assert_eq!(fragments.next()?.map(|fragment| fragment.start()), Some(b"a".as_slice()));
/// assert!(fragments.next()?.is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[must_use]
pub struct FragmentIter {
    comparator: KeyComparator,
    spans: Vec<Span>,
    stripes: Option<Vec<SequenceNumber>>,
    /// The digest over the spans, computed when they were added.
    added: u64,
    sweep: Sweep,
    /// The digest over the fragments that were returned.
    returned: u64,
    /// The keys at which fragments are cut, ascending.
    cuts: Vec<Vec<u8>>,
    /// The digest over the cuts, computed when they were added.
    cuts_added: u64,
    /// The number of cuts before the next fragment.
    passed: usize,
    stand: Stand,
}

/// How much of the sweep's fragment was returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// All of it, or there is none yet.
    Returned,
    /// The part before the next cut; the rest is after it.
    Cut,
    /// Nothing after the last cut.
    Kept,
}

impl FragmentIter {
    /// Returns the next fragment, borrowed until the next call. `None` means that all fragments
    /// were returned, and that they are those of the added tombstones. Only then may the caller
    /// keep what it made of them.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise)).with_snapshots(&[]);
    /// (1..=9).try_for_each(|sequence| fragmenter.add("a", "c", sequence))?;
    /// let mut fragments = fragmenter.finish_iter();
    /// assert_eq!(fragments.next()?.map(|fragment| fragment.newest()), Some(9));
    /// assert!(fragments.next()?.is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corruption`](crate::Error::Corruption) in place of `None` if the memory of the
    /// tombstones or of the iterator was damaged. The caller must then discard what it made of the
    /// fragments.
    #[expect(
        clippy::should_implement_trait,
        reason = "fragments are borrowed, so it is no iterator of the standard library"
    )]
    pub fn next(&mut self) -> Result<Option<Fragment<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        let lost = Corruption::new(Place::Fragment, 0, 0, 0);
        self.fragment().map(Some).ok_or_else(|| lost.into())
    }

    /// Cuts the fragments at a key that is not before an earlier cut, and returns the stored copy
    /// of the key. [`advance`](Self::advance) returns `false` once where the fragments reach the
    /// cut, and continues past it. Only then may the next cut be added.
    #[doc(hidden)]
    pub fn cut_at(&mut self, key: &[u8]) -> &[u8] {
        self.cuts_added = hash(black_box(key), self.cuts_added);
        self.cuts.push(key.to_vec());
        self.cuts.last().map_or(&[], |cut| cut)
    }

    /// Compares the spans with those of another fragmenter, which were added in the same order.
    ///
    /// # Errors
    /// `Corruption` if they differ.
    #[doc(hidden)]
    pub fn compare(&self, again: &Fragmenter) -> Result<()> {
        again.compare(self.added)
    }

    /// Moves to the next fragment. Returns `false` where [`next`](Self::next) returns `None`, and
    /// at each cut.
    ///
    /// # Errors
    /// The same as for [`next`](Self::next).
    #[doc(hidden)]
    pub fn advance(&mut self) -> Result<bool> {
        let is_at_cut = match self.stand {
            Stand::Cut => true,
            Stand::Kept => self.is_past_cut(),
            Stand::Returned if self.sweep.step(self.stripes.as_deref()) => self.is_past_cut(),
            Stand::Returned if self.passed < self.cuts.len() => {
                self.passed += 1;
                return Ok(false);
            }
            Stand::Returned => {
                self.verify()?;
                return Ok(false);
            }
        };
        (self.stand, self.passed) = if is_at_cut {
            (Stand::Kept, self.passed + 1)
        } else {
            (Stand::Returned, self.passed)
        };
        Ok(!is_at_cut)
    }

    /// Whether the rest of the sweep's fragment starts at the next cut, or after it.
    fn is_past_cut(&self) -> bool {
        let whole = self.sweep.fragment(&self.spans);
        let rest = whole.map(|whole| part(&self.comparator, whole, &self.cuts, self.passed).start);
        let pair = self.cuts.get(self.passed).zip(rest);
        pair.is_some_and(|(cut, start)| self.comparator.compare(cut, start).is_le())
    }

    /// The fragment that the last [`advance`](Self::advance) moved to. Call it once after each
    /// `advance`.
    #[doc(hidden)]
    #[must_use]
    pub fn fragment(&mut self) -> Option<Fragment<'_>> {
        let whole = self.sweep.fragment(&self.spans)?;
        let part = part(&self.comparator, whole, &self.cuts, self.passed);
        let has_cut = self.passed < self.cuts.len();
        if has_cut && self.comparator.compare(part.end, whole.end).is_lt() {
            self.stand = Stand::Cut;
        }
        self.returned = black_box(&part).digest_after(self.returned);
        Some(part)
    }

    /// The fragment that the sweep reached last, not cut.
    pub(crate) fn last(&self) -> Option<Fragment<'_>> {
        self.sweep.fragment(&self.spans)
    }

    /// Compares the digests over spans and returned fragments with new ones (FRAGMENTER-1).
    fn verify(&self) -> Result<(), Corruption> {
        let differs = |expected, found| Corruption::new(Place::Fragment, 0, expected, found);
        let added = self
            .spans
            .iter()
            .fold(0, |digest, span| span.digest_after(digest));
        let cuts = self.cuts.iter().fold(0, |digest, cut| hash(cut, digest));
        if (added, cuts) != (self.added, self.cuts_added) {
            return Err(differs(self.added ^ self.cuts_added, added ^ cuts));
        }
        let spans = black_box(&self.spans);
        let (mut sweep, mut again) = (
            Sweep::new(&self.comparator, spans, self.stripes.as_deref()),
            0,
        );
        while sweep.step(self.stripes.as_deref()) {
            let Some(whole) = sweep.fragment(&self.spans) else {
                again = 0;
                continue;
            };
            let cuts_before = |key: &[u8], how| {
                self.cuts
                    .partition_point(|cut| self.comparator.compare(cut, key) < how)
            };
            let begun = cuts_before(whole.start, Ordering::Greater);
            for passed in begun..=cuts_before(whole.end, Ordering::Equal) {
                let part = part(&self.comparator, whole, &self.cuts, passed);
                // Two cuts may be equal.
                if part.start != part.end {
                    again = part.digest_after(again);
                }
            }
        }
        if again == self.returned {
            Ok(())
        } else {
            Err(differs(again, self.returned))
        }
    }
}

/// The part of a fragment after `passed` cuts and before the next one.
fn part<'a>(
    comparator: &KeyComparator,
    whole: Fragment<'a>,
    cuts: &'a [Vec<u8>],
    passed: usize,
) -> Fragment<'a> {
    let (mut part, is_lt) = (whole, |left: &[u8], right: &[u8]| {
        comparator.compare(left, right).is_lt()
    });
    if let Some(cut) = passed.checked_sub(1).and_then(|last| cuts.get(last))
        && is_lt(part.start, cut)
    {
        part.start = cut;
    }
    if let Some(cut) = cuts.get(passed)
        && is_lt(cut, part.end)
    {
        part.end = cut;
    }
    part
}

/// The start or the end of the span with this number.
#[derive(Clone, Copy)]
enum Bound {
    Start(usize),
    End(usize),
}

impl Bound {
    fn key(self, spans: &[Span]) -> Option<&[u8]> {
        match self {
            Bound::Start(at) => spans.get(at).map(|span| &*span.start),
            Bound::End(at) => spans.get(at).map(|span| &*span.end),
        }
    }
}

/// A pass over the boundaries of spans.
struct Sweep {
    /// The distinct boundaries in key order.
    bounds: Vec<Bound>,
    /// The number of the boundary where `ahead` begins.
    now: usize,
    /// The spans that have not begun: numbers of their boundaries, sequence number.
    coming: Peekable<IntoIter<([usize; 2], SequenceNumber)>>,
    /// The spans that have begun: sequence number, number of the boundary where the span ends.
    active: BTreeMap<SequenceNumber, usize>,
    /// The numbers of the last fragment's two boundaries.
    last: [usize; 2],
    /// The sequence numbers of the last fragment.
    sequences: Vec<SequenceNumber>,
    /// The sequence numbers between the boundary `now` and the next one.
    ahead: Vec<SequenceNumber>,
}

impl Sweep {
    /// A sweep before the first fragment.
    fn new(comparator: &KeyComparator, spans: &[Span], stripes: Option<&[SequenceNumber]>) -> Self {
        let (bounds, numbers) = cut(comparator, spans);
        let coming: Vec<_> = numbers
            .into_iter()
            .zip(spans)
            .map(|(numbers, span)| (numbers, span.sequence))
            .collect();
        let coming = sorted_by(&coming, Ord::cmp).into_iter().peekable();
        let active = BTreeMap::new();
        let (sequences, ahead) = (Vec::new(), Vec::new());
        let mut sweep = Sweep {
            bounds,
            now: 0,
            coming,
            active,
            last: [0, 0],
            sequences,
            ahead,
        };
        sweep.look_ahead(stripes);
        sweep
    }

    /// Moves to the next fragment, and returns whether there is one. The fragment ends where the
    /// sequence numbers change (FRAGMENTS-1).
    fn step(&mut self, stripes: Option<&[SequenceNumber]>) -> bool {
        while self.ahead.is_empty() {
            if self.now >= self.bounds.len() {
                self.sequences.clear();
                return false;
            }
            self.now += 1;
            self.look_ahead(stripes);
        }
        std::mem::swap(&mut self.sequences, &mut self.ahead);
        let start = self.now;
        // `ahead` is empty at the last boundary. The bound on `now` ends the loop if a processor
        // that errs misses that.
        while self.now < self.bounds.len() {
            self.now += 1;
            self.look_ahead(stripes);
            if self.ahead != self.sequences {
                self.last = [start, self.now];
                return true;
            }
        }
        self.sequences.clear();
        false
    }

    /// Collects the sequence numbers between the boundary `now` and the next one. At the last
    /// boundary there are none.
    fn look_ahead(&mut self, stripes: Option<&[SequenceNumber]>) {
        self.ahead.clear();
        while let Some(([_, end], sequence)) =
            self.coming.next_if(|([start, _], _)| *start == self.now)
        {
            let last = self.active.entry(sequence).or_insert(end);
            *last = end.max(*last);
        }
        visible(&mut self.active, stripes, self.now, &mut self.ahead);
    }

    /// The last fragment.
    fn fragment<'s>(&'s self, spans: &'s [Span]) -> Option<Fragment<'s>> {
        let key = |number: usize| self.bounds.get(number)?.key(spans);
        let [start, end] = self.last;
        let sequences = &self.sequences;
        (!sequences.is_empty()).then_some(Fragment {
            start: key(start)?,
            end: key(end)?,
            sequences,
        })
    }
}

/// The distinct boundaries of the spans in key order, and for each span the numbers of its start
/// and its end in that order.
fn cut(comparator: &KeyComparator, spans: &[Span]) -> (Vec<Bound>, Vec<[usize; 2]>) {
    let bounds = spans
        .iter()
        .enumerate()
        .flat_map(|(at, span)| [(&*span.start, at, 0), (&*span.end, at, 1)]);
    let all: Vec<(&[u8], usize, usize)> = bounds.collect();
    let compare = |(left, ..): &(&[u8], usize, usize), (right, ..): &(&[u8], usize, usize)| {
        let images = comparator.image(left, 0).cmp(&comparator.image(right, 0));
        images.then_with(|| comparator.compare(left, right))
    };
    let all = sorted_by(&all, |left, right| {
        compare(left, right).then((left.1, left.2).cmp(&(right.1, right.2)))
    });
    let (mut keys, mut numbers) = (Vec::new(), vec![[0; 2]; spans.len()]);
    for same in all.chunk_by(|left, right| compare(left, right).is_eq()) {
        same.iter()
            .for_each(|&(_, span, side)| numbers[span][side] = keys.len());
        let (_, span, side) = same[0];
        keys.push(if side == 0 {
            Bound::Start(span)
        } else {
            Bound::End(span)
        });
    }
    (keys, numbers)
}

/// Collects the sequence numbers of the fragment that starts at boundary `now`, newest first, and
/// removes spans that have ended from `active`.
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
    // Takes the newest span of each stripe that has not ended. Older spans that have ended stay in
    // `active` until they are the newest of their stripe.
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
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;

    /// Nested, touching and equal spans.
    fn fragmenter(snapshots: Option<&[SequenceNumber]>) -> Fragmenter {
        let mut fragmenter = Fragmenter::under(BYTEWISE.clone());
        if let Some(snapshots) = snapshots {
            fragmenter = fragmenter.with_snapshots(snapshots);
        }
        for (start, end, sequence) in [
            ("a", "m", 9),
            ("c", "k", 4),
            ("k", "p", 4),
            ("c", "k", 7),
            ("r", "s", 2),
        ] {
            fragmenter.add(start, end, sequence).unwrap();
        }
        fragmenter
    }

    /// The parts of fragments between cuts are those of spans cut at the same keys. With a flipped
    /// bit of a cut, a span or the fragment at the cut they are the same, or an error.
    #[test]
    #[cfg_attr(miri, ignore = "a thousand passes, without unsafe code")]
    fn fragments_are_cut_at_keys() {
        const CUTS: [&[u8]; 7] = [b"a", b"b", b"d", b"d", b"d\0", b"k", b"z"];
        type Damage = fn(&mut FragmentIter);
        let damages: [(&str, Damage); 6] = [
            ("none", |_| ()),
            ("cut", |it| it.cuts.iter_mut().for_each(|cut| cut[0] ^= 1)),
            ("last cut", |it| {
                it.cuts.iter_mut().rev().take(1).for_each(|cut| cut[0] ^= 4)
            }),
            ("start", |it| it.spans[0].start[0] ^= 2),
            ("end", |it| it.spans[1].end[0] ^= 1),
            ("number", |it| {
                it.sweep
                    .sequences
                    .iter_mut()
                    .for_each(|number| *number ^= 1)
            }),
        ];
        for chosen in 0..1usize << CUTS.len() {
            let chosen = (0..CUTS.len()).filter(|at| chosen >> at & 1 == 1);
            let cuts: Vec<&[u8]> = chosen.map(|at| CUTS[at]).collect();
            for snapshots in [None, Some(&[][..]), Some(&[5][..])] {
                for (what, damage) in damages {
                    let outcome = cut_pass(snapshots, &cuts, damage);
                    let is_right = matches!(outcome, Ok(true));
                    assert!(is_right || outcome.is_err(), "{what} {cuts:?}");
                    assert!(what != "none" || is_right, "{cuts:?}");
                }
            }
        }
    }

    /// A pass over fragments with cuts, damaged after the first cut is reached. Returns whether all
    /// parts are right.
    fn cut_pass(
        snapshots: Option<&[SequenceNumber]>,
        cuts: &[&[u8]],
        damage: fn(&mut FragmentIter),
    ) -> Result<bool> {
        let mut fragments = fragmenter(snapshots).finish_iter();
        let mut is_right = true;
        for place in 0..=cuts.len() {
            if let Some(cut) = cuts.get(place) {
                assert_eq!(fragments.cut_at(cut), *cut);
            }
            if place == 1 {
                damage(&mut fragments);
            }
            let mut found = vec![];
            while fragments.advance()? {
                let lost = || Corruption::new(Place::Fragment, 0, 0, 0);
                let part = fragments.fragment().ok_or_else(lost)?;
                found.push((
                    part.start.to_vec(),
                    part.end.to_vec(),
                    part.sequences.to_vec(),
                ));
            }
            let from = place.checked_sub(1).map_or(&b""[..], |last| cuts[last]);
            is_right &= found == between(snapshots, from, cuts.get(place).copied());
        }
        Ok(is_right)
    }

    type Parts = Vec<(Vec<u8>, Vec<u8>, Vec<SequenceNumber>)>;

    /// The fragments between two keys, by a simple computation.
    fn between(snapshots: Option<&[SequenceNumber]>, from: &[u8], to: Option<&[u8]>) -> Parts {
        let all = fragmenter(snapshots).finish();
        let clipped = all.iter().map(|it| {
            let end = to.map_or(it.end, |to| it.end.min(to));
            (
                it.start.max(from).to_vec(),
                end.to_vec(),
                it.sequences.to_vec(),
            )
        });
        clipped.filter(|(start, end, _)| start < end).collect()
    }

    /// Whether the pass ends without an error if `damage` runs before fragment number `before` is
    /// asked for.
    fn passes(
        snapshots: Option<&[SequenceNumber]>,
        before: usize,
        damage: impl Fn(&mut FragmentIter),
    ) -> bool {
        let mut fragments = fragmenter(snapshots).finish_iter();
        for number in 0.. {
            if number == before {
                damage(&mut fragments);
            }
            match fragments.next() {
                Ok(Some(_)) => assert!(number < 20, "the pass does not end"),
                Ok(None) => return true,
                Err(error) => {
                    assert_eq!(
                        error.corruption().map(|found| found.place),
                        Some(Place::Fragment)
                    );
                    assert!(fragments.next().is_err(), "the error is final");
                    return false;
                }
            }
        }
        true
    }

    /// FRAGMENTER-1.
    #[test]
    fn flipped_bits_of_spans_and_of_the_sweep_are_noticed() {
        for snapshots in [None, Some(&[][..]), Some(&[5][..])] {
            assert!(passes(snapshots, 0, |_| ()));
            for before in 0..3 {
                for span in 0..5 {
                    for bit in 0..8 {
                        assert!(!passes(snapshots, before, |fragments| fragments.spans
                            [span]
                            .start[0] ^=
                            1 << bit));
                        assert!(!passes(snapshots, before, |fragments| fragments.spans
                            [span]
                            .end[0] ^=
                            1 << bit));
                    }
                    for bit in 0..64 {
                        assert!(!passes(snapshots, before, |fragments| fragments.spans
                            [span]
                            .sequence ^=
                            1 << bit));
                    }
                }
                for bit in 0..64 {
                    assert!(!passes(snapshots, before, |fragments| fragments.added ^= 1 << bit));
                }
            }
            for bit in 0..64 {
                assert!(!passes(snapshots, 1, |fragments| fragments.returned ^= 1 << bit));
                assert!(!passes(snapshots, 1, |fragments| {
                    fragments
                        .sweep
                        .ahead
                        .iter_mut()
                        .for_each(|number| *number ^= 1 << bit);
                }));
            }
        }
    }
}
