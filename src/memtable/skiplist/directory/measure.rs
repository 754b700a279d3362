//! Discriminators: what a page keeps of a key.
//!
//! ```text
//!   key            s h a r e d / b e g i n | n i n g 0 4 1 ..
//!                  <------- skip --------->|<- 64 bits ->      big-endian, zeros after the key's end
//! ```
//! * MEASURE-1: all keys that a page names begin with the same `skip` bytes: those of its reference node.
//! * MEASURE-2: a discriminator preserves the order: of two keys in the range of a page, the smaller one never has the
//!   larger discriminator. A key that does not begin with the page's bytes has the smallest one or the largest one.
//!
//! Pure functions over checked memory; any thread. O(skip) where a page's fences do not prove that keys share its bytes,
//! O(1) elsewhere.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "keys are shorter than 2^24 bytes")]

use std::cmp::Ordering as Order;

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

/// Eight bytes of a key from `skip` on, as a big-endian number; zeros after its end.
#[inline(always)]
pub(super) fn word_at(key: &[u8], skip: usize) -> u64 {
    let Some(rest) = key.get(skip..) else { return 0 };
    if let Some(word) = rest.first_chunk::<WORD>() {
        return u64::from_be_bytes(*word);
    }
    // The last bytes of the key, moved up.
    if let Some(word) = key.last_chunk::<WORD>() {
        return u64::from_be_bytes(*word).checked_shl(8 * (WORD - rest.len()) as u32).unwrap_or(0);
    }
    let mut word = [0; WORD];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(word)
}

/// The largest discriminator: one more marks a free slot.
const LARGEST: u64 = u64::MAX - 1;

/// What a page that leaves out `skip` bytes keeps of a key that begins with them.
#[inline(always)]
pub(super) fn kept(key: &[u8], skip: u32) -> u64 {
    word_at(key, skip as usize).min(LARGEST)
}

/// How many bytes two keys share from their start.
pub(super) fn shared(left: &[u8], right: &[u8]) -> u32 {
    let shared = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    // Keys are shorter than 2^24 bytes.
    shared as u32
}

impl Measure {
    /// The measure of a page that leaves nothing out.
    pub(super) const PLAIN: Measure = Measure { reference: 0, skip: 0, start: 0, fences: Fences::Share };

    /// The discriminator of a key (MEASURE-2).
    #[inline(always)]
    pub(super) fn discriminator(&self, view: &View<'_>, key: &[u8]) -> u64 {
        if self.fences == Fences::Differ {
            match self.side(view, key) {
                Order::Less => return 0,
                Order::Greater => return LARGEST,
                Order::Equal => {}
            }
        }
        kept(key, self.skip)
    }

    /// Where a key stands relative to all keys that begin with the page's bytes; `Equal`: it is one of them.
    #[inline]
    pub(super) fn side(&self, view: &View<'_>, key: &[u8]) -> Order {
        if self.skip == 0 {
            return Order::Equal;
        }
        let first = (self.skip as usize).min(WORD);
        let shift = 8 * (WORD - first) as u32;
        let order = (word_at(key, 0) >> shift).cmp(&(self.start >> shift));
        if order.is_ne() || self.skip as usize <= WORD && key.len() >= self.skip as usize {
            return order;
        }
        self.side_by_reference(view, key)
    }

    #[inline(never)]
    fn side_by_reference(&self, view: &View<'_>, key: &[u8]) -> Order {
        // Without the reference nothing can be said: the key is measured as if it were one of them.
        let Some(node) = view.try_open(self.reference) else { return Order::Equal };
        let Some(begin) = node.key().get(..self.skip as usize) else { return Order::Equal };
        let len = key.len().min(begin.len());
        key[..len].cmp(&begin[..len]).then(if len < begin.len() { Order::Less } else { Order::Equal })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_are_bytes_with_zeros_after_the_end() {
        let key: Vec<u8> = (1..=20).collect();
        for len in 0..=key.len() {
            for skip in 0..=key.len() + 1 {
                let mut expected = [0; WORD];
                for (place, byte) in key[..len].iter().skip(skip).take(WORD).enumerate() {
                    expected[place] = *byte;
                }
                assert_eq!(
                    word_at(&key[..len], skip),
                    u64::from_be_bytes(expected),
                    "{len} bytes from {skip}"
                );
            }
        }
    }
}
