//! A small file that is replaced as a whole, such as a manifest.
//!
//! ```text
//!   last_sequence 8231            the caller's bytes
//!   file 12
//!   checksum 2f1b9c04             of all bytes before, CRC-32C
//! ```
//! A crash leaves the old file or the new one.
//!
//! One thread at a time replaces a file; any thread reads it.

#![forbid(unsafe_code)]

use std::io;

use paranoid_memtable::{ChecksumKind, Error, Result};

use crate::file_journal::storage::{Storage, replace_file};

/// The last line of a file.
fn checksum_line(bytes: &[u8]) -> String {
    format!("checksum {:08x}\n", ChecksumKind::Crc32c.checksum(bytes))
}

/// Replaces a small file as a whole, durably, for example the manifest of an engine. Writes the
/// bytes and a line with their checksum into a file of this name with `.copy` added, syncs and
/// renames that file, and syncs the directory. [`read_checked`] reads the file. O(length).
///
/// ```
/// use paranoid_set::{FileStorage, read_checked, replace_checked};
/// # let folder = std::env::temp_dir().join(format!("checked-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let storage = FileStorage::new(&folder);
/// assert_eq!(read_checked(&storage, "MANIFEST")?, None);
/// replace_checked(&storage, "MANIFEST", b"file 12\n")?;
/// assert_eq!(read_checked(&storage, "MANIFEST")?.as_deref(), Some(&b"file 12\n"[..]));
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Io` for a failed call. If the old file is still read, nothing changed. If the new one is read,
/// the rename may be lost in a crash: what either file names must stay, until another call returns
/// `Ok`. The same holds after the process ended during a call, so a program that opens its
/// directory replaces the file by itself before it removes what the file does not name.
pub fn replace_checked(storage: &dyn Storage, name: &str, bytes: &[u8]) -> Result<()> {
    let line = checksum_line(bytes);
    replace_file(storage, name, &[bytes, line.as_bytes()].concat())?;
    storage
        .sync_dir()
        .map_err(Error::io("sync the directory of", name))
}

/// Reads a file of [`replace_checked`]. `None` means that there is no file of this name.
///
/// # Errors
/// `Io`, with `InvalidData` as the kind of its source if the bytes are not those of the checksum.
pub fn read_checked(storage: &dyn Storage, name: &str) -> Result<Option<Vec<u8>>> {
    let mut bytes = match storage.read(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(Error::io("read", name))?,
    };
    let line = bytes.split_off(bytes.len().saturating_sub(checksum_line(b"").len()));
    if line != checksum_line(&bytes).as_bytes() {
        let damaged = io::Error::new(io::ErrorKind::InvalidData, "its checksum differs");
        return Err(Error::io("read", name)(damaged));
    }
    Ok(Some(bytes))
}
