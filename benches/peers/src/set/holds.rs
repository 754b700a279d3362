//! How long the commit mutex of a set is held: each hold timed by itself, by its thread's own processor time.
//!
//! The library times holds only when it is built with `--cfg holds`, because two readings of the clock cost more than
//! most holds.

use measure::record::Row;

#[cfg(not(holds))]
pub fn rows(_: u64, _: usize) -> anyhow::Result<Vec<Row>> {
    Ok(Vec::new())
}

/// Quantiles of all holds of a fill, a sample per fill; tables are switched and flushed meanwhile.
#[cfg(holds)]
pub fn rows(entries: u64, rounds: usize) -> anyhow::Result<Vec<Row>> {
    use super::candidates::{ALL, Candidate, Kind};
    use super::{Order, SHAPE, numbers};
    let candidate = Candidate { kind: Kind::Set, protection: 8, threads: 1 };
    let mut rows = Vec::new();
    for (name, order) in [("in order", Order::Ascending), ("at random", Order::Random)] {
        let mut samples = vec![Vec::new(); QUANTILES.len()];
        for _ in 0..rounds {
            let entries = SHAPE.entries(&numbers(entries, order), 1);
            let mut holds = fill(&candidate.batches(&entries, 1))?;
            holds.sort_unstable();
            for (samples, (_, share)) in samples.iter_mut().zip(QUANTILES) {
                samples.push(holds[(holds.len() - 1) * share / 100_000] as f64);
            }
        }
        for (samples, (quantile, _)) in samples.into_iter().zip(QUANTILES) {
            let mut row =
                Row { name: format!("hold of the commit mutex, put {name}, {quantile}"), ..Row::default() };
            row.nanoseconds =
                ALL.iter().map(|known| (*known == candidate).then(|| samples.clone())).collect();
            rows.push(row);
        }
        eprintln!("  holds {name}");
    }
    Ok(rows)
}

/// The quantiles, in thousandths of a percent.
#[cfg(holds)]
const QUANTILES: [(&str, usize); 4] =
    [("p50", 50_000), ("p99.9", 99_900), ("p99.99", 99_990), ("longest", 100_000)];

/// Nanoseconds of every hold.
#[cfg(holds)]
fn fill(batches: &[paranoid_memtable::WriteBatch]) -> anyhow::Result<Vec<u64>> {
    use crate::tails::flush_away;
    use crate::turns::thread_time;
    use paranoid_memtable::MemTableOptions;
    use paranoid_memtable::set::{MemTableSet, SetOptions, time_holds};
    // Some five switches per fill.
    let table = MemTableOptions::builder().write_buffer_size(8 << 20).build()?;
    let set = MemTableSet::open(SetOptions::builder().table(table).max_write_buffer_number(64).build()?, ())?;
    let flusher = set.start_flush_thread(flush_away)?;
    let clock = || u64::try_from(thread_time().as_nanos()).unwrap_or(u64::MAX);
    let mut empty: Vec<u64> = (0..10_001).map(|_| clock()).map(|from| clock() - from).collect();
    empty.sort_unstable();
    time_holds(clock, batches.len() + 1_000);
    for batch in batches {
        set.write(batch)?;
    }
    let holds = time_holds(clock, 0);
    flusher.close()?;
    Ok(holds.into_iter().map(|hold| hold.saturating_sub(empty[empty.len() / 2])).collect())
}
