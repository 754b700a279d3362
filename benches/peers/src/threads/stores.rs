//! Sets and databases: this repository's set, RocksDB's `DB` and fjall's, each with or without a
//! log.
//!
//! Every batch is made within the time, just before it is written. It uses the memory of the batch
//! before it if the store allows that.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paranoid_memtable::{Lookup, MemTableOptions, WriteBatch};
use paranoid_set::{Durability, FileJournal, MemTableSet, SetOptions};

use crate::rivals::{Room, Table};
use crate::work::{Entries, Keys, Task, Work, fold};

/// A folder that is removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty folder, named after its user.
    pub fn new(parent: &Path, name: &str) -> anyhow::Result<Folder> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("paranoid-peers-{}-{name}-{number}", std::process::id());
        let folder = parent.join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(Folder(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The rest of a folder for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Protection bytes of the stores that have them.
pub const PROTECTION: u8 = 8;

/// The place of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    File,
    /// A file system in memory, whose sync costs nothing.
    Memory,
}

impl Place {
    pub fn of(self, folders: &[PathBuf; 2]) -> &Path {
        match self {
            Place::File => &folders[0],
            Place::Memory => &folders[1],
        }
    }
}

/// The state of the log for which a write waits. Only a set has `Queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged {
    Off,
    Queued,
    /// The system has the write, without a sync.
    Written,
    Synced,
}

/// A store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Set(Logged),
    RocksDb(Logged),
    /// fjall always writes a log.
    Fjall(Logged),
}

impl Store {
    pub fn name(self) -> &'static str {
        match self {
            Store::Set(_) => "ours",
            Store::RocksDb(_) => "rocksdb-write",
            Store::Fjall(_) => "fjall",
        }
    }

    pub fn is_rocksdb(self) -> bool {
        matches!(self, Store::RocksDb(_))
    }

    /// Opens an empty store, with its log below this folder, or without a log.
    pub fn open(self, room: Room, folder: Option<&Path>) -> anyhow::Result<Box<dyn Table>> {
        match self {
            Store::Set(logged) => Ok(Box::new(Set::open(logged, room, folder)?)),
            Store::RocksDb(logged) => rocksdb::open(logged, room, folder),
            Store::Fjall(logged) => {
                let folder = Folder::new(folder.unwrap_or(&std::env::temp_dir()), self.name())?;
                Ok(Box::new(Fjall::open(logged, room, folder)?))
            }
        }
    }
}

/// This repository's set, of tables with 8 protection bytes.
struct Set {
    set: MemTableSet<()>,
    durability: Durability,
    /// Whether `put` has this durability by default.
    is_default: bool,
    _folder: Option<Folder>,
}

impl Set {
    fn open(logged: Logged, room: Room, parent: Option<&Path>) -> anyhow::Result<Set> {
        let table = MemTableOptions::builder().write_buffer_size(room.write_buffer());
        let mut options = SetOptions::builder().table(table.build()?);
        let durability = match logged {
            Logged::Off => Durability::None,
            Logged::Queued => Durability::Queued,
            Logged::Written => Durability::Buffered,
            Logged::Synced => Durability::Synced,
        };
        let folder = match parent.filter(|_| logged != Logged::Off) {
            Some(parent) => {
                let folder = Folder::new(parent, "set")?;
                let (journal, _) = FileJournal::open(folder.path(), 0)?;
                options = options.journal(Arc::new(journal));
                Some(folder)
            }
            None => None,
        };
        Ok(Set {
            set: MemTableSet::open(options.build()?, ())?,
            durability,
            is_default: matches!(logged, Logged::Off | Logged::Written),
            _folder: folder,
        })
    }

    fn put(&self, entries: &Entries, size: usize) -> u64 {
        if size == 1 && self.is_default {
            for (_, key, value) in entries.iter() {
                self.set.put(key, value).expect("room for the entry");
            }
            return entries.count() as u64;
        }
        let mut batch = WriteBatch::new();
        for (at, (_, key, value)) in entries.iter().enumerate() {
            batch.put(key, value).expect("room for the entry");
            if (at + 1) % size == 0 || at + 1 == entries.count() {
                let written = self.set.write_with(&batch, self.durability);
                written.expect("room for the batch");
                batch.clear();
            }
        }
        entries.count() as u64
    }

    /// Each get takes a view of its own.
    fn get(&self, keys: &Keys) -> u64 {
        keys.iter().fold(0, |hash, key| {
            match self.set.view().get(key).expect("intact memory") {
                Lookup::Value(value) => fold(hash, &value),
                _ => hash + 1,
            }
        })
    }
}

impl Table for Set {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) => Box::new(|| self.put(entries, 1)),
            Work::InsertBatches(entries, size) => Box::new(move || self.put(entries, size)),
            Work::Get(keys) => Box::new(|| self.get(keys)),
            _ => return None,
        })
    }

    fn counted(&self) -> Option<u64> {
        None
    }
}

/// fjall's database, whose keyspace is never flushed.
struct Fjall {
    keyspace: fjall::Keyspace,
    database: fjall::Database,
    durability: fjall::PersistMode,
    _folder: Folder,
}

impl Fjall {
    fn open(logged: Logged, room: Room, folder: Folder) -> anyhow::Result<Fjall> {
        let database = fjall::Database::builder(folder.path()).open()?;
        let options =
            || fjall::KeyspaceCreateOptions::default().max_memtable_size(room.write_buffer());
        let durability = match logged {
            Logged::Written => fjall::PersistMode::Buffer,
            Logged::Synced => fjall::PersistMode::SyncData,
            Logged::Off | Logged::Queued => anyhow::bail!("fjall has no such writes"),
        };
        Ok(Fjall {
            keyspace: database.keyspace("entries", options)?,
            database,
            durability,
            _folder: folder,
        })
    }

    fn put(&self, entries: &Entries, size: usize) -> u64 {
        if size == 1 && self.durability == fjall::PersistMode::Buffer {
            for (_, key, value) in entries.iter() {
                let written = self.keyspace.insert(key, value);
                written.expect("a disk that takes it");
            }
            return entries.count() as u64;
        }
        let batch = || self.database.batch().durability(Some(self.durability));
        let mut made = batch();
        for (at, (_, key, value)) in entries.iter().enumerate() {
            made.insert(&self.keyspace, key, value);
            if (at + 1) % size == 0 || at + 1 == entries.count() {
                let written = std::mem::replace(&mut made, batch()).commit();
                written.expect("a disk that takes it");
            }
        }
        entries.count() as u64
    }

    fn get(&self, keys: &Keys) -> u64 {
        keys.iter().fold(0, |hash, key| {
            match self.keyspace.get(key).expect("intact files") {
                Some(value) => fold(hash, &value),
                None => hash + 1,
            }
        })
    }
}

impl Table for Fjall {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) => Box::new(|| self.put(entries, 1)),
            Work::InsertBatches(entries, size) => Box::new(move || self.put(entries, size)),
            Work::Get(keys) => Box::new(|| self.get(keys)),
            _ => return None,
        })
    }

    fn counted(&self) -> Option<u64> {
        None
    }
}

/// RocksDB's whole write path: `DB::Write`, `DB::Get`.
#[cfg(feature = "rocksdb")]
mod rocksdb {
    use std::path::Path;

    use super::{Folder, Logged};
    use crate::rivals::{Room, Table};
    use crate::shim::write_path::{Database, Log};
    use crate::work::{Entries, Task, Work};

    /// A database, the log for which its writes wait, and its folder.
    struct Written(
        Database,
        Log,
        #[expect(dead_code, reason = "removed last")] Folder,
    );

    pub fn open(
        logged: Logged,
        room: Room,
        parent: Option<&Path>,
    ) -> anyhow::Result<Box<dyn Table>> {
        let log = match logged {
            Logged::Off => Log::Off,
            Logged::Written => Log::Written,
            Logged::Synced => Log::Synced,
            Logged::Queued => anyhow::bail!("RocksDB has no such writes here"),
        };
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = Folder::new(&parent, "rocksdb")?;
        let (path, buffer) = (folder.path(), room.write_buffer());
        let database = Database::open(path, buffer, super::PROTECTION, false)?;
        Ok(Box::new(Written(database, log, folder)))
    }

    impl Table for Written {
        fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
            let Written(database, log, _) = self;
            let put = |entries: &Entries, size| {
                database.put(entries, size, *log);
                entries.count() as u64
            };
            Some(match work {
                Work::Insert(entries) => Box::new(move || put(entries, 1)),
                Work::InsertBatches(entries, size) => Box::new(move || put(entries, size)),
                Work::Get(keys) => Box::new(|| database.get(keys)),
                _ => return None,
            })
        }

        fn counted(&self) -> Option<u64> {
            None
        }
    }
}

#[cfg(not(feature = "rocksdb"))]
mod rocksdb {
    use std::path::Path;

    use super::Logged;
    use crate::rivals::{Room, Table};

    pub fn open(_: Logged, _: Room, _: Option<&Path>) -> anyhow::Result<Box<dyn Table>> {
        anyhow::bail!("built without the feature `rocksdb`")
    }
}
