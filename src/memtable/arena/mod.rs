//! The arena: memory, nodes and the words that vouch for them. It knows bytes only.

pub(crate) mod layout;
pub(crate) mod towers;
pub(crate) mod control;
pub(crate) mod chunks;
pub(crate) mod memory;
pub(crate) mod recycler;
pub(crate) mod room;
#[expect(
    clippy::module_inception,
    reason = "the room is named after what it is for"
)]
pub(crate) mod arena;
pub(crate) mod words;
pub(crate) mod node;
pub(crate) mod parked;
pub(crate) mod links;
pub(crate) mod witness;
pub(crate) mod damaged_key;
pub(crate) mod encode;
