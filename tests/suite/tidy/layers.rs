//! Imports go downward: a file may import those that come before it. Each file lists its modules bottom-up, from src/lib.rs on, and comes
//! after them.
//!
//! Code outside of tests names other files by paths that begin with `crate::`; such a path names its file.

use std::collections::BTreeSet;

use super::source::{Source, line_of, words};

/// Modules of tests and models, in files or folders of these names.
const TESTS: [&str; 3] = ["tests", "models", "loom"];

/// Whether a file holds tests or models alone, by its name.
pub(crate) fn is_for_tests(path: &str) -> bool {
    path.split(['/', '.']).any(|part| TESTS.contains(&part))
}

/// The files below this one, bottom-up, and the file itself.
fn order_from<'s>(sources: &'s [Source], path: &str, order: &mut Vec<&'s str>) {
    let Some(source) = sources.iter().find(|source| source.path == path) else { return };
    let folder = ["/mod.rs", "/lib.rs", ".rs"].iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
    for line in source.text().lines() {
        let module = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
        if let Some((_, module)) = module.filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
        {
            order_from(sources, &format!("{folder}/{module}.rs"), order);
            order_from(sources, &format!("{folder}/{module}/mod.rs"), order);
        }
    }
    order.push(&source.path);
}

/// Every import that does not go downward, and every file that no other one lists.
pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let files: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let mut order = vec![];
    order_from(sources, "src/lib.rs", &mut order);
    let of_file = |source: &Source| match order.contains(&source.path.as_str()) {
        true => [imports_of(&order, &files, source), guests_of(&files, source)].concat(),
        false => vec![format!("{}:1: no file has a `mod` line for this one", source.path)],
    };
    sources.iter().filter(|source| !is_for_tests(&source.path)).flat_map(of_file).collect()
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
fn imports_of(order: &[&str], files: &BTreeSet<&str>, source: &Source) -> Vec<String> {
    let (mut findings, path, text) = (vec![], &source.path, source.text());
    for (at, word) in words(&text) {
        let (before, rest, line) = (&text[..at], &text[at + word.len()..], line_of(&text, at));
        let inside = rest.strip_prefix("::").filter(|_| !source.is_test[line] && !before.ends_with("(in "));
        let wrong = match (word, inside) {
            ("crate", Some(rest)) => judge(order, path, target(files, rest)),
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
fn judge(order: &[&str], from: &str, to: &str) -> Option<String> {
    let folder = from.strip_suffix("mod.rs");
    if from == to || from == "src/lib.rs" || folder.is_some_and(|folder| to.starts_with(folder)) {
        return None;
    }
    if to == "src/lib.rs" || to.ends_with("/mod.rs") {
        return Some(format!("goes through the facade {to}; import from the file that defines it"));
    }
    let place = |path: &str| order.iter().position(|listed| *listed == path);
    (place(to) >= place(from)).then(|| {
        format!("goes up to {to}; move the shared part down, hand it in from above, or list that module before this one")
    })
}
