//! Pages of the directory: their words, and the search among their slots. Safe for any stored word.
//!
//! ```text
//!   word   0 reference 32 | skip 24 | flags 8      1 next 32 | prev 32      flags: high shares, low shares, chosen
//!                                                                           bytes; turns 4
//!          2 first 8 bytes of the reference's key; in a leaf of chosen bytes, where these are
//!          3 low node 32 | tag 24 | lock 1, count 7
//!          4 .. 63    leaf: discriminator 32 | node 32        inner: discriminator 64      ascending; free: all ones
//!          64 .. 66   inner: the next 24 bytes of the reference's key        67 where its chosen bytes are
//!          68 .. 127  inner: child 32 | fence node 32
//! ```
//! * PAGE-1: only the owner of a page's lock writes the page, and only where the tag proves that it
//!   is a page: a damaged offset leads no writer into an entry.
//! * PAGE-2: slots are shifted from the last one on, each copied before its old place is
//!   overwritten. So a reader sees every old slot at least once, in ascending order. Children are
//!   shifted before discriminators: a reader reaches the page before the right one at worst.
//! * PAGE-3: a page is never freed or replaced. It is measured again in place: its nodes and pages
//!   stay, and a reader that meets new and old words together follows a hint that is wrong.
//!
//! Any thread reads, without a lock. A writer never waits for the lock.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of halves"
)]

use std::borrow::Borrow;

use crate::comparator::KeyComparator;
use crate::key::Target;
use crate::memtable::arena::arena::{SubChunk, View};
use crate::memtable::arena::layout::{LINE_UNITS, UNIT};
use crate::memtable::directory::discriminator::{
    Kind, Measure, Shares, WORD, begins, gathered, kept,
};
use crate::sync::{AtomicU64, Ordering};

/// Words of a leaf, and of either half of an inner page.
#[cfg(not(loom))]
pub(super) const WORDS: usize = 64;
#[cfg(loom)]
pub(super) const WORDS: usize = 8;
/// Words before the first slot.
pub(crate) const HEAD: usize = 4;
/// Slots of a page.
pub(crate) const SLOTS: usize = WORDS - HEAD;
/// Words of a block: a search finds the block first.
const BLOCK: usize = if WORDS < 16 { WORDS } else { 16 };
/// The word of a free slot.
pub(super) const FREE: u64 = u64::MAX;

pub(crate) const MEASURE: usize = 0;
const NEIGHBOURS: usize = 1;
const FIRST_BYTES: usize = 2;
pub(crate) const LOCK: usize = 3;

/// The page keeps chosen bytes (MEASURE-2).
const CHOSEN: u64 = 8;
/// How often a page may be measured before it is split: each time its keys are read.
pub(super) const TURNS_MAX: u64 = 8;
/// How many words of an inner page continue the first bytes of its reference's key. The next word
/// says where its chosen bytes are.
const MORE: usize = HEAD - 1;

const LOCKED: u64 = 1 << 7;
pub(crate) const COUNT: u64 = LOCKED - 1;

impl Kind {
    /// How many units a page takes.
    pub(super) fn units(self) -> u32 {
        match self {
            Kind::Leaf => WORDS as u32,
            Kind::Inner => 2 * WORDS as u32,
        }
    }
}

/// Whether a slot has a target's discriminator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// It has: its key is probably the target's.
    Equal,
    /// It has another one, or that is unknown.
    Other,
}

/// A page, whose words may be damaged.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    pub(super) at: u32,
    words: Half<'a>,
}

/// The words of half a page.
#[cfg(not(loom))]
type Half<'a> = &'a [AtomicU64; WORDS];
#[cfg(loom)]
type Half<'a> = [&'a AtomicU64; WORDS];

/// The content of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// In a leaf only the upper half is stored.
    pub(super) discriminator: u64,
    /// The node that a leaf names; in an inner page, the first node of the child's range.
    pub(super) node: u32,
    /// The page that an inner page names; 0 in a leaf.
    pub(super) child: u32,
}

/// The words of half a page at `at`, unchecked.
#[cfg(not(loom))]
#[inline(always)]
fn words_at<'a>(view: &View<'a>, at: u32) -> Option<Half<'a>> {
    view.words(at)
}

/// The same under loom, whose atomics are not in the arena.
#[cfg(loom)]
fn words_at<'a>(view: &View<'a>, at: u32) -> Option<Half<'a>> {
    let words: Option<Vec<_>> = (0..WORDS as u32)
        .map(|word| view.word(at.wrapping_add(word)))
        .collect();
    words?.try_into().ok()
}

/// How many bytes a page with this word leaves out.
#[inline(always)]
fn skipped(measure: u64) -> u32 {
    (measure >> 8) as u32 & 0xff_ffff
}

/// The tag of a page of this kind.
#[inline(always)]
fn tag(view: &View<'_>, at: u32, kind: Kind) -> u64 {
    let what = match kind {
        Kind::Leaf => 0,
        Kind::Inner => 1,
    };
    u64::from(view.secret.link_tag(at, u32::MAX - 1, what) >> 8)
}

impl<'a> Page<'a> {
    /// The page at `at`, unchecked. There is no page at 0.
    #[inline(always)]
    pub(crate) fn open(view: &View<'a>, at: u32) -> Option<Page<'a>> {
        if at == 0 {
            return None;
        }
        Some(Page {
            at,
            words: words_at(view, at)?,
        })
    }

    #[inline(always)]
    fn load(&self, word: usize) -> u64 {
        // ORDERING: Relaxed: a hint; `node`, `child`, `next` and `prev` load what is followed.
        self.words[word].load(Ordering::Relaxed)
    }

    /// The rule by which the page makes discriminators.
    #[inline(always)]
    pub(super) fn measure(&self, view: &View<'a>, kind: Kind) -> Measure {
        let word = self.load(MEASURE);
        Measure {
            reference: (word >> 32) as u32,
            skip: skipped(word),
            start: self.load(FIRST_BYTES),
            shares: Shares(word).only(Shares::BOTH),
            chosen: if word & CHOSEN == 0 {
                0
            } else {
                self.chosen(view, kind)
            },
            turns: word >> 4 & 0xf,
        }
    }

    /// Where the bytes are that the page keeps, if they are chosen.
    #[inline(always)]
    fn chosen(&self, view: &View<'a>, kind: Kind) -> u64 {
        match kind {
            Kind::Leaf => self.load(FIRST_BYTES),
            // ORDERING: Relaxed: a hint.
            Kind::Inner => self
                .children(view)
                .map_or(0, |words| words[MORE].load(Ordering::Relaxed)),
        }
    }

    /// Whether the page keeps chosen bytes (MEASURE-2).
    #[inline(always)]
    pub(crate) fn is_chosen(&self) -> bool {
        self.load(MEASURE) & CHOSEN != 0
    }

    /// The next page of this level; 0: none.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `set_neighbours`: the page's words are
        // visible.
        (self.words[NEIGHBOURS].load(Ordering::Acquire) >> 32) as u32
    }

    /// The previous page of this level; 0: none.
    #[inline(always)]
    pub(super) fn prev(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `set_neighbours`: the page's words are
        // visible.
        self.words[NEIGHBOURS].load(Ordering::Acquire) as u32
    }

    /// The first node of the page's range; 0 for the first page of a level, whose range begins
    /// before all nodes.
    #[inline(always)]
    pub(super) fn low(&self) -> u32 {
        (self.load(LOCK) >> 32) as u32
    }

    /// The number of slots whose word is smaller than `bound`.
    #[inline(always)]
    pub(super) fn rank(&self, bound: u64) -> usize {
        // The first words of the blocks select a block, the first words of its quarters a quarter,
        // and the quarter's words the place.
        let (mut block, mut quarter, mut word) = (0, 0, 0);
        for number in 1..WORDS / BLOCK {
            block += self.is_below(number * BLOCK, bound);
        }
        for number in 1..BLOCK / HEAD {
            quarter += self.is_below(block * BLOCK + number * HEAD, bound);
        }
        let first = block * BLOCK + quarter * HEAD;
        for number in 1..HEAD {
            word += self.is_below(first + number, bound);
        }
        if first == 0 {
            0
        } else {
            first - HEAD + 1 + word
        }
    }

    /// 1 if a word is below `bound`, else 0.
    #[inline(always)]
    fn is_below(&self, word: usize, bound: u64) -> usize {
        usize::from(self.load(word % WORDS) < bound)
    }

    /// The slot's word as a search compares it.
    #[inline(always)]
    pub(super) fn word(&self, slot: usize) -> u64 {
        if slot < SLOTS {
            self.load(HEAD + slot)
        } else {
            FREE
        }
    }

    /// The first slot whose node is not before the target, if discriminators alone prove it or,
    /// where they are chosen, suggest it; and whether its discriminator is the target's. `None` means
    /// one of these:
    ///
    /// * the key may not begin with the page's bytes;
    /// * the slot is the first one of the page, or free with a next page;
    /// * more than `ties` slots after it have the key's discriminator.
    #[inline(always)]
    pub(super) fn slot_at_once(
        &self,
        view: &View<'a>,
        comparator: &KeyComparator,
        target: &Target<'_>,
        kind: Kind,
        ties: usize,
    ) -> Option<(usize, Likeness)> {
        let measure = self.load(MEASURE);
        let skip = skipped(measure);
        let discriminator = if measure & (CHOSEN | Shares::BOTH.0) == Shares::BOTH.0 {
            kept(comparator, target.key, skip)
        } else {
            self.unproved(*view, comparator, target, kind)?
        };
        let (first, last) = kind.words_with(discriminator);
        let slot = self.rank(first);
        let word = self.word(slot);
        if slot == 0 || word == FREE && self.next() != 0 {
            return None;
        }
        let likeness = if word <= last {
            Likeness::Equal
        } else {
            Likeness::Other
        };
        let is_tied = if ties == 0 {
            word <= last
        } else {
            self.word(slot + ties) <= last
        };
        match kind {
            _ if !is_tied => Some((slot, likeness)),
            Kind::Inner => {
                let slot = self.beside_fence(*view, comparator, target, slot)?;
                Some((slot, likeness))
            }
            Kind::Leaf => None,
        }
    }

    /// The slot of an inner page for a target with the discriminator of this slot's fence alone, by
    /// a comparison with the key of that fence. `None`: another fence has that discriminator too, or
    /// the target may belong to the next page.
    #[inline(never)]
    fn beside_fence(
        self,
        view: View<'a>,
        comparator: &KeyComparator,
        target: &Target<'_>,
        slot: usize,
    ) -> Option<usize> {
        let after = self.word(slot + 1);
        if self.word(slot) == after {
            return None;
        }
        let (_, fence) = self.child(&view, slot)?;
        let is_before = view
            .try_open(fence)?
            .order_as_stored(comparator, target)
            .is_lt();
        match is_before {
            true if after == FREE && self.next() != 0 => None,
            true => Some(slot + 1),
            false => Some(slot),
        }
    }

    /// The target's discriminator in a page whose fences do not prove that its key begins with the
    /// page's bytes, as they do not in the first and the last page of a level, and so in the root; or
    /// in a page of chosen bytes. `None`: the key of the reference decides.
    /// Takes values, so that its callers keep them in registers.
    #[inline(never)]
    fn unproved(
        self,
        view: View<'a>,
        comparator: &KeyComparator,
        target: &Target<'_>,
        kind: Kind,
    ) -> Option<u64> {
        let measure = self.load(MEASURE);
        let (skip, is_chosen) = (skipped(measure), measure & CHOSEN != 0);
        // A key that does not begin with the bytes of a leaf of chosen bytes, or differs from those
        // of an inner page where that stores none, is led astray, and asked for again.
        let is_open = measure & Shares::BOTH.0 != Shares::BOTH.0 && skip > 0;
        if is_open && !(kind == Kind::Leaf && is_chosen) {
            if begins(target.image ^ self.load(FIRST_BYTES), skip) != 0 {
                return None;
            }
            if skip as usize > WORD {
                let more = match kind {
                    Kind::Leaf => return None,
                    Kind::Inner => self.more_bytes(&view)?,
                };
                for (at, word) in (WORD as u32..skip).step_by(WORD).zip(more) {
                    let differ = comparator.image(target.key, at as usize) ^ word;
                    if begins(differ, skip - at) != 0 {
                        return None;
                    }
                }
            }
        }
        if !is_chosen {
            return Some(kept(comparator, target.key, skip));
        }
        let chosen = self.chosen(&view, kind);
        Some(gathered(target.key, skip, chosen, kind.bytes()))
    }

    /// The bytes of its reference's key that an inner page stores, after the first 8.
    #[inline(always)]
    pub(super) fn more_bytes(&self, view: &View<'a>) -> Option<[u64; MORE]> {
        let words = self.children(view)?;
        // ORDERING: Relaxed: a hint.
        Some(std::array::from_fn(|place| {
            words[place].load(Ordering::Relaxed)
        }))
    }

    /// The discriminator in a leaf of a key whose first 8 bytes prove that it begins with the leaf's
    /// bytes. `None`: they do not, or bytes are chosen.
    #[inline(always)]
    pub(super) fn kept_at_once(
        &self,
        comparator: &KeyComparator,
        target: &Target<'_>,
    ) -> Option<u64> {
        let measure = self.load(MEASURE);
        let skip = skipped(measure);
        let differ = target.image ^ self.load(FIRST_BYTES);
        let begins = skip == 0 || skip as usize <= WORD && begins(differ, skip) == 0;
        // A closure might not be inlined.
        if measure & CHOSEN != 0 || !begins {
            return None;
        }
        Some(kept(comparator, target.key, skip))
    }

    /// Whether a discriminator belongs right before this slot of a leaf, and neither slot beside it
    /// has an equal one.
    #[inline(always)]
    pub(super) fn is_between(&self, slot: usize, discriminator: u64) -> bool {
        let wanted = discriminator & !0xffff_ffff;
        slot > 0 && self.word(slot - 1) < wanted && self.word(slot) > wanted | 0xffff_ffff
    }

    /// The node that a slot of a leaf names; 0: none.
    #[inline(always)]
    pub(super) fn node(&self, slot: usize) -> u32 {
        let Some(word) = self.words.get(HEAD + slot) else {
            return 0;
        };
        // ORDERING: Acquire pairs with the Release in `Locked::store`: the node's bytes are
        // visible.
        let word = word.load(Ordering::Acquire);
        if word == FREE { 0 } else { word as u32 }
    }

    /// The second half of an inner page.
    #[inline(always)]
    fn children(&self, view: &View<'a>) -> Option<Half<'a>> {
        words_at(view, self.at.wrapping_add(WORDS as u32))
    }

    /// The child of a slot of an inner page, and the child's first node.
    #[inline(always)]
    pub(super) fn child(&self, view: &View<'a>, slot: usize) -> Option<(u32, u32)> {
        let words = self.children(view)?;
        // ORDERING: Acquire pairs with the Release in `Locked::store`: the page's words are
        // visible.
        let word = words.get(HEAD + slot)?.load(Ordering::Acquire);
        Some(((word >> 32) as u32, word as u32))
    }

    /// A slot with all that it holds.
    pub(super) fn slot(&self, view: &View<'a>, kind: Kind, slot: usize) -> Option<Slot> {
        match kind {
            Kind::Leaf => {
                let node = self.node(slot);
                Some(Slot {
                    discriminator: self.word(slot) & !0xffff_ffff,
                    node,
                    child: 0,
                })
            }
            Kind::Inner => {
                let (child, node) = self.child(view, slot)?;
                Some(Slot {
                    discriminator: self.word(slot),
                    node,
                    child,
                })
            }
        }
    }

    /// The lock word and the measure, and the number of slots that the former counts; `None` while the
    /// page is locked. A reader that finds other words afterwards has read a page that was being
    /// written.
    pub(crate) fn at_rest(&self) -> Option<([u64; 2], usize)> {
        // ORDERING: Acquire pairs with the Release in `Locked::drop`: the slots that it counts are
        // visible.
        let word = self.words[LOCK].load(Ordering::Acquire);
        (word & LOCKED == 0).then_some(([word, self.load(MEASURE)], (word & COUNT) as usize))
    }

    /// Whether there is a page of this kind here, by its tag (PAGE-1).
    #[inline(always)]
    pub(super) fn is(&self, view: &View<'a>, kind: Kind) -> bool {
        self.load(LOCK) >> 8 & 0xff_ffff == tag(view, self.at, kind)
    }

    /// Sets the previous page, if there is a page here (PAGE-1).
    pub(super) fn set_prev(&self, view: &View<'a>, kind: Kind, prev: u32) {
        if self.is(view, kind) {
            self.set_neighbours(|word| word & !0xffff_ffff | u64::from(prev));
        }
    }

    fn set_neighbours(&self, change: impl Fn(u64) -> u64) {
        // ORDERING: Release pairs with the Acquire in `next` and `prev`; Relaxed on failure: tried
        // again.
        let _ = self.words[NEIGHBOURS].fetch_update(Ordering::Release, Ordering::Relaxed, |word| {
            Some(change(word))
        });
    }

    /// Takes the lock. `None`: another writer has it, or there is no page of this kind here
    /// (PAGE-1).
    #[inline(always)]
    pub(super) fn lock(self, view: &View<'a>, kind: Kind) -> Option<Locked<'a>> {
        let word = self.load(LOCK);
        if word & LOCKED != 0 || !self.is(view, kind) {
            return None;
        }
        // ORDERING: Acquire pairs with the Release in `Locked::drop`: the stores of the owner
        // before are visible. Relaxed on failure: the page is not touched.
        self.words[LOCK]
            .compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let count = ((word & COUNT) as usize).min(SLOTS);
        Some(Locked {
            page: self,
            kind,
            count,
            word: word & !(COUNT | LOCKED),
        })
    }
}

/// A page whose lock is held.
pub(super) struct Locked<'a> {
    pub(super) page: Page<'a>,
    pub(super) kind: Kind,
    pub(super) count: usize,
    /// The lock word without lock and count.
    word: u64,
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `lock`.
        self.page.words[LOCK].store(self.word | self.count as u64, Ordering::Release);
    }
}

impl<'a> Locked<'a> {
    /// Takes units for a page and prepares it: empty, locked, not linked yet. `None`: the arena is
    /// full.
    pub(super) fn create(
        view: &View<'a>,
        comparator: &KeyComparator,
        slab: &mut SubChunk,
        kind: Kind,
        low: u32,
        measure: &Measure,
    ) -> Option<Locked<'a>> {
        let at = take(view, slab, u64::from(kind.units()))?;
        let page = Page::open(view, at)?;
        for slot in page.words.iter().skip(HEAD) {
            // ORDERING: Relaxed: a Release store links the page later.
            slot.store(FREE, Ordering::Relaxed);
        }
        let word = u64::from(low) << 32 | tag(view, at, kind) << 8;
        // ORDERING: Relaxed: a Release store links the page later.
        page.words[LOCK].store(word | LOCKED, Ordering::Relaxed);
        let mut locked = Locked {
            page,
            kind,
            count: 0,
            word,
        };
        locked.set_measure(view, comparator, measure)?;
        Some(locked)
    }

    /// Stores a rule. The page's discriminators are not made by it yet.
    pub(super) fn set_measure(
        &mut self,
        view: &View<'a>,
        comparator: &KeyComparator,
        measure: &Measure,
    ) -> Option<()> {
        let page = self.page;
        if self.kind == Kind::Inner {
            let reference = view.try_open(measure.reference);
            let key = reference.map_or(&[][..], |node| node.key());
            let more: [u64; MORE] =
                std::array::from_fn(|word| comparator.image(key, WORD * (word + 1)));
            let words = page.children(view)?;
            for (word, bytes) in words.iter().zip(more.into_iter().chain([measure.chosen])) {
                // ORDERING: Relaxed: a hint.
                word.store(bytes, Ordering::Relaxed);
            }
        }
        let (flag, first) = match (measure.chosen, self.kind) {
            (0, _) => (0, measure.start),
            (chosen, Kind::Leaf) => (CHOSEN, chosen),
            (_, Kind::Inner) => (CHOSEN, measure.start),
        };
        let flags = measure.turns.min(TURNS_MAX) << 4 | flag | measure.shares.0;
        let word = u64::from(measure.reference) << 32 | u64::from(measure.skip) << 8 | flags;
        // ORDERING: Relaxed: a hint.
        page.words[MEASURE].store(word, Ordering::Relaxed);
        // ORDERING: Relaxed: a hint.
        page.words[FIRST_BYTES].store(first, Ordering::Relaxed);
        Some(())
    }

    /// Stores which fences begin with the page's bytes.
    pub(super) fn set_shares(&mut self, shares: Shares) {
        let word = self.page.load(MEASURE) & !Shares::BOTH.0;
        // ORDERING: Relaxed: a hint.
        self.page.words[MEASURE].store(word | shares.0, Ordering::Relaxed);
    }

    /// The node of a slot.
    #[inline(always)]
    pub(super) fn node(&self, view: &View<'a>, slot: usize) -> Option<u32> {
        match self.kind {
            Kind::Leaf => Some(self.page.node(slot)),
            Kind::Inner => Some(self.page.child(view, slot)?.1),
        }
    }

    /// Sets both neighbours.
    pub(super) fn set_neighbours(&mut self, prev: u32, next: u32) {
        self.page
            .set_neighbours(|_| u64::from(next) << 32 | u64::from(prev));
    }

    /// Sets the next page.
    pub(super) fn set_next(&mut self, next: u32) {
        self.page
            .set_neighbours(|word| word & 0xffff_ffff | u64::from(next) << 32);
    }

    /// Writes a slot.
    #[inline(always)]
    pub(super) fn store(&mut self, view: &View<'a>, place: usize, slot: Slot) {
        let Slot {
            discriminator,
            node,
            child,
        } = slot;
        let word = match self.kind {
            Kind::Leaf => discriminator & !0xffff_ffff | u64::from(node),
            Kind::Inner => {
                if let Some(words) = self.page.children(view) {
                    // ORDERING: Release pairs with the Acquire in `child`.
                    words[HEAD + place]
                        .store(u64::from(child) << 32 | u64::from(node), Ordering::Release);
                }
                discriminator
            }
        };
        // ORDERING: Release pairs with the Acquire in `node`.
        self.page.words[HEAD + place].store(word, Ordering::Release);
    }

    /// Stores how often the page was measured since its last split.
    pub(super) fn set_turns(&mut self, turns: u64) {
        let word = self.page.load(MEASURE) & !(0xf << 4);
        // ORDERING: Relaxed: a hint.
        self.page.words[MEASURE].store(word | turns << 4, Ordering::Relaxed);
    }

    /// Stores a discriminator for each slot (PAGE-3).
    pub(super) fn set_discriminators(&mut self, discriminators: &[u64; SLOTS]) {
        let words = self.page.words.iter().skip(HEAD).take(self.count);
        for (word, discriminator) in words.zip(discriminators) {
            // ORDERING: Relaxed: the owner of the lock reads words of earlier owners.
            let old = word.load(Ordering::Relaxed);
            let new = match self.kind {
                Kind::Leaf => discriminator & !0xffff_ffff | old & 0xffff_ffff,
                Kind::Inner => *discriminator,
            };
            // ORDERING: Release pairs with the Acquire in `node`.
            word.store(new, Ordering::Release);
        }
    }

    /// Puts a slot at its place (PAGE-2). The page is not full. `None`: damage, the place is after
    /// the slots that are counted.
    #[inline(always)]
    pub(super) fn insert(&mut self, view: &View<'a>, place: usize, slot: Slot) -> Option<()> {
        if place > self.count {
            return None;
        }
        if self.kind == Kind::Inner {
            let children = self.page.children(view)?;
            shift(children.get(HEAD + place..=HEAD + self.count)?);
        }
        shift(self.page.words.get(HEAD + place..=HEAD + self.count)?);
        self.store(view, place, slot);
        self.count += 1;
        Some(())
    }

    /// Copies the slots of another page of this kind, from `first` on, into this page, which is
    /// empty and not linked yet.
    pub(super) fn take_from(
        &mut self,
        view: &View<'a>,
        other: &Locked<'a>,
        first: usize,
    ) -> Option<()> {
        let slots = HEAD + first..HEAD + other.count;
        if self.kind == Kind::Inner {
            let (from, to) = (other.page.children(view)?, self.page.children(view)?);
            copy(from.get(slots.clone())?, &to[HEAD..]);
        }
        copy(other.page.words.get(slots)?, &self.page.words[HEAD..]);
        self.count = other.count - first;
        Some(())
    }

    /// Frees the slots from `first` on.
    pub(super) fn truncate(&mut self, first: usize) {
        for place in (first..self.count).rev() {
            // ORDERING: Release pairs with the Acquire in `node` and `child`, as every store of a
            // slot does.
            self.page.words[HEAD + place].store(FREE, Ordering::Release);
        }
        self.count = self.count.min(first);
    }
}

/// Copies words into a page that is not linked yet.
fn copy<W: Borrow<AtomicU64>>(from: &[W], to: &[W]) {
    for (from, to) in from.iter().zip(to) {
        // ORDERING: Relaxed: the owner of the lock reads words of earlier owners; a Release store
        // links the page later.
        to.borrow()
            .store(from.borrow().load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Copies each word to the next place, the last one first (PAGE-2).
fn shift<W: Borrow<AtomicU64>>(words: &[W]) {
    let Some((_, later)) = words.split_first() else {
        return;
    };
    let copy = |(to, from): (&W, &W)| {
        // ORDERING: Relaxed: the owner of the lock reads words of earlier owners. Release pairs
        // with the Acquire in `node` and `child`.
        to.borrow()
            .store(from.borrow().load(Ordering::Relaxed), Ordering::Release);
    };
    let pairs = later.iter().zip(words);
    pairs.rev().for_each(copy)
}

/// Takes units that begin a cache line. The room for any padding is reserved first, because it may
/// move the slab to other memory.
pub(crate) fn take(view: &View<'_>, slab: &mut SubChunk, units: u64) -> Option<u32> {
    let most = units + u64::from(LINE_UNITS) - 1;
    view.arena().reserve(slab, most * UNIT as u64).ok()?;
    let pad = slab.left().start.wrapping_neg() % LINE_UNITS;
    let reservation = view.arena().carve(slab, units + u64::from(pad)).ok()?;
    Some(reservation.start() + pad)
}
