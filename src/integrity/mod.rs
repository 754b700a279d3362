//! Storey 1, truth: hashes, digests, tags, checksums of blocks, and the options that say when they are looked at.

#![forbid(unsafe_code)]

#[cfg(feature = "block")]
pub(crate) mod block;
pub(crate) mod checksum_kind;
pub(crate) mod diagnosis;
#[cfg(feature = "block")]
pub(crate) mod footer;
pub(crate) mod guarded;
pub(crate) mod hash;
pub(crate) mod paranoid;
pub(crate) mod protection;
pub(crate) mod tags;
