//! Write buffers: how many bytes the tables of all sets under one manager have, who flushes them,
//! and the writers that wait for that.
//!
//! ```text
//!   a table is    active     sealed     flushed, and still held     freed
//!   its bytes     unflushed  unflushed  pinned                      forgotten
//! ```
//! * WRITE-BUFFERS-1: a writer waits only while a flush that may end its stall is under way, or is
//!   the next thing that a live flush thread does, and for no longer than its deadline. What ends a
//!   flush, seals a table, frees memory, stops a flush thread or removes a set is a change that
//!   wakes every writer which waits. Then it tries again: so whether there is room is asked in one
//!   place, and no change since an attempt is slept through.
//! * WRITE-BUFFERS-2: bytes count as unflushed only if a flush of their set can take them: of an
//!   active table once it has entries, of no table that was flushed, and of no set that was
//!   dropped.
//! * WRITE-BUFFERS-3: the lock of the manager is the last one that a thread takes, but for those of
//!   the recyclers. Under it nobody is called, and no table is dropped.
//! * WRITE-BUFFERS-4: there is one budget, the buffer size. From seven eighths of it on, with the
//!   batch that comes, the largest active table is to be sealed, until what no set was asked for is
//!   less than half. So a writer that is stalled finds half of the budget on its way to a flush.
//!
//! Any thread. Counts follow the tables with a delay of a 64th of a write buffer per set.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::thread_state::ThreadState;
use paranoid_memtable::sibling::{Condvar, Mutex};
use paranoid_memtable::{ArenaRecycler, Error, Result, StallCause, shown};

/// The longest single wait of a writer without a deadline; then it looks again.
const LONG: Duration = Duration::from_secs(3600);

/// A budget of memory for the tables of one or several sets.
///
/// Bytes of tables that are not flushed stall writers once they reach the buffer size. Before that,
/// from seven eighths on, the sets with the largest active tables are asked to seal them, until
/// less than half of the buffer size is in active tables that nobody asked for: the next write or
/// [`begin_flush`] of such a set does so. Bytes that were flushed and are still held, by views,
/// cursors or pinned values, are counted apart: they stall nobody, and
/// [`pinned_for`](WriteBufferStats::pinned_for) tells of one that somebody forgot.
///
/// A writer that is stalled waits for a flush of any of the sets, until its deadline. If none is
/// under way, and no flush thread has one to do, it is refused at once: an engine without threads
/// flushes and writes again. Counts are updated each time that batches took a 64th of their set's
/// write buffer; so the sets together may have so much more, and a batch each.
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

/// What a [`WriteBufferManager`] counts.
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
    /// Number of their tables whose memory is not freed.
    pub tables: u64,
    /// Bytes of tables that are not flushed: those that stall writers.
    pub unflushed_bytes: u64,
    /// Bytes of flushed tables, and of tables of dropped sets, that something still holds.
    pub pinned_bytes: u64,
    /// How long the first of these tables has been held since it was flushed or its set was
    /// dropped.
    pub pinned_for: Option<Duration>,
    /// Bytes of memory that sets keep for their next tables; in none of the other counts.
    pub recycled_bytes: u64,
    /// Number of threads that wait for a flush.
    pub waiting: u64,
}

/// What the sets of a manager share.
#[derive(Debug)]
pub(crate) struct Buffers {
    buffer_size: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The last number that a set or a table was given.
    last: u64,
    /// How often something changed that a thread may wait for.
    changes: u64,
    sets: BTreeMap<u64, Member>,
    tables: BTreeMap<u64, Counted>,
    waiting: u64,
}

#[derive(Debug, Default)]
struct Member {
    recycler: Option<Arc<ArenaRecycler>>,
    is_flushing: bool,
    /// Whether it is asked to seal its active table.
    is_to_seal: bool,
    thread: ThreadState,
}

/// How a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushEnd {
    /// There was nothing to be flushed.
    Nothing,
    Installed,
    /// Its tables stay.
    Left,
}

#[derive(Debug)]
struct Counted {
    set: u64,
    bytes: u64,
    phase: Phase,
    /// When the phase was noted last.
    since: Instant,
}

/// The phase of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Also before it is in its set: it has no bytes then.
    Active,
    Sealed,
    Pinned,
}

/// How a wait for a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushWait {
    Flushed,
    /// The deadline is over, and the flush that is under way has not ended.
    Late,
    /// Nothing flushes the table.
    Never,
}

/// A write or a switch that finds no room, or a wait for a flush: until when it waits, and what it
/// has seen.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    pub(crate) deadline: Option<Instant>,
    /// When it began to wait.
    pub(crate) since: Option<Instant>,
    /// The changes that it has seen: it tries again before it waits.
    pub(crate) seen: Option<u64>,
}

impl WriteBufferManager {
    /// A manager under which tables may have about so many bytes that are not flushed.
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

    /// What is counted now. O(tables).
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
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        })
    }

    /// Changes the state, and wakes whoever waits for that.
    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        state.changes += 1;
        let done = act(&mut state);
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Asks the set with the largest active table to seal it (WRITE-BUFFERS-4). `bytes` are those
    /// of a batch that comes.
    fn seal_early(&self, state: &mut State, unflushed: u64, bytes: u64) {
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

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The counts of one set, or of all.
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

    /// Active tables with bytes whose sets were not asked to seal.
    fn unasked(&self) -> impl Iterator<Item = &Counted> {
        let is_unasked = |set: &u64| self.sets.get(set).is_some_and(|set| !set.is_to_seal);
        let active = self
            .tables
            .values()
            .filter(|table| table.phase == Phase::Active && table.bytes > 0);
        active.filter(move |table| is_unasked(&table.set))
    }

    /// Whether its thread is about to flush this set.
    fn is_thread_due(&self, set: u64, member: &Member) -> bool {
        let has_sealed = || {
            self.tables
                .values()
                .any(|table| (table.set, table.phase) == (set, Phase::Sealed))
        };
        member.thread.is_live() && (member.is_to_seal || has_sealed())
    }

    /// Whether a flush is under way that may end a stall of this set (WRITE-BUFFERS-1). No flush
    /// thread waits for itself.
    fn is_flush_coming(&self, cause: StallCause, set: u64) -> bool {
        let is_coming = |(set, member): (&u64, &Member)| {
            // Whether its own thread goes on it says when its function returns.
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

/// A set under a manager.
#[derive(Debug)]
pub(crate) struct Membership {
    buffers: Arc<Buffers>,
    set: u64,
    /// The chunks that the set keeps. Tables know it only as long as the set is there.
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

    /// Calls `act` with what is known of the set.
    fn with<T>(&self, act: impl FnOnce(&mut Member) -> T) -> T {
        act(self.buffers.state.lock().sets.entry(self.set).or_default())
    }

    /// The same, and wakes whoever waits for a change.
    fn change<T>(&self, act: impl FnOnce(&mut Member) -> T) -> T {
        self.buffers
            .change(|state| act(state.sets.entry(self.set).or_default()))
    }

    /// Counts a new table.
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

    /// Whether a batch of so many bytes may be written, and then whether the active table is to be
    /// sealed.
    ///
    /// # Errors
    /// The cause of a stall.
    pub(crate) fn admit(&self, bytes: u64) -> std::result::Result<bool, StallCause> {
        let mut state = self.buffers.state.lock();
        let unflushed = state.stats(None).unflushed_bytes;
        self.buffers.seal_early(&mut state, unflushed, bytes);
        if unflushed >= self.buffers.buffer_size {
            return Err(StallCause::Unflushed);
        }
        Ok(state.sets.get(&self.set).is_some_and(|set| set.is_to_seal))
    }

    /// Takes the request to seal the active table; returns whether there was one.
    pub(crate) fn take_seal(&self) -> bool {
        self.with(|member| std::mem::take(&mut member.is_to_seal))
    }

    /// Begins a flush thread.
    ///
    /// # Errors
    /// `InvalidArgument` if there is one.
    pub(crate) fn begin_thread(&self) -> Result<()> {
        if self.with(|member| member.thread.begin()) {
            return Ok(());
        }
        Err(Error::InvalidArgument("the set has a flush thread".into()))
    }

    /// Changes what is known of the flush thread, and wakes whoever waits for it.
    pub(crate) fn change_thread(&self, change: impl FnOnce(&mut ThreadState)) {
        self.change(|member| change(&mut member.thread));
    }

    /// Why the flush thread failed.
    pub(crate) fn thread_error(&self) -> Option<Error> {
        self.with(|member| member.thread.error())
    }

    /// Waits until there is something to be flushed, or until the thread is to end; returns whether
    /// there is.
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

    /// Begins a flush unless one is under way; returns whether it did.
    pub(crate) fn begin_flush(&self) -> bool {
        self.with(|member| !std::mem::replace(&mut member.is_flushing, true))
    }

    /// Ends a flush. The thread does not try again what was left.
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

    /// Waits, after there was no room, until something has changed since the attempt
    /// (WRITE-BUFFERS-1). Returns whether it has: then there may be room.
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

    /// Waits until a table was flushed, but not beyond the deadline.
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
    /// Leaves its tables without a flush (WRITE-BUFFERS-2).
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

/// The bytes of a table. Attached to its memory, it is dropped after that is freed.
#[derive(Debug)]
pub(crate) struct TableBytes {
    buffers: Arc<Buffers>,
    table: u64,
}

impl TableBytes {
    pub(crate) fn id(&self) -> u64 {
        self.table
    }

    /// Sets the bytes of a table that is active.
    pub(crate) fn count(&self, bytes: u64) {
        if let Some(table) = self.buffers.state.lock().tables.get_mut(&self.table) {
            table.bytes = bytes;
        }
    }

    /// Counts the table, which is active no more, with so many bytes.
    pub(crate) fn leave(&self, phase: Phase, bytes: u64) {
        self.buffers.change(|state| {
            if let Some(table) = state.tables.get_mut(&self.table) {
                (table.phase, table.bytes, table.since) = (phase, bytes, Instant::now());
            }
        });
    }

    /// Asks its set to seal the table, if it is the active one.
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
