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
use crate::memtable::directory::discriminator::{Kind, Measure};
use crate::memtable::directory::page::{FREE, Likeness, Page, WORDS};
use crate::prefetch::prefetch_lines;
use crate::sync::Ordering;

/// Most pages that a lookup moves to the right on a level, over splits that no parent names yet.
pub(super) const MOVES_MAX: u32 = 8;
/// The fence of the first page of a level, which is before all nodes.
pub(super) const START: u32 = 0;
/// Most lookups of a group.
pub(crate) const GROUP: usize = 32;
/// Most nodes with the target's discriminator that a search passes by hops on level 0: the lookup
/// reads the keys of more.
const TIES_HOPPED: usize = 2;
/// Cache lines of a leaf, and of either half of an inner page.
const LEAF_LINES: usize = 8;
/// Most levels of inner pages.
pub(super) const LEVELS_MAX: u32 = 6;

/// Whether a lookup follows bytes that a page has chosen (MEASURE-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// It does: the search asks again where that leads it astray.
    Guess,
    /// It reads keys in place of these bytes.
    Keys,
}

impl Trust {
    /// How many slots after the first may have the target's discriminator.
    #[inline(always)]
    fn ties(self, kind: Kind) -> usize {
        match (self, kind) {
            (Trust::Guess, Kind::Leaf) => TIES_HOPPED,
            (Trust::Keys, _) | (_, Kind::Inner) => 0,
        }
    }
}

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
    /// Whether that node probably has the target's key.
    pub(crate) likeness: Likeness,
}

/// The directory of a list.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'s, 'a> {
    pub(crate) view: &'s View<'a>,
    pub(crate) comparator: &'a KeyComparator,
    /// The unit of the root word.
    pub(crate) root: u32,
    /// The node that is both ends of the list.
    pub(crate) sentinel: u32,
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
            || self
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
                .is_some_and(|node| node.order_as_stored(self.comparator, target).is_lt())
    }

    /// The first slot of a page whose node is not before the target, by discriminators
    /// (MEASURE-1). If few slots have the target's discriminator and a guess is enough, it is the
    /// first of them, and no key is read: the caller hops over the others.
    pub(super) fn slot(
        &self,
        page: &Page<'a>,
        target: &Target<'_>,
        kind: Kind,
        trust: Trust,
    ) -> usize {
        let measure = page.measure(self.view, kind);
        if measure.chosen != 0 && trust == Trust::Keys {
            return self.slot_by_keys(page, target, kind, 0..page.rank(FREE));
        }
        let wanted = measure.discriminator(self.view, self.comparator, target.key, kind);
        let (least, last) = kind.words_with(wanted);
        let first = page.rank(least);
        let ties = if first > 0 { trust.ties(kind) } else { 0 };
        if page.word(first + ties) > last {
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

    /// The next page, if its range holds the target.
    pub(super) fn right_of(&self, page: &Page<'a>, target: &Target<'_>) -> Option<Page<'a>> {
        let next = Page::open(self.view, page.next())?;
        self.is_before(next.low(), target).then_some(next)
    }

    /// The leaf whose range probably holds the target. `None`: damage, or there is no page yet.
    #[inline(always)]
    fn leaf_at(&self, target: &Target<'_>) -> Option<Page<'a>> {
        let (mut page, levels) = self.root()?;
        for above in (1..=levels).rev() {
            page = self.child_of(page, target)?;
            self.prefetch_page(page, LEAF_LINES);
            if above > 1 {
                self.prefetch_page(page.wrapping_add(WORDS as u32), LEAF_LINES);
            }
        }
        Page::open(self.view, page)
    }

    /// The page of a level whose range holds the target, by keys where bytes are chosen. `None`:
    /// damage, or the level does not exist.
    #[cold]
    #[inline(never)]
    pub(super) fn page_by_keys(&self, level: u32, target: &Target<'_>) -> Option<Page<'a>> {
        let (root, levels) = self.root().filter(|(_, levels)| *levels >= level)?;
        let with = (*self.view, self.comparator);
        let below = |at| child_by_keys(with, Page::open(self.view, at)?, *target, Trust::Keys);
        Page::open(
            self.view,
            (level..levels).try_fold(root, |at, _| below(at))?,
        )
    }

    /// The start of a search that a guess led astray.
    #[cold]
    #[inline(never)]
    pub(crate) fn lookup_by_keys(&self, target: &Target<'_>) -> Option<Hint> {
        let page = self.page_by_keys(0, target)?;
        let with = (*self.view, self.comparator);
        Some(hint_by_keys(with, page, *target, Trust::Keys))
    }

    /// The page below an inner page whose range probably holds the target.
    #[inline(always)]
    fn child_of(&self, page: u32, target: &Target<'_>) -> Option<u32> {
        let page = Page::open(self.view, page)?;
        let ties = Trust::Guess.ties(Kind::Inner);
        match page.slot_at_once(self.view, self.comparator, target, Kind::Inner, ties) {
            Some((slot, _)) => page.child(self.view, slot - 1).map(|(child, _)| child),
            None => child_by_keys((*self.view, self.comparator), page, *target, Trust::Guess),
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
        let page = self.leaf_at(target)?;
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
        let ties = Trust::Guess.ties(Kind::Leaf);
        match page.slot_at_once(self.view, self.comparator, target, Kind::Leaf, ties) {
            Some((slot, likeness)) => Hint {
                at: LeafSlot {
                    leaf: page.at,
                    slot: slot as u32,
                },
                before: page.node(slot - 1),
                after: page.node(slot),
                likeness,
            },
            None => hint_by_keys((*self.view, self.comparator), page, *target, Trust::Guess),
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
            if (0..count).contains(&slot) {
                return Some(LeafSlot {
                    leaf: page.at,
                    slot: slot as u32,
                });
            }
            slot -= if slot < 0 { 0 } else { count };
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
    kind: Kind,
    trust: Trust,
) -> (Page<'a>, usize) {
    let pages = Pages {
        view: &view,
        comparator,
        root: 0,
        sentinel: 0,
    };
    let mut slot = pages.slot(&page, &target, kind, trust);
    for _ in 0..MOVES_MAX {
        // The right part of a split that no parent names yet may hold the target.
        if page.word(slot) != FREE {
            break;
        }
        let Some(right) = pages.right_of(&page, &target) else {
            break;
        };
        page = right;
        slot = pages.slot(&page, &target, kind, trust);
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
    trust: Trust,
) -> Option<u32> {
    let (page, slot) = settle(with, page, target, Kind::Inner, trust);
    page.child(&with.0, slot.max(1) - 1).map(|(child, _)| child)
}

/// [`Pages::in_leaf`], if it reads keys or neighbours.
#[cold]
#[inline(never)]
fn hint_by_keys<'a>(
    (view, comparator): (View<'a>, &'a KeyComparator),
    page: Page<'a>,
    target: Target<'_>,
    trust: Trust,
) -> Hint {
    let pages = Pages {
        view: &view,
        comparator,
        root: 0,
        sentinel: 0,
    };
    let (page, slot) = settle((view, comparator), page, target, Kind::Leaf, trust);
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
        likeness: Likeness::Other,
    }
}
