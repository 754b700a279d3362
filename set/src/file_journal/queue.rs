//! The queue of batches between their append and their write.
//!
//! ```text
//!   append   takes the batch's memory; notes its number and checksum                   no copy
//!   encode   every record from the notes; then again from the batches alone; compares
//! ```
//! A batch is written as it was appended (FILE-JOURNAL-4): a bit that flips in the queue, or that a
//! processor computes wrong, makes the two encodings differ.
//!
//! One thread at a time.

#![forbid(unsafe_code)]

use std::hint::black_box;

use paranoid_memtable::integrity::BlockChecks;
use paranoid_memtable::{Result, SequenceNumber};

use crate::file_journal::format::{Content, SEQUENCE_LEN, checksum_of, difference, encode, word};

/// The most bytes of memory kept between writes, for batches and for their encodings.
const KEPT_MAX: usize = 1 << 20;

/// An appended batch, with the number and the checksum that the append noted.
#[derive(Debug, Default)]
struct Queued {
    batch: Vec<u8>,
    sequence: SequenceNumber,
    checksum: u32,
}

impl Queued {
    fn payload(&self) -> &[u8] {
        self.batch.get(SEQUENCE_LEN..).unwrap_or_default()
    }
}

/// Batches that wait to be written, all to one file.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The first `len` batches wait; the others are memory for later batches.
    batches: Vec<Queued>,
    len: usize,
    bytes: Vec<u8>,
    again: Vec<u8>,
    /// The largest first sequence number of a batch with entries, when the queue was taken.
    pub(super) last_sequence: SequenceNumber,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a batch, and leaves the memory of an earlier one in its place. O(1).
    pub(super) fn push(&mut self, batch: &mut Vec<u8>, sequence: SequenceNumber, checksum: u32) {
        if self.len == self.batches.len() {
            self.batches.push(Queued::default());
        }
        let queued = &mut self.batches[self.len];
        std::mem::swap(&mut queued.batch, batch);
        (queued.sequence, queued.checksum) = (sequence, checksum);
        self.len += 1;
    }

    /// Encodes the records of all batches for an offset of the file. O(bytes).
    ///
    /// # Errors
    /// `Corruption` if the two encodings differ in each of three attempts (FILE-JOURNAL-4).
    pub(super) fn encode(
        &mut self,
        checks: &BlockChecks,
        offset: u64,
        durable: u64,
    ) -> Result<&[u8]> {
        let mut encoded = self.encode_once(checks, offset, durable);
        for _ in 0..2 {
            if encoded.is_ok() {
                break;
            }
            encoded = self.encode_once(checks, offset, durable);
        }
        encoded.map(|()| self.bytes.as_slice())
    }

    fn encode_once(&mut self, checks: &BlockChecks, offset: u64, durable: u64) -> Result<()> {
        let Queue {
            batches,
            len,
            bytes,
            again,
            ..
        } = self;
        let batches = &batches[..*len];
        bytes.clear();
        // From the numbers and the checksums that the append noted.
        for queued in batches {
            let noted = Content {
                sequence: queued.sequence,
                payload: queued.payload(),
                checksum: queued.checksum,
            };
            encode(bytes, checks, offset + bytes.len() as u64, durable, noted);
        }
        let mut rest = bytes.as_slice();
        // From the batches alone, which the compiler must read again.
        for queued in black_box(batches) {
            let at = offset + (bytes.len() - rest.len()) as u64;
            let payload = black_box(queued.payload());
            let found = Content {
                sequence: word(&queued.batch, 0),
                payload,
                checksum: checksum_of(payload, checks.kind()),
            };
            again.clear();
            encode(again, checks, at, durable, found);
            match rest.split_at_checked(again.len()) {
                Some((record, later)) if record == again.as_slice() => rest = later,
                _ => return Err(difference(at, again, rest).into()),
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        Err(difference(end - rest.len() as u64, &[], rest).into())
    }

    /// Removes the batches, and keeps memory for the next ones.
    pub(super) fn clear(&mut self) {
        let mut kept = 0;
        for queued in &mut self.batches[..self.len] {
            kept += queued.batch.capacity();
            if kept > KEPT_MAX {
                queued.batch = Vec::new();
            }
        }
        self.len = 0;
        if self.bytes.capacity() > KEPT_MAX {
            (self.bytes, self.again) = (Vec::new(), Vec::new());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use paranoid_memtable::ChecksumKind;

    /// Flips every bit of each batch, of its number and of its checksum.
    #[test]
    fn every_bit_that_flips_in_the_queue_is_found() {
        let checks = BlockChecks::with_context(ChecksumKind::Crc32c, NonZeroU32::MIN);
        let mut queue = Queue::default();
        for sequence in [3, 9] {
            let mut batch = [u64::to_le_bytes(sequence).as_slice(), b"payload"].concat();
            let checksum = checksum_of(&batch[SEQUENCE_LEN..], checks.kind());
            queue.push(&mut batch, sequence, checksum);
        }
        let whole = queue.encode(&checks, 512, 0).unwrap().to_vec();
        for index in 0..2 {
            let bits = queue.batches[index].batch.len() * 8;
            for bit in 0..bits + 64 + 32 {
                let flip = |queue: &mut Queue| {
                    let queued = &mut queue.batches[index];
                    match bit.checked_sub(bits) {
                        None => queued.batch[bit / 8] ^= 1 << (bit % 8),
                        Some(bit @ ..64) => queued.sequence ^= 1 << bit,
                        Some(bit) => queued.checksum ^= 1 << (bit - 64),
                    }
                };
                flip(&mut queue);
                let found = queue.encode(&checks, 512, 0).map(<[u8]>::len);
                assert!(
                    found.is_err_and(|error| error.corruption().is_some()),
                    "{index}, {bit}"
                );
                flip(&mut queue);
            }
        }
        assert_eq!(queue.encode(&checks, 512, 0).unwrap(), whole);
    }
}
