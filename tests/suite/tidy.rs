//! Keeps the house in order: layers, unsafe code, the atomics seam, ordering notes, words, examples, lengths.
//!
//! Reads the sources as text that rustfmt has laid out. Run it alone with
//! `cargo test --test suite tidy`.

#[path = "../support/damage/calls.rs"]
#[allow(unreachable_pub, reason = "the campaign's table, shared by path")]
mod damage_calls;
mod layers;
mod links;
mod listing;
mod mutants;
mod names;
mod public;
mod refused;
mod rules;
mod source;
mod weight;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Every folder with Rust files.
const ALL: [&str; 7] = ["src", "sst", "tests", "benches", "examples", "tools", "fuzz/fuzz_targets"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the suite is a folder of the repository").into()
}

/// Path and text of every file below these folders whose name ends so.
fn texts(folders: &[&str], ending: &str) -> Vec<(String, String)> {
    let (mut left, mut found): (Vec<PathBuf>, _) =
        (folders.iter().map(|folder| root().join(folder)).collect(), vec![]);
    while let Some(path) = left.pop() {
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("records") {
            left.extend(fs::read_dir(&path).expect("a folder").flatten().map(|entry| entry.path()));
        } else if path.is_file() && path.to_string_lossy().ends_with(ending) {
            let name = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            found.push((name, fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))));
        }
    }
    found.sort();
    found
}

/// Every Rust file below these folders.
fn sources(folders: &[&str]) -> Vec<Source> {
    texts(folders, ".rs").iter().map(|(path, text)| Source::parse(path, text)).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// Path and text of the documents at the root, and the manifest.
fn atop() -> Vec<(String, String)> {
    let files = ["README", "ARCHITECTURE", "SAFETY", "CHANGELOG", "CONTRIBUTING", "SECURITY"]
        .map(|name| name.to_owned() + ".md");
    files.into_iter().chain(["Cargo.toml".into()]).map(|path| (path.clone(), read(&path))).collect()
}

fn report(findings: impl IntoIterator<Item = String>) {
    let findings: Vec<String> = findings.into_iter().collect();
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn imports_go_downward() {
    report(layers::check(&sources(&["src"])));
}

#[test]
fn unsafe_code_stays_in_its_files() {
    report(sources(&["src"]).iter().flat_map(rules::unsafe_code));
    let declaring = ["src/lib.rs", "src/memtable/lifecycle/mod.rs"];
    report(declaring.iter().flat_map(|path| rules::fault_injector(path, &read(path))));
}

#[test]
fn atomics_and_locks_come_from_the_seam() {
    report(sources(&["src"]).iter().flat_map(rules::seam));
}

#[test]
fn every_atomic_operation_explains_its_ordering() {
    report(sources(&["src"]).iter().flat_map(rules::orderings));
}

#[test]
fn invariants_have_one_name_each() {
    report(rules::invariants(&sources(&["src", "sst/src"])));
}

/// SAFETY.md names each operation that orders anything, by file and function, and counts the others by file.
#[test]
fn the_safety_table_is_complete() {
    let (safety, sources) = (read("SAFETY.md"), sources(&["src"]));
    let missing = sources.iter().flat_map(|source| rules::ordering_row(source, &safety));
    report(missing.map(|what| format!("SAFETY.md, orderings: {what}")));
}

/// `.ci/mutants` applies them to a copy, and expects that the named tests fail.
#[test]
fn planted_bugs_apply() {
    let read = |path: &str| fs::read_to_string(root().join(path)).ok();
    let patches = texts(&["tests/mutants"], ".patch");
    report(patches.iter().flat_map(|(path, patch)| mutants::check(path, patch, read)));
}

#[test]
fn nothing_is_left_over_and_files_stay_short() {
    let everywhere = sources(&ALL);
    assert!(everywhere.len() > 250, "the walk found only {} files", everywhere.len());
    report(everywhere.iter().flat_map(rules::markers));
    report(everywhere.iter().filter(|source| !source.path.starts_with("benches/")).flat_map(rules::length));
}

/// A public function that no fault is tried on would be a gap in the campaign.
#[test]
fn the_campaign_calls_every_public_function() {
    let calls = public::public(&sources(&["src"])).calls;
    assert!(calls.len() > 150, "the scan found only {} public functions", calls.len());
    report(public::compare(&calls, &sources(&["tests/support/damage"])));
}

/// Every public type has an example, and so have three of five public functions.
#[test]
fn public_items_have_examples() {
    report(public::without_examples(&public::public(&sources(&["src"]))));
}

/// Who reads a document in the published package finds what it links to.
#[test]
fn links_hold_in_the_package() {
    let documents = [texts(&["docs", "benches/records"], ".md"), atop(), texts(&["sst"], ".md")].concat();
    let links = documents.iter().flat_map(|(path, text)| links::check(&root(), path, text));
    report(links);
}

/// A change of what users can call is seen in review, and stands in CHANGELOG.md. Blanket and derived implementations of
/// other crates are not listed.
#[test]
fn the_public_api_is_the_one_that_is_written_down() {
    const PATH: &str = "tests/data/public_api.txt";
    let lines: Vec<String> = public::public(&sources(&["src"])).listing.into_iter().collect();
    let new = lines.join("\n") + "\n";
    if std::env::var_os("PARANOID_REWRITE").is_some() {
        return fs::write(root().join(PATH), new).expect(PATH);
    }
    let advice =
        "if that is meant: PARANOID_REWRITE=1 cargo test --test suite tidy::the_public_api, and CHANGELOG.md";
    report(
        listing::difference(&read(PATH), &new).into_iter().map(|line| format!("{PATH}: {line}; {advice}")),
    );
}

/// Documents and code use the field's terms.
#[test]
fn words_are_the_fields() {
    let (code, documents) = (texts(&ALL, ".rs"), texts(&["docs", "sst", "benches"], ".md"));
    report(code.iter().chain(&documents).chain(&atop()).flat_map(|(path, text)| names::retired(path, text)));
    report(sources(&ALL).iter().flat_map(names::retired_names));
}

/// Weight is a budget. `tools/weight` prints the table, and what a caller pays to compile it.
#[test]
fn nothing_is_heavier_than_its_limit() {
    let rooms = weight::rooms(&sources(&["src", "sst/src"]));
    let is_counted = |(path, _): &(String, String)| !path.ends_with("CHANGELOG.md");
    let folders = ["sst", "fuzz", "benches", "tests", "tools", "examples"];
    let documents =
        [texts(&folders, ".md"), atop().into_iter().filter(|(path, _)| path.ends_with(".md")).collect()];
    let words = weight::words_of(&documents.concat().into_iter().filter(is_counted).collect::<Vec<_>>());
    let pages = weight::words_of(&texts(&["docs"], ".md"));
    let public = read("tests/data/public_api.txt").lines().count() as u64;
    println!("{}", weight::table(&rooms, words, pages, public));
    let safety = read("SAFETY.md").split_whitespace().count() as u64;
    report(weight::check(&rooms, words, safety, pages, public));
}
