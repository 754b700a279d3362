//! From the last write to the file: flush, scrub and salvage; what `{:?}` shows; damage on purpose.

mod debug;
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
