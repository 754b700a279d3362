//! What a merging cursor shows: one entry, in memory of its own.
//!
//! Plain data.

#![forbid(unsafe_code)]

use crate::merge_operator::{MergeOperator, apply};
use paranoid_memtable::read::Base;
use paranoid_memtable::{Kind, Result, SequenceNumber, shown};

/// An entry that a merging cursor shows: the newest version of its key that the view sees. A cursor
/// lends the one that it stands on; a clone stays when the cursor moves.
/// [`View::get`](crate::View::get) has one of a key with merge operands.
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
    /// Nothing but a key.
    pub(crate) fn of(key: &[u8]) -> Self {
        MergedEntry {
            key: key.to_vec(),
            ..MergedEntry::default()
        }
    }

    /// Starts with a key and nothing else.
    pub(crate) fn begin(&mut self, key: Vec<u8>) {
        self.value.clear();
        *self = MergedEntry {
            key,
            value: std::mem::take(&mut self.value),
            ..MergedEntry::default()
        };
    }

    /// Whether nothing older is needed: it has its value, or what its operands apply to.
    pub(crate) fn is_complete(&self) -> bool {
        self.base.is_some() || self.kind.is_some() && self.operands.is_empty()
    }

    /// This entry, if there is anything to be shown.
    pub(crate) fn if_shown(self) -> Option<Self> {
        self.kind.is_some().then_some(self)
    }

    /// Takes `value` as that of the version which ends the search.
    pub(crate) fn take_value(&mut self, kind: Kind, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(kind), sequence);
        } else {
            self.base = Some(kind);
        }
    }

    /// Takes `value` as an operand.
    pub(crate) fn take_operand(&mut self, sequence: SequenceNumber) {
        if self.operands.is_empty() {
            (self.kind, self.sequence) = (Some(Kind::MERGE), sequence);
        }
        self.operands.push(std::mem::take(&mut self.value));
    }

    /// The user key. If the comparator takes several spellings for one key, the spelling of the
    /// newest version.
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

    /// What the merge operands apply to; [`Base::Below`] if no source has it, but what is below the
    /// sources may.
    #[must_use]
    pub fn base(&self) -> Base<&[u8]> {
        match self.base {
            None => Base::Below,
            Some(kind) if kind.is_point_delete() => Base::Deleted,
            Some(_) => Base::Value(&self.value),
        }
    }

    /// The key's value with its merge operands applied; a copy of the value if it has none. `below`
    /// is what the engine has of the key below the sources, for a [base](Self::base) that may be
    /// there.
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
    /// assert_eq!(entry.merged(&Append, Some(b"1"))?, b"123");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Merge` if the operator fails.
    pub fn merged(
        &self,
        operator: &(impl MergeOperator + ?Sized),
        below: Option<&[u8]>,
    ) -> Result<Vec<u8>> {
        if self.operands.is_empty() {
            return Ok(self.value.clone());
        }
        let base = match self.base() {
            Base::Value(value) => Some(value),
            Base::Deleted => None,
            Base::Below => below,
        };
        apply(
            operator,
            &self.key,
            base,
            self.operands.iter().map(Vec::as_slice),
        )
    }
}

shown! { "MergedEntry": impl [] MergedEntry, |entry| { "sequence": entry.sequence, "kind": entry.kind() } }
