//! Table files that RocksDB opens (block-based tables, "SST files"): written while verifying, read back without trust.
//!
//! [`SortedTableWriter`] takes the entries of a flush together with the digests that their memtable stored, compares
//! the bytes of every finished block with them, and gives the file its name only once it is whole, synced and read
//! back. [`SortedTable`] reads such files, RocksDB's own ones among them, and believes no byte that it has not
//! verified.
#![forbid(unsafe_code)]
#![deny(rustdoc::broken_intra_doc_links)]

mod block_builder;
mod block_cursor;
mod chain;
mod coding;
mod compression;
mod cursor;
mod error;
mod filter;
mod finish;
mod footer;
mod index_builder;
mod ingest;
mod internal_key;
mod limits;
mod lookup;
mod new_file;
mod options;
mod properties;
mod separator;
mod sorted_source;
mod source;
mod storage;
mod table;
mod table_file;
mod tombstones;
mod verify;
mod writer;
mod xxph3;

pub use coding::BlockHandle;
pub use cursor::{TableCursor, TableEntry};
pub use error::{BlockKind, Corruption, Error, Result};
pub use finish::Written;
pub use footer::Footer;
pub use ingest::{MergeOperator, ingestible, ingestible_in};
pub use limits::{Limits, limits};
pub use lookup::{MergeBase, TableLookup};
pub use options::{
    ColumnFamily, Compression, IndexShortening, SortedTableOptions, SortedTableOptionsBuilder,
};
pub use properties::Properties;
pub use source::{SharedMemory, TableSource};
pub use storage::{Disk, Storage, StorageFile};
pub use table::SortedTable;
pub use verify::VerifyReport;
pub use writer::SortedTableWriter;

/// The README's example, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
