//! The walk down the towers to a position.
//!
//! ```text
//!   level 2   S ----------------------> d ------------------> S        at       last node known to be before the target
//!   level 1   S --------> b ----------> d ----------> g ----> S        greater  first node known not to be before it
//!   level 0   S --> a --> b --> [c  |   d] --> e ---> g ----> S        the walk ends between c and d
//! ```
//! S is the sentinel. It starts and ends every level: its links name the first nodes, its back link
//! the last node.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use std::cmp::Ordering as Order;

use crate::key::Target;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::layout::HEIGHT_MAX;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;
use crate::prefetch::prefetch_read;

/// Units from a node to the end of its key's first words, with digests of 8 bytes.
const KEY_UNITS: u32 = 6;

/// How much a walk checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checks {
    /// Only the bracket is verified.
    Bracket,
    /// The key digest of every node on the way is verified.
    EveryNode,
    /// Every node on the way is verified or healed, and the walk steps over those that do not heal.
    StepOver,
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

impl Search<'_> {
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

    /// Walks from the sentinel down to the level `lowest`. Takes and returns the walk by value, so
    /// that it stays in registers.
    #[inline(never)]
    pub(super) fn walk(
        self,
        mut walk: Walk,
        lowest: u32,
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

    /// Takes the next candidate after `from`, on this level or below.
    #[inline(always)]
    pub(crate) fn choose(&self, walk: &mut Walk, mut from: u32, trail: &mut Trail<'_>) -> Progress {
        loop {
            let mut link = self.view.try_link(from, walk.level);
            if link.is_none() && walk.level == 0 {
                link = self.view.healed_link(from);
            }
            match link {
                Some(target) if target != walk.greater && target != self.sentinel => {
                    walk.candidate = target;
                    return Progress::On;
                }
                Some(target) => walk.greater = target,
                // A faulty processor may step below level 0, to a number above the top level.
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
        let Some(node) = opened
            .filter(|node| checks == Checks::Bracket || node.try_verify(&self.view).is_some())
        else {
            return self.past_damaged_node(walk, target, trail, checks);
        };
        let order = node.order_as_stored(self.comparator, target);
        self.pass(walk, order, trail)
    }

    /// Moves to the candidate, if this order says that it is before the target, or else down.
    #[inline(always)]
    fn pass(&self, walk: &mut Walk, order: Order, trail: &mut Trail<'_>) -> Progress {
        if !order.is_lt() {
            walk.greater = walk.candidate;
            return self.descend(walk, trail);
        }
        // `at` moves only here, to a node that compared less: whatever damage the walk meets, it
        // enters level 0 before the target.
        walk.at = walk.candidate;
        walk.damaged_node = 0;
        if walk.level > 0 {
            self.prefetch_below(walk.at, walk.level - 1);
        }
        self.choose(walk, walk.at, trail)
    }

    /// Passes the candidate, which is damaged, if the walk steps over damage: by its healed key, or
    /// without a comparison if it does not heal. Out of line, so that the loop of an undamaged walk
    /// keeps its values in registers.
    #[cold]
    #[inline(never)]
    fn past_damaged_node(
        &self,
        walk: &mut Walk,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
        checks: Checks,
    ) -> Progress {
        if checks != Checks::StepOver {
            return Progress::Stopped(walk.candidate);
        }
        if let Some(healed) = self.view.healed(walk.candidate) {
            return self.pass(walk, healed.order(self.comparator, target), trail);
        }
        if walk.damaged_node == 0 {
            walk.damaged_node = walk.candidate;
        }
        self.choose(walk, walk.candidate, trail)
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
}
