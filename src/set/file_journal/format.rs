//! The bytes of a journal file.
//!
//! ```text
//!   file     header | header once more | record | record | ..                 integers little-endian
//!   header   magic (8) version (1) checksum kind (1) 0 (2) base (4) table (8) previous table (8) and its length (8)
//!            required: table (8) and length (8) | last sequence number before (8) | checksum of all that (4)
//!   record   head | payload | kind (1) checksum (4) | filler, where a sector would have one byte of it or of the next head
//!   head     mark (1) payload length (8) durable (8) mask (1) | kind (1) checksum (4)
//! ```
//! * JOURNAL-FORMAT-1: every checksum of a record depends on the file's base, which is another one per file, and on the
//!   place in the file: a record that was moved, or is left over from another file, does not verify.
//! * JOURNAL-FORMAT-2: a length is believed only after the head that has it verified.
//! * JOURNAL-FORMAT-3: `durable` bytes of the file were durable when the record was appended; it is 0 until all earlier
//!   files and the names of all files were durable as well.
//! * JOURNAL-FORMAT-4: a head begins with a mark that is not 0, and the mask byte, nearly always 0, with which a payload is
//!   XORed is one that leaves at least two bytes that are not 0 in what each sector has of a head or of the rest of a record.
//!   So a sector that was never written is told from one with a damaged byte.
//!
//! A batch's payload is the encoded batch; that of an abandoned interval its first and last sequence number. Pure
//! functions over slices; any thread.

#![forbid(unsafe_code)]

use std::num::NonZeroU32;

use crate::error::{Corruption, Place, Result};
use crate::format::block::BlockChecks;
use crate::format::checksum_kind::ChecksumKind;
use crate::key::SequenceNumber;

const MAGIC: u64 = u64::from_le_bytes(*b"pmjournl");
const VERSION: u8 = 1;

/// Bytes of one copy of the header.
const COPY_LEN: usize = 68;
/// Bytes before the first record.
pub(super) const HEADER_LEN: usize = 2 * COPY_LEN;

const TRAILER_LEN: usize = 5;
const FIELDS_LEN: usize = 18;
const HEAD_LEN: usize = FIELDS_LEN + TRAILER_LEN;
/// Bytes of a record beside its payload.
pub(super) const BESIDE_LEN: usize = HEAD_LEN + TRAILER_LEN;

/// What a device writes as a whole, or not at all.
const SECTOR: usize = 512;

const MARK: u8 = 0xa5;
const FILLER: u8 = 0x5a;

/// A place in a journal: a table's file, and a byte offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) table: u64,
    pub(super) offset: u64,
}

/// What the header of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) checks: BlockChecks,
    pub(super) base: NonZeroU32,
    pub(super) table: u64,
    /// The end of the file before this one; `None` if there was none.
    pub(super) previous: Option<At>,
    /// What lies from here to the end of the previous file is not known to be durable, because a sync failed.
    pub(super) required: At,
    /// The largest first sequence number of a batch in an earlier file, or of one in the engine's files.
    pub(super) last_sequence: SequenceNumber,
}

impl FileHeader {
    pub(super) fn new(kind: ChecksumKind, random: u64, table: u64) -> Self {
        let [a, b, c, d, ..] = random.to_le_bytes();
        let base = NonZeroU32::new(u32::from_le_bytes([a, b, c, d])).unwrap_or(NonZeroU32::MIN);
        FileHeader {
            checks: BlockChecks::with_context(kind, base),
            base,
            table,
            previous: None,
            required: At { table: 0, offset: 0 },
            last_sequence: 0,
        }
    }

    /// Both copies.
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut copy = Vec::with_capacity(COPY_LEN);
        copy.extend(MAGIC.to_le_bytes());
        copy.extend([VERSION, self.checks.kind().as_u8(), 0, 0]);
        copy.extend(self.base.get().to_le_bytes());
        let previous = self.previous.unwrap_or(At { table: u64::MAX, offset: 0 });
        for word in [
            self.table,
            previous.table,
            previous.offset,
            self.required.table,
            self.required.offset,
            self.last_sequence,
        ] {
            copy.extend(word.to_le_bytes());
        }
        copy.extend(ChecksumKind::Xxh3.checksum(&copy).to_le_bytes());
        let mut bytes = [0; HEADER_LEN];
        for half in bytes.chunks_exact_mut(COPY_LEN) {
            half.copy_from_slice(&copy);
        }
        bytes
    }

    /// The header of a file, from whichever copy verifies, and the damage of the other one.
    pub(super) fn read(bytes: &[u8]) -> Result<(FileHeader, Option<Corruption>), Corruption> {
        if bytes.len() < HEADER_LEN {
            return Err(report(0, HEADER_LEN as u64, bytes.len() as u64));
        }
        let copy = |number: usize| {
            let at = number * COPY_LEN;
            FileHeader::read_copy(bytes.get(at..).unwrap_or_default(), at as u64)
        };
        match (copy(0), copy(1)) {
            (Ok(first), Ok(second)) if first == second => Ok((first, None)),
            (Ok(header), Err(damage)) | (Err(damage), Ok(header)) => Ok((header, Some(damage))),
            (Err(damage), Err(_)) => Err(damage),
            (Ok(_), Ok(_)) => Err(report(COPY_LEN as u64, 0, 1)),
        }
    }

    fn read_copy(bytes: &[u8], at: u64) -> Result<FileHeader, Corruption> {
        let Some((fields, checksum)) = bytes.get(..COPY_LEN).and_then(<[u8]>::split_last_chunk::<4>) else {
            return Err(report(at, COPY_LEN as u64, bytes.len() as u64));
        };
        let (expected, found) = (ChecksumKind::Xxh3.checksum(fields), u32::from_le_bytes(*checksum));
        if expected != found {
            return Err(report(at, expected.into(), found.into()));
        }
        if word(fields, 0) != MAGIC || fields.get(8) != Some(&VERSION) {
            return Err(report(at, MAGIC, word(fields, 0)));
        }
        let kind = fields.get(9).copied().unwrap_or_default();
        let Ok(kind) = ChecksumKind::try_from(kind) else { return Err(report(at + 9, 0, kind.into())) };
        let previous = At { table: word(fields, 24), offset: word(fields, 32) };
        Ok(FileHeader {
            previous: (previous.table != u64::MAX).then_some(previous),
            required: At { table: word(fields, 40), offset: word(fields, 48) },
            last_sequence: word(fields, 56),
            ..FileHeader::new(kind, word(fields, 12) & u64::from(u32::MAX), word(fields, 16))
        })
    }
}

/// Eight bytes of a slice that has them.
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    let chunk = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>);
    chunk.map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cold]
pub(super) fn report(offset: u64, expected: u64, found: u64) -> Corruption {
    Corruption::new(Place::Encoding, offset, expected, found)
}

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    Batch = 1,
    Abandoned = 2,
}

impl RecordKind {
    fn from_u8(number: u8) -> Option<RecordKind> {
        [RecordKind::Batch, RecordKind::Abandoned].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A record before it is encoded.
#[derive(Debug)]
pub(super) struct NewRecord<'a> {
    pub(super) kind: RecordKind,
    pub(super) payload: &'a [u8],
    /// Where it will lie in its file.
    pub(super) offset: u64,
    /// How much of the file was synced before.
    pub(super) durable: u64,
}

/// Appends a record to `out`.
pub(super) fn encode(out: &mut Vec<u8>, checks: &BlockChecks, record: &NewRecord<'_>) {
    out.reserve(record.payload.len() + BESIDE_LEN);
    let start = out.len();
    let mut mask = 0;
    while !encode_masked(out, start, checks, record, mask) && mask < u8::MAX {
        mask += 1;
    }
}

/// Writes a record with this mask; whether each sector shows that it was written (JOURNAL-FORMAT-4).
fn encode_masked(
    out: &mut Vec<u8>,
    start: usize,
    checks: &BlockChecks,
    record: &NewRecord<'_>,
    mask: u8,
) -> bool {
    let NewRecord { kind, payload, offset, durable } = *record;
    out.truncate(start);
    out.push(MARK);
    out.extend((payload.len() as u64).to_le_bytes());
    out.extend(durable.to_le_bytes());
    out.push(mask);
    let head = checks.trailer(out.get(start..).unwrap_or_default(), kind as u8, offset);
    out.extend(head);
    let (body, body_at) = (start + HEAD_LEN, offset + HEAD_LEN as u64);
    out.extend_from_slice(payload);
    apply_mask(out.get_mut(body..).unwrap_or_default(), mask);
    let trailer = checks.trailer(out.get(body..).unwrap_or_default(), kind as u8, body_at);
    out.extend(trailer);
    let end = offset + (out.len() - start) as u64;
    out.extend((end..filled(end)).map(|_| FILLER));
    let (head, body) = out.get(start..).unwrap_or_default().split_at(HEAD_LEN);
    sectors(head, offset).chain(sectors(body, body_at)).all(is_plain)
}

/// Where a record that ends at `end` has its filler's end: no sector has a single byte of it, nor of the head that follows.
fn filled(mut end: u64) -> u64 {
    let sector = SECTOR as u64;
    while end % sector == 1 || (end + HEAD_LEN as u64) % sector == 1 {
        end += 1;
    }
    end
}

fn apply_mask(bytes: &mut [u8], mask: u8) {
    if mask != 0 {
        bytes.iter_mut().for_each(|byte| *byte ^= mask);
    }
}

/// What each sector that begins among bytes which lie at `at` has of them.
fn sectors(stored: &[u8], at: u64) -> impl Iterator<Item = &[u8]> {
    stored.get(first_sector(at)..).unwrap_or_default().chunks(SECTOR)
}

/// Whether damage to one byte cannot make these look as if they had never been written.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().filter(|byte| **byte != 0).nth(1).is_some()
}

/// Bytes from an offset of a file to its next sector.
#[expect(clippy::cast_possible_truncation, reason = "less than a sector")]
fn first_sector(at: u64) -> usize {
    (at.wrapping_neg() % SECTOR as u64) as usize
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A record that verified.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'b> {
    pub(super) kind: RecordKind,
    pub(super) durable: u64,
    /// Where it begins and ends in the file.
    pub(super) at: usize,
    pub(super) end: usize,
    /// As it is stored.
    masked: &'b [u8],
    mask: u8,
    trailer: [u8; TRAILER_LEN],
}

impl Record<'_> {
    /// The offset of the payload in the file.
    pub(super) fn payload_at(&self) -> u64 {
        (self.at + HEAD_LEN) as u64
    }

    /// The first eight bytes of the payload: a batch's sequence number.
    pub(super) fn sequence(&self) -> SequenceNumber {
        let mut sequence = [0; 8];
        let len = self.masked.len().min(8);
        sequence[..len].copy_from_slice(&self.masked[..len]);
        apply_mask(&mut sequence[..len], self.mask);
        u64::from_le_bytes(sequence)
    }

    /// The payload.
    pub(super) fn payload(&self) -> Vec<u8> {
        let mut payload = self.masked.to_vec();
        apply_mask(&mut payload, self.mask);
        payload
    }

    /// Whether a copy of the payload has the record's checksum.
    pub(super) fn verify(&self, copy: &[u8], checks: &BlockChecks) -> Result<(), Corruption> {
        if self.mask == 0 {
            return self.verify_masked(copy, checks);
        }
        let mut masked = copy.to_vec();
        apply_mask(&mut masked, self.mask);
        self.verify_masked(&masked, checks)
    }

    fn verify_masked(&self, masked: &[u8], checks: &BlockChecks) -> Result<(), Corruption> {
        let at = self.payload_at();
        let computed = checks.trailer(masked, self.kind as u8, at);
        if computed == self.trailer { Ok(()) } else { Err(report(at, tail(&computed), tail(&self.trailer))) }
    }
}

fn tail(trailer: &[u8]) -> u64 {
    trailer.last_chunk::<4>().map_or(0, |checksum| u32::from_le_bytes(*checksum).into())
}

/// A head that verified.
#[derive(Debug, Clone, Copy)]
struct Head {
    kind: RecordKind,
    mask: u8,
    durable: u64,
    /// Where the record ends in the file, without its filler and with it.
    end: u64,
    filled: u64,
}

fn read_head(bytes: &[u8], at: usize, checks: &BlockChecks) -> Option<Head> {
    let stored = bytes.get(at..)?.first_chunk::<HEAD_LEN>()?;
    let (fields, trailer) = stored.split_last_chunk::<TRAILER_LEN>()?;
    // Most places of a scan end here.
    if fields.first() != Some(&MARK) {
        return None;
    }
    let kind = RecordKind::from_u8(trailer[0])?;
    if checks.trailer(fields, trailer[0], at as u64) != *trailer {
        return None;
    }
    let end = word(fields, 1).checked_add(at as u64)?.checked_add(BESIDE_LEN as u64)?;
    end.checked_add(2 * SECTOR as u64)?;
    let mask = fields[17];
    Some(Head { kind, mask, durable: word(fields, 9), end, filled: filled(end) })
}

/// The record at a place of a file, if one verifies there.
pub(super) fn read_record<'b>(bytes: &'b [u8], at: usize, checks: &BlockChecks) -> Option<Record<'b>> {
    let Head { kind, durable, mask, end, filled } = read_head(bytes, at, checks)?;
    let (body_end, end) = (usize::try_from(end).ok()?, usize::try_from(filled).ok()?);
    let filler = bytes.get(body_end..end)?;
    let (masked, trailer) = bytes.get(at + HEAD_LEN..body_end)?.split_last_chunk::<TRAILER_LEN>()?;
    let record = Record { kind, durable, at, end, masked, mask, trailer: *trailer };
    let is_sound = filler.iter().all(|byte| *byte == FILLER) && record.verify_masked(masked, checks).is_ok();
    is_sound.then_some(record)
}

/// The first record that verifies after a place where none does. O(length of what lies between).
pub(super) fn next_record<'b>(bytes: &'b [u8], bad: usize, checks: &BlockChecks) -> Option<Record<'b>> {
    let mut at = bad;
    while at < bytes.len() {
        if let Some(record) = read_record(bytes, at, checks) {
            return Some(record);
        }
        let end = read_head(bytes, at, checks).and_then(|head| usize::try_from(head.filled).ok());
        at = end.filter(|end| *end <= bytes.len()).unwrap_or(at + 1);
    }
    None
}

/// Why no record verifies at a place, and whether it looks as if it had never been written whole (JOURNAL-FORMAT-4).
#[cold]
pub(super) fn diagnose(bytes: &[u8], at: usize, checks: &BlockChecks) -> (Corruption, bool) {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(head) = read_head(bytes, at, checks) else {
        let Some(stored) = rest.get(..HEAD_LEN) else {
            return (report(at as u64, HEAD_LEN as u64, rest.len() as u64), true);
        };
        let (first, second) = stored.split_at(first_sector(at as u64).min(HEAD_LEN));
        let unwritten = (!first.is_empty() && is_zero(first)) || (!second.is_empty() && is_zero(second));
        let damage = checks.verify(stored, at as u64).err().and_then(|error| error.corruption().copied());
        return (damage.unwrap_or(report(at as u64, MARK.into(), stored[0].into())), unwritten);
    };
    let body_at = at + HEAD_LEN;
    let whole = usize::try_from(head.filled).ok().and_then(|end| bytes.get(body_at..end));
    let Some(whole) = whole else {
        let len = (bytes.len() - body_at) as u64;
        return (report(body_at as u64, head.filled - body_at as u64, len), true);
    };
    let unwritten = sectors(whole, body_at as u64).any(is_zero);
    let filler = usize::try_from(head.filled - head.end).unwrap_or_default();
    let stored = whole.get(..whole.len() - filler).unwrap_or_default();
    let damage = checks.verify(stored, body_at as u64).err().and_then(|error| error.corruption().copied());
    // The payload verifies with a kind that is not the head's, or the filler is damaged.
    (damage.unwrap_or(report(body_at as u64, head.kind as u64, 0)), unwritten)
}

/// Whether the header of a file looks as if it had never been written whole.
pub(super) fn is_unwritten_header(bytes: &[u8]) -> bool {
    bytes.get(..HEADER_LEN).is_none_or(is_zero)
}

const SUFFIX: &str = ".journal";

/// The name of a table's file.
pub(super) fn name_of(table: u64) -> String {
    format!("{table:06}{SUFFIX}")
}

/// The table of a file with such a name.
pub(super) fn table_of(name: &str) -> Option<u64> {
    let table = name.strip_suffix(SUFFIX)?.parse().ok()?;
    (name_of(table) == name).then_some(table)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A record at this place reads back, and no damaged byte of it makes it look unwritten.
    fn check_record(at: usize, len: usize, seed: u64) {
        let checks = FileHeader::new(ChecksumKind::Crc32c, seed.wrapping_mul(0x9e37_79b9), 1).checks;
        let mut file = vec![0; at];
        let payload = &vec![0; len];
        let record = NewRecord { kind: RecordKind::Batch, payload, offset: at as u64, durable: 0 };
        encode(&mut file, &checks, &record);
        assert!(read_record(&file, at, &checks).is_some_and(|record| record.end == file.len()));
        for place in at..file.len() {
            let byte = file[place];
            for damaged in [byte ^ 1 << (place % 8), !byte, 0].into_iter().filter(|other| *other != byte) {
                file[place] = damaged;
                assert!(read_record(&file, at, &checks).is_none(), "{len} bytes at {at}, {place}");
                let unwritten = diagnose(&file, at, &checks).1;
                // A sector that has the mark alone is the next one's business: what follows says that it was written.
                let is_mark = place == at && damaged == 0;
                assert!(!unwritten || is_mark, "{len} bytes at {at}, seed {seed}: {damaged:#x} at {place}");
            }
            file[place] = byte;
        }
    }

    /// At each place relative to sectors, and with many checksums where a sector has two bytes of a head or of a record's end.
    #[test]
    fn a_damaged_byte_never_looks_unwritten() {
        for at in (HEADER_LEN..HEADER_LEN + SECTOR).filter(|at| filled(*at as u64) == *at as u64) {
            [0, 12, 40].into_iter().for_each(|len| check_record(at, len, at as u64));
            let (head_end, end) = ((at + HEAD_LEN) % SECTOR, (at + BESIDE_LEN + 12) % SECTOR);
            let seeds =
                if head_end == 2 || end == 2 { if cfg!(debug_assertions) { 500 } else { 2000 } } else { 0 };
            (0..seeds).for_each(|seed| check_record(at, 12, seed));
            if at % 37 == 0 {
                check_record(at, 600, at as u64);
            }
        }
    }
}
