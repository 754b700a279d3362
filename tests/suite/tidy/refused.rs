//! The checks can fail: each rule gets a violation, and text that keeps it.

use super::source::Source;
use super::{layers, names, public, rules};

#[track_caller]
fn refused(findings: &[String], place: &str, word: &str) {
    let found = findings.iter().any(|finding| finding.contains(place) && finding.contains(word));
    assert!(found, "want {place} and {word} in: {findings:?}");
}

/// Runs a rule over one file.
fn all(rule: Rule, path: &str, text: &str) -> Vec<String> {
    rule(&Source::parse(path, text))
}

/// Runs the layer check over a small crate, with one file replaced or added.
fn layer_findings(path: &str, text: &str) -> Vec<String> {
    let files = [
        ("src/lib.rs", "mod error;\nmod key;\npub mod truth;"),
        ("src/error.rs", ""),
        ("src/key.rs", ""),
        ("src/truth/mod.rs", "pub(crate) mod a;\nmod b;"),
        ("src/truth/a.rs", ""),
        ("src/truth/b.rs", ""),
    ];
    let others = files.into_iter().filter(|(file, _)| *file != path);
    let sources: Vec<Source> =
        others.chain([(path, text)]).map(|(path, text)| Source::parse(path, text)).collect();
    layers::check(&sources)
}

#[test]
fn imports_that_go_up_or_round_are_refused() {
    for (path, text, word) in [
        ("src/key.rs", "use crate::truth::a::{X, Y};", "goes up to src/truth/a.rs"),
        ("src/key.rs", "macro_rules! m { () => { $crate::truth::a::f() } }", "goes up"),
        ("src/key.rs", "use super::truth::a;", "is relative"),
        ("src/error.rs", "use crate::key::Kind;", "goes up to src/key.rs"),
        ("src/truth/a.rs", "use crate::truth::b::B;", "goes up to src/truth/b.rs"),
        ("src/truth/b.rs", "use crate::truth::X;", "facade"),
        ("src/truth/b.rs", "use crate::{error::Error, key};", "facade src/lib.rs"),
        ("src/truth/c.rs", "use crate::truth::a::A;", "no file has a `mod` line"),
        ("src/truth/mod.rs", "mod models;", "holds tests"),
        ("src/other.rs", "", "no file has a `mod` line"),
        ("src/truth/b.rs", "impl<T> Key<T> {} use crate::key::{Kind, Key};", "has its methods in src/key.rs"),
    ] {
        refused(&layer_findings(path, text), &format!("{path}:1"), word);
    }
}

#[test]
fn imports_that_go_down_are_silent() {
    for (path, text) in [
        ("src/key.rs", "use crate::error::{Error, Result as R}; pub(in crate::truth) struct B;"),
        ("src/truth/b.rs", "use crate::truth::a::A; use crate::key::Kind; fn f() { Self::g(); A::h() }"),
        (
            "src/truth/mod.rs",
            "pub(crate) mod a;\nmod b;\npub(crate) use self::b::B;\n#[cfg(all(test, loom))]\nmod loom;",
        ),
        (
            "src/truth/b.rs",
            "use crate::truth::a::A; use crate::key::Kind;\nimpl A {}\nimpl From<Kind> for A {}",
        ),
        ("src/truth/a.rs", "struct X;\nmod inner {\n    use super::{X, Y};\n}"),
        ("src/error.rs", "// use crate::key::Kind;\n#[cfg(test)]\nmod tests {\n    use crate::key::Kind;\n}"),
        ("src/truth/tests/c.rs", "use crate::truth::X;"),
    ] {
        assert_eq!(layer_findings(path, text), [""; 0], "{path}: {text}");
    }
}

type Rule = fn(&Source) -> Vec<String>;

/// Runs a rule over texts of one file. Each has the line and a word of its finding; no word: it keeps the rule.
#[track_caller]
fn judged(rule: Rule, path: &str, texts: &[(&str, usize, &str)]) {
    for (text, line, word) in texts {
        match *word {
            "" => assert_eq!(all(rule, path, text), [""; 0], "{path}: {text}"),
            word => refused(&all(rule, path, text), &format!("{path}:{line}"), word),
        }
    }
}

#[test]
fn unsafe_code_atomics_and_locks_are_refused() {
    let lifted = "#![forbid(unsafe_code)]\n#[allow(unsafe_code)]";
    judged(rules::unsafe_code, "src/key.rs", &[("// #![forbid]", 1, "forbid"), (lifted, 1, "arena.rs")]);
    judged(rules::unsafe_code, "src/memtable/mod.rs", &[("", 0, "")]);
    let texts = [
        ("// SAFETY: it is fine\nunsafe { g() }", 2, "SAFETY"),
        ("// F-1: not the word\nunsafe impl A for B {}", 2, "SAFETY"),
        ("// SAFETY: ARENA-12: in bounds;\n// and aligned.\nunsafe {}", 0, ""),
    ];
    judged(rules::unsafe_code, "src/prefetch.rs", &texts);
    judged(rules::seam, "src/sync.rs", &[("use std::sync::atomic::AtomicU64;", 0, "")]);
    let texts = [
        ("use std::sync::atomic::AtomicU64;", 1, "use crate::sync"),
        ("use std::{fmt, sync::{Arc, Mutex}};", 1, "use crate::sync"),
        ("use core::sync::*;", 1, "use crate::sync"),
        ("use std::sync;", 1, "use crate::sync"),
        ("static M: ::std::sync::RwLock<u8> = x;", 1, "use crate::sync"),
        ("extern crate loom;", 1, "use crate::sync"),
        ("use std::sync::{Arc, OnceLock}; use crate::sync::Mutex; // std::sync::Mutex", 0, ""),
    ];
    judged(rules::seam, "src/a.rs", &texts);
    refused(&rules::fault_injector("src/lib.rs", "\npub mod fault {"), "lib.rs:2", "fault-injection");
    let behind = "#[cfg(feature = \"fault-injection\")]\n#[x]\npub mod fault;";
    assert!(rules::fault_injector("src/lib.rs", behind).is_empty());
}

#[test]
fn orderings_leftovers_and_long_files_are_refused() {
    let exchange = "A.compare_exchange(\n1,\n2,\nOrdering::AcqRel,\nOrdering::Acquire)";
    let explained = format!("// ORDERING: pairs with g,\n// which\n// is\n// long\nlet x = B;\n{exchange}");
    let texts = [
        ("// ORDERING: short\nA.fetch_add(1, Ordering::Relaxed)", 2, "without a note"),
        (exchange, 1, "without a note"),
        ("// ORDERING: pairs with g\n;\n;\n;\n;\nA.store(Ordering::Release)", 6, "without a note"),
        ("// ORDERING: pairs with g\nA.store(1, Ordering::SeqCst)", 2, "SeqCst"),
        ("use crate::sync::Ordering::Acquire;", 1, "in full"),
        (&explained, 0, ""),
    ];
    judged(rules::orderings, "src/a.rs", &texts);
    for (row, lacks) in
        [("| `a.rs` | `f` -> `g` | 1 |", 0), ("| `a.rs` | `g` | 1 |", 1), ("| `b.rs` | `f` | 1 |", 2)]
    {
        let source = Source::parse("src/a.rs", "fn f() {\nOrdering::Acquire\n}\nOrdering::Relaxed");
        let found = rules::ordering_row(&source, row);
        assert_eq!(found.len(), lacks, "{row}: {found:?}");
    }
    let relaxed = Source::parse("src/a.rs", "Ordering::Relaxed\nOrdering::Relaxed");
    let both = Source::parse("src/a.rs", "fn f() {\nOrdering::Acquire\n}\nOrdering::Relaxed");
    for (row, is_refused) in [
        ("| only Relaxed | `b.rs` 1, `a.rs` 2 | 3 |", false),
        ("| only Relaxed | `b.rs` 2, `a.rs` 12 | 14 |", true),
        ("| only Relaxed | `b/a.rs` 2 | 2 |", true),
        ("`a.rs` 2", true),
    ] {
        assert_eq!(!rules::ordering_row(&relaxed, row).is_empty(), is_refused, "{row}");
    }
    refused(&rules::ordering_row(&both, "| only Relaxed | `a.rs` 1 | 1 |"), "a.rs", "name `f`");
    let code = "fn f() {}\n// words\n".repeat(500);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}", "    fn t() {}\n".repeat(90));
    let texts =
        [(&*code, 0, ""), (&format!("{code}use a;"), 1, "501 code lines"), (&tests, 1, "inline tests")];
    judged(rules::length, "src/a.rs", &texts);
    for word in rules::COMMENT_MARKERS {
        judged(rules::markers, "src/a.rs", &[(&format!("\n// {word}: later"), 2, word)]);
    }
    for name in rules::MACRO_MARKERS {
        judged(rules::markers, "src/a.rs", &[(&format!("{name}!(x)"), 1, name)]);
    }
}

/// What is public in a crate of these two files.
fn public_of(text: &str) -> public::Public {
    let roof = "pub use table::{TableReader, Range, Writer};";
    public::public(&[Source::parse("src/lib.rs", roof), Source::parse("src/table.rs", text)])
}

#[test]
fn a_public_function_without_a_trial_or_an_example_is_missed() {
    for (text, missing) in [
        ("impl<C: Order> TableReader<C> {\n    pub const fn brand_new() {}\n}", "TableReader::brand_new"),
        ("impl<F: Fn(&u8) -> u8> Iterator for a::Range<F> {\n    fn nth() {}\n}", "Range::nth"),
        ("macro_rules! w {\n    pub fn brand_new() {}\n}\nimpl Writer {\n    w!();\n}", "Writer::brand_new"),
    ] {
        refused(&public::compare(&public_of(text).calls, &[]), missing, "is public: call it in a trial, or");
    }
    for text in [
        "impl TableReader {\n    pub(crate) fn brand_new() {}\n    fn brand_new() {}\n}",
        "impl Clone for Range {\n    fn brand_new() {}\n}",
        "#[cfg(test)]\nmod tests {\n    impl TableReader {\n        pub fn brand_new() {}\n    }\n}",
    ] {
        assert!(!public::compare(&public_of(text).calls, &[]).join("").contains("brand_new"), "{text}");
    }
    let gone = public::compare(&public_of("impl TableReader {\n    pub fn get() {}\n}").calls, &[]);
    refused(&gone, "TableReader::get_into", "is not public any more");
    refused(&gone, "TableReader::get", "no trial calls");
    refused(&gone, "CappedPrefix::*", "excludes nothing");
    let bare = "/// A.\npub struct Range;\n/// ```\npub struct Writer;\nimpl Writer {\n    pub fn f() {}\n}";
    let findings = public::without_examples(&public_of(bare));
    refused(&findings, "Range", "needs an example");
    refused(&findings, "0 of 1", "functions");
    assert_eq!(findings.len(), 2);
}

#[test]
fn retired_words_and_doubled_invariants_are_refused() {
    for word in names::RETIRED {
        refused(&names::retired("a.md", &format!("\nthe {word} of it")), "a.md:2", word);
    }
    assert!(names::retired("src/a.rs", "a silent list of flames").is_empty());
    for name in names::RETIRED_NAMES {
        judged(names::retired_names, "src/a.rs", &[(&format!("fn barn_{name}s() {{}}"), 1, name)]);
    }
    for name in names::RETIRED_FILES {
        judged(names::retired_names, &format!("src/{name}.rs"), &[("", 1, name)]);
    }
    judged(names::retired_names, "src/a.rs", &[("let door = adoration();", 0, "")]);
    let head = "//! * ARENA-1: chunks do not move.\n";
    let run = |texts: [&str; 2]| rules::invariants(&texts.map(|text| Source::parse("src/a.rs", text)));
    assert!(run([head, "// ARENA-1, and sub-chunk-free text"]).is_empty());
    refused(&run([head, head]), "src/a.rs:1", "name this one anew");
    refused(&run([head, "\n// ARENA-2"]), "src/a.rs:2", "ARENA-2 is not defined");
}
