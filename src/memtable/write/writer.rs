//! Writes: admit, protect, encode, verify, insert, account.
//!
//! * WRITER-1: arguments are checked before anything is touched; an error changes nothing.
//! * WRITER-2: a range tombstone is in its list before it is in the index, and in the index before
//!   the call returns.
//!
//! Who may call what: methods of `MemTable` from any thread; a `Writer` is `Send` and belongs to
//! one thread at a time.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::error::{Corruption, Error, Place, Result, not_a_range};
use crate::integrity::digest::{Kvos, Protected};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::arena::arena::View;
use crate::memtable::arena::control::ControlWord;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::layout::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::memtable::batch::admit::{Limits, admit_lengths};
use crate::memtable::core::Core;
use crate::memtable::options::MemTableOptions;
use crate::memtable::parts::writer_shards::{Entered, Totals, WriterShard};
use crate::memtable::skiplist::list::{DuplicatePolicy, Placement, Quick};
use crate::memtable::skiplist::node_space::NodeSpace;
use crate::memtable::skiplist::search::{Bracket, Search};
use crate::tombstone::tree::Load;

/// The result of an insert.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// let inserted = table.put(1, b"key", b"value")?;
/// assert!(inserted.bytes > 0 && inserted.displaced.is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inserted {
    /// Arena bytes that the entry takes.
    pub bytes: u64,
    /// The entry that was replaced (policy `Replace`).
    pub displaced: Option<Displaced>,
}

/// An entry that was replaced, and that reads which start later do not see.
///
/// ```
/// use paranoid_memtable::{DuplicatePolicy, Kind, MemTable, MemTableOptions};
/// let options = MemTableOptions::builder().duplicates(DuplicatePolicy::Replace).build()?;
/// let table = MemTable::new(options)?;
/// table.put(1, b"key", b"first")?;
/// let displaced = table.delete(1, b"key")?.displaced.expect("an equal entry");
/// assert_eq!((displaced.kind, displaced.data_bytes), (Kind::PUT, 8));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Displaced {
    /// The kind of the replaced entry.
    pub kind: Kind,
    /// Bytes of its key and value.
    pub data_bytes: u64,
}

/// Checks what can be checked without the table (WRITER-1), field by field: so entries stay in
/// registers.
#[inline(always)]
pub(crate) fn admit(core: &Core, write: &Fields<'_>) -> Result<()> {
    let Fields {
        kind,
        key,
        value,
        value_len,
        ..
    } = *write;
    let fits = key.len() as u64 <= core.options.key_len_max
        && value_len as u64 <= core.options.value_len_max;
    if fits && kind == Kind::PUT {
        Ok(())
    } else {
        admit_any(core, kind, key, value, value_len)
    }
}

#[inline(never)]
fn admit_any(core: &Core, kind: Kind, key: &[u8], value: &[u8], value_len: usize) -> Result<()> {
    let MemTableOptions {
        key_len_max,
        value_len_max,
        ..
    } = core.options;
    admit_lengths(
        kind,
        key.len(),
        value_len,
        Limits {
            key_len_max,
            value_len_max,
        },
    )?;
    let is_range = kind == Kind::RANGE_DELETE;
    if is_range && core.comparator.compare(key, value).is_ge() {
        return Err(not_a_range());
    }
    Ok(())
}

/// One write inside a shard.
#[inline(always)]
fn apply(core: &Core, entered: &mut Entered<'_>, write: &Fields<'_>) -> Result<Inserted> {
    if let Kind::RANGE_DELETE = write.kind {
        return apply_range(core, entered, write);
    }
    let search = core.point_search()?;
    if core.accelerators.has_filters() {
        core.accelerators.prefetch(&search.view, write.key_part);
    }
    let inserter = &mut entered.inside.inserter;
    // Not by `find`, whose result would be copied once more.
    let target = search.target(write);
    let bracket = match inserter.find_beside_last(&search, &target) {
        Some(bracket) => bracket,
        None => inserter.find_elsewhere(&search, &target)?,
    };
    apply_point(core, entered, &search, write, &bracket)
}

/// Inserts a point entry: between two nodes that a search has certified.
#[inline(always)]
pub(crate) fn apply_point<'a>(
    core: &Core,
    entered: &mut Entered<'_>,
    search: &Search<'a>,
    write: &Fields<'_>,
    bracket: &Bracket<'a>,
) -> Result<Inserted> {
    let announce = || announce(core, &search.view, write);
    let inserter = &mut entered.inside.inserter;
    let quick = core
        .points
        .insert_between(search, inserter, write, bracket, announce)?;
    let Placement {
        digest,
        bytes,
        tower,
        ..
    } = match quick {
        Quick::Placed(placement) => placement,
        Quick::Not(space) => return apply_point_any(core, entered, search, write, space),
    };
    entered.learn(&core.shards.watches);
    entered.count(
        &Totals::of(write.kind, write.data_bytes(), digest),
        write.sequence,
    );
    entered.note_point(&search.view, &core.comparator, write.key, write.sequence);
    core.points
        .link_tower(search, &mut entered.inside.inserter, write, tower);
    Ok(Inserted {
        bytes,
        displaced: None,
    })
}

/// Adds an entry that is not published yet to the filters.
#[inline(always)]
fn announce(core: &Core, view: &View<'_>, write: &Fields<'_>) -> Result<(), Corruption> {
    if core.accelerators.has_filters() {
        core.accelerators
            .announce(view, write.key, write.key_part)?;
    }
    Ok(())
}

/// Inserts a point entry that has an equal one in the table, or that lost a race.
#[inline(never)]
fn apply_point_any(
    core: &Core,
    entered: &mut Entered<'_>,
    search: &Search<'_>,
    write: &Fields<'_>,
    space: Option<NodeSpace>,
) -> Result<Inserted> {
    announce(core, &search.view, write)?;
    let inserter = &mut entered.inside.inserter;
    let placement =
        core.points
            .insert_any(search, inserter, write, core.options.duplicates, space)?;
    entered.learn(&core.shards.watches);
    let inserted = account(entered, &placement, write, &search.view);
    entered.note_point(&search.view, &core.comparator, write.key, write.sequence);
    core.points
        .link_tower(search, &mut entered.inside.inserter, write, placement.tower);
    Ok(inserted)
}

/// Inserts a range tombstone. One with an equal start and sequence number is never replaced,
/// because reads may have used it.
#[cold]
#[inline(never)]
pub(crate) fn apply_range(
    core: &Core,
    entered: &mut Entered<'_>,
    write: &Fields<'_>,
) -> Result<Inserted> {
    // Asked again: a put among the range tombstones would hide keys.
    if black_box(write).kind != Kind::RANGE_DELETE {
        return Err(Corruption::new(Place::Header, 0, 0, 0)
            .with_sequence(write.sequence)
            .into());
    }
    // Checked before anything is changed (WRITER-1).
    core.arena.control.get_or_unset(ControlWord::HAS_RANGES)?;
    let search = core.range_search()?;
    let load = Load::of(1);
    core.tombstones
        .reserve(&core.arena, &mut entered.inside.index_room, load)?;
    let inserter = &mut entered.inside.inserter;
    let placement =
        core.tombstones
            .list
            .insert_any(&search, inserter, write, DuplicatePolicy::Reject, None);
    let placement = placement.map_err(|error| core.refuse(&mut entered.inside, load, error))?;
    let room = &mut entered.inside.index_room;
    *room = room.without(load);
    // The flag is set first: from here on reads ask the index, which lacks only tombstones whose
    // insert has not returned (WRITER-2).
    for control in [&core.arena.control, black_box(&core.arena.control)] {
        if control.get(ControlWord::HAS_RANGES) != Ok(1) {
            control.set(ControlWord::HAS_RANGES, 1);
        }
    }
    // Counted before the comparator runs again, because it may panic.
    let inserted = account(entered, &placement, write, &search.view);
    let node = placement.tower.node;
    if let Some(number) = core.tombstones.index(core.ground(), write, node) {
        core.shards.watches.add(number, node);
    }
    core.tombstones.list.link_tower(
        &search,
        &mut entered.inside.inserter,
        write,
        placement.tower,
    );
    Ok(inserted)
}

/// Counts an insert.
fn account(
    entered: &Entered<'_>,
    placement: &Placement<'_>,
    write: &Fields<'_>,
    view: &View<'_>,
) -> Inserted {
    let change = Totals::of(write.kind, write.data_bytes(), placement.digest);
    let Some(old) = placement.displaced else {
        entered.count(&change, write.sequence);
        return Inserted {
            bytes: placement.bytes,
            displaced: None,
        };
    };
    let data_bytes = old.node().lengths().data_len();
    let gone = Totals::of(old.kind(), data_bytes, old.node().stored_key_digest(view)).negated();
    entered.count(
        &Totals {
            displaced: 1,
            ..change.plus(&gone)
        },
        write.sequence,
    );
    Inserted {
        bytes: placement.bytes,
        displaced: Some(Displaced {
            kind: old.kind(),
            data_bytes,
        }),
    }
}

/// The writing methods of both [`MemTable`] and [`Writer`].
macro_rules! writes {
    ($self:ident: $receiver:ty, $core:expr, $shard:expr) => {
        /// Inserts an entry. Expected O(log n), and O(1) if the entry follows the one that its
        /// writer shard inserted last. Once it has returned, every read at a snapshot of at least
        /// `sequence` sees the entry.
        ///
        /// ```
        /// use paranoid_memtable::{Error, Kind, MemTable};
        /// let table = MemTable::default();
        /// table.insert(1, Kind::custom(3), b"key", b"address of a blob")?;
        /// assert_eq!(table.get_entry(b"key", 1)?.map(|entry| entry.kind()), Some(Kind::custom(3)));
        /// assert!(matches!(table.insert(1, Kind::PUT, b"key", b""), Err(Error::DuplicateEntry { sequence: 1, .. })));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// `KeyTooLarge`, `ValueTooLarge`, `InvalidArgument` (a kind that is not known, a point
        /// delete with a value, an empty or inverted range), `Frozen`, `DuplicateEntry`,
        /// `MemTableFull`, and `Corruption` if damage hides the place of the entry. The table is
        /// then unchanged.
        ///
        /// # Panics
        /// If the comparator panics. The table stays usable, and the entry is in it or is not.
        #[inline]
        pub fn insert(
            $self: $receiver,
            sequence: SequenceNumber,
            kind: Kind,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            insert($core, $shard, sequence, kind, key.as_ref(), value.as_ref())
        }

        /// Inserts an entry in its general form: the value is the concatenation of several slices,
        /// which are copied straight into the arena, and the caller may give a digest over key,
        /// kind, whole value and sequence number. The entry equals the one that
        /// [`insert`](Self::insert) makes of the joined slices.
        ///
        /// ```
        /// use paranoid_memtable::{Error, Kind, Lookup, MemTable};
        /// use paranoid_memtable::integrity::Protected;
        /// # fn main() -> Result<(), Error> {
        /// let table = MemTable::default();
        /// table.insert_parts(1, Kind::PUT, b"key", &[b"head", b"", b"body"], None)?;
        /// assert!(matches!(table.get(b"key", 1)?, Lookup::Value(value) if &*value == b"headbody"));
        ///
        /// let digest = Protected::of(b"key", b"value", Kind::PUT);
        /// table.insert_parts(2, Kind::PUT, b"key", &[b"value"], Some(digest.with_sequence(2)))?;
        /// let damaged = table.insert_parts(3, Kind::PUT, b"key", &[b"valve"], Some(digest.with_sequence(3)));
        /// assert!(matches!(damaged, Err(Error::Corruption(_))));
        /// # Ok(()) }
        /// ```
        ///
        /// The digests are computed from the arena's bytes after the copy, and the caller's is
        /// compared with them before the entry becomes visible. A bit that flips in the caller's
        /// key is noticed without it; one that flips in the value before the copy is not.
        ///
        /// # Errors
        /// Those of [`insert`](Self::insert), where `ValueTooLarge` refers to the length of all
        /// slices together, and `Corruption` if the bytes do not have the caller's digest.
        pub fn insert_parts(
            $self: $receiver,
            sequence: SequenceNumber,
            kind: Kind,
            key: impl AsRef<[u8]>,
            value: &[&[u8]],
            caller_digest: Option<Protected<Kvos>>,
        ) -> Result<Inserted> {
            insert_parts(
                $core,
                $shard,
                sequence,
                kind,
                key.as_ref(),
                value,
                caller_digest,
            )
        }

        /// Writes the entries of a batch. The first one gets `first_sequence` and each further one
        /// the next number. Expected O(n log n). The searches of a batch overlap, so a batch is
        /// faster than its entries one by one. An empty range, which only a batch from a log can
        /// have, takes its number and writes nothing. When readers may see it: [commit
        /// protocol](crate::guide::commit_protocol).
        ///
        /// ```
        /// use paranoid_memtable::{MemTable, MemTableOptions, WriteBatch};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::new(MemTableOptions::default())?;
        /// let mut batch = WriteBatch::new();
        /// batch.put(b"apple", b"red")?;
        /// batch.delete(b"pear")?;
        /// assert_eq!(table.write_batch(7, &batch)?.entries, 2);
        /// assert_eq!(table.stats().largest_sequence, Some(8));
        /// # Ok(()) }
        /// ```
        ///
        /// # Errors
        /// Those of [`insert`](Self::insert) for any entry, `MemTableFull` if there is no
        /// contiguous room for the batch, `InvalidArgument` if an entry is of a column family other
        /// than 0 (then see [`write_batch_of`](crate::MemTable::write_batch_of)), and `Corruption`
        /// if the batch was damaged in memory: the table is then unchanged. `BatchInterrupted` if
        /// the batch stopped after its first entry was linked, because damage was found or another
        /// writer inserted one of its keys with the same sequence number. The caller must then not
        /// publish the batch's sequence numbers.
        ///
        /// # Panics
        /// If the comparator panics. The table stays usable and may have any number of the batch's
        /// entries, so the caller must not publish their sequence numbers.
        pub fn write_batch(
            $self: $receiver,
            first_sequence: SequenceNumber,
            batch: &WriteBatch,
        ) -> Result<BatchWritten> {
            write_batch($core, $shard, first_sequence, (batch, Take::All))
        }

        /// Sets a key's value from `sequence` on.
        ///
        /// ```
        /// use paranoid_memtable::{Lookup, MemTable};
        /// let table = MemTable::default();
        /// table.put(1, b"apple", b"red")?;
        /// assert!(matches!(table.get(b"apple", 1)?, Lookup::Value(value) if *value == *b"red"));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        #[inline]
        pub fn put(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::PUT, key, value)
        }

        /// Adds a merge operand.
        ///
        /// ```
        /// use paranoid_memtable::{Lookup, MemTable};
        /// let table = MemTable::default();
        /// table.merge(1, b"counter", b"+1")?;
        /// assert!(matches!(table.get(b"counter", 1)?, Lookup::Merge(_)));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        pub fn merge(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
            operand: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::MERGE, key, operand)
        }

        /// Deletes a key from `sequence` on.
        ///
        /// ```
        /// use paranoid_memtable::{Lookup, MemTable};
        /// let table = MemTable::default();
        /// table.delete(1, b"apple")?;
        /// assert!(matches!(table.get(b"apple", 1)?, Lookup::Deleted { sequence: 1, .. }));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        pub fn delete(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::DELETE, key, [])
        }

        /// Deletes a key under the condition that it was put exactly once.
        ///
        /// ```
        /// use paranoid_memtable::{Lookup, MemTable};
        /// let table = MemTable::default();
        /// table.put(1, b"apple", b"red")?;
        /// table.single_delete(2, b"apple")?;
        /// assert!(matches!(table.get(b"apple", 2)?, Lookup::Deleted { sequence: 2, .. }));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        pub fn single_delete(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::SINGLE_DELETE, key, [])
        }

        /// Deletes every entry with `start <= key < end` and a smaller sequence number.
        ///
        /// ```
        /// use paranoid_memtable::{Lookup, MemTable};
        /// let table = MemTable::default();
        /// table.put(1, b"apple", b"red")?;
        /// table.delete_range(2, b"a", b"b")?;
        /// assert!(matches!(table.get(b"apple", 2)?, Lookup::Deleted { sequence: 2, .. }));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// `InvalidArgument` for an empty or inverted range; otherwise see
        /// [`insert`](Self::insert). A tombstone is never replaced: a second one with the same
        /// start and sequence number is a duplicate under `Replace` too.
        pub fn delete_range(
            $self: $receiver,
            sequence: SequenceNumber,
            start: impl AsRef<[u8]>,
            end: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::RANGE_DELETE, start, end)
        }
    };
}

pub(crate) use writes;

/// Enters this shard, as its lessee, or a free one.
#[inline(always)]
pub(crate) fn enter<'s>(core: &'s Core, shard: Option<&'s WriterShard>) -> Result<Entered<'s>> {
    let entered = match shard {
        Some(shard) => core.shards.enter(shard),
        None => core.shards.enter_free(),
    };
    entered.ok_or_else(frozen)
}

/// The error of a write to a frozen table.
#[cold]
fn frozen() -> Error {
    Error::Frozen
}

/// Inserts an entry inside this shard or a free one.
pub(crate) fn insert(
    core: &Core,
    shard: Option<&WriterShard>,
    sequence: SequenceNumber,
    kind: Kind,
    key: &[u8],
    value: &[u8],
) -> Result<Inserted> {
    let fields = Fields::new(sequence, kind, key, value, None);
    admit(core, &fields)?;
    apply(core, &mut enter(core, shard)?, &fields)
}

/// Inserts an entry whose value is the concatenation of several slices, inside this shard or a free
/// one. The end of a range is joined first, because it is compared with the start.
pub(crate) fn insert_parts(
    core: &Core,
    shard: Option<&WriterShard>,
    sequence: SequenceNumber,
    kind: Kind,
    key: &[u8],
    slices: &[&[u8]],
    caller_digest: Option<Protected<Kvos>>,
) -> Result<Inserted> {
    let fields = Fields::of_slices(sequence, kind, key, slices, None);
    let mut fields = fields.ok_or(Error::ValueTooLarge {
        len: u64::MAX,
        max: VALUE_LEN_MAX,
    })?;
    // With the number as it was stored: the caller's digest covers it.
    let stored = black_box(&fields).sequence;
    fields.caller_digest = caller_digest.map(|digest| digest.without_sequence(stored));
    let end;
    // A longer one is refused without joining it.
    if kind == Kind::RANGE_DELETE && fields.value_len as u64 <= KEY_LEN_MAX {
        end = slices.concat();
        fields = Fields {
            value: &end,
            rest: &[],
            ..fields
        };
    }
    admit(core, &fields)?;
    apply_any(core, &mut enter(core, shard)?, &fields)
}

/// [`apply`], compiled once for calls that are rare.
#[inline(never)]
pub(crate) fn apply_any(
    core: &Core,
    entered: &mut Entered<'_>,
    write: &Fields<'_>,
) -> Result<Inserted> {
    apply(core, entered, write)
}
