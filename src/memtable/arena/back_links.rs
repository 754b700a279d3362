//! Back links: each is the second copy of a level-0 link, in another cache line. A link that went
//! back to an earlier value disagrees with the back link of the node that it names.
//!
//! ```text
//!   lost   a ------------------------> b     the link a -> x went back to a -> b: its tag matches
//!          x <-- y <------------------ b     b names y, and the walk from y does not meet a
//!
//!   late   p <------------------------ b     a's writer has not exchanged b's back link yet
//!          p ----------> a ----------> b     the walk from p meets a: the reader makes b name a
//! ```
//! Invariants:
//! * BACK-LINKS-1: a back link names a node before its own. It changes only by compare-and-swap,
//!   and only to a later node: the last node before its own on a walk from the node that it named.
//! * BACK-LINKS-2: a writer that linked n between a and b returns only after b's back link names n
//!   or a node after n. So, while no writer is between its two exchanges, every back link names the
//!   node just before its own.
//! * BACK-LINKS-3: a link a -> b is believed if one of these holds:
//!   - b's back link names a;
//!   - b's back link is late: a walk from the node that it names meets a;
//!   - the tag of b's back link does not match, so the back word itself is damaged.
//!
//!   Otherwise the link is lost, unless it has changed meanwhile.
//!
//! An intact link is never taken for lost. Let b's back link name h. Then h is before b and in the
//! list, and the first exchange of h's writer is visible to a thread that loads the back link with
//! Acquire. If h is after a, the link of a has changed. If h is before a, every link on the way
//! from h to a was exchanged before the reader learned of a.
//!
//! A walk that does not meet a changes nothing, so it overwrites no evidence. A walk follows the
//! order of the list, whatever earlier values its links have, so it ends.
//!
//! Not promised: while a writer is between its two exchanges, the link to its node has no second
//! copy. If that link is lost in this time, and another writer links a node in its place, one of
//! the two nodes may stay unseen. The writer that notices this at its second exchange makes the
//! back links of the two nodes name each other (`accuse`).
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
use crate::memtable::arena::node_words::BackWord;
use crate::sync::{AtomicU64, Ordering};

/// Why a link is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The node that the link names does not verify, or is out of order.
    Damage,
    /// The link names another node by now: the caller follows it again.
    Changed,
    /// The link went back to an earlier value (BACK-LINKS-3). The back link names this node.
    Lost(u32),
}

/// The result of a walk from a hint to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walked {
    /// The walk met the sought node. This is the last node before the end of the walk.
    Met(u32),
    /// The walk did not meet the sought node.
    Missed,
    /// A link on the way is damaged.
    Broken,
}

impl<'a> View<'a> {
    /// The node that the back link of `node` names, if its tag matches. It is a hint: the link of
    /// that node must confirm it.
    #[inline(always)]
    pub(crate) fn back_hint(&self, node: u32) -> Option<u32> {
        let back = self.load_back(node)?;
        self.is_tagged(node, back).then_some(back.target())
    }

    /// Loads a back word. Its target may be followed if its tag matches.
    #[inline(always)]
    pub(crate) fn load_back(&self, node: u32) -> Option<BackWord> {
        // ORDERING: Acquire pairs with the Release in `exchange_back`: the target's bytes are
        // visible after it, and so is every link that leads to the target.
        Some(BackWord(self.back_slot(node)?.load(Ordering::Acquire)))
    }

    /// Whether the tag of a back word matches its target.
    #[inline(always)]
    pub(crate) fn is_tagged(&self, node: u32, back: BackWord) -> bool {
        back.tag() == self.secret.back_tag(node, back.target())
    }

    /// Sets the back link of a node that is not published yet, and keeps the header check in the
    /// same word.
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

    /// Makes the header of a node that is not published yet disagree with its check. The node does
    /// not open until its back word is written again.
    pub(crate) fn invalidate_header(&self, node: u32) -> Result<(), Corruption> {
        let slot = self.back_slot(node).ok_or_else(|| no_node(node))?;
        // ORDERING: Relaxed: the node is not published yet.
        slot.fetch_xor(u64::MAX, Ordering::Relaxed);
        Ok(())
    }

    /// Changes the back link of `node` from `old` to `new`, without a check of its tag. `false` if
    /// it does not name `old`.
    #[inline(always)]
    pub(crate) fn renew_back(&self, node: u32, old: u32, new: u32) -> bool {
        let Some(slot) = self.back_slot(node) else {
            return false;
        };
        // ORDERING: Relaxed: the target is only compared with a node.
        let back = BackWord(slot.load(Ordering::Relaxed));
        back.target() == old && self.exchange_back(slot, node, back, new)
    }

    /// Replaces the back word `old` of `node` by one that names `target`. `false` if the word has
    /// changed since the caller loaded it.
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

    /// Decides whether the link `pred` -> `succ` is believed, although the back link of `succ`
    /// names another node (BACK-LINKS-3).
    #[cold]
    #[inline(never)]
    pub(crate) fn confirm_link(self, sentinel: u32, pred: u32, succ: u32) -> Result<(), Doubt> {
        let back = self.load_back(succ).ok_or(Doubt::Damage)?;
        let hint = back.target();
        if hint == pred || !self.is_tagged(succ, back) {
            return Ok(());
        }
        if self.sure_link(pred) != Some(succ) {
            return Err(Doubt::Changed);
        }
        match self.walk(sentinel, hint, pred, succ) {
            Walked::Met(last) => {
                // If this fails, another thread has made it name the same node or a later one.
                self.replace_back(succ, back, last);
                Ok(())
            }
            // A broken walk counts too: the line that went back may hold the link of the hint.
            Walked::Missed | Walked::Broken => Err(Doubt::Lost(hint)),
        }
    }

    /// Walks from `from` to `succ` and looks for `sought` on the way.
    fn walk(&self, sentinel: u32, from: u32, sought: u32, succ: u32) -> Walked {
        let (mut at, mut met) = (from, from == sought);
        // The bound ends a walk along links that match their tags by chance.
        for _ in 0..=self.arena().limit.taken_bytes() / HEADER as u64 {
            match self.sure_link(at) {
                None => return Walked::Broken,
                Some(next) if next == succ && met => return Walked::Met(at),
                Some(next) if next == succ || next == sentinel => return Walked::Missed,
                Some(next) => at = next,
            }
            met |= at == sought;
        }
        Walked::Broken
    }

    /// Completes the second exchange of a writer that linked `node` before `succ`, after
    /// `renew_back` found an unexpected node in the back link of `succ` (BACK-LINKS-2).
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
                // Both the node and the hint lead to `succ`, and neither leads to the other.
                Walked::Missed if self.try_link(node, 0) == Some(succ) => {
                    return self.accuse(node, hint);
                }
                // The hint is after the node, or a link is damaged.
                Walked::Missed | Walked::Broken => return,
            }
        }
    }

    /// Handles two nodes whose links name the same node, while neither node leads to the other. The
    /// back link of each is made to name the other, so that no link to either of them is believed.
    fn accuse(&self, node: u32, other: u32) {
        for (node, other) in [(node, other), (other, node)] {
            while let Some(back) = self.load_back(node)
                && !self.replace_back(node, back, other)
            {}
        }
    }
}
