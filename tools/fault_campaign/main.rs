//! Damages every byte of a memtable, or loses a write to it, and checks what every public function answers.
//!
//! ```text
//!   cargo run --release --features fault-injection --example fault_campaign -- --help
//! ```
//! Faults are numbered. Worker processes run ranges of them and report each one; a crash, or 30 seconds without a
//! report, is counted for the fault that was being run, and another worker goes on after it. What went wrong is printed
//! with the command that runs that fault again.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "an example that cannot go on panics"
)]

mod driver;
mod options;
mod report;
mod stages;

#[path = "../../tests/support/damage/mod.rs"]
mod damage;
use std::process::ExitCode;

fn main() -> ExitCode {
    sigpipe::reset();
    let options = options::Options::parse();
    if let Some((from, to)) = options.range {
        driver::work(&options, from, to);
        return ExitCode::SUCCESS;
    }
    let report = driver::campaign(&options);
    report.print(&options);
    if report.acceptable(&options) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
