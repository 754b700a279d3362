//! Healed copies: entries in which one bit flipped, written again beside the list.
//!
//! ```text
//!   list      a <---> x (damaged) <---> b      links, back link and place remain those of x
//!   healed    x: header, digests, key and value of x with the bit put back
//! ```
//! The digests are K ^ F and V ^ K ^ F, so what differs says which part was damaged:
//!
//! ```text
//!   key digest   value digest
//!   x            x              key (K changed), or header (F changed) if its check differs too
//!   0            x              value (V changed)
//!   one bit      0              key digest
//!   0            one bit        value digest
//! ```
//! * HEALED-1: a copy is made only if both of its digests, of 64 bits each, match; the flipped bit
//!   may be one of theirs. So random damage of n bits is taken for another entry with probability
//!   n * 2^-64.
//! * HEALED-3: nothing is healed before a check failed.
//! * HEALED-4: what a search compares, and what a reader gets, is what was verified: the stored
//!   bytes, or the copy. A damaged key may have compared as less than a position, and its healed
//!   key be greater. So nothing is healed where a walk that compared stored bytes is certified
//!   (`certify`, `certify_ahead`): such a walk fails, and the careful search compares again.
//!
//! Any thread; lock-free. Not remembered: damage that no single bit explains.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::integrity::digest::{key_flip, key_part, value_flip, value_part};
use crate::memtable::arena::arena::View;
use crate::memtable::arena::layout::{BACK_AT, HEADER, REVISION_AT, SEQUENCE_AT, UNIT};
use crate::memtable::arena::node::{HEADER_FIELDS, Node, Verified, field_bit};
use crate::memtable::arena::node_words::key_at;
use crate::memtable::heals::Healed;

/// Digest bytes that suffice to heal an entry, and to prove a damaged key.
pub(super) const PROOF_BYTES: usize = 8;
/// Longest key and longest value of an entry that is healed.
const HEALED_LEN_MAX: usize = 8 << 10;

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
    /// check of this entry fail (HEALED-3). `None` if no single bit explains the damage, if the
    /// entry is intact, or if the table may heal no further place.
    ///
    /// O(length of the entry^2) for the first call, and O(copies) after that.
    #[cold]
    #[inline(never)]
    pub(crate) fn healed(self, offset: u32) -> Option<Verified<'a>> {
        if self.width.bytes < PROOF_BYTES || !self.arena().heals().is_on() {
            return None;
        }
        let healed = &self.arena().healed;
        if healed.find(offset).is_none() {
            let Repair { bit, place, words } = self.repair(offset)?;
            let (address, _) = self.locate(offset)?;
            let place = Healed::of_bit(place, address, bit);
            if !self.arena().heals().admits(place) {
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

    /// Finds the flipped bit of the entry at `offset`.
    fn repair(&self, offset: u32) -> Option<Repair> {
        // A damaged header matches its check by chance once in 65536 times.
        let opened = self.try_open(offset);
        let found = opened.and_then(|node| self.repair_bytes(&node));
        found.or_else(|| self.repair_header(offset))
    }

    /// The header is intact: key, value or one of the digests is damaged.
    fn repair_bytes(&self, node: &Node<'a>) -> Option<Repair> {
        if !is_short(node) {
            return None;
        }
        let (mut key, mut value) = (node.key().to_vec(), node.value_bytes().to_vec());
        let mut digests = node.stored_digests();
        let parts = [key_part(&key), value_part(&value)];
        let expected = node.expected_digests(parts);
        let [key_digest, value_digest] = [0, 1].map(|which| digests[which] ^ expected[which]);
        let (place, bit) = match [key_digest, value_digest] {
            [0, 0] => return None,
            [bit, 0] | [0, bit] if bit.is_power_of_two() => {
                let which = usize::from(key_digest == 0);
                digests[which] ^= bit;
                let place = [Place::Entry, Place::Value][which];
                (
                    place,
                    8 * HEADER + 64 * which + bit.trailing_zeros() as usize,
                )
            }
            [0, part] => {
                let bit = put_back(&mut value, value_flip, parts[1] ^ part)?;
                (Place::Value, bit + 8 * (key_at(self.width) + key.len()))
            }
            [part, same] if part == same => {
                let bit = put_back(&mut key, key_flip, parts[0] ^ part)?;
                (Place::Entry, bit + 8 * key_at(self.width))
            }
            _ => return None,
        };
        Some(Repair {
            place,
            bit: bit as u64,
            words: words_of(node, digests, &key, &value),
        })
    }

    /// The header is damaged: one bit of its fields, or one of its check. Both digests agree with
    /// the right fields. The lengths of a candidate are not used before its check agrees: other
    /// lengths lead to bytes of other entries.
    fn repair_header(&self, offset: u32) -> Option<Repair> {
        let (fields, stored) = self.raw_header(offset)?;
        let flipped = |bit: usize| {
            let mut fields = fields;
            fields[bit / 8] ^= 1 << (bit % 8);
            fields
        };
        let check = |fields: &[u8; HEADER_FIELDS]| self.header_check(offset, fields);
        let of_fields = (0..8 * HEADER_FIELDS)
            .map(|bit| (field_bit(bit as u64), flipped(bit)))
            .filter(|(_, fields)| check(fields) == stored);
        let check_bit = check(&fields) ^ stored;
        let of_check = check_bit.is_power_of_two().then(|| {
            (
                8 * BACK_AT as u64 + u64::from(check_bit.trailing_zeros()),
                fields,
            )
        });
        of_fields.chain(of_check).find_map(|(bit, fields)| {
            let node = self.open_as(offset, &fields).filter(is_short)?;
            let (key, value, digests) = (node.key(), node.value_bytes(), node.stored_digests());
            let agrees = node.expected_digests([key_part(key), value_part(value)]) == digests;
            agrees.then(|| Repair {
                place: Place::Header,
                bit,
                words: words_of(&node, digests, key, value),
            })
        })
    }
}

impl<'a> Verified<'a> {
    /// This entry, or its healed copy, with key and value verified.
    #[cold]
    #[inline(never)]
    pub(crate) fn intact(self, view: View<'a>) -> Result<Verified<'a>, Corruption> {
        let healed = view.healed(self.offset());
        let entry = healed.filter(|copy| copy.is_same(&self)).unwrap_or(self);
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
        let healed = view.healed(self.offset());
        healed.filter(|copy| copy.is_same(&self)).unwrap_or(self)
    }

    /// Whether this is the same entry, here or in another place of memory.
    fn is_same(&self, other: &Verified<'_>) -> bool {
        let fields = |Verified { node, key_part }: &Verified<'_>| {
            (node.place, node.lengths, node.sequence(), *key_part)
        };
        fields(self) == fields(other)
    }
}

/// An entry with its flipped bit put back.
struct Repair {
    /// What was damaged.
    place: Place,
    /// The bit that was flipped, counted from the first byte of the entry.
    bit: u64,
    words: Box<[u64]>,
}

/// Whether all bits of key and value may be tried.
fn is_short(node: &Node<'_>) -> bool {
    node.key().len().max(node.value_bytes().len()) <= HEALED_LEN_MAX
}

/// Flips the one bit that gives `bytes` this hash, and returns its number.
fn put_back(
    bytes: &mut [u8],
    flip: fn(&mut [u8], u64) -> Option<usize>,
    hash: u64,
) -> Option<usize> {
    let bit = flip(bytes, hash)?;
    bytes[bit / 8] ^= 1 << (bit % 8);
    Some(bit)
}

/// An entry as it is stored, without links and back word.
fn words_of(node: &Node<'_>, digests: [u64; 2], key: &[u8], value: &[u8]) -> Box<[u64]> {
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
    use super::*;
    use crate::integrity::digest::Width;
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

    /// Any one bit of header, digests, key and value is found, and its report names it.
    #[test]
    fn any_one_bit_is_put_back() {
        for (key, value) in [(20, 100), (0, 0), (300, 3), (2, 300)] {
            let bytes: Vec<u8> = (0..400u32).map(|at| (at * 37) as u8).collect();
            let fields = Fields::new(9, Kind::PUT, &bytes[..key], &bytes[400 - value..], None);
            with_entry(8, &fields, |view, offset, end| {
                assert!(view.repair(offset).is_none(), "nothing is damaged");
                let step = if cfg!(miri) {
                    151
                } else if cfg!(debug_assertions) {
                    7
                } else {
                    1
                };
                for bit in (0..8 * end)
                    .step_by(step)
                    .filter(|bit| !is_of_back_link(*bit))
                {
                    flip(view, offset, bit);
                    let Repair {
                        bit: found, words, ..
                    } = view.repair(offset).unwrap();
                    assert_eq!(found, bit as u64);
                    let node = view.node_over(offset, &words).unwrap();
                    assert_eq!(
                        (node.key(), node.value_bytes()),
                        (fields.key, &bytes[400 - value..])
                    );
                    assert_eq!((node.sequence(), node.revision()), (9, REVISION));
                    assert_eq!(node.lengths(), fields.lengths());
                    let entry = node.try_verify(view).unwrap();
                    assert!(entry.value_as_stored(view.width).is_ok());
                    flip(view, offset, bit);
                }
            });
        }
    }

    /// Two bits are never taken for another entry, and digests of four bytes prove too little.
    #[test]
    fn two_bits_and_short_digests_heal_nothing() {
        let fields = Fields::new(9, Kind::PUT, b"the key", b"the value", None);
        with_entry(8, &fields, |view, offset, end| {
            let step = if cfg!(miri) { 97 } else { 5 };
            let bits = || {
                (0..8 * end)
                    .step_by(step)
                    .filter(|bit| !is_of_back_link(*bit))
            };
            for (first, second) in bits().zip(bits().skip(1)) {
                flip(view, offset, first);
                flip(view, offset, second);
                assert!(view.healed(offset).is_none(), "bits {first} and {second}");
                flip(view, offset, first);
                flip(view, offset, second);
            }
        });
        with_entry(4, &fields, |view, offset, end| {
            flip(view, offset, 8 * end - 1);
            assert!(view.healed(offset).is_none());
        });
    }

    /// Keys and values of up to 8 KiB are healed; then nothing computes again.
    #[test]
    #[cfg_attr(miri, ignore = "hashes millions of inputs")]
    fn an_entry_of_8_kib_is_healed_once() {
        let bytes = vec![7; HEALED_LEN_MAX + 1];
        for (len, is_healed) in [(HEALED_LEN_MAX, true), (HEALED_LEN_MAX + 1, false)] {
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
