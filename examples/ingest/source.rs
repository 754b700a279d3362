//! The files that are put into the table: how they are found, and which value each gets.
//!
//! ```text
//!  value:  | kind 1 | length 8 | mtime seconds 8 | nanoseconds 4 | mode 4 | up to 4096 bytes of content |
//! ```

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use crate::failure::Failure;

/// Most bytes of a file's content in its value.
pub(crate) const CONTENT_MAX: u64 = 4096;

/// The directories to search.
#[derive(Debug)]
pub(crate) struct Source {
    /// Keys are paths relative to this directory.
    pub(crate) base: PathBuf,
    /// The directories below `base` that are walked.
    pub(crate) roots: Vec<PathBuf>,
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Paths relative to the base, each once.
    pub(crate) paths: Vec<PathBuf>,
    /// Directories that could not be listed, by name and reason.
    pub(crate) warnings: Vec<String>,
    /// Whether the walk stopped at the limit.
    pub(crate) limit: Limit,
}

/// Whether the walk left paths out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Everything was taken.
    #[default]
    Kept,
    /// The walk stopped at the limit.
    Reached,
}

impl Source {
    /// A directory that the user named.
    pub(crate) fn directory(directory: &Path) -> Result<Source, Failure> {
        let base = fs::canonicalize(directory).map_err(|error| {
            Failure::Cannot(format!("directory {}: {error}", directory.display()))
        })?;
        if !base.is_dir() {
            return Err(Failure::Cannot(format!(
                "{} is not a directory",
                directory.display()
            )));
        }
        Ok(Source {
            base,
            roots: vec![PathBuf::new()],
        })
    }

    /// The documentation and the libraries of the Rust toolchain.
    pub(crate) fn toolchain() -> Result<Source, Failure> {
        let sysroot = match asked_sysroot() {
            Ok(sysroot) => sysroot,
            Err(reason) => installed_sysroot().ok_or_else(|| {
                Failure::Cannot(format!(
                    "found no Rust toolchain ({reason}; nothing under $RUSTUP_HOME or ~/.rustup); name a directory: ingest DIR"
                ))
            })?,
        };
        let mut source = Source::directory(&sysroot)?;
        let parts: Vec<PathBuf> = ["share/doc", "lib"].iter().map(PathBuf::from).collect();
        let there: Vec<PathBuf> = parts
            .into_iter()
            .filter(|part| source.base.join(part).is_dir())
            .collect();
        if !there.is_empty() {
            source.roots = there;
        }
        Ok(source)
    }

    /// Finds every path below the roots: a directory before its content, names in order. Links are
    /// not followed.
    pub(crate) fn walk(&self, paths_max: usize) -> Result<Found, Failure> {
        let mut found = Found::default();
        let mut open: Vec<PathBuf> = self.roots.iter().rev().cloned().collect();
        while let Some(directory) = open.pop() {
            let names = match self.list(&directory) {
                Ok(names) => names,
                Err(error) => {
                    let path = self.base.join(&directory);
                    found
                        .warnings
                        .push(format!("skipped directory {}: {error}", path.display()));
                    continue;
                }
            };
            let mut below = Vec::new();
            for (path, shape) in names {
                if found.paths.len() == paths_max {
                    found.limit = Limit::Reached;
                    return Ok(found);
                }
                if shape == Shape::Directory {
                    below.push(path.clone());
                }
                found.paths.push(path);
            }
            open.extend(below.into_iter().rev());
        }
        if found.paths.is_empty() {
            let why = found.warnings.first().map_or("it is empty", String::as_str);
            return Err(Failure::Cannot(format!(
                "nothing to put from {}: {why}",
                self.base.display()
            )));
        }
        Ok(found)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(PathBuf, Shape)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.base.join(directory))? {
            let entry = entry?;
            let shape = if entry.file_type()?.is_dir() {
                Shape::Directory
            } else {
                Shape::Other
            };
            names.push((directory.join(entry.file_name()), shape));
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names)
    }

    /// Makes the value of a path: its metadata and the beginning of its content, or a link's
    /// target. The buffer is cleared first.
    pub(crate) fn describe(&self, path: &Path, value: &mut Vec<u8>) -> io::Result<()> {
        value.clear();
        let full = self.base.join(path);
        let metadata = fs::symlink_metadata(&full)?;
        if metadata.is_file() {
            let file = File::open(&full)?;
            head(value, b'f', &file.metadata()?);
            file.take(CONTENT_MAX).read_to_end(value)?;
        } else if metadata.is_symlink() {
            head(value, b'l', &metadata);
            value.extend_from_slice(fs::read_link(&full)?.as_os_str().as_encoded_bytes());
        } else {
            head(
                value,
                if metadata.is_dir() { b'd' } else { b'o' },
                &metadata,
            );
        }
        Ok(())
    }
}

/// The type of a directory entry, as far as the walk needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Directory,
    Other,
}

/// A path as a key.
pub(crate) fn key(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

fn head(value: &mut Vec<u8>, kind: u8, metadata: &Metadata) {
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.unwrap_or_default();
    value.push(kind);
    value.extend_from_slice(&metadata.len().to_le_bytes());
    value.extend_from_slice(&modified.as_secs().to_le_bytes());
    value.extend_from_slice(&modified.subsec_nanos().to_le_bytes());
    value.extend_from_slice(&mode(metadata).to_le_bytes());
}

#[cfg(unix)]
fn mode(metadata: &Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata)
}

#[cfg(not(unix))]
fn mode(metadata: &Metadata) -> u32 {
    u32::from(metadata.permissions().readonly())
}

/// Asks `rustc --print sysroot`. `Err`: why it did not answer.
fn asked_sysroot() -> Result<PathBuf, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc)
        .args(["--print", "sysroot"])
        .output()
        .map_err(|error| format!("{}: {error}", rustc.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sysroot = PathBuf::from(text.trim());
    if output.status.success() && sysroot.is_dir() {
        Ok(sysroot)
    } else {
        Err(format!(
            "`{} --print sysroot` named no directory",
            rustc.display()
        ))
    }
}

/// The first toolchain that rustup installed, a stable one if there is one.
fn installed_sysroot() -> Option<PathBuf> {
    let home = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".rustup")))?;
    let toolchains = fs::read_dir(home.join("toolchains")).ok()?;
    let mut toolchains: Vec<PathBuf> = toolchains
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    toolchains.sort_by_key(|path| {
        let stable = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("stable"));
        (!stable, path.clone())
    });
    toolchains.into_iter().find(|path| path.is_dir())
}
