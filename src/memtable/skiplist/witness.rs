//! Back links vouch for level-0 links: a link that went back to an earlier value is found by the node that it names.
//!
//! ```text
//!   lost     a -----------------------> b      the link a -> x went back to what it was before x came: its tag matches
//!            x <- y <------------------ b      b's back link does not name a, and the walk from y never meets a
//!   late     p <----------------------- b      a is linked, and its writer has not exchanged b's back link yet
//!            p ---------> a ----------> b      the walk from p meets a: whoever sees it makes b name a
//! ```
//! Invariants:
//! * WITNESS-1: a back link names a node before its own, changes by compare-and-swap only, and only to a node further
//!   on: the last one before its own on a walk from the node that it named.
//! * WITNESS-2: a writer that linked n between a and b returns only after b's back link names n or a node after n.
//!   So, while no writer is between the two exchanges, every back link names the node before its own.
//! * WITNESS-3: a link a -> b is believed if b's back link names a; if it is late; or if its tag does not match: then
//!   the back word itself is damaged. It is lost if neither a's link has changed meanwhile nor the walk meets a.
//! * WITNESS-4: evidence is not overwritten: a walk that does not meet a changes nothing. A walk goes on in order,
//!   whatever earlier values its links have, so it ends.
//!
//! Why WITNESS-3 accuses nobody wrongly: what b's back link names is before b and in the list, and its writer's first
//! exchange is visible to whoever loads the back link with Acquire. If it is after a, a's link has changed. If it is
//! before a, every link on the way to a was exchanged before a became known to the reader.
//!
//! Not promised: the window. While a writer is between its two exchanges its node has no witness yet: if the link to
//! it is lost just then and another writer links a node in its place, one of the two may stay unseen. What the first
//! one finds when it comes to its second exchange is told to both (`accuse`).
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "words are packed of 32-bit halves")]

use crate::error::{Corruption, Place, Result};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::layout::{BACK_UNITS, BackWord, HEADER};
use crate::memtable::skiplist::node::{bytes_of, no_node};
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
    /// The back word of a node.
    #[inline(always)]
    fn back_slot(&self, node: u32) -> Option<&'a AtomicU64> {
        self.word(node.wrapping_add(BACK_UNITS))
    }

    /// The target of a back link whose tag was not compared; to be compared with a node, not followed.
    #[inline(always)]
    pub(super) fn back_target(&self, node: u32) -> Option<u32> {
        self.back_word(node).map(BackWord::target)
    }

    /// The node that `node` names as its predecessor at level 0: a hint, to be confirmed by that node's own link.
    #[inline]
    pub(crate) fn back_hint(&self, node: u32) -> Option<u32> {
        let back = self.load_back(node)?;
        self.is_tagged(node, back).then_some(back.target())
    }

    /// Loads a back word whose target may be followed if its tag matches.
    #[inline]
    pub(super) fn load_back(&self, node: u32) -> Option<BackWord> {
        // ORDERING: Acquire pairs with the Release in `exchange_back`: the target's bytes are visible after it, and
        // so is every link that leads to the target.
        Some(BackWord(self.back_slot(node)?.load(Ordering::Acquire)))
    }

    /// Whether a back word's tag matches its target.
    #[inline]
    pub(super) fn is_tagged(&self, node: u32, back: BackWord) -> bool {
        back.tag() == self.secret.back_tag(node, back.target())
    }

    /// Sets the back link of a node that is not published yet, and leaves the header check beside it as it is.
    #[inline]
    pub(crate) fn set_back(&self, node: u32, target: u32) {
        let Some(slot) = self.back_slot(node) else { return };
        // ORDERING: Relaxed: the node is not published yet.
        let check = BackWord(slot.load(Ordering::Relaxed)).header_check();
        let back = BackWord::pack(target, self.secret.back_tag(node, target), check);
        // ORDERING: Relaxed: the node is not published yet.
        slot.store(back.0, Ordering::Relaxed);
    }

    /// Changes the back link of `node` from `old` to `new`, whatever its tag. `false` if it names another node.
    #[inline(always)]
    pub(crate) fn renew_back(&self, node: u32, old: u32, new: u32) -> bool {
        let Some(slot) = self.back_slot(node) else { return false };
        // ORDERING: Relaxed: the target is only compared with a node.
        let back = BackWord(slot.load(Ordering::Relaxed));
        back.target() == old && self.exchange_back(slot, node, back, new)
    }

    /// Replaces a back word that was read by one that names `target`. `false` if it has changed since.
    pub(super) fn replace_back(&self, node: u32, old: BackWord, target: u32) -> bool {
        self.back_slot(node).is_some_and(|slot| self.exchange_back(slot, node, old, target))
    }

    #[inline(always)]
    fn exchange_back(&self, slot: &AtomicU64, node: u32, old: BackWord, target: u32) -> bool {
        let new = BackWord::pack(target, self.secret.back_tag(node, target), old.header_check());
        // ORDERING: Release pairs with the Acquire in `load_back`; Relaxed on failure: the word is read again.
        slot.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Whether the back link of `succ` vouches for the link from `pred`, which names it and is not named there
    /// (WITNESS-3).
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

    /// The second exchange of a writer that linked `node` before `succ`, where `renew_back` found another node than
    /// the one it had expected (WITNESS-2).
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
                // The hint is after the node, unless nothing came between the node and `succ`: then one of the two
                // is on no way that leads here.
                Walked::Missed if self.try_link(node, 0) == Some(succ) => return self.accuse(node, hint),
                Walked::Missed | Walked::Broken => return,
            }
        }
    }

    /// Handles two nodes that both lead to one node while neither leads to the other. Each is made to name the other
    /// as its predecessor, so that no link to either is believed.
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
// * LINKS-2: a node is complete before a link to it is published: Release here, Acquire in `load_link`.
//
// Any thread; lock-free. Not promised: that a link did not go back to an earlier target; `witness.rs` checks that at
// level 0.

impl View<'_> {
    /// The slot of a node's (or head's) link.
    #[inline(always)]
    pub(crate) fn slot(node: u32, level: u32) -> u32 {
        node.wrapping_sub(1).wrapping_sub(level)
    }

    /// Follows a link: its target, if the tag matches (NODE-4).
    #[inline(always)]
    pub(crate) fn try_link(&self, node: u32, level: u32) -> Option<u32> {
        let slot = Self::slot(node, level);
        let link = self.load_link(slot)?;
        let target = (link >> 32) as u32;
        let tag = self.secret.link_tag(slot, level, target);
        (link as u32 == tag).then_some(target)
    }

    /// The target of a link, unchecked; for prefetches only.
    #[inline(always)]
    pub(crate) fn peek_link(&self, node: u32, level: u32) -> Option<u32> {
        Some((self.load_link(Self::slot(node, level))? >> 32) as u32)
    }

    /// The target of a link, or a report of what is wrong with it.
    #[inline]
    pub(crate) fn link(&self, node: u32, level: u32) -> Result<u32, Corruption> {
        self.try_link(node, level).ok_or_else(|| self.link_report(node, level))
    }

    /// The report for a link that `try_link` refused.
    #[cold]
    fn link_report(self, node: u32, level: u32) -> Corruption {
        let slot = Self::slot(node, level);
        let Some(word) = self.word(slot) else { return no_node(slot) };
        // ORDERING: Relaxed: for a report.
        let link = word.load(Ordering::Relaxed);
        bad_link(slot, self.secret.link_tag(slot, level, (link >> 32) as u32), link as u32)
    }

    /// A link word that names `target`.
    #[inline(always)]
    pub(super) fn link_word(&self, node: u32, level: u32, target: u32) -> u64 {
        u64::from(target) << 32 | u64::from(self.secret.link_tag(Self::slot(node, level), level, target))
    }

    /// Sets a link of a node that is not reachable at this level yet.
    #[inline(always)]
    pub(crate) fn set_link(&self, node: u32, level: u32, target: u32) -> Result<(), Corruption> {
        let word = self.word(Self::slot(node, level)).ok_or_else(|| no_node(node))?;
        // ORDERING: Relaxed: the node becomes reachable at this level only through a later `publish_link`.
        word.store(self.link_word(node, level, target), Ordering::Relaxed);
        Ok(())
    }

    /// Changes the link of `node` at `level` from `old` to `new`. `false` if another writer changed it first, or the
    /// link is damaged.
    #[inline(always)]
    pub(crate) fn publish_link(&self, node: u32, level: u32, old: u32, new: u32) -> Result<bool, Corruption> {
        let word = self.word(Self::slot(node, level)).ok_or_else(|| no_node(node))?;
        let (from, to) = (self.link_word(node, level, old), self.link_word(node, level, new));
        // ORDERING: Release pairs with the Acquire in `load_link`; Relaxed on failure: the caller reads the link again.
        let release = Ordering::Release;
        Ok(word.compare_exchange(from, to, release, Ordering::Relaxed).is_ok())
    }
}

#[cold]
fn bad_link(slot: u32, expected: u32, found: u32) -> Corruption {
    let mut report = Corruption::new(Place::Link, bytes_of(slot), u64::from(expected), u64::from(found));
    if (expected ^ found).is_power_of_two() {
        report.flipped_bit = Some(u64::from((expected ^ found).trailing_zeros()));
    }
    report
}
