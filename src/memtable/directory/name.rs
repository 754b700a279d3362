//! Names nodes in the directory: insert into a leaf, split, update the parent.
//!
//! ```text
//!   full page        [a .. z]                 -> [a .. m] [n .. z]     the right half is a new page, which the parent names
//!   append           [a .. z]  zz             -> [a .. z] [zz]         leaves of a fill in order stay full
//!   equal            [aaa1 .. aaa9] by "aaa"  -> [aaa1 .. aaa9] by "1" a page that leaves out more bytes replaces the page
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

use crate::comparator::KeyOrder;
use crate::key::Target;
use crate::memtable::arena::arena::SubChunk;
use crate::memtable::arena::node::Node;
use crate::memtable::directory::discriminator::{
    CODED, Measure, Shares, kept, kept_after, shared, shared_of,
};
use crate::memtable::directory::lookup::{LEVELS_MAX, LeafSlot, MOVES_MAX, Pages, START, pack};
use crate::memtable::directory::page::{Kind, Locked, Page, SLOTS, Slot};
use crate::sync::Ordering;

/// Most neighbours of a full page with equal discriminators: a page with more is measured again.
const TIES_MAX: usize = SLOTS / 16;
/// The number of slots at which a page is measured again before it is full: most keys of a small
/// table may have equal discriminators.
const EARLY: usize = 4;

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

    /// Names a node before a slot of a leaf, if discriminators alone prove its place: its key
    /// begins with the page's bytes, and no slot beside it has an equal discriminator. `None`:
    /// anything else.
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
        let measure = page.measure();
        let discriminator = kept(self.comparator, target.key, measure.skip);
        let fits = locked.count < SLOTS
            && page.is_between(slot, discriminator)
            && measure.side(self.view, self.comparator, target.key).is_eq()
            && (slot < locked.count || page.next() == 0)
            && !page.is_replaced();
        if !fits {
            return None;
        }
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

    /// Puts a new slot into the page of its level whose range holds it, from `page` on; 0: from the
    /// root.
    fn put(&self, slab: &mut SubChunk, page: u32, new: &New<'_, '_>) -> Option<Named> {
        let mut page = match page {
            0 => self.page_for(slab, new)?,
            at => Page::open(self.view, at)?,
        };
        for _ in 0..MOVES_MAX {
            let Some(mut locked) = page.lock(self.view, Kind::at(new.level)) else {
                let is_last = page.next() == 0;
                return Some(if is_last { Named::Left } else { Named::Busy });
            };
            if page.is_replaced() {
                drop(locked);
                page = Page::open(self.view, page.next())?;
                continue;
            }
            let place = self.place(&locked, new);
            if place == 0 && page.prev() != 0 && !self.is_before(page.low(), new.target) {
                // The guess led to a page after the right one: start at the root.
                drop(locked);
                page = self.page_at(new.level, new.target)?;
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
            if place < locked.count && locked.slot(self.view, place)?.node == new.node {
                return Some(Named::In(slot_after(page.at, place)));
            }
            if place == locked.count
                && let Some(next) = Page::open(self.view, page.next())
                && next.low() == new.node
            {
                // Another writer has named it there.
                return Some(Named::In(slot_after(next.at, 0)));
            }
            match self.put_here(slab, &mut locked, place, new)? {
                Some(at) => return Some(Named::In(at)),
                None => drop(locked),
            }
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
        self.page_at(new.level, new.target)
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
        let named = |slot| locked.slot(self.view, slot).map(|slot| slot.node);
        let may_be_guessed =
            locked.page.measure().skip == CODED && (1..locked.count).contains(&new.guess);
        // The guess is right if the slots beside it name the node's neighbours on level 0, with
        // which the node was compared when it was linked.
        if may_be_guessed
            && named(new.guess - 1) == self.view.back_hint(new.node)
            && named(new.guess) == self.view.try_link(new.node, 0)
        {
            return new.guess;
        }
        self.slot(&locked.page, new.target, (locked.kind, 0))
            .min(locked.count)
    }

    /// Puts a slot into a locked page. `Some(None)`: the page was split or replaced instead, and
    /// the caller tries again.
    fn put_here(
        &self,
        slab: &mut SubChunk,
        locked: &mut Locked<'a>,
        place: usize,
        new: &New<'_, '_>,
    ) -> Option<Option<LeafSlot>> {
        let measure = locked.page.measure();
        // Each turn leaves out more bytes, splits a full page, or is the last one: a full page is
        // never measured to leave out fewer bytes.
        if (locked.count == SLOTS || locked.count == EARLY)
            && let Some(skip) = self.better_skip(locked, place, new.target.key)
        {
            self.remeasure(slab, locked, new.level, skip)?;
            return Some(None);
        }
        if locked.count == SLOTS {
            if place == SLOTS {
                return self
                    .append_page(slab, locked, new)
                    .map(|at| Some(slot_after(at, 0)));
            }
            self.split(slab, locked, new.level)?;
            return Some(None);
        }
        if measure.skip != CODED
            && measure
                .side(self.view, self.comparator, new.target.key)
                .is_ne()
        {
            let reference = self.view.try_open(measure.reference)?;
            let skip = shared(self.comparator, reference.key(), new.target.key);
            self.remeasure(slab, locked, new.level, skip)?;
            return Some(None);
        }
        let before = place.checked_sub(1).filter(|_| measure.skip == CODED);
        let before = before.and_then(|before| locked.slot(self.view, before));
        let before = before.map_or(&[][..], |slot| self.key_of(slot.node));
        let discriminator = kept_after(self.comparator, before, new.target.key, measure.skip);
        if measure.skip == CODED && place < locked.count {
            let slot = locked.slot(self.view, place)?;
            // The next slot now follows the new key. Its code changes unless it shares less with
            // the old key before it than the new key does.
            if shared_of(slot.discriminator) >= shared_of(discriminator) {
                let discriminator = kept_after(
                    self.comparator,
                    new.target.key,
                    self.key_of(slot.node),
                    CODED,
                );
                locked.store(
                    self.view,
                    place,
                    Slot {
                        discriminator,
                        ..slot
                    },
                );
            }
        }
        locked.insert(
            self.view,
            place,
            Slot {
                discriminator,
                node: new.node,
                child: new.child,
            },
        )?;
        Some(Some(slot_after(locked.page.at, place)))
    }

    /// The key of a node; empty for the start of the list and for a node that does not open.
    pub(super) fn key_of(&self, node: u32) -> &'a [u8] {
        self.view.try_open(node).map_or(&[], |node| node.key())
    }

    fn node_in(&self, locked: &Locked<'a>, slot: usize) -> Option<Node<'a>> {
        self.view.try_open(locked.slot(self.view, slot)?.node)
    }

    /// The first and the last node that a page names.
    fn ends(&self, locked: &Locked<'a>) -> Option<(Node<'a>, Node<'a>)> {
        let first = usize::from(locked.slot(self.view, 0)?.node == START);
        Some((
            self.node_in(locked, first)?,
            self.node_in(locked, locked.count.checked_sub(1)?)?,
        ))
    }

    /// How many bytes a page with many equal discriminators could leave out; `None`: no more than
    /// now. A new key that belongs before the page's end must begin with these bytes as well.
    fn better_skip(&self, locked: &Locked<'a>, place: usize, key: &[u8]) -> Option<u32> {
        let half = |slot| match locked.kind {
            Kind::Leaf => locked.page.word(slot) >> 32,
            Kind::Inner => locked.page.word(slot),
        };
        let ties = (1..locked.count)
            .filter(|slot| half(*slot) == half(slot - 1))
            .count();
        if ties
            <= if locked.count == SLOTS {
                TIES_MAX
            } else {
                EARLY / 2
            }
        {
            return None;
        }
        let (first, last) = self.ends(locked)?;
        let stays = if place == SLOTS { first.key() } else { key };
        let skip = shared(self.comparator, first.key(), last.key()).min(shared(
            self.comparator,
            stays,
            last.key(),
        ));
        let measured = locked.page.measure().skip;
        if skip > measured {
            return Some(skip);
        }
        let is_coded = measured != CODED
            && ties > SLOTS / 2
            && locked.count == SLOTS
            && first.key() != last.key()
            && self.comparator.key_order() == KeyOrder::Bytes;
        is_coded.then_some(CODED)
    }

    /// The measure with this reference.
    fn measure_of(&self, reference: &Node<'a>, skip: u32) -> Measure {
        let shares = if skip == 0 {
            Shares::BOTH
        } else {
            Shares::NONE
        };
        let start = self.comparator.image(reference.key(), 0);
        Measure {
            reference: reference.offset(),
            skip,
            start,
            shares,
        }
    }

    /// `fence`, if the key of this node begins with the bytes that a page leaves out.
    fn shares(&self, measure: &Measure, node: u32, fence: Shares) -> Shares {
        if self.begins(measure, node) {
            fence
        } else {
            Shares::NONE
        }
    }

    /// `Shares::HIGH`, if the first node of the next page begins with the bytes of a page.
    fn high_shares(&self, measure: &Measure, next: u32) -> Shares {
        match Page::open(self.view, next) {
            Some(next) => self.shares(measure, next.low(), Shares::HIGH),
            None if measure.skip == 0 => Shares::HIGH,
            None => Shares::NONE,
        }
    }

    /// Makes the next page name `before` as its predecessor.
    fn set_prev_of(&self, kind: Kind, next: u32, before: u32) {
        if let Some(next) = Page::open(self.view, next) {
            next.set_prev(self.view, kind, before);
        }
    }

    /// Replaces a page by one that leaves out `skip` bytes (PAGE-3), which all of its keys share.
    fn remeasure(
        &self,
        slab: &mut SubChunk,
        locked: &mut Locked<'a>,
        level: u32,
        skip: u32,
    ) -> Option<()> {
        let old = locked.page;
        let (first, _) = self.ends(locked)?;
        let measure = self.measure_of(&first, skip);
        let mut new = Locked::create(
            self.view,
            self.comparator,
            slab,
            locked.kind,
            old.low(),
            &measure,
        )?;
        let mut before: &[u8] = &[];
        for place in 0..locked.count {
            let slot = locked.slot(self.view, place)?;
            let key = self.key_of(slot.node);
            let discriminator = match slot.node {
                START => 0,
                _ => kept_after(self.comparator, before, key, skip),
            };
            before = key;
            new.insert(
                self.view,
                place,
                Slot {
                    discriminator,
                    ..slot
                },
            )?;
        }
        let (prev, next) = (old.prev(), old.next());
        if skip > 0 {
            let low = if prev == 0 {
                Shares::NONE
            } else {
                self.shares(&measure, old.low(), Shares::LOW)
            };
            new.set_shares(low.and(self.high_shares(&measure, next)));
        }
        new.set_neighbours(prev, next);
        let at = new.page.at;
        drop(new);
        locked.set_replaced(at);
        self.set_prev_of(locked.kind, next, at);
        self.rename(level, old, (at, &first));
        Some(())
    }

    /// Makes the parent, or the root word, name the replacement of a page.
    fn rename(&self, level: u32, old: Page<'a>, (new, first): (u32, &Node<'a>)) {
        let Some((root, levels)) = self.root() else {
            return;
        };
        if root == old.at {
            self.set_root(pack(self.view, self.root, root, levels), (new, levels));
            return;
        }
        let target = first.position(self.comparator);
        let Some(parent) = self.page_at(level + 1, &target) else {
            return;
        };
        let Some(mut parent) = parent.lock(self.view, Kind::Inner) else {
            return;
        };
        let place = self
            .slot(&parent.page, &target, (Kind::Inner, 0))
            .min(parent.count);
        for place in [place, place.saturating_sub(1)] {
            if let Some(slot) = parent.slot(self.view, place)
                && slot.child == old.at
            {
                parent.store(self.view, place, Slot { child: new, ..slot });
                return;
            }
        }
    }

    /// Makes a next page for a slot that belongs after a full page.
    fn append_page(
        &self,
        slab: &mut SubChunk,
        locked: &mut Locked<'a>,
        new: &New<'_, '_>,
    ) -> Option<u32> {
        let ((first, _), node) = (self.ends(locked)?, self.view.try_open(new.node)?);
        let skip = shared(self.comparator, first.key(), node.key());
        let measure = self.measure_of(&node, skip);
        let mut page = Locked::create(
            self.view,
            self.comparator,
            slab,
            locked.kind,
            new.node,
            &measure,
        )?;
        let discriminator = kept(self.comparator, node.key(), skip);
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

    /// Moves the upper half of a page into a new one.
    fn split(&self, slab: &mut SubChunk, locked: &mut Locked<'a>, level: u32) -> Option<()> {
        let half = locked.count / 2;
        let low = self.node_in(locked, half)?;
        let mut page = Locked::create(
            self.view,
            self.comparator,
            slab,
            locked.kind,
            low.offset(),
            &locked.page.measure(),
        )?;
        page.take_from(self.view, locked, half)?;
        if page.page.measure().skip == CODED {
            let first = page.slot(self.view, 0)?;
            let discriminator = kept_after(self.comparator, &[], self.key_of(first.node), CODED);
            page.store(
                self.view,
                0,
                Slot {
                    discriminator,
                    ..first
                },
            );
        }
        let linked = self.link_right(locked, page);
        // Before the comparator runs again, because it may panic (NAME-2).
        locked.truncate(half);
        self.adopt(slab, level, locked.page, linked);
        Some(())
    }

    /// Links a page as the right neighbour of another. Calls no comparator after it is linked.
    fn link_right(&self, locked: &mut Locked<'a>, mut page: Locked<'a>) -> Page<'a> {
        let (old, new, next) = (locked.page, page.page, locked.page.next());
        let of_old = old.measure();
        page.set_shares(Shares::LOW.and(self.high_shares(&new.measure(), next)));
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
        let Some(low) = self
            .view
            .try_open(page.low())
            .filter(|_| !page.is_replaced())
        else {
            return;
        };
        let target = low.position(self.comparator);
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
        let skip = shared(self.comparator, node.key(), node.key());
        let mut page = Locked::create(
            self.view,
            self.comparator,
            slab,
            Kind::Inner,
            START,
            &self.measure_of(&node, skip),
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
        let discriminator = kept(self.comparator, node.key(), skip);
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
