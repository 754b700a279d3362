//! The manifest: names the table files, and the sequence number up to which they hold everything.
//!
//! ```text
//!   kv_store 1
//!   last_sequence 8231
//!   file 12                    newest first
//!   file 9
//!   checksum 2f1b9c04          of all lines before
//! ```
//! A manifest is replaced as a whole: the new one is written beside the old one, synced and
//! renamed, and the directory is synced. A crash leaves the old one or the new one. If the process
//! before this one ended between these steps, the manifest may be only in the system's cache. So
//! the store replaces it by a copy before it removes a file that the manifest does not name.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paranoid_memtable::{ChecksumKind, Error, Result};
use paranoid_set::{FileStorage, Storage};

const NAME: &str = "MANIFEST";
const NEW: &str = "MANIFEST.tmp";

#[derive(Debug, Clone, Default)]
pub(crate) struct Manifest {
    pub(crate) last_sequence: u64,
    /// Numbers of table files, newest first.
    pub(crate) files: Vec<u64>,
}

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
        let path = directory.path.join(NAME);
        let manifest = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Manifest::begin(&directory.path, lock)?
            }
            text => Manifest::parse(&text.map_err(io_error("read", &path))?).ok_or_else(|| {
                io_error("believe", &path)(io::Error::other("the manifest is damaged"))
            })?,
        };
        manifest.write(&directory.path)?;
        directory.sync()?;
        Ok(manifest)
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
        let numbers = |name: &'static str| {
            text.lines()
                .filter_map(move |line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let manifest = Manifest {
            last_sequence: numbers("last_sequence").next()?,
            files: numbers("file").collect(),
        };
        // A text with anything else in it is not one that was written.
        (manifest.to_text() == text).then_some(manifest)
    }

    fn to_text(&self) -> String {
        let files: String = self
            .files
            .iter()
            .map(|number| format!("file {number}\n"))
            .collect();
        let lines = format!("kv_store 1\nlast_sequence {}\n{files}", self.last_sequence);
        format!(
            "{lines}checksum {:08x}\n",
            ChecksumKind::Xxh3.checksum(lines.as_bytes())
        )
    }

    /// Makes this the manifest of the directory, except for the sync of the directory. After an
    /// error the old one is still there.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let (path, new) = (directory.join(NAME), directory.join(NEW));
        // A file of this name is the rest of an earlier attempt. A link, or anything else that
        // another program put there, stays and is not written through.
        if fs::symlink_metadata(&new).is_ok_and(|it| it.is_file()) {
            fs::remove_file(&new).map_err(io_error("remove", &new))?;
        }
        let mut file = File::create_new(&new).map_err(io_error("create", &new))?;
        let mut write = || -> Result<()> {
            file.write_all(self.to_text().as_bytes())
                .map_err(io_error("write", &new))?;
            file.sync_all().map_err(io_error("sync", &new))?;
            fs::rename(&new, &path).map_err(io_error("rename", &new))
        };
        // A partial file takes space that the next attempt needs.
        write().inspect_err(|_| drop(fs::remove_file(&new)))
    }
}
