//! The arguments of a program. What is wrong with them is one line on standard error.

use std::io::{self, Write};
use std::process;

use clap::Parser;

use crate::output::complain;

/// The arguments of this program. After `--help`, or if they are wrong, the program ends: with exit
/// code 0 if the help was printed, and otherwise with 2.
pub(crate) fn arguments<A: Parser>() -> A {
    A::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() {
            // Usage and hints follow after an empty line.
            let text = error.render().to_string();
            let words = text.split("\n\n").take(1).flat_map(str::split_whitespace);
            complain(words.collect::<Vec<_>>().join(" "));
            process::exit(2);
        }
        if let Err(error) = error.print().and_then(|()| io::stdout().flush()) {
            complain(format_args!("error: writing the report: {error}"));
            process::exit(2);
        }
        process::exit(0)
    })
}
