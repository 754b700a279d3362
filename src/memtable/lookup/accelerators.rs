//! The accelerators of a table (its filters) and its counters. They are made once, empty. A writer adds a key before its
//! entry is published, and a reader asks before it searches.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Words;
use crate::integrity::digest::key_part;
use crate::integrity::tag::Secret;
use crate::memtable::lookup::filter::{Answer, Bits, Filter, KEYS, PREFIXES};
use crate::memtable::options::{MemTableOptions, PrefixExtractor};
use crate::memtable::side_structure::{Report, Settle, SideStructure};
use crate::memtable::skiplist::arena::{Arena, SubChunk, View};
use crate::sync::{AtomicU64, Ordering, thread_number};

#[cfg(feature = "fault-injection")]
use crate::memtable::side_structure::VisitWords;
/// The filters of a table and its counters.
#[derive(Debug, Default)]
pub(crate) struct Accelerators {
    keys: Option<Filter<KEYS>>,
    prefixes: Option<(Filter<PREFIXES>, Arc<dyn PrefixExtractor>)>,
    pub(crate) statistics: Option<Statistics>,
}

/// Whether a table has accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortcuts {
    None,
    Some,
}

impl Accelerators {
    /// Empty accelerators of the sizes that the options name.
    pub(crate) fn new(options: &MemTableOptions, arena: &Arena) -> Result<Accelerators> {
        let mut sub = SubChunk::default();
        let keys = options.key_filter_bytes.map(|bytes| Filter::new(arena, &mut sub, bytes)).transpose()?;
        let prefixes =
            options.prefix_filter_bytes.map(|bytes| Filter::new(arena, &mut sub, bytes)).transpose()?;
        let prefixes = prefixes.zip(options.prefix_extractor.clone());
        let statistics = options.counts_reads().then(Statistics::new);
        Ok(Accelerators { keys, prefixes, statistics })
    }

    #[inline(always)]
    pub(crate) fn shortcuts(&self) -> Shortcuts {
        if self.keys.is_none() && self.prefixes.is_none() {
            return Shortcuts::None;
        }
        Shortcuts::Some
    }

    /// Adds key and prefix of a node that is not published yet to the filters.
    #[inline]
    pub(crate) fn announce(&self, view: &View<'_>, key: &[u8], key_part: u64) -> Result<(), Corruption> {
        if let Some(filter) = &self.keys {
            filter.add(view, key_part)?;
        }
        if let Some((filter, extractor)) = &self.prefixes
            && let Some(prefix) = extractor.prefix(key)
        {
            filter.add(view, hash_of(prefix))?;
        }
        Ok(())
    }

    /// The bits of this key in the filter that point reads use: that of whole keys, if there is one.
    #[inline(always)]
    pub(crate) fn bits(&self, secret: Secret, key: &[u8], key_part: u64) -> Option<Bits> {
        if let Some(filter) = &self.keys {
            return filter.bits(secret, key_part);
        }
        let (filter, extractor) = self.prefixes.as_ref()?;
        filter.bits(secret, hash_of(extractor.prefix(key)?))
    }

    /// Whether entries may have keys that start with these bytes.
    pub(crate) fn may_start_with(&self, view: &View<'_>, start: &[u8]) -> Answer {
        let Some((filter, extractor)) = &self.prefixes else { return Answer::Perhaps };
        match extractor.shared_prefix(start) {
            Some(prefix) => filter.ask(view, hash_of(prefix)),
            None => Answer::Perhaps,
        }
    }

    /// The structures that exist.
    fn structures(&self) -> impl Iterator<Item = &dyn SideStructure> {
        let keys = self.keys.iter().map(|filter| filter as &dyn SideStructure);
        keys.chain(self.prefixes.iter().map(|(filter, _)| filter as &dyn SideStructure))
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event, count: u64) {
        if let Some(statistics) = &self.statistics {
            statistics.add(event, count);
        }
    }
}

impl SideStructure for Accelerators {
    fn each_control(&self, secret: Secret, visit: &mut dyn FnMut(Words<'_>)) {
        self.structures().for_each(|structure| structure.each_control(secret, visit));
    }

    /// Filters are in the arena; counters are not.
    fn heap_bytes(&self) -> u64 {
        self.statistics.as_ref().map_or(0, Statistics::bytes)
    }

    fn scrub(
        &self,
        arena: &Arena,
        settle: &mut Settle<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), Corruption> {
        self.structures().try_for_each(|structure| structure.scrub(arena, settle, report))
    }

    #[cfg(feature = "fault-injection")]
    fn fault_words(&self, arena: &Arena, visit: &mut VisitWords<'_>) -> Result<(), Corruption> {
        self.structures().try_for_each(|structure| structure.fault_words(arena, visit))
    }
}

/// K of a key, from which filters start.
#[inline(always)]
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    key_part(key)
}

// Counters of reads, for tables made with `statistics`.
//
// Off by default, because a read that counts writes a cache line. Each thread counts in a shard of its own, and
// threads beyond the number of shards share one; sums are made on demand.
//
// Any thread. Not promised: that sums are taken at one instant.

/// Number of shards of counters.
const SHARDS: usize = 16;

macro_rules! events {
    ($($(#[$note:meta])* $event:ident => $field:ident,)*) => {
        /// What is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Event { $($(#[$note])* $event,)* }

        /// Counters of reads since the table was made. All zero unless the table was made with
        /// [`statistics`](crate::MemTableOptionsBuilder::statistics).
        ///
        /// ```
        /// use paranoid_memtable::{MemTable, MemTableOptions};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::new(MemTableOptions::builder().statistics(true).build()?)?;
        /// table.put(1, b"k", b"v")?;
        /// table.get(b"k", 1)?;
        /// assert_eq!((table.stats().gets, table.stats().hits), (1, 1));
        /// # Ok(()) }
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Stats { $($(#[$note])* pub $field: u64,)* }

        const EVENTS: usize = [$(Event::$event),*].len();

        impl Stats {
            fn from_array(counts: [u64; EVENTS]) -> Self {
                Stats { $($field: counts[Event::$event as usize],)* }
            }
        }
    };
}

events! {
    /// Point lookups, those of `multi_get` included.
    Get => gets,
    /// Lookups that found an entry of the key, a point tombstone included.
    Hit => hits,
    /// Lookups and prefix seeks that a filter answered with "absent".
    FilterNegative => filter_negatives,
    /// Lookups that a filter let pass although no visible entry has the key.
    FilterFalsePositive => filter_false_positives,
    /// Lookups that searched the list.
    ListSearch => list_searches,
    /// Keys asked by `multi_get`.
    MultiGetKey => multi_get_keys,
    /// Nodes that list searches looked at.
    NodeVisited => nodes_visited,
    /// Digests that lookups verified: of keys on the way and of values handed out.
    DigestVerified => digests_verified,
    /// Entries that cursors and ranges looked at and did not show: too new, deleted or covered, older versions of a key, or
    /// replaced by others. What a search leads past is not looked at.
    Hidden => hidden_entries,
}

#[derive(Debug)]
#[repr(align(128))]
struct CounterShard([AtomicU64; EVENTS]);

/// Counters of reads, in shards.
#[derive(Debug)]
pub(crate) struct Statistics {
    shards: Box<[CounterShard]>,
}

impl Statistics {
    pub(crate) fn new() -> Self {
        let shard = |_| CounterShard(std::array::from_fn(|_| AtomicU64::new(0)));
        Statistics { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Counts.
    #[inline]
    pub(crate) fn add(&self, event: Event, count: u64) {
        let shard = &self.shards[thread_number() % SHARDS];
        // ORDERING: Relaxed: a count only.
        shard.0[event as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// The sums over all shards.
    pub(crate) fn sums(&self) -> Stats {
        // ORDERING: Relaxed: counts only.
        let sum = |event: usize| self.shards.iter().map(|shard| shard.0[event].load(Ordering::Relaxed)).sum();
        Stats::from_array(std::array::from_fn(sum))
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.shards) as u64
    }
}
