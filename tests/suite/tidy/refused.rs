//! The checks can fail: each rule gets a violation, and text that keeps it.

use super::source::Source;
use super::{layers, names, public, rules};

#[track_caller]
fn refused(findings: &[String], place: &str, word: &str) {
    let found = findings.iter().any(|finding| finding.contains(place) && finding.contains(word));
    assert!(found, "want {place} and {word} in: {findings:?}");
}

/// Runs a rule over one file.
fn all(rule: fn(&Source) -> Vec<String>, path: &str, text: &str) -> Vec<String> {
    rule(&Source::parse(path, text))
}

/// Runs the layer check over a small crate, with one file replaced or added.
fn layer_findings(path: &str, text: &str) -> Vec<String> {
    let list = "```layers\n0 src/error.rs words\n0 src/key.rs words\n1 src/truth/ truth\n1 src/truth/a.rs a\n\
                1 src/truth/b.rs b\n5 src/lib.rs roof\n```\n9 not a line";
    let files =
        ["src/error.rs", "src/key.rs", "src/truth/mod.rs", "src/truth/a.rs", "src/truth/b.rs", "src/lib.rs"];
    let others = files.iter().filter(|file| **file != path).map(|file| Source::parse(file, ""));
    let sources: Vec<Source> = others.chain([Source::parse(path, text)]).collect();
    layers::check(&layers::rooms(list).expect("the list parses"), &sources)
}

#[test]
fn imports_that_go_up_or_round_are_refused() {
    for text in [
        "\nuse crate::truth::a::X;",
        "\nuse crate::{error::Error, truth::a::{X, Y}};",
        "\nuse super::truth::a;",
        "\nfn f() { crate::truth::a::f() }",
    ] {
        refused(&layer_findings("src/key.rs", text), "src/key.rs:2", "goes up from layer 0 to 1");
    }
    let inline = "mod inner {\n    use super::super::truth::a::X;\n}";
    refused(&layer_findings("src/key.rs", inline), "src/key.rs:2", "goes up from layer 0 to 1");
    refused(&layer_findings("src/error.rs", "use crate::key::Kind;"), "src/error.rs:1", "stays in layer 0");
    refused(&layer_findings("src/truth/a.rs", "use super::b::B;"), "src/truth/a.rs:1", "stays in layer 1");
    refused(&layer_findings("src/truth/b.rs", "use crate::truth::X;"), "src/truth/b.rs:1", "facade");
    refused(&layer_findings("src/truth/b.rs", "use crate::Error;"), "src/truth/b.rs:1", "facade src/lib.rs");
    refused(
        &layer_findings("src/truth/c.rs", "use super::a::A;"),
        "src/truth/c.rs:1",
        "list `src/truth/a.rs`",
    );
    refused(&layer_findings("src/other.rs", ""), "src/other.rs:1", "give the file a line");
    refused(&layers::check(&[(0, "src/gone/".into())], &[]), "ARCHITECTURE.md:1", "no file `src/gone/`");
    assert!(layers::rooms("nothing").is_err() && layers::rooms("```layers\nx src/a.rs b\n```").is_err());
}

#[test]
fn imports_that_go_down_are_silent() {
    for (path, text) in [
        (
            "src/key.rs",
            "use crate::error::{Error, Result as R};\npub(crate) struct A; pub(in crate::truth) struct B;",
        ),
        (
            "src/truth/b.rs",
            "use super::a::A; use crate::key::Kind; use std::fmt; fn f() { Self::g(); A::h() }",
        ),
        ("src/truth/mod.rs", "pub(crate) mod a; pub(crate) use self::b::B;"),
        ("src/truth/a.rs", "struct X;\nmod inner {\n    use super::X;\n}"),
        ("src/lib.rs", "mod key; mod truth; pub use key::Kind; pub use crate::truth::b::B;"),
        ("src/error.rs", "// use crate::key::Kind;\n#[cfg(test)]\nmod tests {\n    use crate::key::Kind;\n}"),
    ] {
        assert_eq!(layer_findings(path, text), [""; 0], "{path}: {text}");
    }
    for (attribute, verdict) in [("#[cfg(all(test, loom))]", 0), ("#[cfg(not(test))]", 1), ("", 1)] {
        let parent = Source::parse("src/a.rs", &format!("{attribute}\nmod models;\npub struct A;"));
        let files = [parent, Source::parse("src/a/models.rs", "use super::A;")];
        assert_eq!(layers::check(&[(0, "src/".into())], &files).len(), verdict, "{attribute}");
    }
}

#[test]
fn unsafe_code_is_refused() {
    let run = |path: &str, text: &str| all(rules::unsafe_code, path, text);
    refused(&run("src/key.rs", "// #![forbid(unsafe_code)]"), "src/key.rs:1", "forbid");
    refused(
        &run("src/key.rs", "#![forbid(unsafe_code)]\nfn f() { unsafe {} }"),
        "src/key.rs:2",
        "safe function",
    );
    refused(&run("src/prefetch.rs", ""), "src/prefetch.rs:1", "expect");
    const EXPECT: &str = "#![expect(unsafe_code, reason = \"r\")]\n";
    for comment in ["", "// SAFETY: it is fine", "// SAFETY: as above", "// F-1: not the word"] {
        let text = format!("{EXPECT}{comment}\nfn f() {{ unsafe {{ g() }} }}");
        refused(&run("src/prefetch.rs", &text), "src/prefetch.rs:3", "SAFETY");
    }
    let good =
        format!("{EXPECT}// SAFETY: ARENA-12: in bounds;\n// and aligned.\nfn f() {{ unsafe {{ g() }} }}");
    assert!(run("src/prefetch.rs", &good).is_empty() && run("src/memtable/mod.rs", "").is_empty());
    refused(&rules::fault_injector("src/lib.rs", "\npub mod fault;"), "lib.rs:2", "fault-injection");
    let behind = "#[cfg(feature = \"fault-injection\")]\n#[x]\npub mod fault;";
    assert!(rules::fault_injector("src/lib.rs", behind).is_empty());
}

#[test]
fn raw_atomics_and_locks_are_refused() {
    for text in [
        "\nuse std::sync::atomic::AtomicU64;",
        "\nuse std::{fmt, sync::{Arc, Mutex}};",
        "\nuse core::sync::atomic;",
        "\nuse std::sync;",
        "\nuse std::sync::*;",
        "\nstatic M: ::std::sync::RwLock<u8> = x;",
        "\nuse parking_lot;",
        "\nextern crate loom;",
    ] {
        refused(&all(rules::seam, "src/a.rs", text), "src/a.rs:2", "use crate::sync");
        assert!(all(rules::seam, "src/sync.rs", text).is_empty());
    }
    let fine =
        "use std::sync::{Arc, OnceLock}; use crate::sync::Mutex; #[cfg(loom)] fn f() {} // std::sync::Mutex";
    assert!(all(rules::seam, "src/a.rs", fine).is_empty());
}

#[test]
fn orderings_without_a_note_are_refused() {
    for text in [
        "\nfn f() { A.load(Ordering::Acquire) }",
        "// ORDERING: short\nfn f() { A.fetch_add(1, Ordering::Relaxed) }",
        "\nA.compare_exchange_weak(\n1,\n2,\nOrdering::AcqRel,\nOrdering::Acquire)",
        "\nlet order = Ordering::Relaxed;",
    ] {
        refused(&all(rules::orderings, "src/a.rs", text), "src/a.rs:2", "without a note");
    }
    let far = "// ORDERING: pairs with the load in g\n;\n;\n;\n;\nA.store(1, Ordering::Release)";
    refused(&all(rules::orderings, "src/a.rs", far), "src/a.rs:6", "without a note");
    let strong = "// ORDERING: pairs with the load in g\nA.store(1, Ordering::SeqCst)";
    refused(&all(rules::orderings, "src/a.rs", strong), "src/a.rs:2", "SeqCst");
    for text in [
        "// ORDERING: pairs with g,\n// which\n// is\n// long\nlet x = B;\nA.load(Ordering::Acquire)",
        "// ORDERING: pairs with h\nA.compare_exchange(\n1,\n2,\n3,\nOrdering::AcqRel,\nOrdering::Acquire)",
        "use crate::sync::Ordering::{Acquire, Release};",
        "list.load(key); // Acquire",
    ] {
        assert_eq!(all(rules::orderings, "src/a.rs", text), [""; 0], "{text}");
    }
    let rows = all(
        rules::ordering_rows,
        "src/a.rs",
        "fn f() {\nA.load(Ordering::Acquire)\n}\nB.x(Ordering::Relaxed)",
    );
    assert_eq!(rows, ["| `a.rs` `f` | ", "| `a.rs` | 1 |"]);
}

#[test]
fn leftovers_and_long_files_are_refused() {
    for word in rules::COMMENT_MARKERS {
        refused(&all(rules::markers, "src/a.rs", &format!("\n/// {word}: later")), "src/a.rs:2", word);
        assert!(all(rules::markers, "src/a.rs", &format!("let a = \"// {word}\"; // {word}S")).is_empty());
    }
    for name in rules::MACRO_MARKERS {
        refused(&all(rules::markers, "src/a.rs", &format!("\n{name}!(x)")), "src/a.rs:2", name);
        assert!(all(rules::markers, "src/a.rs", &format!("let {name} = 1; f({name});")).is_empty());
    }
    let tests = "#[cfg(test)]\nmod tests {\n".to_owned() + &"    fn t() {}\n".repeat(90) + "}\n";
    refused(&all(rules::length, "src/a.rs", &"fn f() {}\n".repeat(451)), "src/a.rs:1", "451 code lines");
    refused(&all(rules::length, "src/a.rs", &tests), "src/a.rs:1", "inline tests");
    assert!(all(rules::length, "src/a.rs", &"fn f() {}\n// words\n\n".repeat(450)).is_empty());
}

/// What is public in a crate of these two files.
fn public_of(roof: &str, text: &str) -> public::Public {
    public::public(&[Source::parse("src/lib.rs", roof), Source::parse("src/table.rs", text)])
}

#[test]
fn a_public_function_without_a_trial_or_an_example_is_missed() {
    let roof = "pub use table::{TableReader, Range, Writer};";
    for (text, missing) in [
        (
            "impl<C: Comparator> TableReader<C> {\n    pub const fn brand_new() {}\n}",
            "TableReader::brand_new",
        ),
        ("impl<'t, F: Fn(&u8) -> u8> Iterator for a::Range<'t, F> {\n    fn nth() {}\n}", "Range::nth"),
        ("macro_rules! w {\n    pub fn brand_new() {}\n}\nimpl Writer {\n    w!();\n}", "Writer::brand_new"),
    ] {
        refused(
            &public::compare(&public_of(roof, text).calls, &[]),
            missing,
            "is public: call it in a trial, or say",
        );
    }
    for text in [
        "impl TableReader {\n    pub(crate) fn brand_new() {}\n    fn private() {}\n}",
        "impl Hidden {\n    pub fn brand_new() {}\n}",
        "impl Clone for Range {\n    fn brand_new() {}\n}",
        "#[cfg(test)]\nmod tests {\n    impl TableReader {\n        pub fn brand_new() {}\n    }\n}",
    ] {
        assert!(!public::compare(&public_of(roof, text).calls, &[]).join("").contains("brand_new"), "{text}");
    }
    let gone = public::compare(&public_of(roof, "impl TableReader {\n    pub fn get() {}\n}").calls, &[]);
    refused(&gone, "TableReader::get_into", "is not public any more");
    refused(&gone, "TableReader::get", "no trial calls");
    refused(&gone, "Footer::*", "excludes nothing");
    let bare = "/// Words.\npub struct Range;\n/// ```\n/// ```\npub struct Writer;\nimpl Writer {\n    pub fn f() {}\n}";
    let findings = public::without_examples(&public_of(roof, bare));
    refused(&findings, "Range", "needs an example");
    refused(&findings, "0 of 1", "functions");
    assert_eq!(findings.len(), 2);
}

#[test]
fn retired_words_and_doubled_invariants_are_refused() {
    for word in names::RETIRED {
        refused(&names::retired("a.md", &format!("\nthe {word} of it")), "a.md:2", word);
        refused(&names::retired("src/a.rs", &format!("fn with_{word}() {{}}")), "src/a.rs:1", word);
    }
    assert!(names::retired("src/a.rs", "a silent list of flames").is_empty());
    for name in names::RETIRED_NAMES {
        refused(
            &all(names::retired_names, "src/a.rs", &format!("fn barn_{name}s() {{}}")),
            "src/a.rs:1",
            name,
        );
    }
    for name in names::RETIRED_FILES {
        refused(&all(names::retired_names, &format!("src/{name}.rs"), ""), ".rs:1", name);
    }
    assert!(all(names::retired_names, "src/a.rs", "let door = adoration();").is_empty());

    let head = "//! * ARENA-1: chunks do not move.\n";
    let run = |texts: [&str; 2]| rules::invariants(&texts.map(|text| Source::parse("src/a.rs", text)));
    assert!(run([head, "// ARENA-1, and sub-chunk-free text"]).is_empty());
    refused(&run([head, head]), "src/a.rs:1", "name this one anew");
    refused(&run([head, "\n// ARENA-2"]), "src/a.rs:2", "ARENA-2 is not defined");
}
