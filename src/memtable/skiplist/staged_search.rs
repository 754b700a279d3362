//! Searches for many targets at once: what one stage finds, all of its targets ask for before the next stage reads it.
//!
//! ```text
//!   directory   page by page, level by level, for all targets; then the nodes that the hints name are asked for
//!   list        from each hint to its bracket
//! ```
//! * STAGED-SEARCH-1: each target has the outcome of a search of its own, and gets exactly one.
//!
//! Any thread. Nothing is allocated. Without a directory the searches follow one another.

#![forbid(unsafe_code)]

use crate::key::Target;
use crate::memtable::skiplist::directory::lookup::GROUP;
use crate::memtable::skiplist::search::{Bracket, Gap, Search, Trail};

/// Finds the brackets of many targets. `done` gets each target's number and outcome, and the way that led there, which began as
/// a copy of `trail`.
pub(crate) fn find_many<'a, T: Trail + Clone>(
    search: &Search<'a>,
    targets: &[Target<'_>],
    trail: &T,
    done: &mut impl FnMut(usize, Result<Bracket<'a>, Gap>, &T),
) {
    for (group, targets) in targets.chunks(GROUP).enumerate() {
        let mut hints = [None; GROUP];
        if search.directory != 0 {
            search.directory().lookup_many(targets, &mut hints, |hint| search.prefetch_hint(hint));
        }
        for (place, (target, hint)) in targets.iter().zip(&hints).enumerate() {
            let mut way = trail.clone();
            let found = hint.as_ref().and_then(|hint| search.find_from_hint(hint, target, &mut way));
            let outcome = found.map_or_else(|| search.find_by_towers(target, &mut way), Ok);
            done(group * GROUP + place, outcome, &way);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;
    use crate::integrity::digest::Width;
    use crate::integrity::options::{OrderChecks, SeekChecks};
    use crate::integrity::tag::Secret;
    use crate::key::Kind;
    use crate::memtable::skiplist::arena::{Arena, ArenaOptions};
    use crate::memtable::skiplist::control_block::Head;
    use crate::memtable::skiplist::encode::Fields;
    use crate::memtable::skiplist::inserter::Inserter;
    use crate::memtable::skiplist::list::{DuplicatePolicy, List};
    use crate::memtable::skiplist::search::NoTrail;
    use crate::sync::Ordering;

    /// Every bit of every key in turn: many searches end where single searches end, in a bracket or in a gap, and never in a
    /// wrong answer.
    #[test]
    fn many_searches_end_where_single_ones_end_also_over_damage() {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let options = ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret };
        let arena = Arena::new(&options).unwrap();
        let list = List::new(&arena, Head::Points, SeekChecks::Bracket, OrderChecks::Off).unwrap();
        let list = list.with_directory(&arena).unwrap();
        let search = list.search(Head::Points, arena.view().unwrap(), &BYTEWISE);
        let mut inserter = Inserter::default();
        let keys: Vec<[u8; 8]> = (0..40u64).map(|n| (n * 0x0101_0204).to_be_bytes()).collect();
        for key in &keys {
            let fields = Fields::new(1, Kind::PUT, key, b"v", None);
            let placed = list.insert(&search, &mut inserter, &fields, DuplicatePolicy::Reject).unwrap();
            list.link_tower(&search, &mut inserter, &fields, placed.linked.tower);
        }
        let targets: Vec<_> = keys.iter().map(|key| Target::new(&BYTEWISE, key, u64::MAX)).collect();
        let told = |outcome: Result<Bracket<'_>, Gap>| {
            outcome
                .map(|bracket| bracket.entry.map(|entry| entry.key().to_vec()))
                .map_err(|gap| gap.corruption)
        };
        let answers = || {
            let mut answers = vec![None; targets.len()];
            find_many(&search, &targets, &NoTrail, &mut |index, outcome, _| {
                assert!(answers[index].replace(told(outcome)).is_none(), "{index} was answered twice");
            });
            answers
        };
        let stride = if cfg!(debug_assertions) { 3 } else { 1 };
        let mut at = search.sentinel;
        while let Some(entry) = search.next(at).unwrap() {
            at = entry.node().offset();
            // The key starts 44 bytes after the node and is 8 long: two words hold it.
            for (unit, bit) in
                (0..2).flat_map(|word| (0..64).step_by(stride).map(move |bit| (at + 5 + word, bit)))
            {
                let word = search.view.word(unit).unwrap();
                // ORDERING: Relaxed: one thread.
                word.fetch_xor(1 << bit, Ordering::Relaxed);
                for ((target, key), answer) in targets.iter().zip(&keys).zip(answers()) {
                    let answer = answer.unwrap();
                    assert_eq!(answer, told(search.find(target, &mut NoTrail)), "bit {bit} of {unit}");
                    assert!(!answer.is_ok_and(|found| found.as_deref() != Some(key)), "bit {bit} of {unit}");
                }
                // ORDERING: Relaxed: one thread.
                word.fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
    }
}
