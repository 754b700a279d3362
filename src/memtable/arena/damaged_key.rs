//! Proves which key a damaged entry had, where that is possible. Runs only when the answer would
//! otherwise be `Corruption`.
//!
//! ```text
//!   before -> d1 -> d2 -> after      a gap: damaged entries between intact ones; link tags match
//!             x     y                the proved keys: a read of any other key passes the gap
//! ```
//! A proof is 8 bytes of digest that match:
//! * the key digest, over the fields and the key as they are, or with one bit of them put back; or
//! * the value digest, which covers the key too, over the bytes as they are.
//!
//! Nothing else proves a key. These remain `Corruption`: several flipped bits in a key or header,
//! any damage with shorter digests, and damage of a key that is too long to try all its bits. If n
//! bits are tried, random damage is taken for another key with probability n * 2^-64. Any thread.

#![forbid(unsafe_code)]

use crate::integrity::flipped_bit::{DIAGNOSIS_LEN_MAX, single_bit};
use crate::key::SequenceNumber;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::healing::PROOF_BYTES;
use crate::memtable::arena::node::Node;

impl View<'_> {
    /// Whether the damaged entry at `offset` is proved to have a key and a sequence number for
    /// which `holds` returns true.
    #[cold]
    pub(crate) fn proves(
        &self,
        offset: u32,
        holds: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> bool {
        if self.width.bytes < PROOF_BYTES {
            return false;
        }
        // The check of a damaged header matches by chance once in 65536 times.
        let opened = self.try_open(offset);
        opened.is_some_and(|node| self.proves_key(&node, &holds))
            || self.proves_header(offset, holds)
    }

    /// Tries the proofs of an entry whose header check matches: digests, key or value are damaged.
    fn proves_key(&self, node: &Node<'_>, holds: impl Fn(&[u8], SequenceNumber) -> bool) -> bool {
        let key = node.key();
        let holds = |key: &[u8]| holds(key, node.sequence());
        if node.has_key(key, self) || node.value_proves_key(self) {
            return holds(key);
        }
        single_bit(key, |key| node.has_key(key, self) && holds(key)).is_some()
    }

    /// Tries the proofs of an entry whose header is damaged: the check, or one bit of the fields
    /// that it covers.
    fn proves_header(&self, offset: u32, holds: impl Fn(&[u8], SequenceNumber) -> bool) -> bool {
        let Some((fields, _)) = self.raw_header(offset) else {
            return false;
        };
        let explains = |fields: &[u8]| {
            let Some(node) = fields
                .try_into()
                .ok()
                .and_then(|fields| self.open_as(offset, fields))
            else {
                return false;
            };
            let key = node.key();
            key.len() <= DIAGNOSIS_LEN_MAX && node.has_key(key, self) && holds(key, node.sequence())
        };
        explains(&fields) || single_bit(&fields, explains).is_some()
    }
}

#[cfg(all(test, not(loom)))]
#[allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics; its entries are small"
)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::integrity::digest::Width;
    use crate::integrity::hash::splitmix;
    use crate::integrity::tag::Secret;
    use crate::kind::Kind;
    use crate::memtable::arena::arena::{Arena, SubChunk};
    use crate::memtable::arena::encode::{Fields, Shape};
    use crate::memtable::arena::layout::{BACK_AT, HEADER, REVISION_AT, UNIT};
    use crate::memtable::arena::links::EndKeys;
    use crate::memtable::arena::node_words::{BackWord, Lengths, entry_end, node_units};
    use crate::sync::Ordering;

    const LOW: Shape = Shape {
        pad: 0,
        height: 1,
        revision: 0,
        back: 0,
        next: (0, EndKeys::MAY_MATCH),
        end: 0,
    };

    fn fields() -> Fields<'static> {
        Fields::new(9, Kind::PUT, b"the key", b"value", None)
    }

    fn with_entry(test: impl Fn(&View<'_>, u32, usize)) {
        with_entry_of(&fields(), test);
    }

    fn with_entry_of(fields: &Fields<'_>, test: impl Fn(&View<'_>, u32, usize)) {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let arena = Arena::new(1 << 20, 1 << 24, width, secret);
        let view = arena.view().unwrap();
        let lengths = fields.lengths();
        let mut reservation = arena
            .carve(&mut SubChunk::default(), node_units(width, lengths, 1))
            .unwrap();
        let built = view.build(&mut reservation, fields, LOW).unwrap();
        test(&view, built.offset, entry_end(width, lengths) as usize);
    }

    /// Flips a bit, counted from the first byte of the entry.
    fn flip(view: &View<'_>, offset: u32, bit: usize) {
        let word = view.word(offset + (bit / 64) as u32).unwrap();
        let mut mask = [0; 8];
        mask[bit / 8 % 8] = 1 << (bit % 8);
        // ORDERING: Relaxed: one thread.
        word.fetch_xor(u64::from_ne_bytes(mask), Ordering::Relaxed);
    }

    fn proves(view: &View<'_>, offset: u32, other: &[u8]) -> bool {
        view.proves(offset, |key, sequence| {
            assert_eq!(sequence, fields().sequence);
            assert_eq!(key, fields().key);
            key != other
        })
    }

    #[test]
    fn any_one_bit_leaves_the_key_proved() {
        with_entry(|view, offset, end| {
            for bit in (0..end * 8).step_by(if cfg!(miri) { 151 } else { 1 }) {
                flip(view, offset, bit);
                assert!(proves(view, offset, b"another"), "bit {bit}");
                assert!(!proves(view, offset, fields().key), "bit {bit}");
                flip(view, offset, bit);
            }
        });
    }

    /// One flipped bit of a revision leaves the key proved also where the header check of 16 bits
    /// still matches.
    #[test]
    #[cfg_attr(miri, ignore = "tries many sequence numbers")]
    fn a_header_check_that_matches_by_chance_leaves_the_key_proved() {
        let (secret, offset) = (Secret::from_seed(5), Cell::new(0));
        with_entry(|_, at, _| offset.set(at));
        let lengths = fields().lengths().0;
        let check = |sequence, revision| {
            let header = secret.header(offset.get(), lengths, sequence, revision);
            header.1
        };
        let flips = (0..8000).flat_map(|n| (0..32).map(move |bit| (splitmix(n), bit)));
        let mut by_chance = flips.filter(|&(n, bit)| check(n, 0) == check(n, 1 << bit));
        let (sequence, bit) = by_chance.next().unwrap();
        let fields = Fields {
            sequence,
            ..fields()
        };
        with_entry_of(&fields, |view, offset, _| {
            flip(view, offset, 8 * REVISION_AT + bit);
            assert!(view.try_open(offset).is_some());
            let is_it = |key: &[u8], found| (key, found) == (fields.key, sequence);
            assert!(view.proves(offset, is_it));
        });
    }

    #[test]
    fn two_bits_of_a_key_prove_nothing() {
        with_entry(|view, offset, _| {
            let key_at = 8 * (HEADER + 16);
            for second in (1..8 * fields().key.len()).step_by(if cfg!(miri) { 9 } else { 1 }) {
                flip(view, offset, key_at);
                flip(view, offset, key_at + second);
                assert!(!view.proves(offset, |_, _| true), "bits 0 and {second}");
                flip(view, offset, key_at);
                flip(view, offset, key_at + second);
            }
        });
    }

    /// The header check matches, but the lengths lead out of the chunk; the second length leads out
    /// of 32 bits.
    #[test]
    fn an_entry_ends_inside_its_chunk() {
        with_entry(|view, offset, _| {
            for value_len in [1 << 30, u32::MAX as usize - 30] {
                let lengths = Lengths::pack(fields().key.len(), fields().kind, value_len).0;
                let (_, check) = view.secret.header(offset, lengths, fields().sequence, 0);
                let words = [
                    (0, lengths),
                    ((BACK_AT / UNIT) as u32, BackWord::pack(0, 0, check).0),
                ];
                for (at, word) in words {
                    // ORDERING: Relaxed: one thread.
                    view.word(offset + at)
                        .unwrap()
                        .store(word, Ordering::Relaxed);
                }
                assert!(view.try_open(offset).is_none());
                let (fields, stored) = view.raw_header(offset).unwrap();
                assert_eq!(stored, check);
                assert!(view.open_as(offset, &fields).is_none());
            }
        });
    }
}
