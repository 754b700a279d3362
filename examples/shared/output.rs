//! The output of a program: results on standard output, and the reason of a failure in one line on
//! standard error. On a full device `println!` and `eprintln!` would panic.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

/// Standard output did not take a text.
#[derive(Debug)]
pub(crate) struct Unwritten(io::Error);

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writing the report: {}", self.0)
    }
}

impl Error for Unwritten {}

/// Writes a text to standard output as it is. The text has arrived when the call returns.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(Unwritten)
}

/// Writes a line to standard error. If that device is full too, the exit code is the only message.
pub(crate) fn complain(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The text of an error and of its causes.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
