//! Reads a block of any bytes: parse, seek, steps both ways.
//!
//! ```text
//!   entry:  shared (varint32) | not shared (varint32) | value length (varint32) | key bytes not shared | value
//!   block:  entries | hash index (optional) | restart offsets (4 each) | packed word (4)
//!   packed word: restarts (28 bits) | values stored apart (1) | hint (1) | 0 (1) | hash index present (1)
//! ```
//! The bytes may be arbitrary: each length and offset is compared with the block before it is used,
//! and every walk ends.
//!
//! * SST-BLOCK-CURSOR-1: no key is longer than the block, and the keys of a walk together have at
//!   most 128 bytes for each byte of the block, and 4096 more. The data and index blocks of this
//!   crate are within this bound: their restart interval is at most 128.
//!
//! One owner at a time. Not promised: that keys ascend; callers that need it check it.

use crate::block_builder::ValueForm;
use crate::coding::{
    BlockHandle, TRAILER_LEN, take_handle, take_varint, take_varint32, u32_at, unzigzag,
};
use crate::error::Damage;

/// The largest restart interval with which the keys of a block are always within the bound of
/// SST-BLOCK-CURSOR-1.
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

/// The entry at which a cursor is, without its key.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    /// Where the entry starts.
    at: usize,
    /// Where the next entry starts.
    next: usize,
    /// Number of leading key bytes that the entry shares with the one before it.
    shared: usize,
    /// The entry's value in the block: start and end.
    value: (usize, usize),
    handle: BlockHandle,
    /// Bytes that the remaining keys of this walk may have (SST-BLOCK-CURSOR-1).
    left: usize,
}

/// A position in a block.
#[derive(Debug, Clone)]
pub(crate) struct BlockCursor<B> {
    bytes: B,
    parts: Parts,
    form: ValueForm,
    key_len_min: usize,
    position: Position,
    key: Vec<u8>,
    /// Whether the cursor is at an entry.
    pub(crate) valid: bool,
    /// Entries from a restart up to the entry that the last step back has left, each with the place
    /// of its key in `passed_keys`. So a walk back reads each entry only twice.
    passed: Vec<(Position, usize)>,
    passed_keys: Vec<u8>,
}

impl<B: AsRef<[u8]>> BlockCursor<B> {
    /// A cursor that is at no entry. Keys shorter than `key_len_min` are damage.
    pub(crate) fn new(bytes: B, form: ValueForm, key_len_min: usize) -> Result<Self, Damage> {
        let (parts, position, key) = (parts(bytes.as_ref())?, Position::default(), vec![]);
        let (passed, passed_keys) = (vec![], vec![]);
        Ok(BlockCursor {
            bytes,
            parts,
            form,
            key_len_min,
            position,
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

    /// The entry's value; for a handle without length, the bytes of the handle.
    pub(crate) fn value(&self) -> &[u8] {
        self.bytes
            .as_ref()
            .get(self.position.value.0..self.position.value.1)
            .unwrap_or_default()
    }

    /// Offset of the entry's value in the block.
    pub(crate) fn value_at(&self) -> usize {
        self.position.value.0
    }

    /// The entry's value as a handle.
    pub(crate) fn handle(&self) -> Result<BlockHandle, Damage> {
        match self.form {
            ValueForm::DeltaHandles => Ok(self.position.handle),
            ValueForm::Plain => take_handle(self.value())
                .map(|(handle, _)| handle)
                .ok_or(Damage("no handle")),
        }
    }

    /// Reads the lengths of the entry at `at`, and checks that the entry is inside the block.
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

    /// Moves to the next entry. `false`: there is none.
    pub(crate) fn advance(&mut self) -> Result<bool, Damage> {
        self.valid = false;
        if self.position.next >= self.parts.entries_end {
            return Ok(false);
        }
        let head = self.head(self.position.next)?;
        self.position.at = self.position.next;
        if head.shared > self.key.len() {
            return Err(Damage("a key that shares more than the one before has"));
        }
        self.position.shared = head.shared;
        self.key.truncate(head.shared);
        self.key
            .extend_from_slice(&self.bytes.as_ref()[head.key.0..head.key.1]);
        if self.key.len() < self.key_len_min {
            return Err(Damage("a key that is too short"));
        }
        self.position.value = head.value;
        self.position.next = head.value.1;
        if self.form == ValueForm::DeltaHandles {
            self.take_delta(head.shared)?;
        }
        let left = self.position.left.checked_sub(self.key.len());
        self.position.left = left.ok_or(Damage("keys that share more than 128 times the block"))?;
        self.valid = true;
        Ok(true)
    }

    /// Reads a handle that is stored without its length.
    fn take_delta(&mut self, shared: usize) -> Result<(), Damage> {
        let damage = Damage("a handle that is none");
        let rest = &self.bytes.as_ref()[self.position.next..self.parts.entries_end];
        let left = if shared == 0 {
            let (handle, left) = take_handle(rest).ok_or(damage)?;
            self.position.handle = handle;
            left.len()
        } else {
            let (delta, left) = take_varint(rest).ok_or(damage)?;
            let BlockHandle { offset, size } = self.position.handle;
            let next = offset
                .checked_add(size)
                .and_then(|end| end.checked_add(TRAILER_LEN));
            let offset = next.ok_or(damage)?;
            self.position.handle = BlockHandle {
                offset,
                size: size.checked_add_signed(unzigzag(delta)).ok_or(damage)?,
            };
            left.len()
        };
        self.position.next = self.parts.entries_end - left;
        self.position.value.1 = self.position.next;
        Ok(())
    }

    fn restart(&self, index: usize) -> usize {
        u32_at(self.bytes.as_ref(), self.parts.restarts_at + 4 * index).unwrap_or(u32::MAX) as usize
    }

    /// Makes the first entry of a restart the next one.
    fn rewind(&mut self, index: usize) {
        self.position.next = self.restart(index);
        self.position.left = self.bytes.as_ref().len() * EXPANSION_MAX + EXPANSION_BASE;
        self.key.clear();
        self.valid = false;
    }

    /// Moves to the first entry.
    pub(crate) fn first(&mut self) -> Result<bool, Damage> {
        self.rewind(0);
        if self.position.next != 0 {
            return Err(Damage("the first restart is not the first entry"));
        }
        self.advance()
    }

    /// Moves to the last entry. O(restart interval).
    pub(crate) fn last(&mut self) -> Result<bool, Damage> {
        self.rewind(self.parts.restarts - 1);
        if self.parts.entries_end == 0 {
            return Ok(false);
        }
        if self.position.next >= self.parts.entries_end {
            return Err(Damage("a restart after the last entry"));
        }
        while self.advance()? && self.position.next < self.parts.entries_end {}
        Ok(true)
    }

    /// Moves to the first entry whose key is not `before` the place that the caller seeks. All keys
    /// before that place must come first. O(log restarts + restart interval).
    pub(crate) fn seek(&mut self, before: impl Fn(&[u8]) -> bool) -> Result<bool, Damage> {
        self.valid = false;
        if self.parts.entries_end == 0 {
            return Ok(false);
        }
        // Restarts below `low` begin before the place, restarts from `high` do not.
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

    /// Moves to the entry before the current one. O(log restarts + restart interval), and O(1) if
    /// the last step also went back.
    pub(crate) fn prev(&mut self) -> Result<bool, Damage> {
        let end = self.position.at;
        self.valid = false;
        if end == 0 {
            return Ok(false);
        }
        if self
            .passed
            .last()
            .is_none_or(|(position, _)| position.next != end)
        {
            self.pass_up_to(end)?;
        }
        match self.passed.pop() {
            Some((position, key_at)) if position.next == end => {
                self.position = position;
                self.key.clear();
                self.key.extend_from_slice(&self.passed_keys[key_at..]);
                self.passed_keys.truncate(key_at);
                self.valid = true;
                Ok(true)
            }
            _ => Err(Damage("entries that do not lead to the one after them")),
        }
    }

    /// Keeps the entries from the last restart before `end` up to `end`.
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
        while self.position.next < end && self.advance()? {
            self.passed.push((self.position, self.passed_keys.len()));
            self.passed_keys.extend_from_slice(&self.key);
        }
        self.valid = false;
        Ok(())
    }
}

/// Checks, during a walk over all entries, that restarts ascend and that each one is the start of
/// an entry whose key is stored whole.
#[derive(Debug, Default)]
pub(crate) struct RestartCheck {
    next: usize,
}

impl RestartCheck {
    /// Call this at each entry of the walk.
    #[inline]
    pub(crate) fn meet<B: AsRef<[u8]>>(&mut self, cursor: &BlockCursor<B>) -> Result<(), Damage> {
        if self.next < cursor.parts.restarts && cursor.restart(self.next) == cursor.position.at {
            if cursor.position.shared != 0 {
                return Err(Damage("a restart whose key is not whole"));
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Call this after the last entry.
    pub(crate) fn end<B: AsRef<[u8]>>(&self, cursor: &BlockCursor<B>) -> Result<(), Damage> {
        // A block without entries has one restart.
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

    /// Counts the reads of a block: at least one for each entry that is read.
    struct Counting<'a>(Vec<u8>, &'a Cell<usize>);

    impl AsRef<[u8]> for Counting<'_> {
        fn as_ref(&self) -> &[u8] {
            self.1.set(self.1.get() + 1);
            &self.0
        }
    }

    /// With one restart, each step back would read all earlier entries again.
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
