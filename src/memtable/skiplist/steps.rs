//! Steps of an insert at which a test comes between. Not in a normal build.
#![forbid(unsafe_code)]

use std::cell::RefCell;

/// A step, with the node of the insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The node is built, and no link names it yet.
    Built(u32),
    /// The node lost its exchange.
    Kept(u32),
}

pub(super) type Between = Box<dyn FnMut(Step)>;

thread_local! {
    /// What the test does.
    pub(super) static BETWEEN: RefCell<Option<Between>> = const { RefCell::new(None) };
}

/// Runs what a test does at this step. Inserts that the test makes there run undisturbed.
pub(super) fn reach(step: Step) {
    if let Some(mut between) = BETWEEN.take() {
        between(step);
        BETWEEN.replace(Some(between));
    }
}
