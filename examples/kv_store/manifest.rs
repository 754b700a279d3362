//! The manifest: names the table files, and the sequence number up to which they hold everything.
//!
//! ```text
//!   kv_store 1
//!   last_sequence 8231
//!   file 12 6170 =7a           of a flush, newest first: number, first key, included last key
//!   file 9 61 <6d              the keys are hexadecimal; `<` is an excluded end
//!   level 1
//!   file 8 61 =6d              in order of keys
//!   checksum 2f1b9c04          of all lines before, by `replace_checked`
//! ```
//! A crash leaves the old manifest or the new one. If the process before this one ended in the
//! middle of a replacement, the manifest may be only in the system's cache. So the store replaces
//! it by a copy before it removes a file that the manifest does not name.

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paranoid_memtable::{Error, Result};
use paranoid_set::{FileStorage, Storage, read_checked, replace_checked};

use crate::files::Bounds;

const NAME: &str = "MANIFEST";
const NEW: &str = "MANIFEST.copy";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) last_sequence: u64,
    /// Files of flushes, newest first.
    pub(crate) flushed: Vec<NamedFile>,
    /// Files of level 1, in order of keys.
    pub(crate) level: Vec<NamedFile>,
}

/// A file's number, its first key and its end.
pub(crate) type NamedFile = (u64, Bounds);

/// Makes an error that names the file of a failed call.
pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io {
        operation,
        file: path.display().to_string(),
        source: Arc::new(source),
    }
}

/// A directory. After its first sync it stays open: the next sync needs no new file descriptor,
/// which the process might not get.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    storage: FileStorage,
}

impl Directory {
    pub(crate) fn new(path: &Path) -> Directory {
        Directory {
            path: path.to_path_buf(),
            storage: FileStorage::new(path),
        }
    }

    /// Makes the names in the directory survive a crash.
    pub(crate) fn sync(&self) -> Result<()> {
        self.storage
            .sync_dir()
            .map_err(io_error("sync", &self.path))
    }
}

impl Manifest {
    /// Opens the manifest of a directory. An empty directory gets one before any other file. Files
    /// without a manifest are those of a store that lost it, and must not be removed as leftovers.
    pub(crate) fn open(directory: &Directory, lock: &Path) -> Result<Manifest> {
        let manifest = match Manifest::read(directory)? {
            Some(manifest) => manifest,
            None => Manifest::begin(&directory.path, lock)?,
        };
        manifest.write(directory)?;
        Ok(manifest)
    }

    /// The manifest that is read now. After a failed `write` it is the old one or the new one.
    pub(crate) fn read(directory: &Directory) -> Result<Option<Manifest>> {
        let Some(bytes) = read_checked(&directory.storage, NAME)? else {
            return Ok(None);
        };
        let manifest = str::from_utf8(&bytes).ok().and_then(Manifest::parse);
        let unknown = || io::Error::other("it is not a manifest of this program");
        let path = directory.path.join(NAME);
        manifest
            .ok_or_else(|| io_error("read", &path)(unknown()))
            .map(Some)
    }

    fn begin(directory: &Path, lock: &Path) -> Result<Manifest> {
        for entry in fs::read_dir(directory).map_err(io_error("list", directory))? {
            let path = entry.map_err(io_error("list", directory))?.path();
            if path != lock && path != directory.join(NEW) {
                return Err(io_error("take", &path)(io::Error::other(
                    "there is no manifest that names it",
                )));
            }
        }
        Ok(Manifest::default())
    }

    fn parse(text: &str) -> Option<Manifest> {
        let (flushed, level) = text.split_once("level 1\n")?;
        let last = flushed
            .lines()
            .find_map(|line| line.strip_prefix("last_sequence "))?;
        let manifest = Manifest {
            last_sequence: last.parse().ok()?,
            flushed: flushed.lines().filter_map(named).collect(),
            level: level.lines().filter_map(named).collect(),
        };
        // A text with anything else in it is not one that was written.
        (manifest.to_text() == text).then_some(manifest)
    }

    fn to_text(&self) -> String {
        let lines = |files: &[NamedFile]| files.iter().map(line).collect::<String>();
        let (last, flushed, level) = (self.last_sequence, lines(&self.flushed), lines(&self.level));
        format!("kv_store 2\nlast_sequence {last}\n{flushed}level 1\n{level}")
    }

    pub(crate) fn names(&self, number: u64) -> bool {
        let mut all = self.flushed.iter().chain(&self.level);
        all.any(|(named, _)| *named == number)
    }

    /// Makes this the manifest of the directory, durably.
    pub(crate) fn write(&self, directory: &Directory) -> Result<()> {
        replace_checked(&directory.storage, NAME, self.to_text().as_bytes())
    }
}

/// The file of a line.
fn named(line: &str) -> Option<NamedFile> {
    let mut words = line.strip_prefix("file ")?.split(' ');
    let (number, first, end) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let end = match (end.strip_prefix('='), end.strip_prefix('<')) {
        (Some(last), _) => Bound::Included(bytes(last)?),
        (_, end) => Bound::Excluded(bytes(end?)?),
    };
    Some((number, (bytes(first)?, end)))
}

fn line((number, (first, end)): &NamedFile) -> String {
    let (sign, end) = match end {
        Bound::Excluded(end) => ('<', hex(end)),
        Bound::Included(end) => ('=', hex(end)),
        Bound::Unbounded => ('=', String::new()),
    };
    format!("file {number} {} {sign}{end}\n", hex(first))
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
