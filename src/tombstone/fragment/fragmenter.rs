//! Cuts overlapping range tombstones into fragments: admit, cut, emit.
//!
//! ```text
//!   admit    keep start, end, sequence; note whether starts ascend
//!   cut      all distinct boundaries, sorted and numbered: spans become pairs of numbers
//!   emit     sweep over the numbers; between two of them the set of active spans is constant
//! ```
//! * FRAGMENTER-1: with a list of snapshots a fragment keeps at most one sequence number a stripe, the newest:
//!   readers at a snapshot (and entries between two snapshots) cannot tell the difference. Work and size are O(n log
//!   n + n * snapshots), whatever the overlap.
//! * FRAGMENTER-2: without snapshots it keeps all of them; n nested spans then make O(n^2) pairs, because that is the
//!   answer.
//!
//! Who may call what: a fragmenter belongs to one thread; its result may be shared.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use crate::error::Result;
use crate::key::{Comparator, SequenceNumber};
use crate::tombstone::fragment::fragments::{Contact, Fragments, FragmentsBuilder};
use crate::tombstone::fragment::span::{RangeTombstone, check_order};

/// Turns range tombstones, sorted or not, into [`Fragments`].
///
/// ```
/// use paranoid_memtable::Bytewise;
/// use paranoid_memtable::tombstone::Fragmenter;
/// let mut fragmenter = Fragmenter::new(Bytewise).with_snapshots(&[10]);
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
pub struct Fragmenter<C> {
    comparator: C,
    spans: Vec<RangeTombstone>,
    bytes: u64,
    /// Ascending upper limits of stripes, the last one `u64::MAX`. Nothing: keep all.
    stripes: Option<Vec<SequenceNumber>>,
}

impl<C: Comparator> Fragmenter<C> {
    /// A fragmenter that keeps every sequence number.
    #[must_use]
    pub fn new(comparator: C) -> Self {
        Fragmenter { comparator, spans: Vec::new(), bytes: 0, stripes: None }
    }

    /// Keeps only what readers at these snapshots, and at the latest state, can tell apart: for ascending snapshots
    /// s1 < ... < sn the newest sequence number in each of [0, s1], (s1, s2], ..., (sn, max]. An empty list keeps one
    /// number a fragment.
    #[must_use]
    pub fn with_snapshots(mut self, snapshots: &[SequenceNumber]) -> Self {
        let mut stripes = snapshots.to_vec();
        stripes.push(SequenceNumber::MAX);
        stripes.sort_unstable();
        stripes.dedup();
        self.stripes = Some(stripes);
        self
    }

    /// Adds a tombstone, in any order. The same range may come with several sequence numbers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) unless `start` is before `end`; nothing is added.
    pub fn add(
        &mut self,
        start: impl Into<Vec<u8>>,
        end: impl Into<Vec<u8>>,
        sequence: SequenceNumber,
    ) -> Result<()> {
        self.admit(RangeTombstone::new(&self.comparator, start, end, sequence)?);
        Ok(())
    }

    /// Adds a tombstone that exists already.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if it was made under another order of keys.
    pub fn add_tombstone(&mut self, tombstone: RangeTombstone) -> Result<()> {
        check_order(&self.comparator, tombstone.start(), tombstone.end())?;
        self.admit(tombstone);
        Ok(())
    }

    fn admit(&mut self, span: RangeTombstone) {
        self.bytes += (span.start().len() + span.end().len()) as u64;
        self.spans.push(span);
    }

    /// How many tombstones were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether none was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The fragments of everything that was added. O(n log n) comparisons, and the size of the result.
    #[must_use]
    pub fn finish(mut self) -> Fragments<C> {
        self.sort_by_start();
        let (numbers, cuts) = self.cut();
        let keys: Vec<&[u8]> = cuts.iter().map(|cut| self.key(*cut)).collect();
        let mut builder = FragmentsBuilder::default();
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
            builder.push((ends[0], ends[1]), &sequences, contact);
            contact = Contact::Touching;
        }
        let len = self.spans.len() as u64;
        builder.finish(self.comparator, len, self.bytes)
    }

    /// Input in order of starts costs one pass.
    fn sort_by_start(&mut self) {
        let Fragmenter { comparator, spans, .. } = self;
        let order = |l: &RangeTombstone, r: &RangeTombstone| comparator.compare(l.start(), r.start());
        if !spans.is_sorted_by(|left, right| order(left, right) != Ordering::Greater) {
            spans.sort_by(order);
        }
    }

    /// The key that a cut names: span number and which end.
    fn key(&self, (span, side): Cut) -> &[u8] {
        match (self.spans.get(span), side) {
            (Some(span), Side::Start) => span.start(),
            (Some(span), Side::End) => span.end(),
            (None, _) => &[],
        }
    }

    /// Numbers the distinct boundaries: for each span the numbers of its start and end, and one owner a number.
    fn cut(&self) -> (Vec<(u32, u32)>, Vec<Cut>) {
        let compare = |left: &Cut, right: &Cut| {
            let (left, right) = (self.key(*left), self.key(*right));
            self.comparator
                .prefix(left)
                .cmp(&self.comparator.prefix(right))
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

/// A boundary, named by a span's number and one of its ends.
type Cut = (usize, Side);

#[derive(Debug, Clone, Copy)]
enum Side {
    Start,
    End,
}

/// One stripe: its upper limit, and the spans in it that may be active, newest first: (sequence, number of the end).
#[derive(Debug)]
struct Stripe {
    upper: SequenceNumber,
    spans: BinaryHeap<(SequenceNumber, u32)>,
}

/// The spans that cover the present stretch, with the number of the boundary where each ends.
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

    /// Collects what the fragment that starts at boundary `now` keeps, newest first. Forgets what has ended.
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
