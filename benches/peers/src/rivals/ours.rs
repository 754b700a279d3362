//! This crate's table, with options.

use std::sync::Arc;

use paranoid_memtable::{
    ChecksumKind, Directory, ImmutableMemTable, Lookup, MemTable, MemTableOptions, ParanoidOptions,
    TableReader, WriteBatch, Writer,
};

use super::{Accelerator, Ahead, Checks, Room, Table};
use crate::work::{Entries, Keys, Ranges, Task, Way, Work, fold};

#[derive(Debug)]
pub(super) struct Ours {
    table: MemTable,
    protection: u8,
    /// The most bytes that all entries take.
    bytes: u64,
    frozen: Option<Arc<ImmutableMemTable>>,
}

const INTACT: &str = "intact memory";

impl Ours {
    pub(super) fn new(checks: Checks, accelerator: Accelerator, room: Room) -> anyhow::Result<Ours> {
        let paranoid = ParanoidOptions::builder()
            .protection_bytes(checks.protection)
            .checksum_on_seek(checks.on_seek)
            .order_checks(checks.order)
            .build()?;
        let options = MemTableOptions::builder().write_buffer_size(room.write_buffer()).paranoid(paranoid);
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

    /// Batches with their first sequence numbers; with callers' digests if the table has digests.
    fn batches(&self, entries: &Entries, batch: usize) -> Vec<(u64, WriteBatch)> {
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
            writer.write_batch(*sequence, batch).expect("room for the batch");
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
                let Some(entry) = moved.expect(INTACT) else { break };
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
            let Some(entry) = moved.expect(INTACT) else { break };
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
        entries.iter().zip(keys.iter()).fold(0, |hash, ((sequence, key, value), asked)| {
            put(&mut writer, sequence, key, value);
            get(self.reader(), asked, hash)
        })
    }

    fn delete_ranges(&self, ranges: &Ranges) -> u64 {
        let mut asked = ranges.gets.as_ref().map(Keys::iter);
        let pieces = ranges.starts.iter().zip(ranges.ends.iter()).zip(&ranges.sequences);
        pieces.fold(0, |hash, ((start, end), sequence)| {
            self.table.delete_range(*sequence, start, end).expect("room for the range");
            match asked.as_mut().and_then(Iterator::next) {
                Some(key) => get(self.reader(), key, hash),
                None => hash,
            }
        })
    }
}

#[inline]
fn put(writer: &mut Writer, sequence: u64, key: &[u8], value: &[u8]) {
    writer.put(sequence, key, value).expect("room for the entry");
}

#[inline]
fn get(reader: &TableReader, key: &[u8], hash: u64) -> u64 {
    found(&reader.get(key, u64::MAX).expect(INTACT), hash)
}

#[inline]
fn found(lookup: &Lookup<'_>, hash: u64) -> u64 {
    match lookup {
        Lookup::Value(value) => fold(hash, value),
        _ => hash + 1,
    }
}

fn checksum(kind: u8, blocks: &Keys, passes: usize) -> u64 {
    let kind = ChecksumKind::try_from(kind).expect("a known kind");
    (0..passes).fold(0u64, |sum, _| {
        let blocks = std::hint::black_box(blocks);
        blocks.iter().fold(sum, |sum, block| sum.wrapping_add(u64::from(kind.checksum(block))))
    })
}

impl Table for Ours {
    fn ahead(&self, ahead: Ahead) {
        match ahead {
            Ahead::Nothing => {}
            Ahead::Maintain => self.table.maintain(),
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
            Work::Checksum(kind, blocks, passes) => Box::new(move || checksum(kind, blocks, passes)),
        })
    }

    fn counted(&self) -> Option<u64> {
        Some(self.reader().allocated_bytes())
    }

    fn freeze(&mut self) {
        self.frozen = Some(self.table.freeze().expect(INTACT));
    }
}
