//! The rules that one file can break by itself. Every message names the place and what to write instead.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::is_for_tests;
use super::source::{Source, line_of, words};

/// The only files with unsafe code.
const UNSAFE_FILES: [&str; 4] = [
    "src/memtable/skiplist/arena.rs",
    "src/memtable/skiplist/node.rs",
    "src/prefetch.rs",
    "src/memtable/fault.rs",
];

/// The only file that may name raw atomics and locks.
const SEAM: &str = "src/sync.rs";

/// Longest file, in code lines without comments and test modules, and most lines of inline tests.
const CODE_LINES_MAX: usize = 500;
const TEST_LINES_MAX: usize = 80;

/// Orderings that need a note; a file with others than the first needs a row of its own in SAFETY.md.
const ORDERINGS: [&str; 4] = ["Relaxed", "Acquire", "Release", "AcqRel"];

/// Spelled in halves, so that a search for them does not find this file.
pub(crate) const COMMENT_MARKERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];
pub(crate) const MACRO_MARKERS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// The comments of a line and of the four lines above it. A block of comment lines counts as one line.
fn note(source: &Source, line: usize) -> String {
    let is_comment = |line: usize| source.code[line].trim().is_empty() && !source.comments[line].is_empty();
    let (mut text, mut at, mut left) = (source.comments[line].clone(), line, 4);
    while at > 1 && left > 0 {
        at -= 1;
        text = format!("{} {text}", source.comments[at]);
        left -= usize::from(!(is_comment(at) && is_comment(at - 1)));
    }
    text
}

/// Only the listed files, and the modules that they are in, may allow unsafe code. Each block names its invariant.
pub(crate) fn unsafe_code(source: &Source) -> Vec<String> {
    let (path, text) = (source.path.as_str(), source.text());
    let folder = path.strip_suffix("lib.rs").or(path.strip_suffix("mod.rs"));
    let is_above = folder.is_some_and(|folder| UNSAFE_FILES.iter().any(|file| file.starts_with(folder)));
    if !UNSAFE_FILES.contains(&path) {
        let allows = text.contains("expect(unsafe_code") || text.contains("allow(unsafe_code");
        let wrong = allows || !(is_above || text.contains("#![forbid(unsafe_code)]"));
        let advice =
            "write `#![forbid(unsafe_code)]` atop the file; unsafe code stays in arena.rs and node.rs";
        return wrong.then(|| format!("{path}:1: {advice}")).into_iter().collect();
    }
    let blocks = words(&text).filter(|(at, word)| {
        let rest = text[at + word.len()..].trim_start();
        *word == "unsafe" && (rest.starts_with('{') || rest.starts_with("impl"))
    });
    let bare = blocks.map(|(at, _)| line_of(&text, at)).filter(|line| {
        let note = note(source, *line);
        note.rsplit_once("SAFETY:").is_none_or(|(_, argument)| labels(argument).next().is_none())
    });
    let advice = "write `// SAFETY: ARENA-1: ..`, naming an invariant of a file's head";
    bare.map(|line| format!("{path}:{line}: {advice}")).collect()
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

/// Invariants have one name in the crate, and what a comment cites is defined in the head of a file.
pub(crate) fn invariants(sources: &[Source]) -> Vec<String> {
    let comments =
        || sources.iter().flat_map(|source| source.comments.iter().zip(0..).map(move |line| (source, line)));
    let (mut defined, mut findings) = (BTreeMap::new(), vec![]);
    for (Source { path, .. }, (comment, line)) in comments() {
        let head = comment.trim_start_matches(['!', '/', ' ']).strip_prefix("* ");
        let label = head.and_then(|text| text.split_once(':')).map(|(label, _)| label);
        let Some(label) = label.filter(|label| labels(label).next() == Some(label)) else { continue };
        if let Some(other) = defined.insert(label, path) {
            findings.push(format!("{path}:{line}: {label} is an invariant of {other}; name this one anew"));
        }
    }
    for (Source { path, .. }, (comment, line)) in comments() {
        let unknown = labels(comment).filter(|label| !defined.contains_key(label));
        findings
            .extend(unknown.map(|l| format!("{path}:{line}: {l} is not defined in the head of any file")));
    }
    findings
}

/// The fault injector exists only behind its feature. `text` is the file that declares the module.
pub(crate) fn fault_injector(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_open = |at: &usize| {
        let is_above = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
        let mut above = lines[..*at].iter().rev().take_while(is_above);
        let is_module = lines[*at].ends_with("mod fault;") || lines[*at].ends_with("mod fault {");
        is_module && !above.any(|line| line.starts_with("#[cfg(") && line.contains("\"fault-injection\""))
    };
    let advice = "write `#[cfg(feature = \"fault-injection\")]` above the module";
    (0..lines.len()).filter(is_open).map(|at| format!("{path}:{}: {advice}", at + 1)).collect()
}

/// Atomics and locks come from the seam.
pub(crate) fn seam(source: &Source) -> Vec<String> {
    let (mut findings, path, text) = (vec![], &source.path, source.text());
    for (at, word) in words(&text).filter(|_| path != SEAM) {
        let (before, rest) = (text[..at].trim_end_matches([' ', ':']), &text[at + word.len()..]);
        let is_use = ["use", "extern crate"].iter().any(|keyword| before.ends_with(keyword));
        let end = |c: char| if is_use { c == ';' } else { !c.is_alphanumeric() && c != ':' };
        let item = rest.split(end).next().unwrap_or_default();
        let is_raw = |(at, word): (usize, &str)| match word {
            "sync" => !item[at + word.len()..].starts_with("::") || item[at..].contains('*'),
            word => ["atomic", "Mutex", "RwLock", "Condvar"].contains(&word),
        };
        let is_raw = match word {
            "loom" | "parking_lot" => is_use || rest.starts_with("::"),
            "std" | "core" => item.contains("sync") && words(item).any(is_raw),
            _ => false,
        };
        if is_raw {
            let line = line_of(&text, at);
            findings.push(format!(
                "{path}:{line}: `{word}{item}`; use crate::sync, and extend it if something is missing"
            ));
        }
    }
    findings
}

/// Whether a line begins an atomic operation.
fn operates(code: &str) -> bool {
    let is_operation = |word: &str| {
        let plain = ["load", "store", "swap", "fence", "compiler_fence"].contains(&word);
        plain || word.starts_with("fetch_") || word.starts_with("compare_exchange")
    };
    words(code).any(|(at, word)| is_operation(word) && code[at + word.len()..].starts_with('('))
}

/// Every ordering has a note above its operation that says why it suffices; none is SeqCst.
pub(crate) fn orderings(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (line, code) in source.code.iter().enumerate() {
        // The arguments of a long call stand on lines of their own.
        let first = (line.saturating_sub(5)..=line).rev().find(|at| operates(&source.code[*at]));
        let has_note = || {
            let note = note(source, first.unwrap_or(line));
            note.rsplit_once("ORDERING:").is_some_and(|(_, reason)| reason.trim().len() >= 10)
        };
        let advice = if words(code).any(|(_, word)| word == "SeqCst") {
            "SeqCst; put both facts into one word changed by read-modify-write, or take a mutex"
        } else if code.contains("use ") && code.contains("sync::Ordering::") {
            "name orderings in full, as `Ordering::Acquire`"
        } else if ORDERINGS.iter().any(|name| code.contains(&format!("Ordering::{name}"))) && !has_note() {
            "without a note; write `// ORDERING: why it suffices, and its partner` above"
        } else {
            continue;
        };
        findings.push(format!("{}:{}: {advice}", source.path, first.unwrap_or(line)));
    }
    findings.dedup();
    findings
}

/// How the row begins that lists the files with Relaxed only.
const ONLY_RELAXED: &str = "| only Relaxed | ";

/// What SAFETY.md lacks of a file's orderings. Its row names each function with an Acquire or a Release, and ends with the
/// count of the Relaxed ones. A file with Relaxed only is listed with its count in the row for those instead. Models and
/// tests need no row for what they order.
pub(crate) fn ordering_row(source: &Source, safety: &str) -> Vec<String> {
    let (mut ordered, mut relaxed, mut function) = (BTreeSet::new(), 0, "?");
    let path = source.path.trim_start_matches("src/");
    for line in &source.code {
        let declared = line.split_once("fn ").and_then(|(_, name)| words(name).next());
        function = declared.map_or(function, |(_, name)| name);
        relaxed += line.matches("Ordering::Relaxed").count();
        let orders = ORDERINGS[1..].iter().any(|name| line.contains(&format!("Ordering::{name}")));
        ordered.extend((orders && !is_for_tests(path)).then_some(function));
    }
    if ordered.is_empty() && relaxed == 0 {
        return vec![];
    }
    let listed = format!("`{path}` {relaxed}");
    let only = safety.lines().filter_map(|line| line.strip_prefix(ONLY_RELAXED));
    let mut files = only.flat_map(|row| row.split([',', '|'])).map(str::trim);
    if ordered.is_empty() && files.any(|file| file == listed) {
        return vec![];
    }
    let begin = format!("| `{path}` | ");
    let row = safety.lines().find(|line| line.starts_with(&begin)).unwrap_or("");
    let missing = ordered.iter().filter(|name| !row.contains(&format!("{name}`")));
    let missing = missing.map(|name| format!("name `{name}` and its partner in the row {begin}.."));
    let counted = row.ends_with(&format!("| {relaxed} |"));
    let instead = if ordered.is_empty() {
        format!(", or write {listed} into the row {ONLY_RELAXED}..")
    } else {
        "".into()
    };
    let count = (!counted).then(|| format!("end the row {begin}.. with | {relaxed} |{instead}"));
    missing.chain(count).collect()
}

/// Nothing half done, nothing left over.
pub(crate) fn markers(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (line, (comment, code)) in source.comments.iter().zip(&source.code).enumerate() {
        let is_call = |at: usize, word: &str| code[at + word.len()..].starts_with('!');
        let calls = words(code).filter(|(at, word)| MACRO_MARKERS.contains(word) && is_call(*at, word));
        let left = words(comment).filter(|(_, word)| COMMENT_MARKERS.contains(word));
        let advice = "do it, or say in plain words what is not promised";
        let found = left.chain(calls);
        findings.extend(found.map(|(_, word)| format!("{}:{line}: {word}; {advice}", source.path)));
    }
    findings
}

/// Files stay short.
pub(crate) fn length(source: &Source) -> Vec<String> {
    let count = |tests| {
        let lines = source.code.iter().zip(&source.is_test);
        lines.filter(|(code, is_test)| **is_test == tests && !code.trim().is_empty()).count()
    };
    let advice = "move a leaf into a file of its own, or tests to tests/suite/";
    let limits = [(false, "code lines", CODE_LINES_MAX), (true, "lines of inline tests", TEST_LINES_MAX)];
    let over = limits.into_iter().filter(|(tests, _, limit)| count(*tests) > *limit);
    over.map(|(tests, of, limit)| {
        format!("{}:1: {} {of}, limit {limit}; {advice}", source.path, count(tests))
    })
    .collect()
}
