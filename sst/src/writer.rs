//! The writer: entries in order to data blocks, then everything that stands after them.
//!
//! ```text
//!   data blocks | filter | index | range deletions | properties | metaindex | footer
//!   entry -> limits, order -> block cut if it is due -> entry added, its digests kept
//!   cut   -> compress -> checksum -> entries compared with their digests (chain) -> file
//! ```
//! * SST-WRITER-1: an entry that is refused (`InvalidArgument`) changes nothing; the next one may
//!   go on.
//! * SST-WRITER-2: after any other error every call fails; the writer can only be dropped.
//! * SST-WRITER-3: bytes of data and index blocks are those that RocksDB writes for the same
//!   entries and options.
//!
//! One owner. Dropped before `finish`, it leaves nothing.

use std::ffi::OsString;
use std::io;
use std::io::Write;
use std::num::NonZeroU32;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::integrity::{BlockChecks, StoredProtection};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Kind, SequenceNumber};

use crate::block_builder::{BlockBuilder, IndexBuilder, ValueForm};
use crate::block_cursor::{BlockCursor, RestartCheck};
use crate::coding::BlockHandle;
use crate::compression::{PORTABLE_VERSION, Refusal, decompress};
use crate::error::{BlockKind, Damage, Error, Result};
use crate::filter::FilterBuilder;
use crate::ingest::{EntryName, limits};
use crate::internal_key;
use crate::internal_key::{TAIL_LEN, kind_of, pack, sequence_of, split};
use crate::options::{Compression, SortedTableOptions};
use crate::storage::{Disk, Storage, StorageFile, TableSource, directory_of};

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be repaired into, imported, or read.
    Plain,
    /// To be ingested: every sequence number is 0.
    Ingestible,
}

/// What the properties tell of the entries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) points: u64,
    pub(crate) range_deletions: u64,
    pub(crate) deletions: u64,
    pub(crate) merges: u64,
    pub(crate) raw_key_bytes: u64,
    pub(crate) raw_value_bytes: u64,
    /// Smallest and largest.
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

/// Writes a table file that RocksDB opens. Entries come in order: user keys ascend bytewise,
/// sequence numbers descend within a key. It is a [`FlushSink`]. One thread at a time uses it.
/// Memory: one block, a hash of 8 bytes per key for the filter, the index, the range deletions.
///
/// ```
/// use paranoid_memtable::flush::Versions;
/// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
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
/// assert!(matches!(table.get(b"apple", 2)?, Lookup::Value((_, value)) if value == b"red"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SortedTableWriter<S: Storage = Disk> {
    pub(crate) options: SortedTableOptions,
    pub(crate) purpose: Purpose,
    pub(crate) out: NewFile<S>,
    pub(crate) checks: BlockChecks,
    data: BlockBuilder,
    /// What the entries of the block in the making are compared with.
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
    /// Begins a file that does not exist yet. Nothing has its name before [`finish`](Self::finish)
    /// returns.
    ///
    /// # Errors
    /// `Io`, also if the file exists.
    pub fn create(path: impl AsRef<Path>, options: SortedTableOptions) -> Result<Self> {
        SortedTableWriter::create_in(Disk, path, options)
    }
}

impl<S: Storage> SortedTableWriter<S> {
    /// As [`create`](SortedTableWriter::create), in another storage than the machine's file system.
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

    /// As [`create_in`](Self::create_in), for a file that RocksDB ingests: user keys strictly
    /// ascend, every sequence number is 0, and there are no single deletes.
    /// [`ingestible`](crate::ingestible) makes one from a table.
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

    /// Adds an entry from somewhere else than a flush; its digests are computed from the caller's
    /// bytes. O(length), amortised: where a block ends, it is verified and written.
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

    /// Adds an entry. Once its block ends, the bytes of the block are compared with the entry's
    /// stored digests. O(length), amortised.
    ///
    /// # Errors
    /// `InvalidArgument`, which names the entry: what [`limits`] refuses, an entry not after the
    /// last one, a range deletion (see [`add_range`](Self::add_range)). Nothing has changed then.
    /// `Corruption` if an entry of the block that ends here is not the one whose digests came with
    /// it; `Io`.
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

    /// Adds a range deletion: the keys from `start` on and before `end`. They come in order of
    /// starts, the newest first where starts are equal, before or after the entries. O(length); all
    /// of them stay in memory until `finish`.
    ///
    /// # Errors
    /// `InvalidArgument`, which names it: what [`limits`] refuses, an empty or inverted range, one
    /// not after the last one.
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

    /// Takes the first key and the end of what was added. Of an end at the last key of an entry the
    /// key is inside.
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

    /// RocksDB's rule: full, or nearly full and the next entry would not fit.
    fn cut_is_due(&self, value_len: usize) -> bool {
        if self.data.is_empty() {
            return false;
        }
        let (size, limit) = (self.data.size(), self.options.block_size as usize);
        let nearly = (limit * (100 - self.options.block_size_deviation as usize)).div_ceil(100);
        let close = self.options.block_size_deviation > 0 && size > nearly;
        size >= limit || close && self.data.size_after(self.key.len(), value_len) > limit
    }

    /// Ends the data block: checksum, comparison, file.
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

/// Orders ends: of two at one key the included one is the later.
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
/// (SST-CHAIN-1,
/// SST-CHAIN-2).
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

// A file that gets its name only once it is whole and synced.
//
// ```text
//   create NAME.N.tmp -> append.. -> seal: sync, close -> publish: rename to NAME, sync the directory
//                 `-> dropped before: the temporary file is removed
// ```
// * SST-NEW-FILE-1: under the final name there is nothing, or all bytes that were appended, at
//   every moment and after every crash.
// * SST-NEW-FILE-2: an error of `sync` or of the directory's sync is final: nothing is tried again.
//
// One owner.

/// Bytes that are buffered before a write to the file.
const BUFFER_LEN: usize = 256 << 10;

/// Number of temporary names that are tried.
const NAMES_MAX: u32 = 1000;

/// The file in the making.
#[derive(Debug)]
pub(crate) struct NewFile<S: Storage> {
    storage: S,
    /// The name that it will have.
    pub(crate) name: PathBuf,
    temporary: PathBuf,
    file: Option<S::File>,
    buffer: Vec<u8>,
    /// Where the next byte goes.
    pub(crate) offset: u64,
    published: bool,
}

impl<S: Storage> NewFile<S> {
    pub(crate) fn create(storage: S, name: &Path) -> Result<Self> {
        refuse_existing(&storage, name)?;
        for number in 0..NAMES_MAX {
            let mut temporary = OsString::from(name);
            temporary.push(format!(".{number}.tmp"));
            let temporary = PathBuf::from(temporary);
            match storage.create_new(&temporary) {
                Ok(file) => {
                    return Ok(NewFile {
                        storage,
                        name: name.to_path_buf(),
                        temporary,
                        file: Some(file),
                        buffer: Vec::with_capacity(BUFFER_LEN),
                        offset: 0,
                        published: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create", &temporary)(error)),
            }
        }
        let full = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "too many leftovers that end in .tmp",
        );
        Err(Error::io("create", name)(full))
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
        if self.buffer.len() >= BUFFER_LEN {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let written = file.write_all(&self.buffer).and_then(|()| file.flush());
        self.buffer.clear();
        written.map_err(Error::io("write", &self.temporary))
    }

    /// Ends the file: what was appended survives a crash.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.flush()?;
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        file.sync().map_err(Error::io("sync", &self.temporary))
    }

    /// The sealed file, to be read.
    pub(crate) fn read_back(&self) -> Result<TableSource> {
        self.storage
            .open(&self.temporary)
            .map_err(Error::io("open", &self.temporary))
    }

    /// Gives the sealed file its name (SST-NEW-FILE-1). If that fails there is no file of either
    /// name, as far as the storage lets one remove it.
    pub(crate) fn publish(mut self) -> Result<PathBuf> {
        refuse_existing(&self.storage, &self.name)?;
        self.storage
            .rename(&self.temporary, &self.name)
            .map_err(Error::io("rename", &self.temporary))?;
        self.published = true;
        let directory = directory_of(&self.name);
        if let Err(error) = self.storage.sync_directory(&directory) {
            let _ = self.storage.remove(&self.name);
            return Err(Error::io("sync", &directory)(error));
        }
        Ok(self.name.clone())
    }
}

impl<S: Storage> Drop for NewFile<S> {
    fn drop(&mut self) {
        drop(self.file.take());
        if !self.published {
            // A leftover is harmless: its name says what it is.
            let _ = self.storage.remove(&self.temporary);
        }
    }
}

fn refuse_existing(storage: &impl Storage, name: &Path) -> Result<()> {
    if storage.exists(name).map_err(Error::io("look for", name))? {
        let exists = io::Error::new(io::ErrorKind::AlreadyExists, "the file exists");
        return Err(Error::io("create", name)(exists));
    }
    Ok(())
}

// The chain of trust: entries of a finished block against the digests that their table stored.
//
// ```text
//   caller's digest -> table digest -> [stored digests of the flush entry] -> entries decoded from the block
//                                            block checksum, computed before -> the same bytes, written, read back
// ```
// * SST-CHAIN-1: the checksum is computed before the entries are compared. A flip before it is
//   found by the comparison, a flip after it by the checksum; there is no moment between the two.
// * SST-CHAIN-2: what is compared is decoded from the bytes that are written, decompressed if they
//   are compressed.
//
// Pure functions; any thread.

/// Compares each entry of a block with its stored digest. Returns the sum of their digests.
pub(crate) fn compare(block: &[u8], digests: &[StoredProtection]) -> Result<u64, Damage> {
    let mut cursor = BlockCursor::new(block, ValueForm::Plain, TAIL_LEN)?;
    let mut sum = 0u64;
    let mut restarts = RestartCheck::default();
    let mut more = cursor.first()?;
    for stored in digests {
        if !more {
            return Err(Damage("fewer entries than were added"));
        }
        let (user_key, packed) = split(cursor.key()).ok_or(Damage("a short key"))?;
        let digest = stored.check(
            user_key,
            cursor.value(),
            sequence_of(packed),
            kind_of(packed),
        );
        let Some(digest) = digest else {
            return Err(Damage(
                "an entry that is not the one whose digests its table stored",
            ));
        };
        restarts.meet(&cursor)?;
        sum = sum.wrapping_add(digest.to_bits());
        more = cursor.advance()?;
    }
    if more {
        return Err(Damage("more entries than were added"));
    }
    if block.last().is_none_or(|last| last >> 4 != 0) {
        return Err(Damage("flags that nobody set"));
    }
    restarts.end(&cursor).map(|()| sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_builder::BlockBuilder;
    use crate::internal_key::pack;
    use paranoid_memtable::Kind;

    /// Each bit of a finished block in turn, before its checksum is computed: the comparison alone
    /// finds it.
    #[test]
    fn every_bit_of_a_block_is_compared() {
        let mut block = BlockBuilder::new(3, ValueForm::Plain);
        let mut digests = vec![];
        for number in 0..11u64 {
            let (user_key, value) = (
                format!("user{number:03}"),
                [number.to_le_bytes(); 3].concat(),
            );
            let kind = if number % 4 == 0 {
                Kind::MERGE
            } else {
                Kind::PUT
            };
            let key = [
                user_key.as_bytes(),
                &pack(90 - number, kind.as_u8()).to_le_bytes(),
            ]
            .concat();
            block.add(&key, &value);
            digests.push(StoredProtection::of(
                user_key.as_bytes(),
                &value,
                90 - number,
                kind,
            ));
        }
        let mut block = block.finish().to_vec();
        let clean = compare(&block, &digests).unwrap();
        for bit in 0..8 * block.len() {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(
                compare(&block, &digests).is_err(),
                "bit {bit} of {}",
                8 * block.len()
            );
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(compare(&block, &digests), Ok(clean));
        assert!(compare(&block, &digests[..10]).is_err());
        digests.push(digests[0]);
        assert!(compare(&block, &digests).is_err());
    }
}
