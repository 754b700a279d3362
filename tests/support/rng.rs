//! The parameters of a test: random numbers from a printed seed, the amount of work, and a
//! watchdog. Also the theoretical rate of false positives of a filter.
//!
//! The numbers are SplitMix64's, and a fuzzer's bytes may decide the first of them. A test without
//! a verdict in time counts as failed: it ends the process and prints how to run it again. The
//! theory:
//! ```text
//!   filter   blocks are words of 64 bits; a key sets 5 bits of one, with repetition
//!   lines    64 bytes; after them 4 lines of distance, and a line of control words for each 8
//! ```
//! Keys fall on words at random, so their loads follow Poisson's distribution.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A stream of numbers that follows from the seed.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
    /// The top bytes of the next numbers, last one first.
    choices: Vec<u8>,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng {
            state: seed,
            choices: vec![],
        }
    }

    /// A generator whose numbers take their top bytes from these bytes, as long as there are any:
    /// one byte decides each choice among few.
    pub fn chosen(bytes: &[u8]) -> Self {
        Rng {
            state: 0,
            choices: bytes.iter().rev().copied().collect(),
        }
    }

    /// Number of chosen bytes that are left.
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

    /// A number below `n` (0 if `n` is 0). Its bias does not matter in a test.
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

/// A number that seems unrelated to its argument.
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

/// The amount of work: `PARANOID_TEST_OPS` if it is set, or one number for optimised builds and one
/// for debug builds. In debug builds `PARANOID_TEST_PARTS` divides it into parts, and Miri does a
/// fiftieth.
pub fn amount(optimised: u64, debug: u64) -> u64 {
    number_from_env("PARANOID_TEST_OPS").unwrap_or(if cfg!(any(miri, debug_assertions)) {
        debug.div_ceil(
            number_from_env("PARANOID_TEST_PARTS").unwrap_or(if cfg!(miri) { 50 } else { 1 }),
        )
    } else {
        optimised
    })
}

/// As `amount`, with a number for Miri, where an insert takes a third of a second.
pub fn amount_or_few(optimised: u64, debug: u64, few: u64) -> u64 {
    if cfg!(miri) {
        number_from_env("PARANOID_TEST_OPS").unwrap_or(few)
    } else {
        amount(optimised, debug)
    }
}

/// The number in an environment variable, if it is set.
pub fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name} must be a number, not {text}")))
}

/// Seconds without a verdict, unless `PARANOID_TEST_PATIENCE` has another number for slow,
/// instrumented programs.
const PATIENCE_SECONDS: u64 = 120;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    verdict: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to watch. `replay` is printed with the seed if the test takes too long. Under Miri
    /// there is no watch, because a second thread makes a test several times slower there.
    pub fn new(test: &str, seed: u64) -> Watchdog {
        if cfg!(miri) {
            return Watchdog {
                verdict: None,
                thread: None,
            };
        }
        let replay = replay_line(test, seed);
        let patience = number_from_env("PARANOID_TEST_PATIENCE").unwrap_or(PATIENCE_SECONDS);
        let (verdict, waiting) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let timed_out = waiting.recv_timeout(Duration::from_secs(patience));
            if timed_out == Err(RecvTimeoutError::Timeout) {
                let mut out = std::io::stderr();
                let _ = writeln!(
                    out,
                    "no verdict after {patience} s; seed {seed:#x}\nreplay: {replay}"
                );
                let _ = out.flush();
                std::process::abort();
            }
        });
        Watchdog {
            verdict: Some(verdict),
            thread: Some(thread),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.verdict.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The command that runs a test of the suite again with this seed.
pub fn replay_line(test: &str, seed: u64) -> String {
    format!(
        "PARANOID_TEST_SEED={seed:#x} cargo test --release --test suite {test} -- --exact --nocapture"
    )
}

/// Number of lines of a filter of this many bytes.
pub fn filter_lines(bytes: u64) -> u64 {
    let room = (bytes - 56) / 64 - 4;
    room - room.div_ceil(9)
}

/// The sum of `sum(load)` over every likely load, each weighted with its probability.
fn over_loads(mean: f64, mut sum: impl FnMut(u32) -> f64) -> f64 {
    let (mut total, mut probability) = (0.0, (-mean).exp());
    for load in 0..200 {
        total += probability * sum(load);
        probability *= mean / f64::from(load + 1);
    }
    total
}

/// The share of absent keys whose bits are all set, in a filter of `lines` lines with `keys` keys.
pub fn filter_rate(keys: f64, lines: f64) -> f64 {
    // The probability of each number of set bits in a word, after as many keys as the loop has
    // counted.
    let mut set = [0.0f64; 65];
    set[0] = 1.0;
    over_loads(keys / (lines * 8.0), |_| {
        let passes: f64 = set
            .iter()
            .zip(0u32..)
            .map(|(p, bits)| p * (f64::from(bits) / 64.0).powi(5))
            .sum();
        for _ in 0..5 {
            for bits in (0..=64).rev() {
                let more = if bits == 0 {
                    0.0
                } else {
                    set[bits - 1] * (65.0 - bits as f64) / 64.0
                };
                set[bits] = set[bits] * bits as f64 / 64.0 + more;
            }
        }
        passes
    })
}
