//! Inspects the pages of the directory for damage, for scrubs.
//!
//! ```text
//!   page     its tag, its neighbours, the bytes that it leaves out
//!   leaf     each slot: its node opens, is a point entry, has this discriminator, and is after the slot before
//!   inner    each slot: the page below begins with this fence, and this is the fence's discriminator
//! ```
//! An inspection takes no lock. It leaves out a page that a writer has locked or changes meanwhile,
//! as the lock word shows. A page that is refused twice is damaged. Damage that passes costs a
//! search a few steps at most, or is where no search reads.
//!
//! Any thread. O(slots) per page, each of which opens a node or a page.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of halves"
)]

use crate::error::{Corruption, Place};
use crate::kind::Kind as EntryKind;
use crate::memtable::arena::node::{Node, bytes_of};
use crate::memtable::directory::discriminator::{Kind, Shares, WORD};
use crate::memtable::directory::lookup::{Pages, START};
use crate::memtable::directory::page::{FREE, Page, SLOTS, Slot, WORDS};

/// The place of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageAt {
    /// The level of the page; 0: leaves.
    pub(crate) level: u32,
    /// The first unit of the page.
    pub(crate) page: u32,
}

impl PageAt {
    /// How many units the page takes: for tests and the fault injector.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn units(self) -> u32 {
        Kind::at(self.level).units()
    }
}

/// The result of the inspection of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageState {
    Sound,
    /// A writer has locked it, or its lock bit is damaged.
    Busy,
    Damaged(Corruption),
}

impl<'a> Pages<'_, 'a> {
    /// Every page that the root and neighbours lead to, level by level from above.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageAt> {
        // A limit, because damaged pages may name each other in a ring.
        let room = self.view.arena().limit.taken_bytes() / (8 * WORDS as u64);
        std::iter::successors(self.first(), |at| self.after(*at)).take(room as usize)
    }

    /// The root page.
    pub(crate) fn first(&self) -> Option<PageAt> {
        let (page, level) = self.root().filter(|_| self.root != 0)?;
        Some(PageAt { level, page })
    }

    /// The page after another one, or the first page of the level below.
    pub(crate) fn after(&self, at: PageAt) -> Option<PageAt> {
        let next = Page::open(self.view, at.page).map_or(0, |page| page.next());
        if next != 0 {
            return Some(PageAt { page: next, ..at });
        }
        let (root, levels) = self.root()?;
        let level = at.level.checked_sub(1)?;
        let below = (level..levels).try_fold(root, |page, _| {
            Page::open(self.view, page)?
                .child(self.view, 0)
                .map(|(child, _)| child)
        });
        below.map(|page| PageAt { level, page })
    }

    /// Inspects a page; inspects it again before it is called damaged.
    pub(crate) fn inspect(&self, at: PageAt) -> PageState {
        let seen = self.inspect_once(at);
        match seen {
            PageState::Damaged(_) if self.inspect_once(at) != seen => PageState::Busy,
            _ => seen,
        }
    }

    fn inspect_once(&self, at: PageAt) -> PageState {
        let kind = Kind::at(at.level);
        let page = Page::open(self.view, at.page).filter(|page| page.is(self.view, kind));
        let Some(page) = page else {
            return PageState::Damaged(report(at.page));
        };
        let Some((word, count)) = page.at_rest() else {
            return PageState::Busy;
        };
        let sound = self.is_placed(&page, kind) && self.is_filled(&page, kind, count);
        match page.at_rest() {
            Some((now, _)) if now == word && !sound => PageState::Damaged(report(at.page)),
            Some((now, _)) if now == word => PageState::Sound,
            _ => PageState::Busy,
        }
    }

    /// Whether a page's range and bytes agree with its neighbours.
    fn is_placed(&self, page: &Page<'a>, kind: Kind) -> bool {
        let beside = |at: u32| Page::open(self.view, at).filter(|page| page.is(self.view, kind));
        let (prev, next) = (page.prev(), page.next());
        let low = page.low();
        let follows = match beside(next) {
            Some(next) => self.is_in_order(low, next.low()),
            None => next == 0,
        };
        let leads = match beside(prev) {
            Some(prev) => self.is_in_order(prev.low(), low),
            None => prev == 0 && low == START,
        };
        follows && leads && self.is_measured(page, kind)
    }

    /// Whether a page's reference has the bytes that the page leaves out and those that it stores,
    /// and its fences have them too if it says so.
    fn is_measured(&self, page: &Page<'a>, kind: Kind) -> bool {
        let measure = page.measure(self.view, kind);
        if measure.skip == 0 {
            return true;
        }
        let Some(reference) = self.view.try_open(measure.reference) else {
            return false;
        };
        let long = reference.key().len() >= measure.skip as usize;
        let image = |at| self.comparator.image(reference.key(), at);
        let is_word = |(at, word): (usize, u64)| word == image(at);
        let stored = match kind {
            Kind::Leaf => page.is_chosen() || measure.start == image(0),
            Kind::Inner => {
                let words = page.more_bytes(self.view);
                let are_words = |words| (WORD..).step_by(WORD).zip(words).all(is_word);
                measure.start == image(0) && words.is_some_and(are_words)
            }
        };
        let next = Page::open(self.view, page.next());
        let shared = measure.shares != Shares::BOTH
            || self.begins(&measure, page.low())
                && next.is_some_and(|next| self.begins(&measure, next.low()));
        long && stored && shared
    }

    /// Whether all slots agree with their nodes or pages, in ascending order.
    fn is_filled(&self, page: &Page<'a>, kind: Kind, count: usize) -> bool {
        let free = (count..SLOTS).all(|slot| page.word(slot) == FREE);
        let next = Page::open(self.view, page.next());
        let (mut before, mut last) = (None, 0);
        free && count <= SLOTS
            && (0..count).all(|place| {
                let Some(slot) = page.slot(self.view, kind, place) else {
                    return false;
                };
                let ascends = match before.replace(slot.node) {
                    Some(before) => self.is_in_order(before, slot.node),
                    None => slot.node == page.low() || self.is_in_order(page.low(), slot.node),
                };
                let discriminator = slot.discriminator;
                ascends
                    && std::mem::replace(&mut last, discriminator) <= discriminator
                    && self.is_true(page, kind, &slot)
            })
            && before
                .zip(next)
                .is_none_or(|(last, next)| self.is_in_order(last, next.low()))
    }

    /// Whether a slot agrees with its node or page.
    fn is_true(&self, page: &Page<'a>, kind: Kind, slot: &Slot) -> bool {
        let measure = page.measure(self.view, kind);
        let discriminator = match slot.node {
            START => Some(0),
            node => self
                .point_entry(node)
                .map(|node| measure.kept(self.comparator, node.key(), kind)),
        };
        let below =
            || Page::open(self.view, slot.child).is_some_and(|below| below.low() == slot.node);
        match kind {
            Kind::Leaf => {
                slot.node != START
                    && discriminator.map(|all| all & !0xffff_ffff) == Some(slot.discriminator)
            }
            Kind::Inner => discriminator == Some(slot.discriminator) && below(),
        }
    }

    fn point_entry(&self, node: u32) -> Option<Node<'a>> {
        self.view
            .try_open(node)
            .filter(|node| node.lengths().kind() != EntryKind::RANGE_DELETE)
    }

    /// Whether a node is before another one. The start of the list (0) is before all.
    fn is_in_order(&self, left: u32, right: u32) -> bool {
        let Some(right) = self.view.try_open(right).filter(|_| right != START) else {
            return false;
        };
        self.is_before(left, &right.position_as_stored(self.comparator))
    }
}

fn report(page: u32) -> Corruption {
    Corruption::new(Place::Directory, bytes_of(page), 0, 0)
}
