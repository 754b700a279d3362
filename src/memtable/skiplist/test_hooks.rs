//! Hooks for tests between the steps of an insert. Not in a normal build.
#![forbid(unsafe_code)]

use std::cell::RefCell;

/// A step, with the node of the insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The node is built, and no link names it yet.
    Built(u32),
    /// The node lost its compare-and-swap.
    Kept(u32),
}

pub(super) type Between = Box<dyn FnMut(Step)>;

thread_local! {
    /// The hook of the test that runs.
    pub(super) static BETWEEN: RefCell<Option<Between>> = const { RefCell::new(None) };
}

/// Runs the test's hook at this step. Inserts that the hook makes run without it.
pub(super) fn reach(step: Step) {
    if let Some(mut between) = BETWEEN.take() {
        between(step);
        BETWEEN.replace(Some(between));
    }
}
