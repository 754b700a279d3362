//! Parked nodes: verified nodes that a cursor keeps without a borrow of the arena.
//!
//! ```text
//!   Verified --new--> Parked: place, lengths, sequence, K --verify--> the key still hashes to K
//!                     (in the caller's memory)
//! ```
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::integrity::digest::key_part;
use crate::key::SequenceNumber;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::{Verified, bytes_of};
use crate::memtable::arena::node_words::Lengths;

/// A verified node, without a borrow of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parked {
    /// Offset (32 bits) | revision (32 bits).
    place: u64,
    lengths: Lengths,
    sequence: SequenceNumber,
    key_part: u64,
}

impl Parked {
    /// Parks a verified node.
    #[inline(always)]
    pub(crate) fn new(entry: &Verified<'_>) -> Self {
        let Verified { node, key_part } = *entry;
        Parked {
            place: node.place,
            lengths: node.lengths,
            sequence: node.sequence(),
            key_part,
        }
    }

    /// Opens the node again, within bounds (NODE-1), and verifies that its key has the hash that it
    /// had when the node was parked. All other fields come from the caller's memory. If the key has
    /// another hash, the healed copy of the same entry answers.
    #[inline(never)]
    pub(crate) fn verify<'a>(&self, view: &View<'a>) -> Result<Verified<'a>, Corruption> {
        let Parked {
            place,
            lengths,
            sequence,
            key_part: parked,
        } = *self;
        let at = view.locate(self.offset());
        match at.and_then(|at| view.node_of(at, place, lengths, sequence)) {
            Some(node) if view.width.bytes == 0 || key_part(node.key()) == parked => Ok(Verified {
                node,
                key_part: parked,
            }),
            _ => self.healed(view).ok_or_else(|| self.report(view)),
        }
    }

    /// The healed copy of the entry that was parked.
    #[cold]
    fn healed<'a>(&self, view: &View<'a>) -> Option<Verified<'a>> {
        let healed = view.healed(self.offset());
        healed.filter(|healed| Parked::new(healed) == *self)
    }

    /// The report for a node that `verify` refused.
    #[cold]
    fn report(&self, view: &View<'_>) -> Corruption {
        let plain = Corruption::new(Place::Entry, bytes_of(self.offset()), self.key_part, 0);
        let found = view.open(self.offset()).and_then(|node| node.verify(view));
        found.err().unwrap_or(plain.with_sequence(self.sequence))
    }

    /// The node's address, in arena units.
    #[inline(always)]
    pub(crate) fn offset(&self) -> u32 {
        (self.place >> 32) as u32
    }

    /// Whether the keys have different hashes, and therefore differ. If `false`, the caller must
    /// compare the keys.
    #[inline(always)]
    pub(crate) fn has_other_key(&self, entry: &Verified<'_>) -> bool {
        self.key_part != entry.key_part
    }

    /// The sequence number.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}
