//! Completes a file: filter, index, range deletions, properties, metaindex, footer; then sync, read
//! back, rename.
//!
//! One owner.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use paranoid_memtable::SequenceNumber;

use crate::block_builder::{BlockBuilder, ValueForm};
use crate::coding::{BlockHandle, TRAILER_LEN, put_handle};
use crate::compression::RAW;
use crate::error::{BlockKind, Error, Result};
use crate::footer::Footer;
use crate::index_builder::{IndexBuilder, IndexForm};
use crate::options::{ColumnFamily, Compression};
use crate::properties::{self, Properties};
use crate::storage::Storage;
use crate::table::SortedTable;
use crate::table_file::report;
use crate::writer::{Purpose, SortedTableWriter, seal};

/// Names in the metaindex.
pub(crate) const FILTER: &[u8] = b"fullfilter.rocksdb.BuiltinBloomFilter";
/// The first part of a filter's name: full filters, filters of blocks or prefixes, partitioned
/// ones.
pub(crate) const FILTERS: [&[u8]; 3] = [b"fullfilter.", b"filter.", b"partitionedfilter."];
pub(crate) const INDEX: &[u8] = b"rocksdb.index";
pub(crate) const PROPERTIES: &[u8] = b"rocksdb.properties";
/// The name of the properties in RocksDB 2.
pub(crate) const OLD_PROPERTIES: &[u8] = b"rocksdb.stats";
pub(crate) const RANGE_DELETIONS: &[u8] = b"rocksdb.range_del";
pub(crate) const DICTIONARY: &[u8] = b"rocksdb.compression_dict";

const COMPRESSION_OPTIONS: &str = "window_bits=-14; level=32767; strategy=0; max_dict_bytes=0; \
    zstd_max_train_bytes=0; enabled=0; max_dict_buffer_bytes=0; use_zstd_dict_trainer=1; ";

/// The result of [`SortedTableWriter::finish`]: all that a manifest needs. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Size of the file.
    pub file_size: u64,
    /// Number of entries without range deletions.
    pub entries: u64,
    /// Number of range deletions.
    pub range_deletions: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Bytes of data blocks with their trailers.
    pub data_size: u64,
    /// Bytes of the index block with its trailer.
    pub index_size: u64,
    /// Bytes of the filter block. 0: the file has no filter.
    pub filter_size: u64,
    /// Smallest and largest sequence number.
    pub sequences: Option<(SequenceNumber, SequenceNumber)>,
    /// The smallest user key and the end of the file's keys. The end is the largest user key of an
    /// entry (`Included`), or the last end of a range deletion if that is after it (`Excluded`).
    /// `LevelSource` of `paranoid-set` takes these bounds; a manifest stores the kind of the end in
    /// a byte.
    pub bounds: Option<(Vec<u8>, Bound<Vec<u8>>)>,
}

/// Sizes for the properties.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    data: u64,
    blocks: u64,
    index: u64,
    filter: u64,
    filter_keys: u64,
}

impl<S: Storage> SortedTableWriter<S> {
    /// Ends the file: writes the blocks after the data, syncs, reads the file back unless
    /// `verify_after_write` is off, and renames it.
    ///
    /// # Errors
    /// `InvalidArgument` for a file without any entry; `Corruption` if a block, or the file that
    /// was read back, is not what came in; `Io`. There is no file then.
    pub fn finish(mut self) -> Result<Written> {
        self.end_data()?;
        if self.counts.points + self.counts.range_deletions == 0 {
            return Err(Error::InvalidArgument(
                "a table file without any entry".into(),
            ));
        }
        let mut names: BTreeMap<&[u8], BlockHandle> = BTreeMap::new();
        let data = self.out.offset;
        let filter_keys = self.filter.as_ref().map_or(0, |filter| filter.len());
        let filter = match self.filter.take().and_then(|filter| filter.finish()) {
            Some(block) => {
                names.insert(FILTER, self.append_block(&block)?);
                block.len() as u64
            }
            None => 0,
        };
        let blocks = self.index.len();
        let empty = IndexBuilder::new(&self.options);
        let (block, form) = std::mem::replace(&mut self.index, empty).finish();
        let index = self.append_block(&block)?;
        if self.options.format_version >= 6 {
            names.insert(INDEX, index);
        }
        if self.counts.range_deletions > 0 {
            names.insert(RANGE_DELETIONS, self.append_ranges()?);
        }
        let sizes = Sizes {
            data,
            blocks,
            index: block.len() as u64 + TRAILER_LEN,
            filter,
            filter_keys,
        };
        let block = self.properties(&sizes, form).encode();
        names.insert(PROPERTIES, self.append_block(&block)?);
        let metaindex = self.append_block(&metaindex(&names))?;
        self.append_footer(metaindex, index)?;
        self.complete(&sizes)
    }

    fn append_block(&mut self, block: &[u8]) -> Result<BlockHandle> {
        let offset = self.out.offset;
        let trailer = self.checks.trailer(block, RAW, offset);
        self.out.append(block)?;
        self.out.append(&trailer)?;
        Ok(BlockHandle {
            offset,
            size: block.len() as u64,
        })
    }

    fn append_ranges(&mut self) -> Result<BlockHandle> {
        let offset = self.out.offset;
        let raw = self.ranges.finish();
        let sealed = seal(
            raw,
            Compression::None,
            &self.checks,
            &self.range_digests,
            offset,
        );
        let (stored, trailer, sum) = sealed.map_err(|damage| {
            damage.in_file(
                &Arc::from(self.out.name.as_path()),
                BlockKind::RangeDeletions,
                offset,
            )
        })?;
        self.out.append(&stored)?;
        self.out.append(&trailer)?;
        self.counts.digests = self.counts.digests.wrapping_add(sum);
        Ok(BlockHandle {
            offset,
            size: stored.len() as u64,
        })
    }

    fn append_footer(&mut self, metaindex: BlockHandle, index: BlockHandle) -> Result<()> {
        let version = self.options.format_version;
        let index = (version < 6).then_some(index);
        let bytes = Footer::new(version, self.checks, metaindex, index)?.encode(self.out.offset)?;
        self.out.append(&bytes)
    }

    fn properties(&self, sizes: &Sizes, form: IndexForm) -> Properties {
        let (options, counts) = (&self.options, &self.counts);
        let mut all = Properties::default();
        let now = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())
        };
        let time = options.creation_time.unwrap_or_else(now);
        let (least, greatest) = counts.sequences.unwrap_or((0, 0));
        let unknown = ColumnFamily::unknown();
        let family = match self.purpose {
            Purpose::Plain => &options.column_family,
            Purpose::Ingestible => &unknown,
        };
        let delta = form.values == ValueForm::DeltaHandles;
        for (name, number) in [
            ("column.family.id", u64::from(family.id)),
            ("creation.time", time),
            ("data.size", sizes.data),
            ("deleted.keys", counts.deletions),
            ("file.creation.time", time),
            ("filter.size", sizes.filter),
            ("fixed.key.length", 0),
            ("format.version", u64::from(options.format_version)),
            ("index.key.is.user.key", u64::from(form.user_keys)),
            ("index.size", sizes.index),
            ("index.value.is.delta.encoded", u64::from(delta)),
            ("key.largest.seqno", greatest),
            ("key.smallest.seqno", least),
            ("merge.operands", counts.merges),
            ("num.data.blocks", sizes.blocks),
            ("num.entries", counts.points + counts.range_deletions),
            ("num.filter_entries", sizes.filter_keys),
            ("num.range-deletions", counts.range_deletions),
            ("raw.key.size", counts.raw_key_bytes),
            ("raw.value.size", counts.raw_value_bytes),
            ("tail.start.offset", sizes.data),
        ] {
            all.put_number(&format!("rocksdb.{name}"), number);
        }
        for (name, text) in [
            (properties::COMPARATOR, properties::BYTEWISE),
            ("rocksdb.column.family.name", family.name.as_str()),
            (properties::COMPRESSION, options.compression.property()),
            ("rocksdb.compression_options", COMPRESSION_OPTIONS),
            ("rocksdb.merge.operator", "nullptr"),
            ("rocksdb.prefix.extractor.name", "nullptr"),
            ("rocksdb.property.collectors", "[]"),
            (properties::WHOLE_KEY_FILTERING, "1"),
            (properties::PREFIX_FILTERING, "0"),
        ] {
            all.put(name, text);
        }
        if sizes.filter > 0 {
            all.put("rocksdb.filter.policy", "bloomfilter");
        }
        all.put(properties::INDEX_TYPE, 0u32.to_le_bytes());
        if self.purpose == Purpose::Ingestible {
            all.put(properties::EXTERNAL_VERSION, 2u32.to_le_bytes());
            all.put(properties::GLOBAL_SEQUENCE, 0u64.to_le_bytes());
        }
        all
    }

    /// Syncs the file, reads it back and renames it (SST-NEW-FILE-1).
    fn complete(mut self, sizes: &Sizes) -> Result<Written> {
        self.out.seal()?;
        if self.options.verify_after_write {
            self.read_back()?;
        }
        let (counts, bounds, file_size) = (self.counts, self.bounds.take(), self.out.offset);
        let path = self.out.publish()?;
        Ok(Written {
            path,
            file_size,
            entries: counts.points,
            range_deletions: counts.range_deletions,
            data_blocks: sizes.blocks,
            data_size: sizes.data,
            index_size: sizes.index,
            filter_size: sizes.filter,
            sequences: counts.sequences,
            bounds,
        })
    }

    /// Reads every block of the sealed file again, and compares the counts and the sum of the
    /// digests with those of the entries that came in.
    fn read_back(&self) -> Result<()> {
        let table = SortedTable::from_source(&self.out.name, self.out.read_back()?)?;
        let read = table.verify()?;
        let pairs = [
            (self.out.offset, read.file_size),
            (self.counts.points, read.entries),
            (self.counts.range_deletions, read.range_deletions),
            (self.counts.digests, read.digest_sum),
            (0, read.unaccounted_bytes),
        ];
        match pairs.into_iter().find(|(written, read)| written != read) {
            None => Ok(()),
            Some(values) => {
                let file = Arc::from(self.out.name.as_path());
                Err(report(
                    &file,
                    BlockKind::Data,
                    0,
                    "what was read back is not what was written",
                    values,
                ))
            }
        }
    }
}

fn metaindex(names: &BTreeMap<&[u8], BlockHandle>) -> Vec<u8> {
    let mut block = BlockBuilder::new(1, ValueForm::Plain);
    let mut value = vec![];
    for (name, handle) in names {
        value.clear();
        put_handle(&mut value, *handle);
        block.add(name, &value);
    }
    block.finish().to_vec()
}
