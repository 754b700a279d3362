//! Write buffers: the bytes of all tables under one manager, the flushes of their sets, and the
//! writers that wait for a flush.
//!
//! ```text
//!   a table is    active     sealed     flushed, and still held     freed
//!   its bytes     unflushed  unflushed  pinned                      in no count
//! ```
//! * WRITE-BUFFERS-1: a writer waits only while a flush that may end its stall is under way, or is
//!   the next thing that a live flush thread does, and only until its deadline. Each event that may
//!   end a wait (the end of a flush, a sealed table, freed memory, a flush thread that stops, a set
//!   that is dropped) is counted in `changes` and wakes all waiting writers. A woken writer tries
//!   its write again, and so does one that finds a change since its last attempt.
//!
//! The lock of the manager is the last one that a thread takes, except for those of the recyclers.
//! Under it no callback runs and no table is dropped.
//!
//! Any thread. Counts of active tables lag by up to a 64th of a write buffer a set.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::thread_state::ThreadState;
use paranoid_memtable::sibling::{Condvar, Mutex};
use paranoid_memtable::{ArenaRecycler, Error, Result, StallCause, shown};

/// The longest single wait of a writer without a deadline. Then it checks again.
const LONG: Duration = Duration::from_secs(3600);

/// A memory budget for the tables of one or several sets.
///
/// Once the bytes of unflushed tables reach the buffer size, writes stall. From seven eighths of it
/// on, the manager asks the sets with the largest active tables to seal them, until the other
/// active tables have less than half of the buffer size. The next write or [`begin_flush`] of such
/// a set seals the table. Flushed bytes that views, cursors or pinned values still hold are counted
/// apart and stall no write; [`pinned_for`](WriteBufferStats::pinned_for) shows a forgotten one.
///
/// A stalled write waits for a flush of any of the sets, until its deadline. If no flush is under
/// way and no flush thread has one to do, the write is refused at once: an engine without threads
/// flushes, and writes again. Counts are updated each time that batches took a 64th of their set's
/// write buffer, so each set may exceed the budget by that much and one batch.
///
/// ```
/// use paranoid_memtable::{Error, MemTableOptions, WriteBatch};
/// use paranoid_memtable::StallCause;
/// use paranoid_set::{MemTableSet, SetOptions, WriteBufferManager};
/// # fn main() -> Result<(), Error> {
/// let manager = WriteBufferManager::new(1 << 20)?;
/// let open = || {
///     let options = SetOptions::builder().write_buffer_manager(&manager).build()?;
///     MemTableSet::open(options, ())
/// };
/// let (idle, busy) = (open()?, open()?);
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", &vec![7; 1 << 20])?;
/// idle.write(&batch)?;
/// let refused = busy.write(&batch);
/// assert!(matches!(refused, Err(Error::WriteStall { cause: StallCause::Unflushed, .. })));
/// let mut job = idle.begin_flush()?.expect("its table was sealed for the other set");
/// let mut items = job.items()?;
/// while let Some(_item) = items.next()? {} // into a file
/// drop(items);
/// job.install(|_| Ok(()))?;
/// busy.write(&batch)?;
/// # Ok(()) }
/// ```
///
/// [`begin_flush`]: crate::MemTableSet::begin_flush
#[derive(Clone)]
pub struct WriteBufferManager {
    pub(crate) buffers: Arc<Buffers>,
}

/// The counts of a [`WriteBufferManager`].
///
/// ```
/// use paranoid_set::{WriteBufferManager, WriteBufferStats};
/// let manager = WriteBufferManager::new(64 << 20)?;
/// let stats: WriteBufferStats = manager.stats();
/// assert_eq!((stats.sets, stats.unflushed_bytes, stats.pinned_bytes), (0, 0, 0));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WriteBufferStats {
    /// Number of sets.
    pub sets: u64,
    /// Number of tables of these sets, and of dropped ones, whose memory is not freed.
    pub tables: u64,
    /// Bytes of unflushed tables, which stall writes at the buffer size.
    pub unflushed_bytes: u64,
    /// Bytes of flushed tables, and of tables of dropped sets, that views, cursors, jobs or pinned
    /// values still hold.
    pub pinned_bytes: u64,
    /// The time since the oldest of these tables was flushed or its set was dropped.
    pub pinned_for: Option<Duration>,
    /// Bytes of memory that sets keep for their next tables. No other count includes them.
    pub recycled_bytes: u64,
    /// Number of threads that wait for a flush.
    pub waiting: u64,
}

/// The counts that the sets of a manager share.
#[derive(Debug)]
pub(crate) struct Buffers {
    buffer_size: u64,
    state: Mutex<ManagerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ManagerState {
    /// The last number given to a set or a table.
    last: u64,
    /// Number of changes that a thread may wait for (WRITE-BUFFERS-1).
    changes: u64,
    sets: BTreeMap<u64, Member>,
    tables: BTreeMap<u64, Counted>,
    waiting: u64,
}

/// A set under the manager.
#[derive(Debug, Default)]
struct Member {
    recycler: Option<Arc<ArenaRecycler>>,
    is_flushing: bool,
    /// Whether the manager asked the set to seal its active table.
    is_to_seal: bool,
    thread: ThreadState,
}

/// How a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushEnd {
    /// There was nothing to flush.
    Nothing,
    Installed,
    /// Dropped without an install: its tables stay.
    Left,
}

/// A table under the manager.
#[derive(Debug)]
struct Counted {
    set: u64,
    bytes: u64,
    phase: Phase,
    /// When the phase was last set.
    since: Instant,
}

/// The phase of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In its set, or about to be; then it has no bytes.
    Active,
    Sealed,
    /// Flushed, or its set is dropped.
    Pinned,
}

/// How a wait for a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushWait {
    Flushed,
    /// The deadline is over, and the flush under way has not ended.
    Late,
    /// Nothing flushes the table.
    Never,
}

/// The wait of one write, `switch` or `flush_and_wait` for a flush.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    pub(crate) deadline: Option<Instant>,
    /// When the wait began.
    pub(crate) since: Option<Instant>,
    /// `changes` at the last attempt. `None` at first: the second attempt follows at once.
    pub(crate) seen: Option<u64>,
}

impl WriteBufferManager {
    /// Makes a manager that limits unflushed table memory to about `buffer_size` bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for 0.
    pub fn new(buffer_size: u64) -> Result<Self> {
        if buffer_size == 0 {
            return Err(Error::InvalidArgument(
                "a write buffer manager needs a buffer size of at least 1".into(),
            ));
        }
        Ok(WriteBufferManager {
            buffers: Buffers::new(buffer_size),
        })
    }

    /// The current counts. O(tables).
    #[must_use]
    pub fn stats(&self) -> WriteBufferStats {
        self.buffers.state.lock().stats(None)
    }
}

shown! {
    "WriteBufferManager": impl [] WriteBufferManager, |manager| {
        "buffer_size": manager.buffers.buffer_size, "stats": manager.stats()
    }
}

impl Buffers {
    pub(crate) fn new(buffer_size: u64) -> Arc<Self> {
        Arc::new(Buffers {
            buffer_size,
            state: Mutex::new(ManagerState::default()),
            changed: Condvar::new(),
        })
    }

    /// Changes the state, and wakes all threads that wait for a change (WRITE-BUFFERS-1).
    fn change<T>(&self, act: impl FnOnce(&mut ManagerState) -> T) -> T {
        let mut state = self.state.lock();
        state.changes += 1;
        let done = act(&mut state);
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Asks the set with the largest active table to seal it, if a batch of so many bytes takes the
    /// unflushed bytes over seven eighths of the budget, and the batch and the active tables that
    /// were not asked for have at least half of it. So when a write stalls, the other half is on
    /// its way to a flush.
    fn seal_early(&self, state: &mut ManagerState, unflushed: u64, bytes: u64) {
        let unasked = state
            .unasked()
            .map(|table| table.bytes)
            .sum::<u64>()
            .saturating_add(bytes);
        if unflushed.saturating_add(bytes) <= self.buffer_size - self.buffer_size / 8
            || unasked < self.buffer_size / 2
        {
            return;
        }
        let largest = state
            .unasked()
            .max_by_key(|table| table.bytes)
            .map(|table| table.set);
        if let Some(member) = largest.and_then(|set| state.sets.get_mut(&set)) {
            member.is_to_seal = true;
            self.changed.notify_all();
        }
    }
}

impl ManagerState {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The counts of one set, or of all sets.
    fn stats(&self, only: Option<u64>) -> WriteBufferStats {
        let mut stats = WriteBufferStats {
            waiting: self.waiting,
            ..WriteBufferStats::default()
        };
        let is_counted = |set: u64| only.is_none_or(|only| only == set);
        for (_, member) in self.sets.iter().filter(|(set, _)| is_counted(**set)) {
            stats.sets += 1;
            stats.recycled_bytes += member
                .recycler
                .as_ref()
                .map_or(0, |recycler| recycler.backed_bytes());
        }
        for table in self.tables.values().filter(|table| is_counted(table.set)) {
            stats.tables += 1;
            match table.phase {
                Phase::Active | Phase::Sealed => stats.unflushed_bytes += table.bytes,
                Phase::Pinned => {
                    stats.pinned_bytes += table.bytes;
                    stats.pinned_for = stats.pinned_for.max(Some(table.since.elapsed()));
                }
            }
        }
        stats
    }

    /// The active tables with bytes whose sets are not asked to seal them.
    fn unasked(&self) -> impl Iterator<Item = &Counted> {
        let is_unasked = |set: &u64| self.sets.get(set).is_some_and(|set| !set.is_to_seal);
        let active = self
            .tables
            .values()
            .filter(|table| table.phase == Phase::Active && table.bytes > 0);
        active.filter(move |table| is_unasked(&table.set))
    }

    /// Whether the thread of this set is about to flush it.
    fn is_thread_due(&self, set: u64, member: &Member) -> bool {
        let has_sealed = || {
            self.tables
                .values()
                .any(|table| (table.set, table.phase) == (set, Phase::Sealed))
        };
        member.thread.is_live() && (member.is_to_seal || has_sealed())
    }

    /// Whether a flush that may end a stall of this set is under way, or is the next thing that a
    /// flush thread does (WRITE-BUFFERS-1). A flush thread does not wait for its own.
    fn is_flush_coming(&self, cause: StallCause, set: u64) -> bool {
        let is_coming = |(set, member): (&u64, &Member)| {
            // Only when its function returns is it known whether the set's own thread flushes more.
            let is_at_work = cause == StallCause::Tables && member.thread.is_at_work;
            let is_under_way = member.is_flushing || is_at_work || self.is_thread_due(*set, member);
            is_under_way && !member.thread.is_this_one()
        };
        match cause {
            StallCause::Tables => self.sets.get_key_value(&set).is_some_and(is_coming),
            _ => self.sets.iter().any(is_coming),
        }
    }
}

/// The handle of one set to its manager.
#[derive(Debug)]
pub(crate) struct Membership {
    buffers: Arc<Buffers>,
    set: u64,
    /// Keeps chunks of flushed tables for the next ones, as long as the set exists.
    pub(crate) recycler: Arc<ArenaRecycler>,
}

impl Membership {
    pub(crate) fn new(buffers: Arc<Buffers>, recycler: Arc<ArenaRecycler>) -> Self {
        let mut state = buffers.state.lock();
        let set = state.next();
        state.sets.insert(
            set,
            Member {
                recycler: Some(Arc::clone(&recycler)),
                ..Member::default()
            },
        );
        drop(state);
        Membership {
            buffers,
            set,
            recycler,
        }
    }

    /// Calls `act` with the member of this set, under the lock.
    fn with<T>(&self, act: impl FnOnce(&mut Member) -> T) -> T {
        act(self.buffers.state.lock().sets.entry(self.set).or_default())
    }

    /// Calls `act` with the member of this set, and wakes all threads that wait for a change.
    fn change<T>(&self, act: impl FnOnce(&mut Member) -> T) -> T {
        self.buffers
            .change(|state| act(state.sets.entry(self.set).or_default()))
    }

    /// Counts a new table, without bytes.
    pub(crate) fn count_table(&self) -> Arc<TableBytes> {
        let mut state = self.buffers.state.lock();
        let table = state.next();
        let counted = Counted {
            set: self.set,
            bytes: 0,
            phase: Phase::Active,
            since: Instant::now(),
        };
        state.tables.insert(table, counted);
        Arc::new(TableBytes {
            buffers: Arc::clone(&self.buffers),
            table,
        })
    }

    /// Whether the set is to seal its active table. A batch of so many bytes comes.
    ///
    /// # Errors
    /// The cause of a stall, if the budget is used up.
    pub(crate) fn admit(&self, bytes: u64) -> std::result::Result<bool, StallCause> {
        let mut state = self.buffers.state.lock();
        let unflushed = state.stats(None).unflushed_bytes;
        self.buffers.seal_early(&mut state, unflushed, bytes);
        if unflushed >= self.buffers.buffer_size {
            return Err(StallCause::Unflushed);
        }
        Ok(state.sets.get(&self.set).is_some_and(|set| set.is_to_seal))
    }

    /// Takes the request to seal the active table. Returns whether there was one.
    pub(crate) fn take_seal(&self) -> bool {
        self.with(|member| std::mem::take(&mut member.is_to_seal))
    }

    /// Marks the flush thread as begun.
    ///
    /// # Errors
    /// `InvalidArgument` if there is one.
    pub(crate) fn begin_thread(&self) -> Result<()> {
        if self.with(|member| member.thread.begin()) {
            return Ok(());
        }
        Err(Error::InvalidArgument("the set has a flush thread".into()))
    }

    /// Changes the state of the flush thread, and wakes all threads that wait for a change.
    pub(crate) fn change_thread(&self, change: impl FnOnce(&mut ThreadState)) {
        self.change(|member| change(&mut member.thread));
    }

    /// Why the flush thread failed.
    pub(crate) fn thread_error(&self) -> Option<Error> {
        self.with(|member| member.thread.error())
    }

    /// Waits until the flush thread has something to flush. Returns false if the thread is to end.
    pub(crate) fn wait_for_work(&self) -> bool {
        let mut state = self.buffers.state.lock();
        loop {
            let member = state
                .sets
                .get(&self.set)
                .filter(|member| !member.thread.is_over());
            let Some(member) = member else { return false };
            if !member.is_flushing && state.is_thread_due(self.set, member) {
                break;
            }
            state = self.buffers.changed.wait(state);
        }
        state.sets.entry(self.set).or_default().thread.is_at_work = true;
        true
    }

    /// Begins a flush. Returns false if one is under way.
    pub(crate) fn begin_flush(&self) -> bool {
        self.with(|member| !std::mem::replace(&mut member.is_flushing, true))
    }

    /// Ends a flush. If its tables stay, the flush thread gets an error, so it does not try again.
    pub(crate) fn end_flush(&self, end: FlushEnd) {
        self.change(|member| {
            member.is_flushing = false;
            if end == FlushEnd::Left {
                member.thread.fail(Error::InvalidArgument(
                    "a flush ended without an install".into(),
                ));
            }
        });
    }

    /// Waits, after a failed attempt, until something has changed since then (WRITE-BUFFERS-1).
    /// Returns false if nothing has, and the deadline is over or no flush is coming.
    pub(crate) fn wait(&self, cause: StallCause, stall: &mut Stall) -> bool {
        let mut state = self.buffers.state.lock();
        state.waiting += 1;
        let has_changed = loop {
            if stall.seen != Some(state.changes) {
                break true;
            }
            let now = Instant::now();
            let left = stall
                .deadline
                .map_or(LONG, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() || !state.is_flush_coming(cause, self.set) {
                break false;
            }
            stall.since.get_or_insert(now);
            state = self.buffers.changed.wait_timeout(state, left);
        };
        state.waiting -= 1;
        stall.seen = Some(state.changes);
        has_changed
    }

    /// Waits until a table is flushed, at most until the deadline.
    pub(crate) fn wait_for_flush(&self, table: u64, stall: &mut Stall) -> FlushWait {
        loop {
            let state = self.buffers.state.lock();
            if state
                .tables
                .get(&table)
                .is_none_or(|table| table.phase != Phase::Sealed)
            {
                return FlushWait::Flushed;
            }
            let is_coming = state.is_flush_coming(StallCause::Tables, self.set);
            drop(state);
            if !self.wait(StallCause::Tables, stall) {
                return if is_coming {
                    FlushWait::Late
                } else {
                    FlushWait::Never
                };
            }
        }
    }

    /// The counts of this set.
    pub(crate) fn stats(&self) -> WriteBufferStats {
        self.buffers.state.lock().stats(Some(self.set))
    }
}

impl Drop for Membership {
    /// Counts the tables of the set as pinned: no flush will take them.
    fn drop(&mut self) {
        self.buffers.change(|state| {
            state.sets.remove(&self.set);
            let tables = state
                .tables
                .values_mut()
                .filter(|table| table.set == self.set);
            tables.for_each(|table| (table.phase, table.since) = (Phase::Pinned, Instant::now()));
        });
    }
}

/// Counts the bytes of one table. It is attached to the table's memory, and dropped once the memory
/// is freed.
#[derive(Debug)]
pub(crate) struct TableBytes {
    buffers: Arc<Buffers>,
    table: u64,
}

impl TableBytes {
    /// The number of the table in the manager.
    pub(crate) fn id(&self) -> u64 {
        self.table
    }

    /// Sets the bytes of an active table.
    pub(crate) fn count(&self, bytes: u64) {
        if let Some(table) = self.buffers.state.lock().tables.get_mut(&self.table) {
            table.bytes = bytes;
        }
    }

    /// Sets the phase of a table that is no longer active, and its bytes.
    pub(crate) fn leave(&self, phase: Phase, bytes: u64) {
        self.buffers.change(|state| {
            if let Some(table) = state.tables.get_mut(&self.table) {
                (table.phase, table.bytes, table.since) = (phase, bytes, Instant::now());
            }
        });
    }

    /// Asks the set to seal this table, if it is the active one.
    pub(crate) fn ask_seal(&self) {
        self.buffers.change(|state| {
            let active = state
                .tables
                .get(&self.table)
                .filter(|table| table.phase == Phase::Active);
            if let Some(member) = active.and_then(|table| state.sets.get_mut(&table.set)) {
                member.is_to_seal = true;
            }
        });
    }
}

impl Drop for TableBytes {
    fn drop(&mut self) {
        self.buffers
            .change(|state| state.tables.remove(&self.table));
    }
}
