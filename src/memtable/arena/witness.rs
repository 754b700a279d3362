//! Back links vouch for level-0 links: a link that went back to an earlier value is found by the
//! node that it names.
//!
//! ```text
//!   lost     a -----------------------> b      the link a -> x went back to what it was before x came: its tag matches
//!            x <- y <------------------ b      b's back link does not name a, and the walk from y never meets a
//!   late     p <----------------------- b      a is linked, and its writer has not exchanged b's back link yet
//!            p ---------> a ----------> b      the walk from p meets a: whoever sees it makes b name a
//! ```
//! Invariants:
//! * WITNESS-1: a back link names a node before its own, changes by compare-and-swap only, and only
//!   to a node further on: the last one before its own on a walk from the node that it named.
//! * WITNESS-2: a writer that linked n between a and b returns only after b's back link names n or
//!   a node after n. So, while no writer is between the two exchanges, every back link names the
//!   node before its own.
//! * WITNESS-3: a link a -> b is believed if b's back link names a; if it is late; or if its tag
//!   does not match: then the back word itself is damaged. It is lost if neither a's link has
//!   changed meanwhile nor the walk meets a.
//! * WITNESS-4: evidence is not overwritten: a walk that does not meet a changes nothing. A walk
//!   goes on in order, whatever earlier values its links have, so it ends.
//!
//! Why WITNESS-3 accuses nobody wrongly: what b's back link names is before b and in the list, and
//! its writer's first exchange is visible to whoever loads the back link with Acquire. If it is
//! after a, a's link has changed. If it is before a, every link on the way to a was exchanged
//! before a became known to the reader.
//!
//! Not promised: the window. While a writer is between its two exchanges its node has no witness
//! yet: if the link to it is lost just then and another writer links a node in its place, one of
//! the two may stay unseen. What the first one finds when it comes to its second exchange is told
//! to both (`accuse`).
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of 32-bit halves"
)]

use crate::error::{Corruption, Place, Result};
use crate::integrity::digest::{DIAGNOSIS_LEN_MAX, single_bit};
use crate::key::SequenceNumber;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::layout::HEADER;
use crate::memtable::arena::node::{BackWord, Node, bytes_of, no_node};
use crate::sync::{AtomicU64, Ordering};

/// Why a link is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The node that it names does not verify, or is out of order.
    Damage,
    /// The link names another node by now, so it is to be followed again.
    Changed,
    /// The link went back to an earlier value (WITNESS-3): the back link names this node.
    Lost(u32),
}

/// The result of a walk to a node that started at a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walked {
    /// The walk met the node that was asked for. This is the last node before the end.
    Met(u32),
    /// The walk did not meet the node.
    Missed,
    /// A link on the way is damaged.
    Broken,
}

impl<'a> View<'a> {
    /// The node that `node` names as its predecessor at level 0: a hint, to be confirmed by that
    /// node's own link.
    #[inline(always)]
    pub(crate) fn back_hint(&self, node: u32) -> Option<u32> {
        let back = self.load_back(node)?;
        self.is_tagged(node, back).then_some(back.target())
    }

    /// Loads a back word whose target may be followed if its tag matches.
    #[inline(always)]
    pub(crate) fn load_back(&self, node: u32) -> Option<BackWord> {
        // ORDERING: Acquire pairs with the Release in `exchange_back`: the target's bytes are
        // visible after it, and so is every link that leads to the target.
        Some(BackWord(self.back_slot(node)?.load(Ordering::Acquire)))
    }

    /// Whether a back word's tag matches its target.
    #[inline(always)]
    pub(crate) fn is_tagged(&self, node: u32, back: BackWord) -> bool {
        back.tag() == self.secret.back_tag(node, back.target())
    }

    /// Sets the back link of a node that is not published yet, and leaves the header check beside
    /// it as it is.
    #[inline]
    pub(crate) fn set_back(&self, node: u32, target: u32) {
        let Some(slot) = self.back_slot(node) else {
            return;
        };
        // ORDERING: Relaxed: the node is not published yet.
        let check = BackWord(slot.load(Ordering::Relaxed)).header_check();
        let back = BackWord::pack(target, self.secret.back_tag(node, target), check);
        // ORDERING: Relaxed: the node is not published yet.
        slot.store(back.0, Ordering::Relaxed);
    }

    /// Makes the header of a node that is not published yet disagree with its check: the node does
    /// not open, until its back word is written again.
    pub(crate) fn spoil_header(&self, node: u32) -> Result<(), Corruption> {
        let slot = self.back_slot(node).ok_or_else(|| no_node(node))?;
        // ORDERING: Relaxed: the node is not published yet.
        slot.fetch_xor(u64::MAX, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the back link of `node` from `old` to `new`, whatever its tag. `false` if it names
    /// another node.
    #[inline(always)]
    pub(crate) fn renew_back(&self, node: u32, old: u32, new: u32) -> bool {
        let Some(slot) = self.back_slot(node) else {
            return false;
        };
        // ORDERING: Relaxed: the target is only compared with a node.
        let back = BackWord(slot.load(Ordering::Relaxed));
        back.target() == old && self.exchange_back(slot, node, back, new)
    }

    /// Replaces a back word that was read by one that names `target`. `false` if it has changed
    /// since.
    pub(crate) fn replace_back(&self, node: u32, old: BackWord, target: u32) -> bool {
        self.back_slot(node)
            .is_some_and(|slot| self.exchange_back(slot, node, old, target))
    }

    #[inline(always)]
    fn exchange_back(&self, slot: &AtomicU64, node: u32, old: BackWord, target: u32) -> bool {
        let new = BackWord::pack(
            target,
            self.secret.back_tag(node, target),
            old.header_check(),
        );
        // ORDERING: Release pairs with the Acquire in `load_back`; Relaxed on failure: the word is
        // read again.
        slot.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the back link of `succ` vouches for the link from `pred`, which names it and is not
    /// named there (WITNESS-3).
    #[cold]
    #[inline(never)]
    pub(crate) fn question(self, sentinel: u32, pred: u32, succ: u32) -> Result<(), Doubt> {
        let back = self.load_back(succ).ok_or(Doubt::Damage)?;
        let hint = back.target();
        if hint == pred || !self.is_tagged(succ, back) {
            return Ok(());
        }
        if self.try_link(pred, 0) != Some(succ) {
            return Err(Doubt::Changed);
        }
        match self.walk(sentinel, hint, pred, succ) {
            Walked::Met(last) => {
                // If this fails, another thread has made it name this node or a later one.
                self.replace_back(succ, back, last);
                Ok(())
            }
            // A line that went back may hold the link of the hinted node, too.
            Walked::Missed | Walked::Broken => Err(Doubt::Lost(hint)),
        }
    }

    /// Walks from `from` to `succ` and looks for `sought` on the way.
    fn walk(&self, sentinel: u32, from: u32, sought: u32, succ: u32) -> Walked {
        let (mut at, mut met) = (from, from == sought);
        // The bound ends walks along links that match their tags by chance.
        for _ in 0..=self.arena().room.handed_bytes() / HEADER as u64 {
            match self.try_link(at, 0) {
                None => return Walked::Broken,
                Some(next) if next == succ && met => return Walked::Met(at),
                Some(next) if next == succ || next == sentinel => return Walked::Missed,
                Some(next) => at = next,
            }
            met |= at == sought;
        }
        Walked::Broken
    }

    /// The second exchange of a writer that linked `node` before `succ`, where `renew_back` found
    /// another node than the one it had expected (WITNESS-2).
    #[cold]
    #[inline(never)]
    pub(crate) fn settle_back(self, sentinel: u32, node: u32, succ: u32) {
        while let Some(back) = self.load_back(succ) {
            let hint = back.target();
            if hint == node || !self.is_tagged(succ, back) {
                return;
            }
            match self.walk(sentinel, hint, node, succ) {
                Walked::Met(last) if self.replace_back(succ, back, last) => return,
                Walked::Met(_) => {}
                // The hint is after the node, unless nothing came between the node and `succ`: then
                // one of the two is on no way that leads here.
                Walked::Missed if self.try_link(node, 0) == Some(succ) => {
                    return self.accuse(node, hint);
                }
                Walked::Missed | Walked::Broken => return,
            }
        }
    }

    /// Handles two nodes that both lead to one node while neither leads to the other. Each is made
    /// to name the other as its predecessor, so that no link to either is believed.
    fn accuse(&self, node: u32, other: u32) {
        for (node, other) in [(node, other), (other, node)] {
            while let Some(back) = self.load_back(node)
                && !self.replace_back(node, back, other)
            {}
        }
    }
}

// Links: tagged words that name nodes.
//
// ```text
//   slot(node, level) --load--> target (32) | tag (32) --tag matches slot, level and target--> a node may stand there
// ```
// * LINKS-1: a link is followed only after a tag that matched its slot, its level and its target.
// * LINKS-2: a node is complete before a link to it is published: Release here, Acquire in
//   `load_link`.
// * LINKS-3: a level-0 link may say that the keys at both of its ends differ: its tag is XORed with
//   a constant. It says so only if its writer has verified both keys and their K differ. A link
//   names a node once, so what it says of the two never changes: a node that comes between them
//   gets two links that are written anew.
//
// Any thread; lock-free. Not promised: that a link did not go back to an earlier target;
// `witness.rs` checks that at level 0.

/// What a level-0 link says about the keys of the nodes at its ends, by what its tag is XORed with
/// (LINKS-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndKeys(u32);

impl EndKeys {
    /// They may be the same.
    pub(crate) const MAY_MATCH: EndKeys = EndKeys(0);
    /// They differ.
    pub(crate) const DIFFER: EndKeys = EndKeys(0x9a3c_65c5);
}

impl View<'_> {
    /// The slot of a node's (or head's) link.
    #[inline(always)]
    pub(crate) fn slot(node: u32, level: u32) -> u32 {
        node.wrapping_sub(1).wrapping_sub(level)
    }

    /// Loads a link that may be followed if its tag matches.
    #[inline(always)]
    fn load_link(&self, slot: u32) -> Option<u64> {
        // ORDERING: Acquire pairs with the Release in `publish_link`: the target's bytes are
        // visible after it.
        Some(self.word(slot)?.load(Ordering::Acquire))
    }

    /// Follows a link: its target, if the tag matches (NODE-4).
    #[inline(always)]
    pub(crate) fn try_link(&self, node: u32, level: u32) -> Option<u32> {
        self.try_link_with_ends(node, level)
            .map(|(target, _)| target)
    }

    /// Follows a link: its target, and what it says about the ends, if the tag matches (NODE-4).
    #[inline(always)]
    pub(crate) fn try_link_with_ends(&self, node: u32, level: u32) -> Option<(u32, EndKeys)> {
        let link = self.load_link(Self::slot(node, level))?;
        Some(((link >> 32) as u32, self.ends(node, level, link)?))
    }

    /// What a link word says about the ends, if its tag matches.
    #[inline(always)]
    fn ends(&self, node: u32, level: u32, link: u64) -> Option<EndKeys> {
        let tag = self
            .secret
            .link_tag(Self::slot(node, level), level, (link >> 32) as u32);
        let ends = EndKeys(link as u32 ^ tag);
        (ends == EndKeys::MAY_MATCH || ends == EndKeys::DIFFER).then_some(ends)
    }

    /// The target of a link, unchecked; for prefetches only.
    #[inline(always)]
    pub(crate) fn peek_link(&self, node: u32, level: u32) -> Option<u32> {
        Some((self.load_link(Self::slot(node, level))? >> 32) as u32)
    }

    /// The target of a link, or a report of what is wrong with it.
    #[inline]
    pub(crate) fn link(&self, node: u32, level: u32) -> Result<u32, Corruption> {
        self.try_link(node, level)
            .ok_or_else(|| self.link_report(node, level))
    }

    /// The report for a link that `try_link` refused.
    #[cold]
    fn link_report(self, node: u32, level: u32) -> Corruption {
        let slot = Self::slot(node, level);
        let Some(word) = self.word(slot) else {
            return no_node(slot);
        };
        // ORDERING: Relaxed: for a report.
        let link = word.load(Ordering::Relaxed);
        bad_link(
            slot,
            self.secret.link_tag(slot, level, (link >> 32) as u32),
            link as u32,
        )
    }

    /// A link word that names `target`.
    #[inline(always)]
    pub(super) fn link_word(&self, node: u32, level: u32, (target, ends): (u32, EndKeys)) -> u64 {
        let tag = self.secret.link_tag(Self::slot(node, level), level, target);
        u64::from(target) << 32 | u64::from(tag ^ ends.0)
    }

    /// Sets a link of a node that is not reachable at this level yet.
    #[inline(always)]
    pub(crate) fn set_link(&self, node: u32, level: u32, target: u32) -> Result<(), Corruption> {
        let word = self
            .word(Self::slot(node, level))
            .ok_or_else(|| no_node(node))?;
        // ORDERING: Relaxed: the node becomes reachable at this level only through a later
        // `publish_link`.
        word.store(
            self.link_word(node, level, (target, EndKeys::MAY_MATCH)),
            Ordering::Relaxed,
        );
        Ok(())
    }

    /// Changes a node's link at a level from `old` to `new`, whose key may be another one. `false`
    /// if another writer changed it first, or the link is damaged.
    #[inline(always)]
    pub(crate) fn publish_link(
        &self,
        at: (u32, u32),
        old: u32,
        new: (u32, EndKeys),
    ) -> Result<bool, Corruption> {
        let (node, level) = at;
        let word = self
            .word(Self::slot(node, level))
            .ok_or_else(|| no_node(node))?;
        // ORDERING: Relaxed: only compared.
        let from = word.load(Ordering::Relaxed);
        if (from >> 32) as u32 != old || self.ends(node, level, from).is_none() {
            return Ok(false);
        }
        let to = self.link_word(node, level, new);
        // ORDERING: Release pairs with the Acquire in `load_link`; Relaxed on failure: the caller
        // reads the link again.
        Ok(word
            .compare_exchange(from, to, Ordering::Release, Ordering::Relaxed)
            .is_ok())
    }
}

#[cold]
fn bad_link(slot: u32, expected: u32, found: u32) -> Corruption {
    let mut report = Corruption::new(
        Place::Link,
        bytes_of(slot),
        u64::from(expected),
        u64::from(found),
    );
    let differences = [EndKeys::MAY_MATCH, EndKeys::DIFFER].map(|ends| expected ^ found ^ ends.0);
    let flipped = differences
        .into_iter()
        .find(|difference| difference.is_power_of_two());
    report.flipped_bit = flipped.map(|bit| u64::from(bit.trailing_zeros()));
    report
}

// Proves which key a damaged entry had, where that is possible. Runs only when the answer would
// otherwise be `Corruption`.
//
// ```text
//   before   d1   d2   after         a gap: damaged entries between intact ones, linked by links whose tags match
//            x    y                   proved keys: a read of any other key passes them
// ```
// * DAMAGED-KEY-1: a proof is 8 bytes of digest that match. Either the key digest does, over the
//   fields and the key with at most one bit of them put back; or the value digest does, which
//   covers the key too, over the bytes as they are.
// * DAMAGED-KEY-2: there is no other proof. Several flipped bits of a key or header stay
//   `Corruption`, and so does all damage with shorter digests, or of keys that are too long to try
//   all their bits.
//
// With n bits tried, random damage is taken for another key with probability n * 2^-64. Any thread.

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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::Secret;
    use crate::integrity::digest::Width;
    use crate::key::Kind;
    use crate::memtable::arena::arena::{Arena, SubChunk};
    use crate::memtable::arena::encode::{Fields, Shape};
    use crate::memtable::arena::layout::{BACK_AT, HEADER, UNIT};
    use crate::memtable::arena::node::{BackWord, Lengths, entry_end, node_units};
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
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let arena = Arena::new(1 << 20, 1 << 24, width, secret);
        let view = arena.view().unwrap();
        let lengths = Lengths::pack(fields().key.len(), fields().kind, fields().value.len());
        let mut reservation = arena
            .carve(&mut SubChunk::default(), node_units(width, lengths, 1))
            .unwrap();
        let built = view.build(&mut reservation, &fields(), LOW).unwrap();
        test(&view, built.offset, entry_end(width, lengths) as usize);
    }

    /// Flips a bit, counted from the entry's first byte on.
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

    /// A matching header check with lengths that lead out of the chunk, the second one out of 32
    /// bits.
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
