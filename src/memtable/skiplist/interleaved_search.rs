//! Interleaved searches: while one search waits for memory, others move.
//!
//! ```text
//!   search in flight 0   choose, prefetch | . . . . . . . . | step, prefetch | . . .
//!   search in flight 1     . choose, prefetch | . . . . . . . . | step, arrived -> certify -> next target
//!   search in flight 2     . . . choose, prefetch | . . . .
//! ```
//! Each search in flight drives the one step function of every search and ends like every search: in a certified
//! bracket, or in the careful retry, which runs alone.
//!
//! * INTERLEAVED-SEARCH-1: each target has the outcome of a search of its own. Searches in flight share nothing but
//!   the cache.
//! * INTERLEAVED-SEARCH-2: every target gets exactly one outcome; the order of outcomes is not that of the targets.
//!
//! One thread drives all searches in flight. Nothing is allocated.

#![forbid(unsafe_code)]

use crate::integrity::options::SeekChecks;
use crate::key::{Comparator, Target};
use crate::memtable::skiplist::directory::lookup::GROUP;
use crate::memtable::skiplist::search::{
    Bracket, BracketOnly, Checks, EveryNode, Gap, Progress, Search, Trail, Walk,
};
use crate::prefetch::prefetch_read;

/// Number of searches in flight. Most of the gain comes with 8 of them, and none beyond 16.
const IN_FLIGHT_MAX: usize = 16;

/// One search in flight.
#[derive(Clone)]
struct InFlight<T> {
    walk: Walk,
    trail: T,
    /// Which target.
    index: usize,
}

/// Finds the brackets of many targets. `done` gets each target's number and outcome (INTERLEAVED-SEARCH-2), and the
/// way that led there.
pub(crate) fn find_many<'a, C: Comparator, T: Trail + Clone>(
    search: &Search<'a, C>,
    targets: &[Target<'_>],
    trail: &T,
    done: &mut impl FnMut(usize, Result<Bracket<'a>, Gap>, &T),
) {
    if search.directory != 0 {
        return find_staged(search, targets, trail, done);
    }
    match search.seek_checks {
        SeekChecks::Bracket => drive::<BracketOnly, C, T>(search, targets, trail, done),
        SeekChecks::EveryNode => drive::<EveryNode, C, T>(search, targets, trail, done),
    }
}

/// By the directory: all hints first, then their nodes.
fn find_staged<'a, C: Comparator, T: Trail + Clone>(
    search: &Search<'a, C>,
    targets: &[Target<'_>],
    trail: &T,
    done: &mut impl FnMut(usize, Result<Bracket<'a>, Gap>, &T),
) {
    for (group, targets) in targets.chunks(GROUP).enumerate() {
        let mut hints = [None; GROUP];
        search.directory().lookup_many(targets, &mut hints, |hint| search.prefetch_hint(hint));
        for (place, (target, hint)) in targets.iter().zip(&hints).enumerate() {
            let mut way = trail.clone();
            let found = hint.as_ref().and_then(|hint| search.find_from_hint(hint, target, &mut way));
            let outcome = found.map_or_else(|| search.find_by_towers(target, &mut way), Ok);
            done(group * GROUP + place, outcome, &way);
        }
    }
}

fn drive<'a, K: Checks, C: Comparator, T: Trail + Clone>(
    search: &Search<'a, C>,
    targets: &[Target<'_>],
    trail: &T,
    done: &mut impl FnMut(usize, Result<Bracket<'a>, Gap>, &T),
) {
    let mut flights: [InFlight<T>; IN_FLIGHT_MAX] =
        std::array::from_fn(|_| InFlight { walk: search.start(), trail: trail.clone(), index: 0 });
    let mut pending = (0..targets.len()).zip(targets);
    let mut used = 0;
    // All searches begin at one node, so their first steps hit the cache.
    while used < IN_FLIGHT_MAX {
        if !begin(search, &mut flights[used], trail, &mut pending, done) {
            break;
        }
        used += 1;
    }
    let mut turn = 0;
    while used > 0 {
        if turn >= used {
            turn = 0;
        }
        let flight = &mut flights[turn];
        let Some(target) = targets.get(flight.index) else { return };
        let progress = search.step::<K, T>(&mut flight.walk, target, &mut flight.trail);
        if let Progress::On = progress {
            search.prefetch(&flight.walk);
            turn += 1;
            continue;
        }
        let outcome = conclude(search, flight, &progress, target);
        done(flight.index, outcome, &flight.trail);
        if begin(search, flight, trail, &mut pending, done) {
            turn += 1;
        } else {
            used -= 1;
            flights.swap(turn, used);
        }
    }
}

/// Starts the next pending search that has a node to look at. `false`: none is left.
fn begin<'a, 't, 'k: 't, C: Comparator, T: Trail + Clone>(
    search: &Search<'a, C>,
    flight: &mut InFlight<T>,
    trail: &T,
    pending: &mut impl Iterator<Item = (usize, &'t Target<'k>)>,
    done: &mut impl FnMut(usize, Result<Bracket<'a>, Gap>, &T),
) -> bool {
    for (index, target) in pending {
        *flight = InFlight { walk: search.start(), trail: trail.clone(), index };
        let progress = search.choose(&mut flight.walk, search.sentinel, &mut flight.trail);
        if let Progress::On = progress {
            search.prefetch(&flight.walk);
            return true;
        }
        let outcome = conclude(search, flight, &progress, target);
        done(index, outcome, &flight.trail);
    }
    false
}

/// Certifies where a search in flight arrived, or retries with care.
#[inline]
fn conclude<'a, C: Comparator, T: Trail>(
    search: &Search<'a, C>,
    flight: &mut InFlight<T>,
    progress: &Progress,
    target: &Target<'_>,
) -> Result<Bracket<'a>, Gap> {
    if let Progress::Arrived = progress {
        let (at, greater) = flight.walk.ends();
        if let Some(bracket) = search.certify(at, greater) {
            return Ok(bracket);
        }
    }
    search.find_carefully(target, &mut flight.trail)
}

impl<C: Comparator> Search<'_, C> {
    /// Prefetches the lines of the walk's candidate.
    #[inline(always)]
    fn prefetch(&self, walk: &Walk) {
        self.prefetch_node(walk.candidate(), walk.level());
    }

    /// Prefetches lines that a writer reaches in a few entries.
    #[inline(always)]
    pub(crate) fn prefetch_ahead(&self, unit: u32) {
        if let Some(address) = self.view.locate_near(unit) {
            for line in 0..3 {
                prefetch_read(std::ptr::without_provenance(address + 1024 + 64 * line));
            }
        }
    }

    /// Prefetches the lines of a whole entry of usual size: one of 160 bytes reaches a fourth line in three cases of eight.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, node: u32) {
        let Some(address) = self.view.locate_near(node).or_else(|| self.locate_far(node)) else { return };
        for line in 0..4 {
            prefetch_read(std::ptr::without_provenance(address + 64 * line));
        }
    }

    #[cold]
    #[inline(never)]
    fn locate_far(self, node: u32) -> Option<usize> {
        self.view.locate(node).map(|(address, _)| address)
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::Width;
    use crate::integrity::options::OrderChecks;
    use crate::integrity::tag::Secret;
    use crate::key::{Bytewise, Kind};
    use crate::memtable::skiplist::arena::{Arena, ArenaOptions};
    use crate::memtable::skiplist::control_block::Head;
    use crate::memtable::skiplist::encode::Fields;
    use crate::memtable::skiplist::inserter::Inserter;
    use crate::memtable::skiplist::list::{DuplicatePolicy, List};
    use crate::memtable::skiplist::search::NoTrail;
    use crate::sync::Ordering;

    /// Every bit of every key in turn: searches in flight end where single searches end, in a bracket or in a gap,
    /// and never in a wrong answer.
    #[test]
    fn interleaved_searches_end_where_single_ones_end_also_over_damage() {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let options = ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret };
        let arena = Arena::new(&options).unwrap();
        let list = List::new(&arena, Head::Points, SeekChecks::Bracket, OrderChecks::Off).unwrap();
        let search = list.search(Head::Points, arena.view().unwrap(), &Bytewise);
        let mut inserter = Inserter::default();
        let keys: Vec<[u8; 8]> = (0..40u64).map(|n| (n * 0x0101_0204).to_be_bytes()).collect();
        for key in &keys {
            let fields = Fields::new(1, Kind::PUT, key, b"v", None);
            let placed = list.insert(&search, &mut inserter, &fields, DuplicatePolicy::Reject).unwrap();
            list.link_tower(&search, &mut inserter, &fields, placed.tower().unwrap());
        }
        let targets: Vec<_> = keys.iter().map(|key| Target::new(&Bytewise, key, u64::MAX)).collect();
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
