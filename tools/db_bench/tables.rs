//! A set of tables: an active one that is written, and frozen ones after it.
//!
//! ```text
//!   version   [ active | frozen | frozen | ... ]    newest first; replaced as a whole when the active table is full
//! ```
//! Every sequence number of a table is larger than all of the tables after it, because writers
//! take their numbers and write under the read side of one lock, and the active table changes under
//! its write side. So the first table that knows a key, or deletes it, has the answer.
//!
//! Any number of sessions, one per thread. A read sees every write that returned before it began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use paranoid_memtable::{
    Error, ImmutableMemTable, MemTable, MemTableOptions, TableReader, WriteBatch, Writer,
};

use crate::failure::Failure;
use crate::journal::{Journal, Sync};

/// One table of a version.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    Active(MemTable),
    Frozen(ImmutableMemTable),
}

impl std::ops::Deref for Held {
    type Target = TableReader;
    fn deref(&self) -> &TableReader {
        match self {
            Held::Active(table) => table,
            Held::Frozen(table) => table,
        }
    }
}

/// All tables at one moment, newest first.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) tables: Vec<Held>,
}

/// Whether writers take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOrder {
    Concurrent,
    OneAtATime,
}

/// The form of writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing {
    pub(crate) sync: Sync,
    pub(crate) order: WriteOrder,
    /// Bytes of the caller's digest of each entry of a batch: 0 or 8.
    pub(crate) batch_protection: u8,
}

/// The active table, and the number of tables before it.
#[derive(Debug)]
struct Active {
    table: MemTable,
    number: u64,
}

/// A database.
#[derive(Debug)]
pub(crate) struct Db {
    active: RwLock<Active>,
    version: Mutex<Arc<Version>>,
    /// Changes with each new version.
    generation: AtomicU64,
    /// The last sequence number that a writer took.
    sequence: AtomicU64,
    journal: Option<Mutex<Journal>>,
    turn: Mutex<()>,
    writing: Writing,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of_write(error: Error) -> Failure {
    Failure::of_table("write", &error)
}

impl Db {
    pub(crate) fn new(options: MemTableOptions, writing: Writing) -> Result<Db, Failure> {
        let table =
            MemTable::new(options).map_err(|error| Failure::of_table("making a table", &error))?;
        Ok(Db {
            version: Mutex::new(Arc::new(Version {
                tables: vec![Held::Active(table.clone())],
            })),
            active: RwLock::new(Active { table, number: 0 }),
            generation: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            journal: None,
            turn: Mutex::new(()),
            writing,
        })
    }

    pub(crate) fn with_journal(self, journal: Journal) -> Db {
        Db {
            journal: Some(Mutex::new(journal)),
            ..self
        }
    }

    fn active(&self) -> RwLockReadGuard<'_, Active> {
        self.active.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's access to the database.
    pub(crate) fn session(&self) -> Session<'_> {
        // ORDERING: Acquire pairs with the Release in `rotate`: the version is at least as new as
        // the number.
        let generation = self.generation.load(Ordering::Acquire);
        Session {
            db: self,
            version: Arc::clone(&locked(&self.version)),
            generation,
            writer: None,
            batch: self.batch(),
            unchecked: 0,
        }
    }

    /// An empty batch, with the caller's digests if the settings say so.
    pub(crate) fn batch(&self) -> WriteBatch {
        WriteBatch::with_protection(self.writing.batch_protection).unwrap_or_default()
    }

    /// Freezes the active table if it still has this number, and makes an empty one active.
    fn rotate(&self, number: u64) -> Result<(), Failure> {
        let mut active = self.active.write().unwrap_or_else(PoisonError::into_inner);
        if active.number != number {
            return Ok(());
        }
        let failed = |error: Error| Failure::of_table("freezing a table", &error);
        let next = active.table.fork().map_err(failed)?;
        let frozen = active.table.freeze().map_err(failed)?;
        *active = Active {
            table: next.clone(),
            number: number + 1,
        };
        let mut version = locked(&self.version);
        let older = version.tables.iter().skip(1).cloned();
        let tables = [Held::Active(next), Held::Frozen(frozen)]
            .into_iter()
            .chain(older)
            .collect();
        *version = Arc::new(Version { tables });
        // ORDERING: Release pairs with the Acquire in `session` and `version`.
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Applies a batch of the journal under its own sequence number.
    pub(crate) fn replay(&self, batch: &WriteBatch) -> Result<(), Failure> {
        let number = {
            let active = self.active();
            let last = (batch.sequence() + batch.len() as u64).saturating_sub(1);
            // ORDERING: Relaxed: one thread replays, before other threads start.
            self.sequence.store(last, Ordering::Relaxed);
            let failed = |error| Failure::of_table("replaying the journal", &error);
            active
                .table
                .write_batch(batch.sequence(), batch)
                .map_err(failed)?;
            if !active.table.should_flush() {
                return Ok(());
            }
            active.number
        };
        self.rotate(number)
    }

    /// The last sequence number that a writer took. Later writes have larger ones.
    pub(crate) fn snapshot(&self) -> u64 {
        // ORDERING: Relaxed: a thread that knows that a write returned has learned it through
        // something that orders both.
        self.sequence.load(Ordering::Relaxed)
    }

    /// Counts and sizes of each table, the active one first.
    pub(crate) fn describe(&self) -> String {
        let version = Arc::clone(&locked(&self.version));
        let mut text = String::from("\n** Tables, the active one first **\n");
        for table in &version.tables {
            let (entries, deletes, ranges) = (
                table.len(),
                table.stats().deletes,
                table.stats().range_deletes,
            );
            let (data, allocated) = (table.stats().data_bytes, table.allocated_bytes());
            text.push_str(&format!(
                "{entries} entries ({deletes} deletes, {ranges} range deletes), {data} bytes of data, {allocated} allocated\n"
            ));
        }
        text
    }
}

/// A single write.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    DeleteRange(&'a [u8], &'a [u8]),
}

/// The entries that a writer adds in one step.
#[derive(Debug)]
enum Load<'a> {
    One(Op<'a>),
    Batch(&'a mut WriteBatch),
}

/// A thread's access to a database.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    db: &'a Db,
    version: Arc<Version>,
    generation: u64,
    /// The writer, with the number of its table.
    writer: Option<(u64, Writer)>,
    batch: WriteBatch,
    /// Bytes written since the last check whether the table is full.
    unchecked: usize,
}

/// Bytes that a session writes between two checks whether the table is full.
const CHECK_EACH: usize = 4096;

impl<'a> Session<'a> {
    pub(crate) fn db(&self) -> &'a Db {
        self.db
    }

    /// The newest version.
    pub(crate) fn version(&mut self) -> &Arc<Version> {
        // ORDERING: Acquire pairs with the Release in `rotate`.
        let generation = self.db.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.version = Arc::clone(&locked(&self.db.version));
            self.generation = generation;
        }
        &self.version
    }

    /// Writes one entry: directly, or as a batch of one if its encoding is needed.
    pub(crate) fn write(&mut self, op: Op<'_>) -> Result<(), Failure> {
        if self.db.journal.is_none() && self.db.writing.batch_protection == 0 {
            return self.bring(Load::One(op));
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let added = match op {
            Op::Put(key, value) => batch.put(key, value),
            Op::Delete(key) => batch.delete(key),
            Op::DeleteRange(start, end) => batch.delete_range(start, end),
        };
        let written = added
            .map_err(of_write)
            .and_then(|()| self.bring(Load::Batch(&mut batch)));
        self.batch = batch;
        written
    }

    /// Writes a batch.
    pub(crate) fn write_batch(&mut self, batch: &mut WriteBatch) -> Result<(), Failure> {
        self.bring(Load::Batch(batch))
    }

    fn bring(&mut self, mut load: Load<'_>) -> Result<(), Failure> {
        let db = self.db;
        let _turn = (db.writing.order == WriteOrder::OneAtATime).then(|| locked(&db.turn));
        let active = db.active();
        let first = load.log(db)?;
        if self
            .writer
            .as_ref()
            .is_none_or(|(number, _)| *number != active.number)
        {
            self.writer = Some((active.number, active.table.writer()));
        }
        if let Some((_, writer)) = &mut self.writer {
            load.apply(writer, first).map_err(of_write)?;
        }
        self.unchecked += load.bytes();
        if self.unchecked < CHECK_EACH {
            return Ok(());
        }
        self.unchecked = 0;
        let full = active.table.should_flush().then_some(active.number);
        drop(active);
        full.map_or(Ok(()), |number| db.rotate(number))
    }
}

impl Load<'_> {
    /// Takes sequence numbers and writes to the journal, one thread at a time. Returns the first
    /// number.
    fn log(&mut self, db: &Db) -> Result<u64, Failure> {
        // ORDERING: Relaxed: the numbers must only differ; the lock of the active table orders them
        // between tables.
        match (&db.journal, self) {
            (Some(journal), Load::Batch(batch)) => {
                let mut journal = locked(journal);
                let first = db.sequence.fetch_add(batch.len() as u64, Ordering::Relaxed) + 1;
                batch.set_sequence(first);
                journal.append(batch, db.writing.sync)?;
                Ok(first)
            }
            (_, Load::Batch(batch)) => {
                Ok(db.sequence.fetch_add(batch.len() as u64, Ordering::Relaxed) + 1)
            }
            (_, Load::One(_)) => Ok(db.sequence.fetch_add(1, Ordering::Relaxed) + 1),
        }
    }

    fn apply(&self, writer: &mut Writer, first: u64) -> Result<(), Error> {
        match self {
            Load::One(Op::Put(key, value)) => writer.put(first, key, value).map(drop),
            Load::One(Op::Delete(key)) => writer.delete(first, key).map(drop),
            Load::One(Op::DeleteRange(start, end)) => {
                writer.delete_range(first, start, end).map(drop)
            }
            Load::Batch(batch) => writer.write_batch(first, batch).map(drop),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Load::One(Op::Put(key, other) | Op::DeleteRange(key, other)) => key.len() + other.len(),
            Load::One(Op::Delete(key)) => key.len(),
            Load::Batch(batch) => batch.as_bytes().len(),
        }
    }
}
