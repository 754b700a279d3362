//! The source of a reader's bytes: a file, by positioned reads, or memory that the caller mapped or
//! filled.
//!
//! Any thread; reads of one source do not disturb each other.

use std::fs::File;
use std::sync::Arc;
use std::{fmt, io};

/// Memory that a reader shares: a `Vec<u8>`, or a file that another crate maps. It must not change
/// while a table or cursor uses it: the index and the filter are verified once, when the table is
/// opened, and a block when it is fetched.
pub type SharedMemory = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The bytes of a table file. Any number of threads read it at once.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::Kind;
/// use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, TableSource};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("1.sst");
/// let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// writer.add(b"key", 1, Kind::PUT, b"value")?;
/// writer.finish()?;
///
/// let bytes = std::fs::read(&path).unwrap();               // a mapping of the file does as well
/// let in_memory = SortedTable::from_source(&path, TableSource::memory(Arc::new(bytes)))?;
/// let file = std::fs::File::open(&path).unwrap();
/// let in_file = SortedTable::from_source(&path, TableSource::file(file).unwrap())?;
/// assert_eq!(in_memory.verify()?, in_file.verify()?);
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug)]
pub struct TableSource {
    kind: Kind,
    len: u64,
}

#[derive(Debug)]
enum Kind {
    File(File),
    Memory(BlockBytes),
}

impl TableSource {
    /// A file, read at positions; its own position does not move. Its length is read once. Each
    /// fetched block is one read into new memory.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn file(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(TableSource {
            kind: Kind::File(file),
            len,
        })
    }

    /// Memory. Blocks that are not compressed are verified and read in place, without a copy. O(1).
    #[must_use]
    pub fn memory(bytes: SharedMemory) -> Self {
        let len = (*bytes).as_ref().len() as u64;
        TableSource {
            kind: Kind::Memory(BlockBytes {
                end: usize::MAX,
                all: bytes,
                start: 0,
            }),
            len,
        }
    }

    /// Length of the whole source in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Reads `len` bytes from `offset`. The caller has compared both with the length of the source.
    pub(crate) fn read(&self, offset: u64, len: u64) -> io::Result<BlockBytes> {
        let too_large = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let len = usize::try_from(len).map_err(|_| too_large())?;
        match &self.kind {
            Kind::File(file) => {
                let mut bytes = vec![0; len];
                read_exact_at(file, &mut bytes, offset)?;
                Ok(bytes.into())
            }
            Kind::Memory(memory) => {
                let start = usize::try_from(offset).map_err(|_| too_large())?;
                let end = start.checked_add(len).ok_or_else(too_large)?;
                if (*memory.all).as_ref().get(start..end).is_none() {
                    return Err(too_large());
                }
                Ok(BlockBytes {
                    all: Arc::clone(&memory.all),
                    start,
                    end,
                })
            }
        }
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[read..];
        offset += read as u64;
    }
    Ok(())
}

/// The bytes of a block. Clones share them.
#[derive(Clone)]
pub(crate) struct BlockBytes {
    all: SharedMemory,
    start: usize,
    end: usize,
}

impl fmt::Debug for BlockBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockBytes({})", self.end - self.start)
    }
}

impl From<Vec<u8>> for BlockBytes {
    fn from(bytes: Vec<u8>) -> Self {
        BlockBytes {
            end: bytes.len(),
            all: Arc::new(bytes),
            start: 0,
        }
    }
}

impl AsRef<[u8]> for BlockBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        (*self.all)
            .as_ref()
            .get(self.start..self.end)
            .unwrap_or_default()
    }
}

impl BlockBytes {
    /// Shortens the block to `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(len));
    }
}
