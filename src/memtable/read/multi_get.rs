//! `multi_get`: lookups of many keys advance together, stage by stage, so they wait for memory once
//! per stage and not once per key.
//!
//! ```text
//!   group of up to 32 keys
//!     sift      hash each key and prefetch its filter line; then drop each key that is "absent"
//!     search    look for the other keys by the directory, all at a time
//!     finish    apply range tombstones, then verify the value, in the order of the keys
//! ```
//! Each key has the result that `get` returns for it, and damage affects only the keys whose
//! lookups meet it. Only the buffer of results is allocated.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::key::{SequenceNumber, Side, Target};
use crate::memtable::arena::node::Verified;
use crate::memtable::core::Core;
use crate::memtable::filter::bloom::Probe;
use crate::memtable::read::get::{Lookup, Operands, ValueRef, answer, deletion, deletion_by, get};
use crate::memtable::skiplist::find_many::find_many;
use crate::memtable::skiplist::search::Search;

/// Number of keys in a group.
const GROUP: usize = 32;

/// How far a key's lookup has come.
#[derive(Clone, Copy)]
enum Stage<'a> {
    /// The list must be asked.
    AskList,
    /// The newest visible entry is known.
    Done(Option<Verified<'a>>),
}

/// Asks the filter about each key: prefetches all lines first, and then reads them.
fn sift_group(core: &Core, search: &Search<'_>, keys: &[&[u8]], stages: &mut [Stage<'_>]) {
    let mut group: [Option<Probe>; GROUP] = [None; GROUP];
    for (key, probe) in keys.iter().zip(&mut group) {
        *probe = core.filters.probe(key);
        let line = probe
            .as_ref()
            .and_then(|probe| core.filters.likely_line(probe));
        line.into_iter()
            .for_each(|line| line.prefetch(&search.view));
    }
    for (stage, probe) in stages.iter_mut().zip(group) {
        if probe.is_some_and(|probe| core.filters.are_missing(&search.view, probe)) {
            *stage = Stage::Done(None);
        }
    }
}

/// Finds the newest visible entry of each key that the filter did not exclude.
fn search_group<'a>(
    core: &Core,
    search: &Search<'a>,
    keys: &[&[u8]],
    snapshot: SequenceNumber,
    stages: &mut [Stage<'a>],
) {
    let mut targets = [Target::extreme(Side::End); GROUP];
    let mut places = [0; GROUP];
    let mut count = 0;
    for (place, key) in keys.iter().enumerate() {
        if matches!(stages[place], Stage::AskList) {
            targets[count] = Target::new(&core.comparator, key, snapshot);
            places[count] = place;
            count += 1;
        }
    }
    if count == 0 {
        return;
    }
    let targets = &targets[..count];
    // A key whose search ends at a gap stays at `AskList`: `finish` calls `get`, which reports it.
    find_many(search, targets, &mut |index, hint| {
        if let Ok(entry) = search.first_at_or_after_from(hint, &targets[index]) {
            let is_found =
                |entry: &Verified<'_>| core.comparator.are_equal(entry.key(), targets[index].key);
            stages[places[index]] = Stage::Done(entry.filter(is_found));
        }
    });
}

/// Looks up many keys into a buffer that is cleared first. Only the collection of groups is
/// compiled for each type of key.
#[inline]
pub(crate) fn multi_get<'a, K: AsRef<[u8]>>(
    core: &'a Arc<Core>,
    keys: &[K],
    snapshot: SequenceNumber,
    results: &mut Vec<Result<Lookup<ValueRef<'a>, Operands<'a>>>>,
) {
    results.clear();
    results.reserve(keys.len());
    for keys in keys.chunks(GROUP) {
        let mut group = [[].as_slice(); GROUP];
        for (slot, key) in group.iter_mut().zip(keys) {
            *slot = key.as_ref();
        }
        get_group(core, &group[..keys.len()], snapshot, results);
    }
}

/// Looks up the keys of a group.
fn get_group<'a>(
    core: &'a Arc<Core>,
    group: &[&[u8]],
    snapshot: SequenceNumber,
    results: &mut Vec<Result<Lookup<ValueRef<'a>, Operands<'a>>>>,
) {
    let search = match core.point_search() {
        Ok(search) => search,
        Err(corruption) => return results.extend(group.iter().map(|_| Err(corruption.into()))),
    };
    let mut stages = [Stage::AskList; GROUP];
    let stages = &mut stages[..group.len()];
    if core.filters.has_filters() {
        sift_group(core, &search, group, stages);
    }
    search_group(core, &search, group, snapshot, stages);
    let covers = covers(core, group, snapshot, stages);
    for (place, (key, stage)) in group.iter().zip(&*stages).enumerate() {
        let cover = covers
            .as_ref()
            .and_then(|covers| covers.get(place).copied());
        results.push(finish(core, &search, key, snapshot, stage, cover));
    }
}

/// The newest range tombstone over each key of a group. `None` if each key must ask for itself.
#[inline]
fn covers(
    core: &Core,
    group: &[&[u8]],
    snapshot: SequenceNumber,
    stages: &[Stage<'_>],
) -> Option<[Option<SequenceNumber>; GROUP]> {
    let asked = group.iter().zip(stages).map(|(key, stage)| match stage {
        Stage::Done(Some(entry)) => (*key, Some(entry.sequence())),
        _ => (*key, None),
    });
    core.tombstones
        .covering_many(core.ground(), asked, snapshot)
}

/// Completes a lookup: applies range tombstones, and then verifies the value.
#[inline]
fn finish<'a>(
    core: &'a Arc<Core>,
    search: &Search<'a>,
    key: &[u8],
    snapshot: SequenceNumber,
    stage: &Stage<'a>,
    cover: Option<Option<SequenceNumber>>,
) -> Result<Lookup<ValueRef<'a>, Operands<'a>>> {
    let Stage::Done(entry) = *stage else {
        // The search of the group met damage.
        return get(core, key, snapshot);
    };
    let deleted = match cover {
        Some(cover) => deletion_by(cover, entry.as_ref()),
        None => deletion(core, key, snapshot, entry.as_ref())?,
    };
    answer(core, entry, deleted, search)
}
