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
//! * MEASURE-2: where most of these discriminators would be equal, a page keeps chosen bytes: those
//!   in which a key first differs from the key before it, and the bytes after the last of them.
//!   These preserve the order of the page's own keys. For any other key they are a guess, and a
//!   search that a guess leads astray asks again, by keys.
//!
//! ```text
//!   tenant-0003:user:0000001234          skip 10; chosen: 0, 13, 14, 15 after it
//!   tenant-0003:user:0000008055          "3123", "3805", "7064"
//!   tenant-0007:user:0000000642
//! ```
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

/// The kind of a page, by what its slots name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nodes of the list.
    Leaf,
    /// Pages of the level below.
    Inner,
}

impl Kind {
    /// The kind of the pages of a level; 0: leaves.
    pub(super) fn at(level: u32) -> Kind {
        if level == 0 { Kind::Leaf } else { Kind::Inner }
    }

    /// The least and the greatest word of a slot with this discriminator.
    #[inline(always)]
    pub(crate) fn words_with(self, discriminator: u64) -> (u64, u64) {
        match self {
            Kind::Leaf => (discriminator & !0xffff_ffff, discriminator | 0xffff_fffe),
            Kind::Inner => (discriminator, discriminator),
        }
    }

    /// How many bytes of a key a slot keeps.
    #[inline(always)]
    pub(super) fn bytes(self) -> usize {
        match self {
            Kind::Leaf => WORD / 2,
            Kind::Inner => WORD,
        }
    }
}

/// The rule by which a page makes discriminators.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    /// A node whose key begins with the bytes that the page leaves out.
    pub(super) reference: u32,
    /// How many bytes the page leaves out.
    pub(super) skip: u32,
    /// The first 8 bytes of the reference's key.
    pub(super) start: u64,
    /// Which fences begin with the same bytes. Between two that do, every key does.
    pub(super) shares: Shares,
    /// The chosen bytes (MEASURE-2): where each is after the bytes that are left out, a byte each,
    /// ascending, in big-endian order; a leaf keeps the first four. 0: none are chosen.
    pub(super) chosen: u64,
    /// How often the page was measured since its last split. 0: the next name measures it.
    pub(super) turns: u64,
}

/// The largest `skip`.
const SKIP_MAX: usize = 0xff_ffff;

/// The largest discriminator; the word above it marks a free slot.
const LARGEST: u64 = u64::MAX - 1;

/// The discriminator, in a page that leaves out `skip` bytes, of a key that begins with them.
#[inline(always)]
pub(super) fn kept(comparator: &KeyComparator, key: &[u8], skip: u32) -> u64 {
    comparator.image(key, skip as usize).min(LARGEST)
}

/// The byte at which the images of two keys first differ, which share the first `from` bytes. `None`:
/// they are equal.
pub(super) fn difference(
    comparator: &KeyComparator,
    left: &[u8],
    right: &[u8],
    from: usize,
) -> Option<usize> {
    let same = match comparator.key_order() {
        KeyOrder::Bytes => {
            let [left, right] = [left, right].map(|key| key.get(from..).unwrap_or(&[]));
            let parts = left.as_chunks::<{ 2 * WORD }>().0.iter();
            let mut same = 0;
            for (left, right) in parts.zip(right.as_chunks().0) {
                if left != right {
                    let differ = u128::from_be_bytes(*left) ^ u128::from_be_bytes(*right);
                    return Some(from + same + differ.leading_zeros() as usize / 8);
                }
                same += 2 * WORD;
            }
            same
        }
        KeyOrder::Images | KeyOrder::Custom => 0,
    };
    let end = left.len().max(right.len());
    (from + same..end).step_by(WORD).find_map(|at| {
        let differ = comparator.image(left, at) ^ comparator.image(right, at);
        (differ != 0).then(|| at + differ.leading_zeros() as usize / 8)
    })
}

/// How many bytes two keys share from their start; at most the length of the shorter key.
pub(super) fn shared(comparator: &KeyComparator, left: &[u8], right: &[u8]) -> u32 {
    let most = left.len().min(right.len());
    let differing = difference(comparator, left, right, 0);
    differing.map_or(most, |at| at.min(most)).min(SKIP_MAX) as u32
}

/// The first `bytes` chosen bytes of a key (MEASURE-2), zeros after its end.
#[inline(always)]
pub(super) fn gathered(key: &[u8], skip: u32, chosen: u64, bytes: usize) -> u64 {
    let rest = key.get(skip as usize..).unwrap_or(&[]);
    let mut word = 0;
    for at in &chosen.to_be_bytes()[..bytes] {
        let byte = rest.get(usize::from(*at)).copied().unwrap_or(0);
        word = word << 8 | u64::from(byte);
    }
    (word << (8 * (WORD - bytes))).min(LARGEST)
}

/// How many places, after the bytes that a page leaves out, may be chosen.
pub(super) const PLACES: usize = 256 - WORD;

/// A set of these places.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places([u64; 4]);

impl Places {
    pub(super) fn insert(&mut self, place: u8) {
        self.0[usize::from(place >> 6)] |= 1 << (place & 63);
    }

    /// Takes the least place out.
    fn take_least(&mut self) -> Option<u8> {
        let at = self.0.iter().position(|word| *word != 0)?;
        let bit = self.0[at].trailing_zeros() as u8;
        self.0[at] &= self.0[at] - 1;
        Some(64 * at as u8 + bit)
    }
}

/// Chooses `most` bytes for keys of which neighbours first differ in these places (MEASURE-2). Where
/// more are needed, the last ones are left out, and keys stay equal.
pub(super) fn choose(mut places: Places, most: usize) -> u64 {
    let (mut chosen, mut last) = (0, None::<u8>);
    for count in 0..WORD {
        let least = if count < most {
            places.take_least()
        } else {
            None
        };
        // Keys that are looked up differ from those of the page in the bytes after the last one.
        let Some(place) = least.or(last.map(|last| last.saturating_add(1))) else {
            return 0;
        };
        (chosen, last) = (chosen << 8 | u64::from(place), Some(place));
    }
    chosen
}

impl Measure {
    /// The measure of a page that leaves nothing out.
    pub(super) const PLAIN: Measure = Measure {
        reference: 0,
        skip: 0,
        start: 0,
        shares: Shares::BOTH,
        chosen: 0,
        turns: 1,
    };

    /// The same rule, after so many measurements.
    pub(super) fn at_turn(self, turns: u64) -> Measure {
        Measure { turns, ..self }
    }

    /// The discriminator of a key that begins with the page's bytes, in a page of this kind.
    #[inline(always)]
    pub(super) fn kept(&self, comparator: &KeyComparator, key: &[u8], kind: Kind) -> u64 {
        match self.chosen {
            0 => kept(comparator, key, self.skip),
            chosen => gathered(key, self.skip, chosen, kind.bytes()),
        }
    }

    /// The discriminator of a key (MEASURE-1, MEASURE-2).
    #[inline(always)]
    pub(super) fn discriminator(
        &self,
        view: &View<'_>,
        comparator: &KeyComparator,
        key: &[u8],
        kind: Kind,
    ) -> u64 {
        if self.shares != Shares::BOTH {
            match self.side(view, comparator, key) {
                Order::Less => return 0,
                Order::Greater => return LARGEST,
                Order::Equal => {}
            }
        }
        self.kept(comparator, key, kind)
    }

    /// Whether a key is before or after all keys that begin with the page's bytes; `Equal`: it is
    /// one of them.
    #[inline(always)]
    pub(super) fn side(&self, view: &View<'_>, comparator: &KeyComparator, key: &[u8]) -> Order {
        if self.skip == 0 {
            return Order::Equal;
        }
        if self.chosen != 0 {
            // A leaf stores where its chosen bytes are in place of the first bytes.
            return self.side_by_reference(view, comparator, key, 0);
        }
        let order = begins(comparator.image(key, 0), self.skip).cmp(&begins(self.start, self.skip));
        if order.is_ne() || self.skip as usize <= WORD {
            return order;
        }
        self.side_by_reference(view, comparator, key, WORD as u32)
    }

    /// [`side`](Self::side) by the bytes from `from` on.
    #[inline(never)]
    fn side_by_reference(
        &self,
        view: &View<'_>,
        comparator: &KeyComparator,
        key: &[u8],
        from: u32,
    ) -> Order {
        // A damaged reference: the key counts as one that begins with the bytes, which costs steps.
        let reference = view.try_open(self.reference).map(|node| node.key());
        let Some(reference) = reference.filter(|key| key.len() >= self.skip as usize) else {
            return Order::Equal;
        };
        let [bytes, wanted] =
            [key, reference].map(|key| key.get(from as usize..self.skip as usize));
        if let (KeyOrder::Bytes, Some(bytes), Some(wanted)) =
            (comparator.key_order(), bytes, wanted)
        {
            return comparator.compare(bytes, wanted);
        }
        let part = |key: &[u8], at: u32| begins(comparator.image(key, at as usize), self.skip - at);
        let parts = (from..self.skip).step_by(WORD);
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
