//! The range tombstones of a table as fragments. Each tombstone is read from its list and copied, and the copy is
//! verified.
//!
//! ```text
//!   list        [a, g) @ 3   [c, k) @ 7   [m, p) @ 9
//!   at 8        a--c 3   c--k 7                         one number a fragment: the newest that the snapshot sees
//! ```
//! Any thread; the list may be written meanwhile.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::{Corruption, Place, Result};
use crate::key::{Bytewise, Comparator, KeyEquality, KeyOrder, SequenceNumber};
use crate::memtable::core::Core;
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::{Verified, bytes_of};
use crate::memtable::skiplist::search::Search;
use crate::tombstone::fragment::fragmenter::Fragmenter;
use crate::tombstone::fragment::fragments::Fragments;
use crate::tombstone::fragment::span::check_order;

/// A table's order of keys, with a share in the table: the order of the fragments that
/// [`range_tombstones`](crate::MemTable::range_tombstones) makes.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::comparator::TableOrder;
/// use paranoid_memtable::tombstone::Fragments;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// table.delete_range(3, b"a", b"g")?;
/// let kept: Fragments<TableOrder> = table.range_tombstones(u64::MAX)?;
/// drop(table);
/// assert_eq!(kept.max_covering_sequence(b"b", u64::MAX), Some(3));
/// # Ok(()) }
/// ```
pub struct TableOrder<C = Bytewise>(Arc<Core<C>>);

impl<C> TableOrder<C> {
    pub(crate) fn of(core: &Arc<Core<C>>) -> Self {
        TableOrder(Arc::clone(core))
    }
}

impl<C> Clone for TableOrder<C> {
    fn clone(&self) -> Self {
        TableOrder(Arc::clone(&self.0))
    }
}

impl<C> std::fmt::Debug for TableOrder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TableOrder").field(&self.0).finish()
    }
}

impl<C: Comparator> Comparator for TableOrder<C> {
    const EQUALITY: KeyEquality = C::EQUALITY;

    fn key_order(&self) -> KeyOrder {
        self.0.comparator.key_order()
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.0.comparator.compare(left, right)
    }

    fn image(&self, key: &[u8], at: usize) -> u64 {
        self.0.comparator.image(key, at)
    }
}

/// Passes every stored range tombstone to `take`, verified, with a verified copy of its end.
pub(crate) fn each_tombstone<C: Comparator>(
    core: &Core<C>,
    mut take: impl FnMut(&Verified<'_>, &[u8], &View<'_>) -> Result<()>,
) -> Result<()> {
    let search = core.range_search()?;
    let mut end = Vec::new();
    let mut next = next_of(&search, search.sentinel)?;
    while let Some(entry) = next {
        next = next_of(&search, entry.offset())?;
        copy(&search, &entry, &mut end)?;
        // The table accepts only tombstones whose start is before their end, so a key was damaged or the comparator changed.
        check_order(&core.comparator, entry.key(), &end).map_err(|_| {
            Corruption::new(Place::Entry, bytes_of(entry.offset()), 0, 0)
                .with_sequence(entry.node().sequence())
        })?;
        take(&entry, &end, &search.view)?;
    }
    Ok(())
}

/// The fragments that a snapshot sees, each with the newest sequence number that it sees.
pub(crate) fn range_tombstones<C: Comparator>(
    core: &Arc<Core<C>>,
    snapshot: SequenceNumber,
) -> Result<Fragments<TableOrder<C>>> {
    let mut fragmenter = Fragmenter::new(TableOrder::of(core)).with_snapshots(&[]);
    each_tombstone(core, |entry, end, _| match entry.node().sequence() {
        // A tombstone with sequence number 0 deletes nothing.
        sequence if (1..=snapshot).contains(&sequence) => fragmenter.add(entry.key(), end, sequence),
        _ => Ok(()),
    })?;
    Ok(fragmenter.finish())
}

/// The entry after `at`, for passes that stop at the first gap.
#[inline]
pub(crate) fn next_of<'a, C: Comparator>(
    search: &Search<'a, C>,
    at: u32,
) -> Result<Option<Verified<'a>>, Corruption> {
    let next = search.next(at).map_err(|gap| gap.corruption)?;
    // A step that stays in place would never end.
    match next {
        Some(entry) if entry.offset() == at => Err(Corruption::new(Place::Order, bytes_of(at), 0, 0)),
        next => Ok(next),
    }
}

/// Copies a value and verifies the copy.
pub(crate) fn copy<C: Comparator>(
    search: &Search<'_, C>,
    entry: &Verified<'_>,
    buffer: &mut Vec<u8>,
) -> Result<(), Corruption> {
    buffer.clear();
    buffer.extend_from_slice(entry.value_unverified());
    entry.verify_copy(buffer, search.view.width)
}
