//! Writers, readers and freezes at once, on entries that can be checked: every key has its writer,
//! its index and a hash, and every value follows from key and sequence number.
//!
//! ```text
//! cargo run --release --example stress -- [SECONDS] [SEED]
//! ```
//! `.ci/sanitizers` runs it under ThreadSanitizer. At the first error it ends and names the seed.
//! Otherwise it ends with one line of counts. Exit code 0: everything was right; 1: something was
//! not; 2: the counts cannot be written.

#![allow(
    clippy::cast_possible_truncation,
    reason = "writers are numbered from 0 to 3"
)]

use std::error::Error as StdError;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use paranoid_memtable::{DuplicatePolicy, Entry, Error, MemTable, MemTableOptions, TableReader};

#[path = "shared/arguments.rs"]
mod arguments;
#[path = "shared/output.rs"]
mod output;

use arguments::arguments;
use output::{complain, print, with_causes};

/// Runs writers, readers and freezes at once, on entries whose keys and values check each other.
/// Stops at the first error
#[derive(Debug, Parser)]
#[command(
    name = "stress",
    after_help = "Exit code: 0 everything was right; 1 something was not; 2 the counts cannot be written"
)]
struct Arguments {
    /// How long tables are filled and read, one after the other
    #[arg(default_value_t = 5)]
    seconds: u64,
    /// Seed of the first table
    #[arg(default_value_t = 1)]
    seed: u64,
}

const WRITERS: u64 = 4;
const READERS: u64 = 4;
/// Entries that a writer tries to put into one table.
const ENTRIES: u64 = 1_500;

type Outcome<T> = Result<T, Box<dyn StdError + Send + Sync>>;

/// A number that seems unrelated to its argument.
fn scramble(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key_of(writer: u64, n: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&scramble(writer << 32 ^ n).to_be_bytes());
    key[8..16].copy_from_slice(&writer.to_be_bytes());
    key[16..].copy_from_slice(&n.to_be_bytes());
    key
}

fn value_of(key: &[u8], sequence: u64) -> [u8; 16] {
    let hash = key
        .iter()
        .fold(sequence, |hash, byte| scramble(hash ^ u64::from(*byte)));
    let mut value = [0; 16];
    value[..8].copy_from_slice(&hash.to_le_bytes());
    value[8..].copy_from_slice(&(!hash).to_le_bytes());
    value
}

/// State that all threads of one table share.
struct Round {
    table: MemTable,
    /// Number of acknowledged entries of each writer.
    written: [AtomicU64; WRITERS as usize],
    writers_left: AtomicU64,
    seed: u64,
}

impl Round {
    fn new(seed: u64) -> Outcome<Arc<Round>> {
        let protection = [0, 1, 4, 8][(seed % 4) as usize];
        let options = MemTableOptions::builder()
            .protection_bytes(protection)
            .checksum_on_seek(protection > 0 && seed & 8 != 0)
            .order_checks(seed & 16 != 0)
            .duplicates(DuplicatePolicy::Replace)
            .write_buffer_size(64 << 10)
            .seed(seed)
            .build()?;
        let table = MemTable::new(options)?;
        table.put(0, b"hot", value_of(b"hot", 0))?;
        Ok(Arc::new(Round {
            table,
            written: Default::default(),
            writers_left: AtomicU64::new(WRITERS),
            seed,
        }))
    }

    fn progress(&self) -> [u64; WRITERS as usize] {
        std::array::from_fn(|w| self.written[w].load(Ordering::Acquire))
    }
}

/// Writes until all entries are written or the table is frozen. Now and then it replaces the entry
/// that all writers replace.
fn write(round: &Round, id: u64) -> Outcome<()> {
    let mut own = round.table.writer();
    for n in 0..ENTRIES {
        let (key, sequence) = (key_of(id, n), n * WRITERS + id + 1);
        let value = value_of(&key, sequence);
        let put = if id.is_multiple_of(2) {
            round.table.put(sequence, key, value)
        } else {
            own.put(sequence, key, value)
        };
        match put {
            Ok(_) => round.written[id as usize].store(n + 1, Ordering::Release),
            Err(Error::Frozen) => break,
            Err(other) => return Err(other.into()),
        }
        if n.is_multiple_of(16)
            && !matches!(
                round.table.put(0, b"hot", value_of(b"hot", 0)),
                Ok(_) | Err(Error::Frozen)
            )
        {
            return Err("a replacement failed".into());
        }
    }
    round.writers_left.fetch_sub(1, Ordering::AcqRel);
    Ok(())
}

fn check_entry(entry: &Entry<'_>) -> Outcome<Option<(u64, u64)>> {
    let key = entry.user_key();
    if entry.value()? != value_of(key, entry.sequence()) {
        return Err("a torn value".into());
    }
    if key == b"hot" {
        return Ok(None);
    }
    let word = |at: usize| {
        key.get(at..at + 8)
            .and_then(|word| word.try_into().ok())
            .map(u64::from_be_bytes)
    };
    match (word(8), word(16)) {
        (Some(writer), Some(n)) if key == key_of(writer, n) => Ok(Some((writer, n))),
        _ => Err("a torn key".into()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// Checks one scan: keys strictly ascend, and no entry is missing that was acknowledged before the
/// scan began. Returns the number of entries.
fn scan<'t>(
    entries: impl Iterator<Item = Result<Entry<'t>, Error>>,
    before: [u64; WRITERS as usize],
    way: Way,
) -> Outcome<u64> {
    let (mut last, mut seen, mut all) = (None::<Vec<u8>>, [0u64; WRITERS as usize], 0);
    for entry in entries {
        let entry = entry?;
        let key = entry.user_key().to_vec();
        if last.is_some_and(|last| {
            if way == Way::Forward {
                last >= key
            } else {
                last <= key
            }
        }) {
            return Err("entries out of order".into());
        }
        if let Some((writer, n)) = check_entry(&entry)? {
            seen[writer as usize] += u64::from(n < before[writer as usize]);
        }
        last = Some(key);
        all += 1;
    }
    if seen != before {
        Err(format!("lost entries: {seen:?} of {before:?}").into())
    } else {
        Ok(all)
    }
}

fn read(round: &Round, mut dice: u64) -> Outcome<u64> {
    let (table, mut reads): (&TableReader, u64) = (&round.table, 0);
    loop {
        let last_round = round.writers_left.load(Ordering::Acquire) == 0;
        for _ in 0..50 {
            dice = scramble(dice.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let writer = dice % WRITERS;
            let written = round.progress()[writer as usize];
            if written > 0 {
                let key = key_of(writer, (dice >> 8) % written);
                let Some(value) = table.get(key, u64::MAX)?.into_value() else {
                    return Err("a lost entry".into());
                };
                if value != value_of(&key, value.sequence()) {
                    return Err("a torn value".into());
                }
            }
            if table.get(b"hot", 0)?.value() != Some(&value_of(b"hot", 0)) {
                return Err("a replaced entry disappeared".into());
            }
            reads += 2;
        }
        let before = round.progress();
        reads += if dice & 1 == 0 {
            scan(table.range(..), before, Way::Forward)?
        } else {
            scan(table.range_at(.., u64::MAX).rev(), before, Way::Backward)?
        };
        if last_round {
            return Ok(reads);
        }
    }
}

/// Freezes at some point, often in the middle of the writes, and checks that the entries do not
/// change after that.
fn freeze(round: &Round) -> Outcome<u64> {
    let point = scramble(round.seed) % (2 * WRITERS * ENTRIES);
    while round.progress().iter().sum::<u64>() < point
        && round.writers_left.load(Ordering::Acquire) > 0
    {
        thread::yield_now();
    }
    let frozen = round.table.freeze()?;
    let (len, count) = (frozen.len() as u64, frozen.range(..).count() as u64);
    if len == count {
        Ok(len)
    } else {
        Err(format!("{len} entries counted, {count} found").into())
    }
}

fn run_round(seed: u64) -> Outcome<(u64, u64)> {
    let round = Round::new(seed)?;
    let start = |work: fn(&Round, u64) -> Outcome<u64>, id: u64| {
        let round = Arc::clone(&round);
        thread::spawn(move || work(&round, id))
    };
    let mut threads: Vec<_> = (0..WRITERS)
        .map(|id| start(|round, id| write(round, id).map(|()| 0), id))
        .collect();
    threads.push(start(|round, _| freeze(round).map(|_| 0), 0));
    threads.extend((0..READERS).map(|id| start(read, scramble(seed ^ id))));
    let mut reads = 0;
    for thread in threads {
        reads += thread.join().map_err(|_| "a thread panicked")??;
    }
    let written = round.progress();
    let found = scan(round.table.range(..), written, Way::Forward)?;
    if found != written.iter().sum::<u64>() + 1 || found != round.table.len() as u64 {
        return Err(format!("{found} entries found, {written:?} acknowledged").into());
    }
    Ok((found, reads))
}

fn main() -> ExitCode {
    sigpipe::reset();
    let Arguments { seconds, seed } = arguments();
    let begin = Instant::now();
    let (mut rounds, mut entries, mut reads) = (0u64, 0, 0);
    while rounds == 0 || begin.elapsed() < Duration::from_secs(seconds) {
        let seed = seed.wrapping_add(rounds);
        match run_round(seed) {
            Ok((written, read)) => {
                entries += written;
                reads += read;
            }
            Err(error) => {
                complain(format_args!(
                    "stress: seed {seed}: {}",
                    with_causes(&*error)
                ));
                return ExitCode::from(1);
            }
        }
        rounds += 1;
    }
    let printed = print(format_args!(
        "stress: {rounds} tables, {entries} entries, {reads} reads, nothing lost, torn or out of order\n"
    ));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("stress: {error}"));
            ExitCode::from(2)
        }
    }
}
