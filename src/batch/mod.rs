//! Layer 4: the write batch and its encoding.

#![forbid(unsafe_code)]

#[expect(clippy::module_inception, reason = "the room is named after what it is for")]
pub(crate) mod batch;
pub(crate) mod encoding;
