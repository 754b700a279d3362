//! Accelerators, which are asked before the entries are searched: filters; and counters of reads.

#![forbid(unsafe_code)]

pub(crate) mod lines;
pub(crate) mod ground;
pub(crate) mod filter;
pub(crate) mod accelerators;
