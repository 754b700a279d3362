//! Reasons for which an example stops: it cannot do its work, or it found a difference.

use std::fmt;
use std::process::ExitCode;

use crate::output::{Unwritten, complain, with_causes};

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
        let text = format!("{what}: {}", with_causes(error));
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
        complain(format_args!("{what}: {text}"));
        ExitCode::from(code)
    }
}

impl From<Unwritten> for Failure {
    fn from(error: Unwritten) -> Failure {
        Failure::Cannot(error.to_string())
    }
}
