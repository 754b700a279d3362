//! Layer 2, block formats: kinds of checksum, block trailers, footers of table files.

#![forbid(unsafe_code)]

#[cfg(feature = "block")]
pub(crate) mod block;
pub(crate) mod checksum_kind;
#[cfg(feature = "block")]
pub(crate) mod footer;
