//! The checker by itself: histories whose verdict a person can see.

use crate::support::linearizable::{Recorded, Specification, linearize};
use crate::support::rng::Rng;

/// A register that begins with 0.
struct Register;

#[derive(Debug, Clone)]
enum Call {
    Write(u64),
    Read(u64),
}
use Call::{Read, Write};

impl Specification for Register {
    type State = u64;
    type Call = Call;

    fn apply(state: &u64, call: &Call) -> Option<u64> {
        match call {
            Write(value) => Some(*value),
            Read(value) => (value == state).then_some(*state),
        }
    }
}

fn verdict(history: &[(u64, u64, Call)]) -> Result<Vec<usize>, String> {
    let recorded = |(began, ended, call): &(u64, u64, Call)| Recorded {
        began: *began,
        ended: *ended,
        call: call.clone(),
    };
    linearize::<Register>(&history.iter().map(recorded).collect::<Vec<_>>())
}

#[test]
fn calls_one_after_the_other_have_one_order() {
    assert_eq!(verdict(&[]), Ok(vec![]));
    assert_eq!(verdict(&[(0, 1, Write(1)), (2, 3, Read(1))]), Ok(vec![0, 1]));
    assert!(verdict(&[(0, 1, Write(1)), (2, 3, Read(0))]).is_err(), "a stale read");
    assert!(verdict(&[(0, 1, Read(1)), (2, 3, Write(1))]).is_err(), "a read of the future");
    assert!(verdict(&[(0, 1, Read(7))]).is_err(), "a value that nobody wrote");
}

#[test]
fn overlapping_calls_may_have_either_order() {
    for seen in [0, 1] {
        assert!(verdict(&[(0, 3, Write(1)), (1, 2, Read(seen))]).is_ok());
    }
    let writes = [(0, 5, Write(1)), (1, 6, Write(2))];
    for last in [1, 2] {
        assert!(verdict(&[writes.as_slice(), &[(7, 8, Read(last))]].concat()).is_ok());
    }
    assert!(verdict(&[writes.as_slice(), &[(7, 8, Read(0))]].concat()).is_err(), "a lost write");
}

#[test]
fn readers_agree_about_the_order_of_writes() {
    let writes = [(0, 9, Write(1)), (0, 9, Write(2))];
    let reads = |reads: [u64; 4]| {
        let begins = [1, 3, 5, 7];
        let reads = begins.into_iter().zip(reads).map(|(began, value)| (began, began + 1, Read(value)));
        verdict(&writes.iter().cloned().chain(reads).collect::<Vec<_>>())
    };
    assert!(reads([0, 1, 1, 2]).is_ok());
    assert!(reads([2, 2, 1, 1]).is_ok());
    assert!(reads([1, 2, 1, 2]).is_err(), "the register went back");
    assert!(reads([1, 0, 2, 2]).is_err(), "the register was emptied");
}

/// What the search must go back for: a write that could have been first, but must not.
#[test]
fn wrong_beginnings_are_taken_back() {
    let history = [
        (0, 9, Write(1)),
        (0, 9, Write(2)),
        (0, 9, Write(3)),
        (10, 11, Read(1)),
        (1, 8, Read(3)),
        (2, 7, Read(2)),
    ];
    let order = verdict(&history).unwrap();
    assert_eq!(order.len(), history.len());
    assert!(order.ends_with(&[0, 3]), "the write of 1 is the last one: {order:?}");
}

/// Histories made from an order, with each call's interval widened at random, are accepted; with a last answer that nobody
/// wrote they are rejected.
#[test]
fn histories_made_from_an_order() {
    let mut rng = Rng::new(0x11ea);
    for _ in 0..500 {
        let (mut state, mut history) = (0, vec![]);
        for at in 0..20 {
            let call = if rng.one_in(2) {
                state = at + 1;
                Write(state)
            } else {
                Read(state)
            };
            // The call itself is at 10 * at + 500.
            let (before, after) = (rng.below(60), 1 + rng.below(60));
            history.push((500 + 10 * at - before, 500 + 10 * at + after, call));
        }
        assert!(verdict(&history).is_ok(), "{history:?}");
        history.push((2000, 2001, Read(state)));
        assert!(verdict(&history).is_ok(), "{history:?}");
        for wrong in [999, state + 1] {
            *history.last_mut().unwrap() = (2000, 2001, Read(wrong));
            assert!(verdict(&history).is_err(), "{history:?}");
        }
    }
}
