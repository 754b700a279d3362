//! Numbers as RocksDB encodes them: little-endian words, varints, zigzag; and the handle of a
//! block, which is two varints.
//!
//! A varint has seven bits per byte, lowest first; the high bit says that more bytes follow.
//! Encodings that are longer than needed are refused: no writer makes them, and a flipped
//! continuation bit before a zero byte would not be noticed.
//!
//! Pure functions; any thread.

/// Length of a block's trailer in the file.
pub(crate) const TRAILER_LEN: u64 = 5;

/// The place of a block in its file: offset and size, without the block's trailer.
///
/// ```
/// use paranoid_sst::BlockHandle;
/// let handle = BlockHandle { offset: 1210, size: 300 };
/// assert_eq!(handle.offset + handle.size, 1510);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockHandle {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Bytes of the block without its trailer.
    pub size: u64,
}

impl BlockHandle {
    /// Offset of the first byte after block and trailer; `u64::MAX` if it does not fit.
    pub(crate) fn end(&self) -> u64 {
        self.offset
            .saturating_add(self.size)
            .saturating_add(TRAILER_LEN)
    }
}

/// Appends a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, number: u64) {
    let mut left = number;
    while left >= 0x80 {
        out.push(left.to_le_bytes()[0] | 0x80);
        left >>= 7;
    }
    out.push(left.to_le_bytes()[0]);
}

/// Number of bytes of a varint.
pub(crate) const fn varint_len(number: u64) -> usize {
    (70 - (number | 1).leading_zeros() as usize) / 7
}

/// The number at the start of `bytes`, and the bytes after it.
pub(crate) fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    if let [first, rest @ ..] = bytes
        && *first < 0x80
    {
        return Some((u64::from(*first), rest));
    }
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            let longer_than_need_be = byte == 0 && index > 0;
            return if longer_than_need_be {
                None
            } else {
                Some((number, &bytes[index + 1..]))
            };
        }
    }
    None
}

/// A varint of at most 32 bits at the start of `bytes`, and the bytes after it.
pub(crate) fn take_varint32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = take_varint(bytes)?;
    Some((u32::try_from(number).ok()?, rest))
}

/// Appends a handle as other blocks store it.
pub(crate) fn put_handle(out: &mut Vec<u8>, handle: BlockHandle) {
    put_varint(out, handle.offset);
    put_varint(out, handle.size);
}

/// The handle at the start of `bytes`, and the bytes after it.
pub(crate) fn take_handle(bytes: &[u8]) -> Option<(BlockHandle, &[u8])> {
    let (offset, rest) = take_varint(bytes)?;
    let (size, rest) = take_varint(rest)?;
    Some((BlockHandle { offset, size }, rest))
}

/// A signed number as an unsigned one: numbers near zero stay small.
pub(crate) const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(crate) const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// The little-endian word at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The little-endian word at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for bit in 0..64 {
            for number in [1u64 << bit, (1 << bit) - 1, u64::MAX >> bit] {
                let mut out = vec![];
                put_varint(&mut out, number);
                assert_eq!(out.len(), varint_len(number), "{number}");
                assert_eq!(take_varint(&out), Some((number, &[][..])));
                assert_eq!(take_varint(&out[..out.len() - 1]), None);
                assert_eq!(unzigzag(zigzag(number.cast_signed())), number.cast_signed());
            }
        }
        assert_eq!((zigzag(0), zigzag(-1), zigzag(1)), (0, 1, 2));
        assert_eq!(take_varint(&[0x80, 0]), None, "longer than need be");
        assert_eq!(take_varint(&[0xff; 11]), None, "without an end");
    }
}
