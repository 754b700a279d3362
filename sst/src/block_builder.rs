//! Builds a block: entries whose keys share prefixes, restart offsets, and the restart count.
//!
//! ```text
//!   entry:  shared (varint32) | not shared (varint32) | value length (varint32) | key bytes not shared | value
//!   block:  entry | entry | ... | restart offset (4) ... | restart count (4)
//! ```
//! The bytes are those of RocksDB for the same entries and restart interval.
//!
//! One owner. The caller checks that keys ascend.

use crate::coding::{put_varint, varint_len};

/// How the block stores values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// The length, then the bytes.
    Plain,
    /// Block handles without a length, in the index of format version 4 and up. The handle of a key
    /// that shares a prefix is stored relative to the handle before it.
    DeltaHandles,
}

/// A block that is being built.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    interval: u32,
    /// Entries since the last restart.
    counter: u32,
    last_key: Vec<u8>,
    form: ValueForm,
}

impl BlockBuilder {
    pub(crate) fn new(interval: u32, form: ValueForm) -> Self {
        BlockBuilder {
            buffer: vec![],
            restarts: vec![0],
            interval,
            counter: 0,
            last_key: vec![],
            form,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The last key that was added.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Size of the block if it ended now.
    pub(crate) fn size(&self) -> usize {
        self.buffer.len() + 4 * self.restarts.len() + 4
    }

    /// RocksDB's estimate of the block's size with one more entry.
    pub(crate) fn size_after(&self, key_len: usize, value_len: usize) -> usize {
        let restart = if self.counter >= self.interval { 4 } else { 0 };
        let lengths = 4 + varint_len(key_len as u64) + varint_len(value_len as u64);
        self.size() + key_len + value_len + restart + lengths
    }

    /// Adds an entry.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.add_either(key, value, value);
    }

    /// Adds an entry. Its value is `after` if the key shares a prefix with the key before, and
    /// `whole` otherwise.
    pub(crate) fn add_either(&mut self, key: &[u8], whole: &[u8], after: &[u8]) {
        let shared = if self.counter >= self.interval {
            // Blocks over 4 GiB were refused before.
            self.restarts
                .push(u32::try_from(self.buffer.len()).unwrap_or(u32::MAX));
            self.counter = 0;
            0
        } else {
            shared_len(&self.last_key, key)
        };
        let value = if shared == 0 { whole } else { after };
        put_varint(&mut self.buffer, shared as u64);
        put_varint(&mut self.buffer, (key.len() - shared) as u64);
        if self.form == ValueForm::Plain {
            put_varint(&mut self.buffer, value.len() as u64);
        }
        self.buffer.extend_from_slice(&key[shared..]);
        self.buffer.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.counter += 1;
    }

    /// Ends the block. Call `reset` before the next one.
    pub(crate) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.buffer.extend_from_slice(&restart.to_le_bytes());
        }
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        self.buffer.extend_from_slice(&count.to_le_bytes());
        &self.buffer
    }

    /// Starts the next block in the same memory.
    pub(crate) fn reset(&mut self) {
        self.buffer.clear();
        self.restarts.clear();
        self.restarts.push(0);
        self.counter = 0;
        self.last_key.clear();
    }
}

/// Length of the common prefix of two keys, compared eight bytes at a time.
fn shared_len(left: &[u8], right: &[u8]) -> usize {
    let (left_words, right_words) = (left.as_chunks::<8>().0, right.as_chunks::<8>().0);
    let words = left_words
        .iter()
        .zip(right_words)
        .take_while(|(left, right)| left == right)
        .count();
    let start = 8 * words;
    start
        + left[start..]
            .iter()
            .zip(&right[start..])
            .take_while(|(left, right)| left == right)
            .count()
}
