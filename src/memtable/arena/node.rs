//! A typed view of a node's bytes: header, digests, key and value; and values that pin their arena.
//! Safe for any stored byte.
//!
//! ```text
//!   offset --locate--> header --header check--> lengths --bounds--> key --key digest--> Verified
//!   Verified --value digest--> value
//! ```
//! Invariants:
//! * NODE-1: a `Node` exists only if its entry ends inside its chunk, or inside a healed copy of
//!   its arena, by the lengths in the `Node`, which are read once. Its header check matched at its
//!   own offset, with two exceptions: a node that was verified before (`reload`, `Parked`), and one
//!   that the caller verifies (`open_as`, `node_over`).
//!
//! Any thread. Not promised: that a node is linked, or where.

#![expect(unsafe_code, reason = "reads header words at checked addresses")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Place, Result};
use crate::integrity::digest::{
    FixedFields, Kvos, Protected, StoredProtection, Width, key_part, value_part, value_part_here,
};
use crate::integrity::flipped_bit::single_bit;
use crate::integrity::hash::UNROLLED;
use crate::key::{SequenceNumber, Target};
use crate::kind::Kind;
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::arena::layout::{BACK_UNITS, HEADER, REVISION_AT, SEQUENCE_AT, UNIT};
use crate::sync::{AtomicU64, Ordering};

#[cfg(not(loom))]
use crate::memtable::arena::layout::BACK_AT;
use crate::memtable::arena::node_words::{BackWord, Lengths, entry_end, key_at};

/// A node whose header check matched (NODE-1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a> {
    key_address: usize,
    pub(crate) lengths: Lengths,
    /// Address in arena units (32 bits) | revision (32 bits). It is one word because the compiler
    /// would join two halves in memory at each copy.
    pub(crate) place: u64,
    fixed: FixedFields,
    arena: PhantomData<&'a ()>,
}

/// A node whose key digest matched too, or any node at width 0: as stored, or a healed copy. Only a
/// `Verified` returns values. It returns no `Node`, so no healed key is compared where stored ones
/// are (HEALED-4). It keeps K, the hash of the key, which the value digest covers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verified<'a> {
    pub(super) node: Node<'a>,
    pub(crate) key_part: u64,
}

/// Reads a word of a header.
///
/// # Safety
/// `address` must be aligned for `T`. The whole `T` must be inside a live chunk (ARENA-1, ARENA-2),
/// in bytes that no thread writes as plain memory (ARENA-3).
#[inline(always)]
unsafe fn read<T: Copy>(address: usize) -> T {
    let pointer = std::ptr::with_exposed_provenance::<T>(address);
    // SAFETY: ARENA-1, ARENA-2, ARENA-3: the caller promises all three.
    unsafe { pointer.read() }
}

impl<'a> View<'a> {
    /// Opens the node at `offset`, if its header check and its bounds agree (NODE-1). O(1).
    #[inline(always)]
    pub(crate) fn try_open(&self, offset: u32) -> Option<Node<'a>> {
        self.try_open_with_back(offset).map(|(node, _)| node)
    }

    /// Opens the node at `offset`, and returns the target of its back link too. The tag of the back
    /// link is not compared, so the target is only a hint.
    #[inline(always)]
    pub(crate) fn try_open_with_back(&self, offset: u32) -> Option<(Node<'a>, u32)> {
        #[cfg(all(test, not(loom)))]
        crate::memtable::arena::opened::note();
        let (
            (address, available),
            Header {
                lengths,
                sequence,
                revision,
            },
        ) = self.stored_header(offset)?;
        let back = self.back_word_at(offset, address);
        let (fixed, check) = self.secret.header(offset, lengths.0, sequence, revision);
        if back.header_check() != check || entry_end(self.width, lengths) > available as u64 {
            return None;
        }
        let (key_address, place) = (address + key_at(self.width), place_of(offset, revision));
        Some((
            Node {
                key_address,
                lengths,
                place,
                fixed,
                arena: PhantomData,
            },
            back.target(),
        ))
    }

    /// Lengths and sequence number as they are stored, without a check.
    #[inline(always)]
    pub(crate) fn stored_fields(&self, offset: u32) -> Option<(Lengths, SequenceNumber)> {
        self.stored_header(offset).map(
            |(
                _,
                Header {
                    lengths, sequence, ..
                },
            )| (lengths, sequence),
        )
    }

    /// Loads a node again that was verified before, as it is stored now, without a header check.
    #[inline(always)]
    pub(crate) fn reload(&self, offset: u32) -> Option<Node<'a>> {
        let (
            at,
            Header {
                lengths,
                sequence,
                revision,
            },
        ) = self.stored_header(offset)?;
        self.node_of(at, place_of(offset, revision), lengths, sequence)
    }

    /// The header at `offset`, without a check, with its address and the number of bytes from there
    /// to the end of its chunk.
    #[inline(always)]
    fn stored_header(&self, offset: u32) -> Option<((usize, usize), Header)> {
        let (address, available) = self.locate(offset)?;
        if available < HEADER {
            return None;
        }
        #[cfg(loom)]
        let _ = self.published(offset, 0, HEADER);
        // SAFETY: ARENA-2: HEADER bytes are available from a unit boundary. LAYOUT-1: immutable.
        let lengths = Lengths(unsafe { read::<u64>(address) });
        // SAFETY: ARENA-2: the second word of the same HEADER bytes. LAYOUT-1: immutable.
        let sequence = unsafe { read::<u64>(address + SEQUENCE_AT) };
        // SAFETY: ARENA-2: inside the same HEADER bytes, aligned to 4. LAYOUT-1: immutable.
        let revision = unsafe { read::<u32>(address + REVISION_AT) };
        Some((
            (address, available),
            Header {
                lengths,
                sequence,
                revision,
            },
        ))
    }

    /// The node with these fields, if its entry ends inside its chunk. There is no header check:
    /// the node was verified before, or the caller verifies it.
    #[inline(always)]
    pub(crate) fn node_of(
        &self,
        at: (usize, usize),
        place: u64,
        lengths: Lengths,
        sequence: u64,
    ) -> Option<Node<'a>> {
        let (address, available) = at;
        if entry_end(self.width, lengths) > available as u64 {
            return None;
        }
        let (fixed, _) =
            self.secret
                .header((place >> 32) as u32, lengths.0, sequence, place as u32);
        Some(Node {
            key_address: address + key_at(self.width),
            lengths,
            place,
            fixed,
            arena: PhantomData,
        })
    }

    /// The back word of the node at `address`, where a header fits into the chunk.
    #[cfg(not(loom))]
    #[inline(always)]
    fn back_word_at(&self, _offset: u32, address: usize) -> BackWord {
        let pointer = std::ptr::with_exposed_provenance_mut::<u64>(address + BACK_AT);
        // SAFETY: ARENA-2: the caller checked that a header fits. ARENA-4: back words are accessed
        // only as atomics.
        let word = unsafe { AtomicU64::from_ptr(pointer) };
        // ORDERING: Relaxed: the header check in the word is immutable, and was published with the
        // link that led here. A back link that was loaded without Acquire is only compared with a
        // node, and never followed.
        BackWord(word.load(Ordering::Relaxed))
    }

    /// The back word of a node. Under loom, words are in a side table.
    #[cfg(loom)]
    fn back_word_at(&self, offset: u32, _address: usize) -> BackWord {
        self.back_word(offset).unwrap_or(BackWord(0))
    }

    /// The node at an offset, or a report of what is wrong with its header.
    #[inline(never)]
    pub(crate) fn open(&self, offset: u32) -> Result<Node<'a>, Corruption> {
        self.try_open(offset)
            .ok_or_else(|| self.header_report(offset))
    }

    /// The report for a node that `try_open` refused.
    #[cold]
    fn header_report(self, offset: u32) -> Corruption {
        match self.raw_header(offset) {
            Some((fields, stored)) => self.bad_header(offset, &fields, stored),
            None => no_node(offset),
        }
    }

    /// The stored fields that a header check covers (lengths, sequence number, revision), and the
    /// stored check.
    #[cold]
    pub(super) fn raw_header(&self, offset: u32) -> Option<([u8; HEADER_FIELDS], u16)> {
        let (
            _,
            Header {
                lengths,
                sequence,
                revision,
            },
        ) = self.stored_header(offset)?;
        let mut fields = [0u8; HEADER_FIELDS];
        fields[..8].copy_from_slice(&lengths.0.to_le_bytes());
        fields[8..16].copy_from_slice(&sequence.to_le_bytes());
        fields[16..].copy_from_slice(&revision.to_le_bytes());
        Some((
            fields,
            self.back_word(offset).map_or(0, BackWord::header_check),
        ))
    }

    /// The node at `offset` with these header fields, if its entry ends inside its chunk. The
    /// caller must verify it, because there is no header check.
    #[cold]
    pub(super) fn open_as(&self, offset: u32, fields: &[u8; HEADER_FIELDS]) -> Option<Node<'a>> {
        let Header {
            lengths,
            sequence,
            revision,
        } = unpacked(fields);
        self.node_of(
            self.locate(offset)?,
            place_of(offset, revision),
            lengths,
            sequence,
        )
    }

    /// The node at `offset` over a copy of its bytes that the arena keeps, if its entry ends inside
    /// the copy. The caller must verify it, because there is no header check.
    #[cold]
    pub(super) fn node_over(&self, offset: u32, copy: &'a [u64]) -> Option<Node<'a>> {
        let revision = (copy.get(REVISION_AT / UNIT)?.to_ne_bytes())
            .first_chunk()
            .map(|bytes| u32::from_ne_bytes(*bytes))?;
        let at = (copy.as_ptr().expose_provenance(), size_of_val(copy));
        self.node_of(
            at,
            place_of(offset, revision),
            Lengths(copy[0]),
            copy[SEQUENCE_AT / UNIT],
        )
    }

    /// The target of a back link, without a check of its tag. It may be compared with a node, and
    /// must not be followed.
    #[inline(always)]
    pub(crate) fn back_target(&self, node: u32) -> Option<u32> {
        self.back_word(node).map(BackWord::target)
    }

    /// The slot of a node's back word. The heads are tried first, because an append changes the
    /// back link of the sentinel.
    #[inline(always)]
    pub(super) fn back_slot(&self, node: u32) -> Option<&'a AtomicU64> {
        let slot = node.wrapping_add(BACK_UNITS);
        self.head_word(slot).or_else(|| self.word(slot))
    }

    #[inline(always)]
    fn back_word(&self, node: u32) -> Option<BackWord> {
        // ORDERING: Relaxed: the header check in the word is immutable, and was published with the
        // link that led here. The target is only compared with a node.
        Some(BackWord(self.back_slot(node)?.load(Ordering::Relaxed)))
    }

    #[cold]
    fn bad_header(self, offset: u32, fields: &[u8; HEADER_FIELDS], stored: u16) -> Corruption {
        let check = |fields: &[u8; HEADER_FIELDS]| self.header_check(offset, fields);
        let expected = u64::from(check(fields));
        let mut report =
            Corruption::new(Place::Header, bytes_of(offset), expected, u64::from(stored))
                .with_sequence(unpacked(fields).sequence);
        let bit = single_bit(fields, |bytes| {
            bytes.try_into().is_ok_and(|fields| check(fields) == stored)
        });
        report.flipped_bit = bit.map(field_bit);
        report
    }

    /// The check of a header with these fields.
    #[cold]
    pub(super) fn header_check(self, offset: u32, fields: &[u8; HEADER_FIELDS]) -> u16 {
        let Header {
            lengths,
            sequence,
            revision,
        } = unpacked(fields);
        self.secret.header(offset, lengths.0, sequence, revision).1
    }
}

impl<'a> Node<'a> {
    /// Node address in arena units.
    #[inline(always)]
    pub(crate) fn offset(&self) -> u32 {
        (self.place >> 32) as u32
    }

    /// The sequence number.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.fixed.sequence
    }

    /// The revision: how many equal entries this one replaces.
    #[inline(always)]
    pub(crate) fn revision(&self) -> u32 {
        self.place as u32
    }

    /// The lengths word.
    #[inline(always)]
    pub(crate) fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// The key, not verified.
    #[inline(always)]
    pub(crate) fn key(&self) -> &'a [u8] {
        let pointer = std::ptr::with_exposed_provenance::<u8>(self.key_address);
        // SAFETY: NODE-1: the entry ends inside its chunk. ARENA-1: the chunk lives as long as 'a.
        // LAYOUT-1: immutable.
        unsafe { std::slice::from_raw_parts(pointer, self.lengths.key_len()) }
    }

    /// The value, not verified.
    #[inline(always)]
    pub(crate) fn value_bytes(&self) -> &'a [u8] {
        let at = self.key_address + self.lengths.key_len();
        let pointer = std::ptr::with_exposed_provenance::<u8>(at);
        // SAFETY: NODE-1: the value ends inside the chunk. ARENA-1: the chunk lives as long as 'a.
        // LAYOUT-1: immutable.
        unsafe { std::slice::from_raw_parts(pointer, self.lengths.value_len()) }
    }

    /// Compares this entry, by its key as stored, with a position: `Less` if the entry is before it.
    /// The answer is a hint until the end of the search is certified (HEALED-4).
    #[inline(always)]
    pub(crate) fn order_as_stored(&self, comparator: &KeyComparator, target: &Target<'_>) -> Order {
        target.entry_order(comparator, self.key(), (self.sequence(), self.revision()))
    }

    /// The position just before this entry, by its key as stored.
    #[inline]
    pub(crate) fn position_as_stored<'k>(&self, comparator: &'k KeyComparator) -> Target<'k>
    where
        'a: 'k,
    {
        Target::new(comparator, self.key(), self.sequence()).with_revision(self.revision())
    }

    /// K of a key, and the key digest of this entry with that key, in full.
    #[inline(always)]
    fn key_digest(&self, key: &[u8]) -> (u64, u64) {
        self.fixed.of_key(key)
    }

    /// Whether a digest agrees with all stored bytes of the key digest (0) or the value digest (1).
    /// Most tables store all bytes.
    #[inline(always)]
    fn has_digest(&self, which: usize, digest: u64, width: Width) -> bool {
        let digest = if width.bytes == 8 {
            digest
        } else {
            digest & width.mask()
        };
        digest == self.stored_digest(width, which)
    }

    #[inline(always)]
    fn stored_digest(&self, width: Width, which: usize) -> u64 {
        let width = width.bytes;
        let pointer =
            std::ptr::with_exposed_provenance::<u8>(self.key_address - (2 - which) * width);
        if width == 8 {
            // SAFETY: NODE-1: both digests are just before the key. LAYOUT-1: immutable.
            return u64::from_le(unsafe { pointer.cast::<u64>().read_unaligned() });
        }
        // SAFETY: NODE-1: both digests are just before the key. LAYOUT-1: immutable.
        let stored = unsafe { std::slice::from_raw_parts(pointer, width) };
        let mut word = [0u8; 8];
        word[..width].copy_from_slice(stored);
        u64::from_le_bytes(word)
    }

    /// Verifies the key digest. O(key length).
    #[inline(always)]
    pub(crate) fn try_verify(self, view: &View<'_>) -> Option<Verified<'a>> {
        self.try_verify_as(self.key(), view)
    }

    /// [`try_verify`](Self::try_verify) with the hash of `same`, bytes that the caller has compared
    /// with the key, and which are equal. They can be hashed before the node is loaded.
    #[inline(always)]
    pub(crate) fn try_verify_as(self, same: &[u8], view: &View<'_>) -> Option<Verified<'a>> {
        let width = view.width;
        if width.bytes == 0 {
            return Some(Verified {
                node: self,
                key_part: 0,
            });
        }
        let (key_part, digest) = self.key_digest(same);
        self.has_digest(0, digest, width).then_some(Verified {
            node: self,
            key_part,
        })
    }

    /// The stored key digest, which the table's sums add up; 0 if none is stored.
    #[inline]
    pub(crate) fn stored_key_digest(&self, view: &View<'_>) -> u64 {
        if view.width.bytes == 0 {
            0
        } else {
            self.stored_digest(view.width, 0)
        }
    }

    /// Whether the stored key digest matches this key with the other fields of the node.
    #[cold]
    pub(super) fn has_key(&self, key: &[u8], view: &View<'_>) -> bool {
        self.has_digest(0, self.key_digest(key).1, view.width)
    }

    /// Both stored digests, of 8 bytes each.
    #[cold]
    pub(super) fn stored_digests(&self) -> [u64; 2] {
        [0, 1].map(|which| self.stored_digest(Width::default(), which))
    }

    /// Both digests of a key with this K and a value with this V.
    #[cold]
    pub(super) fn expected_digests(&self, [key, value]: [u64; 2]) -> [u64; 2] {
        [
            self.fixed.key_digest(key),
            self.fixed.value_digest(value, key),
        ]
    }

    /// Verifies the key digest as stored, or reports the damage.
    #[inline(never)]
    pub(crate) fn verify(self, view: &View<'_>) -> Result<Verified<'a>, Corruption> {
        self.try_verify(view)
            .ok_or_else(|| self.bad_key(self.key(), view.width))
    }

    #[cold]
    fn bad_key(&self, key: &[u8], width: Width) -> Corruption {
        self.bad_digest((Place::Entry, 0), (key, key_at(width)), width, |key| {
            self.key_digest(key).1
        })
    }

    /// The report of a stored digest that does not match `bytes`, which begin `at` bytes after the
    /// node's address.
    #[cold]
    fn bad_digest(
        &self,
        (place, which): (Place, usize),
        (bytes, at): (&[u8], usize),
        width: Width,
        digest: impl Fn(&[u8]) -> u64,
    ) -> Corruption {
        let digest = |bytes: &[u8]| digest(bytes) & width.mask();
        let (expected, stored) = (digest(bytes), self.stored_digest(width, which));
        let mut report = Corruption::new(place, bytes_of(self.offset()), expected, stored)
            .with_sequence(self.sequence());
        report.flipped_bit = if (expected ^ stored).is_power_of_two() {
            let digest_at = HEADER + which * width.bytes;
            Some(8 * digest_at as u64 + u64::from((expected ^ stored).trailing_zeros()))
        } else {
            single_bit(bytes, |bytes| digest(bytes) == stored).map(|bit| bit + 8 * at as u64)
        };
        report
    }
}

impl<'a> Verified<'a> {
    /// The node's address, in arena units.
    #[inline(always)]
    pub(crate) fn offset(&self) -> u32 {
        self.node.offset()
    }

    /// The user key.
    #[inline(always)]
    pub(crate) fn key(&self) -> &'a [u8] {
        self.node.key()
    }

    /// The sequence number.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.node.sequence()
    }

    /// The revision: how many equal entries this one replaces.
    #[inline(always)]
    pub(crate) fn revision(&self) -> u32 {
        self.node.revision()
    }

    /// The lengths word.
    #[inline(always)]
    pub(crate) fn lengths(&self) -> Lengths {
        self.node.lengths
    }

    /// The user key and the sequence number.
    pub(crate) fn version(&self) -> (&'a [u8], SequenceNumber) {
        (self.key(), self.sequence())
    }

    /// Compares this entry with a position: `Less` if the entry is before it.
    #[inline(always)]
    pub(crate) fn order(&self, comparator: &KeyComparator, target: &Target<'_>) -> Order {
        self.node.order_as_stored(comparator, target)
    }

    /// The position just before this entry.
    #[inline]
    pub(crate) fn position<'k>(&self, comparator: &'k KeyComparator) -> Target<'k>
    where
        'a: 'k,
    {
        self.node.position_as_stored(comparator)
    }

    /// The stored key digest: [`Node::stored_key_digest`].
    #[inline]
    pub(crate) fn stored_key_digest(&self, view: &View<'_>) -> u64 {
        self.node.stored_key_digest(view)
    }

    /// K of the key, as it was verified; 0 at width 0.
    #[inline(always)]
    pub(crate) fn key_part(&self) -> u64 {
        self.key_part
    }

    /// The kind.
    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.node.lengths.kind()
    }

    /// The value as stored, verified against its digest: for reports of damage. O(value length).
    #[inline(always)]
    pub(crate) fn value_as_stored(&self, width: Width) -> Result<&'a [u8], Corruption> {
        let value = self.node.value_bytes();
        self.verify_copy(value, width)?;
        Ok(value)
    }

    /// The value, or that of the healed copy, verified against its digest. O(value length).
    #[inline(always)]
    pub(crate) fn value(&self, view: &View<'a>) -> Result<&'a [u8], Corruption> {
        let value = self.node.value_bytes();
        if self.has_value(value, view.width) {
            return Ok(value);
        }
        Ok(self.intact(*view)?.node.value_bytes())
    }

    /// The value, verified, with the arena that holds it. O(value length).
    #[inline(always)]
    pub(crate) fn value_in(&self, view: &View<'a>) -> Result<BytesIn<'a>, Corruption> {
        let bytes = self.node.value_bytes();
        if self.has_value(bytes, view.width) && self.is_in(view) {
            return Ok(BytesIn {
                bytes,
                arena: view.arena(),
            });
        }
        self.healed_value_in(*view)
    }

    /// [`value_in`](Self::value_in) of a damaged entry, or of one that was healed before.
    #[cold]
    #[inline(never)]
    fn healed_value_in(self, view: View<'a>) -> Result<BytesIn<'a>, Corruption> {
        let entry = self.intact(view)?;
        if !entry.is_kept_by(&view) {
            return Err(no_node(entry.offset()));
        }
        Ok(BytesIn {
            bytes: entry.node.value_bytes(),
            arena: view.arena(),
        })
    }

    /// Whether the key is in a chunk of this arena, or in a healed copy that the arena keeps.
    fn is_kept_by(&self, view: &View<'_>) -> bool {
        self.is_in(view) || view.is_copy(self.offset(), self.node.key_address)
    }

    /// Whether the key is in a chunk of this arena.
    #[inline(always)]
    fn is_in(&self, view: &View<'_>) -> bool {
        let is_there = |(address, _)| address + key_at(view.width) == self.node.key_address;
        view.is_near(self.node.key_address) || view.locate(self.node.offset()).is_some_and(is_there)
    }

    /// The value, not verified. The caller verifies the copy that it makes.
    pub(crate) fn value_unverified(&self) -> &'a [u8] {
        self.node.value_bytes()
    }

    /// Verifies key and value again, in place or as copies. The key must have the hash of the
    /// verified key. The value digest covers key, value and all other fields of the entry.
    #[inline]
    pub(crate) fn verify_parts(
        &self,
        key: &[u8],
        value: &[u8],
        width: Width,
    ) -> Result<(), Corruption> {
        if width.bytes > 0 && key_part(key) != self.key_part {
            return Err(self.node.bad_key(key, width));
        }
        self.verify_copy(value, width)
    }

    /// The value, if it verifies, is short, and the table stores digests of 8 bytes. After `None`,
    /// ask `value`.
    #[inline(always)]
    pub(crate) fn try_value(&self) -> Option<&'a [u8]> {
        let value = self.node.value_bytes();
        if value.len() > UNROLLED {
            return None;
        }
        let digest = self
            .node
            .fixed
            .value_digest(value_part_here(value), self.key_part);
        (digest == self.node.stored_digest(Width::default(), 1)).then_some(value)
    }

    /// Whether key and value are those of this entry: [`verify_parts`](Self::verify_parts).
    #[inline(always)]
    pub(crate) fn has_parts(&self, key: &[u8], value: &[u8], width: Width) -> bool {
        (width.bytes == 0 || key_part(key) == self.key_part) && self.has_value(value, width)
    }

    /// Whether these bytes are the value, by its digest.
    #[inline(always)]
    pub(crate) fn has_value(&self, value: &[u8], width: Width) -> bool {
        if width.bytes == 0 {
            return true;
        }
        let digest = self
            .node
            .fixed
            .value_digest(value_part(value), self.key_part);
        self.node.has_digest(1, digest, width)
    }

    /// Verifies a copy of the value.
    #[inline(always)]
    pub(crate) fn verify_copy(&self, value: &[u8], width: Width) -> Result<(), Corruption> {
        if self.has_value(value, width) {
            Ok(())
        } else {
            Err(self.bad_value(value, width))
        }
    }

    #[cold]
    fn bad_value(&self, value: &[u8], width: Width) -> Corruption {
        let digest = |value: &[u8]| {
            self.node
                .fixed
                .value_digest(value_part(value), self.key_part)
        };
        let at = key_at(width) + self.node.lengths.key_len();
        self.node
            .bad_digest((Place::Value, 1), (value, at), width, digest)
    }

    /// The stored digests, as they accompany the entry out of the table. Reads no byte of key or
    /// value.
    pub(crate) fn stored_protection(&self, width: Width) -> StoredProtection {
        let digests = [0, 1].map(|which| self.node.stored_digest(width, which));
        self.node.fixed.outside(self.kind(), digests, width)
    }

    /// A digest of the entry, computed from its bytes as they are now.
    pub(crate) fn carried(&self) -> Protected<Kvos> {
        Protected::of(self.key(), self.node.value_bytes(), self.kind())
            .with_sequence(self.node.sequence())
    }
}

/// An owner that keeps an arena alive.
pub(crate) trait KeepsArena: Send + Sync + 'static {
    /// The arena.
    fn arena(&self) -> &Arena;
}

/// The value of a verified entry in this arena, which may be pinned. It is made only after a check
/// that the key is in a chunk or in a healed copy of this arena, so the value ends inside the same
/// chunk or copy (NODE-1).
#[derive(Clone, Copy)]
pub(crate) struct BytesIn<'a> {
    bytes: &'a [u8],
    arena: &'a Arena,
}

impl<'a> BytesIn<'a> {
    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.bytes
    }
}

/// Bytes of an arena, with an owner that keeps the arena alive.
pub(crate) struct Pinned {
    address: usize,
    len: usize,
    /// Held only for its drop.
    _owner: Arc<dyn KeepsArena>,
}

impl Pinned {
    /// Pins a verified value. `None` if `owner` keeps another arena alive.
    pub(crate) fn new(owner: Arc<dyn KeepsArena>, value: BytesIn<'_>) -> Option<Pinned> {
        let BytesIn { bytes, arena } = value;
        std::ptr::eq(owner.arena(), arena).then(|| Pinned {
            address: bytes.as_ptr().expose_provenance(),
            len: bytes.len(),
            _owner: owner,
        })
    }

    /// Pins key and value of an entry, which are adjacent. `None` if `owner` keeps another arena
    /// alive.
    #[cfg(feature = "bytes")]
    pub(crate) fn of_entry(owner: Arc<dyn KeepsArena>, entry: &Verified<'_>) -> Option<Pinned> {
        let is_there = entry.is_kept_by(&owner.arena().view().ok()?);
        let len = entry.key().len() + entry.value_unverified().len();
        is_there.then(|| Pinned {
            address: entry.node.key_address,
            len,
            _owner: owner,
        })
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        let pointer = std::ptr::with_exposed_provenance::<u8>(self.address);
        // SAFETY: NODE-1: a `BytesIn`, or `of_entry`, has checked that the key is in a chunk or a
        // healed copy of the owner's arena, so the slice ends there too. ARENA-1, HEALED-2: `_owner`
        // keeps both alive. LAYOUT-1, HEALED-2: immutable.
        unsafe { std::slice::from_raw_parts(pointer, self.len) }
    }
}

/// Bytes of the fields that a header check covers.
pub(super) const HEADER_FIELDS: usize = 20;

/// The bit of a header that has this number among the fields that a header check covers.
pub(super) fn field_bit(bit: u64) -> u64 {
    if bit >= 128 {
        bit - 128 + 8 * REVISION_AT as u64
    } else {
        bit
    }
}

/// The fields that a header check covers, except the place.
struct Header {
    lengths: Lengths,
    sequence: SequenceNumber,
    revision: u32,
}

fn unpacked(fields: &[u8; HEADER_FIELDS]) -> Header {
    let lengths = Lengths(u64::from_le_bytes(std::array::from_fn(|i| fields[i])));
    let sequence = u64::from_le_bytes(std::array::from_fn(|i| fields[8 + i]));
    let revision = u32::from_le_bytes(std::array::from_fn(|i| fields[16 + i]));
    Header {
        lengths,
        sequence,
        revision,
    }
}

/// The address of a node and its revision in one word.
#[inline(always)]
fn place_of(offset: u32, revision: u32) -> u64 {
    u64::from(offset) << 32 | u64::from(revision)
}

/// Byte offset of an arena unit.
pub(crate) fn bytes_of(offset: u32) -> u64 {
    u64::from(offset) * UNIT as u64
}

#[cold]
pub(crate) fn no_node(offset: u32) -> Corruption {
    Corruption::new(Place::Link, bytes_of(offset), 0, 0)
}

/// The report of an entry whose place in the list contradicts its key.
#[cold]
#[inline(never)]
pub(crate) fn misplaced(offset: u32, sequence: SequenceNumber) -> Corruption {
    Corruption::new(Place::Order, bytes_of(offset), 0, 0).with_sequence(sequence)
}
