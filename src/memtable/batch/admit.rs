//! The check of new entries: batches and tables refuse entries that are invalid in every key order.
//!
//! Pure functions and plain data; any thread.

#![forbid(unsafe_code)]

use crate::error::{Error, Result, not_a_range};
use crate::kind::Kind;
use crate::memtable::arena::layout::{KEY_LEN_MAX, VALUE_LEN_MAX};

/// The largest lengths of keys and values, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) key_len_max: u64,
    pub(crate) value_len_max: u64,
}

/// The limits of the encoding. A table's limits are equal or lower.
pub(super) const LIMITS: Limits = Limits {
    key_len_max: KEY_LEN_MAX,
    value_len_max: VALUE_LEN_MAX,
};

/// Refuses an entry that [`admit_lengths`] refuses, and a range whose start and end are equal.
pub(crate) fn admit(kind: Kind, key: &[u8], value: &[u8], limits: Limits) -> Result<()> {
    admit_lengths(kind, key.len(), value.len(), limits)?;
    if kind == Kind::RANGE_DELETE && key == value {
        Err(not_a_range())
    } else {
        Ok(())
    }
}

/// Refuses unknown kinds, lengths over the limits, and a point delete with a value.
pub(crate) fn admit_lengths(
    kind: Kind,
    key_len: usize,
    value_len: usize,
    limits: Limits,
) -> Result<()> {
    if !kind.is_known() {
        return Err(Error::InvalidArgument(format!(
            "{kind:?} is not a kind that tables take"
        )));
    }
    let Limits {
        key_len_max,
        value_len_max,
    } = limits;
    let end_len = if kind == Kind::RANGE_DELETE {
        value_len
    } else {
        0
    };
    let len = key_len.max(end_len) as u64;
    if len > key_len_max {
        return Err(Error::KeyTooLarge {
            len,
            max: key_len_max,
        });
    }
    let len = value_len as u64;
    if kind.is_bare() && len > 0 {
        return Err(Error::InvalidArgument(format!(
            "{kind:?} takes no value, {len} bytes given"
        )));
    }
    if len > value_len_max && kind != Kind::RANGE_DELETE {
        return Err(Error::ValueTooLarge {
            len,
            max: value_len_max,
        });
    }
    Ok(())
}
