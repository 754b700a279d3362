//! The crate's public types and functions, as rustfmt lays them out: those that the fault campaign must call, and those
//! that need an example.
//!
//! Public are: types that `pub use` takes to the root or a module, `pub fn` in their `impl`s, those that a macro writes
//! there, and what such a type does as an iterator.

use std::collections::{BTreeMap, BTreeSet};

use super::damage_calls::{CALLED, EXCLUDED};
use super::source::{Source, words};

/// A type and one of its functions.
pub(crate) type Call = (String, String);

/// Traits whose functions are calls on a table.
const TRAITS: [&str; 2] = ["Iterator", "DoubleEndedIterator"];

/// What is public.
#[derive(Debug, Default)]
pub(crate) struct Public {
    /// By name: whether its documentation has an example.
    pub(crate) types: BTreeMap<String, bool>,
    pub(crate) calls: BTreeSet<Call>,
    /// How many functions are written down, and how many of those have an example.
    pub(crate) functions: (usize, usize),
}

/// The names that `pub use` takes to the crate's root and to its modules.
fn exported(sources: &[Source]) -> BTreeSet<String> {
    let facades =
        sources.iter().filter(|source| source.path.ends_with("/lib.rs") || source.path.ends_with("/mod.rs"));
    let texts: Vec<String> = facades.map(Source::text).collect();
    let uses = texts.iter().flat_map(|text| text.split(';').filter_map(|item| item.split_once("pub use ")));
    let names = uses.flat_map(|(_, item)| words(item).map(|(_, word)| word));
    names.filter(|word| word.starts_with(char::is_uppercase)).map(String::from).collect()
}

/// Whether the documentation above a line has an example.
fn has_example(source: &Source, line: usize) -> bool {
    let is_above = |line: &usize| {
        let code = source.code[*line].trim();
        (code.is_empty() && !source.comments[*line].is_empty())
            || code.starts_with("#[")
            || code.ends_with(")]")
    };
    let above = (1..line).rev().take_while(is_above);
    above.into_iter().any(|line| matches!(source.comments[line].trim(), "/// ```" | "/// ```no_run"))
}

/// The type that an `impl` line is about, and the trait, if it is one's.
fn owner(header: &str) -> (String, Option<String>) {
    let mut depth = 0;
    let mut last = ' ';
    // Generics are left out, arrows in them skipped.
    let kept = header.chars().filter(|c| {
        let opens = *c == '<';
        let closes = *c == '>' && last != '-';
        depth += i32::from(opens);
        let keep = depth == 0;
        depth -= i32::from(closes);
        last = *c;
        keep
    });
    let kept: String = kept.collect();
    let name = |path: &str| {
        path.rsplit("::").next().and_then(|last| words(last).next()).map_or("", |(_, name)| name).into()
    };
    let kept = kept.trim_start_matches("impl").split(" where").next().unwrap_or_default();
    match kept.split_once(" for ") {
        Some((of, path)) => (name(path), Some(name(of))),
        None => (name(kept), None),
    }
}

/// The function that a line declares with this visibility.
fn declared<'c>(code: &'c str, visibility: &str) -> Option<&'c str> {
    let rest = code.trim_start().strip_prefix(visibility)?;
    let rest = ["const ", "unsafe "].iter().fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    words(rest.strip_prefix("fn ")?).next().map(|(_, name)| name)
}

/// All that is public in these files.
pub(crate) fn public(sources: &[Source]) -> Public {
    let exported = exported(sources);
    let mut public = Public::default();
    let (mut macros, mut written) = (BTreeMap::<String, Vec<String>>::new(), vec![]);
    for source in sources {
        let mut within: Option<(String, Option<String>)> = None;
        for (line, code) in source.code.iter().enumerate().filter(|(line, _)| !source.is_test[*line]) {
            if let Some(name) = code.strip_prefix("macro_rules! ") {
                within = Some((name.trim_end_matches([' ', '{']).into(), Some("!".into())));
            } else if code.starts_with("impl") {
                let end = (line..source.code.len()).find(|at| source.code[*at].contains('{')).unwrap_or(line);
                within = Some(owner(&source.code[line..=end].join(" ")))
                    .filter(|(name, _)| exported.contains(name));
            } else if code.starts_with('}') {
                within = None;
            }
            let mut parts = code.trim_start().split(' ');
            if parts.next() == Some("pub")
                && matches!(parts.next(), Some("struct" | "enum" | "trait" | "type"))
            {
                let name = parts.next().and_then(|name| words(name).next()).map(|(_, name)| name.to_string());
                if let Some(name) = name.filter(|name| exported.contains(name)) {
                    public.types.insert(name, has_example(source, line));
                }
            }
            let Some((name, of)) = &within else { continue };
            let of = of.as_deref();
            let of_trait = of.is_some_and(|of| TRAITS.contains(&of));
            let function = declared(code, if of_trait { "" } else { "pub " });
            let call = function.map(|function| (name.clone(), function.to_string()));
            if of.is_none_or(|of| of == "!") && call.is_some() {
                public.functions.0 += 1;
                public.functions.1 += usize::from(has_example(source, line));
            }
            match call {
                Some(call) if of.is_none() || of_trait => drop(public.calls.insert(call)),
                Some(call) if of == Some("!") => macros.entry(call.0).or_default().push(call.1),
                None if of.is_none() => {
                    written.extend(code.trim().split_once('!').map(|it| (name.clone(), it.0.into())))
                }
                _ => {}
            }
        }
    }
    for (name, called) in written as Vec<Call> {
        let functions = macros.get(&called).into_iter().flatten();
        public.calls.extend(functions.map(|function| (name.clone(), function.clone())));
    }
    public
}

/// Types without an example, and a share of functions with one that is too small.
pub(crate) fn without_examples(public: &Public) -> Vec<String> {
    let bare = public.types.iter().filter(|(_, has_example)| !**has_example);
    let mut findings: Vec<String> = bare.map(|(name, _)| format!("src: {name} needs an example")).collect();
    let (written, with) = public.functions;
    if with * 5 < written * 3 {
        findings.push(format!(
            "src: {with} of {written} public functions have an example, fewer than three of five"
        ));
    }
    findings
}

/// Compares what is public with the campaign's table: what is missing there, what is gone, and what no trial calls.
pub(crate) fn compare(public: &BTreeSet<Call>, campaign: &[Source]) -> Vec<String> {
    let flat =
        CALLED.iter().flat_map(|(name, functions)| functions.iter().map(move |function| (*name, *function)));
    let called: BTreeSet<Call> = flat.map(|(name, function)| (name.into(), function.into())).collect();
    let covers = |(name, function): (&str, &str), call: &Call| {
        call.0 == name && (function == "*" || call.1 == function)
    };
    let is_excluded = |call: &Call| EXCLUDED.iter().any(|(name, function, _)| covers((name, function), call));
    let trials: Vec<String> =
        campaign.iter().filter(|source| !source.path.ends_with("/calls.rs")).map(Source::text).collect();
    let is_tried = |function: &str| {
        let calls = |text: &String| {
            words(text).any(|(at, word)| word == function && text[..at].ends_with(['.', ':']))
        };
        trials.iter().any(calls)
    };
    let mut findings = vec![];
    for (name, function) in public.iter().filter(|call| !called.contains(*call) && !is_excluded(call)) {
        findings.push(format!("{name}::{function} is public: call it in a trial, or say why not"));
    }
    for (name, function) in called.difference(public) {
        findings.push(format!("{name}::{function} is not public any more: remove it"));
    }
    for (name, function) in called.iter().filter(|call| !is_tried(&call.1)) {
        findings.push(format!("no trial calls {name}::{function}"));
    }
    for (name, function, _) in EXCLUDED {
        if !public.iter().any(|call| covers((name, function), call) && !called.contains(call)) {
            findings.push(format!("{name}::{function} excludes nothing: remove it"));
        }
    }
    findings.iter().map(|finding| format!("tests/support/damage/calls.rs: {finding}")).collect()
}
