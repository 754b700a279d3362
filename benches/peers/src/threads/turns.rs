//! Measures one row: each round runs every number of threads, and each of these every lane. Each
//! round begins with another lane.
//!
//! Every run has a new table, unless the row only reads. The program ends if hashes disagree: the
//! hash of what threads read must be equal for all lanes, and the hash of the tables' entries at
//! the end for all lanes and all numbers of threads.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::crew::{self, Job, Took};
use super::lanes::Lane;
use super::page::{Lane as Measured, Point, Row as MeasuredRow};
use super::parts::{Does, Part, SHAPE, Sizes};
use super::rows::Row;
use crate::rivals::{Room, Table};
use crate::work::{Ballast, Entries, Presence, Way, Work};

/// State that all rows share.
pub struct Stage {
    pub sizes: Sizes,
    pub rounds: usize,
    pub threads: Vec<usize>,
    /// The processors to which threads are pinned.
    pub processors: Vec<usize>,
    /// The folders of logs: on a file system, and in memory.
    pub folders: [PathBuf; 2],
}

/// Approximate memory of a table for one entry.
const BYTES_AN_ENTRY: usize = 220;

/// The hashes that must be equal.
struct Agreed {
    /// The hash of what was read, by number of threads.
    read: Vec<Option<u64>>,
    /// The hash of the table's entries at the end.
    left: Option<u64>,
}

impl Stage {
    pub fn measure(&self, row: &Row) -> Result<MeasuredRow> {
        let does = row.does;
        let before = does.before(self.sizes);
        let parts = |threads: &usize| does.parts(self.sizes, *threads);
        let parts: Vec<Vec<Part>> = self.threads.iter().map(parts).collect();
        let kept = self.kept(row, &before)?;
        let mut agreed = Agreed {
            read: vec![None; parts.len()],
            left: None,
        };
        let mut lanes: Vec<Measured> = row
            .lanes
            .iter()
            .map(|lane| self.unmeasured(*lane))
            .collect();
        for round in 0..self.rounds {
            for (at, parts) in parts.iter().enumerate() {
                for turn in 0..row.lanes.len() {
                    let which = (round + turn) % row.lanes.len();
                    let lane = row.lanes[which];
                    let fresh = match kept.get(which) {
                        Some(_) => None,
                        None => Some(self.filled(lane, does, &before, parts.len())?),
                    };
                    let table = fresh.as_ref().or(kept.get(which)).expect("one of them");
                    let took = self.run(lane, table.as_ref(), parts);
                    agreed.check(row, at, &took, lane)?;
                    if fresh.is_some() {
                        agreed.check_left(row, does, self.sizes, table.as_ref(), lane)?;
                    }
                    lanes[which].points[at].add(&took, does.operations(self.sizes));
                }
            }
        }
        eprintln!("  {}", row.name);
        Ok(MeasuredRow {
            name: row.name.clone(),
            operations: does.operations(self.sizes),
            hash: format!("{:016x}", agreed.left.or(agreed.read[0]).unwrap_or(0)),
            lanes,
        })
    }

    fn unmeasured(&self, lane: Lane) -> Measured {
        let points = self.threads.iter().map(|threads| Point::new(*threads));
        Measured {
            name: lane.name(),
            points: points.collect(),
        }
    }

    /// The tables of all runs of a row that only reads.
    fn kept(&self, row: &Row, before: &Entries) -> Result<Vec<Box<dyn Table>>> {
        let lanes = row.lanes.iter().filter(|_| row.does.only_reads());
        lanes
            .map(|lane| self.filled(*lane, row.does, before, 1))
            .collect()
    }

    /// Makes a table with the entries before the run.
    fn filled(
        &self,
        lane: Lane,
        does: Does,
        before: &Entries,
        threads: usize,
    ) -> Result<Box<dyn Table>> {
        let entries = does.entries(self.sizes);
        // There is room for twice as many, so that no store begins a flush.
        let room = Room {
            shape: SHAPE,
            entries: entries * 2,
            threads,
        };
        // Memory that the machine has backed: the system returns it for the next allocation.
        drop(Ballast::hold(entries as usize * BYTES_AN_ENTRY));
        let table = lane.table(room, &self.folders)?;
        if before.count() > 0 {
            let fill = table.prepare(Work::InsertBatches(before, 32));
            fill.expect("every table takes entries")();
        }
        Ok(table)
    }

    fn run(&self, lane: Lane, table: &dyn Table, parts: &[Part]) -> Took {
        let job = |part| -> Job<'_> {
            let part: &Part = part;
            Box::new(move || table.prepare(part.work()).expect("work of every lane"))
        };
        let jobs = parts.iter().map(job).collect();
        crew::run(jobs, &self.processors, lane.numbers())
    }
}

impl Agreed {
    fn check(&mut self, row: &Row, at: usize, took: &Took, lane: Lane) -> Result<()> {
        let read = *self.read[at].get_or_insert(took.hash);
        let name = lane.name();
        ensure!(
            read == took.hash,
            "{}: {name} read something else",
            row.name
        );
        Ok(())
    }

    /// Compares the tables' entries: all versions, or the newest values if range deletes hide some
    /// and for stores, which show no other versions.
    fn check_left(
        &mut self,
        row: &Row,
        does: Does,
        sizes: Sizes,
        table: &dyn Table,
        lane: Lane,
    ) -> Result<()> {
        let first = SHAPE.keys(&[0], Presence::Hit);
        let every: Vec<u64> = (0..does.entries(sizes)).collect();
        let every = SHAPE.keys(&every, Presence::Hit);
        let newest = does == Does::DeleteRanges || matches!(lane, Lane::Store(..));
        let look = if newest {
            Work::Get(&every)
        } else {
            Work::Scan(&first, usize::MAX, Way::Forward)
        };
        let hash = table.prepare(look).expect("every table reads")();
        let left = *self.left.get_or_insert(hash);
        ensure!(
            left == hash,
            "{}: {} has something else",
            row.name,
            lane.name()
        );
        Ok(())
    }
}
