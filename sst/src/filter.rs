//! RocksDB's Bloom filter, which reads one cache line per key (format version 5 and up).
//!
//! ```text
//!   line | line | ... (64 bytes each) | ff 00 probes 00 00
//!   line of a key: high half of (low 32 bits of hash x lines); bits in it: high 32 bits of hash, multiplied a probe
//! ```
//! * SST-FILTER-1: a filter block is never shorter than one line: RocksDB reads 0 to 5 bytes as "matches nothing".
//! * SST-FILTER-2: an unknown or damaged filter answers "maybe".
//!
//! A builder has one owner; queries are pure functions. Not promised: resistance against chosen keys.

/// The hash that filters are asked with.
pub(crate) use crate::xxph3::xxph3 as hash;

const LINE: usize = 64;
const TRAILER: usize = 5;
const MARKER: [u8; 2] = [0xff, 0x00];
const FACTOR: u32 = 0x9e37_79b9;

/// Probes by thousandths of bits per key: RocksDB's table.
#[rustfmt::skip]
const PROBES: [(u32, u32); 12] = [
    (2_080, 1), (3_580, 2), (5_100, 3), (6_640, 4), (8_300, 5), (10_070, 6),
    (11_720, 7), (14_001, 8), (16_050, 9), (18_300, 10), (22_001, 11), (25_501, 12),
];

fn probes(millibits: u32) -> u32 {
    match PROBES.iter().find(|(limit, _)| millibits <= *limit) {
        Some((_, probes)) => *probes,
        None if millibits > 50_000 => 24,
        None => (millibits - 1) / 2000 - 1,
    }
}

/// Calls `visit` with the byte and the bit of every probe; `lines` is not 0. Stops at the first `false`.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "halves of the hash; places are below the filter's length"
)]
fn visit_bits(hash: u64, lines: usize, probes: u32, mut visit: impl FnMut(usize, u8) -> bool) -> bool {
    let line = (u64::from(hash as u32) * lines as u64) >> 32;
    let start = line as usize * LINE;
    let mut bits = (hash >> 32) as u32;
    for _ in 0..probes {
        let bit = bits >> 23;
        if !visit(start + (bit >> 3) as usize, 1 << (bit & 7)) {
            return false;
        }
        bits = bits.wrapping_mul(FACTOR);
    }
    true
}

/// Collects hashes, since the filter's size follows from their number.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    millibits: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    pub(crate) fn new(millibits: u32) -> Self {
        FilterBuilder { millibits, hashes: vec![] }
    }

    /// Adds a user key. Versions of one key come one after the other and count once.
    #[inline]
    pub(crate) fn add(&mut self, user_key: &[u8]) {
        let hash = hash(user_key);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Number of keys in the filter.
    pub(crate) fn len(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// The block, if there is any key (SST-FILTER-1).
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        if self.hashes.is_empty() {
            return None;
        }
        let bytes = (self.hashes.len() as u128 * u128::from(self.millibits)).div_ceil(8000);
        let lines = bytes.div_ceil(LINE as u128).clamp(1, u128::from(u32::MAX) / LINE as u128);
        let lines = usize::try_from(lines).unwrap_or(1);
        let probes = probes(self.millibits);
        let mut block = vec![0; lines * LINE + TRAILER];
        for hash in self.hashes {
            visit_bits(hash, lines, probes, |byte, bit| {
                block[byte] |= bit;
                true
            });
        }
        let trailer = lines * LINE;
        block[trailer..trailer + 2].copy_from_slice(&MARKER);
        block[trailer + 2] = probes.to_le_bytes()[0];
        Some(block)
    }
}

/// Whether the file of this filter block may hold a user key of this hash.
pub(crate) fn may_hold(block: &[u8], hash: u64) -> bool {
    let Some((bits, trailer)) = block.split_last_chunk::<TRAILER>() else { return true };
    let probes = u32::from(trailer[2]);
    let known = trailer[..2] == MARKER && trailer[3..] == [0, 0] && (1..=30).contains(&probes);
    if !known || bits.is_empty() || !bits.len().is_multiple_of(LINE) {
        return true;
    }
    visit_bits(hash, bits.len() / LINE, probes, |byte, bit| bits[byte] & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_there_are_never_denied() {
        for (keys, millibits) in
            [(1usize, 10_000), (7, 1_000), (5_000, 10_000), (3_000, 60_000), (900, 24_000)]
        {
            let mut builder = FilterBuilder::new(millibits);
            (0..keys).for_each(|key| builder.add(&key.to_le_bytes()));
            let block = builder.finish().unwrap();
            assert!((0..keys).all(|key| may_hold(&block, hash(&key.to_le_bytes()))));
            let denied =
                (keys..keys + 2000).filter(|key| !may_hold(&block, hash(&key.to_le_bytes()))).count();
            assert!(denied > 0 && (millibits < 10_000 || denied > 1900), "{denied} of 2000");
        }
        assert!(FilterBuilder::new(10_000).finish().is_none());
    }

    #[test]
    fn what_is_not_known_says_maybe() {
        for block in [&[][..], &[0; 5], &[0; 69], &[0xff; 4], &[1; 70]] {
            assert!(may_hold(block, 7), "{block:?}");
        }
    }
}
