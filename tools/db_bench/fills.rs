//! The benchmarks that write, with their keys, random numbers and values.

use std::sync::atomic::Ordering;

use paranoid_memtable::{Error, WriteBatch};

use crate::bench::{Thread, Until};
use crate::failure::Failure;
use crate::settings::RangeForm;
use crate::tables::Op;

/// The parameters in which fills differ.
#[derive(Debug, Clone, Copy)]
struct Fill {
    order: Order,
    /// Entries of a batch. `None`: the number from the command line.
    batch_size: Option<usize>,
    value_size: Option<usize>,
    /// The usual number of entries is divided by this.
    fraction: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Random,
    Unique,
}

const PLAIN: Fill = Fill {
    order: Order::Ascending,
    batch_size: None,
    value_size: None,
    fraction: 1,
};

pub(crate) fn fill_seq(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(thread, PLAIN)
}

pub(crate) fn fill_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(
        thread,
        Fill {
            order: Order::Random,
            ..PLAIN
        },
    )
}

pub(crate) fn fill_unique_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(
        thread,
        Fill {
            order: Order::Unique,
            ..PLAIN
        },
    )
}

pub(crate) fn fill_batch(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(
        thread,
        Fill {
            batch_size: Some(1000),
            ..PLAIN
        },
    )
}

pub(crate) fn fill_sync(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(
        thread,
        Fill {
            order: Order::Random,
            fraction: 1000,
            ..PLAIN
        },
    )
}

/// Bytes of a value of fill100K.
pub(crate) const LARGE_VALUE: usize = 100_000;

pub(crate) fn fill_100k(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(
        thread,
        Fill {
            order: Order::Random,
            value_size: Some(LARGE_VALUE),
            fraction: 1000,
            ..PLAIN
        },
    )
}

fn of_write(error: Error) -> Failure {
    Failure::of_table("write", &error)
}

/// Range deletes and the keys that they need.
#[derive(Debug, Default)]
struct RangeWriter {
    puts: u64,
    start: Vec<u8>,
    end: Vec<u8>,
}

impl RangeWriter {
    /// Counts a put, and writes a range delete if one is due after it.
    fn after_put(&mut self, thread: &mut Thread<'_>, numbers: &mut Numbers) -> Result<(), Failure> {
        let (plan, keys) = (
            thread.shared.settings.range_deletes,
            thread.shared.settings.keys,
        );
        self.puts += 1;
        if plan.each == 0 || self.puts <= plan.after {
            return Ok(());
        }
        let counted = self.puts - plan.after;
        if !counted.is_multiple_of(plan.each) || counted / plan.each > plan.max {
            return Ok(());
        }
        let begin = numbers.next(&mut thread.random);
        // ORDERING: Relaxed: a sum that is read after the threads are joined.
        thread.shared.range_deletes.fetch_add(1, Ordering::Relaxed);
        if plan.form == RangeForm::EachKey {
            for number in begin..begin + plan.width {
                keys.write(number, &mut self.start);
                thread.session.write(Op::Delete(&self.start))?;
            }
            return Ok(());
        }
        keys.write(begin, &mut self.start);
        keys.write(begin + plan.width, &mut self.end);
        thread
            .session
            .write(Op::DeleteRange(&self.start, &self.end))
    }
}

fn fill(thread: &mut Thread<'_>, fill: Fill) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let (extent, ranges) = (settings.extent, settings.range_deletes);
    let operations = (extent.writes / fill.fraction).max(1);
    let mut numbers = match fill.order {
        Order::Ascending => Numbers::Ascending { next: 0 },
        Order::Random => Numbers::Random {
            bound: extent.num + ranges.max,
        },
        Order::Unique => {
            let order = Twister::new(settings.seed).permutation(extent.num + ranges.max);
            Numbers::Unique { order, next: 0 }
        }
    };
    let mut values = Values::new(
        thread.shared.pool,
        fill.value_size.unwrap_or(settings.value_size),
    );
    let batch_size = fill.batch_size.unwrap_or(settings.batch_size) as u64;
    let seconds = if fill.order == Order::Random {
        extent.duration
    } else {
        0
    };
    let mut until = Until::new(seconds, operations);
    let (mut key, mut range_writer) = (Vec::new(), RangeWriter::default());
    let mut batch = settings_batch(thread);
    while until.more(batch_size) && !thread.in_vain() {
        numbers.before_batch(&mut thread.random);
        batch.clear();
        for _ in 0..batch_size {
            settings
                .keys
                .write(numbers.next(&mut thread.random), &mut key);
            let value = values.next();
            if batch_size == 1 {
                thread.session.write(Op::Put(&key, value))?;
            } else {
                batch.put(&key, value).map_err(of_write)?;
            }
            thread.stats.bytes += (key.len() + value.len()) as u64;
            if ranges.each > 0 {
                // A range delete is a write of its own, after the puts before it.
                write_rest(thread, &mut batch)?;
                range_writer.after_put(thread, &mut numbers)?;
            }
        }
        write_rest(thread, &mut batch)?;
        thread.finished(batch_size);
    }
    if fill.fraction > 1 {
        thread.stats.message = format!("({operations} ops)");
    }
    Ok(())
}

fn settings_batch(thread: &Thread<'_>) -> WriteBatch {
    thread.session.db().batch()
}

/// Writes and empties a batch that holds entries.
fn write_rest(thread: &mut Thread<'_>, batch: &mut WriteBatch) -> Result<(), Failure> {
    if batch.is_empty() {
        return Ok(());
    }
    thread.session.write_batch(batch)?;
    batch.clear();
    Ok(())
}

pub(crate) fn delete_seq(thread: &mut Thread<'_>) -> Result<(), Failure> {
    delete(thread, Order::Ascending)
}

pub(crate) fn delete_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    delete(thread, Order::Random)
}

fn delete(thread: &mut Thread<'_>, order: Order) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let batch_size = settings.batch_size as u64;
    let seconds = if order == Order::Random {
        settings.extent.duration
    } else {
        0
    };
    let mut until = Until::new(seconds, settings.extent.deletes);
    let (mut key, mut batch, mut next) = (Vec::new(), settings_batch(thread), 0);
    while until.more(batch_size) && !thread.in_vain() {
        thread.random.next();
        for _ in 0..batch_size {
            let number = match order {
                Order::Ascending => next,
                _ => thread.random.below(settings.extent.num),
            };
            next += 1;
            settings.keys.write(number, &mut key);
            if batch_size == 1 {
                thread.session.write(Op::Delete(&key))?;
            } else {
                batch.delete(&key).map_err(of_write)?;
            }
        }
        write_rest(thread, &mut batch)?;
        thread.finished(batch_size);
    }
    Ok(())
}

/// Puts random keys as long as other threads read, or until it has made all its writes.
pub(crate) fn write_beside_readers(thread: &mut Thread<'_>) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let mut values = Values::new(thread.shared.pool, settings.value_size);
    let mut numbers = Numbers::Random {
        bound: settings.extent.num,
    };
    let (mut key, mut range_writer, mut written) = (Vec::new(), RangeWriter::default(), 0);
    while !thread.in_vain() {
        let done = if settings.finish_after_writes {
            written >= settings.extent.writes
        } else {
            thread.others_done()
        };
        if done {
            break;
        }
        settings
            .keys
            .write(numbers.next(&mut thread.random), &mut key);
        thread.session.write(Op::Put(&key, values.next()))?;
        range_writer.after_put(thread, &mut numbers)?;
        written += 1;
    }
    Ok(())
}

// The layout of keys in db_bench.
//
// ```text
//   | prefix: number modulo prefixes, big-endian, then '0' | number, big-endian, at most 8 bytes | '0' .. |
//     only with --keys_per_prefix                                                                 to key_size
// ```

/// The shape of all keys of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyShape {
    pub(crate) key_size: usize,
    pub(crate) prefix_size: usize,
    /// Number of different prefixes; 0: keys have none.
    pub(crate) prefixes: u64,
}

/// Writes the lowest bytes of a number, highest first, into all of `bytes`, and '0' after the
/// eighth byte.
fn write_number(bytes: &mut [u8], number: u64) {
    let (number_bytes, padding) = bytes.split_at_mut(bytes.len().min(8));
    let all = number.to_be_bytes();
    number_bytes.copy_from_slice(&all[8 - number_bytes.len()..]);
    padding.fill(b'0');
}

impl KeyShape {
    /// Writes the key of a number into `key`.
    pub(crate) fn write(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        key.resize(self.key_size, b'0');
        let mut from = 0;
        if self.prefixes > 0 {
            from = self.prefix_size.min(self.key_size);
            write_number(&mut key[..from], number % self.prefixes);
        }
        write_number(&mut key[from..], number);
    }
}

/// The order in which a fill writes its numbers.
#[derive(Debug)]
pub(crate) enum Numbers {
    Ascending { next: u64 },
    Random { bound: u64 },
    Unique { order: Vec<u64>, next: usize },
}

impl Numbers {
    pub(crate) fn next(&mut self, random: &mut Twister) -> u64 {
        match self {
            Numbers::Ascending { next } => {
                *next += 1;
                *next - 1
            }
            Numbers::Random { bound } => random.below(*bound),
            Numbers::Unique { order, next } => {
                *next += 1;
                order.get(*next - 1).copied().unwrap_or(0)
            }
        }
    }

    /// Takes the random number with which db_bench chooses a generator before each batch. The order
    /// of one generator stays the same.
    fn before_batch(&self, random: &mut Twister) {
        if !matches!(self, Numbers::Ascending { .. }) {
            random.next();
        }
    }
}

// The random numbers and values of RocksDB's db_bench: equal seeds give equal keys and bytes.
//
// Keys come from the 64-bit Mersenne twister, one per thread. Values are slices of a pool of
// compressible text that the minimal-standard generator fills. A writer walks through the pool and
// starts again at its end.

/// Words of the twister's state.
const WORDS: usize = 312;
/// Distance between the words that are mixed.
const MIDDLE: usize = 156;
const UPPER_BITS: u64 = !0 << 31;

/// The 64-bit Mersenne twister (MT19937-64).
#[derive(Debug)]
pub(crate) struct Twister {
    words: Box<[u64; WORDS]>,
    used: usize,
}

impl Twister {
    pub(crate) fn new(seed: u64) -> Self {
        let mut words = Box::new([seed; WORDS]);
        for at in 1..WORDS {
            let before = words[at - 1];
            let mixed = 6_364_136_223_846_793_005u64.wrapping_mul(before ^ (before >> 62));
            words[at] = mixed.wrapping_add(at as u64);
        }
        Twister { words, used: WORDS }
    }

    fn refill(&mut self) {
        for at in 0..WORDS {
            let joined =
                (self.words[at] & UPPER_BITS) | (self.words[(at + 1) % WORDS] & !UPPER_BITS);
            let twist = if joined & 1 == 1 {
                0xB502_6F5A_A966_19E9
            } else {
                0
            };
            self.words[at] = self.words[(at + MIDDLE) % WORDS] ^ (joined >> 1) ^ twist;
        }
        self.used = 0;
    }

    pub(crate) fn next(&mut self) -> u64 {
        if self.used == WORDS {
            self.refill();
        }
        let mut word = self.words[self.used];
        self.used += 1;
        word ^= (word >> 29) & 0x5555_5555_5555_5555;
        word ^= (word << 17) & 0x71D6_7FFF_EDA6_0000;
        word ^= (word << 37) & 0xFFF7_EEE0_0000_0000;
        word ^ (word >> 43)
    }

    /// A number below `bound`, as db_bench draws it: the remainder.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Every number below `count` once, in random order.
    fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        for at in (1..numbers.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap_or(at);
            numbers.swap(at, other);
        }
        numbers
    }
}

/// Length of a piece of the pool. One half of it is random and the other repeats it, so that a
/// compressor halves the pool.
const PIECE: usize = 100;
const POOL_MIN: usize = 1 << 20;

/// The pool of which values are slices.
pub(crate) fn pool(value_size: usize) -> Vec<u8> {
    let mut state = 301u64;
    let mut letter = || {
        state = state * 16_807 % 2_147_483_647;
        u8::try_from(state % 95).unwrap_or(0) + b' '
    };
    let wanted = POOL_MIN.max(value_size);
    let mut pool = Vec::with_capacity(wanted + PIECE);
    while pool.len() < wanted {
        let random: Vec<u8> = (0..PIECE / 2).map(|_| letter()).collect();
        pool.extend(random.iter().cycle().take(PIECE));
    }
    pool
}

/// A walk through the pool.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    pool: &'a [u8],
    at: usize,
    len: usize,
}

impl<'a> Values<'a> {
    pub(crate) fn new(pool: &'a [u8], len: usize) -> Self {
        Values {
            pool,
            at: 0,
            len: len.min(pool.len()),
        }
    }

    pub(crate) fn next(&mut self) -> &'a [u8] {
        if self.at + self.len > self.pool.len() {
            self.at = 0;
        }
        let from = self.at;
        self.at += self.len;
        &self.pool[from..self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_laid_out_as_in_rocksdb() {
        let mut key = Vec::new();
        let plain = KeyShape {
            key_size: 16,
            prefix_size: 7,
            prefixes: 0,
        };
        plain.write(0x0102, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\x01\x0200000000");
        KeyShape {
            key_size: 3,
            ..plain
        }
        .write(0x0102_0304, &mut key);
        assert_eq!(key, b"\x02\x03\x04");
        let prefixed = KeyShape {
            key_size: 16,
            prefix_size: 10,
            prefixes: 256,
        };
        prefixed.write(0x0102, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\0\x0200\0\0\0\0\x01\x02");
    }

    #[test]
    fn the_twister_is_the_standard_one() {
        // The C++ standard states the 10 000th number for the default seed.
        let mut twister = Twister::new(5489);
        let last = (0..10_000).map(|_| twister.next()).last();
        assert_eq!(last, Some(9_981_545_732_273_789_042));
        let mut all = twister.permutation(1_000);
        assert_ne!(all[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..1_000));
    }

    #[test]
    fn values_walk_the_pool() {
        let pool = pool(100);
        assert!(pool.iter().all(|byte| (b' '..=b'~').contains(byte)));
        assert_eq!(pool[..50], pool[50..100]);
        let mut values = Values::new(&pool, 1_000);
        let rounds = pool.len() / 1_000;
        for round in 0..2 * rounds {
            let at = round % rounds * 1_000;
            assert_eq!(values.next(), &pool[at..at + 1_000]);
        }
    }
}
