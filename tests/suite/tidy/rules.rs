//! The rules that one file can break by itself. Every message names the place and what to write instead.

use super::layers::{module_path, paths};
use super::lexer::{Ground, Source};

/// The only files with unsafe code.
pub(crate) const UNSAFE_FILES: [&str; 4] = [
    "src/memtable/skiplist/arena.rs",
    "src/memtable/skiplist/node.rs",
    "src/prefetch.rs",
    "src/memtable/lifecycle/fault.rs",
];

/// The only file that may name raw atomics and locks.
const SEAM: &str = "src/sync.rs";

/// Longest file, in code lines without comments and test modules.
const CODE_LINES_MAX: usize = 450;

/// Files that may be longer: path, limit, reason.
const LONGER: [(&str, usize, &str); 0] = [];

/// How many lines above a site its note may stand. A block of comment lines counts as one.
const NOTE_DISTANCE: usize = 4;

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

const RAW: [&[&str]; 8] = [
    &["std", "sync", "atomic"],
    &["core", "sync", "atomic"],
    &["std", "sync", "Mutex"],
    &["std", "sync", "RwLock"],
    &["std", "sync", "Condvar"],
    &["std", "sync", "*"],
    &["loom"],
    &["parking_lot"],
];

/// Spelled in halves, so that a search for them does not find this file.
pub(crate) const COMMENT_MARKERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];
pub(crate) const MACRO_MARKERS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// The comments from `line` upward: its own, and those of the `distance` lines or comment blocks above.
fn note(source: &Source, line: usize, distance: usize) -> String {
    let has_code = |line: usize| source.tokens.iter().any(|t| t.line == line);
    let mut text = source.comments[line].clone();
    let (mut at, mut left) = (line, distance);
    while at > 1 && left > 0 {
        at -= 1;
        text = format!("{} {text}", source.comments[at]);
        let goes_on = !source.comments[at].is_empty() && !has_code(at);
        let block_above = goes_on && at > 1 && !source.comments[at - 1].is_empty() && !has_code(at - 1);
        if !block_above {
            left -= 1;
        }
    }
    text
}

/// Unsafe code only where it is listed, each block with the invariant it rests on.
pub(crate) fn unsafe_code(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    let path = source.path.as_str();
    let listed = UNSAFE_FILES.contains(&path);
    let attribute = |level: &str| {
        (0..source.tokens.len()).any(|i| source.matches(i, &["#", "!", "[", level, "(", "unsafe_code"]))
    };
    if listed && !attribute("expect") {
        findings.push(format!("{path}:1: write `#![expect(unsafe_code, reason = \"..\")]` atop the file"));
    }
    let module = module_path(path);
    let is_ancestor = UNSAFE_FILES.iter().any(|file| module_path(file).starts_with(&module) && *file != path);
    if !listed && !is_ancestor && !attribute("forbid") {
        findings.push(format!("{path}:1: write `#![forbid(unsafe_code)]` atop the file"));
    }
    for (index, token) in source.tokens.iter().enumerate().filter(|(_, t)| t.text == "unsafe") {
        if !listed {
            let line = token.line;
            findings.push(format!("{path}:{line}: unsafe code; ask arena.rs or node.rs for a safe function"));
            continue;
        }
        let text = note(source, token.line, NOTE_DISTANCE);
        let proves = matches!(source.text(index + 1), "{" | "impl");
        if proves && !names_invariant(&text) {
            findings.push(format!(
                "{path}:{}: write `// SAFETY: ARENA-1: ..`, naming an invariant of a file's head",
                token.line
            ));
        }
    }
    findings
}

/// Words such as ARENA-1 or WRITER-SHARDS-12.
fn labels(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| {
        let Some((name, number)) = word.rsplit_once('-') else { return false };
        let digits = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
        digits && name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains(char::is_lowercase)
    })
}

/// Whether the text after `SAFETY:` names an invariant.
fn names_invariant(text: &str) -> bool {
    text.rsplit_once("SAFETY:").is_some_and(|(_, argument)| labels(argument).next().is_some())
}

/// Invariants have one name in the crate, and what a comment cites is defined in the head of a file.
pub(crate) fn invariants(sources: &[Source]) -> Vec<String> {
    let mut defined: Vec<(&str, &str, usize)> = vec![];
    let lines = |source: &Source| (0..source.comments.len()).collect::<Vec<_>>();
    for source in sources {
        for line in lines(source) {
            let head = source.comments[line].trim_start_matches(['!', '/', ' ']).strip_prefix("* ");
            let Some((label, _)) = head.and_then(|text| text.split_once(':')) else { continue };
            if labels(label).next() == Some(label) {
                defined.push((label, &source.path, line));
            }
        }
    }
    let mut findings = vec![];
    for (index, (label, path, line)) in defined.iter().enumerate() {
        if let Some((_, other, at)) = defined[..index].iter().find(|(known, ..)| known == label) {
            findings
                .push(format!("{path}:{line}: {label} is an invariant of {other}:{at}; name this one anew"));
        }
    }
    for source in sources {
        for line in lines(source) {
            let cited = labels(&source.comments[line]);
            let unknown = cited.filter(|label| defined.iter().all(|(known, ..)| known != label));
            findings.extend(unknown.map(|label| {
                format!("{}:{line}: {label} is not defined in the head of any file", source.path)
            }));
        }
    }
    findings
}

/// The fault injector exists only behind its feature. `text` is the file that declares the module.
pub(crate) fn fault_injector(path: &str, text: &str) -> Vec<String> {
    let mut attributes = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.ends_with("mod fault;") && !attributes.contains("feature = \"fault-injection\"") {
            return vec![format!(
                "{path}:{}: write `#[cfg(feature = \"fault-injection\")]` above `mod fault;`",
                index + 1
            )];
        }
        match line.starts_with("#[") || line.starts_with("//") {
            true => attributes.push_str(line),
            false => attributes.clear(),
        }
    }
    vec![]
}

/// Atomics and locks come from the seam.
pub(crate) fn seam(source: &Source) -> Vec<String> {
    if source.path == SEAM {
        return vec![];
    }
    let raw = |segments: &[String]| {
        let bare = segments == ["std", "sync"] || segments == ["core", "sync"];
        bare || RAW
            .iter()
            .any(|raw| segments.len() >= raw.len() && segments.iter().zip(*raw).all(|(a, b)| a == b))
    };
    paths(source)
        .iter()
        .filter(|named| raw(&named.segments))
        .map(|named| {
            let (path, line, name) = (&source.path, named.line, named.segments.join("::"));
            format!("{path}:{line}: `{name}`; use crate::sync, and extend it if something is missing")
        })
        .collect()
}

/// Every atomic operation says why its ordering suffices; none is SeqCst.
pub(crate) fn orderings(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    let mut explained_until = 0;
    for (index, token) in source.tokens.iter().enumerate() {
        let (path, line, name) = (&source.path, token.line, token.text.as_str());
        if name == "SeqCst" {
            findings.push(format!(
                "{path}:{line}: SeqCst; put both facts into one word changed by read-modify-write, or take a mutex"
            ));
        }
        let operates = ["load", "store", "swap", "fence", "compiler_fence"].contains(&name)
            || name.starts_with("fetch_")
            || name.starts_with("compare_exchange");
        let end = match operates && source.text(index + 1) == "(" {
            true => source.behind_bracket(index + 1),
            false => index + 1,
        };
        let names_ordering = (index..end).any(|i| ORDERINGS.contains(&source.text(i)));
        if !names_ordering || index < explained_until || imported(source, index) {
            continue;
        }
        explained_until = end;
        let text = note(source, line, NOTE_DISTANCE);
        let reason = text.rsplit_once("ORDERING:").map_or("", |(_, reason)| reason.trim());
        if reason.len() < 10 {
            findings.push(format!(
                "{path}:{line}: `{name}` without a note; write `// ORDERING: why it suffices, and its partner` above"
            ));
        }
    }
    findings
}

/// Whether the token stands in a `use` item.
fn imported(source: &Source, index: usize) -> bool {
    (0..index).rev().map(|i| source.text(i)).find(|text| matches!(*text, "use" | ";" | "(" | ")" | "="))
        == Some("use")
}

/// Nothing half done, nothing left over.
pub(crate) fn markers(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (line, comment) in source.comments.iter().enumerate() {
        for word in comment.split(|c: char| !c.is_alphanumeric()) {
            if COMMENT_MARKERS.contains(&word) {
                let path = &source.path;
                findings.push(format!(
                    "{path}:{line}: {word}; do it, or say in plain words what is not promised"
                ));
            }
        }
    }
    for (index, token) in source.tokens.iter().enumerate() {
        let left_over = MACRO_MARKERS.contains(&token.text.as_str());
        if left_over && source.text(index + 1) == "!" {
            let (path, line, name) = (&source.path, token.line, &token.text);
            findings
                .push(format!("{path}:{line}: {name}!; write the code, or return an error that names it"));
        }
    }
    findings
}

/// Files stay short.
pub(crate) fn length(source: &Source) -> Vec<String> {
    let path = &source.path;
    let limit =
        LONGER.iter().find(|(long, _, _)| long == path).map_or(CODE_LINES_MAX, |(_, limit, _)| *limit);
    let lines = source.code_lines();
    let inline_tests = source.tokens.iter().filter(|t| t.ground == Ground::Test).map(|t| t.line);
    let mut test_lines: Vec<usize> = inline_tests.collect();
    test_lines.dedup();
    let mut findings = vec![];
    if lines > limit {
        findings
            .push(format!("{path}:1: {lines} code lines, limit {limit}; move a leaf into a file of its own"));
    }
    if test_lines.len() > 80 {
        findings.push(format!(
            "{path}:{}: {} lines of inline tests, limit 80; move them to tests/suite/",
            test_lines[0],
            test_lines.len()
        ));
    }
    findings
}

/// How the rows of SAFETY.md begin that a file must have: one for each function with an Acquire or a Release, and the
/// count of the Relaxed ones. Models and tests need none for what they order.
pub(crate) fn ordering_rows(path: &str, text: &str) -> Vec<String> {
    let (mut rows, mut relaxed, mut function) = (vec![], 0, "?");
    let tried = ["tests", "models", "loom"].iter().any(|name| path.contains(name));
    for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
        if let Some((_, name)) = line.split_once("fn ") {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            function = &name[..end];
        }
        relaxed += line.matches("Ordering::Relaxed").count();
        let orders =
            ["Acquire", "Release", "AcqRel"].iter().any(|name| line.contains(&format!("Ordering::{name}")));
        if orders && !tried {
            rows.push(format!("| `{path}` `{function}` | "));
        }
    }
    if relaxed > 0 {
        rows.push(format!("| `{path}` | {relaxed} |"));
    }
    rows
}
