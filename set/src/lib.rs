//! The write path of an engine: one handle over several tables, from the batch to the engine's
//! files.
//!
//! A [`MemTableSet`] keeps one active table, the tables that are not flushed yet, and the *base*,
//! the engine's own version of its files: any type `B`, such as a list of files. The engine makes
//! batches, writes files, and reads its files. The set does the rest.
//!
//! # Writing
//!
//! The set gives sequence numbers: each entry of a batch takes the next one. The set checks a batch
//! before it has numbers, so a refused batch changes nothing. Then the batch goes into the
//! [`Journal`] and into the active table. It becomes visible as a whole, after all batches before
//! it. [`Durability`] says how long a write waits for the journal: until its batch is copied, is
//! written by one thread for all that wait, or is synced. [`WriteOptions`] says how long a write
//! waits for memory.
//!
//! ```
//! use paranoid_memtable::WriteBatch;
//! use paranoid_set::{MemTableSet, SetOptions};
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let set = MemTableSet::open(SetOptions::default(), Vec::<String>::new())?; // the base: names of files
//! let mut batch = WriteBatch::new(); // digests from here to the file
//! batch.put(b"apple", b"red")?;
//! batch.put(b"pear", b"green")?;
//! assert_eq!(set.write(&batch)?, 2, "the last of its numbers");
//! # Ok(()) }
//! ```
//!
//! # Reading
//!
//! A [`View`] is the set at one number. Its tables and its base belong together, so a flush that
//! ends meanwhile neither hides an entry nor shows it twice. A view keeps the memory of its tables.
//! A [`Snapshot`] keeps no memory: flushes keep the versions that the snapshot needs, and
//! [`view_at`](MemTableSet::view_at) reads at it at any time. If the tables do not decide
//! ([`found`](paranoid_memtable::Lookup::found) is `None`,
//! [`Base::Below`](paranoid_memtable::read::Base::Below)), the engine looks in the view's base, at
//! the view's number. [`View::merging_get`], [`View::merging_multi_get`] and
//! [`View::merging_cursor`] read both in one call.
//!
//! ```
//! use paranoid_memtable::WriteBatch;
//! use paranoid_set::{MemTableSet, SetOptions};
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let set = MemTableSet::open(SetOptions::default(), ())?;
//! let mut batch = WriteBatch::new();
//! batch.put(b"apple", b"red")?;
//! set.write(&batch)?;
//! let before = set.snapshot();
//! batch.clear();
//! batch.delete(b"apple")?;
//! set.write(&batch)?;
//! assert!(set.view().get(b"apple")?.is_deleted());
//! assert!(set.view_at(&before)?.get(b"apple")?.value() == Some(b"red"));
//! # Ok(()) }
//! ```
//!
//! A snapshot is registered with its set, so that flushes keep the versions that it sees. A plain
//! number cannot read a set:
//!
//! ```compile_fail,E0308
//! use paranoid_set::{MemTableSet, SetOptions};
//! let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
//! set.view_at(&7).unwrap();
//! ```
//!
//! # Flushing
//!
//! The next write replaces a full active table by an empty one. A thread of the engine, or the
//! thread that [`start_flush_thread`](MemTableSet::start_flush_thread) makes, takes the immutable
//! tables as a [`FlushJob`], writes them into one file, and installs the new base.
//! [`flush_and_wait`](MemTableSet::flush_and_wait) returns after the install. Only `install`
//! changes the set: a job that is dropped before, for example because the disk is full, leaves
//! every table in the set.
//!
//! ```
//! use paranoid_memtable::WriteBatch;
//! use paranoid_memtable::flush::FlushItem;
//! use paranoid_set::{MemTableSet, SetOptions};
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let set = MemTableSet::open(SetOptions::default(), Vec::<Vec<u8>>::new())?;
//! let mut batch = WriteBatch::new();
//! batch.put(b"apple", b"red")?;
//! set.write(&batch)?;
//! set.switch()?; // or wait until the table is full
//! if let Some(mut job) = set.begin_flush()? {
//!     let mut file = Vec::new();
//!     let mut items = job.items()?;
//!     while let Some(item) = items.next()? {
//!         match item {
//!             FlushItem::Entry(entry) => file.extend_from_slice(entry.user_key),
//!             FlushItem::Fragment(_) => unreachable!("nothing was deleted by ranges"),
//!         }
//!     }
//!     drop(items);
//!     job.install(|files| Ok([&files[..], &[file]].concat()))?; // synced, and named in the engine's manifest
//! }
//! assert_eq!(set.view().base().as_slice(), [b"apple"]);
//! assert_eq!(set.stats().tables, 1);
//! # Ok(()) }
//! ```
//!
//! # Compacting
//!
//! The engine decides which files are merged, and when. [`Compaction`] is the merge, the same that
//! a flush uses. It drops versions that no reader needs, combines merge operands, drops single
//! deletes with their puts, and drops tombstones at the lowest level.
//! [`replace_base`](MemTableSet::replace_base) installs the new version; open views keep the old
//! one. The [guide](paranoid_memtable::guide::compaction) has the steps.
//!
//! ```
//! use std::sync::Arc;
//! use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
//! use paranoid_memtable::tombstone::Fragment;
//! use paranoid_memtable::{Bytewise, MemTable};
//! use paranoid_set::{Compaction, MemTableSet, SetOptions};
//! /// A table in place of a file.
//! struct Writer(MemTable);
//! impl FlushSink for Writer {
//!     fn entry(&mut self, it: FlushEntry<'_>) -> Result<(), SinkError> {
//!         self.0.insert(it.sequence, it.kind, it.user_key, it.value)?;
//!         Ok(())
//!     }
//!     fn fragment(&mut self, it: Fragment<'_>) -> Result<(), SinkError> {
//!         self.0.delete_range(it.newest(), it.start(), it.end())?;
//!         Ok(())
//!     }
//! }
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let (newer, older) = (MemTable::default(), MemTable::default());
//! older.put(1, "apple", "green")?;
//! newer.put(2, "apple", "red")?;
//! let set = MemTableSet::open(SetOptions::builder().last_sequence(2).build()?, vec![newer, older])?;
//! let view = set.view(); // before the call of `snapshots`
//! let sources = view.base().iter().map(|file| file.source()).collect();
//! let merged = Compaction::over(Arc::new(Bytewise), &set.snapshots(), sources).to_lowest_level();
//! let mut file = Writer(MemTable::default());
//! assert_eq!(merged.pass_to(&mut file)?.hidden, 1);
//! let count = view.base().len();
//! set.replace_base(|files| Ok([&files[..files.len() - count], &[file.0]].concat()))?;
//! let view = set.view();
//! let apple = view.merging_get("apple", || view.base().iter().map(|file| file.source()))?;
//! assert_eq!(apple.expect("it is in the file").value(), b"red");
//! # Ok(()) }
//! ```
//!
//! # Memory
//!
//! [`max_write_buffer_number`](SetOptionsBuilder::max_write_buffer_number) limits the tables of one
//! set; a [`WriteBufferManager`] limits the bytes of several sets. A write past a limit waits for a
//! running flush, until [`stall_timeout`](SetOptionsBuilder::stall_timeout) or its own
//! [`deadline`](WriteOptions::deadline). If no flush runs, the write is refused at once. Only
//! unflushed tables make writers wait. Flushed tables that views, cursors, pinned values and jobs
//! keep in memory are counted apart: [`pinned_bytes`](SetStats::pinned_bytes) has their bytes, and
//! [`pinned_for`](SetStats::pinned_for) says for how long. [`stats`](MemTableSet::stats) returns
//! these counts. A [`Listener`] gets switches, flushes, stalls and stops.
//!
//! # Recovering
//!
//! A set is opened over the base and its last number. Then the batches of the journal after that
//! number are replayed. [`FileJournal`] is a journal of files, and its recovery delivers these
//! batches. It keeps the files of earlier runs until the recovery has
//! [ended](JournalRecovery::replay) with `Ok` and all replayed batches are flushed. A journal of
//! the engine's own [must do the same](Journal::flushed). A replay fills and seals tables under the
//! same limits as writes. So a log of many tables needs a flush thread, or a flush whenever the
//! replay of a batch ends in `WriteStall`.
//!
//! ```
//! use paranoid_memtable::WriteBatch;
//! use paranoid_set::{MemTableSet, SetOptions};
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let mut logged = WriteBatch::new(); // as the journal had it
//! logged.put(b"apple", b"red")?;
//! logged.set_sequence(8);
//! let flushed = 7; // the last number in the base
//! let set = MemTableSet::open(SetOptions::builder().last_sequence(flushed).build()?, "file 1")?;
//! for batch in [logged].iter().filter(|batch| batch.sequence() > flushed) {
//!     set.replay(batch)?;
//! }
//! assert!(set.view().get(b"apple")?.into_value().is_some_and(|value| value.sequence() == 8));
//! # Ok(()) }
//! ```
//!
//! # From async code
//!
//! No call is `async`, and none is interrupted when the task that made it is dropped. A set, a view
//! and a snapshot can be moved between threads and kept across an `.await`. The calls block the
//! thread as follows:
//!
//! | call | it waits for |
//! | --- | --- |
//! | [`view`](MemTableSet::view), [`snapshot`](MemTableSet::snapshot), [`stats`](MemTableSet::stats), reads of tables | no write and no file; while a switch or an install replaces the tables, for its end |
//! | a write without a journal | the writes with earlier numbers, which only touch memory |
//! | with [`Durability::Queued`] | the same; now and then a write of the journal, or a new file of it |
//! | with `Buffered` | one write of a file |
//! | with `Synced` | one sync of the device, which serves all that wait |
//! | any write while the tables are full | a flush, at most until its [`deadline`](WriteOptions::deadline) or for [`stall_timeout`](SetOptionsBuilder::stall_timeout), ten seconds by default; a deadline that is over refuses it at once |
//! | [`switch`](MemTableSet::switch), [`flush_and_wait`](MemTableSet::flush_and_wait) | a flush, at most for `stall_timeout` |
//! | [`FileJournal::open`], [`replay`](MemTableSet::replay), the passes of a [`FlushJob`], [`Compaction`], a drop of a [`FlushThread`], reads of the engine's files | files, as long as they take |
//!
//! So a task may read tables, and write without a journal and with a deadline that is over. All
//! else belongs to a thread that may block:
//!
//! ```text
//! let (handle, durable) = (set.clone(), Durability::Synced);
//! let last = tokio::task::spawn_blocking(move || handle.write_with(&batch, durable)).await??;
//! ```
//! Batches that wait at the same time share one sync. So many blocking threads, or one that takes
//! batches from a channel and joins them, cost the device the same.
//!
//! ```
//! use paranoid_set::{FlushJob, MemTableSet, Snapshot, View};
//! fn moves_into_a_task<T: Send>() {}
//! moves_into_a_task::<(MemTableSet<()>, View<()>, Snapshot, FlushJob<()>)>();
//! ```
//!
//! # Metrics
//!
//! Gauges are in [`stats`](MemTableSet::stats), whose cost grows with the number of tables and not
//! of entries; a scrape calls it. Counters come from events, which a [`Listener`] adds up. The
//! feature `tracing` sends the same stalls and stops, and the tables' damage, freezes and flushes,
//! to a subscriber.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use paranoid_set::{Listener, MemTableSet, SetEvent, SetOptions};
//! #[derive(Default)]
//! struct Counters {
//!     stalled_micros: AtomicU64,
//!     flushed_tables: AtomicU64,
//!     stops: AtomicU64,
//! }
//! impl Listener for Counters {
//!     fn event(&self, event: &SetEvent) {
//!         let (counter, more) = match event {
//!             SetEvent::StallEnded { waited, .. } => (&self.stalled_micros, waited.as_micros() as u64),
//!             SetEvent::FlushEnded { installed, .. } => (&self.flushed_tables, *installed),
//!             SetEvent::Stopped { .. } => (&self.stops, 1),
//!             _ => return,
//!         };
//!         counter.fetch_add(more, Ordering::Relaxed);
//!     }
//! }
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let counters = Arc::new(Counters::default());
//! let set = MemTableSet::open(SetOptions::builder().listener(counters.clone()).build()?, ())?;
//! set.put("apple", "red")?;
//! let stats = set.stats();
//! let page = [
//!     ("memtable_entries", stats.entries),
//!     ("memtable_bytes", stats.allocated_bytes),
//!     ("memtable_unflushed_tables", stats.tables), // near the maximum, writers will wait
//!     ("memtable_pinned_seconds", stats.pinned_for.unwrap_or_default().as_secs()), // a forgotten view
//!     ("memtable_stalled_micros_total", counters.stalled_micros.load(Ordering::Relaxed)),
//!     ("memtable_flushed_tables_total", counters.flushed_tables.load(Ordering::Relaxed)),
//!     ("memtable_stops_total", counters.stops.load(Ordering::Relaxed)), // no more writes are taken
//! ];
//! let text: String = page.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
//! assert!(text.starts_with("memtable_entries 1\n"));
//! # Ok(()) }
//! ```
//!
//! # What to do on an error
//!
//! | error | what it means | what to do |
//! | --- | --- | --- |
//! | `InvalidArgument`, `KeyTooLarge`, `ValueTooLarge` | the batch is refused; nothing is changed | fix the batch |
//! | `Corruption` from a write | the batch was damaged before it had numbers | make the batch again |
//! | `Corruption` from a read | damaged memory may hide the answer; other reads are not affected | report it; a flush shows whether entries are lost |
//! | `MemTableFull` | the batch fits no empty table; nothing is changed, and no table is sealed | split the batch; in a recovery, open with a larger hard limit |
//! | `MemoryRefused` | the system has no memory for the batch; nothing is changed | flush, free memory, and write again |
//! | [`WriteStall`](paranoid_memtable::Error::WriteStall) | a budget is used up; [`StallCause`](paranoid_memtable::StallCause) says which; nothing is changed | flush, and write again; if `waited` is zero, no flush runs: [start a flush thread](MemTableSet::start_flush_thread) or [begin a flush](MemTableSet::begin_flush) |
//! | an error of the journal's `append` or `switch` | the batch is refused; nothing is changed | as the journal says |
//! | [`ReadOnly`](paranoid_memtable::Error::ReadOnly) | a batch with numbers was not finished, a write or a sync of the journal failed, or a flush met damage; reads continue | [flush](MemTableSet::flush_and_wait) the visible entries (after damage without a journal: [`salvage`](FlushJob::salvage)); then open the set again from base and journal |
//! | `Sink` | the file was not written; the set is unchanged | discard the file, and flush again |
//! | [`Merge`](paranoid_memtable::Error::Merge) | the merge operator refused this key | report it |
//!
//! ```
//! use std::sync::Arc;
//! use paranoid_memtable::{Error, WriteBatch};
//! use paranoid_set::{Durability, Journal, MemTableSet, SetOptions};
//! /// A journal whose disk fails at the first sync.
//! struct Failing;
//! impl Journal for Failing {
//!     fn append(&self, _: &[u8]) -> Result<(), Error> {
//!         Ok(())
//!     }
//!     fn sync(&self) -> Result<(), Error> {
//!         Err(std::io::Error::other("no disk").into())
//!     }
//!     fn switch(&self, _: u64) -> Result<(), Error> {
//!         Ok(())
//!     }
//!     fn obsolete_before(&self, _: u64) -> Result<(), Error> {
//!         Ok(())
//!     }
//! }
//! # fn main() -> Result<(), Error> {
//! let set = MemTableSet::open(SetOptions::builder().journal(Arc::new(Failing)).build()?, ())?;
//! let mut batch = WriteBatch::new();
//! batch.put(b"k", b"v")?;
//! set.write(&batch)?;
//! assert!(matches!(set.write_with(&batch, Durability::Synced), Err(Error::ReadOnly { .. })));
//! assert!(set.view().get(b"k")?.into_value().is_some_and(|value| value.sequence() == 1));
//! set.switch()?;
//! let mut job = set.begin_flush()?.expect("what is visible");
//! let mut items = job.items()?;
//! while let Some(_item) = items.next()? {} // into a file
//! drop(items);
//! let last = job.last_sequence();
//! job.install(|_| Ok(()))?;
//! let set = MemTableSet::open(SetOptions::builder().last_sequence(last).build()?, ())?;
//! assert_eq!(set.write(&batch)?, 2);
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

pub(crate) mod journal;
pub(crate) mod file_journal;
pub(crate) mod thread_state;
pub(crate) mod write_buffer_manager;
pub(crate) mod listener;
pub(crate) mod options;
pub(crate) mod patience;
pub(crate) mod sleepers;
pub(crate) mod publication;
pub(crate) mod swapped;
pub(crate) mod gates;
pub(crate) mod journal_turns;
pub(crate) mod journal_copy;
pub(crate) mod tables;
pub(crate) mod snapshots;
pub(crate) mod merge_operator;
pub(crate) mod merged_entry;
pub(crate) mod merging_source;
pub(crate) mod merging_cursor;
pub(crate) mod view;
pub(crate) mod level_source;
pub(crate) mod shared;
pub(crate) mod switch;
pub(crate) mod commit;
pub(crate) mod compaction_input;
pub(crate) mod compaction;
pub(crate) mod outputs;
pub(crate) mod salvage;
pub(crate) mod flush_job;
pub(crate) mod flush_thread;
pub(crate) mod stats;
pub(crate) mod table_set;
#[cfg(all(test, loom))]
mod loom;

pub use compaction::Compaction;
pub use file_journal::{
    FileJournal, FileStorage, FindingReason, JournalFinding, JournalRecovery, RecoveryMode,
    Replayed, Storage, StorageFile, read_checked, replace_checked,
};
pub use flush_job::FlushJob;
pub use flush_thread::FlushThread;
pub use journal::Journal;
pub use level_source::{Level, LevelSource};
pub use listener::{Listener, SetEvent};
pub use merge_operator::MergeOperator;
pub use merged_entry::MergedEntry;
pub use merging_cursor::MergingCursor;
pub use options::{Durability, SetOptions, SetOptionsBuilder, WriteOptions};
pub use outputs::{Output, Outputs};
pub use salvage::SalvageSummary;
pub use snapshots::Snapshot;
pub use stats::SetStats;
pub use table_set::MemTableSet;
pub use view::View;
pub use write_buffer_manager::{WriteBufferManager, WriteBufferStats};
