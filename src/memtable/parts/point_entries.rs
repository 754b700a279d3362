//! The point entries of a table, in order: one list, or a log that is sorted.
//!
//! ```text
//!   SkipList                 the list
//!   Vector, while written    chains of the writer shards -> a sorted copy a reader
//!   Vector, frozen           one sorted array, made once
//! ```
//! Any thread. A reader of a mutable `Vector` table sorts in O(n log n).

#![forbid(unsafe_code)]

use std::sync::{Arc, OnceLock};

use crate::error::{Corruption, Result};
use crate::key::{Comparator, KeyOrder, SequenceNumber};
use crate::memtable::options::{Directory, MemTableOptions, Representation};
use crate::memtable::parts::ground::Ground;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::vector::{Sorted, SortedSearch};
use crate::memtable::parts::writer_shards::{Hidden, WriterShards};
use crate::memtable::side_structure::SideStructure;
#[cfg(feature = "fault-injection")]
use crate::memtable::side_structure::{FaultWords, VisitWords};
use crate::memtable::skiplist::arena::{Arena, View};
use crate::memtable::skiplist::control_block::Head;
use crate::memtable::skiplist::list::{DuplicatePolicy, List};
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::upkeep::Upkeep;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct PointEntries {
    pub(crate) list: List,
    upkeep: Upkeep,
    /// The sorted array of a frozen `Vector` table.
    sorted: OnceLock<Arc<Sorted>>,
    representation: Representation,
    duplicates: DuplicatePolicy,
}

impl PointEntries {
    pub(crate) fn new(arena: &Arena, options: &MemTableOptions, order: KeyOrder) -> Result<Self> {
        let checks = (options.paranoid.seek_checks(), options.paranoid.neighbour_checks());
        let list = List::new(arena, Head::Points, checks.0, checks.1)?;
        Ok(PointEntries {
            list: match options.keeps_directory(order)? {
                Directory::On => list.with_directory(arena)?,
                _ => list,
            },
            upkeep: Upkeep::default(),
            sorted: OnceLock::new(),
            representation: options.representation,
            duplicates: options.duplicates,
        })
    }

    /// A search of the list.
    #[inline(always)]
    pub(crate) fn search<'t, C: Comparator>(
        &self,
        ground: Ground<'t, C>,
    ) -> Result<Search<'t, C>, Corruption> {
        Ok(self.list.search(Head::Points, ground.arena.view()?, ground.comparator))
    }

    /// Looks at some pages of the directory, if there is one, and renews it if it is broken.
    pub(crate) fn maintain<C: Comparator>(&self, ground: Ground<'_, C>, shards: &WriterShards) {
        if let Ok(search) = self.search(ground) {
            self.upkeep.look_on(&search, &mut || shards.wait_out_writers());
        }
    }

    /// The entries in order. A mutable `Vector` table sorts a copy: of all entries, or of those of one key.
    #[inline(always)]
    pub(crate) fn order<'t, C: Comparator>(
        &self,
        ground: Ground<'t, C>,
        shards: &WriterShards,
        only: Option<&[u8]>,
    ) -> Result<Order<'t, C>, Corruption> {
        match self.representation {
            Representation::SkipList => self.search(ground).map(Order::List),
            Representation::Vector => self.sorted_order(ground, shards, only).map(Order::Sorted),
        }
    }

    #[cold]
    fn sorted_order<'t, C: Comparator>(
        &self,
        ground: Ground<'t, C>,
        shards: &WriterShards,
        only: Option<&[u8]>,
    ) -> Result<SortedSearch<'t, C>, Corruption> {
        let sorted = match self.sorted.get() {
            Some(sorted) => Arc::clone(sorted),
            None => Arc::new(sort(&ground.arena.view()?, ground.comparator, shards, only)),
        };
        search_sorted(ground, sorted)
    }

    /// Sorts a frozen `Vector` table, once. If a second thread freezes it meanwhile, or a comparator does, both sort
    /// and one result is kept.
    pub(crate) fn sort_once<C: Comparator>(&self, ground: Ground<'_, C>, shards: &WriterShards) {
        if self.representation == Representation::Vector
            && self.sorted.get().is_none()
            && let Ok(view) = ground.arena.view()
        {
            let _ = self.sorted.set(Arc::new(sort(&view, ground.comparator, shards, None)));
        }
    }

    /// The array of a frozen `Vector` table.
    pub(crate) fn sorted(&self) -> Option<&Arc<Sorted>> {
        self.sorted.get()
    }

    /// Whether an entry takes the place of an equal one.
    pub(crate) fn replaces(&self) -> bool {
        self.duplicates == DuplicatePolicy::Replace
    }

    /// Whether the entry before replaced this one. Duplicates of a `Vector` table replace nothing, so all of them
    /// count.
    pub(crate) fn hidden_by<C: Comparator>(
        &self,
        comparator: &C,
        newer: Option<(&[u8], SequenceNumber)>,
        entry: &Verified<'_>,
    ) -> Hidden {
        let hides = |newer| self.replaces() && is_same_version(comparator, newer, entry);
        if newer.is_some_and(hides) { Hidden::Yes } else { Hidden::No }
    }
}

impl SideStructure for PointEntries {
    /// The sorted array.
    fn heap_bytes(&self) -> u64 {
        self.sorted.get().map_or(0, |sorted| sorted.bytes())
    }

    /// The sorted array of a `Vector` table: a word an entry.
    fn freeze_bytes(&self, points: u64) -> u64 {
        let is_due = self.representation == Representation::Vector && self.sorted.get().is_none();
        if is_due { points * size_of::<u64>() as u64 } else { 0 }
    }

    #[cfg(feature = "fault-injection")]
    fn fault_words(&self, _arena: &Arena, visit: &mut VisitWords<'_>) -> Result<(), Corruption> {
        let words = self.sorted.get().into_iter().flat_map(|sorted| sorted.words());
        words.for_each(|word| visit(FaultWords::Sorted, std::slice::from_ref(word)));
        Ok(())
    }
}

/// A search in a sorted copy.
pub(crate) fn search_sorted<C: Comparator>(
    ground: Ground<'_, C>,
    sorted: Arc<Sorted>,
) -> Result<SortedSearch<'_, C>, Corruption> {
    Ok(SortedSearch { view: ground.arena.view()?, comparator: ground.comparator, sorted })
}

/// Whether two entries have the same key and sequence number.
pub(crate) fn is_same_version<C: Comparator>(
    comparator: &C,
    (key, sequence): (&[u8], SequenceNumber),
    entry: &Verified<'_>,
) -> bool {
    sequence == entry.node().sequence() && comparator.compare(key, entry.key()).is_eq()
}

fn sort<C: Comparator>(
    view: &View<'_>,
    comparator: &C,
    shards: &WriterShards,
    only: Option<&[u8]>,
) -> Sorted {
    Sorted::collect(view, comparator, shards.chains().into_iter(), only)
}
