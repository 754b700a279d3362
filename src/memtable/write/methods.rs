//! The writing methods that `MemTable` and `Writer` share: `insert`, `put`, `delete`, `write_batch`
//! and others, written once as a macro.

#![forbid(unsafe_code)]

/// Defines the writing methods of a handle: how it reaches its table, and its own shard, if any.
macro_rules! writes {
    ($self:ident: $receiver:ty, $core:expr, $shard:expr) => {
        /// Inserts an entry. Expected O(log n), and O(1) if the entry follows the last entry of its
        /// writer shard. After the call has returned, every read at a snapshot of at least
        /// `sequence` sees the entry.
        ///
        /// ```
        /// use paranoid_memtable::{Error, Kind, MemTable};
        /// let table = MemTable::default();
        /// table.insert(1, Kind::custom(3), b"key", b"address of a blob")?;
        /// assert_eq!(table.get_entry(b"key", 1)?.map(|entry| entry.kind()), Some(Kind::custom(3)));
        /// assert!(matches!(table.insert(1, Kind::PUT, b"key", b""), Err(Error::DuplicateEntry { sequence: 1, .. })));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// `KeyTooLarge`, `ValueTooLarge`, `InvalidArgument` (an unknown kind, a point delete with
        /// a value, an empty or inverted range), `Frozen`, `DuplicateEntry`, `MemTableFull`, and
        /// `Corruption` if damage hides the place of the entry. After an error the table is
        /// unchanged.
        ///
        /// # Panics
        /// If the comparator panics. The table stays usable, and has the whole entry or nothing of
        /// it.
        #[inline]
        pub fn insert(
            $self: $receiver,
            sequence: SequenceNumber,
            kind: Kind,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            insert($core, $shard, sequence, kind, key.as_ref(), value.as_ref())
        }

        /// Inserts an entry whose value is the concatenation of several slices, which are copied
        /// straight into the arena. The entry equals the one that [`insert`](Self::insert) makes of
        /// the joined slices. The caller may give a digest over key, kind, whole value and sequence
        /// number.
        ///
        /// ```
        /// use paranoid_memtable::{Error, Kind, MemTable};
        /// use paranoid_memtable::integrity::Protected;
        /// # fn main() -> Result<(), Error> {
        /// let table = MemTable::default();
        /// table.insert_parts(1, Kind::PUT, b"key", &[b"head", b"", b"body"], None)?;
        /// assert!(table.get(b"key", 1)?.value() == Some(b"headbody"));
        ///
        /// let digest = Protected::of(b"key", b"value", Kind::PUT);
        /// table.insert_parts(2, Kind::PUT, b"key", &[b"value"], Some(digest.with_sequence(2)))?;
        /// let damaged = table.insert_parts(3, Kind::PUT, b"key", &[b"valve"], Some(digest.with_sequence(3)));
        /// assert!(matches!(damaged, Err(Error::Corruption(_))));
        /// # Ok(()) }
        /// ```
        ///
        /// The table computes its digests from the arena's bytes after the copy, and compares the
        /// caller's digest with them before the entry becomes visible. Without a caller's digest,
        /// it notices a bit that flips in the key, but not a bit that flips in the value before the
        /// copy.
        ///
        /// # Errors
        /// Those of [`insert`](Self::insert), where `ValueTooLarge` refers to the length of all
        /// slices together, and `Corruption` if the bytes do not match the caller's digest.
        pub fn insert_parts(
            $self: $receiver,
            sequence: SequenceNumber,
            kind: Kind,
            key: impl AsRef<[u8]>,
            value: &[&[u8]],
            caller_digest: Option<Protected<Kvos>>,
        ) -> Result<Inserted> {
            insert_parts(
                $core,
                $shard,
                sequence,
                kind,
                key.as_ref(),
                value,
                caller_digest,
            )
        }

        /// Writes the entries of a batch. The first entry gets `first_sequence`, and each further
        /// entry the next number. Expected O(n log n). The searches of a batch overlap, so a batch
        /// is faster than its entries one by one. An empty range, which only a batch from a log can
        /// have, takes its number and writes nothing. The [commit
        /// protocol](crate::guide::commit_protocol) says when readers may see the batch.
        ///
        /// ```
        /// use paranoid_memtable::{MemTable, MemTableOptions, WriteBatch};
        /// # fn main() -> Result<(), paranoid_memtable::Error> {
        /// let table = MemTable::new(MemTableOptions::default())?;
        /// let mut batch = WriteBatch::new();
        /// batch.put(b"apple", b"red")?;
        /// batch.delete(b"pear")?;
        /// assert_eq!(table.write_batch(7, &batch)?.entries, 2);
        /// assert_eq!(table.stats().largest_sequence, Some(8));
        /// # Ok(()) }
        /// ```
        ///
        /// # Errors
        /// The table is unchanged after:
        ///
        /// - the errors of [`insert`](Self::insert) for any entry;
        /// - `MemTableFull` if there is no contiguous room for the batch;
        /// - `InvalidArgument` if an entry is of a column family other than 0 (see
        ///   [`write_batch_of`](crate::MemTable::write_batch_of));
        /// - `Corruption` if the batch was damaged in memory.
        ///
        /// `BatchInterrupted` if the batch stopped after its first entry was linked, because damage
        /// was found or another writer inserted one of its keys with the same sequence number. The
        /// caller must then not publish the batch's sequence numbers.
        ///
        /// # Panics
        /// If the comparator panics. The table stays usable and may have any number of the batch's
        /// entries, so the caller must not publish the batch's sequence numbers.
        pub fn write_batch(
            $self: $receiver,
            first_sequence: SequenceNumber,
            batch: &WriteBatch,
        ) -> Result<BatchWritten> {
            write_batch($core, $shard, first_sequence, batch, Take::All)
        }

        /// Sets the value of a key from `sequence` on.
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// let table = MemTable::default();
        /// table.put(1, b"apple", b"red")?;
        /// assert!(table.get(b"apple", 1)?.value() == Some(b"red"));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        #[inline]
        pub fn put(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::PUT, key, value)
        }

        /// Adds a merge operand to a key.
        ///
        /// ```
        /// use paranoid_memtable::{Lookup, MemTable};
        /// let table = MemTable::default();
        /// table.merge(1, b"counter", b"+1")?;
        /// assert!(matches!(table.get(b"counter", 1)?, Lookup::Merge(_)));
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        pub fn merge(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
            operand: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::MERGE, key, operand)
        }

        /// Deletes a key from `sequence` on.
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// let table = MemTable::default();
        /// table.delete(1, b"apple")?;
        /// assert!(table.get(b"apple", 1)?.is_deleted());
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        pub fn delete(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::DELETE, key, [])
        }

        /// Deletes a key that was put exactly once.
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// let table = MemTable::default();
        /// table.put(1, b"apple", b"red")?;
        /// table.single_delete(2, b"apple")?;
        /// assert!(table.get(b"apple", 2)?.is_deleted());
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert).
        pub fn single_delete(
            $self: $receiver,
            sequence: SequenceNumber,
            key: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::SINGLE_DELETE, key, [])
        }

        /// Deletes every entry with `start <= key < end` and a smaller sequence number.
        ///
        /// ```
        /// use paranoid_memtable::MemTable;
        /// let table = MemTable::default();
        /// table.put(1, b"apple", b"red")?;
        /// table.delete_range(2, b"a", b"b")?;
        /// assert!(table.get(b"apple", 2)?.is_deleted());
        /// # Ok::<(), paranoid_memtable::Error>(())
        /// ```
        ///
        /// # Errors
        /// See [`insert`](Self::insert); `InvalidArgument` for an empty or inverted range. A range
        /// tombstone is never replaced: a second one with the same start and sequence number is a
        /// duplicate under `Replace` too.
        pub fn delete_range(
            $self: $receiver,
            sequence: SequenceNumber,
            start: impl AsRef<[u8]>,
            end: impl AsRef<[u8]>,
        ) -> Result<Inserted> {
            $self.insert(sequence, Kind::RANGE_DELETE, start, end)
        }
    };
}

pub(crate) use writes;
