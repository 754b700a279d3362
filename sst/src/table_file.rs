//! Reads a table file by blocks: the footer, and any block that a handle names.
//!
//! ```text
//!   handle -> compared with the file's length -> bytes read -> checksum -> decompressed
//! ```
//! * SST-TABLE-FILE-1: every length is compared with the bytes that are there before it is used, so
//!   memory is bounded by a multiple of the file.
//! * SST-TABLE-FILE-2: a block is verified each time it is fetched, before a byte of it is used.
//!
//! Any thread.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use crate::coding::{BlockHandle, TRAILER_LEN};
use crate::compression;
use crate::compression::{Refusal, decompress};
use crate::error::{BlockKind, Corruption, Damage, Error, Result};
use crate::footer::{Footer, LEVELDB_VERSION};
use crate::properties::Properties;
use crate::table_source::{BlockBytes, TableSource};

/// An open file and its footer.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) file: Arc<Path>,
    pub(crate) source: TableSource,
    pub(crate) footer: Footer,
    /// Whether LevelDB wrote the file. Files of RocksDB's first releases have the same footer, but
    /// also properties.
    pub(crate) is_leveldb: bool,
}

impl TableFile {
    pub(crate) fn new(name: &Path, source: TableSource) -> Result<Self> {
        let file: Arc<Path> = Arc::from(name);
        let footer = read_footer(&file, &source)?;
        let is_leveldb = footer.format_version() == LEVELDB_VERSION;
        Ok(TableFile {
            file,
            source,
            footer,
            is_leveldb,
        })
    }

    /// Reads the footer again.
    pub(crate) fn read_footer(&self) -> Result<Footer> {
        read_footer(&self.file, &self.source)
    }

    pub(crate) fn footer_offset(&self) -> u64 {
        self.source.len() - self.footer.stored_len()
    }

    #[cold]
    pub(crate) fn not_supported(&self, feature: impl Into<String>) -> Error {
        Error::NotSupported {
            file: Arc::clone(&self.file),
            feature: feature.into(),
        }
    }

    /// Makes reports about a block.
    pub(crate) fn damaged(
        &self,
        kind: BlockKind,
        handle: BlockHandle,
    ) -> impl Fn(Damage) -> Error + '_ {
        move |damage| damage.in_file(&self.file, kind, handle.offset)
    }

    /// The bytes of a block with its trailer. The block must end before the footer
    /// (SST-TABLE-FILE-1).
    fn stored(&self, kind: BlockKind, handle: BlockHandle) -> Result<BlockBytes> {
        if handle.end() > self.footer_offset() {
            let values = (self.footer_offset(), handle.end());
            return Err(report(
                &self.file,
                kind,
                handle.offset,
                "a block that ends in the footer",
                values,
            ));
        }
        self.source
            .read(handle.offset, handle.size + TRAILER_LEN)
            .map_err(Error::io("read", &self.file))
    }

    /// A verified block, decompressed (SST-TABLE-FILE-2).
    pub(crate) fn fetch(&self, kind: BlockKind, handle: BlockHandle) -> Result<BlockBytes> {
        let mut bytes = self.stored(kind, handle)?;
        let verified = self.footer.checks().verify(bytes.as_ref(), handle.offset);
        let (block, packing) = verified.map_err(|error| mismatch(&self.file, kind, error))?;
        let len = block.len();
        if let Some(name) = compression::foreign_to_leveldb(packing).filter(|_| self.is_leveldb) {
            return Err(self.not_supported(name));
        }
        match decompress(block, packing, self.footer.format_version()) {
            Ok(Cow::Borrowed(_)) => {
                bytes.truncate(len);
                Ok(bytes)
            }
            Ok(Cow::Owned(raw)) => Ok(raw.into()),
            Err(Refusal::Unknown) => Err(self.not_supported(compression::name(packing))),
            Err(Refusal::Damaged) => Err(self.damaged(kind, handle)(Damage(
                "a block that does not decompress",
            ))),
        }
    }

    /// The properties. If their checksum is wrong, it must be right with a global sequence number
    /// of zero: databases overwrite that number in place.
    pub(crate) fn fetch_properties(&self, handle: BlockHandle) -> Result<BlockBytes> {
        let error = match self.fetch(BlockKind::Properties, handle) {
            Ok(block) => return Ok(block),
            Err(error) => error,
        };
        let mut bytes = self.stored(BlockKind::Properties, handle)?;
        let size = usize::try_from(handle.size).unwrap_or(usize::MAX);
        let mut zeroed = bytes.as_ref().to_vec();
        // The block is not verified yet. All that it decides is where eight zeros go.
        let properties = zeroed
            .get(..size)
            .and_then(|block| Properties::decode(block).ok());
        let at = properties.and_then(|properties| properties.global_sequence_at);
        let field = at.and_then(|at| zeroed.get_mut(at..)?.first_chunk_mut::<8>());
        *field.ok_or(error)? = [0; 8];
        let verified = self.footer.checks().verify(&zeroed, handle.offset);
        verified.map_err(|error| mismatch(&self.file, BlockKind::Properties, error))?;
        bytes.truncate(size);
        Ok(bytes)
    }
}

fn read_footer(file: &Arc<Path>, source: &TableSource) -> Result<Footer> {
    let Some(at) = source.len().checked_sub(Footer::LEN as u64) else {
        let is_empty = source.len() == 0;
        let what = if is_empty {
            "a file of 0 bytes is too short"
        } else {
            "a file that is too short for a footer"
        };
        return Err(Damage(what).in_file(file, BlockKind::Footer, 0));
    };
    let tail = source
        .read(at, Footer::LEN as u64)
        .map_err(Error::io("read", file))?;
    match tail.as_ref().first_chunk() {
        Some(bytes) => Footer::decode(file, bytes, at),
        None => Err(Damage("a file that ends early").in_file(file, BlockKind::Footer, at)),
    }
}

/// A report about two values that should be equal.
#[cold]
pub(crate) fn report(
    file: &Arc<Path>,
    block: BlockKind,
    offset: u64,
    what: &'static str,
    values: (u64, u64),
) -> Error {
    let file = Arc::clone(file);
    Error::Corruption(Corruption {
        file,
        block,
        offset,
        what,
        values: Some(values),
        flipped_bit: None,
    })
}

/// Turns the error of a block's trailer into a report that names the file.
#[cold]
fn mismatch(file: &Arc<Path>, block: BlockKind, error: paranoid_memtable::Error) -> Error {
    let Some(found) = error.corruption().copied() else {
        return error.into();
    };
    let (file, values) = (Arc::clone(file), Some((found.expected, found.found)));
    let (offset, flipped_bit) = (found.offset, found.flipped_bit);
    Error::Corruption(Corruption {
        file,
        block,
        offset,
        what: "checksum mismatch",
        values,
        flipped_bit,
    })
}
