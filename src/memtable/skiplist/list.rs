//! A skiplist: its head in the arena, the options of its searches, and its rule for duplicates.
//!
//! Nodes are never unlinked. Level 0 has every entry in order; upper levels, back links and the
//! directory are derived from it.
//!
//! Any thread.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "levels are few")]

use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::memtable::arena::heads::{Head, ROOT};
use crate::memtable::arena::layout::HEIGHT_MAX;
use crate::memtable::arena::tower_height::Towers;
use crate::sync::{AtomicU32, Ordering};

/// The rule for an insert whose user key and sequence number are those of an existing entry.
///
/// ```
/// use paranoid_memtable::{DuplicatePolicy, MemTable, MemTableOptions};
/// let options = MemTableOptions::builder().duplicates(DuplicatePolicy::Replace).build()?;
/// let table = MemTable::new(options)?;
/// table.put(1, b"key", b"first")?;
/// table.put(1, b"key", b"second")?;
/// assert!(table.get(b"key", 1)?.value() == Some(b"second"));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DuplicatePolicy {
    /// The insert fails with `DuplicateEntry` (default).
    #[default]
    Reject,
    /// The new entry replaces the old one in every read that starts afterwards.
    Replace,
}

/// A skiplist over an arena.
pub(crate) struct List {
    /// The highest level in use: a hint that only grows.
    pub(super) top: AtomicU32,
    pub(crate) seek_checks: SeekChecks,
    pub(crate) order_checks: OrderChecks,
    /// The unit of the directory's root word; 0: there is no directory.
    pub(crate) directory: u32,
    /// Which list of the arena it is. A damaged hint may name a node of the other one.
    pub(crate) list: Head,
}

impl List {
    /// The list of this head, whose sentinel `make_heads` makes.
    pub(crate) fn new(head: Head, seek_checks: SeekChecks, order_checks: OrderChecks) -> List {
        let top = AtomicU32::new(0);
        List {
            top,
            seek_checks,
            order_checks,
            directory: 0,
            list: head,
        }
    }

    /// This list with a directory. The list must be empty.
    pub(crate) fn with_directory(mut self) -> List {
        self.directory = ROOT;
        self
    }

    /// The highest level in use.
    #[inline(always)]
    pub(crate) fn top(&self) -> u32 {
        // ORDERING: Relaxed: a hint; a stale value makes the search longer, not wrong.
        self.top.load(Ordering::Relaxed).min(HEIGHT_MAX as u32 - 1)
    }

    /// The distribution of the list's tower heights.
    #[inline(always)]
    pub(crate) fn towers(&self) -> Towers {
        if self.directory == 0 {
            Towers::Dense
        } else {
            Towers::Sparse
        }
    }
}
