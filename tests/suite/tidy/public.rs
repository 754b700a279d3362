//! The crate's public types and functions, as rustfmt lays them out: those that the fault campaign must call, and those
//! that need an example.
//!
//! Public are: types that `pub use` takes to the root or a module, `pub fn` in their `impl`s, those that a macro writes
//! there, and what such a type does as an iterator.

use std::collections::{BTreeMap, BTreeSet};

use super::damage_calls::{CALLED, EXCLUDED};
use super::listing;
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

/// What a block at the left margin holds: functions of a type, of a trait for it, or of a macro.
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
    let path = path.split([' ', '{']).find(|word| !word.is_empty()).unwrap_or_default();
    let held = name(path.rsplit("::").next().unwrap_or_default());
    match of.trim() {
        "" => Some((held, Of::Type)),
        of => Some((held, if TRAITS.contains(&of) { Of::Trait } else { Of::OtherTrait })),
    }
}

/// The function that a line declares with this visibility.
fn declared(code: &str, visibility: &str) -> Option<String> {
    let rest = code.trim_start().strip_prefix(visibility)?;
    let rest = ["const ", "unsafe "].iter().fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    words(rest.strip_prefix("fn ")?).next().map(|(_, name)| name.to_string())
}

/// All that is public in these files.
pub(crate) fn public(sources: &[Source]) -> Public {
    let is_facade = |source: &&Source| {
        source.path == "src/lib.rs"
            || source.path.ends_with("/mod.rs") && source.path.matches('/').count() == 2
    };
    let paths = listing::paths(&sources.iter().filter(is_facade).collect::<Vec<_>>());
    let exported: BTreeSet<String> = paths.iter().map(|path| name_of(path)).collect();
    let mut public = Public { listing: paths, ..Public::default() };
    let (mut macros, mut uses) = (BTreeMap::<String, Vec<String>>::new(), vec![]);
    for source in sources {
        let mut within = None;
        for (line, code) in source.code.iter().enumerate().filter(|(line, _)| !source.is_test[*line]) {
            if code.starts_with("impl") || code.starts_with("macro_rules!") {
                let end = (line..source.code.len()).find(|at| source.code[*at].contains('{')).unwrap_or(line);
                within = opened(&source.code[line..=end].join(" "))
                    .filter(|(name, of)| *of == Of::Macro || exported.contains(name));
                let is_trait =
                    within.as_ref().is_some_and(|(_, of)| matches!(of, Of::Trait | Of::OtherTrait));
                public.listing.extend(is_trait.then(|| listing::head(source, line)));
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
            let Some((name, of)) = &within else { continue };
            match declared(code, if *of == Of::Trait { "" } else { "pub " }) {
                Some(function) => {
                    public.functions.0 += usize::from(*of != Of::Trait);
                    public.functions.1 += usize::from(*of != Of::Trait && has_example(source, line));
                    public.listing.insert(format!("{name}: {}", listing::head(source, line)));
                    if *of == Of::Macro {
                        macros.entry(name.clone()).or_default().push(function);
                    } else {
                        public.calls.insert((name.clone(), function));
                    }
                }
                None if *of == Of::Type => {
                    uses.extend(code.trim().split_once('!').map(|(called, _)| (name.clone(), called)));
                }
                None => {}
            }
        }
    }
    for (name, called) in uses {
        public.listing.extend(macros.contains_key(called).then(|| format!("{name}: {called}!")));
        let functions = macros.get(called).into_iter().flatten();
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
