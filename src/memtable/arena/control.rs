//! The control block of a table: its control words, and the index of each.
//!
//! ```text
//!   values   | salt | mask | factor | shape | base 0 | base 1 | units 1 | has ranges |  what every operation needs: one line
//!            | units 0 | index lost | frozen | base 2 | units 2 | base 3 | ...
//!   checks   the same again on lines of their own
//!
//!   shape    protection bytes (8) | shift of B (5) | 0 (50) | 1
//! ```
//! All words but the bases and sizes of chunks and the three flags are set while the table is made.
//!
//! Any thread may read. The lock of the arena's owners guards bases and sizes; a flag is only ever
//! set to 1.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use crate::error::Corruption;
use crate::integrity::control_word::{ControlWords, Salt, Words};
use crate::integrity::digest::Width;
use crate::integrity::tag::Secret;
use crate::key::Kind;
use crate::memtable::arena::layout::{HEIGHT_MAX, LINE_UNITS};

/// Smallest and largest distance B, as a power of two of units: 64 KiB and 2 GiB.
pub(crate) const SHIFT_MIN: u32 = 13;
pub(crate) const SHIFT_MAX: u32 = 28;
/// Enough for the smallest B to reach 2^32 units.
pub(crate) const CHUNKS_MAX: usize = (32 - SHIFT_MIN + 1) as usize;

/// One of the control words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlWord(usize);

impl ControlWord {
    /// What the salt of all words is made from. If it is damaged, no word agrees with its check.
    const SALT: ControlWord = ControlWord(0);
    pub(crate) const MASK: ControlWord = ControlWord(1);
    pub(crate) const FACTOR: ControlWord = ControlWord(2);
    pub(crate) const SHAPE: ControlWord = ControlWord(3);
    /// 1 once the table has a range tombstone.
    pub(crate) const HAS_RANGES: ControlWord = ControlWord(7);
    /// 1 once damage kept a tombstone of the list out of the live index.
    pub(crate) const INDEX_LOST: ControlWord = ControlWord(9);
    /// 1 once frozen.
    pub(crate) const FROZEN: ControlWord = ControlWord(10);

    /// Address of a chunk.
    pub(crate) const fn base(index: usize) -> ControlWord {
        match index {
            0 => ControlWord(4),
            1 => ControlWord(5),
            _ => ControlWord(7 + 2 * index),
        }
    }

    /// Units of a chunk.
    pub(crate) const fn units(index: usize) -> ControlWord {
        match index {
            0 => ControlWord(8),
            1 => ControlWord(6),
            _ => ControlWord(8 + 2 * index),
        }
    }
}

pub(crate) const COUNT: usize = ControlWord::units(CHUNKS_MAX - 1).0 + 1;
/// The name of these words: no filter and no shard has this one.
const NAME: u64 = u64::MAX;

/// The list that a head belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Points,
    Ranges,
}

impl Head {
    /// Whether entries of this kind are in the list.
    #[inline(always)]
    pub(crate) fn holds(self, kind: Kind) -> bool {
        (kind == Kind::RANGE_DELETE) == (self == Head::Ranges)
    }

    /// The sentinel. Its links stand before it, and its back word has a line without any other word
    /// (LAYOUT-3).
    #[inline(always)]
    pub(crate) const fn sentinel(self) -> u32 {
        match self {
            Head::Points => HEAD_UNITS - LINE_UNITS,
            Head::Ranges => 2 * HEAD_UNITS - LINE_UNITS,
        }
    }
}

/// Units of a head: a line for each eight links, and one for the sentinel.
const HEAD_UNITS: u32 = (HEIGHT_MAX as u32).next_multiple_of(LINE_UNITS) + LINE_UNITS;
/// The root word of the directory, in a line of its own.
pub(crate) const ROOT: u32 = 2 * HEAD_UNITS;
/// Units of both heads and the root: all that an empty table has.
pub(crate) const HEADS_UNITS: u32 = ROOT + LINE_UNITS;
/// Units of chunk 0, which comes after the heads.
#[cfg(not(loom))]
pub(crate) const FIRST_UNITS: u32 = 4096;
#[cfg(loom)]
pub(crate) const FIRST_UNITS: u32 = 256;

const _: () =
    assert!(HEADS_UNITS.is_multiple_of(LINE_UNITS) && HEADS_UNITS + FIRST_UNITS <= 1 << SHIFT_MIN);

/// The control word `SHAPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(pub(super) u64);

impl Shape {
    const MARK: u64 = 1 << 63;

    pub(crate) fn new(width: Width, shift: u32) -> Shape {
        Shape(Shape::MARK | u64::from(shift) << 8 | width.bytes as u64)
    }

    /// Stored bytes of each digest.
    #[inline(always)]
    pub(crate) fn width(self) -> Option<Width> {
        Width::new((self.0 & 0xff) as u8)
    }

    /// B as a power of two of units.
    #[inline(always)]
    pub(crate) fn shift(self) -> u32 {
        ((self.0 >> 8) & 0x1f) as u32
    }
}

/// A table's control words.
pub(crate) struct Control {
    words: ControlWords<COUNT>,
}

impl Control {
    /// All words 0 but those that are known from the start.
    pub(crate) fn new(secret: Secret, shape: Shape) -> Control {
        let word = Salt::new(secret, NAME).0;
        let salt = Salt::of_word(word);
        let control = Control {
            words: ControlWords::new(salt),
        };
        control.words.set(salt, ControlWord::SALT.0, word);
        control.set(ControlWord::MASK, secret.mask);
        control.set(ControlWord::FACTOR, secret.factor);
        control.set(ControlWord::SHAPE, shape.0);
        control
    }

    /// A word whose check agrees, or a report of damage.
    #[inline(always)]
    pub(crate) fn get(&self, word: ControlWord) -> Result<u64, Corruption> {
        self.words.get(self.salt(), word.0)
    }

    /// A word that may not be set yet: 0 is returned without looking at its check.
    #[inline(always)]
    pub(crate) fn get_or_unset(&self, word: ControlWord) -> Result<u64, Corruption> {
        self.words.get_or_unset(self.salt(), word.0)
    }

    /// The salt of the checks, which a reader of several words loads once.
    #[inline(always)]
    pub(crate) fn salt(&self) -> Salt {
        Salt::of_word(self.words.unchecked(ControlWord::SALT.0))
    }

    /// The values of these words, and 0 if all checks agree.
    #[inline(always)]
    pub(crate) fn get_all<const K: usize>(&self, words: [ControlWord; K]) -> ([u64; K], u64) {
        self.words.get_all(self.salt(), words.map(|word| word.0))
    }

    /// The shape.
    pub(crate) fn shape(&self) -> Result<Shape, Corruption> {
        self.get(ControlWord::SHAPE).map(Shape)
    }

    /// The seed of tags.
    pub(crate) fn secret(&self) -> Result<Secret, Corruption> {
        Ok(Secret {
            mask: self.get(ControlWord::MASK)?,
            factor: self.get(ControlWord::FACTOR)?,
        })
    }

    /// Sets a word that was 0. Threads that set one word at a time set it to one value.
    pub(crate) fn set(&self, word: ControlWord, value: u64) {
        self.words.set(self.salt(), word.0, value);
    }

    /// All words, for scrubs and the fault injector.
    pub(crate) fn words(&self) -> Words<'_> {
        self.words.words(self.salt())
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;

    use crate::sync::{AtomicU64, Ordering};

    #[test]
    fn no_word_is_believed_in_the_place_of_another() {
        for seed in 0..4 {
            let control = Control::new(
                Secret::from_seed(seed),
                Shape::new(Width::new(8).unwrap(), 13),
            );
            control.set(ControlWord::base(0), 0x7f00_1234_5000 + seed * 0x8000);
            control.set(ControlWord::units(0), FIRST_UNITS.into());
            control.set(ControlWord::HAS_RANGES, 1);
            let words: Vec<&AtomicU64> = control
                .words
                .words(control.salt())
                .runs()
                .into_iter()
                .flatten()
                .collect();
            // ORDERING: Relaxed: one thread.
            let clean: Vec<u64> = words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect();
            // ORDERING: Relaxed: one thread.
            let store = |values: &[u64]| {
                words
                    .iter()
                    .zip(values)
                    .for_each(|(word, value)| word.store(*value, Ordering::Relaxed))
            };
            let judge = |changed: &[u64], what: &dyn std::fmt::Debug| {
                store(changed);
                for (index, clean) in clean.iter().copied().enumerate().take(COUNT) {
                    let found = control.get(ControlWord(index));
                    assert!(
                        found.is_err() || found == Ok(clean),
                        "{seed}, {what:?}, word {index}: {found:?}"
                    );
                }
                store(&clean);
            };
            for (from, to) in
                (0..2 * COUNT).flat_map(|from| (0..2 * COUNT).map(move |to| (from, to)))
            {
                for len in [1, LINE_UNITS as usize, COUNT]
                    .into_iter()
                    .filter(|len| from.max(to) + len <= 2 * COUNT)
                {
                    let mut changed = clean.clone();
                    changed.copy_within(from..from + len, to);
                    judge(&changed, &("copied", from, to, len));
                    if from + len <= to {
                        changed[from..from + len].copy_from_slice(&clean[to..to + len]);
                        judge(&changed, &("swapped", from, to, len));
                    }
                }
            }
        }
    }
}
