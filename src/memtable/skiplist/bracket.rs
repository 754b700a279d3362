//! Brackets: two level-0 neighbours, and the proof that nothing is between them.
//!
//! ```text
//!   pred --link--> succ      the link's tag matches; the back link confirms the link; both key digests verify;
//!        <--back--           with order checks: pred < succ
//! ```
//! A place that cannot be certified because of damage is a `Gap`.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::integrity::options::OrderChecks;
use crate::memtable::arena::back_links::Doubt;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::{Node, Verified, bytes_of};
use crate::memtable::skiplist::search::Search;

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

impl From<Gap> for Corruption {
    fn from(gap: Gap) -> Corruption {
        gap.corruption
    }
}

impl<'a> Search<'a> {
    /// The node after `at` on level 0, open.
    #[inline(always)]
    pub(crate) fn node_after(&self, at: u32) -> Option<Ahead<'a>> {
        self.node_of_link(at, self.view.try_link_with_ends(at, 0)?)
    }

    /// The node that the level-0 link of `at` names, open.
    #[inline(always)]
    pub(crate) fn node_of_link(&self, at: u32, (next, ends): (u32, EndKeys)) -> Option<Ahead<'a>> {
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

    /// Certifies the bracket of two nodes as they are stored (SEARCH-1), or returns the doubt about
    /// it.
    #[inline(never)]
    pub(super) fn certify(&self, pred: u32, succ: u32) -> Result<Bracket<'a>, Doubt> {
        let mut pred_part = 0;
        if pred != self.sentinel {
            let left = self
                .view
                .try_open(pred)
                .and_then(|node| node.try_verify(&self.view));
            pred_part = left.ok_or(Doubt::Damage)?.key_part();
        }
        let entry = self.confirmed_entry(pred, succ)?;
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
    fn confirmed_entry(&self, pred: u32, succ: u32) -> Result<Option<Verified<'a>>, Doubt> {
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

    /// Whether a bracket's back link is unchanged since it was certified. If its link is unchanged
    /// too, which the writer's compare-and-swap decides, no node has come between.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self, bracket: &Bracket<'a>) -> bool {
        self.view.back_target(bracket.succ) == Some(bracket.pred)
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
                .order_as_stored(self.comparator, &right.position_as_stored(self.comparator))
                .is_lt(),
            _ => false,
        }
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
        let position = right.position(self.comparator);
        if left.order(self.comparator, &position).is_lt() {
            return Ok(());
        }
        let place = bytes_of(left.offset());
        let report = Corruption::new(Place::Order, place, u64::from(right.offset()), 0);
        Err(report.with_sequence(left.sequence()))
    }
}
