//! Order: arena, nodes, links, search, insert, iteration. Knows bytes and order, not meaning.

pub(crate) mod layout;
pub(crate) mod height;
pub(crate) mod memory;
pub(crate) mod recycler;
pub(crate) mod control_block;
pub(crate) mod chunks;
pub(crate) mod room;
pub(crate) mod arena;
pub(crate) mod node;
pub(crate) mod parked;
pub(crate) mod links;
pub(crate) mod witness;
pub(crate) mod damaged_key;
pub(crate) mod encode;
pub(crate) mod placement;
pub(crate) mod directory;
pub(crate) mod search;
pub(crate) mod careful_search;
pub(crate) mod nearby_search;
pub(crate) mod read_ahead;
pub(crate) mod link_tower;
pub(crate) mod staged_search;
pub(crate) mod inserter;
pub(crate) mod list;
pub(crate) mod iterate;
pub(crate) mod upkeep;
#[cfg(all(test, loom))]
mod loom;
