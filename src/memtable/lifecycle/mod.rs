//! Flush, scrub and salvage.

#![forbid(unsafe_code)]

pub(crate) mod flush;
pub(crate) mod scrub;
pub(crate) mod salvage;
pub(crate) mod freeze;
