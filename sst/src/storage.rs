//! Where files are stored: the file system calls of a writer as a trait, which tests implement,
//! too.
//!
//! ```text
//!   create NAME.N.tmp -> write.. -> sync -> (read back) -> rename to NAME -> sync the directory
//! ```
//! A crash leaves no file NAME or a whole one; a leftover ends in `.tmp` and may be deleted.
//!
//! Who may call what: storages are shared between threads, files have one owner.

use crate::table_source::TableSource;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// A file that is being written. Nothing of it needs to survive a crash before
/// [`sync`](StorageFile::sync) returned.
pub trait StorageFile: Write {
    /// All bytes written so far survive a crash once this returns.
    ///
    /// # Errors
    /// Those of the operating system. Nothing is known about the bytes then.
    fn sync(&mut self) -> io::Result<()>;
}

/// What a writer asks of a file system, in this order: `exists`, `create_new`, writes, `sync`,
/// `open` (to read back), `exists`, `rename`, `sync_directory`; `remove` after a failure. [`Disk`]
/// is the machine's; that of the tests loses what was not synced.
pub trait Storage {
    /// A file being written.
    type File: StorageFile + fmt::Debug;

    /// Creates a file that does not exist.
    ///
    /// # Errors
    /// `AlreadyExists`, and those of the operating system.
    fn create_new(&self, path: &Path) -> io::Result<Self::File>;

    /// Whether there is something of this name.
    ///
    /// # Errors
    /// Those of the operating system.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Gives a file another name, in one step.
    ///
    /// # Errors
    /// Those of the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the operating system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory survive a crash once this returns.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// A file to be read.
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
        // Elsewhere directories cannot be opened, and names survive by themselves.
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
