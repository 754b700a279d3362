//! Where files are stored: a writer's file system calls, as a trait that tests implement too.
//!
//! ```text
//!   create NAME.N.tmp -> write.. -> sync -> (read back) -> rename to NAME -> sync the directory
//! ```
//! After a crash there is a whole file NAME, or none. A leftover ends in `.tmp` and may be deleted.
//!
//! Threads may share a storage; a file has one owner.

use crate::table_source::TableSource;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// A file that is being written. Its bytes need not survive a crash before
/// [`sync`](StorageFile::sync) has returned.
pub trait StorageFile: Write {
    /// Makes all bytes written so far survive a crash.
    ///
    /// # Errors
    /// Those of the operating system. The state of the bytes is then unknown.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system calls of a writer, in this order: `exists`, `create_new`, writes, `sync`, `open`
/// (to read back), `exists`, `rename`, `sync_directory`; `remove` after a failure. [`Disk`] is the
/// machine's file system; the tests have one that loses what was not synced.
pub trait Storage {
    /// A file being written.
    type File: StorageFile + fmt::Debug;

    /// Creates a file that does not exist.
    ///
    /// # Errors
    /// `AlreadyExists`, and those of the operating system.
    fn create_new(&self, path: &Path) -> io::Result<Self::File>;

    /// Whether a file or directory of this name exists.
    ///
    /// # Errors
    /// Those of the operating system.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Renames a file in one step.
    ///
    /// # Errors
    /// Those of the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the operating system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory survive a crash.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of the operating system.
    fn open(&self, path: &Path) -> io::Result<TableSource>;
}

/// The machine's file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disk;

impl StorageFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Storage for Disk {
    type File = File;

    fn create_new(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        // On other systems a directory cannot be opened, and names survive without this.
        if cfg!(unix) {
            File::open(directory)?.sync_all()
        } else {
            Ok(())
        }
    }

    fn open(&self, path: &Path) -> io::Result<TableSource> {
        TableSource::file(File::open(path)?)
    }
}

/// The directory of a path.
pub(crate) fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}
