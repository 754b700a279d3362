//! Proves which key a damaged entry had, where that is possible. Runs only when the answer would
//! otherwise be `Corruption`.
//!
//! ```text
//!   before   d1   d2   after         a gap: damaged entries between intact ones, linked by links whose tags match
//!            x    y                   proved keys: a read of any other key passes them
//! ```
//! * DAMAGED-KEY-1: a proof is 8 bytes of digest that match. Either the key digest does, over the
//!   fields and the key with at most one bit of them put back; or the value digest does, which
//!   covers the key too, over the bytes as they are.
//! * DAMAGED-KEY-2: there is no other proof. Several flipped bits of a key or header stay
//!   `Corruption`, and so does all damage with shorter digests, or of keys that are too long to try
//!   all their bits.
//!
//! With n bits tried, random damage is taken for another key with probability n * 2^-64. Any thread.

#![forbid(unsafe_code)]

use crate::integrity::flipped_bit::{DIAGNOSIS_LEN_MAX, single_bit};
use crate::key::SequenceNumber;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::Node;

/// Digest bytes that make a proof (DAMAGED-KEY-2).
const PROOF_BYTES: usize = 8;

impl View<'_> {
    /// Whether the entry at `offset` is proved to have a key and a sequence number for which
    /// `holds` is true.
    #[cold]
    pub(crate) fn proves(
        &self,
        offset: u32,
        holds: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> bool {
        if self.width.bytes < PROOF_BYTES {
            return false;
        }
        match self.try_open(offset) {
            Some(node) => self.proves_key(&node, holds),
            None => self.proves_header(offset, holds),
        }
    }

    /// Handles a header whose check matches: digests, key or value are damaged.
    fn proves_key(&self, node: &Node<'_>, holds: impl Fn(&[u8], SequenceNumber) -> bool) -> bool {
        let key = node.key();
        let holds = |key: &[u8]| holds(key, node.sequence());
        if node.has_key(key, self) || node.value_vouches(self) {
            return holds(key);
        }
        single_bit(key, |key| node.has_key(key, self) && holds(key)).is_some()
    }

    /// Handles a header whose check fails: the check is damaged, or one bit of what it covers.
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
