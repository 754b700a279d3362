//! Steps along level 0 in both directions, and past gaps.
//!
//! ```text
//!   next   at --link--> next                      next's back link confirms the link; next's key verifies
//!   prev   at --back--> h --link--> .. --> at     a back link is a hint that forward links confirm
//! ```
//! A step's answer is certified like that of a search (SEARCH-1). Where that fails, the step
//! returns a `Gap` between two intact nodes, which upper levels and back links find.
//!
//! Any thread; lock-free. A step back is expected O(1): it walks forward from a stale back link,
//! and renews the link.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::options::OrderChecks;
use crate::key::{Direction, Side, Target};
use crate::memtable::arena::back_links::Doubt;
use crate::memtable::arena::node::Verified;
use crate::memtable::skiplist::bracket::{Bracket, Gap};
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;

/// Longest walk forward from a stale back link before a search takes over.
const HINT_HOPS_MAX: u32 = 64;

impl<'a> Search<'a> {
    /// The entry after `at`, or the first one if `at` is the sentinel, without order checks.
    /// `None`: the list ends, or the entry needs a closer look; `next` says which.
    #[inline(always)]
    pub(crate) fn try_next(&self, at: u32) -> Option<Verified<'a>> {
        let next = self
            .view
            .try_link(at, 0)
            .filter(|next| *next != self.sentinel)?;
        let (node, back) = self.view.try_open_with_back(next)?;
        if back != at {
            return None;
        }
        node.try_verify(&self.view)
    }

    /// The entry after `at`, or the first one if `at` is the sentinel.
    #[inline(always)]
    pub(crate) fn next(&self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        match self.try_next(at) {
            Some(entry) if self.order_checks == OrderChecks::Off => Ok(Some(entry)),
            _ => self.next_or_gap(at),
        }
    }

    /// [`next`](Self::next), compiled once for steps that are rare or meet damage. Takes the search
    /// by value, so that its callers keep it in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn next_or_gap(self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        loop {
            let Some(next) = self.view.sure_link(at) else {
                return Err(self.after_link(at));
            };
            match self.confirmed_healed(at, next) {
                Ok(entry) => return self.in_order(at, next).map(|()| entry),
                Err(Doubt::Changed) => {}
                Err(Doubt::Lost(_)) => return Err(self.after_link(at)),
                Err(Doubt::Damage) => return Err(self.after_node(at, next)),
            }
        }
    }

    /// The node after `at` on level 0, intact or not, by a link that tag and back link confirm.
    #[cold]
    pub(crate) fn linked(self, at: u32) -> Result<u32, Corruption> {
        loop {
            let next = self.view.link(at, 0)?;
            match self.view.confirm_link(self.sentinel, at, next) {
                Err(Doubt::Changed) => {}
                Err(Doubt::Lost(_)) => return Err(self.link_report(at)),
                Ok(()) | Err(Doubt::Damage) => return Ok(next),
            }
        }
    }

    /// Makes the order check of a step. A node that was damaged meanwhile is not compared.
    fn in_order(self, left: u32, right: u32) -> Result<(), Gap> {
        if self.order_checks == OrderChecks::Off {
            return Ok(());
        }
        let verified = [left, right].map(|node| self.verified(node).ok().flatten());
        let checked = self.check_order(verified[0].as_ref(), verified[1].as_ref());
        checked.map_err(|corruption| self.gap(corruption, left, right))
    }

    /// The gap after `at`, where the node `bad` is damaged. Its own link leads to the next intact
    /// node.
    #[cold]
    #[inline(never)]
    fn after_node(self, at: u32, bad: u32) -> Gap {
        let mut node = bad;
        let after = loop {
            match self.view.sure_link(node) {
                Some(next) if self.verified(next).is_ok() => break next,
                Some(next) => node = next,
                None => break self.resume_after(at),
            }
        };
        self.gap(self.node_report(bad), at, after)
    }

    /// The gap after `at`, whose link is damaged or went back to an earlier value.
    #[cold]
    #[inline(never)]
    fn after_link(self, at: u32) -> Gap {
        self.gap(self.link_report(at), at, self.resume_after(at))
    }

    /// The first intact node after `at` that upper levels and back links find.
    #[cold]
    pub(crate) fn resume_after(self, at: u32) -> u32 {
        self.intact_beside(at, Direction::Forward)
            .unwrap_or(self.sentinel)
    }

    /// The first intact node in a direction from `at` that upper levels and back links find.
    #[cold]
    fn intact_beside(self, at: u32, way: Direction) -> Result<u32, Corruption> {
        Ok(
            match self.bracket_with_care(&self.position_beside(at, way)?, &mut Trail::default()) {
                Ok(Bracket { pred, succ, .. }) => way.pick((pred, succ)),
                Err(Gap { before, after, .. }) => way.pick((before, after)),
            },
        )
    }

    /// The position right before or right after a node. Beside the sentinel it is the other end of
    /// the list.
    fn position_beside(self, at: u32, way: Direction) -> Result<Target<'a>, Corruption> {
        Ok(match self.verified(at)? {
            Some(entry) => entry
                .position(self.comparator)
                .with_side(way.pick((Side::Before, Side::After))),
            None => Target::extreme(way.pick((Side::End, Side::Start))),
        })
    }

    /// The entry before `at`, or the last one if `at` is the sentinel, without order checks.
    /// `None`: the list begins, the back link is late, or the entry needs a closer look; `prev`
    /// says which.
    #[inline(always)]
    pub(crate) fn try_prev(&self, at: u32) -> Option<Verified<'a>> {
        let prev = self
            .view
            .back_hint(at)
            .filter(|prev| *prev != self.sentinel)?;
        if self.view.try_link(prev, 0)? != at {
            return None;
        }
        self.view.try_open(prev)?.try_verify(&self.view)
    }

    /// The entry before `at`, or the last one if `at` is the sentinel.
    #[inline(always)]
    pub(crate) fn prev(&self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        match self.try_prev(at) {
            Some(entry) if self.order_checks == OrderChecks::Off => Ok(Some(entry)),
            _ => self.prev_or_gap(at),
        }
    }

    /// [`prev`](Self::prev), compiled once for steps that are rare or meet damage.
    #[cold]
    #[inline(never)]
    fn prev_or_gap(self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        let Some(prev) = self.confirmed_back(at) else {
            return self.prev_by_search(at);
        };
        if prev == self.sentinel {
            return Ok(None);
        }
        let Ok(Some(entry)) = self.verified(prev) else {
            return Err(self.gap(self.node_report(prev), self.intact_before(at, prev), at));
        };
        self.in_order(prev, at).map(|()| Some(entry))
    }

    /// The last intact node before `at`, where `prev` is damaged. The back link of `prev` may be
    /// damaged too, so it is asked last.
    #[cold]
    fn intact_before(self, at: u32, prev: u32) -> u32 {
        let before = self.intact_beside(at, Direction::Backward).ok();
        before
            .or_else(|| self.confirmed_back(prev))
            .unwrap_or(self.sentinel)
    }

    /// The node whose level-0 link names `at`, by a walk from the node that `at`'s back link names.
    #[cold]
    fn confirmed_back(&self, at: u32) -> Option<u32> {
        let back = self
            .view
            .load_back(at)
            .filter(|back| self.view.is_tagged(at, *back))?;
        let hint = back.target();
        let mut node = hint;
        for _ in 0..HINT_HOPS_MAX {
            let next = self.view.sure_link(node)?;
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

    /// The entry before `at` by a search: the back link does not lead to it. A back link whose tag
    /// matches is not overwritten: another thread has renewed it, or it is evidence of a lost
    /// write.
    #[cold]
    fn prev_by_search(self, at: u32) -> Result<Option<Verified<'a>>, Gap> {
        let target = self.position_beside(at, Direction::Backward);
        let target = target.map_err(|corruption| self.gap(corruption, self.sentinel, at))?;
        let found = self.bracket(&target, &mut Trail::default())?;
        if found.succ != at {
            return Err(self.gap(self.link_report(found.pred), found.pred, at));
        }
        if let Some(back) = self.view.load_back(at)
            && !self.view.is_tagged(at, back)
        {
            self.view.replace_back(at, back, found.pred);
        }
        self.verified(found.pred)
            .map_err(|corruption| self.gap(corruption, self.sentinel, at))
    }

    /// The gap around the entry at `at`, which verified before and no longer does. Its links are
    /// still followed.
    #[cold]
    pub(crate) fn gap_at(&self, at: u32, corruption: Corruption) -> Gap {
        let node =
            |entry: Option<Verified<'a>>| entry.map_or(self.sentinel, |entry| entry.offset());
        let before = self.prev_or_gap(at).map_or_else(|gap| gap.before, node);
        let after = self.next_or_gap(at).map_or_else(|gap| gap.after, node);
        Gap {
            corruption,
            before,
            after,
        }
    }
}
