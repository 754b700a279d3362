//! Storey 3, order: arena, node, links, search, insert, cursor steps. Knows bytes and order, not meaning.

pub(crate) mod arena;
pub(crate) mod build;
pub(crate) mod chunks;
pub(crate) mod control;
pub(crate) mod height;
pub(crate) mod lanes;
pub(crate) mod layout;
pub(crate) mod links;
pub(crate) mod list;
pub(crate) mod memory;
pub(crate) mod near;
pub(crate) mod node;
pub(crate) mod parked;
pub(crate) mod proof;
pub(crate) mod raise;
pub(crate) mod site;
pub(crate) mod splice;
pub(crate) mod steps;
pub(crate) mod witness;

#[cfg(all(test, loom))]
mod loom;
