//! The common prefix: bytes that all bounds of an index begin with, and which their prefixes therefore leave out.
//!
//! ```text
//!   common prefix     tenant-7/users/              what start and end of the first tombstone share; it never changes
//!   bound    tenant-7/users/00417x        leaves out 15 bytes: its prefix is 00417x\0\0
//!   bound    tenant-7/groups/a            leaves out  9 bytes: its prefix is groups/a
//! ```
//! The prefixes of a record or node leave out `skip` bytes if all its bounds begin with the first `skip` bytes of the
//! common prefix. A record leaves out at most as many as the one before it.
//!
//! * COMMON-PREFIX-1: the common prefix is empty unless the comparator orders keys by their bytes.
//! * COMMON-PREFIX-2: a key that begins with the bytes left out is compared with a bound by what follows these bytes
//!   in both. Any other key is before all such bounds or after all of them, so no tombstone between them covers it.
//! * COMMON-PREFIX-3: bytes of the common prefix are used only if its check holds. How much a record or node leaves
//!   out is believed only after the check of the record, piece or head that is read with it.
//!
//! Who may call what: everything, any thread. A common prefix never changes.

#![forbid(unsafe_code)]

use crate::error::Corruption;
use crate::key::{KeyComparator, KeyOrder, bytes_at};
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::index::checks::{Checks, damage};

type Checked<T> = std::result::Result<T, Corruption>;

/// Length limit of a common prefix, in bytes.
const COMMON_PREFIX_LEN_MAX: usize = 128;
const WORDS: usize = COMMON_PREFIX_LEN_MAX / 8;
/// With fewer shared bytes than this there is no common prefix, because eight bytes of prefix still differ early
/// enough.
const SKIP_MIN: u32 = 6;

/// Bytes that all bounds begin with.
#[derive(Debug)]
pub(crate) struct CommonPrefix {
    len: AtomicU64,
    check: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The prefix of a key without its first `skip` bytes.
#[inline(always)]
pub(crate) fn prefix_of(comparator: &KeyComparator, key: &[u8], skip: u32) -> u64 {
    match comparator.key_order() {
        KeyOrder::Bytes => bytes_at(key, skip as usize),
        KeyOrder::Images | KeyOrder::Custom => comparator.image(key, 0),
    }
}

/// The little-endian word at byte `at` of a key, padded with zeros.
#[inline(always)]
fn key_word(key: &[u8], at: usize) -> u64 {
    bytes_at(key, 8 * at).swap_bytes()
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    // ORDERING: relaxed; a common prefix is published with the log that holds it.
    word.load(Ordering::Relaxed)
}

/// The bounds of a tombstone: the keys from `start` on and before `end`.
#[derive(Clone, Copy)]
pub(crate) struct KeyRange<'k> {
    pub(crate) start: &'k [u8],
    pub(crate) end: &'k [u8],
}

impl CommonPrefix {
    /// The common prefix of an index whose first tombstone has these bounds.
    pub(crate) fn new(
        checks: Checks,
        comparator: &KeyComparator,
        KeyRange { start, end }: KeyRange<'_>,
    ) -> Self {
        let shared =
            start.iter().zip(end).take(COMMON_PREFIX_LEN_MAX).take_while(|(left, right)| left == right);
        let len = if comparator.key_order() == KeyOrder::Bytes { shared.count() } else { 0 };
        let bytes = start.get(..len).unwrap_or_default();
        let words: [u64; WORDS] = std::array::from_fn(|at| key_word(bytes, at));
        let used = words.iter().take(len.div_ceil(8));
        let check =
            used.fold(checks.common_prefix(len as u64), |sum, word| checks.common_prefix_word(sum, *word));
        CommonPrefix {
            len: AtomicU64::new(len as u64),
            check: AtomicU64::new(check),
            words: words.map(AtomicU64::new),
        }
    }

    /// Passes each word of the common prefix to `visit`, and returns the length if the check holds (COMMON-PREFIX-3).
    #[inline(always)]
    fn read(&self, checks: Checks, mut visit: impl FnMut(usize, u64)) -> Checked<u32> {
        let len = load(&self.len);
        let used = usize::try_from(len.div_ceil(8)).unwrap_or(WORDS).min(WORDS);
        let mut sum = checks.common_prefix(len);
        for (at, word) in self.words.iter().take(used).map(load).enumerate() {
            sum = checks.common_prefix_word(sum, word);
            visit(at, word);
        }
        let found = load(&self.check);
        match u32::try_from(len) {
            Ok(len) if found == sum => Ok(len),
            _ => Err(damage(len, sum, found)),
        }
    }

    /// Number of leading bytes that `key` shares with the common prefix.
    #[inline]
    pub(crate) fn shared(&self, checks: Checks, key: &[u8]) -> Checked<u32> {
        let mut same = usize::MAX;
        let len = self.read(checks, |at, word| {
            let differs = word ^ key_word(key, at);
            if differs != 0 && same == usize::MAX {
                same = 8 * at + differs.trailing_zeros() as usize / 8;
            }
        })?;
        Ok(u32::try_from(same.min(key.len())).unwrap_or(len).min(len))
    }

    /// Number of bytes that the prefixes of these bounds may leave out.
    pub(crate) fn skip_of(&self, checks: Checks, keys: KeyRange<'_>) -> Checked<u32> {
        let shared = self.shared(checks, keys.start)?.min(self.shared(checks, keys.end)?);
        Ok(if shared < SKIP_MIN { 0 } else { shared })
    }

    /// What turns a prefix that leaves out `from` bytes into one that leaves out `to` bytes, where `to` <= `from`.
    pub(crate) fn lift(&self, checks: Checks, from: u32, to: u32) -> Checked<Lift> {
        if from <= to {
            return Ok(Lift::NONE);
        }
        let mut bytes = [0; COMMON_PREFIX_LEN_MAX];
        let len = self.read(checks, |at, word| {
            if let Some(place) = bytes.get_mut(8 * at..8 * at + 8) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        })?;
        let left_out = bytes.get(to as usize..from as usize).filter(|_| from <= len);
        let left_out = left_out.ok_or_else(|| damage(u64::from(len), u64::from(from), u64::from(to)))?;
        let shift = 8 * (from - to).min(8);
        Ok(Lift { bytes: bytes_at(left_out, 0), shift })
    }

    /// The report for a common prefix whose check fails.
    #[cold]
    pub(crate) fn damage(&self, checks: Checks) -> Corruption {
        self.verify(checks).err().unwrap_or_else(|| damage(load(&self.len), 0, load(&self.check)))
    }

    /// Whether the check holds.
    pub(crate) fn verify(&self, checks: Checks) -> Checked<()> {
        self.read(checks, |_, _| ()).map(|_| ())
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("common prefix length", std::slice::from_ref(&self.len));
        visit("common prefix check", std::slice::from_ref(&self.check));
        visit("common prefix", &self.words);
    }
}

/// Puts bytes that a prefix left out back at its front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lift {
    bytes: u64,
    /// How far the prefix moves right, in bits; 64 if none of it remains.
    shift: u32,
}

impl Lift {
    pub(crate) const NONE: Lift = Lift { bytes: 0, shift: 0 };

    #[inline(always)]
    pub(crate) fn apply(self, prefix: u64) -> u64 {
        let half = self.shift / 2;
        self.bytes | prefix >> half >> half
    }
}

/// A common prefix, and the functions that verify it.
#[derive(Clone, Copy)]
pub(crate) struct CheckedPrefix<'a> {
    pub(crate) common_prefix: &'a CommonPrefix,
    pub(crate) checks: Checks,
}

/// The key of a query, with its prefix: that of the key without its first `skip` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    skip: u32,
    /// Number of leading bytes that the key shares with the common prefix, once computed.
    shared: Option<u32>,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(crate) fn new(comparator: &KeyComparator, key: &'k [u8]) -> Self {
        Probe { key, prefix: prefix_of(comparator, key, 0), skip: 0, shared: None }
    }

    pub(crate) fn skip(&self) -> u32 {
        self.skip
    }

    /// Changes the prefix to one that leaves out `skip` bytes, if the key begins with these.
    #[inline(always)]
    pub(crate) fn leave_out(
        &mut self,
        common_prefix: CheckedPrefix<'_>,
        comparator: &KeyComparator,
        skip: u32,
    ) -> Begins {
        if self.skip == skip { Begins::Same } else { self.turn(common_prefix, comparator, skip) }
    }

    #[inline(never)]
    fn turn(
        &mut self,
        CheckedPrefix { common_prefix, checks }: CheckedPrefix<'_>,
        comparator: &KeyComparator,
        skip: u32,
    ) -> Begins {
        if skip > 0 && self.shared.is_none() {
            self.shared = common_prefix.shared(checks, self.key).ok();
        }
        match self.shared {
            _ if skip == 0 => {}
            Some(shared) if skip <= shared => {}
            Some(_) => return Begins::Otherwise,
            None => return Begins::Damaged,
        }
        self.skip = skip;
        self.prefix = prefix_of(comparator, self.key, skip);
        Begins::Same
    }
}

/// Whether a key begins with the bytes that the prefixes of some bounds leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// It does.
    Same,
    /// It does not, so no tombstone between these bounds covers it (COMMON-PREFIX-2).
    Otherwise,
    /// Not known, because the check of the common prefix fails.
    Damaged,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::integrity::digest::Secret;
    use crate::key::BYTEWISE;

    #[test]
    fn lifted_prefixes_are_prefixes() {
        let checks = Checks::new(Secret::from_seed(1));
        let key: Vec<u8> = (0..140u32).map(|byte| (byte * 37 % 251) as u8).collect();
        for len in (0..=128usize).step_by(if cfg!(miri) { 32 } else { 1 }) {
            let common_prefix = CommonPrefix::new(
                checks,
                &BYTEWISE,
                KeyRange { start: &key[..len], end: &[&key[..len], b"x"].concat() },
            );
            assert_eq!(common_prefix.verify(checks), Ok(()));
            for from in 0..=u32::try_from(len).unwrap() {
                assert_eq!(common_prefix.shared(checks, &key[..from as usize]), Ok(from), "of {len}");
                let keys = KeyRange { start: &key[..from as usize], end: &key };
                let skip = if from < SKIP_MIN { 0 } else { from };
                assert_eq!(common_prefix.skip_of(checks, keys), Ok(skip), "of {len}");
                for to in 0..=from {
                    let lift = common_prefix.lift(checks, from, to).unwrap();
                    let (deep, flat) = (prefix_of(&BYTEWISE, &key, from), prefix_of(&BYTEWISE, &key, to));
                    assert_eq!(lift.apply(deep), flat, "{len}: {from} to {to}");
                }
            }
        }
    }
}
