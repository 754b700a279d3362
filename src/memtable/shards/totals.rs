//! Totals: counts and digest sums over all entries of a table, and one shard's counters of them.
//!
//! The freeze seals a table's totals. A full pass (flush, scrub) adds up what it meets and
//! compares. Any thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::kind::Kind;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::Verified;
use crate::sync::{AtomicU64, Ordering};

/// Sums over the writes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    /// Point entries and range tombstones, without replaced ones.
    pub(crate) entries: u64,
    /// Point tombstones among them.
    pub(crate) deletes: u64,
    /// Range tombstones among them.
    pub(crate) range_deletes: u64,
    /// Bytes of their keys and values.
    pub(crate) data_bytes: u64,
    /// Sum of their stored key digests, wrapping.
    pub(crate) digest_sum: u64,
    /// Entries that another one replaced.
    pub(crate) displaced: u64,
}

/// Whether another entry replaced this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    No,
    Yes,
}

impl Totals {
    /// The totals of one entry.
    #[inline(always)]
    pub(crate) fn of(kind: Kind, data_bytes: u64, digest_sum: u64) -> Totals {
        Totals {
            entries: 1,
            deletes: u64::from(kind.is_point_delete()),
            range_deletes: u64::from(matches!(kind, Kind::RANGE_DELETE)),
            data_bytes,
            digest_sum,
            displaced: 0,
        }
    }

    /// Compares these totals, of a full pass, with the sealed ones.
    pub(crate) fn compare(&self, sealed: &Totals) -> Result<(), Corruption> {
        let differs = sealed
            .as_array()
            .into_iter()
            .zip(self.as_array())
            .find(|(sealed, seen)| sealed != seen);
        match differs {
            Some((sealed, seen)) => Err(Corruption::new(Place::Sum, 0, sealed, seen)),
            None => Ok(()),
        }
    }

    /// Adds an entry that a full pass meets.
    pub(crate) fn meet(&mut self, entry: &Verified<'_>, hidden: Hidden, view: &View<'_>) {
        match hidden {
            Hidden::No => {
                let bytes = entry.lengths().data_len();
                *self = self.plus(&Totals::of(
                    entry.kind(),
                    bytes,
                    entry.stored_key_digest(view),
                ));
            }
            Hidden::Yes => self.displaced += 1,
        }
    }

    pub(crate) fn as_array(&self) -> [u64; 6] {
        [
            self.entries,
            self.deletes,
            self.range_deletes,
            self.data_bytes,
            self.digest_sum,
            self.displaced,
        ]
    }

    fn from_array(from: [u64; 6]) -> Self {
        let [
            entries,
            deletes,
            range_deletes,
            data_bytes,
            digest_sum,
            displaced,
        ] = from;
        Totals {
            entries,
            deletes,
            range_deletes,
            data_bytes,
            digest_sum,
            displaced,
        }
    }

    /// The number of stored point entries, replaced ones included.
    pub(crate) fn points(&self) -> u64 {
        self.entries
            .saturating_add(self.displaced)
            .saturating_sub(self.range_deletes)
    }

    /// The sum, wrapping.
    pub(crate) fn plus(&self, other: &Totals) -> Totals {
        let (left, right) = (self.as_array(), other.as_array());
        Totals::from_array(std::array::from_fn(|i| left[i].wrapping_add(right[i])))
    }

    /// These sums, with 0 in place of negative ones: a writer may count a replacement before
    /// another writer counts the replaced entry.
    pub(crate) fn not_below_zero(self) -> Totals {
        let count = |sum: u64| if sum.cast_signed() < 0 { 0 } else { sum };
        Totals {
            deletes: count(self.deletes),
            data_bytes: count(self.data_bytes),
            ..self
        }
    }

    /// The change that undoes these totals.
    pub(crate) fn negated(&self) -> Totals {
        Totals::from_array(self.as_array().map(u64::wrapping_neg))
    }
}

/// One shard's counters. Only the owner of the shard's lock writes them (SHARD-1).
pub(crate) struct Counters {
    totals: [AtomicU64; 6],
    pub(crate) smallest: AtomicU64,
    pub(crate) largest: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Counters {
            totals: std::array::from_fn(|_| AtomicU64::new(0)),
            smallest: AtomicU64::new(u64::MAX),
            largest: AtomicU64::new(0),
        }
    }

    /// Adds to the counters. The caller is their only writer.
    #[inline(always)]
    pub(crate) fn add(&self, change: &Totals, sequence: u64) {
        let [
            entries,
            deletes,
            range_deletes,
            data_bytes,
            digest_sum,
            displaced,
        ] = &self.totals;
        let bump = |counter: &AtomicU64, by: u64| {
            // ORDERING: Relaxed: only the lock's owner writes (SHARD-1); a reader that needs exact
            // sums has locked the shard after the writer left.
            let sum = counter.load(Ordering::Relaxed).wrapping_add(by);
            // ORDERING: Relaxed: only the lock's owner writes (SHARD-1).
            counter.store(sum, Ordering::Relaxed);
        };
        bump(entries, change.entries);
        bump(data_bytes, change.data_bytes);
        bump(digest_sum, change.digest_sum);
        if change.deletes | change.range_deletes | change.displaced != 0 {
            bump(deletes, change.deletes);
            bump(range_deletes, change.range_deletes);
            bump(displaced, change.displaced);
        }
        // ORDERING: Relaxed: only the lock's owner writes (SHARD-1).
        if sequence < self.smallest.load(Ordering::Relaxed) {
            // ORDERING: Relaxed: only the lock's owner writes (SHARD-1).
            self.smallest.store(sequence, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: only the lock's owner writes (SHARD-1).
        if sequence > self.largest.load(Ordering::Relaxed) {
            // ORDERING: Relaxed: only the lock's owner writes (SHARD-1).
            self.largest.store(sequence, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Totals {
        // ORDERING: Relaxed: see `add`.
        Totals::from_array(std::array::from_fn(|i| {
            self.totals[i].load(Ordering::Relaxed)
        }))
    }
}
