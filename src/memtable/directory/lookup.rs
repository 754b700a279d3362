//! Finds in the directory where a search starts.
//!
//! ```text
//!   root word -> inner page: last child whose fence is before the target -> .. -> leaf: last node before the target
//! ```
//! * LOOKUP-1: whatever the words say, a lookup ends: after the levels that the root word names, and a few pages to the
//!   right on each.
//! * LOOKUP-2: what comes out is a hint. Who follows it opens nodes by their header checks and certifies the bracket.
//!
//! Any thread; no lock, no retry. O(log n) pages; keys are read only where discriminators tie.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "words are packed of halves")]

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place, Result};
use crate::key::{Kind as EntryKind, Target};
use crate::memtable::arena::arena::{SubChunk, View};
use crate::memtable::arena::layout::{LINE_UNITS, UNIT};
use crate::memtable::arena::node::{Node, bytes_of};
use crate::memtable::directory::page::{FREE, Fences, Kind, Page, SLOTS, Slot, WORDS, kept};
use crate::prefetch::prefetch_read;
use crate::sync::Ordering;

/// Most pages that a lookup goes to the right on a level: splits that no parent names yet, pages that were replaced.
pub(super) const MOVES_MAX: u32 = 8;
/// The fence of the first page of a level: before everything.
pub(super) const START: u32 = 0;
/// Lookups that are made together.
pub(crate) const GROUP: usize = 32;
/// Nodes whose discriminators tie that a search passes by hops rather than by reading their keys.
const TIES_HOPPED: usize = 2;
/// Cache lines of a leaf, and of either half of an inner page.
const LEAF_LINES: usize = 8;
/// Most levels of inner pages.
pub(super) const LEVELS_MAX: u32 = 6;

/// A place in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafSlot {
    /// 0: no place.
    pub(crate) leaf: u32,
    pub(crate) slot: u32,
}

impl LeafSlot {
    pub(crate) const NONE: LeafSlot = LeafSlot { leaf: 0, slot: 0 };
}

/// Where a search starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hint {
    /// Where the first node is named that is not before the target.
    pub(crate) at: LeafSlot,
    /// A node before the target; 0: the start of the list.
    pub(crate) before: u32,
    /// The first named node that is not before the target; 0: not known.
    pub(crate) after: u32,
}

/// The directory of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pages<'s, 'a> {
    pub(crate) view: &'s View<'a>,
    pub(crate) comparator: &'a KeyComparator,
    /// The unit of the root word.
    pub(crate) root: u32,
}

/// The root word: page 32 | levels 8 | check 24. `None`: it is damaged.
fn unpack(view: &View<'_>, at: u32, word: u64) -> Option<(u32, u32)> {
    let (page, levels) = ((word >> 32) as u32, (word >> 24) as u32 & 0xff);
    (levels <= LEVELS_MAX && pack(view, at, page, levels) == word).then_some((page, levels))
}

/// Makes a root word.
pub(super) fn pack(view: &View<'_>, at: u32, page: u32, levels: u32) -> u64 {
    let check = view.secret.link_tag(at, u32::MAX - 2 - levels, page) >> 8;
    u64::from(page) << 32 | u64::from(levels) << 24 | u64::from(check)
}

/// Takes a cache line for the root word of a list's directory, which is empty.
pub(crate) fn new_root(view: &View<'_>) -> Result<u32> {
    let units = u64::from(2 * LINE_UNITS - 1);
    let reservation = view.arena().carve(&mut SubChunk::default(), units)?;
    Ok(reservation.start().next_multiple_of(LINE_UNITS))
}

impl<'a> Pages<'_, 'a> {
    /// The root page and how many levels of inner pages there are; `None`: no page yet, or damage.
    #[inline(always)]
    pub(super) fn root(&self) -> Option<(u32, u32)> {
        // ORDERING: Acquire pairs with the Release in `set_root`: the page's words are visible.
        let word = self.view.word(self.root)?.load(Ordering::Acquire);
        if word == 0 { None } else { unpack(self.view, self.root, word) }
    }

    /// Whether the node is before the target. The start of the list (0) is; one that does not open is not.
    pub(super) fn is_before(&self, node: u32, target: &Target<'_>) -> bool {
        node == START
            || self.view.try_open(node).is_some_and(|node| node.order(self.comparator, target).is_lt())
    }

    /// Among tied slots, from `first` on with words below `end`, the first one whose node is not before the target;
    /// else the slot after them. The first two are compared before a binary search of the rest: a new version of a key
    /// stands before its newest one, and the first slot of a page may name what is before all of it.
    #[inline(never)]
    fn among_ties(
        &self,
        page: &Page<'a>,
        (first, end): (usize, u64),
        node: impl Fn(usize) -> u32,
        target: &Target<'_>,
    ) -> usize {
        for slot in first..first + 2 {
            if page.word(slot) >= end || !self.is_before(node(slot), target) {
                return slot;
            }
        }
        let (mut start, mut end) = (first + 2, page.rank(end));
        while start < end {
            let middle = start.midpoint(end);
            if self.is_before(node(middle), target) { start = middle + 1 } else { end = middle }
        }
        start
    }

    /// The first slot of an inner page whose fence is not before the target.
    #[inline(always)]
    pub(super) fn inner_slot(&self, page: &Page<'a>, target: &Target<'_>) -> usize {
        let wanted = page.measure().discriminator(self.view, self.comparator, target.key);
        let first = page.rank(wanted);
        if page.word(first) != wanted {
            return first;
        }
        let fence = |slot| page.child(self.view, slot).map_or(0, |(_, fence)| fence);
        self.among_ties(page, (first, wanted + 1), fence, target)
    }

    /// The first slot of a leaf whose node is not before the target. If at most `ties` discriminators tie, it is the
    /// first of them: the caller hops over the others, and no key is read.
    #[inline(always)]
    pub(super) fn leaf_slot(&self, page: &Page<'a>, target: &Target<'_>, ties: usize) -> usize {
        let wanted = page.measure().discriminator(self.view, self.comparator, target.key) & !0xffff_ffff;
        let (first, end) = (page.rank(wanted), wanted | 0xffff_fffe);
        let hopped = if first > 0 { ties } else { 0 };
        if page.word(first + hopped) >= end {
            return first;
        }
        self.among_ties(page, (first, end), |slot| page.node(slot), target)
    }

    /// The next page, if the target is beyond what this one names: a split that no parent names yet.
    #[inline(always)]
    fn beyond(&self, page: &Page<'a>, slot: usize, target: &Target<'_>) -> Option<Page<'a>> {
        if slot < SLOTS && page.word(slot) != FREE {
            return None;
        }
        self.right_of(page, target)
    }

    /// The next page, if its range holds the target.
    #[inline(never)]
    pub(super) fn right_of(&self, page: &Page<'a>, target: &Target<'_>) -> Option<Page<'a>> {
        let next = page.next();
        if next == 0 {
            return None;
        }
        let next = Page::open(self.view, next)?;
        self.is_before(next.low(), target).then_some(next)
    }

    /// The page of a level whose range holds the target. `None`: damage.
    #[inline(always)]
    pub(super) fn page_at(&self, level: u32, target: &Target<'_>) -> Option<Page<'a>> {
        let (mut page, levels) = self.root()?;
        for above in (level + 1..=levels).rev() {
            page = self.child_of(page, target)?;
            self.prefetch_page(page, if above == 1 { LEAF_LINES } else { 2 * LEAF_LINES });
        }
        Page::open(self.view, page)
    }

    /// The page below an inner page whose range holds the target.
    #[inline(always)]
    fn child_of(&self, page: u32, target: &Target<'_>) -> Option<u32> {
        let mut page = Page::open(self.view, page)?;
        let mut slot = self.inner_slot(&page, target);
        for _ in 0..MOVES_MAX {
            let Some(right) = self.elsewhere(&page, slot, target) else { break };
            page = right;
            slot = self.inner_slot(&page, target);
        }
        page.child(self.view, slot.max(1) - 1).map(|(child, _)| child)
    }

    /// The page to go on with, if it is not this one.
    #[inline(always)]
    fn elsewhere(&self, page: &Page<'a>, slot: usize, target: &Target<'_>) -> Option<Page<'a>> {
        if page.is_replaced() { Page::open(self.view, page.next()) } else { self.beyond(page, slot, target) }
    }

    /// Asks for so many lines of a page.
    #[inline(always)]
    fn prefetch_page(&self, at: u32, lines: usize) {
        let address = self.view.likely_address(at);
        for line in 0..lines {
            let line = address.wrapping_add(line * LINE_UNITS as usize * UNIT);
            prefetch_read(std::ptr::without_provenance(line));
        }
    }

    /// Where a search for the target starts.
    #[inline(always)]
    pub(crate) fn lookup(&self, target: &Target<'_>) -> Option<Hint> {
        let page = self.page_at(0, target)?;
        self.in_leaf(page, target)
    }

    /// Where searches for many targets start: level by level, so that memory is waited for once a level; `found` is
    /// called with each hint at once. A target without a key gets none.
    #[inline(always)]
    pub(crate) fn lookup_many(
        &self,
        targets: &[Target<'_>],
        hints: &mut [Option<Hint>; GROUP],
        mut found: impl FnMut(&Hint),
    ) {
        let Some((root, levels)) = self.root() else { return };
        let mut pages = [Some(root); GROUP];
        for _ in 0..levels {
            for (page, target) in pages.iter_mut().zip(targets) {
                *page = page.and_then(|at| self.child_of(at, target));
                // Of an inner page, what is searched: of its children one is read.
                page.iter().for_each(|at| self.prefetch_page(*at, LEAF_LINES));
            }
        }
        for ((hint, page), target) in hints.iter_mut().zip(pages).zip(targets) {
            let page = page.filter(|_| !target.is_extreme()).and_then(|page| Page::open(self.view, page));
            *hint = page.and_then(|page| self.in_leaf(page, target));
            hint.iter().for_each(&mut found);
        }
    }

    /// The hint of a lookup that has reached a leaf.
    #[inline(always)]
    pub(super) fn in_leaf(&self, mut page: Page<'a>, target: &Target<'_>) -> Option<Hint> {
        let mut slot = self.leaf_slot(&page, target, TIES_HOPPED);
        for _ in 0..MOVES_MAX {
            let Some(right) = self.elsewhere(&page, slot, target) else { break };
            page = right;
            slot = self.leaf_slot(&page, target, TIES_HOPPED);
        }
        let before = match slot.checked_sub(1) {
            Some(before) => page.node(before),
            None => self.last_before(&page)?,
        };
        let at = LeafSlot { leaf: page.at, slot: slot as u32 };
        Some(Hint { at, before, after: page.node(slot) })
    }

    /// The node that is named at a place; 0: none.
    #[inline(always)]
    pub(crate) fn named(&self, LeafSlot { leaf, slot }: LeafSlot) -> u32 {
        if leaf == 0 { 0 } else { Page::open(self.view, leaf).map_or(0, |page| page.node(slot as usize)) }
    }

    /// The place so many slots further on, in this leaf or a neighbour. `None`: there is none.
    #[inline(never)]
    pub(crate) fn moved(&self, from: LeafSlot, by: i32) -> Option<LeafSlot> {
        let mut page = Page::open(self.view, from.leaf).filter(|_| from.leaf != 0)?;
        let mut slot = i64::from(from.slot) + i64::from(by);
        for _ in 0..MOVES_MAX {
            let count = page.rank(FREE) as i64;
            let beside = if slot < 0 { page.prev() } else { page.next() };
            if !page.is_replaced() {
                if (0..count).contains(&slot) {
                    return Some(LeafSlot { leaf: page.at, slot: slot as u32 });
                }
                slot -= if slot < 0 { 0 } else { count };
            }
            if beside == 0 {
                return None;
            }
            page = Page::open(self.view, beside)?;
            slot += if slot < 0 { page.rank(FREE) as i64 } else { 0 };
        }
        None
    }

    /// Asks for the lines of a leaf.
    pub(crate) fn prefetch_leaf(&self, leaf: u32) {
        self.prefetch_page(leaf, LEAF_LINES);
    }

    /// The leaves beside a leaf: before and after it; 0: none.
    pub(crate) fn beside(&self, leaf: u32) -> (u32, u32) {
        Page::open(self.view, leaf).map_or((0, 0), |page| (page.prev(), page.next()))
    }

    /// The last node of the page before; 0: the start of the list.
    #[inline(never)]
    fn last_before(&self, page: &Page<'a>) -> Option<u32> {
        let prev = page.prev();
        if prev == 0 {
            return Some(0);
        }
        let prev = Page::open(self.view, prev)?;
        Some(prev.node(prev.rank(FREE).checked_sub(1)?))
    }
}

// Looks for damage in the pages of the directory.
//
// ```text
//   page     its tag, the pages beside it, the bytes that it leaves out
//   leaf     each slot: the node opens, is a point entry, has this discriminator, and comes after the slot before
//   inner    each slot: the page below begins with this fence, whose discriminator it is
// ```
// * LOOK-1: a look takes no lock. A page that somebody writes is left out; whether it was written meanwhile, its lock word
//   tells. What a look refuses twice is damage.
// * LOOK-2: what a look does not refuse costs a search a few steps at most, or stands where no search reads.
//
// Any thread. O(slots) per page, each of which opens a node or a page.

/// How often all writers are waited for before a lock bit counts as damaged: the page may be locked by the next one.
const WAITS_FOR_LOCK: u32 = 4;

/// Where a page stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageAt {
    /// 0: leaves.
    pub(crate) level: u32,
    /// Its first unit.
    pub(crate) page: u32,
}

impl PageAt {
    /// How many units it takes: for tests and the fault injector.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn units(self) -> u32 {
        if self.level == 0 { WORDS as u32 } else { 2 * WORDS as u32 }
    }
}

/// The result of a look at a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageState {
    Sound,
    /// Somebody writes it, or its lock bit is damaged.
    Busy,
    Damaged(Corruption),
}

impl<'a> Pages<'_, 'a> {
    /// Every page that the root and neighbours lead to, level by level from above.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageAt> {
        // Neighbours that name each other in a ring would never end.
        let room = self.view.arena().room.handed_bytes() / (8 * WORDS as u64);
        std::iter::successors(self.first(), |at| self.after(*at)).take(room as usize)
    }

    /// The root page.
    pub(crate) fn first(&self) -> Option<PageAt> {
        let (page, level) = self.root().filter(|_| self.root != 0)?;
        Some(PageAt { level, page })
    }

    /// The page after one, or the first one of the level below.
    pub(crate) fn after(&self, at: PageAt) -> Option<PageAt> {
        let next = Page::open(self.view, at.page).map_or(0, |page| page.next());
        if next != 0 {
            return Some(PageAt { page: next, ..at });
        }
        let (root, levels) = self.root()?;
        let level = at.level.checked_sub(1)?;
        let below = (level..levels).try_fold(root, |page, _| {
            Page::open(self.view, page)?.child(self.view, 0).map(|(child, _)| child)
        });
        below.map(|page| PageAt { level, page })
    }

    /// Looks at a page (LOOK-1).
    pub(crate) fn inspect(&self, at: PageAt) -> PageState {
        let seen = self.inspect_once(at);
        match seen {
            PageState::Damaged(_) if self.inspect_once(at) != seen => PageState::Busy,
            _ => seen,
        }
    }

    /// Whether a page stays locked, by one lock word, while all writers are waited for, again and again.
    pub(crate) fn stays_locked(&self, at: PageAt, wait_out_writers: &mut impl FnMut()) -> bool {
        let lock = || Page::open(self.view, at.page).and_then(|page| page.held());
        let held = lock();
        held.is_some()
            && (0..WAITS_FOR_LOCK).all(|_| {
                wait_out_writers();
                lock() == held
            })
    }

    fn inspect_once(&self, at: PageAt) -> PageState {
        let kind = if at.level == 0 { Kind::Leaf } else { Kind::Inner };
        let page = Page::open(self.view, at.page).filter(|page| page.kind(self.view) == Some(kind));
        let Some(page) = page else { return PageState::Damaged(report(at.page)) };
        let Some((word, count)) = page.at_rest() else { return PageState::Busy };
        let sound = self.is_placed(&page, kind) && (page.is_replaced() || self.is_filled(&page, kind, count));
        match page.at_rest() {
            Some((now, _)) if now == word && !sound => PageState::Damaged(report(at.page)),
            Some((now, _)) if now == word => PageState::Sound,
            _ => PageState::Busy,
        }
    }

    /// Whether head and neighbours are right.
    fn is_placed(&self, page: &Page<'a>, kind: Kind) -> bool {
        let beside =
            |at: u32| Page::open(self.view, at).filter(|page| at != 0 && page.kind(self.view) == Some(kind));
        let (prev, next) = (page.prev(), page.next());
        let low = page.low();
        let follows = match beside(next) {
            // A page that was replaced has the range of its successor.
            Some(next) if page.is_replaced() => next.low() == low,
            Some(next) => self.is_in_order(low, next.low()),
            None => next == 0 && !page.is_replaced(),
        };
        let leads = match beside(prev) {
            Some(prev) => self.is_in_order(prev.low(), low) || prev.low() == low,
            None => prev == 0 && low == START,
        };
        follows && leads && self.is_measured(page)
    }

    /// Whether a page's reference has the bytes that the page leaves out, and its fences share them if it says so.
    fn is_measured(&self, page: &Page<'a>) -> bool {
        let measure = page.measure();
        if measure.skip == 0 {
            return true;
        }
        let Some(reference) = self.view.try_open(measure.reference) else { return false };
        let long = reference.key().len() >= measure.skip as usize;
        let begins = |node: u32| {
            self.view
                .try_open(node)
                .is_some_and(|node| measure.side(self.view, self.comparator, node.key()).is_eq())
        };
        let next = Page::open(self.view, page.next()).filter(|_| page.next() != 0);
        let shared = measure.fences == Fences::Differ
            || begins(page.low()) && next.is_some_and(|next| begins(next.low()));
        long && self.comparator.image(reference.key(), 0) == measure.start && shared
    }

    /// Whether all slots are right.
    fn is_filled(&self, page: &Page<'a>, kind: Kind, count: usize) -> bool {
        let free = (count..SLOTS).all(|slot| page.word(slot) == FREE);
        let next = Page::open(self.view, page.next()).filter(|_| page.next() != 0);
        let mut before = None;
        free && count <= SLOTS
            && (0..count).all(|place| {
                let Some(slot) = page.slot(self.view, kind, place) else { return false };
                let ascends = match before.replace(slot.node) {
                    Some(before) => self.is_in_order(before, slot.node),
                    None => slot.node == page.low() || self.is_in_order(page.low(), slot.node),
                };
                ascends && self.is_true(page, kind, &slot)
            })
            && before.zip(next).is_none_or(|(last, next)| self.is_in_order(last, next.low()))
    }

    /// Whether a slot agrees with its node or page.
    fn is_true(&self, page: &Page<'a>, kind: Kind, slot: &Slot) -> bool {
        let skip = page.measure().skip;
        let discriminator = match slot.node {
            START => Some(0),
            node => self.point_entry(node).map(|node| kept(self.comparator, node.key(), skip)),
        };
        let below = || Page::open(self.view, slot.child).is_some_and(|below| below.low() == slot.node);
        match kind {
            Kind::Leaf => {
                slot.node != START && discriminator.map(|all| all & !0xffff_ffff) == Some(slot.discriminator)
            }
            Kind::Inner => discriminator == Some(slot.discriminator) && below(),
        }
    }

    fn point_entry(&self, node: u32) -> Option<Node<'a>> {
        self.view.try_open(node).filter(|node| node.lengths().kind() != EntryKind::RANGE_DELETE)
    }

    /// Whether a node is before another one. The start of the list (0) is before all.
    fn is_in_order(&self, left: u32, right: u32) -> bool {
        let Some(right) = self.view.try_open(right).filter(|_| right != START) else { return false };
        let target =
            Target::new(self.comparator, right.key(), right.sequence()).with_revision(right.revision());
        self.is_before(left, &target)
    }
}

fn report(page: u32) -> Corruption {
    Corruption::new(Place::Directory, bytes_of(page), 0, 0)
}
