//! Batch writes: the entries of a checked batch are searched, get space, and are linked one by one.
//!
//! ```text
//!   read_batch.rs   read and admit
//!   search          beside the last insert, the rest together: finds duplicates and damage
//!   reserve         arena space for all entries
//!   link            entry by entry, each along the splice that its search recorded
//! ```
//! An error before the first link changes nothing, and every check that is possible before it is
//! made before it. After the first link, damage that appears or another writer's equal entry ends
//! the batch with `BatchInterrupted`, which has the number of written entries. A panic of the
//! comparator reaches the caller; each entry is then either linked and counted, or absent.
//!
//! Any thread; a batch is written inside one shard. Not promised: that all entries become visible
//! at once. The engine publishes the batch's last sequence number after the call has returned.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::error::{Error, Result};
use crate::key::SequenceNumber;
use crate::memtable::arena::control_block::ControlWord;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::shards::writer_shard::{Entered, WriterShard};
use crate::memtable::skiplist::bracket::Bracket;
use crate::memtable::skiplist::find_many::find_many;
use crate::memtable::skiplist::insert::entry_bytes;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::{Splice, Trail};
use crate::memtable::write::insert::{Inserted, apply_any, apply_point, apply_range, enter, mark};
use crate::memtable::write::read_batch::{Take, Writes, check_read, load, miscounted, read_batch};
use crate::tombstone::capacity::Load;

/// The result of a batch write.
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
    /// The number of inserted entries, without those for which an existing entry was kept.
    pub entries: u64,
    /// Arena bytes that these entries take.
    pub bytes: u64,
    /// The number of entries that they replaced (policy `Replace`).
    pub displaced: u64,
}

impl BatchWritten {
    fn add(&mut self, inserted: &Inserted) {
        self.entries += u64::from(inserted.bytes > 0);
        self.bytes += inserted.bytes;
        self.displaced += u64::from(inserted.displaced.is_some());
    }
}

/// The policy for duplicates in a list. Range tombstones are never replaced.
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
        let fits = match search.bracket_from(hint, target, &mut Trail::from(&mut splice)) {
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

/// Returns how many leading entries are in order between the writer's last insert and its
/// successor, and that successor. They need no search: pred < first entry < entry <= succ certifies
/// each of them.
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
    let Some(bracket) = inserter.bracket_beside_last(search, &search.target(last)) else {
        return Ok((0, 0));
    };
    let inside = |write: &Fields<'_>| {
        bracket
            .entry
            .is_none_or(|succ| !succ.order(search.comparator, &search.target(write)).is_lt())
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

/// Makes every check of a batch that needs the table, searches the places of its entries, and
/// reserves their space.
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

/// Writes a batch inside a shard. `expected` is the number of its entries, computed from the batch
/// and not from `writes` (WRITE-BATCH-1).
pub(crate) fn apply_batch(
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
        // A single insert makes the same checks before its link, and searches by itself.
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

/// How far ahead of the entry that is being linked the bits in the filter are chosen and their lines
/// prefetched, in entries.
const AHEAD: usize = 2;

/// Links the entries one after the other, and calls `linked` for each.
#[inline(never)]
fn link_batch<'a>(
    core: &'a Core,
    entered: &mut Entered<'_>,
    writes: &[Fields<'_>],
    ways: &Ways<'a>,
    linked: &mut impl FnMut(&Inserted),
) -> Result<()> {
    // The view is made once for the whole batch, after the reservation, which may have made a
    // chunk.
    let points = core.point_search()?;
    let mut bracket = Bracket {
        pred: points.sentinel,
        succ: points.sentinel,
        entry: None,
        pred_part: 0,
    };
    let mut last = None;
    // The bits of this write and of the next ones.
    let mut marks = [None; AHEAD + 1];
    for (place, write) in writes.iter().take(AHEAD).enumerate() {
        marks[place] = mark(core, &points.view, write)?;
    }
    for (place, write) in writes.iter().enumerate() {
        marks[(place + AHEAD) % marks.len()] = match writes.get(place + AHEAD) {
            Some(later) => mark(core, &points.view, later)?,
            None => None,
        };
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
            .is_some_and(|last| follows(core, &points, (last, &bracket), (write, way), ways.near))
        {
            inserter.arrive();
        } else {
            bracket = arrive(&points, inserter, write, way)?;
        }
        let mark = marks[place % marks.len()].as_ref();
        linked(&apply_point(core, entered, &points, write, mark, &bracket)?);
        (bracket.pred, bracket.pred_part) = (entered.inside.inserter.last(), write.key_part);
        // A node with a caller's digest was read back when it was encoded; another one is verified.
        let verifies = || points.view.try_open(bracket.pred)?.try_verify(&points.view);
        last = (write.caller_digest.is_some() || verifies().is_some()).then_some(write);
    }
    Ok(())
}

/// Whether an entry belongs right after the last linked entry, so that it needs no search. `after`
/// is the bracket of the last linked entry and the node after it. The entry comes after the first;
/// its search, or `near` for entries in order without a search, certifies that it does not come
/// after the second.
#[inline(always)]
fn follows<'a>(
    core: &Core,
    points: &Search<'a>,
    (last, after): (&Fields<'_>, &Bracket<'a>),
    (write, way): (&Fields<'_>, Option<&Way<'a>>),
    near: u32,
) -> bool {
    let is_certified = match way {
        Some((_, found)) => {
            found.succ == after.succ && core.comparator.compare(last.key, write.key).is_lt()
        }
        None => near == after.succ,
    };
    is_certified && points.is_unchanged(after)
}

/// Moves the writer to the place of an entry, and returns the bracket there. The bracket of the
/// entry's search is used if both of its links are unchanged: one is compared here, the other by
/// the exchange that links the entry. Else the place is searched again.
#[inline(always)]
fn arrive<'a>(
    points: &Search<'a>,
    inserter: &mut Inserter,
    write: &Fields<'_>,
    way: Option<&Way<'a>>,
) -> Result<Bracket<'a>> {
    if let Some((way, bracket)) = way {
        inserter.follow(points, way);
        if points.is_unchanged(bracket) {
            inserter.arrive();
            return Ok(*bracket);
        }
    }
    inserter.bracket(points, write)
}

/// The places of a batch's entries, as searched.
#[derive(Default)]
struct Ways<'a> {
    /// The node after the place of the leading point entries, which were not searched.
    near: u32,
    /// The search results of the other entries, by index in the batch; empty if none was searched.
    found: Vec<Option<Way<'a>>>,
}

/// The splice of a search, and the bracket that it certified.
type Way<'a> = (Splice, Bracket<'a>);

/// Writes a batch inside this leased shard or a free one. The shard is entered after the batch is
/// read.
pub(crate) fn write_batch(
    core: &Core,
    shard: Option<&WriterShard>,
    first_sequence: SequenceNumber,
    batch: &WriteBatch,
    take: Take,
) -> Result<BatchWritten> {
    let mut writes = Writes::default();
    let left_out = read_batch(core, first_sequence, batch, take, &mut writes)?;
    // Here and not in `read_batch`: a processor error may turn an `Err` of that call into `Ok`.
    check_read(batch, first_sequence, black_box(&writes), &left_out)?;
    apply_batch(core, &mut enter(core, shard)?, &writes, left_out.of(batch))
}
