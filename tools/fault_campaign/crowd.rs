//! Crowds: several bits of a table flip, then two readers and two writers use it at once. Reads at
//! older snapshots have the same answers all the time. Afterwards everything is read, with what the
//! writers were promised.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use paranoid_memtable::fault::FaultInjector;
use paranoid_memtable::{Error, MemTable};

use crate::damage::model::{Accelerators, Model};
use crate::damage::plan::{Area, Bounds, Kind, Map, Rng};
use crate::damage::trial::{Trial, Verdict};
use crate::damage::{Frozen, after_writes};
use crate::{Mode, Options, Plan, Setting, Stage};

/// Number of bits that flip in one table.
const FLIPS: usize = 6;
/// Writers, and readers.
const WRITERS: u64 = 2;
const READERS: u64 = 2;
/// A writer's sequence numbers begin at a multiple of this.
const NUMBERS: u64 = 10_000;

/// Stages for so many tables in total.
pub(crate) fn stages(options: &Options, tables: u64) -> Result<Vec<Stage>, Error> {
    let kinds = [
        Accelerators::Nothing,
        Accelerators::All,
        Accelerators::Growing,
    ];
    let count = tables.div_ceil(kinds.len() as u64 * options.on_seek.len() as u64);
    let mut stages = Vec::new();
    for accelerators in kinds {
        for on_seek in options.on_seek.iter().copied() {
            let plan = Plan {
                accelerators,
                entries: 40,
                count,
                ..Plan::small(options, Mode::Crowd)
            };
            let frozen = Frozen::After;
            stages.push(Stage::new(options, plan, Setting { on_seek, frozen })?);
        }
    }
    Ok(stages)
}

/// Damages a table, runs readers and writers on it, and judges everything.
pub(crate) fn run(
    model: &Model,
    number: u64,
    rng: &mut Rng,
) -> Result<(Area, Kind, Verdict), Error> {
    let table = model.table()?;
    // SAFETY: this thread alone uses the table until the fault injector is dropped, and holds
    // nothing borrowed from it.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let mut injector = unsafe { FaultInjector::open(&table) }?;
    let map = Map::of(&injector, &[Kind::Flip]);
    let mut area = map.areas[0].0;
    for _ in 0..FLIPS {
        let cell = rng.below(map.cells.len());
        area = map
            .strike_here(&mut injector, &Default::default(), cell, rng)
            .0;
    }
    // Six places may hide any key.
    let bounds = Bounds {
        probes: None,
        only: None,
        lone: false,
        must_find: false,
        ..Bounds::of(model, &injector, Kind::TwoPlaces)
    };
    drop(injector);
    let trial = |model, thread| Trial::new(model, bounds.clone(), number * 4 + thread);
    let steady = model.beside_writers();
    let writing = AtomicUsize::new(WRITERS as usize);
    let mut verdict = Verdict::default();
    let mut written = Vec::new();
    thread::scope(|scope| {
        let reader = |thread| {
            let (trial, table, writing) = (trial(&steady, thread), &table, &writing);
            scope.spawn(move || read(trial, table, writing))
        };
        let writer = |thread| {
            let (mut trial, table, writing) = (trial(model, thread), &table, &writing);
            scope.spawn(move || {
                let rows = trial.writes(table, (thread + 1) * NUMBERS);
                writing.fetch_sub(1, Ordering::Relaxed);
                (trial.verdict, rows)
            })
        };
        let readers: Vec<_> = (0..READERS).map(reader).collect();
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        for thread in writers {
            let (found, rows) = thread.join().expect("a writer panicked");
            verdict.join(found);
            written.extend(rows);
        }
        for thread in readers {
            verdict.join(thread.join().expect("a reader panicked"));
        }
    });
    verdict.join(after_writes(trial(model, 0), &table, written));
    Ok((area, Kind::Burst, verdict))
}

/// Reads at snapshots that no writer changes, at least once and until the writers are done.
fn read(mut trial: Trial<'_>, table: &MemTable, writing: &AtomicUsize) -> Verdict {
    loop {
        let is_last = writing.load(Ordering::Relaxed) == 0;
        trial.gets(table);
        trial.many(table);
        trial.resolved_scans(table);
        trial.seen_tombstones(table);
        if is_last {
            return trial.verdict;
        }
    }
}
