//! The directory: a tree of pages that hints where a search of the list starts.
//!
//! ```text
//!   root word -> inner page | d0 d1 d2 ..  | child, fence ..    discriminators of 64 bits
//!                               |
//!                leaf page <----+ | d: node | d: node | .. |    discriminators of 32 bits; leaves name both neighbours
//!                                      |
//!   level 0      .. -> a -> b -> c -> [pred | succ] -> ..       the certified bracket decides (SEARCH-1)
//! ```
//! A lookup returns a hint. A page that is stale, damaged, missing or being written costs a search
//! steps, and never changes its answer.

#![forbid(unsafe_code)]

pub(crate) mod discriminator;
pub(crate) mod page;
pub(crate) mod lookup;
pub(crate) mod inspect;
pub(crate) mod choice;
pub(crate) mod name;
