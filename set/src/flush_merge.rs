//! The merge of a flush: the entries of several tables in one order, and their range tombstones as one list of
//! fragments.
//!
//! ```text
//!   table 5   a@7   c@9          pulled by a FlushIter each, which verifies every entry and, at its end, the sums
//!   table 4   a@3   b@2
//!   merged    a@7  (a@3: seen by a snapshot?)  b@2  c@9        then the range tombstones of both, cut as one list
//! ```
//! * SET-FLUSH-1: the end is reached only after every table's own flush has reached its end: all entries were seen and
//!   verified, and all sums compared.
//! * SET-FLUSH-2: a version is left out only if every snapshot that could see it sees a newer version of its key, as in
//!   the flush of one table (FLUSH-3), or a range tombstone of these tables that covers it: those are handed out. Bases of
//!   merge operands and what a single delete may need are kept.
//! * SET-FLUSH-3: a table ends at its last number: what was abandoned above (TABLES-4) is not handed out. That number is
//!   among the snapshots of the table's own flush, so that no abandoned version hides one below.
//!
//! One thread at a time pulls; the tables are frozen.

#![forbid(unsafe_code)]

use std::sync::Arc;

use paranoid_memtable::flush::{FlushEntry, FlushItem, FlushIter, FlushSink, FlushSummary, Versions};
use paranoid_memtable::scan::SortedSource;
use paranoid_memtable::sibling::{KeyComparator, VersionFilter};
use paranoid_memtable::tombstone::{Fragmenter, Fragments};
use paranoid_memtable::{Error, ImmutableMemTable, Result, SequenceNumber, shown};

use crate::tables::Slot;

/// One table of the merge, and where its own flush stands.
struct Source<'j> {
    slot: &'j Slot,
    /// On its next entry.
    items: FlushIter<'j>,
    /// Its range tombstones.
    ranges: Box<dyn SortedSource>,
}

/// A flush of several tables as one, whose caller pulls one item after the other: first all entries, then all
/// fragments, both in ascending order. Made by [`FlushJob::items`](crate::FlushJob::items).
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::flush::FlushItem;
/// use paranoid_set::{MemTableSet, SetFlush, SetOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// for value in [b"old", b"new"] {
///     let mut batch = WriteBatch::new();
///     batch.put(b"k", value)?;
///     set.write(&batch)?;
///     set.switch()?;
/// }
/// let mut job = set.begin_flush()?.expect("two tables");
/// let mut values = vec![];
/// let mut items: SetFlush<'_> = job.items()?;
/// while let Some(item) = items.next()? {
///     if let FlushItem::Entry(entry) = item {
///         values.push(entry.value.to_vec());
///     }
/// }
/// assert_eq!(values, [b"new"], "no snapshot sees the old one");
/// drop(items);
/// job.install(|_| Ok(()))?;
/// # Ok(()) }
/// ```
pub struct SetFlush<'j> {
    sources: Vec<Source<'j>>,
    /// The source whose head was used up.
    used: Option<usize>,
    filter: VersionFilter,
    /// A copy of the last entry's key.
    newer: Option<Vec<u8>>,
    comparator: &'j KeyComparator,
    snapshots: &'j [SequenceNumber],
    /// After all entries, the fragments and the index of the next one.
    fragments: Option<(Fragments, usize)>,
    summary: FlushSummary,
    outcome: &'j mut Outcome,
}

/// What a job knows of its last pass.
#[derive(Debug)]
pub(crate) enum Outcome {
    Unfinished,
    Finished,
    /// The error that every further call returns.
    Failed(Error),
    /// It failed, and what verifies of the tables was handed out.
    Salvaged,
}

impl<'j> SetFlush<'j> {
    /// A merge of frozen tables, each at its first item.
    pub(crate) fn new(
        slots: &'j [Arc<Slot>],
        frozen: &'j [ImmutableMemTable],
        comparator: &'j KeyComparator,
        snapshots: &'j [SequenceNumber],
        outcome: &'j mut Outcome,
    ) -> Result<Self> {
        let at_first = |(slot, table): (&'j Arc<Slot>, &'j ImmutableMemTable)| {
            // SET-FLUSH-3.
            let seen = [snapshots, &[slot.last.get()]].concat();
            let mut items = table.flush_iter(Versions::SeenBy(&seen))?;
            items.next_entry()?;
            Ok(Source { slot, items, ranges: table.source() })
        };
        let sources = slots.iter().zip(frozen).map(at_first).collect::<Result<_>>();
        Ok(SetFlush {
            sources: sources.inspect_err(|error: &Error| *outcome = Outcome::Failed(error.clone()))?,
            used: None,
            filter: VersionFilter::new(Versions::SeenBy(snapshots)),
            newer: None,
            comparator,
            snapshots,
            fragments: None,
            summary: FlushSummary::default(),
            outcome,
        })
    }

    /// The next item, borrowed until the next call. `None` means that all items were returned and that the counts and
    /// sums of all tables agree with those of their freeze. Only then may the caller keep what it made of the items.
    ///
    /// # Errors
    /// `Corruption` for the first damage found. What was made of the items must be discarded, and every later call
    /// returns this error.
    #[expect(
        clippy::should_implement_trait,
        reason = "items are lent: it is no iterator of the standard library"
    )]
    pub fn next(&mut self) -> Result<Option<FlushItem<'_>>> {
        match self.advance() {
            Ok(Some(place)) => Ok(self.lend(place)),
            Ok(None) => Ok(None),
            Err(error) => {
                *self.outcome = Outcome::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// The counts, once [`next`](Self::next) has returned `None`.
    #[must_use]
    pub fn summary(&self) -> Option<FlushSummary> {
        matches!(self.outcome, Outcome::Finished).then_some(self.summary)
    }

    /// Passes all items to a sink.
    pub(crate) fn pass_to(mut self, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        while let Some(item) = self.next()? {
            item.hand_to(sink)?;
        }
        Ok(self.summary)
    }

    /// Goes to the next item: the place of its source, or of its fragment.
    fn advance(&mut self) -> Result<Option<usize>> {
        loop {
            match (&*self.outcome, &mut self.fragments) {
                (Outcome::Failed(error), _) => return Err(error.clone()),
                (Outcome::Finished, _) => return Ok(None),
                (_, None) => match self.next_entry()? {
                    Some(place) => return Ok(Some(place)),
                    None => self.fragments = Some((self.cut()?, 0)),
                },
                (_, Some((fragments, next))) if *next < fragments.len() => {
                    *next += 1;
                    return Ok(Some(*next - 1));
                }
                (_, Some((fragments, _))) => {
                    fragments.verify()?;
                    *self.outcome = Outcome::Finished;
                }
            }
        }
    }

    fn lend(&mut self, place: usize) -> Option<FlushItem<'_>> {
        let item = match &self.fragments {
            Some((fragments, _)) => {
                let fragment = fragments.get(place)?;
                self.summary.fragments += 1;
                self.summary.data_bytes += (fragment.start().len() + fragment.end().len()) as u64;
                FlushItem::Fragment(fragment)
            }
            None => {
                let entry = self.sources.get(place)?.items.entry()?;
                self.summary.entries += 1;
                self.summary.data_bytes += (entry.user_key.len() + entry.value.len()) as u64;
                FlushItem::Entry(entry)
            }
        };
        Some(item)
    }

    /// The source of the next entry that a snapshot could need (SET-FLUSH-2).
    fn next_entry(&mut self) -> Result<Option<usize>> {
        loop {
            if let Some(source) = self.used.take().and_then(|used| self.sources.get_mut(used)) {
                source.items.next_entry()?;
            }
            let Some((place, last, FlushEntry { user_key: key, sequence, kind, .. })) =
                first_head(&self.sources, self.comparator)
            else {
                return Ok(None);
            };
            if !self.newer.as_deref().is_some_and(|newer| self.comparator.compare(newer, key).is_eq()) {
                self.filter.start_key();
            }
            let newer = self.newer.get_or_insert_default();
            newer.clear();
            newer.extend_from_slice(key);
            self.used = Some(place);
            if sequence <= last && self.filter.admits(sequence, kind) && !self.is_covered(sequence)? {
                return Ok(Some(place));
            }
            self.summary.hidden += 1;
        }
    }

    /// Whether all that could see a version of the last key see a range tombstone over it.
    fn is_covered(&mut self, sequence: SequenceNumber) -> Result<bool> {
        let (Some(snapshot), Some(key)) = (self.filter.seen_from(sequence), &self.newer) else {
            return Ok(false);
        };
        for source in &mut self.sources {
            let cover = source.ranges.cover(key, source.slot.read_at(snapshot))?;
            if cover.is_some_and(|cover| cover.sequence > sequence) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Cuts the range tombstones of all tables; after that all tables have reached their ends (SET-FLUSH-1).
    fn cut(&mut self) -> Result<Fragments> {
        let mut fragmenter = Fragmenter::under(self.comparator.clone()).with_snapshots(self.snapshots);
        for source in &mut self.sources {
            let last = source.slot.last.get();
            let ended = source.items.end(|start, end, sequence| match sequence {
                _ if sequence > last => Ok(()),
                _ => fragmenter.add(start, end, sequence),
            })?;
            self.summary.hidden += ended.hidden;
        }
        Ok(fragmenter.finish())
    }
}

shown! {
    "SetFlush": impl [] SetFlush<'_>, |flush| {
        "tables": flush.sources.len(), "summary": flush.summary
    }
}

/// The first entry among those on which sources stand: the smallest key, and its newest version. With the place of its source, and the
/// last number of that table.
fn first_head<'s>(
    sources: &'s [Source<'_>],
    comparator: &KeyComparator,
) -> Option<(usize, SequenceNumber, FlushEntry<'s>)> {
    let heads = sources.iter().enumerate().filter_map(|(place, source)| {
        let entry = source.items.entry()?;
        Some((place, source.slot.last.get(), entry))
    });
    heads.reduce(|first, other| {
        let order = comparator.compare(other.2.user_key, first.2.user_key);
        if order.then(first.2.sequence.cmp(&other.2.sequence)).is_lt() { other } else { first }
    })
}
