//! A store on a device that fails, and one that loses a file or the end of one while it is not running. What it acknowledged is there,
//! or it says that it is not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Rows, Store, Verifier, WRITERS};
use crate::examples::{example, folder};
use crate::support::rng::{Rng, amount, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

impl Store {
    /// A store that acknowledges what is synced, and tells nobody what is in its way.
    fn synced(program: &Path, directory: &Path, environment: &[(&str, String)]) -> Store {
        let mut command = Store::command(20_000, program, directory);
        let environment = environment.iter().map(|(name, value)| (name, value));
        Store::of(command.envs(environment).stderr(Stdio::null()).arg("serve"))
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// All rows of the store; `None` if it does not open, or says that it cannot read them.
    fn try_scan(&mut self) -> Option<Rows> {
        self.lines += 1;
        // It may be gone already.
        let _ = std::io::Write::write_all(self.child.stdin.as_mut().unwrap(), b"scan\n");
        let mut rows = Rows::new();
        loop {
            let (_, rest) = self.answer()?;
            match rest.split_once(' ') {
                None if rest == "ok" => return Some(rows),
                Some((key, value)) if key != "error:" => drop(rows.insert(key.into(), value.into())),
                _ => return None,
            }
        }
    }
}

impl Verifier {
    /// Sends lines until so many are answered, or every writer was refused one: that one may be found or not.
    fn work_until_refused(&mut self, store: &mut Store, answers: u64) -> u64 {
        let (mut lines, mut refused) = (BTreeMap::new(), 0);
        (0..WRITERS).for_each(|writer| self.send(store, writer, &mut lines));
        for _ in 0..answers {
            let Some(answer) = store.answer() else { break };
            if answer.1.starts_with("error: ") {
                lines.remove(&answer.0);
                refused += 1;
                if lines.is_empty() {
                    break;
                }
            } else {
                let writer = self.acknowledge(answer, &mut lines);
                self.send(store, writer, &mut lines);
            }
        }
        refused
    }
}

/// The library that lets calls fail, if there is a compiler for it.
fn failing(folder: &Path) -> Option<String> {
    let library = folder.join("failing.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("suite/kills/failing.c");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
    match command.status() {
        Ok(status) => assert!(status.success(), "the library is built"),
        Err(error) => {
            println!("no C compiler, not tested: {error}");
            return None;
        }
    }
    library.to_str().map(String::from)
}

/// Calls fail while it opens, writes, flushes and compacts; then it is killed, and opened on a device that is whole.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn a_store_whose_calls_fail_keeps_what_it_acknowledged() {
    let Some(program) = example("kv_store") else { return };
    let test = "kills::losses::a_store_whose_calls_fail_keeps_what_it_acknowledged";
    let seed = seed_or(std::process::id().into());
    let (rounds, replay) = (amount(200, 30), replay_line(test, seed));
    println!("{test}: seed {seed:#x}, {rounds} rounds\nreplay: {replay}");
    let root = folder("kills-failing");
    let (directory, Some(library)) = (root.join("store"), failing(&root)) else { return };
    let (mut rng, mut verifier, mut refused) = (Rng::new(seed), Verifier::new(seed), 0);
    for round in 0..rounds {
        let _watchdog = Watchdog::new(test, seed);
        let mut store = Store::synced(&program, &directory, &[]);
        let rows =
            store.try_scan().unwrap_or_else(|| panic!("round {round}: it does not open\nreplay: {replay}"));
        store.end();
        if let Err(text) = verifier.check(rows) {
            panic!("round {round}: {text}\nreplay: {replay}");
        }
        let (from, calls) = (rng.below(300), *rng.pick(&[1, 1, 2, 5, 1000]));
        let environment = [
            ("LD_PRELOAD", library.clone()),
            ("FAIL_FROM", from.to_string()),
            ("FAIL_CALLS", calls.to_string()),
        ];
        let mut store = Store::synced(&program, &directory, &environment);
        // It may be that it does not open.
        if store.try_scan().is_some() {
            refused += verifier.work_until_refused(&mut store, 60);
        }
        store.end();
    }
    println!("{} lines acknowledged, {refused} refused", verifier.acknowledged);
    assert!(verifier.acknowledged > rounds * 5 && refused > rounds / 20, "the store was hardly at work");
}

/// Removes a file of the store or its end; returns what it had.
fn lose(directory: &Path, rng: &mut Rng) -> (std::path::PathBuf, Vec<u8>) {
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let path = rng.pick(&paths).clone();
    let bytes = fs::read(&path).unwrap();
    match rng.one_in(2) {
        true => fs::remove_file(&path).unwrap(),
        false => fs::write(&path, &bytes[..rng.index(bytes.len() + 1)]).unwrap(),
    }
    (path, bytes)
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_store_without_one_of_its_files_says_so() {
    let Some(program) = example("kv_store") else { return };
    let test = "kills::losses::a_store_without_one_of_its_files_says_so";
    let seed = seed_or(std::process::id().into());
    let (rounds, replay) = (amount(300, 40), replay_line(test, seed));
    println!("{test}: seed {seed:#x}, {rounds} rounds\nreplay: {replay}");
    let root = folder("kills-without");
    let (directory, damaged) = (root.join("store"), root.join("damaged"));
    let (mut rng, mut verifier, mut refused) = (Rng::new(seed), Verifier::new(seed), 0);
    for round in 0..rounds {
        let _watchdog = Watchdog::new(test, seed);
        let store = Store::synced(&program, &directory, &[]);
        let acknowledgements = rng.below(40);
        verifier.work_and_kill(store, acknowledgements, &mut rng);
        copy(&directory, &damaged);
        let (path, bytes) = lose(&damaged, &mut rng);
        let (mut whole, mut store) =
            (Store::synced(&program, &directory, &[]), Store::synced(&program, &damaged, &[]));
        let (rows, found) = (whole.try_scan().expect("it is whole"), store.try_scan());
        whole.end();
        store.end();
        // A line that was under way may be in the one and not in the other.
        let lost = found.as_ref().and_then(|found| verifier.clone().check(found.clone()).err());
        refused += u64::from(found.is_none());
        if let Err(text) = verifier.check(rows) {
            panic!("round {round}: {text}\nreplay: {replay}");
        }
        if let Some(text) = lost {
            let (name, len) = (path.display(), bytes.len());
            panic!("round {round}: without {name}, or less than its {len} bytes, {text}\nreplay: {replay}");
        }
    }
    println!(
        "{rounds} times without a file or the end of one: {refused} refused, nothing missing in silence"
    );
    assert!(refused > 0, "nothing was missed");
}
