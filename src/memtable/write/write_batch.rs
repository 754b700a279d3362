//! Batch writes: checked as a whole, then linked entry by entry.
//!
//! ```text
//!   read      every record decoded, its digest compared               nothing is touched
//!   admit     limits, kinds, ranges, sequence numbers                 nothing is touched; empty ranges and records of
//!             families that the table does not take are left out
//!   compare   duplicates inside the batch
//!   search    beside the last insert, the rest together: duplicates, damage       nothing is changed
//!   reserve   arena space for all of it
//!   link      entry by entry, each after the way that its search recorded
//! ```
//! * WRITE-BATCH-1: an error before the first link changes nothing, and every check that can be
//!   made before it is.
//! * WRITE-BATCH-2: what stops a batch later (damage that appears meanwhile, a concurrent writer
//!   that took the same key and number) is `BatchInterrupted` with the number of entries that are
//!   in. It is a plain error if there is none yet.
//! * WRITE-BATCH-3: a panic of the comparator reaches the caller. Each entry is then either linked
//!   and counted, or absent.
//! * WRITE-BATCH-4: the bracket that the search of an entry certified is used if both of its links
//!   still say what they said: one is compared here, the other one by the exchange that links the
//!   entry. Else the place is looked for anew.
//! * WRITE-BATCH-5: behind an entry that was linked, and read back or verified, nothing is looked
//!   for up to the node after it: the two are the bracket of the next entry, if that comes after
//!   the first and its search certified that it does not come after the second.
//! * WRITE-BATCH-6: `prepare` is the first three steps, and `reserve` takes space for the largest
//!   that the entries can be. So nothing after it asks for more.
//! * WRITE-BATCH-7: counts and sequence numbers are compared once more after a batch was read, and
//!   the count after it was linked, by the caller of each step, with the batch's own; an entry is
//!   left out only if that is decided twice.
//!
//! Any thread; a batch is written inside one shard. Not promised: that all entries become visible
//! at once. The engine publishes the batch's last sequence number after the call has returned.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::error::{Corruption, Error, Place, Result};
use crate::key::{Kind, SequenceNumber};
use crate::memtable::arena::control::{ControlWord, Head};
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::layout::entry_bytes_max;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::parts::writer_shards::{Entered, WriterShard};
use crate::memtable::skiplist::find_many::find_many;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::list::{DuplicatePolicy, entry_bytes};
use crate::memtable::skiplist::search::{Bracket, Search, Splice, Trail};
use crate::memtable::write::writer::{Inserted, admit, apply_any, apply_point, apply_range, enter};
use crate::tombstone::tree::Load;

/// The result of writing a batch.
///
/// ```
/// use paranoid_memtable::{MemTable, WriteBatch};
/// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
/// batch.put(b"a", b"1")?;
/// batch.delete(b"b")?;
/// let written = table.write_batch(1, &batch)?;
/// assert_eq!((written.entries, written.displaced), (2, 0));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BatchWritten {
    /// Number of entries that were inserted, without those for which an existing entry was kept.
    pub entries: u64,
    /// Arena bytes that these entries take.
    pub bytes: u64,
    /// Number of entries that they replaced (policy `Replace`).
    pub displaced: u64,
}

impl BatchWritten {
    fn add(&mut self, inserted: &Inserted) {
        self.entries += u64::from(inserted.bytes > 0);
        self.bytes += inserted.bytes;
        self.displaced += u64::from(inserted.displaced.is_some());
    }
}

/// A batch that a table has checked: what [`MemTable::prepare`](crate::MemTable::prepare) returns
/// and [`MemTable::reserve`](crate::MemTable::reserve) takes.
///
/// It borrows the batch, which so stays as it is, and the handle of the table. It may be sent to
/// other threads, and written more than once.
///
/// ```
/// use paranoid_memtable::{MemTable, WriteBatch};
/// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
/// batch.put(b"a", b"1")?;
/// batch.delete(b"b")?;
/// let prepared = table.prepare(&batch)?;
/// assert_eq!(prepared.numbers(), 2);
/// assert!(prepared.bytes() <= table.remaining());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[must_use]
pub struct PreparedBatch<'b> {
    /// The table that admitted it.
    core: &'b Core,
    batch: &'b WriteBatch,
    /// Numbered from `first` on.
    writes: Writes<'b>,
    left_out: LeftOut,
    first: SequenceNumber,
    /// An upper bound.
    arena_bytes: u64,
    load: Load,
}

impl PreparedBatch<'_> {
    /// How many sequence numbers the batch takes: one per record, empty ranges included. O(1).
    #[must_use]
    pub fn numbers(&self) -> u64 {
        self.batch.len() as u64
    }

    /// The most bytes that the batch takes of a table's hard limit: of the arena, and of the index
    /// of range tombstones. 0 if it has no entries but empty ranges. O(log n).
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.arena_bytes.saturating_add(self.load.bytes_max())
    }

    /// Gives the first entry this number, and the others those that follow.
    fn count_from(&mut self, first: SequenceNumber) -> Result<()> {
        self.batch
            .sequence_of((self.batch.len() as u64).saturating_sub(1), first)?;
        let by = first.wrapping_sub(std::mem::replace(&mut self.first, first));
        self.writes
            .iter_mut()
            .for_each(|write| write.sequence = write.sequence.wrapping_add(by));
        check_read(self.batch, first, black_box(&self.writes), &self.left_out)
    }

    /// Whether this table admits what the table that admitted the batch does.
    fn serves(&self, core: &Core) -> bool {
        let (checked, options) = (&self.core.options, &core.options);
        options.key_len_max >= checked.key_len_max
            && options.value_len_max >= checked.value_len_max
            && options.comparator.is_same(&checked.comparator)
    }
}

/// A batch with space in a table that is its own: what
/// [`MemTable::reserve`](crate::MemTable::reserve) returns. Dropped unwritten, it gives the space
/// back: that of range tombstones' index to the table, the rest to later writes in its writer
/// shard, as a rule of its own thread.
///
/// It counts as a write that is running: a freeze of the table waits for it. So keep it for a short
/// time. A thread that has one may write to the table and read it, but its `freeze` is
/// `InvalidArgument`; it must not call `scrub`, which waits for other threads' writes.
/// It stays on its thread.
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable, WriteBatch};
/// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
/// batch.put(b"apple", b"red")?;
/// let mut prepared = table.prepare(&batch)?;
/// let reserved = table.reserve(&mut prepared)?;
/// // Here the engine logs the batch. If that fails, it drops `reserved`.
/// reserved.write(7)?;
/// assert!(matches!(table.get(b"apple", 7)?, Lookup::Value(value) if *value == *b"red"));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>(_: T) {}
/// # let (table, batch) = (paranoid_memtable::MemTable::default(), paranoid_memtable::WriteBatch::new());
/// # let mut prepared = table.prepare(&batch)?;
/// send(table.reserve(&mut prepared)?);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[must_use]
pub struct ReservedBatch<'t, 'b> {
    core: &'t Core,
    entered: Entered<'t>,
    pub(crate) batch: &'t mut PreparedBatch<'b>,
}

impl ReservedBatch<'_, '_> {
    /// Writes the batch, as [`MemTable::write_batch`](crate::MemTable::write_batch) does, with
    /// space and checks behind it. Expected O(n log n). Waits for nobody. When readers may see it:
    /// [commit protocol](crate::guide::commit_protocol).
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, WriteBatch};
    /// let (table, mut batch) = (MemTable::default(), WriteBatch::new());
    /// batch.put(b"a", b"1")?;
    /// batch.delete(b"b")?;
    /// let mut prepared = table.prepare(&batch)?;
    /// let written = table.reserve(&mut prepared)?.write(7)?;
    /// assert_eq!((written.entries, table.stats().largest_sequence), (2, Some(8)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DuplicateEntry` if the table has an entry with the key and number of one in the batch,
    /// `Corruption`, and `InvalidArgument` if the numbers end beyond 2^64 - 1: the table is then
    /// unchanged. `BatchInterrupted` as from `write_batch`.
    ///
    /// # Panics
    /// If the comparator panics, as in `write_batch`.
    pub fn write(mut self, first_sequence: SequenceNumber) -> Result<BatchWritten> {
        self.batch.count_from(first_sequence)?;
        let PreparedBatch {
            batch,
            writes,
            left_out,
            ..
        } = &*self.batch;
        apply_batch(self.core, &mut self.entered, writes, left_out.of(batch))
    }
}

impl Drop for ReservedBatch<'_, '_> {
    /// What the arena gave stays in the shard, for its next writes.
    fn drop(&mut self) {
        let room = &mut self.entered.inside.index_room;
        if *room != Load::default() {
            self.core.tombstones.give_back(&self.core.arena, room);
        }
    }
}

/// The entries of a batch. One alone needs no memory of its own.
#[derive(Default)]
struct Writes<'b> {
    one: Option<Fields<'b>>,
    many: Vec<Fields<'b>>,
}

impl<'b> Writes<'b> {
    /// Adds an entry. Without room for many, the last one is kept: such a batch is refused at its
    /// end.
    #[inline(always)]
    fn push(&mut self, write: Fields<'b>) {
        if self.many.capacity() > 0 {
            self.many.push(write);
        } else {
            self.one = Some(write);
        }
    }
}

impl<'b> std::ops::Deref for Writes<'b> {
    type Target = [Fields<'b>];

    fn deref(&self) -> &Self::Target {
        if self.many.is_empty() {
            self.one.as_slice()
        } else {
            &self.many
        }
    }
}

impl std::ops::DerefMut for Writes<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        if self.many.is_empty() {
            self.one.as_mut_slice()
        } else {
            &mut self.many
        }
    }
}

/// Which records of a batch a table takes.
#[derive(Clone, Copy)]
pub(crate) enum Take {
    /// All. A batch with one outside the default column family is refused.
    All,
    /// Those of this column family. They keep the numbers that they have in the whole batch.
    Family(u32),
}

impl Take {
    /// Whether the table takes a record of this family.
    #[inline(always)]
    fn takes(self, family: u32) -> Result<bool> {
        match self {
            Take::All if family != 0 => Err(Error::InvalidArgument(format!(
                "it is of column family {family}, and write_batch_of is for batches of several families"
            ))),
            Take::All => Ok(true),
            Take::Family(wanted) => Ok(family == wanted),
        }
    }
}

/// Reads the whole batch, and admits what the table takes of it (WRITE-BATCH-1), into `writes`,
/// which are empty.
fn read_batch<'b>(
    core: &Core,
    first: SequenceNumber,
    (batch, take): (&'b WriteBatch, Take),
    writes: &mut Writes<'b>,
) -> Result<LeftOut> {
    let (mut entries, mut number, mut left_out) = (batch.reader()?, 0, LeftOut::default());
    if batch.len() > 1 {
        writes.many.reserve_exact(batch.len());
    }
    while let Some(entry) = entries.step()? {
        let sequence = batch.sequence_of(number, first)?;
        let (kind, key, value) = (entry.kind(), entry.key(), entry.value());
        let (key_part, caller_digest) = (entry.key_part, entry.caller_digest());
        let write = Fields::with_key_part(sequence, kind, (key, key_part), value, caller_digest);
        // The keys of other families are in the order of other tables.
        let is_taken = take
            .takes(entry.family())
            .map_err(|error| name(number, error))?;
        if is_taken && !deletes_nothing(core, &write) {
            admit(core, &write).map_err(|error| name(number, error))?;
            writes.push(write);
        } else {
            // Asked again: what is left out is lost.
            if black_box(take).takes(entry.family())? && !deletes_nothing(core, black_box(&write)) {
                return Err(miscounted(batch.len() as u64, writes.len() as u64));
            }
            left_out.entries += 1;
            left_out.steps = left_out.steps.wrapping_add(sequence - first);
        }
        number += 1;
    }
    Ok(left_out)
}

/// The entries of a batch that write nothing to this table: empty ranges, and those of other
/// families.
#[derive(Default)]
struct LeftOut {
    entries: usize,
    /// How far their numbers are from the first one, in sum.
    steps: u64,
}

impl LeftOut {
    /// The number of entries that a batch writes without these.
    fn of(&self, batch: &WriteBatch) -> u64 {
        black_box(batch).len().wrapping_sub(black_box(self).entries) as u64
    }
}

/// Compares what was read with what there was to read: the count, and the numbers, which no digest
/// of the caller covers: each, or their sum if entries were left out (WRITE-BATCH-7).
#[inline(always)]
fn check_read(
    batch: &WriteBatch,
    first: SequenceNumber,
    writes: &[Fields<'_>],
    left_out: &LeftOut,
) -> Result<()> {
    let agrees = writes.len() + left_out.entries == batch.len()
        && match left_out.entries {
            0 => (0..)
                .zip(writes)
                .all(|(at, write): (u64, _)| write.sequence == first + at),
            _ => steps_of(first, writes, left_out) == (0..batch.len() as u64).sum(),
        };
    if agrees {
        Ok(())
    } else {
        Err(miscounted(batch.len() as u64, writes.len() as u64))
    }
}

/// How far all numbers of a batch are from the first one, in sum.
fn steps_of(first: SequenceNumber, writes: &[Fields<'_>], left_out: &LeftOut) -> u64 {
    let steps = writes
        .iter()
        .map(|write| write.sequence.wrapping_sub(first));
    steps.fold(left_out.steps, u64::wrapping_add)
}

#[cold]
#[inline(never)]
fn miscounted(expected: u64, found: u64) -> Error {
    Corruption::new(Place::Sum, 0, expected, found).into()
}

/// Whether this is an empty range, which RocksDB logs: it takes its sequence number and nothing
/// else.
fn deletes_nothing(core: &Core, write: &Fields<'_>) -> bool {
    write.kind == Kind::RANGE_DELETE && core.comparator.compare(write.key, write.value).is_eq()
}

/// Says in which entry of a batch an invalid argument stands.
#[cold]
fn name(number: u64, error: Error) -> Error {
    match error {
        Error::InvalidArgument(text) => {
            Error::InvalidArgument(format!("entry {number} of the batch: {text}"))
        }
        other => other,
    }
}

/// What becomes of duplicates in a list. Range tombstones are never replaced.
fn policy(core: &Core, list: Head) -> DuplicatePolicy {
    if list == Head::Ranges {
        DuplicatePolicy::Reject
    } else {
        core.options.duplicates
    }
}

/// Searches the places of all entries of one list, and refuses duplicates.
fn search_batch<'a>(
    core: &'a Core,
    search: &Search<'a>,
    inserter: &mut Inserter,
    writes: &[Fields<'_>],
    ways: &mut Ways<'a>,
) -> Result<()> {
    let (near, succ) = search_near(core, search, inserter, writes)?;
    if search.list == Head::Points {
        ways.near = succ;
    }
    if near == writes.len() {
        return Ok(());
    }
    let rest = writes
        .iter()
        .enumerate()
        .filter(|(_, write)| search.list.holds(write.kind))
        .skip(near);
    let room = rest.clone().count();
    let (mut places, mut targets) = (Vec::with_capacity(room), Vec::with_capacity(room));
    for (place, write) in rest {
        places.push(place);
        targets.push(search.target(write));
    }
    if places.is_empty() {
        return Ok(());
    }
    ways.found.resize(writes.len(), None);
    let mut outcome = Ok(());
    find_many(search, &targets, &mut |index, hint| {
        let (Some(target), Some(&place)) = (targets.get(index), places.get(index)) else {
            return;
        };
        let (Some(write), Some(slot)) = (writes.get(place), ways.found.get_mut(place)) else {
            return;
        };
        let mut splice = Splice::new(search.sentinel);
        let fits = match search.find_by(hint, target, &mut Trail::from(&mut splice)) {
            Err(gap) => Err(gap.corruption.into()),
            Ok(bracket) => {
                *slot = Some((splice, bracket));
                search
                    .apply_policy(&bracket, write, policy(core, search.list))
                    .map(drop)
            }
        };
        if fits.is_err() {
            outcome = fits;
        }
    });
    outcome
}

/// Number of leading entries that are in order and between the writer's last insert and its
/// successor, and that successor: a batch that continues there needs no search. pred < first entry
/// < entry <= succ certifies each of them.
fn search_near(
    core: &Core,
    search: &Search<'_>,
    inserter: &mut Inserter,
    writes: &[Fields<'_>],
) -> Result<(usize, u32)> {
    let policy = policy(core, search.list);
    let mut writes = writes.iter().filter(|write| search.list.holds(write.kind));
    let Some(mut last) = writes.next() else {
        return Ok((0, 0));
    };
    let Some(bracket) = inserter.find_near(search, &search.target(last)) else {
        return Ok((0, 0));
    };
    let inside = |write: &Fields<'_>| {
        bracket.entry.is_none_or(|succ| {
            !succ
                .node()
                .order(search.comparator, &search.target(write))
                .is_lt()
        })
    };
    search.apply_policy(&bracket, last, policy)?;
    let mut near = 1;
    for write in writes {
        if !search.comparator.compare(last.key, write.key).is_lt() || !inside(write) {
            break;
        }
        search.apply_policy(&bracket, write, policy)?;
        (last, near) = (write, near + 1);
    }
    Ok((near, bracket.succ))
}

/// Makes every check of a batch and searches the places of its entries (WRITE-BATCH-1).
fn prepare_batch<'a>(
    core: &'a Core,
    entered: &mut Entered<'_>,
    writes: &[Fields<'_>],
) -> Result<Ways<'a>> {
    let (points, ranges) = (core.point_search()?, core.range_search()?);
    let mut ways = Ways::default();
    search_batch(
        core,
        &points,
        &mut entered.inside.inserter,
        writes,
        &mut ways,
    )?;
    let mut beside = Load::default();
    if writes.iter().any(|write| Head::Ranges.holds(write.kind)) {
        beside = load(writes);
        core.arena.control.get_or_unset(ControlWord::HAS_RANGES)?;
        let inserter = &mut entered.inside.inserter;
        search_batch(core, &ranges, inserter, writes, &mut ways)?;
    }
    let bytes = writes
        .iter()
        .map(|write| entry_bytes(&points, write, core.options.duplicates))
        .sum();
    core.reserve(&mut entered.inside, bytes, beside)?;
    Ok(ways)
}

/// What the range tombstones of a batch add to the indexes.
fn load(writes: &[Fields<'_>]) -> Load {
    let ranges = writes.iter().filter(|write| Head::Ranges.holds(write.kind));
    Load::of(ranges.count() as u64)
}

/// Writes a batch inside a shard. `expected` is the number of its entries, from elsewhere than
/// `writes`.
fn apply_batch(
    core: &Core,
    entered: &mut Entered<'_>,
    writes: &[Fields<'_>],
    expected: u64,
) -> Result<BatchWritten> {
    let (mut written, mut applied) = (BatchWritten::default(), 0);
    let mut count = |inserted: &Inserted| {
        written.add(inserted);
        applied += 1;
    };
    let linked = match writes {
        // An insert has the same checks before its link, and its own search.
        [write] => apply_any(core, entered, write).map(|inserted| count(&inserted)),
        _ => prepare_batch(core, entered, writes)
            .and_then(|ways| link_batch(core, entered, writes, &ways, &mut count)),
    };
    match linked {
        Ok(()) if applied == black_box(expected) => Ok(written),
        Ok(()) => {
            let cause = Box::new(miscounted(expected, applied));
            Err(Error::BatchInterrupted { applied, cause })
        }
        Err(error) if applied == 0 => Err(error),
        Err(error) => Err(Error::BatchInterrupted {
            applied,
            cause: Box::new(error),
        }),
    }
}

/// How many entries before an entry is linked the filter's line for it is prefetched.
const AHEAD: usize = 2;

/// Links the entries one after the other; calls `linked` for each.
#[inline(never)]
fn link_batch<'a>(
    core: &'a Core,
    entered: &mut Entered<'_>,
    writes: &[Fields<'_>],
    ways: &Ways<'a>,
    linked: &mut impl FnMut(&Inserted),
) -> Result<()> {
    // One look at the control words for the whole batch, after the reservation: it may have made a
    // chunk.
    let points = core.point_search()?;
    let mut bracket = Bracket {
        pred: points.sentinel,
        succ: points.sentinel,
        entry: None,
        pred_part: 0,
    };
    let mut last = None;
    for (place, write) in writes.iter().enumerate() {
        if core.accelerators.has_filters()
            && let Some(later) = writes.get(place + AHEAD)
        {
            core.accelerators.prefetch(&points.view, later.key_part);
        }
        let way = ways.found.get(place).and_then(Option::as_ref);
        if Head::Ranges.holds(write.kind) {
            if let Some((way, _)) = way {
                entered.inside.inserter.follow(&core.range_search()?, way);
            }
            linked(&apply_range(core, entered, write)?);
            last = None;
            continue;
        }
        let inserter = &mut entered.inside.inserter;
        if last
            .is_some_and(|last| is_behind(core, &points, (last, &bracket), (write, way), ways.near))
        {
            inserter.arrive();
        } else {
            bracket = arrive(&points, inserter, write, way)?;
        }
        linked(&apply_point(core, entered, &points, write, &bracket)?);
        (bracket.pred, bracket.pred_part) = (entered.inside.inserter.last(), write.key_part);
        // With a digest it was read back.
        let verifies = || points.view.try_open(bracket.pred)?.try_verify(&points.view);
        last = (write.caller_digest.is_some() || verifies().is_some()).then_some(write);
    }
    Ok(())
}

/// Whether an entry belongs right after the last linked one (WRITE-BATCH-5), as do entries in order
/// that were not searched.
#[inline(always)]
fn is_behind<'a>(
    core: &Core,
    points: &Search<'a>,
    (last, behind): (&Fields<'_>, &Bracket<'a>),
    (write, way): (&Fields<'_>, Option<&Way<'a>>),
    near: u32,
) -> bool {
    let is_certified = match way {
        Some((_, found)) => {
            found.succ == behind.succ && core.comparator.compare(last.key, write.key).is_lt()
        }
        None => near == behind.succ,
    };
    is_certified && points.stands(behind)
}

/// Moves the writer to the place of an entry, and returns the bracket there: the searched one, if
/// it is unchanged.
#[inline(always)]
fn arrive<'a>(
    points: &Search<'a>,
    inserter: &mut Inserter,
    write: &Fields<'_>,
    way: Option<&Way<'a>>,
) -> Result<Bracket<'a>> {
    if let Some((way, bracket)) = way {
        inserter.follow(points, way);
        if points.stands(bracket) {
            inserter.arrive();
            return Ok(*bracket);
        }
    }
    inserter.find(points, write)
}

/// The places of a batch's entries, as searched.
#[derive(Default)]
struct Ways<'a> {
    /// The first node that is not before the point entries that were not searched.
    near: u32,
    /// The search results of the others, by index in the batch; empty if none was searched.
    found: Vec<Option<Way<'a>>>,
}

/// The splice of a search, and the bracket that it certified.
type Way<'a> = (Splice, Bracket<'a>);

/// Writes a batch inside this shard or a free one, which is entered once the batch is checked.
pub(crate) fn write_batch(
    core: &Core,
    shard: Option<&WriterShard>,
    first_sequence: SequenceNumber,
    batch: (&WriteBatch, Take),
) -> Result<BatchWritten> {
    let mut writes = Writes::default();
    let left_out = read_batch(core, first_sequence, batch, &mut writes)?;
    // Not in `read_batch`, whose answer a processor that errs may take for `Ok`.
    check_read(batch.0, first_sequence, black_box(&writes), &left_out)?;
    apply_batch(
        core,
        &mut enter(core, shard)?,
        &writes,
        left_out.of(batch.0),
    )
}

/// Makes every check of a batch that does not depend on other writes.
#[inline]
pub(crate) fn prepare<'b>(core: &'b Core, batch: &'b WriteBatch) -> Result<PreparedBatch<'b>> {
    let mut writes = Writes::default();
    // With a first sequence number of 0 none of them overflows.
    let left_out = read_batch(core, 0, (batch, Take::All), &mut writes)?;
    let bytes =
        |write: &Fields<'_>| entry_bytes_max(write.key.len() as u64, write.value_len as u64);
    let arena_bytes = writes.iter().map(bytes).fold(0, u64::saturating_add);
    let load = load(&writes);
    Ok(PreparedBatch {
        core,
        batch,
        writes,
        left_out,
        first: 0,
        arena_bytes,
        load,
    })
}

/// Takes space for a batch in a table (WRITE-BATCH-6).
#[inline(always)]
pub(crate) fn reserve<'t, 'b>(
    core: &'t Core,
    batch: &'t mut PreparedBatch<'b>,
) -> Result<ReservedBatch<'t, 'b>> {
    if !batch.serves(core) {
        return Err(Error::InvalidArgument(
            "a batch was prepared with a table of another comparator or larger limits".into(),
        ));
    }
    let mut entered = enter(core, None)?;
    core.reserve(&mut entered.inside, batch.arena_bytes, batch.load)?;
    Ok(ReservedBatch {
        core,
        entered,
        batch,
    })
}
