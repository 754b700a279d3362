//! What all measuring programs share: where they ran, and one form of record.

#![forbid(unsafe_code)]

pub mod environment;
pub mod record;
