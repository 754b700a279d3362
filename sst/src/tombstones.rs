//! Range deletions of a file: as they are stored, and the newest one over a key.
//!
//! A memtable of range deletions alone answers which is the newest over a key. It needs bounded
//! time and memory for any ranges (overlapping, nested, unsorted), and verifies its memory at every
//! lookup.
//!
//! Any thread: immutable.

use std::collections::BTreeMap;
use std::iter::FusedIterator;
use std::sync::OnceLock;

use paranoid_memtable::{
    ImmutableMemTable, Kind, Lookup, MemTable, MemTableOptions, SequenceNumber,
};

use crate::block_builder::ValueForm;
use crate::block_cursor::BlockCursor;
use crate::error::{Damage, Result};
use crate::internal_key::{TAIL_LEN, kind_of, sequence_of, split};

/// Soft limit of the memtable, which may grow over it.
const WRITE_BUFFER_SIZE: u64 = 64 << 10;

/// Start, end, sequence number.
pub(crate) type Tombstone = (Vec<u8>, Vec<u8>, SequenceNumber);

/// The range deletions of a file.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    /// As they are stored.
    list: Vec<Tombstone>,
    /// The memtable. The first lookup builds it.
    index: OnceLock<ImmutableMemTable>,
}

impl Tombstones {
    /// The tombstones of a block.
    pub(crate) fn new(list: Vec<Tombstone>) -> Self {
        Tombstones {
            list,
            index: OnceLock::new(),
        }
    }

    /// Builds a memtable of the range deletions.
    fn build(&self) -> Result<ImmutableMemTable> {
        // Of two ranges with equal start and sequence number, the longer one covers the other.
        // Empty ranges cover nothing.
        let mut ranges: BTreeMap<(&[u8], SequenceNumber), &[u8]> = BTreeMap::new();
        for (start, end, sequence) in self.list.iter().filter(|(start, end, _)| start < end) {
            let longest = ranges.entry((start, *sequence)).or_insert(end);
            *longest = (*longest).max(end);
        }
        let options = MemTableOptions::builder()
            .write_buffer_size(WRITE_BUFFER_SIZE)
            .build()?;
        let index = MemTable::new(options)?;
        for ((start, sequence), end) in ranges {
            index.delete_range(sequence, start, end)?;
        }
        Ok(index.freeze()?)
    }

    pub(crate) fn iter(&self) -> impl FusedIterator<Item = (&[u8], &[u8], SequenceNumber)> {
        self.list
            .iter()
            .map(|(start, end, sequence)| (&**start, &**end, *sequence))
    }

    /// The sequence number of the newest range deletion over a key that a snapshot sees.
    pub(crate) fn covering(
        &self,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<SequenceNumber>> {
        if self.list.is_empty() {
            return Ok(None);
        }
        if self.index.get().is_none() {
            // If another thread was first, its memtable has the same content.
            let _ = self.index.set(self.build()?);
        }
        match self
            .index
            .get()
            .map(|index| index.get(key, snapshot))
            .transpose()?
        {
            Some(Lookup::Deleted { sequence, .. }) => Ok(Some(sequence)),
            _ => Ok(None),
        }
    }
}

/// Reads a block. With a global sequence number, every tombstone has that number.
pub(crate) fn read(block: &[u8], global: Option<SequenceNumber>) -> Result<Vec<Tombstone>, Damage> {
    let mut cursor = BlockCursor::new(block, ValueForm::Plain, TAIL_LEN)?;
    let mut list = vec![];
    let mut more = cursor.first()?;
    while more {
        let (start, packed) = split(cursor.key()).ok_or(Damage("a key that is too short"))?;
        if kind_of(packed) != Kind::RANGE_DELETE {
            return Err(Damage("an entry that is no range deletion"));
        }
        if global.is_some() && sequence_of(packed) != 0 {
            return Err(Damage("a sequence number in an ingested file"));
        }
        let sequence = global.unwrap_or(sequence_of(packed));
        list.push((start.to_vec(), cursor.value().to_vec(), sequence));
        more = cursor.advance()?;
    }
    Ok(list)
}
