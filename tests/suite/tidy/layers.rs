//! Imports go downward: the list is the fenced `layers` block of ARCHITECTURE.md.

use std::collections::BTreeMap;

use super::source::{Source, line_of, words};

/// One line of the list: a layer, and a file or a folder with a trailing slash.
pub(crate) type Room = (u8, String);

/// Reads the block: a number, a path and what it is for, on each line.
pub(crate) fn rooms(architecture: &str) -> Result<Vec<Room>, String> {
    let block = architecture.split_once("```layers\n").and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.ok_or("ARCHITECTURE.md:1: add a fenced block that opens with ```layers")?;
    let room = |line: &str| {
        let mut parts = line.split_whitespace();
        let layer = parts.next().and_then(|word| word.parse().ok());
        let (Some(layer), Some(path), Some(_)) = (layer, parts.next(), parts.next()) else {
            return Err(format!(
                "ARCHITECTURE.md: write a layer line as `number path purpose`, not {line:?}"
            ));
        };
        Ok((layer, path.to_string()))
    };
    block.lines().filter(|line| !line.trim().is_empty()).map(room).collect()
}

/// The paths and use trees of a file that begin with one of `roots`, groups taken apart, with their lines.
pub(crate) fn paths(source: &Source, roots: &[&str]) -> Vec<(Vec<String>, usize)> {
    let text = source.text();
    let mut found = vec![];
    for (at, word) in words(&text).filter(|(_, word)| roots.contains(word)) {
        let before = text[..at].trim_end();
        let goes_on =
            before.strip_suffix("::").is_some_and(|b| b.ends_with(|c: char| c.is_alphanumeric() || c == '>'));
        let is_path =
            text[at + word.len()..].starts_with("::") || ["use", "crate"].iter().any(|w| before.ends_with(w));
        if is_path && !goes_on && !before.ends_with("(in") {
            let mut tree = vec![];
            walk(&text[at..], &[], &mut tree);
            found.extend(tree.into_iter().map(|segments| (segments, line_of(&text, at))));
        }
    }
    found
}

/// Takes the use tree at the start of `text` apart; returns its length.
fn walk(text: &str, prefix: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let (mut path, mut at) = (prefix.to_vec(), 0);
    loop {
        let len =
            words(&text[at..]).next().filter(|(start, _)| *start == 0).map_or(1, |(_, word)| word.len());
        path.push(text[at..at + len].into());
        at += len;
        match text[at..].strip_prefix("::").and_then(|rest| rest.chars().next()) {
            Some('{') => break,
            Some(c) if c.is_alphabetic() || matches!(c, '_' | '*') => at += 2,
            _ => {
                out.push(path);
                return at;
            }
        }
    }
    at += 3;
    while let Some(c) = text[at..].chars().next().filter(|c| *c != '}') {
        let is_name = c.is_alphabetic() || matches!(c, '_' | '*');
        at += if is_name { walk(&text[at..], &path, out) } else { c.len_utf8() };
        if let Some(rest) = text[at..].strip_prefix(" as ") {
            at += 4 + words(rest).next().map_or(0, |(_, name)| name.len());
        }
    }
    at + 1
}

/// The module path of a file in src/.
pub(crate) fn module_path(path: &str) -> Vec<String> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut segments: Vec<String> = inner.split('/').map(String::from).collect();
    segments.pop_if(|last| *last == "mod" || *last == "lib");
    segments
}

/// The list's line that decides about `path`: the longest that matches.
fn room_of<'r>(rooms: &'r [Room], path: &str) -> Option<(usize, &'r Room)> {
    let matches = |(_, room): &Room| room == path || (room.ends_with('/') && path.starts_with(room));
    rooms.iter().enumerate().filter(|(_, room)| matches(room)).max_by_key(|(_, room)| room.1.len())
}

/// Whether the file is a test module, or below one.
fn is_test(source: &Source, sources: &[Source]) -> bool {
    let module = module_path(&source.path);
    sources.iter().any(|parent| {
        let declaring = module_path(&parent.path);
        let next = module.get(declaring.len());
        module.starts_with(&declaring) && next.is_some_and(|name| parent.test_files.contains(name))
    })
}

/// Every import that does not go downward, every file without a line, and every line without a file.
pub(crate) fn check(rooms: &[Room], sources: &[Source]) -> Vec<String> {
    let mut findings = vec![];
    for (_, room) in rooms.iter().filter(|(_, room)| !sources.iter().any(|s| s.path.starts_with(room))) {
        findings.push(format!("ARCHITECTURE.md:1: there is no file `{room}`; remove its line"));
    }
    let files: BTreeMap<Vec<String>, &str> =
        sources.iter().map(|source| (module_path(&source.path), source.path.as_str())).collect();
    for source in sources {
        if room_of(rooms, &source.path).is_none() {
            findings.push(format!("{}:1: give the file a line in ARCHITECTURE.md's layers", source.path));
        }
        let named =
            if is_test(source, sources) { vec![] } else { paths(source, &["crate", "super", "self"]) };
        for (segments, line) in named.into_iter().filter(|(_, line)| !source.is_test[*line]) {
            let to = resolve(source, &segments, line, &files);
            if let Some(wrong) = to.and_then(|to| judge(rooms, &source.path, to)) {
                findings.push(format!("{}:{line}: `{}` {wrong}", source.path, segments.join("::")));
            }
        }
    }
    findings
}

/// The file that a path leads to, if it is one of ours.
fn resolve<'f>(
    source: &Source,
    segments: &[String],
    line: usize,
    files: &BTreeMap<Vec<String>, &'f str>,
) -> Option<&'f str> {
    let mut module = module_path(&source.path);
    let margin = source.code[..line].iter().rev().find(|text| text.starts_with('}') || text.contains("mod "));
    if source.code[line].starts_with(' ')
        && margin.is_some_and(|text| text.ends_with('{') && !text.starts_with(' '))
    {
        module.push("inline".into());
    }
    let mut rest = segments;
    while let [step, after @ ..] = rest {
        match step.as_str() {
            "crate" => module.clear(),
            "super" => drop(module.pop()),
            "self" => {}
            _ => break,
        }
        rest = after;
    }
    module.extend(rest.iter().cloned());
    (0..=module.len()).rev().find_map(|len| files.get(&module[..len]).copied())
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
