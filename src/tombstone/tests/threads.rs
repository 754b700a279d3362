//! Writers and readers at the same time. No reader may see a tombstone before its insert starts.
//! Every reader must see it after the insert has returned. In between either answer is right.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::comparator::BYTEWISE;
use crate::integrity::tag::Secret;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::query::Question;
use crate::tombstone::tests::fixture::Index;
use crate::tombstone::tests::{Rng, seeds};

const WRITERS: u64 = 3;
const READERS: u64 = 2;
const SPACE: u64 = if cfg!(miri) { 8 } else { 200 };

/// Tombstone number `turn` of `writer`: a pure function, so that readers can compute the answer.
fn tombstone(seed: u64, writer: u64, turn: u64) -> (u64, u64, u64) {
    let mut rng = Rng(seed << 40 | writer << 32 | turn << 4);
    let start = rng.below(SPACE - 1);
    let end = start + 1 + rng.below(SPACE - start - 1).min(rng.below(40));
    (start, end, turn * WRITERS + writer + 1)
}

fn name(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// The newest tombstone over `number` among the first `turns[w]` of each writer.
fn expected(seed: u64, turns: &[u64], number: u64, snapshot: u64) -> Option<u64> {
    let all = (0..)
        .zip(turns)
        .flat_map(|(writer, &turns)| (0..turns).map(move |turn| (writer, turn)));
    let spans = all.map(|(writer, turn)| tombstone(seed, writer, turn));
    spans
        .filter(|&(start, end, sequence)| (start..end).contains(&number) && sequence <= snapshot)
        .map(|(_, _, sequence)| sequence)
        .max()
}

#[test]
fn readers_see_every_returned_insert() {
    let (turns, asks, rounds) = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => (4, 4, 1),
        (_, true) => (250, 300, 2),
        _ => (900, 1500, 6),
    };
    for seed in seeds(rounds) {
        let index = Arc::new(Index::new(Secret::from_seed(seed)));
        let started: Arc<Vec<AtomicU64>> =
            Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
        let returned: Arc<Vec<AtomicU64>> =
            Arc::new((0..WRITERS).map(|_| AtomicU64::new(0)).collect());
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (index, started, returned) = (index.clone(), started.clone(), returned.clone());
                scope.spawn(move || {
                    for turn in 0..turns {
                        let (start, end, sequence) = tombstone(seed, writer, turn);
                        // ORDERING: release; partner: the acquire load in `look`.
                        started[writer as usize].store(turn + 1, Ordering::Release);
                        index
                            .insert(&BYTEWISE, &name(start), &name(end), sequence)
                            .unwrap();
                        // ORDERING: release; partner: the acquire load in `look`.
                        returned[writer as usize].store(turn + 1, Ordering::Release);
                    }
                });
            }
            for reader in 0..READERS {
                let (index, started, returned) = (index.clone(), started.clone(), returned.clone());
                scope.spawn(move || {
                let mut rng = Rng(seed << 20 | reader);
                // ORDERING: acquire; partner: the writers' release stores.
                let look = |counts: &[AtomicU64]| -> Vec<u64> {
                    counts.iter().map(|count| count.load(Ordering::Acquire)).collect()
                };
                for _ in 0..asks {
                    let number = rng.below(SPACE);
                    let snapshot = [u64::MAX, rng.below(turns * WRITERS)][rng.below(2) as usize];
                    let least = look(&returned);
                    let found = index.max_covering(&BYTEWISE, Question::new(&name(number), snapshot)).unwrap();
                    let most = look(&started);
                    let low = expected(seed, &least, number, snapshot);
                    let high = expected(seed, &most, number, snapshot);
                    assert!(low <= found && found <= high, "PARANOID_SEED={seed} key {number} at {snapshot}: {low:?} <= {found:?} <= {high:?}");
                    if reader == 0 && rng.below(50) == 0 {
                        index.merge_all(&BYTEWISE);
                    }
                }
            });
            }
        });
        index.finish(&BYTEWISE);
        for number in 0..SPACE {
            for snapshot in [u64::MAX, turns, turns * 2] {
                let found = index
                    .max_covering(&BYTEWISE, Question::new(&name(number), snapshot))
                    .unwrap();
                assert_eq!(
                    found,
                    expected(seed, &[turns; WRITERS as usize], number, snapshot)
                );
            }
        }
    }
}
