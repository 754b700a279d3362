//! The one walk to a position, and the bracket that certifies where it ended.
//!
//! ```text
//!   level 2   S ----------------------> d ------------------> S        at      last node known to be before the target
//!   level 1   S --------> b ----------> d ----------> g ----> S        greater first node known not to be
//!   level 0   S --> a --> b --> [c  |   d] --> e ---> g ----> S        [pred | succ] is the bracket
//! ```
//! S is the sentinel: its links lead to the first nodes, its back link to the last node, and it
//! ends every level.
//!
//! * SEARCH-1: `at` moves only to nodes that compared less than the target. So whatever damage the
//!   walk met, it enters level 0 before the target.
//! * SEARCH-2: an answer is given only for a bracket: pred < target <= succ, adjacent by a link
//!   whose tag matched and for which succ's back link vouches (`witness.rs`), both key digests
//!   verified. It holds whatever path was taken (tower, splice, hint, index).
//! * SEARCH-3: if a bracket fails, the walk is repeated with care: every key verified, damaged
//!   nodes stepped over by their own links. What remains open is a `Gap`.
//! * SEARCH-4: a link above level 0 that fails counts as absent. At level 0 the walk comes back
//!   from the next node that upper levels, the directory, or a link that went back to an earlier
//!   value, reached: along back links that forward links confirm.
//! * SEARCH-5: an entry is the first one at or after a position without a bracket if it has the key
//!   of the position, if the link that names it says that the node before it has another key
//!   (LINKS-3), and if its back link vouches for that link: what may stand in front of it is a
//!   version of its key, and would be the node before it or come between the two.
//!
//! Any thread; lock-free. Not promised: how many steps. Expected O(log n).

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place, Result};
use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::key::Target;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::control::Head;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::layout::HEIGHT_MAX;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::{Node, Verified, bytes_of};
use crate::memtable::arena::towers::Towers;
use crate::memtable::arena::witness::Doubt;
use crate::memtable::directory::lookup::{Hint, LeafSlot};
use crate::prefetch::prefetch_read;
use crate::sync::{AtomicU32, Ordering};

/// Hops on level 0 from a hint before the towers are asked: a leaf and a half of entries.
pub(super) const HINT_HOPS: u32 = 64;
/// From a node to the end of its key's first words, in units, with digests of 8 bytes.
const KEY_UNITS: u32 = 6;

/// How much a walk checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// Only the bracket is verified.
    Bracket,
    /// The key digest of every node that is entered is verified.
    EveryNode,
    /// Every node is verified, and damaged ones are stepped over.
    StepOver,
}

/// The last node before a position on each level.
#[derive(Debug, Clone, Default)]
pub(crate) struct Splice {
    pub(crate) prev: [u32; HEIGHT_MAX],
    /// How many levels are known, from level 0 on.
    pub(crate) levels: u32,
    /// The place in the directory before which the next node is named: a guess.
    pub(crate) named: LeafSlot,
    /// How many nodes the search passed on level 0, after the one that it started at.
    pub(crate) hops: u32,
}

impl Splice {
    /// For a search from the top of a list.
    pub(crate) fn new(sentinel: u32) -> Splice {
        Splice {
            prev: [sentinel; HEIGHT_MAX],
            levels: HEIGHT_MAX as u32,
            named: LeafSlot::NONE,
            hops: 0,
        }
    }

    /// Sets the last node on a level.
    #[inline(always)]
    pub(crate) fn record(&mut self, level: u32, at: u32) {
        if let Some(prev) = self.prev.get_mut(level as usize) {
            *prev = at;
        }
    }
}

/// What a search records.
#[derive(Debug, Default)]
pub(crate) struct Trail<'w> {
    /// The search's splice, for a writer.
    pub(crate) splice: Option<&'w mut Splice>,
    /// How many nodes it visited.
    #[cfg(test)]
    pub(crate) nodes: u32,
}

impl<'w> From<&'w mut Splice> for Trail<'w> {
    #[inline(always)]
    fn from(splice: &'w mut Splice) -> Trail<'w> {
        Trail {
            splice: Some(splice),
            #[cfg(test)]
            nodes: 0,
        }
    }
}

impl Trail<'_> {
    /// The search leaves a level after this node.
    #[inline(always)]
    pub(super) fn record(&mut self, level: u32, at: u32) {
        if let Some(splice) = &mut self.splice {
            splice.record(level, at);
        }
    }

    /// The search has passed so many nodes on level 0, the last of which is `at`.
    #[inline(always)]
    pub(crate) fn end_at(&mut self, at: u32, hops: u32) {
        if let Some(splice) = &mut self.splice {
            splice.record(0, at);
            splice.hops = hops;
        }
    }

    /// The search looks at a node.
    #[inline(always)]
    pub(super) fn visit(&mut self) {
        #[cfg(test)]
        {
            self.nodes += 1;
        }
    }

    /// Records a start at a hint, after which only level 0 of the splice is known.
    #[inline(always)]
    pub(super) fn start_at(&mut self, hint: &Hint) {
        if let Some(splice) = &mut self.splice {
            (splice.named, splice.levels) = (hint.at, 1);
        }
    }
}

/// Two level-0 neighbours around a position (SEARCH-2), by their nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bracket<'a> {
    pub(crate) pred: u32,
    pub(crate) succ: u32,
    /// The entry of `succ`; `None` if that is the sentinel.
    pub(crate) entry: Option<Verified<'a>>,
    /// K of the key of `pred`, as it was verified; 0: that is the sentinel, or nothing was
    /// verified.
    pub(crate) pred_part: u64,
}

/// The next node on level 0, as the link to it was read: its tag and the header are checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead<'a> {
    /// The node that it was read from.
    pub(crate) at: u32,
    pub(crate) ends: EndKeys,
    pub(crate) next: u32,
    /// The next node, open; `None`: the sentinel.
    pub(crate) node: Option<Node<'a>>,
    /// What the back link of the next node names.
    pub(crate) back: u32,
}

/// A place where damage hides which entry follows which. If both sides name one entry, no entry is
/// missing, but damage hides which range tombstone covers it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gap {
    pub(crate) corruption: Corruption,
    /// The last intact node before the gap, or the sentinel.
    pub(crate) before: u32,
    /// The first intact node after the gap, or the sentinel.
    pub(crate) after: u32,
}

/// A skiplist over an arena.
pub(crate) struct List {
    /// Levels in use: a hint that only grows.
    pub(crate) top: AtomicU32,
    pub(crate) seek_checks: SeekChecks,
    pub(crate) order_checks: OrderChecks,
    /// Where the root word of the directory stands; 0: there is none.
    pub(crate) directory: u32,
    /// The list that this is: a damaged hint may name a node of the other one.
    pub(crate) list: Head,
}

impl List {
    /// The highest level in use.
    #[inline(always)]
    pub(crate) fn top(&self) -> u32 {
        // ORDERING: Relaxed: a hint; a smaller value only makes the search longer.
        self.top.load(Ordering::Relaxed).min(HEIGHT_MAX as u32 - 1)
    }

    /// How tall the list's towers are.
    #[inline(always)]
    pub(crate) fn towers(&self) -> Towers {
        if self.directory == 0 {
            Towers::Dense
        } else {
            Towers::Sparse
        }
    }
}

/// The parameters of a walk.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) view: View<'a>,
    pub(crate) comparator: &'a KeyComparator,
    pub(crate) skiplist: &'a List,
    pub(crate) sentinel: u32,
}

impl Search<'_> {
    /// The height of an entry's tower.
    #[inline(always)]
    pub(crate) fn height(&self, fields: &Fields<'_>, revision: u32) -> u32 {
        self.towers()
            .height(self.view.secret, fields.key_part, fields.sequence, revision)
    }

    /// The position of an entry.
    #[inline(always)]
    pub(crate) fn target<'k>(&'k self, fields: &Fields<'k>) -> Target<'k> {
        Target::new(self.comparator, fields.key, fields.sequence)
    }
}

impl std::ops::Deref for Search<'_> {
    type Target = List;
    #[inline(always)]
    fn deref(&self) -> &List {
        self.skiplist
    }
}

/// A walk under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(super) at: u32,
    pub(super) level: u32,
    pub(super) greater: u32,
    pub(super) candidate: u32,
    /// The first damaged node between `at` and the candidate, when stepping over; 0 = none.
    pub(super) damaged_node: u32,
}

/// How a step ended.
pub(crate) enum Progress {
    /// The walk has a candidate.
    On,
    /// Level 0 ends between `at` and `greater`.
    Arrived,
    /// The walk met damage at level 0 after this node, and does not step over damage.
    Stopped(u32),
}

impl<'a> Search<'a> {
    /// A walk that starts at the top.
    #[inline(always)]
    pub(crate) fn start(&self) -> Walk {
        Walk {
            at: self.sentinel,
            level: self.top(),
            greater: self.sentinel,
            candidate: self.sentinel,
            damaged_node: 0,
        }
    }

    /// Looks for the next candidate from `from`, descending as needed.
    #[inline(always)]
    pub(crate) fn choose(&self, walk: &mut Walk, mut from: u32, trail: &mut Trail<'_>) -> Progress {
        loop {
            match self.view.try_link(from, walk.level) {
                Some(target) if target != walk.greater && target != self.sentinel => {
                    walk.candidate = target;
                    return Progress::On;
                }
                Some(target) => walk.greater = target,
                // A processor that errs goes on below level 0.
                None if walk.level == 0 || walk.level >= HEIGHT_MAX as u32 => {
                    return Progress::Stopped(from);
                }
                None => {}
            }
            trail.record(walk.level, walk.at);
            if walk.level == 0 {
                return Progress::Arrived;
            }
            walk.level -= 1;
            walk.damaged_node = 0;
            from = walk.at;
        }
    }

    /// Visits the candidate and moves on: the one step that all searches share.
    #[inline(always)]
    pub(super) fn step(
        &self,
        walk: &mut Walk,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
        checks: Checks,
    ) -> Progress {
        trail.visit();
        let opened = self.view.try_open(walk.candidate);
        let from = match opened
            .filter(|node| checks == Checks::Bracket || node.try_verify(&self.view).is_some())
        {
            Some(node) => {
                if !node.order(self.comparator, target).is_lt() {
                    walk.greater = walk.candidate;
                    return self.descend(walk, trail);
                }
                walk.at = walk.candidate;
                walk.damaged_node = 0;
                if walk.level > 0 {
                    self.prefetch_below(walk.at, walk.level - 1);
                }
                walk.at
            }
            None if checks != Checks::StepOver => return Progress::Stopped(walk.candidate),
            None => {
                if walk.damaged_node == 0 {
                    walk.damaged_node = walk.candidate;
                }
                walk.candidate
            }
        };
        self.choose(walk, from, trail)
    }

    /// Prefetches the node that the walk visits next if it goes down. The link is not checked,
    /// because this is a hint.
    #[inline(always)]
    fn prefetch_below(&self, at: u32, level: u32) {
        if let Some(target) = self.view.peek_link(at, level) {
            self.prefetch_node(target, level);
        }
    }

    /// Prefetches the cache lines of a node that a walk on this level reads: link, header, key.
    #[inline(always)]
    pub(crate) fn prefetch_node(&self, node: u32, level: u32) {
        for unit in [View::slot(node, level), node, node.wrapping_add(KEY_UNITS)] {
            prefetch_read(std::ptr::without_provenance(self.view.likely_address(unit)));
        }
    }

    /// Handles a candidate that is not before the target: goes down one level, or arrives.
    #[inline(always)]
    fn descend(&self, walk: &mut Walk, trail: &mut Trail<'_>) -> Progress {
        trail.record(walk.level, walk.at);
        if walk.level == 0 {
            return Progress::Arrived;
        }
        walk.level -= 1;
        walk.damaged_node = 0;
        if walk.level > 0 {
            self.prefetch_below(walk.at, walk.level - 1);
        }
        self.choose(walk, walk.at, trail)
    }

    /// Finds and certifies the bracket around a position, with the checks that the table asks for.
    #[inline(never)]
    pub(crate) fn find(
        &self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        self.find_by(self.hint(target).as_ref(), target, trail)
    }

    /// [`find`](Self::find), after the directory was asked.
    #[inline(always)]
    pub(crate) fn find_by(
        &self,
        hint: Option<&Hint>,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        // Without a closure, which might not be inlined.
        if let Some(hint) = hint
            && let Some(ahead) = self.ahead_of(hint)
            && let Some(bracket) = self.find_ahead_of(ahead, HINT_HOPS, target, trail)
            && self.holds(bracket.entry)
        {
            trail.start_at(hint);
            return Ok(bracket);
        }
        self.find_by_towers(target, trail)
    }

    /// The first entry at or after a position.
    #[inline]
    pub(crate) fn find_at_or_after(
        &self,
        target: &Target<'_>,
    ) -> Result<Option<Verified<'a>>, Gap> {
        self.first_from(self.hint(target).as_ref(), target)
    }

    /// [`first_by`](Self::first_by), compiled once for single searches.
    #[inline(never)]
    pub(super) fn first_from(
        &self,
        hint: Option<&Hint>,
        target: &Target<'_>,
    ) -> Result<Option<Verified<'a>>, Gap> {
        self.first_by(hint, target)
    }

    /// [`find_at_or_after`](Self::find_at_or_after), after the directory was asked.
    #[inline(always)]
    pub(crate) fn first_by(
        &self,
        hint: Option<&Hint>,
        target: &Target<'_>,
    ) -> Result<Option<Verified<'a>>, Gap> {
        if let Some(hint) = hint
            && let Some(ahead) = self.ahead_of(hint)
        {
            if let Some(entry) = self.version(&ahead, target) {
                return Ok(Some(entry));
            }
            if let Some(first) = self.first_of(ahead, target) {
                return Ok(first);
            }
        }
        Ok(self.find_by_towers(target, &mut Trail::default())?.entry)
    }

    /// The last entry before a position.
    #[inline]
    pub(crate) fn find_before(&self, target: &Target<'_>) -> Result<Option<Verified<'a>>, Gap> {
        let Bracket { pred, succ, .. } = self.find(target, &mut Trail::default())?;
        self.verified(pred).map_err(|corruption| Gap {
            corruption,
            before: self.sentinel,
            after: succ,
        })
    }

    /// Finds and certifies the bracket from the top of the towers; falls back to a careful search.
    #[inline(never)]
    pub(crate) fn find_by_towers(
        &self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        let every_node = self.seek_checks == SeekChecks::EveryNode;
        let checks = if every_node {
            Checks::EveryNode
        } else {
            Checks::Bracket
        };
        let (walk, progress) = self.walk((self.start(), 0), target, trail, checks);
        if let Progress::Arrived = progress
            && let Ok(bracket) = self.try_certify(walk.at, walk.greater)
        {
            return Ok(bracket);
        }
        self.find_carefully(target, trail)
    }

    /// Walks from the sentinel down to the lowest level that is wanted. Takes and returns values,
    /// so that they stay in registers.
    #[inline(never)]
    pub(super) fn walk(
        self,
        (mut walk, lowest): (Walk, u32),
        target: &Target<'_>,
        trail: &mut Trail<'_>,
        checks: Checks,
    ) -> (Walk, Progress) {
        let mut progress = self.choose(&mut walk, self.sentinel, trail);
        while matches!(progress, Progress::On) && walk.level >= lowest {
            // Prefetched before the comparison, whatever its result, because a single search has no
            // other work while it waits for memory.
            self.prefetch_below(walk.candidate, walk.level);
            progress = self.step(&mut walk, target, trail, checks);
        }
        (walk, progress)
    }

    /// Records the way to a target on the levels above 0. What it records is a hint: who links
    /// there verifies both sides.
    pub(crate) fn find_above(&self, target: &Target<'_>, trail: &mut Trail<'_>) {
        let (_, progress) = self.walk((self.start(), 1), target, trail, Checks::Bracket);
        if let Progress::Stopped(_) = progress {
            // Damage: its neighbours are found with care.
            let _ = self.find_by_towers(target, trail);
        }
    }

    /// Whether the back link of a certified bracket is unchanged. If its link is, too, which the
    /// exchange of a writer compares, no node has come between: keys do not change.
    #[inline(always)]
    pub(crate) fn stands(&self, bracket: &Bracket<'a>) -> bool {
        self.view.back_target(bracket.succ) == Some(bracket.pred)
    }

    /// Verifies both sides of a bracket and the link between them (SEARCH-2), or returns what is in
    /// doubt.
    #[inline(never)]
    pub(super) fn try_certify(&self, pred: u32, succ: u32) -> Result<Bracket<'a>, Doubt> {
        let mut pred_part = 0;
        if pred != self.sentinel {
            let left = self
                .view
                .try_open(pred)
                .and_then(|node| node.try_verify(&self.view));
            pred_part = left.ok_or(Doubt::Damage)?.key_part();
        }
        let entry = self.vouched(pred, succ)?;
        self.ordered(Bracket {
            pred,
            succ,
            entry,
            pred_part,
        })
        .ok_or(Doubt::Damage)
    }

    /// Certifies the bracket of a node that was verified, whose K this is, and what is ahead of it.
    #[inline(always)]
    pub(crate) fn certify_ahead(&self, pred_part: u64, ahead: &Ahead<'a>) -> Option<Bracket<'a>> {
        let Ahead {
            at: pred,
            next: succ,
            ..
        } = *ahead;
        if ahead.back != pred {
            self.view.question(self.sentinel, pred, succ).ok()?;
        }
        let entry = match ahead.node {
            Some(node) => Some(node.try_verify(&self.view)?),
            None => None,
        };
        self.ordered(Bracket {
            pred,
            succ,
            entry,
            pred_part,
        })
    }

    /// The bracket of two nodes that are verified, unless order checks refuse it.
    #[inline(always)]
    fn ordered(&self, bracket: Bracket<'a>) -> Option<Bracket<'a>> {
        if self.order_checks == OrderChecks::On && !self.are_in_order(bracket.pred, bracket.succ) {
            return None;
        }
        Some(bracket)
    }

    /// The verified entry of `succ`, which the link from `pred` names and whose back link vouches
    /// for that link. `None`: the sentinel.
    #[inline]
    pub(super) fn vouched(&self, pred: u32, succ: u32) -> Result<Option<Verified<'a>>, Doubt> {
        let (node, back) = if succ == self.sentinel {
            (None, self.view.back_target(succ).ok_or(Doubt::Damage)?)
        } else {
            let (node, back) = self.view.try_open_with_back(succ).ok_or(Doubt::Damage)?;
            (Some(node), back)
        };
        if back != pred {
            self.view.question(self.sentinel, pred, succ)?;
        }
        match node {
            Some(node) => node.try_verify(&self.view).map(Some).ok_or(Doubt::Damage),
            None => Ok(None),
        }
    }

    /// The next node on level 0, open.
    #[inline(always)]
    pub(crate) fn look_ahead(&self, at: u32) -> Option<Ahead<'a>> {
        let (next, ends) = self.view.try_link_with_ends(at, 0)?;
        if next == self.sentinel {
            return Some(Ahead {
                at,
                ends,
                next,
                node: None,
                back: self.view.back_target(next)?,
            });
        }
        let (node, back) = self.view.try_open_with_back(next)?;
        Some(Ahead {
            at,
            ends,
            next,
            node: Some(node),
            back,
        })
    }

    /// Whether two neighbours that were verified are in order. By offset, so that walks without
    /// order checks keep open nodes in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn are_in_order(self, left: u32, right: u32) -> bool {
        if [left, right].contains(&self.sentinel) {
            return true;
        }
        match (self.view.try_open(left), self.view.try_open(right)) {
            (Some(left), Some(right)) => left
                .order(self.comparator, &right.position(self.comparator))
                .is_lt(),
            _ => false,
        }
    }

    /// The report for a node that was stepped over.
    #[cold]
    pub(crate) fn node_report(self, node: u32) -> Corruption {
        self.verified(node)
            .err()
            .unwrap_or(Corruption::new(Place::Entry, bytes_of(node), 0, 0))
    }

    /// Opens and verifies a node; the sentinel is `None`. Compiled once: searches that are not rare
    /// open and verify by themselves.
    #[inline(never)]
    pub(crate) fn verified(&self, node: u32) -> Result<Option<Verified<'a>>, Corruption> {
        if node == self.sentinel {
            return Ok(None);
        }
        self.view.open(node)?.verify(&self.view).map(Some)
    }

    /// Order checks: fails if two adjacent entries are out of order.
    pub(crate) fn check_order(
        self,
        left: Option<&Verified<'a>>,
        right: Option<&Verified<'a>>,
    ) -> Result<(), Corruption> {
        let (Some(left), Some(right)) = (left, right) else {
            return Ok(());
        };
        let position = right.node().position(self.comparator);
        if left.node().order(self.comparator, &position).is_lt() {
            return Ok(());
        }
        let place = bytes_of(left.node().offset());
        let report = Corruption::new(Place::Order, place, u64::from(right.node().offset()), 0);
        Err(report.with_sequence(left.node().sequence()))
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;
    use crate::integrity::digest::Width;
    use crate::integrity::options::{OrderChecks, SeekChecks};
    use crate::integrity::tag::Secret;
    use crate::key::Kind;
    use crate::memtable::arena::arena::Arena;
    use crate::memtable::arena::control::Head;
    use crate::memtable::arena::encode::Fields;
    use crate::memtable::skiplist::find_many::find_many;
    use crate::memtable::skiplist::inserter::Inserter;
    use crate::memtable::skiplist::list::DuplicatePolicy;
    use crate::memtable::skiplist::node_space::make_heads;
    use crate::sync::Ordering;

    /// Every bit of every key in turn: many searches end where single searches end, in a bracket or
    /// in a gap, and never in a wrong answer.
    #[test]
    fn many_searches_end_where_single_ones_end_also_over_damage() {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let arena = Arena::new(1 << 20, 1 << 24, width, secret);
        make_heads(&arena).unwrap();
        let list = List::new(Head::Points, SeekChecks::Bracket, OrderChecks::Off);
        let list = list.with_directory();
        let search = list.search(arena.view().unwrap(), &BYTEWISE);
        let mut inserter = Inserter::default();
        let keys: Vec<[u8; 8]> = (0..40u64)
            .map(|n| (n * 0x0101_0204).to_be_bytes())
            .collect();
        for key in &keys {
            let fields = Fields::new(1, Kind::PUT, key, b"v", None);
            let placed = list
                .insert(&search, &mut inserter, &fields, DuplicatePolicy::Reject)
                .unwrap();
            list.link_tower(&search, &mut inserter, &fields, placed.tower);
        }
        let targets: Vec<_> = keys
            .iter()
            .map(|key| Target::new(&BYTEWISE, key, u64::MAX))
            .collect();
        let told = |outcome: Result<Bracket<'_>, Gap>| {
            outcome
                .map(|bracket| bracket.entry.map(|entry| entry.key().to_vec()))
                .map_err(|gap| gap.corruption)
        };
        let answers = || {
            let mut answers = vec![None; targets.len()];
            find_many(&search, &targets, &mut |index, hint| {
                let outcome = search.find_by(hint, &targets[index], &mut Trail::default());
                let first = search
                    .first_by(hint, &targets[index])
                    .map_err(|gap| gap.corruption);
                let outcome = told(outcome);
                // What a link alone proves is an answer where a bracket is none, and never another
                // one.
                let first = first.map(|entry| entry.map(|entry| entry.key().to_vec()));
                assert!(
                    first == outcome || outcome.is_err() && first == Ok(Some(keys[index].to_vec()))
                );
                assert!(
                    answers[index].replace(outcome).is_none(),
                    "{index} was answered twice"
                );
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
                    assert!(
                        !answer.is_ok_and(|found| found.as_deref() != Some(key)),
                        "bit {bit} of {unit}"
                    );
                }
                // ORDERING: Relaxed: one thread.
                word.fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
    }
}
