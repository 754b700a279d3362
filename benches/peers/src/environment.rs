//! Where it ran, and how both sides were built.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// What a record says about the machine and the build.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Environment {
    pub processor: String,
    pub compiler: String,
    pub commit: String,
    pub command: String,
    pub date: String,
    /// How this crate and the Rust rivals were compiled.
    pub rust_flags: String,
    /// How RocksDB and the shim were compiled.
    pub cxx_flags: String,
}

impl Environment {
    pub fn here(date: Option<&str>) -> Environment {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let changed = said("git", &["status", "--porcelain", "--untracked-files=no"]);
        let changed = if changed.is_some_and(|text| !text.is_empty()) { " with changes" } else { "" };
        let commit = said("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
        let words: Vec<String> = std::env::args().skip(1).collect();
        let features = if cfg!(feature = "rocksdb") { " --features rocksdb" } else { "" };
        let cxx = env!("PEERS_CXX_FLAGS");
        let version = cxx.split(' ').next().and_then(|program| said(program, &["--version"]));
        let version = version.as_deref().and_then(|text| text.lines().next()).unwrap_or("no C++ compiler");
        let default_target = format!("-C {}", env!("PEERS_RUST_FLAGS").trim());
        Environment {
            processor: format!("{}, {threads} threads, {}", processor(), std::env::consts::ARCH),
            compiler: said("rustc", &["--version"]).unwrap_or_else(|| "unknown".into()),
            commit: format!("{commit}{changed}"),
            command: format!("cargo run --release{features} -- {}", words.join(" ")).trim_end().to_owned(),
            date: date.unwrap_or("not given").to_owned(),
            rust_flags: format!("{default_target}, default target; this crate chooses SSE4.2 when it runs"),
            cxx_flags: format!("{cxx} ({version})"),
        }
    }
}

fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = all.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown processor".into(), |(_, name)| name.trim().into())
}

/// What a program prints, if it succeeds.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let folder = env!("CARGO_MANIFEST_DIR");
    let output = Command::new(program).args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}
