//! The control block of a table: its control words, and the index of each.
//!
//! ```text
//!   values   | salt | mask | factor | shape | base 1 | base 2 | units 2 | has ranges |
//!            | base 0 | index lost | frozen | base 3 | units 3 | base 4 | ...
//!   checks   one for each value, in other cache lines
//!   spares   one for each value, in other cache lines
//!
//!   shape    protection bytes (8) | shift of B (5) | 0 (50) | 1
//! ```
//! Every operation of a table with chunk 2 needs the first line of values, and few need more. The
//! units of chunks 0 and 1 are known. All words are set while the
//! table is made, except the bases and sizes of chunks, and the three flags.
//!
//! Any thread may read all words. A thread that sets a base or a size holds the lock of the arena's
//! `owners`. A flag changes once, from 0 to 1.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "parts of packed words")]

use crate::error::Corruption;
use crate::integrity::control_word::{Salt, Words};
use crate::integrity::digest::Width;
use crate::integrity::spare_words::{Key, SpareWords};
use crate::integrity::tag::Secret;
use crate::memtable::arena::chunks::{CHUNKS_MAX, SMALL};
use crate::memtable::heals::Heals;

/// One of the control words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlWord(usize);

impl ControlWord {
    /// The word from which the salt of all checks is made. If it is damaged, no other word agrees
    /// with its check, and this word is put right first.
    const SALT: ControlWord = ControlWord(0);
    pub(crate) const MASK: ControlWord = ControlWord(1);
    pub(crate) const FACTOR: ControlWord = ControlWord(2);
    pub(crate) const SHAPE: ControlWord = ControlWord(3);
    /// 1 once the table has a range tombstone.
    pub(crate) const HAS_RANGES: ControlWord = ControlWord(7);
    /// 1 once the live index lacks a tombstone of the list, after damage or a panic.
    pub(crate) const INDEX_LOST: ControlWord = ControlWord(9);
    /// 1 once the table is frozen.
    pub(crate) const FROZEN: ControlWord = ControlWord(10);

    /// Address of a chunk.
    pub(crate) const fn base(index: usize) -> ControlWord {
        match index {
            0 => ControlWord(8),
            1 => ControlWord(4),
            SMALL => ControlWord(5),
            _ => ControlWord(5 + 2 * index),
        }
    }

    /// Units of a chunk from chunk 2 on: those of small chunks are known.
    pub(crate) const fn units(index: usize) -> ControlWord {
        match index {
            SMALL => ControlWord(6),
            _ => ControlWord(6 + 2 * index),
        }
    }
}

/// Number of control words.
pub(crate) const COUNT: usize = ControlWord::units(CHUNKS_MAX - 1).0 + 1;
/// The name of the control block in the salt of its checks. No filter and no writer shard has it.
const NAME: u64 = u64::MAX;

/// The value of the control word `SHAPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(pub(super) u64);

impl Shape {
    const MARK: u64 = 1 << 63;
    /// The shape of no table.
    pub(crate) const NONE: Shape = Shape(0);

    pub(crate) fn new(width: Width, shift: u32) -> Shape {
        Shape(Shape::MARK | u64::from(shift) << 8 | width.bytes as u64)
    }

    /// Stored bytes of each digest. `None` if no table has that many.
    #[inline(always)]
    pub(crate) fn width(self) -> Option<Width> {
        Width::new((self.0 & 0xff) as u8)
    }

    /// The `shift` of B, which is `1 << shift` units.
    #[inline(always)]
    pub(crate) fn shift(self) -> u32 {
        ((self.0 >> 8) & 0x1f) as u32
    }
}

/// A table's control words.
pub(crate) struct Control {
    words: SpareWords<COUNT>,
    /// What was put right in the whole table.
    pub(crate) heals: Heals,
}

impl Control {
    /// A control block with the secret and the shape; all other words are 0.
    #[inline(always)]
    pub(crate) fn new(secret: Secret, shape: Shape) -> Control {
        let word = Salt::new(secret, NAME).0;
        let salt = Salt::of_word(word);
        let control = Control {
            words: SpareWords::new(salt),
            heals: Heals::default(),
        };
        let known = [
            (ControlWord::SALT, word),
            (ControlWord::MASK, secret.mask),
            (ControlWord::FACTOR, secret.factor),
            (ControlWord::SHAPE, shape.0),
        ];
        for (word, value) in known {
            control.words.set(salt, word.0, value);
        }
        control
    }

    /// The value of a word whose check agrees, after damage to one of its copies was put right, or a
    /// report of damage.
    #[inline(always)]
    pub(crate) fn get(&self, word: ControlWord) -> Result<u64, Corruption> {
        let (value, mismatch) = self.words.get_with_mismatch(self.salt(), word.0);
        if mismatch == 0 {
            Ok(value)
        } else {
            self.settled(word)
        }
    }

    /// Whether a word is 0 and its check agrees. Puts nothing right: a caller that takes "no" for a
    /// word that was set, or is being set, needs no more.
    #[inline(always)]
    pub(crate) fn is_unset(&self, word: ControlWord) -> bool {
        self.words.get_with_mismatch(self.salt(), word.0) == (0, 0)
    }

    /// The value of a word that may not be set yet. If it is 0, and damage to its check cannot be
    /// put right, it counts as not set.
    #[inline(always)]
    pub(crate) fn get_or_unset(&self, word: ControlWord) -> Result<u64, Corruption> {
        let found = self.get(word);
        match found {
            Err(_) if self.words.unchecked(word.0) == 0 => Ok(0),
            found => found,
        }
    }

    /// The value of a word that disagrees with its check: of the salt, or of this word, one copy is
    /// damaged.
    #[cold]
    #[inline(never)]
    fn settled(&self, word: ControlWord) -> Result<u64, Corruption> {
        self.settle_salt();
        self.words
            .settled(self.key(word), word.0, &self.heals.words())
    }

    /// Puts the salt right, without which no other word agrees. If that is not possible, the report
    /// is that of the next word that is asked for.
    fn settle_salt(&self) {
        let _ = self
            .words
            .settled(Key::Itself, ControlWord::SALT.0, &self.heals.words());
    }

    /// What the copies of a word are made with.
    fn key(&self, word: ControlWord) -> Key {
        if word == ControlWord::SALT {
            Key::Itself
        } else {
            Key::Salt(self.salt())
        }
    }

    /// Looks at all copies of all words, and puts right what is damaged. The first word for which
    /// this is not possible is reported.
    pub(crate) fn check(&self) -> Result<(), Corruption> {
        self.words
            .check(|index| self.key(ControlWord(index)), &self.heals.words())
    }

    /// The salt of the checks, which a reader of several words loads once.
    #[inline(always)]
    pub(crate) fn salt(&self) -> Salt {
        Salt::of_word(self.words.unchecked(ControlWord::SALT.0))
    }

    /// The values of these words, and a number that is 0 if all their checks agree.
    #[inline(always)]
    pub(crate) fn get_all<const K: usize>(&self, words: [ControlWord; K]) -> ([u64; K], u64) {
        self.words.get_all(self.salt(), words.map(|word| word.0))
    }

    /// The shape.
    pub(crate) fn shape(&self) -> Result<Shape, Corruption> {
        self.get(ControlWord::SHAPE).map(Shape)
    }

    /// The secret from which tags are made.
    pub(crate) fn secret(&self) -> Result<Secret, Corruption> {
        Ok(Secret {
            mask: self.get(ControlWord::MASK)?,
            factor: self.get(ControlWord::FACTOR)?,
        })
    }

    /// Sets a word that was 0. Threads that set one word at the same time set the same value.
    pub(crate) fn set(&self, word: ControlWord, value: u64) {
        // A word that is set under a damaged salt would be lost.
        self.settle_salt();
        self.words.set(self.salt(), word.0, value);
    }

    /// All words with their checks, for scrubs and the fault injector.
    pub(crate) fn words(&self) -> Words<'_> {
        self.words.words(self.salt())
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;
    use crate::integrity::options::Repair;
    use crate::memtable::arena::layout::LINE_UNITS;
    use crate::sync::{AtomicU64, Ordering};

    #[test]
    fn no_word_is_believed_in_the_place_of_another() {
        for seed in 0..if cfg!(debug_assertions) { 1 } else { 4 } {
            let mut control = Control::new(
                Secret::from_seed(seed),
                Shape::new(Width::new(8).unwrap(), 13),
            );
            control.heals = Heals::new(
                Repair::On {
                    places_max: u32::MAX,
                },
                None,
            );
            control.set(ControlWord::base(0), 0x7f00_1234_5000 + seed * 0x8000);
            control.set(ControlWord::units(SMALL), 1 << 20);
            control.set(ControlWord::HAS_RANGES, 1);
            let words: Vec<&AtomicU64> = control
                .words
                .words(control.salt())
                .runs()
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
                (0..3 * COUNT).flat_map(|from| (0..3 * COUNT).map(move |to| (from, to)))
            {
                for len in [1, LINE_UNITS as usize, COUNT, 2 * COUNT]
                    .into_iter()
                    .filter(|len| from.max(to) + len <= 3 * COUNT)
                {
                    let mut changed = clean.clone();
                    changed.copy_within(from..from + len, to);
                    judge(&changed, &("copied", from, to, len));
                    let mut filled = clean.clone();
                    filled[to..to + len].fill(if from % 2 == 0 { 0 } else { u64::MAX });
                    judge(&filled, &("filled", from, to, len));
                    if from + len <= to {
                        changed[from..from + len].copy_from_slice(&clean[to..to + len]);
                        judge(&changed, &("swapped", from, to, len));
                    }
                }
            }
        }
    }
}
