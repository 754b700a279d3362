//! The arena: memory, nodes, links and back links. It knows bytes, and no order of keys.

pub(crate) mod layout;
pub(crate) mod cache_lines;
pub(crate) mod tower_height;
pub(crate) mod heads;
pub(crate) mod chunks;
pub(crate) mod control_block;
pub(crate) mod memory;
pub(crate) mod recycler;
pub(crate) mod memory_limit;
pub(crate) mod healed_copies;
#[expect(
    clippy::module_inception,
    reason = "the room is named after what it is for"
)]
pub(crate) mod arena;
pub(crate) mod node_words;
#[cfg(all(test, not(loom)))]
pub(crate) mod opened;
pub(crate) mod node;
pub(crate) mod parked_node;
pub(crate) mod healing;
pub(crate) mod links;
pub(crate) mod encode;
pub(crate) mod back_links;
