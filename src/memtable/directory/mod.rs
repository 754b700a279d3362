//! The ordered directory: advice about where to start, beside the list.
//!
//! ```text
//!   root word -> inner page | d0 d1 d2 ..  | child, fence ..    discriminators of 64 bits
//!                               |
//!                leaf page <----+ | d: node | d: node | .. |    discriminators of 32 bits; leaves name each other
//!                                      |
//!   level 0      .. -> a -> b -> c -> [pred | succ] -> ..       what decides (SEARCH-2)
//! ```
//! Level 0 of the list is the truth, and every answer is a certified bracket. A page that is stale,
//! raced, damaged or missing costs steps, never an answer.

#![forbid(unsafe_code)]

pub(crate) mod discriminator;
pub(crate) mod page;
pub(crate) mod lookup;
pub(crate) mod inspect;
pub(crate) mod name;
#[cfg(all(test, loom))]
pub(crate) mod loom;
#[cfg(all(test, not(loom)))]
mod tests;
