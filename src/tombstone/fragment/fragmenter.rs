//! Cuts overlapping range tombstones into fragments: admit, cut, emit.
//!
//! ```text
//!   admit    keep start, end, sequence; note whether starts ascend
//!   cut      all distinct boundaries, sorted and numbered: spans become pairs of numbers
//!   emit     sweep over the numbers; between two of them the set of active spans is constant
//! ```
//! An example of two spans, which have four distinct boundaries:
//!
//! ```text
//!   a-----------g @3          boundaries   a  c  g  k       spans as numbers   (0, 2) @3
//!      c-----------k @7       numbers      0  1  2  3                          (1, 3) @7
//!
//!   at 0, key a: @3 begins           emit a--c [3]
//!   at 1, key c: @7 begins           emit c--g [7, 3]
//!   at 2, key g: @3 has ended        emit g--k [7]
//!   at 3, key k: the last boundary
//! ```
//! With an empty list of snapshots a fragment keeps one number, so c--g [7] and g--k [7] are emitted and joined: the
//! result is a--c [3], c--k [7].
//!
//! * FRAGMENTER-1: a list of snapshots divides the sequence numbers into stripes, and a fragment keeps only the
//!   newest number of each stripe. Readers at these snapshots cannot tell the difference. Work and size are O(n log n
//!   + n * snapshots), however much the tombstones overlap.
//! * FRAGMENTER-2: without a list a fragment keeps every sequence number, so n nested spans make O(n^2) pairs.
//!
//! Who may call what: a fragmenter belongs to one thread; its result may be shared.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::comparator::{Comparator, KeyComparator};
use crate::error::Result;
use crate::key::SequenceNumber;
use crate::tombstone::fragment::fragments::{
    Contact, Fragments, FragmentsBuilder, RangeTombstone, check_order,
};

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
pub struct Fragmenter {
    comparator: KeyComparator,
    spans: Vec<RangeTombstone>,
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
    #[must_use]
    pub fn new(comparator: Arc<dyn Comparator>) -> Self {
        Fragmenter::under(comparator.into())
    }

    /// A fragmenter in an order that is known already.
    pub(crate) fn under(comparator: KeyComparator) -> Self {
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
    #[must_use]
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
    /// assert_eq!(fragmenter.len(), 1);
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
        self.add_tombstone(RangeTombstone::unchecked(start.into(), end.into(), sequence))
    }

    /// Adds a [`RangeTombstone`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::{Fragmenter, RangeTombstone};
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add_tombstone(RangeTombstone::new(&Bytewise, "a", "c", 3)?)?;
    /// assert_eq!(fragmenter.len(), 1);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if its start is not before its end in this
    /// fragmenter's order of keys.
    pub fn add_tombstone(&mut self, tombstone: RangeTombstone) -> Result<()> {
        check_order(self.comparator.compare(tombstone.start(), tombstone.end()))?;
        self.spans.push(tombstone);
        Ok(())
    }

    /// Number of tombstones added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether no tombstone was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
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
    pub fn finish(mut self) -> Fragments {
        self.sort_by_start();
        let (numbers, cuts) = self.cut();
        let keys: Vec<&[u8]> = cuts.iter().map(|cut| self.key(*cut)).collect();
        let mut builder = FragmentsBuilder::default();
        self.spans.iter().for_each(|span| builder.count((span.start().len() + span.end().len()) as u64));
        let mut active = match &self.stripes {
            None => Active::All(BTreeMap::new()),
            Some(stripes) => Active::striped(stripes),
        };
        let mut coming = numbers.iter().zip(&self.spans).peekable();
        let mut sequences = Vec::new();
        let mut contact = Contact::Apart;
        for (now, ends) in (0u32..).zip(keys.windows(2)) {
            while let Some((&(_, end), span)) = coming.next_if(|((start, _), _)| *start == now) {
                active.enter(span.sequence(), end);
            }
            active.visible(now, &mut sequences);
            if sequences.is_empty() {
                contact = Contact::Apart;
                continue;
            }
            builder.push(ends[0], ends[1], &sequences, contact);
            contact = Contact::Touching;
        }
        builder.finish(self.comparator)
    }

    /// Sorts the spans by start, unless they were added in that order.
    fn sort_by_start(&mut self) {
        let Fragmenter { comparator, spans, .. } = self;
        let order = |l: &RangeTombstone, r: &RangeTombstone| comparator.compare(l.start(), r.start());
        if !spans.is_sorted_by(|left, right| order(left, right) != Ordering::Greater) {
            spans.sort_by(order);
        }
    }

    /// The key at one end of a span.
    fn key(&self, (span, side): Cut) -> &[u8] {
        match (self.spans.get(span), side) {
            (Some(span), Side::Start) => span.start(),
            (Some(span), Side::End) => span.end(),
            (None, _) => &[],
        }
    }

    /// Numbers the distinct boundaries in key order. Returns the numbers of each span's start and end, and for each
    /// number one span end that has this key.
    fn cut(&self) -> (Vec<(u32, u32)>, Vec<Cut>) {
        let compare = |left: &Cut, right: &Cut| {
            let (left, right) = (self.key(*left), self.key(*right));
            self.comparator
                .image(left, 0)
                .cmp(&self.comparator.image(right, 0))
                .then_with(|| self.comparator.compare(left, right))
        };
        let starts = (0..self.spans.len()).map(|span| (span, Side::Start));
        let mut all: Vec<Cut> = starts.chain((0..self.spans.len()).map(|span| (span, Side::End))).collect();
        all.sort_by(compare);
        let mut numbers = vec![(0, 0); self.spans.len()];
        let mut cuts = Vec::new();
        let same = all.chunk_by(|left, right| compare(left, right) == Ordering::Equal);
        for (number, owners) in (0u32..).zip(same) {
            cuts.extend(owners.first());
            for &(span, side) in owners {
                match (numbers.get_mut(span), side) {
                    (Some(numbers), Side::Start) => numbers.0 = number,
                    (Some(numbers), Side::End) => numbers.1 = number,
                    (None, _) => {}
                }
            }
        }
        (numbers, cuts)
    }
}

/// A boundary, named by the index of a span and one of its ends.
type Cut = (usize, Side);

#[derive(Debug, Clone, Copy)]
enum Side {
    Start,
    End,
}

/// A stripe of sequence numbers: its upper limit, and its spans that may be active, newest first, as (sequence,
/// number of the end boundary).
#[derive(Debug)]
struct Stripe {
    upper: SequenceNumber,
    spans: BinaryHeap<(SequenceNumber, u32)>,
}

/// The spans that cover the current interval, each with the number of its end boundary.
#[derive(Debug)]
enum Active {
    All(BTreeMap<SequenceNumber, u32>),
    Striped(Vec<Stripe>),
}

impl Active {
    fn striped(stripes: &[SequenceNumber]) -> Active {
        let empty = |&upper: &SequenceNumber| Stripe { upper, spans: BinaryHeap::new() };
        Active::Striped(stripes.iter().map(empty).collect())
    }

    fn enter(&mut self, sequence: SequenceNumber, end: u32) {
        match self {
            Active::All(spans) => {
                let last = spans.entry(sequence).or_insert(end);
                *last = end.max(*last);
            }
            Active::Striped(stripes) => {
                let which = stripes.partition_point(|stripe| stripe.upper < sequence);
                if let Some(stripe) = stripes.get_mut(which) {
                    stripe.spans.push((sequence, end));
                }
            }
        }
    }

    /// Collects the sequence numbers of the fragment that starts at boundary `now`, newest first, and removes spans
    /// that have ended.
    fn visible(&mut self, now: u32, sequences: &mut Vec<SequenceNumber>) {
        sequences.clear();
        match self {
            Active::All(spans) => {
                spans.retain(|_, end| *end > now);
                sequences.extend(spans.keys().rev());
            }
            Active::Striped(stripes) => {
                for stripe in stripes.iter_mut().rev() {
                    while stripe.spans.peek().is_some_and(|&(_, end)| end <= now) {
                        stripe.spans.pop();
                    }
                    sequences.extend(stripe.spans.peek().map(|&(sequence, _)| sequence));
                }
            }
        }
    }
}
