//! Damages every byte of a memtable, or loses a write to it, and checks the answers of every public
//! function.
//!
//! ```text
//!   cargo run --release --features fault-injection --example fault_campaign -- --help
//! ```
//! Faults are numbered. Worker processes run ranges of them and report each one. A crash, or 30
//! seconds without a report, counts for the fault that was run, and another worker continues after
//! it. A failure is printed with the command that runs the fault again. Exit code 0: nothing went
//! wrong; 1: something did; 2: the campaign cannot be run.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "an example that cannot continue panics"
)]

#[path = "../../examples/shared/arguments.rs"]
mod arguments;
mod notes;
mod driver;
mod bits;
mod census;
mod crowd;
mod set_bits;
#[path = "../../examples/shared/output.rs"]
mod output;
mod stretches;
#[path = "../../tests/support/damage/mod.rs"]
mod damage;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Parser, ValueEnum};
use paranoid_memtable::fault::FaultInjector;
use paranoid_memtable::{DuplicatePolicy, Error};

use arguments::arguments;
use damage::model::{Accelerators, Keys, Model, Shape, Size};
use damage::plan::{Area, Kind, Map, Rng};
use damage::stretch::{Outcome, each_stretch};
use damage::trial::Verdict;
use damage::{Case, Frozen, History, run_case};
use output::{complain, with_causes};

fn main() -> ExitCode {
    sigpipe::reset();
    run(&Options::parse()).unwrap_or_else(|error| {
        complain(format_args!("fault_campaign: {}", with_causes(&*error)));
        ExitCode::from(2)
    })
}

fn run(options: &Options) -> driver::Anything<ExitCode> {
    if let Some((from, to)) = options.range {
        driver::work(options, from, to)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = driver::campaign(options)?;
    report.print(options)?;
    Ok(ExitCode::from(u8::from(!report.acceptable(options))))
}

// The command line and its options.

/// Most faults of a campaign.
const FAULTS_MAX: u64 = 1 << 32;

/// Damages every byte of a memtable, or loses a write to it, and checks the answers of every public
/// function.
#[derive(Debug, Parser)]
#[command(
    name = "fault_campaign",
    after_help = "Exit code: 0 nothing went wrong; 1 something did; 2 the campaign cannot be run"
)]
struct Arguments {
    /// A table of 24 entries, some minutes at most
    #[arg(long)]
    short: bool,
    /// Protection bytes: 0, 1, 2, 4 or 8
    #[arg(long, default_value_t = 8)]
    protection: u8,
    /// Checksums on seek; off at protection 0
    #[arg(long, default_value = "both")]
    on_seek: Which,
    /// Order checks; both is off
    #[arg(long, default_value = "off")]
    order_checks: Which,
    /// Filters, or a directory
    #[arg(long, default_value = "both")]
    accelerators: Which,
    /// Kinds of random faults; all without this option
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::name)))]
    kinds: Vec<String>,
    /// Only stretches of 8 to 4 096 bytes that are overwritten, cleared, filled or copied, in
    /// tables of 64 KiB to 64 MiB with filters
    #[arg(long)]
    stretches: bool,
    /// Only single bits: every bit of small and full tables of many shapes is flipped in turn, and
    /// the answers of each call are counted
    #[arg(long, conflicts_with = "stretches")]
    bits: bool,
    /// With `--bits`: one of so many bits, chosen by the seed; 1, with --short 100
    #[arg(long, requires = "bits", value_parser = clap::value_parser!(u64).range(1..=FAULTS_MAX))]
    sample: Option<u64>,
    /// Only tables of which six bits flip before two readers and two writers use them at once: so
    /// many tables
    #[arg(long, value_name = "TABLES", conflicts_with_all = ["stretches", "bits"],
        value_parser = clap::value_parser!(u64).range(1..=FAULTS_MAX))]
    crowds: Option<u64>,
    /// Random faults in total; 1500000, with --short 10000, with --stretches 300000
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=FAULTS_MAX))]
    faults: Option<u64>,
    /// Random faults that each region and kind of fault gets at least; 10000, with --short 0
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=FAULTS_MAX))]
    floor: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes at a time; one per core without this option
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    workers: Option<usize>,
    /// Notes each result in this file. A campaign that ended early, run again by the same program
    /// with the same options, continues from its notes
    #[arg(long)]
    notes: Option<PathBuf>,
    /// Runs only the faults from the first number up to the second one, in this process
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"])]
    run: Option<Vec<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Off,
    On,
    Both,
}

impl Which {
    fn each(self) -> Vec<bool> {
        match self {
            Which::Off => vec![false],
            Which::On => vec![true],
            Which::Both => vec![false, true],
        }
    }
}

/// The stages that are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Only {
    /// All but single bits and crowds.
    Usual,
    Stretches,
    /// Every bit of many tables, or one of so many.
    Bits {
        sample: u64,
    },
    /// So many tables under several threads.
    Crowds {
        tables: u64,
    },
}

impl Only {
    /// Whether the answers of each call are counted and printed.
    fn counts_answers(self) -> bool {
        matches!(self, Only::Bits { .. } | Only::Crowds { .. })
    }
}

#[derive(Debug, Clone)]
struct Options {
    short: bool,
    only: Only,
    protection: u8,
    on_seek: Vec<bool>,
    order_checks: bool,
    /// Tables without filters and directory, with them, or both.
    accelerators: Vec<bool>,
    kinds: Vec<Kind>,
    faults: u64,
    /// The least number of random faults that each region and kind of fault gets.
    floor: u64,
    seed: u64,
    workers: usize,
    /// Where results are noted.
    notes: Option<PathBuf>,
    /// Faults to run, in a worker.
    range: Option<(u64, u64)>,
    /// The command line, which is passed on to workers.
    words: Vec<String>,
}

impl Options {
    /// Reads the command line; help, and an error in it, end the program.
    fn parse() -> Options {
        let given: Arguments = arguments();
        let asked = |kind: &Kind| {
            given.kinds.is_empty() || given.kinds.iter().any(|name| name == kind.name())
        };
        Options {
            short: given.short,
            only: match (given.stretches, given.bits, given.crowds) {
                (true, ..) => Only::Stretches,
                (_, true, _) => Only::Bits {
                    sample: given
                        .sample
                        .unwrap_or(if given.short { bits::SHORT } else { 1 }),
                },
                (.., Some(tables)) => Only::Crowds { tables },
                (false, false, None) => Only::Usual,
            },
            protection: given.protection,
            on_seek: if given.protection == 0 {
                Which::Off
            } else {
                given.on_seek
            }
            .each(),
            order_checks: given.order_checks == Which::On,
            accelerators: given.accelerators.each(),
            kinds: Kind::ALL.into_iter().filter(asked).collect(),
            faults: given
                .faults
                .unwrap_or(match (given.stretches, given.short) {
                    (true, false) => stretches::LONG,
                    (false, false) => 1_500_000,
                    (_, true) => 10_000,
                }),
            floor: given.floor.unwrap_or(if given.short { 0 } else { 10_000 }),
            seed: given.seed,
            workers: given
                .workers
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
                .max(1),
            notes: given.notes,
            range: given
                .run
                .as_deref()
                .and_then(|run| Some((*run.first()?, *run.get(1)?))),
            words: std::env::args().skip(1).collect(),
        }
    }

    /// Entries of the table of which every bit is flipped.
    fn small(&self) -> usize {
        if self.short { 24 } else { 64 }
    }
}

// The faults of a campaign, numbered.
//
// ```text
//   checksum_on_seek off: every bit of a young and of the small table, mutable or frozen | random: young, small, 200 and
//                         1000 entries (four chunks), small with overwritten entries, and small with order checks
//     with accelerators:          every bit of filters and index, all of them and one at a time | random: as above
//   checksum_on_seek on:  the same; bits that went to the mutable table go to the frozen one (the short form: other bits)
//   stretches:            8 to 4096 bytes at once, in tables of 64 KiB to 64 MiB with filters
//   fewer bytes:          some random faults of tables with 0, 1, 2 and 4 protection bytes: no crash, no hang
//   top up:               the small table once more, for regions and kinds that have had too few random faults
//
//   --bits:               every bit of tables of many shapes
//   --crowds:             six bits of a table, then two readers and two writers at once
// ```

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    EveryBit,
    /// Every bit of filters and index.
    EveryAcceleratorBit,
    /// One bit of each run of `Plan::count` bits.
    SomeBits,
    Random,
    Stretches,
    /// The same of a set's tables.
    SetBits,
    /// Several bits, then several threads.
    Crowd,
}

/// Whether tables have filters and an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Equipment {
    Bare,
    Accelerators,
}

/// Faults on one table.
#[derive(Debug)]
struct Stage {
    mode: Mode,
    shape: Shape,
    /// Whether the table is frozen before the damage or after it.
    frozen: Frozen,
    model: Model,
    map: Map,
    /// Number of the first fault, and count of faults.
    first: u64,
    count: u64,
    /// For bits that are flipped in turn: the distance between two of them, and the first one.
    stride: (u64, u64),
    /// Bytes of the table's own struct, which faults do not hit.
    excluded: usize,
}

/// A table, and the number of random faults that are planned for it.
#[derive(Debug, Clone, Copy)]
struct Plan {
    mode: Mode,
    accelerators: Accelerators,
    keys: Keys,
    entries: usize,
    size: Size,
    duplicates: DuplicatePolicy,
    protection: u8,
    order_checks: bool,
    count: u64,
}

impl Plan {
    /// A table of the smallest size without filters and directory.
    fn small(options: &Options, mode: Mode) -> Plan {
        Plan {
            mode,
            accelerators: Accelerators::Nothing,
            keys: Keys::Numbered,
            entries: options.small(),
            size: Size::SMALL,
            duplicates: DuplicatePolicy::Reject,
            protection: options.protection,
            order_checks: options.order_checks,
            count: 0,
        }
    }
}

/// The circumstances of a plan.
#[derive(Debug, Clone, Copy)]
struct Setting {
    on_seek: bool,
    frozen: Frozen,
}

/// Number of entries of a young table.
const YOUNG: usize = 5;

/// Every stage of the campaign.
fn stages(options: &Options) -> Result<Vec<Stage>, Error> {
    let (mut stages, plans) = match options.only {
        Only::Usual => (all_but_stretches(options)?, stretches::plans(options)),
        Only::Stretches => (Vec::new(), stretches::plans(options)),
        Only::Bits { .. } => (bits::stages(options)?, Vec::new()),
        Only::Crowds { tables } => (crowd::stages(options, tables)?, Vec::new()),
    };
    let mut first = 0;
    for stage in &mut stages {
        stage.first = first;
        first += stage.count;
    }
    for (plan, setting) in plans {
        // A worker makes only the tables that it damages.
        let after = first + plan.count;
        if options
            .range
            .is_none_or(|(from, to)| from < after && first < to)
        {
            stages.push(Stage {
                first,
                ..Stage::new(options, plan, setting)?
            });
        }
        first = after;
    }
    Ok(stages)
}

/// Stages of all kinds of faults, in tables of the smallest size.
fn all_but_stretches(options: &Options) -> Result<Vec<Stage>, Error> {
    let mut stages: Vec<Stage> = Vec::new();
    let share = options.faults / (options.on_seek.len() * options.accelerators.len()) as u64;
    for on_seek in &options.on_seek {
        for accelerators in &options.accelerators {
            let equipment = if *accelerators {
                Equipment::Accelerators
            } else {
                Equipment::Bare
            };
            let mut plans = plans(options, equipment, share);
            if !on_seek && !accelerators {
                plans.extend(fewer_bytes(options, share / 100));
            }
            for plan in plans {
                for frozen in [Frozen::After, Frozen::Before] {
                    stages.push(Stage::new(
                        options,
                        plan,
                        Setting {
                            on_seek: *on_seek,
                            frozen,
                        },
                    )?);
                }
            }
        }
    }
    top_up(options, &mut stages)?;
    Ok(stages)
}

/// Faults with or without filters and index.
fn plans(options: &Options, equipment: Equipment, share: u64) -> Vec<Plan> {
    let small = options.small();
    let plan = |mode, accelerators, entries, count| Plan {
        accelerators,
        entries,
        count,
        ..Plan::small(options, mode)
    };
    let (replaced, checked) = (share / 10, share / 10);
    let some = [(YOUNG, share / 20), (200, share / 50), (1000, share / 500)];
    let rest = share - replaced - checked - some.iter().map(|(_, count)| count).sum::<u64>();
    let (mode, bits, kinds) = match equipment {
        Equipment::Bare => (
            Mode::EveryBit,
            vec![YOUNG, small],
            vec![Accelerators::Nothing],
        ),
        Equipment::Accelerators => (
            Mode::EveryAcceleratorBit,
            vec![small],
            vec![
                Accelerators::Filters,
                Accelerators::Prefixes,
                Accelerators::Directory,
                Accelerators::Growing,
            ],
        ),
    };
    let each = kinds.len() as u64;
    let mut plans = Vec::new();
    for accelerators in kinds {
        plans.extend(
            bits.iter()
                .map(|entries| plan(mode, accelerators, *entries, 0)),
        );
        let random = some.into_iter().chain([(small, rest)]);
        plans.extend(
            random.map(|(entries, count)| plan(Mode::Random, accelerators, entries, count / each)),
        );
        let random = |count| plan(Mode::Random, accelerators, small, count / each);
        plans.push(Plan {
            duplicates: DuplicatePolicy::Replace,
            ..random(replaced)
        });
        plans.push(Plan {
            order_checks: true,
            ..random(checked)
        });
    }
    plans
}

/// Faults in tables with fewer protection bytes than the campaign.
fn fewer_bytes(options: &Options, count: u64) -> Vec<Plan> {
    let small = Plan {
        count,
        ..Plan::small(options, Mode::Random)
    };
    let widths = [0, 1, 2, 4]
        .into_iter()
        .filter(|width| *width < options.protection && options.protection == 8);
    widths
        .map(|protection| Plan {
            protection,
            ..small
        })
        .collect()
}

/// Number of random faults of each kind in the stages, for each area.
fn planned(options: &Options, stages: &[Stage]) -> BTreeMap<(Area, Kind), u64> {
    let mut had: BTreeMap<(Area, Kind), u64> = BTreeMap::new();
    let full =
        |stage: &&Stage| stage.mode == Mode::Random && stage.shape.protection == options.protection;
    for stage in stages.iter().filter(full) {
        let cells = stage.map.cells.len() as u64;
        for (cell, (area, kind)) in (0..cells).zip(&stage.map.cells) {
            let more = (stage.count + cells - 1 - cell) / cells;
            *had.entry((stage.map.areas[*area].0, *kind)).or_default() += more;
        }
    }
    had
}

/// Adds stages for the regions and kinds with fewer random faults than the options request.
fn top_up(options: &Options, stages: &mut Vec<Stage>) -> Result<(), Error> {
    let accelerators = if options.accelerators.contains(&true) {
        Accelerators::Filters
    } else {
        Accelerators::Nothing
    };
    let plan = Plan {
        accelerators,
        ..Plan::small(options, Mode::Random)
    };
    let mut missing: BTreeMap<(Area, Kind), u64> = planned(options, stages)
        .into_iter()
        .filter(|(_, had)| *had < options.floor)
        .map(|(cell, had)| (cell, options.floor - had))
        .collect();
    let mut tables = Vec::new();
    for on_seek in &options.on_seek {
        for frozen in [Frozen::After, Frozen::Before] {
            tables.push(Stage::new(
                options,
                plan,
                Setting {
                    on_seek: *on_seek,
                    frozen,
                },
            )?);
        }
    }
    // Missing faults of a region are divided equally among the tables that have it.
    let cell_of = |stage: &Stage, cell: &(usize, Kind)| (stage.map.areas[cell.0].0, cell.1);
    for (cell, lacking) in &mut missing {
        let has = |stage: &&Stage| {
            stage
                .map
                .cells
                .iter()
                .any(|known| cell_of(stage, known) == *cell)
        };
        *lacking = lacking.div_ceil(tables.iter().filter(has).count().max(1) as u64);
    }
    for mut stage in tables {
        let turns = |cell: &(usize, Kind)| {
            missing
                .get(&cell_of(&stage, cell))
                .map_or(0, |n| n.div_ceil(TURN))
        };
        let cells: Vec<(usize, Kind)> = stage
            .map
            .cells
            .iter()
            .flat_map(|cell| std::iter::repeat_n(*cell, turns(cell) as usize))
            .collect();
        stage.count = cells.len() as u64 * TURN;
        stage.map.cells = cells;
        if stage.count > 0 {
            stages.push(stage);
        }
    }
    Ok(())
}

/// The least number of faults of a region and kind in a stage with order checks.
const CHECKED: u64 = 3;

/// Faults that are added to a region and kind in one stage.
const TURN: u64 = 50;

/// The distance between two flipped bits, and the first one. Every bit is flipped once with
/// `checksum_on_seek` off and once with it on. With one setting half of the bits are flipped in the
/// mutable table and half in the frozen one; with the other setting the halves are exchanged. In
/// the short form every bit is flipped once.
fn stride(options: &Options, Setting { on_seek, frozen }: Setting) -> (u64, u64) {
    let frozen = u64::from(frozen == Frozen::Before);
    if options.short && options.on_seek.len() > 1 {
        (4, 2 * u64::from(on_seek) + frozen)
    } else {
        (2, frozen ^ u64::from(on_seek))
    }
}

impl Stage {
    fn new(options: &Options, plan: Plan, setting: Setting) -> Result<Stage, Error> {
        let Setting { on_seek, frozen } = setting;
        let shape = Shape {
            protection: plan.protection,
            on_seek,
            order_checks: plan.order_checks,
            duplicates: plan.duplicates,
            accelerators: plan.accelerators,
            keys: plan.keys,
            entries: plan.entries,
            size: plan.size,
            seed: options.seed,
        };
        let model = match plan.mode {
            Mode::SetBits => Model::new(shape).numbered(),
            _ => Model::new(shape),
        };
        let table = model.table()?;
        if frozen == Frozen::Before {
            table.freeze()?;
        }
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from it.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let injector = unsafe { FaultInjector::open(&table) }?;
        let kinds = if plan.mode == Mode::Stretches {
            &Kind::STRETCHES
        } else {
            &*options.kinds
        };
        let mut map = Map::of(&injector, kinds);
        if plan.mode == Mode::EveryAcceleratorBit {
            map = map.accelerators_only();
        }
        let excluded = injector.excluded_bytes();
        drop(injector);
        let stride = stride(options, setting);
        let turns = (map.bits - stride.1).div_ceil(stride.0);
        // With order checks each region and kind gets its faults, also in the short form.
        let least = if plan.order_checks {
            map.cells.len() as u64 * CHECKED
        } else {
            0
        };
        let count = match plan.mode {
            Mode::Random => (plan.count / 2).max(least),
            Mode::Stretches | Mode::Crowd => plan.count,
            Mode::EveryBit | Mode::EveryAcceleratorBit => turns,
            Mode::SomeBits => map.bits.div_ceil(plan.count),
            Mode::SetBits => set_bits::bits(&model)? / plan.count,
        };
        let stride = if matches!(plan.mode, Mode::SomeBits | Mode::SetBits) {
            (plan.count, 0)
        } else {
            stride
        };
        Ok(Stage {
            mode: plan.mode,
            shape,
            frozen,
            model,
            map,
            first: 0,
            count,
            stride,
            excluded,
        })
    }

    /// Runs fault `number` of the campaign.
    fn run(&self, number: u64) -> Result<(Area, Kind, Verdict), Error> {
        let index = number - self.first;
        let mut rng = Rng::new(self.shape.seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let case = Case {
            frozen: self.frozen,
            history: History::Forgotten,
            turn: number,
        };
        match self.mode {
            Mode::Stretches => unreachable!("run by ranges"),
            Mode::Crowd => crowd::run(&self.model, number, &mut rng),
            Mode::SetBits => {
                let bit = index * self.stride.0 + rng.next() % self.stride.0;
                let (area, kind, verdict) = set_bits::run(&self.model, number, Some(bit))?;
                Ok((area.unwrap_or(self.map.areas[0].0), kind, verdict))
            }
            Mode::EveryBit | Mode::EveryAcceleratorBit | Mode::SomeBits => {
                let (distance, first) = self.stride;
                let ahead = if self.mode == Mode::SomeBits {
                    rng.next() % distance
                } else {
                    first
                };
                let bit = (index * distance + ahead).min(self.map.bits - 1);
                run_case(&self.model, case, |injector, _| {
                    (self.map.flip_nth(injector, bit), Kind::Flip)
                })
                .map(|(area, kind, verdict)| (area, kind, verdict.of_bit((bit % 8) as u8)))
            }
            Mode::Random => {
                let cells = self.map.cells.len() as u64;
                let (cell, turn) = ((index % cells) as usize, index / cells);
                let stale = self.map.cells[cell].1.is_stale();
                let history = if stale {
                    History::Noted
                } else {
                    History::Forgotten
                };
                run_case(
                    &self.model,
                    Case {
                        history,
                        turn,
                        ..case
                    },
                    |injector, past| self.map.strike(injector, past, cell, &mut rng),
                )
            }
        }
    }

    /// Runs the faults of a range of a stage of stretches.
    fn run_stretches(
        &self,
        numbers: Range<u64>,
        report: impl FnMut(u64, Outcome),
    ) -> Result<(), Error> {
        each_stretch(&self.model, self.frozen, numbers, report)
    }

    /// The verdict on the undamaged table.
    fn control(&self) -> Result<Verdict, Error> {
        if self.mode == Mode::SetBits {
            return set_bits::run(&self.model, self.first, None).map(|(_, _, verdict)| verdict);
        }
        let nothing = (self.map.areas[0].0, Kind::Flip);
        let history = if self.mode == Mode::Stretches {
            History::Forgotten
        } else {
            History::Noted
        };
        let case = Case {
            frozen: self.frozen,
            history,
            turn: self.first,
        };
        run_case(&self.model, case, |_, _| nothing).map(|(_, _, verdict)| verdict)
    }
}
