//! The properties block: names and values, in order of names.
//!
//! Plain data; any thread.

use std::collections::BTreeMap;

use crate::block_builder::{BlockBuilder, ValueForm};
use crate::block_cursor::BlockCursor;
use crate::coding::{put_varint, take_varint, u32_at, u64_at};
use crate::error::Damage;

pub(crate) const INDEX_TYPE: &str = "rocksdb.block.based.table.index.type";
pub(crate) const INDEX_KEY_IS_USER_KEY: &str = "rocksdb.index.key.is.user.key";
pub(crate) const INDEX_VALUE_IS_DELTA: &str = "rocksdb.index.value.is.delta.encoded";
pub(crate) const COMPRESSION: &str = "rocksdb.compression";
pub(crate) const COMPARATOR: &str = "rocksdb.comparator";
pub(crate) const NUM_ENTRIES: &str = "rocksdb.num.entries";
pub(crate) const NUM_RANGE_DELETIONS: &str = "rocksdb.num.range-deletions";
pub(crate) const DATA_SIZE: &str = "rocksdb.data.size";
pub(crate) const NUM_DATA_BLOCKS: &str = "rocksdb.num.data.blocks";
pub(crate) const RAW_KEY_SIZE: &str = "rocksdb.raw.key.size";
pub(crate) const RAW_VALUE_SIZE: &str = "rocksdb.raw.value.size";
pub(crate) const FORMAT_VERSION: &str = "rocksdb.format.version";
pub(crate) const EXTERNAL_VERSION: &str = "rocksdb.external_sst_file.version";
pub(crate) const GLOBAL_SEQUENCE: &str = "rocksdb.external_sst_file.global_seqno";
pub(crate) const WHOLE_KEY_FILTERING: &str = "rocksdb.block.based.table.whole.key.filtering";
pub(crate) const PREFIX_FILTERING: &str = "rocksdb.block.based.table.prefix.filtering";
pub(crate) const BYTEWISE: &str = "leveldb.BytewiseComparator";
/// RocksDB 4 writes this before the comparator's name.
pub(crate) const INTERNAL_COMPARATOR: &[u8] = b"rocksdb.InternalKeyComparator:";

/// The properties of a file, as the file states them.
///
/// ```
/// # use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};
/// # use paranoid_memtable::Kind;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("1.sst");
/// # let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// # writer.add(b"k", 1, Kind::PUT, b"v")?;
/// # writer.finish()?;
/// let table = SortedTable::open(&path)?;
/// let properties = table.properties();
/// assert_eq!(properties.number("rocksdb.num.entries"), Some(1));
/// assert_eq!(properties.get("rocksdb.comparator"), Some(b"leveldb.BytewiseComparator".as_slice()));
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Offset in the block of the value of the global sequence number.
    pub(crate) global_sequence_at: Option<usize>,
}

impl Properties {
    /// The value of a property, as stored.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.values.get(name.as_bytes()).map(Vec::as_slice)
    }

    /// The value of a property as a number, which is stored as a varint. `None`: there is no such
    /// property, or it is not a varint.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match take_varint(self.get(name)?) {
            Some((number, [])) => Some(number),
            _ => None,
        }
    }

    /// All names and values, in order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    pub(crate) fn fixed32(&self, name: &str) -> Option<u32> {
        self.get(name)
            .filter(|value| value.len() == 4)
            .and_then(|value| u32_at(value, 0))
    }

    pub(crate) fn fixed64(&self, name: &str) -> Option<u64> {
        self.get(name)
            .filter(|value| value.len() == 8)
            .and_then(|value| u64_at(value, 0))
    }

    pub(crate) fn put(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.values.insert(name.as_bytes().to_vec(), value.into());
    }

    pub(crate) fn put_number(&mut self, name: &str, number: u64) {
        let mut value = vec![];
        put_varint(&mut value, number);
        self.put(name, value);
    }

    /// Encodes the block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = BlockBuilder::new(u32::MAX, ValueForm::Plain);
        for (name, value) in &self.values {
            block.add(name, value);
        }
        block.finish().to_vec()
    }

    /// Decodes a block, whose names must ascend. SST-BLOCK-CURSOR-1 bounds the memory.
    pub(crate) fn decode(block: &[u8]) -> Result<Properties, Damage> {
        let mut cursor = BlockCursor::new(block, ValueForm::Plain, 0)?;
        let mut properties = Properties::default();
        let mut more = cursor.first()?;
        while more {
            let (name, value) = (cursor.key(), cursor.value());
            let ascends = properties
                .values
                .last_key_value()
                .is_none_or(|(last, _)| last.as_slice() < name);
            if !ascends {
                return Err(Damage("names that do not ascend"));
            }
            if name == GLOBAL_SEQUENCE.as_bytes() {
                properties.global_sequence_at = Some(cursor.value_at());
            }
            properties.values.insert(name.to_vec(), value.to_vec());
            more = cursor.advance()?;
        }
        Ok(properties)
    }
}
