//! The mapping of units to chunks: two small chunks follow the heads, chunk 2 begins at B, and each
//! later chunk is twice as large as the one before.
//!
//! B is a power of two of units, `1 << shift`; `arena.rs` has the picture. All functions are pure.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "bounded by the address limit of 2^32 units"
)]

use std::ops::Range;

use crate::memtable::arena::heads::HEADS_UNITS;
use crate::memtable::arena::layout::{LINE_UNITS, UNIT};

/// Smallest and largest `shift`: a B of 64 KiB and of 2 GiB.
pub(crate) const SHIFT_MIN: u32 = 13;
pub(crate) const SHIFT_MAX: u32 = 28;
/// Number of chunks with which the smallest B reaches 2^32 units.
pub(crate) const CHUNKS_MAX: usize = SMALL + (32 - SHIFT_MIN) as usize;
/// Number of small chunks.
pub(crate) const SMALL: usize = 2;
/// First unit of the second small chunk, and its end: the chunks are of 3.75 and 28.25 KiB.
pub(crate) const SECOND_START: u32 = HEADS_UNITS + if cfg!(loom) { 64 } else { 480 };
pub(crate) const SMALL_END: u32 = HEADS_UNITS + if cfg!(loom) { 256 } else { 4096 };

const _: () = assert!(
    HEADS_UNITS.is_multiple_of(LINE_UNITS)
        && SECOND_START.is_multiple_of(LINE_UNITS)
        && SMALL_END <= 1 << SHIFT_MIN
);

/// The shift of a table with this write buffer.
pub(crate) fn shift_of(write_buffer_size: u64) -> u32 {
    let units = write_buffer_size.div_ceil(UNIT as u64).max(1);
    units
        .next_power_of_two()
        .trailing_zeros()
        .clamp(SHIFT_MIN, SHIFT_MAX)
}

/// Bytes of chunk 2 of a table with this write buffer.
pub(crate) fn first_chunk_bytes(write_buffer_size: u64) -> usize {
    UNIT << shift_of(write_buffer_size)
}

/// First unit of a chunk's range.
#[inline(always)]
pub(crate) fn chunk_start(index: usize, shift: u32) -> u64 {
    match index {
        0 => HEADS_UNITS.into(),
        1 => SECOND_START.into(),
        _ => 1u64 << (shift as usize + index - SMALL),
    }
}

/// Units of a chunk of full size. The last chunk ends one unit before 2^32, so that its end fits 32
/// bits.
#[inline(always)]
pub(crate) fn chunk_units(index: usize, shift: u32) -> u64 {
    let end = match index {
        0 => SECOND_START.into(),
        1 => SMALL_END.into(),
        _ => chunk_start(index + 1, shift).min(u32::MAX.into()),
    };
    end.saturating_sub(chunk_start(index, shift))
}

/// The chunk whose range contains a unit. Units of the heads count for chunk 0, and those before B
/// for chunk 1.
#[inline]
pub(crate) fn chunk_of(offset: u32, shift: u32) -> usize {
    match (offset >> shift).checked_ilog2() {
        Some(magnitude) => SMALL + magnitude as usize,
        None => usize::from(offset >= SECOND_START),
    }
}

/// The chunk of a range of units, and the range in bytes from the chunk's start.
pub(crate) fn bytes_in_chunk(units: Range<u32>, shift: u32) -> (usize, Range<usize>) {
    let chunk = chunk_of(units.start, shift);
    let byte =
        |unit: u32| u64::from(unit).saturating_sub(chunk_start(chunk, shift)) as usize * UNIT;
    (chunk, byte(units.start)..byte(units.end))
}

/// Whether units from `start` on directly follow a range that ends at `end`. The first unit of a
/// chunk follows no range: the numbers of two chunks are adjacent, their memory is not.
#[inline]
pub(crate) fn continues(start: u32, end: u32, shift: u32) -> bool {
    let is_first_of_chunk = u64::from(start) == chunk_start(chunk_of(start, shift), shift);
    start == end && !is_first_of_chunk
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_in_the_last_chunk_that_starts_at_or_before_it() {
        for shift in [13, 15, 23, 31] {
            for index in 1..SMALL + (32 - shift) as usize {
                let start = chunk_start(index, shift) as u32;
                assert_eq!(
                    [start - 1, start, start + 1].map(|unit| chunk_of(unit, shift)),
                    [index - 1, index, index]
                );
                assert_eq!(bytes_in_chunk(start + 1..start + 4, shift), (index, 8..32));
                assert!(!continues(start, start, shift) && continues(start + 1, start + 1, shift));
                if index < CHUNKS_MAX - 1 && shift == SHIFT_MIN {
                    assert!(
                        start as u64 + chunk_units(index, shift) <= chunk_start(index + 1, shift)
                    );
                }
            }
            assert_eq!(bytes_in_chunk(0..0, shift), (0, 0..0));
        }
    }
}
