//! Visibilities: whether a scan shows all entries as stored, or what a snapshot sees.
//!
//! ```text
//!   stored      a@9  a@5  b@7d  c@4 c@2          d = delete, and a range delete [c, d) @ 3
//!   raw         a@9  a@5  b@7d  c@4 c@2
//!   snapshot 8       a@5        c@4              newest version <= 8 of each key that is not deleted
//! ```
//! * VISIBILITY-1: of entries with equal keys and sequence numbers (policy `Replace`) a raw scan
//!   shows the newest, in both directions.
//! * VISIBILITY-2: a gap may have held a newer version of the entry after it, or what replaced that
//!   entry. The entry is shown if every damaged entry of the gap is proved to have another key (or,
//!   of equals, another sequence number), as a point read does it; else it stays hidden, and the
//!   error that was reported stands for it.
//! * VISIBILITY-3: a run of entries that are not shown takes a few steps and then one search to
//!   pass.
//! * VISIBILITY-4: a step verifies again whatever it reads of the entry that it leaves. Whether two
//!   keys differ is decided by their hashes, which the walk keeps in its own memory.
//! * VISIBILITY-5: a walk ends even under a comparator that contradicts itself, because `StepLimit`
//!   bounds its steps.
//! * VISIBILITY-6: a move counts the entries that it looks at and does not show in `hidden`. What a
//!   search leads past is not looked at.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::key::{Direction, KeyEquality, SequenceNumber, Side, Target};
use crate::memtable::arena::node::{Parked, Verified, bytes_of};
use crate::memtable::core::Core;
use crate::memtable::read::newest::newest;
use crate::memtable::scan::bounds::ScanBounds;
use crate::memtable::skiplist::search::{Gap, Search};
use crate::tombstone::live::{CoveringRun, Question};

/// Which entries a scan shows: [`Raw`] or [`AtSnapshot`]. Sealed.
///
/// ```
/// use paranoid_memtable::{Cursor, MemTable};
/// use paranoid_memtable::scan::{Borrowed, Visibility};
/// fn keys<L: Visibility>(mut cursor: Cursor<Borrowed<'_>, L>) -> paranoid_memtable::Result<Vec<Vec<u8>>> {
///     let (mut keys, mut entry) = (Vec::new(), cursor.first()?);
///     while let Some(found) = entry {
///         keys.push(found.user_key().to_vec());
///         entry = cursor.next()?;
///     }
///     Ok(keys)
/// }
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// table.delete(2, b"apple")?;
/// assert_eq!((keys(table.cursor())?.len(), keys(table.cursor_at(2))?.len()), (2, 0));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait Visibility: sealed::Marker {}

pub(crate) mod sealed {
    /// What no other crate implements.
    pub trait Marker {}
}

/// Shows every version of every key; range tombstones are not applied. Flushes and merges read
/// this.
///
/// ```
/// use paranoid_memtable::{Cursor, Kind, MemTable};
/// use paranoid_memtable::scan::{Borrowed, Raw};
/// let table = MemTable::default();
/// table.delete(1, b"apple")?;
/// let mut cursor: Cursor<Borrowed<'_>, Raw> = table.cursor();
/// assert_eq!(cursor.first()?.map(|entry| entry.kind()), Some(Kind::DELETE));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

/// Shows what a snapshot sees: the newest visible version of each key, deletes and range deletes
/// applied.
///
/// ```
/// use paranoid_memtable::{Cursor, MemTable};
/// use paranoid_memtable::scan::{AtSnapshot, Borrowed};
/// let table = MemTable::default();
/// table.delete(1, b"apple")?;
/// let mut cursor: Cursor<Borrowed<'_>, AtSnapshot> = table.cursor_at(1);
/// assert!(cursor.first()?.is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct AtSnapshot(());

impl<L: sealed::Marker> Visibility for L {}
impl sealed::Marker for Raw {}
impl sealed::Marker for AtSnapshot {}

/// What a walk shows. A value and not a type, so that walks are compiled in this crate; callers
/// compile only the step to an adjacent entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Visible {
    All,
    /// What a snapshot sees, by the largest sequence number that it sees.
    At(SequenceNumber),
}

impl Visible {
    /// Whether two adjacent entries decide visibility for steps in this direction.
    #[inline(always)]
    pub(crate) fn is_plain(self, core: &Core, way: Direction) -> bool {
        match self {
            Visible::All => !core.replaces(),
            Visible::At(_) => way == Direction::Forward && !core.tombstones.may_be_any(&core.arena),
        }
    }

    /// The newest and the oldest version of its key that a shown entry represents.
    #[inline(always)]
    pub(crate) fn extent(self, sequence: SequenceNumber) -> (SequenceNumber, SequenceNumber) {
        match self {
            Visible::All => (sequence, sequence),
            Visible::At(_) => (SequenceNumber::MAX, 0),
        }
    }
}

/// Where a move ended: on an entry, at an end, or in a gap.
pub(super) type Outcome<'a> = Result<Option<Verified<'a>>, Gap>;

/// One move of a walk, in one direction of the list of its table.
pub(crate) struct Pass<'s, 'a> {
    pub(crate) core: &'a Core,
    pub(crate) search: &'s Search<'a>,
    pub(crate) visible: Visible,
    pub(crate) bounds: &'s ScanBounds,
    pub(crate) way: Direction,
    /// Entries that the move has looked at and not shown (VISIBILITY-6).
    pub(crate) hidden: u64,
}

impl<'a> Pass<'_, 'a> {
    /// The first entry from a stored one on that is visible, whatever the bounds. At a snapshot a
    /// pass forward comes to the first version of a key.
    #[inline]
    pub(super) fn visible_from(&mut self, entry: Option<Verified<'a>>) -> Outcome<'a> {
        match (self.visible, self.way, entry) {
            (Visible::At(snapshot), ..) => self.seen_from(snapshot, entry),
            (Visible::All, Direction::Backward, Some(entry)) if self.core.replaces() => {
                self.furthest_of_run(entry, Run::Equals).map(Some)
            }
            (Visible::All, ..) => Ok(entry),
        }
    }

    /// The next stored entry after a shown one that may be shown next.
    #[inline(always)]
    pub(super) fn beyond(&mut self, from: &Parked) -> Outcome<'a> {
        match self.run() {
            Some(Run::Key) => {
                let next = self.past_run(from, Run::Key)?;
                self.moved_on(from, next)
            }
            // An equal entry may have been inserted before this one after this one was shown.
            Some(Run::Equals) => self.past_run(from, Run::Equals),
            None => self.adjacent_rarely(from.offset()),
        }
    }

    /// The first stored entry at or after `entry`, where a gap ends, that may be shown next
    /// (VISIBILITY-2).
    pub(super) fn after_gap(&mut self, gap: Gap, entry: Verified<'a>) -> Outcome<'a> {
        let Some(run) = self.run() else {
            return Ok(Some(entry));
        };
        if self.past_gap(gap, &entry, run).is_ok() {
            return Ok(Some(entry));
        }
        self.hidden += 1;
        self.past_run(&Parked::new(&entry), run)
    }

    /// The first entry from a stored one on that a snapshot sees.
    fn seen_from(&mut self, snapshot: SequenceNumber, entry: Option<Verified<'a>>) -> Outcome<'a> {
        let (mut next, mut limit) = (entry, StepLimit::default());
        while let Some(entry) = next {
            let newest = match self.way {
                Direction::Forward => {
                    Some(entry).filter(|entry| entry.node().sequence() <= snapshot)
                }
                Direction::Backward => self.newest(snapshot, &entry)?,
            };
            self.hidden += u64::from(newest.is_none_or(|newest| newest.offset() != entry.offset()));
            if let Some(newest) = newest {
                if self.shows(snapshot, &newest)? {
                    return Ok(Some(newest));
                }
                self.hidden += 1;
            }
            limit
                .count(self.core)
                .map_err(|corruption| self.no_way(corruption))?;
            next = match newest {
                Some(dead) => self.beyond_hidden(snapshot, &dead)?,
                None if self.way == Direction::Backward => {
                    self.past_run(&Parked::new(&entry), Run::Key)?
                }
                None if limit.taken.is_multiple_of(STEPS_MAX) => {
                    self.find(self.way, &self.target(entry.key(), snapshot))?
                }
                None => self.adjacent(entry.offset())?,
            };
            next = self.moved_on(&Parked::new(&entry), next)?;
        }
        Ok(None)
    }

    /// The newest visible version of the key of `entry`, its oldest version. That takes a search
    /// unless the entry before has another key or is newer than the snapshot.
    fn newest(&self, snapshot: SequenceNumber, entry: &Verified<'a>) -> Outcome<'a> {
        let is_alone = match self.search.prev(entry.offset()) {
            Ok(Some(before)) => {
                before.node().sequence() > snapshot
                    || !self.are_of_one_run(Run::Key, &Parked::new(entry), &before)?
            }
            Ok(None) => true,
            Err(_) => false,
        };
        if is_alone {
            return Ok(Some(*entry).filter(|entry| entry.node().sequence() <= snapshot));
        }
        newest(self.core, self.search, entry.key(), snapshot)
    }

    /// Whether a visible entry is shown: it is no tombstone and no tombstone covers it.
    fn shows(&self, snapshot: SequenceNumber, entry: &Verified<'_>) -> Result<bool, Gap> {
        if entry.kind().is_point_delete() {
            return Ok(false);
        }
        let question = Question::new(entry.key(), snapshot);
        match self.core.covering(question.above(entry.node().sequence())) {
            Ok(cover) => Ok(cover.is_none()),
            Err(corruption) => Err(Gap {
                corruption,
                before: entry.offset(),
                after: entry.offset(),
            }),
        }
    }

    /// The next stored entry that may be shown after a hidden key: beyond the whole interval of its
    /// tombstone if that is newer than every entry that the snapshot sees, else beyond the key.
    fn beyond_hidden(&mut self, snapshot: SequenceNumber, entry: &Verified<'a>) -> Outcome<'a> {
        let mut run = CoveringRun::default();
        let (core, question) = (self.core, Question::new(entry.key(), snapshot));
        let covered = core
            .tombstones
            .covering_run(core.ground(), question, &mut run)
            .ok()
            .flatten();
        if covered.is_none() || !core.is_dead(&run) {
            return self.past_run(&Parked::new(entry), Run::Key);
        }
        self.find(
            self.way,
            &self.target(self.way.pick((&run.start, &run.end)), SequenceNumber::MAX),
        )
    }

    /// The runs of which the walk shows one entry each, if there may be any.
    #[inline(always)]
    fn run(&self) -> Option<Run> {
        match self.visible {
            Visible::At(_) => Some(Run::Key),
            Visible::All => self.core.replaces().then_some(Run::Equals),
        }
    }
}

// Runs: adjacent entries of which a scan shows at most one, and how a walk passes them.
//
// ```text
//   a@9   m@5 r3   m@5 r2   m@5 r1   m@5 r0   z@2        a run of equals: r3 replaced the others
//   a@9   m@8      m@7      m@6      m@5      z@2        a run of versions of one key
//   <---- before   first             after --->          a few steps, then one search
// ```
// See `visibility` for the invariants, VISIBILITY-2 to VISIBILITY-5.
//
// Any thread.

/// Steps that every walk may take, however small its table.
const STEPS_SPARE: u64 = 64;

/// The number of steps that a walk may take (VISIBILITY-5): a few more than twice the number of
/// entries. Under a consistent comparator a walk takes at most one step per entry and one per gap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepLimit {
    taken: u64,
    /// Entries of the table as last counted.
    entries: u64,
}

impl StepLimit {
    /// Counts a step, and fails once there were too many. The table's entries are counted only when
    /// the limit is reached, in O(shards).
    #[inline]
    pub(crate) fn count(&mut self, core: &Core) -> Result<(), Corruption> {
        self.taken += 1;
        if self.taken > self.most() {
            self.entries = core.shards.totals().points();
        }
        let most = self.most();
        if self.taken <= most {
            Ok(())
        } else {
            Err(Corruption::new(Place::Order, 0, most, self.taken))
        }
    }

    fn most(&self) -> u64 {
        self.entries.saturating_mul(2).saturating_add(STEPS_SPARE)
    }
}

/// Steps over entries of one run before a search takes over (VISIBILITY-3).
const STEPS_MAX: u64 = 8;

/// Which adjacent entries a scan shows at most one of (VISIBILITY-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// One key and one sequence number: the first replaced the others.
    Equals,
    /// All versions of one key.
    Key,
}

impl<'a> Pass<'_, 'a> {
    /// The entry beside this one.
    #[inline(always)]
    fn adjacent(&self, at: u32) -> Outcome<'a> {
        match self.way {
            Direction::Forward => self.search.next(at),
            Direction::Backward => self.search.prev(at),
        }
    }

    /// [`adjacent`](Self::adjacent), compiled once for steps that are rare.
    #[inline(never)]
    pub(super) fn adjacent_rarely(&self, at: u32) -> Outcome<'a> {
        self.adjacent(at)
    }

    fn target<'k>(&self, key: &'k [u8], sequence: SequenceNumber) -> Target<'k> {
        Target::new(&self.core.comparator, key, sequence)
    }

    /// The first entry at or after a position, or the last one before it.
    fn find(&self, way: Direction, target: &Target<'_>) -> Outcome<'a> {
        match way {
            Direction::Forward => self.search.find_at_or_after(target),
            Direction::Backward => self.search.find_before(target),
        }
    }

    /// The entry that a walk is on, verified again (VISIBILITY-4).
    #[inline]
    pub(crate) fn resumed(&self, from: &Parked) -> Result<Verified<'a>, Gap> {
        from.verify(&self.search.view)
            .map_err(|corruption| self.search.gap_at(from.offset(), corruption))
    }

    /// Whether another entry belongs to the run of `from`.
    #[inline]
    fn are_of_one_run(&self, run: Run, from: &Parked, other: &Verified<'a>) -> Result<bool, Gap> {
        if run == Run::Equals && other.node().sequence() != from.sequence() {
            return Ok(false);
        }
        if self.core.comparator.equality() == KeyEquality::Bytes && from.has_other_key(other) {
            return Ok(false);
        }
        Ok(self
            .core
            .comparator
            .are_equal(self.resumed(from)?.key(), other.key()))
    }

    /// The position beside the run that an entry belongs to, on its far side.
    fn position_past<'k>(&self, run: Run, entry: &Verified<'k>) -> Target<'k> {
        let sequence = match run {
            Run::Key => self.way.pick((SequenceNumber::MAX, 0)),
            Run::Equals => entry.node().sequence(),
        };
        let before = self.target(entry.key(), sequence);
        self.way
            .pick((before, before.with_revision(0).with_side(Side::After)))
    }

    /// The first entry after a run, or the last one before it: a few steps, then a search
    /// (VISIBILITY-3).
    #[inline(never)]
    fn past_run(&mut self, from: &Parked, run: Run) -> Outcome<'a> {
        let mut at = from.offset();
        for _ in 0..STEPS_MAX {
            match self.adjacent(at)? {
                Some(next) if self.are_of_one_run(run, from, &next)? => {
                    at = next.offset();
                    self.hidden += 1;
                }
                next => return Ok(next),
            }
        }
        self.find(self.way, &self.position_past(run, &self.resumed(from)?))
    }

    /// The entry after a gap, if no damaged entry in the gap can belong to the run of `entry`
    /// (VISIBILITY-2).
    #[cold]
    fn past_gap(&self, gap: Gap, entry: &Verified<'a>, run: Run) -> Outcome<'a> {
        self.search.past_gap(gap, |key, sequence| {
            (run == Run::Equals && sequence != entry.node().sequence())
                || !self.core.comparator.are_equal(key, entry.key())
        })
    }

    /// The entry of the run of `entry` that is furthest in this direction: a few steps, then a
    /// search (VISIBILITY-3). A gap behind it whose entries are proved not to belong to the run is
    /// left to the next step (VISIBILITY-2). If both a step and the search meet a gap, that of the
    /// step is reported.
    pub(super) fn furthest_of_run(
        &mut self,
        entry: Verified<'a>,
        run: Run,
    ) -> Result<Verified<'a>, Gap> {
        let (mut edge, mut met) = (entry, None);
        for _ in 0..STEPS_MAX {
            match self.adjacent_rarely(edge.offset()) {
                Ok(Some(next)) if self.are_of_one_run(run, &Parked::new(&edge), &next)? => {
                    edge = next;
                    self.hidden += 1;
                }
                Ok(_) => return Ok(edge),
                // A search may find a way around the gap.
                Err(gap) => {
                    met = Some(gap);
                    break;
                }
            }
        }
        let last = |gap: Gap| match (self.past_gap(gap, &edge, run)?, self.way) {
            (_, Direction::Forward) => self.search.verified(gap.before).map_err(|_| gap),
            (after, Direction::Backward) => Ok(after),
        };
        let found = self.find(self.way.opposite(), &self.position_past(run, &edge));
        let found = found.or_else(|gap| last(gap).or_else(|gap| last(met.unwrap_or(gap))))?;
        match found {
            Some(found) if self.are_of_one_run(run, &Parked::new(&edge), &found)? => Ok(found),
            _ => Ok(edge),
        }
    }

    /// A gap without sides, after which the walk cannot go on.
    #[cold]
    pub(crate) fn no_way(&self, corruption: Corruption) -> Gap {
        Gap {
            corruption,
            before: self.search.sentinel,
            after: self.search.sentinel,
        }
    }

    /// With 0 protection bytes keys are not verified, and a scan that searches could loop over a
    /// damaged key. So each move must lead further in the order of the keys as read.
    #[inline(always)]
    fn moved_on(&self, from: &Parked, to: Option<Verified<'a>>) -> Outcome<'a> {
        let Some(next) = to.filter(|_| self.search.view.width.bytes == 0) else {
            return Ok(to);
        };
        let from = self.resumed(from)?;
        let (here, there) = (from.node(), next.node());
        let moved = self.core.comparator.compare(next.key(), from.key());
        let moved = moved.then(here.sequence().cmp(&there.sequence()));
        if moved.then(here.revision().cmp(&there.revision())) == self.way.outward() {
            return Ok(to);
        }
        let corruption = Corruption::new(
            Place::Order,
            bytes_of(here.offset()),
            u64::from(there.offset()),
            0,
        );
        Err(self.no_way(corruption))
    }
}
