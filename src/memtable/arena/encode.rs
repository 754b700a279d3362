//! Writes the bytes of a node that is not published yet.
//!
//! * ENCODE-1: two words of a node depend on its neighbours: the link at level 0, with its tag and
//!   its statement about both keys, and the back word, with the tag of its target. All other words
//!   depend only on the entry, the revision and the place of the node.
//!
//! Only the owner of the node's reservation calls this (ARENA-3).

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and heights are bounded by the address limit"
)]

use crate::error::Result;
use crate::integrity::digest::{FixedFields, Kvo, Parts, Protected, key_part};
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::arena::arena::{Reservation, View};
use crate::memtable::arena::layout::{BACK_AT, BACK_UNITS, HEADER, REVISION_AT, SEQUENCE_AT, UNIT};
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node_words::{BackWord, Lengths, key_at};

impl View<'_> {
    /// Writes all bytes of a node that is not published yet: links, header, back link, digests, key
    /// and value.
    #[inline(always)]
    pub(crate) fn build(
        &self,
        reservation: &mut Reservation,
        fields: &Fields<'_>,
        shape: Shape,
    ) -> Result<Built> {
        let Shape {
            pad,
            height,
            revision,
            back,
            next,
            end,
        } = shape;
        let offset = reservation.start() + pad + height;
        let (tower, lengths) = (height as usize * UNIT, fields.lengths());
        let (from, key_at) = (pad as usize * UNIT, key_at(self.width));
        let units = self.plain(
            reservation,
            from,
            from + tower + key_at + fields.data_bytes() as usize,
        )?;
        let (links, bytes) = units.split_at_mut(tower);
        for (level, link) in (0..height).zip(links.as_chunks_mut::<UNIT>().0.iter_mut().rev()) {
            let target = if level == 0 {
                next
            } else {
                (end, EndKeys::MAY_MATCH)
            };
            let word = self.link_word(offset, level, target);
            self.write_word(link, Self::slot(offset, level), word);
        }
        if let Some(header) = bytes.first_chunk_mut::<HEADER>() {
            header[..SEQUENCE_AT].copy_from_slice(&lengths.0.to_ne_bytes());
            header[SEQUENCE_AT..BACK_AT].copy_from_slice(&fields.sequence.to_ne_bytes());
            header[REVISION_AT..].copy_from_slice(&revision.to_ne_bytes());
        }
        let (key, value) = bytes[key_at..].split_at_mut(fields.key.len());
        copy_key(key, fields.key);
        copy_value(value, fields);
        // The digests cover the arena's bytes, not the caller's: `black_box` makes the compiler
        // load the bytes again instead of reusing what it has just stored.
        let (head, body) = std::hint::black_box(bytes).split_at_mut(key_at);
        let (key, value) = body.split_at(fields.key.len());
        let (fixed, check) = self
            .secret
            .header(offset, lengths.0, fields.sequence, revision);
        let (digest, parts) = self.seal(head, &fixed, key, value);
        let back = BackWord::pack(back, self.secret.back_tag(offset, back), check);
        if let Some(word) = head[BACK_AT..].first_chunk_mut() {
            self.write_word(word, offset + BACK_UNITS, back.0);
        }
        let words = [lengths.0, fields.sequence, back.0];
        let agrees = fields.caller_digest.is_some()
            && is_read_as(std::hint::black_box(head), words, revision)
            && self.is_sealed_with(head, digest);
        Ok(Built {
            offset,
            digest,
            parts,
            agrees,
        })
    }

    /// Gives a node that was built, and that is not published yet, other neighbours (ENCODE-1).
    /// Verifies the rest of the node, because it was built earlier.
    #[cold]
    #[inline(never)]
    pub(crate) fn renew(
        &self,
        reservation: &mut Reservation,
        fields: &Fields<'_>,
        shape: Shape,
    ) -> Result<Built> {
        let above = shape.pad + shape.height;
        let (offset, lengths) = (reservation.start() + above, fields.lengths().0);
        let secret = &self.secret;
        let (_, check) = secret.header(offset, lengths, fields.sequence, shape.revision);
        let back = BackWord::pack(shape.back, secret.back_tag(offset, shape.back), check);
        let link = self.link_word(offset, 0, shape.next);
        for (unit, word) in [(above - 1, link), (above + BACK_UNITS, back.0)] {
            let (at, from) = (reservation.start() + unit, unit as usize * UNIT);
            let bytes = self.plain(reservation, from, from + UNIT)?;
            if let Some(bytes) = bytes.first_chunk_mut() {
                self.write_word(bytes, at, word);
            }
        }
        let entry = self.open(offset)?.verify(self)?;
        entry.value_as_stored(self.width)?;
        let parts = Parts {
            key: entry.key_part(),
            value: 0,
        };
        Ok(Built {
            offset,
            digest: entry.stored_key_digest(self),
            parts: (self.width.bytes > 0).then_some(parts),
            agrees: false,
        })
    }

    /// Writes a link or a back word, at unit `at`, of a node that is not published yet.
    #[inline(always)]
    fn write_word(&self, unit: &mut [u8; UNIT], at: u32, word: u64) {
        *unit = word.to_ne_bytes();
        // ORDERING: Relaxed: the node is not published yet. In models, the atomic is not part of
        // the bytes.
        #[cfg(loom)]
        self.word(at)
            .into_iter()
            .for_each(|model| model.store(word, crate::sync::Ordering::Relaxed));
        #[cfg(not(loom))]
        let _ = at;
    }

    /// Writes both digests. Returns the stored bits of the key digest, and the hashes of key and
    /// value.
    #[inline(always)]
    fn seal(
        &self,
        head: &mut [u8],
        fixed: &FixedFields,
        key: &[u8],
        value: &[u8],
    ) -> (u64, Option<Parts>) {
        let width = self.width.bytes;
        if width == 0 {
            return (0, None);
        }
        let ([first, second], parts) = fixed.digests(key, value);
        let digests = &mut head[HEADER..];
        if width == 8
            && let Some(whole) = digests.first_chunk_mut::<16>()
        {
            *whole = (u128::from(second) << 64 | u128::from(first)).to_le_bytes();
            return (first, Some(parts));
        }
        digests[..width].copy_from_slice(&first.to_le_bytes()[..width]);
        digests[width..].copy_from_slice(&second.to_le_bytes()[..width]);
        (first & self.width.mask(), Some(parts))
    }

    /// Whether `head` stores this key digest.
    #[inline(always)]
    fn is_sealed_with(&self, head: &[u8], digest: u64) -> bool {
        let (digests, width) = (&head[HEADER..], self.width.bytes);
        match digests.first_chunk() {
            Some(whole) if width == 8 => u64::from_le_bytes(*whole) == digest,
            _ => digests[..width] == digest.to_le_bytes()[..width],
        }
    }
}

/// Whether `head` begins with these words and this revision.
#[inline(always)]
fn is_read_as(head: &[u8], words: [u64; 3], revision: u32) -> bool {
    let Some(header) = head.first_chunk::<HEADER>() else {
        return false;
    };
    let mut found = header.as_chunks::<UNIT>().0.iter().zip(words);
    found.all(|(found, word)| *found == word.to_ne_bytes())
        && header.last_chunk() == Some(&revision.to_ne_bytes())
}

/// `to.copy_from_slice(from)`. Two moves copy a key of 8 to 16 bytes, which is faster than a call.
#[inline(always)]
fn copy_key(to: &mut [u8], from: &[u8]) {
    if from.len() <= 16
        && let (Some(first), Some(last)) = (from.first_chunk::<8>(), from.last_chunk::<8>())
    {
        if let Some(to) = to.first_chunk_mut::<8>() {
            *to = *first;
        }
        if let Some(to) = to.last_chunk_mut::<8>() {
            *to = *last;
        }
        return;
    }
    to.copy_from_slice(from);
}

/// Copies all slices of the value; most values have one.
#[inline(always)]
fn copy_value(to: &mut [u8], fields: &Fields<'_>) {
    let (first, rest) = to.split_at_mut(fields.value.len());
    first.copy_from_slice(fields.value);
    if !fields.rest.is_empty() {
        copy_rest(rest, fields.rest);
    }
}

#[cold]
fn copy_rest(mut to: &mut [u8], slices: &[&[u8]]) {
    for slice in slices {
        let (here, rest) = to.split_at_mut(slice.len());
        here.copy_from_slice(slice);
        to = rest;
    }
}

/// A node that is written, and not published yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Built {
    /// Node address in arena units.
    pub(crate) offset: u32,
    /// The stored key digest.
    pub(crate) digest: u64,
    /// The hashes of key and value, computed from the arena's bytes; the caller compares them with
    /// its own. `None` if the table stores no digests.
    pub(crate) parts: Option<Parts>,
    /// Whether header and key digest read back as they were written. They are compared only if the
    /// caller has a digest; otherwise this is `false`.
    pub(crate) agrees: bool,
}

/// The fields of an entry that is being inserted, in the caller's buffers.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'e> {
    /// The user key.
    pub(crate) key: &'e [u8],
    /// The value, or its first slice.
    pub(crate) value: &'e [u8],
    /// The slices of the value after the first one.
    pub(crate) rest: &'e [&'e [u8]],
    /// Length of the whole value.
    pub(crate) value_len: usize,
    /// The kind of the entry.
    pub(crate) kind: Kind,
    /// The sequence number of the entry.
    pub(crate) sequence: SequenceNumber,
    /// K of the key in the caller's buffer, from which the tower height is computed.
    pub(crate) key_part: u64,
    /// The caller's digest, if there is one.
    pub(crate) caller_digest: Option<Protected<Kvo>>,
}

impl<'e> Fields<'e> {
    /// An entry in the caller's buffers. Its key is hashed here, and a second time in the arena,
    /// for the digest.
    #[inline(always)]
    pub(crate) fn new(
        sequence: SequenceNumber,
        kind: Kind,
        key: &'e [u8],
        value: &'e [u8],
        caller_digest: Option<Protected<Kvo>>,
    ) -> Self {
        Fields::with_key_part(sequence, kind, (key, key_part(key)), value, caller_digest)
    }

    /// An entry whose key was hashed when it was copied to its present buffer.
    #[inline(always)]
    pub(crate) fn with_key_part(
        sequence: SequenceNumber,
        kind: Kind,
        (key, key_part): (&'e [u8], u64),
        value: &'e [u8],
        caller_digest: Option<Protected<Kvo>>,
    ) -> Self {
        Fields {
            key,
            value,
            rest: &[],
            value_len: value.len(),
            kind,
            sequence,
            key_part,
            caller_digest,
        }
    }

    /// An entry whose value is in several slices. `None` if the sum of their lengths overflows.
    pub(crate) fn of_slices(
        sequence: SequenceNumber,
        kind: Kind,
        key: &'e [u8],
        slices: &'e [&'e [u8]],
        caller_digest: Option<Protected<Kvo>>,
    ) -> Option<Self> {
        let value_len = slices
            .iter()
            .try_fold(0usize, |sum, slice| sum.checked_add(slice.len()))?;
        let (value, rest) = slices
            .split_first()
            .map_or((&[][..], &[][..]), |(first, rest)| (*first, rest));
        Some(Fields {
            rest,
            value_len,
            ..Fields::new(sequence, kind, key, value, caller_digest)
        })
    }

    /// The lengths word of the entry's node.
    #[inline(always)]
    pub(crate) fn lengths(&self) -> Lengths {
        Lengths::pack(self.key.len(), self.kind, self.value_len)
    }

    /// Bytes of key and value.
    #[inline(always)]
    pub(crate) fn data_bytes(&self) -> u64 {
        (self.key.len() + self.value_len) as u64
    }
}

/// The height, neighbours and spacing of a node: all that it needs besides its entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Units that are left free before its links.
    pub(crate) pad: u32,
    /// Number of its links.
    pub(crate) height: u32,
    /// Number of equal entries that it replaced.
    pub(crate) revision: u32,
    /// The target of its back link.
    pub(crate) back: u32,
    /// The target of its link at level 0, and the statement about the keys at the ends of that
    /// link.
    pub(crate) next: (u32, EndKeys),
    /// The target of its other links: the sentinel.
    pub(crate) end: u32,
}
