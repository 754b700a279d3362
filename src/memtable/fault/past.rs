//! `Past`: earlier values of a table's words, noted between writes, so that the fault injector can
//! restore one of them.
//!
//! ```text
//!   look 1   | a | b |        seen: the runs of words at the last look
//!   look 2   | a | c | d |    before: (look 2, second word, b), (look 2, third word, 0)
//! ```
//! A lost write leaves a word, or a line of 64 bytes, at an earlier value. All changes between two
//! looks count as one. Plain data; one thread.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::memtable::debug::shown;

/// Bytes of a word, and of a cache line.
pub(crate) const WORD: usize = 8;
pub(crate) const LINE: usize = 64;

/// The content of a run of words before the first look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// Zeros: memory that a writer took since the last look.
    Zeros,
    /// The values that it has now: memory that was initialized when it was made.
    Made,
}

/// The earlier values of a table's words, which
/// [`FaultInjector::look`](crate::fault::FaultInjector::look) collects.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::fault::{FaultInjector, Past};
/// let (table, mut past) = (MemTable::default(), Past::default());
/// for sequence in 1..=2 {
///     table.put(sequence, b"key", b"value")?;
///     // SAFETY: one thread, and nothing borrowed is held.
///     unsafe { FaultInjector::look(&table, &mut past) }?;
/// }
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Default)]
pub struct Past {
    /// The bytes of each run at the last look, by address.
    seen: BTreeMap<usize, Vec<u8>>,
    /// For each word that changed, by address: the number of the look, and the value before.
    before: BTreeMap<usize, Vec<(u32, u64)>>,
    looks: u32,
}

shown! {
    "Past": impl [] Past, |past| { "changes": past.before.values().map(Vec::len).sum::<usize>() }
}

impl Past {
    pub(crate) fn begin_look(&mut self) {
        self.looks += 1;
    }

    /// Compares a run of words with its bytes at the last look, and keeps both.
    pub(crate) fn note(&mut self, address: usize, now: Vec<u8>, fresh: Fresh) {
        let first = || {
            if fresh == Fresh::Made {
                now.clone()
            } else {
                Vec::new()
            }
        };
        let seen = self.seen.entry(address).or_insert_with(first);
        if *seen == now {
            return;
        }
        for (number, word) in now.chunks_exact(WORD).enumerate() {
            let old = seen
                .get(number * WORD..(number + 1) * WORD)
                .unwrap_or(&[0; WORD]);
            if old != word {
                let old = u64::from_ne_bytes(std::array::from_fn(|i| old[i]));
                self.before
                    .entry(address + number * WORD)
                    .or_default()
                    .push((self.looks, old));
            }
        }
        *seen = now;
    }

    /// One of the earlier values of the word at `address`, among those that differ from `now`.
    pub(crate) fn word(&self, address: usize, now: u64, turn: usize) -> Option<u64> {
        let values: BTreeSet<u64> = self
            .before
            .get(&address)?
            .iter()
            .map(|change| change.1)
            .collect();
        let values: Vec<u64> = values.into_iter().filter(|value| *value != now).collect();
        values.get(turn.checked_rem(values.len())?).copied()
    }

    /// Chooses one of the looks that noted a change in the line at `address`. Returns the words
    /// that changed at that look or later, with their values before it.
    pub(crate) fn line(&self, address: usize, turn: usize) -> Vec<(usize, u64)> {
        let words = self.before.range(address..address + LINE);
        let looks: BTreeSet<u32> = words
            .clone()
            .flat_map(|(_, changes)| changes)
            .map(|(at, _)| *at)
            .collect();
        let Some(place) = turn.checked_rem(looks.len()) else {
            return Vec::new();
        };
        let Some(from) = looks.into_iter().nth(place) else {
            return Vec::new();
        };
        let held = |changes: &[(u32, u64)]| {
            changes
                .iter()
                .find(|(at, _)| *at >= from)
                .map(|change| change.1)
        };
        words
            .filter_map(|(word, changes)| Some((*word, held(changes)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn words_and_lines_go_back() {
        let mut past = Past::default();
        for words in [[1, 2].as_slice(), &[1, 3, 4], &[1, 5, 4], &[1, 5, 6]] {
            past.begin_look();
            past.note(640, bytes(words), Fresh::Made);
        }
        assert_eq!(past.before.values().map(Vec::len).sum::<usize>(), 4);
        assert_eq!(past.word(640, 1, 0), None);
        assert_eq!(
            [0, 1, 2].map(|turn| past.word(648, 5, turn)),
            [Some(2), Some(3), Some(2)]
        );
        assert_eq!(past.word(656, 6, 0), Some(0));
        let lines = [0, 1, 2, 3].map(|turn| past.line(640, turn));
        assert_eq!(lines[0], [(648, 2), (656, 0)]);
        assert_eq!(lines[1], [(648, 3), (656, 4)]);
        assert_eq!(lines[2], [(656, 4)]);
        assert_eq!(lines[3], lines[0]);
        past.note(64, bytes(&[0, 7]), Fresh::Zeros);
        assert_eq!((past.word(64, 0, 0), past.word(72, 7, 9)), (None, Some(0)));
    }
}
