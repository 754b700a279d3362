//! What the command line asks for.

use paranoid_memtable::Representation;

use crate::damage::plan::Kind;

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) short: bool,
    pub(crate) protection: u8,
    pub(crate) on_seek: Vec<bool>,
    pub(crate) order_checks: bool,
    pub(crate) representation: Representation,
    /// Tables without filters and index, with them, or both.
    pub(crate) accelerators: Vec<bool>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) faults: u64,
    /// Random faults that each region and kind of fault gets at least.
    pub(crate) floor: u64,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    /// Faults to run, in a worker.
    pub(crate) range: Option<(u64, u64)>,
    /// The command line as it was, for workers.
    pub(crate) words: Vec<String>,
}

impl Options {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Options, String> {
        let words: Vec<String> = words.collect();
        let short = words.iter().any(|word| word == "--short");
        let mut options = Options {
            short,
            protection: 8,
            on_seek: vec![false, true],
            order_checks: false,
            representation: Representation::SkipList,
            accelerators: vec![false, true],
            kinds: Kind::ALL.to_vec(),
            faults: if short { 10_000 } else { 1_500_000 },
            floor: if short { 0 } else { 10_000 },
            seed: 1,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            range: None,
            words: words.clone(),
        };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value = || rest.next().map(String::as_str).ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--short" => {}
                "--protection" => options.protection = number(value()?)? as u8,
                "--on-seek" => options.on_seek = which(value()?)?,
                "--order-checks" => options.order_checks = which(value()?)? == [true],
                "--representation" => options.representation = representation(value()?)?,
                "--accelerators" => options.accelerators = which(value()?)?,
                "--kinds" => options.kinds = value()?.split(',').map(kind).collect::<Result<_, _>>()?,
                "--faults" => options.faults = number(value()?)?,
                "--floor" => options.floor = number(value()?)?,
                "--seed" => options.seed = number(value()?)?,
                "--workers" => options.workers = number(value()?)?.max(1) as usize,
                "--run" => options.range = Some((number(value()?)?, number(value()?)?)),
                other => return Err(format!("unknown option {other}")),
            }
        }
        if options.protection == 0 {
            options.on_seek = vec![false];
        }
        if options.representation == Representation::Vector {
            options.accelerators = vec![false];
        }
        Ok(options)
    }

    /// Entries of the table of which every bit is flipped.
    pub(crate) fn small(&self) -> usize {
        if self.short { 24 } else { 64 }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn which(text: &str) -> Result<Vec<bool>, String> {
    match text {
        "off" => Ok(vec![false]),
        "on" => Ok(vec![true]),
        "both" => Ok(vec![false, true]),
        other => Err(format!("{other} is not off, on or both")),
    }
}

fn representation(text: &str) -> Result<Representation, String> {
    match text {
        "skiplist" => Ok(Representation::SkipList),
        "vector" => Ok(Representation::Vector),
        other => Err(format!("{other} is not skiplist or vector")),
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or(format!("{text} is not a kind of fault"))
}
