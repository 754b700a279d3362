//! Range tombstones cut into fragments that do not overlap.

#![forbid(unsafe_code)]

pub(crate) mod fragments;
pub(crate) mod fragmenter;
