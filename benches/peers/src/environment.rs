//! Where a record was made, and how both sides were built.

use measure::environment::{Environment, said};

/// This machine, this build.
pub fn here(date: Option<&str>) -> Environment {
    let features = if cfg!(feature = "rocksdb") { " --features rocksdb" } else { "" };
    let cxx = env!("PEERS_CXX_FLAGS");
    let version = cxx.split(' ').next().and_then(|program| said(program, &["--version"]));
    let version = version.as_deref().and_then(|text| text.lines().next()).unwrap_or("no C++ compiler");
    let default_target = format!("-C {}", env!("PEERS_RUST_FLAGS").trim());
    Environment {
        rust_flags: format!("{default_target}, default target; this crate chooses SSE4.2 when it runs"),
        cxx_flags: format!("{cxx} ({version})"),
        ..Environment::here(&format!("cargo run --release{features}"), date)
    }
}
