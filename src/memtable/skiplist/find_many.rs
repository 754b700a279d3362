//! Searches for many targets at once: what one stage finds, all of its targets ask for before the
//! next stage reads it.
//!
//! ```text
//!   directory   page by page, level by level, for all targets; then the nodes that the hints name are asked for
//!   list        from each hint to its bracket
//! ```
//! * STAGED-SEARCH-1: each target has the outcome of a search of its own, and gets exactly one.
//!
//! Any thread. Nothing is allocated. Without a directory the searches follow one another.

#![forbid(unsafe_code)]

use crate::key::Target;
use crate::memtable::directory::lookup::{GROUP, Hint};
use crate::memtable::skiplist::search::Search;

/// Asks the directory for many targets. `search_on` gets each target's number and hint, and
/// searches on from there.
pub(crate) fn find_many(
    search: &Search<'_>,
    targets: &[Target<'_>],
    search_on: &mut impl FnMut(usize, Option<&Hint>),
) {
    for (group, targets) in targets.chunks(GROUP).enumerate() {
        let hints = search.ask_for_many(targets);
        for (place, (_, hint)) in targets.iter().zip(&hints).enumerate() {
            search_on(group * GROUP + place, hint.as_ref());
        }
    }
}
