//! Healed copies: damaged entries whose keys are proved, written again beside the list.
//!
//! ```text
//!   list      a <---> x (damaged) <---> b      links, back link and place remain those of x
//!   healed    x: header, digests, key and value of x with the damage put back
//! ```
//! The digests are K ^ F and V ^ K ^ F, so what differs says which part was damaged:
//!
//! ```text
//!   key digest   value digest
//!   x            x              key (K changed), or header (F changed) if its check differs too
//!   x            0              key digest, any of its bits
//!   0            x              value (V changed)
//!   0            one bit        value digest
//!   one bit      y              key digest, and value or value digest
//!   x            y              key or header, and value or value digest
//! ```
//! * HEALED-1: a copy is made only if one digest of 64 bits proves its key: the key digest, once at
//!   most one bit of key, header or digest is put back, or the value digest over the bytes as they
//!   are. So random damage of n bits is taken for another entry with probability n * 2^-64. The
//!   value of a copy may be lost. It is verified as any value, when it is read.
//! * HEALED-3: nothing is healed before a check failed.
//! * HEALED-4: what a search compares, and what a reader gets, is what was verified: the stored
//!   bytes, or the copy. A damaged key may have compared as less than a position, and its healed
//!   key be greater. So nothing is healed where a walk that compared stored bytes is certified
//!   (`certify`, `certify_ahead`): such a walk fails, and the careful search compares again.
//!
//! Any thread; lock-free. Not remembered: damage that proves no key.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::integrity::digest::{key_flip, key_part, value_flip, value_part};
use crate::integrity::flipped_bit::DIAGNOSIS_LEN_MAX;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::layout::{BACK_AT, HEADER, REVISION_AT, SEQUENCE_AT, UNIT};
use crate::memtable::arena::node::{HEADER_FIELDS, Node, Verified, field_bit};
use crate::memtable::arena::node_words::key_at;
use crate::memtable::arena::parked_node::Parked;
use crate::memtable::heals::Healed;

/// Digest bytes that suffice to heal an entry.
const HEALED_WIDTH: usize = 8;
/// Longest key, and longest value, of which every bit is tried.
const TRIED_LEN_MAX: usize = 8 << 10;
/// Longest key and value, together, of which a copy is made.
const COPIED_LEN_MAX: usize = 1 << 20;

impl<'a> View<'a> {
    /// The entry at `offset`, or its healed copy, with its key verified. The one way to a healed
    /// key: what is compared and returned is what was verified (HEALED-4). O(key length) for an
    /// intact entry.
    #[inline(never)]
    pub(crate) fn entry(&self, offset: u32) -> Result<Verified<'a>, Corruption> {
        let as_stored = self.try_open(offset).and_then(|node| node.try_verify(self));
        match as_stored.or_else(|| self.healed(offset)) {
            Some(entry) => Ok(entry),
            None => self.open(offset)?.verify(self),
        }
    }

    /// The healed copy of the entry at `offset`, made now if there is none. The caller has seen a
    /// check of this entry fail (HEALED-3). `None` if no key is proved, if the entry is intact but
    /// for its value, or if the table may heal no further place.
    ///
    /// O(length of the damaged part^2) for the first call, and O(copies) after that.
    #[cold]
    #[inline(never)]
    pub(crate) fn healed(self, offset: u32) -> Option<Verified<'a>> {
        if self.width.bytes < HEALED_WIDTH || !self.arena().heals().is_on() {
            return None;
        }
        let healed = &self.arena().healed;
        if healed.find(offset).is_none() {
            let (found, words) = self.repair(offset)?;
            if !self.arena().heals().admits(found) {
                return None;
            }
            healed.keep(offset, words);
        }
        let words = healed.find(offset)?;
        // Copies are memory too: what is returned is what was verified.
        self.node_over(offset, words)?.try_verify(&self)
    }

    /// Whether the key at this address is that of the copy of the entry at `offset`, which this
    /// arena keeps (HEALED-2).
    #[cold]
    #[inline(never)]
    pub(super) fn is_copy(self, offset: u32, key_address: usize) -> bool {
        let copy = self.arena().healed.find(offset);
        copy.is_some_and(|copy| copy.as_ptr().addr() + key_at(self.width) == key_address)
    }

    /// Finds what is damaged of the entry at `offset`, and the words of its copy.
    fn repair(&self, offset: u32) -> Option<(Healed, Box<[u64]>)> {
        // A damaged header matches its check by chance once in 65536 times.
        let opened = self.try_open(offset);
        let found = opened.and_then(|node| self.repair_bytes(&node));
        found.or_else(|| self.repair_header(offset))
    }

    /// The header is intact: key, value or digests are damaged.
    fn repair_bytes(&self, node: &Node<'a>) -> Option<(Healed, Box<[u64]>)> {
        let (address, _) = self.locate(node.offset())?;
        let mut bytes = copied(node)?;
        let parts = [key_part(&bytes[0]), value_part(&bytes[1])];
        let (mut digests, expected) = (node.stored_digests(), node.expected_digests(parts));
        let differ = [0, 1].map(|which| digests[which] ^ expected[which]);
        // What proves the key comes first.
        let which = usize::from(differ[0] == 0);
        let (place, at) = [
            (Place::Entry, key_at(self.width)),
            (Place::Value, key_at(self.width) + bytes[0].len()),
        ][which];
        let is_one = differ[which].is_power_of_two() && differ[0] != differ[1];
        let found = if is_one || differ[1] == 0 {
            let [was, is] = [digests[which], expected[which]].map(u64::to_le);
            digests[which] = expected[which];
            Healed::of_word(place, address + HEADER + UNIT * which, was, is)?
        } else {
            let bytes = &mut bytes[which];
            let flip = [key_flip, value_flip][which];
            let wanted = parts[which] ^ differ[which];
            let bit = (bytes.len() <= TRIED_LEN_MAX).then(|| flip(bytes, wanted))??;
            bytes[bit / 8] ^= 1 << (bit % 8);
            Healed::of_bit(place, address + at, bit as u64)
        };
        Some((found, words_of(node, digests, &bytes)))
    }

    /// The header is damaged: its check, or one bit of its fields. The key digest proves the right
    /// fields. Other lengths lead to bytes of other entries: unless the check agrees with them, only
    /// short keys are read.
    fn repair_header(&self, offset: u32) -> Option<(Healed, Box<[u64]>)> {
        let (address, _) = self.locate(offset)?;
        let (fields, stored) = self.raw_header(offset)?;
        let check = |fields: &[u8; HEADER_FIELDS]| self.header_check(offset, fields);
        let [was, is] = [stored, check(&fields)].map(u64::from);
        let of_check = Healed::of_word(Place::Header, address + BACK_AT, was, is);
        let of_fields = (0..8 * HEADER_FIELDS).map(|bit| {
            let mut fields = fields;
            fields[bit / 8] ^= 1 << (bit % 8);
            let bit = field_bit(bit as u64);
            (Healed::of_bit(Place::Header, address, bit), fields)
        });
        let of_check = of_check.map(|found| (found, fields)).into_iter();
        of_check.chain(of_fields).find_map(|(found, fields)| {
            let node = self.open_as(offset, &fields)?;
            let key = node.key();
            let is_read = key.len() <= DIAGNOSIS_LEN_MAX || check(&fields) == stored;
            if !is_read || !node.has_key(key, self) {
                return None;
            }
            Some((
                found,
                words_of(&node, node.stored_digests(), &copied(&node)?),
            ))
        })
    }
}

impl<'a> Verified<'a> {
    /// This entry, or its healed copy, with key and value verified.
    #[cold]
    #[inline(never)]
    pub(crate) fn intact(self, view: View<'a>) -> Result<Verified<'a>, Corruption> {
        let entry = self.healed(view);
        entry
            .verify_parts(entry.key(), entry.node.value_bytes(), view.width)
            .map(|()| entry)
    }

    /// The healed copy of this entry, if it was made before, or this entry.
    #[inline]
    pub(crate) fn or_healed(self, view: View<'a>) -> Verified<'a> {
        if view.arena().healed.find(self.offset()).is_none() {
            return self;
        }
        self.healed(view)
    }

    /// The healed copy of this entry, or this entry.
    fn healed(self, view: View<'a>) -> Verified<'a> {
        let copy = view.healed(self.offset());
        copy.filter(|copy| Parked::new(copy) == Parked::new(&self))
            .unwrap_or(self)
    }
}

/// Copies of key and value, unless they are too long.
fn copied(node: &Node<'_>) -> Option<[Vec<u8>; 2]> {
    let bytes = [node.key(), node.value_bytes()];
    (bytes[0].len() + bytes[1].len() <= COPIED_LEN_MAX).then(|| bytes.map(<[u8]>::to_vec))
}

/// An entry as it is stored, without links and back word.
fn words_of(node: &Node<'_>, digests: [u64; 2], [key, value]: &[Vec<u8>; 2]) -> Box<[u64]> {
    let mut bytes = vec![0; HEADER];
    bytes[..SEQUENCE_AT].copy_from_slice(&node.lengths().0.to_ne_bytes());
    bytes[SEQUENCE_AT..BACK_AT].copy_from_slice(&node.sequence().to_ne_bytes());
    bytes[REVISION_AT..].copy_from_slice(&node.revision().to_ne_bytes());
    bytes.extend(digests.map(u64::to_le_bytes).as_flattened());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
    let words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word));
    words.collect()
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
    use crate::memtable::arena::links::EndKeys;
    use crate::memtable::arena::node_words::{entry_end, node_units};
    use crate::sync::Ordering;

    const REVISION: u32 = 3;

    fn with_entry(width: u8, fields: &Fields<'_>, test: impl Fn(&View<'_>, u32, usize)) {
        let width = Width::new(width).unwrap();
        let arena = Arena::new(1 << 20, 1 << 24, width, Secret::from_seed(5));
        let view = arena.view().unwrap();
        let units = node_units(width, fields.lengths(), 1);
        let mut reservation = arena.carve(&mut SubChunk::default(), units).unwrap();
        let shape = Shape {
            pad: 0,
            height: 1,
            revision: REVISION,
            back: 0,
            next: (0, EndKeys::MAY_MATCH),
            end: 0,
        };
        let built = view.build(&mut reservation, fields, shape).unwrap();
        let end = entry_end(width, fields.lengths()) as usize;
        test(&arena.view().unwrap(), built.offset, end);
    }

    /// Flips a bit, counted from the first byte of the entry.
    fn flip(view: &View<'_>, offset: u32, bit: usize) {
        let word = view.word(offset + (bit / 64) as u32).unwrap();
        let mut mask = [0; 8];
        mask[bit / 8 % 8] = 1 << (bit % 8);
        // ORDERING: Relaxed: one thread.
        word.fetch_xor(u64::from_ne_bytes(mask), Ordering::Relaxed);
    }

    /// The bits of the back word that are not the header check.
    fn is_of_back_link(bit: usize) -> bool {
        (8 * BACK_AT + 16..8 * REVISION_AT).contains(&bit)
    }

    /// What is told, and the copy of the entry: its key, and its value if that is not lost.
    fn copy_of(view: &View<'_>, offset: u32) -> Option<(Healed, Vec<u8>, Option<Vec<u8>>)> {
        let (found, words) = view.repair(offset)?;
        let entry = view.node_over(offset, &words)?.try_verify(view)?;
        assert_eq!(
            (entry.node.sequence(), entry.node.revision()),
            (9, REVISION)
        );
        let value = entry.value_as_stored(view.width).ok();
        Some((found, entry.key().to_vec(), value.map(<[u8]>::to_vec)))
    }

    fn fields() -> Fields<'static> {
        Fields::new(9, Kind::PUT, b"the key", b"the value", None)
    }

    const KEY_AT: usize = 8 * (HEADER + 16);
    const VALUE_AT: usize = KEY_AT + 8 * 7;

    /// Any one bit of header, digests, key and value is found, and its report names it.
    #[test]
    fn any_one_bit_is_put_back() {
        // Under Miri a hash of a few hundred bytes takes a millisecond.
        let all = [(3, 9), (0, 0), (20, 100), (300, 3), (2, 300)];
        for (key, value) in all.into_iter().take(if cfg!(miri) { 2 } else { 5 }) {
            let bytes: Vec<u8> = (0..400u32).map(|at| (at * 37) as u8).collect();
            let (key, value) = (&bytes[..key], &bytes[400 - value..]);
            with_entry(
                8,
                &Fields::new(9, Kind::PUT, key, value, None),
                |view, offset, end| {
                    assert!(view.repair(offset).is_none(), "nothing is damaged");
                    let step = if cfg!(miri) {
                        37
                    } else if cfg!(debug_assertions) {
                        7
                    } else {
                        1
                    };
                    let bits = (0..8 * end).step_by(step);
                    for bit in bits.filter(|bit| !is_of_back_link(*bit)) {
                        flip(view, offset, bit);
                        let (found, copied, whole) = copy_of(view, offset).unwrap();
                        let (address, _) = view.locate(offset).unwrap();
                        assert_eq!(found, Healed::of_bit(found.place, address, bit as u64));
                        assert_eq!(
                            (&*copied, whole.as_deref()),
                            (key, Some(value)),
                            "bit {bit}"
                        );
                        flip(view, offset, bit);
                    }
                },
            );
        }
    }

    /// Two bits are never taken for another entry: either the key is proved, and the value is right
    /// or lost, or nothing is healed. Digests of four bytes prove too little.
    #[test]
    fn two_bits_and_short_digests_prove_no_other_entry() {
        with_entry(8, &fields(), |view, offset, end| {
            let step = if cfg!(miri) { 97 } else { 5 };
            let bits = |from: usize| {
                (from..8 * end)
                    .step_by(step)
                    .filter(|bit| !is_of_back_link(*bit))
            };
            for (first, second) in bits(0).zip(bits(31)) {
                flip(view, offset, first);
                flip(view, offset, second);
                if let Some((_, key, value)) = copy_of(view, offset) {
                    let is_right = value.is_none_or(|value| value == b"the value");
                    assert!(key == b"the key" && is_right, "bits {first} and {second}");
                    assert!(first < KEY_AT || second >= VALUE_AT, "two bits of the key");
                }
                flip(view, offset, first);
                flip(view, offset, second);
            }
        });
        with_entry(4, &fields(), |view, offset, end| {
            flip(view, offset, 8 * end - 1);
            assert!(view.healed(offset).is_none());
        });
    }

    /// A key is proved although its value, or all of a digest or of a header's check, is lost.
    #[test]
    fn a_proved_key_has_a_copy() {
        const CHECK_AT: usize = 8 * BACK_AT;
        for (bits, is_lost) in [
            ([VALUE_AT, VALUE_AT + 9, KEY_AT + 5], true),
            ([VALUE_AT, VALUE_AT + 9, KEY_AT - 128], true),
            ([VALUE_AT, VALUE_AT + 9, 3], true),
            ([VALUE_AT, VALUE_AT + 9, CHECK_AT], true),
            ([KEY_AT - 64, KEY_AT - 3, KEY_AT + 5], true),
            ([KEY_AT - 64, KEY_AT - 3, 8 * REVISION_AT + 4], true),
            ([KEY_AT - 128, KEY_AT - 70, KEY_AT - 100], false),
            ([CHECK_AT, CHECK_AT + 3, CHECK_AT + 9], false),
            ([CHECK_AT, CHECK_AT + 9, 8 * SEQUENCE_AT], false),
        ] {
            with_entry(8, &fields(), |view, offset, _| {
                bits.into_iter().for_each(|bit| flip(view, offset, bit));
                let entry = view.healed(offset).unwrap();
                assert_eq!(entry.key(), b"the key", "{bits:?}");
                let value = entry.value(view);
                assert_eq!(value.is_err(), is_lost, "{bits:?}");
                assert!(value.is_ok_and(|value| value == b"the value") || is_lost);
            });
        }
    }

    /// One flipped bit of a revision heals also where the header check of 16 bits still matches.
    #[test]
    #[cfg_attr(miri, ignore = "tries many sequence numbers")]
    fn a_header_check_that_matches_by_chance_heals() {
        let (secret, offset) = (Secret::from_seed(5), Cell::new(0));
        with_entry(8, &fields(), |_, at, _| offset.set(at));
        let lengths = fields().lengths().0;
        let check = |sequence, revision| {
            let header = secret.header(offset.get(), lengths, sequence, revision);
            header.1
        };
        let flips = (0..8000).flat_map(|n| (0..32).map(move |bit| (splitmix(n), bit)));
        let mut by_chance =
            flips.filter(|&(n, bit)| check(n, REVISION) == check(n, REVISION ^ 1 << bit));
        let (sequence, bit) = by_chance.next().unwrap();
        let fields = Fields {
            sequence,
            ..fields()
        };
        with_entry(8, &fields, |view, offset, _| {
            flip(view, offset, 8 * REVISION_AT + bit);
            assert!(view.try_open(offset).is_some());
            let entry = view.healed(offset).unwrap();
            assert_eq!((entry.key(), entry.node.sequence()), (fields.key, sequence));
        });
    }

    /// Every bit of keys and values of up to 8 KiB is tried; then nothing computes again.
    #[test]
    #[cfg_attr(miri, ignore = "hashes millions of inputs")]
    fn an_entry_of_8_kib_is_healed_once() {
        let bytes = vec![7; TRIED_LEN_MAX + 1];
        for (len, is_healed) in [(TRIED_LEN_MAX, true), (TRIED_LEN_MAX + 1, false)] {
            let fields = Fields::new(9, Kind::PUT, b"the key", &bytes[..len], None);
            with_entry(8, &fields, |view, offset, end| {
                flip(view, offset, 8 * end - 1);
                let Some(first) = view.healed(offset) else {
                    return assert!(!is_healed);
                };
                assert_eq!(first.value_as_stored(view.width).unwrap(), &bytes[..len]);
                let second = view.healed(offset).unwrap();
                assert_eq!(first.key().as_ptr(), second.key().as_ptr(), "{is_healed}");
                assert!(view.arena().healed.bytes() > len as u64);
                assert!(view.is_copy(offset, first.key().as_ptr().addr()));
            });
        }
    }
}
