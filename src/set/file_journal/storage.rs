//! Where a journal's files are: the few calls that it makes of one directory, so that a simulated disk can stand there.
//!
//! Who may call what: storages and files are shared between threads. A journal appends to a file from one thread at a
//! time and may sync it from another meanwhile.

#![forbid(unsafe_code)]

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that grows at its end. Nothing of it needs to survive a crash before [`sync`](StorageFile::sync) returned.
///
/// ```
/// use paranoid_memtable::set::{FileStorage, Storage, StorageFile};
/// # let folder = std::env::temp_dir().join(format!("storage-file-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let storage = FileStorage::new(&folder);
/// let file: Box<dyn StorageFile> = storage.create("one")?;
/// file.append(b"red")?;
/// file.append(b"green")?;
/// file.truncate(4)?;
/// file.append(b"!")?;
/// file.sync()?;
/// assert_eq!(storage.read("one")?, b"redg!");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait StorageFile: fmt::Debug + Send + Sync {
    /// Adds bytes at the end of the file and waits for no device.
    ///
    /// # Errors
    /// Those of the operating system. Any part of the bytes may be in the file then.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// What was appended before this call survives a crash once it returns.
    ///
    /// # Errors
    /// Those of the operating system. Nothing is known about the bytes since the last sync then, and another call may
    /// succeed without having written them.
    fn sync(&self) -> io::Result<()>;

    /// Ends the file after `len` bytes.
    ///
    /// # Errors
    /// Those of the operating system.
    fn truncate(&self, len: u64) -> io::Result<()>;
}

/// What a journal asks of a directory. [`FileStorage`] is one of the machine's file system; tests put one there that
/// loses what was not synced.
///
/// ```
/// use paranoid_memtable::set::{FileStorage, Storage};
/// # let folder = std::env::temp_dir().join(format!("storage-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let storage: &dyn Storage = &FileStorage::new(&folder);
/// storage.create("one")?.append(b"red")?;
/// storage.sync_dir()?;
/// assert_eq!(storage.list()?, ["one"]);
/// storage.remove("one")?;
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

    /// Opens a file that exists.
    ///
    /// # Errors
    /// `NotFound`, and those of the operating system.
    fn open(&self, name: &str) -> io::Result<Box<dyn StorageFile>>;

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

    /// The names that there are survive a crash once this returns.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sync_dir(&self) -> io::Result<()>;
}

/// A directory of the machine's file system.
///
/// ```
/// use paranoid_memtable::set::{FileStorage, Storage};
/// let nowhere = FileStorage::new("/no/such/directory");
/// assert_eq!(nowhere.list().unwrap_err().kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStorage {
    directory: PathBuf,
}

impl FileStorage {
    /// A directory that exists.
    ///
    /// ```
    /// use paranoid_memtable::set::{FileStorage, Storage};
    /// let storage = FileStorage::new(std::env::temp_dir());
    /// assert!(storage.list().is_ok());
    /// ```
    #[must_use]
    pub fn new(directory: impl AsRef<Path>) -> Self {
        FileStorage { directory: directory.as_ref().to_path_buf() }
    }

    fn appending(&self, name: &str, options: &mut OpenOptions) -> io::Result<Box<dyn StorageFile>> {
        // In this mode every write goes to the end of the file, also after it was truncated.
        let file = options.append(true).open(self.directory.join(name))?;
        Ok(Box::new(file))
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

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}

impl Storage for FileStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.file_name().into_string()));
        // A name that is no valid text is not that of a journal.
        names.filter_map(|name: io::Result<_>| name.map(Result::ok).transpose()).collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        self.appending(name, OpenOptions::new().create_new(true))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        self.appending(name, &mut OpenOptions::new())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.directory.join(name))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        // Elsewhere directories cannot be opened, and names survive by themselves.
        if cfg!(unix) { File::open(&self.directory)?.sync_all() } else { Ok(()) }
    }
}
