//! Imports go downward: the list is the fenced `layers` block of ARCHITECTURE.md.
//!
//! Code outside of tests names other files by paths that begin with `crate::`; such a path names its file.

use std::collections::BTreeSet;

use super::source::{Source, line_of, words};

/// One line of the list: a layer, and a file or a folder with a trailing slash.
pub(crate) type Room = (u8, String);

/// Modules of tests and models, in files or folders of these names.
const TESTS: [&str; 3] = ["tests", "models", "loom"];

/// Reads the block: a number, a path and what it is for, on each line.
pub(crate) fn rooms(architecture: &str) -> Result<Vec<Room>, String> {
    let block = architecture.split_once("```layers\n").and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.ok_or("ARCHITECTURE.md:1: add a fenced block that opens with ```layers")?;
    let room = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [layer, path, _, ..] => layer.parse().ok().map(|layer| (layer, path.to_string())),
        _ => None,
    };
    let lines = block.lines().filter(|line| !line.trim().is_empty());
    let wrong = |line| format!("ARCHITECTURE.md: write a layer line as `number path purpose`, not {line:?}");
    lines.map(|line| room(line).ok_or_else(|| wrong(line))).collect()
}

/// The list's line that decides about `path`: the longest that matches.
fn room_of<'r>(rooms: &'r [Room], path: &str) -> Option<(usize, &'r Room)> {
    let matches = |(_, room): &Room| room == path || (room.ends_with('/') && path.starts_with(room));
    rooms.iter().enumerate().filter(|(_, room)| matches(room)).max_by_key(|(_, room)| room.1.len())
}

/// Whether a file holds tests or models alone, by its name.
pub(crate) fn is_for_tests(path: &str) -> bool {
    path.split(['/', '.']).any(|part| TESTS.contains(&part))
}

/// Every import that does not go downward, every file without a line, and every line without a file.
pub(crate) fn check(rooms: &[Room], sources: &[Source]) -> Vec<String> {
    let files: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let gone = rooms.iter().filter(|(_, room)| !files.iter().any(|path| path.starts_with(room)));
    let gone = gone.map(|(_, room)| format!("ARCHITECTURE.md:1: there is no file `{room}`; remove its line"));
    let homeless = files.iter().filter(|path| room_of(rooms, path).is_none());
    let homeless = homeless.map(|path| format!("{path}:1: give the file a line in ARCHITECTURE.md's layers"));
    let imports = sources.iter().filter(|source| !is_for_tests(&source.path));
    let of_file = |source| imports_of(rooms, &files, source).into_iter().chain(guests_of(&files, source));
    gone.chain(homeless).chain(imports.flat_map(of_file)).collect()
}

/// Inherent methods of types of other rooms: no import would show who calls them.
fn guests_of(files: &BTreeSet<&str>, source: &Source) -> Vec<String> {
    let (path, text) = (&source.path, source.text());
    let room = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    let imports = |name: &str| {
        text.split("use crate::").skip(1).find_map(|rest| {
            let list = rest.split(';').next()?;
            words(list).any(|(_, word)| word == name).then(|| target(files, list))
        })
    };
    let guests = text.lines().zip(0..).filter_map(|(line, number)| {
        let after = line.strip_prefix("impl").filter(|_| !line.contains(" for "))?;
        let (_, of) = after.split_once(if after.starts_with('<') { "> " } else { " " })?;
        let (_, name) = words(of).next()?;
        let home = imports(name).filter(|home| room(home) != room(path))?;
        Some(format!("{path}:{number}: `{name}` has its methods in {home}; write functions that take one"))
    });
    guests.collect()
}

/// The imports of one file that do not go downward.
fn imports_of(rooms: &[Room], files: &BTreeSet<&str>, source: &Source) -> Vec<String> {
    let (mut findings, path, text) = (vec![], &source.path, source.text());
    for (at, word) in words(&text) {
        let (before, rest, line) = (&text[..at], &text[at + word.len()..], line_of(&text, at));
        let inside = rest.strip_prefix("::").filter(|_| !source.is_test[line] && !before.ends_with("(in "));
        let wrong = match (word, inside) {
            ("crate", Some(rest)) => judge(rooms, path, target(files, rest)),
            ("super" | "self", Some(rest)) if !path.ends_with("/mod.rs") => {
                let names_a_file = rest.trim_start_matches('{').starts_with(char::is_lowercase);
                names_a_file.then(|| "is relative; write the path from `crate::` on".into())
            }
            (name, None) if TESTS.contains(&name) && before.ends_with("mod ") && !source.is_test[line] => {
                Some("holds tests; write `#[cfg(test)]` above its `mod`".into())
            }
            _ => None,
        };
        let shown = rest.split([';', '\n']).next().unwrap_or_default();
        findings.extend(wrong.map(|wrong| format!("{path}:{line}: `{word}{shown}` {wrong}")));
    }
    findings
}

/// The file that the path after `crate::` leads to.
fn target<'f>(files: &BTreeSet<&'f str>, rest: &str) -> &'f str {
    let path = rest.split(|c: char| !c.is_alphanumeric() && !['_', ':'].contains(&c)).next();
    let segments: Vec<&str> = path.unwrap_or_default().split("::").filter(|step| !step.is_empty()).collect();
    let found = (1..=segments.len()).rev().find_map(|len| {
        let stem = format!("src/{}", segments[..len].join("/"));
        [".rs", "/mod.rs"].iter().find_map(|end| files.get(format!("{stem}{end}").as_str()))
    });
    found.copied().unwrap_or("src/lib.rs")
}

/// Why `from` may not import `to`, with what to do instead.
fn judge(rooms: &[Room], from: &str, to: &str) -> Option<String> {
    let folder = from.strip_suffix("mod.rs");
    if from == to || folder.is_some_and(|folder| to.starts_with(folder)) {
        return None;
    }
    let ((from_line, from_room), (to_line, to_room)) = (room_of(rooms, from)?, room_of(rooms, to)?);
    let (low, high) = (to_room.0, from_room.0);
    if to == "src/lib.rs" || (to.ends_with("/mod.rs") && to_room.1 != to) {
        return Some(format!("goes through the facade {to}; import from the file that defines it"));
    }
    if low > high {
        return Some(format!(
            "goes up from layer {high} to {low} ({to}); move the shared part down, or hand it in from above"
        ));
    }
    let in_order = to_room.1 == to && from_room.1 == from && to_line < from_line;
    (low == high && !in_order).then(|| {
        format!("stays in layer {high}; list `{to}` and below it `{from}` in ARCHITECTURE.md, or move the shared part down")
    })
}
