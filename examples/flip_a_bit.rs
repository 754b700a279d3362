//! Flips one bit of a small table, which costs no answer, and then two bits of one entry of another
//! table, and shows the effect of each on every call.
//!
//! ```text
//!   cargo run --release --features fault-injection --example flip_a_bit -- [REGION [BIT]]
//!   cargo run --release --features fault-injection --example flip_a_bit -- --help
//! ```
#![allow(clippy::unwrap_used, reason = "an example that cannot continue panics")]

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use paranoid_memtable::fault::{FaultInjector, Region};
use paranoid_memtable::{Error, Lookup, MemTable, MemTableOptions};

#[path = "shared/arguments.rs"]
mod arguments;
#[path = "shared/failure.rs"]
mod failure;
#[path = "shared/output.rs"]
mod output;
#[path = "shared/report.rs"]
mod report;

use arguments::arguments;
use failure::Failure;
use report::{line, say};

const KEYS: [(&str, &str); 5] = [
    ("apple", "red"),
    ("banana", "yellow"),
    ("cherry", "dark red"),
    ("damson", "blue"),
    ("elder", "black"),
];
const VICTIM: &str = "cherry";

/// Flips one bit of a small table, then two bits of another one, and shows what every call returns
#[derive(Debug, Parser)]
#[command(
    name = "flip_a_bit",
    after_help = "Exit code: 0 done; 2 it cannot be done"
)]
struct Arguments {
    /// Which bytes of the entry are damaged
    #[arg(value_enum, default_value = "value")]
    region: Bytes,
    /// Which bit of them
    #[arg(default_value_t = 3)]
    bit: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bytes {
    Header,
    Key,
    Value,
    Digests,
    Link,
    Backlink,
}

impl Bytes {
    fn region(self) -> Region {
        match self {
            Bytes::Header => Region::Header,
            Bytes::Key => Region::Key,
            Bytes::Value => Region::Value,
            Bytes::Digests => Region::Digests,
            Bytes::Link => Region::Link,
            Bytes::Backlink => Region::BackLink,
        }
    }
}

/// Looks up every key, present or not, and shows the answers.
fn ask(table: &MemTable) -> Result<(), Failure> {
    for key in [
        "apple", "apricot", "banana", "berry", "cherry", "citron", "damson", "date", "elder",
    ] {
        match table.get(key.as_bytes(), u64::MAX) {
            Ok(Lookup::Value(value)) => line(key, value.escape_ascii())?,
            Ok(Lookup::NotFound) => line(key, "not found")?,
            Ok(other) => line(key, format!("{other:?}"))?,
            Err(error) => line(key, error)?,
        }
    }
    Ok(())
}

/// Makes a table of all keys.
fn fill() -> Result<MemTable, Error> {
    let table = MemTable::new(MemTableOptions::builder().seed(1).build()?)?;
    for (sequence, (key, value)) in (1..).zip(KEYS) {
        table.put(sequence, key.as_bytes(), value.as_bytes())?;
    }
    Ok(table)
}

/// Flips bits of the victim. `None`: it has no such bytes.
fn flip<'t>(
    table: &'t MemTable,
    region: Region,
    bits: &[usize],
) -> Result<Option<FaultInjector<'t>>, Failure> {
    // SAFETY: this thread alone uses the table, and nothing borrowed from it is held.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let mut injector: FaultInjector<'_> = unsafe { FaultInjector::open(table) }
        .map_err(|error| Failure::of_table("opening the fault injector", &error))?;
    let piece = injector.pieces().iter().position(|piece| {
        piece.region == region
            && piece
                .owner
                .as_ref()
                .is_some_and(|owner| &*owner.key == VICTIM.as_bytes())
    });
    let Some(piece) = piece else {
        say(format!("{VICTIM} has no such bytes"))?;
        return Ok(None);
    };
    let before = injector.bytes(piece);
    let all = before.len() * 8;
    for bit in bits {
        if *bit >= all {
            let text = format!(
                "there is no bit {bit}: the {region:?} has bits 0 to {}",
                all - 1
            );
            return Err(Failure::Cannot(text));
        }
        injector.flip(piece, *bit);
    }
    let text = match bits {
        [bit] => format!("bit {bit} of the {region:?} of \"{VICTIM}\" flips"),
        bits => format!("bits {bits:?} of the {region:?} of \"{VICTIM}\" flip at once"),
    };
    say(format!("\nNow {text}:"))?;
    line("before", format!("{before:02x?}"))?;
    line("after", format!("{:02x?}", injector.bytes(piece)))?;
    Ok(Some(injector))
}

fn filled() -> Result<MemTable, Failure> {
    fill().map_err(|error| Failure::of_table("filling the table", &error))
}

/// Shows the effect of one flipped bit, and of two.
fn tell(region: Region, bit: usize) -> Result<(), Failure> {
    let table = filled()?;
    say(format!(
        "A table of {} fruits. Every key answers:",
        KEYS.len()
    ))?;
    ask(&table)?;
    if flip(&table, region, &[bit])?.is_none() {
        return Ok(());
    }
    say("\nEvery key answers all the same:")?;
    ask(&table)?;
    scan(&table)?;
    let healed = table.healed();
    say(if healed.is_empty() {
        "\nThe table had to put nothing right."
    } else {
        "\nThe table has put right, and tells:"
    })?;
    for healed in healed {
        let bit = healed.bit.map_or("?".into(), |bit| bit.to_string());
        line(
            &format!("{:?}", healed.place),
            format!("bit {bit} of the byte at {:#x}", healed.address),
        )?;
    }
    let table = filled()?;
    // Another bit, of the same byte or of the first one.
    let Some(mut injector) = flip(&table, region, &[bit, bit ^ 1])? else {
        return Ok(());
    };
    say("\nEvery key answers, or says that it cannot know:")?;
    ask(&table)?;
    find(&table)?;
    injector.undo();
    say(format!(
        "\nWith both bits flipped back, the scrub finds {} things.",
        table.scrub(|_| {}).findings.len()
    ))
}

/// Walks the whole table.
fn scan(table: &MemTable) -> Result<(), Failure> {
    say("\nA scan shows:")?;
    for entry in table.range(..) {
        match entry.and_then(|entry| {
            Ok((
                entry.user_key().escape_ascii().to_string(),
                entry.value()?.len(),
            ))
        }) {
            Ok((key, len)) => line(&key, format!("{len} bytes of value"))?,
            Err(error) => line("", error)?,
        }
    }
    Ok(())
}

/// Walks the damaged table, scrubs it, freezes it and salvages its entries.
fn find(table: &MemTable) -> Result<(), Failure> {
    scan(table)?;
    say("\nA scrub finds:")?;
    for finding in table.scrub(|_| {}).findings {
        line("", finding)?;
    }
    let frozen = table
        .freeze()
        .map_err(|error| Failure::of_table("freeze", &error))?;
    let salvage = frozen.salvage();
    say(format!(
        "\nA salvage brings back {} of {} entries:",
        salvage.entries.len(),
        KEYS.len()
    ))?;
    for salvaged in &salvage.entries {
        line(&salvaged.entry.user_key().escape_ascii().to_string(), "")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    sigpipe::reset();
    let Arguments { region, bit } = arguments();
    match tell(region.region(), bit) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
