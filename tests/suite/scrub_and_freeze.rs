//! A scrub during which the table is frozen reports nothing: it counted fewer entries than were sealed meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

#[cfg(feature = "fault-injection")]
use paranoid_memtable::fault::{FaultInjector, Region};
use paranoid_memtable::repair::ScrubReport;
use paranoid_memtable::{MemTable, MemTableOptions};

use crate::support::rng::{Rng, amount, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

fn table(seed: u64) -> MemTable {
    let options = MemTableOptions::builder().write_buffer_size(256 << 10).seed(seed);
    MemTable::new(options.build().unwrap()).unwrap()
}

fn nothing_found(report: &ScrubReport) {
    assert!(report.findings.is_empty(), "an undamaged table: {:?}", report.findings);
}

/// The scrub's own callback writes entries before the place where the scrub is, and freezes the table.
#[test]
fn a_table_that_is_frozen_under_a_scrub_is_undamaged() {
    // 1024 entries lie between two calls of the callback.
    for entries in [3, 1100, 5000] {
        for freeze_at_call in [1, 2, 4] {
            let table = table(7);
            let mut writer = table.writer();
            for n in 0..entries {
                writer.put(n, &(n << 1 | 1).to_be_bytes(), b"value").unwrap();
            }
            table.delete_range(9, b"x", b"y").unwrap();
            let mut calls = 0;
            let report = table.scrub(|_| {
                calls += 1;
                if calls == freeze_at_call {
                    table.put(1, &0_u64.to_be_bytes(), b"where the scrub has been").unwrap();
                    table.delete_range(11, b"a", b"b").unwrap();
                    table.freeze().unwrap();
                }
            });
            nothing_found(&report);
            let whole = table.freeze().unwrap().scrub(|_| ());
            nothing_found(&whole);
            assert_eq!(whole.entries, table.len() as u64, "a scrub that begins later meets every entry");
        }
    }
}

/// One scrub after the other while threads write and one of them freezes.
#[test]
fn scrubs_beside_writers_and_a_freeze() {
    let test = "scrub_and_freeze::scrubs_beside_writers_and_a_freeze";
    let mut seed = seed_or(u64::from(std::process::id()) ^ 0x7363_7275);
    println!("{}", replay_line(test, seed));
    let (rounds, entries) = (amount(60, 12), amount(4_000, 1_500));
    for _ in 0..rounds {
        let _watchdog = Watchdog::new(test, seed);
        one_round(seed, entries);
        seed = scramble(seed);
    }
}

fn one_round(seed: u64, entries: u64) {
    let (table, over) = (&table(seed), &AtomicBool::new(false));
    scope(|threads| {
        for id in 0..2 {
            threads.spawn(move || write_until_frozen(table, Rng::new(seed ^ id), id));
        }
        threads.spawn(move || {
            while !over.load(Ordering::Acquire) {
                nothing_found(&table.scrub(|_| ()));
            }
            let last = table.scrub(|_| ());
            nothing_found(&last);
            assert_eq!(last.entries, table.len() as u64);
        });
        threads.spawn(move || {
            while (table.len() as u64) < scramble(seed) % entries {
                std::thread::yield_now();
            }
            table.freeze().unwrap();
            over.store(true, Ordering::Release);
        });
    });
}

fn write_until_frozen(table: &MemTable, mut rng: Rng, id: u64) {
    for n in 0.. {
        let (sequence, key) = (n * 2 + id, rng.next_u64().to_be_bytes());
        let written = match n % 50 {
            49 => table.delete_range(sequence, &key, &[0xff; 9]),
            _ => table.put(sequence, &key, b"value"),
        };
        if written.is_err() {
            return;
        }
    }
}

/// Every word of the tombstone index that is not zero, padding and records to come included: a flipped bit changes no answer,
/// and a scrub reports it.
#[cfg(feature = "fault-injection")]
#[test]
fn a_scrub_reports_every_flip_in_the_tombstone_index() {
    let _watchdog = Watchdog::new("scrub_and_freeze::a_scrub_reports_every_flip_in_the_tombstone_index", 0);
    for (ranges, is_frozen) in [(1_u64, false), (5, false), (40, false), (40, true), (75, true)] {
        let table = table(7);
        for number in 0..ranges {
            let (start, end) = (number * 7 % 50, number * 7 % 50 + 1 + number % 9);
            let key = |number: u64| number.reverse_bits().to_le_bytes();
            let (start, end) = (key(start << 56).min(key(end << 56)), key(start << 56).max(key(end << 56)));
            table.delete_range(number + 1, &start, &end).unwrap();
        }
        table.maintain();
        if is_frozen {
            table.freeze().unwrap();
        }
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let step = if cfg!(debug_assertions) { 61 } else { 5 };
        for piece in 0..injector.pieces().len() {
            if injector.pieces()[piece].region != Region::TombstoneIndex {
                continue;
            }
            let bytes = injector.bytes(piece);
            let words = bytes.chunks(8).enumerate().filter(|(_, word)| **word != [0; 8]);
            for bit in words
                .map(|(word, _)| 64 * word)
                .flat_map(|first| (first + piece % step..first + 64).step_by(step))
            {
                injector.flip(piece, bit);
                let found = table.scrub(|_| ()).findings;
                assert!(!found.is_empty(), "{ranges} ranges, frozen: {is_frozen}, piece {piece}, bit {bit}");
                injector.undo();
            }
        }
        nothing_found(&table.scrub(|_| ()));
    }
}
