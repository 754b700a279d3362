//! Proof that memory holds what was written: digests that travel with entries, and the reports of damage.

#![forbid(unsafe_code)]

pub(crate) mod control_word;
pub(crate) mod diagnosis;
pub(crate) mod digest;
pub(crate) mod hash;
pub(crate) mod options;
pub(crate) mod tag;

pub use self::digest::{Kvo, Kvos, Protected, StoredProtection};
pub use crate::error::Place;
