//! The examples as a user meets them: what they print, and how they end.
//!
//! `cargo test` builds the examples first. Under `cargo test --test suite` alone they may not be there: then these tests
//! say so and pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn example(name: &str) -> Option<PathBuf> {
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
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn run(program: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn ingest_takes_any_tree() {
    let Some(ingest) = example("ingest") else { return };
    let root = folder("ingest");
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::create_dir_all(root.join("deeq")).unwrap();
    for (name, len) in [("a", 0), ("deep/b", 1), ("deep/er/c", 4096), ("deep-not", 4097), ("deeq/d", 100_000)]
    {
        fs::write(root.join(name), vec![7; len]).unwrap();
    }
    let mut paths = 8;
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        fs::write(root.join(std::ffi::OsStr::from_bytes(b"not \xff text")), b"x").unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
        paths += 2;
    }
    for protection in ["0", "8"] {
        let arguments = [root.to_str().unwrap(), "--threads", "3", "--protection", protection];
        let (code, out, error) = run(&ingest, &arguments);
        assert_eq!(code, Some(0), "{out}{error}");
        for wanted in [format!("paths         {paths}\n"), format!("{paths} entries equal to the source")] {
            assert!(out.contains(&wanted), "no `{wanted}` in\n{out}");
        }
        // "deep/" holds er, er/c and b; deep-not and deeq stay.
        assert!(out.contains("range delete  deep at sequence"), "{out}");
        assert!(out.contains("3 entries gone; at snapshot"), "{out}");
        assert!(out.contains("All of it agrees."), "{out}");
    }
    let (code, out, _) = run(&ingest, &[root.to_str().unwrap(), "--max-files", "2"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("stopped at --max-files"), "{out}");
}

#[test]
fn ingest_names_what_is_in_its_way() {
    let Some(ingest) = example("ingest") else { return };
    let root = folder("ingest-errors");
    let file = root.join("file");
    fs::write(&file, b"").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for (place, wanted) in
        [("missing", "missing: No such file"), ("file", "is not a directory"), ("empty", "it is empty")]
    {
        let path = root.join(place);
        let (code, out, error) = run(&ingest, &[path.to_str().unwrap()]);
        assert_eq!(code, Some(2), "{out}{error}");
        assert!(error.contains(place) && (error.contains(wanted) || cfg!(not(unix))), "{error}");
    }
    let (code, _, error) = run(&ingest, &[root.to_str().unwrap(), "--protection", "3"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("not 3"), "{error}");
}

#[test]
fn replay_checks_a_trace_and_names_bad_lines() {
    let Some(replay) = example("replay_trace") else { return };
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
    for wanted in ["6 000 in", "writes            4 000", "Every read was right."] {
        assert!(out.contains(wanted), "no `{wanted}` in\n{out}");
    }
    text.push_str("1,9,2a,many,5\n");
    let bad = root.join("bad.csv");
    fs::write(&bad, &text).unwrap();
    for (path, wanted) in [(&bad, "bad.csv:3002: size `many`"), (&root, "is a directory")] {
        let (code, _, error) = run(&replay, &[path.to_str().unwrap()]);
        assert_eq!(code, Some(2));
        assert!(error.contains(wanted), "{error}");
    }
}
