//! What seals the active table of a set, and what does not: batches that fit no table, and the bytes of a journal.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use paranoid_memtable::{ChecksumKind, Error, MemTable, MemTableOptions, StallCause, WriteBatch};
use paranoid_set::{
    Durability, FileJournal, Listener, MemTableSet, RecoveryMode, SetEvent, SetOptions, SetOptionsBuilder,
    WriteBufferManager,
};

use crate::file_journal::{empty_disk, journals};
use crate::support::rng::Watchdog;
use crate::support::sets::{History, SimDisk};

const WRITE_BUFFER: u64 = 64 << 10;
const LIMIT: u64 = 128 << 10;

fn tables() -> MemTableOptions {
    MemTableOptions::builder().write_buffer_size(WRITE_BUFFER).hard_limit(LIMIT).build().unwrap()
}

/// Counts switches.
#[derive(Default)]
struct Switches(Mutex<u64>);

impl Listener for Switches {
    fn event(&self, event: &SetEvent) {
        *self.0.lock().unwrap() += u64::from(matches!(event, SetEvent::Switched { .. }));
    }
}

/// A set over a journal of files, and what shows what a write has changed.
struct Subject {
    disk: SimDisk,
    switches: Arc<Switches>,
    set: MemTableSet<u64>,
}

impl Subject {
    /// Opens what the disk has, which the base has up to `last`.
    fn open(options: SetOptionsBuilder, disk: SimDisk, last: u64) -> Subject {
        let storage = Arc::new(disk.clone());
        let (checksum, mode) = (ChecksumKind::Xxh3, RecoveryMode::default());
        let (journal, recovery) = FileJournal::open_in(storage, last, checksum, mode).unwrap();
        let switches = Arc::new(Switches::default());
        let options = options.first_table(journal.next_table()).last_sequence(last);
        let options = options.journal(Arc::new(journal)).listener(switches.clone()).build().unwrap();
        let set = MemTableSet::open(options, last).unwrap();
        recovery.replay(|_, batch| set.replay(&batch).map(drop)).unwrap();
        Subject { disk, switches, set }
    }

    fn state(&self) -> (u64, u64, usize, u64) {
        let stats = self.set.stats();
        (stats.visible, stats.tables, journals(&self.disk).len(), *self.switches.0.lock().unwrap())
    }

    fn flush(&self) {
        let Some(mut job) = self.set.begin_flush().unwrap() else { return };
        job.flush(&mut History::default()).unwrap();
        let last = job.last_sequence();
        job.install(|_| Ok(last)).unwrap();
    }
}

/// Batches whose bytes in a table grow with the length of a value.
fn forms(len: usize) -> [WriteBatch; 3] {
    let mut batches = [(); 3].map(|()| WriteBatch::new());
    batches[0].put(b"key", vec![7; len]).unwrap();
    for key in 0..5_u8 {
        batches[1].put([key], vec![7; len / 5]).unwrap();
    }
    for key in 0..9_u8 {
        batches[2].delete_range([key], [key + 1]).unwrap();
    }
    batches[2].put(b"key", vec![7; len]).unwrap();
    batches
}

/// Whether an empty table takes a batch of this form.
fn fits(form: usize, len: usize) -> bool {
    let (batch, table) = (&forms(len)[form], MemTable::new(tables()).unwrap());
    let model = table.fork().unwrap();
    table.reserve(&mut model.prepare(batch).unwrap()).is_ok()
}

/// The lengths around the largest one with which an empty table takes a batch of this form.
fn lengths(form: usize) -> Range<usize> {
    let (mut yes, mut no) = (0, LIMIT as usize);
    while yes + 1 < no {
        let middle = usize::midpoint(yes, no);
        if fits(form, middle) { yes = middle } else { no = middle }
    }
    yes.saturating_sub(12)..no + 12
}

/// The first batch of a set is written to an empty table: what is refused there is refused everywhere, and changes nothing.
#[test]
fn a_batch_that_fits_no_empty_table_seals_none() {
    let _watchdog = Watchdog::new("set_seals::a_batch_that_fits_no_empty_table_seals_none", 0);
    for form in 0..3 {
        let (mut refused, mut taken) = (0, 0);
        for len in lengths(form) {
            let batch = &forms(len)[form];
            let options = || SetOptions::builder().table(tables()).max_write_buffer_number(3);
            let first = Subject::open(options(), empty_disk(), 0).set.write(batch);
            assert_eq!(first.is_ok(), fits(form, len), "form {form}, {len} bytes: {first:?}");
            let later = Subject::open(options(), empty_disk(), 0);
            later.set.put("other", "value").unwrap();
            let before = later.state();
            let mut replayed = WriteBatch::new();
            replayed.append(batch).unwrap();
            replayed.set_sequence(100);
            for written in [later.set.write(batch), later.set.write(batch), later.set.replay(&replayed)] {
                let text = format!("form {form}, {len} bytes: {written:?}");
                match &first {
                    Ok(_) => assert!(!matches!(written, Err(Error::MemTableFull { .. })), "{text}"),
                    Err(Error::MemTableFull { .. }) => {
                        assert!(matches!(written, Err(Error::MemTableFull { .. })), "{text}");
                        assert_eq!(later.state(), before, "{text}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            let (fits, no_room) = (first.is_ok(), first.is_err());
            taken += u64::from(fits && later.state().3 > 0);
            refused += u64::from(no_room);
        }
        assert!(refused > 8 && taken > 8, "form {form}: {refused} refused, {taken} with a new table");
    }
}

/// Neither under a manager that such a batch would fill, nor where there may be no further table.
#[test]
fn a_batch_that_fits_no_table_asks_for_no_room() {
    let manager = WriteBufferManager::new(5 * LIMIT / 2).unwrap();
    let options = SetOptions::builder().table(tables()).max_write_buffer_number(2);
    let subject = Subject::open(options.write_buffer_manager(&manager), empty_disk(), 0);
    let mut batch = WriteBatch::new();
    batch.put("key", vec![7; 2 * LIMIT as usize]).unwrap();
    for tables in 1..=2 {
        subject.set.put("other", vec![7; 3_000]).unwrap();
        let before = subject.state();
        assert_eq!(before.1, tables);
        for _ in 0..3 {
            assert!(matches!(subject.set.write(&batch), Err(Error::MemTableFull { .. })));
            assert!(subject.set.begin_flush().unwrap().is_none() || tables == 2);
            assert_eq!(subject.state(), before);
        }
        if tables == 1 {
            subject.set.switch().unwrap();
        }
    }
}

/// A batch of one range that deletes nothing and leaves no entry.
fn empty_range(key_len: usize) -> WriteBatch {
    let varint = |len: usize| match len {
        0..128 => vec![len as u8],
        _ => vec![len as u8 | 128, (len >> 7) as u8 | 128, (len >> 14) as u8],
    };
    let key = [varint(key_len), vec![b'x'; key_len]].concat();
    WriteBatch::from_bytes(&[b"\0\0\0\0\0\0\0\0\x01\0\0\0\x0f", &key[..], &key[..]].concat()).unwrap()
}

fn empty_ranges(count: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    (0..count).for_each(|_| batch.append(&empty_range(4)).unwrap());
    batch
}

/// Bytes of all files of a journal.
fn journal_bytes(disk: &SimDisk) -> u64 {
    journals(disk).values().map(|bytes| bytes.len() as u64).sum()
}

/// Batches that leave no entries, or few: the journal has at most as many write buffers as there are tables, a queue, and what
/// a file has beside the batches.
#[test]
fn a_journal_seals_by_its_own_bytes() {
    let test = "set_seals::a_journal_seals_by_its_own_bytes";
    for (empty, puts_one_in) in [(1, 0), (300, 0), (300, 3)] {
        let _watchdog = Watchdog::new(test, 0);
        let options = || SetOptions::builder().table(tables()).max_write_buffer_number(3);
        let mut subject = Subject::open(options(), empty_disk(), 0);
        let (ranges, most) = (empty_ranges(empty), 100_000 / empty);
        let batch_len = ranges.as_bytes().len() as u64;
        let put = {
            let mut batch = WriteBatch::new();
            batch.put("key", "value").unwrap();
            batch
        };
        let write = |subject: &Subject, batch: &WriteBatch| {
            let written = subject.set.write_with(batch, Durability::Queued);
            if let Err(Error::WriteStall { cause: StallCause::Tables, tables: 3, .. }) = written {
                assert!(journal_bytes(&subject.disk) > 2 * WRITE_BUFFER);
                subject.flush();
                assert_eq!(subject.state().2, 1);
                subject.set.write(batch).unwrap();
            } else {
                written.unwrap();
            }
        };
        for number in 1..=most {
            if puts_one_in > 0 && number % puts_one_in == 0 {
                write(&subject, &put);
            }
            write(&subject, &ranges);
            if number % (most / 20) == 0 {
                let (bytes, files) = (journal_bytes(&subject.disk), subject.state().2 as u64);
                // Each record has 28 bytes of its own, and some filler.
                let room = 3 * (WRITE_BUFFER / batch_len + 2) * (batch_len + 40) + files * 512;
                assert!(bytes <= room, "{bytes} bytes in {files} files, {room} allowed");
            }
        }
        assert!(subject.state().3 as usize > most * batch_len as usize / (64 << 10) - 3);
        // The numbers of what is gone are not given again.
        let last = subject.set.snapshot().sequence();
        let base = **subject.set.view().base();
        let disk = subject.disk.clone();
        drop(subject);
        subject = Subject::open(options(), disk, base);
        assert_eq!(subject.set.put("key", "value").unwrap(), last + 1);
    }
}

/// At the limit, one byte below it and one above it; what the journal does not get does not count.
#[test]
fn as_many_bytes_as_the_write_buffer_seal() {
    for (bytes, seals) in [(WRITE_BUFFER - 1, 0), (WRITE_BUFFER, 1), (WRITE_BUFFER + 1, 1)] {
        for durability in [Durability::Queued, Durability::Synced, Durability::None] {
            // Header, kind and two lengths take 19 bytes; a record of one byte keys takes 5.
            let is_odd = bytes % 2 == 1;
            let mut batch = empty_range((bytes as usize - if is_odd { 19 } else { 24 }) / 2);
            if !is_odd {
                batch.append(&empty_range(1)).unwrap();
            }
            assert_eq!(batch.as_bytes().len() as u64, bytes);
            let subject = Subject::open(SetOptions::builder().table(tables()), empty_disk(), 0);
            subject.set.write_with(&batch, durability).unwrap();
            assert_eq!(subject.state().3, 0);
            subject.set.put("key", "value").unwrap();
            let wanted = if durability == Durability::None { 0 } else { seals };
            assert_eq!(subject.state().3, wanted, "{bytes} bytes, {durability:?}");
            subject.set.put("key", "value").unwrap();
            assert_eq!(subject.state().3, u64::from(durability != Durability::None));
        }
    }
}
