//! The write path of an engine: several tables behind one handle, from the batch to the engine's
//! files.
//!
//! A [`MemTableSet`] keeps one active table and those that are not flushed yet, and the engine's
//! own version of its files, the *base*: any type `B`, such as a list of files. The engine makes
//! batches, flushes tables into files, and reads its files. The set does what lies between.
//!
//! # Writing
//!
//! The set gives sequence numbers: each entry of a batch takes the next one. A batch is checked
//! before it has numbers, so a batch that is refused changes nothing. Then it is in the
//! [`Journal`], then in the active table, and at last, after all batches before it, it becomes
//! visible, as a whole. [`Durability`] says how long a write waits for the journal: until its batch
//! is copied, written by one thread for all that wait, or synced; [`WriteOptions`] how long it
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
//! A [`View`] is what the set shows at one number: tables and base belong together, so a flush that
//! ends meanwhile neither hides an entry nor shows it twice. It keeps the memory of its tables. A
//! [`Snapshot`] keeps none: flushes keep the versions that it needs, and
//! [`view_at`](MemTableSet::view_at) reads at it whenever that is wanted. What the tables do not
//! decide ([`Lookup::NotFound`](paranoid_memtable::Lookup::NotFound),
//! [`Base::Below`](paranoid_memtable::read::Base::Below)) the engine looks for in the view's base,
//! at the view's number. [`View::merging_get`], [`View::merging_multi_get`] and
//! [`View::merging_cursor`] read both in one call.
//!
//! ```
//! use paranoid_memtable::{Lookup, WriteBatch};
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
//! assert!(matches!(set.view().get(b"apple")?, Lookup::Deleted { .. }));
//! assert!(matches!(set.view_at(&before)?.get(b"apple")?, Lookup::Value(value) if *value == *b"red"));
//! # Ok(()) }
//! ```
//!
//! A snapshot is registered with its set, so that flushes keep what it sees. A number alone does
//! not read a set:
//!
//! ```compile_fail,E0308
//! use paranoid_set::{MemTableSet, SetOptions};
//! let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
//! set.view_at(&7).unwrap();
//! ```
//!
//! # Flushing
//!
//! A full active table is replaced by an empty one at the next write. A thread of the engine, or
//! one that [`start_flush_thread`](MemTableSet::start_flush_thread) makes, takes the immutable ones
//! as a [`FlushJob`], writes one file of them, and installs the new base.
//! [`flush_and_wait`](MemTableSet::flush_and_wait) returns when that is done. Only `install`
//! changes the set: a job that is dropped before, because the disk is full for example, leaves
//! every table where it was.
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
//! Which files are merged, and when, the engine decides. The merge is [`Compaction`], the one that
//! a flush uses: what no snapshot needs is dropped, operands are combined, single deletes meet
//! their puts, and at the lowest level tombstones go. [`replace_base`](MemTableSet::replace_base)
//! installs the new version under views that go on. Who does what, step by step:
//! [guide](paranoid_memtable::guide::compaction).
//!
//! ```
//! use std::sync::Arc;
//! use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
//! use paranoid_memtable::tombstone::Fragment;
//! use paranoid_memtable::{Bytewise, MemTable};
//! use paranoid_set::{Compaction, MemTableSet, SetOptions};
//! /// Tables stand for files.
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
//! let view = set.view(); // before the snapshots are asked for
//! let sources = view.base().iter().map(|file| file.source()).collect();
//! let merged = Compaction::over(Arc::new(Bytewise), &set.snapshots(), sources).to_lowest_level();
//! let mut file = Writer(MemTable::default());
//! assert_eq!(merged.pass_to(&mut file)?.hidden, 1);
//! let count = view.base().len();
//! set.replace_base(|files| Ok([&files[..files.len() - count], &[file.0]].concat()))?;
//! let view = set.view();
//! let apple = view.merging_get("apple", || view.base().iter().map(|file| file.source()).collect())?;
//! assert_eq!(apple.expect("it is in the file").value(), b"red");
//! # Ok(()) }
//! ```
//!
//! # Memory
//!
//! [`max_write_buffer_number`](SetOptionsBuilder::max_write_buffer_number) limits the tables of one
//! set, a [`WriteBufferManager`] the bytes of several sets. A write beyond a limit waits for a
//! flush that is under way, until [`stall_timeout`](SetOptionsBuilder::stall_timeout) or its own
//! [`deadline`](WriteOptions::deadline); if there is none, it is refused at once. Only what is not
//! flushed makes writers wait. Views, cursors, pinned values and jobs that keep flushed tables in
//! memory are counted apart, as [`pinned_bytes`](SetStats::pinned_bytes), with [how
//! long](SetStats::pinned_for). [`stats`](MemTableSet::stats) has these counts, and a [`Listener`]
//! is told of switches, flushes, stalls and stops.
//!
//! # Recovering
//!
//! A set is opened over the base and its last number; what the journal has after that number is
//! replayed. A [`FileJournal`] keeps the files of the time before until its recovery has
//! [ended](JournalRecovery::replay) with `Ok` and all replayed batches are flushed; a journal of
//! the engine's own [must do the same](Journal::flushed). Tables are sealed as a replay fills them,
//! and limits hold: a log of many tables needs a flush thread, or somebody who flushes when the
//! replay of a batch ends in `WriteStall`. [`FileJournal`] is a journal of files, whose recovery
//! hands the batches out.
//!
//! ```
//! use paranoid_memtable::{Lookup, WriteBatch};
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
//! assert!(matches!(set.view().get(b"apple")?, Lookup::Value(value) if value.sequence() == 8));
//! # Ok(()) }
//! ```
//!
//! # What to do on an error
//!
//! | error | what it means | what to do |
//! | --- | --- | --- |
//! | `InvalidArgument`, `KeyTooLarge`, `ValueTooLarge` | the batch is refused; nothing is changed | mend the batch |
//! | `Corruption` from a write | the batch was damaged before it had numbers | make it anew |
//! | `Corruption` from a read | the answer may be under damaged memory; others are not affected | report it; flush, to know |
//! | `MemTableFull` | the batch fits no empty table; nothing is changed, and no table is sealed | split it; in a recovery, open with a larger hard limit |
//! | `MemoryRefused` | the system has no memory for the batch; nothing is changed | flush, free memory, and write again |
//! | [`WriteStall`](paranoid_memtable::Error::WriteStall) | a budget is used up, its [`StallCause`](paranoid_memtable::StallCause) says which; nothing is changed | flush, and write again; if it has `waited` for no time, nothing flushes: [start a flush thread](MemTableSet::start_flush_thread) or [begin a flush](MemTableSet::begin_flush) |
//! | an error of the journal's `append` or `switch` | the batch is refused; nothing is changed | as the journal says |
//! | [`ReadOnly`](paranoid_memtable::Error::ReadOnly) | a batch with numbers was not finished, a write or a sync of the journal failed, or a flush met damage; reads go on | [flush](MemTableSet::flush_and_wait) what is visible, after damage with [`salvage`](FlushJob::salvage) if there is no journal; then open anew from base and journal |
//! | `Sink` | the file was not written; the set is unchanged | discard the file, flush again |
//! | [`Merge`](paranoid_memtable::Error::Merge) | the merge operator refused this key | report it |
//!
//! ```
//! use std::sync::Arc;
//! use paranoid_memtable::{Error, Lookup, WriteBatch};
//! use paranoid_set::{Durability, Journal, MemTableSet, SetOptions};
//! /// A journal whose disk fails at the first sync.
//! struct Failing;
//! impl Journal for Failing {
//!     fn append(&self, _: &[u8]) -> Result<(), Error> {
//!         Ok(())
//!     }
//!     fn sync(&self) -> Result<(), Error> {
//!         Err(Error::Sink(Arc::new(std::io::Error::other("no disk"))))
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
//! assert!(matches!(set.view().get(b"k")?, Lookup::Value(value) if value.sequence() == 1));
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
pub(crate) mod tables;
pub(crate) mod snapshots;
pub(crate) mod merge_operator;
pub(crate) mod merged_entry;
pub(crate) mod merging_source;
pub(crate) mod merging_cursor;
pub(crate) mod view;
pub(crate) mod level_source;
pub(crate) mod commit;
pub(crate) mod compaction;
pub(crate) mod salvage;
pub(crate) mod flush_job;
pub(crate) mod flush_thread;
pub(crate) mod stats;
pub(crate) mod table_set;
#[cfg(all(test, loom))]
mod loom;

pub use compaction::Compaction;
pub use file_journal::journal_trait::Journal;
pub use file_journal::{
    FileJournal, FileStorage, FindingReason, JournalFinding, JournalRecovery, RecoveryMode,
    Replayed, Storage, StorageFile,
};
pub use flush_job::FlushJob;
pub use flush_thread::FlushThread;
pub use level_source::LevelSource;
pub use listener::{Listener, SetEvent};
pub use merge_operator::MergeOperator;
pub use merged_entry::MergedEntry;
pub use merging_cursor::MergingCursor;
pub use options::{Durability, SetOptions, SetOptionsBuilder, WriteOptions};
pub use salvage::SalvageSummary;
pub use snapshots::Snapshot;
pub use stats::SetStats;
pub use table_set::MemTableSet;
pub use view::View;
pub use write_buffer_manager::{WriteBufferManager, WriteBufferStats};
