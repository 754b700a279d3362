//! Resume: a set that a batch has stopped takes writes again, without that batch and those after it.
//!
//! ```text
//!   tables      .. 4 (..=90)   5 (91..=120)   6 (121..)        stop at 105; the last number taken is 130
//!   affected                   5, 6
//!   resumed     .. 4           7 (91..=104, copied and verified; 131..)        105..=130 are abandoned
//! ```
//! * RESUME-1: it waits until every batch that has numbers has ended, so that nothing is written to the affected tables
//!   any more.
//! * RESUME-2: what is below the stop is copied by a verifying flush of its table. If that meets damage the table is set
//!   aside: it ends below the stop, is flushed or salvaged up to there, and the set stays read-only until it is gone.
//! * RESUME-3: the journal knows that the numbers are abandoned before one after them is given, and keeps what the copied
//!   entries were logged in until their new table is flushed (COMMIT-5).
//! * RESUME-4: the table that was active is closed below the stop before the abandoned numbers count as visible. So no
//!   view of the former tables reads at one of them.
//! * RESUME-5: tables that a flush found damaged are gone, replaced by a base with what was salvaged of them.
//!
//! Any thread; readers go on.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::digest::Protected;
use crate::key::SequenceNumber;
use crate::memtable::lifecycle::flush::{Came, FlushEntry, FlushIter, HiddenVersions};
use crate::memtable::table::MemTable;
use crate::set::commit::{Commit, Shared};
use crate::set::publication::Pointers;
use crate::set::tables::{Slot, Tables};
use crate::set::write_buffer_manager::Phase;

/// Makes the set take writes again. Returns the abandoned numbers, first and last, if there are any.
pub(crate) fn resume<B>(shared: &Shared<B>) -> Result<Option<(SequenceNumber, SequenceNumber)>> {
    let mut commit = shared.commit.lock();
    // RESUME-5.
    if let Some(refusal) = commit.refusal.as_ref().filter(|_| commit.damaged.is_some()) {
        return Err(refusal.clone());
    }
    // RESUME-1: the commit mutex is held, so no number is given meanwhile.
    let Some(stop) = shared.registry.publication.settle(commit.last) else {
        if commit.refusal.is_some() {
            shared.replace_active(&mut commit)?;
            commit.refusal = None;
            shared.syncs.restart();
        }
        return Ok(None);
    };
    let table = shared.fork()?;
    // The table that has numbers on both sides of the stop. Older ones stay, later ones have abandoned numbers alone.
    let affected = commit.tables.newest_first().filter(|slot| slot.last.get() >= stop.first);
    if let Some(slot) = affected.min_by_key(|slot| slot.number).map(Arc::clone)
        && let Err(error) = copy_below(&table, &slot, stop.first, &shared.registry.numbers())
    {
        let cause = Error::read_only(error);
        if cause.corruption().is_some() {
            set_aside(shared, &mut commit, &slot, stop.first, &cause)?;
        }
        return Err(cause);
    }
    // RESUME-3.
    let number = shared.switch_journal(&mut commit)?;
    if let Some(journal) = shared.journal() {
        journal.abandon(stop.first, commit.last)?;
    }
    let slot = Slot::new(number, table, shared.buffers.count_table());
    exchange(shared, &mut commit, &slot, stop.first);
    slot.count(Phase::Active);
    let before = commit.tables.immutables.first().map_or(0, |slot| slot.last.get());
    commit.closed = if slot.table.is_empty() { commit.last } else { before };
    commit.replayed = Some(slot.number);
    commit.refusal = None;
    shared.syncs.restart();
    shared.registry.publication.restart(commit.last);
    Ok(Some((stop.first, commit.last)))
}

/// Copies what a table has below the stop, verified (RESUME-2). Versions that neither a snapshot nor a read below the
/// stop sees are left out.
fn copy_below(to: &MemTable, slot: &Slot, first: SequenceNumber, snapshots: &[SequenceNumber]) -> Result<()> {
    slot.table.freeze()?;
    let mut seen = snapshots.to_vec();
    seen.push(first - 1);
    let mut items = FlushIter::new(slot.table.core(), &seen, HiddenVersions::Drop)?;
    while let Some(Came::Entry { sequence, kind, protection }) = items.next_entry()? {
        let entry = items.hand_out(sequence, kind, protection);
        if entry.sequence < first {
            copy_entry(to, &entry)?;
        }
    }
    items.end_uncut(|start, end, sequence| match sequence {
        _ if sequence >= first => Ok(()),
        _ => to.delete_range(sequence, start, end).map(drop),
    })
}

/// Copies an entry: what the new table computes over its own bytes is compared with what the old one stored.
fn copy_entry(to: &MemTable, entry: &FlushEntry<'_>) -> Result<()> {
    let FlushEntry { user_key, sequence, kind, value, protection } = *entry;
    let digest = Protected::of(user_key, value, kind);
    if protection.check(user_key, value, sequence, kind).is_none() {
        return Err(Corruption::new(Place::Value, 0, 0, 0).with_sequence(sequence).into());
    }
    to.insert_parts(sequence, kind, user_key, &[value], Some(digest)).map(drop)
}

/// Leaves a damaged table to a flush, up to the stop, and puts an empty one in the place of the affected ones (RESUME-2).
fn set_aside<B>(
    shared: &Shared<B>,
    commit: &mut Commit<B>,
    slot: &Slot,
    first: SequenceNumber,
    cause: &Error,
) -> Result<()> {
    let next = shared.next_slot(commit)?;
    slot.last.close(first - 1);
    exchange(shared, commit, &next, first);
    slot.bytes.seal(slot.table.core().bytes_once_frozen(), &next.bytes);
    commit.closed = commit.last;
    commit.refusal = Some(cause.clone());
    commit.damaged = commit.damaged.max(Some(slot.number));
    Ok(())
}

/// Replaces the tables that do not end below the stop.
fn exchange<B>(shared: &Shared<B>, commit: &mut Commit<B>, active: &Arc<Slot>, first: SequenceNumber) {
    let former = commit.tables.newest_first().map(Arc::clone);
    let (immutables, affected): (Vec<_>, Vec<_>) = former.partition(|slot| slot.last.get() < first);
    // RESUME-4.
    commit.tables.active.last.close(first - 1);
    affected.iter().for_each(|slot| slot.count(Phase::Pinned));
    let (active, base) = (Arc::clone(active), Arc::clone(&commit.tables.base));
    commit.unasked = 0;
    commit.active = Pointers::to(&active);
    commit.tables = Arc::new(Tables { active, immutables, base });
    drop(shared.tables.swap(&commit.tables));
}
