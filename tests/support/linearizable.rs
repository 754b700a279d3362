//! Decides whether a history of concurrent calls is linearizable: whether its calls have an order in which each stands
//! between its beginning and its end, and in which a sequential specification gives the answers that were recorded.
//!
//! The search is Wing and Gong's: depth first over the calls that may come next, which are those that began before any
//! other remaining call ended. It keeps the places where it has been (Lowe), and takes a call that is allowed and changes nothing at
//! once, because such a call can stand nowhere better than as early as possible.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most calls that one history may have: the search keeps one bit for each.
pub const CALLS_MAX: usize = 128;

/// What calls mean when they come one after the other.
pub trait Specification {
    type State: Clone + Default + Eq + Hash;
    /// What was asked together with what was answered.
    type Call: Debug;

    /// The state after the call, if it may be answered so in this state.
    fn apply(state: &Self::State, call: &Self::Call) -> Option<Self::State>;
}

/// A call, and when it began and ended by the history's clock.
#[derive(Debug, Clone)]
pub struct Recorded<C> {
    pub began: u64,
    pub ended: u64,
    pub call: C,
}

/// The clock of a history: each reading is larger than all readings that were over before it.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn now(&self) -> u64 {
        // AcqRel: a call that ended before another began happens before it, by the order of readings.
        self.0.fetch_add(1, Ordering::AcqRel)
    }

    pub fn record<C>(&self, call: impl FnOnce() -> C) -> Recorded<C> {
        let began = self.now();
        let call = call();
        Recorded { began, call, ended: self.now() }
    }
}

struct Search<'h, S: Specification> {
    history: &'h [Recorded<S::Call>],
    been: HashSet<(u128, S::State)>,
    order: Vec<usize>,
    /// The longest order that was possible, and the calls that could have come next, but for their answers.
    longest: Vec<usize>,
    refused: Vec<usize>,
}

impl<S: Specification> Search<'_, S> {
    /// The remaining calls that began before any of them ended.
    fn candidates(&self, done: u128) -> Vec<usize> {
        let remaining = || (0..self.history.len()).filter(|call| done & (1 << call) == 0);
        let first_end = remaining().map(|call| self.history[call].ended).min().unwrap_or(0);
        remaining().filter(|call| self.history[*call].began < first_end).collect()
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
        allowed.iter().any(|(call, after)| self.take(done, *call, after))
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

/// An order of the calls that explains the history, as indices, or a text that shows where every order ends.
pub fn linearize<S: Specification>(history: &[Recorded<S::Call>]) -> Result<Vec<usize>, String> {
    assert!(history.len() <= CALLS_MAX, "{} calls in one history", history.len());
    let (been, order, longest, refused) = (HashSet::new(), vec![], vec![], vec![]);
    let mut search = Search::<S> { history, been, order, longest, refused };
    if search.go(0, &S::State::default()) {
        return Ok(search.order);
    }
    let show = |calls: &[usize]| -> String {
        calls.iter().map(|call| format!("  {:?}\n", history[*call])).collect()
    };
    let last = search.longest.len().saturating_sub(12);
    let (before, next) = (show(&search.longest[last..]), show(&search.refused));
    Err(format!("no order explains the history; after\n{before}none of these is possible:\n{next}"))
}
