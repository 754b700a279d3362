//! An in-memory write buffer for storage engines that notices when memory lies.
#![deny(rustdoc::broken_intra_doc_links)]

mod error;
mod integrity;
mod invariants;
mod key;
mod memtable;
mod prefetch;
mod sync;
mod tombstone;

pub use error::{Corruption, Error, Place, Result};
#[cfg(feature = "block")]
pub use integrity::block::{BlockChecks, BlockHandle, TableMagic};
pub use integrity::checksum_kind::ChecksumKind;
#[cfg(feature = "block")]
pub use integrity::footer::Footer;
pub use integrity::paranoid::{ParanoidOptions, ParanoidOptionsBuilder};
pub use integrity::protection::{Kvo, Kvos, Protected, StoredProtection};
pub use key::{Bytewise, Comparator, KeyEquality, KeyOrder, Kind, SequenceNumber};
pub use memtable::batch::{BatchEntries, BatchEntry, SequenceMode, WriteBatch};
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use memtable::fault::Door;
pub use memtable::flush::{FlushEntry, FlushSink, FlushSummary, HiddenVersions, SinkError};
pub use memtable::handle::{Borrowed, Handle, Owned};
pub use memtable::lens::{AtSnapshot, Lens, Raw};
pub use memtable::options::{MemTableOptions, MemTableOptionsBuilder, Representation};
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use memtable::past::Past;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use memtable::piece::{Owner, Part, Piece, Region};
pub use memtable::prefix::{CappedPrefix, FixedPrefix, PrefixExtractor};
pub use memtable::range::{Descending, Range, RangeStats};
pub use memtable::read::{Base, DeletedBy, Entry, Found, Lookup, Operand, Operands, PinnedValue, ValueRef};
pub use memtable::salvage::{Reach, Salvage, Salvaged};
pub use memtable::scan::{Cursor, OwnedCursor, TableCursor};
pub use memtable::scrub::{ScrubProgress, ScrubReport};
pub use memtable::skiplist::list::DuplicatePolicy;
pub use memtable::statistics::Stats;
pub use memtable::table::{ImmutableMemTable, MemTable, TableReader};
pub use memtable::write::{Displaced, Inserted, Writer};
pub use tombstone::fragment_cursor::{FragmentCursor, PairCursor};
pub use tombstone::fragmenter::Fragmenter;
pub use tombstone::fragments::{Fragment, FragmentView, Fragments};
pub use tombstone::span::RangeTombstone;

/// The README's example, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
pub use memtable::write_batch::BatchWritten;
