//! The journal's copy of a batch, compared with the batch after the batch agreed with its digests.
//!
//! The copy and its checksum are made before the batch takes any lock. One thread uses a copy.

#![forbid(unsafe_code)]

use std::cell::Cell;

use paranoid_memtable::integrity::Place;
use paranoid_memtable::{Corruption, Result, SequenceNumber};

use crate::journal::Journal;

/// A thread keeps buffers of up to this many bytes for its next write: the copy here, and the batch
/// of a single entry.
pub(crate) const KEPT_MAX: usize = 64 << 10;

thread_local!(static COPY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });

/// The bytes of a batch that go to the journal, and their checksum.
pub(crate) struct JournalCopy<'j> {
    journal: &'j dyn Journal,
    pub(crate) bytes: Vec<u8>,
    checksum: u32,
}

impl<'j> JournalCopy<'j> {
    /// Copies a batch into the buffer that this thread kept. O(n) for n bytes.
    pub(crate) fn copy(batch: &[u8], journal: &'j dyn Journal) -> Self {
        let mut bytes = COPY.try_with(Cell::take).unwrap_or_default();
        batch.clone_into(&mut bytes);
        let checksum = journal.checksum(batch);
        JournalCopy {
            journal,
            bytes,
            checksum,
        }
    }

    /// Compares the copy with the batch, and the checksum with the copy. The caller has compared
    /// the batch with its digests since the copy was made.
    pub(crate) fn compare(&self, batch: &[u8]) -> Result<()> {
        if self.bytes != batch {
            return Err(first_difference(batch, &self.bytes).into());
        }
        let [expected, found] = [self.checksum, self.journal.checksum(&self.bytes)].map(u64::from);
        if expected == found {
            Ok(())
        } else {
            Err(Corruption::new(Place::Encoding, 0, expected, found).into())
        }
    }

    /// Appends the copy to the journal, with its first number in the header.
    pub(crate) fn append(&mut self, first: SequenceNumber) -> Result<()> {
        if let Some(number) = self.bytes.first_chunk_mut::<8>() {
            *number = first.to_le_bytes();
        }
        self.journal.append_checked(&mut self.bytes, self.checksum)
    }

    /// Keeps the buffer for the next batch of this thread.
    pub(crate) fn keep(self) {
        if self.bytes.capacity() <= KEPT_MAX {
            // Fails while the thread ends; the buffer is freed then.
            let _ = COPY.try_with(|kept| kept.set(self.bytes));
        }
    }
}

/// Reports the first byte of a copy that differs from the original's. Where one of the two has
/// ended, its byte is reported as 256.
#[cold]
fn first_difference(original: &[u8], copy: &[u8]) -> Corruption {
    let at = original
        .iter()
        .zip(copy)
        .take_while(|(original, copy)| original == copy)
        .count();
    let byte = |bytes: &[u8]| bytes.get(at).map_or(256, |byte| u64::from(*byte));
    Corruption::new(Place::Encoding, at as u64, byte(original), byte(copy))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// `expected` and `found` of a report always differ.
    #[test]
    fn a_copy_that_differs_is_reported_with_both_bytes() {
        let original = [7, 8, 9];
        for (copy, at, expected, found) in [
            (&[7, 0, 9][..], 1, 8, 0),
            (&[7, 8], 2, 9, 256),
            (&[7, 8, 9, 1], 3, 256, 1),
        ] {
            let report = first_difference(&original, copy);
            assert_eq!(
                (report.offset, report.expected, report.found),
                (at, expected, found)
            );
        }
    }
}
