//! Layer 1, truth: hashes, digests, tags, control words, and the options that say when they are looked at.

#![forbid(unsafe_code)]

pub(crate) mod control_word;
pub(crate) mod diagnosis;
pub(crate) mod digest;
pub(crate) mod hash;
pub(crate) mod options;
pub(crate) mod tag;
