//! Damage on purpose: a model of a table, a plan of faults, and a trial of everything that a table does after one.
//!
//! ```text
//!   Shape -> Model (rows, tombstones, probes, expected answers)   once
//!         -> table, the same bytes every time                     for each fault
//!         -> Door, Map: a fault                                   -> Bounds: what it may reach
//!   Trial: reads, scans, seeks, inserts, freeze, flush, scrub, salvage -> Verdict
//! ```
//! Included by path from the campaign, the suite and the fuzz target.
#![allow(dead_code, unreachable_pub, reason = "each user takes what it needs")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

pub mod later;
pub mod model;
pub mod plan;
pub mod reads;
pub mod rng;
pub mod trial;

use later::Demand;
use model::{Model, Row};
use paranoid_memtable::{Bytewise, Door, Error, MemTable};
use plan::{Area, Kind};
use trial::{Bounds, Trial, Verdict};

/// When a table is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frozen {
    /// After the damage and the inserts behind it.
    After,
    /// Before the damage.
    Before,
}

/// Makes the table, breaks it, and does everything with it.
pub fn run_fault(
    model: &Model,
    frozen: Frozen,
    strike: impl FnOnce(&mut Door<'_, Bytewise>) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    run_fault_on(model, frozen, &model.table()?, strike)
}

/// The same with a table that the caller made.
pub fn run_fault_on(
    model: &Model,
    frozen: Frozen,
    table: &MemTable,
    strike: impl FnOnce(&mut Door<'_, Bytewise>) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    let early = if frozen == Frozen::Before { Some(table.freeze()?) } else { None };
    // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
    #[expect(unsafe_code, reason = "opens the fault door")]
    let mut door = unsafe { Door::open(table) }?;
    let (area, kind) = strike(&mut door);
    let mut trial = Trial::new(model, Bounds::of(model, &door, frozen));
    let demand = if trial.bounds().must_find { Demand::Finding } else { Demand::Anything };
    drop(door);
    let rows: Vec<&Row> = model.rows.iter().collect();
    trial.gets(table);
    trial.scrub(table, demand);
    trial.scans(table, &rows);
    trial.resolved_scans(table);
    trial.seeks(table);
    trial.further_reads(table);
    match early {
        Some(frozen) => {
            trial.flush(&frozen, &rows);
            trial.salvage(&frozen, &rows);
        }
        None => {
            // A known limit: SAFETY.md, filters and point index.
            let wiped = trial.bounds().wiped;
            let all = if wiped { model.rows.clone() } else { trial.inserts(table) };
            let rows: Vec<&Row> = all.iter().collect();
            trial.scans(table, &rows);
            if let Some(frozen) = trial.freeze(table) {
                trial.flush(&frozen, &rows);
                trial.scrub(&frozen, Demand::Anything);
                trial.salvage(&frozen, &rows);
            }
        }
    }
    Ok((area, kind, trial.verdict))
}
