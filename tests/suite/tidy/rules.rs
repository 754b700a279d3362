//! The rules that one file can break by itself. Every message names the place and what to write instead.

use super::layers::{module_path, paths};
use super::source::{Source, line_of, words};

/// The only files with unsafe code.
const UNSAFE_FILES: [&str; 4] = [
    "src/memtable/skiplist/arena.rs",
    "src/memtable/skiplist/node.rs",
    "src/prefetch.rs",
    "src/memtable/lifecycle/fault.rs",
];

/// The only file that may name raw atomics and locks.
const SEAM: &str = "src/sync.rs";

/// Longest file, in code lines without comments and test modules, and most lines of inline tests.
const CODE_LINES_MAX: usize = 450;
const TEST_LINES_MAX: usize = 80;

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

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

/// Unsafe code only where it is listed, each block with the invariant it rests on.
pub(crate) fn unsafe_code(source: &Source) -> Vec<String> {
    let (mut findings, path, text) = (vec![], source.path.as_str(), source.text());
    let listed = UNSAFE_FILES.contains(&path);
    let module = module_path(path);
    let is_ancestor = UNSAFE_FILES.iter().any(|file| module_path(file).starts_with(&module) && *file != path);
    if listed && !text.contains("#![expect(unsafe_code") {
        findings.push(format!("{path}:1: write `#![expect(unsafe_code, reason = \"..\")]` atop the file"));
    }
    if !listed && !is_ancestor && !text.contains("#![forbid(unsafe_code)]") {
        findings.push(format!("{path}:1: write `#![forbid(unsafe_code)]` atop the file"));
    }
    for (at, _) in words(&text).filter(|(_, word)| *word == "unsafe") {
        let (line, rest) = (line_of(&text, at), text[at + "unsafe".len()..].trim_start());
        let proves = rest.starts_with('{') || rest.starts_with("impl");
        if !listed {
            findings.push(format!("{path}:{line}: unsafe code; ask arena.rs or node.rs for a safe function"));
        } else if proves && !names_invariant(&note(source, line)) {
            findings.push(format!(
                "{path}:{line}: write `// SAFETY: ARENA-1: ..`, naming an invariant of a file's head"
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
    let comments =
        || sources.iter().flat_map(|source| source.comments.iter().zip(0..).map(move |line| (source, line)));
    let (mut defined, mut findings) = (std::collections::BTreeMap::new(), vec![]);
    for (source, (comment, line)) in comments() {
        let head = comment.trim_start_matches(['!', '/', ' ']).strip_prefix("* ");
        let label = head.and_then(|text| text.split_once(':')).map(|(label, _)| label);
        let Some(label) = label.filter(|label| labels(label).next() == Some(label)) else { continue };
        if let Some(other) = defined.insert(label, &source.path) {
            findings.push(format!(
                "{}:{line}: {label} is an invariant of {other}; name this one anew",
                source.path
            ));
        }
    }
    for (source, (comment, line)) in comments() {
        let unknown = labels(comment).filter(|label| !defined.contains_key(label));
        findings.extend(
            unknown.map(|l| format!("{}:{line}: {l} is not defined in the head of any file", source.path)),
        );
    }
    findings
}

/// The fault injector exists only behind its feature. `text` is the file that declares the module.
pub(crate) fn fault_injector(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_open = |at: &usize| {
        let above =
            lines[..*at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        lines[*at].ends_with("mod fault;")
            && !above.copied().any(|line| line.contains("feature = \"fault-injection\""))
    };
    let finding =
        |at| format!("{path}:{}: write `#[cfg(feature = \"fault-injection\")]` above `mod fault;`", at + 1);
    (0..lines.len()).filter(is_open).map(finding).collect()
}

/// Atomics and locks come from the seam.
pub(crate) fn seam(source: &Source) -> Vec<String> {
    let raw = |segments: &[String]| {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["std" | "core", "sync"] | ["loom" | "parking_lot", ..] => true,
            ["std" | "core", "sync", what, ..] => {
                ["atomic", "Mutex", "RwLock", "Condvar", "*"].contains(&what)
            }
            _ => false,
        }
    };
    let named =
        if source.path == SEAM { vec![] } else { paths(source, &["std", "core", "loom", "parking_lot"]) };
    let finding = |(name, line): &(Vec<String>, usize)| {
        format!(
            "{}:{line}: `{}`; use crate::sync, and extend it if something is missing",
            source.path,
            name.join("::")
        )
    };
    named.iter().filter(|(segments, _)| raw(segments)).map(finding).collect()
}

/// Every atomic operation says why its ordering suffices; none is SeqCst.
pub(crate) fn orderings(source: &Source) -> Vec<String> {
    let (mut findings, mut explained_until, path, text) = (vec![], 0, &source.path, source.text());
    for (at, name) in words(&text) {
        if name == "SeqCst" {
            let line = line_of(&text, at);
            findings.push(format!(
                "{path}:{line}: SeqCst; put both facts into one word changed by read-modify-write, or take a mutex"
            ));
        }
        let operates = ["load", "store", "swap", "fence", "compiler_fence"].contains(&name)
            || name.starts_with("fetch_")
            || name.starts_with("compare_exchange");
        let mut end = at + name.len();
        if operates && text[end..].starts_with('(') {
            let mut depth = 0;
            let closes = |c: char| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            };
            end += text[end..].find(closes).unwrap_or(0);
        }
        let in_use = || {
            text[..at]
                .rsplit([';', '(', ')', '='])
                .next()
                .is_some_and(|item| words(item).any(|w| w.1 == "use"))
        };
        let orders = words(&text[at..end]).any(|(_, word)| ORDERINGS.contains(&word));
        if !orders || at < explained_until || in_use() {
            continue;
        }
        explained_until = end;
        let line = line_of(&text, at);
        let note = note(source, line);
        if note.rsplit_once("ORDERING:").is_none_or(|(_, reason)| reason.trim().len() < 10) {
            findings.push(format!(
                "{path}:{line}: `{name}` without a note; write `// ORDERING: why it suffices, and its partner` above"
            ));
        }
    }
    findings
}

/// How the rows of SAFETY.md begin that a file must have: one for each function with an Acquire or a Release, and the
/// count of the Relaxed ones. Models and tests need none for what they order.
pub(crate) fn ordering_rows(source: &Source) -> Vec<String> {
    let (mut rows, mut relaxed, mut function) = (vec![], 0, "?");
    let path = source.path.trim_start_matches("src/");
    let tried = ["tests", "models", "loom"].iter().any(|name| path.contains(name));
    for line in &source.code {
        function = line
            .split_once("fn ")
            .and_then(|(_, name)| words(name).next())
            .map_or(function, |(_, name)| name);
        relaxed += line.matches("Ordering::Relaxed").count();
        if !tried
            && ["Acquire", "Release", "AcqRel"].iter().any(|name| line.contains(&format!("Ordering::{name}")))
        {
            rows.push(format!("| `{path}` `{function}` | "));
        }
    }
    rows.extend((relaxed > 0).then(|| format!("| `{path}` | {relaxed} |")));
    rows
}

/// Nothing half done, nothing left over.
pub(crate) fn markers(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (line, (comment, code)) in source.comments.iter().zip(&source.code).enumerate() {
        let place = format!("{}:{line}", source.path);
        for (_, word) in words(comment).filter(|(_, word)| COMMENT_MARKERS.contains(word)) {
            findings.push(format!("{place}: {word}; do it, or say in plain words what is not promised"));
        }
        let calls = words(code).filter(|(at, word)| code[at + word.len()..].starts_with('!'));
        for (_, word) in calls.filter(|(_, word)| MACRO_MARKERS.contains(word)) {
            findings.push(format!("{place}: {word}!; write the code, or return an error that names it"));
        }
    }
    findings
}

/// Files stay short.
pub(crate) fn length(source: &Source) -> Vec<String> {
    let count = |tests| {
        let lines = source.code.iter().zip(&source.is_test);
        lines.filter(|(code, is_test)| **is_test == tests && !code.trim().is_empty()).count()
    };
    let (path, shipped, tests) = (&source.path, count(false), count(true));
    let long =
        format!("{path}:1: {shipped} code lines, limit {CODE_LINES_MAX}; move a leaf into a file of its own");
    let tested =
        format!("{path}:1: {tests} lines of inline tests, limit {TEST_LINES_MAX}; move them to tests/suite/");
    let findings = [(shipped > CODE_LINES_MAX).then_some(long), (tests > TEST_LINES_MAX).then_some(tested)];
    findings.into_iter().flatten().collect()
}
