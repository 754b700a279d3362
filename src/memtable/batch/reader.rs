//! The reader of a batch: returns its entries one after the other, each after its lengths were
//! checked and, with protection, its digest was compared.
//!
//! Any thread; an iterator has one owner.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::digest::{Kvo, Kvoc, Protected, key_part, value_part};
use crate::integrity::flipped_bit::{DIAGNOSIS_LEN_MAX, single_bit};
use crate::kind::Kind;
use crate::memtable::batch::encoding::{COUNT_AT, Header, Record, Records, damage};

/// One entry of a batch, borrowed from the batch. The iterator checked key and value before it
/// returned the entry.
///
/// ```
/// use paranoid_memtable::{Kind, WriteBatch};
/// use paranoid_memtable::integrity::Protected;
/// let mut batch = WriteBatch::new();
/// batch.delete_range(b"a", b"c")?;
/// for entry in batch.entries() {
///     let entry = entry?;
///     assert_eq!((entry.kind(), entry.key(), entry.value()), (Kind::RANGE_DELETE, b"a".as_slice(), b"c".as_slice()));
///     assert_eq!(entry.caller_digest(), Some(Protected::of(b"a", b"c", Kind::RANGE_DELETE)));
/// }
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct BatchEntry<'b> {
    family: u32,
    kind: Kind,
    key: &'b [u8],
    value: &'b [u8],
    /// The digest part K of the key, computed when the digest was compared.
    pub(crate) key_part: u64,
    caller_digest: Option<Protected<Kvo>>,
}

impl<'b> BatchEntry<'b> {
    /// The column family of the entry; 0 is the default one.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// batch.insert_in(7, Kind::DELETE, b"k", b"")?;
    /// let families: Vec<u32> = batch.entries().map(|entry| Ok(entry?.family())).collect::<Result<_, paranoid_memtable::Error>>()?;
    /// assert_eq!(families, [0, 7]);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn family(&self) -> u32 {
        self.family
    }

    /// The kind of the entry.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The user key; for a range delete, the start of the range.
    #[must_use]
    pub fn key(&self) -> &'b [u8] {
        self.key
    }

    /// The value; for a range delete, the end of the range; empty for point deletes.
    #[must_use]
    pub fn value(&self) -> &'b [u8] {
        self.value
    }

    /// The digest over kind, key and value that was computed when the entry was added, and that
    /// agreed when the entry was read. `None` if the batch carries no digests.
    ///
    /// ```
    /// use paranoid_memtable::{Kind, WriteBatch};
    /// use paranoid_memtable::integrity::Protected;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"k", b"v")?;
    /// let entry = batch.entries().next().expect("one entry")?;
    /// assert_eq!(entry.caller_digest(), Some(Protected::of(b"k", b"v", Kind::PUT)));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn caller_digest(&self) -> Option<Protected<Kvo>> {
        self.caller_digest
    }
}

/// Reads the entries of a batch.
pub(crate) struct EntryReader<'b> {
    buffer: &'b [u8],
    /// With protection, a digest for each record, also for a record that is no entry.
    caller_digests: Option<&'b [Protected<Kvoc>]>,
    header: Header,
    records: Records<'b>,
    /// Number of entries read.
    read: u32,
    /// Number of records read: entries and others.
    passed: usize,
}

impl<'b> EntryReader<'b> {
    /// A reader of these bytes; `Corruption` if they have another header.
    #[inline(always)]
    pub(super) fn open(
        buffer: &'b [u8],
        header: Header,
        caller_digests: Option<&'b [Protected<Kvoc>]>,
    ) -> Result<Self> {
        header.compare(Header::read(buffer)?)?;
        let records = Records::new(buffer);
        Ok(EntryReader {
            buffer,
            caller_digests,
            header,
            records,
            read: 0,
            passed: 0,
        })
    }

    /// Verifies all records, and returns a digest for each, also for a record that is no entry. It
    /// is the batch's own digest, or computed here if the batch has none. O(length).
    pub(super) fn record_digests(mut self) -> Result<Vec<Protected<Kvoc>>> {
        let mut digests = Vec::with_capacity(self.caller_digests.map_or(0, <[_]>::len));
        while let Some(BatchEntry {
            family,
            kind,
            key,
            value,
            caller_digest,
            ..
        }) = self.step_record()?
        {
            let digest = caller_digest.unwrap_or_else(|| Protected::of(key, value, kind));
            digests.push(digest.with_family(family));
        }
        self.end().map(|()| digests)
    }

    /// Returns the next entry, and skips records that are no entries; `None` at the end of the
    /// bytes. Not to be called after the end or an error.
    #[inline(always)]
    pub(crate) fn step(&mut self) -> Result<Option<BatchEntry<'b>>> {
        loop {
            match self.step_record()? {
                None => return self.end().map(|()| None),
                Some(record) if !record.kind.is_known() => {}
                entry => return Ok(entry),
            }
        }
    }

    /// The next record, an entry or not.
    #[inline(always)]
    fn step_record(&mut self) -> Result<Option<BatchEntry<'b>>> {
        let at = self.records.offset();
        let record = self
            .records
            .advance()
            .map_err(|error| self.diagnosed(at, error))?;
        let Some(record) = record else {
            return Ok(None);
        };
        let Record {
            family,
            kind,
            key,
            value,
        } = record;
        let key_part = key_part(key);
        let caller_digest = self.check_caller_digest(at, &record, key_part)?;
        self.passed += 1;
        // The count saturates at 2^32 - 1, the largest one that a header can have.
        self.read = self.read.saturating_add(u32::from(kind.is_known()));
        Ok(Some(BatchEntry {
            family,
            kind,
            key,
            value,
            key_part,
            caller_digest,
        }))
    }

    /// Compares the number of entries read with the count in the header.
    #[inline]
    fn end(&self) -> Result<()> {
        if self.read == self.header.count {
            return Ok(());
        }
        Err(damage(
            COUNT_AT,
            u64::from(self.read),
            u64::from(self.header.count),
        ))
    }

    /// Compares the record with its digest, and returns the digest for a table, without the family.
    #[inline(always)]
    fn check_caller_digest(
        &self,
        at: usize,
        record: &Record<'_>,
        key_part: u64,
    ) -> Result<Option<Protected<Kvo>>> {
        let Some(digests) = self.caller_digests else {
            return Ok(None);
        };
        let Some(&caller_digest) = digests.get(self.passed) else {
            return Err(damage(at, self.passed as u64 + 1, digests.len() as u64));
        };
        let computed = Protected::of_parts(key_part, value_part(record.value), record.kind);
        let computed = computed.with_family(record.family);
        if computed != caller_digest {
            return Err(self.diagnosed(at, damage(at, computed.to_bits(), caller_digest.to_bits())));
        }
        Ok(Some(caller_digest.without_family(record.family)))
    }

    /// The error for the record at `at`. In a batch with digests every error is damage, because a
    /// batch refuses long keys and records that only RocksDB applies when they are added. The
    /// report names the one flipped bit that explains the damage, if there is one.
    #[cold]
    fn diagnosed(&self, at: usize, error: Error) -> Error {
        let digests = self.caller_digests.unwrap_or_default();
        let Some(&caller_digest) = digests.get(self.passed) else {
            return error;
        };
        let mut report = match error {
            Error::Corruption(report) => report,
            Error::KeyTooLarge { len, max } => {
                Corruption::new(Place::Encoding, at as u64, max, len)
            }
            Error::NotSupported(_) => {
                let tag = self.buffer.get(at).copied().unwrap_or_default();
                Corruption::new(Place::Encoding, at as u64, 0, u64::from(tag))
            }
            other => return other,
        };
        let end = self.buffer.len().min(at + DIAGNOSIS_LEN_MAX);
        let bytes = self.buffer.get(at..end).unwrap_or_default();
        let matches_caller_digest = |bytes: &[u8]| match Records::bare(bytes).advance() {
            Ok(Some(Record {
                family,
                kind,
                key,
                value,
            })) => Protected::of(key, value, kind).with_family(family) == caller_digest,
            _ => false,
        };
        if let Some(bit) = single_bit(bytes, matches_caller_digest) {
            (report.offset, report.flipped_bit) = (at as u64, Some(bit));
        }
        Error::Corruption(report)
    }
}
