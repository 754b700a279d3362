//! A crew: threads that start together, each pinned to a processor, and the cost of their work.
//!
//! ```text
//!   spawn -> pin -> prepare -> [gate] -> clocks -> work -> clocks -> end
//! ```
//! Each run has new threads. A thread that waits at the gate yields, because a sleep there would
//! count as one of the work. Sleeps and processor time are those of the crew's threads between the
//! gate and their ends, so neither the program's other threads nor preparations take part.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use paranoid_memtable::sibling::thread_number;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::work::{Task, thread_time};

/// The numbers that this crate gives to the threads of a crew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Consecutive numbers.
    Consecutive,
    /// Multiples of eight. A choice by the number modulo a power of two up to eight sends all these
    /// threads to one place.
    EqualModulo8,
}

/// The work of one thread, which prepares it itself.
pub type Job<'a> = Box<dyn FnOnce() -> Task<'a> + Send + 'a>;

/// The cost of a crew's work.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Time from the first start to the last end.
    pub wall: Duration,
    /// Voluntary context switches.
    pub sleeps: u64,
    /// Processor time of all threads together.
    pub processor: Duration,
    /// The time of the slowest thread over that of the fastest one.
    pub spread: f64,
    /// The sum of the threads' hashes.
    pub hash: u64,
}

/// The cost of one thread's work.
struct Share {
    started: Instant,
    ended: Instant,
    sleeps: u64,
    processor: Duration,
    hash: u64,
}

/// The gate of a crew, and the number of threads at it. It opens with the last of them.
struct Gate {
    came: AtomicUsize,
    threads: usize,
}

/// A thread on its way to the gate. When this is dropped, the thread counts as being at the gate:
/// so no thread waits for one that panicked.
struct Arrival<'g>(&'g Gate);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.came.fetch_add(1, Ordering::AcqRel);
    }
}

/// The processors that this process may use.
pub fn processors() -> anyhow::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|processor| allowed.is_set(*processor))
        .collect())
}

/// Runs each job in a thread of its own, on the processors in turn.
///
/// # Panics
/// If a job panics.
pub fn run(jobs: Vec<Job<'_>>, processors: &[usize], numbers: Numbers) -> Took {
    let gate = Gate {
        came: AtomicUsize::new(0),
        threads: jobs.len(),
    };
    let (say, said) = mpsc::channel();
    let shares: Vec<Share> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (at, job) in jobs.into_iter().enumerate() {
            if numbers == Numbers::EqualModulo8 {
                // Each of these threads uses up a number.
                while scope.spawn(thread_number).join().expect("a number") % 8 != 7 {}
            }
            let (gate, say, processor) = (&gate, say.clone(), processors[at % processors.len()]);
            threads.push(scope.spawn(move || {
                let arrival = Arrival(gate);
                say.send(thread_number()).expect("the crew's starter");
                work(job, arrival, processor)
            }));
            let number = said.recv().expect("a thread that starts");
            assert!(numbers == Numbers::Consecutive || number % 8 == 0);
        }
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|share| share.expect("work")).collect()
    });
    Took::of(&shares)
}

fn work(job: Job<'_>, arrival: Arrival<'_>, processor: usize) -> Share {
    let mut mine = CpuSet::new();
    mine.set(processor);
    sched_setaffinity(None, &mine).expect("a processor of this process");
    let task = job();
    let sleeps = sleeps();
    let gate = arrival.0;
    drop(arrival);
    while gate.came.load(Ordering::Acquire) < gate.threads {
        yield_now();
    }
    let (started, used) = (Instant::now(), thread_time());
    let hash = black_box(task());
    let (processor, ended) = (thread_time().saturating_sub(used), Instant::now());
    let sleeps = self::sleeps() - sleeps;
    Share {
        started,
        ended,
        sleeps,
        processor,
        hash,
    }
}

/// Voluntary context switches of this thread since it began.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok())
        .expect("a kernel that counts switches")
}

impl Took {
    fn of(shares: &[Share]) -> Took {
        let started = shares.iter().map(|share| share.started).min();
        let ended = shares.iter().map(|share| share.ended).max();
        let times = shares
            .iter()
            .map(|share| (share.ended - share.started).as_secs_f64());
        let (fastest, slowest) = times.fold((f64::MAX, 0.0f64), |(fastest, slowest), time| {
            (fastest.min(time), slowest.max(time))
        });
        let hashes = shares.iter().map(|share| share.hash);
        Took {
            wall: started
                .zip(ended)
                .map_or(Duration::ZERO, |(started, ended)| ended - started),
            sleeps: shares.iter().map(|share| share.sleeps).sum(),
            processor: shares.iter().map(|share| share.processor).sum(),
            spread: slowest / fastest.max(1e-9),
            hash: hashes.fold(0, u64::wrapping_add),
        }
    }
}
