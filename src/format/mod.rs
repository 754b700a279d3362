//! Block formats of table files: kinds of checksum, block trailers, footers. Everything but
//! [`ChecksumKind`](crate::ChecksumKind) needs the feature `block`.

#![forbid(unsafe_code)]

#[cfg_attr(
    not(feature = "block"),
    allow(dead_code, unreachable_pub, reason = "journals need its checks alone")
)]
pub(crate) mod block;
pub(crate) mod checksum_kind;
#[cfg(feature = "block")]
pub(crate) mod footer;

#[cfg(feature = "block")]
pub use self::block::{BlockChecks, BlockHandle, TableMagic};
#[cfg(feature = "block")]
pub use self::footer::Footer;
