//! Flush: passes every entry, verified and in order, to a sink or to a caller that pulls, and
//! compares the sums with those that the freeze sealed.
//!
//! ```text
//!   check the control block
//!   point entries        key verified and copied, value copied and verified    -> an entry each
//!   range tombstones     verified, cut into fragments by snapshots             -> a fragment each
//!   compare              counts and digest sums == the sealed ones
//! ```
//! * FLUSH-1: to notice processor errors, a flush compares the whole key of each entry with the key
//!   before it, because an entry that was linked in a wrong place has digests that agree. It counts
//!   the entries that it returns, and compares that count with the entries that it has seen. It
//!   reads the range tombstones twice, and cuts their fragments twice.
//!
//! A flush reads no filter, and no index of range tombstones: damage to them does not end it, and a
//! scrub reports it.
//!
//! The call that passes an item verifies it, and a flush that reaches its end has seen every entry
//! that was written. After an `Err`, which is final, the output is incomplete and must be
//! discarded. Between two calls a pulled flush keeps a place in the table, and copies in its own
//! memory. The fault model leaves these out: a flipped bit in the copy of a key may hide a row.
//!
//! Any thread; several flushes of one table may run at once.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::hint::black_box;
use std::sync::Arc;

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::digest::StoredProtection;
use crate::key::{Direction, SequenceNumber};
use crate::kind::Kind;
use crate::memtable::arena::node::misplaced;
use crate::memtable::core::Core;
use crate::memtable::lifecycle::flush_sink::{FlushEntry, FlushItem, FlushSink};
use crate::memtable::lifecycle::versions::{VersionFilter, Versions};
use crate::memtable::read::entry::copy_verified;
use crate::memtable::scan::tombstones::{each_tombstone, next_of};
use crate::memtable::shards::totals::{Hidden, Totals};
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::Search;
use crate::tombstone::fragmenter::{FragmentIter, Fragmenter, span_digest};
use crate::tombstone::fragments::Fragment;
use crate::trace;

/// Counts of what a flush passed to its sink or caller.
///
/// ```
/// use paranoid_memtable::flush::FlushSummary;
/// let summary = FlushSummary::default();
/// assert_eq!((summary.entries, summary.hidden, summary.fragments, summary.data_bytes), (0, 0, 0, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FlushSummary {
    /// The number of entries that were passed.
    pub entries: u64,
    /// The number of entries that were verified and left out.
    pub hidden: u64,
    /// The number of fragments that were passed.
    pub fragments: u64,
    /// Bytes of the keys and values that were passed.
    pub data_bytes: u64,
}

/// Passes these versions of all keys, and all range tombstones, to the sink.
pub(crate) fn flush(
    core: &Arc<Core>,
    versions: Versions<'_>,
    sink: &mut impl FlushSink,
) -> Result<FlushSummary> {
    let mut items = FlushIter::new(core, versions)?;
    while let Some(item) = items.next()? {
        item.hand_to(sink)?;
    }
    items.summary().ok_or_else(|| items.miscounted().into())
}

/// A flush whose caller pulls one item after the other. It compares the sums at its end.
/// [`flush_iter`](crate::ImmutableMemTable::flush_iter) makes one.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::flush::{FlushItem, Versions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// table.put(1, b"b", b"old")?;
/// table.put(2, b"b", b"new")?;
/// table.delete_range(3, b"x", b"z")?;
/// let frozen = table.freeze()?;
/// let mut flush = frozen.flush_iter(Versions::SeenBy(&[]))?;
/// let (mut entries, mut fragments) = (vec![], vec![]);
/// while let Some(item) = flush.next()? {
///     match item {
///         FlushItem::Entry(entry) => entries.push((entry.user_key.to_vec(), entry.value.to_vec())),
///         FlushItem::Fragment(fragment) => fragments.push(fragment.start().to_vec()),
///     }
/// }
/// assert_eq!((entries, fragments), (vec![(b"b".to_vec(), b"new".to_vec())], vec![b"x".to_vec()]));
/// let summary = flush.summary().expect("it came to its end");
/// assert_eq!((summary.entries, summary.hidden, summary.fragments), (1, 1, 1));
/// # Ok(()) }
/// ```
pub struct FlushIter<'t> {
    core: &'t Arc<Core>,
    stage: Stage<'t>,
    filter: VersionFilter,
    /// Copies of the key and the value of the entry that the last step reached.
    key: Vec<u8>,
    value: Vec<u8>,
    /// The sequence number of that entry.
    newer: Option<SequenceNumber>,
    /// The kind and the digests of that entry, if the step returns it.
    came: Option<(Kind, StoredProtection)>,
    seen: Totals,
    summary: FlushSummary,
}

/// The progress of a flush.
enum Stage<'t> {
    Entries(Entries<'t>),
    /// All entries were seen.
    Passed,
    Fragments(FragmentIter),
    Ended,
    /// The error that every further call returns.
    Failed(Error),
}

/// The number of stages.
const STAGES: u32 = 5;

/// A walk over the point entries.
struct Entries<'t> {
    search: Search<'t>,
    /// The node of the last entry, or the sentinel.
    at: u32,
    read_ahead: ReadAhead,
}

impl<'t> FlushIter<'t> {
    pub(crate) fn new(core: &'t Arc<Core>, versions: Versions<'_>) -> Result<Self> {
        core.arena.control.check()?;
        let search = core.point_search()?;
        let entries = Entries {
            search,
            at: search.sentinel,
            read_ahead: ReadAhead::default(),
        };
        Ok(FlushIter {
            core,
            stage: Stage::Entries(entries),
            filter: VersionFilter::new(versions),
            key: Vec::new(),
            value: Vec::new(),
            newer: None,
            came: None,
            seen: Totals::default(),
            summary: FlushSummary::default(),
        })
    }

    /// Returns the next item, borrowed until the next call. `None` means that all items were
    /// returned and that the sums agree with those of the freeze. Only then may the caller keep its
    /// output.
    ///
    /// # Errors
    /// `Corruption` for the first damage found, also if sums differ (`Place::Sum`). The caller must
    /// discard its output, and every later call returns this error. The table is unchanged.
    #[expect(
        clippy::should_implement_trait,
        reason = "items are borrowed until the next call, so the standard iterator does not fit"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<FlushItem<'_>>> {
        match self.step() {
            Ok(()) if matches!(self.stage, Stage::Fragments(_)) => {
                Ok(self.fragment().map(FlushItem::Fragment))
            }
            Ok(()) if self.came.is_some() => {
                self.summary.entries += 1;
                Ok(self.entry().map(FlushItem::Entry))
            }
            Ok(()) if matches!(self.stage, Stage::Ended) => Ok(None),
            Ok(()) => Err(self.fail(self.miscounted().into())),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Returns the next entry, borrowed until the next call, for a merge of several tables. Such a
    /// merge takes no fragments, and calls [`end`](Self::end) once there is no further entry.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// use paranoid_memtable::flush::Versions;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"b", b"value")?;
    /// table.delete_range(2, b"a", b"c")?;
    /// let frozen = table.freeze()?;
    /// let mut flush = frozen.flush_iter(Versions::SeenBy(&[]))?;
    /// assert_eq!(flush.next_entry()?.map(|entry| entry.user_key), Some(&b"b"[..]));
    /// assert_eq!(flush.entry().map(|entry| entry.sequence), Some(1), "as long as other tables are asked");
    /// assert!(flush.next_entry()?.is_none());
    /// let mut ranges = vec![];
    /// let summary = flush.end(|start, end, sequence| {
    ///     ranges.push((start.to_vec(), end.to_vec(), sequence));
    ///     Ok(())
    /// })?;
    /// assert_eq!((ranges, summary.entries), (vec![(b"a".to_vec(), b"c".to_vec(), 2)], 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    #[doc(hidden)]
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<FlushEntry<'_>>> {
        match self.walk() {
            Ok(()) if self.came.is_some() => {
                self.summary.entries += 1;
                Ok(self.entry())
            }
            Ok(()) if !matches!(self.stage, Stage::Entries(_)) => Ok(None),
            Ok(()) => Err(self.fail(self.miscounted().into())),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The entry that the last step returned; `None` if it returned none. It is a copy that is not
    /// verified again: the receiver checks it with its `protection`.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub fn entry(&self) -> Option<FlushEntry<'_>> {
        let ((kind, protection), sequence) = (self.came?, self.newer?);
        Some(FlushEntry {
            user_key: &self.key,
            sequence,
            kind,
            value: &self.value,
            protection,
        })
    }

    /// Ends a flush after its last entry, and returns the counts. Passes start, end and sequence
    /// number of every range tombstone to `take`, verified, in the order of their starts and not
    /// cut. Then compares the sums.
    ///
    /// # Errors
    /// `InvalidArgument` unless [`next_entry`](Self::next_entry) has just returned `None`; those of
    /// [`next`](Self::next), and those of `take`.
    #[doc(hidden)]
    pub fn end(
        &mut self,
        take: impl FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<FlushSummary> {
        match &self.stage {
            Stage::Passed => {}
            Stage::Failed(error) => return Err(error.clone()),
            _ => {
                return Err(Error::InvalidArgument(
                    "a flush is ended after its last entry".into(),
                ));
            }
        }
        let ended = self.pass_tombstones(take).and_then(|()| self.seal());
        ended.map_err(|error| self.fail(error))?;
        Ok(self.summary)
    }

    /// The error of a flush that did not return as many entries as it has seen: a processor error
    /// skipped an entry (FLUSH-1).
    #[cold]
    fn miscounted(&self) -> Corruption {
        let returned = self.summary.entries + self.summary.hidden;
        Corruption::new(
            Place::Sum,
            0,
            self.seen.entries - self.seen.range_deletes,
            returned,
        )
    }

    /// Compares the sums, and ends the flush.
    fn seal(&mut self) -> Result<()> {
        self.core.compare_sums(&self.seen)?;
        let points = self.seen.entries - self.seen.range_deletes;
        if points != self.summary.entries + self.summary.hidden {
            return Err(self.miscounted().into());
        }
        self.stage = Stage::Ended;
        let FlushSummary {
            entries,
            hidden,
            fragments,
            data_bytes,
        } = self.summary;
        trace::flushed(entries, hidden, fragments, data_bytes);
        Ok(())
    }

    /// Keeps the error for every later call, and returns it.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.came = None;
        self.stage = Stage::Failed(error.clone());
        error
    }

    /// The counts of this flush, once [`next`](Self::next) has returned `None`.
    #[must_use]
    pub fn summary(&self) -> Option<FlushSummary> {
        matches!(self.stage, Stage::Ended).then_some(self.summary)
    }

    /// Takes a step: to an entry, to a fragment, or to the end.
    #[inline]
    fn step(&mut self) -> Result<()> {
        // Each stage leads to a later stage, so the loop ends.
        for _ in 0..STAGES {
            match &mut self.stage {
                Stage::Entries(_) => {
                    self.walk()?;
                    if self.came.is_some() {
                        return Ok(());
                    }
                }
                Stage::Passed => self.stage = Stage::Fragments(self.cut()?),
                Stage::Fragments(fragments) => match fragments.advance()? {
                    true => return Ok(()),
                    false => self.seal()?,
                },
                Stage::Ended => return Ok(()),
                Stage::Failed(error) => return Err(error.clone()),
            }
        }
        Err(self.miscounted().into())
    }

    /// Steps to the next entry that a reader could need, and copies its key and its value. The copy
    /// of the value is verified.
    #[inline]
    fn walk(&mut self) -> Result<()> {
        self.came = None;
        let Entries {
            search,
            at,
            read_ahead,
        } = match &mut self.stage {
            Stage::Entries(entries) => entries,
            Stage::Failed(error) => return Err(error.clone()),
            Stage::Passed | Stage::Fragments(..) | Stage::Ended => return Ok(()),
        };
        let comparator = &self.core.comparator;
        while let Some(mut entry) = next_of(search, *at)? {
            if search.prefetch_beside(read_ahead, *at, &entry, Direction::Forward) {
                search.read_on(read_ahead, entry.offset(), Direction::Forward);
            }
            *at = entry.offset();
            entry = copy_verified(&entry, &search.view, &mut self.value)?;
            let (key, sequence, kind) = (entry.key(), entry.sequence(), entry.kind());
            let newer = self.newer.map(|newer| (self.key.as_slice(), newer));
            let hidden = self.core.hidden_by(newer, &entry);
            self.seen.meet(&entry, hidden, &search.view);
            if hidden == Hidden::Yes {
                continue;
            }
            // Whole keys: an entry that was linked in a wrong place has digests that agree
            // (FLUSH-1).
            match newer
                .map(|(newer, number)| (comparator.compare(newer, key), number.cmp(&sequence)))
            {
                Some((Ordering::Equal, Ordering::Greater | Ordering::Equal)) => {}
                None | Some((Ordering::Less, _)) => self.filter.start_key(),
                Some(_) => return Err(misplaced(*at, sequence).into()),
            }
            let is_admitted = self.filter.admits(sequence, kind);
            // The decision is made again: a version that is left out is lost.
            let is_older = |(newer, number): (&[u8], SequenceNumber)| {
                self.filter.is_one_stripe(sequence, number)
                    && black_box(comparator).compare(newer, key).is_eq()
            };
            if !is_admitted && !newer.is_some_and(is_older) {
                return Err(misplaced(*at, sequence).into());
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            self.newer = Some(sequence);
            if is_admitted {
                // The digests are read from memory again. Digests that were copied together with
                // the number would agree with a number that was damaged on the way.
                self.came = Some((kind, black_box(&entry).stored_protection(search.view.width)));
                self.summary.data_bytes += (key.len() + self.value.len()) as u64;
                return Ok(());
            }
            self.summary.hidden += 1;
        }
        if self.filter.snapshots.is_none() && self.summary.hidden > 0 {
            return Err(Corruption::new(Place::Sum, 0, 0, self.summary.hidden).into());
        }
        self.stage = Stage::Passed;
        Ok(())
    }

    /// Cuts all range tombstones into fragments. The list is read twice, because the fragmenter's
    /// digest covers copies (FLUSH-1).
    #[cold]
    #[inline(never)]
    fn cut(&mut self) -> Result<FragmentIter> {
        let mut fragmenter = Fragmenter::under(self.core.comparator.clone());
        if let Some(snapshots) = &self.filter.snapshots {
            fragmenter = fragmenter.with_snapshots(snapshots);
        }
        self.pass_tombstones(|start, end, sequence| fragmenter.add(start, end, sequence))?;
        let mut listed = 0;
        each_tombstone(black_box(self.core), |entry, end, _| {
            listed = span_digest((entry.key(), end, entry.sequence()), listed);
            Ok(())
        })?;
        fragmenter.compare(listed)?;
        Ok(fragmenter.finish_iter())
    }

    /// Passes the start, the end and the sequence number of every range tombstone to `take`, as
    /// they are stored.
    fn pass_tombstones(
        &mut self,
        mut take: impl FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()> {
        let seen = &mut self.seen;
        each_tombstone(self.core, |entry, end, view| {
            seen.meet(entry, Hidden::No, view);
            take(entry.key(), end, entry.sequence())
        })
    }

    /// Returns the fragment that the last step reached, and counts it.
    fn fragment(&mut self) -> Option<Fragment<'_>> {
        let Stage::Fragments(fragments) = &mut self.stage else {
            return None;
        };
        let fragment = fragments.fragment()?;
        self.summary.fragments += 1;
        self.summary.data_bytes += (fragment.start().len() + fragment.end().len()) as u64;
        Some(fragment)
    }
}
