//! `multi_get`: the lookups of many keys advance in stages, so that they wait for memory once per
//! stage instead of once per key.
//!
//! ```text
//!   group of up to 32 keys
//!     hash      K of every key; filter lines are asked for
//!     sift      filters say "absent"; who is left needs the list
//!     search    32 at a time, by the directory
//!     finish    tombstones, then the value, in the order asked
//! ```
//! * MULTI-GET-1: each key's result is what `get` returns for it. Damage affects only the keys
//!   whose lookups meet it.
//! * MULTI-GET-2: nothing is allocated but the buffer of results.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Result;
use crate::key::{SequenceNumber, Side, Target};
use crate::memtable::arena::node::Verified;
use crate::memtable::core::Core;
use crate::memtable::lookup::filter::Bits;
use crate::memtable::read::get::{Lookup, Operands, ValueRef, answer, deletion, deletion_by, get};
use crate::memtable::skiplist::find_many::find_many;
use crate::memtable::skiplist::search::Search;

/// Keys of a group.
const GROUP: usize = 32;

/// The stage of a key's lookup.
#[derive(Clone, Copy)]
enum Stage<'a> {
    /// The list must be searched.
    AskList,
    /// The newest visible entry.
    Done(Option<Verified<'a>>),
}

/// Asks the filter about each key.
fn sift_group(core: &Core, search: &Search<'_>, keys: &[&[u8]], stages: &mut [Stage<'_>]) {
    let mut group: [Option<Bits>; GROUP] = [None; GROUP];
    for (key, bits) in keys.iter().zip(&mut group) {
        *bits = core.accelerators.bits(search.view.secret, key);
        bits.iter()
            .for_each(|bits| bits.line.prefetch(&search.view));
    }
    for (stage, bits) in stages.iter_mut().zip(group) {
        if bits.is_some_and(|bits| core.accelerators.are_missing(&search.view, bits)) {
            *stage = Stage::Done(None);
        }
    }
}

/// Finds the newest visible entry of each key of a group that is not sifted out.
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
    // After a gap the key is searched for by itself, which may prove that the gap does not matter
    // for it.
    find_many(search, targets, &mut |index, hint| {
        if let Ok(entry) = search.first_by(hint, &targets[index]) {
            let is_found =
                |entry: &Verified<'_>| core.comparator.are_equal(entry.key(), targets[index].key);
            stages[places[index]] = Stage::Done(entry.filter(is_found));
        }
    });
}

/// Looks up many keys into a buffer that is cleared first. What is compiled for each type of key
/// only collects groups.
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
    if core.accelerators.has_filters() {
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

/// The newest tombstone over each key of a group. `None` if the keys must be asked one by one.
#[inline]
fn covers(
    core: &Core,
    group: &[&[u8]],
    snapshot: SequenceNumber,
    stages: &[Stage<'_>],
) -> Option<[Option<SequenceNumber>; GROUP]> {
    let asked = group.iter().zip(stages).map(|(key, stage)| match stage {
        Stage::Done(Some(entry)) => (*key, Some(entry.node().sequence())),
        _ => (*key, None),
    });
    core.tombstones
        .covering_many(core.ground(), asked, snapshot)
}

/// Completes a lookup: applies tombstones, then verifies the value.
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
