//! Writes the bytes of a node that is not published yet.
//!
//! * U1: digests and header check are computed from the arena's own bytes, not from the caller's.
//! * U2: only the owner of the reservation can come here (A3), and publishing ends its ownership.
//!
//! One thread at a time has a reservation.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "offsets and heights are bounded by the address limit")]

use super::arena::{Reservation, View};
use super::layout::{BACK_AT, BackWord, HEADER, Lengths, REVISION_AT, SEQUENCE_AT, UNIT, entry_end, key_at};
use super::node::no_node;
use crate::error::Result;
use crate::integrity::protection::{Placed, key_part};
use crate::key::{Kind, SequenceNumber};
use crate::sync::Ordering;

impl View<'_> {
    /// Writes header, digests, key and value of an unpublished node. The links are set apart.
    pub(crate) fn build(
        &self,
        reservation: &mut Reservation,
        height: u32,
        fields: &Fields<'_>,
    ) -> Result<Built> {
        let offset = reservation.start() + height;
        let tower = height as usize * UNIT;
        let lengths = Lengths::pack(fields.key.len(), fields.kind, fields.value.len());
        let end = tower + entry_end(self.width, lengths);
        let bytes = self.plain(reservation, tower, end)?;
        bytes[..SEQUENCE_AT].copy_from_slice(&lengths.0.to_ne_bytes());
        bytes[SEQUENCE_AT..BACK_AT].copy_from_slice(&fields.sequence.to_ne_bytes());
        bytes[REVISION_AT..HEADER].copy_from_slice(&fields.revision.to_ne_bytes());
        let key_at = key_at(self.width);
        bytes[key_at..key_at + fields.key.len()].copy_from_slice(fields.key);
        bytes[key_at + fields.key.len()..].copy_from_slice(fields.value);
        // U1: from the arena's own bytes.
        let (head, body) = bytes.split_at_mut(key_at);
        let (key, value) = body.split_at(fields.key.len());
        let placed = Placed {
            offset,
            lengths: lengths.0,
            kind: fields.kind,
            sequence: fields.sequence,
            revision: fields.revision,
        };
        let digest = self.seal(head, &placed, key, value);
        let check = self.secret.header_check(offset, lengths.0, fields.sequence, fields.revision);
        let back = self.word(offset + (BACK_AT / UNIT) as u32).ok_or_else(|| no_node(offset))?;
        // ORDERING: Relaxed: the node is not published yet.
        back.store(BackWord::pack(0, self.secret.back_tag(offset, 0), check).0, Ordering::Relaxed);
        Ok(Built { offset, digest })
    }

    /// Writes both digests; returns the stored bits of the first.
    #[inline]
    fn seal(&self, head: &mut [u8], placed: &Placed, key: &[u8], value: &[u8]) -> u64 {
        let width = self.width.bytes();
        if width == 0 {
            return 0;
        }
        let (key_part, nonce) = (key_part(key), self.secret.nonce());
        let first = placed.key_digest(key_part, nonce) & self.width.mask();
        let second = placed.value_digest(value, key_part, nonce);
        head[HEADER..HEADER + width].copy_from_slice(&first.to_le_bytes()[..width]);
        head[HEADER + width..].copy_from_slice(&second.to_le_bytes()[..width]);
        first
    }
}

/// A node that was written and is not published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Built {
    /// Node address in arena units.
    pub(crate) offset: u32,
    /// The stored key digest.
    pub(crate) digest: u64,
}

/// What an entry consists of, on its way into a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'e> {
    /// The user key.
    pub(crate) key: &'e [u8],
    /// The value.
    pub(crate) value: &'e [u8],
    /// What the entry means.
    pub(crate) kind: Kind,
    /// Its sequence number.
    pub(crate) sequence: SequenceNumber,
    /// How many equals it displaced.
    pub(crate) revision: u32,
}
