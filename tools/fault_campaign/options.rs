//! What the command line asks for.

use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};

use crate::damage::plan::Kind;

/// Damages every byte of a memtable, or loses a write to it, and checks what every public function answers.
#[derive(Debug, Parser)]
#[command(name = "fault_campaign")]
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
    /// Random faults in total; 1500000, with --short 10000
    #[arg(long)]
    faults: Option<u64>,
    /// Random faults that each region and kind of fault gets at least; 10000, with --short 0
    #[arg(long)]
    floor: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes at a time; one per core without this option
    #[arg(long)]
    workers: Option<usize>,
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

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) short: bool,
    pub(crate) protection: u8,
    pub(crate) on_seek: Vec<bool>,
    pub(crate) order_checks: bool,
    /// Tables without filters and directory, with them, or both.
    pub(crate) accelerators: Vec<bool>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) faults: u64,
    /// The least number of random faults that each region and kind of fault gets.
    pub(crate) floor: u64,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// Faults to run, in a worker.
    pub(crate) range: Option<(u64, u64)>,
    /// The command line, which is passed on to workers.
    pub(crate) words: Vec<String>,
}

impl Options {
    /// Reads the command line; help, and what is wrong with it, end the program.
    pub(crate) fn parse() -> Options {
        let given = Arguments::parse();
        let asked =
            |kind: &Kind| given.kinds.is_empty() || given.kinds.iter().any(|name| name == kind.name());
        Options {
            short: given.short,
            protection: given.protection,
            on_seek: if given.protection == 0 { Which::Off } else { given.on_seek }.each(),
            order_checks: given.order_checks == Which::On,
            accelerators: given.accelerators.each(),
            kinds: Kind::ALL.into_iter().filter(asked).collect(),
            faults: given.faults.unwrap_or(if given.short { 10_000 } else { 1_500_000 }),
            floor: given.floor.unwrap_or(if given.short { 0 } else { 10_000 }),
            seed: given.seed,
            workers: given
                .workers
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
                .max(1),
            range: given.run.as_deref().and_then(|run| Some((*run.first()?, *run.get(1)?))),
            words: std::env::args().skip(1).collect(),
        }
    }

    /// Entries of the table of which every bit is flipped.
    pub(crate) fn small(&self) -> usize {
        if self.short { 24 } else { 64 }
    }
}
