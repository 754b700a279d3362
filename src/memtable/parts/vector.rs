//! The `Vector` representation: a log while it is written, one sorted array once it is frozen.
//!
//! ```text
//!   shard 0   S0 <-> n1 <-> n2 <-> n3        chains in order of arrival, one a shard, linked both ways and tagged
//!   shard 1   S1 <-> n4
//!   sorted     [n2 | n4 | n1 | n3]            words: node (32) | tag (32), bound to the index
//! ```
//! * VECTOR-1: a chain has one appender at a time (its shard's lock), so its back links are exact, but for that of the
//!   sentinel while the appender is between its two exchanges. They vouch for links as in a skiplist (`witness.rs`):
//!   a chain with a link that is broken, or went back to an earlier value, is read from its other end.
//! * VECTOR-2: a position in a sorted array is its index plus one. Neighbours in the array are neighbours in the
//!   order: the array was made from all chains, and its words are bound to their indexes and to the array's length,
//!   so that what an earlier array left in the same memory is not believed.
//! * VECTOR-3: entries with equal keys and sequence numbers are adjacent and ordered by their places in the arena, so
//!   every copy has them in one order, whatever the links of its chains say. None of them is lost, and the freeze
//!   reports them.
//! * VECTOR-4: a damaged entry of a log could have any key, so every read of that log returns `Corruption`. In the
//!   array of a frozen table its place is known, so only reads around that place do.
//!
//! Readers of a mutable table make an array of their own, in O(n log n) per cursor and O(n) per get. Any thread.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "words are packed of 32-bit halves")]

use std::sync::Arc;

use crate::error::{Corruption, Place, Result};
use crate::key::{Comparator, SequenceNumber, Target};
use crate::memtable::parts::representation::{Around, END, GAP_ENTRIES_MAX, Ordered, Spot};
use crate::memtable::skiplist::arena::{SubChunk, View};
use crate::memtable::skiplist::encode::{Built, Fields, Shape};
use crate::memtable::skiplist::layout::node_units;
use crate::memtable::skiplist::list::check_claim;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::placement::new_sentinel;
use crate::memtable::skiplist::search::Gap;
use crate::memtable::skiplist::witness::Doubt;
use crate::sync::{AtomicU64, Ordering};

/// The level in the tags of an array with `len` words, which no tower has.
const fn sorted_level(len: usize) -> u32 {
    (len as u32).wrapping_add(1 << 16)
}

/// Entries in order, by their nodes.
#[derive(Debug)]
pub(crate) struct Sorted {
    words: Box<[AtomicU64]>,
    /// Damage found while the array was made: an entry whose place is not known (VECTOR-4).
    damage: Option<Corruption>,
    /// The sequence number of the first duplicate (VECTOR-3).
    pub(crate) duplicate: Option<SequenceNumber>,
}

/// Makes a new chain, and returns its sentinel.
pub(crate) fn new_chain(view: &View<'_>, sub: &mut SubChunk) -> Result<u32> {
    new_sentinel(view, sub, 1)
}

/// Appends a node that was built after `last` to a chain; the caller holds the chain's shard (VECTOR-1).
fn append(view: &View<'_>, sentinel: u32, last: u32, node: u32) -> Result<()> {
    if !view.publish_link(last, 0, sentinel, node)? {
        return Err(broken(last).into());
    }
    if !view.renew_back(sentinel, last, node) {
        view.settle_back(sentinel, node, sentinel);
    }
    Ok(())
}

/// The last node of a chain: the one that the sentinel's back link names, unless that went back to an earlier value.
fn last_of(view: &View<'_>, sentinel: u32) -> Result<u32, Corruption> {
    let mut last = view.back_hint(sentinel).ok_or_else(|| broken(sentinel))?;
    loop {
        match view.link(last, 0)? {
            next if next == sentinel => return Ok(last),
            next => last = next,
        }
    }
}

#[cold]
fn broken(node: u32) -> Corruption {
    Corruption::new(Place::Link, u64::from(node) * 8, 0, 0)
}

/// Collects every node of a chain, in order of arrival as far as damage does not hide it.
pub(crate) fn chain(view: &View<'_>, sentinel: u32, nodes: &mut Vec<u32>, damage: &mut Option<Corruption>) {
    let mut at = sentinel;
    loop {
        match view.link(at, 0) {
            Ok(next) => match view.question(sentinel, at, next) {
                Err(Doubt::Changed) => {}
                Err(_) => return from_behind(view, sentinel, at, nodes, damage, broken(at)),
                Ok(()) if next == sentinel => return,
                Ok(()) => {
                    nodes.push(next);
                    at = next;
                }
            },
            Err(report) => return from_behind(view, sentinel, at, nodes, damage, report),
        }
    }
}

/// Collects the rest of a chain whose link at `last` is broken, along back links (VECTOR-1).
#[cold]
fn from_behind(
    view: &View<'_>,
    sentinel: u32,
    last: u32,
    nodes: &mut Vec<u32>,
    damage: &mut Option<Corruption>,
    report: Corruption,
) {
    let mut at = sentinel;
    loop {
        match view.back_hint(at) {
            Some(before) if before == last => return,
            Some(before) if before != sentinel => {
                nodes.push(before);
                at = before;
            }
            _ => {
                damage.get_or_insert(report);
                return;
            }
        }
    }
}

/// Collects the nodes of a chain for a scrub, and reports every broken link and back link. Nodes between two breaks
/// cannot be reached.
pub(crate) fn chain_nodes(view: &View<'_>, sentinel: u32, find: &mut impl FnMut(Corruption)) -> Vec<u32> {
    let mut nodes = Vec::new();
    let mut damage = None;
    chain(view, sentinel, &mut nodes, &mut damage);
    for node in std::iter::once(sentinel).chain(nodes.iter().copied()) {
        match view.link(node, 0) {
            Err(report) => find(report),
            Ok(next) if view.back_hint(next).is_none() => find(broken(next)),
            Ok(next) => match view.question(sentinel, node, next) {
                Ok(()) | Err(Doubt::Changed) => {}
                Err(Doubt::Lost(_) | Doubt::Damage) => find(broken(node)),
            },
        }
    }
    nodes
}

impl Sorted {
    /// Sorts the entries of these chains; with a key, only those of that key. Every entry is verified.
    pub(crate) fn collect<C: Comparator>(
        view: &View<'_>,
        comparator: &C,
        chains: impl Iterator<Item = Result<u32, Corruption>>,
        only: Option<&[u8]>,
    ) -> Sorted {
        let (mut nodes, mut damage) = (Vec::new(), None);
        for sentinel in chains {
            match sentinel {
                Ok(0) => {}
                Ok(sentinel) => chain(view, sentinel, &mut nodes, &mut damage),
                Err(report) => damage = damage.or(Some(report)),
            }
        }
        let mut entries = Vec::with_capacity(if only.is_some() { 0 } else { nodes.len() });
        for node in nodes {
            match view.open(node).and_then(|node| node.verify(view)) {
                Ok(entry) if only.is_none_or(|key| comparator.compare(entry.key(), key).is_eq()) => {
                    entries.push(entry)
                }
                Ok(_) => {}
                Err(report) => damage = damage.or(Some(report)),
            }
        }
        entries.sort_by(|left, right| {
            let (left_node, right_node) = (left.node(), right.node());
            let sequences = right_node.sequence().cmp(&left_node.sequence());
            let versions = comparator.compare(left.key(), right.key()).then(sequences);
            versions.then(left_node.offset().cmp(&right_node.offset()))
        });
        let duplicate = entries.windows(2).find_map(|pair| {
            let [left, right] = pair else { return None };
            let sequence = Some(left.node().sequence()).filter(|known| *known == right.node().sequence());
            sequence.filter(|_| comparator.compare(left.key(), right.key()).is_eq())
        });
        let level = sorted_level(entries.len());
        let word = |(index, entry): (usize, &Verified<'_>)| {
            let (node, index) = (entry.node().offset(), u32::try_from(index).unwrap_or(u32::MAX));
            AtomicU64::new(u64::from(node) << 32 | u64::from(view.secret.link_tag(index, level, node)))
        };
        Sorted { words: entries.iter().enumerate().map(word).collect(), damage, duplicate }
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }

    /// The array's words, for the fault injector.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

/// A sorted array and what reading it needs.
#[derive(Debug)]
pub(crate) struct SortedSearch<'a, C> {
    pub(crate) view: View<'a>,
    pub(crate) comparator: &'a C,
    pub(crate) sorted: Arc<Sorted>,
}

impl<C> Clone for SortedSearch<'_, C> {
    fn clone(&self) -> Self {
        SortedSearch { view: self.view, comparator: self.comparator, sorted: Arc::clone(&self.sorted) }
    }
}

impl<'a, C: Comparator> SortedSearch<'a, C> {
    fn len(&self) -> u32 {
        u32::try_from(self.sorted.words.len()).unwrap_or(u32::MAX)
    }

    /// The node at an index, after the tag of its word.
    fn node_at(&self, index: u32) -> Result<u32, Corruption> {
        let Some(word) = self.sorted.words.get(index as usize) else { return Err(broken(index)) };
        // ORDERING: Relaxed: the array was published whole, by the `Arc` or `OnceLock` that holds it.
        let word = word.load(Ordering::Relaxed);
        let (node, stored) = ((word >> 32) as u32, word & u64::from(u32::MAX));
        let level = sorted_level(self.sorted.words.len());
        let expected = u64::from(self.view.secret.link_tag(index, level, node));
        if stored != expected {
            return Err(Corruption::new(Place::Link, u64::from(index) * 8, expected, stored));
        }
        Ok(node)
    }

    /// The verified entry at an index.
    fn at(&self, index: u32) -> Result<Verified<'a>, Corruption> {
        self.view.open(self.node_at(index)?)?.verify(&self.view)
    }

    /// Iterates over all entries in order; a damaged one is an error.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Result<Verified<'a>, Corruption>> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    /// Iterates over the nodes that verified words of the array name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).filter_map(|index| self.node_at(index).ok())
    }

    /// Number of entries between two positions.
    pub(crate) fn count(&self, from: &Target<'_>, to: &Target<'_>) -> Result<u64> {
        let index = |target| self.find(target).map(|around| around.before).map_err(|gap| gap.corruption);
        Ok(u64::from(index(to)?.saturating_sub(index(from)?)))
    }

    /// The first intact entry at or after an index, below `end`.
    fn intact(&self, index: u32, end: u32) -> Option<Spot<'a>> {
        (index..end).find_map(|index| self.at(index).ok().map(|entry| Spot { at: index + 1, entry }))
    }

    /// The gap around a damaged entry, with the nearest intact entries on both sides.
    #[cold]
    fn gap_around(&self, index: u32, corruption: Corruption) -> Gap {
        let before = (0..index).rev().find(|index| self.at(*index).is_ok()).map_or(END, |index| index + 1);
        let after = self.intact(index + 1, self.len()).map_or(END, |spot| spot.at);
        Gap { corruption, before, after }
    }
}

impl<'a, C: Comparator> Ordered<'a> for SortedSearch<'a, C> {
    fn find(&self, target: &Target<'_>) -> Result<Around<'a>, Gap> {
        if let Some(corruption) = self.sorted.damage {
            // The gap may be anywhere (VECTOR-4), so a cursor must not go on as if it showed all entries.
            return Err(Gap { corruption, before: END, after: END });
        }
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            // Damaged entries are passed to the right: the nearest intact one decides which half to search.
            match self.intact(middle, high) {
                Some(spot) if spot.entry.node().order(self.comparator, target).is_lt() => low = spot.at,
                _ => high = middle,
            }
        }
        if low == self.len() {
            return Ok(Around { before: low, after: None });
        }
        match self.at(low) {
            Ok(entry) => Ok(Around { before: low, after: Some(Spot { at: low + 1, entry }) }),
            Err(corruption) => Err(self.gap_around(low, corruption)),
        }
    }

    fn next(&self, at: u32) -> Result<Option<Spot<'a>>, Gap> {
        if at >= self.len() {
            return Ok(None);
        }
        match self.at(at) {
            Ok(entry) => Ok(Some(Spot { at: at + 1, entry })),
            Err(corruption) => Err(self.gap_around(at, corruption)),
        }
    }

    fn prev(&self, at: u32) -> Result<Option<Spot<'a>>, Gap> {
        let after = if at == END { self.len() + 1 } else { at };
        let Some(index) = after.checked_sub(2) else { return Ok(None) };
        match self.at(index) {
            Ok(entry) => Ok(Some(Spot { at: index + 1, entry })),
            Err(corruption) => Err(self.gap_around(index, corruption)),
        }
    }

    #[cold]
    fn past_others(
        &self,
        gap: &Gap,
        is_other: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> Option<Option<Spot<'a>>> {
        if self.sorted.damage.is_some() {
            return None;
        }
        // The position of the entry before an index equals that index.
        for index in gap.before..gap.before.saturating_add(GAP_ENTRIES_MAX) {
            if index >= self.len() {
                return Some(None);
            }
            if let Ok(entry) = self.at(index) {
                return Some(Some(Spot { at: index + 1, entry }));
            }
            if !self.view.proves(self.node_at(index).ok()?, &is_other) {
                return None;
            }
        }
        None
    }

    fn entry(&self, at: u32) -> Result<Verified<'a>, Corruption> {
        self.at(at.wrapping_sub(1))
    }

    fn view(&self) -> &View<'a> {
        &self.view
    }
}

/// Appends an entry to a chain: builds it, compares it with the caller's digest, links it. Returns it and its arena
/// bytes.
pub(crate) fn write(
    view: &View<'_>,
    sub: &mut SubChunk,
    sentinel: u32,
    fields: &Fields<'_>,
) -> Result<(Built, u64)> {
    let lengths = fields.lengths();
    let last = last_of(view, sentinel)?;
    let mut reservation = view.arena().carve(sub, node_units(view.width, lengths, 1))?;
    let linked = view.build(&mut reservation, fields, Shape::low(last, sentinel)).and_then(|built| {
        check_claim(view, &built, fields)?;
        append(view, sentinel, last, built.offset)?;
        Ok(built)
    });
    match linked {
        Ok(built) => Ok((built, reservation.bytes())),
        Err(error) => {
            view.arena().give_back(sub, reservation)?;
            Err(error)
        }
    }
}
