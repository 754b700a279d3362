//! Flush, scrub and salvage.

#![forbid(unsafe_code)]

pub(crate) mod flush;
pub(crate) mod scrub;
