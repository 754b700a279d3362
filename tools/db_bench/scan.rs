//! A scan over all tables of a version.
//!
//! ```text
//!   table 0 (newest)   .  b  .  d      each cursor shows what its own table shows: deletes applied
//!   table 1            a  b  .  .
//!   scan               a  b' .  d      the newest table's entry of a key; older ones may be deleted by a newer table
//! ```
//! * S1: of equal keys the newest table's stands; the others' cursors are moved past it.
//! * S2: an entry is shown only if no newer table deletes its key. Only tables that hold deletes are asked.
//!
//! One thread at a time.

use std::cmp::Ordering;

use paranoid_memtable::scan::AtSnapshot;
use paranoid_memtable::{Entry, Error, Lookup, TableCursor};

use crate::tables::{Held, Version};

type Cursor<'v> = TableCursor<'v, AtSnapshot>;

/// Where the cursors stand: all at or after the scan's key, or all at or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// A scan over all tables of a version (S1, S2).
#[derive(Debug)]
pub(crate) struct Scan<'v> {
    version: &'v Version,
    snapshot: u64,
    /// Newest first.
    cursors: Vec<Cursor<'v>>,
    /// A heap of the cursors that stand on an entry; the first is the one to show first.
    heap: Vec<usize>,
    way: Way,
    /// The key that is being passed; its memory is reused.
    key: Vec<u8>,
}

impl<'v> Scan<'v> {
    /// A scan at `snapshot`; with a prefix, of the keys that begin with it.
    pub(crate) fn new(version: &'v Version, snapshot: u64, prefix: Option<&[u8]>) -> Self {
        let cursor = |table: &'v Held| {
            let cursor = table.cursor_at(snapshot);
            match prefix {
                Some(prefix) => cursor.with_prefix(prefix),
                None => cursor,
            }
        };
        let cursors = version.tables.iter().map(cursor).collect();
        Scan { version, snapshot, cursors, heap: Vec::new(), way: Way::Forward, key: Vec::new() }
    }

    /// The entry under the scan.
    pub(crate) fn entry(&self) -> Result<Option<Entry<'v>>, Error> {
        match (self.cursors.as_slice(), self.heap.first()) {
            ([only], _) => only.table_entry(),
            (_, Some(at)) => self.cursors[*at].table_entry(),
            _ => Ok(None),
        }
    }

    pub(crate) fn first(&mut self) -> Result<Option<Entry<'_>>, Error> {
        self.arrive(Way::Forward, |cursor| cursor.first().map(drop))
    }

    pub(crate) fn last(&mut self) -> Result<Option<Entry<'_>>, Error> {
        self.arrive(Way::Backward, |cursor| cursor.last().map(drop))
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<Option<Entry<'_>>, Error> {
        self.arrive(Way::Forward, |cursor| cursor.seek(key).map(drop))
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry<'_>>, Error> {
        if self.cursors.len() == 1 {
            return self.cursors[0].next();
        }
        self.step(Way::Forward)?;
        self.entry()
    }

    pub(crate) fn prev(&mut self) -> Result<Option<Entry<'_>>, Error> {
        if self.cursors.len() == 1 {
            return self.cursors[0].prev();
        }
        self.step(Way::Backward)?;
        self.entry()
    }

    fn arrive(
        &mut self,
        way: Way,
        mut go: impl FnMut(&mut Cursor<'v>) -> Result<(), Error>,
    ) -> Result<Option<Entry<'_>>, Error> {
        for cursor in &mut self.cursors {
            go(cursor)?;
        }
        if self.cursors.len() > 1 {
            self.way = way;
            self.pile()?;
            self.settle()?;
        }
        self.entry()
    }

    fn step(&mut self, way: Way) -> Result<(), Error> {
        if !self.keep_key()? {
            return Ok(());
        }
        if self.way != way {
            self.way = way;
            for cursor in &mut self.cursors {
                match way {
                    Way::Forward => cursor.seek(&self.key)?,
                    Way::Backward => cursor.seek_for_prev(&self.key)?,
                };
            }
            self.pile()?;
        }
        self.pass()?;
        self.settle()
    }

    /// Copies the key of the first cursor. `false`: no cursor stands on an entry.
    fn keep_key(&mut self) -> Result<bool, Error> {
        let entry = self.entry()?;
        self.key.clear();
        self.key.extend_from_slice(entry.map_or(&[], |entry| entry.user_key()));
        Ok(entry.is_some())
    }

    /// Moves every cursor that stands on the copied key past it.
    fn pass(&mut self) -> Result<(), Error> {
        while let Some(&top) = self.heap.first() {
            let cursor = &mut self.cursors[top];
            if cursor.entry()?.is_none_or(|entry| entry.user_key() != self.key) {
                break;
            }
            let moved = match self.way {
                Way::Forward => cursor.next()?,
                Way::Backward => cursor.prev()?,
            };
            if moved.is_none() {
                let last = self.heap.len() - 1;
                self.heap.swap(0, last);
                self.heap.truncate(last);
            }
            self.sink(0)?;
        }
        Ok(())
    }

    /// Goes on until no newer table deletes the entry of the first cursor (S2).
    fn settle(&mut self) -> Result<(), Error> {
        while let Some(&top) = self.heap.first() {
            let Some(entry) = self.cursors[top].table_entry()? else { return Ok(()) };
            let key = entry.user_key();
            let newer = &self.version.tables[..top];
            let mut deleted = false;
            for table in newer.iter().filter(|table| table.num_deletes() + table.num_range_deletes() > 0) {
                deleted |= matches!(table.get(key, self.snapshot)?, Lookup::Deleted { .. });
            }
            if !deleted {
                return Ok(());
            }
            self.keep_key()?;
            self.pass()?;
        }
        Ok(())
    }

    /// Which of two cursors is shown first.
    fn before(&self, a: usize, b: usize) -> Result<bool, Error> {
        let key = |at: usize| self.cursors[at].entry().map(|entry| entry.map(|entry| entry.user_key()));
        let (Some(left), Some(right)) = (key(a)?, key(b)?) else { return Ok(false) };
        let order = match self.way {
            Way::Forward => left.cmp(right),
            Way::Backward => right.cmp(left),
        };
        Ok(order.then(a.cmp(&b)) == Ordering::Less)
    }

    fn pile(&mut self) -> Result<(), Error> {
        self.heap.clear();
        self.heap.extend((0..self.cursors.len()).filter(|at| self.cursors[*at].is_valid()));
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at)?;
        }
        Ok(())
    }

    fn sink(&mut self, mut at: usize) -> Result<(), Error> {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|child| *child < self.heap.len());
            let mut first = at;
            for child in children {
                if self.before(self.heap[child], self.heap[first])? {
                    first = child;
                }
            }
            if first == at {
                return Ok(());
            }
            self.heap.swap(at, first);
            at = first;
        }
    }
}
