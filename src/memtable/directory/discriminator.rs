//! Discriminators: the part of a key that a page stores.
//!
//! ```text
//!   image of a key   s h a r e d / b e g i n | n i n g 0 4 1 ..
//!                    <------- skip --------->|<- 64 bits ->      big-endian
//! ```
//! A key's image (`Comparator::image`) is the key itself under the order of bytes, with zeros after
//! its end. The images of all keys of a page begin with the same `skip` bytes. The page leaves
//! these out; the key of its reference node has them.
//! * MEASURE-1: discriminators preserve the order. Of two keys in the range of a page, the smaller
//!   never has the larger discriminator. A key that does not begin with the page's bytes has the
//!   smallest discriminator or the largest.
//!
//! Where keys share so much that most discriminators would be equal, a page is coded (D. Ferguson's
//! bit tree, by bytes). A coded slot stores how many bytes its key shares with the key of the slot
//! before, and its next byte. One pass over the slots finds the one that can share most with a key;
//! one comparison with the key of that slot finds the place.
//!
//! Pure functions over checked memory; any thread. O(skip) where a page's fences do not prove that
//! keys share its bytes, O(1) elsewhere.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of halves"
)]

use std::cmp::Ordering as Order;

use crate::comparator::{KeyComparator, KeyOrder};
use crate::memtable::arena::arena::View;

/// Which of a page's two fences begin with the bytes that it leaves out. The fences are the first
/// nodes of the page and of the next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares(pub(super) u64);

impl Shares {
    pub(super) const NONE: Shares = Shares(0);
    pub(super) const LOW: Shares = Shares(1);
    pub(super) const HIGH: Shares = Shares(2);
    pub(super) const BOTH: Shares = Shares(3);

    /// The fences of either set.
    pub(super) fn and(self, other: Shares) -> Shares {
        Shares(self.0 | other.0)
    }

    /// The fences of both sets.
    pub(super) fn only(self, other: Shares) -> Shares {
        Shares(self.0 & other.0)
    }
}

/// Bytes of an image's word.
pub(crate) const WORD: usize = 8;

/// The rule by which a page makes discriminators.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    /// A node whose key begins with the bytes that the page leaves out.
    pub(super) reference: u32,
    /// How many bytes the page leaves out.
    pub(crate) skip: u32,
    /// The first 8 bytes of the reference's key.
    pub(super) start: u64,
    /// Which fences begin with the same bytes. Between two that do, every key does.
    pub(super) shares: Shares,
}

/// The `skip` of a coded page; any other `skip` is smaller.
pub(crate) const CODED: u32 = 0xff_ffff;
/// The limit, in a pass over coded slots, that every coded slot is below.
pub(crate) const UNLIMITED: u64 = (CODED as u64) << 40;

/// The largest discriminator; the word above it marks a free slot.
const LARGEST: u64 = u64::MAX - 1;

/// The discriminator, in a page that leaves out `skip` bytes, of a key that begins with them.
#[inline(always)]
pub(super) fn kept(comparator: &KeyComparator, key: &[u8], skip: u32) -> u64 {
    comparator.image(key, skip as usize).min(LARGEST)
}

/// How many bytes two keys share from their start; at most the length of the shorter key.
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

/// The discriminator of a key; in a coded page, the code of its difference from the key before.
pub(super) fn kept_after(comparator: &KeyComparator, before: &[u8], key: &[u8], skip: u32) -> u64 {
    if skip != CODED {
        return kept(comparator, key, skip);
    }
    let shared = shared(comparator, before, key);
    u64::from(shared) << 40 | u64::from(byte_of(key, shared)) << 32
}

/// A byte of a key; 0 after its end.
pub(crate) fn byte_of(key: &[u8], at: u32) -> u8 {
    key.get(at as usize).copied().unwrap_or(0)
}

/// How many bytes the key of a coded slot shares with the key before.
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

    /// The discriminator of a key (MEASURE-1).
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

    /// Whether a key is before or after all keys that begin with the page's bytes; `Equal`: it is
    /// one of them.
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
        // A damaged reference: the key counts as one that begins with the bytes, which costs steps.
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

/// The first `bytes` bytes of a word.
#[inline(always)]
pub(crate) fn begins(word: u64, bytes: u32) -> u64 {
    word >> (8 * (WORD as u32).saturating_sub(bytes))
}
