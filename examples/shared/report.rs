//! The lines of a report: on standard output, as wide as the terminal.

use std::fmt;

use console::Term;

use crate::failure::Failure;
use crate::output::print;

/// Narrowest column of text.
const ROOM_MIN: usize = 16;

/// Writes a text. If it is wider than the terminal, it continues on the next line.
pub(crate) fn say(text: impl fmt::Display) -> Result<(), Failure> {
    write("", "  ", &text.to_string())
}

/// Writes a text beside its name. If the text is wider than the terminal, it continues on the next
/// line, in the same column.
pub(crate) fn line(name: &str, text: impl fmt::Display) -> Result<(), Failure> {
    let head = format!("  {name:13} ");
    write(&head, &" ".repeat(head.len()), &text.to_string())
}

/// Writes a text in lines of the terminal's width (80 columns without a terminal). The first line
/// begins with `head`, the others with `margin`.
fn write(head: &str, margin: &str, text: &str) -> Result<(), Failure> {
    let columns = usize::from(Term::stdout().size().1);
    let (mut head, mut rest) = (head, text);
    loop {
        let part = &rest[..fitting(rest, columns.saturating_sub(head.len()).max(ROOM_MIN))];
        print(format_args!("{}\n", format!("{head}{part}").trim_end()))?;
        (head, rest) = (margin, rest[part.len()..].trim_start());
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Length in bytes of the first part of a text, which takes at most `room` columns. The part ends
/// after a clause if that is at least a third of the room; or else between words but not in a
/// number; or else after a part of a path; or else anywhere.
fn fitting(text: &str, room: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(room) else {
        return text.len();
    };
    let spaces = || {
        text.match_indices(' ')
            .map(|(at, _)| at)
            .filter(|at| (1..=end).contains(at))
    };
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let in_number =
        |at: usize| is_digit(text.as_bytes().get(at - 1)) && is_digit(text.as_bytes().get(at + 1));
    let clause = spaces().rfind(|at| at * 3 >= end && text[..*at].ends_with([',', ';', ':']));
    let word = || spaces().rfind(|at| !in_number(*at) && !text[..*at].ends_with(' '));
    let path = || text[..end].rfind('/').map(|at| at + 1);
    clause.or_else(word).or_else(path).unwrap_or(end)
}
