//! Work on a whole table: freeze, flush, scrub and salvage.

#![forbid(unsafe_code)]

pub(crate) mod versions;
pub(crate) mod flush_sink;
pub(crate) mod flush;
pub(crate) mod scrub;
pub(crate) mod salvage;
pub(crate) mod freeze;
