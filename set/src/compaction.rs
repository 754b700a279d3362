//! A compaction merges the versions of several sources into one order, drops those that no reader
//! needs, and cuts all range tombstones into one list of fragments. A flush is a compaction of
//! tables.
//!
//! ```text
//!   newest     a@9 merge   b@8 single delete   d@9 delete   [e, g) @7         one snapshot, at 5
//!   older      a@7 merge   b@6 put             d@4 put      f@6 put
//!   oldest     a@6 put     c@2 put             d@3 put      f@5 put
//!   merged     a@9 put     c@2 put   d@9 delete, d@4 put    f@5 put           then [e, g) @7
//! ```
//! Snapshots divide the versions of a key into *stripes*: a reader that sees one version of a
//! stripe sees the whole stripe and all older ones. Readers are at a snapshot or at the newest
//! number; none of them needs a version that is dropped here or by a table's own flush.
//! * COMPACTION-1: of each stripe the newest version stays. If it is a merge operand, the operands
//!   below it stay too, down to their base. A range tombstone of the same stripe drops what it
//!   covers.
//! * COMPACTION-2: a single delete and the put below it in its stripe are dropped together, unless
//!   that would uncover an older version. Then the single delete becomes a delete, as it does over
//!   a delete or a merge operand. A single delete without a put in its stripe stays, under newer
//!   versions too: its put may be in a lower level.
//! * COMPACTION-3: at the lowest level a tombstone is dropped if it hides nothing in the output: a
//!   range tombstone that the oldest snapshot sees, or a point tombstone without an older stripe.
//! * COMPACTION-4: each table ends at its last number. Later entries, of batches that a stopped set
//!   did not finish, are skipped. The tables after it end there too, and the last number of a flush
//!   job is among its snapshots, so a skipped version hides no older one.
//!
//! One thread at a time pulls items; tables are frozen.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use paranoid_memtable::flush::{FlushEntry, FlushItem, FlushSink, FlushSummary, Versions};
use paranoid_memtable::integrity::Place;
use paranoid_memtable::scan::{SortedSource, SourceMove};
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::tombstone::{FragmentIter, Fragmenter};
use paranoid_memtable::{
    Comparator, Corruption, Error, ImmutableMemTable, Kind, Result, SequenceNumber, shown,
};

use crate::compaction_input::{Entries, Input, Version, verified};
use crate::merge_operator::{MergeOperator, apply};
use crate::tables::Slot;

/// A merge of several sources into one order, without the versions that no reader needs. The caller
/// pulls one item after the other: first all entries, then all fragments of range tombstones, both
/// in ascending order. Made by [`over`](Self::over) for an engine's files, and by
/// [`FlushJob::items`](crate::FlushJob::items) for the tables of a flush.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::flush::FlushItem;
/// use paranoid_memtable::{Bytewise, MemTable};
/// use paranoid_set::Compaction;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let (older, newer) = (MemTable::default(), MemTable::default()); // in place of two files
/// older.put(1, b"a", b"old")?;
/// older.put(2, b"b", b"value")?;
/// newer.put(3, b"a", b"new")?;
/// newer.delete(4, b"b")?;
/// let sources = vec![newer.source(), older.source()]; // newest first
/// let mut merged = Compaction::over(Arc::new(Bytewise), &[2], sources);
/// let mut entries = vec![];
/// while let Some(item) = merged.next()? {
///     if let FlushItem::Entry(entry) = item {
///         entries.push((entry.user_key.to_vec(), entry.sequence));
///     }
/// }
/// let [a, b] = [b"a".to_vec(), b"b".to_vec()];
/// assert_eq!(entries, [(a.clone(), 3), (a, 1), (b.clone(), 4), (b, 2)], "the snapshot at 2 sees the old ones");
/// let mut merged = Compaction::over(Arc::new(Bytewise), &[], vec![newer.source(), older.source()]).to_lowest_level();
/// assert!(matches!(merged.next()?, Some(FlushItem::Entry(entry)) if entry.value == b"new"));
/// assert!(merged.next()?.is_none(), "nothing is left to be deleted");
/// # Ok(()) }
/// ```
pub struct Compaction<'s> {
    inputs: Vec<Input<'s>>,
    comparator: KeyComparator,
    /// Ascending.
    snapshots: Vec<SequenceNumber>,
    operator: Option<&'s dyn MergeOperator>,
    filter: Option<Filter<'s>>,
    /// Whether newer versions of the key are merge operands: the filter spares their base.
    has_operands: bool,
    level: Level,
    /// The inputs that `step` moves to their next entries.
    used: Range<usize>,
    /// A copy of the current key; `None` before the first one.
    key: Option<Vec<u8>>,
    /// The stripe of that key whose remaining versions no reader needs.
    answered: Option<usize>,
    /// Versions that are returned before the next entry of an input: merged values, and entries
    /// that were kept back until the entries below them were known.
    made: VecDeque<Version>,
    /// The version of `made` that was returned last.
    lent: Option<Version>,
    /// The fragments, once all entries are returned.
    fragments: Option<FragmentIter>,
    summary: FlushSummary,
    /// How the pass ended; shared with a flush job.
    ended: Arc<Ended>,
    /// Set while `next` looks for an item. A call that finds it set knows that the call before it
    /// panicked.
    is_moving: bool,
}

/// Whether there may be older versions below the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Lower levels may have older versions of the same keys.
    Inner,
    /// No level is below.
    Lowest,
}

/// How a pass ended, once it has ended. Every later call returns the same error.
pub(crate) type Ended = OnceLock<Result<()>>;

/// The next entry of all inputs: the newest version of the smallest key.
#[derive(Clone, Copy)]
struct Head {
    place: usize,
    sequence: SequenceNumber,
    kind: Kind,
    stripe: usize,
}

/// Whether a value is kept.
type Filter<'s> = Box<dyn FnMut(FlushEntry<'_>) -> bool + Send + 's>;

/// When the range tombstones of the inputs are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Before the last entry.
    First,
    /// After the last entry. This ends each table's own flush: all entries are verified, and all
    /// sums compared.
    Last,
}

/// Where the next item is.
pub(crate) enum Next {
    Input(usize),
    Made,
    Fragment,
}

impl<'s> Compaction<'s> {
    /// A merge of sources, newest first: for each key, every version and range tombstone of a
    /// source is newer than those of the sources after it. Reads at the newest number and at each
    /// of the snapshots, which may be in any order, see the same before and after. Take the
    /// snapshots from [`MemTableSet::snapshots`](crate::MemTableSet::snapshots) after the sources
    /// are chosen. Each item costs O(sources), and one question to each source for range
    /// tombstones.
    #[must_use]
    pub fn over(
        comparator: Arc<dyn Comparator>,
        snapshots: &[SequenceNumber],
        sources: Vec<Box<dyn SortedSource + 's>>,
    ) -> Self {
        let inputs = sources.into_iter();
        let entries = || Entries::Source(SourceMove::First, None);
        let inputs = inputs.map(|source| Input {
            entries: entries(),
            source,
            last: SequenceNumber::MAX,
        });
        Compaction::of(inputs.collect(), comparator.into(), snapshots)
    }

    /// A merge of frozen tables, with each input on its first entry.
    pub(crate) fn of_tables(
        slots: &[Arc<Slot>],
        frozen: &'s [ImmutableMemTable],
        comparator: &KeyComparator,
        snapshots: &[SequenceNumber],
        ended: &Arc<Ended>,
    ) -> Result<Self> {
        let begun = |(slot, table): (&Arc<Slot>, &'s ImmutableMemTable)| {
            let last = slot.last.get();
            let entries = Entries::Table(Box::new(table.flush_iter(Versions::SeenBy(snapshots))?));
            Ok(Input {
                entries,
                source: table.source(),
                last,
            })
        };
        let inputs = slots.iter().zip(frozen).map(begun).collect::<Result<_>>()?;
        let merge = Compaction::of(inputs, comparator.clone(), snapshots);
        let mut merge = Compaction {
            ended: Arc::clone(ended),
            ..merge
        };
        merge.step()?;
        Ok(merge)
    }

    fn of(inputs: Vec<Input<'s>>, comparator: KeyComparator, snapshots: &[SequenceNumber]) -> Self {
        let (used, mut snapshots) = (0..inputs.len(), snapshots.to_vec());
        snapshots.sort_unstable();
        Compaction {
            inputs,
            comparator,
            snapshots,
            operator: None,
            filter: None,
            has_operands: false,
            level: Level::Inner,
            used,
            key: None,
            answered: None,
            made: VecDeque::new(),
            lent: None,
            fragments: None,
            summary: FlushSummary::default(),
            ended: Arc::default(),
            is_moving: false,
        }
    }

    /// This merge with an operator. It applies merge operands to their base where the base is
    /// known, and [combines](MergeOperator::combine) them elsewhere if it can.
    ///
    /// ```
    /// use std::error::Error;
    /// use std::sync::Arc;
    /// use paranoid_memtable::flush::FlushItem;
    /// use paranoid_memtable::{Bytewise, Kind, MemTable};
    /// use paranoid_set::{Compaction, MergeOperator};
    /// struct Append;
    /// impl MergeOperator for Append {
    ///     fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    ///         Ok([base.unwrap_or_default(), &operands.concat()].concat())
    ///     }
    /// }
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let file = MemTable::default();
    /// file.put(1, b"k", b"1")?;
    /// file.merge(2, b"k", b"2")?;
    /// let mut merged = Compaction::over(Arc::new(Bytewise), &[], vec![file.source()]).combining(&Append);
    /// let Some(FlushItem::Entry(entry)) = merged.next()? else { panic!("no entry") };
    /// assert_eq!((entry.sequence, entry.kind, entry.value), (2, Kind::PUT, &b"12"[..]));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn combining(mut self, operator: &'s dyn MergeOperator) -> Self {
        self.operator = Some(operator);
        self
    }

    /// This merge for the lowest level: no file outside the sources has an older version of their
    /// keys, or ever will. So tombstones that hide nothing are dropped.
    #[must_use]
    pub fn to_lowest_level(mut self) -> Self {
        self.level = Level::Lowest;
        self
    }

    /// This merge without the values that a filter refuses, for example values that are too old. A
    /// refused value becomes a delete, so no older version of the key shows; at the lowest level
    /// both are dropped. The filter is asked only about values that no snapshot of the list sees,
    /// and not about merge operands, their base and their result. It gets verified entries. Reads
    /// of the new files do not see what was refused, also at a snapshot that is younger than the
    /// list.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::{Bytewise, MemTable};
    /// use paranoid_set::Compaction;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let file = MemTable::default();
    /// file.put(1, b"a", b"1999")?;
    /// file.put(2, b"b", b"2024")?;
    /// let merged = Compaction::over(Arc::new(Bytewise), &[], vec![file.source()]).to_lowest_level();
    /// let mut merged = merged.filtering(|entry| entry.value >= &b"2000"[..]);
    /// let mut keys = vec![];
    /// while let Some(paranoid_memtable::flush::FlushItem::Entry(entry)) = merged.next()? {
    ///     keys.push(entry.user_key.to_vec());
    /// }
    /// assert_eq!(keys, [b"b"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn filtering(mut self, keeps: impl FnMut(FlushEntry<'_>) -> bool + Send + 's) -> Self {
        self.filter = Some(Box::new(keeps));
        self
    }

    /// The next item, borrowed until the next call. `None` means that all items were returned, and
    /// in a flush also that the counts and sums of all tables agree with those of their freeze. The
    /// caller may use the file that it wrote only after `None`.
    ///
    /// # Errors
    /// After an error the file must be discarded; every later call returns the same error:
    ///
    /// - `Corruption` for the first damage found;
    /// - the errors of the sources;
    /// - `InvalidArgument` for a source whose next entry is not after its last one; the text has
    ///   the place of the source;
    /// - `ReaderPanicked` after a call that panicked in the comparator, the operator or a source.
    #[expect(
        clippy::should_implement_trait,
        reason = "an item borrows the compaction, which `Iterator` cannot express"
    )]
    pub fn next(&mut self) -> Result<Option<FlushItem<'_>>> {
        self.begin_move()?;
        let next = self.advance();
        let Some(next) = self.end_move(next)? else {
            return Ok(None);
        };
        match self.lend(&next) {
            None => Err(lost()),
            item => Ok(item),
        }
    }

    /// Begins a call that may panic in the comparator, the operator, a source or a sink.
    pub(crate) fn begin_move(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_moving, true) {
            return Err(Error::ReaderPanicked);
        }
        Ok(())
    }

    /// Ends a call that did not panic. Its error is final.
    #[inline(always)]
    pub(crate) fn end_move<T>(&mut self, outcome: Result<T>) -> Result<T> {
        self.is_moving = false;
        outcome.map_err(|error| self.fail(error))
    }

    /// Keeps the error for every later call, and returns it.
    #[cold]
    #[inline(never)]
    fn fail(&self, error: Error) -> Error {
        let _ = self.ended.set(Err(error.clone()));
        error
    }

    /// How the pass ended, if it has.
    pub(crate) fn ended(&self) -> Option<&Result<()>> {
        self.ended.get()
    }

    /// Ends the pass well.
    pub(crate) fn end(&self) {
        let _ = self.ended.set(Ok(()));
    }

    /// Passes all items to a sink, such as a writer of `paranoid-sst`. Returns the counts.
    /// [`outputs`](Self::outputs) passes them to several sinks.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), and `Sink` if the sink returns an error.
    pub fn pass_to(mut self, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        while let Some(item) = self.next()? {
            item.hand_to(sink)?;
        }
        Ok(self.summary)
    }

    /// Finds the next item: an entry, or a fragment after the last entry.
    fn advance(&mut self) -> Result<Option<Next>> {
        loop {
            match (self.ended.get(), &mut self.fragments) {
                (Some(Err(error)), _) => return Err(error.clone()),
                (Some(Ok(())), _) => return Ok(None),
                (_, None) => match self.next_entry()? {
                    Some(next) => return Ok(Some(next)),
                    None => self.fragments = Some(self.tombstones(Pass::Last)?.finish_iter()),
                },
                (_, Some(fragments)) => {
                    if fragments.advance()? {
                        return Ok(Some(Next::Fragment));
                    }
                    self.end();
                }
            }
        }
    }

    #[inline]
    fn lend(&mut self, next: &Next) -> Option<FlushItem<'_>> {
        let (item, bytes) = match &mut self.fragments {
            None => {
                let entry = entry_at(&self.inputs, self.lent.as_ref(), next)?;
                self.summary.entries += 1;
                let bytes = entry.user_key.len() + entry.value.len();
                (FlushItem::Entry(entry), bytes)
            }
            Some(fragments) => {
                let fragment = fragments.fragment()?;
                self.summary.fragments += 1;
                let bytes = fragment.start().len() + fragment.end().len();
                (FlushItem::Fragment(fragment), bytes)
            }
        };
        self.summary.data_bytes += bytes as u64;
        Some(item)
    }

    /// The next entry, for outputs: out of line, so that `next` keeps a copy of its own.
    #[inline(never)]
    pub(crate) fn pull(&mut self) -> Result<Option<Next>> {
        self.next_entry()
    }

    /// The entry that `pull` found.
    pub(crate) fn entry(&self, next: &Next) -> Result<FlushEntry<'_>> {
        entry_at(&self.inputs, self.lent.as_ref(), next).ok_or_else(lost)
    }

    /// The next entry that a reader may need.
    #[inline(always)]
    fn next_entry(&mut self) -> Result<Option<Next>> {
        loop {
            self.lent = self.made.pop_front();
            if self.lent.is_some() {
                return Ok(Some(Next::Made));
            }
            let Some(head) = self.head()? else {
                return Ok(None);
            };
            self.used = head.place..head.place + 1;
            // A single delete stays under newer versions (COMPACTION-2), unless no level is below.
            let may_matter = head.kind == Kind::SINGLE_DELETE && self.level == Level::Inner;
            if self.answered == Some(head.stripe) && !may_matter || self.is_covered(&head)? {
                self.summary.hidden += 1;
                continue;
            }
            self.has_operands |= head.kind == Kind::MERGE;
            match (head.kind, self.operator) {
                (Kind::SINGLE_DELETE, _) => self.single_delete(&head)?,
                (Kind::MERGE, Some(operator)) => self.operands(&head, operator)?,
                (Kind::MERGE, None) => return Ok(Some(Next::Input(head.place))),
                (kind, _) => {
                    self.answered = Some(head.stripe);
                    let is_refused = self.filter.is_some()
                        && !kind.is_point_delete()
                        && self.is_refused(&head)?;
                    let is_value = !kind.is_point_delete() && !is_refused;
                    if is_value || self.level == Level::Inner && !is_refused {
                        return Ok(Some(Next::Input(head.place)));
                    }
                    if let Some(mut tombstone) = self.take(&head) {
                        if is_refused {
                            let (key, sequence) = (&tombstone.key, tombstone.sequence);
                            let delete = FlushEntry::new(key, sequence, Kind::DELETE, b"");
                            tombstone = Version::of(delete);
                        }
                        self.keep_if_needed(tombstone)?;
                    }
                }
            }
        }
    }

    /// Moves the inputs of `used` to their next entries.
    fn step(&mut self) -> Result<()> {
        for place in std::mem::take(&mut self.used) {
            if let Some(input) = self.inputs.get_mut(place) {
                self.summary.hidden += input.advance(&self.comparator, place)?;
            }
        }
        Ok(())
    }

    /// The next entry of all inputs. For a new key, sets `key` and clears `answered`.
    fn head(&mut self) -> Result<Option<Head>> {
        self.step()?;
        let entries = self.inputs.iter().enumerate();
        let entries = entries.filter_map(|(place, input)| Some((place, input.entry()?)));
        let first = entries.reduce(|first, other| {
            let order = self.comparator.compare(other.1.user_key, first.1.user_key);
            if order.then(first.1.sequence.cmp(&other.1.sequence)).is_lt() {
                other
            } else {
                first
            }
        });
        let Some((
            place,
            FlushEntry {
                user_key,
                sequence,
                kind,
                ..
            },
        )) = first
        else {
            return Ok(None);
        };
        if !self
            .key
            .as_deref()
            .is_some_and(|key| self.comparator.are_equal(key, user_key))
        {
            (self.answered, self.has_operands) = (None, false);
            let key = self.key.get_or_insert_default();
            key.clear();
            key.extend_from_slice(user_key);
        }
        let stripe = self
            .snapshots
            .partition_point(|snapshot| *snapshot < sequence);
        Ok(Some(Head {
            place,
            sequence,
            kind,
            stripe,
        }))
    }

    /// The next older version of the same key. Versions under a range tombstone are dropped.
    fn older(&mut self, than: &Version) -> Result<Option<Head>> {
        while let Some(head) = self.head()?.filter(|_| self.is_at(than)) {
            if !self.is_covered(&head)? {
                return Ok(Some(head));
            }
            self.pass(&head);
        }
        Ok(None)
    }

    /// Whether the current key is that of a version.
    fn is_at(&self, version: &Version) -> bool {
        self.key
            .as_deref()
            .is_some_and(|key| self.comparator.are_equal(key, &version.key))
    }

    /// Drops the entry at the head.
    fn pass(&mut self, head: &Head) {
        self.used = head.place..head.place + 1;
        self.summary.hidden += 1;
    }

    /// A copy of the entry at the head. The next step moves past it.
    fn take(&mut self, head: &Head) -> Option<Version> {
        self.used = head.place..head.place + 1;
        self.inputs
            .get(head.place)
            .and_then(Input::entry)
            .map(Version::of)
    }

    /// Whether every reader of the head's stripe sees a range tombstone over it. Then the tombstone
    /// hides the older versions of the stripe too.
    fn is_covered(&mut self, head: &Head) -> Result<bool> {
        let Some(key) = &self.key else {
            return Ok(false);
        };
        let snapshot = self
            .snapshots
            .get(head.stripe)
            .copied()
            .unwrap_or(SequenceNumber::MAX);
        for input in &mut self.inputs {
            let cover = input
                .source
                .cover(self.comparator.get(), key, snapshot.min(input.last))?;
            if cover.is_some_and(|cover| cover.sequence > head.sequence) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the filter refuses the value at the head, which no snapshot sees.
    fn is_refused(&mut self, head: &Head) -> Result<bool> {
        let (Some(keeps), Some(input)) = (&mut self.filter, self.inputs.get(head.place)) else {
            return Ok(false);
        };
        let is_newest = head.stripe == self.snapshots.len() && !self.has_operands;
        match input.entry().filter(|_| is_newest) {
            Some(entry) => Ok(!keeps(verified(entry)?)),
            None => Ok(false),
        }
    }

    /// Keeps a tombstone. At the lowest level, first drops the rest of its answered stripe, and
    /// drops the tombstone too if the key has no older stripe (COMPACTION-3).
    fn keep_if_needed(&mut self, tombstone: Version) -> Result<()> {
        while self.level == Level::Lowest {
            match self.older(&tombstone)? {
                Some(head) if self.answered == Some(head.stripe) => self.pass(&head),
                Some(_) => break,
                None => {
                    self.summary.hidden += 1;
                    return Ok(());
                }
            }
        }
        self.made.push_back(tombstone);
        Ok(())
    }

    /// Decides about a single delete by the versions below it in its stripe (COMPACTION-2).
    fn single_delete(&mut self, head: &Head) -> Result<()> {
        let Some(mut single) = self.take(head) else {
            return Ok(());
        };
        while let Some(met) = self.older(&single)?.filter(|met| met.stripe == head.stripe) {
            self.pass(&met);
            if met.kind == Kind::SINGLE_DELETE {
                continue;
            }
            let is_pair = !met.kind.is_point_delete() && met.kind != Kind::MERGE;
            if is_pair
                && self
                    .older(&single)?
                    .is_none_or(|older| older.kind.is_point_delete())
            {
                self.summary.hidden += 1;
                return Ok(());
            }
            single = single.into_delete();
            break;
        }
        if (single.kind == Kind::DELETE || self.level == Level::Lowest) && self.is_at(&single) {
            self.answered = Some(head.stripe);
        }
        self.keep_if_needed(single)
    }

    /// Collects the merge operands of a stripe and merges them into one value if their base is
    /// known: a value or a delete of the same stripe, or nothing below at the lowest level.
    /// Without a known base, or if the operator fails, tries to combine them. Operands that are not
    /// combined stay as they are, and reads report the operator's error.
    fn operands(&mut self, head: &Head, operator: &dyn MergeOperator) -> Result<()> {
        let mut operands: Vec<Version> = self.take(head).into_iter().collect();
        let Some(newest) = operands.first().cloned() else {
            return Ok(());
        };
        let below = loop {
            match self.older(&newest)? {
                Some(older) if older.stripe == head.stripe && older.kind == Kind::MERGE => {
                    operands.extend(self.take(&older));
                }
                below => break below,
            }
        };
        let values = || operands.iter().map(|operand| operand.value.as_slice());
        // The operator gets verified operands and a verified base.
        operands.iter().try_for_each(Version::verify)?;
        let base = below.filter(|below| below.stripe == head.stripe);
        let base = base.and_then(|base| self.inputs.get(base.place)?.entry().map(Version::of));
        base.iter().try_for_each(Version::verify)?;
        let is_known = base.is_some() || below.is_none() && self.level == Level::Lowest;
        let known = base
            .as_ref()
            .filter(|base| !base.kind.is_point_delete())
            .map(|base| base.value.as_slice());
        let merged = is_known
            .then(|| apply(operator, &newest.key, known, values()).ok())
            .flatten();
        let partial = || {
            let oldest_first: Vec<&[u8]> = values().rev().collect();
            (oldest_first.len() > 1)
                .then(|| operator.combine(&newest.key, &oldest_first))
                .flatten()
        };
        let (kind, value) = match merged {
            Some(value) => (Kind::PUT, Some(value)),
            None => (Kind::MERGE, partial()),
        };
        let Some(value) = value else {
            self.made.extend(operands);
            return Ok(());
        };
        self.summary.hidden += operands.len() as u64 - 1;
        if kind == Kind::PUT && self.is_at(&newest) {
            self.answered = Some(head.stripe);
        }
        let entry = FlushEntry::new(&newest.key, newest.sequence, kind, &value);
        self.made.push_back(Version::of(entry));
        Ok(())
    }

    /// Collects the range tombstones of all sources.
    pub(crate) fn tombstones(&mut self, pass: Pass) -> Result<Fragmenter> {
        let mut fragmenter =
            Fragmenter::under(self.comparator.clone()).with_snapshots(&self.snapshots);
        let oldest = self.snapshots.first().copied();
        let (level, oldest) = (self.level, oldest.unwrap_or(SequenceNumber::MAX));
        for Input {
            entries,
            source,
            last,
        } in &mut self.inputs
        {
            let mut take = |start: &[u8], end: &[u8], sequence| match level {
                // COMPACTION-4.
                _ if sequence > *last => Ok(()),
                // COMPACTION-3.
                Level::Lowest if sequence <= oldest => Ok(()),
                _ => fragmenter.add(start, end, sequence),
            };
            match entries {
                Entries::Table(items) if pass == Pass::Last => {
                    self.summary.hidden += items.end(take)?.hidden;
                }
                _ => source.range_tombstones(&mut take)?,
            }
        }
        Ok(fragmenter)
    }

    pub(crate) fn comparator(&self) -> &KeyComparator {
        &self.comparator
    }

    /// The counts so far.
    pub(crate) fn summary(&mut self) -> &mut FlushSummary {
        &mut self.summary
    }
}

/// The entry that a compaction found last.
#[inline]
fn entry_at<'a>(
    inputs: &'a [Input<'_>],
    lent: Option<&'a Version>,
    next: &Next,
) -> Option<FlushEntry<'a>> {
    match next {
        Next::Input(place) => inputs.get(*place)?.entry(),
        Next::Made => lent.map(Version::entry),
        Next::Fragment => None,
    }
}

/// The error of an item that was found and is not there any more, and of a kept key that is damaged.
#[cold]
pub(crate) fn lost() -> Error {
    Corruption::new(Place::Entry, 0, 0, 0).into()
}

shown! {
    "Compaction": impl [] Compaction<'_>, |merge| {
        "sources": merge.inputs.len(), "summary": merge.summary
    }
}
