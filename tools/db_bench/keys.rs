//! Keys as db_bench lays them out.
//!
//! ```text
//!   | prefix: number modulo prefixes, big-endian, then '0' | number, big-endian, at most 8 bytes | '0' .. |
//!     only with --keys_per_prefix                                                                 to key_size
//! ```

use crate::random::Twister;

/// The shape of all keys of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyShape {
    pub(crate) key_size: usize,
    pub(crate) prefix_size: usize,
    /// How many different prefixes there are; 0: keys have none.
    pub(crate) prefixes: u64,
}

/// Writes the lowest bytes of a number, highest first, into all of `bytes`, and '0' after the eighth.
fn fill(bytes: &mut [u8], number: u64) {
    let (number_bytes, padding) = bytes.split_at_mut(bytes.len().min(8));
    let all = number.to_be_bytes();
    number_bytes.copy_from_slice(&all[8 - number_bytes.len()..]);
    padding.fill(b'0');
}

impl KeyShape {
    /// Makes `key` the key of a number.
    pub(crate) fn write(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        key.resize(self.key_size, b'0');
        let mut from = 0;
        if self.prefixes > 0 {
            from = self.prefix_size.min(self.key_size);
            fill(&mut key[..from], number % self.prefixes);
        }
        fill(&mut key[from..], number);
    }
}

/// The order in which a fill writes its numbers.
#[derive(Debug)]
pub(crate) enum Numbers {
    Ascending { next: u64 },
    Random { bound: u64 },
    Unique { order: Vec<u64>, next: usize },
}

impl Numbers {
    pub(crate) fn next(&mut self, random: &mut Twister) -> u64 {
        match self {
            Numbers::Ascending { next } => {
                *next += 1;
                *next - 1
            }
            Numbers::Random { bound } => random.below(*bound),
            Numbers::Unique { order, next } => {
                *next += 1;
                order.get(*next - 1).copied().unwrap_or(0)
            }
        }
    }

    /// Draws what db_bench draws to choose a generator before each batch; the order of one generator stays the same.
    pub(crate) fn before_batch(&self, random: &mut Twister) {
        if !matches!(self, Numbers::Ascending { .. }) {
            random.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_laid_out_as_in_rocksdb() {
        let mut key = Vec::new();
        let plain = KeyShape { key_size: 16, prefix_size: 7, prefixes: 0 };
        plain.write(0x0102, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\x01\x0200000000");
        KeyShape { key_size: 3, ..plain }.write(0x0102_0304, &mut key);
        assert_eq!(key, b"\x02\x03\x04");
        let prefixed = KeyShape { key_size: 16, prefix_size: 10, prefixes: 256 };
        prefixed.write(0x0102, &mut key);
        assert_eq!(key, b"\0\0\0\0\0\0\0\x0200\0\0\0\0\x01\x02");
    }
}
