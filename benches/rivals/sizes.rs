//! How much work a bench does: all of it under `cargo bench`, little when it runs as a test.

#![allow(dead_code, reason = "each bench uses a part")]

/// Full work, or a quick run that shows that the bench works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    Smoke,
}

impl Extent {
    /// Cargo passes `--bench` under `cargo bench` alone; `--test` and `PARANOID_BENCH_SMOKE=1` ask for the quick run.
    pub(crate) fn asked() -> Extent {
        let said = |flag: &str| std::env::args().any(|argument| argument == flag);
        let smoke = std::env::var_os("PARANOID_BENCH_SMOKE").is_some_and(|value| value == "1");
        if said("--bench") && !said("--test") && !smoke { Extent::Full } else { Extent::Smoke }
    }

    /// Entries of the tables.
    pub(crate) fn entries(self) -> Vec<u32> {
        match self {
            Extent::Full => vec![250_000, 1_000_000],
            Extent::Smoke => vec![2_000],
        }
    }
}
