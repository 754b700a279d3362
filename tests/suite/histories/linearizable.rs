//! Decides whether a history of concurrent calls is linearizable: whether its calls have an order
//! in which each call is between its beginning and its end, and in which a sequential specification
//! gives the recorded answers.
//!
//! The search is Wing and Gong's: depth first over the calls that may come next, which are those
//! that began before any other remaining call ended. It remembers the states that it has visited
//! (Lowe). A call that is allowed and changes nothing is taken at once, because no later place is
//! better for it.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most calls that one history may have: the search keeps one bit for each.
pub(crate) const CALLS_MAX: usize = 128;

/// The meaning of calls that come one after the other.
pub(crate) trait Specification {
    type State: Clone + Default + Eq + Hash;
    /// A call with its result.
    type Call: Debug;

    /// The state after the call, if the call may have this result in this state.
    fn apply(state: &Self::State, call: &Self::Call) -> Option<Self::State>;
}

/// A call, and its beginning and end by the history's clock.
#[derive(Debug, Clone)]
pub(crate) struct Recorded<C> {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) call: C,
}

/// The clock of a history: each reading is larger than all readings that were over before it.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> u64 {
        // AcqRel: a call that ended before another began happens before it, by the order of
        // readings.
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    pub(crate) fn record<C>(&self, call: impl FnOnce() -> C) -> Recorded<C> {
        let began = self.now();
        let call = call();
        Recorded {
            began,
            call,
            ended: self.now(),
        }
    }
}

struct Search<'h, S: Specification> {
    history: &'h [Recorded<S::Call>],
    been: HashSet<(u128, S::State)>,
    order: Vec<usize>,
    /// The longest possible order, and the calls that could have come next, except for their
    /// results.
    longest: Vec<usize>,
    refused: Vec<usize>,
}

impl<S: Specification> Search<'_, S> {
    /// The remaining calls that began before any of them ended.
    fn candidates(&self, done: u128) -> Vec<usize> {
        let remaining = || (0..self.history.len()).filter(|call| done & (1 << call) == 0);
        let first_end = remaining()
            .map(|call| self.history[call].ended)
            .min()
            .unwrap_or(0);
        remaining()
            .filter(|call| self.history[*call].began < first_end)
            .collect()
    }

    fn go(&mut self, done: u128, state: &S::State) -> bool {
        if self.order.len() == self.history.len() {
            return true;
        }
        if !self.been.insert((done, state.clone())) {
            return false;
        }
        let candidates = self.candidates(done);
        let after = |call: &usize| Some((*call, S::apply(state, &self.history[*call].call)?));
        let allowed: Vec<(usize, S::State)> = candidates.iter().filter_map(after).collect();
        if let Some((call, _)) = allowed.iter().find(|(_, after)| after == state) {
            return self.take(done, *call, state);
        }
        if self.order.len() >= self.longest.len() {
            self.longest.clone_from(&self.order);
            self.refused = candidates;
        }
        allowed
            .iter()
            .any(|(call, after)| self.take(done, *call, after))
    }

    fn take(&mut self, done: u128, call: usize, after: &S::State) -> bool {
        self.order.push(call);
        let found = self.go(done | (1 << call), after);
        if !found {
            self.order.pop();
        }
        found
    }
}

/// An order of the calls that explains the history, as indexes, or a text that shows where every
/// order ends.
pub(crate) fn linearize<S: Specification>(
    history: &[Recorded<S::Call>],
) -> Result<Vec<usize>, String> {
    assert!(
        history.len() <= CALLS_MAX,
        "{} calls in one history",
        history.len()
    );
    let (been, order, longest, refused) = (HashSet::new(), vec![], vec![], vec![]);
    let mut search = Search::<S> {
        history,
        been,
        order,
        longest,
        refused,
    };
    if search.go(0, &S::State::default()) {
        return Ok(search.order);
    }
    let show = |calls: &[usize]| -> String {
        calls
            .iter()
            .map(|call| format!("  {:?}\n", history[*call]))
            .collect()
    };
    let last = search.longest.len().saturating_sub(12);
    let (before, next) = (show(&search.longest[last..]), show(&search.refused));
    Err(format!(
        "no order explains the history; after\n{before}none of these is possible:\n{next}"
    ))
}

/// The checker by itself: histories whose verdict is easy to see.
mod checker {
    use super::{Recorded, Specification, linearize};
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
        assert_eq!(
            verdict(&[(0, 1, Write(1)), (2, 3, Read(1))]),
            Ok(vec![0, 1])
        );
        assert!(
            verdict(&[(0, 1, Write(1)), (2, 3, Read(0))]).is_err(),
            "a stale read"
        );
        assert!(
            verdict(&[(0, 1, Read(1)), (2, 3, Write(1))]).is_err(),
            "a read of the future"
        );
        assert!(
            verdict(&[(0, 1, Read(7))]).is_err(),
            "a value that nobody wrote"
        );
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
        assert!(
            verdict(&[writes.as_slice(), &[(7, 8, Read(0))]].concat()).is_err(),
            "a lost write"
        );
    }

    #[test]
    fn readers_agree_about_the_order_of_writes() {
        let writes = [(0, 9, Write(1)), (0, 9, Write(2))];
        let reads = |reads: [u64; 4]| {
            let begins = [1, 3, 5, 7];
            let reads = begins
                .into_iter()
                .zip(reads)
                .map(|(began, value)| (began, began + 1, Read(value)));
            verdict(&writes.iter().cloned().chain(reads).collect::<Vec<_>>())
        };
        assert!(reads([0, 1, 1, 2]).is_ok());
        assert!(reads([2, 2, 1, 1]).is_ok());
        assert!(reads([1, 2, 1, 2]).is_err(), "the register went back");
        assert!(reads([1, 0, 2, 2]).is_err(), "the register was emptied");
    }

    /// The search must take back a write that could have been first, but must not.
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
        assert!(
            order.ends_with(&[0, 3]),
            "the write of 1 is the last one: {order:?}"
        );
    }

    /// Histories made from an order, with each call's interval widened at random, are accepted.
    /// With a last result that no call wrote, they are rejected.
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
}
