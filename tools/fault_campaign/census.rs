//! The census: for each place of a fault, the share of each call's answers that are `Corruption`.

use std::collections::BTreeMap;

use crate::damage::census::Call;
use crate::driver::Tally;
use crate::output::{Unwritten, print};

/// Prints the census, in percent, and its sums.
pub(crate) fn print_table(
    areas: &BTreeMap<String, Tally>,
    all: &Tally,
    spread: u64,
) -> Result<(), Unwritten> {
    print("answers that are Corruption, in percent, by place of the fault and by call\n")?;
    print(format_args!("{:<26}{:>8}", "place", "faults"))?;
    for call in Call::ALL {
        print(format_args!("{:>11}", call.name()))?;
    }
    print("\n")?;
    for (area, tally) in areas {
        print_row(area, tally)?;
    }
    print_row("all", all)?;
    let (answers, corruption) = (all.census.answers(), all.census.corruption());
    print(format_args!(
        "{} faults, {answers} answers, {:.2} % of them Corruption; {spread} faults reached keys that are not near\n",
        all.faults(),
        100.0 * corruption as f64 / (answers as f64).max(1.0)
    ))
}

fn print_row(name: &str, tally: &Tally) -> Result<(), Unwritten> {
    print(format_args!("{name:<26}{:>8}", tally.faults()))?;
    for call in Call::ALL {
        match tally.census.share(call) {
            Some(share) => print(format_args!("{:>11.1}", 100.0 * share))?,
            None => print(format_args!("{:>11}", "-"))?,
        }
    }
    print("\n")
}
