//! Turns: each round gives every table one slice of the same work, and what counts is the ratio inside a round.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use measure::record::Row;
use rustix::time::{ClockId, clock_gettime};

use crate::ballast::Ballast;
use crate::rivals::{Candidate, Table};
use crate::work::{Work, mix};

/// The tables of one fill, by candidate.
pub type Tables = Vec<Box<dyn Table>>;

/// Processor time of this thread: other processes do not count.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Time and hash of one slice: on this thread by its processor time, or one part per thread by the wall clock.
fn measure(table: &dyn Table, parts: &[Work<'_>]) -> Option<(Duration, u64)> {
    if let [work] = parts {
        let task = table.prepare(*work)?;
        let started = thread_time();
        let hash = std::hint::black_box(task());
        return Some((thread_time().saturating_sub(started), hash));
    }
    let ready = Barrier::new(parts.len());
    let spans: Vec<Option<(Instant, Instant, u64)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .map(|work| {
                let ready = &ready;
                scope.spawn(move || {
                    let task = table.prepare(*work);
                    ready.wait();
                    let started = Instant::now();
                    let hash = std::hint::black_box(task?());
                    Some((started, Instant::now(), hash))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that works")).collect()
    });
    let spans: Vec<_> = spans.into_iter().collect::<Option<_>>()?;
    let started = spans.iter().map(|(started, ..)| *started).min()?;
    let ended = spans.iter().map(|(_, ended, _)| *ended).max()?;
    let hash = spans.iter().fold(0u64, |hash, (.., part)| hash.wrapping_add(*part));
    Some((ended - started, hash))
}

/// Measures one row. Another candidate begins each round. `work` returns the parts of a round's slice: what is timed,
/// and what warms up before it.
pub fn row<'w>(
    name: &str,
    candidates: &[Candidate],
    tables: &Tables,
    rounds: &'w [Slice],
    takes_part: impl Fn(Candidate) -> bool,
    work: impl Fn(&'w Slice) -> Vec<Work<'w>>,
) -> Row {
    let mut nanoseconds: Vec<Option<Vec<f64>>> = vec![None; candidates.len()];
    let mut hash = 0;
    let fresh: usize = rounds.iter().map(Slice::fresh_bytes).sum();
    let mut ballast = Ballast::hold(fresh * candidates.len());
    for (round, slice) in rounds.iter().enumerate() {
        let parts = work(slice);
        let mut agreed: Option<(u64, Candidate)> = None;
        for turn in 0..candidates.len() {
            let at = (round + turn) % candidates.len();
            let candidate = candidates[at];
            if !takes_part(candidate) {
                continue;
            }
            ballast.release(slice.fresh_bytes());
            let Some((elapsed, read)) = measure(tables[at].as_ref(), &parts) else { continue };
            let per_operation = elapsed.as_secs_f64() * 1e9 / slice.operations.max(1) as f64;
            nanoseconds[at].get_or_insert_default().push(per_operation);
            let (first, by) = *agreed.get_or_insert((read, candidate));
            assert_eq!(read, first, "{name}, round {round}: {} and {} differ", candidate.name(), by.name());
        }
        hash = mix(hash ^ agreed.map_or(0, |(read, _)| read));
    }
    eprintln!("  {name}");
    Row { name: name.into(), nanoseconds, hash: format!("{hash:016x}"), ..Row::default() }
}

/// Inputs of one round, a part per thread.
#[derive(Debug, Default)]
pub struct Slice {
    /// Operations in all parts.
    pub operations: usize,
    pub entries: Vec<crate::work::Entries>,
    pub keys: Vec<crate::work::Keys>,
    pub ranges: Vec<crate::work::Ranges>,
}

impl Slice {
    /// About how much new memory a table needs for this slice.
    fn fresh_bytes(&self) -> usize {
        let bytes = |entries: &crate::work::Entries| {
            entries.keys.bytes.len() + entries.values.len() + 80 * entries.count()
        };
        self.entries.iter().map(bytes).sum()
    }
}
