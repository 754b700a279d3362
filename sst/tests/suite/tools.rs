//! RocksDB's programs: their paths, and their output.

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use paranoid_memtable::Kind;

use crate::model::Row;

/// The program's path. `None`: the machine does not have it and need not have it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        let required = std::env::var("PARANOID_SST_TOOLS").is_ok_and(|value| value == "required");
        assert!(
            !required,
            "{name} is missing: install Debian's rocksdb-tools"
        );
        println!("SKIPPED: {name} is not installed (Debian: rocksdb-tools)");
    }
    found
}

/// The name of the library that `sst_dump` is linked with.
pub(crate) fn library() -> Option<OsString> {
    let sst_dump = find("sst_dump")?;
    let linked = run(Path::new("ldd"), &[sst_dump.to_str().unwrap()]);
    linked
        .split_whitespace()
        .find(|word| word.starts_with("librocksdb.so"))
        .map(OsString::from)
}

/// Runs a program and returns its output. Panics if its exit code is not 0.
pub(crate) fn run(program: &Path, arguments: &[&str]) -> String {
    run_with(program, arguments, Stdio::null())
}

/// As [`run`], with a standard input.
pub(crate) fn run_with<A: AsRef<OsStr> + Debug>(
    program: &Path,
    arguments: &[A],
    input: Stdio,
) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(input)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        output.status.success(),
        "{} {arguments:?}: {}\n{text}",
        program.display(),
        output.status
    );
    text
}

/// Runs a program with a text on its standard input. Returns its output, with any exit code.
pub(crate) fn output(program: &Path, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = input.to_owned();
    // The program may stop reading before the end.
    let feeder = std::thread::spawn(move || stdin.write_all(text.as_bytes()).is_ok());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts that RocksDB finds no damage in a file: by its exit code and by its message, because the
/// code may be 0 for damage.
pub(crate) fn verify(sst_dump: &Path, file: &Path) {
    let file = format!("--file={}", file.display());
    let out = run(sst_dump, &[&file, "--command=verify", "--verify_checksum"]);
    assert!(
        out.contains("The file is ok") && !out.contains("orruption"),
        "{out}"
    );
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |letter: u8| u8::try_from(char::from(letter).to_digit(16).unwrap()).unwrap();
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

/// The rows that RocksDB reads from a file, without range deletions.
pub(crate) fn scan(sst_dump: &Path, file: &Path) -> Vec<Row> {
    let file = format!("--file={}", file.display());
    let out = run(
        sst_dump,
        &[&file, "--command=scan", "--output_hex", "--verify_checksum"],
    );
    let row = |line: &str| {
        let (key, rest) = line.strip_prefix('\'')?.split_once("' seq:")?;
        let (sequence, rest) = rest.split_once(", type:")?;
        let (kind, value) = rest.split_once(" => ")?;
        Some(Row {
            key: unhex(key),
            sequence: sequence.parse().ok()?,
            kind: Kind::from_u8(kind.parse().ok()?),
            value: unhex(value),
        })
    };
    out.lines().filter_map(row).collect()
}
