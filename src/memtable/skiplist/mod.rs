//! The skiplist: arena, nodes, links, search, insert, iteration. It knows bytes and order only.

pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod control_block;
pub(crate) mod arena;
pub(crate) mod node;
pub(crate) mod witness;
pub(crate) mod encode;
pub(crate) mod directory;
pub(crate) mod search;
pub(crate) mod careful_search;
pub(crate) mod nearby_search;
pub(crate) mod read_ahead;
pub(crate) mod inserter;
pub(crate) mod list;
pub(crate) mod iterate;
#[cfg(all(test, loom))]
mod loom;
