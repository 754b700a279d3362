//! A file that gets its name only when it is whole and synced.
//!
//! ```text
//!   create NAME.N.tmp -> append.. -> seal: sync, close -> publish: rename to NAME, sync the directory
//!                 `-> dropped before: the temporary file is removed
//! ```
//! * SST-NEW-FILE-1: at every moment, and after every crash, the final name has no file, or a file
//!   with all bytes that were appended.
//!
//! An error of a sync is final: nothing is tried again. One owner.

use std::ffi::OsString;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::storage::{Storage, StorageFile, directory_of};
use crate::table_source::TableSource;

/// Size of the buffer before the file.
const BUFFER_LEN: usize = 256 << 10;

/// Number of temporary names to try.
const NAMES_MAX: u32 = 1000;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct NewFile<S: Storage> {
    storage: S,
    /// The final name.
    pub(crate) name: PathBuf,
    temporary: PathBuf,
    file: Option<S::File>,
    buffer: Vec<u8>,
    /// Offset of the next byte.
    pub(crate) offset: u64,
    published: bool,
}

impl<S: Storage> NewFile<S> {
    pub(crate) fn create(storage: S, name: &Path) -> Result<Self> {
        refuse_existing(&storage, name)?;
        for number in 0..NAMES_MAX {
            let mut temporary = OsString::from(name);
            temporary.push(format!(".{number}.tmp"));
            let temporary = PathBuf::from(temporary);
            match storage.create_new(&temporary) {
                Ok(file) => {
                    return Ok(NewFile {
                        storage,
                        name: name.to_path_buf(),
                        temporary,
                        file: Some(file),
                        buffer: Vec::with_capacity(BUFFER_LEN),
                        offset: 0,
                        published: false,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create", &temporary)(error)),
            }
        }
        let full = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "too many leftovers that end in .tmp",
        );
        Err(Error::io("create", name)(full))
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
        if self.buffer.len() >= BUFFER_LEN {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let written = file.write_all(&self.buffer).and_then(|()| file.flush());
        self.buffer.clear();
        written.map_err(Error::io("write", &self.temporary))
    }

    /// Ends the file and syncs it: all bytes survive a crash.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.flush()?;
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        file.sync().map_err(Error::io("sync", &self.temporary))
    }

    /// Opens the sealed file for reading.
    pub(crate) fn read_back(&self) -> Result<TableSource> {
        self.storage
            .open(&self.temporary)
            .map_err(Error::io("open", &self.temporary))
    }

    /// Gives the sealed file its name (SST-NEW-FILE-1). After an error there is no file of either
    /// name, if the storage can remove it.
    pub(crate) fn publish(mut self) -> Result<PathBuf> {
        refuse_existing(&self.storage, &self.name)?;
        self.storage
            .rename(&self.temporary, &self.name)
            .map_err(Error::io("rename", &self.temporary))?;
        self.published = true;
        let directory = directory_of(&self.name);
        if let Err(error) = self.storage.sync_directory(&directory) {
            let _ = self.storage.remove(&self.name);
            return Err(Error::io("sync", &directory)(error));
        }
        Ok(self.name.clone())
    }
}

impl<S: Storage> Drop for NewFile<S> {
    fn drop(&mut self) {
        drop(self.file.take());
        if !self.published {
            // A leftover is harmless: its name ends in `.tmp`.
            let _ = self.storage.remove(&self.temporary);
        }
    }
}

fn refuse_existing(storage: &impl Storage, name: &Path) -> Result<()> {
    if storage.exists(name).map_err(Error::io("look for", name))? {
        let exists = io::Error::new(io::ErrorKind::AlreadyExists, "the file exists");
        return Err(Error::io("create", name)(exists));
    }
    Ok(())
}
