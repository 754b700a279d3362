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

use crate::error::{Corruption, Result};
use crate::memtable::arena::arena::View;
use crate::memtable::arena::layout::HEADER;
use crate::memtable::arena::node::no_node;
use crate::memtable::arena::words::BackWord;
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

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::Width;
    use crate::integrity::tag::Secret;
    use crate::key::Kind;
    use crate::memtable::arena::arena::{Arena, SubChunk};
    use crate::memtable::arena::encode::{Fields, Shape};
    use crate::memtable::arena::layout::{BACK_AT, HEADER, UNIT};
    use crate::memtable::arena::links::EndKeys;
    use crate::memtable::arena::words::{BackWord, Lengths, entry_end, node_units};
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
