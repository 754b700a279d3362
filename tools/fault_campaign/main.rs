//! Damages every byte of a memtable, or loses a write to it, and looks at what every public function answers.
//!
//! ```text
//!   cargo run --release --features fault-injection --example fault_campaign -- [OPTIONS]
//!     --short                 a table of 24 entries, a minute at most
//!     --protection N          0, 1, 2, 4 or 8 (default 8)
//!     --on-seek WHICH         off, on or both (default both; off at protection 0)
//!     --order-checks WHICH    off or on (default off)
//!     --representation NAME   skiplist (default) or vector
//!     --accelerators WHICH            filters and point index: off, on or both (default both; off with vector)
//!     --kinds LIST            flip,burst,noise,zero,swap-links,swap-entries,copy,zero-line,stale-word,stale-line,
//!                             copy-control,swap-control,two-places,stale-and-another (default all) for random faults
//!     --faults N              random faults in total (default 1500000; 10000 with --short)
//!     --floor N               random faults that each region and kind of fault gets at least (default 10000; 0 with --short)
//!     --seed N                default 1
//!     --workers N             processes at a time (default: the machine's cores)
//! ```
//! Faults are numbered. Worker processes run ranges of them and report each one; a crash, or 30 seconds without a
//! report, costs the fault that was being run, and another worker goes on after it. What went wrong is printed with the
//! command that runs that fault again.
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
    let options = match options::Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("fault_campaign: {message}");
            return ExitCode::from(2);
        }
    };
    if let Some((from, to)) = options.range {
        driver::work(&options, from, to);
        return ExitCode::SUCCESS;
    }
    let report = driver::campaign(&options);
    report.print(&options);
    if report.acceptable(&options) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
