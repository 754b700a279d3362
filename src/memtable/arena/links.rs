//! Links: tagged words that name nodes.
//!
//! ```text
//!   slot(node, level) --load--> target (32) | tag (32) --tag matches slot, level and target--> a node may stand there
//! ```
//! * LINKS-1: a link is followed only after a tag that matched its slot, its level and its target.
//! * LINKS-2: a node is complete before a link to it is published: Release here, Acquire in
//!   `load_link`.
//! * LINKS-3: a level-0 link may say that the keys at both of its ends differ: its tag is XORed with
//!   a constant. It says so only if its writer has verified both keys and their K differ. A link
//!   names a node once, so what it says of the two never changes: a node that comes between them
//!   gets two links that are written anew.
//!
//! Any thread; lock-free. Not promised: that a link did not go back to an earlier target;
//! `witness.rs` checks that at level 0.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "words are packed of 32-bit halves"
)]

use crate::error::{Corruption, Place, Result};
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::{bytes_of, no_node};
use crate::sync::Ordering;

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
