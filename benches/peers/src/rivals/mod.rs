//! The tables that are compared, as implementations of one small trait.

use paranoid_memtable::read::Operands;
use paranoid_memtable::{
    ChecksumKind, Directory, ImmutableMemTable, Lookup, MemTable, MemTableOptions, TableReader,
    ValueRef, WriteBatch, Writer,
};

mod others;

use crate::work::{Entries, Keys, Ranges, Shape, Task, Way, Work, fold};
use others::{Plain, arenaskiplist, artmap, btree, crossbeam, ferntree, masstree, skl};

/// One of the tables compared.
pub trait Table: Sync {
    /// Prepares work outside the time. `None`: this table cannot do the work.
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>>;
    /// Bytes that the table counts as its own; `None` if it does not count.
    fn counted(&self) -> Option<u64>;
    /// Does the part of later inserts that can be done in advance. Does nothing by default.
    fn ahead(&self, _ahead: Ahead) {}
    /// Ends writing, as before a flush. Does nothing by default.
    fn freeze(&mut self) {}
}

/// A new table of a candidate for each repetition of some work.
pub struct Fresh {
    pub candidate: Candidate,
    pub room: Room,
    /// Number of repetitions.
    pub times: usize,
}

impl Table for Fresh {
    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        let once = move |_| {
            let table = self
                .candidate
                .table(self.room)
                .expect("memory for a small table");
            let task = table.prepare(work).expect("work of every table");
            task()
        };
        Some(Box::new(move || {
            (0..self.times).map(once).fold(0, u64::wrapping_add)
        }))
    }

    fn counted(&self) -> Option<u64> {
        None
    }
}

/// Work that is done before the inserts, outside the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    Nothing,
    /// All space is reserved in advance.
    Reserve,
}

/// The size that a table must be able to reach, and what is known of its entries.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub shape: Shape,
    pub entries: u64,
    /// Threads that insert at the same time.
    #[cfg_attr(
        not(feature = "rocksdb"),
        expect(dead_code, reason = "only RocksDB needs the number")
    )]
    pub threads: usize,
}

impl Room {
    /// A write buffer that holds all entries: 64 MiB or what they need.
    pub fn write_buffer(self) -> u64 {
        (64 << 20).max(self.bytes(64))
    }

    /// The size of an arena that does not grow. It touches only the memory that it uses.
    pub fn arena(self) -> usize {
        // At most 4 GiB, the most that such arenas can address. It fits on targets of 64 bits.
        usize::try_from(self.bytes(512).clamp(16 << 20, u64::from(u32::MAX) - 64))
            .unwrap_or(usize::MAX)
    }

    fn bytes(self, overhead: u64) -> u64 {
        self.entries * (self.shape.key.len() as u64 + self.shape.value_len as u64 + overhead)
    }
}

/// The checks that a table makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    pub protection: u8,
    pub on_seek: bool,
    pub order: bool,
}

impl Checks {
    const fn bytes(protection: u8) -> Checks {
        Checks {
            protection,
            on_seek: false,
            order: false,
        }
    }

    const fn on_seek() -> Checks {
        Checks {
            protection: 8,
            on_seek: true,
            order: false,
        }
    }

    const fn order() -> Checks {
        Checks {
            protection: 8,
            on_seek: false,
            order: true,
        }
    }
}

/// Options of this crate's table besides its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    Nothing,
    /// A filter of whole keys, 0.015 of the write buffer.
    Filter,
    /// No directory: searches go by the towers of the list.
    Towers,
}

/// Options of RocksDB's table besides its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "rocksdb"),
    expect(dead_code, reason = "candidates of RocksDB only")
)]
pub enum Extra {
    Nothing,
    /// A Bloom filter of whole keys, 0.015 of the write buffer.
    Bloom,
    /// Each insert brings its digest and is verified against it.
    Promise,
    /// The batch lookup optimization of its MultiGet.
    BatchLookup,
}

/// A candidate: a table with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    Ours(Checks, Accelerator),
    RocksDb(Checks, Extra),
    Crossbeam,
    ArenaSkiplist,
    Skl,
    /// Keys and values of any length, as in an engine.
    ArtMap,
    /// Keys and values whose lengths are known at compile time.
    ArtMapArrays,
    Masstree,
    Ferntree,
    BTree,
}

const OURS: [Candidate; 7] = [
    Candidate::Ours(Checks::bytes(0), Accelerator::Nothing),
    Candidate::Ours(Checks::bytes(8), Accelerator::Nothing),
    Candidate::Ours(Checks::on_seek(), Accelerator::Nothing),
    Candidate::Ours(Checks::order(), Accelerator::Nothing),
    Candidate::Ours(Checks::bytes(0), Accelerator::Filter),
    Candidate::Ours(Checks::bytes(8), Accelerator::Filter),
    Candidate::Ours(Checks::bytes(8), Accelerator::Towers),
];

#[cfg(feature = "rocksdb")]
const ROCKSDB: [Candidate; 8] = [
    Candidate::RocksDb(Checks::bytes(0), Extra::Nothing),
    Candidate::RocksDb(Checks::bytes(8), Extra::Nothing),
    Candidate::RocksDb(Checks::on_seek(), Extra::Nothing),
    Candidate::RocksDb(Checks::bytes(0), Extra::Bloom),
    Candidate::RocksDb(Checks::bytes(8), Extra::Bloom),
    Candidate::RocksDb(Checks::bytes(8), Extra::Promise),
    Candidate::RocksDb(Checks::bytes(0), Extra::BatchLookup),
    Candidate::RocksDb(Checks::bytes(8), Extra::BatchLookup),
];
#[cfg(not(feature = "rocksdb"))]
const ROCKSDB: [Candidate; 0] = [];

const RUST: [Candidate; 8] = [
    Candidate::Crossbeam,
    Candidate::ArenaSkiplist,
    Candidate::Skl,
    Candidate::ArtMap,
    Candidate::ArtMapArrays,
    Candidate::Masstree,
    Candidate::Ferntree,
    Candidate::BTree,
];

impl Candidate {
    pub fn all() -> Vec<Candidate> {
        OURS.into_iter().chain(ROCKSDB).chain(RUST).collect()
    }

    pub fn name(self) -> String {
        let checked = |checks: Checks| {
            let on_seek = if checks.on_seek { "-on-seek" } else { "" };
            let order = if checks.order { "-order" } else { "" };
            format!("{}{on_seek}{order}", checks.protection)
        };
        match self {
            Candidate::Ours(checks, accelerator) => {
                let accelerator = match accelerator {
                    Accelerator::Nothing => "",
                    Accelerator::Filter => "-filter",
                    Accelerator::Towers => "-towers",
                };
                format!("ours-{}{accelerator}", checked(checks))
            }
            Candidate::RocksDb(checks, extra) => {
                let extra = match extra {
                    Extra::Nothing => "",
                    Extra::Bloom => "-bloom",
                    Extra::Promise => "-promise",
                    Extra::BatchLookup => "-batch-lookup",
                };
                format!("rocksdb-{}{extra}", checked(checks))
            }
            Candidate::Crossbeam => "crossbeam-skiplist".into(),
            Candidate::ArenaSkiplist => "arenaskiplist".into(),
            Candidate::Skl => "skl".into(),
            Candidate::ArtMap => "artmap".into(),
            Candidate::ArtMapArrays => "artmap-arrays".into(),
            Candidate::Masstree => "masstree".into(),
            Candidate::Ferntree => "ferntree".into(),
            Candidate::BTree => "btreemap-rwlock".into(),
        }
    }

    /// An empty table.
    pub fn table(self, room: Room) -> anyhow::Result<Box<dyn Table>> {
        Ok(match self {
            Candidate::Ours(checks, accelerator) => Box::new(Ours::new(checks, accelerator, room)?),
            #[cfg(feature = "rocksdb")]
            Candidate::RocksDb(checks, extra) => {
                Box::new(crate::shim::memtable::RocksDb::new(checks, extra, room))
            }
            #[cfg(not(feature = "rocksdb"))]
            Candidate::RocksDb(..) => anyhow::bail!("built without the feature `rocksdb`"),
            Candidate::Crossbeam => Box::new(crossbeam::Owning::new()),
            Candidate::ArenaSkiplist => Box::new(arenaskiplist::table()),
            Candidate::Skl => Box::new(skl::table(room)?),
            Candidate::ArtMap => artmap::of_any_length(room),
            Candidate::ArtMapArrays => artmap::of_arrays(room)?,
            Candidate::Masstree => Box::new(Plain(masstree::Tree::new())),
            Candidate::Ferntree => Box::new(Plain(ferntree::Tree::new())),
            Candidate::BTree => Box::new(btree::Locked::default()),
        })
    }
}

// This crate's table, with options.

#[derive(Debug)]
pub struct Ours {
    table: MemTable,
    protection: u8,
    /// Most bytes that all entries take.
    bytes: u64,
    frozen: Option<ImmutableMemTable>,
}

const INTACT: &str = "intact memory";

impl Ours {
    pub fn new(checks: Checks, accelerator: Accelerator, room: Room) -> anyhow::Result<Ours> {
        let options = MemTableOptions::builder()
            .write_buffer_size(room.write_buffer())
            .protection_bytes(checks.protection)
            .checksum_on_seek(checks.on_seek)
            .order_checks(checks.order);
        let options = match accelerator {
            Accelerator::Nothing => options,
            Accelerator::Filter => options.whole_key_filter(0.015),
            Accelerator::Towers => options.directory(Directory::Off),
        };
        let one = room.shape.key.len() as u64 + room.shape.value_len as u64 + 72;
        let bytes = one * room.entries;
        Ok(Ours {
            table: MemTable::new(options.build()?)?,
            protection: checks.protection,
            bytes,
            frozen: None,
        })
    }

    pub fn table(&self) -> &MemTable {
        &self.table
    }

    /// Folds the value of a key into a hash.
    #[inline]
    pub fn get_one(&self, key: &[u8], hash: u64) -> u64 {
        get(self.reader(), key, hash)
    }

    fn reader(&self) -> &TableReader {
        match &self.frozen {
            Some(frozen) => frozen,
            None => &self.table,
        }
    }

    fn insert(&self, entries: &Entries) -> u64 {
        let mut writer = self.table.writer();
        for (sequence, key, value) in entries.iter() {
            put(&mut writer, sequence, key, value);
        }
        entries.count() as u64
    }

    /// Batches with their first sequence numbers, and with callers' digests if the table has
    /// digests.
    pub fn batches(&self, entries: &Entries, batch: usize) -> Vec<(u64, WriteBatch)> {
        let digest_bytes = if self.protection == 0 { 0 } else { 8 };
        let mut made: Vec<(u64, WriteBatch)> = Vec::new();
        for (at, (sequence, key, value)) in entries.iter().enumerate() {
            if at % batch == 0 {
                made.push((
                    sequence,
                    WriteBatch::with_protection(digest_bytes).expect("a number of bytes it knows"),
                ));
            }
            if let Some((_, batch)) = made.last_mut() {
                batch.put(key, value).expect("room for the entry");
            }
        }
        made
    }

    fn write(&self, batches: &[(u64, WriteBatch)]) -> u64 {
        let mut writer = self.table.writer();
        batches.iter().fold(0, |count, (sequence, batch)| {
            writer
                .write_batch(*sequence, batch)
                .expect("room for the batch");
            count + batch.len() as u64
        })
    }

    fn get(&self, keys: &Keys) -> u64 {
        let reader = self.reader();
        keys.iter().fold(0, |hash, key| get(reader, key, hash))
    }

    fn multi_get(&self, keys: &[&[u8]], batch: usize) -> u64 {
        let mut results = Vec::with_capacity(batch);
        let mut hash = 0;
        for keys in keys.chunks(batch) {
            self.reader().multi_get_into(keys, u64::MAX, &mut results);
            for result in &results {
                hash = found(result.as_ref().expect(INTACT), hash);
            }
        }
        hash
    }

    fn seek(&self, keys: &Keys, steps: usize) -> u64 {
        let mut hash = 0;
        let mut cursor = self.reader().cursor();
        for key in keys.iter() {
            let mut moved = cursor.seek(key);
            for _ in 0..=steps {
                let Some(entry) = moved.expect(INTACT) else {
                    break;
                };
                hash = fold(hash, entry.value().expect(INTACT));
                moved = cursor.next();
            }
        }
        hash
    }

    fn scan(&self, key: &[u8], steps: usize, way: Way) -> u64 {
        let mut hash = 0;
        let mut cursor = self.reader().cursor();
        let mut moved = match way {
            Way::Forward => cursor.seek(key),
            Way::Backward => cursor.seek_for_prev(key),
        };
        for _ in 0..steps {
            let Some(entry) = moved.expect(INTACT) else {
                break;
            };
            hash = fold(hash, entry.value().expect(INTACT));
            moved = match way {
                Way::Forward => cursor.next(),
                Way::Backward => cursor.prev(),
            };
        }
        hash
    }

    fn mix(&self, entries: &Entries, keys: &Keys) -> u64 {
        let mut writer = self.table.writer();
        let (mut asked, share) = (keys.iter(), keys.share(entries.count()));
        entries.iter().fold(0, |hash, (sequence, key, value)| {
            put(&mut writer, sequence, key, value);
            let asked = asked.by_ref().take(share);
            asked.fold(hash, |hash, key| get(self.reader(), key, hash))
        })
    }

    fn delete_ranges(&self, ranges: &Ranges) -> u64 {
        let deletes = ranges.sequences.len();
        let share = ranges.gets.as_ref().map_or(0, |keys| keys.share(deletes));
        let mut asked = ranges.gets.iter().flat_map(Keys::iter);
        let pieces = ranges
            .starts
            .iter()
            .zip(ranges.ends.iter())
            .zip(&ranges.sequences);
        pieces.fold(0, |hash, ((start, end), sequence)| {
            self.table
                .delete_range(*sequence, start, end)
                .expect("room for the range");
            let asked = asked.by_ref().take(share);
            asked.fold(hash, |hash, key| get(self.reader(), key, hash))
        })
    }
}

#[inline]
fn put(writer: &mut Writer, sequence: u64, key: &[u8], value: &[u8]) {
    writer
        .put(sequence, key, value)
        .expect("room for the entry");
}

#[inline]
fn get(reader: &TableReader, key: &[u8], hash: u64) -> u64 {
    found(&reader.get(key, u64::MAX).expect(INTACT), hash)
}

#[inline]
fn found(lookup: &Lookup<ValueRef<'_>, Operands<'_>>, hash: u64) -> u64 {
    match lookup {
        Lookup::Value(value) => fold(hash, value),
        _ => hash + 1,
    }
}

fn checksum(kind: u8, blocks: &Keys, passes: usize) -> u64 {
    let kind = ChecksumKind::try_from(kind).expect("a known kind");
    (0..passes).fold(0u64, |sum, _| {
        let blocks = std::hint::black_box(blocks);
        blocks.iter().fold(sum, |sum, block| {
            sum.wrapping_add(u64::from(kind.checksum(block)))
        })
    })
}

impl Table for Ours {
    fn ahead(&self, ahead: Ahead) {
        match ahead {
            Ahead::Nothing => {}
            Ahead::Reserve => drop(self.table.try_reserve(self.bytes)),
        }
    }

    fn prepare<'a>(&'a self, work: Work<'a>) -> Option<Task<'a>> {
        Some(match work {
            Work::Insert(entries) => Box::new(|| self.insert(entries)),
            Work::InsertBatches(entries, batch) => {
                let batches = self.batches(entries, batch);
                Box::new(move || self.write(&batches))
            }
            Work::Get(keys) => Box::new(|| self.get(keys)),
            Work::MultiGet(keys, batch) => {
                let keys: Vec<&[u8]> = keys.iter().collect();
                Box::new(move || self.multi_get(&keys, batch))
            }
            Work::Seek(keys, steps) => Box::new(move || self.seek(keys, steps)),
            Work::Scan(key, steps, way) => Box::new(move || self.scan(&key.bytes, steps, way)),
            Work::Mix(entries, keys) => Box::new(|| self.mix(entries, keys)),
            Work::DeleteRanges(ranges) => Box::new(|| self.delete_ranges(ranges)),
            Work::Checksum(kind, blocks, passes) => {
                Box::new(move || checksum(kind, blocks, passes))
            }
        })
    }

    fn counted(&self) -> Option<u64> {
        Some(self.reader().allocated_bytes())
    }

    fn freeze(&mut self) {
        self.frozen = Some(self.table.freeze().expect(INTACT));
    }
}
