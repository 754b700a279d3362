//! The range tombstones of a table: which of them deletes a key.
//!
//! ```text
//!   no tombstone at all ........................... one load
//!   frozen, index built ........................... frozen index
//!   otherwise ..................................... live index
//!   an index does not verify ...................... the next one, at last the tombstones themselves (the truth)
//! ```
//! A tombstone covers a key if start <= key < end, and deletes what has a strictly smaller sequence number: one with
//! sequence number 0 deletes nothing.
//!
//! * RANGE-TOMBSTONES-1: a damaged index costs speed; an answer is `Corruption` only if the truth is damaged too.
//! * RANGE-TOMBSTONES-2: before a tombstone is written, the table's limit has counted what both indexes may take with it:
//!   the live one, and the one that the freeze will build. What the freeze builds besides belongs into `frozen_bytes_max`.
//!
//! Any thread; readers never wait.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use crate::error::{Corruption, Place, Result};
use crate::integrity::tag::Secret;
use crate::key::{SequenceNumber, Side, Target};
use crate::memtable::options::MemTableOptions;
use crate::memtable::parts::ground::Ground;
#[cfg(feature = "fault-injection")]
use crate::memtable::side_structure::{FaultWords, VisitWords};
use crate::memtable::side_structure::{Report, Settle, SideStructure};
use crate::memtable::skiplist::arena::Arena;
use crate::memtable::skiplist::control_block::{Control, ControlWord, Head};
use crate::memtable::skiplist::encode::Fields;
use crate::memtable::skiplist::layout::HEADER;
use crate::memtable::skiplist::list::List;
use crate::memtable::skiplist::search::Search;
use crate::planted::{Bug, planted};
use crate::sync::Mutex;
use crate::tombstone::index::frozen::FrozenTombstones;
use crate::tombstone::index::live::{CoveringRun, LiveIndex};
use crate::tombstone::index::query::{Asked, Question};
use crate::tombstone::index::tree::{Built, Load};

/// Start, end and sequence number of a tombstone of the list.
type Tombstone<'a> = (&'a [u8], &'a [u8], SequenceNumber);

/// The range tombstones of a table: the list of their entries, and two indexes that answer for it.
#[derive(Debug)]
pub(crate) struct RangeTombstones {
    pub(crate) list: List,
    /// The index of the mutable table.
    pub(crate) live: LiveIndex,
    /// The index of the frozen table, once it is built.
    frozen: OnceLock<FrozenTombstones>,
    /// What the limit has counted (RANGE-TOMBSTONES-2).
    counted: Mutex<Load>,
}

/// The most bytes that the freeze adds for so many tombstones (RANGE-TOMBSTONES-2).
fn frozen_bytes_max(load: Load) -> u64 {
    load.bytes_max(Built::AtOnce)
}

/// The most bytes that tombstones take outside of the arena, now and once the table is frozen.
pub(crate) fn bytes_max(load: Load) -> u64 {
    load.bytes_max(Built::OneByOne) + frozen_bytes_max(load)
}

impl RangeTombstones {
    pub(crate) fn new(arena: &Arena, options: &MemTableOptions, secret: Secret) -> Result<Self> {
        let checks = (options.paranoid.seek_checks(), options.paranoid.neighbour_checks());
        let list = List::new(arena, Head::Ranges, checks.0, checks.1)?;
        let (live, frozen) = (LiveIndex::new(secret), OnceLock::new());
        Ok(RangeTombstones { list, live, frozen, counted: Mutex::default() })
    }

    /// A search among the tombstones by start.
    #[inline]
    pub(crate) fn search<'t>(&self, ground: Ground<'t>) -> Result<Search<'t>, Corruption> {
        Ok(self.list.search(Head::Ranges, ground.arena.view()?, ground.comparator))
    }

    /// Makes the room of a writer at least `wanted`, or leaves it as it is (RANGE-TOMBSTONES-2). O(log n).
    pub(crate) fn reserve(&self, arena: &Arena, room: &mut Load, wanted: Load) -> Result<()> {
        let missing = wanted.without(*room);
        if missing.is_empty() {
            return Ok(());
        }
        let mut counted = self.counted.lock();
        let after = counted.plus(missing);
        arena.room.count_beside(bytes_max(*counted), bytes_max(after))?;
        (*counted, *room) = (after, room.plus(missing));
        Ok(())
    }

    /// Bytes that the limit would count for so much more.
    pub(crate) fn bytes_for(&self, more: Load) -> u64 {
        let counted = self.counted.lock();
        bytes_max(counted.plus(more)) - bytes_max(*counted)
    }

    /// Bytes of heap memory that the freeze will add, at most; 0 once it is done.
    pub(crate) fn freeze_bytes(&self) -> u64 {
        if self.frozen.get().is_some() { 0 } else { frozen_bytes_max(*self.counted.lock()) }
    }

    /// Gives back the room of a writer whose write was refused.
    #[cold]
    pub(crate) fn give_back(&self, arena: &Arena, room: &mut Load) {
        let mut counted = self.counted.lock();
        let after = counted.without(std::mem::take(room));
        // Less is never refused.
        if arena.room.count_beside(bytes_max(*counted), bytes_max(after)).is_ok() {
            *counted = after;
        }
    }

    /// Adds a tombstone of the list to the live index. If that fails, or the comparator panics, the list answers from
    /// then on.
    pub(crate) fn index(&self, ground: Ground<'_>, write: &Fields<'_>) {
        let unless_indexed = ListAnswers { control: &ground.arena.control };
        if self.live.insert(ground.comparator, write.key, write.value, write.sequence).is_ok() {
            std::mem::forget(unless_indexed);
        }
    }

    /// Whether a range tombstone was written. A damaged flag, or one that is being set, counts as yes.
    #[inline(always)]
    pub(crate) fn may_be_any(&self, arena: &Arena) -> bool {
        if planted(Bug::ZeroedFlagBelieved) {
            return !matches!(arena.control.get_so_far(ControlWord::HAS_RANGES), Ok(0));
        }
        !matches!(arena.control.get(ControlWord::HAS_RANGES), Ok(0))
    }

    /// Whether the live index has every tombstone. A damaged flag counts as no.
    #[inline(always)]
    fn index_complete(&self, arena: &Arena) -> bool {
        matches!(arena.control.get(ControlWord::INDEX_LOST), Ok(0))
    }

    /// The sequence number of the tombstone that the question is about.
    #[inline(always)]
    pub(crate) fn covering(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        if !self.may_be_any(ground.arena) {
            return Ok(None);
        }
        let answer = match self.frozen.get() {
            Some(frozen) => frozen.max_covering(ground.comparator, question),
            None if self.index_complete(ground.arena) => self.live.max_covering(ground.comparator, question),
            None => self.covering_truth(ground, question),
        };
        answer.or_else(|_| self.covering_otherwise(ground, question))
    }

    /// The newest range tombstone over each of several keys, above the floor of each. `None` if the keys must be
    /// asked one by one.
    pub(crate) fn covering_many<'k, const N: usize>(
        &self,
        ground: Ground<'_>,
        keys: impl Iterator<Item = (&'k [u8], Option<SequenceNumber>)>,
        snapshot: SequenceNumber,
    ) -> Option<[Option<SequenceNumber>; N]> {
        if !self.may_be_any(ground.arena) {
            return Some([None; N]);
        }
        let mut asked = [Asked::new(ground.comparator, &[], SequenceNumber::MAX); N];
        let mut count = 0;
        for (slot, (key, floor)) in asked.iter_mut().zip(keys) {
            *slot = Asked::new(ground.comparator, key, floor.unwrap_or(0));
            count += 1;
        }
        let asked = asked.get_mut(..count)?;
        match self.frozen.get() {
            Some(frozen) => frozen.ask(ground.comparator, snapshot, asked).ok()?,
            None if self.index_complete(ground.arena) => {
                self.live.ask(ground.comparator, snapshot, asked).ok()?;
            }
            None => return None,
        }
        let mut answers = [None; N];
        for (answer, one) in answers.iter_mut().zip(asked) {
            *answer = one.answer().map(|(sequence, _)| sequence);
        }
        Some(answers)
    }

    /// Asks the other sources in turn (RANGE-TOMBSTONES-1).
    #[cold]
    fn covering_otherwise(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        if !self.index_complete(ground.arena) {
            return self.covering_truth(ground, question);
        }
        let live = self.live.max_covering(ground.comparator, question);
        live.or_else(|_| self.covering_truth(ground, question))
    }

    /// Walks the list over the tombstones that start at or before the key. O(tombstones).
    #[cold]
    fn covering_truth(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        let search = self.search(ground)?;
        let last = Target::behind_key(ground.comparator, question.key);
        let mut best = question.floor;
        let mut at = search.sentinel;
        while let Some(entry) = search.next(at).map_err(|gap| gap.corruption)? {
            if !entry.node().order(ground.comparator, &last).is_lt() {
                break;
            }
            let sequence = entry.node().sequence();
            if sequence <= question.snapshot
                && sequence > best
                && ground.comparator.compare(question.key, entry.value(search.view.width)?).is_lt()
            {
                best = sequence;
            }
            at = entry.offset();
        }
        Ok((best > question.floor).then_some(best))
    }

    /// See [`covering`](Self::covering). Writes the interval of that tombstone as well; it is empty if no index answers.
    pub(crate) fn covering_run(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
        run: &mut CoveringRun,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        if !self.may_be_any(ground.arena) {
            return Ok(None);
        }
        let found = match self.frozen.get() {
            Some(frozen) => frozen.covering_run_into(ground.comparator, question, run).ok(),
            None if self.index_complete(ground.arena) => {
                self.live.covering_run_into(ground.comparator, question, run).ok()
            }
            None => None,
        };
        match found {
            Some(found) => Ok(found.map(|()| run.sequence)),
            None => {
                *run = CoveringRun::default();
                self.covering_otherwise(ground, question)
            }
        }
    }

    /// Iterates over all stored tombstones by start and descending sequence number. Each is verified; a damaged one
    /// is an error.
    pub(crate) fn stored<'t>(&self, ground: Ground<'t>) -> Vec<Result<Tombstone<'t>, Corruption>> {
        let search = match self.search(ground) {
            Ok(search) => search,
            Err(corruption) => return vec![Err(corruption)],
        };
        let expected = self.live.len().unwrap_or(0);
        let mut tombstones = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        let mut next = search.find_at_or_after(&Target::extreme(Side::Start));
        // The number of steps is bounded by the entries that fit the arena, wherever damaged links lead.
        let room = ground.arena.room.handed_bytes() / HEADER as u64;
        let mut from = search.sentinel;
        for _ in 0..=room {
            let at = match next {
                Ok(None) => return tombstones,
                Ok(Some(entry)) => {
                    let sequence = entry.node().sequence();
                    tombstones.push(entry.value(search.view.width).map(|end| (entry.key(), end, sequence)));
                    entry.offset()
                }
                Err(gap) => {
                    tombstones.push(Err(gap.corruption));
                    if gap.after == search.sentinel || gap.after == from {
                        return tombstones;
                    }
                    if let Ok(Some(entry)) = search.verified(gap.after) {
                        let end = entry.value(search.view.width);
                        tombstones.push(end.map(|end| (entry.key(), end, entry.node().sequence())));
                    }
                    gap.after
                }
            };
            from = at;
            next = search.next(at);
        }
        tombstones.push(Err(Corruption::new(Place::Order, 0, room, room + 1)));
        tombstones
    }

    /// Compares the number of tombstones in each index of a frozen table with `listed`, that of the list.
    /// O(tombstones).
    pub(crate) fn compare(&self, arena: &Arena, listed: u64) -> Result<(), Corruption> {
        let live = self.index_complete(arena).then(|| self.live.held());
        let frozen = self.frozen.get().and_then(FrozenTombstones::held);
        match live.into_iter().chain(frozen).find(|held| *held != listed) {
            Some(held) => Err(Corruption::new(Place::Sum, 0, listed, held)),
            None => Ok(()),
        }
    }

    /// Builds the index of the frozen table, without holding a lock that writers or readers take. Readers use the
    /// live index until then. If a second thread freezes meanwhile, both build one.
    pub(crate) fn freeze(&self, ground: Ground<'_>) {
        if !self.may_be_any(ground.arena) || self.frozen.get().is_some() {
            return;
        }
        let Ok(view) = ground.arena.view() else { return };
        let built = FrozenTombstones::build(ground.comparator, view.secret, self.stored(ground));
        if let Ok(frozen) = built {
            let _ = self.frozen.set(frozen);
        }
    }
}

impl SideStructure for RangeTombstones {
    /// Both indexes.
    fn heap_bytes(&self) -> u64 {
        self.live.allocated_bytes() + self.frozen.get().map_or(0, FrozenTombstones::allocated_bytes)
    }

    /// Verifies both indexes.
    fn scrub(
        &self,
        _arena: &Arena,
        settle: &mut Settle<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), Corruption> {
        self.live.scrub(settle, report);
        if let Some(frozen) = self.frozen.get() {
            frozen.scrub(report);
        }
        Ok(())
    }

    #[cfg(feature = "fault-injection")]
    fn fault_words(&self, _arena: &Arena, visit: &mut VisitWords<'_>) -> Result<(), Corruption> {
        let frozen = self.frozen.get().map(FrozenTombstones::index);
        for index in std::iter::once(&self.live).chain(frozen) {
            index.regions(&mut |_, words| visit(FaultWords::TombstoneIndex, words));
        }
        Ok(())
    }
}

/// Dropped where a tombstone got into the list and not into the index, by an error or by a panic of the comparator:
/// from then on the list answers.
struct ListAnswers<'t> {
    control: &'t Control,
}

impl Drop for ListAnswers<'_> {
    fn drop(&mut self) {
        self.control.set(ControlWord::INDEX_LOST, 1);
    }
}
