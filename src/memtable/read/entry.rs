//! Entries as reads return them, and verified copies of entries.
//!
//! A getter that can fail compares what it returns with the value digest, which covers key,
//! sequence number, kind and value. The search has compared the key with the key digest.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::comparator::KeyComparator;
use crate::error::Result;
use crate::integrity::digest::{StoredProtection, Width};
use crate::key::{SequenceNumber, Target};
use crate::kind::Kind;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::node::Verified;
use crate::memtable::core::Core;

/// An entry as stored. The call that returned the entry has verified key, sequence number and kind;
/// a getter that returns a `Result` verifies all that it returns when it is called.
///
/// Getters compare the value digest, so none of them reports a damaged key digest. A scrub and the
/// next search for the entry report it.
///
/// ```
/// use paranoid_memtable::{Kind, MemTable};
/// let table = MemTable::default();
/// table.put(7, b"key", b"value")?;
/// let entry = table.get_entry(b"key", 7)?.expect("it was put");
/// assert_eq!((entry.user_key(), entry.sequence(), entry.kind()), (b"key".as_slice(), 7, Kind::PUT));
/// assert_eq!(entry.value()?, b"value");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub(crate) entry: Verified<'a>,
    core: &'a Core,
}

impl<'a> Entry<'a> {
    #[inline(always)]
    pub(crate) fn new(entry: Verified<'a>, core: &'a Core) -> Self {
        Entry { entry, core }
    }

    /// Whether this entry is before a position.
    #[inline]
    pub(crate) fn is_before(&self, comparator: &KeyComparator, position: &Target<'_>) -> bool {
        self.entry.order(comparator, position).is_lt()
    }

    /// The user key.
    #[must_use]
    #[inline]
    pub fn user_key(&self) -> &'a [u8] {
        self.entry.key()
    }

    /// The sequence number.
    #[must_use]
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        self.entry.sequence()
    }

    /// The kind.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> Kind {
        self.entry.kind()
    }

    /// Length of the value in bytes.
    #[must_use]
    #[inline]
    pub fn value_len(&self) -> usize {
        self.entry.lengths().value_len()
    }

    /// The value, verified now, together with the key. O(length).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(7, b"key", b"value")?;
    /// assert_eq!(table.get_entry(b"key", 7)?.expect("it was put").value()?, b"value");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the value is damaged.
    #[inline]
    pub fn value(&self) -> Result<&'a [u8]> {
        match self.try_value() {
            Some(value) => Ok(value),
            None => self.any_value(),
        }
    }

    /// The value, if it verifies, has a digest of 8 bytes, and is short: then this calls nothing
    /// and saves no register.
    #[inline(never)]
    fn try_value(&self) -> Option<&'a [u8]> {
        if !self.core.arena.has_whole_digests() {
            return None;
        }
        self.entry.try_value()
    }

    /// [`value`](Self::value) for an entry of any size, or the report of its damage.
    #[inline(never)]
    fn any_value(&self) -> Result<&'a [u8]> {
        let value = self.entry.value_unverified();
        if self.core.arena.has_whole_digests() && self.entry.has_value(value, Width::default()) {
            return Ok(value);
        }
        Ok(self.entry.value(&self.core.arena.view()?)?)
    }

    /// This entry, or its healed copy, with key and value verified now.
    #[inline]
    pub(crate) fn whole(&self) -> Result<Verified<'a>> {
        let entry = self.entry;
        if self.core.arena.has_whole_digests()
            && entry.has_parts(entry.key(), entry.value_unverified(), Width::default())
        {
            return Ok(entry);
        }
        Ok(entry.intact(self.core.arena.view()?)?)
    }

    /// Key and value, verified now, together with sequence number and kind. O(length).
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(7, b"apple", b"red")?;
    /// for entry in table.range(..) {
    ///     assert_eq!(entry?.parts()?, (b"apple".as_slice(), b"red".as_slice()));
    /// }
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if key or value is damaged.
    #[inline]
    pub fn parts(&self) -> Result<(&'a [u8], &'a [u8])> {
        let whole = self.whole()?;
        Ok((whole.key(), whole.value_unverified()))
    }

    /// A copy of the whole entry, verified after it was made. The copy is `'static` and cheap to
    /// clone, and does not keep the table alive.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(7, b"apple", b"red")?;
    /// let copy = table.get_entry(b"apple", 7)?.expect("it was put").to_bytes()?;
    /// drop(table);
    /// assert_eq!((copy.user_key(), copy.value()), (b"apple".as_slice(), b"red".as_slice()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the copy does not verify.
    pub fn to_bytes(&self) -> Result<EntryBytes> {
        let whole = self.whole()?;
        let (key, value) = (whole.key(), whole.value_unverified());
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, key.len() + value.len()).collect();
        if let Some((key_to, value_to)) =
            Arc::get_mut(&mut bytes).map(|bytes| bytes.split_at_mut(key.len()))
        {
            key_to.copy_from_slice(key);
            value_to.copy_from_slice(value);
        }
        let copy = EntryBytes {
            bytes,
            key_len: key.len(),
            sequence: self.sequence(),
            kind: self.kind(),
        };
        let width = self.core.arena.view()?.width;
        whole.verify_parts(copy.user_key(), copy.value(), width)?;
        Ok(copy)
    }

    /// Copies the value into a buffer and verifies the copy.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(7, b"key", b"value")?;
    /// let mut buffer = Vec::new();
    /// table.get_entry(b"key", 7)?.expect("it was put").value_into(&mut buffer)?;
    /// assert_eq!(buffer, b"value");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the copy does not verify; the buffer is then empty.
    pub fn value_into(&self, buffer: &mut Vec<u8>) -> Result<()> {
        copy_verified(&self.entry, &self.core.arena.view()?, buffer).map(|_| ())
    }

    /// The digests that the table stored with the entry, for a caller that passes it on.
    #[must_use]
    pub fn stored_protection(&self) -> StoredProtection {
        match self.core.arena.view() {
            Ok(view) => self.entry.or_healed(view).stored_protection(view.width),
            // No width fails: what is returned then agrees with no entry.
            Err(_) => self.entry.stored_protection(Width::default()),
        }
    }
}

/// Copies a value and then verifies the copy, so the caller gets exactly the bytes that were
/// checked. Returns the entry whose value it is: `entry`, or its healed copy.
#[inline]
pub(crate) fn copy_verified<'a>(
    entry: &Verified<'a>,
    view: &View<'a>,
    buffer: &mut Vec<u8>,
) -> Result<Verified<'a>> {
    buffer.clear();
    buffer.extend_from_slice(entry.value_unverified());
    if entry.has_value(buffer, view.width) {
        return Ok(*entry);
    }
    copy_healed(*entry, *view, buffer)
}

/// [`copy_verified`] of a damaged entry, or of one that was healed before.
#[cold]
#[inline(never)]
fn copy_healed<'a>(
    entry: Verified<'a>,
    view: View<'a>,
    buffer: &mut Vec<u8>,
) -> Result<Verified<'a>> {
    buffer.clear();
    let entry = entry.intact(view)?;
    buffer.extend_from_slice(entry.value_unverified());
    let checked = entry.verify_copy(buffer, view.width);
    checked.inspect_err(|_| buffer.clear())?;
    Ok(entry)
}

/// A verified copy of an entry, made by [`Entry::to_bytes`]: `'static`, and cheap to clone.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.put(7, b"key", b"value")?;
/// let bytes = table.get_entry(b"key", 7)?.expect("it was put").to_bytes()?;
/// drop(table);
/// assert_eq!((bytes.user_key(), bytes.value()), (b"key".as_slice(), b"value".as_slice()));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct EntryBytes {
    bytes: Arc<[u8]>,
    key_len: usize,
    sequence: SequenceNumber,
    kind: Kind,
}

impl EntryBytes {
    /// The user key.
    #[must_use]
    pub fn user_key(&self) -> &[u8] {
        self.bytes.split_at(self.key_len).0
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.bytes.split_at(self.key_len).1
    }

    /// The sequence number.
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
