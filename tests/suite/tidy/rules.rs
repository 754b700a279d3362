//! The rules for a single file. Every message names the place and the replacement.

use std::collections::{BTreeMap, BTreeSet};

use self::layers::is_for_tests;
use self::source::{Source, line_of, words};

/// The only files with unsafe code.
pub(crate) const UNSAFE_FILES: [&str; 4] = [
    "src/memtable/arena/arena.rs",
    "src/memtable/arena/node.rs",
    "src/prefetch.rs",
    "src/memtable/fault/injector.rs",
];

/// The files that declare the fault injector's module.
pub(crate) const FAULT_MODULES: [&str; 2] = ["src/lib.rs", "src/memtable/mod.rs"];

/// The only file that may name raw atomics and locks.
pub(crate) const SEAM: &str = "src/sync.rs";

/// Most code lines of a file without comments and test modules; the same for `tests/`; most lines
/// of inline tests.
const CODE_LINES_MAX: usize = 1_100;
const TEST_LINES_MAX: usize = 200;

/// Orderings that need a note. A file with others than the first needs a row of its own in
/// SAFETY.md.
const ORDERINGS: [&str; 4] = ["Relaxed", "Acquire", "Release", "AcqRel"];

/// Spelled in halves, so that a search for them does not find this file.
pub(crate) const COMMENT_MARKERS: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("HA", "CK"),
];
pub(crate) const MACRO_MARKERS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// The comments of a line and of the six lines above it. A block of comment lines counts as one
/// line.
fn note(source: &Source, line: usize) -> String {
    let is_comment =
        |line: usize| source.code[line].trim().is_empty() && !source.comments[line].is_empty();
    let (mut text, mut at, mut left) = (source.comments[line].clone(), line, 6);
    while at > 1 && left > 0 {
        at -= 1;
        text = format!("{} {text}", source.comments[at]);
        left -= usize::from(!(is_comment(at) && is_comment(at - 1)));
    }
    text
}

/// Only the listed files, and the modules around them, may allow unsafe code. Each block names its
/// invariant.
pub(crate) fn unsafe_code(source: &Source) -> Vec<String> {
    let (path, text) = (source.path.as_str(), source.text());
    let folder = path.strip_suffix("lib.rs").or(path.strip_suffix("mod.rs"));
    let is_above =
        folder.is_some_and(|folder| UNSAFE_FILES.iter().any(|file| file.starts_with(folder)));
    if !UNSAFE_FILES.contains(&path) {
        let allows = text.contains("expect(unsafe_code") || text.contains("allow(unsafe_code");
        let wrong = allows || !(is_above || text.contains("#![forbid(unsafe_code)]"));
        let advice = "write `#![forbid(unsafe_code)]` atop the file; unsafe code stays in arena.rs and node.rs";
        return wrong
            .then(|| format!("{path}:1: {advice}"))
            .into_iter()
            .collect();
    }
    let blocks = words(&text).filter(|(at, word)| {
        let rest = text[at + word.len()..].trim_start();
        *word == "unsafe" && (rest.starts_with('{') || rest.starts_with("impl"))
    });
    let bare = blocks.map(|(at, _)| line_of(&text, at)).filter(|line| {
        let note = note(source, *line);
        note.rsplit_once("SAFETY:")
            .is_none_or(|(_, argument)| labels(argument).next().is_none())
    });
    let advice = "write `// SAFETY: ARENA-1: ..`, naming an invariant of a file's head";
    bare.map(|line| format!("{path}:{line}: {advice}"))
        .collect()
}

/// Words such as ARENA-1 or WRITER-SHARDS-12.
fn labels(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| {
        let Some((name, number)) = word.rsplit_once('-') else {
            return false;
        };
        let digits = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
        digits
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && !name.contains(char::is_lowercase)
    })
}

/// Invariants have one name in the crate, and every cited one is defined in the head of a file.
pub(crate) fn invariants(sources: &[Source]) -> Vec<String> {
    let comments = || {
        sources.iter().flat_map(|source| {
            source
                .comments
                .iter()
                .zip(0..)
                .map(move |line| (source, line))
        })
    };
    let (mut defined, mut findings) = (BTreeMap::new(), vec![]);
    for (Source { path, .. }, (comment, line)) in comments() {
        let head = comment
            .trim_start_matches(['!', '/', ' '])
            .strip_prefix("* ");
        let label = head
            .and_then(|text| text.split_once(':'))
            .map(|(label, _)| label);
        let Some(label) = label.filter(|label| labels(label).next() == Some(label)) else {
            continue;
        };
        if let Some(other) = defined.insert(label, path) {
            findings.push(format!(
                "{path}:{line}: {label} is an invariant of {other}; name this one anew"
            ));
        }
    }
    for (Source { path, .. }, (comment, line)) in comments() {
        let unknown = labels(comment).filter(|label| !defined.contains_key(label));
        findings.extend(
            unknown.map(|l| format!("{path}:{line}: {l} is not defined in the head of any file")),
        );
    }
    findings
}

/// The fault injector exists only with its feature, in any file that declares the module.
pub(crate) fn fault_injector(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.code.iter().map(|line| line.trim()).collect();
    let is_open = |at: &usize| {
        let is_above = |line: &&&str| line.starts_with("#[") || line.is_empty();
        let mut above = lines[..*at].iter().rev().take_while(is_above);
        let is_module = lines[*at].ends_with("mod fault;") || lines[*at].ends_with("mod fault {");
        is_module
            && !above.any(|line| line.starts_with("#[cfg(") && line.contains("\"fault-injection\""))
    };
    let advice = "write `#[cfg(feature = \"fault-injection\")]` above the module";
    (0..lines.len())
        .filter(is_open)
        .map(|at| format!("{}:{at}: {advice}", source.path))
        .collect()
}

/// Atomics and locks come from the seam.
pub(crate) fn seam(source: &Source) -> Vec<String> {
    let (mut findings, path, text) = (vec![], &source.path, source.text());
    for (at, word) in words(&text).filter(|_| path != SEAM) {
        let (before, rest) = (
            text[..at].trim_end_matches([' ', ':']),
            &text[at + word.len()..],
        );
        let is_use = ["use", "extern crate"]
            .iter()
            .any(|keyword| before.ends_with(keyword));
        let end = |c: char| {
            if is_use {
                c == ';'
            } else {
                !c.is_alphanumeric() && c != ':'
            }
        };
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
        // The arguments of a long call are on lines of their own.
        let first = (line.saturating_sub(5)..=line)
            .rev()
            .find(|at| operates(&source.code[*at]));
        let has_note = || {
            let note = note(source, first.unwrap_or(line));
            note.rsplit_once("ORDERING:")
                .is_some_and(|(_, reason)| reason.trim().len() >= 10)
        };
        let advice = if words(code).any(|(_, word)| word == "SeqCst") {
            "SeqCst; put both facts into one word changed by read-modify-write, or take a mutex"
        } else if code.contains("use ") && code.contains("sync::Ordering::") {
            "name orderings in full, as `Ordering::Acquire`"
        } else if ORDERINGS
            .iter()
            .any(|name| code.contains(&format!("Ordering::{name}")))
            && !has_note()
        {
            "without a note; write `// ORDERING: why it suffices, and its partner` above"
        } else {
            continue;
        };
        findings.push(format!(
            "{}:{}: {advice}",
            source.path,
            first.unwrap_or(line)
        ));
    }
    findings.dedup();
    findings
}

/// The orderings of a file that SAFETY.md lacks: its row names each function with an Acquire or a
/// Release. Models and tests need no row.
pub(crate) fn ordering_row(source: &Source, safety: &str) -> Vec<String> {
    let (mut ordered, mut function) = (BTreeSet::new(), "?");
    let path = source.path.trim_start_matches("src/");
    for line in &source.code {
        let declared = line
            .split_once("fn ")
            .and_then(|(_, name)| words(name).next());
        function = declared.map_or(function, |(_, name)| name);
        let orders = ORDERINGS[1..]
            .iter()
            .any(|name| line.contains(&format!("Ordering::{name}")));
        ordered.extend((orders && !is_for_tests(path)).then_some(function));
    }
    let begin = format!("| `{path}` | ");
    let row = safety
        .lines()
        .find(|line| line.starts_with(&begin))
        .unwrap_or("");
    let missing = ordered
        .iter()
        .filter(|name| !row.contains(&format!("{name}`")));
    missing
        .map(|name| format!("name `{name}` and its partner in the row {begin}.."))
        .collect()
}

/// Rows of SAFETY.md's orderings whose file has no ordering any more.
pub(crate) fn rows_without_orderings(safety: &str, sources: &[Source]) -> Vec<String> {
    let orders = |path: &str| {
        let source = sources
            .iter()
            .find(|source| source.path.trim_start_matches("src/") == path);
        let text = source.map(Source::text).unwrap_or_default();
        ORDERINGS[1..]
            .iter()
            .any(|name| text.contains(&format!("Ordering::{name}")))
    };
    let (_, table) = safety.split_once("## Orderings").unwrap_or_default();
    let rows = table.lines().filter_map(|row| {
        let (path, _) = row.strip_prefix("| `")?.split_once('`')?;
        (!orders(path)).then_some(path)
    });
    rows.map(|path| {
        format!("SAFETY.md, orderings: `{path}` has none that its row could list: remove it there")
    })
    .collect()
}

/// The Rust files that a text names in backticks, by the end of their path, and that do not exist.
pub(crate) fn stale_files(path: &str, text: &str, existing: &[&str]) -> Vec<String> {
    let is_there = |name: &str| {
        existing
            .iter()
            .any(|path| format!("/{path}").ends_with(&format!("/{name}")))
    };
    let named = |line: &str| -> Vec<String> {
        let quoted = line.split('`').skip(1).step_by(2);
        quoted
            .filter(|name| name.ends_with(".rs") && !is_there(name))
            .map(str::to_owned)
            .collect()
    };
    let finding = |line: usize, name: String| {
        format!(
            "{path}:{}: `{name}` does not exist: name the file that has this now",
            line + 1
        )
    };
    text.lines()
        .enumerate()
        .flat_map(|(line, text)| named(text).into_iter().map(move |name| finding(line, name)))
        .collect()
}

/// No marker of unfinished work.
pub(crate) fn markers(source: &Source) -> Vec<String> {
    let mut findings = vec![];
    for (line, (comment, code)) in source.comments.iter().zip(&source.code).enumerate() {
        let is_call = |at: usize, word: &str| code[at + word.len()..].starts_with('!');
        let calls =
            words(code).filter(|(at, word)| MACRO_MARKERS.contains(word) && is_call(*at, word));
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
        lines
            .filter(|(code, is_test)| **is_test == tests && !code.trim().is_empty())
            .count()
    };
    let advice = "move a leaf into a file of its own, or tests to tests/suite/";
    let limits = [
        (false, "code lines", CODE_LINES_MAX),
        (true, "lines of inline tests", TEST_LINES_MAX),
    ];
    let over = limits
        .into_iter()
        .filter(|(tests, _, limit)| count(*tests) > *limit);
    over.map(|(tests, of, limit)| {
        format!(
            "{}:1: {} {of}, limit {limit}; {advice}",
            source.path,
            count(tests)
        )
    })
    .collect()
}

/// A file has one topic: its head is at the top, and no second one follows in the middle. A head is
/// a block of comments at the left margin, between empty lines.
pub(crate) fn second_heads(source: &Source) -> Vec<String> {
    let is_empty = |line: usize| {
        let of = |lines: &[String]| lines.get(line).is_none_or(|text| text.trim().is_empty());
        of(&source.code) && of(&source.comments)
    };
    let is_head = |line: usize| {
        let comment = &source.comments[line];
        source.code[line].is_empty() && (comment == "//" || comment.starts_with("// "))
    };
    let begins = (2..source.code.len()).filter(|line| is_head(*line) && is_empty(line - 1));
    let heads = begins.filter(|begin| {
        let end = (*begin..source.code.len()).find(|line| !is_head(*line));
        end.is_none_or(is_empty)
    });
    let advice = "is a second head; its topic belongs into a file of its own";
    heads
        .map(|line| format!("{}:{line}: {advice}", source.path))
        .collect()
}

/// One file, line by line: its code, its comments, and whether a line is in a test. Literals count
/// as code.
pub(crate) mod source {
    /// One file. Lines are counted from 1: line 0 is empty.
    #[derive(Debug)]
    pub(crate) struct Source {
        /// Relative to the repository, with forward slashes.
        pub(crate) path: String,
        pub(crate) code: Vec<String>,
        pub(crate) comments: Vec<String>,
        /// Whether a line declares a test module or is in one.
        pub(crate) is_test: Vec<bool>,
    }

    impl Source {
        pub(crate) fn parse(path: &str, text: &str) -> Source {
            let lines = std::iter::once("").chain(text.lines());
            let (mut code, comments): (Vec<_>, Vec<_>) = lines.map(split).unzip();
            join_attributes(&mut code);
            let is_test = test_lines(&code);
            Source {
                path: path.into(),
                code,
                comments,
                is_test,
            }
        }

        /// All code as one text.
        pub(crate) fn text(&self) -> String {
            self.code.join("\n")
        }
    }

    /// Code and comment of a line. A comment begins at two slashes after an even number of quotes.
    fn split(line: &str) -> (String, String) {
        let is_quote = |at: usize| !line[..at].ends_with(['\\', '\'']);
        let quotes = |end: usize| {
            line[..end]
                .match_indices('"')
                .filter(|(at, _)| is_quote(*at))
                .count()
        };
        let at = line
            .match_indices("//")
            .map(|(at, _)| at)
            .find(|at| quotes(*at).is_multiple_of(2));
        let (code, comment) = line.split_at(at.unwrap_or(line.len()));
        (code.into(), comment.into())
    }

    /// Moves an attribute that takes several lines into its first one.
    fn join_attributes(code: &mut [String]) {
        let is_open = |text: &str| {
            text.trim_start().starts_with("#[")
                && text.matches('[').count() > text.matches(']').count()
        };
        for first in 0..code.len() {
            for next in first + 1..code.len() {
                if !is_open(&code[first]) {
                    break;
                }
                let rest = std::mem::take(&mut code[next]);
                code[first] += rest.trim();
            }
        }
    }

    /// Marks `#[cfg(test)] mod x;` and `#[cfg(test)] mod x { .. }` at the left margin, where
    /// rustfmt puts them.
    fn test_lines(code: &[String]) -> Vec<bool> {
        let (mut is_test, mut is_for_tests) = (vec![false; code.len()], false);
        for (line, text) in code.iter().enumerate().skip(1) {
            if text.starts_with("#[") {
                let is_cfg =
                    text.starts_with("#[cfg(") && words(text).any(|(_, word)| word == "test");
                is_for_tests |= is_cfg && !text.contains("not(test)");
            } else if is_for_tests && text.contains("mod ") {
                let end = (line..code.len())
                    .find(|end| !text.ends_with('{') || code[*end].starts_with('}'));
                is_test[line..=end.unwrap_or(line)].fill(true);
            }
            is_for_tests &= text.starts_with("#[") || text.is_empty();
        }
        is_test
    }

    /// The words of a text, with their places.
    pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
        let all = text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty());
        all.map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
    }

    /// The line of an offset in [`Source::text`].
    pub(crate) fn line_of(text: &str, at: usize) -> usize {
        text[..at].matches('\n').count()
    }
}

/// Imports go downward: a file may import files that come before it. Each file lists its modules
/// bottom-up, from src/lib.rs, and comes after them.
///
/// Code outside of tests names other files by paths that begin with `crate::`.
pub(crate) mod layers {
    use std::collections::BTreeSet;

    use super::source::{Source, line_of, words};

    /// Modules of tests and models, in files or folders of these names.
    const TESTS: [&str; 3] = ["tests", "models", "loom"];

    /// Whether a file holds only tests or models, by its name.
    pub(crate) fn is_for_tests(path: &str) -> bool {
        path.split(['/', '.']).any(|part| TESTS.contains(&part))
    }

    /// The files below this one, bottom-up, and the file itself.
    fn order_from<'s>(sources: &'s [Source], path: &str, order: &mut Vec<&'s str>) {
        let Some(source) = sources.iter().find(|source| source.path == path) else {
            return;
        };
        let folder = ["/mod.rs", "/lib.rs", ".rs"]
            .iter()
            .find_map(|end| path.strip_suffix(end))
            .unwrap_or(path);
        for line in source.text().lines() {
            let module = line
                .strip_suffix(';')
                .and_then(|line| line.rsplit_once("mod "));
            if let Some((_, module)) =
                module.filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
            {
                order_from(sources, &format!("{folder}/{module}.rs"), order);
                order_from(sources, &format!("{folder}/{module}/mod.rs"), order);
            }
        }
        order.push(&source.path);
    }

    /// The folder of a file's crate.
    fn home(path: &str) -> &str {
        path.find("src/").map_or(path, |at| &path[..at + 3])
    }

    /// Every import that does not go downward, and every file that no other one lists.
    pub(crate) fn check(sources: &[Source]) -> Vec<String> {
        let files: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
        let mut order = vec![];
        for source in sources
            .iter()
            .filter(|source| source.path.ends_with("src/lib.rs"))
        {
            order_from(sources, &source.path, &mut order);
        }
        let of_file = |source: &Source| match order.contains(&source.path.as_str()) {
            true => [
                imports_of(&order, &files, source),
                guests_of(&files, source),
            ]
            .concat(),
            false => vec![format!(
                "{}:1: no file has a `mod` line for this one",
                source.path
            )],
        };
        sources
            .iter()
            .filter(|source| !is_for_tests(&source.path))
            .flat_map(of_file)
            .collect()
    }

    /// Inherent methods of types of other rooms: no import would show their callers.
    fn guests_of(files: &BTreeSet<&str>, source: &Source) -> Vec<String> {
        let (path, text) = (&source.path, source.text());
        let room = |path: &str| {
            path.rsplit_once('/')
                .map_or(String::new(), |(folder, _)| folder.to_owned())
        };
        let imports = |name: &str| {
            text.split("use crate::").skip(1).find_map(|rest| {
                let list = rest.split(';').next()?;
                words(list)
                    .any(|(_, word)| word == name)
                    .then(|| target(files, path, list))
            })
        };
        let guests = text.lines().zip(0..).filter_map(|(line, number)| {
            let after = line
                .strip_prefix("impl")
                .filter(|_| !line.contains(" for "))?;
            let (_, of) = after.split_once(if after.starts_with('<') { "> " } else { " " })?;
            let (_, name) = words(of).next()?;
            let home = imports(name).filter(|home| room(home) != room(path))?;
            Some(format!(
                "{path}:{number}: `{name}` has its methods in {home}; write functions that take one"
            ))
        });
        guests.collect()
    }

    /// The imports of one file that do not go downward.
    fn imports_of(order: &[&str], files: &BTreeSet<&str>, source: &Source) -> Vec<String> {
        let (mut findings, path, text) = (vec![], &source.path, source.text());
        for (at, word) in words(&text) {
            let (before, rest, line) = (&text[..at], &text[at + word.len()..], line_of(&text, at));
            let inside = rest
                .strip_prefix("::")
                .filter(|_| !source.is_test[line] && !before.ends_with("(in "));
            let wrong = match (word, inside) {
                ("crate", Some(rest)) => judge(order, path, target(files, path, rest)),
                ("super" | "self", Some(rest)) if !path.ends_with("/mod.rs") => {
                    let names_a_file = rest.trim_start_matches('{').starts_with(char::is_lowercase);
                    names_a_file.then(|| "is relative; write the path from `crate::` on".into())
                }
                (name, None)
                    if TESTS.contains(&name)
                        && before.ends_with("mod ")
                        && !source.is_test[line] =>
                {
                    Some("holds tests; write `#[cfg(test)]` above its `mod`".into())
                }
                _ => None,
            };
            let shown = rest.split([';', '\n']).next().unwrap_or_default();
            findings.extend(wrong.map(|wrong| format!("{path}:{line}: `{word}{shown}` {wrong}")));
        }
        findings
    }

    /// The file that the path after `crate::` names, in the crate of `from`.
    fn target<'f>(files: &BTreeSet<&'f str>, from: &str, rest: &str) -> &'f str {
        let home = home(from);
        let path = rest
            .split(|c: char| !c.is_alphanumeric() && !['_', ':'].contains(&c))
            .next();
        let segments: Vec<&str> = path
            .unwrap_or_default()
            .split("::")
            .filter(|step| !step.is_empty())
            .collect();
        let found = (1..=segments.len()).rev().find_map(|len| {
            let stem = format!("{home}/{}", segments[..len].join("/"));
            [".rs", "/mod.rs"]
                .iter()
                .find_map(|end| files.get(format!("{stem}{end}").as_str()))
        });
        found
            .or_else(|| files.get(format!("{home}/lib.rs").as_str()))
            .copied()
            .unwrap_or("src/lib.rs")
    }

    /// The reason why `from` may not import `to`, with the replacement.
    fn judge(order: &[&str], from: &str, to: &str) -> Option<String> {
        let folder = from.strip_suffix("mod.rs");
        if from == to
            || from.ends_with("src/lib.rs")
            || folder.is_some_and(|folder| to.starts_with(folder))
        {
            return None;
        }
        if to.ends_with("src/lib.rs") || to.ends_with("/mod.rs") {
            return Some(format!(
                "goes through the facade {to}; import from the file that defines it"
            ));
        }
        let place = |path: &str| order.iter().position(|listed| *listed == path);
        (place(to) >= place(from)).then(|| {
            format!("goes up to {to}; move the shared part down, hand it in from above, or list that module before this one")
        })
    }
}

/// The form of public items in `tests/data/public_api.txt`: names with their modules, types with
/// their public parts, functions with their signatures.
pub(crate) mod listing {
    use std::collections::BTreeSet;

    use super::source::{Source, words};

    /// Lines as one, with single spaces and without the attributes among them.
    fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
        let lines = lines
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("#["));
        let text = lines.collect::<Vec<_>>().join(" ");
        [("( ", "("), (", )", ")"), ("< ", "<"), (", >", ">")]
            .iter()
            .fold(text, |text, (old, new)| text.replace(old, new))
    }

    /// A function or the head of an `impl`, from its line to the start of its body.
    pub(crate) fn head(source: &Source, line: usize) -> String {
        let ends = |at: &usize| source.code[*at].trim_end().ends_with(['{', ';', '}']);
        let end = (line..source.code.len()).find(ends).unwrap_or(line);
        let text = joined(source.code[line..=end].iter().map(String::as_str));
        text.split(" {")
            .next()
            .unwrap_or_default()
            .trim_end_matches(';')
            .into()
    }

    /// A type: all of an enum and of the functions of a trait, the public parts of a struct.
    pub(crate) fn declaration(source: &Source, line: usize) -> String {
        let code = |at: usize| source.code[at].as_str();
        let (first, is_struct) = (head(source, line), code(line).contains("struct "));
        let end = (line..source.code.len())
            .find(|at| code(*at).starts_with('}') || code(*at).ends_with(';'));
        let inner: Vec<usize> = (line + 1..end.unwrap_or(line)).collect();
        let is_member =
            |at: &usize| code(*at).starts_with("    ") && !code(*at).starts_with("     ");
        let members: Vec<String> = if code(line).contains("trait ") {
            let declares = |at: &usize| {
                is_member(at)
                    && words(code(*at)).any(|(_, word)| ["fn", "const", "type"].contains(&word))
            };
            inner
                .into_iter()
                .filter(declares)
                .map(|at| head(source, at))
                .collect()
        } else {
            let shown = inner
                .into_iter()
                .map(code)
                .filter(|code| !is_struct || code.trim().starts_with("pub "));
            vec![joined(shown)]
        };
        let above = (1..line)
            .rev()
            .map(code)
            .take_while(|code| code.starts_with("#[") || code.is_empty());
        let kept =
            above.filter(|code| code.starts_with("#[derive") || *code == "#[non_exhaustive]");
        let attributes: String = kept.map(|attribute| format!(" {attribute}")).collect();
        format!("{first} {}", members.join("; "))
            .trim_end()
            .to_owned()
            + &attributes
    }

    /// The names that `pub use` exports at the root and in the modules, each with the path for
    /// users.
    pub(crate) fn paths(facades: &[&Source]) -> BTreeSet<String> {
        let mut paths = BTreeSet::new();
        for source in facades {
            let package = if source.path.starts_with("set/") {
                "paranoid_set"
            } else {
                "paranoid_memtable"
            };
            let (_, folder) = source.path.rsplit_once("src/").unwrap_or_default();
            let folder = folder
                .trim_end_matches("mod.rs")
                .trim_end_matches("lib.rs")
                .trim_end_matches('/');
            let folder = folder.replace('/', "::");
            let (mut inside, mut item) = (String::new(), String::new());
            let mut is_hidden = false;
            for code in &source.code {
                is_hidden = code == "#[doc(hidden)]" || is_hidden && !code.starts_with('}');
                if is_hidden {
                    continue;
                }
                let spelled: Vec<&str> = words(code).map(|(_, word)| word).take(3).collect();
                if let ["pub", "mod", name] = spelled[..]
                    && code.ends_with('{')
                {
                    inside = name.into();
                } else if code.starts_with('}') {
                    inside.clear();
                } else if !item.is_empty() || code.trim_start().starts_with("pub use ") {
                    item += code;
                }
                if item.ends_with(';') {
                    let names = words(&item)
                        .map(|(_, word)| word)
                        .filter(|word| word.starts_with(char::is_uppercase));
                    let path = |name: &str| {
                        let parts = [package, folder.as_str(), inside.as_str(), name];
                        parts
                            .into_iter()
                            .filter(|part| !part.is_empty())
                            .collect::<Vec<_>>()
                            .join("::")
                    };
                    paths.extend(names.map(path));
                    item.clear();
                }
            }
        }
        paths
    }

    /// Added and removed lines, as in a difference.
    pub(crate) fn difference(old: &str, new: &str) -> Vec<String> {
        let (old, new): (BTreeSet<&str>, BTreeSet<&str>) =
            (old.lines().collect(), new.lines().collect());
        let gone = old.difference(&new).map(|line| format!("- {line}"));
        gone.chain(new.difference(&old).map(|line| format!("+ {line}")))
            .collect()
    }
}

/// The crate's public types and functions, in rustfmt's layout: those that the fault campaign must
/// call, and those that need an example.
///
/// These are public: types that `pub use` exports at the root or in a module, `pub fn` in their
/// `impl`s, functions that a macro writes there, and such a type's functions as an iterator.
pub(crate) mod public {
    use std::collections::{BTreeMap, BTreeSet};

    use super::listing;
    use super::source::{Source, words};
    use crate::tidy::damage_calls::{CALLED, EXCLUDED};

    /// A type and one of its functions.
    pub(crate) type Call = (String, String);

    /// Traits whose functions are calls on a table.
    const TRAITS: [&str; 2] = ["Iterator", "DoubleEndedIterator"];

    /// The public items.
    #[derive(Debug, Default)]
    pub(crate) struct Public {
        /// Whether the documentation has an example, by name.
        pub(crate) types: BTreeMap<String, bool>,
        pub(crate) calls: BTreeSet<Call>,
        /// The number of listed functions, and of those with an example.
        pub(crate) functions: (usize, usize),
        /// Everything with its signature, a line each.
        pub(crate) listing: BTreeSet<String>,
    }

    /// The last part of a path.
    fn name_of(path: &str) -> String {
        path.rsplit("::").next().unwrap_or_default().into()
    }

    /// Whether the documentation above a line has an example.
    fn has_example(source: &Source, line: usize) -> bool {
        let is_above = |line: &usize| {
            let code = source.code[*line].trim();
            (code.is_empty() && !source.comments[*line].is_empty())
                || code.starts_with("#[")
                || code.ends_with(")]")
        };
        let mut above = (1..line).rev().take_while(is_above);
        above.any(|line| matches!(source.comments[line].trim(), "/// ```" | "/// ```no_run"))
    }

    /// Whether a function is hidden from the documentation.
    fn is_hidden(source: &Source, line: usize) -> bool {
        let mut above = (1..line)
            .rev()
            .map(|line| source.code[line].trim())
            .take_while(|code| code.starts_with("#["));
        above.any(|code| code == "#[doc(hidden)]")
    }

    /// The owner of the functions in a block at the left margin: a type, a trait for it, or a
    /// macro.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Of {
        Type,
        Trait,
        OtherTrait,
        Macro,
    }

    /// The block that a line at the left margin opens, if its functions may be public.
    fn opened(header: &str) -> Option<(String, Of)> {
        let name = |text: &str| words(text).next().map_or("", |(_, name)| name).to_string();
        if let Some(called) = header.strip_prefix("macro_rules! ") {
            return Some((name(called), Of::Macro));
        }
        // Generics are left out, arrows in them skipped.
        let (mut depth, mut last) = (0, ' ');
        let plain = header.strip_prefix("impl")?.chars().filter(|c| {
            let keep = depth == 0 && *c != '<';
            depth += i32::from(*c == '<') - i32::from(*c == '>' && last != '-');
            last = *c;
            keep
        });
        let plain: String = plain.collect();
        let (of, path) = plain.split_once(" for ").unwrap_or(("", &plain));
        let path = path
            .split([' ', '{'])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        let held = name(path.rsplit("::").next().unwrap_or_default());
        match of.trim() {
            "" => Some((held, Of::Type)),
            of => Some((
                held,
                if TRAITS.contains(&of) {
                    Of::Trait
                } else {
                    Of::OtherTrait
                },
            )),
        }
    }

    /// The function that a line declares with this visibility.
    fn declared(code: &str, visibility: &str) -> Option<String> {
        let rest = code.trim_start().strip_prefix(visibility)?;
        let rest = ["const ", "unsafe "]
            .iter()
            .fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        words(rest.strip_prefix("fn ")?)
            .next()
            .map(|(_, name)| name.to_string())
    }

    /// All public items of these files.
    pub(crate) fn public(sources: &[Source]) -> Public {
        let paths = listing::paths(&sources.iter().filter(is_facade).collect::<Vec<_>>());
        let exported: BTreeSet<String> = paths.iter().map(|path| name_of(path)).collect();
        let mut public = Public {
            listing: paths,
            ..Public::default()
        };
        let (mut macros, mut uses) = (BTreeMap::<String, Vec<String>>::new(), vec![]);
        for source in sources {
            let mut within = None;
            let lines = source.code.iter().enumerate();
            for (line, code) in lines.filter(|(line, _)| !source.is_test[*line]) {
                if code.starts_with("impl") || code.starts_with("macro_rules!") {
                    let end = (line..source.code.len())
                        .find(|at| source.code[*at].contains('{'))
                        .unwrap_or(line);
                    within = opened(&source.code[line..=end].join(" "))
                        .filter(|(name, of)| *of == Of::Macro || exported.contains(name));
                    let is_trait = within
                        .as_ref()
                        .is_some_and(|(_, of)| matches!(of, Of::Trait | Of::OtherTrait));
                    public
                        .listing
                        .extend(is_trait.then(|| listing::head(source, line)));
                } else if code.starts_with('}') {
                    within = None;
                }
                let spelled: Vec<&str> = words(code).map(|(_, word)| word).take(3).collect();
                if let ["pub", "struct" | "enum" | "trait" | "type", name] = spelled[..]
                    && exported.contains(name)
                {
                    public.types.insert(name.into(), has_example(source, line));
                    public.listing.insert(listing::declaration(source, line));
                }
                let Some((name, of)) = within.as_ref().filter(|_| !is_hidden(source, line)) else {
                    continue;
                };
                match declared(code, if *of == Of::Trait { "" } else { "pub " }) {
                    Some(function) => {
                        public.functions.0 += usize::from(*of != Of::Trait);
                        public.functions.1 +=
                            usize::from(*of != Of::Trait && has_example(source, line));
                        public
                            .listing
                            .insert(format!("{name}: {}", listing::head(source, line)));
                        if *of == Of::Macro {
                            macros.entry(name.clone()).or_default().push(function);
                        } else {
                            public.calls.insert((name.clone(), function));
                        }
                    }
                    None if *of == Of::Type => {
                        uses.extend(
                            code.trim()
                                .split_once('!')
                                .map(|(called, _)| (name.clone(), called)),
                        );
                    }
                    None => {}
                }
            }
        }
        for (name, called) in uses {
            if let Some(functions) = macros.get(called) {
                public.listing.insert(format!("{name}: {called}!"));
                let calls = functions.iter().map(|it| (name.clone(), it.clone()));
                public.calls.extend(calls);
            }
        }
        public
    }

    /// Whether a file decides which paths are public.
    fn is_facade(source: &&Source) -> bool {
        source.path.ends_with("src/lib.rs")
            || source.path.starts_with("src/")
                && source.path.ends_with("/mod.rs")
                && source.path.matches('/').count() == 2
    }

    /// Types without an example; also functions, if the share of those with an example is too
    /// small.
    pub(crate) fn without_examples(public: &Public) -> Vec<String> {
        let bare = public
            .types
            .iter()
            .filter(|(_, has_example)| !**has_example);
        let mut findings: Vec<String> = bare
            .map(|(name, _)| format!("src: {name} needs an example"))
            .collect();
        let (written, with) = public.functions;
        if with * 5 < written * 3 {
            findings.push(format!(
                "src: {with} of {written} public functions have an example, fewer than three of five"
            ));
        }
        findings
    }

    /// Compares public items with the campaign's table: missing rows, rows without an item, and
    /// items that no trial calls.
    pub(crate) fn compare(public: &BTreeSet<Call>, campaign: &[Source]) -> Vec<String> {
        let flat = CALLED
            .iter()
            .flat_map(|(name, functions)| functions.iter().map(move |function| (*name, *function)));
        let called: BTreeSet<Call> = flat
            .map(|(name, function)| (name.into(), function.into()))
            .collect();
        let covers = |(name, function): (&str, &str), call: &Call| {
            call.0 == name && (function == "*" || call.1 == function)
        };
        let is_excluded = |call: &Call| {
            EXCLUDED
                .iter()
                .any(|(name, function, _)| covers((name, function), call))
        };
        let trials: Vec<String> = campaign
            .iter()
            .filter(|source| !source.path.ends_with("/calls.rs"))
            .map(Source::text)
            .collect();
        let is_tried = |function: &str| {
            let calls = |text: &String| {
                words(text).any(|(at, word)| word == function && text[..at].ends_with(['.', ':']))
            };
            trials.iter().any(calls)
        };
        let mut findings = vec![];
        for (name, function) in public
            .iter()
            .filter(|call| !called.contains(*call) && !is_excluded(call))
        {
            findings.push(format!(
                "{name}::{function} is public: call it in a trial, or say why not"
            ));
        }
        for (name, function) in called.difference(public) {
            findings.push(format!(
                "{name}::{function} is not public any more: remove it"
            ));
        }
        for (name, function) in called.iter().filter(|call| !is_tried(&call.1)) {
            findings.push(format!("no trial calls {name}::{function}"));
        }
        for (name, function, _) in EXCLUDED {
            if !public
                .iter()
                .any(|call| covers((name, function), call) && !called.contains(call))
            {
                findings.push(format!("{name}::{function} excludes nothing: remove it"));
            }
        }
        findings
            .iter()
            .map(|finding| format!("tests/support/damage/calls.rs: {finding}"))
            .collect()
    }
}
