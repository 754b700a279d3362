//! Looks up in the directory where a search starts.
//!
//! ```text
//!   root word -> inner page: last child whose fence is before the target -> .. -> leaf: last node before the target
//! ```
//! The result is a hint: the search checks every node that it opens, and certifies the bracket. A
//! lookup ends whatever the pages hold: after the levels that the root word names, and a few pages
//! to the right on each.
//!
//! Any thread; no lock, no retry. O(log n) pages; keys are read only where discriminators are
//! equal.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of halves"
)]

use std::hint::black_box;
use std::ops::Range;

use crate::comparator::KeyComparator;
use crate::key::Target;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::Node;
use crate::memtable::directory::discriminator::{
    CODED, Measure, UNLIMITED, byte_of, shared, shared_of,
};
use crate::memtable::directory::page::{FREE, Kind, Page, SLOTS, Slot, WORDS};
use crate::prefetch::prefetch_lines;
use crate::sync::Ordering;

/// Most pages that a lookup moves to the right on a level, over replaced pages and over splits that
/// no parent names yet.
pub(super) const MOVES_MAX: u32 = 8;
/// The fence of the first page of a level, which is before all nodes.
pub(super) const START: u32 = 0;
/// Most lookups of a group.
pub(crate) const GROUP: usize = 32;
/// Most nodes with the target's discriminator that a search passes by hops on level 0: the lookup
/// reads the keys of more.
const TIES_HOPPED: usize = 2;
/// The kind of a page, and how many slots after the first may have the target's discriminator.
const LEAF: (Kind, usize) = (Kind::Leaf, TIES_HOPPED);
const INNER: (Kind, usize) = (Kind::Inner, 0);
/// Cache lines of a leaf, and of either half of an inner page.
const LEAF_LINES: usize = 8;
/// Cache lines of a node to the end of a long key.
const KEY_LINES: usize = 3;
/// Most levels of inner pages.
pub(super) const LEVELS_MAX: u32 = 6;

/// A slot of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LeafSlot {
    /// The leaf; 0: no slot.
    pub(crate) leaf: u32,
    pub(crate) slot: u32,
}

impl LeafSlot {
    pub(crate) const NONE: LeafSlot = LeafSlot { leaf: 0, slot: 0 };
}

/// The start of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hint {
    /// The slot of the first named node that is not before the target.
    pub(crate) at: LeafSlot,
    /// A node before the target; 0: the start of the list.
    pub(crate) before: u32,
    /// The first named node that is not before the target; 0: unknown.
    pub(crate) after: u32,
}

/// The directory of a list.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'s, 'a> {
    pub(crate) view: &'s View<'a>,
    pub(crate) comparator: &'a KeyComparator,
    /// The unit of the root word.
    pub(crate) root: u32,
}

/// The parts of a root word: page 32 | levels 8 | check 24. `None`: damage.
#[inline(always)]
fn unpack(view: &View<'_>, at: u32, word: u64) -> Option<(u32, u32)> {
    let (page, levels) = ((word >> 32) as u32, (word >> 24) as u32 & 0xff);
    (levels <= LEVELS_MAX && pack(view, at, page, levels) == word).then_some((page, levels))
}

/// Makes a root word.
#[inline(always)]
pub(super) fn pack(view: &View<'_>, at: u32, page: u32, levels: u32) -> u64 {
    let check = view.secret.link_tag(at ^ levels << 24, u32::MAX - 2, page) >> 8;
    u64::from(page) << 32 | u64::from(levels) << 24 | u64::from(check)
}

impl<'a> Pages<'_, 'a> {
    /// The root page, and the number of levels of inner pages. `None`: no page yet, or damage.
    #[inline(always)]
    pub(super) fn root(&self) -> Option<(u32, u32)> {
        // ORDERING: Acquire pairs with the Release in `set_root`: the page's words are visible.
        let word = self.view.root().load(Ordering::Acquire);
        if word == 0 || self.root == 0 {
            None
        } else {
            unpack(self.view, self.root, word)
        }
    }

    /// Whether the key of a node begins with the bytes that a page leaves out.
    pub(super) fn begins(&self, measure: &Measure, node: u32) -> bool {
        let side = |node: Node<'_>| measure.side(self.view, self.comparator, node.key());
        measure.skip == 0
            || measure.skip != CODED
                && self
                    .view
                    .try_open(node)
                    .is_some_and(|node| side(node).is_eq())
    }

    /// Whether a node is before the target. The start of the list (0) is; a node that does not open
    /// is not.
    pub(super) fn is_before(&self, node: u32, target: &Target<'_>) -> bool {
        node == START
            || self
                .view
                .try_open(node)
                .is_some_and(|node| node.order(self.comparator, target).is_lt())
    }

    /// The first slot of a page whose node is not before the target, by discriminators
    /// (MEASURE-1). If at most `ties` slots after the first have the target's discriminator, it is
    /// the first of them, and no key is read: the caller hops over the others.
    pub(super) fn slot(
        &self,
        page: &Page<'a>,
        target: &Target<'_>,
        (kind, ties): (Kind, usize),
    ) -> usize {
        if page.measure().skip == CODED {
            return self.slot_by_codes(page, target, kind);
        }
        let wanted = page
            .measure()
            .discriminator(self.view, self.comparator, target.key);
        let (least, last) = kind.words_with(wanted);
        let first = page.rank(least);
        if page.word(first + if first > 0 { ties } else { 0 }) > last {
            return first;
        }
        self.slot_by_keys(page, target, kind, first..page.rank(last.saturating_add(1)))
    }

    /// The first of these slots whose node is not before the target, or the one after them.
    fn slot_by_keys(
        &self,
        page: &Page<'a>,
        target: &Target<'_>,
        kind: Kind,
        slots: Range<usize>,
    ) -> usize {
        // The first two slots come before a binary search of the rest: a new version of a key
        // belongs before its newest one, and the first slot of a page may name a node before it.
        let is_before = |slot| {
            let node = page
                .slot(self.view, kind, slot)
                .map_or(START, |slot| slot.node);
            self.is_before(node, target)
        };
        if let Some(slot) = slots.clone().take(2).find(|slot| !is_before(*slot)) {
            return slot;
        }
        let (mut start, mut end) = (slots.end.min(slots.start + 2), slots.end);
        while start < end {
            let middle = start.midpoint(end);
            if is_before(middle) {
                start = middle + 1
            } else {
                end = middle
            }
        }
        start
    }

    /// [`Pages::slot`] of a coded page.
    fn slot_by_codes(&self, page: &Page<'a>, target: &Target<'_>, kind: Kind) -> usize {
        // A slot whose code is after the target sets the limit: later slots that share as many
        // bytes are after the target too. Free slots are above every limit.
        let (mut candidate, mut limit) = (0, UNLIMITED);
        for slot in 1..SLOTS {
            let word = page.word(slot);
            if word < limit {
                let is_after = byte_of(target.key, shared_of(word)) < (word >> 32) as u8;
                (candidate, limit) = if is_after {
                    (candidate, word & UNLIMITED)
                } else {
                    (slot, UNLIMITED)
                };
            }
        }
        self.prefetch_around(page, kind, candidate);
        let node = page
            .slot(self.view, kind, candidate)
            .and_then(|slot| self.view.try_open(slot.node));
        let key = node.as_ref().map_or(&[][..], |node| node.key());
        let common = shared(self.comparator, key, target.key);
        let order = key
            .get(common as usize)
            .cmp(&target.key.get(common as usize));
        let is_before = |node: Node<'_>| {
            order
                .then_with(|| node.order(self.comparator, target))
                .is_lt()
        };
        if node.is_none_or(is_before) {
            let ends =
                |slot: &usize| page.word(*slot) == FREE || shared_of(page.word(*slot)) <= common;
            return (candidate + 1..SLOTS).find(ends).unwrap_or(SLOTS);
        }
        // The candidate is the last version of its key.
        let is_whole = common as usize == target.key.len();
        let tied = common + u32::from(!is_whole);
        let first = (1..=candidate)
            .rev()
            .find(|slot| shared_of(page.word(*slot)) < tied)
            .unwrap_or(0);
        let tied = if is_whole {
            first..candidate
        } else {
            first..first
        };
        self.slot_by_keys(page, target, kind, tied)
    }

    /// Prefetches the nodes or pages that are read next: those of a slot and of its neighbours.
    fn prefetch_around(&self, page: &Page<'a>, kind: Kind, slot: usize) {
        for beside in [slot, slot.saturating_sub(1), slot + 1] {
            if let Some(Slot { node, child, .. }) = page.slot(self.view, kind, beside) {
                self.prefetch_page(node, KEY_LINES);
                self.prefetch_page(child, if kind == Kind::Inner { LEAF_LINES } else { 0 });
            }
        }
    }

    /// The next page, if its range holds the target.
    pub(super) fn right_of(&self, page: &Page<'a>, target: &Target<'_>) -> Option<Page<'a>> {
        let next = Page::open(self.view, page.next())?;
        self.is_before(next.low(), target).then_some(next)
    }

    /// The page of a level whose range holds the target. `None`: damage, or the level does not
    /// exist.
    #[inline(always)]
    pub(super) fn page_at(&self, level: u32, target: &Target<'_>) -> Option<Page<'a>> {
        let (mut page, levels) = self.root().filter(|(_, levels)| *levels >= level)?;
        for above in (level + 1..=levels).rev() {
            page = self.child_of(page, target)?;
            self.prefetch_page(page, LEAF_LINES);
            if above > 1 {
                self.prefetch_page(page.wrapping_add(WORDS as u32), LEAF_LINES);
            }
        }
        Page::open(self.view, page)
    }

    /// The page below an inner page whose range holds the target.
    #[inline(always)]
    fn child_of(&self, page: u32, target: &Target<'_>) -> Option<u32> {
        let page = Page::open(self.view, page)?;
        match page.slot_at_once(self.view, self.comparator, target, INNER) {
            Some(slot) => page.child(self.view, slot - 1).map(|(child, _)| child),
            None => child_by_keys((*self.view, self.comparator), page, *target),
        }
    }

    /// The page that holds the target instead of this one: its replacement, or the right part of a
    /// split that no parent names yet.
    fn elsewhere(&self, page: &Page<'a>, slot: usize, target: &Target<'_>) -> Option<Page<'a>> {
        match page.word(slot) {
            _ if page.is_replaced() => Page::open(self.view, page.next()),
            FREE => self.right_of(page, target),
            _ => None,
        }
    }

    /// Prefetches the first lines of a page.
    #[inline(always)]
    fn prefetch_page(&self, at: u32, lines: usize) {
        prefetch_lines(self.view.likely_address(at), lines);
    }

    /// The start of a search for the target.
    #[inline(always)]
    pub(crate) fn lookup(&self, target: &Target<'_>) -> Option<Hint> {
        let page = self.page_at(0, target)?;
        Some(self.in_leaf(page, target))
    }

    /// The starts of searches for many targets: level by level, so that the lookups wait for memory
    /// once a level. Calls `found` with each hint as it is found. A target without a key gets none.
    #[inline(always)]
    pub(crate) fn lookup_many(
        &self,
        targets: &[Target<'_>],
        hints: &mut [Option<Hint>; GROUP],
        mut found: impl FnMut(&Hint),
    ) {
        let Some((root, levels)) = self.root() else {
            return;
        };
        let mut pages = [Some(root); GROUP];
        for level in 0..levels {
            // A limit of its own: a faulty processor may miss the end of the loop.
            if level == black_box(LEVELS_MAX) {
                break;
            }
            for (page, target) in pages.iter_mut().zip(targets) {
                *page = page.and_then(|at| self.child_of(at, target));
                // The discriminators only: one child of the other half is read.
                page.iter()
                    .for_each(|at| self.prefetch_page(*at, LEAF_LINES));
            }
        }
        for ((hint, page), target) in hints.iter_mut().zip(pages).zip(targets) {
            let page = page
                .filter(|_| !target.is_extreme())
                .and_then(|page| Page::open(self.view, page));
            *hint = page.map(|page| self.in_leaf(page, target));
            hint.iter().for_each(&mut found);
        }
    }

    /// The hint that a leaf gives.
    #[inline(always)]
    fn in_leaf(&self, page: Page<'a>, target: &Target<'_>) -> Hint {
        match page.slot_at_once(self.view, self.comparator, target, LEAF) {
            Some(slot) => Hint {
                at: LeafSlot {
                    leaf: page.at,
                    slot: slot as u32,
                },
                before: page.node(slot - 1),
                after: page.node(slot),
            },
            None => hint_by_keys((*self.view, self.comparator), page, *target),
        }
    }

    /// The node that a slot names; 0: none.
    #[inline(always)]
    pub(crate) fn named(&self, LeafSlot { leaf, slot }: LeafSlot) -> u32 {
        Page::open(self.view, leaf).map_or(0, |page| page.node(slot as usize))
    }

    /// The slot `by` slots after another one, in the same leaf or a neighbour. `None`: there is
    /// none.
    #[inline(never)]
    pub(crate) fn moved(&self, from: LeafSlot, by: i32) -> Option<LeafSlot> {
        let mut page = Page::open(self.view, from.leaf)?;
        let mut slot = i64::from(from.slot) + i64::from(by);
        for _ in 0..MOVES_MAX {
            let count = page.rank(FREE) as i64;
            let beside = if slot < 0 { page.prev() } else { page.next() };
            if !page.is_replaced() {
                if (0..count).contains(&slot) {
                    return Some(LeafSlot {
                        leaf: page.at,
                        slot: slot as u32,
                    });
                }
                slot -= if slot < 0 { 0 } else { count };
            }
            page = Page::open(self.view, beside)?;
            slot += if slot < 0 { page.rank(FREE) as i64 } else { 0 };
        }
        None
    }

    /// Prefetches a leaf.
    pub(crate) fn prefetch_leaf(&self, leaf: u32) {
        self.prefetch_page(leaf, LEAF_LINES);
    }

    /// The leaves before and after a leaf; 0: none.
    pub(crate) fn beside(&self, leaf: u32) -> (u32, u32) {
        Page::open(self.view, leaf).map_or((0, 0), |page| (page.prev(), page.next()))
    }
}

/// The page whose range holds the target, at `page` or after it, and [`Pages::slot`] there. For
/// lookups that read keys or neighbours. Takes values, so that its callers keep them in registers.
#[cold]
#[inline(never)]
fn settle<'a>(
    (view, comparator): (View<'a>, &'a KeyComparator),
    mut page: Page<'a>,
    target: Target<'_>,
    how: (Kind, usize),
) -> (Page<'a>, usize) {
    let pages = Pages {
        view: &view,
        comparator,
        root: 0,
    };
    let mut slot = pages.slot(&page, &target, how);
    for _ in 0..MOVES_MAX {
        let Some(right) = pages.elsewhere(&page, slot, &target) else {
            break;
        };
        page = right;
        slot = pages.slot(&page, &target, how);
    }
    (page, slot)
}

/// [`Pages::child_of`], if it reads keys or neighbours.
#[cold]
#[inline(never)]
fn child_by_keys<'a>(
    with: (View<'a>, &'a KeyComparator),
    page: Page<'a>,
    target: Target<'_>,
) -> Option<u32> {
    let (page, slot) = settle(with, page, target, INNER);
    page.child(&with.0, slot.max(1) - 1).map(|(child, _)| child)
}

/// [`Pages::in_leaf`], if it reads keys or neighbours.
#[cold]
#[inline(never)]
fn hint_by_keys<'a>(
    (view, comparator): (View<'a>, &'a KeyComparator),
    page: Page<'a>,
    target: Target<'_>,
) -> Hint {
    let pages = Pages {
        view: &view,
        comparator,
        root: 0,
    };
    let (page, slot) = settle((view, comparator), page, target, LEAF);
    let at = LeafSlot {
        leaf: page.at,
        slot: slot as u32,
    };
    let before = match slot.checked_sub(1) {
        Some(before) => page.node(before),
        None => pages.moved(at, -1).map_or(START, |at| pages.named(at)),
    };
    Hint {
        at,
        before,
        after: page.node(slot),
    }
}
