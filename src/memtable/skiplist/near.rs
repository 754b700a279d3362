//! Searches in a few hops on level 0: from a hint of the directory, or from a writer's last entry.
//!
//! ```text
//!   start -> . -> . -> [pred | succ]     certified like the bracket of every search (SEARCH-1);
//!                              succ      alone, where its link proves it (SEARCH-3)
//! ```
//! Any thread; lock-free. Anything unusual is left to a search from the top.

#![forbid(unsafe_code)]

use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::key::Target;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::{Node, Verified};
use crate::memtable::directory::lookup::Hint;
use crate::memtable::skiplist::bracket::{Ahead, Bracket};
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;

/// Most hops on level 0 from a hint before the search takes the towers: a leaf and a half of
/// entries.
pub(super) const HINT_HOPS: u32 = 64;
/// Most hops from a hint that may be a guess, before the directory is asked again.
pub(super) const GUESS_HOPS: u32 = 8;

impl<'a> Search<'a> {
    /// The node after the one at which a hint starts.
    #[inline(always)]
    pub(crate) fn node_after_hint(&self, hint: &Hint) -> Option<Ahead<'a>> {
        let (at, link) = self.link_after_hint(hint)?;
        self.node_of_link(at, link)
    }

    /// The node at which a hint starts, and its level-0 link.
    #[inline(always)]
    pub(super) fn link_after_hint(&self, hint: &Hint) -> Option<(u32, (u32, EndKeys))> {
        let at = if hint.before == 0 {
            self.sentinel
        } else {
            hint.before
        };
        Some((at, self.view.try_link_with_ends(at, 0)?))
    }

    /// The entry of a node, if it is the first one at or after a position, and the link to it from
    /// the node that its back link names proves it (SEARCH-3). Takes values, so that its callers
    /// keep them in registers.
    #[inline(never)]
    pub(super) fn proved_by_back_link(self, at: u32, target: &Target<'_>) -> Option<Verified<'a>> {
        let (node, back) = self.view.try_open_with_back(at)?;
        let (next, ends) = self.view.try_link_with_ends(back, 0)?;
        let ahead = Ahead {
            at: back,
            ends,
            next,
            node: Some(node),
            back,
        };
        self.proved_first(&ahead, target).filter(|_| next == at)
    }

    /// The first entry at or after a position, if its link alone proves it (SEARCH-3). `None` if
    /// the options ask for more checks than that.
    #[inline(always)]
    pub(crate) fn proved_first(
        &self,
        ahead: &Ahead<'a>,
        target: &Target<'_>,
    ) -> Option<Verified<'a>> {
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

    /// The bracket around a position, in at most `hops` steps on level 0 from `at`; opens each node
    /// once. `None`: it is not there, or the search met anything unusual.
    #[inline(always)]
    pub(crate) fn bracket_near(
        &self,
        at: u32,
        hops: u32,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        self.bracket_ahead(self.node_after(at)?, hops, target, trail)
    }

    /// [`bracket_near`](Self::bracket_near) from a link that was read.
    #[inline(always)]
    pub(crate) fn bracket_ahead(
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
            return self.bracket_after_hops(ahead.at, ahead.next, node, hops, *target, trail);
        }
        self.bracket_over(ahead, target, trail)
    }

    /// The bracket around a position, at a link that leads to no node before the position. `None`:
    /// the link starts at or after the position, or the search met anything unusual.
    #[inline(always)]
    pub(super) fn bracket_over(
        &self,
        ahead: Ahead<'a>,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
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

    /// The first entry at or after a position, past `pred`, which follows `from` and is before the
    /// position: by its link alone (SEARCH-3), or by a bracket. Takes values, so that its callers
    /// keep them in registers.
    #[inline(never)]
    pub(super) fn first_after_hops(
        self,
        from: u32,
        at: u32,
        pred: Node<'a>,
        target: Target<'_>,
    ) -> Option<Option<Verified<'a>>> {
        let trail = &mut Trail::default();
        let (pred, ahead) = self.hop(from, (at, pred), GUESS_HOPS, &target, trail)?;
        if let Some(entry) = self.proved_first(&ahead, &target) {
            return Some(Some(entry));
        }
        let pred_part = pred.try_verify(&self.view)?.key_part();
        let entry = self.certify_ahead(pred_part, &ahead)?.entry;
        self.holds(entry).then_some(entry)
    }

    /// The bracket of a target, past `pred`, as [`first_after_hops`](Self::first_after_hops).
    #[inline(never)]
    fn bracket_after_hops(
        self,
        from: u32,
        at: u32,
        pred: Node<'a>,
        hops: u32,
        target: Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<Bracket<'a>> {
        let (pred, ahead) = self.hop(from, (at, pred), hops, &target, trail)?;
        self.certify_ahead(pred.try_verify(&self.view)?.key_part(), &ahead)
    }

    /// The last node before a position, and the link from it, past a node before the position (its
    /// address, and open) and at most `hops` further nodes.
    #[inline(always)]
    fn hop(
        &self,
        from: u32,
        (mut at, mut pred): (u32, Node<'a>),
        hops: u32,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Option<(Node<'a>, Ahead<'a>)> {
        if self.seek_checks == SeekChecks::EveryNode {
            self.verified(from).ok()?;
        }
        for hop in 0..hops {
            trail.visit();
            if self.seek_checks == SeekChecks::EveryNode {
                pred.try_verify(&self.view)?;
            }
            let ahead = self.node_after(at)?;
            match ahead.node {
                Some(node) if self.is_before(&node, target) => (at, pred) = (ahead.next, node),
                _ => {
                    trail.end_at(at, hop + 1);
                    return Some((pred, ahead));
                }
            }
        }
        None
    }
}
