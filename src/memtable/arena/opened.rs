//! Counts the nodes that a thread opens: tests bound what one call costs. Not in a normal build.
#![forbid(unsafe_code)]

use std::cell::Cell;

thread_local! {
    static NODES: Cell<u64> = const { Cell::new(0) };
}

/// Notes that this thread opens a node.
#[inline(always)]
pub(super) fn note() {
    NODES.set(NODES.get() + 1);
}

/// Runs a call. Returns its result, and how many nodes this thread opened meanwhile, each as often
/// as it was opened.
pub(crate) fn counted<T>(call: impl FnOnce() -> T) -> (T, u64) {
    let before = NODES.get();
    let result = call();
    (result, NODES.get() - before)
}
