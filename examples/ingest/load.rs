//! Writers put every path, while readers look up what is in the table already.
//!
//! ```text
//!   paths  [ 0 1 2 3 | 4 5 6 7 | ... ]    writers take blocks; path i gets sequence number i + 1
//!   receipts[i]                           set once the put of path i has returned: from then on every reader sees it
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use paranoid_memtable::{Lookup, MemTable};
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::Failure;
use crate::figures::{histogram, record};
use crate::source::{Source, key};

/// Paths that a writer takes at once.
const BLOCK: usize = 64;

/// The length and hash of the value that was put for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// XXH3 of the value.
    pub(crate) hash: u64,
    /// Bytes of the value.
    pub(crate) len: usize,
}

impl Receipt {
    pub(crate) fn of(value: &[u8]) -> Receipt {
        Receipt {
            hash: xxh3_64(value),
            len: value.len(),
        }
    }
}

/// The work of the writers and readers: the paths to put, and the values that were put.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub(crate) source: &'a Source,
    pub(crate) table: &'a MemTable,
    pub(crate) paths: &'a [PathBuf],
    pub(crate) receipts: Vec<OnceLock<Receipt>>,
    /// Paths that could not be read, by name and reason.
    pub(crate) warnings: Mutex<Vec<String>>,
    next: AtomicUsize,
    written: AtomicBool,
}

/// Counts and times of all threads.
#[derive(Debug)]
pub(crate) struct Work {
    /// From the first to the last put, files read included.
    pub(crate) elapsed: Duration,
    /// The time inside each `put`, in nanoseconds.
    pub(crate) puts: Histogram<u64>,
    /// Gets that the readers checked.
    pub(crate) gets: u64,
    /// Entries that the readers' cursors passed.
    pub(crate) steps: u64,
}

impl Work {
    /// The sum of the times inside each `put`, to three digits.
    pub(crate) fn inside_puts(&self) -> Duration {
        Duration::from_secs_f64(self.puts.mean() * self.puts.len() as f64 / 1e9)
    }
}

/// The sequence number of a path.
pub(crate) fn sequence(index: usize) -> u64 {
    index as u64 + 1
}

impl<'a> Load<'a> {
    pub(crate) fn new(source: &'a Source, table: &'a MemTable, paths: &'a [PathBuf]) -> Self {
        Load {
            source,
            table,
            paths,
            receipts: paths.iter().map(|_| OnceLock::new()).collect(),
            warnings: Mutex::default(),
            next: AtomicUsize::new(0),
            written: AtomicBool::new(false),
        }
    }

    /// Paths that were put, by index.
    pub(crate) fn put(&self) -> impl Iterator<Item = (usize, Receipt)> + '_ {
        self.receipts
            .iter()
            .enumerate()
            .filter_map(|(index, cell)| cell.get().map(|receipt| (index, *receipt)))
    }

    /// Runs the writers, and the readers for as long as the writers run.
    pub(crate) fn run(
        &self,
        writers: usize,
        readers: usize,
        bar: &ProgressBar,
    ) -> Result<Work, Failure> {
        let started = Instant::now();
        thread::scope(|scope| {
            let reading: Vec<_> = (0..readers)
                .map(|reader| scope.spawn(move || self.read(reader as u64 + 1)))
                .collect();
            let writing: Vec<_> = (0..writers)
                .map(|_| scope.spawn(|| self.write(bar)))
                .collect();
            let written: Vec<_> = writing
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect();
            let elapsed = started.elapsed();
            // ORDERING: Release pairs with the Acquire in `read`; the receipts have an order of
            // their own.
            self.written.store(true, Ordering::Release);
            let mut work = Work {
                elapsed,
                puts: histogram(),
                gets: 0,
                steps: 0,
            };
            for puts in written {
                // All histograms have one shape, so adding cannot fail.
                let _ = work.puts.add(puts.map_err(|_| panicked("a writer"))??);
            }
            for reader in reading {
                let (gets, steps) = reader.join().map_err(|_| panicked("a reader"))??;
                work.gets += gets;
                work.steps += steps;
            }
            Ok(work)
        })
    }

    fn write(&self, bar: &ProgressBar) -> Result<Histogram<u64>, Failure> {
        let mut writer = self.table.writer();
        let mut value = Vec::new();
        let mut puts = histogram();
        loop {
            // ORDERING: Relaxed: the counter only numbers blocks; the paths were written before the
            // threads began.
            let from = self.next.fetch_add(BLOCK, Ordering::Relaxed);
            if from >= self.paths.len() {
                return Ok(puts);
            }
            let until = self.paths.len().min(from + BLOCK);
            for index in from..until {
                let path = &self.paths[index];
                if let Err(error) = self.source.describe(path, &mut value) {
                    self.warn(format!(
                        "skipped {}: {error}",
                        self.source.base.join(path).display()
                    ));
                    continue;
                }
                let receipt = Receipt::of(&value);
                let started = Instant::now();
                let put = writer.put(sequence(index), key(path), &value);
                record(&mut puts, started);
                put.map_err(|error| Failure::of_table(format!("put {}", path.display()), &error))?;
                let _ = self.receipts[index].set(receipt);
            }
            bar.inc((until - from) as u64);
        }
    }

    fn warn(&self, text: String) {
        self.warnings
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(text);
    }

    /// Random gets and short scans until the writers are done: (gets, steps).
    fn read(&self, seed: u64) -> Result<(u64, u64), Failure> {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (mut gets, mut steps) = (0, 0);
        loop {
            for _ in 0..256 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let index = usize::try_from(random % self.paths.len() as u64).unwrap_or(0);
                self.check_get(index)?;
                gets += 1;
            }
            let index = usize::try_from(random % self.paths.len() as u64).unwrap_or(0);
            steps += self.check_scan(index)?;
            // ORDERING: Acquire pairs with the Release in `run`.
            if self.written.load(Ordering::Acquire) {
                return Ok((gets, steps));
            }
        }
    }

    /// Checks a get: a path whose put has returned must be found with its value; any other may be
    /// found or not.
    fn check_get(&self, index: usize) -> Result<(), Failure> {
        let path = &self.paths[index];
        let caller_digest = self.receipts[index].get();
        let lookup = self.table.get(key(path), u64::MAX).map_err(|error| {
            Failure::of_table(format!("get {} while writing", path.display()), &error)
        })?;
        match (lookup, caller_digest) {
            (Lookup::Value(value), caller_digest)
                if value.sequence() == sequence(index)
                    && caller_digest.is_none_or(|receipt| *receipt == Receipt::of(&value)) =>
            {
                Ok(())
            }
            (Lookup::NotFound, None) => Ok(()),
            (other, _) => Err(Failure::Differs(format!(
                "a reader asked for {} while writers ran and got {other:?}",
                path.display()
            ))),
        }
    }

    /// Checks that up to 32 entries after a path ascend.
    fn check_scan(&self, index: usize) -> Result<u64, Failure> {
        let failed =
            |error: paranoid_memtable::Error| Failure::of_table("scan while writing", &error);
        let mut cursor = self.table.cursor();
        let mut last: Option<Vec<u8>> = None;
        let mut steps = 0;
        let mut moved = cursor.seek(key(&self.paths[index]));
        while let Some(entry) = moved.map_err(failed)?.filter(|_| steps < 32) {
            if last.as_deref().is_some_and(|last| last >= entry.user_key()) {
                let name = String::from_utf8_lossy(entry.user_key()).into_owned();
                return Err(Failure::Differs(format!(
                    "out of order while writers ran: {name}"
                )));
            }
            last = Some(entry.user_key().to_vec());
            steps += 1;
            moved = cursor.next();
        }
        Ok(steps)
    }
}

fn panicked(who: &str) -> Failure {
    Failure::Differs(format!("{who} panicked"))
}
