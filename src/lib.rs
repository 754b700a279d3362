//! An in-memory write buffer for storage engines that notices when memory lies.
//!
//! A [`MemTable`] takes the newest writes of an LSM engine and keeps them in order until they are flushed to a file. An
//! entry is a user key, a sequence number, a [`Kind`] and a value. Entries are never changed: a new version of a key is a
//! new entry, and a read names the sequence number, its snapshot, up to which it sees entries. The engine hands out sequence
//! numbers, logs writes before they come here, and decides when to [`freeze`](MemTable::freeze) a table and flush it.
//!
//! Every entry carries digests, and every link a tag. A read verifies what it returns: a flipped bit ends in the
//! right answer or in [`Error::Corruption`], never in a wrong answer, a crash or a hang. `SAFETY.md` defines exactly
//! which damage is covered.
//!
//! ```
//! use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
//! # fn main() -> Result<(), paranoid_memtable::Error> {
//! let table = MemTable::new(MemTableOptions::default())?;
//! table.put(1, b"apple", b"red")?;
//! table.put(2, b"apple", b"green")?;
//! assert!(matches!(table.get(b"apple", 1)?, Lookup::Value(value) if *value == *b"red"));
//! assert!(matches!(table.get(b"apple", u64::MAX)?, Lookup::Value(value) if *value == *b"green"));
//! # Ok(()) }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | write | [`MemTable::put`], [`delete`](MemTable::delete), [`delete_range`](MemTable::delete_range), [`merge`](MemTable::merge); [`MemTable::writer`] for a thread that writes much |
//! | write many at once | [`WriteBatch`] and [`MemTable::write_batch`]; more in [`batch`] |
//! | read a key | [`MemTable::get`], [`multi_get`](MemTable::multi_get), [`get_into`](MemTable::get_into); more in [`read`] |
//! | walk | [`MemTable::cursor_at`] and [`range_at`](MemTable::range_at) at a snapshot, [`cursor`](MemTable::cursor) and [`range`](MemTable::range) over all versions; [`owned_range`](MemTable::owned_range) keeps its table alive; [`range_tombstones`](MemTable::range_tombstones); more in [`scan`] |
//! | flush | [`MemTable::freeze`], then [`ImmutableMemTable::flush`] into a [`flush::FlushSink`], or [`flush_iter`](ImmutableMemTable::flush_iter) |
//! | order and log batches, read several tables, flush them as one | [`set::MemTableSet`] |
//! | choose what is checked | [`ParanoidOptions`]; [`MemTable::scrub`] looks at everything, [`ImmutableMemTable::salvage`] saves what is left; more in [`repair`] and [`integrity`] |
//! | make reads faster | filters and the directory of [`MemTableOptions`]; [`filter::PrefixExtractor`] |
//! | order keys otherwise | [`Comparator`]; [`comparator::SharedComparator`] where the order is chosen at run time |
//! | check blocks of table files | [`ChecksumKind`]; more in [`mod@format`] |
//! | cut range deletions into fragments | [`tombstone`] |
//! | break memory in tests | `fault`, with the feature `fault-injection` |
//!
//! Any number of threads may call all methods of a table at once.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(rustdoc::broken_intra_doc_links)]

pub mod batch;
mod error;
pub mod format;
pub mod integrity;
mod key;
mod memtable;
mod planted;
mod prefetch;
pub mod set;
mod shared_order;
mod sync;
pub mod tombstone;

pub use batch::batch::WriteBatch;
pub use error::{Corruption, Error, Result};
pub use format::checksum_kind::ChecksumKind;
pub use integrity::options::{ParanoidOptions, ParanoidOptionsBuilder};
pub use key::{Bytewise, Comparator, Kind, SequenceNumber};
pub use memtable::options::{Directory, MemTableOptions, MemTableOptionsBuilder};
pub use memtable::read::entry::Entry;
pub use memtable::read::get::{Lookup, ValueRef};
pub use memtable::scan::cursor::{OwnedCursor, TableCursor};
pub use memtable::scan::range::{OwnedRange, Range};
pub use memtable::skiplist::list::DuplicatePolicy;
pub use memtable::table::{ImmutableMemTable, MemTable, TableReader};
pub use memtable::write::own_writer::Writer;
pub use memtable::write::write_batch::BatchWritten;
pub use memtable::write::writer::{Displaced, Inserted};

/// Types that point reads return: entries, pinned values, merge operands.
pub mod read {
    pub use crate::memtable::lookup::statistics::Stats;
    pub use crate::memtable::read::entry::{EntryBytes, EntryParts, PinnedEntry};
    pub use crate::memtable::read::get::{Base, DeletedBy, Found, Operand, Operands, PinnedValue};
}

/// Cursors and ranges: their types, how they hold their table, and which entries they show.
pub mod scan {
    pub use crate::memtable::scan::cursor::Cursor;
    pub use crate::memtable::scan::descending::{Descending, DescendingRange, OwnedDescending};
    pub use crate::memtable::scan::estimate::RangeStats;
    pub use crate::memtable::scan::handle::{Borrowed, Handle, Owned};
    pub use crate::memtable::scan::range::EntryRange;
    pub use crate::memtable::scan::visibility::{AtSnapshot, Raw, Visibility};
}

/// The properties of an order that a [`Comparator`] declares; orders that are chosen at run time.
pub mod comparator {
    pub use crate::key::{KeyEquality, KeyOrder};
    pub use crate::memtable::scan::tombstones::TableOrder;
    pub use crate::shared_order::{DynComparator, SharedComparator};
}

/// Prefix extractors, for filters of key prefixes.
pub mod filter {
    pub use crate::memtable::prefix::{CappedPrefix, FixedPrefix, PrefixExtractor};
}

/// The reports of a scrub and of a salvage.
pub mod repair {
    pub use crate::memtable::lifecycle::salvage::{Reach, Salvage, Salvaged};
    pub use crate::memtable::lifecycle::scrub::{ScrubProgress, ScrubReport};
}

/// Sinks and options of a flush.
pub mod flush {
    pub use crate::memtable::lifecycle::flush::{
        FlushEntry, FlushItem, FlushIter, FlushSink, FlushSummary, HiddenVersions, SinkError,
    };
}

/// The fault injector, which breaks a table's memory on purpose, for tests.
#[cfg(all(feature = "fault-injection", not(loom)))]
#[cfg_attr(docsrs, doc(cfg(feature = "fault-injection")))]
pub mod fault {
    pub use crate::memtable::lifecycle::fault::FaultInjector;
    pub use crate::memtable::lifecycle::past::Past;
    pub use crate::memtable::lifecycle::piece::{Owner, Part, Piece, Region};
}

/// The README's example, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What must not compile, and the correct form of it.
#[cfg(doctest)]
#[doc = include_str!("../docs/misuse.md")]
struct Misuse;
