//! The arena: memory, nodes and the words that vouch for them. It knows bytes only.

pub(crate) mod layout;
pub(crate) mod memory;
#[expect(
    clippy::module_inception,
    reason = "the room is named after what it is for"
)]
pub(crate) mod arena;
pub(crate) mod node;
pub(crate) mod witness;
pub(crate) mod encode;
