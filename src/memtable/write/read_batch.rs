//! The first steps of a batch write: decodes every record of a batch, checks it, and decides which
//! entries the table takes. Nothing of the table is touched.
//!
//! ```text
//!   read      every record decoded, its digest compared
//!   admit     limits, kinds, ranges, sequence numbers
//!   leave out records of other families, empty ranges
//!   check     count and sequence numbers compared with the batch
//! ```
//! * WRITE-BATCH-1: to notice processor errors, a record is left out only if that is decided twice.
//!   After a batch is read, the caller compares the count and the sequence numbers with the batch's
//!   own; after it is linked, the count again.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::error::{Corruption, Error, Place, Result};
use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::core::Core;
use crate::memtable::write::insert::admit;
use crate::tombstone::capacity::Load;

/// The entries of a batch. A single entry needs no heap memory.
#[derive(Default)]
pub(crate) struct Writes<'b> {
    one: Option<Fields<'b>>,
    many: Vec<Fields<'b>>,
}

impl<'b> Writes<'b> {
    /// Adds an entry. Without room for many it keeps only the last one; then `check_read` refuses
    /// the batch.
    #[inline(always)]
    fn push(&mut self, write: Fields<'b>) {
        if self.many.capacity() > 0 {
            self.many.push(write);
        } else {
            self.one = Some(write);
        }
    }
}

impl<'b> std::ops::Deref for Writes<'b> {
    type Target = [Fields<'b>];

    fn deref(&self) -> &Self::Target {
        if self.many.is_empty() {
            self.one.as_slice()
        } else {
            &self.many
        }
    }
}

impl std::ops::DerefMut for Writes<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        if self.many.is_empty() {
            self.one.as_mut_slice()
        } else {
            &mut self.many
        }
    }
}

/// Which records of a batch a table takes.
#[derive(Clone, Copy)]
pub(crate) enum Take {
    /// All of them. A batch with a record outside the default column family is refused.
    All,
    /// The records of this column family. They keep the numbers of their places in the whole batch.
    Family(u32),
}

impl Take {
    /// Whether the table takes a record of this family.
    #[inline(always)]
    fn takes(self, family: u32) -> Result<bool> {
        match self {
            Take::All if family != 0 => Err(Error::InvalidArgument(format!(
                "it is of column family {family}, and write_batch_of is for batches of several families"
            ))),
            Take::All => Ok(true),
            Take::Family(wanted) => Ok(family == wanted),
        }
    }
}

/// Reads the whole batch, and adds the entries that the table takes to `writes`, which is empty.
pub(crate) fn read_batch<'b>(
    core: &Core,
    first: SequenceNumber,
    batch: &'b WriteBatch,
    take: Take,
    writes: &mut Writes<'b>,
) -> Result<LeftOut> {
    let (mut entries, mut number, mut left_out) = (batch.reader()?, 0, LeftOut::default());
    if batch.len() > 1 {
        writes.many.reserve_exact(batch.len());
    }
    while let Some(entry) = entries.step()? {
        let sequence = batch.sequence_of(number, first)?;
        let (kind, key, value) = (entry.kind(), entry.key(), entry.value());
        let (key_part, caller_digest) = (entry.key_part, entry.caller_digest());
        let write = Fields::with_key_part(sequence, kind, (key, key_part), value, caller_digest);
        // Other tables order the keys of other families, so the family is asked first.
        let is_taken = take
            .takes(entry.family())
            .map_err(|error| name(number, error))?;
        if is_taken && !deletes_nothing(core, &write) {
            admit(core, &write).map_err(|error| name(number, error))?;
            writes.push(write);
        } else {
            // The decision is made again: a record that is left out is lost (WRITE-BATCH-1).
            if black_box(take).takes(entry.family())? && !deletes_nothing(core, black_box(&write)) {
                return Err(miscounted(batch.len() as u64, writes.len() as u64));
            }
            left_out.entries += 1;
            left_out.steps = left_out.steps.wrapping_add(sequence - first);
        }
        number += 1;
    }
    Ok(left_out)
}

/// The records of a batch that write nothing to this table: empty ranges, and records of other
/// families.
#[derive(Default)]
pub(crate) struct LeftOut {
    entries: usize,
    /// The sum of the distances of their sequence numbers from the first one.
    steps: u64,
}

impl LeftOut {
    /// The number of entries that a batch writes, without these records.
    pub(crate) fn of(&self, batch: &WriteBatch) -> u64 {
        black_box(batch).len().wrapping_sub(black_box(self).entries) as u64
    }
}

/// Compares the entries that were read with the batch (WRITE-BATCH-1): the count, and the sequence
/// numbers, which no digest of the caller covers. It compares each number, or their sum if records
/// were left out.
#[inline(always)]
pub(crate) fn check_read(
    batch: &WriteBatch,
    first: SequenceNumber,
    writes: &[Fields<'_>],
    left_out: &LeftOut,
) -> Result<()> {
    let agrees = writes.len() + left_out.entries == batch.len()
        && match left_out.entries {
            0 => (0..)
                .zip(writes)
                .all(|(at, write): (u64, _)| write.sequence == first + at),
            _ => steps_of(first, writes, left_out) == (0..batch.len() as u64).sum(),
        };
    if agrees {
        Ok(())
    } else {
        Err(miscounted(batch.len() as u64, writes.len() as u64))
    }
}

/// The sum of the distances of all sequence numbers of a batch from the first one.
fn steps_of(first: SequenceNumber, writes: &[Fields<'_>], left_out: &LeftOut) -> u64 {
    let steps = writes
        .iter()
        .map(|write| write.sequence.wrapping_sub(first));
    steps.fold(left_out.steps, u64::wrapping_add)
}

#[cold]
#[inline(never)]
pub(crate) fn miscounted(expected: u64, found: u64) -> Error {
    Corruption::new(Place::Sum, 0, expected, found).into()
}

/// Whether this is an empty range, as RocksDB logs it. It takes a sequence number and writes
/// nothing.
fn deletes_nothing(core: &Core, write: &Fields<'_>) -> bool {
    write.kind == Kind::RANGE_DELETE && core.comparator.compare(write.key, write.value).is_eq()
}

/// Adds the number of the batch's entry to the text of an invalid argument.
#[cold]
fn name(number: u64, error: Error) -> Error {
    match error {
        Error::InvalidArgument(text) => {
            Error::InvalidArgument(format!("entry {number} of the batch: {text}"))
        }
        other => other,
    }
}

/// The load of a batch's range tombstones on the tombstone index.
pub(crate) fn load(writes: &[Fields<'_>]) -> Load {
    let ranges = writes.iter().filter(|write| Head::Ranges.holds(write.kind));
    Load::of(ranges.count() as u64)
}
