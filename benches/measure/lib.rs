//! What all measuring programs share: where they ran, and the one form in which they keep what they measured.

#![forbid(unsafe_code)]

pub mod environment;
pub mod record;
