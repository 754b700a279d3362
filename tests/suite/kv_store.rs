//! The example `kv_store` in directories that other programs use too: what is its own and nobody names goes, and nothing else is touched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::examples::{example, folder, run};
use crate::kills::{Store, journal};
use crate::support::rng::Rng;
use crate::support::watchdog::Watchdog;

/// Runs a line of commands: exit code, output, errors.
fn line(program: &Path, directory: &Path, line: &str) -> (Option<i32>, String, String) {
    run(program, &["--dir", directory.to_str().unwrap(), line])
}

/// A store with a table file and a journal.
fn store(program: &Path, name: &str) -> PathBuf {
    let directory = folder(name).join("store");
    assert_eq!(line(program, &directory, "put a 1; put b 2; flush").0, Some(0));
    assert_eq!(line(program, &directory, "flush").0, Some(0));
    assert_eq!(line(program, &directory, "put c 3").0, Some(0));
    directory
}

fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The table files that there are, and those that the manifest names.
fn tables(directory: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let manifest = fs::read_to_string(directory.join("MANIFEST")).unwrap();
    let named = manifest.lines().filter_map(|line| line.strip_prefix("file "));
    let named = named.map(|number| format!("{:06}.sst", number.parse::<u64>().unwrap())).collect();
    (names(directory).into_iter().filter(|name| name.contains(".sst")).collect(), named)
}

#[test]
fn what_is_not_its_own_stays() {
    let Some(program) = example("kv_store") else { return };
    let directory = store(&program, "kv_store-others");
    let others =
        ["mine.sst", "notes.tmp", "1.sst", "0000001.sst", "000001.sst.tmp", "000001.sst.old", "LOCK.tmp"];
    let leftovers = ["000050.sst", "000051.sst.0.tmp", "MANIFEST.tmp"];
    others.iter().chain(&leftovers).for_each(|name| fs::write(directory.join(name), b"whose?").unwrap());
    fs::create_dir(directory.join("000077.sst")).unwrap();
    assert_eq!(line(&program, &directory, "put d 4; flush"), (Some(0), String::new(), String::new()));
    assert_eq!(line(&program, &directory, "flush").0, Some(0));
    assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\nd 4\n");
    let names = names(&directory);
    assert!(others.iter().all(|name| names.contains(*name)), "{names:?}");
    assert!(!leftovers.iter().any(|name| names.contains(*name)), "{names:?}");
    // The next number is one that no file has.
    assert!(names.contains("000077.sst") && names.contains("000078.sst"), "{names:?}");
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_a_new_manifest_is_not_written_through() {
    let Some(program) = example("kv_store") else { return };
    let directory = store(&program, "kv_store-link");
    let (target, link) = (directory.with_extension("target"), directory.join("MANIFEST.tmp"));
    fs::write(&target, b"somebody else's").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let (code, _, error) = line(&program, &directory, "put d 4; flush");
    assert!(code == Some(2) && error.contains("MANIFEST.tmp"), "{error}");
    assert_eq!(fs::read(&target).unwrap(), b"somebody else's");
    fs::remove_file(&link).unwrap();
    assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\n");
}

/// To open a pipe for reading is to wait for somebody who writes.
#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_journal_is_an_error() {
    let Some(program) = example("kv_store") else { return };
    let _watchdog = Watchdog::new("kv_store::a_pipe_in_the_place_of_a_journal_is_an_error", 0);
    let directory = store(&program, "kv_store-pipe");
    let pipe = directory.join("000099.journal");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (code, _, error) = line(&program, &directory, "scan");
    assert!(code == Some(2) && error.contains("000099.journal"), "{error}");
    fs::remove_file(&pipe).unwrap();
    assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\n");
}

#[test]
fn a_second_process_is_refused() {
    let Some(program) = example("kv_store") else { return };
    let _watchdog = Watchdog::new("kv_store::a_second_process_is_refused", 0);
    let directory = store(&program, "kv_store-second");
    let mut first = Store::start(&program, &directory, &mut Rng::new(0));
    assert_eq!(first.scan().len(), 3);
    let (code, _, error) = line(&program, &directory, "put d 4");
    assert!(code == Some(2) && error.contains("LOCK"), "{error}");
    // The lock ends with the process, however that ends.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\n");
}

/// Files that may not grow: a table file fits, and what a compaction makes of several does not.
#[cfg(unix)]
#[test]
fn a_flush_that_fails_leaves_no_files() {
    let Some(program) = example("kv_store") else { return };
    let _watchdog = Watchdog::new("kv_store::a_flush_that_fails_leaves_no_files", 0);
    let directory = folder("kv_store-full").join("store");
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 40; exec \"$@\"", "sh"])
        .arg(&program)
        .arg("--dir")
        .arg(&directory);
    command.args(["--threads", "1", "serve"]).stderr(Stdio::null());
    let mut store = Store::of(&mut command);
    let mut refused = 0;
    for number in 0..15 {
        store.send(&format!("put k{number:02} {}; flush", "v".repeat(3000)));
        store.send("flush");
        for _ in 0..2 {
            let (_, answer) = store.answer().expect("the store answers");
            refused += u32::from(answer.starts_with("error: "));
        }
    }
    assert!(refused > 5, "{refused} flushes failed");
    let rows = store.scan();
    assert!(rows.len() >= 6, "{} rows", rows.len());
    // The flush that is under way ends.
    drop(store.child.stdin.take());
    assert!(store.child.wait().unwrap().success());
    let (there, named) = tables(&directory);
    assert_eq!(there, named);
    let mut store = Store::start(&program, &directory, &mut Rng::new(0));
    assert_eq!(store.scan(), rows);
    store.child.kill().unwrap();
    store.child.wait().unwrap();
}

#[test]
fn what_is_cut_off_the_journal_is_told() {
    let Some(program) = example("kv_store") else { return };
    let directory = store(&program, "kv_store-cut");
    let path = journal(&directory);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, [&bytes, b"torn".as_slice()].concat()).unwrap();
    let (code, out, error) = line(&program, &directory, "scan");
    assert_eq!((code, out.as_str()), (Some(0), "a 1\nb 2\nc 3\n"), "{error}");
    assert!(error.contains("journal: ") && error.contains("4 bytes"), "{error}");
    assert_eq!(line(&program, &directory, "scan").2, "");
}
