//! A cursor over the entries of a table, both ways.
//!
//! ```text
//!   index: | block 0 | block 1 | block 2 |          one block is in memory; it was verified when it was fetched
//!                         `-> entry, entry, [entry], entry
//! ```
//! After an error the cursor is at no entry, and may seek again. An entry of a kind that is not
//! read is hidden: a move to it returns an error, and a step from it continues.
//!
//! One owner at a time; `Send`. A cursor holds its table.

use paranoid_memtable::{Kind, SequenceNumber};

use crate::block_cursor::BlockCursor;
use crate::coding::BlockHandle;
use crate::error::{BlockKind, Damage, Result};
use crate::internal_key::{DATA_KINDS, SEQUENCE_MAX, kind_of, sequence_of, split};
use crate::table::SortedTable;
use crate::table_source::BlockBytes;

/// An entry of a table file, verified with its block. It borrows the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableEntry<'a> {
    /// The user key.
    pub user_key: &'a [u8],
    /// The sequence number; in an ingested file the global one.
    pub sequence: SequenceNumber,
    /// The kind.
    pub kind: Kind,
    /// The value.
    pub value: &'a [u8],
}

/// A cursor over the entries of a table file as they are stored: every version, range deletions not
/// applied.
///
/// User keys ascend, and sequence numbers descend within a key. The cursor shares its table, so it
/// is `'static` and `Send`, and an engine can keep it as a source of a merging cursor; for a set's
/// merging cursor it is a [`SortedSource`](paranoid_memtable::scan::SortedSource).
/// [`SortedTable::covering_tombstone`] returns what range deletions of the file hide.
///
/// The cursor is at one entry or at none. One thread at a time moves it. One block is in memory,
/// and was verified when it was fetched. A step costs O(entry) within a block; the first step into
/// a block reads and verifies it. A step back costs O(log restarts + restart interval).
///
/// ```
/// use paranoid_memtable::Kind;
/// use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("1.sst");
/// let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default())?;
/// for (key, sequence) in [(b"a", 9), (b"b", 8), (b"b", 3), (b"d", 5)] {
///     writer.add(key, sequence, Kind::PUT, b"value")?;
/// }
/// writer.finish()?;
///
/// let mut cursor = SortedTable::open(&path)?.cursor();
/// cursor.seek(b"b", 7)?;                                   // the newest version of `b` that a reader at 7 sees
/// assert_eq!(cursor.entry().map(|entry| (entry.user_key, entry.sequence)), Some((b"b".as_slice(), 3)));
/// cursor.next()?;
/// assert_eq!(cursor.entry().map(|entry| entry.user_key), Some(b"d".as_slice()));
/// cursor.seek_for_prev(b"c", 0)?;
/// cursor.prev()?;
/// assert_eq!(cursor.entry().map(|entry| entry.sequence), Some(8));
/// # Ok::<(), paranoid_sst::Error>(())
/// ```
#[derive(Debug)]
pub struct TableCursor {
    table: SortedTable,
    index: Option<BlockCursor<BlockBytes>>,
    data: Option<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    cursor: BlockCursor<BlockBytes>,
    handle: BlockHandle,
}

/// A step of a cursor in the index.
type Step = fn(&mut BlockCursor<BlockBytes>) -> Result<bool, Damage>;

/// The direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// A position among entries: before or after the entries with this (user key, sequence number).
#[derive(Debug, Clone, Copy)]
struct Place<'k> {
    user_key: &'k [u8],
    sequence: SequenceNumber,
    after_equal: bool,
}

impl Place<'_> {
    /// Whether the place is after an internal key.
    fn is_after(&self, key: &[u8], global: Option<SequenceNumber>) -> bool {
        let Some((user_key, packed)) = split(key) else {
            return true;
        };
        let sequence = || global.unwrap_or(sequence_of(packed));
        match user_key.cmp(self.user_key) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal if self.after_equal => sequence() >= self.sequence,
            std::cmp::Ordering::Equal => sequence() > self.sequence,
        }
    }
}

impl TableCursor {
    pub(crate) fn new(table: SortedTable) -> Self {
        TableCursor {
            table,
            index: None,
            data: None,
        }
    }

    /// The table of the cursor.
    pub(crate) fn table(&self) -> &SortedTable {
        &self.table
    }

    /// The entry at the cursor. `None`: it is at no entry, or at one of a kind that is not read.
    /// O(1): nothing is copied.
    #[must_use]
    pub fn entry(&self) -> Option<TableEntry<'_>> {
        self.stored()
            .filter(|entry| DATA_KINDS.contains(&entry.kind))
    }

    /// The entry at the cursor, of any kind.
    pub(crate) fn stored(&self) -> Option<TableEntry<'_>> {
        let cursor = &self.data.as_ref().filter(|data| data.cursor.valid)?.cursor;
        let (user_key, packed) = split(cursor.key())?;
        let sequence = self
            .table
            .inner
            .global_sequence
            .unwrap_or(sequence_of(packed));
        Some(TableEntry {
            user_key,
            sequence,
            kind: kind_of(packed),
            value: cursor.value(),
        })
    }

    /// Ends a move: refuses an entry of a kind that is not read.
    fn shown(&self) -> Result<()> {
        let foreign = self
            .stored()
            .filter(|entry| !DATA_KINDS.contains(&entry.kind));
        foreign.map_or(Ok(()), |entry| Err(self.table.inner.not_read(entry.kind)))
    }

    /// Whether the cursor is at an entry.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.entry().is_some()
    }

    /// The block of the current entry: its offset and size in the file in bytes, without the
    /// trailer.
    #[must_use]
    pub fn block(&self) -> Option<BlockHandle> {
        self.data.as_ref().map(|data| data.handle)
    }

    /// Moves to the first entry, or to none in an empty file. One block is read and verified.
    ///
    /// # Errors
    /// `Corruption`, `Io`: the cursor is then at no entry. `NotSupported`, with number and name, at
    /// an entry of a kind that is not read: a step continues from there.
    pub fn first(&mut self) -> Result<()> {
        self.enter(BlockCursor::first, Way::Forward, None)?;
        self.shown()
    }

    /// Moves to the last entry, or to none in an empty file. One block is read and verified.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn last(&mut self) -> Result<()> {
        self.enter(BlockCursor::last, Way::Backward, None)?;
        self.shown()
    }

    /// Moves to the first entry of `user_key` with at most this sequence number, or to the first
    /// entry of a later key. O(log blocks + log entries of a block). One block is read and
    /// verified, or two if the place is between blocks.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn seek(&mut self, user_key: impl AsRef<[u8]>, sequence: SequenceNumber) -> Result<()> {
        self.find(user_key.as_ref(), sequence)?;
        self.shown()
    }

    /// Moves as [`seek`](Self::seek) does, to an entry of any kind.
    pub(crate) fn find(&mut self, user_key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.seek_place(&Place {
            user_key,
            sequence: sequence.min(SEQUENCE_MAX),
            after_equal: false,
        })
    }

    /// Moves to the last entry of `user_key` with at least this sequence number, or to the last
    /// entry of an earlier key. Costs a [`seek`](Self::seek) and a step.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn seek_for_prev(
        &mut self,
        user_key: impl AsRef<[u8]>,
        sequence: SequenceNumber,
    ) -> Result<()> {
        let user_key = user_key.as_ref();
        self.seek_place(&Place {
            user_key,
            sequence,
            after_equal: true,
        })?;
        if self.stored().is_some() {
            self.prev()
        } else {
            self.last()
        }
    }

    /// Moves to the next entry, or to none after the last one.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor: the entry is asked for apart from the step"
    )]
    pub fn next(&mut self) -> Result<()> {
        self.step()?;
        self.shown()
    }

    /// Moves as [`next`](Self::next) does, to an entry of any kind.
    pub(crate) fn step(&mut self) -> Result<()> {
        if self.stored().is_none() {
            return Ok(());
        }
        if self.in_data(BlockCursor::advance)? {
            return Ok(());
        }
        let left = self.block();
        self.enter(BlockCursor::advance, Way::Forward, left)
    }

    /// Moves to the previous entry, or to none before the first one.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn prev(&mut self) -> Result<()> {
        if self.stored().is_some() && !self.in_data(BlockCursor::prev)? {
            let left = self.block();
            self.enter(BlockCursor::prev, Way::Backward, left)?;
        }
        self.shown()
    }

    fn seek_place(&mut self, place: &Place<'_>) -> Result<()> {
        let inner = self.table.inner.clone();
        let more = if inner.index_form.user_keys {
            self.in_index(|index| index.seek(|key| key < place.user_key))?
        } else {
            self.in_index(|index| index.seek(|key| place.is_after(key, inner.global_sequence)))?
        };
        let before = self.data.take();
        if !more {
            return Ok(());
        }
        self.load(before)?;
        let found =
            self.in_data(|data| data.seek(|key| place.is_after(key, inner.global_sequence)))?;
        if found {
            return Ok(());
        }
        let left = self.block();
        self.enter(BlockCursor::advance, Way::Forward, left)
    }

    /// Takes a step in the index and moves to the first entry of the walk in the block there. Empty
    /// blocks are skipped. `left` is the block that the walk comes from.
    fn enter(&mut self, step: Step, way: Way, mut left: Option<BlockHandle>) -> Result<()> {
        let mut more = self.in_index(step)?;
        let mut before = self.data.take();
        while more {
            self.load(before.take())?;
            let here = self.block();
            self.check_way(left, here, way)?;
            let found = match way {
                Way::Forward => self.in_data(BlockCursor::first)?,
                Way::Backward => self.in_data(BlockCursor::last)?,
            };
            if found {
                return Ok(());
            }
            left = here;
            more = match way {
                Way::Forward => self.in_index(BlockCursor::advance)?,
                Way::Backward => self.in_index(BlockCursor::prev)?,
            };
        }
        self.data = None;
        Ok(())
    }

    /// Checks that the walk keeps its direction in the file from block to block. So it visits no
    /// byte twice, and ends.
    fn check_way(
        &mut self,
        left: Option<BlockHandle>,
        here: Option<BlockHandle>,
        way: Way,
    ) -> Result<()> {
        let (Some(left), Some(here)) = (left, here) else {
            return Ok(());
        };
        let end = |handle: BlockHandle| handle.end();
        let keeps_way = match way {
            Way::Forward => here.offset >= end(left),
            Way::Backward => end(here) <= left.offset,
        };
        if keeps_way {
            return Ok(());
        }
        self.data = None;
        Err(self.table.inner.index_damaged()(Damage(
            "blocks that do not ascend in the file",
        )))
    }

    /// Loads the block at the index cursor. `before` is the block that was loaded, which may be the
    /// same one.
    fn load(&mut self, before: Option<Loaded>) -> Result<()> {
        let Some(index) = &self.index else {
            return Ok(());
        };
        let handle = index.handle().map_err(self.table.inner.index_damaged())?;
        self.data = match before {
            Some(before) if before.handle == handle => Some(before),
            _ => Some(Loaded {
                cursor: self.table.inner.data(handle)?,
                handle,
            }),
        };
        Ok(())
    }

    fn in_index(
        &mut self,
        act: impl FnOnce(&mut BlockCursor<BlockBytes>) -> Result<bool, Damage>,
    ) -> Result<bool> {
        let inner = &self.table.inner;
        let result = match &mut self.index {
            Some(index) => act(index),
            None => inner
                .index_cursor()
                .and_then(|index| act(self.index.insert(index))),
        };
        if result.is_err() {
            self.data = None;
        }
        result.map_err(inner.index_damaged())
    }

    fn in_data(
        &mut self,
        act: impl FnOnce(&mut BlockCursor<BlockBytes>) -> Result<bool, Damage>,
    ) -> Result<bool> {
        let Some(loaded) = &mut self.data else {
            return Ok(false);
        };
        let result = act(&mut loaded.cursor).and_then(|found| match split(loaded.cursor.key()) {
            Some((_, packed)) if found => self.table.inner.check_sequence(packed).map(|()| found),
            _ => Ok(found),
        });
        match result {
            Ok(found) => Ok(found),
            Err(damage) => {
                let handle = loaded.handle;
                self.data = None;
                Err(self.table.inner.base.damaged(BlockKind::Data, handle)(
                    damage,
                ))
            }
        }
    }
}
