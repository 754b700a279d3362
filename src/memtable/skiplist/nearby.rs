//! Nearby search: for a writer whose next entry is close to its last one, and for a hint of the
//! directory.
//!
//! ```text
//!   last -> . -> . -> [pred | succ]     a few hops on level 0, then a bracket like that of every search (SEARCH-2)
//! ```
//! Any thread; lock-free. Anything unusual is left to a search from the top.

#![forbid(unsafe_code)]

use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::key::Target;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::{Node, Verified};
use crate::memtable::directory::lookup::{GROUP, Hint, Pages};
use crate::memtable::skiplist::search::{Ahead, Bracket, HINT_HOPS, Search, Trail};
use crate::prefetch::prefetch_lines;

/// Slots that are tried for a way around a broken link.
const SLOTS_TRIED: i32 = 8;

impl<'a> Search<'a> {
    /// The directory of this list, if it has one.
    #[inline(always)]
    pub(crate) fn directory(&self) -> Pages<'_, 'a> {
        Pages {
            view: &self.view,
            comparator: self.comparator,
            root: self.skiplist.directory,
        }
    }

    /// The directory's hint for a target that has a key.
    #[inline(always)]
    pub(crate) fn ask_directory(&self, target: &Target<'_>) -> Option<Hint> {
        if self.skiplist.directory == 0 || target.is_extreme() {
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

    /// The directory's hints for many targets.
    #[inline(never)]
    pub(crate) fn ask_for_many(&self, targets: &[Target<'_>]) -> [Option<Hint>; GROUP] {
        let mut hints = [None; GROUP];
        if self.directory != 0 {
            self.directory()
                .lookup_many(targets, &mut hints, |hint| self.prefetch_hint(hint));
        }
        hints
    }

    /// Prefetches the two nodes that a hint names.
    #[inline(always)]
    pub(crate) fn prefetch_hint(&self, hint: &Hint) {
        self.prefetch_node(hint.before, 0);
        if hint.after != 0 {
            self.prefetch_entry(hint.after);
        }
    }

    /// What a hint leads to.
    #[inline(always)]
    pub(crate) fn ahead_of(&self, hint: &Hint) -> Option<Ahead<'a>> {
        self.look_ahead(if hint.before == 0 {
            self.sentinel
        } else {
            hint.before
        })
    }

    /// The first entry at or after a position, if it is ahead and has the position's key, by its
    /// link alone (SEARCH-5). Not where each node that a search enters is to be verified.
    #[inline(always)]
    pub(crate) fn version(&self, ahead: &Ahead<'a>, target: &Target<'_>) -> Option<Verified<'a>> {
        let node = ahead.node?;
        let is_first = ahead.ends == EndKeys::DIFFER
            && ahead.back == ahead.at
            && self.seek_checks == SeekChecks::Bracket
            && self.order_checks == OrderChecks::Off
            && target.is_version(node.key(), (node.sequence(), node.revision()));
        if !is_first || !self.list.holds(node.lengths().kind()) {
            return None;
        }
        node.try_verify_as(target.key, &self.view)
    }

    /// The first entry at or after a position, by a bracket: in a few hops from what a hint leads
    /// to. `None`: a useless hint, or anything unusual.
    #[inline(always)]
    pub(crate) fn first_of(
        &self,
        ahead: Ahead<'a>,
        target: &Target<'_>,
    ) -> Option<Option<Verified<'a>>> {
        let first = self
            .find_ahead_of(ahead, HINT_HOPS, target, &mut Trail::default())?
            .entry;
        self.holds(first).then_some(first)
    }

    /// Whether an entry may be one of this list: a damaged hint may have led into the other one.
    #[inline(always)]
    pub(crate) fn holds(&self, entry: Option<Verified<'a>>) -> bool {
        entry.is_none_or(|entry| self.list.holds(entry.kind()))
    }

    /// The first node not before the target that the directory names and that level 0 leads to, if
    /// it comes before `right`; else `right`.
    #[cold]
    pub(super) fn nearest_named(&self, target: &Target<'_>, right: u32) -> u32 {
        let directory = self.directory();
        let Some(hint) = self.hint(target) else {
            return right;
        };
        let slots = (0..SLOTS_TRIED).map_while(|ahead| directory.moved(hint.at, ahead));
        let mut nodes = slots.map(|at| directory.named(at));
        nodes
            .find(|node| self.is_between(*node, target, right))
            .unwrap_or(right)
    }

    /// Whether a node is one of this list, not before the target, and before `right`. A node that
    /// its writer has not linked yet, or never will, is none of the list.
    fn is_between(&self, node: u32, target: &Target<'_>, right: u32) -> bool {
        let Ok(Some(entry)) = self.verified(node) else {
            return false;
        };
        let left = self
            .view
            .back_hint(node)
            .filter(|left| self.view.try_link(*left, 0) == Some(node));
        let before_right = match self.verified(right) {
            Ok(Some(right)) => entry
                .node()
                .order(self.comparator, &right.node().position(self.comparator))
                .is_lt(),
            Ok(None) => true,
            Err(_) => false,
        };
        left.is_some()
            && before_right
            && self.list.holds(entry.kind())
            && !self.is_before(entry.node(), target)
    }

    /// Searches at most `hops` steps on level 0 from `at`, opening each node once. `None` if the
    /// place is not found or anything unusual is met.
    #[inline(always)]
    pub(crate) fn find_near(
        &self,
        at: u32,
        hops: u32,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        self.find_ahead_of(self.look_ahead(at)?, hops, target, trail)
    }

    /// [`find_near`](Self::find_near), after the link was read.
    #[inline(always)]
    pub(crate) fn find_ahead_of(
        &self,
        ahead: Ahead<'a>,
        hops: u32,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        trail.visit();
        if let Some(node) = ahead.node
            && self.is_before(&node, target)
        {
            return self.hop_on((ahead.at, ahead.next), node, hops, *target, trail);
        }
        let mut pred_part = 0;
        if ahead.at != self.sentinel {
            let node = self.view.try_open(ahead.at)?;
            if !self.is_before(&node, target) {
                return None;
            }
            pred_part = node.try_verify(&self.view)?.key_part();
        }
        trail.record(0, ahead.at);
        self.certify_ahead(pred_part, &ahead)
    }

    /// Steps over `pred`, which is before the target and follows `from`, and at most `hops` further
    /// nodes, to the bracket of the target. Takes values, so that its callers keep them in
    /// registers.
    #[inline(never)]
    fn hop_on(
        self,
        (from, mut at): (u32, u32),
        mut pred: Node<'a>,
        hops: u32,
        target: Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        if self.seek_checks == SeekChecks::EveryNode {
            self.verified(from).ok()?;
        }
        for hop in 0..hops {
            trail.visit();
            if self.seek_checks == SeekChecks::EveryNode {
                pred.try_verify(&self.view)?;
            }
            let ahead = self.look_ahead(at)?;
            match ahead.node {
                Some(node) if self.is_before(&node, &target) => (at, pred) = (ahead.next, node),
                _ => {
                    trail.end_at(at, hop + 1);
                    return self.certify_ahead(pred.try_verify(&self.view)?.key_part(), &ahead);
                }
            }
        }
        None
    }

    #[inline(always)]
    pub(super) fn is_before(&self, node: &Node<'a>, target: &Target<'_>) -> bool {
        node.order(self.comparator, target).is_lt()
    }

    /// Prefetches the lines of a whole entry of usual size: one of 160 bytes reaches a fourth line
    /// in three cases of eight.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, node: u32) {
        let Some(address) = self
            .view
            .locate_near(node)
            .or_else(|| self.locate_far(node))
        else {
            return;
        };
        prefetch_lines(address, 4);
    }

    #[cold]
    #[inline(never)]
    fn locate_far(self, node: u32) -> Option<usize> {
        self.view.locate(node).map(|(address, _)| address)
    }
}
