//! Fault injection for the tombstone index: lists all stored words and flips any bit of them,
//! without unsafe code.
//!
//! The numbers of regions do not change while no thread inserts or merges. Regions include padding
//! and words that are not in use yet; a flip in these must be harmless.
//!
//! Any thread may inject faults, but no other thread should write at the same time: flips are meant
//! for memory at rest.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::tests::fixture::Index;

/// A run of stored words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultRegion {
    pub(crate) name: &'static str,
    pub(crate) bits: u64,
    /// Address of its first word.
    pub(crate) address: usize,
}

impl Index {
    /// Calls `visit` for every region of stored words: first those of the index, then the nodes'.
    fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        self.live.regions(visit);
        self.nodes.regions(visit);
    }

    /// All regions of stored words.
    pub(crate) fn fault_regions(&self) -> Vec<FaultRegion> {
        let mut regions = Vec::new();
        self.regions(&mut |name, words| {
            regions.push(FaultRegion {
                name,
                bits: 64 * words.len() as u64,
                address: words.as_ptr().addr(),
            });
        });
        regions
    }

    /// Makes published cell number `number` read as unpublished, and returns the name of its
    /// content. `None` if there are fewer cells.
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

    /// Flips one bit of a region; a second flip repairs it. Does nothing if there is no such bit.
    pub(crate) fn flip(&self, region: usize, bit: u64) {
        self.change(region, bit / 64, |word| word ^ 1 << (bit % 64));
    }

    /// Replaces one word of a region and returns the old value. Does nothing if there is no such
    /// word.
    pub(crate) fn overwrite(&self, region: usize, word: u64, value: u64) -> Option<u64> {
        self.change(region, word, |_| value)
    }

    fn change(&self, region: usize, word: u64, new: impl Fn(u64) -> u64) -> Option<u64> {
        let mut regions: Vec<&[AtomicU64]> = Vec::new();
        self.regions(&mut |_, words| regions.push(words));
        let word = regions.get(region)?.get(usize::try_from(word).ok()?)?;
        // ORDERING: relaxed; no other thread is at work.
        let old = word.load(Ordering::Relaxed);
        // ORDERING: relaxed; no other thread is at work.
        word.store(new(old), Ordering::Relaxed);
        Some(old)
    }
}
