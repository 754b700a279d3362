//! The settings that follow from the flags.

use std::path::PathBuf;

use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::{ChecksumKind, Directory, Error, MemTableOptions};

use crate::bench::Shown;
use crate::failure::Failure;
use crate::fills::KeyShape;
use crate::flags::{Flags, ONE_REPRESENTATION};
use crate::journal::Sync;
use crate::tables::{WriteOrder, Writing};

/// Most threads of a benchmark.
const THREADS_MAX: u64 = 1 << 12;
/// Most bytes of a key, the limit of a table.
const KEY_SIZE_MAX: u64 = (1 << 24) - 1;
/// Most bytes of a value or a block: a record of the journal holds no more.
const BYTES_MAX: u64 = 1 << 30;
/// Most entries of a batch.
const BATCH_SIZE_MAX: u64 = 1 << 24;

/// Range deletes among the puts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeDeletes {
    /// Number of puts between two range deletes; 0: no range deletes.
    pub(crate) each: u64,
    pub(crate) after: u64,
    pub(crate) max: u64,
    pub(crate) width: u64,
    pub(crate) form: RangeForm,
}

/// The form of a range's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeForm {
    Tombstone,
    /// One point delete per key of the range.
    EachKey,
}

/// The use of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Journaling {
    Off,
    Write,
    /// The journal is replayed and not changed.
    ReadOnly,
}

/// The content with which a command begins: none, or that of an earlier command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Empty,
    Existing,
}

/// The amount of work of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) num: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) deletes: u64,
    /// Seconds in place of counts; 0: counts.
    pub(crate) duration: u64,
}

/// The form of reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) batched: bool,
    pub(crate) stride: u64,
    pub(crate) seek_nexts: u64,
    pub(crate) backward: bool,
    /// Bytes of the prefix within which a scan stays.
    pub(crate) prefix: Option<usize>,
}

/// All settings of a command.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) benchmarks: String,
    pub(crate) extent: Extent,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
    pub(crate) keys: KeyShape,
    pub(crate) value_size: usize,
    pub(crate) batch_size: usize,
    pub(crate) block_size: usize,
    pub(crate) checksum_bytes: u64,
    pub(crate) reading: Reading,
    pub(crate) range_deletes: RangeDeletes,
    pub(crate) finish_after_writes: bool,
    pub(crate) timed: bool,
    pub(crate) shown: Shown,
    pub(crate) directory: PathBuf,
    pub(crate) start: Start,
    pub(crate) journaling: Journaling,
    pub(crate) checksum: ChecksumKind,
    pub(crate) writing: Writing,
    pub(crate) table: MemTableOptions,
    pub(crate) notes: Vec<String>,
}

impl Settings {
    pub(crate) fn of(flags: &Flags) -> Result<Settings, Failure> {
        let size =
            |name: &str, range| usize_of(flags.count_in(name, range).map_err(Failure::Cannot)?);
        let num = flags.count("num", 1).map_err(Failure::Cannot)?;
        let or_num = |name: &str| flags.count_or_num(name).map_err(Failure::Cannot);
        let (seed, mut notes) = seed(flags);
        if flags.text("memtablerep") == "vector" {
            notes.push(format!("--memtablerep=vector: {ONE_REPRESENTATION}"));
        }
        let per_prefix = flags.count("keys_per_prefix", 0).map_err(Failure::Cannot)?;
        let prefixes = num
            .checked_div(per_prefix)
            .unwrap_or(0)
            .max(u64::from(per_prefix > 0));
        Ok(Settings {
            benchmarks: flags.text("benchmarks").to_owned(),
            extent: Extent {
                num,
                reads: or_num("reads")?,
                writes: or_num("writes")?,
                deletes: or_num("deletes")?,
                duration: flags.count("duration", 0).map_err(Failure::Cannot)?,
            },
            threads: size("threads", 1..=THREADS_MAX)?,
            seed,
            keys: KeyShape {
                key_size: size("key_size", 1..=KEY_SIZE_MAX)?,
                prefix_size: size("prefix_size", 0..=KEY_SIZE_MAX)?,
                prefixes,
            },
            value_size: size("value_size", 0..=BYTES_MAX)?,
            batch_size: size("batch_size", 1..=BATCH_SIZE_MAX)?,
            block_size: size("block_size", 1..=BYTES_MAX)?,
            checksum_bytes: flags
                .count("checksum_mebibytes", 1)
                .map_err(Failure::Cannot)?
                << 20,
            reading: reading(flags)?,
            range_deletes: range_deletes(flags)?,
            finish_after_writes: flags.yes("finish_after_writes"),
            timed: flags.yes("histogram"),
            shown: if flags.yes("confidence_interval_only") {
                Shown::Intervals
            } else {
                Shown::Averages
            },
            directory: directory(flags.text("db")),
            start: if flags.yes("use_existing_db") {
                Start::Existing
            } else {
                Start::Empty
            },
            journaling: journaling(flags)?,
            checksum: checksum(flags)?,
            writing: writing(flags)?,
            table: table(flags)?,
            notes,
        })
    }
}

fn usize_of(number: u64) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Failure::Cannot(format!("{number} is too large")))
}

fn seed(flags: &Flags) -> (u64, Vec<String>) {
    if let Ok(seed @ 1..) = u64::try_from(flags.number("seed")) {
        return (seed, Vec::new());
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = now.map_or(1, |now| u64::try_from(now.as_micros()).unwrap_or(1));
    (
        seed,
        vec![format!("Set seed to {seed} because --seed was 0")],
    )
}

/// The directory of the journal: the one that the flags name, the one that RocksDB's scripts set,
/// or a default.
fn directory(asked: &str) -> PathBuf {
    if !asked.is_empty() {
        return PathBuf::from(asked);
    }
    match std::env::var_os("TEST_TMPDIR") {
        Some(parent) => PathBuf::from(parent).join("dbbench"),
        None => std::env::temp_dir().join("paranoid-memtable-dbbench"),
    }
}

fn journaling(flags: &Flags) -> Result<Journaling, Failure> {
    match (flags.yes("readonly"), flags.yes("disable_wal")) {
        (true, _) => Ok(Journaling::ReadOnly),
        (false, true) if flags.yes("sync") => Err(Failure::Cannot(
            "--sync: there is no journal to sync with --disable_wal".into(),
        )),
        (false, true) => Ok(Journaling::Off),
        (false, false) => Ok(Journaling::Write),
    }
}

fn checksum(flags: &Flags) -> Result<ChecksumKind, Failure> {
    let number = flags.number("checksum_type");
    let kind = u8::try_from(number)
        .ok()
        .and_then(|number| ChecksumKind::try_from(number).ok());
    kind.ok_or_else(|| Failure::Cannot(format!("--checksum_type: {number} is not known")))
}

fn writing(flags: &Flags) -> Result<Writing, Failure> {
    let batch_protection = match flags.number("write_batch_protection_bytes_per_key") {
        0 => 0,
        8 => 8,
        other => {
            return Err(Failure::Cannot(format!(
                "--write_batch_protection_bytes_per_key: 0 or 8, not {other}"
            )));
        }
    };
    let order = match flags.yes("allow_concurrent_memtable_write") {
        true => WriteOrder::Concurrent,
        false => WriteOrder::OneAtATime,
    };
    Ok(Writing {
        sync: if flags.yes("sync") {
            Sync::EachWrite
        } else {
            Sync::Never
        },
        order,
        batch_protection,
    })
}

fn range_deletes(flags: &Flags) -> Result<RangeDeletes, Failure> {
    let count = |name: &str, least: u64| flags.count(name, least).map_err(Failure::Cannot);
    Ok(RangeDeletes {
        each: count("writes_per_range_tombstone", 0)?,
        after: count("writes_before_delete_range", 0)?,
        max: count("max_num_range_tombstones", 0)?,
        width: count("range_tombstone_width", 1)?,
        form: if flags.yes("expand_range_tombstones") {
            RangeForm::EachKey
        } else {
            RangeForm::Tombstone
        },
    })
}

fn reading(flags: &Flags) -> Result<Reading, Failure> {
    let count = |name: &str| flags.count(name, 0).map_err(Failure::Cannot);
    let prefix_size = usize_of(count("prefix_size")?)?;
    let filtered = flags.share("memtable_bloom_size_ratio") > 0.0;
    let stays = flags.yes("prefix_same_as_start") || filtered;
    let prefix =
        (prefix_size > 0 && stays && !flags.yes("total_order_seek")).then_some(prefix_size);
    Ok(Reading {
        batched: flags.yes("multiread_batched"),
        stride: count("multiread_stride")?,
        seek_nexts: count("seek_nexts")?,
        backward: flags.yes("reverse_iterator"),
        prefix,
    })
}

fn table(flags: &Flags) -> Result<MemTableOptions, Failure> {
    let failed = |error: Error| Failure::of_table("options", &error);
    let count = |name: &str| flags.count(name, 0).map_err(Failure::Cannot);
    let protection =
        u8::try_from(flags.number("memtable_protection_bytes_per_key")).unwrap_or(u8::MAX);
    let mut builder = MemTableOptions::builder()
        .write_buffer_size(count("write_buffer_size")?)
        .protection_bytes(protection)
        .checksum_on_seek(flags.yes("memtable_verify_per_key_checksum_on_seek"))
        .order_checks(flags.yes("paranoid_memory_checks"));
    let (ratio, prefix_size) = (
        flags.share("memtable_bloom_size_ratio"),
        usize_of(count("prefix_size")?)?,
    );
    let whole = flags.yes("memtable_whole_key_filtering");
    // The memory of one filter is divided between the filters that exist.
    let share = if whole && prefix_size > 0 {
        ratio / 2.0
    } else {
        ratio
    };
    if ratio > 0.0 && whole {
        builder = builder.whole_key_filter(share);
    }
    if ratio > 0.0 && prefix_size > 0 {
        builder = builder.prefix_filter(FixedPrefix::new(prefix_size), share);
    }
    if !flags.yes("directory") {
        builder = builder.directory(Directory::Off);
    }
    builder.build().map_err(failed)
}
