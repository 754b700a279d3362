//! Counters of reads, for tables made with `statistics`.
//!
//! Off by default, because a read that counts writes a cache line. Each thread counts in a shard of its own, and
//! threads beyond the number of shards share one; sums are made on demand.
//!
//! Any thread. Not promised: that sums are taken at one instant.

#![forbid(unsafe_code)]

use crate::sync::thread_number;
use crate::sync::{AtomicU64, Ordering};

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

/// See the head of the file.
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
