//! `Core`: the state of one table, which all its handles share.
//!
//! ```text
//!   MemTable ----------+          +-- arena: points (list), tombstones (list, index), filters
//!   TableReader -------+-- Core --+-- shards: gates, counters, sub-chunks
//!   ImmutableMemTable -+          +-- sealed sums of the freeze; the engine's mark and attachments
//! ```
//! An insert returns only after every structure that reads use contains the entry. A freeze ends
//! writes and never moves an entry. Any thread.

#![forbid(unsafe_code)]

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};

use crate::comparator::{KeyComparator, KeyEquality, KeyOrder};
use crate::error::{Corruption, Error, Result};
use crate::integrity::control_word::Words;
use crate::integrity::tag::Secret;
use crate::key::SequenceNumber;
use crate::memtable::arena::arena::Arena;
use crate::memtable::arena::control_block::ControlWord;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::node::Verified;
use crate::memtable::filter::filters::Filters;
use crate::memtable::ground::Ground;
use crate::memtable::heals::Heals;
use crate::memtable::options::MemTableOptions;
use crate::memtable::range_tombstones::RangeTombstones;
use crate::memtable::shards::totals::{Hidden, Totals};
use crate::memtable::shards::writer_shard::Inside;
use crate::memtable::shards::writer_shards::WriterShards;
use crate::memtable::skiplist::list::{DuplicatePolicy, List};
use crate::memtable::skiplist::node_space::make_heads;
use crate::memtable::skiplist::search::Search;
use crate::sync::{AtomicU64, Mutex};
use crate::tombstone::capacity::Load;
use crate::tombstone::index::CoveringRun;
use crate::tombstone::query::Question;

/// The state of one table.
#[repr(align(128))]
pub(crate) struct Core {
    pub(crate) options: MemTableOptions,
    pub(crate) comparator: KeyComparator,
    pub(crate) arena: Arena,
    /// The list of point entries.
    pub(crate) points: List,
    pub(crate) tombstones: RangeTombstones,
    pub(crate) shards: WriterShards,
    /// The filters of whole keys and of prefixes.
    pub(crate) filters: Filters,
    /// Counts and digest sums, sealed by the freeze.
    pub(crate) sealed: OnceLock<Totals>,
    /// Whether `mark_for_flush` was called: 0 or 1.
    pub(crate) flush_mark: AtomicU64,
    /// Values that `attach` took. The last field, so that they are dropped after the arena.
    pub(crate) attached: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Core {
    pub(crate) fn new(options: MemTableOptions) -> Result<Arc<Self>> {
        let secret = Secret::from_seed(options.draw_seed());
        let points = List::new(
            Head::Points,
            options.paranoid.checksum_on_seek,
            options.paranoid.order_checks,
        );
        let mut core = Arc::new(Core {
            comparator: options.comparator.clone(),
            arena: Arena::new(
                options.write_buffer_size,
                options.hard_limit,
                options.paranoid.width,
                secret,
            ),
            points: if options.keeps_directory() {
                points.with_directory()
            } else {
                points
            },
            tombstones: RangeTombstones::new(&options, secret),
            shards: WriterShards::new(secret),
            filters: Filters::default(),
            sealed: OnceLock::new(),
            flush_mark: AtomicU64::new(0),
            attached: Mutex::new(Vec::new()),
            options,
        });
        if let Some(core) = Arc::get_mut(&mut core) {
            let tell = core.options.tell.clone();
            core.arena.control.heals = Heals::new(core.options.paranoid.repair, tell);
            core.arena.recycler = Weak::clone(&core.options.recycler);
            core.filters.make(&core.options, &core.arena)?;
            make_heads(&core.arena)?;
        }
        Ok(core)
    }

    /// The arena and the comparator, which methods of the lists and indexes take.
    #[inline(always)]
    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground {
            arena: &self.arena,
            comparator: &self.comparator,
        }
    }

    /// A search among the point entries.
    #[inline(always)]
    pub(crate) fn point_search(&self) -> Result<Search<'_>, Corruption> {
        Ok(self.points.search(self.arena.view()?, &self.comparator))
    }

    /// Whether keys are ordered by their bytes, and digests are stored whole.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        let orders = (self.comparator.key_order(), self.comparator.equality());
        orders == (KeyOrder::Bytes, KeyEquality::Bytes) && self.arena.has_whole_digests()
    }

    /// A search among the range tombstones.
    #[inline]
    pub(crate) fn range_search(&self) -> Result<Search<'_>, Corruption> {
        self.tombstones.search(self.ground())
    }

    /// The sequence number of the newest range tombstone over the question's key.
    #[inline(always)]
    pub(crate) fn covering(
        &self,
        question: Question<'_>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        self.tombstones.covering(self.ground(), question)
    }

    /// Whether a tombstone is known to be newer than all point entries in its interval, so that a
    /// snapshot that sees the tombstone sees none of them.
    pub(crate) fn is_dead(&self, run: &CoveringRun) -> bool {
        // Strictly newer: a tombstone does not cover entries with its own sequence number.
        !run.is_empty() && run.sequence > self.shards.largest_under(run)
    }

    /// Calls `visit` with every group of control words. If the arena's secret is damaged, only with
    /// the arena's own words.
    pub(crate) fn each_control(&self, visit: &mut dyn FnMut(Words<'_>)) {
        visit(self.arena.control.words());
        if let Ok(secret) = self.arena.control.secret() {
            self.filters
                .parts(secret)
                .for_each(|(parts, salt)| visit(parts.control_words(salt)));
            self.shards.each_control(secret, visit);
        }
    }

    /// Puts right every control word of the arena and of the filters of which one copy is damaged.
    pub(crate) fn heal_control(&self) {
        let control = &self.arena.control;
        if control.check().is_ok()
            && let Ok(secret) = control.secret()
        {
            self.filters
                .parts(secret)
                .for_each(|(parts, salt)| parts.heal(&control.heals, salt));
        }
    }

    /// Compares the sums of a full pass with the sums that the freeze sealed. Does nothing in a
    /// table that is not frozen.
    pub(crate) fn compare_sums(&self, seen: &Totals) -> Result<(), Corruption> {
        self.sealed
            .get()
            .map_or(Ok(()), |sealed| seen.compare(sealed))
    }

    /// Whether the table is frozen. A damaged flag counts as frozen, which loses no entry; the next
    /// write reports the damage.
    pub(crate) fn is_frozen(&self) -> bool {
        !matches!(self.arena.control.get(ControlWord::FROZEN), Ok(0))
    }

    /// Bytes that the arena gave to writers, and bytes of side structures and of this struct.
    pub(crate) fn taken_bytes(&self) -> u64 {
        let sides = self
            .tombstones
            .live
            .allocated_bytes()
            .saturating_add(self.shards.heap_bytes())
            .saturating_add(self.filters.heap_bytes())
            .saturating_add(self.arena.healed.bytes());
        self.arena
            .limit
            .taken_bytes()
            .saturating_add(sides)
            .saturating_add(size_of::<Core>() as u64)
    }

    /// Bytes of allocated memory: the taken bytes, and the rest of small chunks.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.taken_bytes()
            .saturating_add(self.arena.free_small_bytes())
    }

    /// The most bytes of allocated memory that the table has once it is frozen.
    pub(crate) fn bytes_once_frozen(&self) -> u64 {
        self.allocated_bytes()
            .saturating_add(self.tombstones.freeze_bytes())
    }

    /// Reserves `bytes` of the arena, what filters take at the first write, and room for `load` in the tombstone index, both or neither.
    #[inline(always)]
    pub(crate) fn reserve(&self, inside: &mut Inside, bytes: u64, load: Load) -> Result<()> {
        self.filters.begin(&self.arena)?;
        if load != Load::default() {
            self.tombstones
                .reserve(&self.arena, &mut inside.index_room, load)?;
        }
        let reserved = self.arena.reserve(&mut inside.inserter.sub, bytes);
        reserved.map_err(|error| self.refuse(inside, load, error))
    }

    /// Gives back room in the index after the arena refused a write. Returns the error of the
    /// write.
    #[cold]
    pub(crate) fn refuse(&self, inside: &mut Inside, load: Load, error: Error) -> Error {
        self.tombstones
            .give_back(&self.arena, &mut inside.index_room);
        match error {
            Error::MemTableFull { needed, .. } => Error::MemTableFull {
                needed: needed.saturating_add(self.tombstones.bytes_for(load)),
                remaining: self.arena.limit.remaining_bytes(),
            },
            other => other,
        }
    }

    /// Whether a new entry replaces an equal one.
    #[inline(always)]
    pub(crate) fn replaces(&self) -> bool {
        self.options.duplicates == DuplicatePolicy::Replace
    }

    /// Whether the newer entry before this one replaced it.
    pub(crate) fn hidden_by(
        &self,
        newer: Option<(&[u8], SequenceNumber)>,
        entry: &Verified<'_>,
    ) -> Hidden {
        let hides = |(key, sequence)| {
            sequence == entry.sequence() && self.comparator.compare(key, entry.key()).is_eq()
        };
        if self.replaces() && newer.is_some_and(hides) {
            Hidden::Yes
        } else {
            Hidden::No
        }
    }
}
