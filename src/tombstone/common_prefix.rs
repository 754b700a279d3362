//! The common prefix: bytes with which the bounds of an index begin. Stored prefixes leave them
//! out.
//!
//! ```text
//!   common prefix     tenant-7/users/        shared by start and end of the first tombstone
//!   bound    tenant-7/users/00417x           leaves out 15 bytes: its prefix is 00417x\0\0
//!   bound    tenant-7/groups/a               leaves out  9 bytes: its prefix is groups/a
//! ```
//! A prefix is a word with the first eight bytes of a bound, or of its image if the order of keys
//! is not that of bytes. Most keys are compared by prefixes alone. The prefixes of a record or node
//! leave out `skip` bytes if all its bounds begin with the first `skip` bytes of the common prefix.
//!
//! * COMMON-PREFIX-1: a key that begins with the bytes left out is compared with a bound by the
//!   bytes that follow in both. Any other key is before all such bounds or after all of them, so no
//!   tombstone between them covers it.
//!
//! The common prefix is empty unless the comparator orders keys by their bytes. It is used only if
//! its check agrees. The number of bytes that a record or node leaves out is believed only after
//! the check of the record, piece or head that is read with it.
//!
//! The index has a copy of these bytes: almost every query needs them, and one damaged entry must
//! not make them unknown.
//!
//! Any thread may call everything. A common prefix never changes.

#![forbid(unsafe_code)]

use crate::comparator::{KeyComparator, KeyOrder, bytes_at};
use crate::integrity::index_checks::Checks;
use crate::sync::{AtomicU64, Ordering};
use crate::tombstone::span::{Checked, Keys, damage};

/// Length limit of a common prefix, in bytes.
const COMMON_PREFIX_LEN_MAX: usize = 128;
const WORDS: usize = COMMON_PREFIX_LEN_MAX / 8;
/// Fewest bytes that prefixes leave out. Bounds that share fewer bytes leave out none, because
/// eight bytes of prefix still differ early enough.
pub(crate) const SKIP_MIN: u32 = 6;

/// The bytes that the bounds of the first tombstone share.
pub(crate) struct CommonPrefix {
    len: AtomicU64,
    check: AtomicU64,
    words: [AtomicU64; WORDS],
    checks: Checks,
}

/// Loads a word of a common prefix.
#[inline(always)]
pub(crate) fn load(word: &AtomicU64) -> u64 {
    // ORDERING: relaxed; a common prefix is published with the log that holds it.
    word.load(Ordering::Relaxed)
}

impl CommonPrefix {
    /// Makes the common prefix of an index whose first tombstone has these bounds.
    pub(crate) fn new(checks: Checks, comparator: &KeyComparator, [start, end]: Keys<'_>) -> Self {
        let shared = start
            .iter()
            .zip(end)
            .take(COMMON_PREFIX_LEN_MAX)
            .take_while(|(left, right)| left == right);
        let len = if comparator.key_order() == KeyOrder::Bytes {
            shared.count()
        } else {
            0
        };
        let bytes = start.get(..len).unwrap_or_default();
        let words: [u64; WORDS] = std::array::from_fn(|at| bytes_at(bytes, 8 * at).swap_bytes());
        let used = words.iter().take(len.div_ceil(8));
        let check = used.fold(checks.common_prefix(len as u64), |sum, word| {
            checks.common_prefix_word(sum, *word)
        });
        CommonPrefix {
            len: AtomicU64::new(len as u64),
            check: AtomicU64::new(check),
            words: words.map(AtomicU64::new),
            checks,
        }
    }

    /// Passes each word of the common prefix to `visit`, and returns the length if the check
    /// agrees.
    #[inline(always)]
    fn read(&self, mut visit: impl FnMut(usize, u64)) -> Checked<u32> {
        let len = load(&self.len);
        let used = usize::try_from(len.div_ceil(8)).unwrap_or(WORDS).min(WORDS);
        let mut sum = self.checks.common_prefix(len);
        for (at, word) in self.words.iter().take(used).map(load).enumerate() {
            sum = self.checks.common_prefix_word(sum, word);
            visit(at, word);
        }
        let found = load(&self.check);
        match u32::try_from(len) {
            Ok(len) if found == sum => Ok(len),
            _ => Err(damage(len, sum, found)),
        }
    }

    /// Number of leading bytes that `key` shares with the common prefix, which is verified as a
    /// whole.
    #[inline]
    pub(crate) fn shared(&self, key: &[u8]) -> Checked<u32> {
        let mut same = usize::MAX;
        let len = self.read(|at, word| {
            let differs = word ^ bytes_at(key, 8 * at).swap_bytes();
            if differs != 0 && same == usize::MAX {
                same = 8 * at + differs.trailing_zeros() as usize / 8;
            }
        })?;
        Ok(u32::try_from(same.min(key.len())).unwrap_or(len).min(len))
    }

    /// The conversion of a prefix that leaves out `from` bytes into one that leaves out `to` bytes,
    /// which is at most `from`.
    pub(crate) fn lift(&self, from: u32, to: u32) -> Checked<Lift> {
        let mut bytes = [0; COMMON_PREFIX_LEN_MAX];
        let len = self.read(|at, word| {
            if let Some(place) = bytes.get_mut(8 * at..8 * at + 8) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        })?;
        let left_out = bytes
            .get(to as usize..from as usize)
            .filter(|_| from <= len);
        let left_out =
            left_out.ok_or_else(|| damage(u64::from(len), u64::from(from), u64::from(to)))?;
        let shift = 8 * (from - to).min(8);
        Ok(Lift {
            bytes: bytes_at(left_out, 0),
            shift,
        })
    }

    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn regions<'a>(&'a self, visit: &mut dyn FnMut(&'static str, &'a [AtomicU64])) {
        visit("common prefix length", std::slice::from_ref(&self.len));
        visit("common prefix check", std::slice::from_ref(&self.check));
        visit("common prefix", &self.words);
    }
}

/// Puts bytes that a prefix left out back in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lift {
    bytes: u64,
    /// Number of bits by which the prefix moves right; 64 if nothing of it remains.
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

/// The key of a query, and its prefix, which leaves out the first `skip` bytes.
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
        Probe {
            key,
            prefix: comparator.image(key, 0),
            skip: 0,
            shared: None,
        }
    }

    /// Changes the prefix to one that leaves out `skip` bytes. Returns whether the key begins with
    /// these bytes of the common prefix; if not, no tombstone whose bounds begin with them covers
    /// the key (COMMON-PREFIX-1).
    #[inline(always)]
    pub(crate) fn leave_out(
        &mut self,
        common_prefix: &CommonPrefix,
        comparator: &KeyComparator,
        skip: u32,
    ) -> Checked<bool> {
        if self.skip == skip {
            Ok(true)
        } else {
            self.turn(common_prefix, comparator, skip)
        }
    }

    /// The rare case of [`leave_out`](Self::leave_out): the prefix changes.
    #[inline(never)]
    fn turn(
        &mut self,
        common_prefix: &CommonPrefix,
        comparator: &KeyComparator,
        skip: u32,
    ) -> Checked<bool> {
        if skip > 0 {
            let shared = match self.shared {
                Some(shared) => shared,
                None => common_prefix.shared(self.key)?,
            };
            self.shared = Some(shared);
            if skip > shared {
                return Ok(false);
            }
        }
        self.skip = skip;
        self.prefix = comparator.image(self.key, skip as usize);
        Ok(true)
    }
}
