//! An index with nodes of its own in place of a list, for tests and models. The list of a table is
//! in a room above.
//!
//! ```text
//!   node   start, padded to words | hash | end, padded to words | hash
//! ```
//! As in a list, a bound is returned only if its words verify. The node keeps a copy of the bytes,
//! with which verified words are compared.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot continue panics"
)]

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use crate::comparator::KeyComparator;
use crate::error::Result;
use crate::integrity::digest::key_part;
use crate::integrity::hash::splitmix;
use crate::integrity::tag::Secret;
use crate::key::SequenceNumber;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::tombstone::fragments::Fragments;
use crate::tombstone::index::{CoveringRun, TombstoneIndex};
use crate::tombstone::query::{Asked, Question};
use crate::tombstone::segments::Segments;
use crate::tombstone::span::{Checked, End, Keys, Source, Spans, Tombstone, damage};
use crate::tombstone::tree::Tree;

/// A stored key: its words, then its hash.
struct Bound {
    bytes: Vec<u8>,
    words: Box<[AtomicU64]>,
}

impl Bound {
    fn new(bytes: &[u8]) -> Self {
        let words = (0..=bytes.len().div_ceil(8)).map(|_| AtomicU64::new(0));
        Bound {
            bytes: bytes.to_vec(),
            words: words.collect(),
        }
    }

    fn fill(&self, seed: u64) {
        let padded = self.bytes.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
        let hash = key_part(&self.bytes) ^ seed;
        for (word, value) in self.words.iter().zip(padded.chain([hash])) {
            // ORDERING: relaxed; published by the check word of the record that names the node.
            word.store(value, Ordering::Relaxed);
        }
    }

    fn verified(&self, seed: u64) -> Checked<&[u8]> {
        // ORDERING: relaxed; ordered by the acquire load of the record that names the node.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let (hash, words) = self.words.split_last().unwrap();
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| load(word).to_le_bytes())
            .take(self.bytes.len())
            .collect();
        let (expected, found) = (key_part(&bytes) ^ seed, load(hash));
        if expected == found {
            assert_eq!(bytes, self.bytes, "no damaged key has this hash");
            Ok(&self.bytes)
        } else {
            Err(damage(0, expected, found))
        }
    }
}

/// The nodes.
pub(crate) struct Nodes {
    nodes: Segments<OnceLock<[Bound; 2]>, 4>,
    next: Mutex<u32>,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Nodes {
            nodes: Segments::new(),
            next: Mutex::new(0),
        }
    }

    pub(crate) fn source<'t>(&'t self, comparator: &'t KeyComparator) -> Source<'t> {
        Source {
            comparator,
            spans: self,
        }
    }

    /// Adds a node with these bounds.
    pub(crate) fn add<'k>(&self, keys: Keys<'k>, sequence: SequenceNumber) -> Tombstone<'k> {
        let number = {
            let mut next = self.next.lock();
            *next += 1;
            *next - 1
        };
        let place = self.nodes.ensure(number, |_| OnceLock::new(), |_| ());
        let bounds = place.unwrap().get_or_init(|| keys.map(Bound::new));
        let node = name(number);
        for (end, bound) in (0..).zip(bounds) {
            bound.fill(seed(node, end));
        }
        Tombstone {
            node,
            keys,
            sequence,
        }
    }

    /// Calls `visit` for each word of a bound.
    #[cfg(not(loom))]
    pub(crate) fn each_word(&self, node: u32, end: End, visit: &mut dyn FnMut(&AtomicU64)) {
        let bounds = self
            .nodes
            .get(node - FIRST_NAME)
            .and_then(OnceLock::get)
            .unwrap();
        bounds[end as usize].words.iter().for_each(visit);
    }

    /// Reports every damaged bound, as a scrub of a list does.
    #[cfg(not(loom))]
    pub(crate) fn scrub(&self, report: &mut dyn FnMut(crate::error::Corruption)) {
        let stored = self
            .nodes
            .items()
            .filter(|(_, place)| place.get().is_some());
        for (node, end) in
            stored.flat_map(|(number, _)| [(number, End::Start), (number, End::Stop)])
        {
            self.bound(name(node), end)
                .err()
                .into_iter()
                .for_each(&mut *report);
        }
    }

    /// Calls `visit` for the words of every bound.
    #[cfg(not(loom))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        let bounds = self.nodes.items().filter_map(|(_, place)| place.get());
        for bound in bounds.flatten() {
            visit("tombstone keys", &bound.words);
        }
    }
}

impl Spans for Nodes {
    fn bound(&self, node: u32, end: End) -> Checked<&[u8]> {
        let number = node.wrapping_sub(FIRST_NAME);
        let bounds = self.nodes.get(number).and_then(OnceLock::get);
        let bounds = bounds.ok_or_else(|| damage(u64::from(node), 0, 0))?;
        bounds[end as usize].verified(seed(node, end as u64))
    }

    fn key_bytes(&self, node: u32) -> Checked<u64> {
        let [start, end] = [End::Start, End::Stop].map(|end| self.bound(node, end));
        Ok(start?.len() as u64 + end?.len() as u64)
    }
}

/// The first name is not 0. Names of some nodes differ in one bit, so that a damaged name leads to
/// another node.
const FIRST_NAME: u32 = 5;

/// The name of a node, by its number.
fn name(number: u32) -> u32 {
    number + FIRST_NAME
}

fn seed(node: u32, end: u64) -> u64 {
    splitmix(u64::from(node) << 1 | end)
}

/// An index whose tombstones are in [`Nodes`].
pub(crate) struct Index {
    pub(crate) live: TombstoneIndex,
    pub(crate) nodes: Nodes,
}

impl Deref for Index {
    type Target = TombstoneIndex;

    fn deref(&self) -> &TombstoneIndex {
        &self.live
    }
}

impl DerefMut for Index {
    fn deref_mut(&mut self) -> &mut TombstoneIndex {
        &mut self.live
    }
}

impl Index {
    pub(crate) fn new(secret: Secret) -> Self {
        Index {
            live: TombstoneIndex::new(secret),
            nodes: Nodes::new(),
        }
    }

    pub(crate) fn insert(
        &self,
        comparator: &KeyComparator,
        start: &[u8],
        end: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        let tombstone = self.nodes.add([start, end], sequence);
        self.live
            .insert(self.nodes.source(comparator), &tombstone)
            .map(drop)
    }

    pub(crate) fn append(
        &self,
        comparator: &KeyComparator,
        start: &[u8],
        end: &[u8],
        sequence: SequenceNumber,
    ) -> Result<&Tree> {
        let tombstone = self.nodes.add([start, end], sequence);
        self.live
            .append(self.nodes.source(comparator), &tombstone)
            .map(|(tree, _)| tree)
    }

    pub(crate) fn max_covering(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
    ) -> Checked<Option<SequenceNumber>> {
        self.live
            .max_covering(self.nodes.source(comparator), question)
    }

    pub(crate) fn ask(
        &self,
        comparator: &KeyComparator,
        snapshot: SequenceNumber,
        asked: &mut [Asked<'_>],
    ) -> Checked<()> {
        self.live
            .ask(self.nodes.source(comparator), snapshot, asked)
    }

    pub(crate) fn covering_run(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
        run: &mut CoveringRun,
    ) -> Checked<Option<SequenceNumber>> {
        self.live
            .covering_run(self.nodes.source(comparator), question, run)
    }

    pub(crate) fn merge_all(&self, comparator: &KeyComparator) {
        self.live.merge_all(self.nodes.source(comparator));
    }

    pub(crate) fn finish(&self, comparator: &KeyComparator) {
        self.live.finish(self.nodes.source(comparator));
    }

    pub(crate) fn fragments(
        &self,
        comparator: &KeyComparator,
        snapshot: SequenceNumber,
    ) -> Checked<Option<Fragments>> {
        self.live.fragments(self.nodes.source(comparator), snapshot)
    }
}
