//! The bytes of a journal file, and the names of the files.
//!
//! ```text
//!   file     header, in its own sector | record | record | ..               little-endian integers
//!   header   two copies, each followed by zeros:
//!            magic (8) version (1) checksum kind (1) 0 (2) base (4) table (8) previous table (8)
//!            its length (8) last sequence number before (8) checksum of all these (4)
//!   record   head | payload | kind (1) checksum (4) | filler
//!   head     mark (2) payload length (8) durable (8) sequence number (8) | kind (1) checksum (4)
//! ```
//! The payload is an encoded batch without its sequence number. The *base* is a random number, a
//! different one for each file. `durable` is the number of bytes of the file that were durable when
//! the record was written; it is 0 until all earlier files and the names of all files are durable.
//!
//! Every checksum of a record depends on the base and on the record's place in the file. So a
//! record that was moved, or is left over from another file, does not verify.
//!
//! Records are stored under a *mask*: each byte is XORed with one of eight bytes, which depend on
//! the base and on the byte's place. A payload that was made without the base does not become eight
//! zero bytes, and by the filler each sector has none or at least eight bytes of a record. So a
//! sector of zeros was never written, and is not a sector with a damaged byte.
//!
//! All offsets count from the start of the file. Pure functions over slices; any thread.

#![forbid(unsafe_code)]

use std::num::NonZeroU32;

use paranoid_memtable::integrity::{BlockChecks, Place};
use paranoid_memtable::{ChecksumKind, Corruption, Error, Result, SequenceNumber};

const MAGIC: u64 = u64::from_le_bytes(*b"pmjournl");
const VERSION: u8 = 5;

/// The unit that a device writes completely or not at all.
const SECTOR: usize = 512;
/// The fewest bytes of a record in any sector that has some.
const PART_MIN: usize = 8;

/// The number of bytes before the first record.
pub(super) const HEADER_LEN: usize = SECTOR;
/// The length of one copy of the header, without and with the zeros after it.
const COPY_LEN: usize = 52;
const COPY_ROOM: usize = HEADER_LEN / 2;
/// The length of a copy in version 1, which had no zeros after it.
const FIRST_COPY_LEN: usize = 68;

const MARK: [u8; 2] = [0xa5, 0x3c];
const FILLER: u8 = 0x5a;
const TRAILER_LEN: usize = 5;
/// The kind of every record.
const BATCH: u8 = 1;
const LEN_AT: usize = 2;
const DURABLE_AT: usize = 10;
const SEQUENCE_AT: usize = 18;
const FIELDS_LEN: usize = SEQUENCE_AT + SEQUENCE_LEN;
const HEAD_LEN: usize = FIELDS_LEN + TRAILER_LEN;
/// The length of the sequence number at the beginning of an encoded batch.
pub(super) const SEQUENCE_LEN: usize = 8;

/// A place in a journal: a table's file, and a byte offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) table: u64,
    pub(super) offset: u64,
}

/// The header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) checks: BlockChecks,
    pub(super) table: u64,
    /// The end of the file before this one; `None` if there is no such file.
    pub(super) previous: Option<At>,
    /// The largest first sequence number of a batch in an earlier file or in the engine's files.
    pub(super) last_sequence: SequenceNumber,
}

impl FileHeader {
    pub(super) fn new(kind: ChecksumKind, random: u64, table: u64) -> Self {
        let [a, b, c, d, ..] = random.to_le_bytes();
        let base = NonZeroU32::new(u32::from_le_bytes([a, b, c, d])).unwrap_or(NonZeroU32::MIN);
        let checks = BlockChecks::with_context(kind, base);
        FileHeader {
            checks,
            table,
            previous: None,
            last_sequence: 0,
        }
    }

    /// Encodes both copies.
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut copy = Vec::with_capacity(COPY_LEN);
        copy.extend(MAGIC.to_le_bytes());
        copy.extend([VERSION, self.checks.kind().as_u8(), 0, 0]);
        copy.extend(
            self.checks
                .context_base()
                .map_or(0, NonZeroU32::get)
                .to_le_bytes(),
        );
        let previous = self.previous.unwrap_or(At {
            table: u64::MAX,
            offset: 0,
        });
        for word in [
            self.table,
            previous.table,
            previous.offset,
            self.last_sequence,
        ] {
            copy.extend(word.to_le_bytes());
        }
        copy.extend(ChecksumKind::Xxh3.checksum(&copy).to_le_bytes());
        let mut bytes = [0; HEADER_LEN];
        for half in bytes.chunks_exact_mut(COPY_ROOM) {
            half[..COPY_LEN].copy_from_slice(&copy);
        }
        bytes
    }

    /// The header of a table's file, from either copy, and the damage of the other copy if it has
    /// any.
    ///
    /// # Errors
    /// `NotSupported` for a file of another version, and `Corruption`.
    pub(super) fn read(bytes: &[u8], table: u64) -> Result<(FileHeader, Option<Corruption>)> {
        let whole = bytes.get(..HEADER_LEN).unwrap_or_default();
        let (first, second) = whole.split_at(whole.len() / 2);
        let second = FileHeader::read_copy(second, COPY_ROOM as u64, table);
        match (FileHeader::read_copy(first, 0, table), second) {
            (Ok(first), Ok(second)) if first == second => Ok((first, None)),
            (Ok(header), Err(damage)) | (Err(damage), Ok(header)) => Ok((header, Some(damage))),
            (Err(_), Err(_)) if is_of_another_version(bytes) => Err(Error::NotSupported(
                "a journal file that another version of this crate has written",
            )),
            (Err(damage), Err(_)) => Err(damage.into()),
            (Ok(_), Ok(_)) => Err(report(COPY_ROOM as u64, 0, 1).into()),
        }
    }

    fn read_copy(bytes: &[u8], at: u64, table: u64) -> Result<FileHeader, Corruption> {
        let Some((fields, checksum)) = bytes
            .get(..COPY_LEN)
            .and_then(<[u8]>::split_last_chunk::<4>)
        else {
            return Err(report(at, COPY_ROOM as u64, bytes.len() as u64));
        };
        let (expected, found) = (
            ChecksumKind::Xxh3.checksum(fields),
            u32::from_le_bytes(*checksum),
        );
        if expected != found {
            return Err(report(at, expected.into(), found.into()));
        }
        let zeros = [0; COPY_ROOM - COPY_LEN];
        for (from, expected) in [
            (0, &MAGIC.to_le_bytes()[..]),
            (8, &[VERSION]),
            (COPY_LEN, &zeros),
        ] {
            let found = &bytes[from..from + expected.len()];
            if found != expected {
                return Err(difference(at + from as u64, expected, found));
            }
        }
        if word(fields, 16) != table {
            return Err(report(at + 16, table, word(fields, 16)));
        }
        let Ok(kind) = ChecksumKind::try_from(fields[9]) else {
            return Err(report(at + 9, 0, fields[9].into()));
        };
        let previous = At {
            table: word(fields, 24),
            offset: word(fields, 32),
        };
        Ok(FileHeader {
            previous: (previous.table != u64::MAX).then_some(previous),
            last_sequence: word(fields, 40),
            ..FileHeader::new(kind, word(fields, 12), table)
        })
    }
}

/// Whether a copy of the header verifies as that of another version: it has the magic, another
/// version number, and a valid checksum over both. A version number without a valid checksum is
/// damage. A file of another version is never changed. A change of the format raises the version,
/// and keeps place, length and checksum of the copies.
fn is_of_another_version(bytes: &[u8]) -> bool {
    let verifies = |(from, len): (usize, usize)| {
        let copy = bytes
            .get(from..from + len)
            .and_then(<[u8]>::split_last_chunk::<4>);
        copy.is_some_and(|(fields, checksum)| {
            let is_other = word(fields, 0) == MAGIC && fields[8] != VERSION;
            is_other && ChecksumKind::Xxh3.checksum(fields).to_le_bytes() == *checksum
        })
    };
    verifies((0, COPY_LEN)) || verifies((COPY_ROOM, COPY_LEN)) || verifies((0, FIRST_COPY_LEN))
}

/// The eight bytes at an offset of a slice as an integer; 0 if the slice is shorter.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>);
    chunk.map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cold]
pub(super) fn report(offset: u64, expected: u64, found: u64) -> Corruption {
    Corruption::new(Place::Encoding, offset, expected, found)
}

/// A report of the first byte that is not as expected, in bytes at an offset. A missing byte counts
/// as `u64::MAX`.
#[cold]
pub(super) fn difference(offset: u64, expected: &[u8], found: &[u8]) -> Corruption {
    let at = expected
        .iter()
        .zip(found)
        .take_while(|(expected, found)| expected == found)
        .count();
    let byte = |bytes: &[u8]| bytes.get(at).map_or(u64::MAX, |byte| (*byte).into());
    report(offset + at as u64, byte(expected), byte(found))
}

/// The content of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'b> {
    pub(super) sequence: SequenceNumber,
    /// An encoded batch, without its sequence number.
    pub(super) payload: &'b [u8],
    /// The checksum of the payload, by [`checksum_of`].
    pub(super) checksum: u32,
}

/// The checksum of a payload, without its place. O(length).
pub(super) fn checksum_of(payload: &[u8], kind: ChecksumKind) -> u32 {
    let [_, checksum @ ..] = BlockChecks::new(kind).trailer(payload, BATCH, 0);
    u32::from_le_bytes(checksum)
}

/// Appends a record to `out`, in the form that it has at an offset of a file with `durable` durable
/// bytes. O(length).
#[inline(never)]
pub(super) fn encode(
    out: &mut Vec<u8>,
    checks: &BlockChecks,
    offset: u64,
    durable: u64,
    content: Content<'_>,
) {
    let (start, payload) = (out.len(), content.payload);
    let mut head = [0; HEAD_LEN];
    head[..LEN_AT].copy_from_slice(&MARK);
    head[LEN_AT..DURABLE_AT].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    head[DURABLE_AT..SEQUENCE_AT].copy_from_slice(&durable.to_le_bytes());
    head[SEQUENCE_AT..FIELDS_LEN].copy_from_slice(&content.sequence.to_le_bytes());
    let trailer = checks.trailer(&head[..FIELDS_LEN], BATCH, offset);
    head[FIELDS_LEN..].copy_from_slice(&trailer);
    let modifier = checks.modifier(offset + HEAD_LEN as u64);
    let [a, b, c, d] = content.checksum.wrapping_add(modifier).to_le_bytes();
    out.reserve(HEAD_LEN + payload.len() + TRAILER_LEN + PART_MIN);
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
    out.extend_from_slice(&[BATCH, a, b, c, d]);
    let end = usize::try_from(offset % SECTOR as u64).unwrap_or_default() + out.len() - start;
    let filler = filled(end) - end;
    out.extend_from_slice(&[FILLER; PART_MIN][..filler]);
    mask(&mut out[start..], offset, checks);
}

/// Where the filler ends after a record that ends at `end`: the next place at which the sector has
/// at least eight bytes of this record and room for eight of the next one.
fn filled(end: usize) -> usize {
    let part = end % SECTOR;
    if part > SECTOR - PART_MIN {
        end.next_multiple_of(SECTOR)
    } else if part > 0 && part < PART_MIN {
        end + PART_MIN - part
    } else {
        end
    }
}

/// Applies the mask to bytes at an offset, or removes it.
fn mask(bytes: &mut [u8], offset: u64, checks: &BlockChecks) {
    let base = u64::from(checks.context_base().map_or(0, NonZeroU32::get));
    // No byte of the mask is zero.
    let number = base.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 0x0101_0101_0101_0101;
    let mask = number.rotate_right(8 * (offset % 8) as u32);
    let (words, last) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_le_bytes(*word) ^ mask).to_le_bytes();
    }
    last.iter_mut()
        .zip(mask.to_le_bytes())
        .for_each(|(byte, mask)| *byte ^= mask);
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The bytes of a file, without the mask.
#[derive(Debug)]
pub(super) struct Stream {
    bytes: Vec<u8>,
    checks: BlockChecks,
}

/// A record that verified.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'s> {
    head: &'s [u8; HEAD_LEN],
    /// Where the record begins and ends.
    pub(super) at: usize,
    pub(super) end: usize,
    payload: &'s [u8],
    trailer: [u8; TRAILER_LEN],
}

impl Record<'_> {
    /// The number of bytes of the file that were durable when the record was written.
    pub(super) fn durable(&self) -> u64 {
        word(self.head, DURABLE_AT)
    }

    /// The first number of the batch.
    pub(super) fn sequence(&self) -> SequenceNumber {
        word(self.head, SEQUENCE_AT)
    }

    /// The encoded batch.
    pub(super) fn batch(&self) -> Vec<u8> {
        [&self.head[SEQUENCE_AT..FIELDS_LEN], self.payload].concat()
    }

    /// The offset in the file of a byte of the encoded batch.
    pub(super) fn offset_of(&self, byte: u64) -> u64 {
        (self.at + HEAD_LEN - SEQUENCE_LEN) as u64 + byte
    }

    /// Compares a copy of the encoded batch with the record's checksums.
    pub(super) fn verify(&self, batch: &[u8], checks: &BlockChecks) -> Result<(), Corruption> {
        let Some((sequence, payload)) = batch.split_first_chunk::<SEQUENCE_LEN>() else {
            return Err(report(0, SEQUENCE_LEN as u64, batch.len() as u64));
        };
        let mut head = *self.head;
        head[SEQUENCE_AT..FIELDS_LEN].copy_from_slice(sequence);
        let (fields, trailer) = head.split_at(FIELDS_LEN);
        compare(checks, fields, trailer, self.at)?;
        self.verify_payload(payload, checks)
    }

    fn verify_payload(&self, payload: &[u8], checks: &BlockChecks) -> Result<(), Corruption> {
        compare(checks, payload, &self.trailer, self.at + HEAD_LEN)
    }
}

/// Compares a trailer with the one computed of bytes at an offset.
fn compare(
    checks: &BlockChecks,
    bytes: &[u8],
    trailer: &[u8],
    at: usize,
) -> Result<(), Corruption> {
    let computed = checks.trailer(bytes, BATCH, at as u64);
    if computed == trailer {
        Ok(())
    } else {
        Err(report(0, as_number(&computed), as_number(trailer)))
    }
}

/// A trailer, kind and checksum, as a number for a report.
fn as_number(trailer: &[u8]) -> u64 {
    trailer
        .iter()
        .rfold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Stream {
    /// Removes the mask from the bytes of a file. O(bytes).
    pub(super) fn new(mut bytes: Vec<u8>, checks: BlockChecks) -> Self {
        mask(
            bytes.get_mut(HEADER_LEN..).unwrap_or_default(),
            HEADER_LEN as u64,
            &checks,
        );
        Stream { bytes, checks }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The head at a place if it verifies, and where its record ends, before the filler. Only a
    /// verified head gives a length.
    fn read_head(&self, at: usize) -> Option<(&[u8; HEAD_LEN], usize)> {
        let stored = self.bytes.get(at..)?.first_chunk::<HEAD_LEN>()?;
        // Most places in a scan have no mark.
        if stored[..LEN_AT] != MARK {
            return None;
        }
        let (fields, trailer) = stored.split_last_chunk::<TRAILER_LEN>()?;
        if self.checks.trailer(fields, BATCH, at as u64) != *trailer {
            return None;
        }
        let len = usize::try_from(word(fields, LEN_AT)).ok()?;
        let end = len
            .checked_add(at + HEAD_LEN + TRAILER_LEN)
            .filter(|end| *end < usize::MAX / 4)?;
        Some((stored, end))
    }

    /// The record at a place, if a record verifies there.
    pub(super) fn read_record(&self, at: usize) -> Option<Record<'_>> {
        let (head, body_end) = self.read_head(at)?;
        let end = filled(body_end);
        let filler = self.bytes.get(body_end..end)?;
        let (payload, trailer) = self
            .bytes
            .get(at + HEAD_LEN..body_end)?
            .split_last_chunk::<TRAILER_LEN>()?;
        let record = Record {
            head,
            at,
            end,
            payload,
            trailer: *trailer,
        };
        let is_sound = filler.iter().all(|byte| *byte == FILLER)
            && record.verify_payload(payload, &self.checks).is_ok();
        is_sound.then_some(record)
    }

    /// The first record that verifies after a place where none does. O(bytes between them).
    pub(super) fn next_record(&self, bad: usize) -> Option<Record<'_>> {
        let mut at = bad;
        while at < self.len() {
            if let Some(record) = self.read_record(at) {
                return Some(record);
            }
            let end = self.read_head(at).map(|(_, end)| filled(end));
            at = end.filter(|end| *end <= self.len()).unwrap_or(at + 1);
        }
        None
    }

    /// Why no record verifies at a place, and whether the record looks as if it had never been
    /// written completely: the file ends in it, or one of its sectors has only zeros.
    #[cold]
    pub(super) fn diagnose(&self, at: usize) -> (Corruption, bool) {
        let verify = |from: usize, to: usize| {
            let stored = self.bytes.get(from..to).unwrap_or_default();
            self.checks
                .verify(stored, from as u64)
                .err()
                .and_then(|error| error.corruption().copied())
        };
        let body = at + HEAD_LEN;
        let short = |from: usize, to: usize| {
            (
                report(from as u64, (to - from) as u64, (self.len() - from) as u64),
                true,
            )
        };
        let Some((_, body_end)) = self.read_head(at) else {
            if self.len() < body {
                return short(at, body);
            }
            let mark = u16::from_le_bytes(MARK).into();
            let damage = verify(at, body).unwrap_or(report(at as u64, mark, 0));
            // The shortest record has this length.
            return (damage, self.is_unwritten(at, filled(body + TRAILER_LEN)));
        };
        let end = filled(body_end);
        if self.len() < end {
            return short(body, end);
        }
        // If the payload verifies, the kind is not that of a batch, or the filler is damaged.
        let damage = verify(body, body_end).unwrap_or(report(body as u64, BATCH.into(), 0));
        // The head verifies, so its sector was written, with the part of the body that is in it.
        (
            damage,
            self.is_unwritten(body.next_multiple_of(SECTOR), end),
        )
    }

    /// Whether any sector between two places has only zeros there.
    fn is_unwritten(&self, from: usize, to: usize) -> bool {
        (from / SECTOR * SECTOR..to).step_by(SECTOR).any(|sector| {
            let from = from.max(sector);
            let mut part = self
                .bytes
                .get(from..to.min(sector + SECTOR))
                .unwrap_or_default()
                .to_vec();
            mask(&mut part, from as u64, &self.checks);
            is_zero(&part)
        })
    }
}

const SUFFIX: &str = ".journal";

/// The name of a table's file.
pub(super) fn name_of(table: u64) -> String {
    format!("{table:06}{SUFFIX}")
}

/// The endings of the names of files that were set aside: torn tails, and parts that may have been
/// durable.
pub(super) const CUT: &str = ".cut";
pub(super) const DAMAGED: &str = ".damaged";

/// The table of a file that was set aside, by its name.
pub(super) fn table_of_kept(name: &str) -> Option<u64> {
    table_of(name.get(..name.rfind('.')?)?)
}

/// The table of a journal file, by its name.
pub(super) fn table_of(name: &str) -> Option<u64> {
    let table = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (name_of(table) == name).then_some(table)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A record at this place reads back, and does not look unwritten after damage of any byte.
    fn check_record(at: usize, len: usize, seed: u64) {
        let checks =
            FileHeader::new(ChecksumKind::Crc32c, seed.wrapping_mul(0x9e37_79b9), 1).checks;
        let mut file = vec![0; at];
        let payload = &vec![0; len];
        let content = Content {
            sequence: 0,
            payload,
            checksum: checksum_of(payload, checks.kind()),
        };
        encode(&mut file, &checks, at as u64, 0, content);
        let stream = Stream::new(file.clone(), checks);
        let read = stream.read_record(at).expect("a record");
        assert_eq!((read.payload, read.end), (payload.as_slice(), file.len()));
        for place in at..file.len() {
            let byte = file[place];
            for damaged in [byte ^ 1 << (place % 8), !byte, 0]
                .into_iter()
                .filter(|other| *other != byte)
            {
                file[place] = damaged;
                let stream = Stream::new(file.clone(), checks);
                assert!(
                    stream.read_record(at).is_none(),
                    "{len} bytes at {at}, {place}"
                );
                let unwritten = stream.diagnose(at).1;
                assert!(
                    !unwritten,
                    "{len} bytes at {at}, seed {seed}: {damaged:#x} at {place}"
                );
            }
            file[place] = byte;
        }
        // With a sector of zeros the record looks unwritten, at every place of the record.
        for sector in (at / SECTOR * SECTOR..file.len()).step_by(SECTOR) {
            let mut torn = file.clone();
            let end = file.len().min(sector + SECTOR);
            torn[at.max(sector)..end].fill(0);
            let stream = Stream::new(torn, checks);
            assert!(
                stream.read_record(at).is_none() && stream.diagnose(at).1,
                "{len} bytes at {at}"
            );
        }
    }

    /// Tries records at each place relative to sectors.
    #[test]
    fn a_damaged_byte_never_looks_unwritten() {
        for at in (SECTOR..2 * SECTOR).filter(|at| filled(*at) == *at) {
            [0, 12, 40]
                .into_iter()
                .for_each(|len| check_record(at, len, at as u64));
            if at % 37 == 0 {
                check_record(at, 600, at as u64);
            }
        }
    }

    /// The mask of a part of a file is that part of the whole mask.
    #[test]
    fn a_mask_depends_on_the_place_alone() {
        let checks = FileHeader::new(ChecksumKind::Crc32c, 7, 1).checks;
        let mut whole = [0; 64];
        mask(&mut whole, 512, &checks);
        for (from, to) in (0..64).flat_map(|from| (from..=64).map(move |to| (from, to))) {
            let mut part = vec![0; to - from];
            mask(&mut part, 512 + from as u64, &checks);
            assert_eq!(part, whole[from..to], "{from} to {to}");
        }
    }
}
