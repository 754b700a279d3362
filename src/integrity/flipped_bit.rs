//! Finds the single flipped bit that explains a failed check, if there is one. Runs only after a
//! check has failed.
//!
//! Not promised: that the bit found is the one that flipped. It is the first one whose flip makes
//! the check pass.

#![forbid(unsafe_code)]

/// Longest input that is searched, in bytes. The work is quadratic in its length: at the limit
/// about a million bytes are hashed, which takes well under a millisecond.
pub(crate) const DIAGNOSIS_LEN_MAX: usize = 384;

/// The number (byte * 8 + bit) of the first bit of `bytes` whose flipping makes `holds` true.
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
