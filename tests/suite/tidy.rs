//! Keeps the house in order: layers, unsafe code, the atomics seam, ordering notes, leftovers, lengths.
//!
//! Reads the sources as tokens and text. Run it alone with
//! `cargo test --test suite tidy`.

mod calls;
#[path = "../support/damage/calls.rs"]
#[allow(unreachable_pub, reason = "the campaign's table, shared by path")]
mod damage_calls;
mod layers;
mod lexer;
mod rules;
mod rules_refuse;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use lexer::Source;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the suite is a folder of the repository").into()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Every Rust file below these folders.
fn sources(folders: &[&str]) -> Vec<Source> {
    let mut files = vec![];
    for folder in folders {
        collect(&root().join(folder), &mut files);
    }
    files.sort();
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let relative = file.strip_prefix(root()).unwrap_or(file);
        Source::parse(&relative.to_string_lossy().replace('\\', "/"), &text)
    };
    files.iter().map(read).collect()
}

fn report(findings: Vec<String>) {
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn imports_go_downward() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let rooms = layers::rooms(&text).unwrap_or_else(|error| panic!("{error}"));
    report(layers::check(&rooms, &sources(&["src"])));
}

#[test]
fn unsafe_code_stays_in_its_files() {
    report(sources(&["src"]).iter().flat_map(rules::unsafe_code).collect());
    let memtable = "src/memtable/mod.rs";
    report(rules::fault_injector(memtable, &fs::read_to_string(root().join(memtable)).expect(memtable)));
}

#[test]
fn atomics_and_locks_come_from_the_seam() {
    report(sources(&["src"]).iter().flat_map(rules::seam).collect());
}

#[test]
fn every_atomic_operation_explains_its_ordering() {
    report(sources(&["src"]).iter().flat_map(rules::orderings).collect());
}

#[test]
fn invariants_have_one_name_each() {
    report(rules::invariants(&sources(&["src", "sst/src"])));
}

/// SAFETY.md names each operation that orders anything, by file and function, and counts the others by file.
#[test]
fn the_safety_table_is_complete() {
    let table = fs::read_to_string(root().join("SAFETY.md")).expect("SAFETY.md");
    let mut files = vec![];
    collect(&root().join("src"), &mut files);
    files.sort();
    let missing = files.iter().flat_map(|file| {
        let path = file.strip_prefix(root().join("src")).unwrap_or(file).to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{path}: {error}"));
        rules::ordering_rows(&path, &text)
    });
    let missing: Vec<String> = missing.filter(|row| !table.contains(row.as_str())).collect();
    report(missing.iter().map(|row| format!("SAFETY.md, orderings: add the row {row}..")).collect());
}

#[test]
fn nothing_is_left_over() {
    let everywhere = sources(&["src", "tests", "examples", "benches", "tools", "fuzz/fuzz_targets", "sst"]);
    assert!(everywhere.len() > 15, "the walk found only {} files", everywhere.len());
    report(everywhere.iter().flat_map(rules::markers).collect());
}

/// A public function that no fault is tried on would be a gap in the campaign.
#[test]
fn the_campaign_calls_every_public_function() {
    let public = calls::public(&sources(&["src"]));
    assert!(public.len() > 150, "the scan found only {} public functions", public.len());
    report(calls::compare(&public, &sources(&["tests/support/damage"])));
}

#[test]
fn files_stay_short() {
    report(
        sources(&["src", "tests", "examples", "tools", "fuzz/fuzz_targets", "sst"])
            .iter()
            .flat_map(rules::length)
            .collect(),
    );
}

/// Documents and code use the field's terms.
#[test]
fn words_are_the_fields() {
    let folders = ["src", "sst", "tests", "benches", "examples", "tools", "fuzz/fuzz_targets"];
    let mut files = vec![];
    folders.iter().for_each(|folder| collect(&root().join(folder), &mut files));
    files.extend(
        ["README.md", "ARCHITECTURE.md", "SAFETY.md", "CHANGELOG.md", "CONTRIBUTING.md"]
            .map(|file| root().join(file)),
    );
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        words::retired(&file.to_string_lossy(), &text)
    };
    let names = sources(&folders);
    report(files.iter().flat_map(read).chain(names.iter().flat_map(words::retired_names)).collect());
}
