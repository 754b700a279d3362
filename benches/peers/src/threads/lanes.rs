//! The participants of a row: tables, each with the way in which it is called, and stores.

use std::path::PathBuf;

use paranoid_memtable::MemTable;

use super::crew::Numbers;
use super::stores::{PROTECTION, Place, Store};
use crate::rivals::{Accelerator, Candidate, Checks, Extra, Ours, Room, Table};
use crate::work::{Entries, Task, Work};

/// A participant of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// This crate's table, called by [`MemTable::put`] and its like.
    Table(Numbers),
    /// The same table, with a `Writer` for each thread.
    Writer,
    /// The same table, with a filter of whole keys.
    Filtered,
    /// Another table.
    Rival(Candidate),
    /// A set or a database, and the place of its log.
    Store(Store, Option<Place>),
}

/// The checks of tables that have them.
const CHECKS: Checks = Checks {
    protection: PROTECTION,
    on_seek: false,
    order: false,
};

impl Lane {
    /// Its name. The names of this crate's lanes begin with `ours`.
    pub fn name(self) -> String {
        match self {
            Lane::Table(Numbers::Consecutive) => "ours".into(),
            Lane::Table(Numbers::EqualModulo8) => "ours-modulo-8".into(),
            Lane::Writer => "ours-writer".into(),
            Lane::Filtered => "ours-filter".into(),
            Lane::Rival(candidate) => candidate.name(),
            Lane::Store(store, _) => store.name().into(),
        }
    }

    /// Whether this build has the lane.
    pub fn is_built(self) -> bool {
        match self {
            Lane::Rival(Candidate::RocksDb(..)) => cfg!(feature = "rocksdb"),
            Lane::Store(store, _) => !store.is_rocksdb() || cfg!(feature = "rocksdb"),
            _ => true,
        }
    }

    /// The numbers of the threads that call it.
    pub fn numbers(self) -> Numbers {
        match self {
            Lane::Table(numbers) => numbers,
            _ => Numbers::Consecutive,
        }
    }

    /// An empty table. The folders are one on a file system and one in memory.
    pub fn table(self, room: Room, folders: &[PathBuf; 2]) -> anyhow::Result<Box<dyn Table>> {
        let ours = |accelerator| Ours::new(CHECKS, accelerator, room);
        Ok(match self {
            Lane::Table(_) => Box::new(Called(ours(Accelerator::Nothing)?)),
            Lane::Writer => Box::new(ours(Accelerator::Nothing)?),
            Lane::Filtered => Box::new(ours(Accelerator::Filter)?),
            Lane::Rival(candidate) => candidate.table(room)?,
            Lane::Store(store, place) => store.open(room, place.map(|place| place.of(folders)))?,
        })
    }
}

/// The rivals of this crate's table that several threads write. `extra` selects RocksDB's Bloom
/// filter.
pub fn rivals(extra: Extra) -> [Lane; 4] {
    [
        Candidate::ArtMap,
        Candidate::Masstree,
        Candidate::Crossbeam,
        Candidate::RocksDb(CHECKS, extra),
    ]
    .map(Lane::Rival)
}

/// This crate's table without a writer: each call takes a writer shard of the table.
struct Called(Ours);

impl Called {
    fn put(table: &MemTable, sequence: u64, key: &[u8], value: &[u8]) {
        table.put(sequence, key, value).expect("room for the entry");
    }

    fn insert(&self, entries: &Entries) -> u64 {
        for (sequence, key, value) in entries.iter() {
            Called::put(self.0.table(), sequence, key, value);
        }
        entries.count() as u64
    }
}

impl Table for Called {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        let Called(ours) = self;
        Some(match work {
            Work::Insert(entries) => Box::new(|| self.insert(entries)),
            Work::InsertBatches(entries, batch) => {
                let batches = ours.batches(entries, batch);
                Box::new(move || {
                    for (sequence, batch) in &batches {
                        let written = ours.table().write_batch(*sequence, batch);
                        written.expect("room for the batch");
                    }
                    entries.count() as u64
                })
            }
            Work::Mix(entries, keys) => Box::new(|| {
                let (mut asked, share) = (keys.iter(), keys.share(entries.count()));
                entries.iter().fold(0, |hash, (sequence, key, value)| {
                    Called::put(ours.table(), sequence, key, value);
                    let asked = asked.by_ref().take(share);
                    asked.fold(hash, |hash, key| ours.get_one(key, hash))
                })
            }),
            work => return ours.prepare(work),
        })
    }

    fn counted(&self) -> Option<u64> {
        self.0.counted()
    }
}
