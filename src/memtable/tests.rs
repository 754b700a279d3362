//! Tests that need access to a table's memory.

#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod backed_ahead;
mod lost_writes;
