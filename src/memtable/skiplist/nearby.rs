//! Searches in a few hops on level 0: from a hint of the directory, or from a writer's last entry.
//!
//! ```text
//!   start -> . -> . -> [pred | succ]     certified like the bracket of every search (SEARCH-1)
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

/// How many slots of the directory are tried for a way around a broken link.
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

    /// The directory's hint for a target with a key.
    #[inline(always)]
    pub(crate) fn ask_directory(&self, target: &Target<'_>) -> Option<Hint> {
        if self.skiplist.directory == 0 || target.is_extreme() {
            return None;
        }
        let hint = self.directory().lookup(target)?;
        self.prefetch_hint(&hint);
        Some(hint)
    }

    /// [`ask_directory`](Self::ask_directory), compiled once for all but plain gets.
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

    /// The node after the one at which a hint starts.
    #[inline(always)]
    pub(crate) fn ahead_of(&self, hint: &Hint) -> Option<Ahead<'a>> {
        self.look_ahead(if hint.before == 0 {
            self.sentinel
        } else {
            hint.before
        })
    }

    /// The first entry at or after a position, if its link alone proves it (SEARCH-3). `None` if
    /// the options ask for more checks than that.
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

    /// The first entry at or after a position, by a bracket in a few hops. `None`: the hint is of
    /// no use, or the search met anything unusual.
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

    /// Whether an entry may be one of this list: a damaged hint may lead into the other list.
    #[inline(always)]
    pub(crate) fn holds(&self, entry: Option<Verified<'a>>) -> bool {
        entry.is_none_or(|entry| self.list.holds(entry.kind()))
    }

    /// The first node of this list that the directory names, that is not before the target, and
    /// that is before `right`. If there is none, `right`.
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

    /// Whether a node is linked in this list, not before the target, and before `right`.
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

    /// The bracket around a position, in at most `hops` steps on level 0 from `at`; opens each node
    /// once. `None`: it is not there, or the search met anything unusual.
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

    /// [`find_near`](Self::find_near) from a link that was read.
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

    /// The bracket of a target, past `pred` and at most `hops` further nodes. `pred` follows `from`
    /// and is before the target. Takes values, so that its callers keep them in registers.
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
