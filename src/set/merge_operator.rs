//! Merge operators: what an engine makes of merge operands and the value below them.
//!
//! Any thread; an operator is a pure function of what it is given.

#![forbid(unsafe_code)]

use std::error::Error as StdError;

use crate::error::{Error, Result};
use crate::memtable::read::get::Base;

/// The error of a merge operator.
///
/// ```
/// use paranoid_memtable::set::MergeError;
/// let error: MergeError = "an operand is no number".into();
/// assert_eq!(error.to_string(), "an operand is no number");
/// ```
pub type MergeError = Box<dyn StdError + Send + Sync>;

/// Makes the value of a key from its merge operands and what is below them.
///
/// ```
/// use paranoid_memtable::{Result, WriteBatch};
/// use paranoid_memtable::set::{MemTableSet, MergeError, MergeOperator, SetLookup, SetOptions};
///
/// /// Sums of one byte each.
/// struct Sum;
/// impl MergeOperator for Sum {
///     fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
///         let sum = operands.iter().copied().chain(base).flatten().try_fold(0u8, |sum, byte| sum.checked_add(*byte));
///         Ok(vec![sum.ok_or("the sum is over 255")?])
///     }
/// }
/// # fn main() -> Result<()> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"n", &[40])?;
/// batch.merge(b"n", &[1])?;
/// batch.merge(b"n", &[2])?;
/// set.write(&batch)?;
/// let view = set.view();
/// let SetLookup::Merge(pending) = view.get(b"n")? else { panic!("merge operands") };
/// assert_eq!(pending.apply(&Sum, b"n", None)?, [43]);
/// # Ok(()) }
/// ```
pub trait MergeOperator: Send + Sync {
    /// The value of `key`: the operands, oldest first, applied to `base`, which is `None` if the key was deleted or
    /// never put.
    ///
    /// # Errors
    /// Any error is that of reading this key, as `Error::Merge`.
    fn merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, MergeError>;
}

/// Applies operands, newest first as reads find them; `below` is what is below their base, if that is not known.
pub(crate) fn apply<'o>(
    operator: &(impl MergeOperator + ?Sized),
    key: &[u8],
    base: Base<'_>,
    below: Option<&[u8]>,
    newest_first: impl DoubleEndedIterator<Item = &'o [u8]>,
) -> Result<Vec<u8>> {
    let base = match base {
        Base::Value(value) => Some(value),
        Base::Deleted => None,
        Base::Below => below,
    };
    let operands: Vec<&[u8]> = newest_first.rev().collect();
    operator.merge(key, base, &operands).map_err(|cause| Error::Merge(cause.into()))
}
