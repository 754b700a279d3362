//! The entry that a merging cursor shows, in memory of its own.
//!
//! Plain data.

#![forbid(unsafe_code)]

use std::borrow::Cow;

use crate::merge_operator::{MergeOperator, apply};
use paranoid_memtable::read::Base;
use paranoid_memtable::{Kind, Result, SequenceNumber, shown};

/// An entry that a merging cursor shows: the newest version of its key that the view sees. A cursor
/// lends its current entry; a clone outlives the next move. [`View::get`](crate::View::get) returns
/// one for a key with merge operands.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::read::Base;
/// use paranoid_set::{MemTableSet, MergedEntry, SetOptions};
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
    /// The kind of the newest version; `None` if there is no value and no operand.
    pub(crate) kind: Option<Kind>,
    /// The value. If there are merge operands, the value that they apply to.
    pub(crate) value: Vec<u8>,
    /// Merge operands, newest first.
    operands: Vec<Vec<u8>>,
    /// The kind of the version that the operands apply to; `None` if no source has it.
    pub(crate) base: Option<Kind>,
}

impl MergedEntry {
    /// An entry with only its key.
    pub(crate) fn of(key: &[u8]) -> Self {
        MergedEntry {
            key: key.to_vec(),
            ..MergedEntry::default()
        }
    }

    /// Starts again with only a key, and keeps the memory of the value.
    pub(crate) fn begin(&mut self, key: Vec<u8>) {
        self.value.clear();
        *self = MergedEntry {
            key,
            value: std::mem::take(&mut self.value),
            ..MergedEntry::default()
        };
    }

    /// Whether no older version is needed: the value, or the base of the operands, is known.
    pub(crate) fn is_complete(&self) -> bool {
        self.base.is_some() || self.kind.is_some() && self.operands.is_empty()
    }

    /// This entry, if it has a value or an operand.
    pub(crate) fn if_shown(self) -> Option<Self> {
        self.kind.is_some().then_some(self)
    }

    /// Takes the contents of `value` as the version that ends the search: the value of the entry,
    /// or the base of its operands.
    pub(crate) fn take_value(&mut self, kind: Kind, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(kind), sequence);
        } else {
            self.base = Some(kind);
        }
    }

    /// Takes the contents of `value` as the next older operand.
    pub(crate) fn take_operand(&mut self, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(Kind::MERGE), sequence);
        }
        self.operands.push(std::mem::take(&mut self.value));
    }

    /// The user key, in the bytes of the newest version if several byte strings compare equal.
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

    /// The value, or the newest operand of a key with merge operands.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.operands.first().unwrap_or(&self.value)
    }

    /// The [value](Self::value) without a copy.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// set.put("apple", "red")?;
    /// let entry = set.view().cursor()?.ascending().next().expect("one key")?;
    /// assert_eq!(entry.into_value(), b"red");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn into_value(self) -> Vec<u8> {
        self.operands.into_iter().next().unwrap_or(self.value)
    }

    /// The merge operands, newest first; none for a key with a plain value.
    #[must_use]
    pub fn operands(&self) -> &[Vec<u8>] {
        &self.operands
    }

    /// The base that the merge operands apply to. [`Base::Below`] means that no source has the
    /// base, but files below the sources may have it.
    #[must_use]
    pub fn base(&self) -> Base<&[u8]> {
        match self.base {
            None => Base::Below,
            Some(kind) if kind.is_point_delete() => Base::Deleted,
            Some(_) => Base::Value(&self.value),
        }
    }

    /// The key's value with its merge operands applied; borrowed if there are none. If the
    /// [base](Self::base) is `Below`, `below` is the engine's value of the key below the sources.
    ///
    /// ```
    /// use std::error::Error;
    /// use paranoid_memtable::Lookup;
    /// use paranoid_set::{MemTableSet, MergeOperator, SetOptions};
    /// struct Append;
    /// impl MergeOperator for Append {
    ///     fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    ///         Ok([base.unwrap_or_default(), &operands.concat()].concat())
    ///     }
    /// }
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// set.merge(b"k", b"2")?;
    /// set.merge(b"k", b"3")?;
    /// let Lookup::Merge(entry) = set.view().get(b"k")? else { panic!("merge operands") };
    /// assert_eq!(*entry.merged(&Append, Some(b"1"))?, *b"123");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Merge` if the operator fails.
    pub fn merged(
        &self,
        operator: &(impl MergeOperator + ?Sized),
        below: Option<&[u8]>,
    ) -> Result<Cow<'_, [u8]>> {
        if self.operands.is_empty() {
            return Ok(Cow::Borrowed(&self.value));
        }
        let base = match self.base() {
            Base::Value(value) => Some(value),
            Base::Deleted => None,
            Base::Below => below,
        };
        let operands = self.operands.iter().map(Vec::as_slice);
        apply(operator, &self.key, base, operands).map(Cow::Owned)
    }

    /// The result of [`merged`](Self::merged) as a vector. A value without merge operands is not
    /// copied.
    ///
    /// # Errors
    /// Those of [`merged`](Self::merged).
    pub fn into_merged(
        self,
        operator: &(impl MergeOperator + ?Sized),
        below: Option<&[u8]>,
    ) -> Result<Vec<u8>> {
        if let Cow::Owned(value) = self.merged(operator, below)? {
            return Ok(value);
        }
        Ok(self.value)
    }
}

shown! { "MergedEntry": impl [] MergedEntry, |entry| { "sequence": entry.sequence, "kind": entry.kind() } }
