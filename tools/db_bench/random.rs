//! The random numbers and values of RocksDB's db_bench: equal seeds give equal keys and bytes.
//!
//! Keys come from the 64-bit Mersenne twister, one per thread. Values are slices of a pool of compressible text that
//! the minimal-standard generator fills; a writer walks the pool and starts over at its end.

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
            let joined = (self.words[at] & UPPER_BITS) | (self.words[(at + 1) % WORDS] & !UPPER_BITS);
            let twist = if joined & 1 == 1 { 0xB502_6F5A_A966_19E9 } else { 0 };
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
    pub(crate) fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        for at in (1..numbers.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap_or(at);
            numbers.swap(at, other);
        }
        numbers
    }
}

/// Length of a piece of the pool. One half of it is random and the other repeats it, so that a compressor halves the
/// pool.
const PIECE: usize = 100;
const POOL_MIN: usize = 1 << 20;

/// The pool that values are cut from.
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
        Values { pool, at: 0, len: len.min(pool.len()) }
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
