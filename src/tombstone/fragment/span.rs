//! A range tombstone: one deletion of an interval of keys.
//!
//! ```text
//!   start          end
//!   |--------------)        every key from start up to, not including, end;
//!        sequence           every entry with a smaller sequence number
//! ```
//! * SPAN-1: start < end under the comparator that the span was made with; the constructor refuses everything else.
//!
//! Who may call what: plain data, `Send` and `Sync`.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use crate::comparator::Comparator;
use crate::error::{Error, Result};
use crate::key::SequenceNumber;

/// A range tombstone: it deletes every entry with a smaller sequence number whose key is in `start..end`, `end`
/// exclusive. `start` is always before `end`.
///
/// ```
/// use paranoid_memtable::{Bytewise, Error};
/// use paranoid_memtable::tombstone::RangeTombstone;
/// let tombstone = RangeTombstone::new(&Bytewise, "c", "k", 7)?;
/// assert!(tombstone.covers(&Bytewise, b"c", 6));
/// assert!(!tombstone.covers(&Bytewise, b"k", 6), "the end is exclusive");
/// assert!(!tombstone.covers(&Bytewise, b"c", 7), "only older entries are deleted");
/// assert!(matches!(RangeTombstone::new(&Bytewise, "k", "k", 7), Err(Error::InvalidArgument(_))));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RangeTombstone {
    start: Vec<u8>,
    end: Vec<u8>,
    sequence: SequenceNumber,
}

impl RangeTombstone {
    /// A range tombstone over `start..end`.
    ///
    /// ```
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::RangeTombstone;
    /// let tombstone = RangeTombstone::new(&Bytewise, "a", "c", 3)?;
    /// assert_eq!((tombstone.start(), tombstone.end(), tombstone.sequence()), (b"a".as_slice(), b"c".as_slice(), 3));
    /// assert!(RangeTombstone::new(&Bytewise, "c", "a", 3).is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless `start` is before `end` under `comparator`.
    pub fn new(
        comparator: &dyn Comparator,
        start: impl Into<Vec<u8>>,
        end: impl Into<Vec<u8>>,
        sequence: SequenceNumber,
    ) -> Result<Self> {
        let (start, end) = (start.into(), end.into());
        check_order(comparator.compare(&start, &end))?;
        Ok(RangeTombstone { start, end, sequence })
    }

    /// A range tombstone whose bounds the caller checks.
    pub(crate) fn unchecked(start: Vec<u8>, end: Vec<u8>, sequence: SequenceNumber) -> Self {
        RangeTombstone { start, end, sequence }
    }

    /// The first deleted key.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// The end of the range: the first key that is not deleted.
    #[must_use]
    pub fn end(&self) -> &[u8] {
        &self.end
    }

    /// The sequence number of the deletion.
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Whether this tombstone deletes the entry (`key`, `sequence`).
    ///
    /// ```
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::RangeTombstone;
    /// let tombstone = RangeTombstone::new(&Bytewise, "a", "c", 3)?;
    /// assert!(tombstone.covers(&Bytewise, b"b", 2));
    /// assert!(!tombstone.covers(&Bytewise, b"b", 3)); // not older
    /// assert!(!tombstone.covers(&Bytewise, b"c", 2)); // the end is exclusive
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn covers(&self, comparator: &dyn Comparator, key: &[u8], sequence: SequenceNumber) -> bool {
        sequence < self.sequence
            && comparator.compare(&self.start, key) != Ordering::Greater
            && comparator.compare(key, &self.end) == Ordering::Less
    }

    /// Takes start, end and sequence number out, without a copy.
    ///
    /// ```
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::RangeTombstone;
    /// let (start, end, sequence) = RangeTombstone::new(&Bytewise, "a", "c", 3)?.into_parts();
    /// assert_eq!((start.as_slice(), end.as_slice(), sequence), (b"a".as_slice(), b"c".as_slice(), 3));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn into_parts(self) -> (Vec<u8>, Vec<u8>, SequenceNumber) {
        (self.start, self.end, self.sequence)
    }
}

/// Checks SPAN-1: how a start compares with its end.
pub(crate) fn check_order(order: Ordering) -> Result<()> {
    if order == Ordering::Less {
        return Ok(());
    }
    Err(Error::InvalidArgument("a range must start before it ends".to_owned()))
}
