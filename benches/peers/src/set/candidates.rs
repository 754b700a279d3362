//! What is compared: plain tables, a set, and RocksDB's database.

use paranoid_memtable::{Lookup, MemTable, MemTableOptions, ParanoidOptions, WriteBatch};
use paranoid_set::{MemTableSet, SetOptions, View};

use crate::rivals::Room;
use crate::work::{Entries, Keys, fold};

/// One slice of work of one thread.
#[derive(Debug, Clone, Copy)]
pub enum Work<'w> {
    /// In batches of so many entries, which are made before the time begins.
    Put(&'w Entries, usize),
    Get(&'w Keys),
}

/// Work that is ready to be timed. It is dropped after the time has ended.
pub type Task<'a> = Box<dyn FnMut() -> u64 + 'a>;

/// What takes entries and answers gets.
pub trait Store: Sync {
    fn task<'a>(&'a self, work: Work<'a>) -> Task<'a>;
    /// Puts entries into a table of their own, which newer ones follow.
    fn fill(&self, older: &Entries, newer: &Entries);
}

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `Writer::put`.
    Table,
    /// `Writer::write_batch`.
    TableBatch,
    Set,
    /// A set of which all gets use one view.
    View,
    RocksDb,
}

/// A store with its digests, and how many threads put entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub kind: Kind,
    pub protection: u8,
    pub threads: usize,
}

const fn candidate(kind: Kind, protection: u8, threads: usize) -> Candidate {
    Candidate { kind, protection, threads }
}

pub const ALL: &[Candidate] = &[
    candidate(Kind::Table, 8, 1),
    candidate(Kind::TableBatch, 8, 1),
    candidate(Kind::Set, 8, 1),
    candidate(Kind::View, 8, 1),
    candidate(Kind::Table, 0, 1),
    candidate(Kind::Set, 0, 1),
    candidate(Kind::Table, 8, 2),
    candidate(Kind::Set, 8, 2),
    #[cfg(feature = "rocksdb")]
    candidate(Kind::RocksDb, 8, 1),
    #[cfg(feature = "rocksdb")]
    candidate(Kind::RocksDb, 0, 1),
    #[cfg(feature = "rocksdb")]
    candidate(Kind::RocksDb, 8, 2),
];

impl Candidate {
    pub fn name(self) -> String {
        let kind = match self.kind {
            Kind::Table => "table",
            Kind::TableBatch => "table-batch",
            Kind::Set => "set",
            Kind::View => "view",
            Kind::RocksDb => "rocksdb",
        };
        let threads = if self.threads == 1 { "" } else { "-two-threads" };
        format!("{kind}-{}{threads}", self.protection)
    }

    /// An empty store.
    pub fn store(self, room: Room) -> anyhow::Result<Box<dyn Store>> {
        let paranoid = ParanoidOptions::builder().protection_bytes(self.protection).build()?;
        let options = MemTableOptions::builder().paranoid(paranoid).write_buffer_size(room.write_buffer());
        let options = options.build()?;
        Ok(match self.kind {
            Kind::Table | Kind::TableBatch => {
                let tables = [MemTable::new(options.clone())?, MemTable::new(options)?];
                Box::new(Tables { tables, candidate: self })
            }
            Kind::Set | Kind::View => {
                let set = MemTableSet::open(SetOptions::builder().table(options).build()?, ())?;
                Box::new(Set { set, candidate: self })
            }
            Kind::RocksDb => rocksdb(self, room)?,
        })
    }

    /// Batches with digests if the tables have them.
    pub fn batches(self, entries: &Entries, batch: usize) -> Vec<WriteBatch> {
        let mut made: Vec<WriteBatch> = Vec::new();
        for (at, (_, key, value)) in entries.iter().enumerate() {
            if at % batch == 0 {
                made.push(WriteBatch::with_protection(self.protection).expect("0 or 8"));
            }
            if let Some(batch) = made.last_mut() {
                batch.put(key, value).expect("room for the entry");
            }
        }
        made
    }
}

/// Two tables, the newer one first.
struct Tables {
    tables: [MemTable; 2],
    candidate: Candidate,
}

impl Store for Tables {
    fn task<'a>(&'a self, work: Work<'a>) -> Task<'a> {
        let [newer, older] = &self.tables;
        match work {
            Work::Put(entries, batch) if self.candidate.kind == Kind::TableBatch => {
                let batches = self.candidate.batches(entries, batch);
                let first = entries.sequences.first().copied().unwrap_or(1);
                let mut writer = newer.writer();
                Box::new(move || {
                    let mut sequence = first;
                    for batch in &batches {
                        writer.write_batch(sequence, batch).expect("room for the batch");
                        sequence += batch.len() as u64;
                    }
                    sequence - first
                })
            }
            Work::Put(entries, _) => {
                let mut writer = newer.writer();
                Box::new(move || {
                    for (sequence, key, value) in entries.iter() {
                        writer.put(sequence, key, value).expect("room for the entry");
                    }
                    entries.count() as u64
                })
            }
            Work::Get(keys) => Box::new(move || {
                keys.iter().fold(0, |hash, key| {
                    let found = |table: &'a MemTable| table.get(key, u64::MAX).expect("intact memory");
                    let lookup = match found(newer) {
                        Lookup::NotFound => found(older),
                        lookup => lookup,
                    };
                    if let Lookup::Value(value) = lookup { fold(hash, &value) } else { hash + 1 }
                })
            }),
        }
    }

    fn fill(&self, older: &Entries, newer: &Entries) {
        for (table, entries) in self.tables.iter().zip([newer, older]) {
            for (sequence, key, value) in entries.iter() {
                table.put(sequence, key, value).expect("room for the entry");
            }
        }
    }
}

struct Set {
    set: MemTableSet<()>,
    candidate: Candidate,
}

impl Set {
    fn write(&self, batches: &[WriteBatch]) -> u64 {
        batches.iter().fold(0, |count, batch| {
            self.set.write(batch).expect("room for the batch");
            count + batch.len() as u64
        })
    }
}

impl Store for Set {
    fn task<'a>(&'a self, work: Work<'a>) -> Task<'a> {
        match work {
            Work::Put(entries, batch) => {
                let batches = self.candidate.batches(entries, batch);
                Box::new(move || self.write(&batches))
            }
            Work::Get(keys) if self.candidate.kind == Kind::View => {
                let view = self.set.view();
                Box::new(move || keys.iter().fold(0, |hash, key| get(&view, key, hash)))
            }
            Work::Get(keys) => Box::new(|| keys.iter().fold(0, |hash, key| get(&self.set.view(), key, hash))),
        }
    }

    fn fill(&self, older: &Entries, newer: &Entries) {
        self.write(&self.candidate.batches(older, 32));
        self.set.switch().expect("room for a table");
        self.write(&self.candidate.batches(newer, 32));
    }
}

fn get(view: &View<()>, key: &[u8], hash: u64) -> u64 {
    match view.get(key).expect("intact memory") {
        Lookup::Value(value) => fold(hash, &value),
        _ => hash + 1,
    }
}

#[cfg(not(feature = "rocksdb"))]
fn rocksdb(_: Candidate, _: Room) -> anyhow::Result<Box<dyn Store>> {
    anyhow::bail!("RocksDB is not built")
}

#[cfg(feature = "rocksdb")]
fn rocksdb(candidate: Candidate, room: Room) -> anyhow::Result<Box<dyn Store>> {
    let name = format!("paranoid-peers-{}-{}", std::process::id(), candidate.name());
    let folder = std::env::temp_dir().join(name);
    Ok(Box::new(crate::shim::write_path::Database::open(&folder, room.write_buffer(), candidate.protection)?))
}

#[cfg(feature = "rocksdb")]
impl Store for crate::shim::write_path::Database {
    fn task<'a>(&'a self, work: Work<'a>) -> Task<'a> {
        let Work::Put(entries, batch) = work else { unreachable!("only its writes are compared") };
        let batches = self.batches(entries, batch);
        Box::new(move || {
            self.write(&batches);
            entries.count() as u64
        })
    }

    fn fill(&self, _: &Entries, _: &Entries) {
        unreachable!("only its writes are compared")
    }
}
