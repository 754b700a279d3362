//! What a merging cursor shows: one entry, in memory of its own.
//!
//! Plain data.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::key::{Kind, SequenceNumber};
use crate::memtable::debug::shown;
use crate::memtable::read::get::Base;
use crate::set::merge_operator::{MergeOperator, apply};

/// An entry that a merging cursor shows: the newest version of its key that the view sees. A cursor lends the one that it
/// stands on; a clone stays when the cursor moves.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::read::Base;
/// use paranoid_memtable::set::{MemTableSet, MergedEntry, SetOptions};
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
/// let entry: MergedEntry = cursor.first()?.expect("one key").clone();
/// assert!(cursor.next()?.is_none());
/// assert_eq!((entry.sequence(), entry.value(), entry.operands().len()), (3, &b"+2"[..], 2));
/// assert!(matches!(entry.base(), Base::Value(b"40")));
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct MergedEntry {
    pub(crate) key: Vec<u8>,
    sequence: SequenceNumber,
    /// The kind of the newest version; `None` as long as there is nothing to be shown.
    pub(crate) kind: Option<Kind>,
    /// The value; of a key with merge operands, what they apply to.
    pub(crate) value: Vec<u8>,
    /// Merge operands, newest first.
    operands: Vec<Vec<u8>>,
    /// The kind of what the operands apply to; `None` if no source has it.
    pub(crate) base: Option<Kind>,
}

impl MergedEntry {
    /// Begins with a key of which nothing is known.
    pub(crate) fn begin(&mut self, key: Vec<u8>) {
        self.key = key;
        self.kind = None;
        self.value.clear();
        self.operands.clear();
        self.base = None;
    }

    /// `value` is that of a version which ends the search.
    pub(crate) fn take_value(&mut self, kind: Kind, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(kind), sequence);
        } else {
            self.base = Some(kind);
        }
    }

    /// `value` is a merge operand.
    pub(crate) fn take_operand(&mut self, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(Kind::MERGE), sequence);
        }
        self.operands.push(std::mem::take(&mut self.value));
    }

    /// The user key, as its newest version has it.
    #[must_use]
    pub fn user_key(&self) -> &[u8] {
        &self.key
    }

    /// The sequence number of the newest version.
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The kind of the newest version: `PUT`, a custom kind, or `MERGE`.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind.unwrap_or(Kind::PUT)
    }

    /// The value; of a key with merge operands, the newest operand.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.operands.first().unwrap_or(&self.value)
    }

    /// The merge operands, newest first; none for a key with a plain value.
    #[must_use]
    pub fn operands(&self) -> &[Vec<u8>] {
        &self.operands
    }

    /// What the merge operands apply to; [`Base::Below`] if no source has it, but what is below the sources may.
    #[must_use]
    pub fn base(&self) -> Base<'_> {
        match self.base {
            None => Base::Below,
            Some(kind) if kind.is_point_delete() => Base::Deleted,
            Some(_) => Base::Value(&self.value),
        }
    }

    /// The key's value with its merge operands applied; a copy of the value if it has none.
    ///
    /// # Errors
    /// `Merge` if the operator fails.
    pub fn merged(&self, operator: &(impl MergeOperator + ?Sized)) -> Result<Vec<u8>> {
        if self.operands.is_empty() {
            return Ok(self.value.clone());
        }
        apply(operator, &self.key, self.base(), None, self.operands.iter().map(Vec::as_slice))
    }
}

shown! { "MergedEntry": impl [] MergedEntry, |entry| { "sequence": entry.sequence, "kind": entry.kind() } }
