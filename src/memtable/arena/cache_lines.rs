//! Keeps a level-0 link and its second copy, the back link, in different cache lines, so that one
//! lost write of a line cannot change both. Pure functions.

#![forbid(unsafe_code)]

use crate::memtable::arena::layout::{BACK_UNITS, LINE_UNITS};

/// Whether a node between `pred` and `succ` keeps LAYOUT-2: the link of `pred` and the back word of
/// the node are in different cache lines, and so are the link of the node and the back word of
/// `succ`.
#[inline(always)]
pub(crate) const fn are_apart(pred: u32, node: u32, succ: u32) -> bool {
    let own = node.wrapping_add(BACK_UNITS) ^ pred.wrapping_sub(1);
    let next = succ.wrapping_add(BACK_UNITS) ^ node.wrapping_sub(1);
    own >= LINE_UNITS && next >= LINE_UNITS
}

/// Number of units to leave free before a node between `pred` and `succ`, so that it keeps
/// LAYOUT-2. 0 for most nodes.
#[cold]
pub(crate) fn pad_units(pred: u32, node: u32, succ: u32) -> u32 {
    (0..2 * LINE_UNITS)
        .find(|pad| are_apart(pred, node.wrapping_add(*pad), succ))
        .unwrap_or(0)
}
