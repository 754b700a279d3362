//! The faults of a campaign, numbered.
//!
//! ```text
//!   checksum_on_seek off: every bit of the small table | random: small, 200 and 1000 entries
//!     with aids:          every bit of filters and index, all of them and one at a time | random: as above
//!   checksum_on_seek on:  the same
//! ```

use paranoid_memtable::{Door, Error};

use crate::damage::model::{Aids, Model, Shape};
use crate::damage::plan::{Area, Kind, Map};
use crate::damage::rng::Rng;
use crate::damage::trial::Verdict;
use crate::damage::{Frozen, run_fault};
use crate::options::Options;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    EveryBit,
    /// Of filters and index.
    EveryAidBit,
    Random,
}

/// Whether tables have filters and an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Equipment {
    Bare,
    Aids,
}

/// Faults on one table.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) mode: Mode,
    pub(crate) shape: Shape,
    pub(crate) model: Model,
    pub(crate) map: Map,
    /// Number of its first fault, and how many there are.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// Bytes of the table's own struct that no fault goes to.
    pub(crate) excluded: usize,
}

/// All stages, without faults at those that the options leave empty.
pub(crate) fn stages(options: &Options) -> Result<Vec<Stage>, Error> {
    let mut stages: Vec<Stage> = Vec::new();
    let small = if options.short { 24 } else { 64 };
    for on_seek in &options.on_seek {
        let share = options.faults / (options.on_seek.len() * options.aids.len()) as u64;
        for (mode, aids, entries, count) in options.aids.iter().flat_map(|aids| {
            let equipment = if *aids { Equipment::Aids } else { Equipment::Bare };
            plan(equipment, small, share)
        }) {
            let first = stages.last().map_or(0, |stage| stage.first + stage.count);
            let shape = Shape {
                protection: options.protection,
                on_seek: *on_seek,
                order_checks: options.order_checks,
                representation: options.representation,
                aids,
                entries,
                seed: options.seed,
            };
            let stage = Stage::new(options, mode, shape, first, count)?;
            stages.push(stage);
        }
    }
    Ok(stages)
}

/// Faults with or without filters and index.
fn plan(aids: Equipment, small: usize, share: u64) -> Vec<(Mode, Aids, usize, u64)> {
    let sizes = [(small, share - share / 20 - share / 200), (200, share / 20), (1000, share / 200)];
    if aids == Equipment::Bare {
        let random = sizes.map(|(entries, count)| (Mode::Random, Aids::Nothing, entries, count));
        return [(Mode::EveryBit, Aids::Nothing, small, 0)].into_iter().chain(random).collect();
    }
    let kinds = [Aids::All, Aids::Prefixes, Aids::Index];
    let every = kinds.map(|aids| (Mode::EveryAidBit, aids, small, 0));
    let of = |aids| sizes.map(|(entries, count)| (Mode::Random, aids, entries, count / 3));
    every.into_iter().chain(kinds.into_iter().flat_map(of)).collect()
}

impl Stage {
    fn new(options: &Options, mode: Mode, shape: Shape, first: u64, count: u64) -> Result<Stage, Error> {
        let model = Model::new(shape);
        let table = model.table()?;
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
        #[expect(unsafe_code, reason = "opens the fault door")]
        let door = unsafe { Door::open(&table) }?;
        let mut map = Map::of(&door, &options.kinds);
        if mode == Mode::EveryAidBit {
            map = map.aids_only();
        }
        let excluded = door.excluded_bytes();
        drop(door);
        let count = if mode == Mode::Random { count } else { map.bits };
        Ok(Stage { mode, shape, model, map, first, count, excluded })
    }

    /// Runs fault `number` of the campaign.
    pub(crate) fn run(&self, number: u64) -> Result<(Area, Kind, Verdict), Error> {
        let index = number - self.first;
        let mut rng = Rng::new(self.shape.seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let frozen = if rng.below(2) == 0 { Frozen::Before } else { Frozen::After };
        match self.mode {
            Mode::EveryBit | Mode::EveryAidBit => {
                run_fault(&self.model, frozen, |door| (self.map.flip_nth(door, index), Kind::Flip))
            }
            Mode::Random => {
                let cell = (index % self.map.cells.len() as u64) as usize;
                run_fault(&self.model, frozen, |door| self.map.strike(door, cell, &mut rng))
            }
        }
    }

    /// What the table does undamaged.
    pub(crate) fn control(&self, frozen: Frozen) -> Result<Verdict, Error> {
        let nothing = (self.map.areas[0].0, Kind::Flip);
        run_fault(&self.model, frozen, |_| nothing).map(|(_, _, verdict)| verdict)
    }
}
