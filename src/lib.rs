//! An in-memory write buffer for storage engines that notices when memory lies.
#![deny(rustdoc::broken_intra_doc_links)]

mod batch;
mod error;
mod format;
mod integrity;
mod key;
mod memtable;
mod planted;
mod prefetch;
mod sync;
mod tombstone;

pub use batch::batch::{BatchEntries, BatchEntry, SequenceMode, WriteBatch};
pub use error::{Corruption, Error, Place, Result};
#[cfg(feature = "block")]
pub use format::block::{BlockChecks, BlockHandle, TableMagic};
pub use format::checksum_kind::ChecksumKind;
#[cfg(feature = "block")]
pub use format::footer::Footer;
pub use integrity::digest::{Kvo, Kvos, Protected, StoredProtection};
pub use integrity::options::{ParanoidOptions, ParanoidOptionsBuilder};
pub use key::{Bytewise, Comparator, KeyEquality, KeyOrder, Kind, SequenceNumber};
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use memtable::lifecycle::fault::FaultInjector;
pub use memtable::lifecycle::flush::{FlushEntry, FlushSink, FlushSummary, HiddenVersions, SinkError};
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use memtable::lifecycle::past::Past;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use memtable::lifecycle::piece::{Owner, Part, Piece, Region};
pub use memtable::lifecycle::salvage::{Reach, Salvage, Salvaged};
pub use memtable::lifecycle::scrub::{ScrubProgress, ScrubReport};
pub use memtable::lookup::statistics::Stats;
pub use memtable::options::{MemTableOptions, MemTableOptionsBuilder, Representation};
pub use memtable::prefix::{CappedPrefix, FixedPrefix, PrefixExtractor};
pub use memtable::read::entry::{Entry, EntryBytes, EntryParts, PinnedEntry};
pub use memtable::read::get::{Base, DeletedBy, Found, Lookup, Operand, Operands, PinnedValue, ValueRef};
pub use memtable::scan::cursor::{Cursor, OwnedCursor, TableCursor};
pub use memtable::scan::handle::{Borrowed, Handle, Owned};
pub use memtable::scan::range::{Descending, Range, RangeStats};
pub use memtable::scan::visibility::{AtSnapshot, Raw, Visibility};
pub use memtable::skiplist::list::DuplicatePolicy;
pub use memtable::table::{ImmutableMemTable, MemTable, TableReader, Writer};
pub use memtable::write::write_batch::BatchWritten;
pub use memtable::write::writer::{Displaced, Inserted};
pub use tombstone::fragment::cursor::{FragmentCursor, PairCursor};
pub use tombstone::fragment::fragmenter::Fragmenter;
pub use tombstone::fragment::fragments::{Fragment, FragmentView, Fragments};
pub use tombstone::fragment::span::RangeTombstone;

/// The README's example, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
