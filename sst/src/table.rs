//! The reader: opens a table file of any bytes.
//!
//! ```text
//!   footer -> metaindex -> properties -> range deletions, index, filter (kept in memory)
//! ```
//! Any thread: a table is immutable, and a clone shares it. `TableFile` verifies each block when it
//! is fetched (SST-TABLE-FILE-1, SST-TABLE-FILE-2). Not promised: that blocks which are in memory,
//! the index among them, stay intact.

use std::iter::FusedIterator;
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::{Kind, SequenceNumber};

use crate::block_builder::ValueForm;
use crate::block_cursor::BlockCursor;
use crate::coding::{BlockHandle, take_handle};
use crate::cursor::TableCursor;
use crate::error::{BlockKind, Damage, Error, Result};
use crate::finish::{
    DICTIONARY, FILTER, FILTERS, INDEX, OLD_PROPERTIES, PROPERTIES, RANGE_DELETIONS,
};
use crate::footer::Footer;
use crate::index_builder::IndexForm;
use crate::internal_key::{SEQUENCE_MAX, TAIL_LEN, foreign_name, sequence_of};
use crate::properties::Properties;
use crate::storage::{Disk, Storage};
use crate::table_file::{TableFile, report};
use crate::table_source::{BlockBytes, TableSource};
use crate::tombstones::Tombstones;
use crate::{compression, filter, properties, tombstones};

/// A table file that is open for reading: RocksDB's, LevelDB's, or one that
/// [`SortedTableWriter`](crate::SortedTableWriter) wrote. Any number of threads use it at once; a
/// clone shares it. Index, filter, properties and range deletions are in memory, and were verified
/// once. Data blocks are read and verified each time they are needed.
///
/// ```
/// # use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};
/// # use paranoid_memtable::Kind;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("1.sst");
/// # let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// # writer.add(b"apple", 7, Kind::PUT, b"red")?;
/// # writer.finish()?;
/// let table = SortedTable::open(&path)?;
/// table.verify()?;                                     // every block, every entry
/// assert!(table.get(b"apple", 7)?.value() == Some(b"red"));
/// assert!(table.get(b"apple", 6)?.found().is_none());
/// let mut cursor = table.cursor();
/// cursor.last()?;
/// assert_eq!(cursor.entry().map(|entry| entry.user_key), Some(b"apple".as_slice()));
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SortedTable {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) base: TableFile,
    pub(crate) properties: Properties,
    pub(crate) index: BlockBytes,
    pub(crate) index_handle: BlockHandle,
    pub(crate) index_form: IndexForm,
    filter: Option<BlockBytes>,
    pub(crate) tombstones: Tombstones,
    /// Every block that the file names, except data blocks and the index.
    pub(crate) named: Vec<(BlockKind, BlockHandle)>,
    /// The global sequence number of an ingested file, which every entry has.
    pub(crate) global_sequence: Option<SequenceNumber>,
}

/// The blocks that the metaindex names.
#[derive(Default)]
struct Names {
    filter: Option<BlockHandle>,
    index: Option<BlockHandle>,
    properties: Option<BlockHandle>,
    range_deletions: Option<BlockHandle>,
    dictionary: Option<BlockHandle>,
    /// Blocks that are verified and not used.
    others: Vec<(BlockKind, BlockHandle)>,
}

impl Names {
    /// Every block except data blocks and the index.
    fn blocks(&self, metaindex: BlockHandle) -> Vec<(BlockKind, BlockHandle)> {
        let known = [
            (BlockKind::Metaindex, Some(metaindex)),
            (BlockKind::Properties, self.properties),
            (BlockKind::RangeDeletions, self.range_deletions),
            (BlockKind::Filter, self.filter),
        ];
        let known = known
            .into_iter()
            .filter_map(|(kind, handle)| Some((kind, handle?)));
        known.chain(self.others.iter().copied()).collect()
    }
}

impl SortedTable {
    /// Opens a file and reads all blocks except the data blocks: O(bytes of index, filter,
    /// properties and range deletions).
    ///
    /// The property `rocksdb.comparator` names the order of keys. A file without it, as old ones
    /// and all of LevelDB are, is read in the order of bytes. If its order is another, gets miss
    /// keys, and `verify` reports that keys do not ascend.
    ///
    /// # Errors
    /// * `Io`.
    /// * `Corruption` with file, offset and block.
    /// * `NotSupported`, with the name of the feature, for an intact file of another table format
    ///   (Pebble's, a later version), order of keys or index, and for a file whose properties state
    ///   a compression that this build does not read.
    pub fn open(path: impl AsRef<Path>) -> Result<SortedTable> {
        let path = path.as_ref();
        SortedTable::from_source(path, Disk.open(path).map_err(Error::io("open", path))?)
    }

    /// Opens a table whose bytes are in memory or in an open file. Reports use `name`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_source(name: impl AsRef<Path>, source: TableSource) -> Result<SortedTable> {
        SortedTable::with_global_sequence(name, source, None)
    }

    /// Opens a table as [`from_source`](Self::from_source) does, for an ingested file whose
    /// sequence number is stored elsewhere, in the manifest of its database. Every entry has
    /// `global_sequence`. It is ignored for files that were not made for ingestion.
    ///
    /// # Errors
    /// As [`open`](Self::open); `InvalidArgument` if the file states another sequence number.
    pub fn with_global_sequence(
        name: impl AsRef<Path>,
        source: TableSource,
        global_sequence: Option<SequenceNumber>,
    ) -> Result<SortedTable> {
        let inner = TableFile::new(name.as_ref(), source)?.open(global_sequence)?;
        Ok(SortedTable {
            inner: Arc::new(inner),
        })
    }

    /// The properties of the file. A LevelDB table has none.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.inner.properties
    }

    /// The footer of the file, with its format version and checksum kind.
    #[must_use]
    pub fn footer(&self) -> &Footer {
        &self.inner.base.footer
    }

    /// All blocks except the data blocks: kind, and offset and size in bytes without the trailer.
    /// The index is among them.
    pub fn blocks(&self) -> impl FusedIterator<Item = (BlockKind, BlockHandle)> {
        let index = (BlockKind::Index, self.inner.index_handle);
        self.inner.named.iter().copied().chain([index])
    }

    /// Range deletions as they are stored: start, end, sequence number.
    pub fn range_tombstones(&self) -> impl FusedIterator<Item = (&[u8], &[u8], SequenceNumber)> {
        self.inner.tombstones.iter()
    }

    /// The largest sequence number, up to `snapshot`, of a range deletion over `user_key`.
    /// O(log^2 n) for n range deletions; the first call builds an index over them.
    ///
    /// # Errors
    /// `Memtable` if the memory of this index is damaged.
    pub fn covering_tombstone(
        &self,
        user_key: impl AsRef<[u8]>,
        snapshot: SequenceNumber,
    ) -> Result<Option<SequenceNumber>> {
        self.inner.tombstones.covering(user_key.as_ref(), snapshot)
    }

    /// A cursor over entries as they are stored: every version, range deletions not applied. It is
    /// at no entry before its first move.
    #[must_use]
    pub fn cursor(&self) -> TableCursor {
        TableCursor::new(self.clone())
    }

    /// Whether the file may have entries of this user key, by the filter alone: O(key length), one
    /// cache line of the filter. `false` is certain as long as the filter in memory is intact.
    /// Without a filter the answer is `true`.
    #[must_use]
    pub fn may_hold(&self, user_key: impl AsRef<[u8]>) -> bool {
        self.inner
            .filter
            .as_ref()
            .is_none_or(|block| filter::may_hold(block.as_ref(), user_key.as_ref()))
    }
}

impl TableFile {
    fn open(mut self, wanted: Option<SequenceNumber>) -> Result<Inner> {
        let names = self.names()?;
        self.is_leveldb &= names.properties.is_none();
        if names.dictionary.is_some() {
            return Err(self.not_supported("a compression dictionary"));
        }
        let properties = self.properties(&names)?;
        let index_form = self.index_form(&properties)?;
        let global_sequence = self.global_sequence(&properties, wanted)?;
        let Some(index_handle) = names.index.or(self.footer.index()) else {
            return Err(self.missing("the metaindex names no index"));
        };
        let named = names.blocks(self.footer.metaindex());
        // Before format version 6 no checksum covers this handle: with a flipped bit it may name
        // another block of the same size.
        let data_end = properties.number(properties::DATA_SIZE).unwrap_or(0);
        if index_handle.offset < data_end || named.iter().any(|(_, handle)| *handle == index_handle)
        {
            return Err(self.damaged(BlockKind::Index, index_handle)(Damage(
                "another block in place of the index",
            )));
        }
        let index = self.fetch(BlockKind::Index, index_handle)?;
        let mut list = vec![];
        if let Some(handle) = names.range_deletions {
            let block = self.fetch(BlockKind::RangeDeletions, handle)?;
            let read = tombstones::read(block.as_ref(), global_sequence);
            list = read.map_err(self.damaged(BlockKind::RangeDeletions, handle))?;
        }
        let whole_keys = properties
            .get(properties::WHOLE_KEY_FILTERING)
            .is_none_or(|value| value == b"1");
        // A damaged filter counts as none, which answers "maybe". `verify` reports the damage.
        let filter = names.filter.filter(|_| whole_keys);
        let filter = filter.and_then(|handle| self.fetch(BlockKind::Filter, handle).ok());
        Ok(Inner {
            index,
            index_handle,
            index_form,
            filter,
            tombstones: Tombstones::new(list),
            named,
            global_sequence,
            properties,
            base: self,
        })
    }

    #[cold]
    fn missing(&self, what: &'static str) -> Error {
        self.damaged(BlockKind::Metaindex, self.footer.metaindex())(Damage(what))
    }

    fn names(&self) -> Result<Names> {
        let handle = self.footer.metaindex();
        let block = self.fetch(BlockKind::Metaindex, handle)?;
        read_names(block.as_ref()).map_err(self.damaged(BlockKind::Metaindex, handle))
    }

    /// The properties. If their checksum is wrong, it must be right with a global sequence number
    /// of zero: databases overwrite that number in place.
    fn properties(&self, names: &Names) -> Result<Properties> {
        let Some(handle) = names.properties else {
            return match self.is_leveldb {
                true if self.footer.is_last_of_leveldb(self.footer_offset()) => {
                    Ok(Properties::default())
                }
                true => {
                    Err(self.missing("metaindex, index and footer are not one after the other"))
                }
                false => Err(self.missing("no properties are named")),
            };
        };
        let block = self.fetch_properties(handle)?;
        Properties::decode(block.as_ref()).map_err(self.damaged(BlockKind::Properties, handle))
    }

    fn index_form(&self, properties: &Properties) -> Result<IndexForm> {
        let is_other = |name: &&[u8]| {
            name.strip_prefix(properties::INTERNAL_COMPARATOR)
                .unwrap_or(name)
                != properties::BYTEWISE.as_bytes()
        };
        if let Some(comparator) = properties.get(properties::COMPARATOR).filter(is_other) {
            return Err(self.not_supported(format!("comparator {}", comparator.escape_ascii())));
        }
        let kind = properties.fixed32(properties::INDEX_TYPE).unwrap_or(0);
        let name = match kind {
            0 | 1 => None,
            2 => Some("index of two levels (type 2)".into()),
            3 => Some("index with first keys (type 3)".into()),
            _ => Some(format!("index type {kind}")),
        };
        let compression =
            String::from_utf8_lossy(properties.get(properties::COMPRESSION).unwrap_or_default());
        if let Some(feature) = name.or_else(|| compression::unreadable(&compression)) {
            return Err(self.not_supported(feature));
        }
        let version = properties.number(properties::FORMAT_VERSION).unwrap_or(0);
        let stored = u64::from(self.footer.format_version());
        if version != 0 && version != stored {
            let what = "the format version is not the one that the properties state";
            return Err(report(
                &self.file,
                BlockKind::Footer,
                self.footer_offset(),
                what,
                (version, stored),
            ));
        }
        let flag = |name| properties.number(name).unwrap_or(0) != 0;
        Ok(IndexForm {
            user_keys: flag(properties::INDEX_KEY_IS_USER_KEY),
            values: match flag(properties::INDEX_VALUE_IS_DELTA) {
                true => ValueForm::DeltaHandles,
                false => ValueForm::Plain,
            },
        })
    }

    fn global_sequence(
        &self,
        properties: &Properties,
        wanted: Option<SequenceNumber>,
    ) -> Result<Option<SequenceNumber>> {
        let stated = properties.fixed64(properties::GLOBAL_SEQUENCE);
        let version = properties.fixed32(properties::EXTERNAL_VERSION);
        let holds = match version {
            None => stated.is_none(),
            Some(1) => stated.unwrap_or(0) == 0,
            Some(2) => stated.is_some_and(|sequence| sequence <= SEQUENCE_MAX),
            Some(_) => false,
        };
        if !holds {
            return Err(self.missing("properties of an ingested file that contradict each other"));
        }
        let (Some(2), Some(stated)) = (version, stated) else {
            return Ok(None);
        };
        match wanted {
            Some(wanted) if stated != 0 && stated != wanted => Err(Error::InvalidArgument(
                format!("global sequence {wanted}: the file states {stated}"),
            )),
            wanted => Ok(Some(wanted.unwrap_or(stated))),
        }
    }
}

fn read_names(block: &[u8]) -> Result<Names, Damage> {
    let mut cursor = BlockCursor::new(block, ValueForm::Plain, 0)?;
    let mut names = Names::default();
    let mut last: Option<Vec<u8>> = None;
    let mut more = cursor.first()?;
    while more {
        if last.as_deref().is_some_and(|last| last >= cursor.key()) {
            return Err(Damage("names that do not ascend"));
        }
        let Some((handle, [])) = take_handle(cursor.value()) else {
            return Err(Damage("no handle"));
        };
        match cursor.key() {
            FILTER => names.filter = Some(handle),
            INDEX => names.index = Some(handle),
            PROPERTIES => names.properties = Some(handle),
            OLD_PROPERTIES if names.properties.is_none() => names.properties = Some(handle),
            RANGE_DELETIONS => names.range_deletions = Some(handle),
            DICTIONARY => names.dictionary = Some(handle),
            name if FILTERS.iter().any(|start| name.starts_with(start)) => {
                names.others.push((BlockKind::Filter, handle));
            }
            // Pebble names the block of its range deletions twice.
            _ if names.range_deletions == Some(handle) => {}
            _ => names.others.push((BlockKind::Other, handle)),
        }
        last = Some(cursor.key().to_vec());
        more = cursor.advance()?;
    }
    Ok(names)
}

impl Inner {
    /// A verified data block, with a cursor that is at no entry.
    pub(crate) fn data(&self, handle: BlockHandle) -> Result<BlockCursor<BlockBytes>> {
        let block = self.base.fetch(BlockKind::Data, handle)?;
        BlockCursor::new(block, ValueForm::Plain, TAIL_LEN)
            .map_err(self.base.damaged(BlockKind::Data, handle))
    }

    /// A cursor over the index.
    pub(crate) fn index_cursor(&self) -> Result<BlockCursor<BlockBytes>, Damage> {
        let key_len_min = if self.index_form.user_keys {
            0
        } else {
            TAIL_LEN
        };
        BlockCursor::new(self.index.clone(), self.index_form.values, key_len_min)
    }

    /// The error for an entry that is none of [`DATA_KINDS`](crate::internal_key::DATA_KINDS).
    #[cold]
    pub(crate) fn not_read(&self, kind: Kind) -> Error {
        self.base.not_supported(format!(
            "an entry of kind {} ({})",
            kind.as_u8(),
            foreign_name(kind)
        ))
    }

    /// Refuses an entry of an ingested file with a sequence number of its own: all entries have the
    /// global one.
    pub(crate) fn check_sequence(&self, packed: u64) -> Result<(), Damage> {
        match self.global_sequence {
            Some(_) if sequence_of(packed) != 0 => {
                Err(Damage("a sequence number in an ingested file"))
            }
            _ => Ok(()),
        }
    }

    /// Makes reports about the index.
    pub(crate) fn index_damaged(&self) -> impl Fn(Damage) -> Error + '_ {
        self.base.damaged(BlockKind::Index, self.index_handle)
    }

    /// Reads the footer and every named block again.
    pub(crate) fn fetch_named(&self) -> Result<()> {
        if self.base.read_footer()? != self.base.footer {
            return Err(Damage("another footer than before").in_file(
                &self.base.file,
                BlockKind::Footer,
                0,
            ));
        }
        for &(kind, handle) in &self.named {
            match kind {
                BlockKind::Properties => self.base.fetch_properties(handle)?,
                _ => self.base.fetch(kind, handle)?,
            };
        }
        self.base
            .fetch(BlockKind::Index, self.index_handle)
            .map(|_| ())
    }
}
