//! Which key a damaged entry had, where that can be proved. Cold: asked once an answer would be `Corruption`.
//!
//! ```text
//!   before   d1   d2   behind         a hole: damaged entries between intact ones, linked by links whose tags match
//!            x    y                   proved keys: a read of any other key passes them
//! ```
//! * J1: a proof is 8 bytes of digest that match. Either the key digest does, over the fields and the key with at most
//!   one bit of them put back; or the value digest does, which covers the key too, over the bytes as they are.
//! * J2: nothing else is taken for a proof: several flipped bits of a key or of a header stay `Corruption`. So does all
//!   damage where digests are shorter, and keys that are too long to try all their bits.
//!
//! What it misses: with n bits tried, damage passes for another key with probability n * 2^-64. Any thread.

#![forbid(unsafe_code)]

use super::arena::View;
use super::node::Node;
use crate::integrity::diagnosis::{DIAGNOSIS_LEN_MAX, single_bit};
use crate::invariants::{Bug, planted};

/// Digest bytes that make a proof (J2).
const PROOF_BYTES: usize = 8;

impl View<'_> {
    /// Whether the entry at `offset` is proved to have a key for which `holds` is true.
    #[cold]
    pub(crate) fn proves(&self, offset: u32, holds: impl Fn(&[u8]) -> bool) -> bool {
        if self.width.bytes() < PROOF_BYTES {
            return false;
        }
        match self.try_open(offset) {
            Some(node) => self.proves_key(&node, holds),
            None => self.proves_header(offset, holds),
        }
    }

    /// The header's check matched: digests, key or value are damaged.
    fn proves_key(&self, node: &Node<'_>, holds: impl Fn(&[u8]) -> bool) -> bool {
        let key = node.key();
        if node.has_key(key, self) || node.value_vouches(self) || planted(Bug::HurdleUnproved) {
            return holds(key);
        }
        key.len() <= DIAGNOSIS_LEN_MAX
            && single_bit(key, |key| node.has_key(key, self) && holds(key)).is_some()
    }

    /// The header's check did not match: it is damaged itself, or one bit of what it covers is.
    fn proves_header(&self, offset: u32, holds: impl Fn(&[u8]) -> bool) -> bool {
        let Some((fields, _)) = self.raw_header(offset) else { return false };
        let explains = |fields: &[u8]| {
            let Some(node) = fields.try_into().ok().and_then(|fields| self.open_as(offset, fields)) else {
                return false;
            };
            let key = node.key();
            key.len() <= DIAGNOSIS_LEN_MAX && node.has_key(key, self) && holds(key)
        };
        explains(&fields) || single_bit(&fields, explains).is_some()
    }
}
