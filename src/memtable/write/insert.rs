//! Insert: the write of one entry.
//!
//! ```text
//!   admit (an error changes nothing) -> enter a shard -> search -> list: encode, verify, publish
//!     a point entry ........ learn of watched tombstones -> count -> note under them -> link tower
//!     a range tombstone .... set the flag -> count -> index -> watch -> link tower
//! ```
//! Any thread; each write is inside one writer shard.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::error::{Corruption, Error, Place, Result, not_a_range};
use crate::integrity::digest::{Kvos, Protected};
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::control_block::ControlWord;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::layout::{KEY_LEN_MAX, VALUE_LEN_MAX};
use crate::memtable::batch::admit::{Limits, admit_lengths};
use crate::memtable::core::Core;
use crate::memtable::filter::bloom::{Announced, Mark};
use crate::memtable::options::MemTableOptions;
use crate::memtable::shards::totals::Totals;
use crate::memtable::shards::writer_shard::{Entered, WriterShard};
use crate::memtable::skiplist::bracket::Bracket;
use crate::memtable::skiplist::insert::{Begun, Placement, Quick};
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::skiplist::search::Search;
use crate::tombstone::capacity::Load;

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
    /// The entry that this one replaced (policy `Replace`).
    pub displaced: Option<Displaced>,
}

/// An entry that an insert replaced. Reads that begin after the insert do not see it.
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

/// Makes the checks that need no search, before the table is touched. It takes the fields one by
/// one, so that entries stay in registers.
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

/// Writes one entry inside a shard.
#[inline(always)]
fn apply(core: &Core, entered: &mut Entered<'_>, write: &Fields<'_>) -> Result<Inserted> {
    if let Kind::RANGE_DELETE = write.kind {
        return apply_range(core, entered, write);
    }
    let search = core.point_search()?;
    let mark = mark(core, &search.view, write)?;
    let inserter = &mut entered.inside.inserter;
    // These two calls do what `find` does, without one more copy of its result.
    let target = search.target(write);
    let bracket = match inserter.bracket_beside_last(&search, &target) {
        Some(bracket) => bracket,
        None => inserter.bracket_elsewhere(&search, &target)?,
    };
    apply_point(core, entered, &search, write, mark.as_ref(), &bracket)
}

/// The bits of an entry's key in the filter of whole keys; their line is prefetched.
#[inline(always)]
pub(crate) fn mark(core: &Core, view: &View<'_>, write: &Fields<'_>) -> Result<Option<Mark>> {
    if core.filters.has_filters() {
        core.filters.mark(view, write.key_part)
    } else {
        Ok(None)
    }
}

/// Inserts a point entry between the two nodes of a certified bracket. `mark` has its bits.
#[inline(always)]
pub(crate) fn apply_point<'a>(
    core: &Core,
    entered: &mut Entered<'_>,
    search: &Search<'a>,
    write: &Fields<'_>,
    mark: Option<&Mark>,
    bracket: &Bracket<'a>,
) -> Result<Inserted> {
    let mut announced = Announced::Done;
    let announce = || announce(core, &search.view, write, mark, &mut announced);
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
        Quick::Equal => {
            return apply_point_any(core, entered, search, write, mark, Begun::At(bracket));
        }
        Quick::Lost(space) => {
            return apply_point_any(core, entered, search, write, mark, Begun::Lost(space));
        }
    };
    entered.learn(&core.shards.watches);
    entered.count(
        &Totals::of(write.kind, write.data_bytes(), digest),
        write.sequence,
    );
    entered.note_point(&search.view, &core.comparator, write.key, write.sequence);
    core.points
        .link_tower(search, &mut entered.inside.inserter, write, tower);
    if announced == Announced::LookAfter {
        core.filters.grow_if_full(&search.view, mark);
    }
    Ok(Inserted {
        bytes,
        displaced: None,
    })
}

/// Adds an entry to the filters before it is published.
#[inline(always)]
fn announce(
    core: &Core,
    view: &View<'_>,
    write: &Fields<'_>,
    mark: Option<&Mark>,
    announced: &mut Announced,
) -> Result<(), Corruption> {
    if core.filters.has_filters() {
        *announced = core.filters.announce(view, write.key, mark)?;
    }
    Ok(())
}

/// Inserts a point entry whose equal is in the table, or that lost a race for its link.
#[inline(never)]
fn apply_point_any<'a>(
    core: &Core,
    entered: &mut Entered<'_>,
    search: &Search<'a>,
    write: &Fields<'_>,
    mark: Option<&Mark>,
    begun: Begun<'_, 'a>,
) -> Result<Inserted> {
    let mut announced = Announced::Done;
    announce(core, &search.view, write, mark, &mut announced)?;
    let inserter = &mut entered.inside.inserter;
    let placement =
        core.points
            .insert_any(search, inserter, write, core.options.duplicates, begun)?;
    entered.learn(&core.shards.watches);
    let inserted = account(entered, &placement, write, &search.view);
    entered.note_point(&search.view, &core.comparator, write.key, write.sequence);
    core.points
        .link_tower(search, &mut entered.inside.inserter, write, placement.tower);
    if announced == Announced::LookAfter {
        core.filters.grow_if_full(&search.view, mark);
    }
    Ok(inserted)
}

/// Inserts a range tombstone. It never replaces a tombstone with an equal start and sequence
/// number, because reads may have used that one.
#[cold]
#[inline(never)]
pub(crate) fn apply_range(
    core: &Core,
    entered: &mut Entered<'_>,
    write: &Fields<'_>,
) -> Result<Inserted> {
    // The kind is asked again: a put among the range tombstones would hide keys.
    if black_box(write).kind != Kind::RANGE_DELETE {
        return Err(Corruption::new(Place::Header, 0, 0, 0)
            .with_sequence(write.sequence)
            .into());
    }
    // A damaged flag is an error before anything is changed.
    core.arena.control.get_or_unset(ControlWord::HAS_RANGES)?;
    let search = core.range_search()?;
    let load = Load::of(1);
    core.tombstones
        .reserve(&core.arena, &mut entered.inside.index_room, load)?;
    let inserter = &mut entered.inside.inserter;
    let placement = core.tombstones.list.insert_any(
        &search,
        inserter,
        write,
        DuplicatePolicy::Reject,
        Begun::New,
    );
    let placement = placement.map_err(|error| core.refuse(&mut entered.inside, load, error))?;
    let room = &mut entered.inside.index_room;
    *room = room.without(load);
    // The flag is set before the index has the tombstone: from here on reads ask the index, which
    // lacks only tombstones whose insert has not returned.
    for control in [&core.arena.control, black_box(&core.arena.control)] {
        if control.get(ControlWord::HAS_RANGES) != Ok(1) {
            control.set(ControlWord::HAS_RANGES, 1);
        }
    }
    // The entry is counted before the comparator runs again, because the comparator may panic.
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

/// Counts an insert in the shard, and the entry that it replaced.
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
    let data_bytes = old.lengths().data_len();
    let gone = Totals::of(old.kind(), data_bytes, old.stored_key_digest(view)).negated();
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

/// Enters this leased shard, or a free one.
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

/// Inserts an entry inside this leased shard or a free one.
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

/// Inserts an entry whose value is the concatenation of several slices, inside this leased shard or
/// a free one. The end of a range is joined first, because it is compared with the start.
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
    // The caller's digest covers the sequence number, so it is compared with the number in the
    // fields.
    let stored = black_box(&fields).sequence;
    fields.caller_digest = caller_digest.map(|digest| digest.without_sequence(stored));
    let end;
    // A longer end is refused without joining it.
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

/// [`apply`], compiled once for rare calls.
#[inline(never)]
pub(crate) fn apply_any(
    core: &Core,
    entered: &mut Entered<'_>,
    write: &Fields<'_>,
) -> Result<Inserted> {
    apply(core, entered, write)
}
