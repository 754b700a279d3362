//! Each side reads what the other wrote: every format version and every checksum.
//!
//! ```text
//!   RocksDB: operations -> flush -> file    our reader: verify, entries, gets; our writer: blocks of the same bytes
//!   ours:    operations -> flush -> file    RocksDB: verify, entries; taken into a database: gets
//! ```
//! The operations are drawn by a seed: puts, deletes, single deletes, merges, range deletes, empty keys and values,
//! shared prefixes, several versions of a key.

use std::path::Path;

use anyhow::{Context, ensure};
use paranoid_memtable::flush::Versions;
use paranoid_memtable::read::Base;
use paranoid_memtable::{ChecksumKind, ImmutableMemTable, Kind, Lookup, MemTable, MemTableOptions};
use paranoid_sst::{
    BlockKind, MergeOperands, MergeOperator, SortedTable, SortedTableOptions, SortedTableWriter, ingestible,
};

use super::{Folder, table_in};
use crate::shim::table_files::{Database, FileOptions, Reader};
use crate::work::mix;

/// Operations of one file.
const OPERATIONS: u64 = 3_000;
/// Number of keys that operations use; some more are asked for.
const KEYS: u64 = 900;

/// One operation: kind, key, value (of a range delete: its end).
type Operation = (Kind, Vec<u8>, Vec<u8>);

fn key(number: u64) -> Vec<u8> {
    match number % 4 {
        _ if number == 0 => vec![],
        0 => [&[b'p'; 150][..], &number.to_be_bytes()].concat(),
        1 => number.to_be_bytes()[6..].to_vec(),
        _ => format!("user{number:06}:name").into_bytes(),
    }
}

fn operations(seed: u64) -> Vec<Operation> {
    let draw = |at: u64, below: u64| mix(mix(seed) ^ at) % below;
    let operation = |at: u64| {
        let (number, len) = (draw(4 * at, KEYS), draw(4 * at + 1, 60) as usize);
        let value = vec![at as u8; if draw(4 * at + 2, 97) == 0 { 5_000 } else { len }];
        // RocksDB does not allow single deletes together with deletes or merges of one key.
        let single = number % 5 == 0;
        match draw(4 * at + 3, 200) {
            0 => (Kind::RANGE_DELETE, key(number), [key(number), vec![0xff, at as u8]].concat()),
            1..=30 if single => (Kind::SINGLE_DELETE, key(number), vec![]),
            1..=30 => (Kind::DELETE, key(number), vec![]),
            31..=70 if !single => (Kind::MERGE, key(number), value),
            _ => (Kind::PUT, key(number), value),
        }
    };
    (0..OPERATIONS).map(operation).collect()
}

/// The hash function of the shim.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fold_entry(hash: u64, key: &[u8], sequence: u64, kind: Kind, value: &[u8]) -> u64 {
    let tail = (sequence << 8 | u64::from(kind.as_u8())).to_le_bytes();
    fnv(fnv(fnv(hash, key), &tail), value)
}

/// Hash and number of all entries of a file, by this crate's reader.
fn fold_file(table: &SortedTable) -> anyhow::Result<(u64, u64)> {
    let (mut cursor, mut hash, mut count) = (table.cursor(), BASIS, 0);
    cursor.first()?;
    while let Some(entry) = cursor.entry() {
        hash = fold_entry(hash, entry.user_key, entry.sequence, entry.kind, entry.value);
        count += 1;
        cursor.next()?;
    }
    Ok((hash, count))
}

/// Joins by commas, like the merge operator of the shim.
#[derive(Debug)]
struct Append;

impl MergeOperator for Append {
    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        Some(parts.join(&b","[..]))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(operands.join(&b","[..]))
    }
}

fn merged(base: Option<Vec<u8>>, newest_first: Vec<Vec<u8>>) -> u64 {
    let parts: Vec<Vec<u8>> = base.into_iter().chain(newest_first.into_iter().rev()).collect();
    fnv(BASIS, &parts.join(&b","[..]))
}

/// The hash of a key's value by this crate's reader.
fn get_file(table: &SortedTable, key: &[u8]) -> anyhow::Result<Option<u64>> {
    Ok(match table.get(key, u64::MAX)? {
        Lookup::Value((_, value)) => Some(fnv(BASIS, &value)),
        Lookup::Merge(MergeOperands { operands, base }) => {
            let base = if let Base::Value(value) = base { Some(value) } else { None };
            Some(merged(base, operands.into_iter().map(|(_, value)| value).collect()))
        }
        _ => None,
    })
}

/// The hash of a key's value by this crate's memtable.
fn get_table(table: &ImmutableMemTable, key: &[u8]) -> anyhow::Result<Option<u64>> {
    Ok(match table.get(key, u64::MAX)? {
        Lookup::Value(value) => Some(fnv(BASIS, &value)),
        Lookup::Merge(operands) => {
            let base = match operands.base()? {
                Base::Value(value) => Some(value.to_vec()),
                _ => None,
            };
            let values = operands.map(|operand| Ok(operand?.value.to_vec()));
            Some(merged(base, values.collect::<anyhow::Result<_>>()?))
        }
        _ => None,
    })
}

fn block<'a>(bytes: &'a [u8], table: &SortedTable, wanted: BlockKind) -> Option<&'a [u8]> {
    let (_, handle) = table.blocks().find(|(kind, _)| *kind == wanted)?;
    let (start, len) = (usize::try_from(handle.offset).ok()?, usize::try_from(handle.size).ok()?);
    bytes.get(start..start + len)
}

/// Reads RocksDB's file, and writes it again.
fn theirs(folder: &Path, options: FileOptions, operations: &[Operation]) -> anyhow::Result<u64> {
    let folder = Folder::fresh(&folder.join("theirs"))?;
    let database = Database::open(&folder, options);
    for (at, (kind, key, value)) in operations.iter().enumerate() {
        database.apply(kind.as_u8(), key, value, u8::from(at % 7 == 0));
    }
    database.flush();
    let path = table_in(&folder)?;
    let table = SortedTable::open(&path)?;
    let report = table.verify()?;
    let footer = table.footer();
    let stored = (footer.format_version(), footer.checks().kind().as_u8());
    ensure!(stored == (options.format_version, options.checksum), "footer {stored:?}");
    ensure!(report.range_deletions > 0 && report.data_blocks > 9, "{report:?}");
    ensure!(Reader::open(&path, options).all() == fold_file(&table)?, "entries differ");
    for number in 0..KEYS + 300 {
        let key = key(number);
        ensure!(database.get(&key) == get_file(&table, &key)?, "get of {number}");
    }
    if options.format_version <= 6 {
        rewrite(&folder.join("again"), &path, &table)?;
    }
    Ok(report.entries)
}

/// This crate's writer makes the same bytes of the same entries.
fn rewrite(again: &Path, path: &Path, table: &SortedTable) -> anyhow::Result<()> {
    let footer = table.footer();
    let mut options = SortedTableOptions::builder()
        .format_version(footer.format_version())
        .checksum(footer.checks().kind());
    if let Some(base) = footer.checks().context_base() {
        options = options.context_base(base);
    }
    let mut writer = SortedTableWriter::create(again, options.build()?)?;
    let mut cursor = table.cursor();
    cursor.first()?;
    while let Some(entry) = cursor.entry() {
        writer.add(entry.user_key, entry.sequence, entry.kind, entry.value)?;
        cursor.next()?;
    }
    for (start, end, sequence) in table.range_tombstones() {
        writer.add_range(start, end, sequence)?;
    }
    let data = usize::try_from(writer.finish()?.data_size)?;
    let (theirs, ours) = (std::fs::read(path)?, std::fs::read(again)?);
    let again = SortedTable::open(again)?;
    ensure!(theirs.get(..data) == ours.get(..data), "data blocks differ");
    let mut kinds = vec![BlockKind::Index, BlockKind::RangeDeletions];
    // Before version 5 RocksDB writes filters of another form.
    if footer.format_version() >= 5 {
        kinds.push(BlockKind::Filter);
    }
    for kind in kinds {
        let (theirs, ours) = (block(&theirs, table, kind), block(&ours, &again, kind));
        ensure!(theirs.is_some() && theirs == ours, "{kind:?} blocks differ");
    }
    Ok(())
}

/// RocksDB verifies and scans this crate's file, ingests it, and answers gets from it.
fn ours(folder: &Path, options: FileOptions, table: &ImmutableMemTable) -> anyhow::Result<u64> {
    let folder = Folder::fresh(&folder.join("ours"))?;
    let path = folder.join("000001.sst");
    let new = || {
        let kind = ChecksumKind::try_from(options.checksum);
        SortedTableOptions::builder().format_version(options.format_version).checksum(kind.expect("a kind"))
    };
    let mut writer = SortedTableWriter::create(&path, new().build()?)?;
    table.flush(Versions::All, &mut writer)?;
    let written = writer.finish()?;
    let (mut hash, mut count) = (BASIS, 0);
    for entry in table.range(..) {
        let entry = entry?;
        hash = fold_entry(hash, entry.user_key(), entry.sequence(), entry.kind(), entry.value()?);
        count += 1;
    }
    ensure!(Reader::open(&path, options).all() == (hash, count), "entries differ");
    ensure!(written.range_deletions > 0 && written.data_blocks > 9, "{written:?}");
    let newest = folder.join("newest.sst");
    ingestible(table, &newest, new().build()?, Some(&Append))?;
    for (name, path, db_generated) in [("generated", &path, 1), ("ingested", &newest, 0)] {
        let database = Database::open(&Folder::fresh(&folder.join(name))?, options);
        database.ingest(path, db_generated);
        for number in 0..KEYS + 300 {
            let key = key(number);
            ensure!(database.get(&key) == get_table(table, &key)?, "{name}: get of {number}");
        }
    }
    Ok(count)
}

fn memtable(operations: &[Operation]) -> anyhow::Result<ImmutableMemTable> {
    let table = MemTable::new(MemTableOptions::default())?;
    for (sequence, (kind, key, value)) in (1..).zip(operations) {
        match *kind {
            Kind::RANGE_DELETE => table.delete_range(sequence, key, value)?,
            kind => table.insert(sequence, kind, key, value)?,
        };
    }
    Ok(table.freeze()?)
}

/// Checks both ways. Returns a sentence about what was done.
pub fn check(folder: &Path, seed: u64) -> anyhow::Result<String> {
    let (mut read, mut written, mut files) = (0, 0, 0);
    for format_version in 2..=7 {
        for checksum in 0..=4 {
            let at = || format!("version {format_version}, checksum {checksum}, --seed {seed}");
            let operations = operations(seed ^ u64::from(format_version) << 8 ^ u64::from(checksum));
            let options =
                FileOptions { format_version, checksum, protection_bytes: 0, read_back: 0, cached: 0 };
            read +=
                theirs(folder, options, &operations).with_context(|| format!("RocksDB's file, {}", at()))?;
            files += 1;
            if format_version <= 6 {
                let table = memtable(&operations)?;
                written += ours(folder, options, &table).with_context(|| format!("our file, {}", at()))?;
                files += 2;
            }
        }
    }
    Ok(format!(
        "Read and written both ways: {files} files of format versions 2 to 7 with five checksums. RocksDB's files \
         ({read} entries) gave our reader what RocksDB reads and gets, and our writer made the same data, index, range \
         deletion and filter blocks from them (versions 2 to 6; filters from 5 on); our files ({written} entries) were \
         verified, scanned, ingested and asked by RocksDB. Seed {seed}."
    ))
}
