//! Finds the newest visible entry of a key: asks the filter, then the list.
//!
//! ```text
//!   K(key) -> filter "absent" ------------------> no entry
//!               | perhaps
//!             list, certified ------------------> entry or none
//! ```
//! * FIND-ENTRY-1: what is found here is the newest visible entry as stored. The caller asks range tombstones,
//!   whatever the filter answered.
//! * FIND-ENTRY-2: a key is in the filter before its entry is published.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::integrity::options::SeekChecks;
use crate::key::{SequenceNumber, Target};
use crate::memtable::core::Core;
use crate::memtable::lookup::accelerators::{Shortcuts, hash_of};
use crate::memtable::lookup::filter::{Answer, Bits};
use crate::memtable::lookup::statistics::Event;
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::{Bracket, Gap, Search, Tally};

/// The newest entry of `key` at or below `snapshot`, as stored (FIND-ENTRY-1).
#[inline(always)]
pub(crate) fn locate<'a>(
    core: &Core,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Verified<'a>>> {
    let entry = match core.accelerators.shortcuts() {
        Shortcuts::Some => locate_by_filter(core, search, key, snapshot)?,
        Shortcuts::None => search_list(core, search, key, snapshot)?,
    };
    if core.accelerators.statistics.is_some() {
        count_lookup(core, u64::from(entry.is_some()));
    }
    Ok(entry)
}

#[inline(always)]
fn search_list<'a>(
    core: &Core,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Verified<'a>>> {
    if core.accelerators.statistics.is_some() {
        return search_list_and_count(core, search, key, snapshot);
    }
    newest(core, search, key, snapshot)
}

#[cold]
fn search_list_and_count<'a>(
    core: &Core,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Verified<'a>>> {
    let mut tally = Tally::default();
    let found = search.find(&Target::new(&core.comparator, key, snapshot), &mut tally);
    count_search(core, search, &found, &tally);
    // `newest` decides whether the gap matters for this key.
    let Ok(bracket) = found else { return newest(core, search, key, snapshot) };
    Ok(bracket.entry.filter(|entry| core.comparator.are_equal(entry.key(), key)))
}

/// Counts a search of the list.
#[cold]
pub(crate) fn count_search(
    core: &Core,
    search: &Search<'_>,
    found: &Result<Bracket<'_>, Gap>,
    tally: &Tally,
) {
    core.accelerators.count(Event::ListSearch, 1);
    core.accelerators.count(Event::NodeVisited, u64::from(tally.nodes));
    let on_the_way = if search.seek_checks == SeekChecks::EveryNode { u64::from(tally.nodes) } else { 0 };
    let ends = found
        .as_ref()
        .map_or(0, |bracket| u64::from(bracket.pred != search.sentinel) + u64::from(bracket.entry.is_some()));
    count_digests(core, &search.view, on_the_way + ends);
}

/// Counts digests that were verified, if there are any.
#[inline]
pub(crate) fn count_digests(core: &Core, view: &View<'_>, count: u64) {
    if core.accelerators.statistics.is_some() && view.width.bytes() > 0 {
        core.accelerators.count(Event::DigestVerified, count);
    }
}

/// Filter, then list.
fn locate_by_filter<'a>(
    core: &Core,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Verified<'a>>> {
    let bits = core.accelerators.bits(search.view.secret, key, hash_of(key));
    if is_filtered(core, &search.view, bits) {
        return Ok(None);
    }
    let entry = search_list(core, search, key, snapshot)?;
    if entry.is_none() && bits.is_some() {
        core.accelerators.count(Event::FilterFalsePositive, 1);
    }
    Ok(entry)
}

/// Whether the filter says that no entry has the key with these bits.
#[inline(always)]
pub(crate) fn is_filtered(core: &Core, view: &View<'_>, bits: Option<Bits>) -> bool {
    let is_absent = bits.is_some_and(|bits| bits.ask(view) == Answer::Absent);
    if is_absent {
        core.accelerators.count(Event::FilterNegative, 1);
    }
    is_absent
}

#[cold]
pub(crate) fn count_lookup(core: &Core, hits: u64) {
    core.accelerators.count(Event::Get, 1);
    core.accelerators.count(Event::Hit, hits);
}

/// The newest entry of `key` at or below `snapshot`, as stored.
#[inline]
pub(crate) fn newest<'a>(
    core: &Core,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Verified<'a>>> {
    let target = Target::new(&core.comparator, key, snapshot);
    let after = match search.find_at_or_after(&target) {
        Ok(after) => after,
        Err(gap) => past_gap(core, search, gap, key)?,
    };
    Ok(after.filter(|entry| core.comparator.are_equal(entry.key(), key)))
}

/// The entry after a gap, if no damaged entry in the gap can have this key.
#[cold]
fn past_gap<'a>(core: &Core, search: &Search<'a>, gap: Gap, key: &[u8]) -> Result<Option<Verified<'a>>, Gap> {
    search.past_gap(gap, |damaged, _| !core.comparator.are_equal(damaged, key))
}

/// The next older version of a key, with replaced entries skipped.
pub(crate) fn older<'a>(
    core: &Core,
    search: &Search<'a>,
    entry: &Verified<'a>,
) -> Result<Option<Verified<'a>>> {
    let mut at = entry.offset();
    loop {
        let next = match search.next(at) {
            Ok(next) => next,
            Err(gap) => past_gap(core, search, gap, entry.key())?,
        };
        let Some(next) = next else { return Ok(None) };
        if !core.comparator.are_equal(next.key(), entry.key()) {
            return Ok(None);
        }
        let replaces = core.points.replaces();
        if !replaces || next.node().sequence() != entry.node().sequence() {
            return Ok(Some(next));
        }
        at = next.offset();
    }
}
