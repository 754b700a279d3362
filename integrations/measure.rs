//! What the benchmarks of all engines share: the work of YCSB, a hash of what was read, rows, and
//! the memory of the process.

use std::hash::{DefaultHasher, Hasher};

/// A hash of what was read.
#[derive(Default)]
pub(crate) struct Read(pub(crate) DefaultHasher);

impl Read {
    pub(crate) fn note(&mut self, value: Option<impl AsRef<[u8]>>) {
        match value {
            Some(value) => self.0.write(value.as_ref()),
            None => self.0.write_u8(0),
        }
    }
}

pub(crate) fn row(name: &str, number: f64) {
    println!("{name}\t{number:.0}");
}

/// Keys as YCSB makes them, of 16 bytes.
pub(crate) fn key(at: u64) -> Vec<u8> {
    format!("user{:012}", mix(at) % 1_000_000_000_000).into_bytes()
}

pub(crate) fn value(at: u64, version: u64, len: usize) -> Vec<u8> {
    mix(at ^ version << 32)
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(len)
        .collect()
}

fn mix(seed: u64) -> u64 {
    let mixed =
        (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 31
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % limit
    }
}

/// YCSB's distribution: rank r is drawn with a share of r to the power of -0.99; ranks are spread
/// over the keys.
pub(crate) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(keys: u64) -> Zipf {
        let shares = (1..=keys).map(|rank| (rank as f64).powf(-0.99));
        let sums = shares.scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        Zipf {
            sums: sums.collect(),
        }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let total = self.sums[self.sums.len() - 1];
        let drawn = random.below(1 << 52) as f64 / (1u64 << 52) as f64 * total;
        self.sums.partition_point(|sum| *sum < drawn) as u64
    }
}

/// Bytes of memory that the system has backed for this process.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}
