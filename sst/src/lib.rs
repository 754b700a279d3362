//! Table files that RocksDB opens (block-based tables, "SST files"): written while verifying, read back without trust.
//!
//! [`SortedTableWriter`] takes the entries of a flush together with the digests that their memtable stored, compares
//! the bytes of every finished block with them, and gives the file its name only once it is whole, synced and read
//! back. [`SortedTable`] reads such files, RocksDB's own ones among them, and believes no byte that it has not
//! verified.
//!
//! # What is noticed
//!
//! What a flip costs on the way from a table into a file and back, with `p` protection bytes:
//!
//! | where the bytes are | noticed by | what hides |
//! |---|---|---|
//! | key, value, sequence number, kind of an entry, from the node to the finished block | the node's own digests, compared with the entry as it is decoded from the block | 2^-8p of the flips; all with p = 0 |
//! | a finished data or range-deletion block | its checksum, which is computed before that comparison: a flip before the checksum is found by the comparison, one after it by the checksum | with kind `none` what flips after the comparison |
//! | index, filter, properties, metaindex, while they are built | the read back: separators stand between the keys, the filter denies no key, counts and sums of lengths agree | with `verify_after_write` off all of it; times and names in the properties; a filter that says "maybe" more often |
//! | the file between writing and renaming | the read back: every checksum, and the sum of all entries' digests | what the kernel's memory has right and the medium has wrong |
//! | range deletions | sealed as fragments, verified after they were handed out, compared in their block | what flips between the table's verified copy and the seal |
//! | what a merge operator answered | nothing: a new chain begins with the answer | all that flips in it before its digest is computed |
//! | a file at rest | the checksum of each block; a version 6 footer has one too; before that its padding must be zero and its version that of the properties | with kind `none` most flips; in a file to be ingested the eight bytes of the global sequence number |
//! | a block, the index or the filter in the reader's memory | nothing once it was verified: a data block until the cursor leaves it, index and filter until the table is dropped | all that flips there |
//!
//! `InvalidArgument` refuses before anything is written what files cannot hold. A crash leaves no file of the final name or a
//! whole one. The reader believes no length before it is compared with what is there; its memory is bounded by a multiple of
//! the file. Tried by: every bit and every length of small files in five versions and four kinds, every bit of a block before its checksum,
//! flips between table and block at 1 to 8 bytes, 10 000 crash points of a disk that forgets what was not synced (a writer that
//! does not sync is caught), a full disk at every seventh byte, killed processes, and the fuzz targets `sorted_table`, which patches
//! any bytes after checksums that check nothing, and `compressed_block`, which calls any bytes a compressed block.
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
