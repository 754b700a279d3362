//! Links: tagged words that name nodes.
//!
//! ```text
//!   slot(node, level) --load--> target (32) | tag (32) --tag matches slot, level and target--> a node may stand there
//! ```
//! * LINKS-1: a link is followed only after a tag that matched its slot, its level and its target.
//! * LINKS-2: a node is complete before a link to it is published: Release here, Acquire in `load_link`.
//!
//! Any thread; lock-free. Not promised: that a link did not go back to an earlier target; `witness.rs` checks that at
//! level 0.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "words are packed of 32-bit halves")]

use crate::error::{Corruption, Place, Result};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::{bytes_of, no_node};
use crate::sync::Ordering;

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
