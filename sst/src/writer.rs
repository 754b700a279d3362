//! The writer: makes data blocks of entries that come in order, and keeps what the blocks after them
//! need.
//!
//! ```text
//!   data blocks | filter | index | range deletions | properties | metaindex | footer
//!   entry -> limits, order -> block cut if it is due -> entry added, its digests kept
//!   cut   -> compress -> checksum -> entries compared with their digests (chain) -> file
//! ```
//! The bytes of data and index blocks are those that RocksDB writes for the same entries and
//! options.
//!
//! One owner. A writer that is dropped before `finish` leaves no file.

use std::num::NonZeroU32;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::integrity::{BlockChecks, StoredProtection};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Kind, SequenceNumber};

use crate::block_builder::{BlockBuilder, ValueForm};
use crate::chain::compare;
use crate::coding::BlockHandle;
use crate::compression::{PORTABLE_VERSION, Refusal, decompress};
use crate::error::{BlockKind, Damage, Error, Result};
use crate::filter::FilterBuilder;
use crate::index_builder::IndexBuilder;
use crate::internal_key;
use crate::internal_key::pack;
use crate::limits::{EntryName, limits};
use crate::new_file::NewFile;
use crate::options::{Compression, SortedTableOptions};
use crate::storage::{Disk, Storage};

/// The purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The file will be repaired into a database, imported, or read.
    Plain,
    /// The file will be ingested: every sequence number is 0.
    Ingestible,
}

/// Counts and sums for the properties.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) points: u64,
    pub(crate) range_deletions: u64,
    pub(crate) deletions: u64,
    pub(crate) merges: u64,
    pub(crate) raw_key_bytes: u64,
    pub(crate) raw_value_bytes: u64,
    /// Smallest and largest sequence number.
    pub(crate) sequences: Option<(SequenceNumber, SequenceNumber)>,
    /// Sum of the digests of all entries.
    pub(crate) digests: u64,
}

impl Counts {
    fn meet(&mut self, kind: Kind, sequence: SequenceNumber, key_len: usize, value_len: usize) {
        match kind {
            Kind::RANGE_DELETE => self.range_deletions += 1,
            _ => self.points += 1,
        }
        self.deletions += u64::from(kind.is_point_delete() || kind == Kind::RANGE_DELETE);
        self.merges += u64::from(kind == Kind::MERGE);
        self.raw_key_bytes += (key_len + internal_key::TAIL_LEN) as u64;
        self.raw_value_bytes += value_len as u64;
        let (low, high) = self.sequences.unwrap_or((sequence, sequence));
        self.sequences = Some((low.min(sequence), high.max(sequence)));
    }
}

/// Writes a table file that RocksDB opens. Entries come in order: user keys ascend bytewise, and
/// sequence numbers descend within a key. It is a [`FlushSink`]. One thread at a time uses it. It
/// holds in memory one block, 8 bytes per key for the filter, the index, and the range deletions.
///
/// ```
/// use paranoid_memtable::flush::Versions;
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("000001.sst");
/// let memtable = MemTable::new(MemTableOptions::default())?;
/// memtable.put(1, b"apple", b"red")?;
/// memtable.delete_range(2, b"b", b"c")?;
///
/// let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// memtable.freeze()?.flush(Versions::SeenBy(&[]), &mut writer)?;
/// let written = writer.finish()?;              // whole, read back, synced, and under its name only now
/// assert_eq!((written.entries, written.range_deletions), (1, 1));
///
/// let table = SortedTable::open(&path)?;
/// assert!(table.get(b"apple", 2)?.value() == Some(b"red"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SortedTableWriter<S: Storage = Disk> {
    pub(crate) options: SortedTableOptions,
    pub(crate) purpose: Purpose,
    pub(crate) out: NewFile<S>,
    pub(crate) checks: BlockChecks,
    data: BlockBuilder,
    /// The stored digests of the entries of the current block.
    digests: Vec<StoredProtection>,
    /// The previous block, until the first key of the next one is known.
    ended: Option<BlockHandle>,
    /// The last internal key.
    last_key: Vec<u8>,
    key: Vec<u8>,
    pub(crate) index: IndexBuilder,
    pub(crate) filter: Option<FilterBuilder>,
    pub(crate) ranges: BlockBuilder,
    pub(crate) range_digests: Vec<StoredProtection>,
    pub(crate) counts: Counts,
    pub(crate) bounds: Option<(Vec<u8>, Bound<Vec<u8>>)>,
    failed: bool,
}

impl SortedTableWriter<Disk> {
    /// Creates a file. It has its name only when [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// `Io`, also if the file exists.
    pub fn create(path: impl AsRef<Path>, options: SortedTableOptions) -> Result<Self> {
        SortedTableWriter::create_in(Disk, path, options)
    }
}

impl<S: Storage> SortedTableWriter<S> {
    /// Creates a file as [`create`](SortedTableWriter::create) does, in a storage other than the
    /// machine's file system.
    ///
    /// # Errors
    /// `Io`, also if the file exists.
    pub fn create_in(
        storage: S,
        path: impl AsRef<Path>,
        options: SortedTableOptions,
    ) -> Result<Self> {
        Self::begin(storage, path.as_ref(), options, Purpose::Plain)
    }

    /// Creates a file for RocksDB's ingestion, as [`create_in`](Self::create_in) does: user keys
    /// strictly ascend, every sequence number is 0, and there are no single deletes.
    /// [`ingestible`](crate::ingestible) makes such a file from a table.
    ///
    /// # Errors
    /// `Io`, also if the file exists.
    pub fn create_ingestible_in(
        storage: S,
        path: impl AsRef<Path>,
        options: SortedTableOptions,
    ) -> Result<Self> {
        Self::begin(storage, path.as_ref(), options, Purpose::Ingestible)
    }

    pub(crate) fn begin(
        storage: S,
        path: &Path,
        options: SortedTableOptions,
        purpose: Purpose,
    ) -> Result<Self> {
        let out = NewFile::create(storage, path)?;
        let checks = match options.format_version {
            6.. => BlockChecks::with_context(
                options.checksum,
                options.context_base.unwrap_or_else(random_base),
            ),
            _ => BlockChecks::new(options.checksum),
        };
        Ok(SortedTableWriter {
            purpose,
            out,
            checks,
            data: BlockBuilder::new(options.block_restart_interval, ValueForm::Plain),
            digests: vec![],
            ended: None,
            last_key: vec![],
            key: vec![],
            index: IndexBuilder::new(&options),
            filter: (options.bloom_millibits > 0)
                .then(|| FilterBuilder::new(options.bloom_millibits, options.format_version)),
            ranges: BlockBuilder::new(1, ValueForm::Plain),
            range_digests: vec![],
            counts: Counts::default(),
            bounds: None,
            failed: false,
            options,
        })
    }

    /// Adds an entry that does not come from a flush; its digests are computed from the caller's
    /// bytes. O(length), amortised: a block that ends is verified and written.
    ///
    /// # Errors
    /// As [`add_entry`](Self::add_entry).
    pub fn add(
        &mut self,
        user_key: impl AsRef<[u8]>,
        sequence: SequenceNumber,
        kind: Kind,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add_entry(FlushEntry::new(
            user_key.as_ref(),
            sequence,
            kind,
            value.as_ref(),
        ))
    }

    /// Adds an entry of a flush. When its block ends, the bytes of the block are compared with the
    /// entry's stored digests. O(length), amortised.
    ///
    /// # Errors
    /// `InvalidArgument`, which names the entry, for an entry that [`limits`] refuses or that is
    /// not after the last one, and for a range deletion (see [`add_range`](Self::add_range)). The
    /// writer has not changed then, and the next entry may follow.
    ///
    /// `Corruption` if an entry of the block that ends here is not the one whose digests came with
    /// it; `Io`. After these errors every call fails.
    pub fn add_entry(&mut self, entry: FlushEntry<'_>) -> Result<()> {
        self.check(&entry)?;
        self.key.clear();
        self.key.extend_from_slice(entry.user_key);
        self.key
            .extend_from_slice(&pack(entry.sequence, entry.kind.as_u8()).to_le_bytes());
        let follows = match self.purpose {
            Purpose::Plain => internal_key::compare(&self.last_key, &self.key).is_lt(),
            Purpose::Ingestible => internal_key::user_key(&self.last_key) < entry.user_key,
        };
        if self.counts.points > 0 && !follows {
            return Err(EntryName::from(&entry).refused("equal to the one before, or not after it"));
        }
        if self.cut_is_due(entry.value.len()) {
            self.cut()?;
        }
        if let Some(handle) = self.ended.take() {
            self.index.add(&self.last_key, Some(&self.key), handle);
        }
        self.data.add(&self.key, entry.value);
        self.digests.push(entry.protection);
        if let Some(filter) = &mut self.filter {
            filter.add(entry.user_key);
        }
        self.counts.meet(
            entry.kind,
            entry.sequence,
            entry.user_key.len(),
            entry.value.len(),
        );
        if self.counts.points == 1 {
            self.bound(entry.user_key, Bound::Included(entry.user_key));
        }
        std::mem::swap(&mut self.last_key, &mut self.key);
        Ok(())
    }

    /// Adds a range deletion: of the keys at or after `start` and before `end`. Range deletions
    /// come in order of starts, the newest first where starts are equal, before or after the
    /// entries. O(length); all of them stay in memory until `finish`.
    ///
    /// # Errors
    /// `InvalidArgument`, which names the range deletion, if [`limits`] refuses it, if the range is
    /// empty or inverted, or if it is not after the last one.
    pub fn add_range(
        &mut self,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        sequence: SequenceNumber,
    ) -> Result<()> {
        self.add_tombstone(start.as_ref(), end.as_ref(), sequence)
    }

    fn add_tombstone(&mut self, start: &[u8], end: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.check_alive()?;
        limits().check(start, sequence, Kind::RANGE_DELETE, end.len() as u64)?;
        let name = EntryName {
            user_key: start,
            sequence,
            kind: Kind::RANGE_DELETE,
        };
        if start >= end {
            return Err(name.refused("the range is empty or inverted"));
        }
        let mut key = start.to_vec();
        key.extend_from_slice(&pack(sequence, Kind::RANGE_DELETE.as_u8()).to_le_bytes());
        if !self.ranges.is_empty() && internal_key::compare(self.ranges.last_key(), &key).is_ge() {
            return Err(name.refused("not after the one before"));
        }
        if self.ranges.size() as u64 + (key.len() + end.len()) as u64 > limits().entry_len_max {
            return Err(name.refused("over 4 GiB of range deletions"));
        }
        self.ranges.add(&key, end);
        self.range_digests.push(StoredProtection::of(
            start,
            end,
            sequence,
            Kind::RANGE_DELETE,
        ));
        self.counts
            .meet(Kind::RANGE_DELETE, sequence, start.len(), end.len());
        self.bound(start, Bound::Excluded(end));
        Ok(())
    }

    fn check_alive(&self) -> Result<()> {
        match self.failed {
            true => Err(Error::InvalidArgument("a writer that failed before".into())),
            false => Ok(()),
        }
    }

    fn check(&self, entry: &FlushEntry<'_>) -> Result<()> {
        self.check_alive()?;
        limits().check(
            entry.user_key,
            entry.sequence,
            entry.kind,
            entry.value.len() as u64,
        )?;
        let refuse = |reason| Err(EntryName::from(entry).refused(reason));
        match (self.purpose, entry.kind) {
            (_, Kind::RANGE_DELETE) => refuse("range deletions come through `add_range`"),
            (Purpose::Ingestible, Kind::SINGLE_DELETE) => refuse("write a delete to be ingested"),
            (Purpose::Ingestible, _) if entry.sequence != 0 => {
                refuse("ingestible files hold sequence 0 only")
            }
            _ => Ok(()),
        }
    }

    /// Extends the bounds of the file by the first key and the end of what was added.
    fn bound(&mut self, low: &[u8], high: Bound<&[u8]>) {
        let (least, end) = self
            .bounds
            .get_or_insert_with(|| (low.to_vec(), high.map(<[u8]>::to_vec)));
        if low < least.as_slice() {
            *least = low.to_vec();
        }
        if rank(high) > rank(end.as_ref().map(Vec::as_slice)) {
            *end = high.map(<[u8]>::to_vec);
        }
    }

    /// RocksDB's rule: a block ends if it is full, or if it is nearly full and the next entry would
    /// not fit.
    fn cut_is_due(&self, value_len: usize) -> bool {
        if self.data.is_empty() {
            return false;
        }
        let (size, limit) = (self.data.size(), self.options.block_size as usize);
        let nearly = (limit * (100 - self.options.block_size_deviation as usize)).div_ceil(100);
        let close = self.options.block_size_deviation > 0 && size > nearly;
        size >= limit || close && self.data.size_after(self.key.len(), value_len) > limit
    }

    /// Ends the data block: computes its checksum, compares its entries, and writes it.
    pub(crate) fn cut(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        self.failed = true;
        let (compression, offset) = (self.options.compression, self.out.offset);
        let sealed = seal(
            self.data.finish(),
            compression,
            &self.checks,
            &self.digests,
            offset,
        );
        let (stored, trailer, sum) = sealed.map_err(|damage| {
            damage.in_file(&Arc::from(self.out.name.as_path()), BlockKind::Data, offset)
        })?;
        self.out.append(&stored)?;
        self.out.append(&trailer)?;
        self.ended = Some(BlockHandle {
            offset,
            size: stored.len() as u64,
        });
        self.counts.digests = self.counts.digests.wrapping_add(sum);
        drop(stored);
        self.data.reset();
        self.digests.clear();
        self.failed = false;
        Ok(())
    }

    /// Ends the last data block.
    pub(crate) fn end_data(&mut self) -> Result<()> {
        self.check_alive()?;
        self.cut()?;
        if let Some(handle) = self.ended.take() {
            self.index.add(&self.last_key, None, handle);
            let last = internal_key::user_key(&self.last_key).to_vec();
            self.bound(&last, Bound::Included(&last));
        }
        Ok(())
    }
}

/// Orders ends: at one key, the included end is the later one.
fn rank(end: Bound<&[u8]>) -> Option<(&[u8], bool)> {
    match end {
        Bound::Included(key) => Some((key, true)),
        Bound::Excluded(key) => Some((key, false)),
        Bound::Unbounded => None,
    }
}

/// A block's stored bytes, trailer and sum of digests.
type Sealed<'a> = (std::borrow::Cow<'a, [u8]>, [u8; 5], u64);

/// Compresses a block, computes its trailer, and only then compares its entries with their digests
/// (SST-CHAIN-1).
pub(crate) fn seal<'a>(
    raw: &'a [u8],
    compression: Compression,
    checks: &BlockChecks,
    digests: &[StoredProtection],
    offset: u64,
) -> Result<Sealed<'a>, Damage> {
    let (stored, kind) = compression.compress(raw);
    let trailer = checks.trailer(&stored, kind, offset);
    let sum = match decompress(&stored, kind, PORTABLE_VERSION) {
        Ok(block) => compare(&block, digests)?,
        Err(Refusal::Unknown) => return Err(Damage("a compression that cannot be read")),
        Err(Refusal::Damaged) => return Err(Damage("a block that does not decompress")),
    };
    Ok((stored, trailer, sum))
}

/// A random number for each file: 31 bits as in RocksDB, never 0.
fn random_base() -> NonZeroU32 {
    use std::hash::{BuildHasher, RandomState};
    let number = RandomState::new().hash_one(std::process::id()) >> 33;
    u32::try_from(number)
        .ok()
        .and_then(NonZeroU32::new)
        .unwrap_or(NonZeroU32::MIN)
}

impl<S: Storage> FlushSink for SortedTableWriter<S> {
    fn entry(&mut self, entry: FlushEntry<'_>) -> std::result::Result<(), SinkError> {
        self.add_entry(entry).map_err(Into::into)
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> std::result::Result<(), SinkError> {
        for &sequence in fragment.sequences() {
            self.add_range(fragment.start(), fragment.end(), sequence)?;
        }
        Ok(())
    }
}
