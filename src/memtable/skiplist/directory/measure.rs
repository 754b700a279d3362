//! Discriminators: what a page keeps of a key.
//!
//! ```text
//!   image of a key   s h a r e d / b e g i n | n i n g 0 4 1 ..
//!                    <------- skip --------->|<- 64 bits ->      big-endian
//! ```
//! A key's image (`Comparator::image`) is the key itself in the order of bytes, with zeros after its end. To begin with some
//! bytes means that the image does.
//! * MEASURE-1: all keys that a page names begin with the same `skip` bytes: those of its reference node.
//! * MEASURE-2: a discriminator preserves the order: of two keys in the range of a page, the smaller one never has the
//!   larger discriminator. A key that does not begin with the page's bytes has the smallest one or the largest one.
//!
//! Pure functions over checked memory; any thread. O(skip) where a page's fences do not prove that keys share its bytes,
//! O(1) elsewhere.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "keys are shorter than 2^24 bytes")]

use std::cmp::Ordering as Order;

use crate::comparator::KeyComparator;
use crate::memtable::skiplist::arena::View;

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
    /// Whether both fences begin with the same bytes.
    pub(super) fences: Fences,
}

/// What the fences of a page say about the bytes that it leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fences {
    /// Every key between them begins with these bytes.
    Share,
    /// A key between them may begin otherwise.
    Differ,
}

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
    let differing = (0..most).step_by(WORD).find_map(|at| {
        let differ = comparator.image(left, at) ^ comparator.image(right, at);
        (differ != 0).then(|| at + differ.leading_zeros() as usize / 8)
    });
    // Keys are shorter than 2^24 bytes.
    differing.map_or(most, |at| at.min(most)) as u32
}

impl Measure {
    /// The measure of a page that leaves nothing out.
    pub(super) const PLAIN: Measure = Measure { reference: 0, skip: 0, start: 0, fences: Fences::Share };

    /// The discriminator of a key (MEASURE-2).
    #[inline(always)]
    pub(super) fn discriminator(&self, view: &View<'_>, comparator: &KeyComparator, key: &[u8]) -> u64 {
        if self.fences == Fences::Differ {
            match self.side(view, comparator, key) {
                Order::Less => return 0,
                Order::Greater => return LARGEST,
                Order::Equal => {}
            }
        }
        kept(comparator, key, self.skip)
    }

    /// Where a key stands relative to all keys that begin with the page's bytes; `Equal`: it is one of them.
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
