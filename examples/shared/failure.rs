//! Reasons for which an example stops: it cannot do its work, or it found a difference.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The reason for the end of a run.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The work cannot be done; the text says why. Exit code 2.
    Cannot(String),
    /// The table does not hold what was put into it. Exit code 1.
    Differs(String),
}

impl Failure {
    /// Makes the failure for a call of the table. Damage counts as a difference, any other error as
    /// work that cannot be done.
    pub(crate) fn of_table(what: impl fmt::Display, error: &paranoid_memtable::Error) -> Failure {
        let causes = std::iter::successors(error.source(), |&error| error.source());
        let text = causes.fold(format!("{what}: {error}"), |text, cause| {
            format!("{text}: {cause}")
        });
        if error.corruption().is_some() {
            Failure::Differs(text)
        } else {
            Failure::Cannot(text)
        }
    }

    /// Shows the failure to the user and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (what, text, code) = match self {
            Failure::Cannot(text) => ("error", text, 2),
            Failure::Differs(text) => ("DIFFERENCE", text, 1),
        };
        // If the device of standard error is full too, the exit code is the only message.
        let _ = writeln!(io::stderr(), "{what}: {text}");
        ExitCode::from(code)
    }
}
