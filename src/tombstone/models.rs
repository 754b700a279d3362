//! Loom models of the index: `RUSTFLAGS="--cfg loom" cargo test --lib --release loom_`. Under loom
//! a block has two records.
//!
//! The first model fails with the planted bug `log_publishes_before_fill`, the last one with
//! `paint_skips_pending`.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

#[expect(dead_code, reason = "the models use a part of it")]
#[path = "tests/fixture.rs"]
mod fixture;

use self::fixture::Index;
use crate::comparator::BYTEWISE;
use crate::integrity::tag::Secret;
use crate::sync::model::{Arc, check, spawn};
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::query::Question;

/// A reader beside a writer sees no tombstone or a whole one, never damage. After the insert has
/// returned, it sees the tombstone.
#[test]
fn loom_record_is_published_whole() {
    check(|| {
        let index = Arc::new(Index::new(Secret::from_seed(1)));
        let returned = Arc::new(AtomicU64::new(0));
        let writer = {
            let (index, returned) = (index.clone(), returned.clone());
            spawn(move || {
                index.append(&BYTEWISE, b"b", b"d", 7).unwrap();
                // ORDERING: release; partner: the reader's load below.
                returned.store(1, Ordering::Release);
            })
        };
        let reader = spawn(move || {
            // ORDERING: acquire; partner: the writer's store above.
            let must = returned.load(Ordering::Acquire) == 1;
            let found = index
                .max_covering(&BYTEWISE, Question::new(b"c", u64::MAX))
                .unwrap();
            assert!(
                found == Some(7) || (found.is_none() && !must),
                "must see: {must}, saw {found:?}"
            );
            assert_eq!(
                index
                    .max_covering(&BYTEWISE, Question::new(b"d", u64::MAX))
                    .unwrap(),
                None
            );
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// A reader gets the same answer whether or not it sees the node that another thread builds and
/// publishes at the same time.
#[test]
fn loom_node_is_published_whole() {
    check(|| {
        let index = Arc::new(Index::new(Secret::from_seed(1)));
        index.append(&BYTEWISE, b"b", b"d", 7).unwrap();
        index.append(&BYTEWISE, b"c", b"e", 9).unwrap();
        let merger = {
            let index = index.clone();
            spawn(move || index.merge_all(&BYTEWISE))
        };
        let reader = spawn(move || {
            assert_eq!(
                index
                    .max_covering(&BYTEWISE, Question::new(b"c", u64::MAX))
                    .unwrap(),
                Some(9)
            );
            assert_eq!(
                index
                    .max_covering(&BYTEWISE, Question::new(b"c", 8))
                    .unwrap(),
                Some(7)
            );
        });
        merger.join().unwrap();
        reader.join().unwrap();
    });
}

/// With two writers, one of which merges, no node is built over a block before both of its records
/// are complete.
#[test]
fn loom_two_writers_lose_nothing() {
    check(|| {
        let index = Arc::new(Index::new(Secret::from_seed(1)));
        let other = {
            let index = index.clone();
            spawn(move || index.append(&BYTEWISE, b"c", b"e", 3).map(drop).unwrap())
        };
        let merging = {
            let index = index.clone();
            spawn(move || index.insert(&BYTEWISE, b"a", b"d", 5).unwrap())
        };
        other.join().unwrap();
        merging.join().unwrap();
        assert_eq!(
            index
                .max_covering(&BYTEWISE, Question::new(b"d", 9))
                .unwrap(),
            Some(3)
        );
        assert_eq!(
            index
                .max_covering(&BYTEWISE, Question::new(b"c", 4))
                .unwrap(),
            Some(3)
        );
        assert_eq!(
            index
                .max_covering(&BYTEWISE, Question::new(b"c", 9))
                .unwrap(),
            Some(5)
        );
    });
}
