//! Random operations against a sorted map: every policy, protection level, order and direction.
//!
//! `PARANOID_TEST_OPS` scales the number of operations, `PARANOID_TEST_SEED` repeats a run: the first case of a run is
//! drawn from the seed itself, so the replay line of a failure runs the failing case first.

use paranoid_memtable::{Bytewise, DuplicatePolicy, Entry, Error, MemTable, MemTableOptions, TableReader};

use crate::support::case::draw;
use crate::support::orders::{CaseBlind, Order, Reverse};
use crate::support::rng::{Rng, amount_or_few, seed_or};
use crate::support::run::run_or_report;
use crate::support::watchdog::{Watchdog, replay_line};

const OPS_A_CASE: u64 = if cfg!(miri) { 12 } else { 800 };

fn random<C: Order>(test: &str, ops: u64) {
    let test = format!("model::{test}");
    let mut seed = seed_or(std::process::id().into());
    println!("{test}: seed {seed:#x}, {ops} operations");
    let mut done = 0;
    while done < ops {
        let _watchdog = Watchdog::new(&test, seed);
        let case = draw(seed, OPS_A_CASE);
        run_or_report::<C>(&case, &replay_line(&test, seed));
        done += case.ops.len() as u64;
        seed = Rng::new(seed).next_u64();
    }
}

#[test]
fn random_operations() {
    random::<Bytewise>("random_operations", amount_or_few(1_000_000, 4_000, 1));
}

#[test]
fn random_operations_in_reverse_order() {
    random::<Reverse>("random_operations_in_reverse_order", amount_or_few(100_000, 1_200, 1));
}

#[test]
fn random_operations_where_different_bytes_are_equal() {
    random::<CaseBlind>(
        "random_operations_where_different_bytes_are_equal",
        amount_or_few(100_000, 1_200, 1),
    );
}

#[test]
fn the_newest_of_equals_is_shown_in_both_directions() {
    let options = MemTableOptions::builder().duplicates(DuplicatePolicy::Replace).seed(3).build().unwrap();
    let table = MemTable::new(options).unwrap();
    for revision in 0..5_u8 {
        for key in [b"a", b"b", b"c"] {
            table.put(7, key, &[revision]).unwrap();
        }
    }
    let check = |table: &TableReader| {
        let shown = |entry: Result<Entry<'_>, Error>| {
            let entry = entry.unwrap();
            (entry.user_key().to_vec(), entry.value().unwrap().to_vec())
        };
        let wanted: Vec<_> = [b"a", b"b", b"c"].map(|key| (key.to_vec(), vec![4])).into();
        let reversed: Vec<_> = wanted.iter().rev().cloned().collect();
        assert_eq!(table.range(..).map(shown).collect::<Vec<_>>(), wanted);
        assert_eq!(table.range(..).rev().map(shown).collect::<Vec<_>>(), reversed);
        assert_eq!(table.range_at(7, ..).rev().map(shown).collect::<Vec<_>>(), reversed);
        let mut cursor = table.cursor();
        assert_eq!(cursor.seek_for_prev(b"bb").unwrap().unwrap().value().unwrap(), [4]);
    };
    check(&table);
    check(&table.freeze().unwrap());
}

#[test]
fn range_estimates_err_by_a_fifth_at_most() {
    let test = "model::range_estimates_err_by_a_fifth_at_most";
    let seed = seed_or(20);
    let _watchdog = Watchdog::new(test, seed);
    const ENTRIES: u64 = if cfg!(miri) { 60 } else { 100_000 };
    const ASKED: usize = if cfg!(miri) { 20 } else { 1000 };
    let table = MemTable::new(MemTableOptions::builder().seed(seed).build().unwrap()).unwrap();
    let mut writer = table.writer();
    for n in 0..ENTRIES {
        let key = (n * 7_919 % ENTRIES).to_be_bytes();
        writer.put(n, &key, b"value").unwrap();
    }
    let mut rng = Rng::new(seed);
    let mut errors: Vec<f64> = (0..ASKED)
        .map(|_| {
            let (a, b) = (rng.below(ENTRIES), rng.below(ENTRIES));
            let (low, high) = (a.min(b), a.max(b) + 1);
            let (start, end) = (low.to_be_bytes(), high.to_be_bytes());
            let stats = table.approximate_range_stats(start.as_slice()..end.as_slice()).unwrap();
            let exact = (high - low) as f64;
            assert!(stats.data_bytes >= stats.entries * 12, "{stats:?}");
            (stats.entries as f64 - exact).abs() / exact
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    let median = errors[errors.len() / 2];
    println!("median error {:.1} %, largest {:.1} %", median * 100.0, errors[ASKED - 1] * 100.0);
    assert!(median <= 0.20, "median error {median}; replay: {}", replay_line(test, seed));
}
