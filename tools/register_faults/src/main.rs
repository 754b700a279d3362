//! `register_faults OPERATION..` injects faults of a processor into operations of a table and
//! prints a row for each.
#![forbid(unsafe_code)]

#[path = "../../../examples/shared/arguments.rs"]
mod arguments;
#[path = "../../../examples/shared/output.rs"]
mod output;
mod subject;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use register_faults::Faults;

use crate::arguments::arguments;
use crate::output::{complain, print, with_causes};
use crate::subject::Operation;

/// Flips one bit of a register or a flag at one instruction of one operation, and counts the
/// results
#[derive(Debug, Parser)]
#[command(after_help = "Exit code: 0 done; 2 it cannot be done")]
struct Arguments {
    /// Operations (all, if none is named).
    operations: Vec<String>,
    /// Faults an operation.
    #[arg(long, default_value_t = 1000)]
    trials: usize,
    /// Faults in one table; the next table has other keys.
    #[arg(long, default_value_t = 100)]
    trials_a_table: usize,
    /// Seed of the first table.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeats this trial of the first table alone.
    #[arg(long)]
    only: Option<usize>,
    /// Which faults.
    #[arg(long, value_enum, default_value_t = Faults::Moves)]
    faults: Faults,
    /// Subjects at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Another program that is a subject, such as one that has RocksDB's table.
    #[arg(long)]
    program: Option<PathBuf>,
}

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&arguments()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("register_faults: {}", with_causes(&*error)));
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error + Send + Sync>> {
    // The tracer starts this program with these arguments, as the subject.
    if let [subject, operation, seed] = &arguments.operations[..]
        && subject == "subject"
    {
        subject::run(Operation::from_str(operation, false)?, seed.parse()?)?.exit();
    }
    campaign(arguments)
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn campaign(_: &Arguments) -> Result<(), Box<dyn Error + Send + Sync>> {
    Err("registers are damaged through ptrace, which is written for Linux on x86-64 alone".into())
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn campaign(arguments: &Arguments) -> Result<(), Box<dyn Error + Send + Sync>> {
    use register_faults::report::{Campaign, Outcome, run};

    let all = || {
        Operation::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
    };
    let operations = match &arguments.operations[..] {
        [] => all()
            .map(|operation| operation.get_name().to_string())
            .collect(),
        named => named.to_vec(),
    };
    print(format_args!("{}\n", Outcome::heading()))?;
    let mut silent = Vec::new();
    for operation in operations {
        let campaign = Campaign {
            program: arguments
                .program
                .clone()
                .map_or_else(std::env::current_exe, Ok)?,
            arguments: vec!["subject".into()],
            operation: operation.clone(),
            faults: arguments.faults,
            trials: arguments.trials,
            trials_a_table: arguments.trials_a_table,
            seed: arguments.seed,
            jobs: arguments.jobs,
            only: arguments.only,
        };
        let outcome = run(&campaign)?;
        print(format_args!("{}\n", outcome.row(&operation)))?;
        silent.extend(outcome.silent);
    }
    silent.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    print("\n")?;
    for (line, (count, repeat)) in silent {
        print(format_args!("{count:5} {line} [{repeat}]\n"))?;
    }
    Ok(())
}
