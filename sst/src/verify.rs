//! `verify`: checks every block of a file, every entry, and what the blocks say about each other.
//!
//! Any thread. O(bytes of all keys and values), which shared prefixes may make up to 128 times the
//! bytes of the file (SST-BLOCK-CURSOR-1).

use paranoid_memtable::SequenceNumber;
use paranoid_memtable::integrity::Protected;

use crate::block_cursor::{BlockCursor, RestartCheck};
use crate::coding::{BlockHandle, TRAILER_LEN};
use crate::error::{BlockKind, Damage, Error, Result};
use crate::internal_key::{DATA_KINDS, TAIL_LEN, kind_of, sequence_of, split, user_key};
use crate::separator::same_user_key;
use crate::table::SortedTable;
use crate::table_file::report;
use crate::table_source::BlockBytes;
use crate::{internal_key, properties};

/// The result of [`SortedTable::verify`] for a file without damage. Sizes are in bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Bytes of the file.
    pub file_size: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Bytes of data blocks with their trailers.
    pub data_size: u64,
    /// Number of entries without range deletions.
    pub entries: u64,
    /// Number of range deletions.
    pub range_deletions: u64,
    /// Bytes that are in no block and not in the footer: padding, which is not checked. 0 in files
    /// of this crate.
    pub unaccounted_bytes: u64,
    /// Smallest and largest sequence number of entries and range deletions.
    pub sequences: Option<(SequenceNumber, SequenceNumber)>,
    /// Sum of the digests of all entries and range deletions. Another version may compute other
    /// digests: compare it only within one program.
    pub digest_sum: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
}

impl VerifyReport {
    fn meet(&mut self, user_key: &[u8], packed: u64, value: &[u8], sequence: SequenceNumber) {
        let digest = Protected::of(user_key, value, kind_of(packed))
            .with_sequence(sequence_of(packed))
            .to_bits();
        self.digest_sum = self.digest_sum.wrapping_add(digest);
        self.raw_key_bytes += (user_key.len() + TAIL_LEN) as u64;
        self.raw_value_bytes += value.len() as u64;
        let (low, high) = self.sequences.unwrap_or((sequence, sequence));
        self.sequences = Some((low.min(sequence), high.max(sequence)));
    }
}

/// A pass over the data blocks.
struct Pass<'a> {
    table: &'a SortedTable,
    report: VerifyReport,
    /// The last internal key; empty before the first.
    last: Vec<u8>,
    /// The separator after the previous block.
    separator: Option<Vec<u8>>,
    handles: Vec<BlockHandle>,
}

impl SortedTable {
    /// Reads every block from the source again, also blocks with unknown names, verifies it, and
    /// compares what the blocks say about each other:
    ///
    /// * Blocks do not overlap.
    /// * Keys strictly ascend inside blocks and between them, and separators are between the
    ///   blocks.
    /// * Restarts are where entries begin.
    /// * In an index of user keys, no user key is on both sides of a separator.
    /// * The filter denies no key.
    /// * Counts and sums of lengths are those of the properties.
    ///
    /// O(bytes of all keys and values). Any thread.
    ///
    /// ```
    /// # use paranoid_sst::{Error, SortedTable, SortedTableOptions, SortedTableWriter, TableSource};
    /// # use paranoid_memtable::Kind;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("1.sst");
    /// # let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
    /// # writer.add(b"key", 1, Kind::PUT, b"value")?;
    /// # writer.finish()?;
    /// let report = SortedTable::open(&path)?.verify()?;
    /// assert_eq!((report.entries, report.data_blocks, report.unaccounted_bytes), (1, 1, 0));
    ///
    /// let mut bytes = std::fs::read(&path).unwrap();
    /// bytes[3] ^= 4;
    /// let damaged = SortedTable::from_source("1.sst", TableSource::memory(std::sync::Arc::new(bytes)))?;
    /// let error = damaged.verify().unwrap_err();
    /// assert_eq!(error.corruption().and_then(|report| report.flipped_bit), Some(3 * 8 + 2));
    /// # Ok::<(), paranoid_sst::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` for the first fact that does not hold, with file, offset and block; `Io`;
    /// `NotSupported`, with number and name, at an entry of a kind that is not read.
    pub fn verify(&self) -> Result<VerifyReport> {
        let inner = &self.inner;
        let mut pass = Pass {
            table: self,
            report: VerifyReport {
                file_size: inner.base.source.len(),
                ..VerifyReport::default()
            },
            last: vec![],
            separator: None,
            handles: self.blocks().map(|(_, handle)| handle).collect(),
        };
        // Overlaps are found before the blocks are read: many names of one block would otherwise
        // take time quadratic in the size of the file.
        pass.account()?;
        inner.fetch_named()?;
        let index_damaged = inner.index_damaged();
        let mut index = inner.index_cursor().map_err(&index_damaged)?;
        let mut restarts = RestartCheck::default();
        let mut more = index.first().map_err(&index_damaged)?;
        while more {
            let handle = index.handle().map_err(&index_damaged)?;
            restarts.meet(&index).map_err(&index_damaged)?;
            pass.block(handle, index.key())?;
            more = index.advance().map_err(&index_damaged)?;
        }
        restarts.end(&index).map_err(&index_damaged)?;
        pass.ranges();
        pass.compare_counts()?;
        pass.report.unaccounted_bytes = pass.account()?;
        Ok(pass.report)
    }
}

impl Pass<'_> {
    fn index_error(&self, what: &'static str) -> Error {
        self.table.inner.index_damaged()(Damage(what))
    }

    /// Checks a data block and the separator after it.
    fn block(&mut self, handle: BlockHandle, separator: &[u8]) -> Result<()> {
        let table = self.table;
        let previous_end = self.handles.last().filter(|_| self.report.data_blocks > 0);
        let ascends =
            previous_end.is_none_or(|last| last.offset.saturating_add(last.size) < handle.offset);
        if !ascends {
            return Err(self.index_error("blocks that do not ascend in the file"));
        }
        let mut data = table.inner.data(handle)?;
        let damaged = table.inner.base.damaged(BlockKind::Data, handle);
        let mut restarts = RestartCheck::default();
        let mut more = data.first().map_err(&damaged)?;
        // In a file of range deletions alone, Pebble writes one data block, which is empty.
        if self.report.data_blocks > 0 && (!more || self.report.entries == 0) {
            return Err(damaged(Damage("a data block without entries")));
        }
        if more {
            self.check_separator(data.key())?;
        }
        while more {
            restarts.meet(&data).map_err(&damaged)?;
            let kind = split(data.key()).map(|(_, packed)| kind_of(packed));
            if let Some(kind) = kind.filter(|kind| !DATA_KINDS.contains(kind)) {
                return Err(table.inner.not_read(kind));
            }
            self.entry(&data).map_err(&damaged)?;
            more = data.advance().map_err(&damaged)?;
        }
        restarts.end(&data).map_err(&damaged)?;
        let stands_after = match table.inner.index_form.user_keys {
            true => user_key(&self.last) <= separator,
            false => internal_key::compare(&self.last, separator).is_le(),
        };
        if !stands_after {
            return Err(self.index_error("a separator before its block's last key"));
        }
        self.separator = Some(separator.to_vec());
        self.handles.push(handle);
        self.report.data_blocks += 1;
        self.report.data_size += handle.size + TRAILER_LEN;
        Ok(())
    }

    /// Checks that the separator before a block is before the block's first key.
    fn check_separator(&self, first: &[u8]) -> Result<()> {
        let Some(separator) = &self.separator else {
            return Ok(());
        };
        let user_keys = self.table.inner.index_form.user_keys;
        if user_keys && same_user_key(&self.last, first) {
            return Err(
                self.index_error("an index of user keys over a key on both sides of a separator")
            );
        }
        let stands_before = match user_keys {
            true => separator.as_slice() < user_key(first),
            false => internal_key::compare(separator, first).is_lt(),
        };
        if stands_before {
            Ok(())
        } else {
            Err(self.index_error("a separator not before the next block"))
        }
    }

    fn entry(&mut self, data: &BlockCursor<BlockBytes>) -> Result<(), Damage> {
        let (user_key, packed) = split(data.key()).ok_or(Damage("a key that is too short"))?;
        if self.report.entries > 0 && internal_key::compare(&self.last, data.key()).is_ge() {
            return Err(Damage("keys that do not ascend"));
        }
        self.table.inner.check_sequence(packed)?;
        if !self.table.may_hold(user_key) {
            return Err(Damage("a key that the filter denies"));
        }
        let sequence = self
            .table
            .inner
            .global_sequence
            .unwrap_or(sequence_of(packed));
        self.report.meet(user_key, packed, data.value(), sequence);
        self.report.entries += 1;
        self.last.clear();
        self.last.extend_from_slice(data.key());
        Ok(())
    }

    fn ranges(&mut self) {
        for (start, end, sequence) in self.table.inner.tombstones.iter() {
            let kind = paranoid_memtable::Kind::RANGE_DELETE.as_u8();
            self.report
                .meet(start, internal_key::pack(sequence, kind), end, sequence);
            self.report.range_deletions += 1;
        }
    }

    /// Compares the counts with the properties that the file has.
    fn compare_counts(&self) -> Result<()> {
        let (inner, found) = (&self.table.inner, &self.report);
        let bounds = found.sequences.filter(|_| inner.global_sequence.is_none());
        let stated = |name| inner.properties.number(name);
        // RocksDB 5.15 to 5.18 count range deletions only under their own name, which earlier
        // releases do not write.
        let is_apart = stated(properties::NUM_RANGE_DELETIONS).is_some()
            && stated(properties::NUM_ENTRIES) == Some(found.entries);
        let among_entries = if is_apart { 0 } else { found.range_deletions };
        for (name, found) in [
            (properties::NUM_ENTRIES, Some(found.entries + among_entries)),
            (properties::NUM_RANGE_DELETIONS, Some(found.range_deletions)),
            (properties::NUM_DATA_BLOCKS, Some(found.data_blocks)),
            (properties::RAW_KEY_SIZE, Some(found.raw_key_bytes)),
            (properties::RAW_VALUE_SIZE, Some(found.raw_value_bytes)),
            ("rocksdb.key.smallest.seqno", bounds.map(|(low, _)| low)),
            ("rocksdb.key.largest.seqno", bounds.map(|(_, high)| high)),
        ] {
            if let (Some(stated), Some(found)) = (stated(name), found)
                && stated != found
            {
                let offset = self.offset_of(BlockKind::Properties);
                let what = "a count that the file does not hold";
                return Err(report(
                    &inner.base.file,
                    BlockKind::Properties,
                    offset,
                    what,
                    (found, stated),
                ));
            }
        }
        Ok(())
    }

    fn offset_of(&self, wanted: BlockKind) -> u64 {
        let found = self.table.blocks().find(|(kind, _)| *kind == wanted);
        found.map_or(0, |(_, handle)| handle.offset)
    }

    /// Checks that known blocks do not overlap. Returns the number of bytes outside of them.
    fn account(&mut self) -> Result<u64> {
        self.handles.sort_unstable_by_key(|handle| handle.offset);
        let (mut end, mut unaccounted) = (0, 0);
        for handle in &self.handles {
            let Some(gap) = handle.offset.checked_sub(end) else {
                let (file, values) = (&self.table.inner.base.file, (end, handle.offset));
                return Err(report(
                    file,
                    BlockKind::Data,
                    handle.offset,
                    "blocks that overlap",
                    values,
                ));
            };
            unaccounted += gap;
            end = handle.end();
        }
        let footer = self.table.inner.base.footer_offset();
        Ok(unaccounted + footer.saturating_sub(end))
    }
}
