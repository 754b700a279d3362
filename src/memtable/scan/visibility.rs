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

use std::cmp::Ordering;

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

impl Visibility for Raw {}
impl Visibility for AtSnapshot {}
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

    /// The first entry shown at or after a stored one. Unless all versions are shown, the stored one is the first
    /// of its key.
    #[inline(always)]
    pub(crate) fn forward<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: Option<Verified<'a>>,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        match self {
            Visible::All => Ok(entry),
            Visible::At(snapshot) => snapshot.forward(core, search, entry, hidden),
        }
    }

    /// The last entry shown at or before a stored one.
    #[inline]
    pub(crate) fn backward<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: Option<Verified<'a>>,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        match (self, entry) {
            (Visible::At(snapshot), entry) => snapshot.backward(core, search, entry, hidden),
            (Visible::All, Some(entry)) if replaces(core) => {
                first_of_run(core, search, entry, Run::Equals, hidden).map(Some)
            }
            (Visible::All, entry) => Ok(entry),
        }
    }

    /// The next stored entry in this direction after a shown one that may be shown next.
    #[inline(always)]
    pub(crate) fn beyond<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        from: &Parked,
        way: Direction,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        match (self, way) {
            (Visible::At(_), _) => {
                let next = past_run(core, search, from, Run::Key, way, hidden)?;
                moved_on(core, search, from, next, way.outward())
            }
            // An equal entry may have been inserted before this one after this one was shown.
            (Visible::All, _) if replaces(core) => past_run(core, search, from, Run::Equals, way, hidden),
            (Visible::All, Direction::Forward) => search.next(from.offset()),
            (Visible::All, Direction::Backward) => search.prev(from.offset()),
        }
    }

    /// The first stored entry at or after `entry`, where a gap ends, that may be shown next (VISIBILITY-2).
    pub(crate) fn after_gap<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        gap: Gap,
        entry: Verified<'a>,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        let run = match self {
            Visible::At(_) => Run::Key,
            Visible::All if replaces(core) => Run::Equals,
            Visible::All => return Ok(Some(entry)),
        };
        if past_gap(core, search, gap, &entry, run).is_ok() {
            return Ok(Some(entry));
        }
        *hidden += 1;
        past_run(core, search, &Parked::new(&entry), run, Direction::Forward, hidden)
    }
}

/// Whether entries may have equals that they replaced.
#[inline(always)]
fn replaces(core: &Core) -> bool {
    core.options.duplicates == DuplicatePolicy::Replace
}

impl Snapshot {
    /// The newest visible entry of the key of a stored entry.
    fn newest<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: &Verified<'a>,
    ) -> Result<Option<Verified<'a>>, Gap> {
        let target = Target::new(&core.comparator, entry.key(), self.sequence);
        let after = match search.find_at_or_after(&target) {
            Ok(after) => after,
            Err(gap) => past_gap(core, search, gap, entry, Run::Key)?,
        };
        Ok(after.filter(|found| same_key(core, found, entry)))
    }

    /// Whether `entry`, the oldest version of its key, is the only version that may be shown, because the entry before
    /// it has another key or is newer than the snapshot. `false` after a gap, where that takes a search.
    fn is_alone<'a>(&self, core: &Core, search: &Search<'a>, entry: &Verified<'a>) -> Result<bool, Gap> {
        match search.prev(entry.offset()) {
            Ok(Some(before)) => Ok(before.node().sequence() > self.sequence
                || !Run::Key.holds(core, search, &Parked::new(entry), &before)?),
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

    /// The first stored entry that may be shown after a hidden key: after the whole interval of its tombstone if that
    /// is newer than every entry that the snapshot sees, else after the key.
    fn behind_hidden<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: &Verified<'a>,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        match self.dead_run(core, entry) {
            Some(run) => {
                Ok(search.find_at_or_after(&Target::new(&core.comparator, &run.end, SequenceNumber::MAX))?)
            }
            None => past_run(core, search, &Parked::new(entry), Run::Key, Direction::Forward, hidden),
        }
    }

    /// The last stored entry that may be shown before a hidden key.
    fn before_hidden<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: &Verified<'a>,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        match self.dead_run(core, entry) {
            Some(run) => search.find_before(&Target::new(&core.comparator, &run.start, SequenceNumber::MAX)),
            None => past_run(core, search, &Parked::new(entry), Run::Key, Direction::Backward, hidden),
        }
    }

    /// The interval around a hidden key in which no entry can be shown.
    fn dead_run(&self, core: &Core, entry: &Verified<'_>) -> Option<CoveringRun> {
        let mut run = CoveringRun::default();
        let question = Question::new(entry.key(), self.sequence);
        core.tombstones.covering_run(core.ground(), question, &mut run).ok()??;
        core.is_dead(&run, self.sequence).then_some(run)
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

    fn forward<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: Option<Verified<'a>>,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        let (mut next, mut limit) = (entry, StepLimit::default());
        let mut steps = 0;
        while let Some(entry) = next {
            let visible = entry.node().sequence() <= self.sequence;
            if visible && self.shows(core, &entry)? {
                return Ok(Some(entry));
            }
            limit.count(core).map_err(|corruption| no_way(search, corruption))?;
            *hidden += 1;
            steps += 1;
            next = if visible {
                self.behind_hidden(core, search, &entry, hidden)?
            } else if steps % STEPS_MAX == 0 {
                search.find_at_or_after(&Target::new(&core.comparator, entry.key(), self.sequence))?
            } else {
                search.next(entry.offset())?
            };
            next = moved_on(core, search, &Parked::new(&entry), next, Ordering::Greater)?;
        }
        Ok(None)
    }

    fn backward<'a>(
        &self,
        core: &Core,
        search: &Search<'a>,
        entry: Option<Verified<'a>>,
        hidden: &mut u64,
    ) -> Result<Option<Verified<'a>>, Gap> {
        let (mut next, mut limit) = (entry, StepLimit::default());
        while let Some(entry) = next {
            let alone = self.is_alone(core, search, &entry)?;
            let visible = if alone {
                Some(entry).filter(|entry| entry.node().sequence() <= self.sequence)
            } else {
                self.newest(core, search, &entry)?
            };
            *hidden += u64::from(visible.is_none_or(|visible| visible.offset() != entry.offset()));
            if let Some(visible) = visible {
                if self.shows(core, &visible)? {
                    return Ok(Some(visible));
                }
                *hidden += 1;
            }
            limit.count(core).map_err(|corruption| no_way(search, corruption))?;
            next = match visible {
                Some(dead) => self.before_hidden(core, search, &dead, hidden)?,
                None => past_run(core, search, &Parked::new(&entry), Run::Key, Direction::Backward, hidden)?,
            };
            next = moved_on(core, search, &Parked::new(&entry), next, Ordering::Less)?;
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

/// The entry that a walk is on, verified again (VISIBILITY-4).
#[inline]
pub(crate) fn resumed<'a>(search: &Search<'a>, from: &Parked) -> Result<Verified<'a>, Gap> {
    from.verify(&search.view).map_err(|corruption| search.gap_at(from.offset(), corruption))
}

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

pub(crate) fn same_key(core: &Core, left: &Verified<'_>, right: &Verified<'_>) -> bool {
    core.comparator.are_equal(left.key(), right.key())
}

/// Which adjacent entries a scan shows at most one of (VISIBILITY-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// One key and one sequence number: the first replaced the others.
    Equals,
    /// All versions of one key.
    Key,
}

impl Run {
    /// Whether another entry belongs to the run of `from`.
    #[inline]
    pub(crate) fn holds<'a>(
        self,
        core: &Core,
        search: &Search<'a>,
        from: &Parked,
        other: &Verified<'a>,
    ) -> Result<bool, Gap> {
        if self == Run::Equals && other.node().sequence() != from.sequence() {
            return Ok(false);
        }
        if core.comparator.equality() == KeyEquality::Bytes && from.has_other_key(other) {
            return Ok(false);
        }
        Ok(same_key(core, &resumed(search, from)?, other))
    }

    /// The position before the run that an entry belongs to.
    fn start<'k>(self, core: &Core, entry: &Verified<'k>) -> Target<'k> {
        let newest = if self == Run::Key { SequenceNumber::MAX } else { entry.node().sequence() };
        Target::new(&core.comparator, entry.key(), newest)
    }

    /// The position after the run.
    fn end<'k>(self, core: &Core, entry: &Verified<'k>) -> Target<'k> {
        match self {
            Run::Key => Target::behind_key(&core.comparator, entry.key()),
            Run::Equals => self.start(core, entry).with_revision(0).with_side(Side::After),
        }
    }
}

/// The first entry after a run, or the last one before it: a few steps, then a search (VISIBILITY-3). `hidden` counts
/// the entries of the run that it looks at.
#[inline(never)]
pub(crate) fn past_run<'a>(
    core: &Core,
    search: &Search<'a>,
    from: &Parked,
    run: Run,
    way: Direction,
    hidden: &mut u64,
) -> Result<Option<Verified<'a>>, Gap> {
    let mut at = from.offset();
    for _ in 0..STEPS_MAX {
        let next = match way {
            Direction::Forward => search.next(at)?,
            Direction::Backward => search.prev(at)?,
        };
        match next {
            Some(next) if run.holds(core, search, from, &next)? => {
                at = next.offset();
                *hidden += 1;
            }
            next => return Ok(next),
        }
    }
    let entry = resumed(search, from)?;
    match way {
        Direction::Forward => Ok(search.find_at_or_after(&run.end(core, &entry))?),
        Direction::Backward => search.find_before(&run.start(core, &entry)),
    }
}

/// The entry after a gap, if no damaged entry in the gap can belong to the run of `entry` (VISIBILITY-2).
#[cold]
pub(crate) fn past_gap<'a>(
    core: &Core,
    search: &Search<'a>,
    gap: Gap,
    entry: &Verified<'a>,
    run: Run,
) -> Result<Option<Verified<'a>>, Gap> {
    search.past_gap(gap, |key, sequence| {
        (run == Run::Equals && sequence != entry.node().sequence())
            || !core.comparator.are_equal(key, entry.key())
    })
}

/// The first entry of the run of `entry`: a few steps, then a search (VISIBILITY-3). A gap before it whose entries are
/// proved not to belong to the run is left to the next step (VISIBILITY-2). If both a step and the search meet a gap,
/// that of the step is reported. `hidden` counts the entries of the run that it looks at and leaves.
pub(crate) fn first_of_run<'a>(
    core: &Core,
    search: &Search<'a>,
    entry: Verified<'a>,
    run: Run,
    hidden: &mut u64,
) -> Result<Verified<'a>, Gap> {
    let (mut first, mut met) = (entry, None);
    for _ in 0..STEPS_MAX {
        match search.prev(first.offset()) {
            Ok(Some(before)) if run.holds(core, search, &Parked::new(&first), &before)? => {
                first = before;
                *hidden += 1;
            }
            Ok(_) => return Ok(first),
            // A search may find a way around the gap.
            Err(gap) => {
                met = Some(gap);
                break;
            }
        }
    }
    let found = match search.find_at_or_after(&run.start(core, &first)) {
        Ok(found) => found,
        Err(gap) => past_gap(core, search, met.unwrap_or(gap), &first, run)?,
    };
    match found {
        Some(found) if run.holds(core, search, &Parked::new(&first), &found)? => Ok(found),
        _ => Ok(first),
    }
}

/// A gap without sides, after which the walk cannot go on.
#[cold]
pub(crate) fn no_way(search: &Search<'_>, corruption: Corruption) -> Gap {
    Gap { corruption, before: search.sentinel, after: search.sentinel }
}

/// With 0 protection bytes keys are not verified, and a scan that searches could loop over a damaged key. So each
/// move must lead further in the order of the keys as read.
#[inline(always)]
pub(crate) fn moved_on<'a>(
    core: &Core,
    search: &Search<'a>,
    from: &Parked,
    to: Option<Verified<'a>>,
    way: Ordering,
) -> Result<Option<Verified<'a>>, Gap> {
    let Some(next) = to.filter(|_| search.view.width.bytes() == 0) else { return Ok(to) };
    let from = resumed(search, from)?;
    let (here, there) = (from.node(), next.node());
    let moved = core.comparator.compare(next.key(), from.key());
    let moved = moved.then(here.sequence().cmp(&there.sequence()));
    if moved.then(here.revision().cmp(&there.revision())) == way {
        return Ok(to);
    }
    let corruption = Corruption::new(Place::Order, bytes_of(here.offset()), u64::from(there.offset()), 0);
    Err(no_way(search, corruption))
}
