//! The state that all handles of a set share, and its commit mutex.
//!
//! Any thread. No comparator runs under the commit mutex. A thread that has it may wait for the
//! shards of the view and for the publication's lock. These are held for a few instructions, and no
//! thread that holds one of them takes the commit mutex. A writer shard that another batch is in is
//! not waited for: the batch takes a free one, or a new one.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use paranoid_memtable::sibling::{Alone, KeyComparator, Mutex, MutexGuard};
use paranoid_memtable::{Error, MemTable, Result, SequenceNumber, StallCause};

use crate::gates::Gates;
use crate::journal::Journal;
use crate::journal_turns::Logged;
use crate::listener::{Reports, SetEvent};
use crate::options::SetOptions;
use crate::patience::Patience;
use crate::publication::Publication;
use crate::snapshots::Registry;
use crate::swapped::{Pointers, Swapped};
use crate::tables::{Slot, Tables};
use crate::write_buffer_manager::Membership;

/// The state that all handles of a set share.
pub(crate) struct Shared<B> {
    /// The options that the set was opened with. `buffers` is the membership in their manager.
    pub(crate) options: SetOptions,
    /// A table that stays empty. It checks batches, and new tables have its options.
    pub(crate) model: MemTable,
    /// The most bytes of a batch that an empty table takes.
    pub(crate) table_room: u64,
    pub(crate) registry: Arc<Registry>,
    pub(crate) tables: Swapped<Tables<B>>,
    pub(crate) logged: Logged,
    pub(crate) commit: Alone<Mutex<Commit<B>>>,
    /// How long threads look and yield before they sleep for `commit`.
    patience: Patience,
    pub(crate) gates: Gates<Slot>,
    /// Held by the thread that makes a new base (FLUSH-JOB-1).
    pub(crate) installs: Mutex<()>,
    pub(crate) buffers: Arc<Membership>,
    pub(crate) reports: Arc<Reports>,
}

/// The state under the commit mutex. The fields that each batch reads or writes come first, in the
/// cache line of the mutex.
#[repr(C)]
pub(crate) struct Commit<B> {
    /// The last number that was given. Out of date while the gates are open.
    pub(crate) last: SequenceNumber,
    /// Whether batches take numbers inside the gates.
    pub(crate) are_gates_open: bool,
    /// Bytes reserved since the set last checked whether the active table is full.
    pub(crate) unasked: u64,
    /// Bytes appended to the journal since a batch last waited because of `UNWRITTEN_MAX`.
    pub(crate) unwritten: usize,
    /// Bytes of batches appended to the journal for the active table.
    pub(crate) logged: u64,
    /// The last number before the active table's first one.
    pub(crate) closed: SequenceNumber,
    pub(crate) tables: Arc<Tables<B>>,
    /// The active table, for writers.
    pub(crate) active: Pointers<Slot>,
    /// What made the set read-only, unless it was a batch: see `Publication::stop`.
    pub(crate) refusal: Option<Error>,
    /// The last table that a replay wrote to. Its entries are in none of the journals that this set
    /// switched to.
    pub(crate) replayed: Option<u64>,
}

impl<B> Shared<B> {
    pub(crate) fn open(mut options: SetOptions, base: Arc<B>) -> Result<Self> {
        let buffers = options.join()?;
        let SetOptions {
            first_table,
            last_sequence: last,
            scans,
            ..
        } = options;
        let reports = Arc::new(Reports::new(options.listener.clone()));
        // The table that tells may be in a call that holds locks of the set.
        let told = Arc::clone(&reports);
        let table_options = options.table.clone().with_tell(Arc::new(move |place| {
            told.note(|| SetEvent::Healed { place: *place });
        }));
        let model = MemTable::new(table_options)?;
        let active = Slot::new(first_table, model.fork()?, buffers.count_table(), scans);
        let tables = Arc::new(Tables {
            active,
            immutables: Vec::new(),
            base,
        });
        if let Some(journal) = &options.journal {
            journal.switch(first_table)?;
        }
        let commit = Commit {
            tables: Arc::clone(&tables),
            active: Pointers::to(&tables.active),
            last,
            are_gates_open: false,
            closed: last,
            unasked: 0,
            unwritten: 0,
            logged: 0,
            replayed: None,
            refusal: None,
        };
        Ok(Shared {
            table_room: model.remaining(),
            model,
            registry: Arc::new(Registry::new(Publication::new(last))),
            tables: Swapped::new(tables),
            logged: Logged::new(last),
            commit: Alone(Mutex::new(commit)),
            patience: Patience::new(),
            gates: Gates::new(),
            installs: Mutex::new(()),
            buffers,
            reports,
            options,
        })
    }

    /// Locks the commit mutex, which other threads hold for a moment. Gates stay as they are.
    pub(crate) fn wait_for_commit(&self) -> MutexGuard<'_, Commit<B>> {
        let mut commit = self.commit.try_lock();
        if commit.is_none() {
            self.patience.wait(|| {
                commit = self.commit.try_lock();
                commit.is_some()
            });
        }
        commit.unwrap_or_else(|| self.commit.lock())
    }

    /// Locks the commit mutex and closes the gates. Needed wherever the last number or the active
    /// table is read or changed, or no batch may take a number. Without a journal, the next batch
    /// that takes its numbers under the mutex may open the gates again.
    pub(crate) fn lock_commit(&self) -> MutexGuard<'_, Commit<B>> {
        let mut commit = self.commit.lock();
        self.close_gates(&mut commit);
        commit
    }

    /// Closes the gates, and adds up the numbers and bytes that were taken inside them.
    fn close_gates(&self, commit: &mut Commit<B>) {
        if commit.are_gates_open {
            commit.are_gates_open = false;
            let (last, reserved) = self.gates.close();
            commit.last = last;
            commit.unasked = commit.unasked.saturating_add(reserved);
        }
    }

    pub(crate) fn journal(&self) -> Option<&dyn Journal> {
        self.options.journal.as_deref()
    }

    pub(crate) fn comparator(&self) -> &KeyComparator {
        self.model.key_comparator()
    }

    /// Makes the set read-only. Returns the error that writes get from now on.
    pub(crate) fn refuse(&self, cause: Error) -> Error {
        let error = Error::read_only(cause);
        let mut commit = self.lock_commit();
        self.refuse_because(&mut commit, &error);
        drop(commit);
        self.reports.deliver();
        error
    }

    /// Makes the set read-only if the journal answers `ReadOnly`: it may lose what it has taken.
    /// Returns the answer.
    pub(crate) fn heed(&self, commit: &mut Commit<B>, answer: Result<()>) -> Result<()> {
        if let Err(error @ Error::ReadOnly { .. }) = &answer {
            self.refuse_because(commit, error);
        }
        answer
    }

    /// Makes the set read-only, and queues an event that the caller delivers without the mutex.
    #[cold]
    fn refuse_because(&self, commit: &mut Commit<B>, error: &Error) {
        if commit.refusal.is_none() {
            commit.refusal = Some(error.clone());
            self.reports.note(|| SetEvent::Stopped {
                cause: error.clone(),
            });
        }
    }

    /// Fails if the set is read-only.
    pub(crate) fn admit(&self, commit: &Commit<B>) -> Result<()> {
        if let Some(refusal) = &commit.refusal {
            return Err(refusal.clone());
        }
        self.registry.publication.admit()
    }
}

impl<B> Commit<B> {
    pub(crate) fn is_active_empty(&self) -> bool {
        self.last == self.closed
    }

    /// Number of unflushed tables, the active one included.
    pub(crate) fn count_tables(&self) -> u64 {
        1 + self.tables.immutables.len() as u64
    }

    pub(crate) fn stall(&self, cause: StallCause) -> Error {
        Error::WriteStall {
            cause,
            tables: self.count_tables(),
            waited: Duration::ZERO,
        }
    }
}
