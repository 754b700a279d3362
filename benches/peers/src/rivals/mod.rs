//! The tables that are compared, behind one small trait.

use crate::work::{Shape, Task, Work};

mod arenaskiplist;
mod artmap;
mod btree;
mod crossbeam;
mod ours;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod skl;

/// One of the tables compared.
pub trait Table: Sync {
    /// Prepares work outside the time; `None` if this table has no such work.
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>>;
    /// Bytes that the table counts as its own; `None` if it does not count.
    fn counted(&self) -> Option<u64>;
    /// Does in advance what can be done before inserts. Does nothing by default.
    fn ahead(&self, _ahead: Ahead) {}
    /// Ends writing, as before a flush. Does nothing by default.
    fn freeze(&mut self) {}
}

/// What is done in advance of inserts, outside the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    Nothing,
    /// A background thread calls `maintain` meanwhile.
    Maintain,
    /// All space is reserved before.
    Reserve,
}

/// How large a table must be able to become, and what is known of its entries.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub shape: Shape,
    pub entries: u64,
    /// Threads that insert at the same time.
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code, reason = "only RocksDB must be told"))]
    pub threads: usize,
}

impl Room {
    /// A write buffer that holds all entries: 64 MiB or what they need.
    pub fn write_buffer(self) -> u64 {
        (64 << 20).max(self.bytes(64))
    }

    /// The size of an arena that does not grow: it touches only what it uses.
    pub fn arena(self) -> usize {
        // At most 4 GiB, the most that such arenas can address, which fits on targets of 64 bits.
        usize::try_from(self.bytes(512).clamp(16 << 20, u64::from(u32::MAX) - 64)).unwrap_or(usize::MAX)
    }

    fn bytes(self, overhead: u64) -> u64 {
        self.entries * (self.shape.key.len() as u64 + self.shape.value_len as u64 + overhead)
    }
}

/// The checks that a table makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    pub protection: u8,
    pub on_seek: bool,
    pub order: bool,
}

impl Checks {
    const fn bytes(protection: u8) -> Checks {
        Checks { protection, on_seek: false, order: false }
    }

    const fn on_seek() -> Checks {
        Checks { protection: 8, on_seek: true, order: false }
    }

    const fn order() -> Checks {
        Checks { protection: 8, on_seek: false, order: true }
    }
}

/// Options of this crate's table besides its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    Nothing,
    /// A filter of whole keys, 0.015 of the write buffer.
    Filter,
    /// No directory: searches go by the towers of the list.
    Towers,
}

/// Options of RocksDB's table besides its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "rocksdb"), expect(dead_code, reason = "candidates of RocksDB only"))]
pub enum Extra {
    Nothing,
    /// A Bloom filter of whole keys, 0.015 of the write buffer.
    Bloom,
    /// Each insert brings its digest and is verified against it.
    Promise,
    /// The batch lookup optimization of its MultiGet.
    BatchLookup,
}

/// A candidate: a table with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "rocksdb"), expect(dead_code, reason = "candidates of RocksDB only"))]
pub enum Candidate {
    Ours(Checks, Accelerator),
    RocksDb(Checks, Extra),
    Crossbeam,
    ArenaSkiplist,
    Skl,
    /// Keys and values of any length, as an engine keeps them.
    ArtMap,
    /// Keys and values whose lengths are known when the program is compiled.
    ArtMapArrays,
    BTree,
}

const OURS: [Candidate; 7] = [
    Candidate::Ours(Checks::bytes(0), Accelerator::Nothing),
    Candidate::Ours(Checks::bytes(8), Accelerator::Nothing),
    Candidate::Ours(Checks::on_seek(), Accelerator::Nothing),
    Candidate::Ours(Checks::order(), Accelerator::Nothing),
    Candidate::Ours(Checks::bytes(0), Accelerator::Filter),
    Candidate::Ours(Checks::bytes(8), Accelerator::Filter),
    Candidate::Ours(Checks::bytes(8), Accelerator::Towers),
];

#[cfg(feature = "rocksdb")]
const ROCKSDB: [Candidate; 8] = [
    Candidate::RocksDb(Checks::bytes(0), Extra::Nothing),
    Candidate::RocksDb(Checks::bytes(8), Extra::Nothing),
    Candidate::RocksDb(Checks::on_seek(), Extra::Nothing),
    Candidate::RocksDb(Checks::bytes(0), Extra::Bloom),
    Candidate::RocksDb(Checks::bytes(8), Extra::Bloom),
    Candidate::RocksDb(Checks::bytes(8), Extra::Promise),
    Candidate::RocksDb(Checks::bytes(0), Extra::BatchLookup),
    Candidate::RocksDb(Checks::bytes(8), Extra::BatchLookup),
];
#[cfg(not(feature = "rocksdb"))]
const ROCKSDB: [Candidate; 0] = [];

const RUST: [Candidate; 6] = [
    Candidate::Crossbeam,
    Candidate::ArenaSkiplist,
    Candidate::Skl,
    Candidate::ArtMap,
    Candidate::ArtMapArrays,
    Candidate::BTree,
];

impl Candidate {
    pub fn all() -> Vec<Candidate> {
        OURS.into_iter().chain(ROCKSDB).chain(RUST).collect()
    }

    pub fn name(self) -> String {
        let checked = |checks: Checks| {
            let on_seek = if checks.on_seek { "-on-seek" } else { "" };
            let order = if checks.order { "-order" } else { "" };
            format!("{}{on_seek}{order}", checks.protection)
        };
        match self {
            Candidate::Ours(checks, accelerator) => {
                let accelerator = match accelerator {
                    Accelerator::Nothing => "",
                    Accelerator::Filter => "-filter",
                    Accelerator::Towers => "-towers",
                };
                format!("ours-{}{accelerator}", checked(checks))
            }
            Candidate::RocksDb(checks, extra) => {
                let extra = match extra {
                    Extra::Nothing => "",
                    Extra::Bloom => "-bloom",
                    Extra::Promise => "-promise",
                    Extra::BatchLookup => "-batch-lookup",
                };
                format!("rocksdb-{}{extra}", checked(checks))
            }
            Candidate::Crossbeam => "crossbeam-skiplist".into(),
            Candidate::ArenaSkiplist => "arenaskiplist".into(),
            Candidate::Skl => "skl".into(),
            Candidate::ArtMap => "artmap".into(),
            Candidate::ArtMapArrays => "artmap-arrays".into(),
            Candidate::BTree => "btreemap-rwlock".into(),
        }
    }

    /// An empty table.
    pub fn table(self, room: Room) -> anyhow::Result<Box<dyn Table>> {
        Ok(match self {
            Candidate::Ours(checks, accelerator) => Box::new(ours::Ours::new(checks, accelerator, room)?),
            #[cfg(feature = "rocksdb")]
            Candidate::RocksDb(checks, extra) => Box::new(rocksdb::RocksDb::new(checks, extra, room)),
            #[cfg(not(feature = "rocksdb"))]
            Candidate::RocksDb(..) => anyhow::bail!("built without the feature `rocksdb`"),
            Candidate::Crossbeam => Box::new(crossbeam::Owning::new()),
            Candidate::ArenaSkiplist => Box::new(arenaskiplist::table()),
            Candidate::Skl => Box::new(skl::table(room)?),
            Candidate::ArtMap => artmap::of_any_length(room),
            Candidate::ArtMapArrays => artmap::of_arrays(room)?,
            Candidate::BTree => Box::new(btree::Locked::default()),
        })
    }
}
