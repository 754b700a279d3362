//! Visibilities: a scan shows either all entries as stored, or what a snapshot sees.
//!
//! ```text
//!   stored      a@9  a@5  b@7d  c@4 c@2          d = delete, and a range delete [c, d) @ 3
//!   raw         a@9  a@5  b@7d  c@4 c@2
//!   snapshot 8       a@5        c@4              newest version <= 8 of each key, if not deleted
//! ```
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::key::{Direction, SequenceNumber};
use crate::memtable::core::Core;

/// Which entries a scan shows: [`Raw`] or [`AtSnapshot`]. Sealed.
///
/// ```
/// use paranoid_memtable::{Cursor, MemTable};
/// use paranoid_memtable::scan::{Borrowed, Visibility};
/// fn keys<L: Visibility>(mut cursor: Cursor<Borrowed<'_>, L>) -> paranoid_memtable::Result<Vec<Vec<u8>>> {
///     let (mut keys, mut entry) = (Vec::new(), cursor.first()?);
///     while let Some(found) = entry {
///         keys.push(found.user_key().to_vec());
///         entry = cursor.next()?;
///     }
///     Ok(keys)
/// }
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// table.delete(2, b"apple")?;
/// assert_eq!((keys(table.cursor())?.len(), keys(table.cursor_at(2))?.len()), (2, 0));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait Visibility: sealed::Marker {}

pub(crate) mod sealed {
    /// Seals [`Visibility`](super::Visibility): no other crate can implement this trait.
    pub trait Marker {}
}

/// Shows every version of every key, and does not apply range tombstones. Flushes and merges use
/// it.
///
/// ```
/// use paranoid_memtable::{Cursor, Kind, MemTable};
/// use paranoid_memtable::scan::{Borrowed, Raw};
/// let table = MemTable::default();
/// table.delete(1, b"apple")?;
/// let mut cursor: Cursor<Borrowed<'_>, Raw> = table.cursor();
/// assert_eq!(cursor.first()?.map(|entry| entry.kind()), Some(Kind::DELETE));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

/// Shows what a snapshot sees: the newest visible version of each key, with deletes and range
/// deletes applied.
///
/// ```
/// use paranoid_memtable::{Cursor, MemTable};
/// use paranoid_memtable::scan::{AtSnapshot, Borrowed};
/// let table = MemTable::default();
/// table.delete(1, b"apple")?;
/// let mut cursor: Cursor<Borrowed<'_>, AtSnapshot> = table.cursor_at(1);
/// assert!(cursor.first()?.is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct AtSnapshot(());

impl<L: sealed::Marker> Visibility for L {}
impl sealed::Marker for Raw {}
impl sealed::Marker for AtSnapshot {}

/// The entries that a walk shows. This is a value and no type parameter, so walks are compiled in
/// this crate and not in the caller's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Visible {
    All,
    /// The entries that a snapshot sees; the number is the largest that it sees.
    At(SequenceNumber),
}

impl Visible {
    /// Whether a step in this direction can decide visibility by the two adjacent entries alone.
    #[inline(always)]
    pub(crate) fn is_plain(self, core: &Core, way: Direction) -> bool {
        match self {
            Visible::All => !core.replaces(),
            Visible::At(_) => way == Direction::Forward && !core.tombstones.may_be_any(&core.arena),
        }
    }

    /// The newest and the oldest version that a shown version represents: itself, or at a snapshot
    /// all versions of its key.
    #[inline(always)]
    pub(crate) fn extent(self, sequence: SequenceNumber) -> (SequenceNumber, SequenceNumber) {
        match self {
            Visible::All => (sequence, sequence),
            Visible::At(_) => (SequenceNumber::MAX, 0),
        }
    }
}
