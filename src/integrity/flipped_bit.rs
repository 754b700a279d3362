//! The search for a single flipped bit that explains why a check failed.
//!
//! The result is the first bit whose flip makes the check pass. It may not be the bit that flipped.

#![forbid(unsafe_code)]

/// Longest input that is searched, in bytes. The work is quadratic in its length: at the limit
/// about a million bytes are hashed, which takes well under a millisecond.
pub(crate) const DIAGNOSIS_LEN_MAX: usize = 384;

/// The number (byte * 8 + bit) of the first bit of `bytes` whose flip makes `holds` true. `None` if
/// there is none, or if the input is longer than [`DIAGNOSIS_LEN_MAX`].
#[cold]
pub(crate) fn single_bit(bytes: &[u8], holds: impl Fn(&[u8]) -> bool) -> Option<u64> {
    let mut buffer = [0u8; DIAGNOSIS_LEN_MAX];
    let copy = buffer.get_mut(..bytes.len())?;
    copy.copy_from_slice(bytes);
    for bit in 0..bytes.len() * 8 {
        copy[bit / 8] ^= 1 << (bit % 8);
        let explained = holds(copy);
        copy[bit / 8] ^= 1 << (bit % 8);
        if explained {
            return Some(bit as u64);
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bit_and_only_that() {
        let clean = [7u8, 8, 9];
        let mut bent = clean;
        bent[1] ^= 0x20;
        assert_eq!(single_bit(&bent, |bytes| bytes == clean), Some(8 + 5));
        bent[2] ^= 1;
        assert_eq!(single_bit(&bent, |bytes| bytes == clean), None);
        assert_eq!(single_bit(&[0; 4096], |_| true), None);
    }
}
