//! The example `kv_store`, killed again and again while it acknowledges writes to this process: no
//! acknowledged write is missing, and no partial one is visible.
//!
//! Each writer sends one line after the other: a batch over keys of its own, which follows from its
//! number. So after a kill its keys have the state after its last acknowledged line, or after the
//! line that was sent last.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::examples::{example, folder, run};
use crate::support::rng::{Rng, Watchdog, amount, replay_line, scramble, seed_or};

pub(crate) type Rows = BTreeMap<String, String>;

/// The state of a writer's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Written {
    /// Number of lines.
    lines: u64,
    rows: Rows,
}

impl Written {
    /// Commands of the next line, and the state after it.
    fn next(&self, writer: usize, seed: u64) -> (String, Written) {
        let mut next = Written {
            lines: self.lines + 1,
            ..self.clone()
        };
        let mut rng = Rng::new(scramble(seed ^ scramble(next.lines << 8 | writer as u64)));
        let key = |number: u64| format!("w{writer}-{number:03}");
        let mut commands = vec![];
        for _ in 0..1 + rng.below(6) {
            let (at, number) = (rng.below(300), next.lines);
            match rng.below(8) {
                0 => {
                    next.rows.remove(&key(at));
                    commands.push(format!("delete {}", key(at)));
                }
                1 => {
                    let (from, to) = (key(at), key(at + 1 + rng.below(40)));
                    next.rows.retain(|row, _| *row < from || *row >= to);
                    commands.push(format!("delete-range {from} {to}"));
                }
                _ => {
                    let value = format!("{number}{}", "-".repeat(rng.index(60)));
                    commands.push(format!("put {} {value}", key(at)));
                    next.rows.insert(key(at), value);
                }
            }
        }
        let counter = format!("w{writer}-count");
        commands.push(format!("add {counter} 1"));
        next.rows.insert(counter, next.lines.to_string());
        if rng.one_in(50) {
            commands.push("flush".into());
        }
        (commands.join("; "), next)
    }
}

/// A writer outside the store: its acknowledged lines, and the line that was sent last.
#[derive(Debug, Clone, Default)]
struct Writer {
    written: Written,
    sent: Option<Written>,
}

/// A running store.
pub(crate) struct Store {
    pub(crate) child: Child,
    answers: BufReader<ChildStdout>,
    lines: u64,
}

const WRITERS: usize = 3;

impl Store {
    /// A store that begins a table, and a journal file, every few lines.
    pub(crate) fn start(program: &Path, directory: &Path, rng: &mut Rng) -> Store {
        Store::start_with(20_000, program, directory, rng)
    }

    fn command(write_buffer: u64, program: &Path, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("--dir").arg(directory).args(["--threads", "3"]);
        command.args(["--write-buffer", &write_buffer.to_string()]);
        command
    }

    fn start_with(write_buffer: u64, program: &Path, directory: &Path, rng: &mut Rng) -> Store {
        let mut command = Store::command(write_buffer, program, directory);
        if rng.one_in(2) {
            command.arg("--buffered");
        }
        Store::of(command.arg("serve"))
    }

    pub(crate) fn of(command: &mut Command) -> Store {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Store {
            child,
            answers,
            lines: 0,
        }
    }

    /// Sends a line. Returns its number.
    pub(crate) fn send(&mut self, line: &str) -> u64 {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.lines += 1;
        self.lines
    }

    /// A line of an answer: the number of the line that it answers, and the rest.
    pub(crate) fn answer(&mut self) -> Option<(u64, String)> {
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        // A line without an end was not written whole.
        let (number, rest) = line.strip_suffix('\n')?.split_once(' ')?;
        Some((number.parse().unwrap(), rest.into()))
    }

    /// All rows of the store.
    pub(crate) fn scan(&mut self) -> Rows {
        let number = self.send("scan");
        let mut rows = Rows::new();
        loop {
            let (about, rest) = self.answer().expect("the store answers");
            assert_eq!(about, number);
            match rest.split_once(' ') {
                None if rest == "ok" => return rows,
                Some((key, value)) if key != "error:" => {
                    drop(rows.insert(key.into(), value.into()))
                }
                _ => panic!("{rest}"),
            }
        }
    }
}

/// The writers of one store over all its lives.
#[derive(Debug, Clone)]
struct Verifier {
    seed: u64,
    writers: [Writer; WRITERS],
    acknowledged: u64,
    /// Lines without an answer at a kill: those that were found whole, and those of which nothing
    /// was found.
    kept: u64,
    gone: u64,
}

impl Verifier {
    fn new(seed: u64) -> Self {
        Verifier {
            seed,
            writers: Default::default(),
            acknowledged: 0,
            kept: 0,
            gone: 0,
        }
    }

    /// Compares the rows with the acknowledged ones, and continues from them.
    fn check(&mut self, mut rows: Rows) -> Result<(), String> {
        for (number, writer) in self.writers.iter_mut().enumerate() {
            let prefix = format!("w{number}-");
            let (own, others): (Rows, Rows) = rows
                .into_iter()
                .partition(|(key, _)| key.starts_with(&prefix));
            rows = others;
            match writer.sent.take() {
                Some(sent) if own == sent.rows => {
                    writer.written = sent;
                    self.kept += 1;
                }
                sent if own == writer.written.rows => self.gone += u64::from(sent.is_some()),
                _ => {
                    let lines = writer.written.lines;
                    return Err(format!(
                        "writer {number} after {lines} lines: {own:?}, not {writer:?}"
                    ));
                }
            }
        }
        if rows.is_empty() {
            Ok(())
        } else {
            Err(format!("rows of nobody: {rows:?}"))
        }
    }

    fn send(&mut self, store: &mut Store, number: usize, lines: &mut BTreeMap<u64, usize>) {
        let writer = &mut self.writers[number];
        let (line, next) = writer.written.next(number, self.seed);
        writer.sent = Some(next);
        lines.insert(store.send(&line), number);
    }

    /// Takes an acknowledgement. Returns its writer.
    fn acknowledge(&mut self, answer: (u64, String), lines: &mut BTreeMap<u64, usize>) -> usize {
        let number = lines.remove(&answer.0).expect("a line that was sent");
        assert_eq!(answer.1, "ok");
        let writer = &mut self.writers[number];
        writer.written = writer.sent.take().expect("it was under way");
        self.acknowledged += 1;
        number
    }

    /// Sends lines until `acknowledgements` are acknowledged, and kills the store.
    fn work_and_kill(&mut self, mut store: Store, acknowledgements: u64, rng: &mut Rng) {
        let mut lines = BTreeMap::new();
        (0..WRITERS).for_each(|writer| self.send(&mut store, writer, &mut lines));
        for _ in 0..acknowledgements {
            let answer = store.answer().expect("the store answers");
            let writer = self.acknowledge(answer, &mut lines);
            self.send(&mut store, writer, &mut lines);
        }
        wait_a_little(rng);
        store.child.kill().unwrap();
        while let Some(answer) = store.answer() {
            self.acknowledge(answer, &mut lines);
        }
        store.child.wait().unwrap();
    }
}

/// Waits, so that kills hit any moment between two answers.
fn wait_a_little(rng: &mut Rng) {
    let turns = rng.below(3000);
    (0..rng.below(turns + 1)).for_each(|_| std::thread::yield_now());
}

#[test]
fn a_killed_store_keeps_what_it_acknowledged() {
    let Some(program) = example("kv_store") else {
        return;
    };
    let test = "kills::a_killed_store_keeps_what_it_acknowledged";
    let seed = seed_or(std::process::id().into());
    let kills = amount(200, 25);
    let replay = replay_line(test, seed);
    println!("{test}: seed {seed:#x}, {kills} kills\nreplay: {replay}");
    let (mut rng, mut verifier) = (Rng::new(seed), Verifier::new(seed));
    let directory = folder("kills").join("store");
    for kill in 0..kills {
        let _watchdog = Watchdog::new(test, seed);
        let mut store = Store::start(&program, &directory, &mut rng);
        if rng.one_in(8) {
            // The kill comes while it opens.
            wait_a_little(&mut rng);
            store.child.kill().unwrap();
            store.child.wait().unwrap();
            continue;
        }
        if let Err(text) = verifier.check(store.scan()) {
            panic!("kill {kill}: {text}\nreplay: {replay}");
        }
        let acknowledgements = rng.below(100);
        verifier.work_and_kill(store, acknowledgements, &mut rng);
    }
    let Verifier {
        acknowledged,
        kept,
        gone,
        ..
    } = verifier;
    println!(
        "{acknowledged} lines acknowledged; of those under way {kept} were kept and {gone} were not"
    );
    assert!(
        acknowledged > kills * 10 && kept + gone > 0,
        "the store was hardly at work"
    );
}

/// The newest journal file of a store.
pub(crate) fn journal(directory: &Path) -> PathBuf {
    let files = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_journal = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "journal")
    };
    files.filter(is_journal).max().unwrap()
}

/// Without the end of its journal the store misses acknowledged lines. It reports that; if nothing
/// is left that shows it, this test notices.
#[test]
fn a_store_that_lost_a_batch_is_noticed() {
    let Some(program) = example("kv_store") else {
        return;
    };
    let _watchdog = Watchdog::new("kills::a_store_that_lost_a_batch_is_noticed", 1);
    let (mut rng, mut verifier) = (Rng::new(1), Verifier::new(1));
    let directory = folder("kills-lost").join("store");
    // One table and one journal file for all lines.
    let store = Store::start_with(1 << 20, &program, &directory, &mut rng);
    verifier.work_and_kill(store, 20, &mut rng);
    // The first 1100 bytes hold a few lines, and twenty were acknowledged.
    let bytes = fs::read(journal(&directory)).unwrap();
    fs::write(journal(&directory), &bytes[..1100]).unwrap();
    assert_eq!(
        Store::start(&program, &directory, &mut rng)
            .child
            .wait()
            .unwrap()
            .code(),
        Some(2)
    );
    fs::remove_file(directory.join("journal.synced")).unwrap();
    let mut store = Store::start(&program, &directory, &mut rng);
    let rows = store.scan();
    store.child.kill().unwrap();
    store.child.wait().unwrap();
    assert!(verifier.check(rows).is_err(), "nobody misses it");
}

/// A leveled engine is killed while it flushes and compacts. Each start compares it with its model,
/// and has all batches that were acknowledged, and at most one more.
#[test]
fn a_leveled_engine_answers_like_its_model_after_kills() {
    let Some(program) = example("leveled") else {
        return;
    };
    let test = "kills::a_leveled_engine_answers_like_its_model_after_kills";
    let seed = seed_or(0x1e7e1ed);
    println!("{test}: seed {seed:#x}");
    let (mut rng, directory) = (Rng::new(seed), folder("kills-leveled"));
    let mut last = 0;
    for _ in 0..amount(200, 8) {
        let _watchdog = Watchdog::new(test, seed);
        let mut command = Command::new(&program);
        command.arg("100000").arg("--dir").arg(&directory);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let begun = lines.next().expect("a start").unwrap();
        let begun: u64 = begun.strip_prefix("begun at ").unwrap().parse().unwrap();
        assert!((last..=last + 1).contains(&begun), "{begun}, not {last}");
        let many = rng.index(200);
        let read = lines.by_ref().take(many).count();
        assert_eq!(read, many, "it ended by itself");
        child.kill().unwrap();
        // What it acknowledged before it was killed is still in the pipe.
        last = begun + (read + lines.map_while(Result::ok).count()) as u64;
        child.wait().unwrap();
    }
    let directory = directory.to_str().unwrap();
    let (code, out, error) = run(&program, &["40", "--dir", directory]);
    assert_eq!(code, Some(0), "{out}{error}");
    println!("{last} batches acknowledged");
}

/// Files may not grow, as on a full disk: a store returns errors, and keeps all acknowledged lines.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_no_loss() {
    let Some(program) = example("kv_store") else {
        return;
    };
    let _watchdog = Watchdog::new("kills::a_full_disk_is_an_error_and_no_loss", 0);
    let directory = folder("kills-full").join("store");
    for blocks in [3, 8, 20] {
        let _ = fs::remove_dir_all(&directory);
        let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &limited, "sh"])
            .arg(&program)
            .arg("--dir")
            .arg(&directory);
        command.args(["--threads", "1", "--write-buffer", "16000", "serve"]);
        let (mut store, mut wanted, mut refused) =
            (Store::of(command.stderr(Stdio::null())), Rows::new(), 0);
        for number in 0..400 {
            let (key, value) = (format!("k{number:03}"), "v".repeat(100));
            store.send(&format!("put {key} {value}; put {key}-too {value}"));
            match store.answer().expect("the store answers") {
                (_, text) if text == "ok" => {
                    wanted.insert(format!("{key}-too"), value.clone());
                    wanted.insert(key, value);
                }
                (_, text) => {
                    assert!(text.starts_with("error: "), "{text}");
                    refused += 1;
                }
            }
        }
        assert_eq!(store.scan(), wanted, "{blocks} blocks");
        store.child.kill().unwrap();
        store.child.wait().unwrap();
        // Flushes fit into 20 blocks; merges do not, and no line gets their error.
        assert!(refused > 0 || blocks == 20, "{blocks} blocks were enough");
        let mut store = Store::start(&program, &directory, &mut Rng::new(0));
        assert_eq!(store.scan(), wanted, "{blocks} blocks, opened anew");
        store.child.kill().unwrap();
        store.child.wait().unwrap();
    }
}

/// A store on a device that fails, and one that loses a file or the end of one while it is not
/// running. It has its acknowledged lines, or it reports the loss.
mod losses {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::{Rows, Store, Verifier, WRITERS};
    use crate::examples::{example, folder};
    use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};

    impl Store {
        /// A store that acknowledges synced lines, and whose messages are dropped.
        fn synced(program: &Path, directory: &Path, environment: &[(&str, String)]) -> Store {
            let mut command = Store::command(20_000, program, directory);
            let environment = environment.iter().map(|(name, value)| (name, value));
            Store::of(command.envs(environment).stderr(Stdio::null()).arg("serve"))
        }

        fn end(&mut self) {
            let _ = self.child.kill();
            self.child.wait().unwrap();
        }

        /// All rows of the store. `None`: it does not open, or cannot read them.
        fn try_scan(&mut self) -> Option<Rows> {
            self.lines += 1;
            // It may have ended already.
            let _ = std::io::Write::write_all(self.child.stdin.as_mut().unwrap(), b"scan\n");
            let mut rows = Rows::new();
            loop {
                let (_, rest) = self.answer()?;
                match rest.split_once(' ') {
                    None if rest == "ok" => return Some(rows),
                    Some((key, value)) if key != "error:" => {
                        drop(rows.insert(key.into(), value.into()))
                    }
                    _ => return None,
                }
            }
        }
    }

    impl Verifier {
        /// Sends lines until `answers` are answered, or until each writer had a line refused: such
        /// a line may be found or not.
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

    /// The library that makes calls fail. `None`: there is no compiler for it.
    fn failing(folder: &Path) -> Option<String> {
        let library = folder.join("failing.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("suite/kills/failing.c");
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source)
            .arg("-ldl");
        match command.status() {
            Ok(status) => assert!(status.success(), "the library is built"),
            Err(error) => {
                println!("no C compiler, not tested: {error}");
                return None;
            }
        }
        library.to_str().map(String::from)
    }

    /// Calls fail while the store opens, writes, flushes and compacts. Then it is killed, and
    /// opened on a device that works.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    #[test]
    fn a_store_whose_calls_fail_keeps_what_it_acknowledged() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let test = "kills::losses::a_store_whose_calls_fail_keeps_what_it_acknowledged";
        let seed = seed_or(std::process::id().into());
        let (rounds, replay) = (amount(200, 20), replay_line(test, seed));
        println!("{test}: seed {seed:#x}, {rounds} rounds\nreplay: {replay}");
        let root = folder("kills-failing");
        let (directory, Some(library)) = (root.join("store"), failing(&root)) else {
            return;
        };
        let (mut rng, mut verifier, mut refused) = (Rng::new(seed), Verifier::new(seed), 0);
        for round in 0..rounds {
            let _watchdog = Watchdog::new(test, seed);
            let mut store = Store::synced(&program, &directory, &[]);
            let rows = store
                .try_scan()
                .unwrap_or_else(|| panic!("round {round}: it does not open\nreplay: {replay}"));
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
            // The store may refuse to open.
            if store.try_scan().is_some() {
                refused += verifier.work_until_refused(&mut store, 60);
            }
            store.end();
        }
        println!(
            "{} lines acknowledged, {refused} refused",
            verifier.acknowledged
        );
        assert!(
            verifier.acknowledged > rounds * 5 && refused > rounds / 20,
            "the store was hardly at work"
        );
    }

    /// Writes until the store answers `ok`; it may have to open its set again. Returns the number
    /// of refused lines.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn write_until_taken(store: &mut Store, text: &str) -> u64 {
        let mut last = String::new();
        for refused in 0..300 {
            store.send("put probe 1");
            let answer = store
                .answer()
                .unwrap_or_else(|| panic!("the store ended, {text}"))
                .1;
            if answer == "ok" {
                return refused;
            }
            assert!(answer.starts_with("error: "), "{answer}, {text}");
            last = answer;
        }
        panic!("the store takes no writes any more: {last}, {text}");
    }

    /// Sends lines of all writers. Returns the number of refused lines.
    fn write_lines(store: &mut Store, verifier: &mut Verifier, want: &str, text: &str) -> u64 {
        let mut refused = 0;
        for line in 0..60 {
            let number = line % WRITERS;
            let mut lines = BTreeMap::new();
            if verifier.writers[number].sent.is_none() {
                verifier.send(store, number, &mut lines);
                let answer = store
                    .answer()
                    .unwrap_or_else(|| panic!("the store ended, {text}"));
                if answer.1.starts_with("error: ") {
                    let is_read_only = answer.1.contains("read-only");
                    assert!(want == "room" || !is_read_only, "{}, {text}", answer.1);
                    refused += 1;
                } else {
                    verifier.acknowledge(answer, &mut lines);
                }
            }
        }
        refused
    }

    /// For a moment the disk is full, or the process has no file descriptor left. Afterwards the
    /// same process takes writes again and has its acknowledged lines, and so does the next
    /// process. Too few descriptors make no set read-only.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    #[test]
    fn a_store_continues_once_there_is_room_again() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let test = "kills::losses::a_store_continues_once_there_is_room_again";
        let seed = seed_or(std::process::id().into());
        let (rounds, replay) = (amount(200, 30), replay_line(test, seed));
        println!("{test}: seed {seed:#x}, {rounds} rounds\nreplay: {replay}");
        let root = folder("kills-room");
        let (directory, Some(library)) = (root.join("store"), failing(&root)) else {
            return;
        };
        let (mut rng, mut verifier, mut refused) = (Rng::new(seed), Verifier::new(seed), 0);
        for round in 0..rounds {
            let _watchdog = Watchdog::new(test, seed);
            let (want, from, calls) = match rng.below(2) {
                0 => ("room", 60 + rng.below(200), 1 + rng.below(30)),
                _ => ("descriptors", 12 + rng.below(60), 1 + rng.below(30)),
            };
            let text = format!(
                "round {round}, no {want} for calls {from} to {}\nreplay: {replay}",
                from + calls - 1
            );
            let mut store = Store::synced(
                &program,
                &directory,
                &[
                    ("LD_PRELOAD", library.clone()),
                    ("FAIL_FROM", from.to_string()),
                    ("FAIL_CALLS", calls.to_string()),
                    ("FAIL_FOR_WANT_OF", want.into()),
                ],
            );
            // Otherwise it needed more calls to open.
            if store.try_scan().is_some() {
                refused += write_lines(&mut store, &mut verifier, want, &text);
                refused += write_until_taken(&mut store, &text);
                let mut rows = store.scan();
                rows.remove("probe");
                verifier
                    .check(rows)
                    .unwrap_or_else(|error| panic!("{error}, {text}"));
            }
            store.end();
            let mut store = Store::synced(&program, &directory, &[]);
            let mut rows = store
                .try_scan()
                .unwrap_or_else(|| panic!("it does not open, {text}"));
            store.end();
            rows.remove("probe");
            verifier
                .check(rows)
                .unwrap_or_else(|error| panic!("opened again: {error}, {text}"));
        }
        println!(
            "{} lines acknowledged, {refused} refused",
            verifier.acknowledged
        );
        assert!(
            verifier.acknowledged > rounds * 10 && refused > rounds / 4,
            "{refused} of {rounds}"
        );
    }

    /// Removes a file of the store or its end. Returns its content.
    fn lose(directory: &Path, rng: &mut Rng) -> (std::path::PathBuf, Vec<u8>) {
        let mut paths: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
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
        let Some(program) = example("kv_store") else {
            return;
        };
        let test = "kills::losses::a_store_without_one_of_its_files_says_so";
        let seed = seed_or(std::process::id().into());
        let (rounds, replay) = (amount(300, 25), replay_line(test, seed));
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
            let (mut whole, mut store) = (
                Store::synced(&program, &directory, &[]),
                Store::synced(&program, &damaged, &[]),
            );
            let (rows, found) = (whole.try_scan().expect("it is whole"), store.try_scan());
            whole.end();
            store.end();
            // A line without an answer may be in one of them and not in the other.
            let lost = found
                .as_ref()
                .and_then(|found| verifier.clone().check(found.clone()).err());
            refused += u64::from(found.is_none());
            if let Err(text) = verifier.check(rows) {
                panic!("round {round}: {text}\nreplay: {replay}");
            }
            if let Some(text) = lost {
                let (name, len) = (path.display(), bytes.len());
                panic!(
                    "round {round}: without {name}, or less than its {len} bytes, {text}\nreplay: {replay}"
                );
            }
        }
        println!(
            "{rounds} times without a file or the end of one: {refused} refused, nothing missing in silence"
        );
        assert!(refused > 0, "nothing was missed");
    }
}

/// Batches that a journal queues: what survives a crash, which threads write them, and the memory
/// of their replay.
mod queues {
    use std::sync::{Arc, Condvar, Mutex};

    use paranoid_memtable::{ChecksumKind, Error, Lookup, MemTableOptions, WriteBatch};
    use paranoid_set::{
        Durability, FileJournal, FlushJob, Journal, MemTableSet, RecoveryMode, SetOptions,
    };

    use crate::file_journal::{empty_disk, journals, read};
    use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
    use crate::support::sets::{End, Plan, SECTOR, SimDisk};

    /// A set over a journal of files, and the last number in it. There is a value for each number
    /// up to that.
    fn open_set(disk: &SimDisk, text: &str) -> Option<(MemTableSet<()>, u64)> {
        let mode = RecoveryMode::TolerateCorruptedTailRecords;
        let opened = FileJournal::open_in(Arc::new(disk.clone()), 0, ChecksumKind::Xxh3, mode);
        if opened.is_err() && disk.is_down() {
            return None;
        }
        let (journal, recovery) = opened.unwrap();
        let options = SetOptions::builder()
            .first_table(journal.next_table())
            .journal(Arc::new(journal));
        let opened = MemTableSet::open(
            options.max_write_buffer_number(u64::MAX).build().unwrap(),
            (),
        );
        if opened.is_err() && disk.is_down() {
            return None;
        }
        let (set, mut found) = (opened.unwrap(), 0);
        let replayed = recovery.replay(|number, batch| {
            found += 1;
            assert_eq!(number, found, "{text}: a hole");
            set.replay(&batch).map(drop)
        });
        let replayed = match replayed {
            Err(_) if disk.is_down() => return None,
            replayed => replayed.unwrap(),
        };
        assert_eq!(replayed.last_sequence, found, "{text}");
        let newest = match set.view().get(b"key").unwrap() {
            Lookup::Value(value) => value.sequence(),
            _ => 0,
        };
        assert_eq!(newest, found, "{text}");
        Some((set, found))
    }

    /// Threads write to a set until its disk is down, and every result is kept. The end of the
    /// process loses no `Buffered` write, a power cut no `Synced` one, and neither leaves a hole.
    #[test]
    fn a_set_finds_what_it_acknowledged() {
        let test = "kills::queues::a_set_finds_what_it_acknowledged";
        let mut seed = seed_or(std::process::id().into());
        let _watchdog = Watchdog::new(test, seed);
        let (mut queued, mut lost) = (0, 0);
        for _ in 0..amount(20_000, 400) / 4 {
            let text = replay_line(test, seed);
            let mut rng = Rng::new(seed);
            let mut disk = SimDisk::new(rng.next_u64(), Plan::default());
            // The last numbers that were acknowledged by a copy, by a write, by a sync; and the
            // worst end since.
            let (mut acknowledged, mut worst) = ([0; 3], End::Process);
            for _ in 0..4 {
                disk.set_plan(Plan {
                    crash_at: Some(20 + rng.below(120)),
                    ..Plan::default()
                });
                if let Some((set, found)) = open_set(&disk, &text) {
                    let kept = acknowledged[if worst == End::Process { 1 } else { 2 }];
                    assert!(
                        found >= kept,
                        "{text}: {found} of {acknowledged:?} after {worst:?}"
                    );
                    lost += acknowledged[0].saturating_sub(found);
                    acknowledged = work(&set, &mut rng).map(|last| last.max(found));
                    queued += acknowledged[0] - acknowledged[1];
                    worst = End::Process;
                }
                let end = *rng.pick(&[End::Process, End::Power]);
                disk = disk.after(end, &mut rng);
                worst = if end == End::Power { end } else { worst };
            }
            seed = rng.next_u64();
        }
        assert!(
            queued > 0 && lost > 0,
            "{queued} batches were queued at an end, {lost} lost"
        );
    }

    /// Three threads write until every write fails. Returns the last numbers that were
    /// acknowledged: by a copy at least, by a write at least, and by a sync.
    fn work(set: &MemTableSet<()>, rng: &mut Rng) -> [u64; 3] {
        let acknowledged = Mutex::new([0; 3]);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                let (mut rng, acknowledged) = (Rng::new(rng.next_u64()), &acknowledged);
                threads.spawn(move || {
                    loop {
                        let mut batch = WriteBatch::new();
                        let len = 1 + rng.index(300);
                        batch.put("key", rng.bytes(len)).unwrap();
                        let weakest = rng.index(3);
                        let durability =
                            [Durability::Queued, Durability::Buffered, Durability::Synced][weakest];
                        let Ok(number) = set.write_with(&batch, durability) else {
                            return;
                        };
                        let mut acknowledged = acknowledged.lock().unwrap();
                        acknowledged[..=weakest]
                            .iter_mut()
                            .for_each(|last| *last = number.max(*last));
                        drop(acknowledged);
                        if rng.one_in(16) && set.switch().is_err() {
                            return;
                        }
                    }
                });
            }
        });
        acknowledged.into_inner().unwrap()
    }

    /// Batches of eight threads that wait for one write.
    #[test]
    fn one_write_serves_all_that_wait() {
        const THREADS: u64 = 8;
        let _watchdog = Watchdog::new("kills::queues::one_write_serves_all_that_wait", 0);
        let disk = empty_disk();
        let (inner, ..) = read(&disk, 0, RecoveryMode::TolerateCorruptedTailRecords).unwrap();
        let journal = Arc::new(Gathering {
            inner,
            appended: Mutex::new(0),
            changed: Condvar::new(),
        });
        let set = MemTableSet::open(
            SetOptions::builder()
                .journal(journal.clone())
                .build()
                .unwrap(),
            (),
        )
        .unwrap();
        let before = disk.steps();
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    let number = set.put("key", "value").unwrap();
                    let killed = disk.after(End::Process, &mut Rng::new(number));
                    let found = read(&killed, 0, RecoveryMode::TolerateCorruptedTailRecords)
                        .unwrap()
                        .2;
                    assert!(found.len() as u64 >= number, "{number} of {}", found.len());
                });
            }
        });
        // A write takes two steps of the disk.
        let calls = (disk.steps() - before) / 2;
        assert!(calls <= 2, "{calls} writes for {THREADS} batches");

        /// A journal whose writes begin when all batches are appended.
        struct Gathering {
            inner: FileJournal,
            appended: Mutex<u64>,
            changed: Condvar,
        }

        impl Journal for Gathering {
            fn append(&self, batch: &[u8]) -> Result<(), Error> {
                *self.appended.lock().unwrap() += 1;
                self.changed.notify_all();
                self.inner.append(batch)
            }
            fn write(&self) -> Result<(), Error> {
                let appended = self.appended.lock().unwrap();
                drop(
                    self.changed
                        .wait_while(appended, |appended| *appended < THREADS)
                        .unwrap(),
                );
                self.inner.write()
            }
            fn sync(&self) -> Result<(), Error> {
                self.inner.sync()
            }
            fn switch(&self, table: u64) -> Result<(), Error> {
                self.inner.switch(table)
            }
            fn obsolete_before(&self, table: u64) -> Result<(), Error> {
                self.inner.obsolete_before(table)
            }
        }
    }

    /// Queued batches are written when enough of them wait, before another table is begun, and when
    /// the journal is dropped.
    #[test]
    fn what_is_queued_is_written_sooner_or_later() {
        let disk = empty_disk();
        let (set, _) = open_set(&disk, "").unwrap();
        let written = || journals(&disk).values().map(Vec::len).collect::<Vec<_>>();
        let put = |len: usize| {
            let mut batch = WriteBatch::new();
            batch.put("key", vec![7; len]).unwrap();
            set.write_with(&batch, Durability::Queued).unwrap();
        };
        put(100_000);
        put(100_000);
        assert_eq!(written(), [SECTOR]);
        put(100_000);
        assert!(written()[0] > 300_000);
        put(1000);
        assert!(written()[0] < 302_000);
        set.switch().unwrap();
        assert!(written()[0] > 301_000 && written()[1] == SECTOR);
        put(1000);
        let nothing = WriteBatch::new();
        set.write_with(&nothing, Durability::Queued).unwrap();
        assert_eq!(written()[1], SECTOR);
        set.write(&nothing).unwrap();
        let first = written()[1];
        assert!(first > SECTOR + 1000);
        put(1000);
        assert_eq!(written()[1], first);
        drop(set);
        assert!(written()[1] > first + 1000);
    }

    /// A log of many tables is replayed in the memory of a few: they are sealed as they fill, and
    /// any flush takes them. Without a flush the replay ends with a stall, as a write does.
    #[test]
    fn a_replay_keeps_the_limits() {
        let _watchdog = Watchdog::new("kills::queues::a_replay_keeps_the_limits", 0);
        let disk = empty_disk();
        let (set, _) = open_set(&disk, "").unwrap();
        for _ in 0..60 {
            let mut batch = WriteBatch::new();
            batch.put("key", [7; 10_000]).unwrap();
            set.write(&batch).unwrap();
        }
        assert_eq!(set.stats().tables, 1);
        drop(set);
        for flushes in [true, false] {
            let mode = RecoveryMode::TolerateCorruptedTailRecords;
            let (_journal, recovery) =
                FileJournal::open_in(Arc::new(disk.clone()), 0, ChecksumKind::Xxh3, mode).unwrap();
            let tables = MemTableOptions::builder()
                .write_buffer_size(64 << 10)
                .build()
                .unwrap();
            let options = SetOptions::builder()
                .table(tables)
                .max_write_buffer_number(3)
                .build()
                .unwrap();
            let set = MemTableSet::open(options, 0).unwrap();
            let flush = |mut job: FlushJob<u64>| {
                let mut items = job.items()?;
                while items.next()?.is_some() {}
                drop(items);
                let last = job.last_sequence();
                job.install(|_| Ok(last))
            };
            let thread = flushes.then(|| set.start_flush_thread(flush).unwrap());
            let mut most = 0;
            let replayed = recovery.replay(|_, batch| {
                most = most.max(set.stats().tables);
                set.replay(&batch).map(drop)
            });
            assert!(most == 3 || flushes && most < 3, "{most} tables");
            match replayed {
                Ok(replayed) => assert!(flushes && replayed.batches == 60),
                Err(error) => {
                    assert!(
                        !flushes && matches!(error, Error::WriteStall { tables: 3, .. }),
                        "{error}"
                    )
                }
            }
            assert!(!flushes || **set.view().base() > 30);
            drop(thread);
        }
    }
}
