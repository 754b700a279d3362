//! Measures one row: in each round every number of threads, and at each of them every lane, another
//! one first in each round.
//!
//! Every run has a fresh table, unless the row only reads. Two hashes have to agree, or the program
//! ends: of what the threads read, between the lanes, and of what the tables have at the end,
//! between the numbers of threads, too.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::crew::{self, Job, Took};
use super::lanes::Lane;
use super::page::{Lane as Measured, Point, Row as MeasuredRow};
use super::parts::{Does, Part, SHAPE, Sizes};
use super::rows::Row;
use crate::rivals::{Room, Table};
use crate::work::{Ballast, Entries, Presence, Way, Work};

/// What all rows share.
pub struct Stage {
    pub sizes: Sizes,
    pub rounds: usize,
    pub threads: Vec<usize>,
    /// The processors to which threads are pinned.
    pub processors: Vec<usize>,
    /// Where logs are: on a file, in memory.
    pub folders: [PathBuf; 2],
}

/// About the memory that a table needs for one entry.
const BYTES_AN_ENTRY: usize = 220;

/// The hashes on which all agree.
struct Agreed {
    /// Of what was read, by number of threads.
    read: Vec<Option<u64>>,
    /// Of what the table has at the end.
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

    /// Tables for all runs of a row that only reads.
    fn kept(&self, row: &Row, before: &Entries) -> Result<Vec<Box<dyn Table>>> {
        let lanes = row.lanes.iter().filter(|_| row.does.only_reads());
        lanes
            .map(|lane| self.filled(*lane, row.does, before, 1))
            .collect()
    }

    /// A table with the entries that are there before.
    fn filled(
        &self,
        lane: Lane,
        does: Does,
        before: &Entries,
        threads: usize,
    ) -> Result<Box<dyn Table>> {
        let entries = does.entries(self.sizes);
        // Twice as many fit, so that no store begins a flush.
        let room = Room {
            shape: SHAPE,
            entries: entries * 2,
            threads,
        };
        // Memory that the machine has backed: what it gives next.
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

    /// Compares all versions of a table's entries, or the newest values where range deletes hide
    /// some and in stores, which show no others.
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
