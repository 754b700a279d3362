//! Keys, values and the work that all tables do in turns.
//!
//! ```text
//!   entry i:  key   = big-endian 2 * i (8 bytes), then words made from i; absent keys have odd numbers
//!                     (shared: 24 equal bytes, then big-endian 2 * i; keys as in engines: `measure::keys`)
//!             value = words made from i; sequence number i + 1
//! ```
//! Inputs are back to back in flat arrays, made before the time begins, in the order of their use.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use measure::Row;
use measure::keys::{self, Generator};
use memmap2::{Advice, MmapMut};
use rustix::time::{ClockId, clock_gettime};

use crate::rivals::{Candidate, Table};

pub use measure::keys::{Keys, Presence, mix, shuffled};

/// Bytes that keys of [`KeyShape::Shared32`] have in common.
const SHARED: [u8; 24] = *b"the-same-long-key-prefix";

/// The form of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyShape {
    #[value(name = "8")]
    Bytes8,
    #[value(name = "16")]
    Bytes16,
    #[value(name = "64")]
    Bytes64,
    /// 32 bytes, 24 of them the same in all keys.
    #[value(name = "32-shared")]
    Shared32,
    /// 8 zeros and a number.
    #[value(name = "16-dense")]
    Dense16,
    /// 16 random bytes.
    #[value(name = "16-random")]
    Random16,
    /// Decimal numbers of 16 digits.
    #[value(name = "16-decimal")]
    Decimal16,
    /// `user` and ten decimal digits.
    #[value(name = "decimal")]
    Decimal14,
    /// Users of one tenant.
    #[value(name = "tenant")]
    Tenant,
    /// Users of ten tenants.
    #[value(name = "tenants")]
    Tenants,
    /// UUIDs of version 7 as text.
    #[value(name = "uuid7")]
    Uuid7,
    /// Times, and the sensor that measured.
    #[value(name = "time")]
    Time,
    /// Objects of a store, below one prefix of 46 bytes.
    #[value(name = "objects")]
    Objects,
    /// Paths of files: four levels, each of which many keys share.
    #[value(name = "paths")]
    Paths,
    /// Addresses of pages of many hosts.
    #[value(name = "urls")]
    Urls,
}

impl KeyShape {
    /// The shape that engines have too, if this is one.
    fn of_engines(self) -> Option<keys::Shape> {
        Some(match self {
            KeyShape::Random16 => keys::Shape::Random,
            KeyShape::Decimal16 => keys::Shape::Decimals,
            KeyShape::Tenant => keys::Shape::Tenant,
            KeyShape::Tenants => keys::Shape::Tenants,
            KeyShape::Uuid7 => keys::Shape::Uuid7,
            KeyShape::Time => keys::Shape::Time,
            KeyShape::Objects => keys::Shape::Objects,
            KeyShape::Paths => keys::Shape::Paths,
            _ => return None,
        })
    }

    /// Bytes of a key.
    pub fn len(self) -> usize {
        if let Some(shape) = self.of_engines() {
            return shape.key_len();
        }
        match self {
            KeyShape::Bytes8 => 8,
            KeyShape::Decimal14 => 14,
            KeyShape::Shared32 => 32,
            KeyShape::Bytes64 => 64,
            KeyShape::Urls => 92,
            _ => 16,
        }
    }

    /// Whether tables of this size can have such keys.
    pub fn fits(self, entries: u64) -> bool {
        self.of_engines().is_none() || entries <= Generator::ENTRIES_MAX
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Keys and sizes of the entries.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub key: KeyShape,
    /// Bytes of a value, at least 8.
    pub value_len: usize,
    /// Number of entries of the tables. Keys as in engines follow from it.
    pub entries: u64,
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Forward,
    Backward,
}

/// Entries to put.
#[derive(Debug, Default, Clone)]
pub struct Entries {
    pub keys: Keys,
    pub values: Vec<u8>,
    pub value_len: usize,
    pub sequences: Vec<u64>,
}

impl Entries {
    /// Sequence number, key and value of each entry.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8], &[u8])> {
        let values = self.values.chunks_exact(self.value_len);
        self.sequences
            .iter()
            .zip(self.keys.iter())
            .zip(values)
            .map(|((at, key), value)| (*at, key, value))
    }

    pub fn count(&self) -> usize {
        self.sequences.len()
    }
}

/// Range deletes. If there are keys, each one is followed by gets of an equal share of them.
#[derive(Debug, Default, Clone)]
pub struct Ranges {
    pub starts: Keys,
    pub ends: Keys,
    pub sequences: Vec<u64>,
    pub gets: Option<Keys>,
}

/// One slice of work.
#[derive(Debug, Clone, Copy)]
pub enum Work<'w> {
    Insert(&'w Entries),
    /// Puts in write batches of this many entries, which are made before the time begins.
    InsertBatches(&'w Entries, usize),
    Get(&'w Keys),
    MultiGet(&'w Keys, usize),
    /// For each key, a seek, and reads of that entry and this many after it.
    Seek(&'w Keys, usize),
    /// A scan of this many entries from the only key.
    Scan(&'w Keys, usize, Way),
    /// After each put, gets of an equal share of the keys.
    Mix(&'w Entries, &'w Keys),
    DeleteRanges(&'w Ranges),
    /// The kind's number in file footers; blocks of one length; number of times that all are
    /// hashed.
    Checksum(u8, &'w Keys, usize),
}

/// Work that is ready to be timed. It returns a hash of all that it read.
pub type Task<'a> = Box<dyn FnOnce() -> u64 + 'a>;

/// Folds both ends of a value, which a caller would read, into a hash.
#[inline]
pub fn fold(hash: u64, value: &[u8]) -> u64 {
    let word = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_le_bytes(*part));
    hash.rotate_left(7) ^ word(value.first_chunk()) ^ word(value.last_chunk()).rotate_left(32)
}

/// `count` random numbers below `entries`, which follow from a seed.
pub fn picks(entries: u64, count: usize, seed: u64) -> Vec<u64> {
    (0..count as u64)
        .map(|at| mix(seed.wrapping_mul(1 << 32) ^ at) % entries.max(1))
        .collect()
}

impl Shape {
    /// Keys of 16 bytes that begin with their numbers, for tables of any size.
    pub const fn plain(value_len: usize) -> Shape {
        Shape {
            key: KeyShape::Bytes16,
            value_len,
            entries: 0,
        }
    }

    fn push_key(self, keys: &mut Vec<u8>, entry: u64, presence: Presence) {
        let number = presence.number(entry);
        if let Some(shape) = self.key.of_engines() {
            return Generator::new(shape, self.entries).push(keys, number);
        }
        let bytes = number.to_be_bytes();
        match self.key {
            KeyShape::Shared32 => keys.extend([&SHARED[..], &bytes].concat()),
            KeyShape::Dense16 => keys.extend([[0; 8], bytes].concat()),
            KeyShape::Decimal14 => keys.extend(format!("user{number:010}").into_bytes()),
            KeyShape::Urls => {
                let (host, page) = (number / 200, number % 200);
                let host = format!("{:05x}{:09x}", host, mix(host) >> 28);
                let begin = format!("https://www.{host}.example.org/articles/2026/11/{page:03}-");
                keys.extend(
                    format!("{begin}{:016x}{:016x}", mix(number), mix(!number)).into_bytes(),
                );
            }
            _ => self.push_padded(keys, entry, bytes),
        }
    }

    /// Appends a number, then random bytes.
    fn push_padded(self, keys: &mut Vec<u8>, entry: u64, number: [u8; 8]) {
        let end = keys.len() + self.key.len();
        keys.extend(number);
        let mut salt = 0;
        while keys.len() < end {
            keys.extend(mix(entry.wrapping_add(salt << 40)).to_be_bytes());
            salt += 1;
        }
    }

    /// Makes the keys of these entries.
    pub fn keys(self, entries: &[u64], presence: Presence) -> Keys {
        let len = self.key.len();
        let mut keys = Keys {
            bytes: Vec::with_capacity(entries.len() * len),
            len,
        };
        entries
            .iter()
            .for_each(|entry| self.push_key(&mut keys.bytes, *entry, presence));
        keys
    }

    /// Makes these entries; their sequence numbers count up from `first_sequence`.
    pub fn entries(self, entries: &[u64], first_sequence: u64) -> Entries {
        let mut values = Vec::with_capacity(entries.len() * self.value_len);
        for entry in entries {
            let end = values.len() + self.value_len;
            let mut word = 0;
            while values.len() < end {
                let bytes = mix(entry << 8 | word).to_le_bytes();
                let take = (end - values.len()).min(bytes.len());
                values.extend(&bytes[..take]);
                word += 1;
            }
        }
        let sequences = (0..entries.len() as u64)
            .map(|at| first_sequence + at)
            .collect();
        Entries {
            keys: self.keys(entries, Presence::Hit),
            values,
            value_len: self.value_len,
            sequences,
        }
    }

    /// Makes range deletes that begin at these entries and cover `width` numbers.
    pub fn ranges(
        self,
        from: &[u64],
        width: u64,
        first_sequence: u64,
        gets: Option<&[u64]>,
    ) -> Ranges {
        let ends: Vec<u64> = from.iter().map(|entry| entry + width).collect();
        Ranges {
            starts: self.keys(from, Presence::Hit),
            ends: self.keys(&ends, Presence::Hit),
            sequences: (0..from.len() as u64)
                .map(|at| first_sequence + at)
                .collect(),
            gets: gets.map(|gets| self.keys(gets, Presence::Hit)),
        }
    }
}

// Turns: each round gives every table one slice of the same work, and only the ratio inside a round
// counts.

/// The tables of one fill, by candidate.
pub type Tables = Vec<Box<dyn Table>>;

/// Processor time of this thread, which does not include other processes.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Time and hash of one slice: by the processor time of this thread, or with one part per thread by
/// the clock.
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
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that works"))
            .collect()
    });
    let spans: Vec<_> = spans.into_iter().collect::<Option<_>>()?;
    let started = spans.iter().map(|(started, ..)| *started).min()?;
    let ended = spans.iter().map(|(_, ended, _)| *ended).max()?;
    let hash = spans
        .iter()
        .fold(0u64, |hash, (.., part)| hash.wrapping_add(*part));
    Some((ended - started, hash))
}

/// Measures one row. Each round begins with another candidate. `work` returns the parts of a
/// round's slice: the timed ones, and those that warm up before them.
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
            let Some((elapsed, read)) = measure(tables[at].as_ref(), &parts) else {
                continue;
            };
            let per_operation = elapsed.as_secs_f64() * 1e9 / slice.operations.max(1) as f64;
            nanoseconds[at].get_or_insert_default().push(per_operation);
            let (first, by) = *agreed.get_or_insert((read, candidate));
            assert_eq!(
                read,
                first,
                "{name}, round {round}: {} and {} differ",
                candidate.name(),
                by.name()
            );
        }
        hash = mix(hash ^ agreed.map_or(0, |(read, _)| read));
    }
    eprintln!("  {name}");
    Row {
        name: name.into(),
        nanoseconds,
        hash: format!("{hash:016x}"),
        ..Row::default()
    }
}

/// The inputs of one round, with a part per thread.
#[derive(Debug, Default)]
pub struct Slice {
    /// Number of operations in all parts.
    pub operations: usize,
    pub entries: Vec<crate::work::Entries>,
    pub keys: Vec<crate::work::Keys>,
    pub ranges: Vec<crate::work::Ranges>,
}

impl Slice {
    /// Approximate bytes of new memory that a table needs for this slice.
    fn fresh_bytes(&self) -> usize {
        let bytes = |entries: &crate::work::Entries| {
            entries.keys.bytes.len() + entries.values.len() + 80 * entries.count()
        };
        self.entries.iter().map(bytes).sum()
    }
}

// Memory that the machine has already backed, given back to the system just before a slice needs
// new memory.
//
// Under a hypervisor the first touch of a page that the guest has not used for a while waits for
// the host: 4.7 ms for 2 MiB as one huge page, 1.2 ms as small ones, but 0.2 ms for a huge page
// that the host still backs (measured where the first records were made). That cost is no property
// of a table, and only tables that use huge pages pay it.

const PIECE: usize = 2 << 20;
/// Most bytes to hold.
const MOST: usize = 3 << 30;

/// Memory that was touched and is not used.
#[derive(Debug, Default)]
pub struct Ballast(Vec<MmapMut>);

impl Ballast {
    /// Allocates and touches at least this many bytes, but no more than `MOST`.
    pub fn hold(bytes: usize) -> Ballast {
        let pieces = bytes.min(MOST).div_ceil(PIECE);
        Ballast((0..pieces).filter_map(|_| piece()).collect())
    }

    /// Gives back at least this many bytes, or all.
    pub fn release(&mut self, bytes: usize) {
        let kept = self.0.len().saturating_sub(bytes.div_ceil(PIECE));
        self.0.truncate(kept);
    }
}

fn piece() -> Option<MmapMut> {
    // The mapping is large enough for an aligned piece inside.
    let mut map = MmapMut::map_anon(2 * PIECE).ok()?;
    #[cfg(target_os = "linux")]
    let _ = map.advise(Advice::HugePage);
    let skip = map.as_ptr().align_offset(PIECE);
    map.get_mut(skip..skip + PIECE)?
        .iter_mut()
        .step_by(4096)
        .for_each(|byte| *byte = 1);
    Some(map)
}
