//! Table files that RocksDB opens (block-based tables, "SST files"): written while verifying, read
//! back without trust.
//!
//! [`SortedTableWriter`] takes the entries of a flush together with the digests that their memtable
//! stored, compares the bytes of every finished block with them, and gives the file its name only
//! once it is whole, synced and read back. [`SortedTable`] reads such files, RocksDB's own and
//! LevelDB's among them, and believes no byte that it has not verified.
//!
//! # What it writes
//!
//! Format versions 2 to 6 (5 by default), data blocks cut by RocksDB's rule, an index of user keys
//! or, as soon as one user key stands in two blocks, of internal keys, a full Bloom filter with
//! RocksDB's own hash (XXPH3, below version 5 `BloomHash`), range deletions as fragments,
//! properties, and every checksum that RocksDB has (`none`, `crc32c`, `xxhash`, `xxhash64`,
//! `xxh3`). Compression by lz4, snappy and zstd behind the features `lz4`, `snappy` and `zstd`, all
//! of them in Rust; zstd at its fastest level only, and far slower than the other two. What RocksDB
//! cannot hold is refused by name; `limits()` lets an engine refuse it before it acknowledges a
//! write. `ingestible()` writes one entry per key at sequence 0, for `IngestExternalFile`.
//!
//! A file has its name only once it is whole: temporary name, sync, read back, rename, sync of the
//! directory. A leftover of a crash ends in `.tmp` and may be deleted.
//!
//! # The chain of trust
//!
//! A flush entry carries the digests that its table stored when the entry was written. When a block
//! ends, its checksum is computed first; then every entry is decoded from the bytes to be written,
//! decompressed if need be, and compared with those digests. A flip before the checksum is found by
//! the comparison, one after it by the checksum. The read back adds up the digests of all entries
//! and compares sum and counts.
//!
//! # The reader
//!
//! `SortedTable` reads its own files, RocksDB's and LevelDB's. Of RocksDB: versions 0 to 7, both
//! index forms, ingested files whose global sequence number was overwritten; blocks that lz4,
//! snappy or zstd compressed, with those features. Of LevelDB: tables that are not compressed, and
//! with the feature `snappy` those that are; they have no properties, and their filter is not
//! asked. A damaged byte is `Corruption` with file, offset and block. `verify()` reads every block
//! that the file names, those with unknown names too, and checks what the blocks say about each
//! other. No input panics or hangs. Memory is bounded by a multiple of the file: keys that share
//! prefixes may have 128 times the bytes of their block, a compressed block stands for 22 (snappy),
//! 255 (lz4) or 2^15 (zstd) times its bytes; while a zstd frame is decoded that lies about its
//! size, 2^17 times. It keeps no cache: a get reads and verifies one block. A cursor shares its
//! table, is `'static` and `Send`, and moves both ways in RocksDB's order, so it can be a source of
//! an engine's merging cursor (`tests/suite/merging.rs` has one); `covering_tombstone` says what
//! the file's range deletions hide. Blocks are not verified again while they lie in the reader's
//! own memory, the index and the filter among them.
//!
//! Not read, and refused by name when the file is opened: Pebble's own tables, versions after 7,
//! zlib, bzip2, xpress (judged by what the properties state), dictionaries, two-level and first-key
//! indexes, orders of keys other than bytewise. Refused when it is met: a block of a LevelDB table
//! in another compression (zstd, or zlib in Minecraft's), values stored apart from keys, and, with
//! number and name, entries of other kinds than put, delete, single delete and merge (blob indexes,
//! wide columns, timestamps, Pebble's own); other keys of the file are read, and a cursor goes on
//! behind them. Filters of blocks and of other policies are answered with "maybe". A file without
//! the property `rocksdb.comparator`, as every LevelDB table is, is taken for one in the order of
//! bytes. A block whose restart interval is over 128 and whose keys share more than 128 times its
//! bytes is called damaged. In a file that was made to be ingested eight bytes cannot be told from
//! damage: the global sequence number, which databases overwrite without renewing the checksum.
//! `with_global_sequence` compares it with the one that the caller knows.
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
//! | a file at rest | the checksum of each block; a version 6 footer has one too; before that its padding must be zero, its version the one that the properties state, and its index none of the other blocks; metaindex, index and footer of a LevelDB table follow each other | with kind `none` most flips; in a file to be ingested the eight bytes of the global sequence number |
//! | a block, the index or the filter in the reader's memory | nothing once it was verified: a data block until the cursor leaves it, index and filter until the table is dropped | all that flips there |
//!
//! `InvalidArgument` refuses before anything is written what files cannot hold. A crash leaves no
//! file of the final name or a whole one. The reader believes no length before it is compared with
//! what is there; its memory is bounded by a multiple of the file. Tried by: every bit and every
//! length of small files in five versions and four kinds, and of files that LevelDB, goleveldb and
//! RocksDB 3 to 5 wrote; every bit of a block before its checksum, flips between table and block at
//! 1 to 8 bytes, 10 000 crash points of a disk that forgets what was not synced (a writer that does
//! not sync is caught), a full disk at every seventh byte, killed processes, and the fuzz targets
//! `sorted_table`, which patches any bytes after checksums that check nothing, and
//! `compressed_block`, which calls any bytes a compressed block.
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
pub use get::MergeOperands;
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
