//! The work of each thread of a row: keys and entries, made before the time begins.
//!
//! All threads together do the same work for every number of threads, so that tables end with the
//! same entries.

use crate::rows::SEED;
use crate::work::{Entries, Keys, Presence, Ranges, Shape, Work, mix, picks, shuffled};

pub const SHAPE: Shape = Shape::plain(100);
/// Number of entries of a write batch.
pub const BATCH: usize = 32;
/// Number of keys that are overwritten all the time.
const HOT: u64 = 100;
/// Number of entries of a scan.
const SCAN: usize = 100;
/// Gets after one put: 19 of 20 operations.
const GETS_AFTER_PUT: u64 = 19;
/// Gets after one range delete: 15 of 16 operations.
const GETS_AFTER_DELETE: u64 = 15;
/// A range delete covers the first half of a group of this many neighbouring entries. The gets read
/// the second half, so that every answer is known in advance.
const STRIDE: u64 = 20;

/// The amount of work.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub inserts: u64,
    pub gets: u64,
    /// A multiple of all numbers of threads. Each count is a multiple of `unit`, so that threads
    /// have equal shares.
    pub unit: u64,
}

/// The work of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// Single puts in random order.
    Put,
    /// Batches of [`BATCH`] in random order.
    PutBatches,
    /// Each thread has every n-th key, ascending.
    PutAscending,
    /// New versions of a few keys.
    PutHot,
    /// Puts or batches, each of which is synced. One of them counts for `share` operations of the
    /// other rows.
    PutSynced {
        batch: usize,
        share: u64,
    },
    /// Half puts, half gets, in a table that begins with half of the entries.
    Half,
    /// 95 gets and 5 puts in 100 operations.
    MostlyGets,
    Get(Presence),
    Scan,
    /// A range delete, then 15 gets.
    DeleteRanges,
}

/// The work of one thread.
#[derive(Debug)]
pub enum Part {
    Put(Entries, usize),
    Mix(Entries, Keys),
    Get(Keys),
    Scan(Keys),
    DeleteRanges(Ranges),
}

impl Part {
    pub fn work(&self) -> Work<'_> {
        match self {
            Part::Put(entries, 1) => Work::Insert(entries),
            Part::Put(entries, batch) => Work::InsertBatches(entries, *batch),
            Part::Mix(entries, keys) => Work::Mix(entries, keys),
            Part::Get(keys) => Work::Get(keys),
            Part::Scan(keys) => Work::Seek(keys, SCAN - 1),
            Part::DeleteRanges(ranges) => Work::DeleteRanges(ranges),
        }
    }
}

impl Sizes {
    /// At most `count`, in equal shares for all threads.
    fn whole(self, count: u64) -> u64 {
        (count / self.unit).max(1) * self.unit
    }
}

impl Does {
    /// Number of entries, or range deletes, that all threads write together.
    fn writes(self, sizes: Sizes) -> u64 {
        match self {
            Does::Put | Does::PutAscending | Does::PutHot => sizes.whole(sizes.inserts),
            Does::PutBatches => sizes.whole(sizes.inserts / BATCH as u64) * BATCH as u64,
            Does::PutSynced { batch, share } => sizes.whole(sizes.inserts / share) * batch as u64,
            Does::Half => sizes.whole(sizes.inserts / 2),
            Does::MostlyGets => sizes.whole(sizes.gets / (1 + GETS_AFTER_PUT)),
            Does::DeleteRanges => sizes.whole(sizes.gets / 4 / (1 + GETS_AFTER_DELETE)),
            Does::Get(_) | Does::Scan => 0,
        }
    }

    /// Number of keys that all threads read together.
    fn reads(self, sizes: Sizes) -> u64 {
        match self {
            Does::Half => self.writes(sizes),
            Does::MostlyGets => self.writes(sizes) * GETS_AFTER_PUT,
            Does::DeleteRanges => self.writes(sizes) * GETS_AFTER_DELETE,
            Does::Get(_) => sizes.whole(sizes.gets),
            // A scan is as much work as a few dozen gets.
            Does::Scan => sizes.whole(sizes.gets / 40),
            Does::Put
            | Does::PutBatches
            | Does::PutAscending
            | Does::PutHot
            | Does::PutSynced { .. } => 0,
        }
    }

    /// Number of operations of a run.
    pub fn operations(self, sizes: Sizes) -> u64 {
        self.writes(sizes) + self.reads(sizes)
    }

    /// Number of entries before the run.
    fn earlier(self, sizes: Sizes) -> u64 {
        match self {
            Does::Half => self.writes(sizes),
            Does::MostlyGets | Does::Get(_) | Does::Scan | Does::DeleteRanges => sizes.inserts,
            _ => 0,
        }
    }

    /// Largest number of entries of a table at the end.
    pub fn entries(self, sizes: Sizes) -> u64 {
        let written = if self == Does::DeleteRanges {
            0
        } else {
            self.writes(sizes)
        };
        self.earlier(sizes) + written
    }

    /// Whether a run leaves tables as they are.
    pub fn only_reads(self) -> bool {
        matches!(self, Does::Get(_) | Does::Scan)
    }

    /// The numbers of all entries, beginning with the entries before the run.
    fn order(self, sizes: Sizes) -> Vec<u64> {
        match self {
            Does::PutAscending => (0..self.entries(sizes)).collect(),
            Does::PutHot => picks(HOT, self.entries(sizes) as usize, SEED),
            _ => shuffled(self.entries(sizes), SEED),
        }
    }

    /// The entries before the run.
    pub fn before(self, sizes: Sizes) -> Entries {
        let order = self.order(sizes);
        SHAPE.entries(&order[..self.earlier(sizes) as usize], 1)
    }

    /// The work of each thread.
    pub fn parts(self, sizes: Sizes, threads: usize) -> Vec<Part> {
        let order = self.order(sizes);
        let (there, new) = order.split_at(self.earlier(sizes) as usize);
        let writes = (self.writes(sizes) / threads as u64) as usize;
        let reads = (self.reads(sizes) / threads as u64) as usize;
        let asked = |thread: usize| {
            let seed = mix(SEED ^ (thread as u64) << 16 ^ threads as u64) >> 32;
            picks(there.len() as u64, reads, seed)
        };
        let part = |thread: usize| {
            let first = 1 + (there.len() + thread * writes) as u64;
            let entries = || match self {
                Does::PutAscending => {
                    let mine: Vec<u64> =
                        new.iter().skip(thread).step_by(threads).copied().collect();
                    SHAPE.entries(&mine, first)
                }
                _ => SHAPE.entries(&new[thread * writes..][..writes], first),
            };
            let present = || {
                let numbers: Vec<u64> =
                    asked(thread).iter().map(|at| there[*at as usize]).collect();
                SHAPE.keys(&numbers, Presence::Hit)
            };
            match self {
                Does::Put | Does::PutAscending | Does::PutHot => Part::Put(entries(), 1),
                Does::PutBatches => Part::Put(entries(), BATCH),
                Does::PutSynced { batch, .. } => Part::Put(entries(), batch),
                Does::Half | Does::MostlyGets => Part::Mix(entries(), present()),
                Does::Get(presence) => Part::Get(SHAPE.keys(&asked(thread), presence)),
                Does::Scan => Part::Scan(present()),
                Does::DeleteRanges => {
                    let all = self.writes(sizes) as usize;
                    let groups = picks(there.len() as u64 / STRIDE, all, SEED + 1);
                    let mine = &groups[thread * writes..][..writes];
                    Part::DeleteRanges(ranges(mine, first, &asked(thread)))
                }
            }
        };
        (0..threads).map(part).collect()
    }
}

/// Range deletes of groups of neighbouring entries, with sequence numbers from `first_sequence`,
/// and gets of entries beside the groups.
fn ranges(groups: &[u64], first_sequence: u64, asked: &[u64]) -> Ranges {
    let starts: Vec<u64> = groups.iter().map(|group| group * STRIDE).collect();
    let beside = |number: &u64| number / STRIDE * STRIDE + STRIDE / 2 + number % (STRIDE / 2);
    let asked: Vec<u64> = asked.iter().map(beside).collect();
    SHAPE.ranges(&starts, STRIDE / 2, first_sequence, Some(&asked))
}
