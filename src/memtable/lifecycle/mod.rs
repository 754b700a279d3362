//! From the last write to the file.

#![forbid(unsafe_code)]

pub(crate) mod flush;
pub(crate) mod scrub;
