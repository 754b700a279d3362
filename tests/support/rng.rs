//! Random numbers from a seed that is printed: SplitMix64. A fuzzer's bytes may decide the first of them.

/// A stream of numbers that the seed decides.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
    /// The top byte of the next numbers, last one first.
    choices: Vec<u8>,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng { state: seed, choices: vec![] }
    }

    /// Every number takes its top byte from these bytes as long as there are any: each choice among few is one byte's.
    pub fn chosen(bytes: &[u8]) -> Self {
        Rng { state: 0, choices: bytes.iter().rev().copied().collect() }
    }

    /// How many numbers are still decided by chosen bytes.
    pub fn chosen_len(&self) -> usize {
        self.choices.len()
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = scramble(self.state);
        match self.choices.pop() {
            Some(top) => (u64::from(top) << 56) | (number >> 8),
            None => number,
        }
    }

    /// A number below `n` (0 if `n` is 0). The bias is of no concern to a test.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// An index below `n`.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next_u64() >> 56) as u8).collect()
    }
}

/// A number with no visible relation to the one that it is made from.
pub fn scramble(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The seed of this run: `PARANOID_TEST_SEED` if it is set.
pub fn seed_or(default: u64) -> u64 {
    number_from_env("PARANOID_TEST_SEED").unwrap_or(default)
}

/// How much to do: `PARANOID_TEST_OPS` if it is set, else one number for optimised builds and one for debug builds. Of the
/// latter, `PARANOID_TEST_PARTS` does one of so many parts, and Miri a fiftieth.
pub fn amount(optimised: u64, debug: u64) -> u64 {
    number_from_env("PARANOID_TEST_OPS").unwrap_or(if cfg!(any(miri, debug_assertions)) {
        debug.div_ceil(number_from_env("PARANOID_TEST_PARTS").unwrap_or(if cfg!(miri) { 50 } else { 1 }))
    } else {
        optimised
    })
}

/// As `amount`, with a number for Miri, where an insert takes a third of a second.
pub fn amount_or_few(optimised: u64, debug: u64, few: u64) -> u64 {
    if cfg!(miri) { number_from_env("PARANOID_TEST_OPS").unwrap_or(few) } else { amount(optimised, debug) }
}

/// The number that an environment variable has, if it is set.
pub fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}
