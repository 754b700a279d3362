//! Names nodes in the directory: insert into a leaf, split, update the parent.
//!
//! ```text
//!   full page        [a .. z]                 -> [a .. m] [n .. z]     the right half is a new page, which the parent names
//!   append           [a .. z]  zz             -> [a .. z] [zz]         leaves of a fill in order stay full
//!   equal            [aaa1 .. aaa9] by "aaa"  -> [aaa1 .. aaa9] by "1" the page keeps other bytes from now on
//!   apart            [aa1 .. aa9]  b1         -> [aa1 .. aa9] [b1]     a key after a page that it does not suit gets a page
//! ```
//! A node is named after it was published. An insert never fails because of the directory: damage
//! or a full arena leaves the node without a name.
//! * NAME-1: the right half of a split is reachable through its left neighbour until the parent
//!   names it. If the parent is locked, the next writer that passes the left page updates it.
//! * NAME-2: a comparator may panic at any call, and leaves every page sound: a step computes
//!   before its first store, and the parent is updated last.
//!
//! Any thread; lock-free: a writer only tries a lock. O(log n), and O(page) for a split.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "keys are shorter than 2^24 bytes"
)]

use crate::key::Target;
use crate::memtable::arena::arena::SubChunk;
use crate::memtable::arena::node::Node;
use crate::memtable::directory::choice::{Coming, EARLY, Room};
use crate::memtable::directory::discriminator::{Kind, Measure, Shares, kept, shared};
use crate::memtable::directory::lookup::{
    LEVELS_MAX, LeafSlot, MOVES_MAX, Pages, START, Trust, pack,
};
use crate::memtable::directory::page::{Locked, Page, SLOTS, Slot, TURNS_MAX};
use crate::sync::Ordering;

/// A writer whose entries follow each other names every second node.
pub(crate) const NAMED_EVERY: u32 = 2;

/// The result of naming a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// The node is named right before this slot.
    In(LeafSlot),
    /// A page was locked: try again later.
    Busy,
    /// The last page of the level was locked. Its owner names a node there; this one is left out.
    Left,
    /// The node stays without a name: damage, or a full arena.
    Not,
}

/// A new slot of a page.
struct New<'t, 'k> {
    level: u32,
    target: &'t Target<'k>,
    node: u32,
    child: u32,
    /// The slot before which it probably belongs; 0: unknown.
    guess: usize,
}

/// The slot after another one.
fn slot_after(leaf: u32, slot: usize) -> LeafSlot {
    LeafSlot {
        leaf,
        slot: slot as u32 + 1,
    }
}

impl<'a> Pages<'_, 'a> {
    /// Names a node that is linked at level 0. `guess` is the slot of the hint of its search, if
    /// that is known: the node probably belongs before it.
    #[inline(always)]
    pub(crate) fn name(
        &self,
        slab: &mut SubChunk,
        guess: LeafSlot,
        node: u32,
        target: &Target<'_>,
    ) -> Named {
        if self.put_quickly(guess, node, target).is_some() {
            return Named::In(LeafSlot {
                slot: guess.slot + 1,
                ..guess
            });
        }
        let new = New {
            level: 0,
            target,
            node,
            child: 0,
            guess: guess.slot as usize,
        };
        self.put(slab, guess.leaf, &new).unwrap_or(Named::Not)
    }

    /// Names a node before a slot of a leaf, if discriminators or its neighbours on level 0 prove
    /// its place there. `None`: anything else.
    #[inline(always)]
    fn put_quickly(
        &self,
        LeafSlot { leaf, slot }: LeafSlot,
        node: u32,
        target: &Target<'_>,
    ) -> Option<()> {
        let slot = slot as usize;
        let page = Page::open(self.view, leaf)?;
        let mut locked = page.lock(self.view, Kind::Leaf)?;
        if locked.count >= SLOTS {
            return None;
        }
        let discriminator = match page.kept_at_once(self.comparator, target) {
            Some(kept) if Self::is_between(&locked, slot, kept) => kept,
            _ => self.kept_beside(&locked, slot, node, *target)?,
        };
        locked.insert(
            self.view,
            slot,
            Slot {
                discriminator,
                node,
                child: 0,
            },
        )
    }

    /// Whether a discriminator belongs right before a slot of a leaf, of which no neighbour has an
    /// equal one.
    #[inline(always)]
    fn is_between(locked: &Locked<'a>, slot: usize, discriminator: u64) -> bool {
        let page = locked.page;
        page.is_between(slot, discriminator) && (slot < locked.count || page.next() == 0)
    }

    /// The discriminator in a leaf of a key that does not prove its place before `slot`. `None`: its
    /// neighbours do not prove it either, or the page does not suit the key.
    #[inline(never)]
    fn kept_beside(
        &self,
        locked: &Locked<'a>,
        slot: usize,
        node: u32,
        target: Target<'_>,
    ) -> Option<u64> {
        let page = locked.page;
        let measure = page.measure(self.view, Kind::Leaf);
        let discriminator = measure.kept(self.comparator, target.key, Kind::Leaf);
        let begins = || {
            let side = measure.side(self.view, self.comparator, target.key);
            side.is_eq()
        };
        let is_placed = if slot == locked.count && self.is_last(locked, node) {
            begins()
        } else if slot > 0 && self.is_beside(&page, slot, node) {
            true
        } else {
            let is_between = Self::is_between(locked, slot, discriminator);
            return (measure.chosen == 0 && is_between && begins()).then_some(discriminator);
        };
        // Where the page may be measured again, keys that it does not tell apart are for `put`.
        let suits = match locked.count {
            _ if measure.turns == 0 => false,
            EARLY => page.is_between(slot, discriminator),
            _ => Self::is_ordered(locked, slot, discriminator),
        };
        (is_placed && suits).then_some(discriminator)
    }

    /// Whether a leaf that names nodes is the last one, and another node is the last one of the list:
    /// it belongs after them.
    #[inline(always)]
    fn is_last(&self, locked: &Locked<'a>, node: u32) -> bool {
        let Some(last) = locked.count.checked_sub(1) else {
            return false;
        };
        locked.kind == Kind::Leaf
            && locked.page.next() == 0
            && locked.page.node(last) != node
            && self.view.try_link(node, 0) == Some(self.sentinel)
    }

    /// Whether a node is, on level 0, between the two that a leaf names before a slot and in it. The
    /// node was compared with them when it was linked: its place is certain, and it begins with the
    /// page's bytes, as they do.
    #[inline(always)]
    fn is_beside(&self, page: &Page<'a>, slot: usize, node: u32) -> bool {
        self.view.back_hint(node) == Some(page.node(slot - 1))
            && self.view.try_link(node, 0) == Some(page.node(slot))
    }

    /// Puts a new slot into the page of its level whose range holds it, from `page` on; 0: from the
    /// root.
    fn put(&self, slab: &mut SubChunk, page: u32, new: &New<'_, '_>) -> Option<Named> {
        let mut page = match page {
            0 => self.page_for(slab, new)?,
            at => Page::open(self.view, at)?,
        };
        let mut is_split = false;
        for _ in 0..MOVES_MAX {
            let Some(mut locked) = page.lock(self.view, Kind::at(new.level)) else {
                let is_last = page.next() == 0;
                return Some(if is_last { Named::Left } else { Named::Busy });
            };
            let place = self.place(&locked, new);
            if place == 0 && page.prev() != 0 && !self.is_before(page.low(), new.target) {
                // The guess led to a page after the right one: start at the root.
                drop(locked);
                page = self.page_by_keys(new.level, new.target)?;
                continue;
            }
            if place == locked.count
                && let Some(right) = self.right_of(&page, new.target)
            {
                drop(locked);
                self.adopt(slab, new.level, page, right);
                page = right;
                continue;
            }
            if place < locked.count && locked.node(self.view, place)? == new.node {
                return Some(Named::In(slot_after(page.at, place)));
            }
            if place == locked.count
                && let Some(next) = Page::open(self.view, page.next())
                && next.low() == new.node
            {
                // Another writer has named it there.
                return Some(Named::In(slot_after(next.at, 0)));
            }
            let coming = Coming {
                place,
                key: new.target.key,
            };
            // The halves of a split are measured by later names.
            let mut ties = self.ties(&locked, coming).filter(|_| !is_split);
            if locked.count == SLOTS && place < SLOTS {
                let right = self.split(slab, &mut locked, new.level, ties)?;
                (is_split, ties) = (true, None);
                if place > locked.count {
                    page = right;
                    continue;
                }
            }
            let at = self.put_here(slab, &mut locked, coming, new, ties)?;
            return Some(Named::In(at));
        }
        Some(Named::Busy)
    }

    /// Whether the slot `to` is after `from`, in the same leaf or in the next one.
    pub(crate) fn ascends(&self, from: LeafSlot, to: LeafSlot) -> bool {
        let is_next = |page: Page<'_>| page.next() == to.leaf;
        let is_after = from.leaf == to.leaf && from.slot <= to.slot;
        to.leaf != 0 && (is_after || Page::open(self.view, from.leaf).is_some_and(is_next))
    }

    /// The page for a new slot; makes the first page of the directory.
    fn page_for(&self, slab: &mut SubChunk, new: &New<'_, '_>) -> Option<Page<'a>> {
        if new.level == 0 && self.root_word()? == 0 {
            let first = Locked::create(
                self.view,
                self.comparator,
                slab,
                Kind::Leaf,
                START,
                &Measure::PLAIN,
            )?;
            let at = first.page.at;
            drop(first);
            self.set_root(0, (at, 0));
        }
        self.page_by_keys(new.level, new.target)
    }

    /// Whether the root word is damaged: set, and not readable.
    pub(crate) fn is_lost(&self) -> bool {
        self.root().is_none() && self.root_word().is_some_and(|word| word != 0)
    }

    fn root_word(&self) -> Option<u64> {
        // ORDERING: Relaxed: the word is compared, never followed.
        Some(self.view.word(self.root)?.load(Ordering::Relaxed))
    }

    /// Makes a page the root if the root word still is `old`. Another writer may have been faster.
    fn set_root(&self, old: u64, (page, levels): (u32, u32)) {
        let Some(word) = self.view.word(self.root) else {
            return;
        };
        let new = pack(self.view, self.root, page, levels);
        // ORDERING: Release pairs with the Acquire in `root`: the page's words are visible. Relaxed
        // on failure.
        let _ = word.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
    }

    /// The place of a new slot in a locked page.
    fn place(&self, locked: &Locked<'a>, new: &New<'_, '_>) -> usize {
        let may_be_guessed = locked.kind == Kind::Leaf
            && locked.page.is_chosen()
            && (1..locked.count).contains(&new.guess);
        if may_be_guessed && self.is_beside(&locked.page, new.guess, new.node) {
            return new.guess;
        }
        if self.is_last(locked, new.node) {
            return locked.count;
        }
        self.slot(&locked.page, new.target, locked.kind, Trust::Keys)
            .min(locked.count)
    }

    /// Puts a slot into a locked page, which leaves that many neighbours equal, or into a new page
    /// after it.
    fn put_here(
        &self,
        slab: &mut SubChunk,
        locked: &mut Locked<'a>,
        coming: Coming<'_>,
        new: &New<'_, '_>,
        ties: Option<usize>,
    ) -> Option<LeafSlot> {
        if self.prepare(locked, new.level, coming, ties)? == Room::Next {
            let at = self.append_page(slab, locked, new)?;
            return Some(slot_after(at, 0));
        }
        let measure = locked.page.measure(self.view, locked.kind);
        let discriminator = measure.kept(self.comparator, coming.key, locked.kind);
        locked.insert(
            self.view,
            coming.place,
            Slot {
                discriminator,
                node: new.node,
                child: new.child,
            },
        )?;
        Some(slot_after(locked.page.at, coming.place))
    }

    pub(super) fn node_in(&self, locked: &Locked<'a>, slot: usize) -> Option<Node<'a>> {
        self.view.try_open(locked.node(self.view, slot)?)
    }

    /// The first and the last node that a page names.
    fn ends(&self, locked: &Locked<'a>) -> Option<(Node<'a>, Node<'a>)> {
        let first = usize::from(locked.node(self.view, 0)? == START);
        Some((
            self.node_in(locked, first)?,
            self.node_in(locked, locked.count.checked_sub(1)?)?,
        ))
    }

    /// Makes the next page name `before` as its predecessor.
    fn set_prev_of(&self, kind: Kind, next: u32, before: u32) {
        if let Some(next) = Page::open(self.view, next) {
            next.set_prev(self.view, kind, before);
        }
    }

    /// Makes a next page for a slot that belongs after a page.
    fn append_page(
        &self,
        slab: &mut SubChunk,
        locked: &mut Locked<'a>,
        new: &New<'_, '_>,
    ) -> Option<u32> {
        let ((first, _), node) = (self.ends(locked)?, self.view.try_open(new.node)?);
        let old = locked.page.measure(self.view, locked.kind);
        let measure = if old.chosen != 0 && node.key().len() >= old.skip as usize {
            // Keys of a fill in order differ where those of the page before differ.
            Measure {
                chosen: old.chosen,
                ..self.measure_of(&node, old.skip)
            }
        } else {
            let skip = shared(self.comparator, first.key(), node.key());
            self.measure_of(&node, skip)
        };
        let mut page = Locked::create(
            self.view,
            self.comparator,
            slab,
            locked.kind,
            new.node,
            &measure,
        )?;
        let discriminator = measure.kept(self.comparator, node.key(), locked.kind);
        page.insert(
            self.view,
            0,
            Slot {
                discriminator,
                node: new.node,
                child: new.child,
            },
        )?;
        let linked = self.link_right(locked, page);
        self.adopt(slab, new.level, locked.page, linked);
        Some(linked.at)
    }

    /// Moves the upper half of a page into a new one. Where bytes are chosen, keys tie, or the page may
    /// not be measured again, the next name in either half measures that half: it may do with less.
    /// Returns the new page.
    fn split(
        &self,
        slab: &mut SubChunk,
        locked: &mut Locked<'a>,
        level: u32,
        ties: Option<usize>,
    ) -> Option<Page<'a>> {
        let half = locked.count / 2;
        let low = self.node_in(locked, half)?.offset();
        let old = locked.page.measure(self.view, locked.kind);
        let is_measured = old.chosen == 0 && old.turns < TURNS_MAX && ties.is_none();
        let turns = u64::from(is_measured);
        let measure = &old.at_turn(turns);
        let mut page = Locked::create(self.view, self.comparator, slab, locked.kind, low, measure)?;
        page.take_from(self.view, locked, half)?;
        let linked = self.link_right(locked, page);
        // Before the comparator runs again, because it may panic (NAME-2).
        locked.truncate(half);
        locked.set_turns(turns);
        self.adopt(slab, level, locked.page, linked);
        Some(linked)
    }

    /// Links a page as the right neighbour of another. Calls no comparator after it is linked.
    fn link_right(&self, locked: &mut Locked<'a>, mut page: Locked<'a>) -> Page<'a> {
        let (old, new, next) = (locked.page, page.page, locked.page.next());
        let of_old = old.measure(self.view, locked.kind);
        let of_new = new.measure(self.view, page.kind);
        page.set_shares(Shares::LOW.and(self.high_shares(&of_new, next)));
        let high = self.shares(&of_old, new.low(), Shares::HIGH);
        locked.set_shares(of_old.shares.only(Shares::LOW).and(high));
        page.set_neighbours(old.at, next);
        drop(page);
        locked.set_next(new.at);
        self.set_prev_of(locked.kind, next, new.at);
        new
    }

    /// Adds a page to the parent of its left neighbour (NAME-1). Makes that level if there is none.
    fn adopt(&self, slab: &mut SubChunk, level: u32, left: Page<'a>, page: Page<'a>) {
        let Some(low) = self.view.try_open(page.low()) else {
            return;
        };
        let target = low.position_as_stored(self.comparator);
        let new = New {
            level: level + 1,
            target: &target,
            node: low.offset(),
            child: page.at,
            guess: 0,
        };
        match self.root() {
            Some((root, levels)) if root == left.at && levels < LEVELS_MAX => {
                let _ = self.grow(slab, (root, levels), left, &new);
            }
            _ => {
                let _ = self.put(slab, 0, &new);
            }
        }
    }

    /// Makes a root over the old root and its right neighbour.
    fn grow(
        &self,
        slab: &mut SubChunk,
        (root, levels): (u32, u32),
        left: Page<'a>,
        new: &New<'_, '_>,
    ) -> Option<()> {
        let node = self.view.try_open(new.node)?;
        let mut page = Locked::create(
            self.view,
            self.comparator,
            slab,
            Kind::Inner,
            START,
            &self.measure_of(&node, 0),
        )?;
        page.insert(
            self.view,
            0,
            Slot {
                discriminator: 0,
                node: START,
                child: left.at,
            },
        )?;
        let discriminator = kept(self.comparator, node.key(), 0);
        page.insert(
            self.view,
            1,
            Slot {
                discriminator,
                node: new.node,
                child: new.child,
            },
        )?;
        let at = page.page.at;
        drop(page);
        self.set_root(pack(self.view, self.root, root, levels), (at, levels + 1));
        Some(())
    }
}
