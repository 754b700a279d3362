//! The crate's public functions, as the sources declare them, against the campaign's table of calls.
//!
//! Public are: `pub fn` in an `impl` of a type that `src/lib.rs` exports, those that a macro writes there, and what
//! such a type does as an iterator.

use std::collections::BTreeSet;
use std::ops::Range;

use super::damage_calls::{CALLED, EXCLUDED};
use super::lexer::{Ground, Source};

/// A type and one of its functions.
pub(crate) type Call = (String, String);

/// Traits whose functions are calls on a table.
const TRAITS: [&str; 2] = ["Iterator", "DoubleEndedIterator"];

/// The names that `pub use` takes to the crate's root and to its modules.
fn exported(sources: &[Source]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let doors =
        sources.iter().filter(|source| source.path == "src/lib.rs" || source.path.ends_with("/mod.rs"));
    for door in doors {
        for index in (0..door.tokens.len()).filter(|index| door.matches(*index, &["pub", "use"])) {
            let rest = door.tokens[index..].iter().map(|token| token.text.as_str());
            let words = rest.take_while(|text| *text != ";");
            names.extend(words.filter(|text| text.starts_with(char::is_uppercase)).map(String::from));
        }
    }
    names
}

/// The functions of each macro that declares public ones.
fn macros(sources: &[Source]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for source in sources {
        for index in (0..source.tokens.len()).filter(|i| source.matches(*i, &["macro_rules", "!"])) {
            let end = source.behind_bracket(index + 3);
            let declared = (index..end).filter(|i| source.matches(*i, &["pub", "fn"]));
            let declared: Vec<String> = declared.map(|i| source.text(i + 2).to_string()).collect();
            found.push((source.text(index + 2).to_string(), declared));
        }
    }
    found
}

/// Index just after the generics that open at `index`, if they do.
fn behind_generics(source: &Source, index: usize) -> usize {
    let (mut at, mut depth) = (index, 0usize);
    while at < source.tokens.len() {
        match source.text(at) {
            "<" => depth += 1,
            ">" if source.text(at - 1) != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == index { at } else { at + 1 };
        }
        at += 1;
    }
    at
}

/// The last word of the path at `index`, and the index after the path and its generics.
fn path_end(source: &Source, mut index: usize) -> (String, usize) {
    while source.text(index + 1) == "::" && source.text(index + 2) != "<" {
        index += 2;
    }
    (source.text(index).to_string(), behind_generics(source, index + 1))
}

/// All public functions of exported types.
pub(crate) fn public(sources: &[Source]) -> BTreeSet<Call> {
    let (exported, macros) = (exported(sources), macros(sources));
    let mut calls = BTreeSet::new();
    for source in sources {
        let shipped = |index: &usize| source.tokens[*index].ground == Ground::Code;
        for index in (0..source.tokens.len()).filter(|i| source.text(*i) == "impl").filter(shipped) {
            // Not `impl Trait` in a signature: an item's `impl` stands after `}`, `;`, `]` or nothing.
            if index > 0 && !matches!(source.text(index - 1), "}" | ";" | "]" | "unsafe") {
                continue;
            }
            let (mut name, mut at) = path_end(source, behind_generics(source, index + 1));
            let mut of_trait = None;
            if source.text(at) == "for" {
                of_trait = Some(name);
                (name, at) = path_end(source, at + 1);
            }
            if !exported.contains(&name) || of_trait.as_ref().is_some_and(|of| !TRAITS.contains(&of.as_str()))
            {
                continue;
            }
            let open = (at..source.tokens.len()).find(|i| source.text(*i) == "{").unwrap_or(at);
            let body = open..source.behind_bracket(open);
            let found = match of_trait {
                Some(_) => of_a_trait(source, body),
                None => of_a_type(source, body, &macros),
            };
            calls.extend(found.into_iter().map(|function| (name.clone(), function)));
        }
    }
    calls
}

/// What an `impl` of a trait defines.
fn of_a_trait(source: &Source, body: Range<usize>) -> Vec<String> {
    body.filter(|i| source.text(*i) == "fn").map(|i| source.text(i + 1).to_string()).collect()
}

/// The public functions of an `impl` of a type, those that macros write there included.
fn of_a_type(source: &Source, body: Range<usize>, macros: &[(String, Vec<String>)]) -> Vec<String> {
    let mut found = Vec::new();
    for index in body {
        let declares = ["const", "unsafe", "async"].contains(&source.text(index + 1));
        let at = if declares { index + 2 } else { index + 1 };
        if source.text(index) == "pub" && source.text(at) == "fn" {
            found.push(source.text(at + 1).to_string());
        }
        let written = macros.iter().filter(|(name, _)| source.matches(index, &[name, "!"]));
        written.for_each(|(_, functions)| found.extend(functions.iter().cloned()));
    }
    found
}

/// Whether a folder's files call a function of this name.
fn calls(sources: &[Source], function: &str) -> bool {
    sources.iter().filter(|source| !source.path.ends_with("/calls.rs")).any(|source| {
        let named = (1..source.tokens.len()).filter(|index| source.text(*index) == function);
        named.into_iter().any(|index| matches!(source.text(index - 1), "." | "::"))
    })
}

/// Compares what is public with the table: what is missing there, what is gone, and what is said and not done.
pub(crate) fn compare(public: &BTreeSet<Call>, campaign: &[Source]) -> Vec<String> {
    let called: BTreeSet<Call> = CALLED
        .iter()
        .flat_map(|(name, functions)| {
            functions.iter().map(|function| (name.to_string(), function.to_string()))
        })
        .collect();
    let excluded = |call: &Call| {
        EXCLUDED
            .iter()
            .any(|(name, function, _)| call.0 == *name && (*function == "*" || call.1 == *function))
    };
    let table = "tests/support/damage/calls.rs";
    let mut findings = Vec::new();
    for (name, function) in public.iter().filter(|call| !called.contains(*call) && !excluded(call)) {
        findings.push(format!("{table}: {name}::{function} is public: call it in a trial, or say why not"));
    }
    for (name, function) in called.difference(public) {
        findings.push(format!("{table}: {name}::{function} is not public any more: remove it"));
    }
    for (name, function) in called.iter().filter(|call| !calls(campaign, &call.1)) {
        findings.push(format!("{table}: no trial calls {name}::{function}"));
    }
    for (name, function, _) in EXCLUDED {
        let own = |call: &&Call| call.0 == *name && (*function == "*" || call.1 == *function);
        if !public.iter().filter(own).any(|call| !called.contains(call)) {
            findings.push(format!("{table}: {name}::{function} excludes nothing: remove it"));
        }
    }
    findings
}
