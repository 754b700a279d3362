//! Tests that need access to a table's memory, or that count what a search reads.

#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod backed;
mod healing;
mod links;
mod lost_writes;
mod search_costs;
