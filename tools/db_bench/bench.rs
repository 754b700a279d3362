//! Runs one benchmark: starts its threads, and adds up their times and counts.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::failure::Failure;
use crate::random::Twister;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::tables::{Db, Session};

/// What a benchmark's threads share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) db: &'a Db,
    pub(crate) pool: &'a [u8],
    pub(crate) bar: &'a ProgressBar,
    /// Threads of this benchmark that are done.
    done: AtomicUsize,
    threads: usize,
    /// Whether one of them failed.
    failed: AtomicBool,
    /// Range deletes written.
    pub(crate) range_deletes: AtomicU64,
}

/// One thread of a benchmark.
#[derive(Debug)]
pub(crate) struct Thread<'a> {
    pub(crate) shared: &'a Shared<'a>,
    /// Its place among the threads.
    pub(crate) number: usize,
    pub(crate) random: Twister,
    pub(crate) session: Session<'a>,
    pub(crate) stats: Stats,
}

impl Thread<'_> {
    #[inline]
    pub(crate) fn finished(&mut self, operations: u64) {
        self.stats.finished(operations, self.shared.bar);
    }

    /// Whether every other thread is done.
    pub(crate) fn others_done(&self) -> bool {
        // ORDERING: Relaxed: advice to stop.
        self.shared.done.load(Ordering::Relaxed) + 1 >= self.shared.threads
    }

    /// Whether another thread failed, so that the work of this one is in vain.
    pub(crate) fn in_vain(&self) -> bool {
        // ORDERING: Relaxed: advice to stop.
        self.shared.failed.load(Ordering::Relaxed)
    }
}

/// How long a thread works: a number of operations, or seconds, which are looked at every 1000 operations.
#[derive(Debug)]
pub(crate) struct Until {
    end: Option<Instant>,
    most: u64,
    done: u64,
}

const LOOK_EACH: u64 = 1000;

impl Until {
    pub(crate) fn new(seconds: u64, most: u64) -> Until {
        let end = (seconds > 0).then(|| Instant::now() + Duration::from_secs(seconds));
        Until { end, most, done: 0 }
    }

    /// Counts operations that are about to be done. Returns whether they are still to be done.
    pub(crate) fn more(&mut self, operations: u64) -> bool {
        let before = self.done;
        self.done += operations;
        match self.end {
            None => before < self.most,
            Some(end) => before / LOOK_EACH == self.done / LOOK_EACH || Instant::now() < end,
        }
    }
}

/// Which threads are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    All,
    /// The last one writes beside the others, and is left out.
    AllButLast,
    /// None: the benchmark prints text and no result line.
    Nothing,
}

/// The work of a benchmark's threads, and the name of one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) run: fn(&mut Thread<'_>) -> Result<(), Failure>,
    pub(crate) operation: &'static str,
    pub(crate) measured: Measured,
    /// Whether one thread does all of it.
    pub(crate) single: bool,
    /// Operations that one thread will do, for the bar.
    pub(crate) expected: u64,
}

/// Runs a benchmark once. `threads_before` is the number of threads that this command ran before: seeds go on from it.
pub(crate) fn run(
    settings: &Settings,
    db: &Db,
    pool: &[u8],
    work: &Work,
    threads_before: &mut u64,
) -> Result<Stats, Failure> {
    let measured = if work.single { 1 } else { settings.threads };
    let threads = measured + usize::from(work.measured == Measured::AllButLast);
    let bar = crate::progress(work.expected.saturating_mul(measured as u64));
    let shared = Shared {
        settings,
        db,
        pool,
        bar: &bar,
        done: AtomicUsize::new(0),
        threads,
        failed: AtomicBool::new(false),
        range_deletes: AtomicU64::new(0),
    };
    let ready = Barrier::new(threads);
    let first_seed = settings.seed + *threads_before + 1;
    *threads_before += threads as u64;
    let results: Vec<Result<Stats, Failure>> = std::thread::scope(|scope| {
        let start = |number: usize| {
            let (shared, ready) = (&shared, &ready);
            scope.spawn(move || one(shared, ready, work, number, first_seed + number as u64))
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        let panicked = |_| Err(Failure::Differs("a thread panicked".into()));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    bar.finish_and_clear();
    let mut all: Option<Stats> = None;
    for (number, stats) in results.into_iter().enumerate() {
        let stats = stats?;
        match &mut all {
            _ if number >= measured => {}
            None => all = Some(stats),
            Some(all) => all.merge(stats),
        }
    }
    // ORDERING: Relaxed: the threads are joined.
    let range_deletes = shared.range_deletes.load(Ordering::Relaxed);
    if range_deletes > 0 {
        println!("Number of range deletions: {range_deletes}");
    }
    all.ok_or_else(|| Failure::Cannot("a benchmark without threads".into()))
}

fn one(
    shared: &Shared<'_>,
    ready: &Barrier,
    work: &Work,
    number: usize,
    seed: u64,
) -> Result<Stats, Failure> {
    let timed = shared.settings.timed.then_some(work.operation);
    let random = Twister::new(seed);
    let mut thread =
        Thread { shared, number, random, session: shared.db.session(), stats: Stats::start(timed) };
    ready.wait();
    thread.stats = Stats::start(timed);
    let result = (work.run)(&mut thread);
    thread.stats.stop();
    // ORDERING: Relaxed: advice for the others.
    shared.failed.fetch_or(result.is_err(), Ordering::Relaxed);
    // ORDERING: Relaxed: advice for the others.
    shared.done.fetch_add(1, Ordering::Relaxed);
    result.map(|()| thread.stats)
}
