//! Digests of entries and checksums of blocks, which prove that memory still holds what was
//! written.

#![forbid(unsafe_code)]

pub(crate) mod hash;
pub(crate) mod hash_flip;
pub(crate) mod digest;
pub(crate) mod tag;
pub(crate) mod index_checks;
pub(crate) mod flipped_bit;
pub(crate) mod control_word;
pub(crate) mod spare_words;
pub(crate) mod checksum_kind;
pub(crate) mod block_checks;
pub(crate) mod options;
#[cfg(all(test, loom))]
mod loom;

pub use self::digest::{Kvo, Kvos, Protected, StoredProtection};
pub use crate::error::Place;
pub use crate::integrity::block_checks::BlockChecks;
pub use crate::integrity::options::Repair;
