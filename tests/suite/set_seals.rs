//! The causes that seal the active table of a set, and those that do not: batches that fit no
//! table, the bytes of a journal, scans.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use paranoid_memtable::{ChecksumKind, Error, MemTable, MemTableOptions, StallCause, WriteBatch};
use paranoid_set::{
    Durability, FileJournal, Listener, MemTableSet, RecoveryMode, SetEvent, SetOptions,
    SetOptionsBuilder, WriteBufferManager,
};

use crate::file_journal::{empty_disk, journals};
use crate::support::rng::Watchdog;
use crate::support::sets::{History, SimDisk};

const WRITE_BUFFER: u64 = 64 << 10;
const LIMIT: u64 = 128 << 10;

fn tables() -> MemTableOptions {
    MemTableOptions::builder()
        .write_buffer_size(WRITE_BUFFER)
        .hard_limit(LIMIT)
        .build()
        .unwrap()
}

/// Counts switches.
#[derive(Default)]
struct Switches(Mutex<u64>);

impl Listener for Switches {
    fn event(&self, event: &SetEvent) {
        *self.0.lock().unwrap() += u64::from(matches!(event, SetEvent::Switched { .. }));
    }
}

/// A set over a journal of files, and the means to see the effect of a write.
struct Subject {
    disk: SimDisk,
    switches: Arc<Switches>,
    set: MemTableSet<u64>,
}

impl Subject {
    /// Opens the files of the disk. The base has batches up to `last`.
    fn open(options: SetOptionsBuilder, disk: SimDisk, last: u64) -> Subject {
        let storage = Arc::new(disk.clone());
        let (checksum, mode) = (ChecksumKind::Xxh3, RecoveryMode::default());
        let (journal, recovery) = FileJournal::open_in(storage, last, checksum, mode).unwrap();
        let switches = Arc::new(Switches::default());
        let options = options
            .first_table(journal.next_table())
            .last_sequence(last);
        let options = options
            .journal(Arc::new(journal))
            .listener(switches.clone())
            .build()
            .unwrap();
        let set = MemTableSet::open(options, last).unwrap();
        recovery
            .replay(|_, batch| set.replay(&batch).map(drop))
            .unwrap();
        Subject {
            disk,
            switches,
            set,
        }
    }

    fn state(&self) -> (u64, u64, usize, u64) {
        let stats = self.set.stats();
        (
            stats.visible,
            stats.tables,
            journals(&self.disk).len(),
            *self.switches.0.lock().unwrap(),
        )
    }

    fn flush(&self) {
        let Some(mut job) = self.set.begin_flush().unwrap() else {
            return;
        };
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
        if fits(form, middle) {
            yes = middle
        } else {
            no = middle
        }
    }
    yes.saturating_sub(12)..no + 12
}

/// The first batch of a set is written to an empty table. A batch that this table refuses is
/// refused by every table, and changes nothing.
#[test]
fn a_batch_that_fits_no_empty_table_seals_none() {
    let _watchdog = Watchdog::new("set_seals::a_batch_that_fits_no_empty_table_seals_none", 0);
    for form in 0..3 {
        let (mut refused, mut taken) = (0, 0);
        for len in lengths(form) {
            let batch = &forms(len)[form];
            let options = || {
                SetOptions::builder()
                    .table(tables())
                    .max_write_buffer_number(3)
            };
            let first = Subject::open(options(), empty_disk(), 0).set.write(batch);
            assert_eq!(
                first.is_ok(),
                fits(form, len),
                "form {form}, {len} bytes: {first:?}"
            );
            let later = Subject::open(options(), empty_disk(), 0);
            later.set.put("other", "value").unwrap();
            let before = later.state();
            let mut replayed = WriteBatch::new();
            replayed.append(batch).unwrap();
            replayed.set_sequence(100);
            for written in [
                later.set.write(batch),
                later.set.write(batch),
                later.set.replay(&replayed),
            ] {
                let text = format!("form {form}, {len} bytes: {written:?}");
                match &first {
                    Ok(_) => assert!(
                        !matches!(written, Err(Error::MemTableFull { .. })),
                        "{text}"
                    ),
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
        assert!(
            refused > 8 && taken > 8,
            "form {form}: {refused} refused, {taken} with a new table"
        );
    }
}

/// Such a batch makes no room: neither under a manager that it would fill, nor without space for a
/// further table.
#[test]
fn a_batch_that_fits_no_table_asks_for_no_room() {
    let manager = WriteBufferManager::new(5 * LIMIT / 2).unwrap();
    let options = SetOptions::builder()
        .table(tables())
        .max_write_buffer_number(2);
    let subject = Subject::open(options.write_buffer_manager(&manager), empty_disk(), 0);
    let mut batch = WriteBatch::new();
    batch.put("key", vec![7; 2 * LIMIT as usize]).unwrap();
    for tables in 1..=2 {
        subject.set.put("other", vec![7; 3_000]).unwrap();
        let before = subject.state();
        assert_eq!(before.1, tables);
        for _ in 0..3 {
            assert!(matches!(
                subject.set.write(&batch),
                Err(Error::MemTableFull { .. })
            ));
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
    WriteBatch::from_bytes(&[b"\0\0\0\0\0\0\0\0\x01\0\0\0\x0f", &key[..], &key[..]].concat())
        .unwrap()
}

fn empty_ranges(count: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    (0..count).for_each(|_| batch.append(&empty_range(4)).unwrap());
    batch
}

/// Bytes of all files of a journal.
fn journal_bytes(disk: &SimDisk) -> u64 {
    journals(disk)
        .values()
        .map(|bytes| bytes.len() as u64)
        .sum()
}

/// Batches that leave no entries, or few: the journal has at most a write buffer per table, a
/// queue, and the headers of its files.
#[test]
fn a_journal_seals_by_its_own_bytes() {
    let test = "set_seals::a_journal_seals_by_its_own_bytes";
    for (empty, puts_one_in) in [(1, 0), (300, 0), (300, 3)] {
        let _watchdog = Watchdog::new(test, 0);
        let options = || {
            SetOptions::builder()
                .table(tables())
                .max_write_buffer_number(3)
        };
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
            if let Err(Error::WriteStall {
                cause: StallCause::Tables,
                tables: 3,
                ..
            }) = written
            {
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
                assert!(
                    bytes <= room,
                    "{bytes} bytes in {files} files, {room} allowed"
                );
            }
        }
        assert!(subject.state().3 as usize > most * batch_len as usize / (64 << 10) - 3);
        // The numbers of lost batches are not used again.
        let last = subject.set.snapshot().sequence();
        let base = **subject.set.view().base();
        let disk = subject.disk.clone();
        drop(subject);
        subject = Subject::open(options(), disk, base);
        assert_eq!(subject.set.put("key", "value").unwrap(), last + 1);
    }
}

/// The journal's bytes are at the limit, one below it or one above it. Bytes that the journal does
/// not get do not count.
#[test]
fn as_many_bytes_as_the_write_buffer_seal() {
    for (bytes, seals) in [
        (WRITE_BUFFER - 1, 0),
        (WRITE_BUFFER, 1),
        (WRITE_BUFFER + 1, 1),
    ] {
        for durability in [Durability::Queued, Durability::Synced, Durability::None] {
            // Header, kind and two lengths take 19 bytes; a record with keys of one byte takes 5.
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
            let wanted = if durability == Durability::None {
                0
            } else {
                seals
            };
            assert_eq!(subject.state().3, wanted, "{bytes} bytes, {durability:?}");
            subject.set.put("key", "value").unwrap();
            assert_eq!(subject.state().3, u64::from(durability != Durability::None));
        }
    }
}

/// Scans that pass too many hidden entries of the active table make the set seal it.
mod scans {
    use paranoid_set::View;

    use std::sync::mpsc::channel;

    use super::*;

    /// A set with these triggers, on one move and on the mean.
    fn set(operation: u64, mean: u64) -> MemTableSet<()> {
        let options = SetOptions::builder()
            .memtable_op_scan_flush_trigger(operation)
            .memtable_avg_op_scan_flush_trigger(mean);
        MemTableSet::open(options.build().unwrap(), ()).unwrap()
    }

    fn is_sealed(set: &MemTableSet<()>) -> bool {
        set.begin_flush().unwrap().is_some()
    }

    /// Three deleted keys between two present ones.
    fn deletes(operation: u64, mean: u64) -> MemTableSet<()> {
        let set = set(operation, mean);
        for key in ["a", "z"] {
            set.put(key, b"v").unwrap();
        }
        for key in ["b0", "b1", "b2"] {
            set.delete(key).unwrap();
        }
        set
    }

    #[test]
    fn one_move_over_as_many_as_the_trigger_seals() {
        let _watchdog = Watchdog::new(
            "set_seals::scans::one_move_over_as_many_as_the_trigger_seals",
            0,
        );
        for (trigger, seals) in [(3, true), (4, false), (0, false)] {
            let set = deletes(trigger, 0);
            let mut cursor = set.view().cursor().unwrap();
            assert_eq!(cursor.first().unwrap().unwrap().user_key(), b"a");
            assert!(!is_sealed(&set), "nothing was passed");
            assert_eq!(cursor.next().unwrap().unwrap().user_key(), b"z");
            assert_eq!(is_sealed(&set), seals, "forward, trigger {trigger}");

            let set = deletes(trigger, 0);
            let mut cursor = set.view().cursor().unwrap();
            assert_eq!(cursor.last().unwrap().unwrap().user_key(), b"z");
            assert_eq!(cursor.prev().unwrap().unwrap().user_key(), b"a");
            assert_eq!(is_sealed(&set), seals, "back, trigger {trigger}");

            let set = deletes(trigger, 0);
            assert_eq!(
                set.view()
                    .cursor()
                    .unwrap()
                    .seek("b")
                    .unwrap()
                    .unwrap()
                    .user_key(),
                b"z"
            );
            assert_eq!(is_sealed(&set), seals, "a seek, trigger {trigger}");
        }
    }

    /// Whether a whole scan of `view` seals the table of a set with a trigger: forward and back.
    fn seals(trigger: u64, fill: impl Fn(&MemTableSet<()>) -> View<()>) -> (bool, bool) {
        let sealed = |is_forward| {
            let set = set(trigger, 0);
            let cursor = fill(&set).cursor().unwrap();
            let read = if is_forward {
                cursor.ascending().count()
            } else {
                cursor.descending().count()
            };
            assert!(read > 0);
            is_sealed(&set)
        };
        (sealed(true), sealed(false))
    }

    #[test]
    fn older_versions_and_newer_ones_than_the_view_count() {
        let _watchdog = Watchdog::new(
            "set_seals::scans::older_versions_and_newer_ones_than_the_view_count",
            0,
        );
        let filled = |set: &MemTableSet<()>, is_new: bool| {
            set.put("a", b"v").unwrap();
            let before = set.snapshot();
            for key in ["b", "c", "d", "d", "d", "d"] {
                set.put(key, b"v").unwrap();
            }
            if is_new {
                set.view_at(&before).unwrap()
            } else {
                set.view()
            }
        };
        // Three keys are too new, and each is passed by one seek. On the way back, the versions
        // older than the newest one of a key take one seek too.
        assert_eq!(seals(3, |set| filled(set, true)), (true, true));
        assert_eq!(seals(4, |set| filled(set, true)), (false, false));
        assert_eq!(seals(3, |set| filled(set, false)), (true, false));
        assert_eq!(seals(1, |set| filled(set, false)), (true, true));
    }

    /// One move passes keys that the view does not see, because all their versions are newer: both
    /// ways, between two keys that it sees.
    #[test]
    fn one_move_over_keys_newer_than_the_view_seals() {
        let _watchdog = Watchdog::new(
            "set_seals::scans::one_move_over_keys_newer_than_the_view_seals",
            0,
        );
        for (hidden, seals) in [(9, false), (10, true), (1000, true)] {
            for is_forward in [true, false] {
                let set = set(10, 0);
                set.put("a", b"v").unwrap();
                set.put("z", b"v").unwrap();
                let view = set.view();
                for number in 0..hidden {
                    set.put(format!("m{number:04}"), b"v").unwrap();
                }
                let mut cursor = view.cursor().unwrap();
                let (from, to) = if is_forward { ("a", "z") } else { ("z", "a") };
                cursor.seek(from).unwrap();
                assert!(!is_sealed(&set), "nothing was passed");
                let moved = if is_forward {
                    cursor.next()
                } else {
                    cursor.prev()
                };
                assert_eq!(moved.unwrap().unwrap().user_key(), to.as_bytes());
                assert_eq!(is_sealed(&set), seals, "{hidden} newer keys, from {from}");
            }
        }
    }

    #[test]
    fn the_mean_since_a_seek_counts_once_they_are_enough() {
        let _watchdog = Watchdog::new(
            "set_seals::scans::the_mean_since_a_seek_counts_once_they_are_enough",
            0,
        );
        for (mean, seals) in [(1, true), (2, false)] {
            let set = set(5, mean);
            for key in 0..8_u32 {
                set.put([b'k', 3 * key as u8], b"v").unwrap();
                set.delete([b'k', 3 * key as u8 + 1]).unwrap();
                set.delete([b'k', 3 * key as u8 + 2]).unwrap();
            }
            // Two hidden ones per move; the first move passes none.
            let (view, mut passed) = (set.view(), 0);
            let mut cursor = view.cursor().unwrap();
            for key in 0..8_u32 {
                assert!(cursor.seek([b'k', 3 * key as u8]).unwrap().is_some());
                passed += u32::from(cursor.next().unwrap().is_some());
            }
            assert!(!is_sealed(&set), "each seek begins anew");
            let read = view.cursor().unwrap().ascending().count();
            assert_eq!((read, passed), (8, 7));
            assert_eq!(is_sealed(&set), seals, "mean {mean}");
        }
    }

    #[test]
    fn a_range_tombstone_is_one_jump_and_no_stall_comes_of_a_scan() {
        let _watchdog = Watchdog::new(
            "set_seals::scans::a_range_tombstone_is_one_jump_and_no_stall_comes_of_a_scan",
            0,
        );
        let covered = set(2, 0);
        for key in ["a", "b1", "b2", "b3", "z"] {
            covered.put(key, b"v").unwrap();
        }
        covered.delete_range("b", "c").unwrap();
        assert_eq!(covered.view().cursor().unwrap().ascending().count(), 2);
        assert!(!is_sealed(&covered));

        let options = SetOptions::builder()
            .max_write_buffer_number(2)
            .memtable_op_scan_flush_trigger(1);
        let set = MemTableSet::open(options.build().unwrap(), ()).unwrap();
        set.put("a", b"v").unwrap();
        set.switch().unwrap();
        set.delete("b").unwrap();
        assert_eq!(set.view().cursor().unwrap().ascending().count(), 1);
        set.put("c", vec![7; 32 << 20]).unwrap();
        assert_eq!(set.stats().tables, 2, "there may be no third table");
    }

    #[test]
    fn a_flush_thread_seals_without_a_write() {
        let _watchdog = Watchdog::new("set_seals::scans::a_flush_thread_seals_without_a_write", 0);
        let (begun, is_flushed) = channel();
        let set = deletes(3, 0);
        let thread = set.start_flush_thread(move |mut job| {
            begun.send(job.tables()).unwrap();
            let mut items = job.items()?;
            while items.next()?.is_some() {}
            drop(items);
            job.install(|()| Ok(()))
        });
        assert_eq!(set.view().cursor().unwrap().ascending().count(), 2);
        assert_eq!(is_flushed.recv().unwrap(), 1);
        thread.unwrap().close().unwrap();
    }

    #[test]
    fn a_mean_without_a_trigger_above_it_is_refused() {
        for (operation, mean) in [(0, 1), (5, 5), (5, 6)] {
            let options = SetOptions::builder()
                .memtable_op_scan_flush_trigger(operation)
                .memtable_avg_op_scan_flush_trigger(mean);
            assert!(
                matches!(options.build(), Err(Error::InvalidArgument(_))),
                "{operation}, {mean}"
            );
        }
    }
}
