//! Table files that RocksDB opens (block-based tables, "SST files"): a writer that verifies what it
//! writes, and a reader that trusts no byte.
//!
//! [`SortedTableWriter`] takes the entries of a flush with the digests that their memtable stored,
//! and compares the bytes of every finished block with these digests. The file gets its name only
//! when it is whole, synced and read back. [`SortedTable`] reads these files, RocksDB's own and
//! LevelDB's, and uses no byte before it is verified.
//!
//! # What the writer writes
//!
//! * Format versions 2 to 6; the default is 5.
//! * Data blocks, cut by RocksDB's rule.
//! * An index of user keys, or of internal keys if two blocks have entries of one user key.
//! * A full Bloom filter with RocksDB's own hash: XXPH3, or `BloomHash` below version 5.
//! * Range deletions as fragments, and the properties.
//! * Every checksum kind of RocksDB: `none`, `crc32c`, `xxhash`, `xxhash64`, `xxh3`.
//! * Compression by lz4, snappy and zstd, with the features `lz4`, `snappy` and `zstd`. All three
//!   are written in Rust. zstd has only its fastest level, and is far slower than the other two.
//!
//! The writer refuses what RocksDB cannot hold, and names the entry. With `limits()` an engine can
//! refuse such a write before it acknowledges it. `ingestible()` writes a file for
//! `IngestExternalFile`: one entry per key, at sequence 0.
//!
//! The steps of a file are: temporary name, sync, read back, rename, sync of the directory. A
//! temporary file that a crash leaves ends in `.tmp` and may be deleted.
//!
//! # The chain of trust
//!
//! A flush entry carries the digests that its table stored when the entry was written. When a block
//! ends, the writer computes its checksum first. Then it decodes every entry from the bytes that it
//! will write, decompressed if need be, and compares the entry with its digests. The comparison
//! finds a bit that flips before the checksum, the checksum one that flips after it. The read back
//! adds up the digests of all entries and compares the sum and the counts.
//!
//! # The reader
//!
//! `SortedTable` reads the files of:
//!
//! * this crate;
//! * RocksDB, format versions 0 to 7: both index forms, ingested files whose global sequence number
//!   was overwritten, and blocks that lz4, snappy or zstd compressed, with those features;
//! * LevelDB: tables that are not compressed, and with the feature `snappy` those that snappy
//!   compressed. They have no properties, and the reader does not use their filter.
//!
//! A damaged byte is `Corruption` with file, offset and block. `verify()` reads every block that
//! the file names, also those with unknown names, and checks what the blocks say about each other.
//! No input panics or hangs. The reader keeps no cache: a get reads and verifies one block. Blocks
//! in the reader's own memory, the index and the filter among them, are not verified again.
//!
//! A cursor shares its table, is `'static` and `Send`, and moves both ways in RocksDB's order. It
//! can be a source of an engine's merging cursor (`tests/suite/merging.rs` has one).
//! `covering_tombstone` returns what the file's range deletions hide.
//!
//! Memory is bounded by a multiple of the file:
//!
//! * Keys that share prefixes may have 128 times the bytes of their block.
//! * A compressed block decodes to at most 22 (snappy), 255 (lz4) or 2^15 (zstd) times its bytes.
//! * A zstd frame that lies about its size takes up to 2^17 times its bytes while it is decoded.
//!
//! Opening a file refuses, by name:
//!
//! * Pebble's own tables, and format versions after 7;
//! * zlib, bzip2 and xpress, if the properties state them;
//! * dictionaries, two-level and first-key indexes, orders of keys other than bytewise.
//!
//! A read refuses, when it meets it:
//!
//! * a block of a LevelDB table in another compression (zstd, or zlib in Minecraft's);
//! * values that are stored apart from keys;
//! * with number and name, an entry of another kind than put, delete, single delete and merge (blob
//!   indexes, wide columns, timestamps, Pebble's own). Other keys of the file are read, and a
//!   cursor continues past such an entry.
//!
//! Filters of blocks and of other policies answer "maybe". A file without the property
//! `rocksdb.comparator`, such as every LevelDB table, is read in the order of bytes. A block whose
//! restart interval is over 128 and whose keys share more than 128 times its bytes is reported as
//! damaged. In a file made for ingestion, eight bytes cannot be distinguished from damage: the
//! global sequence number, which databases overwrite without a new checksum. `with_global_sequence`
//! compares it with the number that the caller knows.
//!
//! # What is noticed
//!
//! The table shows what notices a flipped bit on the way from a table into a file and back, with
//! `p` protection bytes:
//!
//! | where the bytes are | what notices a flip | what is not noticed |
//! |---|---|---|
//! | key, value, sequence number and kind of an entry, from the node to the finished block | the node's own digests, compared with the entry as it is decoded from the block | 2^-8p of the flips; all with p = 0 |
//! | a finished data or range-deletion block | the comparison for a flip before the checksum is computed, the checksum for one after it | with kind `none`, flips after the comparison |
//! | index, filter, properties and metaindex, while they are built | the read back: separators are between the keys, the filter denies no key, counts and sums of lengths agree | all of it if `verify_after_write` is off; times and names in the properties; a filter that says "maybe" more often |
//! | the file between writing and renaming | the read back: every checksum, and the sum of all entries' digests | bytes that are right in the kernel's memory and wrong on the medium |
//! | range deletions | the comparison in their block; they are sealed as fragments, and verified after the flush has passed them on | flips between the table's verified copy and the seal |
//! | the result of a merge operator | nothing: a new chain begins with the result | flips before its digest is computed |
//! | a file at rest | the checksum of each block. A version 6 footer has a checksum too. In lower versions its padding must be zero, its version must be the one in the properties, and its index must be none of the other blocks. In a LevelDB table, metaindex, index and footer follow each other | with kind `none`, most flips; in a file made for ingestion, the eight bytes of the global sequence number |
//! | a block, the index or the filter in the reader's memory | nothing once it was verified: a data block until the cursor leaves it, index and filter until the table is dropped | all flips |
//!
//! `InvalidArgument` refuses what files cannot hold before anything is written. After a crash the
//! file is whole under its final name, or there is no such file. The reader compares each length
//! with the bytes that are there before it uses it.
//!
//! The tests try:
//!
//! * every bit and every length of small files in five versions and four kinds, and of files that
//!   LevelDB, goleveldb and RocksDB 3 to 5 wrote;
//! * every bit of a block before its checksum;
//! * flips between table and block at 1 to 8 protection bytes;
//! * 10 000 crash points of a disk that loses what was not synced (a writer that does not sync
//!   fails this test), a full disk at every seventh byte, and killed processes;
//! * two fuzz targets: `sorted_table` patches any bytes after checksums that check nothing, and
//!   `compressed_block` decodes any bytes as a compressed block.
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
mod get;
mod index_builder;
mod ingest;
mod internal_key;
mod limits;
mod new_file;
mod options;
mod properties;
mod separator;
mod sorted_source;
mod storage;
mod table;
mod table_file;
mod table_source;
mod tombstones;
mod verify;
mod writer;
mod xxph3;

pub use coding::BlockHandle;
pub use cursor::{TableCursor, TableEntry};
pub use error::{BlockKind, Corruption, Error, Result};
pub use finish::Written;
pub use footer::Footer;
pub use get::{MergeOperands, TableValue};
pub use ingest::{MergeOperator, ingestible, ingestible_in};
pub use limits::{Limits, limits};
pub use options::{
    ColumnFamily, Compression, IndexShortening, SortedTableOptions, SortedTableOptionsBuilder,
};
pub use properties::Properties;
pub use storage::{Disk, Storage, StorageFile};
pub use table::SortedTable;
pub use table_source::{SharedMemory, TableSource};
pub use verify::VerifyReport;
pub use writer::SortedTableWriter;

/// The README's example, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
