//! Runs operations that the fuzzer chooses, on a table and on a sorted map, and compares every
//! answer: on the way, at the end, and frozen.
//!
//! ```text
//!   first byte    order of keys
//!   the others    one for each choice: the options of the table, then the operations
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::Bytewise;

#[path = "../../tests/support/mod.rs"]
mod support;

use support::case::run;
use support::case::{Case, choose};
use support::orders::{CaseBlind, Order, Reverse};

/// More operations make a failure harder to read.
const OPS_MAX: usize = 200;

fn check<C: Order>(case: &Case) {
    if let Err(text) = run::<C>(case) {
        panic!("{text}\n{}", case.text());
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&head, choices)) = data.split_first() else {
        return;
    };
    let case = choose(choices, OPS_MAX);
    match head / 2 % 4 {
        0 | 1 => check::<Bytewise>(&case),
        2 => check::<Reverse>(&case),
        _ => check::<CaseBlind>(&case),
    }
});
