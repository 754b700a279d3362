//! Steps along level 0, both ways.
//!
//! ```text
//!   next   at --link--> next                     verified; a damaged node is passed by its own link
//!   prev   at --hint--> h --link--> .. --> at     a back link is a hint that forward links confirm
//! ```
//! * ITERATE-1: a step's answer is certified: the link's tag matched, the back link of the node that it names vouches
//!   for it (`witness.rs`), and the entry's key digest verified.
//! * ITERATE-2: what cannot be certified is a `Gap` between intact nodes, found through upper levels and back links.
//!
//! Any thread; lock-free. A step back is expected O(1): a stale hint is walked forward, and renewed.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::options::OrderChecks;
use crate::key::{Comparator, Side, Target};
use crate::memtable::skiplist::directory::lookup::Hint;
use crate::memtable::skiplist::node::{Node, Verified};
use crate::memtable::skiplist::search::{Gap, NoTrail, Search, Trail};
use crate::memtable::skiplist::witness::Doubt;
use crate::planted::{Bug, planted};
use crate::prefetch::prefetch_read;

/// Neighbours at most this far apart, in arena units, were probably written one after the other.
pub(super) const NEAR_UNITS: u32 = 128;
/// Such neighbours are prefetched this many bytes ahead, farther than the processor does by itself.
const NEAR_AHEAD: isize = 2048;
/// The read-ahead is this many nodes of level 1 ahead, with 2.7 entries each.
const LEAD: usize = 4;
/// Between two nodes of level 1 this many entries are prefetched; there are more in one case of seven.
const FOLLOWERS: usize = 4;
/// After this many steps without meeting its path the read-ahead starts again, because it went astray or the walk is
/// a new one.
const PATIENCE: u32 = 24;

/// The state of prefetching: a read-ahead runs ahead on level 1, and followers go along level 0 from each node that
/// it passed, one step at a time. Nothing that they read is used for answers.
///
/// ```text
///   level 1   at -------------> a -------------> b ------------> c      way: a, b, c; the walk meets a: c goes on
///   level 0   at -> . -> . ---> a -> . -> y ---> b -> x -> . --> c      followers: x, y, ..
/// ```
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadAhead {
    way: [u32; LEAD],
    followers: [u32; FOLLOWERS],
    steps: u32,
    /// Of the nodes that the directory names the one that the walk meets next, and its leaf and slot.
    expected: u32,
    next: (u32, u32),
    /// Leaf and slot of the last one that was asked for.
    far: (u32, u32),
}

/// How many named nodes the read-ahead is ahead in the directory.
const AHEAD: i32 = 6;

/// Which way a walk goes on in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Onward {
    Up,
    Down,
}

impl Onward {
    /// So many slots further on.
    #[inline(always)]
    fn by(self, slots: i32) -> i32 {
        match self {
            Onward::Up => slots,
            Onward::Down => -slots,
        }
    }

    /// The leaf that comes next of the two beside one.
    fn of(self, (before, after): (u32, u32)) -> u32 {
        match self {
            Onward::Up => after,
            Onward::Down => before,
        }
    }
}

impl Default for ReadAhead {
    /// Not started: it starts at the first two entries that are not adjacent in memory.
    fn default() -> Self {
        ReadAhead {
            way: [0; LEAD],
            followers: [0; FOLLOWERS],
            steps: PATIENCE,
            expected: 0,
            next: (0, 0),
            far: (0, 0),
        }
    }
}

/// A search from which a walk goes on upwards.
impl Trail for ReadAhead {
    #[inline(always)]
    fn record(&mut self, _level: u32, _at: u32) {}
    #[inline(always)]
    fn ask_ahead<C: Comparator>(&mut self, search: &Search<'_, C>, hint: &Hint) {
        search.start_at_place(self, (hint.leaf, hint.slot), Onward::Up);
    }
}

/// Longest walk along stale hints before a search takes over.
const HINT_HOPS_MAX: u32 = 64;

impl<'a, C: Comparator> Search<'a, C> {
    /// The entry after `at`, or the first one if `at` is the sentinel. `None` if it cannot be certified; `next` then
    /// tells why.
    #[inline(always)]
    pub(crate) fn try_next(&self, at: u32) -> Option<Option<Verified<'a>>> {
        let next = self.view.try_link(at, 0)?;
        let entry = self.vouched(at, next).ok()?;
        if let Some(entry) = &entry
            && self.order_checks == OrderChecks::On
            && at != self.sentinel
        {
            self.confirm_order(&self.view.try_open(at)?, entry.node())?;
        }
        Some(entry)
    }

    /// Order checks of a plain step: the neighbour that the walk comes from was verified when it came there.
    #[inline]
    fn confirm_order(&self, left: &Node<'a>, right: &Node<'a>) -> Option<()> {
        left.order(self.comparator, &self.position(right)).is_lt().then_some(())
    }

    /// The entry after `at` (the sentinel: the first one).
    #[inline(always)]
    pub(crate) fn next(&self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        match self.try_next(at) {
            Some(entry) => Ok(entry),
            None => self.next_or_gap(at),
        }
    }

    /// Prefetches what a walk along level 0 needs next. Called for every step from `at` to `next`.
    #[inline(always)]
    pub(crate) fn look_ahead(&self, read_ahead: &mut ReadAhead, at: u32, next: u32) {
        if next.wrapping_sub(at) <= NEAR_UNITS {
            self.prefetch_lines(next, NEAR_AHEAD);
        }
        if self.directory != 0 {
            return self.follow_directory(read_ahead, next, next.wrapping_sub(at), Onward::Up);
        }
        if at == read_ahead.way[0] {
            self.advance_read_ahead(read_ahead);
        } else if read_ahead.steps < PATIENCE {
            read_ahead.steps += 1;
        } else if next.wrapping_sub(at) > NEAR_UNITS {
            self.start_read_ahead(read_ahead, at);
        }
    }

    /// Prefetches memory that later steps back need: where entries are in order in memory, or along the directory. Only
    /// level 0 has back links.
    #[inline(always)]
    pub(crate) fn look_back(&self, read_ahead: &mut ReadAhead, at: u32, prev: u32) {
        if at.wrapping_sub(prev) <= NEAR_UNITS {
            self.prefetch_lines(prev, -NEAR_AHEAD);
        }
        if self.directory != 0 {
            self.follow_directory(read_ahead, prev, at.wrapping_sub(prev), Onward::Down);
        }
    }

    /// The walk has come to a node, over so many units: asks for the one that is named a few slots further on.
    #[inline(always)]
    fn follow_directory(&self, read_ahead: &mut ReadAhead, node: u32, distance: u32, onward: Onward) {
        if node == read_ahead.expected {
            self.advance_in_directory(read_ahead, onward);
        } else if read_ahead.steps < PATIENCE {
            read_ahead.steps += 1;
        } else if distance > NEAR_UNITS {
            self.start_in_directory(read_ahead, node, onward);
        }
    }

    #[inline(always)]
    fn advance_in_directory(&self, read_ahead: &mut ReadAhead, onward: Onward) {
        read_ahead.steps = 0;
        (read_ahead.next, read_ahead.expected) = self.named_after(read_ahead.next, onward);
        self.ask_further(read_ahead, onward);
    }

    /// Asks for one more node.
    #[inline(always)]
    fn ask_further(&self, read_ahead: &mut ReadAhead, onward: Onward) {
        let (far, node) = self.named_after(read_ahead.far, onward);
        read_ahead.far = far;
        if node != 0 {
            self.prefetch_entry(node);
        }
    }

    /// The place after another one in the directory, and the node that it names; 0: none.
    #[inline(always)]
    fn named_after(&self, (leaf, slot): (u32, u32), onward: Onward) -> ((u32, u32), u32) {
        let next = slot.wrapping_add_signed(onward.by(1));
        match self.directory().named(leaf, next) {
            0 => self.named_beside((leaf, slot), onward),
            node => ((leaf, next), node),
        }
    }

    /// The place after the last one of a leaf. Takes the search by value, as all that is called from steps does, so that these
    /// keep it in registers.
    #[inline(never)]
    fn named_beside(self, (leaf, slot): (u32, u32), onward: Onward) -> ((u32, u32), u32) {
        let directory = self.directory();
        let Some((next, slot)) = directory.moved(leaf, slot, onward.by(1)) else { return ((0, 0), 0) };
        if next != leaf {
            directory.prefetch_leaf(onward.of(directory.beside(next)));
        }
        ((next, slot), directory.named(next, slot))
    }

    /// Looks the node up that the walk has come to.
    #[inline(never)]
    fn start_in_directory(self, read_ahead: &mut ReadAhead, node: u32, onward: Onward) {
        read_ahead.steps = 0;
        read_ahead.expected = 0;
        let Some(opened) = self.view.try_open(node) else { return };
        let Some(hint) = self.directory().lookup(&self.position(&opened)) else { return };
        let is_before = onward == Onward::Up && hint.after != node;
        let slot = if is_before { hint.slot.wrapping_sub(1) } else { hint.slot };
        self.start_at_place(read_ahead, (hint.leaf, slot), onward);
    }

    /// The walk stands at a place of the directory.
    #[inline(always)]
    fn start_at_place(&self, read_ahead: &mut ReadAhead, place: (u32, u32), onward: Onward) {
        read_ahead.steps = 0;
        read_ahead.far = place;
        for _ in 0..AHEAD {
            self.ask_further(read_ahead, onward);
        }
        (read_ahead.next, read_ahead.expected) = self.named_after(place, onward);
    }

    /// Prefetches the lines of the entry that is expected `distance` bytes away.
    #[inline(always)]
    fn prefetch_lines(&self, from: u32, distance: isize) {
        if let Some(address) = self.view.locate_near(from) {
            let there = address.wrapping_add_signed(distance);
            for line in 0..3 {
                prefetch_read(std::ptr::without_provenance(there.wrapping_add(64 * line)));
            }
        }
    }

    /// Advances the read-ahead by one node, and its followers by one step, when the walk reaches the next node of its
    /// path.
    #[inline(never)]
    fn advance_read_ahead(self, read_ahead: &mut ReadAhead) {
        for follower in (1..FOLLOWERS).rev() {
            let from = read_ahead.followers[follower - 1];
            read_ahead.followers[follower] = self.send(from, 0).unwrap_or(from);
        }
        let last = read_ahead.way[LEAD - 1];
        read_ahead.followers[0] = self.send(last, 0).unwrap_or(last);
        read_ahead.way.rotate_left(1);
        read_ahead.way[LEAD - 1] = self.send(last, 1).unwrap_or(0);
        read_ahead.steps = 0;
    }

    /// Starts the read-ahead at `at`, if that is a node on level 1.
    #[cold]
    fn start_read_ahead(self, read_ahead: &mut ReadAhead, at: u32) {
        if self.view.try_link(at, 1).is_some() {
            *read_ahead = ReadAhead { way: [at; LEAD], followers: [at; FOLLOWERS], steps: 0, ..*read_ahead };
            for _ in 0..LEAD {
                self.advance_read_ahead(read_ahead);
            }
        }
    }

    /// Prefetches the node that a link names.
    #[inline(always)]
    fn send(&self, from: u32, level: u32) -> Option<u32> {
        let to = self.view.peek_link(from, level).filter(|to| *to != self.sentinel)?;
        self.prefetch_entry(to);
        Some(to)
    }

    /// Repeats the step and reports what is wrong. Takes the search by value, so that its callers keep it in
    /// registers.
    #[cold]
    #[inline(never)]
    fn next_or_gap(self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        loop {
            let Some(next) = self.view.try_link(at, 0) else { return Err(self.after_link(at)) };
            match self.vouched(at, next) {
                Ok(None) => return Ok(None),
                Ok(entry) => return self.in_order(at, entry),
                Err(Doubt::Changed) => {}
                Err(Doubt::Lost(_)) => return Err(self.after_link(at)),
                Err(Doubt::Damage) => return Err(self.after_node(at, next)),
            }
        }
    }

    /// The node after `at` at level 0, by a link that is believed, whether that node is intact or not.
    #[cold]
    pub(crate) fn linked(self, at: u32) -> Result<u32, Corruption> {
        loop {
            let next = self.view.link(at, 0)?;
            match self.view.question(self.sentinel, at, next) {
                Err(Doubt::Changed) => {}
                Err(Doubt::Lost(_)) => return Err(self.link_report(at)),
                Ok(()) | Err(Doubt::Damage) => return Ok(next),
            }
        }
    }

    fn in_order(self, at: u32, entry: Option<Verified<'a>>) -> Result<Option<Verified<'a>>, Gap> {
        if self.order_checks == OrderChecks::On {
            let after = entry.map_or(self.sentinel, |entry| entry.node().offset());
            let checked = self.verified(at).and_then(|left| self.check_order(left.as_ref(), entry.as_ref()));
            checked.map_err(|corruption| self.gap(corruption, at, after))?;
        }
        Ok(entry)
    }

    /// The gap after `at`, where the node `bad` is damaged: its own link leads to the next intact node.
    #[cold]
    #[inline(never)]
    fn after_node(self, at: u32, bad: u32) -> Gap {
        let mut node = bad;
        let after = loop {
            match self.view.try_link(node, 0) {
                Some(next) if self.verified(next).is_ok() => break next,
                Some(next) => node = next,
                None => break self.resume_behind(at),
            }
        };
        self.gap(self.node_report(bad), at, after)
    }

    /// The gap after `at`, whose link is damaged or went back to an earlier value.
    #[cold]
    #[inline(never)]
    fn after_link(self, at: u32) -> Gap {
        self.gap(self.link_report(at), at, self.resume_behind(at))
    }

    /// The first intact node after `at` that upper levels and back links find.
    #[cold]
    pub(crate) fn resume_behind(self, at: u32) -> u32 {
        let target = match self.verified(at) {
            Ok(Some(entry)) => self.position(entry.node()).with_side(Side::After),
            Ok(None) => Target::extreme(Side::Start),
            Err(_) => return self.sentinel,
        };
        match self.find_carefully(&target, &mut NoTrail) {
            Ok(bracket) => bracket.succ,
            Err(gap) => gap.after,
        }
    }

    /// The entry before `at`, or the last one if `at` is the sentinel. `None` if it cannot be certified; `prev` then
    /// tells why.
    #[inline(always)]
    pub(crate) fn try_prev(&self, at: u32) -> Option<Option<Verified<'a>>> {
        let prev = self.confirmed_back(at)?;
        if prev == self.sentinel {
            return Some(None);
        }
        let entry = self.view.try_open(prev)?.try_verify(&self.view)?;
        if self.order_checks == OrderChecks::On && at != self.sentinel {
            self.confirm_order(entry.node(), &self.view.try_open(at)?)?;
        }
        Some(Some(entry))
    }

    /// The entry before `at` (the sentinel: the last one).
    #[inline(always)]
    pub(crate) fn prev(&self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        match self.try_prev(at) {
            Some(entry) => Ok(entry),
            None => self.prev_or_gap(at),
        }
    }

    /// Repeats the step and reports what is wrong.
    #[cold]
    #[inline(never)]
    fn prev_or_gap(self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        let Some(prev) = self.confirmed_back(at) else { return self.prev_by_search(at) };
        if prev == self.sentinel {
            return Ok(None);
        }
        let Some(entry) = self.view.try_open(prev).and_then(|node| node.try_verify(&self.view)) else {
            return Err(self.gap(self.node_report(prev), self.intact_before(at, prev), at));
        };
        if self.order_checks == OrderChecks::On {
            let right = self.verified(at).ok().flatten();
            let checked = self.check_order(Some(&entry), right.as_ref());
            checked.map_err(|corruption| self.gap(corruption, prev, at))?;
        }
        Ok(Some(entry))
    }

    /// The last intact node before `at`, where `prev` is damaged: its back link may be damaged with it.
    #[cold]
    fn intact_before(self, at: u32, prev: u32) -> u32 {
        if planted(Bug::GapTrustsBackLink) {
            return self.confirmed_back(prev).unwrap_or(self.sentinel);
        }
        let target = match self.verified(at) {
            Ok(Some(entry)) => self.position(entry.node()),
            Ok(None) => Target::extreme(Side::End),
            Err(_) => return self.confirmed_back(prev).unwrap_or(self.sentinel),
        };
        match self.find_carefully(&target, &mut NoTrail) {
            Ok(bracket) => bracket.pred,
            Err(gap) => gap.before,
        }
    }

    /// The node whose level-0 link names `at`, found from the hint: the last one before it on the way from there.
    #[inline]
    fn confirmed_back(&self, at: u32) -> Option<u32> {
        let back = self.view.load_back(at).filter(|back| self.view.is_tagged(at, *back))?;
        let hint = back.target();
        if planted(Bug::BackLinkUnconfirmed) {
            return Some(hint);
        }
        let mut node = hint;
        for _ in 0..HINT_HOPS_MAX {
            let next = self.view.try_link(node, 0)?;
            if next == at {
                if node != hint {
                    self.view.replace_back(at, back, node);
                }
                return Some(node);
            }
            if next == self.sentinel {
                return None;
            }
            node = next;
        }
        None
    }

    /// The entry before `at` by a search, where the hint does not lead to it. A hint whose tag matches is not
    /// overwritten: either it is late and renewed by now, or it is the evidence of a lost write.
    #[cold]
    fn prev_by_search(self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        let found = match self.verified(at) {
            Ok(Some(entry)) => self.find(&self.position(entry.node()), &mut NoTrail),
            Ok(None) => self.find(&Target::extreme(Side::End), &mut NoTrail),
            Err(corruption) => Err(self.gap(corruption, self.sentinel, at)),
        }?;
        if found.succ != at {
            return Err(self.gap(self.link_report(found.pred), found.pred, at));
        }
        if let Some(back) = self.view.load_back(at)
            && !self.view.is_tagged(at, back)
        {
            self.view.replace_back(at, back, found.pred);
        }
        self.verified(found.pred).map_err(|corruption| self.gap(corruption, self.sentinel, at))
    }
}
