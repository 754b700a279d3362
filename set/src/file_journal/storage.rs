//! The storage of a journal: its few calls on one directory, as a trait that a simulated disk can
//! implement.
//!
//! Who may call what: storages and files are shared between threads. A journal appends to a file
//! from one thread at a time and may sync it from another meanwhile.

#![forbid(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use paranoid_memtable::{Error, Result, shown};

/// A file that grows at its end. Nothing of it needs to survive a crash before
/// [`sync`](StorageFile::sync) returned.
///
/// ```
/// use paranoid_set::{FileStorage, Storage, StorageFile};
/// # let folder = std::env::temp_dir().join(format!("storage-file-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let storage = FileStorage::new(&folder);
/// let file: Box<dyn StorageFile> = storage.create("one")?;
/// file.append(b"red")?;
/// file.append(b"green")?;
/// file.sync()?;
/// assert_eq!(storage.read("one")?, b"redgreen");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait StorageFile: fmt::Debug + Send + Sync {
    /// Adds bytes at the end of the file and waits for no device.
    ///
    /// # Errors
    /// Those of the operating system. Any part of the bytes may be in the file then. A journal does
    /// not call again, so an implementation repeats a system call that ended in `Interrupted`.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// What was appended before this call survives a crash once it returns. Needs no file
    /// descriptor that the file does not have.
    ///
    /// # Errors
    /// Those of the operating system. Nothing is known about the bytes since the last sync then,
    /// and another call may succeed without having written them. A journal does not call again, so
    /// an implementation repeats a system call that ended in `Interrupted`.
    fn sync(&self) -> io::Result<()>;
}

/// The directory of a journal. [`FileStorage`] is one in the file system; tests use one that loses
/// what was not synced.
///
/// ```
/// use paranoid_set::{FileStorage, Storage};
/// # let folder = std::env::temp_dir().join(format!("storage-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let storage: &dyn Storage = &FileStorage::new(&folder);
/// storage.create("one")?.append(b"red")?;
/// storage.rename("one", "two")?;
/// storage.sync_dir()?;
/// assert_eq!(storage.list()?, ["two"]);
/// storage.remove("two")?;
/// assert!(storage.list()?.is_empty());
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Storage: fmt::Debug + Send + Sync {
    /// The names of the files that there are, in any order.
    ///
    /// # Errors
    /// Those of the operating system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file that does not exist. Its name needs to survive a crash only after
    /// [`sync_dir`](Storage::sync_dir).
    ///
    /// # Errors
    /// `AlreadyExists`, and those of the operating system.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// `NotFound`, and those of the operating system.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, and those of the operating system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in one step: after a crash there is the former state of both
    /// names, or the new one. A file that has the new name is gone. A file that is open takes
    /// appends under its new name.
    ///
    /// # Errors
    /// `NotFound`, and those of the operating system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// The names that there are survive a crash once this returns. An error stops a journal until
    /// it is opened again. So this call should depend on nothing but the device, and keep what it
    /// needs open.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sync_dir(&self) -> io::Result<()>;

    /// Keeps every other journal out until what it returns is dropped or the process ends. A
    /// storage that one journal alone can reach need not do anything, which is what the method does
    /// by itself.
    ///
    /// # Errors
    /// `WouldBlock` if another journal is there, and those of the operating system.
    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }
}

/// A directory of the machine's file system. The first [`sync_dir`](Storage::sync_dir) opens the
/// directory, and the storage and its clones keep it open: later syncs need no further file
/// descriptor.
///
/// ```
/// use paranoid_set::{FileStorage, Storage};
/// let nowhere = FileStorage::new("/no/such/directory");
/// assert_eq!(nowhere.list().unwrap_err().kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Clone)]
pub struct FileStorage {
    directory: PathBuf,
    /// The directory, once it is open.
    handle: Arc<OnceLock<File>>,
}

shown! { "FileStorage": impl [] FileStorage, |storage| { "directory": storage.directory } }

impl FileStorage {
    /// A directory that exists.
    ///
    /// ```
    /// use paranoid_set::{FileStorage, Storage};
    /// let storage = FileStorage::new(std::env::temp_dir());
    /// assert!(storage.list().is_ok());
    /// ```
    #[must_use]
    pub fn new(directory: impl AsRef<Path>) -> Self {
        FileStorage {
            directory: directory.as_ref().to_path_buf(),
            handle: Arc::default(),
        }
    }
}

impl StorageFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Storage for FileStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name().into_string()));
        // A name that is no valid text is not that of a journal.
        names
            .filter_map(|name: io::Result<_>| name.map(Result::ok).transpose())
            .collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(File::create_new(self.directory.join(name))?))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.directory.join(name);
        // The open of a pipe would wait.
        if !fs::metadata(&path)?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            ));
        }
        fs::read(path)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn sync_dir(&self) -> io::Result<()> {
        // Elsewhere directories cannot be opened, and names survive by themselves.
        if cfg!(unix) && self.handle.get().is_none() {
            // Another thread may be the first one.
            let _ = self.handle.set(File::open(&self.directory)?);
        }
        self.handle.get().map_or(Ok(()), File::sync_all)
    }

    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        let path = self.directory.join("journal.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "another journal has the directory open",
            )),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// What the name of a file ends with while it is written.
pub(super) const COPY: &str = ".copy";

/// Writes a file in place of one that is not known to be durable, and syncs it: another sync of the
/// old one might succeed without having written it. Durable once the directory is synced as well.
pub(super) fn write_anew(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
) -> Result<Box<dyn StorageFile>> {
    let file = write_synced(storage, name, bytes)?;
    name_copy(storage, name)?;
    Ok(file)
}

/// As `write_copy`, and syncs the file.
pub(super) fn write_synced(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
) -> Result<Box<dyn StorageFile>> {
    let file = write_copy(storage, name, bytes)?;
    or_remove(storage, name, file.sync().map_err(Error::io("sync", name)))?;
    Ok(file)
}

/// Writes a file that has another name than its own, in the place of one that may have it. After an
/// error no such file is left.
pub(super) fn write_copy(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
) -> Result<Box<dyn StorageFile>> {
    let copy = format!("{name}{COPY}");
    remove_if_there(storage, &copy)?;
    let file = storage.create(&copy).map_err(Error::io("create", &copy))?;
    or_remove(
        storage,
        name,
        file.append(bytes).map_err(Error::io("append to", &copy)),
    )?;
    Ok(file)
}

/// Gives a file that was written its name.
pub(super) fn name_copy(storage: &dyn Storage, name: &str) -> Result<()> {
    let copy = format!("{name}{COPY}");
    or_remove(
        storage,
        name,
        storage
            .rename(&copy, name)
            .map_err(Error::io("rename", &copy)),
    )
}

/// After an error removes the copy that was begun: it takes room which the next attempt needs. If
/// that fails too, the next opening removes the copy.
fn or_remove<T>(storage: &dyn Storage, name: &str, done: Result<T>) -> Result<T> {
    done.inspect_err(|_| drop(storage.remove(&format!("{name}{COPY}"))))
}

pub(super) fn remove_if_there(storage: &dyn Storage, name: &str) -> Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", name)(error))
        }
        _ => Ok(()),
    }
}

pub(super) fn sync_dir(storage: &dyn Storage) -> Result<()> {
    storage
        .sync_dir()
        .map_err(Error::io("sync", "the journal's directory"))
}
