//! The careful search: past damage, to a certified bracket (SEARCH-1) or to a gap. It compares healed
//! copies of damaged nodes, and steps over nodes that do not heal.
//!
//! ```text
//!   at --- x --- y --> greater       x does not heal: its own link leads to y; the gap is [at, greater]
//!   at -/ /-- b <--- c <-- greater   at's link is broken: back links lead to b, as far as forward links confirm them
//! ```
//! Any thread; lock-free.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use crate::error::{Corruption, Place, Result};
use crate::integrity::options::OrderChecks;
use crate::key::Target;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::back_links::Doubt;
use crate::memtable::arena::layout::HEIGHT_MAX;
use crate::memtable::arena::node::{Verified, bytes_of};
use crate::memtable::skiplist::bracket::{Bracket, Gap};
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;
use crate::memtable::skiplist::tower_walk::{Checks, Progress, Walk};

impl<'a> Search<'a> {
    /// The bracket around a position: verifies or heals every key on the way, and steps over nodes
    /// that do not heal by their own links.
    #[cold]
    #[inline(never)]
    pub(crate) fn bracket_with_care(
        self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        loop {
            let top = Walk {
                level: HEIGHT_MAX as u32 - 1,
                ..self.start()
            };
            let (walk, progress) = self.walk(top, 0, target, trail, Checks::StepOver);
            let Walk { at, greater, .. } = walk;
            if let Progress::Stopped(from) = progress {
                return self.bracket_by_back_links(from, &walk, target);
            }
            if walk.damaged_node != 0 {
                return Err(self.gap(self.node_report(walk.damaged_node), at, greater));
            }
            return match self.certify_healed(at, greater) {
                Ok(bracket) => Ok(bracket),
                // Another writer linked a node where the walk ended.
                Err(Doubt::Changed) => continue,
                Err(Doubt::Lost(_)) => self.bracket_by_back_links(at, &walk, target),
                Err(Doubt::Damage) => Err(self.gap(self.bracket_report(at, greater), at, greater)),
            };
        }
    }

    /// The bracket around a position, backward from `greater`: the level-0 link of `from` is broken
    /// or lost (SEARCH-2).
    #[cold]
    fn bracket_by_back_links(
        self,
        from: u32,
        walk: &Walk,
        target: &Target<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        let mut right = self.named_at_or_after(target, walk.greater);
        loop {
            let open = || Err(self.gap(self.link_report(from), walk.at, right));
            let Some(left) = self.view.back_hint(right) else {
                return open();
            };
            if left == from || left == self.sentinel || self.view.sure_link(left) != Some(right) {
                return open();
            }
            let Ok(bracket) = self.certify_healed(left, right) else {
                return open();
            };
            let Ok(Some(entry)) = self.verified(left) else {
                return open();
            };
            if entry.order(self.comparator, target).is_lt() {
                return Ok(bracket);
            }
            right = left;
        }
    }

    /// The bracket of two nodes, each as stored or healed, as the caller compared them (HEALED-4).
    #[cold]
    fn certify_healed(self, pred: u32, succ: u32) -> Result<Bracket<'a>, Doubt> {
        let left = self.verified(pred).map_err(|_| Doubt::Damage)?;
        let entry = self.confirmed_healed(pred, succ)?;
        if self.order_checks == OrderChecks::On {
            let checked = self.check_order(left.as_ref(), entry.as_ref());
            checked.map_err(|_| Doubt::Damage)?;
        }
        Ok(Bracket {
            pred,
            succ,
            entry,
            pred_part: left.map_or(0, |left| left.key_part()),
        })
    }

    /// The entry of `succ`, as stored or healed, whose back link confirms the link from `pred`.
    /// `None` for the sentinel.
    #[cold]
    pub(super) fn confirmed_healed(
        self,
        pred: u32,
        succ: u32,
    ) -> Result<Option<Verified<'a>>, Doubt> {
        self.view.confirm_link(self.sentinel, pred, succ)?;
        self.verified(succ).map_err(|_| Doubt::Damage)
    }

    /// Makes a gap. Damage to the control block is reported instead of `corruption`.
    #[cold]
    pub(crate) fn gap(self, corruption: Corruption, before: u32, after: u32) -> Gap {
        let corruption = self
            .view
            .arena()
            .control
            .check()
            .err()
            .unwrap_or(corruption);
        Gap {
            corruption,
            before,
            after,
        }
    }

    /// The report for a level-0 link that its tag or the next node's back link refutes.
    #[cold]
    pub(super) fn link_report(self, pred: u32) -> Corruption {
        let succ = match self.view.link(pred, 0) {
            Ok(succ) => succ,
            Err(broken) => return broken,
        };
        match self.view.confirm_link(self.sentinel, pred, succ) {
            Err(Doubt::Lost(hint)) => lost_link(pred, hint, succ),
            _ => self.bracket_report(pred, succ),
        }
    }

    /// The report for a damaged node that a walk stepped over.
    #[cold]
    pub(crate) fn node_report(self, node: u32) -> Corruption {
        self.verified(node)
            .err()
            .unwrap_or(Corruption::new(Place::Entry, bytes_of(node), 0, 0))
    }

    /// The report for a bracket that `certify` refused.
    #[cold]
    fn bracket_report(self, pred: u32, succ: u32) -> Corruption {
        let checked = self
            .verified(pred)
            .and_then(|left| self.check_order(left.as_ref(), self.verified(succ)?.as_ref()));
        checked
            .err()
            .unwrap_or(Corruption::new(Place::Link, bytes_of(pred), 0, 0))
    }
}

/// The report for a link from `pred` to `found`, whose back link names `expected`.
#[cold]
fn lost_link(pred: u32, expected: u32, found: u32) -> Corruption {
    Corruption::new(
        Place::Link,
        bytes_of(View::slot(pred, 0)),
        u64::from(expected),
        u64::from(found),
    )
}
