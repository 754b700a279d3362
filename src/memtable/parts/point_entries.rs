//! The point entries of a table: their list, its directory, and its policy for duplicates.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Result};
use crate::key::SequenceNumber;
use crate::memtable::options::{Directory, MemTableOptions};
use crate::memtable::parts::ground::Ground;
use crate::memtable::parts::writer_shards::{Hidden, WriterShards};
use crate::memtable::skiplist::arena::Arena;
use crate::memtable::skiplist::control_block::Head;
use crate::memtable::skiplist::list::{DuplicatePolicy, List};
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::upkeep::Upkeep;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct PointEntries {
    pub(crate) list: List,
    upkeep: Upkeep,
    duplicates: DuplicatePolicy,
}

impl PointEntries {
    pub(crate) fn new(arena: &Arena, options: &MemTableOptions) -> Result<Self> {
        let checks = (options.paranoid.seek_checks(), options.paranoid.neighbour_checks());
        let list = List::new(arena, Head::Points, checks.0, checks.1)?;
        Ok(PointEntries {
            list: match options.keeps_directory() {
                Directory::On => list.with_directory(arena)?,
                _ => list,
            },
            upkeep: Upkeep::default(),
            duplicates: options.duplicates,
        })
    }

    /// A search of the list.
    #[inline(always)]
    pub(crate) fn search<'t>(&self, ground: Ground<'t>) -> Result<Search<'t>, Corruption> {
        Ok(self.list.search(Head::Points, ground.arena.view()?, ground.comparator))
    }

    /// Looks at some pages of the directory, if there is one, and renews it if it is broken.
    pub(crate) fn maintain(&self, ground: Ground<'_>, shards: &WriterShards) {
        if let Ok(search) = self.search(ground) {
            self.upkeep.look_on(&search, &mut || shards.wait_out_writers());
        }
    }

    /// Whether an entry takes the place of an equal one.
    pub(crate) fn replaces(&self) -> bool {
        self.duplicates == DuplicatePolicy::Replace
    }

    /// Whether the entry before replaced this one.
    pub(crate) fn hidden_by(
        &self,
        comparator: &KeyComparator,
        newer: Option<(&[u8], SequenceNumber)>,
        entry: &Verified<'_>,
    ) -> Hidden {
        let hides = |(key, sequence)| {
            sequence == entry.node().sequence() && comparator.compare(key, entry.key()).is_eq()
        };
        if self.replaces() && newer.is_some_and(hides) { Hidden::Yes } else { Hidden::No }
    }
}
