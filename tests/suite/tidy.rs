//! Checks rules of the repository: layers, unsafe code, the atomics seam, ordering notes, links,
//! figures, examples, lengths.
//!
//! It reads the sources as text in rustfmt's layout. This command runs it alone: `cargo test --test
//! suite tidy`.

#[path = "../support/damage/calls.rs"]
#[allow(unreachable_pub, reason = "the campaign's table, shared by path")]
mod damage_calls;
mod figures;
mod links;
mod planted_bugs;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

use planted_bugs::Tests;
use rules::source::Source;
use rules::{layers, listing, public, source};

/// The libraries that share a layer rule, a seam and the fault campaign.
const LIBRARIES: [&str; 2] = ["src", "set/src"];

/// Every folder with Rust files.
const ALL: [&str; 8] = [
    "src",
    "set",
    "sst",
    "tests",
    "benches",
    "examples",
    "tools",
    "fuzz/fuzz_targets",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the suite is a folder of the repository")
        .into()
}

/// Path and text of every file below these folders whose name has this ending. Each folder must
/// have one.
fn texts(folders: &[&str], ending: &str) -> Vec<(String, String)> {
    let found = texts_if_any(folders, ending);
    report(subjects::gone(ending, folders, |folder| {
        subjects::has_file(&found, folder)
    }));
    found
}

/// Path and text of every file below these folders whose name has this ending.
fn texts_if_any(folders: &[&str], ending: &str) -> Vec<(String, String)> {
    let (mut left, mut found): (Vec<PathBuf>, _) = (
        folders.iter().map(|folder| root().join(folder)).collect(),
        vec![],
    );
    while let Some(path) = left.pop() {
        let is_listed = || folders.iter().any(|folder| path == root().join(folder));
        let is_skipped = path.ends_with("target") || path.ends_with("records") && !is_listed();
        if path.is_dir() && !is_skipped {
            left.extend(
                fs::read_dir(&path)
                    .expect("a folder")
                    .flatten()
                    .map(|entry| entry.path()),
            );
        } else if path.is_file() && path.to_string_lossy().ends_with(ending) {
            let name = path
                .strip_prefix(root())
                .unwrap_or(&path)
                .to_string_lossy()
                .replace('\\', "/");
            found.push((
                name,
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}")),
            ));
        }
    }
    found.sort();
    found
}

/// Every Rust file below these folders.
fn sources(folders: &[&str]) -> Vec<Source> {
    texts(folders, ".rs")
        .iter()
        .map(|(path, text)| Source::parse(path, text))
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// Path and text of the documents at the root, and the manifest.
fn atop() -> Vec<(String, String)> {
    let files = [
        "README",
        "ARCHITECTURE",
        "SAFETY",
        "CHANGELOG",
        "CONTRIBUTING",
        "SECURITY",
    ]
    .map(|name| name.to_owned() + ".md");
    files
        .into_iter()
        .chain(["Cargo.toml".into()])
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

fn report(findings: impl IntoIterator<Item = String>) {
    let findings: Vec<String> = findings.into_iter().collect();
    assert!(
        findings.is_empty(),
        "{} findings\n{}",
        findings.len(),
        findings.join("\n")
    );
}

#[test]
fn imports_go_downward() {
    report(layers::check(&sources(&LIBRARIES)));
}

#[test]
fn unsafe_code_stays_in_its_files() {
    let sources = sources(&LIBRARIES);
    report(sources.iter().flat_map(rules::unsafe_code));
    report(subjects::gone(
        "unsafe code",
        &rules::UNSAFE_FILES,
        |path| subjects::has_code(&sources, path, "unsafe {"),
    ));
}

#[test]
fn the_fault_injector_needs_its_feature() {
    let sources = sources(&LIBRARIES);
    report(sources.iter().flat_map(rules::fault_injector));
    report(subjects::gone(
        "the fault injector's `mod`",
        &rules::FAULT_MODULES,
        |path| subjects::has_code(&sources, path, "mod fault"),
    ));
}

#[test]
fn atomics_and_locks_come_from_the_seam() {
    let sources = sources(&LIBRARIES);
    report(sources.iter().flat_map(rules::seam));
    let has_atomics = |path: &str| subjects::has_code(&sources, path, "std::sync::atomic");
    report(subjects::gone("raw atomics", &[rules::SEAM], has_atomics));
}

#[test]
fn every_atomic_operation_explains_its_ordering() {
    report(sources(&LIBRARIES).iter().flat_map(rules::orderings));
}

#[test]
fn invariants_have_one_name_each() {
    report(rules::invariants(&sources(&["src", "set/src", "sst/src"])));
}

/// A variant of `Error` says that only `paranoid-set` returns it, or the table's crate makes it.
#[test]
fn errors_of_a_set_say_so() {
    let crates = sources(&["src"]);
    let made: String = crates
        .iter()
        .filter(|source| source.path != "src/error.rs")
        .map(Source::text)
        .collect();
    let text = read("src/error.rs");
    let (_, variants) = text.split_once("pub enum Error {").expect("the enum");
    let (variants, _) = variants.split_once("\n}").expect("the end of the enum");
    let (mut comment, mut count) = (String::new(), 0);
    for line in variants
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
    {
        if let Some(more) = line.strip_prefix("/// ") {
            comment += more;
            comment += " ";
        } else if line.starts_with(char::is_uppercase) {
            let name: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
            let is_made = made.contains(&format!("Error::{name}"));
            let is_marked = comment.contains("Only `paranoid-set` returns it");
            assert_ne!(is_made, is_marked, "{name}: {comment}");
            comment.clear();
            count += 1;
        }
    }
    assert!(count > 15, "{count} variants");
}

/// SAFETY.md names each operation with an ordering, by file and function.
#[test]
fn the_safety_table_is_complete() {
    let (safety, sources) = (read("SAFETY.md"), sources(&LIBRARIES));
    let missing = sources
        .iter()
        .flat_map(|source| rules::ordering_row(source, &safety));
    report(missing.map(|what| format!("SAFETY.md, orderings: {what}")));
    report(rules::rows_without_orderings(&safety, &sources));
}

/// Tables of SAFETY.md and comments name no Rust file that was merged into another one or removed.
#[test]
fn files_that_are_named_exist() {
    let everywhere = sources(&ALL);
    let paths: Vec<&str> = everywhere.iter().map(|source| &*source.path).collect();
    let comments = everywhere
        .iter()
        .map(|source| (&*source.path, source.comments[1..].join("\n")));
    let texts = comments.chain([("SAFETY.md", read("SAFETY.md"))]);
    report(texts.flat_map(|(path, text)| rules::stale_files(path, &text, &paths)));
}

/// `.ci/mutants` applies the patches to a copy, and expects that the named tests fail.
#[test]
fn planted_bugs_apply() {
    let read = |path: &str| fs::read_to_string(root().join(path)).ok();
    let patches = texts(&["tests/mutants"], ".patch");
    let tests = Tests::of(&sources(&["src", "set/src", "tests/suite"]));
    report(
        patches
            .iter()
            .flat_map(|(path, patch)| planted_bugs::check(path, patch, &tests, read)),
    );
}

#[test]
fn nothing_is_left_over_and_files_stay_short() {
    let everywhere = sources(&ALL);
    assert!(
        everywhere.len() >= 250,
        "the walk found only {} files",
        everywhere.len()
    );
    report(everywhere.iter().flat_map(rules::markers));
    report(everywhere.iter().flat_map(rules::length));
    report(
        sources(&["src", "set/src", "sst/src"])
            .iter()
            .flat_map(rules::second_heads),
    );
}

/// A public function without a fault would be a gap in the campaign.
#[test]
fn the_campaign_calls_every_public_function() {
    let calls = public::public(&sources(&LIBRARIES)).calls;
    assert!(
        calls.len() > 150,
        "the scan found only {} public functions",
        calls.len()
    );
    report(public::compare(&calls, &sources(&["tests/support/damage"])));
}

/// Every public type has an example, and so have three of five public functions.
#[test]
fn public_items_have_examples() {
    report(public::without_examples(&public::public(&sources(
        &LIBRARIES,
    ))));
}

/// The links of a document work in the published package, on a forge, and in the rustdoc.
#[test]
fn links_hold_in_the_package() {
    let documents = [
        texts(&["docs", "benches/records"], ".md"),
        atop(),
        texts(&["set", "sst"], ".md"),
    ]
    .concat();
    let links = documents
        .iter()
        .flat_map(|(path, text)| links::check(&root(), path, text));
    let (library, pages) = (read("src/lib.rs"), texts(&["docs"], ".md"));
    let of_pages = pages
        .iter()
        .flat_map(|(path, text)| links::check_page(&library, path, text));
    report(links.chain(of_pages));
    let manifest = read("Cargo.toml");
    let is_packaged = |folder: &str| manifest.contains(&format!("\"{folder}/**\""));
    report(subjects::gone(
        "`include` of Cargo.toml",
        &links::PACKAGED,
        is_packaged,
    ));
    report(subjects::gone("packages", &links::PACKAGES, |folder| {
        root().join(folder).join("Cargo.toml").exists()
    }));
}

/// Name and text of every record.
fn records() -> figures::Records {
    let entries = fs::read_dir(root().join("benches/records"))
        .expect("records")
        .flatten();
    entries
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into(),
                fs::read_to_string(entry.path()).expect("text"),
            )
        })
        .collect()
}

/// A record that names no commit of this history cannot be repeated.
#[test]
fn records_are_of_commits_that_exist() {
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(arguments)
            .current_dir(root())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let is_whole = git(&["rev-parse", "--is-shallow-repository"])
        .is_some_and(|answer| answer.trim() == "false");
    let history = if is_whole {
        git(&["rev-list", "HEAD"])
    } else {
        None
    };
    if history.is_none() {
        println!("no whole history here: commits of records are not looked for");
    }
    report(figures::check_records(&records(), history.as_deref()));
}

/// The figures of documents about speed and tests are those of the newest records.
#[test]
fn figures_are_from_the_newest_records() {
    let book = ["src/lib.rs", "set/src/lib.rs"].map(|path| (path.to_owned(), read(path)));
    let pages = [
        texts(&["docs", "set", "sst"], ".md"),
        vec![("README.md".into(), read("README.md"))],
    ]
    .concat();
    let picture = figures::check_picture(&read("docs/pictures/speed.svg"), &records());
    let drawn = figures::newest_drawn(&records(), "threads");
    assert_eq!(
        drawn.as_deref(),
        Some(&*read("docs/pictures/threads.svg")),
        "docs/pictures/threads.svg is not of the newest record; run `cargo run -- picture` in \
         benches/peers"
    );
    let stated = figures::check(
        &read("tests/data/figures.txt"),
        &[pages, book.into()].concat(),
        &records(),
    );
    report(picture.into_iter().chain(stated));
}

/// A change of the public API is seen in review, and is in CHANGELOG.md. Blanket and derived
/// implementations of other crates are not listed.
#[test]
fn the_public_api_is_the_one_that_is_written_down() {
    const PATH: &str = "tests/data/public_api.txt";
    let lines: Vec<String> = public::public(&sources(&LIBRARIES))
        .listing
        .into_iter()
        .collect();
    let new = lines.join("\n") + "\n";
    if std::env::var_os("PARANOID_REWRITE").is_some() {
        return fs::write(root().join(PATH), new).expect(PATH);
    }
    let advice = "if that is meant: PARANOID_REWRITE=1 cargo test --test suite tidy::the_public_api, and CHANGELOG.md";
    report(
        listing::difference(&read(PATH), &new)
            .into_iter()
            .map(|line| format!("{PATH}: {line}; {advice}")),
    );
}

/// Weight is a budget. `tools/weight` prints the table, and the cost for a caller to compile it.
#[test]
fn nothing_is_heavier_than_its_limit() {
    let rooms = weight::rooms(&sources(&["src", "set/src", "sst/src"]));
    let limited = weight::LIMITS.map(|(folder, ..)| folder);
    report(subjects::gone("code lines", &limited, |folder| {
        weight::below(&rooms, folder).lines > 0
    }));
    let is_counted = |(path, _): &(String, String)| !path.ends_with("CHANGELOG.md");
    let documents = [
        texts(&["set", "sst", "fuzz", "benches"], ".md"),
        texts_if_any(&["tests", "tools", "examples"], ".md"),
        atop()
            .into_iter()
            .filter(|(path, _)| path.ends_with(".md"))
            .collect(),
    ];
    let words = weight::words_of(
        &documents
            .concat()
            .into_iter()
            .filter(is_counted)
            .collect::<Vec<_>>(),
    );
    let pages = weight::words_of(&texts(&["docs"], ".md"));
    let public = read("tests/data/public_api.txt").lines().count() as u64;
    println!("{}", weight::table(&rooms, words, pages, public));
    let files = |folders: &[&str]| texts(folders, ".rs").len() as u64;
    let safety = read("SAFETY.md").split_whitespace().count() as u64;
    let others = [
        ("*.md", "words", words, weight::WORDS_MAX),
        ("SAFETY.md", "words", safety, weight::SAFETY_WORDS_MAX),
        ("docs/*.md", "words", pages, weight::PAGES_MAX),
        ("public_api.txt", "public items", public, weight::PUBLIC_MAX),
        ("tests/", "files", files(&["tests"]), weight::TESTS_MAX),
        (
            "benches/ and tools/",
            "files",
            files(&["benches", "tools"]),
            weight::PROGRAMS_MAX,
        ),
    ];
    report(weight::check(&rooms, &others));
}

/// The paths that rules list still have the subjects of the rules.
mod subjects {
    use super::source::Source;

    /// The paths of a rule's list that no longer have its subject.
    pub(crate) fn gone(what: &str, paths: &[&str], has: impl Fn(&str) -> bool) -> Vec<String> {
        let advice = "list the path where it is now";
        let gone = paths.iter().filter(|path| !has(path));
        gone.map(|path| format!("{path}: tidy looks for {what} there, and finds none; {advice}"))
            .collect()
    }

    /// Whether a folder has one of these files.
    pub(crate) fn has_file(files: &[(String, String)], folder: &str) -> bool {
        files.iter().any(|(path, _)| {
            path.strip_prefix(folder)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// Whether the file at this path has this code.
    pub(crate) fn has_code(sources: &[Source], path: &str, code: &str) -> bool {
        sources
            .iter()
            .any(|source| source.path == path && source.text().contains(code))
    }
}

/// The weight of each package and each room: code lines, files, public items and words.
///
/// Code lines are lines with code: no blank lines, comments, tests or models. Files are all
/// files. A room is a folder without its subfolders.
///
/// Each limit is 5 % above the measured value at the time when it was set. A value above its limit
/// asks a question in review: is all of this needed? It is never a reason to glue two topics into
/// one file, or to make lines wide.
mod weight {
    use std::collections::BTreeMap;

    use super::layers::is_for_tests;
    use super::source::Source;

    /// Most code lines and files of a package's sources, by folder.
    pub(crate) const LIMITS: [(&str, u64, u64); 3] = [
        ("src/", 22_710, 191),
        ("set/src/", 6_920, 45),
        ("sst/src/", 4_540, 30),
    ];

    /// Most words of the documents that are not part of the rustdoc, without CHANGELOG and records.
    pub(crate) const WORDS_MAX: u64 = 11_360;

    /// Most words of SAFETY.md.
    pub(crate) const SAFETY_WORDS_MAX: u64 = 4_550;

    /// Most words of the pages of the rustdoc that are files: `guide` and `internals`.
    pub(crate) const PAGES_MAX: u64 = 11_100;

    /// Most files of the suite, of its support, and of the campaign's damage.
    pub(crate) const TESTS_MAX: u64 = 63;

    /// Most Rust files of the programs that measure and damage tables: `benches/` and `tools/`
    /// together.
    pub(crate) const PROGRAMS_MAX: u64 = 68;

    /// Most lines of the list of public items.
    pub(crate) const PUBLIC_MAX: u64 = 630;

    /// Code lines and files.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) struct Size {
        pub(crate) lines: u64,
        pub(crate) files: u64,
    }

    /// The size of each room, by its path with a slash at its end.
    pub(crate) fn rooms(sources: &[Source]) -> BTreeMap<String, Size> {
        let mut rooms = BTreeMap::<String, Size>::new();
        for source in sources {
            let folder = source
                .path
                .rsplit_once('/')
                .map_or("", |(folder, _)| folder);
            let room = rooms.entry(format!("{folder}/")).or_default();
            room.lines += if is_for_tests(&source.path) {
                0
            } else {
                code_lines(source)
            };
            room.files += 1;
        }
        rooms
    }

    /// Lines with code, without items for tests and models. Such items end with a semicolon, or
    /// with the closing brace.
    fn code_lines(source: &Source) -> u64 {
        let begins = [
            "#[cfg(test",
            "#[cfg(all(test",
            "#[cfg(loom",
            "#[cfg(all(loom",
        ];
        let (mut count, mut lines) = (
            0,
            source
                .code
                .iter()
                .map(|line| line.trim())
                .filter(|line| !line.is_empty()),
        );
        while let Some(line) = lines.next() {
            if !begins.iter().any(|begin| line.starts_with(begin)) {
                count += 1;
                continue;
            }
            let mut depth = 0_usize;
            for line in lines.by_ref().skip_while(|line| line.starts_with("#[")) {
                depth = (depth + line.matches(['{', '(']).count())
                    .saturating_sub(line.matches(['}', ')']).count());
                if depth == 0 && line.ends_with([';', '}', ',']) {
                    break;
                }
            }
        }
        count
    }

    /// The size of all rooms below a folder.
    pub(crate) fn below(rooms: &BTreeMap<String, Size>, folder: &str) -> Size {
        let inside = rooms.iter().filter(|(room, _)| room.starts_with(folder));
        inside.fold(Size::default(), |sum, (_, room)| Size {
            lines: sum.lines + room.lines,
            files: sum.files + room.files,
        })
    }

    /// The number of words of these documents.
    pub(crate) fn words_of(documents: &[(String, String)]) -> u64 {
        documents
            .iter()
            .map(|(_, text)| text.split_whitespace().count() as u64)
            .sum()
    }

    /// The table: a line for each package and each room, and for words and public items.
    pub(crate) fn table(
        rooms: &BTreeMap<String, Size>,
        words: u64,
        pages: u64,
        public: u64,
    ) -> String {
        let packages = LIMITS.map(|(folder, ..)| (format!("{folder}.."), below(rooms, folder)));
        let rooms = rooms.iter().map(|(room, size)| (room.clone(), *size));
        let lines = packages.into_iter().chain(rooms);
        let mut table = String::from("| room | code lines | files |\n|---|---|---|\n");
        table.extend(
            lines.map(|(room, size)| format!("| `{room}` | {} | {} |\n", size.lines, size.files)),
        );
        table
            + &format!(
                "\n{public} public items; {words} words of documents beside the rustdoc, {pages} of its pages\n"
            )
    }

    /// Values above their limits: sources, and others by name, unit, size and limit.
    pub(crate) fn check(
        rooms: &BTreeMap<String, Size>,
        others: &[(&str, &str, u64, u64)],
    ) -> Vec<String> {
        let sizes = LIMITS.into_iter().flat_map(|(folder, lines, files)| {
            let size = below(rooms, folder);
            [
                (folder, "code lines", size.lines, lines),
                (folder, "files", size.files, files),
            ]
        });
        let over = sizes
            .chain(others.iter().copied())
            .filter(|(_, _, is, limit)| is > limit);
        let advice = "is all of it needed? If so, raise the limit in review";
        over.map(|(what, of, is, limit)| format!("{what}: {is} {of}, limit {limit}; {advice}"))
            .collect()
    }
}

/// Tests of the rules: each rule gets a text that breaks it, and one that keeps it.
mod refused {
    use super::source::Source;
    use super::{layers, public, rules, subjects};

    #[track_caller]
    fn refused(findings: &[String], place: &str, word: &str) {
        let found = findings
            .iter()
            .any(|finding| finding.contains(place) && finding.contains(word));
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
        let sources: Vec<Source> = others
            .chain([(path, text)])
            .map(|(path, text)| Source::parse(path, text))
            .collect();
        layers::check(&sources)
    }

    #[test]
    fn imports_that_go_up_or_round_are_refused() {
        for (path, text, word) in [
            (
                "src/key.rs",
                "use crate::truth::a::{X, Y};",
                "goes up to src/truth/a.rs",
            ),
            (
                "src/key.rs",
                "macro_rules! m { () => { $crate::truth::a::f() } }",
                "goes up",
            ),
            ("src/key.rs", "use super::truth::a;", "is relative"),
            (
                "src/error.rs",
                "use crate::key::Kind;",
                "goes up to src/key.rs",
            ),
            (
                "src/truth/a.rs",
                "use crate::truth::b::B;",
                "goes up to src/truth/b.rs",
            ),
            ("src/truth/b.rs", "use crate::truth::X;", "facade"),
            (
                "src/truth/b.rs",
                "use crate::{error::Error, key};",
                "facade src/lib.rs",
            ),
            (
                "src/truth/c.rs",
                "use crate::truth::a::A;",
                "no file has a `mod` line",
            ),
            ("src/truth/mod.rs", "mod models;", "holds tests"),
            ("src/other.rs", "", "no file has a `mod` line"),
            (
                "src/truth/b.rs",
                "impl<T> Key<T> {} use crate::key::{Kind, Key};",
                "has its methods in src/key.rs",
            ),
        ] {
            refused(&layer_findings(path, text), &format!("{path}:1"), word);
        }
    }

    #[test]
    fn imports_that_go_down_are_silent() {
        for (path, text) in [
            (
                "src/key.rs",
                "use crate::error::{Error, Result as R}; pub(in crate::truth) struct B;",
            ),
            (
                "src/truth/b.rs",
                "use crate::truth::a::A; use crate::key::Kind; fn f() { Self::g(); A::h() }",
            ),
            (
                "src/truth/mod.rs",
                "pub(crate) mod a;\nmod b;\npub(crate) use self::b::B;\n#[cfg(all(test, loom))]\nmod loom;",
            ),
            (
                "src/truth/b.rs",
                "use crate::truth::a::A; use crate::key::Kind;\nimpl A {}\nimpl From<Kind> for A {}",
            ),
            (
                "src/truth/a.rs",
                "struct X;\nmod inner {\n    use super::{X, Y};\n}",
            ),
            (
                "src/error.rs",
                "// use crate::key::Kind;\n#[cfg(test)]\nmod tests {\n    use crate::key::Kind;\n}",
            ),
            ("src/truth/tests/c.rs", "use crate::truth::X;"),
        ] {
            assert_eq!(layer_findings(path, text), [""; 0], "{path}: {text}");
        }
    }

    type Rule = fn(&Source) -> Vec<String>;

    /// Runs a rule over texts of one file. Each has the line and a word of its finding. No word:
    /// the text keeps the rule.
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
        judged(
            rules::unsafe_code,
            "src/key.rs",
            &[("// #![forbid]", 1, "forbid"), (lifted, 1, "arena.rs")],
        );
        judged(rules::unsafe_code, "src/memtable/mod.rs", &[("", 0, "")]);
        let texts = [
            ("// SAFETY: it is fine\nunsafe { g() }", 2, "SAFETY"),
            ("// F-1: not the word\nunsafe impl A for B {}", 2, "SAFETY"),
            (
                "// SAFETY: ARENA-12: in bounds;\n// and aligned.\nunsafe {}",
                0,
                "",
            ),
        ];
        judged(rules::unsafe_code, "src/prefetch.rs", &texts);
        judged(
            rules::seam,
            "src/sync.rs",
            &[("use std::sync::atomic::AtomicU64;", 0, "")],
        );
        let texts = [
            ("use std::sync::atomic::AtomicU64;", 1, "use crate::sync"),
            ("use std::{fmt, sync::{Arc, Mutex}};", 1, "use crate::sync"),
            ("use core::sync::*;", 1, "use crate::sync"),
            ("use std::sync;", 1, "use crate::sync"),
            (
                "static M: ::std::sync::RwLock<u8> = x;",
                1,
                "use crate::sync",
            ),
            ("extern crate loom;", 1, "use crate::sync"),
            (
                "use std::sync::{Arc, OnceLock}; use crate::sync::Mutex; // std::sync::Mutex",
                0,
                "",
            ),
        ];
        judged(rules::seam, "src/a.rs", &texts);
        let gated = "#[cfg(feature = \"fault-injection\")]\n#[x]\npub mod fault;";
        let texts = [
            ("\npub mod fault {", 2, "fault-injection"),
            (
                "/// Words.\n#[x]\npub(crate) mod fault;",
                3,
                "fault-injection",
            ),
            (
                "#[cfg(feature = \"fault-injection\")]\nmod piece;\nmod fault;",
                3,
                "fault-injection",
            ),
            (gated, 0, ""),
        ];
        judged(rules::fault_injector, "src/memtable/mod.rs", &texts);
    }

    #[test]
    fn paths_without_their_subject_are_refused() {
        let sources = [Source::parse("src/a.rs", "// mod fault\nunsafe { g() }")];
        let gone = |path, code| {
            subjects::gone(code, &[path], |path| {
                subjects::has_code(&sources, path, code)
            })
        };
        assert_eq!(gone("src/a.rs", "unsafe {"), [""; 0]);
        refused(&gone("src/a.rs", "mod fault"), "src/a.rs", "mod fault");
        refused(&gone("src/b.rs", "unsafe {"), "src/b.rs", "list the path");
        let files = [("docs/a.md".to_owned(), String::new())];
        let gone = |folder| {
            subjects::gone(".md", &[folder], |folder| {
                subjects::has_file(&files, folder)
            })
        };
        assert_eq!(gone("docs"), [""; 0]);
        refused(&gone("doc"), "doc:", "finds none");
        let sources = [
            Source::parse("src/a.rs", "Ordering::Relaxed\nOrdering::Acquire"),
            Source::parse("src/b.rs", "Ordering::Relaxed"),
        ];
        for (row, path) in [
            ("| `a.rs` | `f` -> `g` |", ""),
            ("| `a.rs` | `f` -> `g` |\n| `b.rs` | `f` |", "b.rs"),
            ("| `c.rs` | `f` |", "c.rs"),
        ] {
            let found = rules::rows_without_orderings(
                &format!("| `x.rs` | no ordering |\n\n## Orderings\n\n{row}"),
                &sources,
            );
            match path {
                "" => assert_eq!(found, [""; 0], "{row}"),
                path => refused(&found, path, "SAFETY.md"),
            }
        }
    }

    #[test]
    fn orderings_without_a_reason_or_a_row_are_refused() {
        let exchange = "A.compare_exchange(\n1,\n2,\nOrdering::AcqRel,\nOrdering::Acquire)";
        let explained =
            format!("// ORDERING: pairs with g,\n// which\n// is\n// long\nlet x = B;\n{exchange}");
        let texts = [
            (
                "// ORDERING: short\nA.fetch_add(1, Ordering::Relaxed)",
                2,
                "without a note",
            ),
            (exchange, 1, "without a note"),
            (
                "// ORDERING: pairs with g\n;\n;\n;\n;\n;\n;\nA.store(Ordering::Release)",
                8,
                "without a note",
            ),
            (
                "// ORDERING: pairs with g\nA.store(1, Ordering::SeqCst)",
                2,
                "SeqCst",
            ),
            ("use crate::sync::Ordering::Acquire;", 1, "in full"),
            (&explained, 0, ""),
        ];
        judged(rules::orderings, "src/a.rs", &texts);
        let text = "fn f() {\nOrdering::Acquire\n}\nOrdering::Relaxed";
        let both = Source::parse("src/a.rs", text);
        for (row, lacks) in [
            ("| `a.rs` | `f` -> `g` |", 0),
            ("| `a.rs` | `g` |", 1),
            ("| `b.rs` | `f` |", 1),
        ] {
            let found = rules::ordering_row(&both, row);
            assert_eq!(found.len(), lacks, "{row}: {found:?}");
        }
        for (text, is_refused) in [
            ("| `src/b/a.rs` | `f` |", false),
            ("\n| `a.rs` | `b/c.rs` |", true),
            ("\n| `b/a.rs` | `a/a.rs` |", true),
        ] {
            let found = rules::stale_files("SAFETY.md", text, &["src/b/a.rs"]);
            if is_refused {
                refused(&found, "SAFETY.md:2", "does not exist")
            } else {
                assert_eq!(found, [""; 0])
            }
        }
    }

    #[test]
    fn leftovers_and_long_files_are_refused() {
        let code = "fn f() {}\n// words\n".repeat(1_100);
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}",
            "    fn t() {}\n".repeat(210)
        );
        let texts = [
            (&*code, 0, ""),
            (&format!("{code}use a;"), 1, "1101 code lines"),
            (&tests, 1, "inline tests"),
        ];
        judged(rules::length, "src/a.rs", &texts);
        let texts = [
            (
                "//! A.\n\nuse b;\n\n// Why.\nfn f() {}\n\n// B.\n//\n// C.\n\nfn g() {}",
                8,
                "head",
            ),
            (
                "//! A.\n\nuse b;\n\n// Why.\nfn f() {\n    // How.\n\n}",
                0,
                "",
            ),
        ];
        judged(rules::second_heads, "src/a.rs", &texts);
        for word in rules::COMMENT_MARKERS {
            judged(
                rules::markers,
                "src/a.rs",
                &[(&format!("\n// {word}: later"), 2, word)],
            );
        }
        for name in rules::MACRO_MARKERS {
            judged(
                rules::markers,
                "src/a.rs",
                &[(&format!("{name}!(x)"), 1, name)],
            );
        }
    }

    /// The public items of a crate of these two files.
    fn public_of(text: &str) -> public::Public {
        let roof = "pub use table::{TableReader, Range, Writer};";
        public::public(&[
            Source::parse("src/lib.rs", roof),
            Source::parse("src/table.rs", text),
        ])
    }

    #[test]
    fn a_public_function_without_a_trial_or_an_example_is_missed() {
        for (text, missing) in [
            (
                "impl<C: Order> TableReader<C> {\n    pub const fn brand_new() {}\n}",
                "TableReader::brand_new",
            ),
            (
                "impl<F: Fn(&u8) -> u8> Iterator for a::Range<F> {\n    fn nth() {}\n}",
                "Range::nth",
            ),
            (
                "macro_rules! w {\n    pub fn brand_new() {}\n}\nimpl Writer {\n    w!();\n}",
                "Writer::brand_new",
            ),
        ] {
            refused(
                &public::compare(&public_of(text).calls, &[]),
                missing,
                "is public: call it in a trial, or",
            );
        }
        for text in [
            "impl TableReader {\n    pub(crate) fn brand_new() {}\n    fn brand_new() {}\n}",
            "impl Clone for Range {\n    fn brand_new() {}\n}",
            "#[cfg(test)]\nmod tests {\n    impl TableReader {\n        pub fn brand_new() {}\n    }\n}",
        ] {
            assert!(
                !public::compare(&public_of(text).calls, &[])
                    .join("")
                    .contains("brand_new"),
                "{text}"
            );
        }
        let gone = public::compare(
            &public_of("impl TableReader {\n    pub fn get() {}\n}").calls,
            &[],
        );
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
    fn doubled_and_unknown_invariants_are_refused() {
        let head = "//! * ARENA-1: chunks do not move.\n";
        let run = |texts: [&str; 2]| {
            rules::invariants(&texts.map(|text| Source::parse("src/a.rs", text)))
        };
        assert!(run([head, "// ARENA-1, and sub-chunk-free text"]).is_empty());
        refused(&run([head, head]), "src/a.rs:1", "name this one anew");
        refused(
            &run([head, "\n// ARENA-2"]),
            "src/a.rs:2",
            "ARENA-2 is not defined",
        );
    }
}
