//! Tests that look at a table's memory from inside.

#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod backed_ahead;
mod lost_writes;
mod vector;
