//! Runs the examples as a user does, and checks their output and exit codes.
//!
//! `cargo test` builds the examples first. `cargo test --test suite` alone does not build them:
//! then these tests print a line and pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn example(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let path = test.parent()?.parent()?.join("examples").join(name);
    if !path.is_file() {
        println!("not built, not tested: {}", path.display());
        return None;
    }
    Some(path)
}

/// An empty folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

pub(crate) fn run(program: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn ingest_takes_any_tree() {
    let Some(ingest) = example("ingest") else {
        return;
    };
    let root = folder("ingest");
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::create_dir_all(root.join("deeq")).unwrap();
    for (name, len) in [
        ("a", 0),
        ("deep/b", 1),
        ("deep/er/c", 4096),
        ("deep-not", 4097),
        ("deeq/d", 100_000),
    ] {
        fs::write(root.join(name), vec![7; len]).unwrap();
    }
    let mut paths = 8;
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        fs::write(
            root.join(std::ffi::OsStr::from_bytes(b"not \xff text")),
            b"x",
        )
        .unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
        paths += 2;
    }
    for protection in ["0", "8"] {
        let arguments = [
            root.to_str().unwrap(),
            "--threads",
            "3",
            "--protection",
            protection,
        ];
        let (code, out, error) = run(&ingest, &arguments);
        assert_eq!(code, Some(0), "{out}{error}");
        for wanted in [
            format!("paths         {paths}\n"),
            format!("{paths} entries equal to the source"),
        ] {
            assert!(out.contains(&wanted), "no `{wanted}` in\n{out}");
        }
        // "deep/" holds er, er/c and b, which are deleted. deep-not and deeq stay.
        assert!(out.contains("range delete  deep at sequence"), "{out}");
        assert!(out.contains("3 entries gone; at snapshot"), "{out}");
        assert!(out.contains("All of it agrees."), "{out}");
        let own = out.find("entries/s, ").unwrap();
        let with_files = out.find("reading the files").unwrap();
        assert!(out[own..with_files].contains("inside the table"), "{out}");
    }
    let (code, out, _) = run(&ingest, &[root.to_str().unwrap(), "--max-files", "2"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("stopped at --max-files"), "{out}");
}

#[test]
fn ingest_names_what_is_in_its_way() {
    let Some(ingest) = example("ingest") else {
        return;
    };
    let root = folder("ingest-errors");
    let file = root.join("file");
    fs::write(&file, b"").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for (place, wanted) in [
        ("missing", "missing: No such file"),
        ("file", "is not a directory"),
        ("empty", "it is empty"),
    ] {
        let path = root.join(place);
        let (code, out, error) = run(&ingest, &[path.to_str().unwrap()]);
        assert_eq!(code, Some(2), "{out}{error}");
        assert!(
            error.contains(place) && (error.contains(wanted) || cfg!(not(unix))),
            "{error}"
        );
    }
    let (code, _, error) = run(&ingest, &[root.to_str().unwrap(), "--protection", "3"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("not 3"), "{error}");
}

#[test]
fn replay_checks_a_trace_and_names_bad_lines() {
    let Some(replay) = example("replay_trace") else {
        return;
    };
    let root = folder("replay");
    let mut text = String::from("version,time,op,size,lbn\n");
    for at in 0u64..3_000 {
        let block = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let op = if at % 3 == 0 { "28" } else { "2a" };
        text.push_str(&format!("1,{at},{op},{},{block}\n", 512 * (at % 9)));
    }
    let good = root.join("good.csv");
    fs::write(&good, &text).unwrap();
    let arguments = [good.to_str().unwrap(), "--threads", "3", "--passes", "2"];
    let (code, out, error) = run(&replay, &arguments);
    assert_eq!(code, Some(0), "{out}{error}");
    for wanted in ["6 000 in", "writes          4 000", "Every read was right."] {
        assert!(out.contains(wanted), "no `{wanted}` in\n{out}");
    }
    text.push_str("1,9,2a,many,5\n");
    let bad = root.join("bad.csv");
    fs::write(&bad, &text).unwrap();
    for (path, wanted) in [
        (&bad, "bad.csv:3002: size `many`"),
        (&root, "is a directory"),
    ] {
        let (code, _, error) = run(&replay, &[path.to_str().unwrap()]);
        assert_eq!(code, Some(2));
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn replay_makes_a_sample_of_its_own() {
    let Some(replay) = example("replay_trace") else {
        return;
    };
    let counts = ["1", "3"].map(|threads| {
        let (code, out, error) = run(&replay, &["--threads", threads]);
        assert_eq!(code, Some(0), "{out}{error}");
        for wanted in [
            "Replay of a small sample",
            "requests      20 000\n",
            "Every read was right.",
        ] {
            assert!(out.contains(wanted), "no `{wanted}` in\n{out}");
        }
        let row = |name: &str| {
            out.lines()
                .find(|line| line.trim_start().starts_with(name))
                .unwrap()[..23]
                .to_owned()
        };
        ["writes", "read hits", "read misses"].map(row)
    });
    assert_eq!(counts[0], counts[1], "every run replays the same requests");
}

/// The examples that `cargo test` builds.
const PROGRAMS: [&str; 11] = [
    "under_fire",
    "ingest",
    "replay_trace",
    "stress",
    "flip_a_bit",
    "kv_store",
    "leveled",
    "db_bench",
    "fault_campaign",
    "sst_info",
    "memtable_to_sst",
];

/// The programs that print, with arguments that take a moment. `root`: an empty folder.
#[cfg(unix)]
fn talking(root: &Path) -> Vec<(&'static str, Vec<String>)> {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (tree, store) = (root.join("tree"), root.join("store"));
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("file"), b"").unwrap();
    if let Some(program) = example("kv_store") {
        let put = run(&program, &["--dir", store.to_str().unwrap(), "put a 1"]);
        assert_eq!(put.0, Some(0), "{}", put.2);
    }
    let table = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../sst/tests/data")
        .join("format-version-1.sst");
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<String>>()
    };
    let helps = PROGRAMS.map(|name| (name, words(&["--help"])));
    let mut talking = vec![
        ("ingest", vec![text(&tree)]),
        ("replay_trace", vec![]),
        ("flip_a_bit", vec![]),
        ("stress", words(&["0"])),
        (
            "kv_store",
            vec!["--dir".into(), text(&store), "scan".into()],
        ),
        ("leveled", words(&["20"])),
        ("memtable_to_sst", vec![text(&tree)]),
        ("sst_info", vec![text(&table)]),
        ("sst_info", vec![text(&table), text(&table)]),
        (
            "db_bench",
            words(&["--benchmarks=fillseq,stats", "--num=9", "--disable_wal"]),
        ),
    ];
    talking.extend(helps);
    talking
}

/// A closed pipe ends a program by a signal, without a message.
#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_a_program() {
    for (name, arguments) in talking(&folder("closed")) {
        let Some(program) = example(name) else {
            continue;
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let Output { status, stderr, .. } = Command::new(&program)
            .args(&arguments)
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .output()
            .unwrap();
        let error = String::from_utf8(stderr).unwrap();
        assert_eq!(
            (status.code(), error.as_str()),
            (None, ""),
            "{name} {arguments:?}"
        );
    }
}

/// Runs a program that cannot do its work: exit code 2, no output of results, and a line that has
/// these words.
#[track_caller]
fn refused(name: &str, arguments: &[&str], wanted: &[&str]) {
    let Some(program) = example(name) else {
        return;
    };
    let (code, _, error) = run(&program, arguments);
    assert_eq!(code, Some(2), "{name} {arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{name} {arguments:?}: {error}");
    for word in wanted {
        assert!(error.contains(word), "{name} {arguments:?}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn a_missing_file_is_named() {
    let root = folder("missing");
    let missing = root.join("no-such-file");
    let missing = missing.to_str().unwrap();
    let wanted = ["no-such-file", "No such file or directory"];
    for name in ["ingest", "replay_trace", "memtable_to_sst", "sst_info"] {
        refused(name, &[missing], &wanted);
    }
    refused("leveled", &["--dir", missing], &wanted);
    let directory = format!("--db={missing}");
    refused(
        "db_bench",
        &["--benchmarks=readseq", "--use_existing_db", &directory],
        &["there is no ", "no-such-file/journal.pmt"],
    );
    let file = root.join("file");
    fs::write(&file, b"").unwrap();
    let below = file.join("store");
    refused(
        "kv_store",
        &["--dir", below.to_str().unwrap(), "scan"],
        &["file/store", "Not a directory"],
    );
}

#[test]
fn the_exit_code_reports_an_absent_key() {
    let Some(program) = example("kv_store") else {
        return;
    };
    let directory = folder("absent").join("store");
    let command = |line| run(&program, &["--dir", directory.to_str().unwrap(), line]);
    assert_eq!(
        command("get nowhere"),
        (Some(1), String::new(), "nowhere: not found\n".into())
    );
    assert_eq!(command("put here 1").0, Some(0));
    assert_eq!(
        command("get here"),
        (Some(0), "here 1\n".into(), String::new())
    );
    assert_eq!(
        command("get nowhere; get here"),
        (Some(1), "here 1\n".into(), "nowhere: not found\n".into())
    );
}

/// A number that is too large is refused at once.
#[test]
fn a_value_too_large_is_refused() {
    for (flag, most) in [
        ("--value_size=5000000000", "1073741824"),
        ("--key_size=5000000000", "16777215"),
        ("--threads=5000000000", "4096"),
        ("--batch_size=5000000000", "16777216"),
        ("--block_size=5000000000", "1073741824"),
    ] {
        let (name, _) = flag.split_once('=').unwrap();
        refused(
            "db_bench",
            &[flag],
            &[&format!("{name}: 5000000000 is more than {most}")],
        );
    }
    let directory = folder("too-large").join("store");
    let directory = directory.to_str().unwrap();
    refused(
        "kv_store",
        &["--dir", directory, "add n 99999999999999999999"],
        &["number too large"],
    );
    refused(
        "kv_store",
        &[
            "--dir",
            directory,
            "--write-buffer",
            "99999999999999",
            "scan",
        ],
        &["write_buffer_size must be 1 to 34359738368"],
    );
    refused(
        "flip_a_bit",
        &["value", "64"],
        &["there is no bit 64: the Value has bits 0 to 63"],
    );
    refused(
        "memtable_to_sst",
        &["--format-version", "99"],
        &["format version 99"],
    );
    refused(
        "fault_campaign",
        &["--short", "--protection", "9"],
        &["protection_bytes must be 0, 1, 2, 4 or 8, not 9"],
    );
    let large = "99999999999999999999";
    for (name, flags) in [
        ("leveled", &[][..]),
        ("leveled", &["--write-buffer"]),
        ("stress", &[]),
        ("ingest", &["--max-files"]),
        ("replay_trace", &["--threads"]),
    ] {
        let words = [flags, &[large]].concat();
        refused(name, &words, &["invalid value", large]);
    }
}

/// Arguments that a program does not know are named in one line.
#[test]
fn unknown_arguments_are_named() {
    for name in PROGRAMS {
        refused(name, &["--no-such-flag"], &["--no-such-flag"]);
    }
}

#[test]
fn an_unknown_checksum_is_answered_by_the_known_ones() {
    let Some(program) = example("memtable_to_sst") else {
        return;
    };
    let (code, _, error) = run(&program, &["--checksum", "md5"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("none, crc32c, xxhash, xxhash64, xxh3") && !error.contains("argument:"),
        "{error}"
    );
}

/// A number below 128 is one byte in a file, and is shown as a number also if the byte is a letter.
#[test]
fn sst_info_shows_numbers_as_numbers() {
    let (Some(write), Some(show)) = (example("memtable_to_sst"), example("sst_info")) else {
        return;
    };
    let root = folder("numbers");
    let (tree, table) = (root.join("tree"), root.join("1.sst"));
    fs::create_dir(&tree).unwrap();
    // 90 is the letter Z.
    (0..90).for_each(|n| fs::write(tree.join(format!("{n}")), b"").unwrap());
    let (tree, table) = (tree.to_str().unwrap(), table.to_str().unwrap());
    let (code, _, error) = run(&write, &[tree, "--out", table]);
    assert_eq!(code, Some(0), "{error}");
    let (code, out, error) = run(&show, &[table]);
    assert_eq!(code, Some(0), "{error}");
    for line in [
        "  rocksdb.num.entries = 90\n",
        "  rocksdb.block.based.table.whole.key.filtering = 1\n",
        "  rocksdb.comparator = leveldb.BytewiseComparator\n",
    ] {
        assert!(out.contains(line), "no `{line}` in\n{out}");
    }
}

/// A report on a full device ends with a message and exit code 2, also if there is no room for the
/// message.
#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_an_error() {
    let root = folder("full");
    for (name, arguments) in talking(&root) {
        let Some(program) = example(name) else {
            continue;
        };
        let full = || {
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
        };
        let command = || {
            let mut command = Command::new(&program);
            command.args(&arguments).stdout(full());
            command
        };
        let Output { status, stderr, .. } = command().output().unwrap();
        let error = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{name}: {error}");
        assert!(
            error.contains(": writing the report: No space left on device"),
            "{name}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
        assert_eq!(
            command().stderr(full()).status().unwrap().code(),
            Some(2),
            "{name}"
        );
    }
}

/// The output of a program on a terminal of some width: the lines, and each state of a line that is
/// drawn again.
#[cfg(target_os = "linux")]
fn on_terminal(program: &Path, arguments: &[&str], columns: usize) -> Option<Vec<String>> {
    let words = [program.to_str().unwrap()]
        .into_iter()
        .chain(arguments.iter().copied());
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let command = format!("stty cols {columns} rows 24; exec {}", words.join(" "));
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(std::process::Stdio::null());
    let Ok(Output { status, stdout, .. }) = script.output() else {
        println!("no `script` makes a terminal, not tested");
        return None;
    };
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{text}");
    // An escape sequence ends with its first letter.
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap().to_owned();
    let shown = parts.fold(first, |shown, part| {
        shown
            + part
                .trim_start_matches(|c: char| !c.is_ascii_alphabetic())
                .get(1..)
                .unwrap_or("")
    });
    Some(shown.split(['\r', '\n']).map(str::to_owned).collect())
}

/// Paths longer than a line continue on the next one; numbers stay whole; a bar is on one line.
#[cfg(target_os = "linux")]
#[test]
fn reports_fit_the_terminal() {
    let _watchdog = crate::support::rng::Watchdog::new("examples::reports_fit_the_terminal", 0);
    let root =
        folder("wide").join("a-name-of-a-folder-that-no-line-of-a-report-has-room-for".repeat(2));
    fs::create_dir_all(root.join("below")).unwrap();
    (0..2_000).for_each(|n| fs::write(root.join("below").join(n.to_string()), b"").unwrap());
    let root = root.to_str().unwrap();
    for (name, arguments) in [
        ("ingest", vec![root]),
        ("replay_trace", vec![]),
        ("flip_a_bit", vec![]),
    ] {
        let Some(program) = example(name) else {
            continue;
        };
        let (code, out, error) = run(&program, &arguments);
        assert_eq!(code, Some(0), "{out}{error}");
        let narrow =
            |line: &str, columns| assert!(line.chars().count() <= columns, "`{line}` in\n{out}");
        out.lines().for_each(|line| narrow(line, 80));
        let whole: String = out.lines().map(str::trim_start).collect();
        assert!(name != "ingest" || whole.contains(root), "{out}");
        for columns in [44, 80] {
            let Some(lines) = on_terminal(&program, &arguments, columns) else {
                return;
            };
            lines.iter().for_each(|line| narrow(line, columns));
            let bars = lines
                .iter()
                .filter(|line| line.contains("putting") && line.contains('%'))
                .count();
            assert!(name != "ingest" || bars > 0, "no bar in {lines:#?}");
        }
    }
}

/// A store has the content that was written to it, by any run of the program, and reports files
/// that are in its way.
#[test]
fn kv_store_keeps_what_it_was_given() {
    let Some(program) = example("kv_store") else {
        return;
    };
    let root = folder("kv_store");
    let directory = root.join("store");
    let store = |line: &str| {
        let (code, out, error) = run(&program, &["--dir", directory.to_str().unwrap(), line]);
        (code, if code == Some(0) { out } else { error })
    };
    for line in [
        "put a 1; put b 2; put c 3",
        "add n 40",
        "flush",
        "delete b",
        "add n 2; put d 4",
        "flush",
    ] {
        assert_eq!(store(line), (Some(0), String::new()), "{line}");
    }
    assert_eq!(store("scan"), (Some(0), "a 1\nc 3\nd 4\nn 42\n".into()));
    for _ in 0..8 {
        assert_eq!(store("add n 1; delete-range c e; flush").0, Some(0));
        assert_eq!(store("flush").0, Some(0));
    }
    assert_eq!(store("get n; get a"), (Some(0), "n 50\na 1\n".into()));
    assert_eq!(store("scan a b"), (Some(0), "a 1\n".into()));
    let tables = || {
        fs::read_dir(&directory).unwrap().filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|extension| extension == "sst")
        })
    };
    assert!(
        (1..=6).contains(&tables().count()),
        "files are merged, and leftovers removed"
    );
    for (line, wanted) in [
        ("put a", "`put a` is no command"),
        ("add n x", "invalid digit"),
    ] {
        let (code, error) = store(line);
        assert!(code == Some(2) && error.contains(wanted), "{error}");
    }
    let manifest = directory.join("MANIFEST");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(
        &manifest,
        text.replacen("last_sequence ", "last_sequence 9", 1),
    )
    .unwrap();
    let (code, error) = store("scan");
    assert!(
        code == Some(2) && error.contains("its checksum differs"),
        "{error}"
    );
    fs::remove_file(&manifest).unwrap();
    let (code, error) = store("scan");
    assert!(
        code == Some(2) && error.contains("there is no manifest"),
        "{error}"
    );
    fs::write(&manifest, text).unwrap();
    assert_eq!(store("get a"), (Some(0), "a 1\n".into()));
}

/// The fields of a result line of RocksDB's db_bench that scripts use: name, microseconds and
/// operations per second.
fn result_line(line: &str) -> Option<(&str, f64, f64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [
        name,
        ":",
        micros,
        "micros/op",
        rate,
        "ops/sec",
        seconds,
        "seconds",
        operations,
        word,
        ..,
    ] = fields[..]
    else {
        return None;
    };
    let whole = word == "operations;"
        && seconds.parse::<f64>().is_ok()
        && operations.parse::<u64>().is_ok();
    whole.then_some((name, micros.parse().ok()?, rate.parse().ok()?))
}

/// The average in an AVG line, its sixth field.
fn average_line(line: &str) -> Option<(&str, f64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [name, "[AVG", _, "runs]", ":", rate, _, _, tail, ..] = fields[..] else {
        return None;
    };
    tail.starts_with("ops/sec")
        .then_some((name, rate.parse().ok()?))
}

/// Every command line that was published with the five changes runs, with fewer keys, and prints
/// lines of RocksDB's form.
#[test]
fn db_bench_runs_what_was_published() {
    let Some(bench) = example("db_bench") else {
        return;
    };
    let root = folder("db_bench");
    let published = include_str!("../../tools/db_bench/published.txt");
    for line in published.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(" | ").collect();
        let directory = format!("--db={}", root.display());
        let words = parts[2]
            .split_whitespace()
            .chain(parts[1].split_whitespace());
        let arguments: Vec<&str> = words.chain([directory.as_str()]).collect();
        let (code, out, error) = run(&bench, &arguments);
        assert_eq!(code, Some(0), "{line}\n{out}{error}");
        let printed = out
            .lines()
            .any(|line| line == "--memtablerep=vector: there is one representation, the skiplist");
        assert_eq!(
            printed,
            line.contains("memtablerep=vector"),
            "{line}\n{out}"
        );
        let list = parts[2]
            .split_whitespace()
            .find_map(|word| word.split_once("benchmarks="))
            .unwrap()
            .1;
        for word in list.split(',') {
            let (name, repeats) = word.split_once("[-X").unwrap_or((word, "1]"));
            let repeats: usize = repeats.trim_end_matches(']').parse().unwrap();
            let results: Vec<_> = out
                .lines()
                .filter_map(result_line)
                .filter(|line| line.0 == name)
                .collect();
            assert_eq!(results.len(), repeats, "{name} of {line}\n{out}");
            assert!(
                results.iter().all(|line| line.1 > 0.0 && line.2 > 0.0),
                "{line}\n{out}"
            );
            // One line after each run but the first, and one at the end.
            let averages = out
                .lines()
                .filter_map(average_line)
                .filter(|line| line.0 == name)
                .count();
            assert_eq!(
                averages,
                if repeats > 1 { repeats } else { 0 },
                "{name} of {line}\n{out}"
            );
        }
    }
}

#[test]
fn db_bench_keeps_and_finds_a_journal() {
    let Some(bench) = example("db_bench") else {
        return;
    };
    let root = folder("db_bench-journal");
    let directory = format!("--db={}", root.join("here").display());
    let command = |words: &[&str]| {
        let words: Vec<&str> = words
            .iter()
            .copied()
            .chain([directory.as_str(), "--num=1000", "--seed=1"])
            .collect();
        run(&bench, &words)
    };
    let (code, _, error) = command(&["--benchmarks=readseq", "--use_existing_db"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("there is no"), "{error}");
    let (code, out, _) = command(&["--benchmarks=fillseq,deleterandom", "--deletes=100"]);
    assert_eq!(code, Some(0), "{out}");
    let count = |out: &str| {
        out.lines()
            .filter_map(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok())
            .next_back()
    };
    let (_, out, error) = command(&["--benchmarks=readseq", "--use_existing_db", "--readonly"]);
    let left = count(&out).unwrap();
    assert!((900..1000).contains(&left), "{out}{error}");
    assert!(error.contains("replayed 1100 batches"), "{error}");
    let path = root.join("here").join("journal.pmt");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let (code, _, error) = command(&["--benchmarks=readseq", "--use_existing_db", "--readonly"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("ends in the middle of a record"), "{error}");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 4;
    fs::write(&path, &damaged).unwrap();
    let (code, _, error) = command(&["--benchmarks=readseq", "--use_existing_db", "--readonly"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("damaged at byte"), "{error}");
    for (word, wanted) in [
        ("--compaction_style=1", "nothing is compacted"),
        ("--surely=1", "not a flag"),
    ] {
        let (code, _, error) = command(&[word]);
        assert_eq!(code, Some(2));
        assert!(error.contains(wanted), "{error}");
    }
}

/// A line for each file of a folder, and a summary.
#[test]
fn sst_info_lists_a_folder() {
    let Some(program) = example("sst_info") else {
        return;
    };
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../sst/tests/data");
    let folder = std::env::temp_dir().join(format!("paranoid-sst-info-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for name in [
        "format-version-1.sst",
        "old-filter-damaged.sst",
        "pebble-magic.sst",
    ] {
        fs::copy(data.join(name), folder.join(name)).unwrap();
    }
    fs::write(folder.join("LOG"), b"no table").unwrap();
    let (code, out, error) = run(&program, &[folder.to_str().unwrap()]);
    fs::remove_dir_all(&folder).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len()), (Some(1), 4), "{out}{error}");
    for (line, start) in lines
        .iter()
        .zip(["ok ", "DAMAGED ", "not read ", "3 files: 1 intact "])
    {
        assert!(line.starts_with(start), "{out}");
    }
}

/// Every example that `cargo test` builds has `--help`, which lists the exit codes.
#[test]
fn examples_have_help_with_their_exit_codes() {
    for name in PROGRAMS {
        let Some(program) = example(name) else {
            continue;
        };
        let (code, out, error) = run(&program, &["--help"]);
        assert_eq!(code, Some(0), "{name}: {error}");
        assert!(
            out.contains("\nExit code: 0 ") && error.is_empty(),
            "{name}: {out}{error}"
        );
    }
}

#[test]
fn db_bench_guesses_what_was_meant_and_tells_what_tables_hold() {
    let Some(bench) = example("db_bench") else {
        return;
    };
    for (word, wanted) in [
        ("--benchmarks=raedrandom", "did you mean readrandom?"),
        ("--vlaue_size=3", "did you mean --value_size?"),
    ] {
        let (code, _, error) = run(&bench, &[word]);
        assert_eq!(code, Some(2));
        assert!(error.contains(wanted), "{error}");
    }
    let (code, out, error) = run(
        &bench,
        &["--benchmarks=fillseq,stats", "--num=500", "--disable_wal"],
    );
    assert_eq!(code, Some(0), "{error}");
    assert!(
        out.contains("500 entries (0 deletes, 0 range deletes)"),
        "{out}"
    );
    assert_eq!(out.lines().filter_map(result_line).count(), 1, "{out}");
}

/// The example `kv_store` in directories that other programs use too: it removes its own files that
/// the manifest does not name, and touches nothing else.
mod kv_store {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Read;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use crate::examples::{example, folder, run};
    use crate::kills::{Store, journal};
    use crate::support::rng::{Rng, Watchdog};

    /// Runs a line of commands: exit code, output, errors.
    fn line(program: &Path, directory: &Path, line: &str) -> (Option<i32>, String, String) {
        run(program, &["--dir", directory.to_str().unwrap(), line])
    }

    /// A store with a table file and a journal.
    fn store(program: &Path, name: &str) -> PathBuf {
        let directory = folder(name).join("store");
        assert_eq!(
            line(program, &directory, "put a 1; put b 2; flush").0,
            Some(0)
        );
        assert_eq!(line(program, &directory, "flush").0, Some(0));
        assert_eq!(line(program, &directory, "put c 3").0, Some(0));
        directory
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// The table files in the directory, and those that the manifest names.
    fn tables(directory: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
        let manifest = fs::read_to_string(directory.join("MANIFEST")).unwrap();
        let named = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("file "));
        let named = named
            .map(|file| {
                let number = file.split(' ').next().unwrap();
                format!("{:06}.sst", number.parse::<u64>().unwrap())
            })
            .collect();
        (
            names(directory)
                .into_iter()
                .filter(|name| name.contains(".sst"))
                .collect(),
            named,
        )
    }

    #[test]
    fn what_is_not_its_own_stays() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let directory = store(&program, "kv_store-others");
        let others = [
            "mine.sst",
            "notes.tmp",
            "1.sst",
            "0000001.sst",
            "000001.sst.tmp",
            "000001.sst.old",
            "LOCK.tmp",
        ];
        let leftovers = ["000050.sst", "000051.sst.0.tmp", "MANIFEST.copy"];
        others
            .iter()
            .chain(&leftovers)
            .for_each(|name| fs::write(directory.join(name), b"whose?").unwrap());
        fs::create_dir(directory.join("000077.sst")).unwrap();
        assert_eq!(
            line(&program, &directory, "put d 4; flush"),
            (Some(0), String::new(), String::new())
        );
        assert_eq!(line(&program, &directory, "flush").0, Some(0));
        assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\nd 4\n");
        let names = names(&directory);
        assert!(others.iter().all(|name| names.contains(*name)), "{names:?}");
        assert!(
            !leftovers.iter().any(|name| names.contains(*name)),
            "{names:?}"
        );
        // The next number is one that no file has.
        assert!(
            names.contains("000077.sst") && names.contains("000078.sst"),
            "{names:?}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_new_manifest_is_not_written_through() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let directory = store(&program, "kv_store-link");
        let (target, link) = (
            directory.with_extension("target"),
            directory.join("MANIFEST.copy"),
        );
        fs::write(&target, b"somebody else's").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(line(&program, &directory, "put d 4; flush").0, Some(0));
        assert_eq!(fs::read(&target).unwrap(), b"somebody else's");
        assert!(fs::symlink_metadata(&link).is_err(), "the link is replaced");
        assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\nd 4\n");
    }

    /// To open a pipe for reading would wait for a writer.
    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_journal_is_an_error() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let _watchdog = Watchdog::new(
            "examples::kv_store::a_pipe_in_the_place_of_a_journal_is_an_error",
            0,
        );
        let directory = store(&program, "kv_store-pipe");
        let pipe = directory.join("000099.journal");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let (code, _, error) = line(&program, &directory, "scan");
        assert!(
            code == Some(2) && error.contains("000099.journal"),
            "{error}"
        );
        fs::remove_file(&pipe).unwrap();
        assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\n");
    }

    #[test]
    fn a_second_process_is_refused() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let _watchdog = Watchdog::new("examples::kv_store::a_second_process_is_refused", 0);
        let directory = store(&program, "kv_store-second");
        let mut first = Store::start(&program, &directory, &mut Rng::new(0));
        assert_eq!(first.scan().len(), 3);
        let (code, _, error) = line(&program, &directory, "put d 4");
        assert!(code == Some(2) && error.contains("LOCK"), "{error}");
        // The lock ends with the process, for any reason.
        first.child.kill().unwrap();
        first.child.wait().unwrap();
        assert_eq!(line(&program, &directory, "scan").1, "a 1\nb 2\nc 3\n");
    }

    /// Files may not grow: a table file fits, and the result of a compaction does not.
    #[cfg(unix)]
    #[test]
    fn a_flush_that_fails_leaves_no_files() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let _watchdog = Watchdog::new("examples::kv_store::a_flush_that_fails_leaves_no_files", 0);
        let directory = folder("kv_store-full").join("store");
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; ulimit -f 40; exec \"$@\"", "sh"])
            .arg(&program)
            .arg("--dir")
            .arg(&directory);
        command
            .args(["--threads", "1", "serve"])
            .stderr(Stdio::piped());
        let mut store = Store::of(&mut command);
        for number in 0..15 {
            // Every file overlaps every other one.
            let value = "v".repeat(3000);
            store.send(&format!(
                "put k{number:02} {value}; put a 1; put z 1; flush"
            ));
            store.send("flush");
            assert!(
                (0..2).all(|_| store.answer().is_some()),
                "the store answers"
            );
        }
        let rows = store.scan();
        assert!(rows.len() >= 6, "{} rows", rows.len());
        // The current flush ends.
        drop(store.child.stdin.take());
        let mut printed = String::new();
        store
            .child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        assert!(store.child.wait().unwrap().success());
        let refused = printed
            .lines()
            .filter(|line| line.starts_with("merge: "))
            .count();
        assert!(refused > 5, "{printed}");
        let (there, named) = tables(&directory);
        assert_eq!(there, named);
        let mut store = Store::start(&program, &directory, &mut Rng::new(0));
        assert_eq!(store.scan(), rows);
        store.child.kill().unwrap();
        store.child.wait().unwrap();
    }

    /// A merge of files without any remaining entry writes no file, and its install names none.
    #[test]
    fn what_is_all_deleted_merges_to_no_file() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let directory = folder("kv_store-deleted").join("store");
        let mut fewest = usize::MAX;
        for _ in 0..6 {
            for commands in [
                "put a 1; put b 2; flush",
                "flush",
                "delete-range a z; flush",
                "flush",
            ] {
                assert_eq!(
                    line(&program, &directory, commands),
                    (Some(0), String::new(), String::new())
                );
                fewest = fewest.min(tables(&directory).1.len());
            }
        }
        let (there, named) = tables(&directory);
        assert!(there == named && named.len() <= 7, "{there:?}");
        assert_eq!(line(&program, &directory, "scan").1, "");
        assert_eq!(fewest, 0);
    }

    #[test]
    fn bytes_cut_off_the_journal_are_reported() {
        let Some(program) = example("kv_store") else {
            return;
        };
        let directory = store(&program, "kv_store-cut");
        let path = journal(&directory);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, [&bytes, b"torn".as_slice()].concat()).unwrap();
        let (code, out, error) = line(&program, &directory, "scan");
        assert_eq!(
            (code, out.as_str()),
            (Some(0), "a 1\nb 2\nc 3\n"),
            "{error}"
        );
        assert!(
            error.contains("journal: ") && error.contains("4 bytes"),
            "{error}"
        );
        assert_eq!(line(&program, &directory, "scan").2, "");
    }
}
