//! Compiles the shim over RocksDB's classes exactly as librocksdb-sys compiles RocksDB, and passes
//! the flags to the program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    let said = |name: &str| std::env::var(name).unwrap_or_default();
    println!(
        "cargo:rustc-env=PEERS_RUST_FLAGS=opt-level={} {}",
        said("OPT_LEVEL"),
        said("CARGO_ENCODED_RUSTFLAGS")
    );
    #[cfg(feature = "rocksdb")]
    shim();
    #[cfg(not(feature = "rocksdb"))]
    println!("cargo:rustc-env=PEERS_CXX_FLAGS=not built");
}

#[cfg(feature = "rocksdb")]
fn shim() {
    use std::path::PathBuf;
    let folder = std::env::var("DEP_ROCKSDB_CARGO_MANIFEST_DIR")
        .expect("librocksdb-sys says where its source is");
    let source = PathBuf::from(folder).join("rocksdb");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .flag("-std=c++20")
        .flag("-include")
        .flag("cstdint");
    build
        .include(&source)
        .include(source.join("include"))
        .warnings(false);
    // A class whose layout differs between the shim and the library corrupts memory. These must be
    // the definitions of librocksdb-sys.
    build.define("NDEBUG", "1");
    for name in [
        "HAVE_ALIGNED_NEW",
        "HAVE_UINT128_EXTENSION",
        "OS_LINUX",
        "ROCKSDB_PLATFORM_POSIX",
        "ROCKSDB_LIB_IO_POSIX",
        "ROCKSDB_SCHED_GETCPU_PRESENT",
        "ROCKSDB_AUXV_GETAUXVAL_PRESENT",
        "ROCKSDB_FALLOCATE_PRESENT",
        "ROCKSDB_RANGESYNC_PRESENT",
    ] {
        build.define(name, None);
    }
    build
        .file("shim/memtable.cc")
        .file("shim/table_files.cc")
        .file("shim/write_path.cc");
    let compiler = build.get_compiler();
    let words: Vec<String> = compiler
        .args()
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .filter(|word| keep(word))
        .collect();
    // The flags of a library that was built elsewhere are not known.
    println!("cargo:rerun-if-env-changed=ROCKSDB_LIB_DIR");
    let elsewhere = std::env::var_os("ROCKSDB_LIB_DIR").is_some();
    let library = if elsewhere {
        ", the shim alone: the library came prebuilt"
    } else {
        ""
    };
    println!(
        "cargo:rustc-env=PEERS_CXX_FLAGS={} {}{library}",
        compiler.path().display(),
        words.join(" ")
    );
    build.compile("peers_shim");
}

/// Whether a record states this flag.
#[cfg(feature = "rocksdb")]
fn keep(word: &str) -> bool {
    ["-O", "-m", "-std", "-f"]
        .iter()
        .any(|prefix| word.starts_with(prefix))
}
