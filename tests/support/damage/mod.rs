//! Damage on purpose: a model of a table, a plan of faults, and a trial of everything that a table does after one.
//!
//! ```text
//!   Shape -> Model (rows, tombstones, probes, expected answers)   once
//!         -> table, the same bytes every time                     for each fault
//!         -> cursors and ranges parked, and flushes pulled, here and there
//!         -> FaultInjector, Map, Past: a fault                             -> Bounds: what it may reach
//!   Trial: every call of `calls.rs` on what was parked and on the table; writes, and every read again; freeze, flush,
//!          scrub, salvage                                         -> Verdict
//! ```
//! `Case::turn` chooses patterns of ends, windows, snapshots and means of writing, so that they differ between faults.
//! Included by path from the campaign, the suite and the fuzz target.
#![allow(dead_code, unreachable_pub, reason = "each user takes what it needs")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

pub mod accounts;
pub mod bounds;
pub mod descent;
pub mod later;
pub mod model;
pub mod parked;
pub mod plan;
pub mod ranges;
pub mod reads;
pub mod rng;
pub mod trial;
pub mod walk;
pub mod writes;

use bounds::Bounds;
use later::{Demand, Pulled};
use model::{Model, Row};
use paranoid_memtable::fault::{FaultInjector, Past};
use paranoid_memtable::{Error, ImmutableMemTable, MemTable};
use parked::Parked;
use plan::{Area, Kind};
use trial::{Trial, Verdict};

/// When a table is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frozen {
    /// After the damage and the writes that follow it.
    After,
    /// Before the damage.
    Before,
}

/// Whether earlier values of memory are noted while a table is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    Forgotten,
    Noted,
}

/// How one fault is tried.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub frozen: Frozen,
    pub history: History,
    /// Decides what is tried in turns.
    pub turn: u64,
}

/// About how often memory is looked at while a table is filled.
const LOOKS: usize = 128;

fn look(table: &MemTable, past: &mut Past) -> Result<(), Error> {
    // SAFETY: this thread alone uses the table.
    #[expect(unsafe_code, reason = "looks through the fault injector")]
    unsafe {
        FaultInjector::look(table, past)
    }
}

impl Case {
    /// Writes all rows of the model.
    fn fill(self, model: &Model, table: &MemTable, past: &mut Past) -> Result<(), Error> {
        let every = model.writes.len().div_ceil(LOOKS).max(1);
        for (number, row) in model.writes.iter().enumerate() {
            if self.history == History::Noted && number.is_multiple_of(every) {
                look(table, past)?;
            }
            table.insert(row.sequence, row.kind, &row.key, &row.value)?;
        }
        if self.history == History::Noted { look(table, past) } else { Ok(()) }
    }
}

/// Makes the table, breaks it, and makes every call on it, in turn 0.
pub fn run_fault(
    model: &Model,
    frozen: Frozen,
    strike: impl FnOnce(&mut FaultInjector<'_>) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    run_fault_on(model, frozen, &model.table()?, strike)
}

/// Damages a table that the caller made, and makes every call on it.
pub fn run_fault_on(
    model: &Model,
    frozen: Frozen,
    table: &MemTable,
    strike: impl FnOnce(&mut FaultInjector<'_>) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    let case = Case { frozen, history: History::Forgotten, turn: 0 };
    case.run(model, table, Past::new(), |injector, _| strike(injector))
}

/// Makes the table, breaks it, and makes every call on it.
pub fn run_case(
    model: &Model,
    case: Case,
    strike: impl FnOnce(&mut FaultInjector<'_>, &Past) -> (Area, Kind),
) -> Result<(Area, Kind, Verdict), Error> {
    let (table, mut past) = (model.empty_table()?, Past::new());
    case.fill(model, &table, &mut past)?;
    case.run(model, &table, past, strike)
}

impl Case {
    /// Parks cursors before the freeze or after it, freezes, breaks the table, and makes every call on it.
    fn run(
        self,
        model: &Model,
        table: &MemTable,
        mut past: Past,
        strike: impl FnOnce(&mut FaultInjector<'_>, &Past) -> (Area, Kind),
    ) -> Result<(Area, Kind, Verdict), Error> {
        let park = || Parked::new(table, model, self.turn / 2);
        let early = self.turn.is_multiple_of(4).then(park).transpose()?;
        let frozen = if self.frozen == Frozen::Before { Some(table.freeze()?) } else { None };
        if self.history == History::Noted && frozen.is_some() {
            look(table, &mut past)?;
        }
        let parked = early.map_or_else(park, Ok)?;
        let pulled = frozen.as_deref().map(|frozen| Pulled::new(frozen, model, self.turn)).transpose()?;
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from its memory: what is parked, and what
        // was pulled, holds offsets.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(table) }?;
        let (area, kind) = strike(&mut injector, &past);
        let mut trial = Trial::new(model, Bounds::of(model, &injector, kind), self.turn);
        drop(injector);
        if let Some(pulled) = pulled {
            trial.pulled(pulled);
        }
        let verdict = match &frozen {
            Some(frozen) => of_frozen(trial, table, frozen, parked),
            None => of_mutable(trial, table, parked),
        };
        Ok((area, kind, verdict))
    }
}

/// Makes every read, by every call.
fn reads(trial: &mut Trial<'_>, table: &MemTable, parked: Parked<'_>) {
    let model = trial.model();
    let rows: Vec<&Row> = model.rows.iter().collect();
    trial.parked(parked);
    let demand = if trial.bounds().must_find { Demand::Finding } else { Demand::Anything };
    trial.gets(table);
    trial.scrub(table, demand);
    trial.scans(table, &rows);
    trial.resolved_scans(table);
    trial.seeks(table);
    trial.prefix_scans(table);
    trial.bounded_scans(table);
    trial.ranges(table);
    trial.sought_ranges(table);
    trial.seen_tombstones(table);
    trial.further_reads(table);
    if trial.turn().is_multiple_of(4) {
        trial.accounts(table);
        trial.marks(table);
        trial.fork(table);
    }
}

fn of_frozen(
    mut trial: Trial<'_>,
    table: &MemTable,
    frozen: &ImmutableMemTable,
    parked: Parked<'_>,
) -> Verdict {
    reads(&mut trial, table, parked);
    trial.flush(frozen);
    trial.salvage(frozen);
    trial.verdict
}

fn of_mutable(mut trial: Trial<'_>, table: &MemTable, parked: Parked<'_>) -> Verdict {
    reads(&mut trial, table, parked);
    let more = trial.writes(table);
    let grown = trial.model().after(more);
    let rows: Vec<&Row> = grown.rows.iter().collect();
    let mut trial = trial.after(&grown);
    trial.gets(table);
    trial.scans(table, &rows);
    trial.resolved_scans(table);
    trial.ranges(table);
    if let Some(frozen) = trial.freeze(table) {
        trial.gets(&frozen);
        trial.scans(&frozen, &rows);
        trial.flush(&frozen);
        trial.scrub(&frozen, Demand::Anything);
        trial.salvage(&frozen);
    }
    trial.verdict
}
