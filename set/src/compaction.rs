//! Compactions: the versions of several sources in one order, without those that nobody can read,
//! and their range tombstones as one list of fragments. A flush is one over tables.
//!
//! ```text
//!   newest     a@9 merge   b@8 single delete   d@9 delete   [e, g) @7         pulled one after the other; snapshot 5
//!   older      a@7 merge   b@6 put             d@4 put      f@6 put
//!   oldest     a@6 put     c@2 put             d@3 put      f@5 put
//!   merged     a@9 put     c@2 put   d@9 delete, d@4 put    f@5 put           then [e, g) @7
//! ```
//! Snapshots cut the versions of a key into stripes: whoever sees one version of a stripe sees all
//! that are in it and older.
//! * COMPACTION-1: of a stripe the newest version stays, and what it stands on: merge operands down
//!   to their base. A version under a range tombstone of its own stripe goes.
//! * COMPACTION-2: a single delete and the put that it meets in its stripe go together, unless an
//!   older version would show: then the single delete becomes a delete, as it does over a delete or
//!   merge operands. One that meets no put stays, under newer versions as well: its put may be
//!   further below.
//! * COMPACTION-3: operands become one value where their base is known: a value or a delete of
//!   their stripe, or nothing at the lowest level. What the operator refuses stays as it is, for
//!   readers to be told.
//! * COMPACTION-4: at the lowest level a tombstone goes once no older version is handed out: range
//!   tombstones that the oldest snapshot sees, and point tombstones of keys without an older
//!   stripe.
//! * COMPACTION-5: an entry that is handed out as it was keeps the digests of its table. A single
//!   delete that becomes a delete has them rewritten; what an operator is given agrees with its
//!   own.
//! * SET-FLUSH-1: the end is reached only after every table's own flush has reached its end: all
//!   entries were seen and verified, and all sums compared.
//! * SET-FLUSH-2: what a table's own flush leaves out (FLUSH-3) and what this file leaves out every
//!   reader at the newest number or at a snapshot does without.
//! * SET-FLUSH-3: a table ends at its last number: what is above (TABLES-4) is not handed out. The
//!   tables after it end there too, and the last number of the job is among its snapshots, so that
//!   no version above hides one below.
//!
//! One thread at a time pulls; tables are frozen.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use paranoid_memtable::flush::{
    FlushEntry, FlushItem, FlushIter, FlushSink, FlushSummary, Versions,
};
use paranoid_memtable::integrity::{Place, StoredProtection};
use paranoid_memtable::scan::{SortedSource, SourceKey, SourceMove};
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::tombstone::{FragmentIter, Fragmenter};
use paranoid_memtable::{
    Comparator, Corruption, ImmutableMemTable, Kind, Result, SequenceNumber, shown,
};

use crate::merge_operator::{MergeOperator, apply};
use crate::merging_source::leads_on;
use crate::tables::Slot;

/// A copy of an entry.
#[derive(Clone)]
struct Version {
    key: Vec<u8>,
    sequence: SequenceNumber,
    kind: Kind,
    value: Vec<u8>,
    protection: StoredProtection,
}

impl Version {
    fn of(entry: FlushEntry<'_>) -> Self {
        let FlushEntry {
            user_key,
            sequence,
            kind,
            value,
            protection,
        } = entry;
        Version {
            key: user_key.to_vec(),
            sequence,
            kind,
            value: value.to_vec(),
            protection,
        }
    }

    fn entry(&self) -> FlushEntry<'_> {
        let Version {
            key,
            sequence,
            kind,
            value,
            protection,
        } = self;
        FlushEntry {
            user_key: key,
            sequence: *sequence,
            kind: *kind,
            value,
            protection: *protection,
        }
    }

    /// This tombstone as one that hides every older version (COMPACTION-5).
    fn into_delete(self) -> Self {
        let protection = self
            .protection
            .rewritten((self.sequence, self.kind), (self.sequence, Kind::DELETE));
        Version {
            kind: Kind::DELETE,
            protection,
            ..self
        }
    }

    /// Compares it with its digests.
    fn verify(&self) -> Result<()> {
        let agrees = self
            .protection
            .check(&self.key, &self.value, self.sequence, self.kind);
        agrees
            .map(drop)
            .ok_or_else(|| Corruption::new(Place::Value, 0, 0, 0).into())
    }
}

/// Where the entries of a source come from.
enum Entries<'s> {
    /// A table's own flush.
    Table(Box<FlushIter<'s>>),
    /// The source itself: how it goes on, and a copy of the entry on which it stands.
    Source(SourceMove<'static>, Option<Version>),
}

/// One source of the merge, on its next entry.
struct Input<'s> {
    entries: Entries<'s>,
    /// Asked for range tombstones.
    source: Box<dyn SortedSource + 's>,
    /// What is newer is not handed out (SET-FLUSH-3).
    last: SequenceNumber,
}

impl Input<'_> {
    fn entry(&self) -> Option<FlushEntry<'_>> {
        match &self.entries {
            Entries::Table(items) => items.entry(),
            Entries::Source(_, version) => version.as_ref().map(Version::entry),
        }
    }

    /// Goes to the next entry, of the source at this place. Returns how many it has passed.
    fn advance(&mut self, comparator: &KeyComparator, place: usize) -> Result<u64> {
        let mut passed = 0;
        match &mut self.entries {
            Entries::Table(items) => {
                while items
                    .next_entry()?
                    .is_some_and(|entry| entry.sequence > self.last)
                {
                    passed += 1;
                }
            }
            Entries::Source(next, version) => {
                let last = version.take();
                let to = std::mem::replace(next, SourceMove::Next);
                let Some(found) = self.source.go(to)? else {
                    return Ok(0);
                };
                let from = last
                    .as_ref()
                    .map(|last| (last.key.as_slice(), last.sequence));
                leads_on(comparator, place, from, to, &found)?;
                let SourceKey {
                    user_key,
                    sequence,
                    kind,
                } = found;
                let (mut key, mut value) =
                    last.map(|last| (last.key, last.value)).unwrap_or_default();
                key.clear();
                key.extend_from_slice(user_key);
                self.source.value_into(&mut value)?;
                let protection = StoredProtection::of(&key, &value, sequence, kind);
                *version = Some(Version {
                    key,
                    sequence,
                    kind,
                    value,
                    protection,
                });
            }
        }
        Ok(passed)
    }
}

/// The versions of several sources as one, without those that no reader needs, pulled one item
/// after the other: first all entries, then all fragments of range tombstones, both in ascending
/// order. Made by [`over`](Self::over), for an engine's files, and by
/// [`FlushJob::items`](crate::FlushJob::items), for the tables of a flush.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::flush::FlushItem;
/// use paranoid_memtable::{Bytewise, MemTable};
/// use paranoid_set::Compaction;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let (older, newer) = (MemTable::default(), MemTable::default()); // stand for two files
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
    level: Level,
    /// The inputs whose entries were used up.
    used: Range<usize>,
    /// A copy of the key at which the merge is, once it has one.
    key: Option<Vec<u8>>,
    /// The stripe of that key of which nothing older is needed.
    answered: Option<usize>,
    /// Versions that were made of others, or wait for what comes after them: handed out first.
    made: VecDeque<Version>,
    /// The one that was handed out last.
    lent: Option<Version>,
    /// After all entries, the fragments.
    fragments: Option<FragmentIter>,
    summary: FlushSummary,
    /// How it ended, for a job too.
    ended: Arc<Ended>,
    /// Set while an item is looked for: a call that finds it set knows that the one before
    /// panicked.
    is_moving: bool,
}

/// What there may be below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Older versions of the same keys.
    Inner,
    /// Nothing.
    Lowest,
}

/// How a pass ended, once it has: an error is the one that every further call returns.
pub(crate) type Ended = OnceLock<Result<()>>;

/// The entry that comes next: the smallest key, and its newest version.
#[derive(Clone, Copy)]
struct Head {
    place: usize,
    sequence: SequenceNumber,
    kind: Kind,
    stripe: usize,
}

/// Where the next item is.
enum Next {
    Input(usize),
    Made,
    Fragment,
}

impl<'s> Compaction<'s> {
    /// A merge of sources, which are given newest first: of one key, every version and range
    /// tombstone of a source is newer than those of the sources after it. What is read at one of
    /// the snapshots, in any order, or at the newest number stays as it is. The numbers are those
    /// of [`MemTableSet::snapshots`](crate::MemTableSet::snapshots), asked for after the sources
    /// were chosen. Each item costs O(sources), and a question for range tombstones to each of
    /// them.
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

    /// A merge of frozen tables, each at its first entry.
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

    /// This merge with an operator that combines merge operands where their base is known, or where
    /// it can [`combine`](MergeOperator::combine) them without.
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

    /// This merge for the lowest level: nothing that is not among the sources has an older version
    /// of their keys, nor ever will. So tombstones that hide nothing go.
    #[must_use]
    pub fn to_lowest_level(mut self) -> Self {
        self.level = Level::Lowest;
        self
    }

    /// The next item, borrowed until the next call. `None` means that all items were returned; of a
    /// flush, that the counts and sums of all tables agree with those of their freeze. Only then
    /// may the caller keep what it made of the items.
    ///
    /// # Errors
    /// `Corruption` for the first damage found, errors of the sources, and `InvalidArgument` for a
    /// source that does not go on: one whose next entry is not after the last one; the text has its
    /// place. After a call that panicked, in the comparator, the operator or a source,
    /// `ReaderPanicked`. What was made of the items must be discarded, and every later call returns
    /// this error.
    #[expect(
        clippy::should_implement_trait,
        reason = "items are lent: it is no iterator of the standard library"
    )]
    pub fn next(&mut self) -> Result<Option<FlushItem<'_>>> {
        if std::mem::replace(&mut self.is_moving, true) {
            return Err(paranoid_memtable::Error::ReaderPanicked);
        }
        let next = self.advance();
        self.is_moving = false;
        match next {
            Ok(Some(next)) => Ok(self.lend(&next)),
            Ok(None) => Ok(None),
            Err(error) => {
                self.ended.get_or_init(|| Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Passes all items to a sink, a writer of `paranoid-sst` for example. Returns the counts.
    ///
    /// # Errors
    /// Those of [`next`](Self::next), and `Sink` if the sink returns one.
    pub fn pass_to(mut self, sink: &mut impl FlushSink) -> Result<FlushSummary> {
        while let Some(item) = self.next()? {
            item.hand_to(sink)?;
        }
        Ok(self.summary)
    }

    /// Goes to the next item.
    fn advance(&mut self) -> Result<Option<Next>> {
        loop {
            match (self.ended.get(), &mut self.fragments) {
                (Some(Err(error)), _) => return Err(error.clone()),
                (Some(Ok(())), _) => return Ok(None),
                (_, None) => match self.next_entry()? {
                    Some(next) => return Ok(Some(next)),
                    None => self.fragments = Some(self.cut()?),
                },
                (_, Some(fragments)) => {
                    if fragments.advance()? {
                        return Ok(Some(Next::Fragment));
                    }
                    self.ended.get_or_init(|| Ok(()));
                }
            }
        }
    }

    fn lend(&mut self, next: &Next) -> Option<FlushItem<'_>> {
        let entry = match next {
            Next::Fragment => {
                let fragment = self.fragments.as_mut()?.fragment()?;
                self.summary.fragments += 1;
                self.summary.data_bytes += (fragment.start().len() + fragment.end().len()) as u64;
                return Some(FlushItem::Fragment(fragment));
            }
            Next::Input(place) => self.inputs.get(*place)?.entry()?,
            Next::Made => self.lent.as_ref()?.entry(),
        };
        self.summary.entries += 1;
        self.summary.data_bytes += (entry.user_key.len() + entry.value.len()) as u64;
        Some(FlushItem::Entry(entry))
    }

    /// The next entry that a reader could need.
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
            // A single delete stays under newer versions (COMPACTION-2), unless there is nothing
            // below.
            let may_matter = head.kind == Kind::SINGLE_DELETE && self.level == Level::Inner;
            if self.answered == Some(head.stripe) && !may_matter || self.is_covered(&head)? {
                self.summary.hidden += 1;
                continue;
            }
            match (head.kind, self.operator) {
                (Kind::SINGLE_DELETE, _) => self.single_delete(&head)?,
                (Kind::MERGE, Some(operator)) => self.operands(&head, operator)?,
                (Kind::MERGE, None) => return Ok(Some(Next::Input(head.place))),
                (kind, _) => {
                    self.answered = Some(head.stripe);
                    if !kind.is_point_delete() || self.level == Level::Inner {
                        return Ok(Some(Next::Input(head.place)));
                    }
                    if let Some(tombstone) = self.take(&head) {
                        self.keep_if_needed(tombstone)?;
                    }
                }
            }
        }
    }

    /// Makes the inputs go on whose entries were used up.
    fn step(&mut self) -> Result<()> {
        for place in std::mem::take(&mut self.used) {
            if let Some(input) = self.inputs.get_mut(place) {
                self.summary.hidden += input.advance(&self.comparator, place)?;
            }
        }
        Ok(())
    }

    /// The entry that comes next. Whatever was known of a key is forgotten if it has another one.
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
            .is_some_and(|key| self.comparator.compare(key, user_key).is_eq())
        {
            self.answered = None;
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

    /// The next version of the key that this one has, unless a range tombstone covers it; those go.
    fn older(&mut self, than: &Version) -> Result<Option<Head>> {
        while let Some(head) = self.head()?.filter(|_| self.is_at(than)) {
            if !self.is_covered(&head)? {
                return Ok(Some(head));
            }
            self.pass(&head);
        }
        Ok(None)
    }

    /// Whether the merge is at the key of a version.
    fn is_at(&self, version: &Version) -> bool {
        self.key
            .as_deref()
            .is_some_and(|key| self.comparator.compare(key, &version.key).is_eq())
    }

    /// Leaves an entry out.
    fn pass(&mut self, head: &Head) {
        self.used = head.place..head.place + 1;
        self.summary.hidden += 1;
    }

    /// A copy of the entry at the head, which goes on.
    fn take(&mut self, head: &Head) -> Option<Version> {
        self.used = head.place..head.place + 1;
        self.inputs
            .get(head.place)
            .and_then(Input::entry)
            .map(Version::of)
    }

    /// Whether all that could see a version see a range tombstone over it. Then they see none of
    /// its stripe that is older, either.
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

    /// Keeps a tombstone whose stripe has nothing more, unless it is at the lowest level and hides
    /// nothing (COMPACTION-4).
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

    /// Lets a single delete meet what is below it in its stripe (COMPACTION-2).
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

    /// Collects the merge operands of a stripe, and combines them (COMPACTION-3).
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

    /// Cuts the range tombstones of all sources; after that all tables have reached their ends
    /// (SET-FLUSH-1).
    fn cut(&mut self) -> Result<FragmentIter> {
        let mut fragmenter =
            Fragmenter::under(self.comparator.clone()).with_snapshots(&self.snapshots);
        let (level, oldest) = (
            self.level,
            self.snapshots
                .first()
                .copied()
                .unwrap_or(SequenceNumber::MAX),
        );
        for Input {
            entries,
            source,
            last,
        } in &mut self.inputs
        {
            let mut take = |start: &[u8], end: &[u8], sequence| match level {
                // SET-FLUSH-3.
                _ if sequence > *last => Ok(()),
                // COMPACTION-4.
                Level::Lowest if sequence <= oldest => Ok(()),
                _ => fragmenter.add(start, end, sequence),
            };
            match entries {
                Entries::Table(items) => self.summary.hidden += items.end(take)?.hidden,
                Entries::Source(..) => source.range_tombstones(&mut take)?,
            }
        }
        Ok(fragmenter.finish_iter())
    }
}

shown! {
    "Compaction": impl [] Compaction<'_>, |merge| {
        "sources": merge.inputs.len(), "summary": merge.summary
    }
}
