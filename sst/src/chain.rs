//! The chain of trust: compares the entries of a finished block with the digests that their table
//! stored.
//!
//! ```text
//!   caller's digest -> table digest -> [stored digests of the flush entry] -> entries decoded from the block
//!                                            block checksum, computed before -> the same bytes, written, read back
//! ```
//! * SST-CHAIN-1: a block's checksum is computed first. Then its entries are decoded from the bytes
//!   that are written, decompressed if they are compressed, and compared. The comparison finds a
//!   flip before the checksum, the checksum a flip after it. No moment is between the two.
//!
//! Pure functions; any thread.

use crate::block_builder::ValueForm;
use crate::block_cursor::{BlockCursor, RestartCheck};
use crate::error::{Damage, Result};
use crate::internal_key::{TAIL_LEN, kind_of, sequence_of, split};
use paranoid_memtable::integrity::StoredProtection;

/// Compares each entry of a block with its stored digests. Returns the sum of the digests.
pub(crate) fn compare(block: &[u8], digests: &[StoredProtection]) -> Result<u64, Damage> {
    let mut cursor = BlockCursor::new(block, ValueForm::Plain, TAIL_LEN)?;
    let mut sum = 0u64;
    let mut restarts = RestartCheck::default();
    let mut more = cursor.first()?;
    for stored in digests {
        if !more {
            return Err(Damage("fewer entries than were added"));
        }
        let (user_key, packed) = split(cursor.key()).ok_or(Damage("a short key"))?;
        let digest = stored.check(
            user_key,
            cursor.value(),
            sequence_of(packed),
            kind_of(packed),
        );
        let Some(digest) = digest else {
            return Err(Damage(
                "an entry that is not the one whose digests its table stored",
            ));
        };
        restarts.meet(&cursor)?;
        sum = sum.wrapping_add(digest.to_bits());
        more = cursor.advance()?;
    }
    if more {
        return Err(Damage("more entries than were added"));
    }
    if block.last().is_none_or(|last| last >> 4 != 0) {
        return Err(Damage("flags that nobody set"));
    }
    restarts.end(&cursor).map(|()| sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_builder::BlockBuilder;
    use crate::internal_key::pack;
    use paranoid_memtable::Kind;

    /// Flips each bit of a finished block before its checksum is computed: the comparison alone
    /// finds it.
    #[test]
    fn every_bit_of_a_block_is_compared() {
        let mut block = BlockBuilder::new(3, ValueForm::Plain);
        let mut digests = vec![];
        for number in 0..11u64 {
            let (user_key, value) = (
                format!("user{number:03}"),
                [number.to_le_bytes(); 3].concat(),
            );
            let kind = if number % 4 == 0 {
                Kind::MERGE
            } else {
                Kind::PUT
            };
            let key = [
                user_key.as_bytes(),
                &pack(90 - number, kind.as_u8()).to_le_bytes(),
            ]
            .concat();
            block.add(&key, &value);
            digests.push(StoredProtection::of(
                user_key.as_bytes(),
                &value,
                90 - number,
                kind,
            ));
        }
        let mut block = block.finish().to_vec();
        let clean = compare(&block, &digests).unwrap();
        for bit in 0..8 * block.len() {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(
                compare(&block, &digests).is_err(),
                "bit {bit} of {}",
                8 * block.len()
            );
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(compare(&block, &digests), Ok(clean));
        assert!(compare(&block, &digests[..10]).is_err());
        digests.push(digests[0]);
        assert!(compare(&block, &digests).is_err());
    }
}
