//! The checks can fail: each gets a snippet that breaks its rule, and one that keeps it.

use super::lexer::{Ground, Source};
use super::{calls, layers, rules, words};

const LIST: &str = "text\n```layers\n0 src/error.rs words\n0 src/key.rs words\n1 src/truth/ truth\n1 src/truth/a.rs a\n\
                    1 src/truth/b.rs b\n5 src/lib.rs roof\n```\n9 not a line";

/// Runs the layer check over a small crate, with one file replaced.
fn layer_findings(path: &str, text: &str) -> String {
    let files =
        ["src/error.rs", "src/key.rs", "src/truth/mod.rs", "src/truth/a.rs", "src/truth/b.rs", "src/lib.rs"];
    let parse = |file: &&str| Source::parse(file, if *file == path { text } else { "" });
    let mut sources: Vec<Source> = files.iter().map(parse).collect();
    if !files.contains(&path) {
        sources.push(Source::parse(path, text));
    }
    layers::check(&layers::rooms(LIST).expect("the list parses"), &sources).join("\n")
}

#[track_caller]
fn refused(findings: &str, place: &str, word: &str) {
    assert!(findings.contains(place) && findings.contains(word), "want {place} and {word} in: {findings:?}");
}

#[test]
fn upward_imports_are_refused_in_every_spelling() {
    for text in [
        "\nuse crate::truth::a::X;",
        "\nuse crate::{error::Error, truth::a::{X, Y}};",
        "\nuse super::truth::a;",
        "\nfn f() { crate::truth::a::f() }",
        "\nmacro_rules! m { () => { $crate::truth::a::f() } }",
        "\nmod inner { use super::super::truth::a::X; }",
    ] {
        refused(&layer_findings("src/key.rs", text), "src/key.rs:2", "goes up from layer 0 to 1");
    }
    refused(&layer_findings("src/error.rs", "use crate::key::Kind;"), "src/error.rs:1", "stays in layer 0");
    refused(&layer_findings("src/truth/a.rs", "use super::b::B;"), "src/truth/a.rs:1", "stays in layer 1");
    refused(&layer_findings("src/truth/b.rs", "use crate::truth::X;"), "src/truth/b.rs:1", "facade");
    refused(&layer_findings("src/truth/b.rs", "use crate::Error;"), "src/truth/b.rs:1", "facade src/lib.rs");
    refused(&layer_findings("src/other.rs", ""), "src/other.rs:1", "give the file a line");
    refused(
        &layer_findings("src/truth/c.rs", "use super::a::A;"),
        "src/truth/c.rs:1",
        "list `src/truth/a.rs`",
    );
    let unlisted = layer_findings("src/truth/c.rs", "//! Purpose.\nuse super::a::A;");
    refused(&unlisted, "1  src/truth/a.rs", "\n1  src/truth/c.rs                       Purpose\n");
    let circle = layer_findings("src/truth/a.rs", "use super::b::B; use crate::truth::a::A;");
    assert!(!circle.contains("circle"), "{circle}");
    let stale = layers::check(&layers::rooms(LIST).expect("parses"), &[]).join("\n");
    refused(&stale, "ARCHITECTURE.md:1", "no file stands after `src/truth/`");
    assert!(layers::rooms("nothing").is_err());
    assert!(layers::rooms("```layers\nx src/a.rs b\n```").is_err());
}

#[test]
fn circles_are_named_and_test_files_are_free() {
    let rooms = layers::rooms("```layers\n0 src/ words\n```").expect("parses");
    let pair = [Source::parse("src/a.rs", "use crate::b::B;"), Source::parse("src/b.rs", "use super::a::A;")];
    refused(&layers::check(&rooms, &pair).join("\n"), "src/b.rs:1", "cut among src/a.rs, src/b.rs");
    for (attribute, verdict) in [("#[cfg(all(test, loom))]", 0), ("#[cfg(not(test))]", 2), ("", 2)] {
        let files = [
            Source::parse("src/lib.rs", "mod a;"),
            Source::parse("src/a.rs", &format!("{attribute} mod models; pub struct A;")),
            Source::parse("src/a/models.rs", "use super::A;"),
        ];
        let findings = layers::check(&rooms, &files);
        assert_eq!(findings.len(), verdict, "{attribute}: {findings:?}");
    }
}

#[test]
fn downward_imports_are_silent() {
    for (path, text) in [
        (
            "src/key.rs",
            "use crate::error::{Error, Result}; pub(crate) struct A; pub(in crate::truth) struct B;",
        ),
        (
            "src/truth/b.rs",
            "use super::a::A; use crate::key::Kind; use std::fmt; fn f() { Self::g(); A::h() }",
        ),
        ("src/truth/mod.rs", "pub(crate) mod a; pub(crate) mod b; pub(crate) use b::B;"),
        ("src/truth/a.rs", "struct X; mod inner { use super::X; }"),
        ("src/lib.rs", "mod key; mod truth; pub use key::Kind; pub use truth::b::B;"),
        (
            "src/error.rs",
            "// use crate::key::Kind;\n#[cfg(test)]\nmod tests { use super::*; use crate::key::Kind; }",
        ),
        ("src/error.rs", "const S: &str = \"crate::key::Kind\"; const R: &str = r#\"crate::key::Kind\"#;"),
    ] {
        assert_eq!(layer_findings(path, text), "", "{path}: {text}");
    }
}

fn all(rule: fn(&Source) -> Vec<String>, path: &str, text: &str) -> String {
    rule(&Source::parse(path, text)).join("\n")
}

#[test]
fn unsafe_code_is_refused() {
    let run = |path: &str, text: &str| {
        rules::unsafe_code(&Source::parse(path, text)).join(
            "
",
        )
    };
    const FORBID: &str = "#![forbid(unsafe_code)]\n";
    const EXPECT: &str = "#![expect(unsafe_code, reason = \"r\")]\n";
    refused(&run("src/key.rs", ""), "src/key.rs:1", "forbid");
    refused(&run("src/key.rs", "// #![forbid(unsafe_code)]"), "src/key.rs:1", "forbid");
    refused(
        &run("src/key.rs", &format!("{FORBID}fn f() {{ unsafe {{}} }}")),
        "src/key.rs:2",
        "safe function",
    );
    refused(&run("src/prefetch.rs", ""), "src/prefetch.rs:1", "expect");
    for comment in [
        "",
        "// SAFETY: it is fine",
        "// SAFETY: as above",
        "// F1: says nothing of the word",
        "// SAFETY: f1",
    ] {
        let text = format!("{EXPECT}{comment}\nfn f() {{ unsafe {{ g() }} }}");
        refused(&run("src/prefetch.rs", &text), "src/prefetch.rs:3", "SAFETY");
    }
    let good =
        format!("{EXPECT}// SAFETY: ARENA-12: in bounds;\n// and aligned.\nfn f() {{ unsafe {{ g() }} }}");
    for (path, text) in [("src/lib.rs", ""), ("src/memtable/mod.rs", ""), ("src/prefetch.rs", good.as_str())]
    {
        assert_eq!(run(path, text), "", "{path}");
    }
    refused(
        &rules::fault_injector("src/memtable/mod.rs", "\npub mod fault;").join(""),
        "mod.rs:2",
        "fault-injection",
    );
    let injector = "#[cfg(feature = \"fault-injection\")]\npub mod fault;";
    assert!(rules::fault_injector("src/memtable/mod.rs", injector).is_empty());
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
        "\nuse loom::sync::Arc;",
        "\nuse parking_lot;",
        "\nextern crate loom;",
    ] {
        refused(&all(rules::seam, "src/a.rs", text), "src/a.rs:2", "use crate::sync");
        assert_eq!(all(rules::seam, "src/sync.rs", text), "");
    }
    let fine =
        "use std::sync::{Arc, OnceLock}; use crate::sync::Mutex; #[cfg(loom)] fn f() {} // std::sync::Mutex";
    assert_eq!(all(rules::seam, "src/a.rs", fine), "");
}

#[test]
fn orderings_without_a_note_are_refused() {
    for text in [
        "\nfn f() { A.load(Ordering::Acquire) }",
        "\nfn f() { A.store(1, Release) }",
        "// ORDERING: short\nfn f() { A.fetch_add(1, Ordering::Relaxed) }",
        "\nA.compare_exchange_weak(\n1,\n2,\nOrdering::AcqRel,\nOrdering::Acquire)",
        "\nfence(Ordering::Release)",
        "\nlet order = Ordering::Relaxed;",
    ] {
        refused(&all(rules::orderings, "src/a.rs", text), "src/a.rs:2", "without a note");
    }
    let far = "// ORDERING: pairs with the load in g\n;\n;\n;\n;\nA.store(1, Ordering::Release)";
    refused(&all(rules::orderings, "src/a.rs", far), "src/a.rs:6", "without a note");
    let strong = "// ORDERING: pairs with the load in g\nA.store(1, Ordering::SeqCst)";
    refused(&all(rules::orderings, "src/a.rs", strong), "src/a.rs:2", "SeqCst");
    for text in [
        "// ORDERING: pairs with the load in g\nA.store(1, Ordering::Release)",
        "// ORDERING: pairs with the load in g,\n// which\n// goes\n// on\n// long\nlet x = B;\nA.load(Ordering::Acquire)",
        "// ORDERING: pairs with h\nA.compare_exchange(\n1,\n2,\n3,\nOrdering::AcqRel,\nOrdering::Acquire)",
        "use crate::sync::Ordering::{Acquire, Release};",
        "a.cmp(b) == Ordering::Less",
        "list.load(key); // Acquire",
    ] {
        assert_eq!(all(rules::orderings, "src/a.rs", text), "", "{text}");
    }
}

#[test]
fn leftovers_and_long_files_are_refused() {
    for word in rules::COMMENT_MARKERS {
        for text in [format!("\n// {word}: later"), format!("\n/* {word} */"), format!("\n/// {word}")] {
            refused(&all(rules::markers, "src/a.rs", &text), "src/a.rs:2", word);
        }
        let fine = format!("let a = \"{word}\"; // {word}S and {}", word.to_lowercase());
        assert_eq!(all(rules::markers, "src/a.rs", &fine), "");
    }
    for name in rules::MACRO_MARKERS {
        refused(&all(rules::markers, "src/a.rs", &format!("\n{name}!(x)")), "src/a.rs:2", name);
        assert_eq!(all(rules::markers, "src/a.rs", &format!("let {name} = 1; f({name});")), "");
    }
    let tests = "#[cfg(test)]\nmod tests {\n".to_owned() + &"fn t() {}\n".repeat(90) + "}\n";
    let long = "fn f() {}\n".repeat(451);
    refused(&all(rules::length, "src/a.rs", &long), "src/a.rs:1", "451 code lines");
    refused(&all(rules::length, "src/a.rs", &tests), "src/a.rs:2", "inline tests");
    let commented = "fn f() {}\n// words\n\n".repeat(450);
    assert_eq!(all(rules::length, "src/a.rs", &commented), "");
}

#[test]
fn the_lexer_tells_code_from_text() {
    let text = "let a = '\"'; let b: &'static str = \"// no\"; let c = b'\\''; let d = r##\"x\"# \"##;\
                \n#[cfg(not(test))]\nmod m { x }\n#[cfg(test)]\nmod t { y }\nlet e = br\"\\\"; z // out";
    let source = Source::parse("src/a.rs", text);
    let find = |word: &str| source.tokens.iter().find(|t| t.text == word);
    assert!(find("no").is_none() && find("out").is_none());
    assert_eq!(find("x").map(|t| (t.ground, t.line)), Some((Ground::Code, 3)));
    assert_eq!(find("y").map(|t| t.ground), Some(Ground::Test));
    assert_eq!(find("z").map(|t| t.line), Some(6));
    assert_eq!((source.comments[1].as_str(), source.comments[6].as_str()), ("", "// out"));
}

/// What the campaign would be told about a crate of these two files.
fn call_findings(roof: &str, text: &str) -> String {
    let sources = [Source::parse("src/lib.rs", roof), Source::parse("src/table.rs", text)];
    calls::compare(&calls::public(&sources), &[]).join("\n")
}

#[test]
fn a_new_public_function_is_missed_in_the_campaign() {
    let roof = "pub use table::{TableReader, Range, Writer};";
    let news = [
        ("impl<C: Comparator> TableReader<C> { pub fn brand_new(&self) {} }", "TableReader::brand_new"),
        ("impl TableReader { pub const fn brand_new() {} }", "TableReader::brand_new"),
        ("impl<'t, F: Fn(&u8) -> u8> Iterator for a::Range<'t, F> { fn nth(&mut self) {} }", "Range::nth"),
        (
            "macro_rules! w { () => { pub fn brand_new(&self) {} } } impl Writer { w!(); }",
            "Writer::brand_new",
        ),
    ];
    for (text, missing) in news {
        refused(&call_findings(roof, text), missing, "is public: call it in a trial, or say why not");
    }
    for text in [
        "impl TableReader { pub(crate) fn brand_new(&self) {} fn private(&self) {} }",
        "impl Hidden { pub fn brand_new(&self) {} }",
        "impl Clone for Range { fn brand_new(&self) {} }",
        "#[cfg(test)] mod tests { impl TableReader { pub fn brand_new(&self) {} } }",
    ] {
        assert!(!call_findings(roof, text).contains("brand_new"), "{text}");
    }
    let gone = call_findings(roof, "impl TableReader { pub fn get(&self) {} }");
    refused(&gone, "TableReader::get_into", "is not public any more");
    refused(&gone, "TableReader::get", "no trial calls");
    refused(&gone, "Footer::*", "excludes nothing");
}

#[test]
fn retired_words_are_refused() {
    let (one, name) = (concat!("le", "ns"), "struct BarnDoor;");
    refused(&words::retired("src/a.rs", &format!("\n// the {one} of it")).join("\n"), "src/a.rs:2", one);
    refused(
        &words::retired("src/a.rs", &format!("fn with_{one}es() {{}} let {one} = 1;")).join("\n"),
        "src/a.rs:1",
        one,
    );
    assert!(words::retired("src/a.rs", "a silent list of flames").is_empty());
    let names = |path, text| words::retired_names(&super::lexer::Source::parse(path, text)).join("\n");
    refused(&names("src/a.rs", name), "src/a.rs:1", "door");
    refused(&names("src/forest.rs", ""), "src/forest.rs:1", "forest");
    assert_eq!(names("src/a.rs", "let door = adoration();"), "");
}

#[test]
fn invariants_have_one_name() {
    let files = |texts: [&str; 2]| {
        let sources = texts.map(|text| Source::parse("src/a.rs", text));
        rules::invariants(&sources).join("\n")
    };
    let head = "//! * ARENA-1: chunks do not move.\n";
    assert_eq!(
        files([head, "// SAFETY: ARENA-1: it stands still. SHA-256 is not cited in prose"]).lines().count(),
        1
    );
    assert_eq!(files([head, "// ARENA-1, and sub-chunk-free text"]), "");
    refused(&files([head, head]), "src/a.rs:1", "name this one anew");
    refused(&files([head, "\n// ARENA-2"]), "src/a.rs:2", "ARENA-2 is not defined");
}
