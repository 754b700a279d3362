//! Visibilities: whether a scan shows all entries as stored, or what a snapshot sees.
//!
//! ```text
//!   stored      a@9  a@5  b@7d  c@4 c@2          d = delete, and a range delete [c, d) @ 3
//!   raw         a@9  a@5  b@7d  c@4 c@2
//!   snapshot 8       a@5        c@4              newest version <= 8 of each key that is not deleted
//! ```
//! * VISIBILITY-1: of entries with equal keys and sequence numbers (policy `Replace`) a raw scan shows the newest, in
//!   both directions.
//! * VISIBILITY-2: a gap may have held a newer version of the entry after it, or what replaced that entry. The entry
//!   is shown if every damaged entry of the gap is proved to have another key (or, of equals, another sequence
//!   number), as a point read does it; else it stays hidden, and the error that was reported stands for it.
//! * VISIBILITY-3: a run of entries that are not shown takes a few steps and then one search to pass.
//! * VISIBILITY-4: a step verifies again whatever it reads of the entry that it leaves. Whether two keys differ is
//!   decided by their hashes, which the walk keeps in its own memory.
//! * VISIBILITY-5: a walk ends even under a comparator that contradicts itself, because `StepLimit` bounds its steps.
//! * VISIBILITY-6: a move counts the entries that it looks at and does not show in `hidden`. What a search leads past is
//!   not looked at.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::key::{Direction, KeyEquality, SequenceNumber, Side, Target};
use crate::memtable::arena::arena::Frame;
use crate::memtable::arena::node::{Verified, bytes_of};
use crate::memtable::core::Core;
use crate::memtable::skiplist::iterate::Parked;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::skiplist::search::{Gap, Search};
use crate::tombstone::live::{CoveringRun, Question};

/// Which entries a scan shows: [`Raw`] or [`AtSnapshot`]. Sealed.
///
/// ```
/// use paranoid_memtable::{MemTable, TableCursor};
/// use paranoid_memtable::scan::Visibility;
/// fn keys<L: Visibility>(mut cursor: TableCursor<'_, L>) -> paranoid_memtable::Result<Vec<Vec<u8>>> {
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

/// Shows every version of every key; range tombstones are not applied. Flushes and merges read this.
///
/// ```
/// use paranoid_memtable::{Kind, MemTable, TableCursor};
/// use paranoid_memtable::scan::Raw;
/// let table = MemTable::default();
/// table.delete(1, b"apple")?;
/// let mut cursor: TableCursor<'_, Raw> = table.cursor();
/// assert_eq!(cursor.first()?.map(|entry| entry.kind()), Some(Kind::DELETE));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

/// Shows what a snapshot sees: the newest visible version of each key, deletes and range deletes applied.
///
/// ```
/// use paranoid_memtable::{MemTable, TableCursor};
/// use paranoid_memtable::scan::AtSnapshot;
/// let table = MemTable::default();
/// table.delete(1, b"apple")?;
/// let mut cursor: TableCursor<'_, AtSnapshot> = table.cursor_at(1);
/// assert!(cursor.first()?.is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct AtSnapshot(());

impl<L: sealed::Marker> Visibility for L {}
impl sealed::Marker for Raw {}
impl sealed::Marker for AtSnapshot {}

/// What a walk shows. A value and not a type, so that walks are compiled in this crate; callers compile only the step
/// to an adjacent entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Visible {
    All,
    At(Snapshot),
}

/// A snapshot, by the largest sequence number that it sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    sequence: SequenceNumber,
}

impl Visible {
    /// What a snapshot sees.
    pub(crate) fn at(sequence: SequenceNumber) -> Visible {
        Visible::At(Snapshot { sequence })
    }

    /// Whether two adjacent entries decide visibility for steps in this direction.
    #[inline(always)]
    pub(crate) fn is_plain(&self, core: &Core, way: Direction) -> bool {
        match self {
            Visible::All => !replaces(core),
            Visible::At(_) => way == Direction::Forward && !core.tombstones.may_be_any(&core.arena),
        }
    }

    /// Where a search for (key, `sequence`) starts: at that version, or at the key's first one.
    #[inline(always)]
    pub(crate) fn search_from(&self, sequence: SequenceNumber) -> SequenceNumber {
        self.extent(sequence).0
    }

    /// The newest and the oldest version of its key that a shown entry represents.
    #[inline(always)]
    pub(crate) fn extent(&self, sequence: SequenceNumber) -> (SequenceNumber, SequenceNumber) {
        match self {
            Visible::All => (sequence, sequence),
            Visible::At(_) => (SequenceNumber::MAX, 0),
        }
    }

    /// The first entry shown from a stored one on, in this direction. Unless all versions are shown, a walk forward comes
    /// to the first version of a key.
    #[inline]
    pub(crate) fn show<'a>(
        &self,
        pass: &mut Pass<'_, 'a>,
        way: Direction,
        entry: Option<Verified<'a>>,
    ) -> Outcome<'a> {
        match (self, way, entry) {
            (Visible::At(snapshot), Direction::Forward, _) => snapshot.forward(pass, entry),
            (Visible::At(snapshot), Direction::Backward, _) => snapshot.backward(pass, entry),
            (Visible::All, Direction::Backward, Some(entry)) if replaces(pass.core) => {
                pass.furthest_of_run(entry, Run::Equals, Direction::Backward).map(Some)
            }
            (Visible::All, ..) => Ok(entry),
        }
    }

    /// The next stored entry in this direction after a shown one that may be shown next.
    #[inline(always)]
    pub(crate) fn beyond<'a>(&self, pass: &mut Pass<'_, 'a>, from: &Parked, way: Direction) -> Outcome<'a> {
        match self {
            Visible::At(_) => {
                let next = pass.past_run(from, Run::Key, way)?;
                pass.moved_on(from, next, way)
            }
            // An equal entry may have been inserted before this one after this one was shown.
            Visible::All if replaces(pass.core) => pass.past_run(from, Run::Equals, way),
            Visible::All => pass.adjacent(from.offset(), way),
        }
    }

    /// The first stored entry at or after `entry`, where a gap ends, that may be shown next (VISIBILITY-2).
    pub(crate) fn after_gap<'a>(
        &self,
        pass: &mut Pass<'_, 'a>,
        gap: Gap,
        entry: Verified<'a>,
    ) -> Outcome<'a> {
        let run = match self {
            Visible::At(_) => Run::Key,
            Visible::All if replaces(pass.core) => Run::Equals,
            Visible::All => return Ok(Some(entry)),
        };
        if pass.past_gap(gap, &entry, run).is_ok() {
            return Ok(Some(entry));
        }
        pass.hidden += 1;
        pass.past_run(&Parked::new(&entry), run, Direction::Forward)
    }
}

/// Whether entries may have equals that they replaced.
#[inline(always)]
fn replaces(core: &Core) -> bool {
    core.options.duplicates == DuplicatePolicy::Replace
}

impl Snapshot {
    /// The newest visible entry of the key of a stored entry.
    fn newest<'a>(&self, pass: &Pass<'_, 'a>, entry: &Verified<'a>) -> Outcome<'a> {
        let after = match pass.find(entry.key(), self.sequence) {
            Ok(after) => after,
            Err(gap) => pass.past_gap(gap, entry, Run::Key)?,
        };
        Ok(after.filter(|found| pass.have_same_key(found, entry)))
    }

    /// Whether `entry`, the oldest version of its key, is the only version that may be shown, because the entry before
    /// it has another key or is newer than the snapshot. `false` after a gap, where that takes a search.
    fn is_alone<'a>(&self, pass: &Pass<'_, 'a>, entry: &Verified<'a>) -> Result<bool, Gap> {
        match pass.search.prev(entry.offset()) {
            Ok(Some(before)) => Ok(before.node().sequence() > self.sequence
                || !pass.are_of_one_run(Run::Key, &Parked::new(entry), &before)?),
            Ok(None) => Ok(true),
            Err(_) => Ok(false),
        }
    }

    /// Whether a visible entry is shown: it is no tombstone and no tombstone covers it.
    fn shows(&self, core: &Core, entry: &Verified<'_>) -> Result<bool, Gap> {
        if entry.kind().is_point_delete() {
            return Ok(false);
        }
        let question = Question::new(entry.key(), self.sequence);
        match core.covering(question.above(entry.node().sequence())) {
            Ok(cover) => Ok(cover.is_none()),
            Err(corruption) => Err(Gap { corruption, before: entry.offset(), after: entry.offset() }),
        }
    }

    /// The next stored entry in this direction that may be shown after a hidden key: beyond the whole interval of its
    /// tombstone if that is newer than every entry that the snapshot sees, else beyond the key.
    fn beyond_hidden<'a>(
        &self,
        pass: &mut Pass<'_, 'a>,
        entry: &Verified<'a>,
        way: Direction,
    ) -> Outcome<'a> {
        let mut run = CoveringRun::default();
        let (core, question) = (pass.core, Question::new(entry.key(), self.sequence));
        let covered = core.tombstones.covering_run(core.ground(), question, &mut run).ok().flatten();
        if covered.is_none() || !core.is_dead(&run) {
            return pass.past_run(&Parked::new(entry), Run::Key, way);
        }
        match way {
            Direction::Forward => Ok(pass.find(&run.end, SequenceNumber::MAX)?),
            Direction::Backward => pass.search.find_before(&pass.target(&run.start, SequenceNumber::MAX)),
        }
    }

    /// Whether the entry adjacent to a shown one is shown too, for steps that two entries decide: the first version of
    /// another key that is visible and no tombstone. `false` if deciding takes more.
    #[inline(always)]
    pub(super) fn shows_neighbour(
        &self,
        core: &Core,
        frame: &Frame,
        from: &Parked,
        neighbour: &Verified<'_>,
    ) -> bool {
        let is_visible = neighbour.node().sequence() <= self.sequence && !neighbour.kind().is_point_delete();
        let differs = core.comparator.equality() == KeyEquality::Bytes && from.has_other_key(neighbour);
        is_visible && (differs || has_key_other_than(core, frame, from, neighbour.key()))
    }

    fn forward<'a>(&self, pass: &mut Pass<'_, 'a>, entry: Option<Verified<'a>>) -> Outcome<'a> {
        let (mut next, mut limit) = (entry, StepLimit::default());
        let mut steps = 0;
        while let Some(entry) = next {
            let visible = entry.node().sequence() <= self.sequence;
            if visible && self.shows(pass.core, &entry)? {
                return Ok(Some(entry));
            }
            limit.count(pass.core).map_err(|corruption| pass.no_way(corruption))?;
            pass.hidden += 1;
            steps += 1;
            next = if visible {
                self.beyond_hidden(pass, &entry, Direction::Forward)?
            } else if steps % STEPS_MAX == 0 {
                pass.find(entry.key(), self.sequence)?
            } else {
                pass.search.next(entry.offset())?
            };
            next = pass.moved_on(&Parked::new(&entry), next, Direction::Forward)?;
        }
        Ok(None)
    }

    fn backward<'a>(&self, pass: &mut Pass<'_, 'a>, entry: Option<Verified<'a>>) -> Outcome<'a> {
        let (mut next, mut limit) = (entry, StepLimit::default());
        while let Some(entry) = next {
            let visible = if self.is_alone(pass, &entry)? {
                Some(entry).filter(|entry| entry.node().sequence() <= self.sequence)
            } else {
                self.newest(pass, &entry)?
            };
            pass.hidden += u64::from(visible.is_none_or(|visible| visible.offset() != entry.offset()));
            if let Some(visible) = visible {
                if self.shows(pass.core, &visible)? {
                    return Ok(Some(visible));
                }
                pass.hidden += 1;
            }
            limit.count(pass.core).map_err(|corruption| pass.no_way(corruption))?;
            next = match visible {
                Some(dead) => self.beyond_hidden(pass, &dead, Direction::Backward)?,
                None => pass.past_run(&Parked::new(&entry), Run::Key, Direction::Backward)?,
            };
            next = pass.moved_on(&Parked::new(&entry), next, Direction::Backward)?;
        }
        Ok(None)
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

/// Whether the entry that a walk is on verifies and has another key (VISIBILITY-4).
#[inline(never)]
pub(crate) fn has_key_other_than(core: &Core, frame: &Frame, from: &Parked, key: &[u8]) -> bool {
    let entry = frame.on(&core.arena).and_then(|view| from.verify(&view).ok());
    entry.is_some_and(|entry| !core.comparator.are_equal(entry.key(), key))
}

/// Steps that every walk may take, however small its table.
const STEPS_SPARE: u64 = 64;

/// The number of steps that a walk may take (VISIBILITY-5): a few more than twice the number of entries. Under a
/// consistent comparator a walk takes at most one step per entry and one per gap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepLimit {
    taken: u64,
    limit: u64,
}

impl Default for StepLimit {
    fn default() -> Self {
        StepLimit { taken: 0, limit: STEPS_SPARE }
    }
}

impl StepLimit {
    /// Counts a step, and fails once there were too many. The table's entries are counted only when the limit is
    /// reached, in O(shards).
    #[inline]
    pub(crate) fn count(&mut self, core: &Core) -> Result<(), Corruption> {
        self.taken += 1;
        if self.taken <= self.limit { Ok(()) } else { self.extend(core) }
    }

    #[cold]
    fn extend(&mut self, core: &Core) -> Result<(), Corruption> {
        let totals = core.shards.totals();
        let points = totals.entries.saturating_sub(totals.range_deletes).saturating_add(totals.displaced);
        self.limit = points.saturating_mul(2).saturating_add(STEPS_SPARE);
        if self.taken <= self.limit {
            return Ok(());
        }
        Err(Corruption::new(Place::Order, 0, self.limit, self.taken))
    }
}

/// Steps over entries of one run before a search takes over (VISIBILITY-3).
pub(crate) const STEPS_MAX: u32 = 8;

/// Which adjacent entries a scan shows at most one of (VISIBILITY-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// One key and one sequence number: the first replaced the others.
    Equals,
    /// All versions of one key.
    Key,
}

/// Where a move ended: on an entry, at an end, or in a gap.
pub(super) type Outcome<'a> = Result<Option<Verified<'a>>, Gap>;

/// One move of a walk in the list of its table.
pub(crate) struct Pass<'s, 'a> {
    pub(crate) core: &'a Core,
    pub(crate) search: &'s Search<'a>,
    /// Entries that the move has looked at and not shown (VISIBILITY-6).
    pub(crate) hidden: u64,
}

impl<'s, 'a> Pass<'s, 'a> {
    #[inline(always)]
    pub(crate) fn new(core: &'a Core, search: &'s Search<'a>) -> Self {
        Pass { core, search, hidden: 0 }
    }

    /// The entry beside this one.
    #[inline(always)]
    pub(crate) fn adjacent(&self, at: u32, way: Direction) -> Outcome<'a> {
        match way {
            Direction::Forward => self.search.next(at),
            Direction::Backward => self.search.prev(at),
        }
    }

    fn target<'k>(&self, key: &'k [u8], sequence: SequenceNumber) -> Target<'k> {
        Target::new(&self.core.comparator, key, sequence)
    }

    /// The first entry at or after a version of a key.
    fn find(&self, key: &[u8], sequence: SequenceNumber) -> Outcome<'a> {
        self.search.find_at_or_after(&self.target(key, sequence))
    }

    fn have_same_key(&self, left: &Verified<'_>, right: &Verified<'_>) -> bool {
        self.core.comparator.are_equal(left.key(), right.key())
    }

    /// The entry that a walk is on, verified again (VISIBILITY-4).
    #[inline]
    pub(crate) fn resumed(&self, from: &Parked) -> Result<Verified<'a>, Gap> {
        from.verify(&self.search.view).map_err(|corruption| self.search.gap_at(from.offset(), corruption))
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
        Ok(self.have_same_key(&self.resumed(from)?, other))
    }

    /// The position before the run that an entry belongs to.
    fn start_of<'k>(&self, run: Run, entry: &Verified<'k>) -> Target<'k> {
        let newest = if run == Run::Key { SequenceNumber::MAX } else { entry.node().sequence() };
        self.target(entry.key(), newest)
    }

    /// The position after the run.
    fn end_of<'k>(&self, run: Run, entry: &Verified<'k>) -> Target<'k> {
        match run {
            Run::Key => Target::behind_key(&self.core.comparator, entry.key()),
            Run::Equals => self.start_of(run, entry).with_revision(0).with_side(Side::After),
        }
    }

    /// The first entry after a run, or the last one before it: a few steps, then a search (VISIBILITY-3).
    #[inline(never)]
    fn past_run(&mut self, from: &Parked, run: Run, way: Direction) -> Outcome<'a> {
        let mut at = from.offset();
        for _ in 0..STEPS_MAX {
            match self.adjacent(at, way)? {
                Some(next) if self.are_of_one_run(run, from, &next)? => {
                    at = next.offset();
                    self.hidden += 1;
                }
                next => return Ok(next),
            }
        }
        let entry = self.resumed(from)?;
        match way {
            Direction::Forward => self.search.find_at_or_after(&self.end_of(run, &entry)),
            Direction::Backward => self.search.find_before(&self.start_of(run, &entry)),
        }
    }

    /// The entry after a gap, if no damaged entry in the gap can belong to the run of `entry` (VISIBILITY-2).
    #[cold]
    fn past_gap(&self, gap: Gap, entry: &Verified<'a>, run: Run) -> Outcome<'a> {
        self.search.past_gap(gap, |key, sequence| {
            (run == Run::Equals && sequence != entry.node().sequence())
                || !self.core.comparator.are_equal(key, entry.key())
        })
    }

    /// The entry of the run of `entry` that is furthest in this direction: a few steps, then a search (VISIBILITY-3). A
    /// gap behind it whose entries are proved not to belong to the run is left to the next step (VISIBILITY-2). If both a
    /// step and the search meet a gap, that of the step is reported.
    pub(super) fn furthest_of_run(
        &mut self,
        entry: Verified<'a>,
        run: Run,
        way: Direction,
    ) -> Result<Verified<'a>, Gap> {
        let (mut edge, mut met) = (entry, None);
        for _ in 0..STEPS_MAX {
            match self.adjacent(edge.offset(), way) {
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
        let found = match way {
            Direction::Forward => self.search.find_before(&self.end_of(run, &edge)),
            Direction::Backward => self.search.find_at_or_after(&self.start_of(run, &edge)),
        };
        let found = match found {
            Ok(found) => found,
            Err(gap) => {
                let last = |gap: Gap| match (self.past_gap(gap, &edge, run)?, way) {
                    (_, Direction::Forward) => self.search.verified(gap.before).map_err(|_| gap),
                    (after, Direction::Backward) => Ok(after),
                };
                last(gap).or_else(|gap| last(met.unwrap_or(gap)))?
            }
        };
        match found {
            Some(found) if self.are_of_one_run(run, &Parked::new(&edge), &found)? => Ok(found),
            _ => Ok(edge),
        }
    }

    /// A gap without sides, after which the walk cannot go on.
    #[cold]
    pub(crate) fn no_way(&self, corruption: Corruption) -> Gap {
        Gap { corruption, before: self.search.sentinel, after: self.search.sentinel }
    }

    /// With 0 protection bytes keys are not verified, and a scan that searches could loop over a damaged key. So each
    /// move must lead further in the order of the keys as read.
    #[inline(always)]
    fn moved_on(&self, from: &Parked, to: Option<Verified<'a>>, way: Direction) -> Outcome<'a> {
        let Some(next) = to.filter(|_| self.search.view.width.bytes() == 0) else { return Ok(to) };
        let from = self.resumed(from)?;
        let (here, there) = (from.node(), next.node());
        let moved = self.core.comparator.compare(next.key(), from.key());
        let moved = moved.then(here.sequence().cmp(&there.sequence()));
        if moved.then(here.revision().cmp(&there.revision())) == way.outward() {
            return Ok(to);
        }
        let corruption = Corruption::new(Place::Order, bytes_of(here.offset()), u64::from(there.offset()), 0);
        Err(self.no_way(corruption))
    }
}
