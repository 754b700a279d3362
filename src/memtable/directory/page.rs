//! Pages of the directory, byte by byte, and how a search goes through them. Safe for any stored
//! word.
//!
//! ```text
//!   word   0 reference 32 | skip 24 | flags 8      1 next 32 | prev 32      flags: replaced, high shares, low shares
//!          2 first 8 bytes of the reference's key  3 low node 32 | tag 24 | lock 1, count 7
//!          4 .. 63    leaf: discriminator 32 | node 32        inner: discriminator 64      ascending; free: all ones
//!          68 .. 127  inner: child 32 | fence node 32         (64 .. 67 are free)
//! ```
//! * PAGE-1: a page is written only by the owner of its lock, and only where the tag says that a
//!   page stands there: a damaged offset leads no writer into an entry.
//! * PAGE-2: a slot is shifted by storing its copy before its old place is overwritten, so at every
//!   moment each old slot is there at least once, in ascending order. Children are shifted before
//!   discriminators: a reader comes to the page before the right one at worst.
//! * PAGE-3: pages are never freed; one that was replaced says so and names its successor.
//!
//! Any thread reads, without a lock; a writer that finds the lock taken goes away.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of halves"
)]

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::hint::black_box;
use std::ops::Range;

use crate::key::{KeyComparator, KeyOrder, Target};
use crate::memtable::arena::arena::{SubChunk, View};
use crate::memtable::arena::layout::LINE_UNITS;
use crate::memtable::arena::node::Node;
use crate::prefetch::prefetch_lines;
use crate::sync::{AtomicU64, Ordering};

/// Words of a leaf, and of either half of an inner page.
#[cfg(not(loom))]
pub(super) const WORDS: usize = 64;
#[cfg(loom)]
pub(super) const WORDS: usize = 8;
/// Words before the first slot.
pub(super) const HEAD: usize = 4;
/// Slots of a page.
pub(super) const SLOTS: usize = WORDS - HEAD;
/// Words of a block: a search finds the block first.
const BLOCK: usize = if WORDS < 16 { WORDS } else { 16 };
/// What a free slot holds.
pub(super) const FREE: u64 = u64::MAX;

const MEASURE: usize = 0;
const NEIGHBOURS: usize = 1;
const FIRST_BYTES: usize = 2;
const LOCK: usize = 3;

const REPLACED: u64 = 4;

const LOCKED: u64 = 1 << 7;
const COUNT: u64 = LOCKED - 1;

/// What a page names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nodes of the list.
    Leaf,
    /// Pages of the level below.
    Inner,
}

impl Kind {
    /// Of the pages of a level; 0: leaves.
    pub(super) fn at(level: u32) -> Kind {
        if level == 0 { Kind::Leaf } else { Kind::Inner }
    }

    /// The least and the greatest word of a slot with this discriminator.
    #[inline(always)]
    fn words_with(self, discriminator: u64) -> (u64, u64) {
        match self {
            Kind::Leaf => (discriminator & !0xffff_ffff, discriminator | 0xffff_fffe),
            Kind::Inner => (discriminator, discriminator),
        }
    }

    /// How many units a page takes.
    pub(super) fn units(self) -> u32 {
        match self {
            Kind::Leaf => WORDS as u32,
            Kind::Inner => 2 * WORDS as u32,
        }
    }
}

/// A page, which may hold anything.
#[derive(Clone, Copy)]
pub(super) struct Page<'a> {
    pub(super) at: u32,
    words: Half<'a>,
}

/// The words of half a page.
#[cfg(not(loom))]
type Half<'a> = &'a [AtomicU64; WORDS];
#[cfg(loom)]
type Half<'a> = [&'a AtomicU64; WORDS];

/// What a slot says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// In a leaf its upper half counts.
    pub(super) discriminator: u64,
    /// The node that a leaf names, or the first node of what an inner page names.
    pub(super) node: u32,
    /// The page that an inner page names; 0 in a leaf.
    pub(super) child: u32,
}

/// The words of half a page at `at`, whatever they are.
#[cfg(not(loom))]
#[inline(always)]
fn words_at<'a>(view: &View<'a>, at: u32) -> Option<Half<'a>> {
    view.words(at)
}

/// Loom's twin.
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

/// Which of the two fences of a page begin with the bytes that it leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares(u64);

impl Shares {
    pub(super) const NONE: Shares = Shares(0);
    pub(super) const LOW: Shares = Shares(1);
    pub(super) const HIGH: Shares = Shares(2);
    pub(super) const BOTH: Shares = Shares(3);

    /// The fences of either.
    pub(super) fn and(self, other: Shares) -> Shares {
        Shares(self.0 | other.0)
    }

    /// The fences of both.
    pub(super) fn only(self, other: Shares) -> Shares {
        Shares(self.0 & other.0)
    }
}

impl<'a> Page<'a> {
    /// The words at `at`, whatever they are. No page stands at 0.
    #[inline(always)]
    pub(super) fn open(view: &View<'a>, at: u32) -> Option<Page<'a>> {
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
        // ORDERING: Relaxed: advice; what is followed is loaded by `node`, `child`, `next` or
        // `prev`.
        self.words[word].load(Ordering::Relaxed)
    }

    /// How the page makes discriminators.
    #[inline(always)]
    pub(super) fn measure(&self) -> Measure {
        let word = self.load(MEASURE);
        Measure {
            reference: (word >> 32) as u32,
            skip: skipped(word),
            start: self.load(FIRST_BYTES),
            shares: Shares(word).only(Shares::BOTH),
        }
    }

    /// Whether the next page has replaced this one.
    #[inline(always)]
    pub(super) fn is_replaced(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `set_replaced`: the successor is the next
        // page.
        self.words[MEASURE].load(Ordering::Acquire) & REPLACED != 0
    }

    /// The next page of this level; 0: none.
    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `set_neighbours`: the page's words are
        // visible.
        (self.words[NEIGHBOURS].load(Ordering::Acquire) >> 32) as u32
    }

    /// The page before it on this level; 0: none.
    #[inline(always)]
    pub(super) fn prev(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `set_neighbours`: the page's words are
        // visible.
        self.words[NEIGHBOURS].load(Ordering::Acquire) as u32
    }

    /// The first node of its range; 0 for the first page of a level, whose range begins before
    /// everything.
    #[inline(always)]
    pub(super) fn low(&self) -> u32 {
        (self.load(LOCK) >> 32) as u32
    }

    /// Slots whose word is smaller than `bound`.
    #[inline(always)]
    pub(super) fn rank(&self, bound: u64) -> usize {
        // The block, the quarter of it, the word in that: the first word of each but the first one
        // tells which.
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

    /// 1, if a word is below `bound`, else 0.
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

    /// The first slot that is not before a key, and not the first one of all, where discriminators
    /// alone tell: a page that was not replaced has this slot, and at most `ties` slots after it
    /// tie with the key. `None`: anything else.
    #[inline(always)]
    fn slot_at_once(
        &self,
        comparator: &KeyComparator,
        target: &Target<'_>,
        (kind, ties): (Kind, usize),
    ) -> Option<usize> {
        let measure = self.load(MEASURE);
        let skip = skipped(measure);
        if measure & (REPLACED | Shares::BOTH.0) != Shares::BOTH.0 {
            let differs = || begins(target.image ^ self.load(FIRST_BYTES), skip) != 0;
            if measure & REPLACED != 0 || skip > 0 && (skip as usize > WORD || differs()) {
                return None;
            }
        }
        let (first, last) = kind.words_with(kept(comparator, target.key, skip));
        let slot = self.rank(first);
        let word = self.word(slot);
        if slot == 0 || word == FREE && self.next() != 0 {
            return None;
        }
        let is_tied = if ties == 0 {
            word <= last
        } else {
            self.word(slot + ties) <= last
        };
        if is_tied { None } else { Some(slot) }
    }

    /// Whether a discriminator belongs right before this slot of a leaf, and no slot beside it has
    /// an equal one.
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

    /// Child and fence of a slot of an inner page.
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

    /// The lock word while nobody holds the lock, and how many slots it counts. A look that ends
    /// over another word has seen a page that was being written.
    pub(super) fn at_rest(&self) -> Option<(u64, usize)> {
        // ORDERING: Acquire pairs with the Release in `Locked::drop`: the slots that it counts are
        // visible.
        let word = self.words[LOCK].load(Ordering::Acquire);
        (word & LOCKED == 0).then_some((word, (word & COUNT) as usize))
    }

    /// Whether a page of this kind stands here, by its tag (PAGE-1).
    #[inline(always)]
    pub(super) fn is(&self, view: &View<'a>, kind: Kind) -> bool {
        self.load(LOCK) >> 8 & 0xff_ffff == tag(view, self.at, kind)
    }

    /// Sets the previous page, if a page stands here (PAGE-1).
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

    /// Takes the lock of a page of this kind. `None`: somebody has it, or no such page stands here
    /// (PAGE-1).
    #[inline(always)]
    pub(super) fn lock(self, view: &View<'a>, kind: Kind) -> Option<Locked<'a>> {
        let word = self.load(LOCK);
        if word & LOCKED != 0 || !self.is(view, kind) {
            return None;
        }
        // ORDERING: Acquire pairs with the Release in `Locked::drop`: what its owner before wrote
        // is visible. Relaxed on failure: the writer goes away.
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
    /// Takes units for a page and prepares it: empty, locked, known to nobody. `None`: the arena is
    /// full.
    pub(super) fn create(
        view: &View<'a>,
        slab: &mut SubChunk,
        kind: Kind,
        low: u32,
        measure: &Measure,
    ) -> Option<Locked<'a>> {
        let at = take(view, slab, u64::from(kind.units()))?;
        let page = Page::open(view, at)?;
        for slot in page.words.iter().skip(HEAD) {
            // ORDERING: Relaxed: the page becomes known by a Release store.
            slot.store(FREE, Ordering::Relaxed);
        }
        let word = u64::from(low) << 32 | tag(view, at, kind) << 8;
        // ORDERING: Relaxed: the page becomes known by a Release store.
        page.words[LOCK].store(word | LOCKED, Ordering::Relaxed);
        let locked = Locked {
            page,
            kind,
            count: 0,
            word,
        };
        let word =
            u64::from(measure.reference) << 32 | u64::from(measure.skip) << 8 | measure.shares.0;
        // ORDERING: Relaxed: the page becomes known by a Release store.
        page.words[MEASURE].store(word, Ordering::Relaxed);
        // ORDERING: Relaxed: the page becomes known by a Release store.
        page.words[FIRST_BYTES].store(measure.start, Ordering::Relaxed);
        Some(locked)
    }

    /// Stores which fences begin with the page's bytes.
    pub(super) fn set_shares(&mut self, shares: Shares) {
        let word = self.page.load(MEASURE) & !Shares::BOTH.0;
        // ORDERING: Relaxed: advice.
        self.page.words[MEASURE].store(word | shares.0, Ordering::Relaxed);
    }

    /// A slot with all that it holds.
    pub(super) fn slot(&self, view: &View<'a>, slot: usize) -> Option<Slot> {
        self.page.slot(view, self.kind, slot)
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

    /// Marks this page as replaced by the next one (PAGE-3).
    pub(super) fn set_replaced(&mut self, by: u32) {
        self.set_next(by);
        let word = self.page.load(MEASURE);
        // ORDERING: Release pairs with the Acquire in `is_replaced`: the successor is named before
        // the flag.
        self.page.words[MEASURE].store(word | REPLACED, Ordering::Release);
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

    /// Puts a slot at its place (PAGE-2). The page is not full.
    #[inline(always)]
    pub(super) fn insert(&mut self, view: &View<'a>, place: usize, slot: Slot) -> Option<()> {
        if self.kind == Kind::Inner {
            let children = self.page.children(view)?;
            shift(children.get(HEAD + place..=HEAD + self.count)?);
        }
        shift(self.page.words.get(HEAD + place..=HEAD + self.count)?);
        self.store(view, place, slot);
        self.count += 1;
        Some(())
    }

    /// Copies the slots of another page of this kind from `first` on into this one, which is empty
    /// and known to nobody.
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

    /// Forgets the slots from `first` on.
    pub(super) fn truncate(&mut self, first: usize) {
        for place in (first..self.count).rev() {
            // ORDERING: Release pairs with the Acquire in `node` and `child`, as every store of a
            // slot does.
            self.page.words[HEAD + place].store(FREE, Ordering::Release);
        }
        self.count = self.count.min(first);
    }
}

/// Copies words into a page that nobody knows.
fn copy<W: Borrow<AtomicU64>>(from: &[W], to: &[W]) {
    for (from, to) in from.iter().zip(to) {
        // ORDERING: Relaxed: the owner of the lock reads what owners wrote; the page becomes known
        // by a Release store.
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
        // ORDERING: Relaxed: the owner of the lock reads what owners wrote. Release pairs with the
        // Acquire in `node` and `child`.
        to.borrow()
            .store(from.borrow().load(Ordering::Relaxed), Ordering::Release);
    };
    let pairs = later.iter().zip(words);
    pairs.rev().for_each(copy)
}

/// Takes so many units that begin a cache line.
fn take(view: &View<'_>, slab: &mut SubChunk, units: u64) -> Option<u32> {
    // The second attempt knows where its units come from.
    for _ in 0..2 {
        let pad = slab.left().start.wrapping_neg() % LINE_UNITS;
        let reservation = view.arena().carve(slab, units + u64::from(pad)).ok()?;
        let at = reservation.start().next_multiple_of(LINE_UNITS);
        if u64::from(at - reservation.start()) <= u64::from(pad) {
            return Some(at);
        }
    }
    None
}

// Discriminators: what a page keeps of a key.
//
// ```text
//   image of a key   s h a r e d / b e g i n | n i n g 0 4 1 ..
//                    <------- skip --------->|<- 64 bits ->      big-endian
// ```
// A key's image (`Comparator::image`) is the key itself in the order of bytes, with zeros after its
// end. To begin with some bytes means that the image does.
// * MEASURE-1: all keys that a page names begin with the same `skip` bytes: those of its reference
//   node.
// * MEASURE-2: a discriminator preserves the order: of two keys in the range of a page, the smaller
//   one never has the larger discriminator. A key that does not begin with the page's bytes has the
//   smallest one or the largest one.
// * MEASURE-3: where keys share so much that discriminators would tie, a page is coded: a slot says
//   how many bytes its key shares with the one before, and its next byte. One pass leads to the
//   slot that shares most with a key, if any shares what the codes tell, and one look at that
//   slot's key to the place (D. Ferguson's bit tree, by bytes).
//
// Pure functions over checked memory; any thread. O(skip) where a page's fences do not prove that
// keys share its bytes, O(1) elsewhere.

/// Bytes of a page's word of reference.
const WORD: usize = 8;

/// How a page makes discriminators.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    /// A node whose key begins with the bytes that the page leaves out.
    pub(super) reference: u32,
    /// How many bytes that is.
    pub(super) skip: u32,
    /// The first 8 bytes of the reference's key.
    pub(super) start: u64,
    /// Which fences begin with the same bytes: between two that do, every key does.
    pub(super) shares: Shares,
}

/// What a coded page has for the number of bytes that it leaves out (MEASURE-3); any other number
/// is smaller.
pub(super) const CODED: u32 = 0xff_ffff;
/// A coded slot that shares this much is below no limit.
const UNLIMITED: u64 = (CODED as u64) << 40;

/// The largest discriminator: one more marks a free slot.
const LARGEST: u64 = u64::MAX - 1;

/// What a page that leaves out `skip` bytes keeps of a key that begins with them.
#[inline(always)]
pub(super) fn kept(comparator: &KeyComparator, key: &[u8], skip: u32) -> u64 {
    comparator.image(key, skip as usize).min(LARGEST)
}

/// How many bytes two keys share from their start, at most as many as the shorter one has.
pub(super) fn shared(comparator: &KeyComparator, left: &[u8], right: &[u8]) -> u32 {
    let most = left.len().min(right.len());
    let words = left.as_chunks::<WORD>().0.iter().zip(right.as_chunks().0);
    let same = match comparator.key_order() {
        KeyOrder::Bytes => WORD * words.take_while(|(left, right)| left == right).count(),
        KeyOrder::Images | KeyOrder::Custom => 0,
    };
    let differing = (same..most).step_by(WORD).find_map(|at| {
        let differ = comparator.image(left, at) ^ comparator.image(right, at);
        (differ != 0).then(|| at + differ.leading_zeros() as usize / 8)
    });
    differing
        .map_or(most, |at| at.min(most))
        .min(CODED as usize - 1) as u32
}

/// What a page keeps of a key (MEASURE-2), or of how it differs from the key of the slot before
/// (MEASURE-3).
pub(super) fn kept_after(comparator: &KeyComparator, before: &[u8], key: &[u8], skip: u32) -> u64 {
    if skip != CODED {
        return kept(comparator, key, skip);
    }
    let shared = shared(comparator, before, key);
    u64::from(shared) << 40 | u64::from(byte_of(key, shared)) << 32
}

/// A byte of a key, as if zeros came after its end.
fn byte_of(key: &[u8], at: u32) -> u8 {
    key.get(at as usize).copied().unwrap_or(0)
}

/// How many bytes of a coded slot's key are those of the key before.
pub(super) fn shared_of(word: u64) -> u32 {
    (word >> 40) as u32
}

impl Measure {
    /// The measure of a page that leaves nothing out.
    pub(super) const PLAIN: Measure = Measure {
        reference: 0,
        skip: 0,
        start: 0,
        shares: Shares::BOTH,
    };

    /// The discriminator of a key (MEASURE-2).
    #[inline(always)]
    pub(super) fn discriminator(
        &self,
        view: &View<'_>,
        comparator: &KeyComparator,
        key: &[u8],
    ) -> u64 {
        if self.shares != Shares::BOTH {
            match self.side(view, comparator, key) {
                Order::Less => return 0,
                Order::Greater => return LARGEST,
                Order::Equal => {}
            }
        }
        kept(comparator, key, self.skip)
    }

    /// Where a key stands relative to all keys that begin with the page's bytes; `Equal`: it is one
    /// of them.
    #[inline]
    pub(super) fn side(&self, view: &View<'_>, comparator: &KeyComparator, key: &[u8]) -> Order {
        if self.skip == 0 {
            return Order::Equal;
        }
        let order = begins(comparator.image(key, 0), self.skip).cmp(&begins(self.start, self.skip));
        if order.is_ne() || self.skip as usize <= WORD {
            return order;
        }
        self.side_by_reference(view, comparator, key)
    }

    #[inline(never)]
    fn side_by_reference(&self, view: &View<'_>, comparator: &KeyComparator, key: &[u8]) -> Order {
        // Without the reference nothing can be said: the key is measured as if it were one of them.
        let reference = view.try_open(self.reference).map(|node| node.key());
        let Some(reference) = reference.filter(|key| key.len() >= self.skip as usize) else {
            return Order::Equal;
        };
        let part = |key: &[u8], at: u32| begins(comparator.image(key, at as usize), self.skip - at);
        let parts = (WORD as u32..self.skip).step_by(WORD);
        parts
            .map(|at| part(key, at).cmp(&part(reference, at)))
            .find(|order| order.is_ne())
            .unwrap_or(Order::Equal)
    }
}

/// The first bytes of a word, at least one of them.
#[inline(always)]
fn begins(word: u64, bytes: u32) -> u64 {
    word >> (8 * (WORD as u32).saturating_sub(bytes))
}

// Finds in the directory where a search starts.
//
// ```text
//   root word -> inner page: last child whose fence is before the target -> .. -> leaf: last node before the target
// ```
// * LOOKUP-1: whatever the words say, a lookup ends: after the levels that the root word names, and
//   a few pages to the right on each.
// * LOOKUP-2: what comes out is a hint. Who follows it opens nodes by their header checks and
//   certifies the bracket.
//
// Any thread; no lock, no retry. O(log n) pages; keys are read only where discriminators tie.

/// Most pages that a lookup goes to the right on a level: splits that no parent names yet, pages
/// that were replaced.
pub(super) const MOVES_MAX: u32 = 8;
/// The fence of the first page of a level: before everything.
pub(super) const START: u32 = 0;
/// Lookups that are made together.
pub(crate) const GROUP: usize = 32;
/// Nodes whose discriminators tie that a search passes by hops rather than by reading their keys.
const TIES_HOPPED: usize = 2;
/// How lookups search pages of each kind.
const LEAF: (Kind, usize) = (Kind::Leaf, TIES_HOPPED);
const INNER: (Kind, usize) = (Kind::Inner, 0);
/// Cache lines of a leaf, and of either half of an inner page.
const LEAF_LINES: usize = 8;
/// Cache lines of a node up to the end of a long key.
const KEY_LINES: usize = 3;
/// Most levels of inner pages.
pub(super) const LEVELS_MAX: u32 = 6;

/// A place in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
#[derive(Clone, Copy)]
pub(crate) struct Pages<'s, 'a> {
    pub(crate) view: &'s View<'a>,
    pub(crate) comparator: &'a KeyComparator,
    /// The unit of the root word.
    pub(crate) root: u32,
}

/// The root word: page 32 | levels 8 | check 24. `None`: it is damaged.
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
    /// The root page and how many levels of inner pages there are; `None`: no page yet, or damage.
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

    /// Whether the node is before the target. The start of the list (0) is; one that does not open
    /// is not.
    pub(super) fn is_before(&self, node: u32, target: &Target<'_>) -> bool {
        node == START
            || self
                .view
                .try_open(node)
                .is_some_and(|node| node.order(self.comparator, target).is_lt())
    }

    /// The first slot of a page whose node is not before the target. If at most `ties`
    /// discriminators tie, it is the first of them: the caller hops over the others, and no key is
    /// read.
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

    /// The first slot of these whose node is not before the target, or the one after them.
    fn slot_by_keys(
        &self,
        page: &Page<'a>,
        target: &Target<'_>,
        kind: Kind,
        slots: Range<usize>,
    ) -> usize {
        // The first two are compared before a binary search of the rest: a new version of a key
        // stands before its newest one, and the first slot of a page may name what is before all of
        // it.
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

    /// [`Pages::slot`] of a coded page (MEASURE-3).
    fn slot_by_codes(&self, page: &Page<'a>, target: &Target<'_>, kind: Kind) -> usize {
        // Free slots are not below any limit: they are passed.
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
        // Of versions of one key the candidate is the last one.
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

    /// Asks for what is read once the key of a slot tells where to go on: here or beside it.
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

    /// The page of a level whose range holds the target. `None`: damage, or there is no such level.
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
        match page.slot_at_once(self.comparator, target, INNER) {
            Some(slot) => page.child(self.view, slot - 1).map(|(child, _)| child),
            None => child_by_keys((*self.view, self.comparator), page, *target),
        }
    }

    /// The page to go on with, if it is not this one: a replacement, or a split that no parent
    /// names yet.
    fn elsewhere(&self, page: &Page<'a>, slot: usize, target: &Target<'_>) -> Option<Page<'a>> {
        match page.word(slot) {
            _ if page.is_replaced() => Page::open(self.view, page.next()),
            FREE => self.right_of(page, target),
            _ => None,
        }
    }

    /// Asks for so many lines of a page.
    #[inline(always)]
    fn prefetch_page(&self, at: u32, lines: usize) {
        prefetch_lines(self.view.likely_address(at), lines);
    }

    /// Where a search for the target starts.
    #[inline(always)]
    pub(crate) fn lookup(&self, target: &Target<'_>) -> Option<Hint> {
        let page = self.page_at(0, target)?;
        Some(self.in_leaf(page, target))
    }

    /// Where searches for many targets start: level by level, so that memory is waited for once a
    /// level; `found` is called with each hint at once. A target without a key gets none.
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
            // A processor that errs misses the end.
            if level == black_box(LEVELS_MAX) {
                break;
            }
            for (page, target) in pages.iter_mut().zip(targets) {
                *page = page.and_then(|at| self.child_of(at, target));
                // Of an inner page, what is searched: of its children one is read.
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

    /// The hint of a lookup that has reached a leaf.
    #[inline(always)]
    fn in_leaf(&self, page: Page<'a>, target: &Target<'_>) -> Hint {
        match page.slot_at_once(self.comparator, target, LEAF) {
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

    /// The node that is named at a place; 0: none.
    #[inline(always)]
    pub(crate) fn named(&self, LeafSlot { leaf, slot }: LeafSlot) -> u32 {
        Page::open(self.view, leaf).map_or(0, |page| page.node(slot as usize))
    }

    /// The place so many slots further on, in this leaf or a neighbour. `None`: there is none.
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

    /// Asks for the lines of a leaf.
    pub(crate) fn prefetch_leaf(&self, leaf: u32) {
        self.prefetch_page(leaf, LEAF_LINES);
    }

    /// The leaves beside a leaf: before and after it; 0: none.
    pub(crate) fn beside(&self, leaf: u32) -> (u32, u32) {
        Page::open(self.view, leaf).map_or((0, 0), |page| (page.prev(), page.next()))
    }
}

/// The page whose range holds the target, from a page before it on, and [`Pages::slot`] there:
/// where keys or neighbours have to be asked. Takes values, so that its callers keep them in
/// registers.
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

/// `Pages::child_of`, where keys or neighbours have to be asked.
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

/// `Pages::in_leaf`, where keys or neighbours have to be asked.
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
