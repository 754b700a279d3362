//! The storage of a journal: the calls that it makes on one directory, as a trait that a simulated
//! disk can implement.
//!
//! Threads share storages and files. A journal appends to a file from one thread at a time, and may
//! sync it from another thread meanwhile.

#![forbid(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use paranoid_memtable::{Error, Result, shown};

/// A file that grows at its end. Its bytes need to survive a crash only after
/// [`sync`](StorageFile::sync) has returned.
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
    /// Adds bytes at the end of the file, and waits for no device.
    ///
    /// # Errors
    /// Those of the operating system. After an error any part of the bytes may be in the file. A
    /// journal does not try again, so an implementation must repeat a system call that ended in
    /// `Interrupted`.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Makes the bytes durable that were appended before this call. Needs no file descriptor but
    /// the file's own.
    ///
    /// # Errors
    /// Those of the operating system. After an error the bytes since the last sync may be lost, and
    /// another call may succeed without having written them. A journal does not try again, so an
    /// implementation must repeat a system call that ended in `Interrupted`.
    fn sync(&self) -> io::Result<()>;
}

/// The directory of a journal. [`FileStorage`] is a directory in the file system; tests use a
/// simulated disk that loses unsynced bytes.
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
    /// Returns the names of all files, in any order.
    ///
    /// # Errors
    /// Those of the operating system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file under a name that does not exist. The name needs to survive a crash
    /// only after [`sync_dir`](Storage::sync_dir).
    ///
    /// # Errors
    /// `AlreadyExists`, and those of the operating system.
    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>>;

    /// Returns all bytes of a file.
    ///
    /// # Errors
    /// `NotFound`, and those of the operating system.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound`, and those of the operating system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file in one step: after a crash both names are as before, or both are as after it.
    /// A file that had the new name is removed. An open file takes appends under its new name.
    ///
    /// # Errors
    /// `NotFound`, and those of the operating system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes the names of all files durable. An error stops a journal until it is opened again. So
    /// this call should depend on the device alone, and keep open what it needs.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sync_dir(&self) -> io::Result<()>;

    /// Locks the storage against other journals until the result is dropped or the process ends.
    /// The default does nothing, for a storage that only one journal can reach.
    ///
    /// # Errors
    /// `WouldBlock` if another journal has the lock, and those of the operating system.
    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }
}

/// A directory in the file system as a storage. The first [`sync_dir`](Storage::sync_dir) opens the
/// directory. The storage and its clones keep it open, so later syncs need no file descriptor.
///
/// ```
/// use paranoid_set::{FileStorage, Storage};
/// let nowhere = FileStorage::new("/no/such/directory");
/// assert_eq!(nowhere.list().unwrap_err().kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Clone)]
pub struct FileStorage {
    directory: PathBuf,
    /// The open directory, after the first sync of it.
    handle: Arc<OnceLock<File>>,
}

shown! { "FileStorage": impl [] FileStorage, |storage| { "directory": storage.directory } }

impl FileStorage {
    /// A storage in a directory, which must exist.
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
        // A journal's names are Unicode; others are left out.
        names
            .filter_map(|name: io::Result<_>| name.map(Result::ok).transpose())
            .collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(File::create_new(self.directory.join(name))?))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.directory.join(name);
        // Opening a pipe would wait for a writer.
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
        // Other systems cannot open a directory, and need no sync of names.
        if cfg!(unix) && self.handle.get().is_none() {
            // If another thread was first, its handle stays.
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

/// The ending of a file's name until the file is complete.
pub(super) const COPY: &str = ".copy";

/// Writes and syncs a new file in place of one that may not be durable: after a failed sync,
/// another sync of the old file may succeed without having written it. The new file is durable once
/// the directory is synced too.
pub(super) fn replace_file(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
) -> Result<Box<dyn StorageFile>> {
    let file = write_synced(storage, name, bytes)?;
    name_copy(storage, name)?;
    Ok(file)
}

/// Does as `write_copy`, then syncs the file.
pub(super) fn write_synced(
    storage: &dyn Storage,
    name: &str,
    bytes: &[u8],
) -> Result<Box<dyn StorageFile>> {
    let file = write_copy(storage, name, bytes)?;
    or_remove(storage, name, file.sync().map_err(Error::io("sync", name)))?;
    Ok(file)
}

/// Writes a file under its name with `.copy` added, and replaces a file of that name. After an
/// error no such file remains.
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

/// Renames a written copy to its final name.
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

/// Removes an incomplete copy after an error, because the next attempt needs its space. If that
/// fails too, the next opening removes the copy.
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
