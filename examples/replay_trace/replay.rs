//! The replay of one part of the blocks, with its model and its latencies.
//!
//! ```text
//!   request i of pass p  ->  sequence number p * requests + i + 1, for any number of threads
//!   block                ->  part hash(block) % parts: one thread writes and reads it, in the trace's order
//! ```
//! A value is a function of its block and sequence number, so the model keeps no bytes.

use std::collections::HashMap;
use std::time::Instant;

use hdrhistogram::Histogram;
use paranoid_memtable::{Lookup, MemTable};

use crate::failure::Failure;
use crate::figures::{histogram, record};
use crate::trace::{Op, Request, Trace, mix};

/// The parameters that all threads share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) table: &'a MemTable,
    pub(crate) trace: &'a Trace,
    pub(crate) passes: u32,
    pub(crate) parts: u64,
    pub(crate) shrink: u32,
}

/// The last write of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) sequence: u64,
    /// Bytes of the value.
    pub(crate) len: u32,
}

/// The results of a thread. Latencies are in nanoseconds.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) writes: Histogram<u64>,
    pub(crate) hits: Histogram<u64>,
    pub(crate) misses: Histogram<u64>,
    pub(crate) model: HashMap<u64, Written>,
}

impl Replayed {
    pub(crate) fn new() -> Replayed {
        Replayed {
            writes: histogram(),
            hits: histogram(),
            misses: histogram(),
            model: HashMap::new(),
        }
    }

    /// Adds the results of another thread, which owns other blocks.
    pub(crate) fn add(&mut self, other: Replayed) {
        for (into, from) in [
            (&mut self.writes, &other.writes),
            (&mut self.hits, &other.hits),
            (&mut self.misses, &other.misses),
        ] {
            // All histograms have one shape, so adding cannot fail.
            let _ = into.add(from);
        }
        self.model.extend(other.model);
    }
}

/// Replays the requests of one part.
pub(crate) fn part(plan: &Plan<'_>, part: u64) -> Result<Replayed, Failure> {
    let mut replayed = Replayed::new();
    let mut writer = plan.table.writer();
    let mut value = Vec::new();
    let mut sequence = 0;
    for _ in 0..plan.passes {
        for request in &plan.trace.requests {
            sequence += 1;
            if mix(request.lbn) % plan.parts != part {
                continue;
            }
            let key = request.lbn.to_be_bytes();
            match request.op {
                Op::Write => {
                    let written = Written {
                        sequence,
                        len: request.size / plan.shrink,
                    };
                    fill(&mut value, request.lbn, written);
                    let started = Instant::now();
                    let outcome = writer.put(sequence, key, &value);
                    record(&mut replayed.writes, started);
                    outcome.map_err(|error| {
                        Failure::of_table(format!("write of block {}", request.lbn), &error)
                    })?;
                    replayed.model.insert(request.lbn, written);
                }
                Op::Read => read(plan, &mut replayed, request, &mut value)?,
            }
        }
    }
    Ok(replayed)
}

fn read(
    plan: &Plan<'_>,
    replayed: &mut Replayed,
    request: &Request,
    wanted: &mut Vec<u8>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let lookup = plan.table.get(request.lbn.to_be_bytes(), u64::MAX);
    let written = replayed.model.get(&request.lbn);
    record(
        if written.is_some() {
            &mut replayed.hits
        } else {
            &mut replayed.misses
        },
        started,
    );
    let lookup = lookup
        .map_err(|error| Failure::of_table(format!("read of block {}", request.lbn), &error))?;
    let right = match (&lookup, written) {
        (Lookup::NotFound, None) => true,
        (Lookup::Value(value), Some(written)) => {
            fill(wanted, request.lbn, *written);
            value.sequence() == written.sequence && **value == **wanted
        }
        _ => false,
    };
    if right {
        return Ok(());
    }
    Err(Failure::Differs(format!(
        "block {}: the model has {written:?}, the table {lookup:?}",
        request.lbn
    )))
}

/// Compares the visible entries at the end with the model. Returns the number of blocks.
pub(crate) fn check_all(plan: &Plan<'_>, model: &HashMap<u64, Written>) -> Result<u64, Failure> {
    let mut expected: Vec<(u64, Written)> = model
        .iter()
        .map(|(lbn, written)| (*lbn, *written))
        .collect();
    expected.sort_unstable_by_key(|(lbn, _)| *lbn);
    let failed = |error: paranoid_memtable::Error| Failure::of_table("walk at the end", &error);
    let mut walk = plan.table.range_at(.., u64::MAX);
    let mut wanted = Vec::new();
    for (lbn, written) in &expected {
        let Some(entry) = walk.next() else {
            return Err(Failure::Differs(format!(
                "the walk ends before block {lbn}"
            )));
        };
        let entry = entry.map_err(failed)?;
        fill(&mut wanted, *lbn, *written);
        let right = entry.user_key() == lbn.to_be_bytes()
            && entry.sequence() == written.sequence
            && entry.value().map_err(failed)? == wanted;
        if !right {
            return Err(Failure::Differs(format!(
                "the walk has {entry:?} where block {lbn} should be"
            )));
        }
    }
    match walk.next() {
        None => Ok(expected.len() as u64),
        Some(entry) => {
            let entry = entry.map_err(failed)?;
            Err(Failure::Differs(format!(
                "the walk has {entry:?} after the last block"
            )))
        }
    }
}

/// Makes the value of a block's write. No other write has the same bytes.
fn fill(value: &mut Vec<u8>, lbn: u64, written: Written) {
    value.clear();
    let mut state = mix(lbn ^ mix(written.sequence));
    let len = written.len as usize;
    value.reserve(len + 8);
    while value.len() < len {
        state = mix(state);
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(len);
}
