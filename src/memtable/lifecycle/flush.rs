//! Flush: passes every entry, verified and in order, to a sink or to a caller that pulls, and
//! compares the sums with those sealed by the freeze.
//!
//! ```text
//!   control block -> point entries: key verified and copied, value copied and verified -> an entry
//!                 -> range tombstones, verified, cut into fragments by snapshots -> a fragment
//!                 -> counts and digest sums == those sealed at the freeze; as many tombstones in the indexes -> the end
//! ```
//! * FLUSH-1: every item is verified by the call that passes it on. A flush that reaches its end
//!   has seen every entry that was written. Between two calls a pulled flush keeps a place in the
//!   table, and copies in its own memory, which the fault model leaves out: a flipped bit in the
//!   copy of a key may hide a row.
//! * FLUSH-2: after an `Err`, which is final, the output must be discarded, because it is
//!   incomplete.
//! * FLUSH-3: under `Versions::SeenBy` a version is left out only if every snapshot that could see
//!   it sees a newer version of its key. Bases of merge operands, single deletes, and versions
//!   older than a single delete are kept.
//! * FLUSH-4: for a processor that errs, each entry is compared with the one before it, by whole
//!   keys, since one that was linked in a wrong place has digests that agree; and entries are
//!   counted where they are handed out, to be compared with those seen. Range tombstones are read
//!   twice, and their fragments cut twice.
//!
//! Any thread; several flushes of one table may run at once.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::error::Error as StdError;
use std::hint::black_box;
use std::sync::Arc;

use crate::error::{Corruption, Error, Place, Result, trace};
use crate::integrity::digest::StoredProtection;
use crate::key::{Direction, Kind, SequenceNumber};
use crate::memtable::arena::node::misplaced;
use crate::memtable::core::Core;
use crate::memtable::parts::writer_shards::{Hidden, Totals};
use crate::memtable::read::entry::copy_verified;
use crate::memtable::scan::tombstones::{each_tombstone, next_of};
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::Search;
use crate::tombstone::fragmenter::{FragmentIter, Fragmenter, span_digest};
use crate::tombstone::fragments::Fragment;

/// The error of a sink.
///
/// ```
/// use paranoid_memtable::flush::SinkError;
/// let error: SinkError = "the disk is full".into();
/// assert_eq!(error.to_string(), "the disk is full");
/// ```
pub type SinkError = Box<dyn StdError + Send + Sync>;

/// Receives the output of a flush: first all entries, then all fragments, both in ascending order.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
/// use paranoid_memtable::tombstone::Fragment;
/// #[derive(Default)]
/// struct Keys(Vec<Vec<u8>>);
/// impl FlushSink for Keys {
///     fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
///         self.0.push(entry.user_key.to_vec());
///         Ok(())
///     }
///     fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
///         Ok(())
///     }
/// }
/// let table = MemTable::default();
/// table.put(2, b"b", b"")?;
/// table.put(1, b"a", b"")?;
/// let mut keys = Keys::default();
/// table.freeze()?.flush(Versions::SeenBy(&[]), &mut keys)?;
/// assert_eq!(keys.0, [b"a", b"b"]);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait FlushSink {
    /// Receives the next entry. User keys ascend, and sequence numbers descend within a key; no two
    /// entries are equal in both.
    ///
    /// # Errors
    /// Any error stops the flush, which returns it as `Error::Sink`.
    fn entry(&mut self, entry: FlushEntry<'_>) -> std::result::Result<(), SinkError>;

    /// Receives the next fragment of range tombstones. Starts ascend.
    ///
    /// # Errors
    /// Any error stops the flush, which returns it as `Error::Sink`.
    fn fragment(&mut self, fragment: Fragment<'_>) -> std::result::Result<(), SinkError>;
}

/// A verified entry on its way to a file.
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_memtable::flush::FlushEntry;
/// let entry = FlushEntry::new(b"key", 7, Kind::PUT, b"value");
/// assert!(entry.protection.check(entry.user_key, entry.value, entry.sequence, entry.kind).is_some());
/// ```
#[derive(Clone, Copy)]
pub struct FlushEntry<'a> {
    /// The user key.
    pub user_key: &'a [u8],
    /// The sequence number.
    pub sequence: SequenceNumber,
    /// The kind.
    pub kind: Kind,
    /// A copy of the value, verified after it was made.
    pub value: &'a [u8],
    /// The digests that the table stored when the entry was written. The next stage compares its
    /// own bytes with them.
    pub protection: StoredProtection,
}

impl<'a> FlushEntry<'a> {
    /// An entry that does not come from a table. Its digests are computed here, over the caller's
    /// bytes. O(length).
    ///
    /// ```
    /// use paranoid_memtable::Kind;
    /// use paranoid_memtable::flush::FlushEntry;
    /// let entry = FlushEntry::new(b"key", 7, Kind::PUT, b"value");
    /// assert_eq!(entry.protection.bytes(), 8);
    /// ```
    #[must_use]
    pub fn new(user_key: &'a [u8], sequence: SequenceNumber, kind: Kind, value: &'a [u8]) -> Self {
        let protection = StoredProtection::of(user_key, value, sequence, kind);
        FlushEntry {
            user_key,
            sequence,
            kind,
            value,
            protection,
        }
    }
}

/// Which versions of a key a flush passes on.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::flush::Versions;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// for sequence in 1..=3 {
///     table.put(sequence, b"key", b"value")?;
/// }
/// let frozen = table.freeze()?;
/// for (versions, passed) in [(Versions::SeenBy(&[]), 1), (Versions::SeenBy(&[2]), 2), (Versions::All, 3)] {
///     let mut flush = frozen.flush_iter(versions)?;
///     while flush.next()?.is_some() {}
///     assert_eq!(flush.summary().map(|summary| summary.entries), Some(passed));
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Versions<'s> {
    /// Those that a read at the newest sequence number, or at one of these snapshots, in any order,
    /// could need.
    SeenBy(&'s [SequenceNumber]),
    /// All, those that no snapshot sees as well.
    All,
}

/// Counts of a flush.
///
/// ```
/// use paranoid_memtable::flush::FlushSummary;
/// let summary = FlushSummary::default();
/// assert_eq!((summary.entries, summary.hidden, summary.fragments, summary.data_bytes), (0, 0, 0, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FlushSummary {
    /// Number of entries passed on.
    pub entries: u64,
    /// Number of entries that were verified and left out.
    pub hidden: u64,
    /// Number of fragments passed on.
    pub fragments: u64,
    /// Bytes of the keys and values passed on.
    pub data_bytes: u64,
}

/// Passes versions of all keys, and all range tombstones, to the sink.
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

/// One item of a flush: first come all entries, then all fragments, both in ascending order.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::flush::{FlushItem, Versions};
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// table.delete_range(2, b"a", b"b")?;
/// let frozen = table.freeze()?;
/// let mut flush = frozen.flush_iter(Versions::SeenBy(&[]))?;
/// assert!(matches!(flush.next()?, Some(FlushItem::Entry(entry)) if entry.user_key == b"key"));
/// assert!(matches!(flush.next()?, Some(FlushItem::Fragment(fragment)) if fragment.start() == b"a"));
/// assert!(flush.next()?.is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum FlushItem<'a> {
    /// A verified entry: see [`FlushSink::entry`].
    Entry(FlushEntry<'a>),
    /// A range tombstone fragment: see [`FlushSink::fragment`].
    Fragment(Fragment<'a>),
}

impl FlushItem<'_> {
    /// Passes it to a sink.
    #[doc(hidden)]
    #[inline]
    pub fn hand_to(self, sink: &mut impl FlushSink) -> Result<()> {
        let taken = match self {
            FlushItem::Entry(entry) => sink.entry(entry),
            FlushItem::Fragment(fragment) => sink.fragment(fragment),
        };
        taken.map_err(|cause| Error::Sink(cause.into()))
    }
}

/// A flush whose caller pulls one item after the other. It compares the sums at its end. Made by
/// [`flush_iter`](crate::ImmutableMemTable::flush_iter).
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
    /// Copies of the key and the value of the entry that the last step came to.
    key: Vec<u8>,
    value: Vec<u8>,
    /// The sequence number of that entry.
    newer: Option<SequenceNumber>,
    /// What else that entry has, if it is handed out.
    came: Option<(Kind, StoredProtection)>,
    seen: Totals,
    summary: FlushSummary,
}

/// How far a flush has come.
enum Stage<'t> {
    Entries(Entries<'t>),
    /// All entries were seen.
    Passed,
    Fragments(FragmentIter),
    Ended,
    /// The error that every further call returns (FLUSH-2).
    Failed(Error),
}

/// Number of stages.
const STAGES: u32 = 5;

/// A walk over the point entries.
struct Entries<'t> {
    search: Search<'t>,
    /// The last entry, or the sentinel.
    at: u32,
    read_ahead: ReadAhead,
}

impl<'t> FlushIter<'t> {
    pub(crate) fn new(core: &'t Arc<Core>, versions: Versions<'_>) -> Result<Self> {
        core.check_control()?;
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

    /// The next item, borrowed until the next call. `None` means that all items were returned and
    /// that the sums agree with those of the freeze. Only then may the caller keep what it made of
    /// the items.
    ///
    /// # Errors
    /// `Corruption` for the first damage found, also if sums differ (`Place::Sum`). The caller must
    /// discard what it made of the items (FLUSH-2), and every later call returns this error. The
    /// table is unchanged.
    #[expect(
        clippy::should_implement_trait,
        reason = "items are lent: it is no iterator of the standard library"
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

    /// The next entry, borrowed until the next call, for a merge of several tables: it takes no
    /// fragments, and calls [`end`](Self::end) once there is no further entry.
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
    /// verified again: its `protection` checks it.
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

    /// Ends a flush whose entries were all returned: passes start, end and sequence number of every
    /// range tombstone to `take`, verified, in the order of their starts and not cut, and compares
    /// the sums. Returns the counts.
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

    /// Other entries were handed out than were seen: a processor that erred has skipped one
    /// (FLUSH-4).
    #[cold]
    fn miscounted(&self) -> Corruption {
        let handed_out = self.summary.entries + self.summary.hidden;
        Corruption::new(
            Place::Sum,
            0,
            self.seen.entries - self.seen.range_deletes,
            handed_out,
        )
    }

    /// Compares the sums, and ends.
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

    /// Keeps the error for every later call (FLUSH-2).
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
        // Each stage leads to a later one.
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

    /// Goes to the next entry that a reader could need, with a copy of its key and a verified copy
    /// of its value.
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
        while let Some(entry) = next_of(search, *at)? {
            if search.prefetch_beside(read_ahead, *at, &entry) {
                search.read_on(read_ahead, entry.offset(), Direction::Forward);
            }
            *at = entry.offset();
            copy_verified(&entry, search.view.width, &mut self.value)?;
            let (key, sequence, kind) = (entry.key(), entry.node().sequence(), entry.kind());
            let newer = self.newer.map(|newer| (self.key.as_slice(), newer));
            let hidden = self.core.hidden_by(newer, &entry);
            self.seen.meet(&entry, hidden, &search.view);
            if hidden == Hidden::Yes {
                continue;
            }
            // Whole keys: an entry that was linked in a wrong place has digests that agree
            // (FLUSH-4).
            match newer
                .map(|(newer, number)| (comparator.compare(newer, key), number.cmp(&sequence)))
            {
                Some((Ordering::Equal, Ordering::Greater | Ordering::Equal)) => {}
                None | Some((Ordering::Less, _)) => self.filter.start_key(),
                Some(_) => return Err(misplaced(*at, sequence).into()),
            }
            let is_admitted = self.filter.admits(sequence, kind);
            // Asked again: what is left out is lost.
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
                // From memory, not from what the number was copied through: both would agree if it
                // was damaged on its way.
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

    /// The fragments of all range tombstones. The list is read twice: the digest of what was added
    /// is made of copies (FLUSH-4).
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
            listed = span_digest((entry.key(), end, entry.node().sequence()), listed);
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
            take(entry.key(), end, entry.node().sequence())
        })
    }

    /// Hands out the fragment to which the last step came.
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

/// Decides which versions of a key are needed (FLUSH-3). Versions come newest first.
#[derive(Debug)]
pub(crate) struct VersionFilter {
    /// Ascending. `None`: every version is needed.
    snapshots: Option<Vec<SequenceNumber>>,
    /// The snapshot stripe of the newest version that was admitted: snapshots from this index on
    /// see it.
    stripe: Option<usize>,
    /// A single delete of this key was met.
    below_single: bool,
    /// The version of this key that was admitted last.
    admitted: Option<SequenceNumber>,
}

impl VersionFilter {
    /// A filter for the versions of one key after another.
    pub(crate) fn new(versions: Versions<'_>) -> Self {
        let mut snapshots = match versions {
            Versions::SeenBy(snapshots) => Some(snapshots.to_vec()),
            Versions::All => None,
        };
        snapshots
            .iter_mut()
            .for_each(|snapshots| snapshots.sort_unstable());
        VersionFilter {
            snapshots,
            stripe: None,
            below_single: false,
            admitted: None,
        }
    }

    /// Another key comes.
    pub(crate) fn start_key(&mut self) {
        self.stripe = None;
        self.below_single = false;
        self.admitted = None;
    }

    /// Whether every snapshot that sees a version also sees a newer one of the same key. O(log
    /// snapshots).
    fn is_one_stripe(&self, sequence: SequenceNumber, newer: SequenceNumber) -> bool {
        let stripe = |number| {
            black_box(&self.snapshots)
                .as_ref()
                .map(|all| all.partition_point(|at| *at < number))
        };
        stripe(sequence).is_some() && stripe(sequence) == stripe(newer)
    }

    /// Whether a reader may need this version. O(log snapshots).
    pub(crate) fn admits(&mut self, sequence: SequenceNumber, kind: Kind) -> bool {
        let Some(snapshots) = &self.snapshots else {
            return true;
        };
        // Snapshots from this index on see this version, those before do not.
        let stripe = snapshots.partition_point(|snapshot| *snapshot < sequence);
        let answered = self.stripe == Some(stripe);
        self.below_single |= kind == Kind::SINGLE_DELETE;
        if kind != Kind::MERGE {
            self.stripe = Some(stripe);
        }
        // Neither of two duplicates is newer than the other.
        let twin = self.admitted == Some(sequence);
        let admits = !answered || twin || self.below_single;
        if admits {
            self.admitted = Some(sequence);
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(snapshots: &[u64], versions: &[(u64, Kind)]) -> Vec<u64> {
        let mut filter = VersionFilter::new(Versions::SeenBy(snapshots));
        versions
            .iter()
            .filter(|(sequence, kind)| filter.admits(*sequence, *kind))
            .map(|v| v.0)
            .collect()
    }

    #[test]
    fn versions_between_snapshots() {
        let puts = [9, 8, 7, 5, 4, 2].map(|sequence| (sequence, Kind::PUT));
        assert_eq!(kept(&[], &puts), [9]);
        assert_eq!(kept(&[7], &puts), [9, 7]);
        assert_eq!(kept(&[3, 6], &puts), [9, 5, 2]);
        assert_eq!(kept(&[1, 100], &puts), [9]);
        let twins = [9, 9, 7, 7, 5, 5, 5].map(|sequence| (sequence, Kind::PUT));
        assert_eq!(
            kept(&[6], &twins),
            [9, 9, 5, 5, 5],
            "all of a number or none"
        );
    }

    #[test]
    fn merges_and_single_deletes_keep_what_they_stand_on() {
        let merges = [
            (9, Kind::MERGE),
            (8, Kind::MERGE),
            (7, Kind::PUT),
            (6, Kind::PUT),
        ];
        assert_eq!(kept(&[], &merges), [9, 8, 7]);
        let singles = [
            (9, Kind::PUT),
            (8, Kind::SINGLE_DELETE),
            (7, Kind::PUT),
            (6, Kind::PUT),
        ];
        assert_eq!(kept(&[], &singles), [9, 8, 7, 6]);
    }
}
