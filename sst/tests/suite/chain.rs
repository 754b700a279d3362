//! Flips bits between the memtable's stored digests and the bytes of the file. Every flip is found,
//! and no file is made.

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Error as TableError, ImmutableMemTable, Kind, MemTable, MemTableOptions};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};

use crate::model::{file_in, folder};

fn frozen(protection: u8) -> ImmutableMemTable {
    let options = MemTableOptions::builder()
        .protection_bytes(protection)
        .build()
        .unwrap();
    let table = MemTable::new(options).unwrap();
    for number in 0..300u64 {
        let key = format!("key{:04}", number / 3);
        let kind = if number % 7 == 0 {
            Kind::MERGE
        } else {
            Kind::PUT
        };
        table
            .insert(
                number + 1,
                kind,
                key.as_bytes(),
                format!("value {number}").as_bytes(),
            )
            .unwrap();
    }
    table.delete(500, b"key0001").unwrap();
    table.delete_range(600, b"key0010", b"key0020").unwrap();
    table.freeze().unwrap()
}

/// A change of the tenth entry between the table and the writer.
#[derive(Debug, Clone, Copy)]
enum Flip {
    Key(usize),
    Value(usize),
    Sequence(u32),
    Kind,
    None,
}

struct Damaging<'a> {
    writer: &'a mut SortedTableWriter,
    flip: Flip,
    entries: u64,
}

impl FlushSink for Damaging<'_> {
    fn entry(&mut self, mut entry: FlushEntry<'_>) -> Result<(), SinkError> {
        self.entries += 1;
        if self.entries != 10 {
            return self.writer.entry(entry);
        }
        let (mut key, mut value) = (entry.user_key.to_vec(), entry.value.to_vec());
        match self.flip {
            Flip::Key(bit) => key[bit / 8] ^= 1 << (bit % 8),
            Flip::Value(bit) => value[bit / 8] ^= 1 << (bit % 8),
            Flip::Sequence(bit) => entry.sequence ^= 1 << bit,
            Flip::Kind => {
                entry.kind = if entry.kind == Kind::PUT {
                    Kind::MERGE
                } else {
                    Kind::PUT
                }
            }
            Flip::None => {}
        }
        self.writer.entry(FlushEntry {
            user_key: &key,
            value: &value,
            ..entry
        })
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        self.writer.fragment(fragment)
    }
}

fn flush(table: &ImmutableMemTable, flip: Flip) -> Result<(), String> {
    let folder = folder();
    let path = file_in(&folder);
    let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default()).unwrap();
    let mut sink = Damaging {
        writer: &mut writer,
        flip,
        entries: 0,
    };
    let flushed = table.flush(Versions::All, &mut sink);
    let result = match flushed {
        Ok(_) => writer
            .finish()
            .map(|_| ())
            .map_err(|error| error.to_string()),
        Err(TableError::Sink(error)) => {
            drop(writer);
            Err(error.to_string())
        }
        Err(error) => panic!("{error}"),
    };
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, usize::from(result.is_ok()), "{flip:?}");
    if result.is_ok() {
        SortedTable::open(&path).unwrap().verify().unwrap();
    }
    result
}

#[test]
fn a_flip_between_table_and_block_is_found() {
    for protection in [1, 2, 4, 8] {
        let table = frozen(protection);
        assert_eq!(flush(&table, Flip::None), Ok(()));
        // A digest of one byte misses one flip in 256, so a single place proves little.
        let (mut missed, mut tried) = (0, 0);
        let keys = (0..7 * 8).map(Flip::Key);
        let values = (0..7 * 8).map(Flip::Value);
        for flip in keys
            .chain(values)
            .chain((0..40).map(Flip::Sequence))
            .chain([Flip::Kind])
        {
            tried += 1;
            missed += u32::from(flush(&table, flip).is_ok());
        }
        let allowed = if protection == 1 { 8 } else { 0 };
        assert!(
            missed <= allowed,
            "{missed} of {tried} missed with {protection} bytes"
        );
    }
}

#[test]
fn the_report_names_the_block() {
    let text = flush(&frozen(8), Flip::Value(3)).unwrap_err();
    assert!(
        text.contains("Data block at offset") && text.contains("digests its table stored"),
        "{text}"
    );
}

#[test]
fn a_table_without_protection_starts_a_new_chain() {
    assert_eq!(flush(&frozen(0), Flip::Value(3)), Ok(()));
}

/// A frozen table is equal to its file.
#[test]
fn a_flushed_table_is_read_back() {
    let table = frozen(8);
    let folder = folder();
    let path = file_in(&folder);
    let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default()).unwrap();
    let summary = table.flush(Versions::All, &mut writer).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(
        (summary.entries, summary.fragments),
        (written.entries, written.range_deletions)
    );
    let file = SortedTable::open(&path).unwrap();
    let mut cursor = file.cursor();
    cursor.first().unwrap();
    for entry in table.range(..) {
        let (entry, found) = (entry.unwrap(), cursor.entry().unwrap());
        assert_eq!(
            (entry.user_key(), entry.sequence(), entry.kind()),
            (found.user_key, found.sequence, found.kind)
        );
        assert_eq!(entry.value().unwrap(), found.value);
        cursor.next().unwrap();
    }
    assert!(!cursor.is_valid());
}
