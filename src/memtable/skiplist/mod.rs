//! The skiplist: searches, inserts, iteration. It knows the order of entries, not their meaning.

#![forbid(unsafe_code)]

#[cfg(all(test, not(loom)))]
mod test_hooks;
pub(crate) mod list;
pub(crate) mod search;
pub(crate) mod splice;
pub(crate) mod bracket;
pub(crate) mod tower_walk;
pub(crate) mod hints;
pub(crate) mod near;
pub(crate) mod careful_search;
pub(crate) mod find;
pub(crate) mod find_many;
pub(crate) mod iterate;
pub(crate) mod read_ahead;
pub(crate) mod approximate_count;
pub(crate) mod node_space;
pub(crate) mod link_tower;
pub(crate) mod inserter;
pub(crate) mod insert_checks;
pub(crate) mod insert;
#[cfg(all(test, loom))]
pub(crate) mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
