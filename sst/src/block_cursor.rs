//! Reads a block of any bytes: parse, seek, steps both ways.
//!
//! ```text
//!   entry:  shared (varint32) | not shared (varint32) | value length (varint32) | key bytes not shared | value
//!   block:  entries | hash index (optional) | restart offsets (4 each) | packed word (4)
//!   packed word: restarts (28 bits) | values stored apart (1) | hint (1) | 0 (1) | hash index present (1)
//! ```
//! * SST-BLOCK-CURSOR-1: every length and offset is checked against the bytes that are there before
//!   it is used.
//! * SST-BLOCK-CURSOR-2: no key is longer than the block, and the keys of a walk together have at
//!   most 128 bytes for each byte of the block. A restart interval up to 128 cannot make more of
//!   them, and writers here have no longer one.
//! * SST-BLOCK-CURSOR-3: each step goes on in the block or ends; a search reads each restart at
//!   most once. A walk back reads each entry twice: what lies between a restart and the place is
//!   kept, within the same bound.
//!
//! One owner at a time. Not promised: that keys ascend; callers that need it check it.

use crate::block_builder::ValueForm;
use crate::coding::{
    BlockHandle, TRAILER_LEN, take_handle, take_varint, take_varint32, u32_at, unzigzag,
};
use crate::error::Damage;

/// Most entries from one whole key to the next that a block may have so that its keys are within
/// the bound.
pub(crate) const RESTART_INTERVAL_MAX: u32 = 128;
const EXPANSION_MAX: usize = RESTART_INTERVAL_MAX as usize;
const EXPANSION_BASE: usize = 4096;

const RESTARTS_MASK: u32 = (1 << 28) - 1;
const VALUES_APART: u32 = 1 << 28;
const RESERVED: u32 = 1 << 30;
const HASH_INDEX: u32 = 1 << 31;

/// Where the parts of a block are.
#[derive(Debug, Clone)]
struct Parts {
    entries_end: usize,
    restarts_at: usize,
    restarts: usize,
}

fn parts(bytes: &[u8]) -> Result<Parts, Damage> {
    let damage = |what| Err(Damage(what));
    let Some(word_at) = bytes.len().checked_sub(4) else {
        return damage("too short for a block");
    };
    let word = u32_at(bytes, word_at).unwrap_or(0);
    if word & RESERVED != 0 {
        return damage("reserved bits of the restart count are set");
    }
    if word & VALUES_APART != 0 {
        return damage("keys and values are stored apart, which is not supported");
    }
    let mut end = word_at;
    if word & HASH_INDEX != 0 {
        let buckets = end
            .checked_sub(2)
            .and_then(|at| bytes.get(at..)?.first_chunk::<2>());
        let taken = buckets.map_or(usize::MAX, |count| {
            2 + usize::from(u16::from_le_bytes(*count))
        });
        let Some(before) = end.checked_sub(taken) else {
            return damage("the hash index does not fit");
        };
        end = before;
    }
    let restarts = (word & RESTARTS_MASK) as usize;
    let Some(restarts_at) = restarts.checked_mul(4).and_then(|len| end.checked_sub(len)) else {
        return damage("the restarts do not fit");
    };
    if restarts == 0 {
        return damage("no restart");
    }
    Ok(Parts {
        entries_end: restarts_at,
        restarts_at,
        restarts,
    })
}

/// The fixed part of an entry.
struct Head {
    shared: usize,
    key: (usize, usize),
    value: (usize, usize),
}

/// An entry at which a cursor stands, without its key.
#[derive(Debug, Clone, Copy, Default)]
struct Stand {
    /// Where the entry starts.
    at: usize,
    /// Where the next entry starts.
    next: usize,
    /// Number of leading key bytes that the entry shares with the one before it.
    shared: usize,
    /// Where the entry's value lies in the block.
    value: (usize, usize),
    handle: BlockHandle,
    /// Bytes that the keys up to the end of the walk may have (SST-BLOCK-CURSOR-2).
    left: usize,
}

/// A position in a block.
#[derive(Debug, Clone)]
pub(crate) struct BlockCursor<B> {
    bytes: B,
    parts: Parts,
    form: ValueForm,
    key_len_min: usize,
    stand: Stand,
    key: Vec<u8>,
    /// Whether it stands at an entry.
    pub(crate) valid: bool,
    /// The entries from a restart up to the one that the last step back left, each with the place
    /// of its key in `passed_keys`.
    passed: Vec<(Stand, usize)>,
    passed_keys: Vec<u8>,
}

impl<B: AsRef<[u8]>> BlockCursor<B> {
    /// A cursor that stands nowhere. Keys shorter than `key_len_min` are damage.
    pub(crate) fn new(bytes: B, form: ValueForm, key_len_min: usize) -> Result<Self, Damage> {
        let (parts, stand, key) = (parts(bytes.as_ref())?, Stand::default(), vec![]);
        let (passed, passed_keys) = (vec![], vec![]);
        Ok(BlockCursor {
            bytes,
            parts,
            form,
            key_len_min,
            stand,
            key,
            valid: false,
            passed,
            passed_keys,
        })
    }

    /// The entry's key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The entry's value; of a handle without length, its bytes.
    pub(crate) fn value(&self) -> &[u8] {
        self.bytes
            .as_ref()
            .get(self.stand.value.0..self.stand.value.1)
            .unwrap_or_default()
    }

    /// Where the entry's value lies in the block.
    pub(crate) fn value_at(&self) -> usize {
        self.stand.value.0
    }

    /// The entry's value as a handle.
    pub(crate) fn handle(&self) -> Result<BlockHandle, Damage> {
        match self.form {
            ValueForm::DeltaHandles => Ok(self.stand.handle),
            ValueForm::Plain => take_handle(self.value())
                .map(|(handle, _)| handle)
                .ok_or(Damage("no handle")),
        }
    }

    /// Reads the lengths of the entry at `at`.
    fn head(&self, at: usize) -> Result<Head, Damage> {
        let entries = &self.bytes.as_ref()[..self.parts.entries_end];
        let rest = entries
            .get(at..)
            .ok_or(Damage("an entry that starts after the last one"))?;
        let (shared, rest) = take_varint32(rest).ok_or(Damage("the shared length is no number"))?;
        let (not_shared, rest) =
            take_varint32(rest).ok_or(Damage("the key length is no number"))?;
        let (value_len, rest) = match self.form {
            ValueForm::Plain => {
                take_varint32(rest).ok_or(Damage("the value length is no number"))?
            }
            ValueForm::DeltaHandles => (0, rest),
        };
        let key_at = entries.len() - rest.len();
        let (not_shared, value_len) = (not_shared as usize, value_len as usize);
        let fits = not_shared
            .checked_add(value_len)
            .is_some_and(|len| len <= rest.len());
        if !fits {
            return Err(Damage("an entry that ends after the last one"));
        }
        let value_at = key_at + not_shared;
        Ok(Head {
            shared: shared as usize,
            key: (key_at, value_at),
            value: (value_at, value_at + value_len),
        })
    }

    /// Goes to the entry at `next`. `false`: there is none.
    pub(crate) fn advance(&mut self) -> Result<bool, Damage> {
        self.valid = false;
        if self.stand.next >= self.parts.entries_end {
            return Ok(false);
        }
        let head = self.head(self.stand.next)?;
        self.stand.at = self.stand.next;
        if head.shared > self.key.len() {
            return Err(Damage("a key that shares more than the one before has"));
        }
        self.stand.shared = head.shared;
        self.key.truncate(head.shared);
        self.key
            .extend_from_slice(&self.bytes.as_ref()[head.key.0..head.key.1]);
        if self.key.len() < self.key_len_min {
            return Err(Damage("a key that is too short"));
        }
        self.stand.value = head.value;
        self.stand.next = head.value.1;
        if self.form == ValueForm::DeltaHandles {
            self.take_delta(head.shared)?;
        }
        let left = self.stand.left.checked_sub(self.key.len());
        self.stand.left = left.ok_or(Damage("keys that share more than 128 times the block"))?;
        self.valid = true;
        Ok(true)
    }

    /// Reads a handle that has no length before it.
    fn take_delta(&mut self, shared: usize) -> Result<(), Damage> {
        let damage = Damage("a handle that is none");
        let rest = &self.bytes.as_ref()[self.stand.next..self.parts.entries_end];
        let left = if shared == 0 {
            let (handle, left) = take_handle(rest).ok_or(damage)?;
            self.stand.handle = handle;
            left.len()
        } else {
            let (delta, left) = take_varint(rest).ok_or(damage)?;
            let BlockHandle { offset, size } = self.stand.handle;
            let next = offset
                .checked_add(size)
                .and_then(|end| end.checked_add(TRAILER_LEN));
            let offset = next.ok_or(damage)?;
            self.stand.handle = BlockHandle {
                offset,
                size: size.checked_add_signed(unzigzag(delta)).ok_or(damage)?,
            };
            left.len()
        };
        self.stand.next = self.parts.entries_end - left;
        self.stand.value.1 = self.stand.next;
        Ok(())
    }

    fn restart(&self, index: usize) -> usize {
        u32_at(self.bytes.as_ref(), self.parts.restarts_at + 4 * index).unwrap_or(u32::MAX) as usize
    }

    /// Makes the next step lead to the first entry of a restart.
    fn rewind(&mut self, index: usize) {
        self.stand.next = self.restart(index);
        self.stand.left = self.bytes.as_ref().len() * EXPANSION_MAX + EXPANSION_BASE;
        self.key.clear();
        self.valid = false;
    }

    /// Goes to the first entry.
    pub(crate) fn first(&mut self) -> Result<bool, Damage> {
        self.rewind(0);
        if self.stand.next != 0 {
            return Err(Damage("the first restart is not the first entry"));
        }
        self.advance()
    }

    /// Goes to the last entry. O(restart interval).
    pub(crate) fn last(&mut self) -> Result<bool, Damage> {
        self.rewind(self.parts.restarts - 1);
        if self.parts.entries_end == 0 {
            return Ok(false);
        }
        if self.stand.next >= self.parts.entries_end {
            return Err(Damage("a restart after the last entry"));
        }
        while self.advance()? && self.stand.next < self.parts.entries_end {}
        Ok(true)
    }

    /// Goes to the first entry whose key is not `before` the wanted place. Those before it must
    /// come first. O(log restarts + restart interval).
    pub(crate) fn seek(&mut self, before: impl Fn(&[u8]) -> bool) -> Result<bool, Damage> {
        self.valid = false;
        if self.parts.entries_end == 0 {
            return Ok(false);
        }
        // Restarts below `low` start before the place, those from `high` on do not.
        let (mut low, mut high) = (0, self.parts.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            let at = self.restart(middle);
            let head = self.head(at)?;
            if head.shared != 0 {
                return Err(Damage("a restart whose key is not whole"));
            }
            let key = &self.bytes.as_ref()[head.key.0..head.key.1];
            if key.len() < self.key_len_min {
                return Err(Damage("a key that is too short"));
            }
            if before(key) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        self.rewind(low.saturating_sub(1));
        while self.advance()? {
            if !before(&self.key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes to the entry before the one at which the cursor stands. O(log restarts + restart
    /// interval), and O(1) if the last step went back as well.
    pub(crate) fn prev(&mut self) -> Result<bool, Damage> {
        let end = self.stand.at;
        self.valid = false;
        if end == 0 {
            return Ok(false);
        }
        if self
            .passed
            .last()
            .is_none_or(|(stand, _)| stand.next != end)
        {
            self.pass_up_to(end)?;
        }
        match self.passed.pop() {
            Some((stand, key_at)) if stand.next == end => {
                self.stand = stand;
                self.key.clear();
                self.key.extend_from_slice(&self.passed_keys[key_at..]);
                self.passed_keys.truncate(key_at);
                self.valid = true;
                Ok(true)
            }
            _ => Err(Damage("entries that do not lead to the one after them")),
        }
    }

    /// Keeps the entries from the last restart before `end` up to there.
    fn pass_up_to(&mut self, end: usize) -> Result<(), Damage> {
        let (mut low, mut high) = (0, self.parts.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.restart(middle) < end {
                low = middle + 1
            } else {
                high = middle
            }
        }
        self.rewind(low.saturating_sub(1));
        self.passed.clear();
        self.passed_keys.clear();
        while self.stand.next < end && self.advance()? {
            self.passed.push((self.stand, self.passed_keys.len()));
            self.passed_keys.extend_from_slice(&self.key);
        }
        self.valid = false;
        Ok(())
    }
}

/// Checks, during a walk over all entries, that the restarts ascend and that each is the start of
/// an entry whose key is stored whole.
#[derive(Debug, Default)]
pub(crate) struct RestartCheck {
    next: usize,
}

impl RestartCheck {
    /// Called at each entry of the walk.
    #[inline]
    pub(crate) fn meet<B: AsRef<[u8]>>(&mut self, cursor: &BlockCursor<B>) -> Result<(), Damage> {
        if self.next < cursor.parts.restarts && cursor.restart(self.next) == cursor.stand.at {
            if cursor.stand.shared != 0 {
                return Err(Damage("a restart whose key is not whole"));
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Called after the last entry.
    pub(crate) fn end<B: AsRef<[u8]>>(&self, cursor: &BlockCursor<B>) -> Result<(), Damage> {
        // A block without entries has one restart, too.
        let parts = &cursor.parts;
        if self.next == parts.restarts || parts.entries_end == 0 && parts.restarts == 1 {
            return Ok(());
        }
        Err(Damage("a restart that is no entry's start"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::block_builder::BlockBuilder;

    /// Counts how often it is looked at: at least once for each entry that is read.
    struct Counting<'a>(Vec<u8>, &'a Cell<usize>);

    impl AsRef<[u8]> for Counting<'_> {
        fn as_ref(&self) -> &[u8] {
            self.1.set(self.1.get() + 1);
            &self.0
        }
    }

    /// With one restart each step back would read all entries before it again.
    #[test]
    fn a_walk_back_reads_each_entry_a_few_times() {
        const ENTRIES: usize = 3000;
        let mut builder = BlockBuilder::new(u32::MAX, ValueForm::Plain);
        (0..ENTRIES).for_each(|n| builder.add(format!("key{n:05}").as_bytes(), b"value"));
        let looks = Cell::new(0);
        let block = Counting(builder.finish().to_vec(), &looks);
        let mut cursor = BlockCursor::new(block, ValueForm::Plain, 0).unwrap();
        let mut more = cursor.last().unwrap();
        for n in (0..ENTRIES).rev() {
            assert!(more && cursor.key() == format!("key{n:05}").as_bytes());
            assert_eq!(cursor.value(), b"value");
            more = cursor.prev().unwrap();
        }
        assert!(!more && !cursor.valid);
        assert!(
            looks.get() < 20 * ENTRIES,
            "{} looks at {ENTRIES} entries",
            looks.get()
        );
    }

    #[test]
    fn keys_are_bounded_by_their_block() {
        for (entries, holds) in [(100, true), (3000, false)] {
            let mut builder = BlockBuilder::new(u32::MAX, ValueForm::Plain);
            (0..entries)
                .for_each(|n| builder.add(format!("{}{n:05}", "k".repeat(2000)).as_bytes(), b""));
            let mut cursor = BlockCursor::new(builder.finish(), ValueForm::Plain, 0).unwrap();
            let mut step = cursor.first();
            while step == Ok(true) {
                step = cursor.advance();
            }
            assert_eq!(step.is_ok(), holds, "{step:?}");
        }
    }
}
