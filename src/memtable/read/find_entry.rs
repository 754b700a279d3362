//! Finds the newest visible entry of a key: asks filter, index and list, in this order.
//!
//! ```text
//!   K(key) -> filter "absent" ------------------------------> no entry
//!               | perhaps
//!             index "absent" --------------------------------> no entry
//!               | newest node of the key -> visible? older ones at level 0, a few -> entry
//!               | unsure, or too many versions are too new
//!             list, certified ------------------------------> entry or none
//! ```
//! * FIND-ENTRY-1: what is found here is the newest visible entry as stored. The caller asks range tombstones,
//!   whatever filter or index answered.
//! * FIND-ENTRY-2: filter before publication, index after it, both before the insert returns.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::error::{Place, Result};
use crate::integrity::options::SeekChecks;
use crate::key::{Comparator, SequenceNumber, Target};
use crate::memtable::core::Core;
use crate::memtable::lookup::accelerators::{Shortcuts, hash_of};
use crate::memtable::lookup::filter::Answer;
use crate::memtable::lookup::point_index::{Bucket, Known};
use crate::memtable::lookup::statistics::Event;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::representation::{Ordered, Spot};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::{Bracket, Gap, Search, Tally};

/// Number of versions that are passed at level 0 before the list is searched.
const STEPS_MAX: u32 = 4;

/// The answer of the accelerators about a key at a snapshot.
pub(crate) enum Shortcut<'a> {
    Found(Spot<'a>),
    Absent,
    AskList,
}

/// The newest entry of `key` at or below `snapshot`, as stored, by the fastest source that can prove it
/// (FIND-ENTRY-1).
#[inline]
pub(crate) fn locate<'a, C: Comparator>(
    core: &Core<C>,
    order: &Order<'a, C>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Spot<'a>>> {
    let spot = match order {
        Order::List(search) if core.accelerators.shortcuts() == Shortcuts::Some => {
            locate_by_shortcut(core, search, key, snapshot)?
        }
        Order::List(search) => search_list(core, search, key, snapshot)?,
        Order::Sorted(search) => newest(core, search, key, snapshot)?,
    };
    if core.accelerators.statistics.is_some() {
        count_lookup(core, u64::from(spot.is_some()));
    }
    Ok(spot)
}

#[inline(always)]
fn search_list<'a, C: Comparator>(
    core: &Core<C>,
    search: &Search<'a, C>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Spot<'a>>> {
    if core.accelerators.statistics.is_some() {
        return search_list_and_count(core, search, key, snapshot);
    }
    newest(core, search, key, snapshot)
}

#[cold]
fn search_list_and_count<'a, C: Comparator>(
    core: &Core<C>,
    search: &Search<'a, C>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Spot<'a>>> {
    let mut tally = Tally::default();
    let found = search.find(&Target::new(&core.comparator, key, snapshot), &mut tally);
    count_search(core, search, &found, &tally);
    // `newest` decides whether the gap matters for this key.
    let Ok(bracket) = found else { return newest(core, search, key, snapshot) };
    Ok(bracket.entry.filter(|entry| core.comparator.compare(entry.key(), key).is_eq()).map(spot_of))
}

/// Counts a search of the list.
#[cold]
pub(crate) fn count_search<C: Comparator>(
    core: &Core<C>,
    search: &Search<'_, C>,
    found: &Result<Bracket<'_>, Gap>,
    tally: &Tally,
) {
    core.accelerators.count(Event::ListSearch, 1);
    core.accelerators.count(Event::NodeVisited, u64::from(tally.nodes));
    let on_the_way = if search.seek_checks == SeekChecks::EveryNode { u64::from(tally.nodes) } else { 0 };
    let ends = found
        .as_ref()
        .map_or(0, |bracket| u64::from(bracket.pred != search.sentinel) + u64::from(bracket.entry.is_some()));
    count_digests(core, search.view(), on_the_way + ends);
}

/// Counts digests that were verified, if there are any.
#[inline]
pub(crate) fn count_digests<C: Comparator>(core: &Core<C>, view: &View<'_>, count: u64) {
    if core.accelerators.statistics.is_some() && view.width.bytes() > 0 {
        core.accelerators.count(Event::DigestVerified, count);
    }
}

fn locate_by_shortcut<'a, C: Comparator>(
    core: &Core<C>,
    search: &Search<'a, C>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Spot<'a>>> {
    let (view, key_part) = (search.view(), hash_of(key));
    let bucket = core.accelerators.bucket(key_part);
    let bits = core.accelerators.bits(key, key_part);
    if let (Some(bits), Some(bucket)) = (&bits, &bucket) {
        bucket.prefetch(view);
        bits.prefetch(view);
    }
    if bits.is_some_and(|bits| bits.ask(view) == Answer::Absent) {
        core.accelerators.count(Event::FilterNegative, 1);
        return Ok(None);
    }
    let spot = locate_unfiltered(core, search, bucket, key, snapshot)?;
    if spot.is_none() && bits.is_some() {
        core.accelerators.count(Event::FilterFalsePositive, 1);
    }
    Ok(spot)
}

/// Index, then list.
#[inline(always)]
fn locate_unfiltered<'a, C: Comparator>(
    core: &Core<C>,
    search: &Search<'a, C>,
    bucket: Option<Bucket>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Spot<'a>>> {
    let view = search.view();
    let known = match bucket.and_then(|bucket| core.accelerators.look(view, bucket)) {
        Some(sight) => {
            sight.candidates().for_each(|node| search.prefetch_entry(node));
            sight.judge(view, &core.comparator, key)
        }
        None => Known::Unsure,
    };
    match visible(core, search, known, key, snapshot) {
        Shortcut::Found(spot) => Ok(Some(spot)),
        Shortcut::Absent => Ok(None),
        Shortcut::AskList => search_list(core, search, key, snapshot),
    }
}

/// The newest visible version, starting from the newest one of all, which the index knows.
#[inline(always)]
pub(crate) fn visible<'a, C: Comparator>(
    core: &Core<C>,
    search: &Search<'a, C>,
    known: Known<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Shortcut<'a> {
    match known {
        Known::Newest(entry) if entry.node().sequence() <= snapshot => {
            core.accelerators.count(Event::IndexHit, 1);
            count_digests(core, search.view(), 1);
            Shortcut::Found(spot_of(entry))
        }
        Known::Newest(entry) => visible_behind(core, search, entry, key, snapshot),
        Known::Absent => {
            core.accelerators.count(Event::IndexNegative, 1);
            Shortcut::Absent
        }
        Known::Unsure => Shortcut::AskList,
    }
}

/// Goes to older versions along level 0, because the newest one is newer than the snapshot.
fn visible_behind<'a, C: Comparator>(
    core: &Core<C>,
    search: &Search<'a, C>,
    newest: Verified<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Shortcut<'a> {
    let mut at = newest.node().offset();
    for steps in 1..=STEPS_MAX {
        // On damage the list is searched, which decides whether it matters.
        let Ok(next) = Ordered::next(search, at) else { return Shortcut::AskList };
        match next.filter(|next| core.comparator.compare(next.entry.key(), key).is_eq()) {
            Some(spot) if spot.entry.node().sequence() <= snapshot => {
                core.accelerators.count(Event::IndexHit, 1);
                core.accelerators.count(Event::Hidden, u64::from(steps));
                count_digests(core, search.view(), 1 + u64::from(steps));
                return Shortcut::Found(spot);
            }
            Some(spot) => at = spot.at,
            None => {
                core.accelerators.count(Event::IndexNegative, 1);
                return Shortcut::Absent;
            }
        }
    }
    Shortcut::AskList
}

#[cold]
pub(crate) fn count_lookup<C: Comparator>(core: &Core<C>, hits: u64) {
    core.accelerators.count(Event::Get, 1);
    core.accelerators.count(Event::Hit, hits);
}

#[inline(always)]
fn spot_of(entry: Verified<'_>) -> Spot<'_> {
    Spot { at: entry.node().offset(), entry }
}

/// The newest entry of `key` at or below `snapshot`, as stored.
#[inline]
pub(crate) fn newest<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Spot<'a>>> {
    let target = Target::new(&core.comparator, key, snapshot);
    let after = match order.find(&target) {
        Ok(around) => around.after,
        Err(gap) => past_gap(core, order, gap, key)?,
    };
    Ok(after.filter(|spot| core.comparator.compare(spot.entry.key(), key).is_eq()))
}

/// The entry after a gap, if no damaged entry in the gap can have this key.
#[cold]
fn past_gap<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    gap: Gap,
    key: &[u8],
) -> Result<Option<Spot<'a>>, Gap> {
    past_proved(order, gap, |damaged, _| core.comparator.compare(damaged, key).is_ne())
}

/// The next older version of a key, with replaced entries skipped. Duplicates of a `Vector` table are both returned.
pub(crate) fn older<'a, C: Comparator, O: Ordered<'a>>(
    core: &Core<C>,
    order: &O,
    spot: &Spot<'a>,
) -> Result<Option<Spot<'a>>> {
    let mut at = spot.at;
    loop {
        let next = match order.next(at) {
            Ok(next) => next,
            Err(gap) => past_gap(core, order, gap, spot.entry.key())?,
        };
        let Some(next) = next else { return Ok(None) };
        if !core.comparator.compare(next.entry.key(), spot.entry.key()).is_eq() {
            return Ok(None);
        }
        let replaces = core.points.replaces();
        if !replaces || next.entry.node().sequence() != spot.entry.node().sequence() {
            return Ok(Some(next));
        }
        at = next.at;
    }
}

/// The entry after a gap, if every damaged entry in the gap is proved to be another one, by recovering its key and
/// sequence number.
#[cold]
pub(crate) fn past_proved<'a, O: Ordered<'a>>(
    order: &O,
    gap: Gap,
    is_other: impl Fn(&[u8], SequenceNumber) -> bool,
) -> Result<Option<Spot<'a>>, Gap> {
    let damaged_entry = matches!(gap.corruption.place, Place::Entry | Place::Header);
    let after = if damaged_entry { order.past_others(&gap, is_other) } else { None };
    after.ok_or(gap)
}
