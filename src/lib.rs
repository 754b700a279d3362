//! An in-memory write buffer for storage engines that notices when memory lies.
//!
//! This is what RocksDB calls a *memtable*. A [`MemTable`] takes the newest writes of an LSM engine
//! and keeps them in order until they are flushed to a file. An entry is a user key, a sequence
//! number, a [`Kind`] and a value. Entries are never changed: a new version of a key is a new
//! entry, and a read names the sequence number up to which it sees entries, its *snapshot*. The
//! engine assigns sequence numbers, logs entries before it writes them here, and decides when to
//! [`freeze`](MemTable::freeze) a table and flush it.
//!
//! The crate `paranoid-set` does all of that for engines that have no write path of their own.
//! Begin with it unless you have one:
//!
//! ```
//! use paranoid_set::{MemTableSet, SetOptions};
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let set = MemTableSet::open(SetOptions::default(), ())?;
//! set.put("apple", "red")?;
//! set.delete_range("a", "b")?;
//! assert!(set.view().get(b"apple")?.is_deleted());
//! # Ok(()) }
//! ```
//!
//! Every entry carries digests, and every link a tag. A read verifies what it returns: a damaged
//! bit ends in the right answer or in [`Error::Corruption`], never in a wrong answer, a crash or a
//! hang.
//!
//! # What it costs
//!
//! - **Memory.** An entry takes some 50 bytes beside its key and value; 66 with 8 protection bytes,
//!   the default: a link of 8 bytes, a header of 28, two digests of 8, the directory's 2 (filled in
//!   order) to 13 (at random), and what rounds the sum to 8. Nothing is freed before the whole
//!   table is dropped, not even an entry that a newer one replaced. A table of up to 32 KiB is on
//!   the heap. A larger one maps the size of its write buffer in address space; the system backs
//!   pages as they are touched.
//! - **Time.** A lookup reads a few cache lines that are not in the cache, as in any ordered map of
//!   this size, and some hundred instructions more to verify what it found. `BTreeMap` scans
//!   faster, and the radix tree of artmap finds absent keys faster: see [`guide::performance`]. In
//!   a clone of the repository, `cargo bench` measures single operations, and the example
//!   `db_bench` runs the command lines of RocksDB's program of that name.
//! - **Deletes are entries.** A delete is written as a tombstone and takes memory. Reads apply it;
//!   only a flush can leave out what it hides.
//! - **Errors are values.** Each call that reads memory returns a `Result`, because memory may be
//!   damaged.
//!
//! Do not use it for a map that shrinks, for keys that are not bytes, or without the standard
//! library.
//!
//! # How it works
//!
//! A table is a skiplist in an arena: keys, values and links are in memory that grows and never
//! moves, and 32-bit offsets name them. A writer finds the two neighbours of its entry, copies
//! the entry into the arena, computes its digests from the arena's own bytes, and publishes it by
//! one compare-and-swap. Writers do not wait for each other, and reads take no lock. The list has a
//! *directory*, a B+ tree of pages with four bytes of each key, which names a node where a search
//! starts. This name is only a hint. The answer of a search is its *bracket*: two verified
//! neighbours and the link between them. So a damaged directory costs only time.
//!
//! Range deletes go to a list of their own and into an index over it, which finds the newest range
//! delete over a key in logarithmic time. When a table is frozen, all of them are cut into
//! fragments that do not overlap.
//!
//! [`internals`] shows the bytes of an entry, a search, the directory and the life of a table.
//!
//! # How it is used
//!
//! An engine that has sequence numbers and a log of its own uses a table:
//!
//! ```
//! use paranoid_memtable::{MemTable, MemTableOptions};
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let table = MemTable::new(MemTableOptions::default())?;
//! table.put(1, "apple", "red")?;
//! table.put(2, "apple", "green")?;
//! assert!(table.get("apple", 1)?.value() == Some(b"red"));
//! assert!(table.get("apple", u64::MAX)?.value() == Some(b"green"));
//! # Ok(()) }
//! ```
//!
//! Keys and values are any `impl AsRef<[u8]>`: strings, arrays, vectors. Any number of threads may
//! call all methods of a table at once; share it by reference, or clone the handle.
//!
//! No call is `async`. Reads and writes touch memory alone, and wait at most for the system to back
//! a page. A freeze waits for running writes, and a flush for its sink; a scrub and a salvage read
//! the whole table.
//!
//! The life of a table has three parts. While it is *mutable*, it takes writes.
//! [`MemTable::freeze`] ends that: it waits for writers that are inside, refuses later ones with
//! [`Error::Frozen`], seals counts and sums of all entries, and returns an [`ImmutableMemTable`].
//! Then the table is *flushed*: [`ImmutableMemTable::flush`] passes every entry, in order and
//! verified, to a [`flush::FlushSink`], and compares the sums. Reads continue meanwhile. The crate
//! `paranoid-sst` has a sink that writes RocksDB's table files.
//!
//! | to | use |
//! | --- | --- |
//! | write | [`MemTable::put`], [`delete`](MemTable::delete), [`delete_range`](MemTable::delete_range), [`merge`](MemTable::merge); [`MemTable::writer`] for a thread that writes much |
//! | write many at once | [`WriteBatch`] and [`MemTable::write_batch`]; more in [`batch`] |
//! | read a key | [`TableReader::get`], [`multi_get`](TableReader::multi_get), [`get_into`](TableReader::get_into); their answer is a [`Lookup`], with [`value`](Lookup::value) and [`found`](Lookup::found); more in [`read`] |
//! | walk | [`TableReader::cursor_at`] and [`range_at`](TableReader::range_at) at a snapshot, [`cursor`](TableReader::cursor), [`range`](TableReader::range), [`versions`](TableReader::versions) and `for entry in &table` over all versions; [`owned`](Range::owned) ones keep their table alive; [`range_tombstones`](TableReader::range_tombstones); more in [`scan`] |
//! | flush | [`MemTable::freeze`], then [`ImmutableMemTable::flush`], or [`flush_iter`](ImmutableMemTable::flush_iter) |
//! | order and log batches, read several tables, flush them as one | the crate `paranoid-set`, and [`guide::compaction`]; the parts: [`scan::SortedSource`], [`ArenaRecycler`] |
//! | choose what is checked | [`MemTableOptionsBuilder::protection_bytes`], [`checksum_on_seek`](MemTableOptionsBuilder::checksum_on_seek), [`order_checks`](MemTableOptionsBuilder::order_checks), or all of them as [`ParanoidOptions`]; more in [`integrity`] |
//! | look for damage, save what is left | [`TableReader::scrub`], [`ImmutableMemTable::salvage`]; more in [`repair`] |
//! | make reads faster | filters and the directory of [`MemTableOptions`]; [`filter::PrefixExtractor`] |
//! | use another order of keys | [`Comparator`], given to [`MemTableOptionsBuilder::comparator`] |
//! | check blocks of table files | [`ChecksumKind`] and [`integrity::BlockChecks`] |
//! | cut range deletes into fragments | [`tombstone`] |
//! | get events of damage, freezes and flushes | the feature `tracing` |
//! | call from async code, export metrics | the documentation of `paranoid-set`, which says how long each call waits |
//! | break memory in tests | `fault`, with the feature `fault-injection` |
//!
//! The [`guide`] has a page each about the commit protocol, compaction, options, errors, faults,
//! misuse, performance, coming from another map, and engines that use this table in place of their
//! own.
//!
//! # Features and platforms
//!
//! | feature | adds |
//! | --- | --- |
//! | `bytes` | pinned values and entries as `bytes::Bytes`, without a copy |
//! | `serde` | [`ChecksumKind`] as its name |
//! | `tracing`, also of `paranoid-set` | events: damage, freezes and flushes; of a set stalls and stops |
//! | `fault-injection`, also of `paranoid-set` | the module `fault`, which breaks memory: for tests only |
//! | `lz4`, `snappy`, `zstd` of `paranoid-sst` | compressed blocks, written and read |
//!
//! | platform | tested |
//! | --- | --- |
//! | Linux on x86-64 | everything: the suite, sanitizers, Miri |
//! | Linux on aarch64; on s390x, which is big-endian | unit tests and parts of the suite, emulated |
//! | Windows and macOS; Linux on 32-bit x86 and Arm; WASI, without `paranoid-sst` | compiled without warnings, not run |
//!
//! No feature is on by default. The packages need Rust 1.89 and the standard library. Only on Linux
//! does [`MemTable::try_reserve`] back memory, and do large tables ask for huge pages.
//!
//! # Stability
//!
//! - The three packages have one version number, and follow semantic versioning: before 1.0 a
//!   break of the public API raises the minor number. `paranoid-set` requires exactly its version
//!   of this crate, so update both together.
//! - A table exists in memory alone: nothing of its bytes is stored.
//! - A [`WriteBatch`] has RocksDB's encoding, and the numbers of [`ChecksumKind`] never change.
//! - A file of `FileJournal` has a version. Another version is refused with `NotSupported`, and the
//!   file stays as it is. So before an update that changes the version, flush everything with the
//!   old program. CHANGELOG.md names such an update.
//! - Files of `paranoid-sst` are RocksDB's, in the format version that the options name.
//! - The texts of errors and of `{:?}` may change; match on variants and fields.
//!
//! # How far to trust it
//!
//! The promise holds for one damaged place at a time, of any number of bits, in every byte that a
//! table stores, and for a store that never reached memory. With fewer than 8 protection bytes a
//! digest misses damage with a stated probability. [`guide::fault_model`] lists what is not
//! covered: above all a value after it was returned, the stack, and the allocator's own memory.
//!
//! Evidence for it: a campaign damages every bit of a table and more than a million random places,
//! calls every public function after each, and compares the answers with a model. Models of
//! the lock-free protocols run under loom, the suite under Miri, ThreadSanitizer and
//! AddressSanitizer. Planted bugs show that the tests can fail. Unsafe code is in four files; the
//! repository's `SAFETY.md` names every block, the invariant that it rests on, and the partner of
//! every atomic operation.
//!
//! Evidence against it: the crate is young, and no engine has run on it for years.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(rustdoc::broken_intra_doc_links)]

mod trace;
mod error;
pub mod guide {
    //! Pages for users: text only.
    //!
    //! - [`commit_protocol`]: the steps of a commit, and when readers see it
    //! - [`compaction`]: compaction, snapshots and many tables
    //! - [`options`]: the gain and the cost of each option
    //! - [`errors`]: the meaning of each error, and how to react
    //! - [`fault_model`]: which faults are noticed
    //! - [`performance`]: where this crate is fast, and where rivals are faster
    //! - [`migrating`]: coming from another map
    //! - [`engines`]: in place of the memtable of lsm-tree and slatedb
    //! - [`misuse`]: mistakes that do not compile, and their correct forms
    #![forbid(unsafe_code)]

    // Each page defines the labels of its links as files, for readers on a forge. In the rustdoc,
    // the definitions here count, because they come first.

    /// [compaction]: crate::guide::compaction
    #[doc = include_str!("../docs/commit-protocol.md")]
    pub mod commit_protocol {}

    #[doc = include_str!("../docs/compaction.md")]
    pub mod compaction {}

    /// [performance]: crate::guide::performance
    #[doc = include_str!("../docs/options.md")]
    pub mod options {}

    /// [ended]: crate::guide::commit_protocol
    #[doc = include_str!("../docs/errors.md")]
    pub mod errors {}

    /// [options]: crate::guide::options
    #[doc = include_str!("../docs/fault-model.md")]
    pub mod fault_model {}

    #[doc = include_str!("../docs/performance.md")]
    pub mod performance {}

    /// [performance]: crate::guide::performance
    #[doc = include_str!("../docs/migrating.md")]
    pub mod migrating {}

    #[doc = include_str!("../docs/engines.md")]
    pub mod engines {}

    #[doc = include_str!("../docs/misuse.md")]
    pub mod misuse {}
}
#[doc = include_str!("../docs/internals.md")]
pub mod internals {}
mod kind;
mod comparator;
mod key;
mod halves;
mod sort;
mod sync;
mod prefetch;
pub mod integrity;
pub mod tombstone;
mod memtable;

pub use comparator::{Bytewise, Comparator, KeyEquality, KeyOrder};
pub use error::{Corruption, Error, Result, StallCause};
pub use integrity::checksum_kind::ChecksumKind;
pub use integrity::options::{ParanoidOptions, ParanoidOptionsBuilder};
pub use key::SequenceNumber;
pub use kind::Kind;
pub use memtable::arena::recycler::ArenaRecycler;
pub use memtable::batch::batch::WriteBatch;
pub use memtable::immutable::ImmutableMemTable;
pub use memtable::options::{Directory, MemTableOptions, MemTableOptionsBuilder};
pub use memtable::read::entry::Entry;
pub use memtable::read::get::{Lookup, ValueRef};
pub use memtable::reader::TableReader;
pub use memtable::scan::cursor::{Cursor, OwnedCursor};
pub use memtable::scan::range::{OwnedRange, Range};
pub use memtable::skiplist::list::DuplicatePolicy;
pub use memtable::stats::Stats;
pub use memtable::table::MemTable;
pub use memtable::write::insert::{Displaced, Inserted};
pub use memtable::writer::Writer;

/// Entries that are written together, in RocksDB's encoding.
pub mod batch {
    pub use crate::memtable::batch::batch::RangeOrder;
    pub use crate::memtable::batch::reader::BatchEntry;
    pub use crate::memtable::write::prepared::{PreparedBatch, ReservedBatch};
    pub use crate::memtable::write::write_batch::BatchWritten;
}

/// Types that point reads return: entries, pinned values, merge operands.
pub mod read {
    pub use crate::memtable::read::entry::EntryBytes;
    pub use crate::memtable::read::get::{Base, DeletedBy, Operand, Operands, PinnedValue};
}

/// Cursors and ranges: their types, how they hold their table, and which entries they show.
pub mod scan {
    pub use crate::key::Direction;
    pub use crate::memtable::scan::estimate::RangeStats;
    pub use crate::memtable::scan::handle::{Borrowed, Handle, Owned};
    pub use crate::memtable::scan::key_range::KeyRange;
    pub use crate::memtable::scan::source::{Cover, SortedSource, SourceKey, SourceMove};
    pub use crate::memtable::scan::visibility::{AtSnapshot, Raw, Visibility};
}

/// Prefix extractors, for filters of key prefixes.
pub mod filter {
    pub use crate::memtable::extractor::{CappedPrefix, FixedPrefix, PrefixExtractor};
}

/// The reports of a scrub and of a salvage.
pub mod repair {
    pub use crate::memtable::heals::Healed;
    pub use crate::memtable::lifecycle::salvage::{Reach, Salvage, Salvaged};
    pub use crate::memtable::lifecycle::scrub::{ScrubProgress, ScrubReport};
}

/// Sinks and options of a flush.
pub mod flush {
    pub use crate::memtable::lifecycle::flush::{FlushIter, FlushSummary};
    pub use crate::memtable::lifecycle::flush_sink::{FlushEntry, FlushItem, FlushSink, SinkError};
    pub use crate::memtable::lifecycle::versions::Versions;
}

/// Items for other packages of this repository: atomics and locks, so that their models run under
/// loom too, the order of keys, and events. This module is not part of the API, and may change in
/// any version. A package that uses it requires the exact version of this crate.
#[doc(hidden)]
pub mod sibling {
    pub use crate::comparator::KeyComparator;
    #[cfg(loom)]
    pub use crate::sync::model;
    pub use crate::sync::{Alone, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, thread_number};
    pub use crate::trace::{IS_TRACED, stalled, stopped};
}

/// The fault injector, which breaks a table's memory on purpose, for tests.
#[cfg(all(feature = "fault-injection", not(loom)))]
#[cfg_attr(docsrs, doc(cfg(feature = "fault-injection")))]
pub mod fault {
    pub use crate::memtable::fault::injector::FaultInjector;
    pub use crate::memtable::fault::past::Past;
    pub use crate::memtable::fault::piece::{Owner, Part, Piece, Region};
}

/// The README's example, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
