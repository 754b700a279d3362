//! `Piece`: a run of bytes of a table's memory, as the fault injector lists it, with kind and
//! owner.
//!
//! Pure data; any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::key::SequenceNumber;
use crate::memtable::debug::shown;

/// The content of a piece of memory.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::fault::{FaultInjector, Region};
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// // SAFETY: one thread, and nothing borrowed is held.
/// let injector = unsafe { FaultInjector::open(&table) }?;
/// let value = injector.pieces().iter().find(|piece| piece.region == Region::Value).expect("the entry's value");
/// assert_eq!(value.len(), 5);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Region {
    /// The lengths, the kind, the sequence number, the revision or the header check of an entry.
    Header,
    /// The user key.
    Key,
    /// The value; for a range tombstone, its end.
    Value,
    /// Both digests of an entry.
    Digests,
    /// A link of an entry.
    Link,
    /// A link of the list's head.
    HeadLink,
    /// The target and the tag of a back link.
    BackLink,
    /// Unused bytes: up to the next unit after an entry, and in the list's head.
    Padding,
    /// A word of a filter, or the control word of one of its lines.
    FilterWord,
    /// A word of the ordered directory.
    Directory,
    /// Arena bytes that writers have taken and not used yet.
    Free,
    /// A word of the live or the frozen tombstone index.
    TombstoneIndex,
    /// The node and the tag of a watched range tombstone, with which writers compare keys.
    WatchedTombstone,
    /// A word of the control block, or its check.
    Control,
}

/// The structure that a piece belongs to.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::fault::{FaultInjector, Part, Region};
/// let table = MemTable::default();
/// table.delete_range(1, b"a", b"b")?;
/// // SAFETY: one thread, and nothing borrowed is held.
/// let injector = unsafe { FaultInjector::open(&table) }?;
/// let end = injector.pieces().iter().find(|piece| piece.region == Region::Value).expect("the end of the range");
/// assert_eq!(end.part, Part::Ranges);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// The list of point entries.
    Points,
    /// The list of range tombstones.
    Ranges,
    /// Arena bytes between entries.
    Arena,
    /// The table's own struct.
    Control,
}

/// The entry that a piece belongs to.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::fault::FaultInjector;
/// let table = MemTable::default();
/// table.put(7, b"key", b"value")?;
/// // SAFETY: one thread, and nothing borrowed is held.
/// let injector = unsafe { FaultInjector::open(&table) }?;
/// let owner = injector.pieces().iter().find_map(|piece| piece.owner.as_ref()).expect("one entry");
/// assert_eq!((&*owner.key, owner.sequence), (b"key".as_slice(), 7));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The user key; for a range tombstone, its start.
    pub key: Arc<[u8]>,
    /// The sequence number.
    pub sequence: SequenceNumber,
}

/// A run of bytes that the fault model covers.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::fault::{FaultInjector, Region};
/// let table = MemTable::default();
/// table.put(7, b"key", b"value")?;
/// // SAFETY: one thread, and nothing borrowed is held.
/// let injector = unsafe { FaultInjector::open(&table) }?;
/// let pieces = injector.pieces();
/// let digests = pieces.iter().find(|piece| piece.region == Region::Digests).expect("8 protection bytes");
/// assert_eq!(digests.len(), 16);
/// assert_eq!(digests.owner.as_ref().map(|owner| owner.sequence), Some(7));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct Piece {
    /// The content of the piece.
    pub region: Region,
    /// The part of the table that the piece belongs to.
    pub part: Part,
    /// The level of a link; 0 for other pieces.
    pub level: u32,
    /// The entry that the piece belongs to; `None` for list heads, free bytes and control words.
    pub owner: Option<Owner>,
    pub(crate) address: usize,
    pub(crate) len: usize,
}

impl Piece {
    /// The length of the piece in bytes, never 0.
    #[expect(clippy::len_without_is_empty, reason = "a piece is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn end(&self) -> usize {
        self.address + self.len
    }
}

shown! {
    "Owner": impl [] Owner, |owner| { "key_len": owner.key.len(), "sequence": owner.sequence }
    "Piece": impl [] Piece, |piece| {
        "region": piece.region,
        "part": piece.part,
        "level": piece.level,
        "owner": piece.owner,
        "len": piece.len(),
    }
}
