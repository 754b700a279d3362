//! Which share of absent keys filters let pass in theory: for tests and benches.
//!
//! ```text
//!   filter   blocks are words of 64 bits; a key sets 5 bits of one, with repetition
//!   lines    64 bytes; after them 4 lines of distance, and a line of control words for each 8
//! ```
//! Keys fall on words at random, so their loads follow Poisson's distribution.

/// Lines of a filter of so many bytes.
pub fn lines(bytes: u64) -> u64 {
    let room = (bytes - 56) / 64 - 4;
    room - room.div_ceil(9)
}

/// The sum of `sum(load)`, each weighted with the probability of that load, over every load that is likely at all.
fn over_loads(mean: f64, mut sum: impl FnMut(u32) -> f64) -> f64 {
    let (mut total, mut probability) = (0.0, (-mean).exp());
    for load in 0..200 {
        total += probability * sum(load);
        probability *= mean / f64::from(load + 1);
    }
    total
}

/// The share of absent keys whose bits are all set in a filter of `lines` lines that holds `keys` keys.
pub fn filter_rate(keys: f64, lines: f64) -> f64 {
    // The probability that so many bits of a word are set, after as many keys as the loop has counted.
    let mut set = [0.0f64; 65];
    set[0] = 1.0;
    over_loads(keys / (lines * 8.0), |_| {
        let passes: f64 = set.iter().zip(0u32..).map(|(p, bits)| p * (f64::from(bits) / 64.0).powi(5)).sum();
        for _ in 0..5 {
            for bits in (0..=64).rev() {
                let more = if bits == 0 { 0.0 } else { set[bits - 1] * (65.0 - bits as f64) / 64.0 };
                set[bits] = set[bits] * bits as f64 / 64.0 + more;
            }
        }
        passes
    })
}
