//! Where a record was made, and how the program was built.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// What a record states about machine and build.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's name, its threads and its architecture.
    pub processor: String,
    /// As `rustc --version` names it.
    pub compiler: String,
    /// The commit that was measured, and whether the tree had changes.
    pub commit: String,
    /// The command line.
    pub command: String,
    /// The day, as the caller gave it.
    pub date: String,
    /// How the crate and its Rust rivals were compiled, where that is not cargo's profile for benches.
    #[serde(default)]
    pub rust_flags: String,
    /// How rivals in C++ were compiled.
    #[serde(default)]
    pub cxx_flags: String,
}

impl Environment {
    /// This machine, this build. `command` is followed by the words that this program was given.
    pub fn here(command: &str, date: Option<&str>) -> Environment {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let changed = said("git", &["status", "--porcelain", "--untracked-files=no"]);
        let changed = if changed.is_some_and(|text| !text.is_empty()) { " with changes" } else { "" };
        let commit = said("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
        let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
        let words = if words.is_empty() { String::new() } else { format!(" -- {}", words.join(" ")) };
        Environment {
            processor: format!("{}, {threads} threads, {}", processor(), std::env::consts::ARCH),
            compiler: said("rustc", &["--version"]).unwrap_or_else(|| "unknown".into()),
            commit: format!("{commit}{changed}"),
            command: format!("{command}{words}"),
            date: date.unwrap_or("not given").to_owned(),
            rust_flags: String::new(),
            cxx_flags: String::new(),
        }
    }
}

fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = all.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown processor".into(), |(_, name)| name.trim().into())
}

/// The output of a program, if it succeeds.
pub fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let folder = env!("CARGO_MANIFEST_DIR");
    let output = Command::new(program).args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Bytes of this process in memory; 0 where `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
