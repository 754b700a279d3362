//! Breaks the tombstone index on purpose: names every stored word and flips any bit of it, without unsafe.
//!
//! Regions are numbered in an order that stays the same while nobody inserts or merges. Padding and words that are not
//! in use yet are in them too; flipping those must be harmless.
//!
//! Who may call what: any thread; a flip while others write is not a model of damage at rest.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::index::live::LiveIndex;

/// A run of stored words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultRegion {
    pub(crate) name: &'static str,
    pub(crate) bits: u64,
    /// Where its first word stands.
    pub(crate) address: usize,
}

impl LiveIndex {
    /// Every region of stored words.
    pub(crate) fn fault_regions(&self) -> Vec<FaultRegion> {
        let mut regions = Vec::new();
        self.regions(&mut |name, words| {
            regions.push(FaultRegion { name, bits: 64 * words.len() as u64, address: words.as_ptr().addr() });
        });
        regions
    }

    /// Makes one of the cells that were published read as if it were not, and says what it held. Nothing if there are
    /// not so many.
    #[cfg(test)]
    pub(crate) fn lose_cell(&mut self, number: usize) -> Option<&'static str> {
        let (mut left, mut lost) = (number, None);
        self.cells(&mut |name, lose| match (left, lost) {
            (0, None) => {
                lose();
                lost = Some(name);
            }
            _ => left = left.saturating_sub(1),
        });
        lost
    }

    /// Flips one bit of one region; flipping it again repairs it. Without effect outside.
    pub(crate) fn flip(&self, region: usize, bit: u64) {
        self.change(region, bit / 64, |word| word ^ 1 << (bit % 64));
    }

    /// Replaces one word of one region and returns what it was. Without effect outside.
    pub(crate) fn overwrite(&self, region: usize, word: u64, value: u64) -> Option<u64> {
        self.change(region, word, |_| value)
    }

    fn change(&self, region: usize, word: u64, new: impl Fn(u64) -> u64) -> Option<u64> {
        let mut regions: Vec<&[AtomicU64]> = Vec::new();
        self.regions(&mut |_, words| regions.push(words));
        let word = regions.get(region)?.get(usize::try_from(word).ok()?)?;
        // ORDERING: relaxed; nobody else is at work.
        let old = word.load(Ordering::Relaxed);
        // ORDERING: relaxed; nobody else is at work.
        word.store(new(old), Ordering::Relaxed);
        Some(old)
    }
}
