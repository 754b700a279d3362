//! Searches for many targets at once, in stages: each stage prefetches for all targets what the
//! next stage reads.
//!
//! ```text
//!   directory   level by level, for all targets; then prefetch the nodes that the hints name
//!   list        from each hint to its bracket
//! ```
//! Each target gets exactly one outcome: that of a search of its own.
//!
//! Any thread. Nothing is allocated. Without a directory the searches follow one another.

#![forbid(unsafe_code)]

use crate::key::Target;
use crate::memtable::directory::lookup::{GROUP, Hint};
use crate::memtable::skiplist::search::Search;

/// Asks the directory for hints to many targets. `search_on` gets each target's number and hint,
/// and makes the rest of its search.
pub(crate) fn find_many(
    search: &Search<'_>,
    targets: &[Target<'_>],
    search_on: &mut impl FnMut(usize, Option<&Hint>),
) {
    for (group, targets) in targets.chunks(GROUP).enumerate() {
        let hints = search.hints(targets);
        for (place, (_, hint)) in targets.iter().zip(&hints).enumerate() {
            search_on(group * GROUP + place, hint.as_ref());
        }
    }
}
