//! Tests of tallies: what a scrub says of writers that it waits for.

#![forbid(unsafe_code)]
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::integrity::tag::Secret;
use crate::tombstone::index::counter::*;

const CHECKS: Checks = Checks::new(Secret::from_seed(1));

fn begin(tally: &Tally, by: u32) -> u32 {
    tally.begin(CHECKS, |count| Ok((count, count + by))).unwrap().1
}

/// COUNTER-4: what has not ended after all writers have left was lost.
#[test]
fn a_scrub_waits_for_writers() {
    let tally = Tally::new(CHECKS, 1);
    tally.verify(CHECKS, &mut || panic!("nobody is at work")).unwrap();
    for (at_work, left, later) in [(3, 3, 0), (3, 2, 0), (5, 5, 2), (1, 0, 1)] {
        let tally = Tally::new(CHECKS, 1);
        tally.end(CHECKS, begin(&tally, 10)).unwrap();
        begin(&tally, at_work);
        let found = tally.verify(CHECKS, &mut || {
            tally.end(CHECKS, left).unwrap();
            begin(&tally, later);
            tally.end(CHECKS, later).unwrap();
        });
        let (expected, ended) = (10 + at_work, 10 + left + later);
        let lost = damage(0, u64::from(expected), u64::from(ended));
        assert_eq!(found, if ended < expected { Err(lost) } else { Ok(()) }, "{at_work} {left} {later}");
    }
}

/// COUNTER-2: more that ended than was begun is damage, whoever asks.
#[test]
fn what_ended_was_begun() {
    let tally = Tally::new(CHECKS, 1);
    tally.end(CHECKS, begin(&tally, 4)).unwrap();
    assert_eq!(tally.extent(CHECKS), Ok(Extent { count: 4, complete: 4 }));
    let one = begin(&tally, 1);
    assert_eq!((one, tally.extent(CHECKS)), (1, Ok(Extent { count: 5, complete: 0 })));
    tally.end(CHECKS, 2).unwrap();
    assert_eq!(tally.extent(CHECKS), Err(damage(0, 6, 5)));
    assert!(tally.begin(CHECKS, |count| Ok((count, count + 1))).is_err());
    let other = Counter::new(CHECKS, 2);
    assert_eq!((other.hint(), other.load(CHECKS)), (0, Ok(0)));
    assert_eq!(other.advance(CHECKS, |value| Ok((value + 7, value + 9))).unwrap(), (7, 9));
    assert_eq!((other.hint(), other.load(CHECKS)), (9, Ok(9)));
}
