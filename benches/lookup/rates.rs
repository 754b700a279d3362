//! Filters far below the load that they were made for: what they let pass, against theory, and what a
//! get of an absent key costs there.
//!
//! The table is made for 100 000 entries (20 bits of filter each) and holds 10, 100, .. of them.
//! Rates are measured on a table with counters, times on tables that do not count.

use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::{MemTable, MemTableOptionsBuilder};

use crate::{Asked, SLICE, Work, buffer, fill_in_part, filter_share, gets, gets_in, plain, theory, turns};

/// Entries that the table is made for.
const ENTRIES: u64 = 100_000;
/// Entries that it holds.
const SIZES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Absent keys that a rate is measured with.
const ASKED: u64 = 200_000;
/// Gets of a turn: few, so that not every turn is interrupted.
const TURN: u64 = 500;
/// Keys of the bench differ in their first 8 bytes.
const PREFIX: usize = 8;

/// What may answer that a key is absent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accelerator {
    List,
    KeyFilter,
    PrefixFilter,
}

impl Accelerator {
    const ALL: [Accelerator; 3] = [Accelerator::List, Accelerator::KeyFilter, Accelerator::PrefixFilter];

    fn name(self) -> &'static str {
        match self {
            Accelerator::List => "list",
            Accelerator::KeyFilter => "whole-key filter",
            Accelerator::PrefixFilter => "prefix filter",
        }
    }

    fn builder(self) -> MemTableOptionsBuilder {
        let builder = plain(ENTRIES, 8);
        match self {
            Accelerator::List => builder,
            Accelerator::KeyFilter => builder.whole_key_filter(filter_share(ENTRIES)),
            Accelerator::PrefixFilter => {
                builder.prefix_filter(FixedPrefix::new(PREFIX), filter_share(ENTRIES))
            }
        }
    }

    /// The share of absent keys that passes in theory.
    #[expect(clippy::cast_possible_truncation, reason = "a share of the write buffer")]
    fn theory(self, keys: u64) -> f64 {
        let lines = |share: f64| theory::lines((buffer(ENTRIES) as f64 * share) as u64) as f64;
        match self {
            Accelerator::List => 1.0,
            Accelerator::KeyFilter | Accelerator::PrefixFilter => {
                theory::filter_rate(keys as f64, lines(filter_share(ENTRIES)))
            }
        }
    }
}

/// The share of absent keys that reached the list.
fn passed(table: &MemTable) -> f64 {
    let sum: u64 = (0..ASKED / SLICE).map(|round| gets(table, Asked::Absent, ENTRIES, round * SLICE)).sum();
    assert_eq!(sum, 0, "absent keys only");
    let stats = table.stats();
    assert_eq!(
        stats.gets - stats.filter_negatives,
        stats.list_searches,
        "the list is asked by the others, and only by them"
    );
    stats.list_searches as f64 / stats.gets as f64
}

/// The share of seeks for absent prefixes that the prefix filter does not answer.
fn seeks_passed(table: &MemTable) -> f64 {
    let before = table.stats().filter_negatives;
    let asked = 20_000;
    for n in 0..asked {
        let mut cursor = table.cursor().with_prefix(&Asked::Absent.key(n, ENTRIES)[..PREFIX]);
        assert!(cursor.first().is_ok() && !cursor.is_valid());
    }
    1.0 - (table.stats().filter_negatives - before) as f64 / asked as f64
}

/// Prints all sizes; a quick run takes the first alone.
pub(crate) fn print(sizes: usize) {
    println!("absent keys, a table for {ENTRIES} entries, protection 8");
    for keys in SIZES.into_iter().take(sizes) {
        println!("  {keys} keys, % of absent keys that reach the list: measured (in theory)");
        for accelerator in
            Accelerator::ALL.into_iter().filter(|accelerator| *accelerator != Accelerator::List)
        {
            let table = fill_in_part(accelerator.builder().statistics(true), ENTRIES, keys);
            let rate = passed(&table) * 100.0;
            println!("    {:34} {rate:8.4} ({:.4})", accelerator.name(), accelerator.theory(keys) * 100.0);
            if accelerator == Accelerator::PrefixFilter {
                let rate = seeks_passed(&table) * 100.0;
                println!(
                    "    {:34} {rate:8.4} ({:.4})",
                    "prefix filter, seeks",
                    accelerator.theory(keys) * 100.0
                );
            }
        }
        let tables: Vec<MemTable> = Accelerator::ALL
            .iter()
            .map(|accelerator| fill_in_part(accelerator.builder(), ENTRIES, keys))
            .collect();
        let works: Vec<Work<'_>> = Accelerator::ALL
            .iter()
            .zip(&tables)
            .map(|(accelerator, table)| -> Work<'_> {
                (
                    accelerator.name(),
                    Box::new(move |at| gets_in(table, Asked::Absent, ENTRIES, at..at + TURN)),
                )
            })
            .collect();
        turns(&format!("  {keys} keys, get of an absent key"), TURN, &works);
    }
}
