//! From the last write to the file: freeze, flush, scrub, salvage, fault injection, and `Debug` of all types.

pub(crate) mod debug;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod fault;
pub(crate) mod flush;
pub(crate) mod freeze;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod past;
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) mod piece;
pub(crate) mod salvage;
pub(crate) mod scrub;
