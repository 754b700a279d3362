//! Tests that look at a table's memory from inside.

#![forbid(unsafe_code)]

mod lost_writes;
