//! Block formats of table files: kinds of checksum, block trailers, footers.

#![forbid(unsafe_code)]

pub(crate) mod block;
pub(crate) mod checksum_kind;
pub(crate) mod footer;

pub use self::block::{BlockChecks, BlockHandle, TableMagic};
pub use self::footer::Footer;
