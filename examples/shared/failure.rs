//! Why an example stops: it cannot do its work, or it found a difference.

use std::fmt;
use std::process::ExitCode;

/// What ended the run.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The work cannot be done; the text says why. Exit code 2.
    Cannot(String),
    /// The table does not hold what was put into it. Exit code 1.
    Differs(String),
}

impl Failure {
    /// The failure for a call of the table: damage counts as a difference, any other error as work that cannot be
    /// done.
    pub(crate) fn of_table(what: impl fmt::Display, error: &paranoid_memtable::Error) -> Failure {
        let text = format!("{what}: {error}");
        if error.corruption().is_some() { Failure::Differs(text) } else { Failure::Cannot(text) }
    }

    /// Shows the failure to the user and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Cannot(text) => {
                eprintln!("error: {text}");
                ExitCode::from(2)
            }
            Failure::Differs(text) => {
                eprintln!("DIFFERENCE: {text}");
                ExitCode::from(1)
            }
        }
    }
}
