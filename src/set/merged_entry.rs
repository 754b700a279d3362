//! What a merging cursor shows: one entry, in the cursor's own memory.
//!
//! Plain data.

#![forbid(unsafe_code)]

use std::fmt;

use crate::error::Result;
use crate::key::{Kind, SequenceNumber};
use crate::memtable::lifecycle::debug::shown;
use crate::set::merge_operator::{MergeOperator, apply};

/// The entry under the cursor, in the cursor's own memory.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) key: Vec<u8>,
    /// Whether the cursor has come to this key, or to one that was hidden.
    pub(crate) has_place: bool,
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: Option<Kind>,
    /// The value, or the newest merge operand.
    pub(crate) value: Vec<u8>,
    /// Merge operands, newest first.
    pub(crate) operands: Vec<Vec<u8>>,
    pub(crate) base: MergeBase,
}

/// What merge operands apply to, in memory of its own.
///
/// ```
/// use paranoid_memtable::set::MergeBase;
/// assert_eq!(MergeBase::default(), MergeBase::Below);
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub enum MergeBase {
    /// This value.
    Value(Vec<u8>),
    /// None, because the key was deleted before the oldest operand.
    Deleted,
    /// No source has one; what is below the sources may.
    #[default]
    Below,
}

/// What a key resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolved {
    Shown,
    Hidden,
}

impl Shown {
    /// Begins with a key of which nothing is known.
    pub(crate) fn begin(&mut self, key: Vec<u8>) {
        self.key = key;
        self.has_place = true;
        self.kind = None;
        self.value.clear();
        self.operands.clear();
        self.base = MergeBase::Below;
    }

    pub(crate) fn take_value(&mut self, kind: Kind, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(kind), sequence);
        } else {
            self.base = MergeBase::Value(std::mem::take(&mut self.value));
        }
    }

    pub(crate) fn take_operand(&mut self, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(Kind::MERGE), sequence);
        }
        self.operands.push(std::mem::take(&mut self.value));
    }

    pub(crate) fn resolved(&self) -> Resolved {
        if self.kind.is_some() { Resolved::Shown } else { Resolved::Hidden }
    }
}

/// An entry under a merging cursor, in the cursor's memory: the newest version of its key that the view sees.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::set::{MemTableSet, MergeBase, MergedEntry, SetOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"count", b"40")?;
/// set.write(&batch)?;
/// set.switch()?;
/// batch.clear();
/// batch.merge(b"count", b"+1")?;
/// batch.merge(b"count", b"+2")?;
/// set.write(&batch)?;
/// let mut cursor = set.view().cursor()?;
/// let entry: MergedEntry<'_> = cursor.first()?.expect("one key");
/// assert_eq!((entry.sequence(), entry.value(), entry.operands().len()), (3, &b"+2"[..], 2));
/// assert_eq!(entry.base(), &MergeBase::Value(b"40".to_vec()));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct MergedEntry<'c> {
    pub(crate) shown: &'c Shown,
}

impl<'c> MergedEntry<'c> {
    /// The user key.
    #[must_use]
    pub fn user_key(&self) -> &'c [u8] {
        &self.shown.key
    }

    /// The sequence number of the newest version.
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.shown.sequence
    }

    /// The kind of the newest version: `PUT`, a custom kind, or `MERGE`.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.shown.kind.unwrap_or(Kind::PUT)
    }

    /// The value; of a key with merge operands, the newest operand.
    #[must_use]
    pub fn value(&self) -> &'c [u8] {
        self.shown.operands.first().map_or(&self.shown.value, |operand| operand)
    }

    /// The merge operands, newest first; none for a key with a plain value.
    #[must_use]
    pub fn operands(&self) -> &'c [Vec<u8>] {
        &self.shown.operands
    }

    /// The key's value with its merge operands applied; a copy of the value if it has none.
    ///
    /// # Errors
    /// `Merge` if the operator fails.
    pub fn merged(&self, operator: &(impl MergeOperator + ?Sized)) -> Result<Vec<u8>> {
        let base = match &self.shown.base {
            _ if self.operands().is_empty() => return Ok(self.value().to_vec()),
            MergeBase::Value(value) => Some(value.as_slice()),
            MergeBase::Deleted | MergeBase::Below => None,
        };
        apply(operator, self.user_key(), base, self.operands().iter().map(Vec::as_slice))
    }

    /// What the merge operands apply to.
    #[must_use]
    pub fn base(&self) -> &'c MergeBase {
        &self.shown.base
    }
}

impl MergedEntry<'_> {
    /// A copy in memory of its own.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, MergedEntryBytes, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// set.write(&batch)?;
    /// let copy: MergedEntryBytes = set.view().cursor()?.first()?.expect("one key").to_bytes();
    /// assert_eq!((copy.user_key(), copy.entry().value()), (b"a".as_slice(), b"1".as_slice()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> MergedEntryBytes {
        MergedEntryBytes { shown: self.shown.clone() }
    }
}

/// A copy of a [`MergedEntry`] in memory of its own.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::set::{MemTableSet, MergedEntryBytes, SetOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"a", b"1")?;
/// set.write(&batch)?;
/// let all: Vec<MergedEntryBytes> = set.view().range(..)?.collect::<Result<_, _>>()?;
/// assert_eq!((all[0].user_key(), all[0].value()), (b"a".as_slice(), b"1".as_slice()));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MergedEntryBytes {
    shown: Shown,
}

impl MergedEntryBytes {
    /// The entry: sequence number, kind, merge operands and what they apply to.
    #[must_use]
    pub fn entry(&self) -> MergedEntry<'_> {
        MergedEntry { shown: &self.shown }
    }

    /// The user key.
    #[must_use]
    pub fn user_key(&self) -> &[u8] {
        self.entry().user_key()
    }

    /// The value; of a key with merge operands, the newest operand.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.entry().value()
    }
}

shown! {
    "MergedEntry": impl [] MergedEntry<'_>, |entry| { "sequence": entry.shown.sequence, "kind": entry.kind() }
    "MergedEntryBytes": impl [] MergedEntryBytes, |bytes| { "entry": bytes.entry() }
}

impl fmt::Debug for MergeBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeBase::Value(value) => f.debug_struct("Value").field("len", &value.len()).finish(),
            MergeBase::Deleted => f.write_str("Deleted"),
            MergeBase::Below => f.write_str("Below"),
        }
    }
}
