//! Pages for users: text only.
//!
//! - [`commit_protocol`]: who publishes what, and when
//! - [`options`]: what each option gains and costs
//! - [`errors`]: what each error means, and what to do
//! - [`fault_model`]: which faults are noticed
//! - [`performance`]: where this crate is fast, and where rivals are faster
//! - [`migrating`]: coming from another map
//! - [`misuse`]: what does not compile, and the correct form of it
#![forbid(unsafe_code)]

#[doc = include_str!("../docs/commit-protocol.md")]
pub mod commit_protocol {}

#[doc = include_str!("../docs/options.md")]
pub mod options {}

#[doc = include_str!("../docs/errors.md")]
pub mod errors {}

#[doc = include_str!("../docs/fault-model.md")]
pub mod fault_model {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}

#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}

#[doc = include_str!("../docs/misuse.md")]
pub mod misuse {}
