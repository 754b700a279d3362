//! Searches: the walk to a position, and the bracket that certifies its end.
//!
//! ```text
//!   level 2   S ----------------------> d ------------------> S        at       last node known to be before the target
//!   level 1   S --------> b ----------> d ----------> g ----> S        greater  first node known not to be before it
//!   level 0   S --> a --> b --> [c  |   d] --> e ---> g ----> S        [pred | succ] is the bracket
//! ```
//! S is the sentinel. It starts and ends every level: its links name the first nodes, its back link
//! the last node.
//!
//! * SEARCH-1: a search answers by a certified bracket: pred < target <= succ; the link from pred
//!   to succ has a matching tag; succ's back link confirms that link; both key digests verify. This
//!   holds for every path to the bracket: towers, splice, hint, directory.
//! * SEARCH-2: a link above level 0 that fails its check counts as absent. Where a level-0 link is
//!   broken, or went back to an earlier value, the search starts at the next node that upper
//!   levels, the directory or that earlier value name, and follows back links that forward links
//!   confirm.
//! * SEARCH-3: one answer needs no bracket. An entry is the first one at or after a position if it
//!   has the position's key, its link says that the node before it has another key (LINKS-3), and
//!   its back link confirms that link. Only a version of the same key could come before the entry:
//!   it would be the node before it, or between the two.
//!
//! A bracket that cannot be certified is searched again with care (`careful.rs`). Damage that is
//! still in the way then is reported as a `Gap`.
//!
//! Any thread; lock-free. Expected O(log n) steps, without a bound.

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
use crate::memtable::arena::back_links::Doubt;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::layout::HEIGHT_MAX;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::{Node, Verified, bytes_of};
use crate::memtable::arena::tower_height::Towers;
use crate::memtable::directory::lookup::{Hint, LeafSlot};
use crate::prefetch::prefetch_read;
use crate::sync::{AtomicU32, Ordering};

/// Most hops on level 0 from a hint before the search takes the towers: a leaf and a half of
/// entries.
pub(super) const HINT_HOPS: u32 = 64;
/// Units from a node to the end of its key's first words, with digests of 8 bytes.
const KEY_UNITS: u32 = 6;

/// How much a walk checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// Only the bracket is verified.
    Bracket,
    /// The key digest of every node on the way is verified.
    EveryNode,
    /// Every node on the way is verified, and the walk steps over damaged ones.
    StepOver,
}

/// The last node before a position on each level.
#[derive(Debug, Clone, Default)]
pub(crate) struct Splice {
    pub(crate) prev: [u32; HEIGHT_MAX],
    /// How many levels are known, from level 0 on.
    pub(crate) levels: u32,
    /// The slot of the directory before which the next node belongs: a guess.
    pub(crate) named: LeafSlot,
    /// How many level-0 nodes the search passed after its first one.
    pub(crate) hops: u32,
}

impl Splice {
    /// The splice of a search from the top of a list.
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

/// The record of a search: for a writer its splice, in tests its number of nodes.
#[derive(Debug, Default)]
pub(crate) struct Trail<'w> {
    pub(crate) splice: Option<&'w mut Splice>,
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
    /// Records the node at which the search leaves a level.
    #[inline(always)]
    pub(super) fn record(&mut self, level: u32, at: u32) {
        if let Some(splice) = &mut self.splice {
            splice.record(level, at);
        }
    }

    /// Records that the search passed `hops` nodes on level 0 and ended after `at`.
    #[inline(always)]
    pub(crate) fn end_at(&mut self, at: u32, hops: u32) {
        if let Some(splice) = &mut self.splice {
            splice.record(0, at);
            splice.hops = hops;
        }
    }

    /// Counts a node, in tests.
    #[inline(always)]
    pub(super) fn visit(&mut self) {
        #[cfg(test)]
        {
            self.nodes += 1;
        }
    }

    /// Records a start at a hint: the splice knows level 0 only.
    #[inline(always)]
    pub(super) fn start_at(&mut self, hint: &Hint) {
        if let Some(splice) = &mut self.splice {
            (splice.named, splice.levels) = (hint.at, 1);
        }
    }
}

/// Two level-0 neighbours around a position, certified (SEARCH-1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bracket<'a> {
    pub(crate) pred: u32,
    pub(crate) succ: u32,
    /// The entry of `succ`; `None` for the sentinel.
    pub(crate) entry: Option<Verified<'a>>,
    /// K of the verified key of `pred`; 0 for the sentinel and where nothing was verified.
    pub(crate) pred_part: u64,
}

/// A level-0 link that was read, and the node that it names. The link's tag and the node's header
/// are checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead<'a> {
    /// The node whose link it is.
    pub(crate) at: u32,
    pub(crate) ends: EndKeys,
    pub(crate) next: u32,
    /// The next node, open; `None` for the sentinel.
    pub(crate) node: Option<Node<'a>>,
    /// The node that the next node's back link names.
    pub(crate) back: u32,
}

/// A place where damage hides the order of entries. If both sides are one entry, no entry is
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
    /// The highest level in use: a hint that only grows.
    pub(crate) top: AtomicU32,
    pub(crate) seek_checks: SeekChecks,
    pub(crate) order_checks: OrderChecks,
    /// The unit of the directory's root word; 0: there is no directory.
    pub(crate) directory: u32,
    /// Which list of the arena it is. A damaged hint may name a node of the other one.
    pub(crate) list: Head,
}

impl List {
    /// The highest level in use.
    #[inline(always)]
    pub(crate) fn top(&self) -> u32 {
        // ORDERING: Relaxed: a hint; a stale value makes the search longer, not wrong.
        self.top.load(Ordering::Relaxed).min(HEIGHT_MAX as u32 - 1)
    }

    /// The distribution of the list's tower heights.
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

/// The state of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(super) at: u32,
    pub(super) level: u32,
    pub(super) greater: u32,
    pub(super) candidate: u32,
    /// The first damaged node between `at` and the candidate, when stepping over; 0 = none.
    pub(super) damaged_node: u32,
}

/// The result of a step of a walk.
pub(crate) enum Progress {
    /// The walk has another candidate.
    On,
    /// The walk has ended on level 0, between `at` and `greater`.
    Arrived,
    /// The walk met damage on level 0 after this node, and does not step over damage.
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

    /// Takes the next candidate after `from`, on this level or below.
    #[inline(always)]
    pub(crate) fn choose(&self, walk: &mut Walk, mut from: u32, trail: &mut Trail<'_>) -> Progress {
        loop {
            match self.view.try_link(from, walk.level) {
                Some(target) if target != walk.greater && target != self.sentinel => {
                    walk.candidate = target;
                    return Progress::On;
                }
                Some(target) => walk.greater = target,
                // A faulty processor could pass level 0: that is not a level then.
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

    /// Compares the candidate with the target, and moves to it or down. All walks share this step.
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
                // `at` moves only here, to a node that compared less: whatever damage the walk
                // meets, it enters level 0 before the target.
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

    /// Prefetches the node that the walk visits next if it goes down. The link is not checked: the
    /// address is a hint.
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

    /// Goes down one level, or arrives: the candidate is not before the target.
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

    /// The bracket around a position, with the checks that the table's options ask for.
    #[inline(never)]
    pub(crate) fn find(
        &self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        self.find_by(self.hint(target).as_ref(), target, trail)
    }

    /// [`find`](Self::find) from the directory's hint.
    #[inline(always)]
    pub(crate) fn find_by(
        &self,
        hint: Option<&Hint>,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        // A closure might not be inlined.
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

    /// [`find_at_or_after`](Self::find_at_or_after) from the directory's hint.
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

    /// The bracket around a position, from the top of the towers; over damage by a careful search.
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

    /// Walks from the sentinel down to the level `lowest`. Takes and returns the walk by value, so
    /// that it stays in registers.
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
            // Before the comparison, whatever its result: a single search has no other work while
            // it waits for memory.
            self.prefetch_below(walk.candidate, walk.level);
            progress = self.step(&mut walk, target, trail, checks);
        }
        (walk, progress)
    }

    /// Records the splice of a target on the levels above 0. The splice is a hint: `link_tower`
    /// verifies both sides of each link.
    pub(crate) fn find_above(&self, target: &Target<'_>, trail: &mut Trail<'_>) {
        let (_, progress) = self.walk((self.start(), 1), target, trail, Checks::Bracket);
        if let Progress::Stopped(_) = progress {
            // Damage: the careful search finds the neighbours.
            let _ = self.find_by_towers(target, trail);
        }
    }

    /// Whether a bracket's back link is unchanged since it was certified. If its link is unchanged
    /// too, which the writer's compare-and-swap decides, no node has come between.
    #[inline(always)]
    pub(crate) fn stands(&self, bracket: &Bracket<'a>) -> bool {
        self.view.back_target(bracket.succ) == Some(bracket.pred)
    }

    /// Certifies the bracket of two nodes (SEARCH-1), or returns the doubt about it.
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

    /// Certifies the bracket of a verified node, whose K is `pred_part`, and the node ahead of it.
    #[inline(always)]
    pub(crate) fn certify_ahead(&self, pred_part: u64, ahead: &Ahead<'a>) -> Option<Bracket<'a>> {
        let Ahead {
            at: pred,
            next: succ,
            ..
        } = *ahead;
        if ahead.back != pred {
            self.view.confirm_link(self.sentinel, pred, succ).ok()?;
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

    /// This bracket of two verified nodes, unless order checks refuse it.
    #[inline(always)]
    fn ordered(&self, bracket: Bracket<'a>) -> Option<Bracket<'a>> {
        if self.order_checks == OrderChecks::On && !self.are_in_order(bracket.pred, bracket.succ) {
            return None;
        }
        Some(bracket)
    }

    /// The verified entry of `succ`, whose back link confirms the link from `pred`. `None` for the
    /// sentinel.
    #[inline]
    pub(super) fn vouched(&self, pred: u32, succ: u32) -> Result<Option<Verified<'a>>, Doubt> {
        let (node, back) = if succ == self.sentinel {
            (None, self.view.back_target(succ).ok_or(Doubt::Damage)?)
        } else {
            let (node, back) = self.view.try_open_with_back(succ).ok_or(Doubt::Damage)?;
            (Some(node), back)
        };
        if back != pred {
            self.view.confirm_link(self.sentinel, pred, succ)?;
        }
        match node {
            Some(node) => node.try_verify(&self.view).map(Some).ok_or(Doubt::Damage),
            None => Ok(None),
        }
    }

    /// The node after `at` on level 0, open.
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

    /// Whether two verified neighbours are in order. Takes offsets, so that walks without order
    /// checks keep open nodes in registers.
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

    /// The report for a damaged node that a walk stepped over.
    #[cold]
    pub(crate) fn node_report(self, node: u32) -> Corruption {
        self.verified(node)
            .err()
            .unwrap_or(Corruption::new(Place::Entry, bytes_of(node), 0, 0))
    }

    /// Opens and verifies a node; `None` for the sentinel. Compiled once: hot paths open and verify
    /// nodes inline.
    #[inline(never)]
    pub(crate) fn verified(&self, node: u32) -> Result<Option<Verified<'a>>, Corruption> {
        if node == self.sentinel {
            return Ok(None);
        }
        self.view.open(node)?.verify(&self.view).map(Some)
    }

    /// Fails if two adjacent entries are out of order.
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
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;
    use crate::integrity::digest::Width;
    use crate::integrity::options::{OrderChecks, SeekChecks};
    use crate::integrity::tag::Secret;
    use crate::kind::Kind;
    use crate::memtable::arena::arena::Arena;
    use crate::memtable::arena::encode::Fields;
    use crate::memtable::arena::heads::Head;
    use crate::memtable::skiplist::find_many::find_many;
    use crate::memtable::skiplist::inserter::Inserter;
    use crate::memtable::skiplist::list::DuplicatePolicy;
    use crate::memtable::skiplist::node_space::make_heads;
    use crate::sync::Ordering;

    /// Flips every bit of every key in turn: searches for many keys end where single searches end,
    /// in a bracket or a gap, and never in a wrong answer.
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
        let key_or_report = |outcome: Result<Bracket<'_>, Gap>| {
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
                let outcome = key_or_report(outcome);
                // A link alone may give the answer where no bracket does, and never another one.
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
                        key_or_report(search.find(target, &mut Trail::default())),
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
