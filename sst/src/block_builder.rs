//! Builds a block: keys that share prefixes, restarts, a count.
//!
//! ```text
//!   entry:  shared (varint32) | not shared (varint32) | value length (varint32) | key bytes not shared | value
//!   block:  entry | entry | ... | restart offset (4) ... | restart count (4)
//! ```
//! * SST-BLOCK-BUILDER-1: bytes are those of RocksDB for the same entries and restart interval.
//! * SST-BLOCK-BUILDER-2: the first entry of each restart shares nothing.
//! * SST-BLOCK-BUILDER-3: in the index of format versions 4 and up the value length is left out. A
//!   value that stands after a key with a shared prefix is the short form (`after`), any other the
//!   whole one.
//!
//! One owner. Not promised: that keys ascend, which the caller checks.

use crate::coding::{BlockHandle, put_handle, put_varint, varint_len, zigzag};
use crate::internal_key::{SEEK_KIND, SEQUENCE_MAX, TAIL_LEN, pack, split, user_key};
use crate::options::{IndexShortening, SortedTableOptions};

/// How values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// Length, then bytes.
    Plain,
    /// Block handles without a length, relative to the one before where the key shares a prefix
    /// (SST-BLOCK-BUILDER-3).
    DeltaHandles,
}

/// A block in the making.
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

    /// Size of the block if it ended here.
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

    /// Adds an entry whose value is `after` if the key shares a prefix with the one before, else
    /// `whole`.
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

    /// Ends the block. `reset` makes room for the next one.
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

/// Bytes that two keys have in common at their start, eight at a time.
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

// Builds the index: a separator and a handle for each data block.
//
// * SST-INDEX-BUILDER-1: the index holds user keys where the format version allows it (3 and up),
//   and internal keys as soon as one user key stands at the end of a block and at the start of the
//   next. Both forms are possible until the end, so separators are kept whole.
// * SST-INDEX-BUILDER-2: from format version 4 on handles are stored without a length, and relative
//   where a key shares a prefix.
//
// One owner.

/// What the properties have to say about an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexForm {
    pub(crate) user_keys: bool,
    pub(crate) values: ValueForm,
}

#[derive(Debug)]
pub(crate) struct IndexBuilder {
    form: IndexForm,
    interval: u32,
    shortening: IndexShortening,
    /// Separators, one after the other.
    keys: Vec<u8>,
    /// Where each separator ends, and its block.
    rows: Vec<(usize, BlockHandle)>,
}

impl IndexBuilder {
    pub(crate) fn new(options: &SortedTableOptions) -> Self {
        let values = if options.format_version >= 4 {
            ValueForm::DeltaHandles
        } else {
            ValueForm::Plain
        };
        IndexBuilder {
            form: IndexForm {
                user_keys: options.format_version >= 3,
                values,
            },
            interval: options.index_block_restart_interval,
            shortening: options.index_shortening,
            keys: vec![],
            rows: vec![],
        }
    }

    /// A block that ends with the internal key `last`; `next` starts the one after it.
    pub(crate) fn add(&mut self, last: &[u8], next: Option<&[u8]>, handle: BlockHandle) {
        if next.is_some_and(|next| same_user_key(last, next)) {
            self.form.user_keys = false;
        }
        let shorten = match self.shortening {
            IndexShortening::None => false,
            IndexShortening::Separators => next.is_some(),
            IndexShortening::SeparatorsAndSuccessor => true,
        };
        if shorten {
            self.keys.extend_from_slice(&separator(last, next));
        } else {
            self.keys.extend_from_slice(last);
        }
        self.rows.push((self.keys.len(), handle));
    }

    /// How many blocks there are.
    pub(crate) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// The block, and which form it has.
    pub(crate) fn finish(self) -> (Vec<u8>, IndexForm) {
        let mut block = BlockBuilder::new(self.interval, self.form.values);
        let (mut start, mut before) = (0, BlockHandle::default());
        let (mut whole, mut after) = (vec![], vec![]);
        for (end, handle) in self.rows {
            let key = &self.keys[start..end];
            let key = if self.form.user_keys {
                user_key(key)
            } else {
                key
            };
            whole.clear();
            put_handle(&mut whole, handle);
            after.clear();
            put_varint(
                &mut after,
                zigzag(
                    handle
                        .size
                        .cast_signed()
                        .wrapping_sub(before.size.cast_signed()),
                ),
            );
            match self.form.values {
                ValueForm::Plain => block.add(key, &whole),
                ValueForm::DeltaHandles => block.add_either(key, &whole, &after),
            }
            (start, before) = (end, handle);
        }
        (block.finish().to_vec(), self.form)
    }
}

// Separators: short keys between two blocks, by RocksDB's rule for bytewise order.
//
// ```text
//   last key A of a block, first key B of the next:   A <= separator < B
//   apple | apricot  ->  app + one more than `l`, cut: "appm"
// ```
// Pure functions; any thread.

/// A user key from `from` on and before `to`, shorter than `from` or equal to it. `None`: `from`
/// itself must do.
fn short_separator(from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let first = from.iter().zip(to).position(|(from, to)| from != to)?;
    let (low, high) = (from[first], to[first]);
    if low >= high {
        return None;
    }
    if first + 1 < to.len() || low + 1 < high {
        let mut cut = from[..=first].to_vec();
        cut[first] = low + 1;
        return Some(cut);
    }
    let raised = first + 1 + from[first + 1..].iter().position(|byte| *byte != 0xff)?;
    let mut cut = from[..=raised].to_vec();
    cut[raised] += 1;
    Some(cut)
}

/// A user key from `key` on, shorter or equal.
fn short_successor(key: &[u8]) -> Option<Vec<u8>> {
    let first = key.iter().position(|byte| *byte != 0xff)?;
    let mut cut = key[..=first].to_vec();
    cut[first] += 1;
    Some(cut)
}

/// The internal key `last`, or one that is shorter and still before `next` (after all keys, if
/// there is no next one).
pub(crate) fn separator(last: &[u8], next: Option<&[u8]>) -> Vec<u8> {
    let from = user_key(last);
    let short = match next {
        Some(next) => short_separator(from, user_key(next)),
        None => short_successor(from),
    };
    match short {
        Some(mut short) if short.len() <= from.len() && short.as_slice() > from => {
            short.reserve(TAIL_LEN);
            short.extend_from_slice(&pack(SEQUENCE_MAX, SEEK_KIND).to_le_bytes());
            short
        }
        _ => last.to_vec(),
    }
}

/// Whether two internal keys are versions of one user key.
pub(crate) fn same_user_key(left: &[u8], right: &[u8]) -> bool {
    matches!((split(left), split(right)), (Some((left, _)), Some((right, _))) if left == right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_stand_between() {
        type Case<'a> = (&'a [u8], &'a [u8], Option<&'a [u8]>);
        let cases: [Case<'_>; 9] = [
            (b"apple", b"apricot", Some(b"apq")),
            (b"abc", b"abd", None),
            (b"abcx", b"abd", Some(b"abcy")),
            (b"abc", b"abdx", Some(b"abd")),
            (b"abc\xff\xff", b"abd", None),
            (b"abc\xff\x01", b"abd", Some(b"abc\xff\x02")),
            (b"ab", b"abc", None),
            (b"a", b"d", Some(b"b")),
            (b"", b"d", None),
        ];
        for (from, to, want) in cases {
            assert_eq!(
                short_separator(from, to).as_deref(),
                want,
                "{from:?} {to:?}"
            );
        }
        assert_eq!(
            short_successor(b"\xff\xffabc").as_deref(),
            Some(&b"\xff\xffb"[..])
        );
        assert_eq!(short_successor(b"\xff\xff"), None);
    }
}
