//! Links: tagged words that name nodes.
//!
//! ```text
//!   slot(node, level) --load--> target (32) | tag (32) --tag matches--> the target may be opened
//! ```
//! * LINKS-1: links and back links are atomics. One is followed only after its tag matched its
//!   slot, its level and its target.
//! * LINKS-2: a node is complete before a link to it is published: `publish_link` stores with
//!   Release, `load_link` loads with Acquire.
//! * LINKS-3: a level-0 link may state that the keys at its two ends differ: a constant is XORed
//!   into its tag. Its writer sets the constant only if it has verified both keys and their hashes
//!   K differ; in a table without digests, only if it has compared both keys as they are read. A
//!   link names each target only once, so the statement never changes: an insert between the two
//!   nodes writes two new links.
//! * LINKS-4: a level-0 link in which one bit flipped is exchanged for the word that differs in this
//!   bit, whose tag matches, and whose target's back link names the node. Both statements have tags
//!   that differ in 16 bits, so a flip does not turn one into the other.
//!
//! Any thread; lock-free. Not promised: that a link did not go back to an earlier target;
//! `back_links.rs` checks that at level 0.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of 32-bit halves"
)]

use std::cmp::Ordering as Order;

use crate::error::{Corruption, Place, Result};
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::{bytes_of, no_node};
use crate::memtable::heals::Healed;
use crate::sync::Ordering;

/// The statement of a level-0 link about the keys at its two ends: the constant that is XORed into
/// its tag (LINKS-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndKeys(u32);

impl EndKeys {
    /// The keys may be equal.
    pub(crate) const MAY_MATCH: EndKeys = EndKeys(0);
    /// The keys differ.
    pub(crate) const DIFFER: EndKeys = EndKeys(0x9a3c_65c5);

    /// What a comparison of both keys, or of their hashes, shows.
    #[inline(always)]
    pub(crate) fn of_order(order: Order) -> EndKeys {
        if order.is_ne() {
            EndKeys::DIFFER
        } else {
            EndKeys::MAY_MATCH
        }
    }
}

impl View<'_> {
    /// The slot of a link, which is the unit that holds it. `node` is a node or a sentinel.
    #[inline(always)]
    pub(crate) fn slot(node: u32, level: u32) -> u32 {
        node.wrapping_sub(1).wrapping_sub(level)
    }

    /// Loads a link, which may be followed if its tag matches.
    #[inline(always)]
    fn load_link(&self, slot: u32) -> Option<u64> {
        // ORDERING: Acquire pairs with the Release in `publish_link`: the target's bytes are
        // visible after it.
        Some(self.word(slot)?.load(Ordering::Acquire))
    }

    /// The target of a link, if its tag matches (LINKS-1).
    #[inline(always)]
    pub(crate) fn try_link(&self, node: u32, level: u32) -> Option<u32> {
        self.try_link_with_ends(node, level)
            .map(|(target, _)| target)
    }

    /// The target of a link, and its statement about the keys at its ends, if its tag matches
    /// (LINKS-1).
    #[inline(always)]
    pub(crate) fn try_link_with_ends(&self, node: u32, level: u32) -> Option<(u32, EndKeys)> {
        let link = self.load_link(Self::slot(node, level))?;
        Some(((link >> 32) as u32, self.ends(node, level, link)?))
    }

    /// The statement of a link word about the keys at its ends, if its tag matches.
    #[inline(always)]
    fn ends(&self, node: u32, level: u32, link: u64) -> Option<EndKeys> {
        let tag = self
            .secret
            .link_tag(Self::slot(node, level), level, (link >> 32) as u32);
        let ends = EndKeys(link as u32 ^ tag);
        (ends == EndKeys::MAY_MATCH || ends == EndKeys::DIFFER).then_some(ends)
    }

    /// The target of a level-0 link, as stored or as it was before one of its bits flipped.
    #[inline(always)]
    pub(crate) fn sure_link(&self, node: u32) -> Option<u32> {
        let link = self.try_link(node, 0);
        link.or_else(|| self.healed_link(node))
    }

    /// The target that a damaged level-0 link had before one of its bits flipped. The word is
    /// exchanged for the right one. If its bit is stuck, this call answers all the same, as does the
    /// next one. `None`: no bit explains the damage, or the table may heal no further place.
    #[cold]
    #[inline(never)]
    pub(crate) fn healed_link(self, node: u32) -> Option<u32> {
        let slot = Self::slot(node, 0);
        let (word, found) = (self.word(slot)?, self.load_link(slot)?);
        let right = self.right_link(node, found)?;
        // ORDERING: Release pairs with the Acquire in `load_link`: what the writer of the link
        // published is visible here, and so to its readers. Relaxed on failure: the link has
        // changed, and its earlier target is a right answer too.
        let _ = word.compare_exchange(found, right, Ordering::Release, Ordering::Relaxed);
        Some((right >> 32) as u32)
    }

    /// The word that `found`, a damaged level-0 link of `node`, was before one of its bits flipped:
    /// its tag matches, and the back link of its target names `node`. Admitted and told.
    #[cold]
    #[inline(never)]
    fn right_link(self, node: u32, found: u64) -> Option<u64> {
        if !self.arena().heals().is_on() || self.ends(node, 0, found).is_some() {
            return None;
        }
        let is_right = |link: &u64| {
            self.ends(node, 0, *link).is_some() && self.back_hint((link >> 32) as u32) == Some(node)
        };
        let right = (0..64).map(|bit| found ^ 1 << bit).find(is_right)?;
        let address = std::ptr::from_ref(self.word(Self::slot(node, 0))?).addr();
        let place = Healed::of_word(Place::Link, address, found, right)?;
        self.arena().heals().admits(place).then_some(right)
    }

    /// The target of a link, without a check of its tag. For prefetches only.
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

    /// The word of a link that names `target`.
    #[inline(always)]
    pub(super) fn link_word(&self, node: u32, level: u32, (target, ends): (u32, EndKeys)) -> u64 {
        let tag = self.secret.link_tag(Self::slot(node, level), level, target);
        u64::from(target) << 32 | u64::from(tag ^ ends.0)
    }

    /// Sets the link of a node that is not reachable at this level yet.
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

    /// Changes the link at (node, level) from target `old` to `new`, a target and a statement about
    /// the keys. `false` if another writer changed the link first, or if it is damaged.
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
        // ORDERING: Relaxed: the word is only compared.
        let from = word.load(Ordering::Relaxed);
        let names_old = |link: u64| (link >> 32) as u32 == old;
        // A bit that is stuck damages the word again after it was healed.
        let is_right = names_old(from) && self.ends(node, level, from).is_some()
            || level == 0 && self.right_link(node, from).is_some_and(names_old);
        if !is_right {
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
