//! Merge operators: an engine's function from merge operands and their base value to a value.
//!
//! Any thread. An operator is a pure function of its arguments.

#![forbid(unsafe_code)]

use std::error::Error as StdError;

use paranoid_memtable::{Error, Result};

/// A merge operator makes the value of a key from its merge operands and the value below them.
///
/// ```
/// use std::error::Error;
/// use paranoid_memtable::{Lookup, Result, WriteBatch};
/// use paranoid_set::{MemTableSet, MergeOperator, SetOptions};
///
/// /// Sums of one byte each.
/// struct Sum;
/// impl MergeOperator for Sum {
///     fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
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
/// let Lookup::Merge(entry) = view.get(b"n")? else { panic!("merge operands") };
/// assert_eq!(*entry.merged(&Sum, None)?, [43]);
/// # Ok(()) }
/// ```
pub trait MergeOperator: Send + Sync {
    /// Returns the value of `key`: the operands, oldest first, applied to `base`. `base` is `None`
    /// if the key was deleted or never put.
    ///
    /// # Errors
    /// A read of the key returns any error as `Error::Merge`.
    fn merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, Box<dyn StdError + Send + Sync>>;

    /// Returns one operand with the same effect on every base as these operands of `key`, which are
    /// oldest first. `None`, the default, means that there is none. A
    /// [`Compaction`](crate::Compaction) keeps the one operand in their place.
    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }
}

/// Applies operands, which reads find newest first, to a base.
pub(crate) fn apply<'o>(
    operator: &(impl MergeOperator + ?Sized),
    key: &[u8],
    base: Option<&[u8]>,
    newest_first: impl DoubleEndedIterator<Item = &'o [u8]>,
) -> Result<Vec<u8>> {
    let operands: Vec<&[u8]> = newest_first.rev().collect();
    operator
        .merge(key, base, &operands)
        .map_err(|cause| Error::Merge(cause.into()))
}
