//! Nearby search: for a writer whose next entry is close to its last one, and for a hint of the directory.
//!
//! ```text
//!   last -> . -> . -> [pred | succ]     a few hops on level 0, then a bracket like that of every search (SEARCH-2)
//! ```
//! Any thread; lock-free. Anything unusual is left to a search from the top.

#![forbid(unsafe_code)]

use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::key::{Direction, Kind, Target};
use crate::memtable::arena::layout::Head;
use crate::memtable::arena::node::{Node, Verified};
use crate::memtable::directory::lookup::{GROUP, Hint, LeafSlot, Pages};
use crate::memtable::skiplist::search::{Bracket, Gap, Search, Splice, Trail};
use crate::prefetch::prefetch_read;

/// Hops on level 0 from a hint before the towers are asked: a leaf and a half of entries.
const HINT_HOPS: u32 = 64;
/// Slots that are tried for a way around a broken link.
const SLOTS_TRIED: i32 = 8;

impl<'a> Search<'a> {
    /// The directory of this list, if it has one.
    #[inline(always)]
    pub(crate) fn directory(&self) -> Pages<'_, 'a> {
        Pages { view: &self.view, comparator: self.comparator, root: self.course.directory }
    }

    /// The directory's hint for a target that has a key.
    #[inline(always)]
    pub(super) fn ask_directory(&self, target: &Target<'_>) -> Option<Hint> {
        if self.course.directory == 0 || target.is_extreme() {
            return None;
        }
        let hint = self.directory().lookup(target)?;
        self.prefetch_hint(&hint);
        Some(hint)
    }

    /// [`ask_directory`](Self::ask_directory), compiled once for searches that are rare or long.
    #[inline(never)]
    pub(super) fn hint(self, target: &Target<'_>) -> Option<Hint> {
        self.ask_directory(target)
    }

    /// Prefetches the two nodes that a hint names.
    #[inline(always)]
    pub(crate) fn prefetch_hint(&self, hint: &Hint) {
        self.prefetch_node(hint.before, 0);
        if hint.after != 0 {
            self.prefetch_entry(hint.after);
        }
    }

    /// Searches on from a hint. `None`: a useless hint, or anything unusual.
    #[inline(always)]
    pub(crate) fn find_from_hint(
        &self,
        hint: &Hint,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        let start = if hint.before == 0 { self.sentinel } else { hint.before };
        let bracket = self.find_near(start, HINT_HOPS, target, trail)?;
        if bracket.entry.is_some_and(|entry| !self.is_held(&entry)) {
            return None;
        }
        trail.start_at(hint);
        Some(bracket)
    }

    /// The first node not before the target that the directory names and that level 0 leads to, if it comes before `right`;
    /// else `right`.
    #[cold]
    pub(super) fn nearest_named(&self, target: &Target<'_>, right: u32) -> u32 {
        let directory = self.directory();
        let Some(hint) = self.hint(target) else { return right };
        let slots = (0..SLOTS_TRIED).map_while(|ahead| directory.moved(hint.at, ahead));
        let mut nodes = slots.map(|at| directory.named(at));
        nodes.find(|node| self.is_between(*node, target, right)).unwrap_or(right)
    }

    /// Whether a node is one of this list, not before the target, and before `right`. A node that its writer has not linked
    /// yet, or never will, is none of the list.
    fn is_between(&self, node: u32, target: &Target<'_>, right: u32) -> bool {
        let Ok(Some(entry)) = self.verified(node) else { return false };
        let left = self.view.back_hint(node).filter(|left| self.view.try_link(*left, 0) == Some(node));
        let before_right = match self.verified(right) {
            Ok(Some(right)) => entry.node().order(self.comparator, &self.position(right.node())).is_lt(),
            Ok(None) => true,
            Err(_) => false,
        };
        left.is_some() && before_right && self.is_held(&entry) && !self.is_before(entry.node(), target)
    }

    /// Whether this list holds such entries: a damaged hint may name a node of the other one.
    #[inline(always)]
    fn is_held(&self, entry: &Verified<'a>) -> bool {
        (entry.kind() == Kind::RANGE_DELETE) == (self.holds == Head::Ranges)
    }

    /// Searches at most `hops` steps on level 0 from `at`, opening each node once. `None` if the place is not found
    /// or anything unusual is met.
    #[inline(always)]
    pub(crate) fn find_near(
        &self,
        at: u32,
        hops: u32,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        let pred = match at {
            start if start == self.sentinel => None,
            last => {
                let node = self.view.try_open(last)?;
                if !self.is_before(&node, target) {
                    return None;
                }
                Some(node)
            }
        };
        let (next, succ, back) = self.next_with_back(at)?;
        trail.visit();
        let near = match succ {
            Some(node) if self.is_before(&node, target) => {
                if let (Some(entered), SeekChecks::EveryNode) = (pred, self.seek_checks) {
                    entered.try_verify(&self.view)?;
                }
                self.hop_on(next, node, hops, target, trail)?
            }
            _ => self.certify_opened((at, pred), (next, succ, back))?,
        };
        trail.record(0, near.pred);
        Some(near)
    }

    /// Steps over at most `hops` further nodes, to the bracket of the target. `pred` is before the target.
    #[inline(never)]
    fn hop_on(
        &self,
        mut at: u32,
        mut pred: Node<'a>,
        hops: u32,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        for _ in 0..hops {
            trail.visit();
            if self.seek_checks == SeekChecks::EveryNode {
                pred.try_verify(&self.view)?;
            }
            let (next, succ, back) = self.next_with_back(at)?;
            match succ {
                Some(node) if self.is_before(&node, target) => (at, pred) = (next, node),
                _ => return self.certify_opened((at, Some(pred)), (next, succ, back)),
            }
        }
        None
    }

    #[inline(always)]
    fn is_before(&self, node: &Node<'a>, target: &Target<'_>) -> bool {
        node.order(self.comparator, target).is_lt()
    }

    /// The next node on level 0, open (the sentinel is `None`), and the node that its back link names.
    #[inline(always)]
    fn next_with_back(&self, at: u32) -> Option<(u32, Option<Node<'a>>, u32)> {
        let next = self.view.try_link(at, 0)?;
        if next == self.sentinel {
            return Some((next, None, self.view.back_target(next)?));
        }
        let (node, back) = self.view.try_open_with_back(next)?;
        Some((next, Some(node), back))
    }

    /// Verifies both sides of a bracket (SEARCH-2) that are open.
    #[inline(always)]
    fn certify_opened(
        &self,
        (at, pred): (u32, Option<Node<'a>>),
        (next, succ, back): (u32, Option<Node<'a>>, u32),
    ) -> Option<Bracket<'a>> {
        if back != at {
            self.view.question(self.sentinel, at, next).ok()?;
        }
        if let Some(node) = pred {
            node.try_verify(&self.view)?;
        }
        let entry = match succ {
            Some(node) => Some(node.try_verify(&self.view)?),
            None => None,
        };
        if self.order_checks == OrderChecks::On && !self.is_in_order(at, next) {
            return None;
        }
        Some(Bracket { pred: at, succ: next, entry })
    }

    /// Order checks of two nodes, by offset, so that walks without these checks keep open nodes in registers.
    #[cold]
    #[inline(never)]
    fn is_in_order(self, left: u32, right: u32) -> bool {
        let (Ok(left), Ok(right)) = (self.verified(left), self.verified(right)) else { return false };
        self.check_order(left.as_ref(), right.as_ref()).is_ok()
    }
}

// Searches for many targets at once: what one stage finds, all of its targets ask for before the next stage reads it.
//
// ```text
//   directory   page by page, level by level, for all targets; then the nodes that the hints name are asked for
//   list        from each hint to its bracket
// ```
// * STAGED-SEARCH-1: each target has the outcome of a search of its own, and gets exactly one.
//
// Any thread. Nothing is allocated. Without a directory the searches follow one another.

/// Finds the brackets of many targets. `done` gets each target's number and outcome, and the way that led there.
pub(crate) fn find_many<'a>(
    search: &Search<'a>,
    targets: &[Target<'_>],
    done: &mut impl FnMut(usize, Result<Bracket<'a>, Gap>, &Trail<'_>),
) {
    for (group, targets) in targets.chunks(GROUP).enumerate() {
        let mut hints = [None; GROUP];
        if search.directory != 0 {
            search.directory().lookup_many(targets, &mut hints, |hint| search.prefetch_hint(hint));
        }
        for (place, (target, hint)) in targets.iter().zip(&hints).enumerate() {
            let mut splice = Splice::new(search.sentinel);
            let mut trail = Trail::from(&mut splice);
            let outcome = search.find_by(hint.as_ref(), target, &mut trail);
            done(group * GROUP + place, outcome, &trail);
        }
    }
}

// Prefetches what a walk reads next: along level 0 where neighbours lie side by side, along the directory elsewhere.
//
// ```text
//   side by side   at -> next -> . -> . -> .             2048 bytes further on
//   elsewhere      leaf [ .. expected . . . . . far .. ]   the walk meets `expected`: the slot after `far` is asked for
// ```
// * READ-AHEAD-1: nothing that is read here is used for answers.
//
// Any thread; lock-free. A list without a directory is read ahead only where neighbours lie side by side.

/// Neighbours at most this far apart, in arena units, were probably written one after the other.
pub(super) const NEAR_UNITS: u32 = 128;
/// Such neighbours are prefetched this many bytes ahead, farther than the processor does by itself.
const NEAR_AHEAD: i32 = 2048;
/// Lines that a writer reaches in a few entries are this many bytes ahead.
const WRITER_AHEAD: i32 = 1024;
/// How many named nodes the read-ahead is ahead in the directory.
const AHEAD: i32 = 6;
/// After this many steps to nodes elsewhere without meeting its path the read-ahead starts again, because it went astray or
/// the walk is a new one.
const PATIENCE: u32 = 24;
/// After this many steps in a row to neighbours side by side the read-ahead leaves the directory alone.
const LONG_RUN: u32 = 16;

/// Where a walk and its read-ahead are in the directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadAhead {
    /// Steps to nodes elsewhere since the walk met `expected`.
    steps: u32,
    /// Steps in a row to neighbours side by side, up to `LONG_RUN`.
    run: u32,
    /// The next node on the walk that the directory names, and its slot.
    expected: u32,
    next: LeafSlot,
    /// The slot of the last node that was prefetched.
    far: LeafSlot,
}

impl Default for ReadAhead {
    /// Not started: it starts at the first two entries that are not adjacent in memory.
    fn default() -> Self {
        ReadAhead { steps: PATIENCE, run: 0, expected: 0, next: LeafSlot::NONE, far: LeafSlot::NONE }
    }
}

impl ReadAhead {
    /// Whether the read-ahead moves after a step to this node, which lies elsewhere.
    #[inline(always)]
    fn is_due_elsewhere(&mut self, node: u32) -> bool {
        self.run = 0;
        self.steps += 1;
        node == self.expected || self.steps > PATIENCE
    }

    /// Whether the read-ahead moves after a step to this node, which lies beside the one before. In a long run of such
    /// steps it rests; the first step out of the run starts it again.
    #[inline(always)]
    fn is_due_beside(&mut self, node: u32) -> bool {
        self.run += 1;
        if self.run > LONG_RUN {
            (self.run, self.steps) = (LONG_RUN, PATIENCE);
            return false;
        }
        node == self.expected
    }
}

impl<'a> Search<'a> {
    /// The first entry at or after a position, where a walk begins. What lies behind that place in the directory is
    /// prefetched first.
    pub(crate) fn find_ahead(
        &self,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
    ) -> Result<Option<Verified<'a>>, Gap> {
        let hint = self.hint(target);
        if let Some(hint) = &hint {
            self.start_at_place(read_ahead, hint.at, Direction::Forward);
        }
        Ok(self.find_by(hint.as_ref(), target, &mut Trail::default())?.entry)
    }

    /// After a step from `at` to `to`, prefetches what lies beside `to` on the far side. `true`: the caller must move
    /// the read-ahead, with `read_on` or `read_back`.
    #[inline(always)]
    pub(crate) fn prefetch_beside(&self, read_ahead: &mut ReadAhead, at: u32, to: u32) -> bool {
        if to.wrapping_sub(at) <= NEAR_UNITS {
            self.prefetch_lines(to, NEAR_AHEAD);
        } else if at.wrapping_sub(to) <= NEAR_UNITS {
            self.prefetch_lines(to, -NEAR_AHEAD);
        } else {
            return self.directory != 0 && read_ahead.is_due_elsewhere(to);
        }
        self.directory != 0 && read_ahead.is_due_beside(to)
    }

    /// Moves the read-ahead after a step forward to a node that it was due for.
    pub(crate) fn read_on(self, read_ahead: &mut ReadAhead, next: u32) {
        self.move_on(read_ahead, next, Direction::Forward);
    }

    /// Moves the read-ahead after a step back.
    pub(crate) fn read_back(self, read_ahead: &mut ReadAhead, prev: u32) {
        self.move_on(read_ahead, prev, Direction::Backward);
    }

    #[inline(always)]
    fn move_on(self, read_ahead: &mut ReadAhead, node: u32, direction: Direction) {
        if node == read_ahead.expected {
            self.advance_in_directory(read_ahead, direction);
        } else {
            self.start_in_directory(read_ahead, node, direction);
        }
    }

    #[inline(always)]
    fn advance_in_directory(&self, read_ahead: &mut ReadAhead, direction: Direction) {
        read_ahead.steps = 0;
        (read_ahead.next, read_ahead.expected) = self.named_after(read_ahead.next, direction);
        self.ask_further(read_ahead, direction);
    }

    /// Prefetches one more node.
    #[inline(always)]
    fn ask_further(&self, read_ahead: &mut ReadAhead, direction: Direction) {
        let (far, node) = self.named_after(read_ahead.far, direction);
        read_ahead.far = far;
        if node != 0 {
            self.prefetch_entry(node);
        }
    }

    /// The place after another one in the directory, and the node that it names; 0: none.
    #[inline(always)]
    fn named_after(&self, at: LeafSlot, direction: Direction) -> (LeafSlot, u32) {
        let next = LeafSlot { slot: at.slot.wrapping_add_signed(direction.pick((-1, 1))), ..at };
        match self.directory().named(next) {
            0 => self.named_beside(at, direction),
            node => (next, node),
        }
    }

    /// The place after the last one of a leaf. Takes the search by value, as all that is called from steps does, so that these
    /// keep it in registers.
    #[inline(never)]
    fn named_beside(self, at: LeafSlot, direction: Direction) -> (LeafSlot, u32) {
        let directory = self.directory();
        let Some(next) = directory.moved(at, direction.pick((-1, 1))) else { return (LeafSlot::NONE, 0) };
        if next.leaf != at.leaf {
            directory.prefetch_leaf(direction.pick(directory.beside(next.leaf)));
        }
        (next, directory.named(next))
    }

    /// Starts the read-ahead where the walk is.
    #[inline(never)]
    fn start_in_directory(self, read_ahead: &mut ReadAhead, node: u32, direction: Direction) {
        read_ahead.steps = 0;
        read_ahead.expected = 0;
        let Some(opened) = self.view.try_open(node) else { return };
        let Some(hint) = self.hint(&self.position(&opened)) else { return };
        let is_before = direction == Direction::Forward && hint.after != node;
        let slot = if is_before { hint.at.slot.wrapping_sub(1) } else { hint.at.slot };
        self.start_at_place(read_ahead, LeafSlot { slot, ..hint.at }, direction);
    }

    /// Starts the read-ahead at this slot.
    #[inline(always)]
    fn start_at_place(&self, read_ahead: &mut ReadAhead, place: LeafSlot, direction: Direction) {
        read_ahead.steps = 0;
        read_ahead.far = place;
        for _ in 0..AHEAD {
            self.ask_further(read_ahead, direction);
        }
        (read_ahead.next, read_ahead.expected) = self.named_after(place, direction);
    }

    /// Prefetches the lines of the entry that is expected `distance` bytes away.
    #[inline(always)]
    fn prefetch_lines(&self, from: u32, distance: i32) {
        if let Some(address) = self.view.locate_near(from) {
            let there = address.wrapping_add_signed(distance as isize);
            for line in 0..3 {
                prefetch_read(std::ptr::without_provenance(there.wrapping_add(64 * line)));
            }
        }
    }

    /// Prefetches lines that a writer reaches in a few entries.
    #[inline(always)]
    pub(crate) fn prefetch_ahead(&self, unit: u32) {
        self.prefetch_lines(unit, WRITER_AHEAD);
    }

    /// Prefetches the lines of a whole entry of usual size: one of 160 bytes reaches a fourth line in three cases of eight.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, node: u32) {
        let Some(address) = self.view.locate_near(node).or_else(|| self.locate_far(node)) else { return };
        for line in 0..4 {
            prefetch_read(std::ptr::without_provenance(address + 64 * line));
        }
    }

    #[cold]
    #[inline(never)]
    fn locate_far(self, node: u32) -> Option<usize> {
        self.view.locate(node).map(|(address, _)| address)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;
    use crate::integrity::digest::Width;
    use crate::integrity::hash::Secret;
    use crate::integrity::options::{OrderChecks, SeekChecks};
    use crate::key::Kind;
    use crate::memtable::arena::arena::{Arena, ArenaOptions};
    use crate::memtable::arena::encode::Fields;
    use crate::memtable::arena::layout::Head;
    use crate::memtable::skiplist::inserter::Inserter;
    use crate::memtable::skiplist::list::{DuplicatePolicy, List};
    use crate::sync::Ordering;

    /// Every bit of every key in turn: many searches end where single searches end, in a bracket or in a gap, and never in a
    /// wrong answer.
    #[test]
    fn many_searches_end_where_single_ones_end_also_over_damage() {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let options = ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret };
        let arena = Arena::new(&options).unwrap();
        let list = List::new(&arena, Head::Points, SeekChecks::Bracket, OrderChecks::Off).unwrap();
        let list = list.with_directory(&arena).unwrap();
        let search = list.search(Head::Points, arena.view().unwrap(), &BYTEWISE);
        let mut inserter = Inserter::default();
        let keys: Vec<[u8; 8]> = (0..40u64).map(|n| (n * 0x0101_0204).to_be_bytes()).collect();
        for key in &keys {
            let fields = Fields::new(1, Kind::PUT, key, b"v", None);
            let placed = list.insert(&search, &mut inserter, &fields, DuplicatePolicy::Reject).unwrap();
            list.link_tower(&search, &mut inserter, &fields, placed.linked.tower);
        }
        let targets: Vec<_> = keys.iter().map(|key| Target::new(&BYTEWISE, key, u64::MAX)).collect();
        let told = |outcome: Result<Bracket<'_>, Gap>| {
            outcome
                .map(|bracket| bracket.entry.map(|entry| entry.key().to_vec()))
                .map_err(|gap| gap.corruption)
        };
        let answers = || {
            let mut answers = vec![None; targets.len()];
            find_many(&search, &targets, &mut |index, outcome, _| {
                assert!(answers[index].replace(told(outcome)).is_none(), "{index} was answered twice");
            });
            answers
        };
        let stride = if cfg!(debug_assertions) { 3 } else { 1 };
        let mut at = search.sentinel;
        while let Some(entry) = search.next(at).unwrap() {
            at = entry.node().offset();
            // The key starts 44 bytes after the node and is 8 long: two words hold it.
            for (unit, bit) in
                (0..2).flat_map(|word| (0..64).step_by(stride).map(move |bit| (at + 5 + word, bit)))
            {
                let word = search.view.word(unit).unwrap();
                // ORDERING: Relaxed: one thread.
                word.fetch_xor(1 << bit, Ordering::Relaxed);
                for ((target, key), answer) in targets.iter().zip(&keys).zip(answers()) {
                    let answer = answer.unwrap();
                    assert_eq!(
                        answer,
                        told(search.find(target, &mut Trail::default())),
                        "bit {bit} of {unit}"
                    );
                    assert!(!answer.is_ok_and(|found| found.as_deref() != Some(key)), "bit {bit} of {unit}");
                }
                // ORDERING: Relaxed: one thread.
                word.fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
    }
}
