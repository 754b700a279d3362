//! The byte map of a node.
//!
//! ```text
//!   low addresses                                                                              high
//!   [link h-1] ... [link 1] [link 0] | 0 lengths | 8 sequence | 16 back word | 24 revision | 28 digests | key | value
//!                                    ^ node address, a multiple of 8
//!
//!   lengths    value length (32) | kind (8) | key length (24)
//!   back word  target (32) | tag (16) | header check (16)
//!   digests    key digest, value digest: `protection bytes` each
//! ```
//! * LAYOUT-1: everything but the links and the upper 48 bits of the back word is immutable once
//!   the node is published.
//! * LAYOUT-2: lengths and offsets have explicit widths; an arena unit is 8 bytes, so 32 bits reach
//!   32 GiB.
//! * LAYOUT-3: a chunk starts at a cache line of 64 bytes and at a multiple of 8 units, so a unit's
//!   line is its offset / 8. The level-0 link of a node and the back word of a node that it ever
//!   named lie in two lines: units are left free before the one that is built later. A sentinel's
//!   back word has a line without any other word.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use std::ops::Range;

use crate::error::Corruption;
use crate::integrity::control_word::{ControlWords, Salt, Words};
use crate::integrity::digest::{Secret, Width, mix};
use crate::key::Kind;

/// Bytes of an arena unit.
pub(crate) const UNIT: usize = 8;
/// Tallest tower. With branching e this serves e^20 = 4.8e8 entries at full speed.
#[cfg(not(loom))]
pub(crate) const HEIGHT_MAX: usize = 20;
/// Tallest tower in a model.
#[cfg(loom)]
pub(crate) const HEIGHT_MAX: usize = 2;
/// Bytes of the fixed part, before the digests.
pub(crate) const HEADER: usize = 28;
/// Offset of the sequence number.
pub(crate) const SEQUENCE_AT: usize = 8;
/// Offset of the back word.
pub(crate) const BACK_AT: usize = 16;
/// From a node to its back word, in units.
pub(crate) const BACK_UNITS: u32 = (BACK_AT / UNIT) as u32;
/// Units of a cache line.
pub(crate) const LINE_UNITS: u32 = 8;
/// Offset of the revision.
pub(crate) const REVISION_AT: usize = 24;
/// Longest key, in bytes.
pub(crate) const KEY_LEN_MAX: u64 = (1 << 24) - 1;
/// Longest value, in bytes.
pub(crate) const VALUE_LEN_MAX: u64 = (1 << 32) - 1;

const _: () = assert!(
    BACK_AT.is_multiple_of(UNIT) && SEQUENCE_AT.is_multiple_of(UNIT) && HEADER == REVISION_AT + 4
);

/// Most units that are left free before a node whose writer owns the units after it: its link
/// stands at least two units after the back word of a node that was written before it, in the same
/// line.
pub(crate) const PAD_UNITS_MAX: u32 = LINE_UNITS - 2;

/// The most arena bytes that an entry of these lengths takes, at any height, place and protection.
/// `u64::MAX` if the sum of the lengths overflows.
pub(crate) const fn entry_bytes_max(key_len: u64, value_len: u64) -> u64 {
    let fixed = ((HEIGHT_MAX + PAD_UNITS_MAX as usize) * UNIT + HEADER + 16) as u64;
    let bytes = fixed.saturating_add(key_len).saturating_add(value_len);
    match bytes.checked_next_multiple_of(UNIT as u64) {
        Some(bytes) => bytes,
        None => u64::MAX,
    }
}

// Tower heights: branching e, a pure function of the table's seed, the key's hash, the sequence
// number and the revision.
//
// * HEIGHT-1: the same (seed, key, sequence, revision) always gets the same height, so a run
//   replays and a scrub can recompute it. Entries that replace each other differ in their
//   revisions: a search passes them on upper levels.
// * HEIGHT-2: P(height > n) = e^-n. Branching e visits a tenth fewer nodes than branching 4
//   (measured in pairs).

/// Element n is e^-(n+1) as a fraction of 2^64.
const THRESHOLDS: [u64; HEIGHT_MAX - 1] = {
    let mut thresholds = [0; HEIGHT_MAX - 1];
    // 2^64 / e, then by e again and again; integer division keeps 40 significant bits at the top of
    // a short tower.
    let mut n = 0;
    let mut value: u128 = (u64::MAX as u128) << 32;
    while n < thresholds.len() {
        value = value * 1_000_000_000 / 2_718_281_828;
        thresholds[n] = (value >> 32) as u64;
        n += 1;
    }
    thresholds
};

/// How tall towers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Towers {
    /// One node in e is taller than another level.
    Dense,
    /// One node in e^5 = 148 has more than level 0: a directory leads to the others.
    Sparse,
}

/// Levels that a sparse tower lacks.
const SPARSE_BY: u32 = 4;

impl Towers {
    /// About how many entries one node of a level represents.
    pub(crate) fn entries_for_one(self, level: u32) -> f64 {
        match self {
            Towers::Sparse if level > 0 => f64::from(level + SPARSE_BY).exp(),
            _ => f64::from(level).exp(),
        }
    }

    /// The height of a node, 1..=HEIGHT_MAX.
    #[inline(always)]
    pub(crate) fn height(self, secret: Secret, key_part: u64, sequence: u64, revision: u32) -> u32 {
        let height = tower_height(secret, key_part, sequence, revision);
        match self {
            Towers::Dense => height,
            Towers::Sparse => height.saturating_sub(SPARSE_BY).max(1),
        }
    }
}

/// The height of a node in dense towers.
#[inline(always)]
fn tower_height(secret: Secret, key_part: u64, sequence: u64, revision: u32) -> u32 {
    let version = sequence
        .wrapping_add(u64::from(revision) << 40)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let draw = mix(key_part ^ version, secret.height_seed());
    let mut height = 1;
    for threshold in THRESHOLDS {
        if draw >= threshold {
            break;
        }
        height += 1;
    }
    height
}

// The control block of a table: its control words, and the index of each.
//
// ```text
//   values   | salt | mask | factor | shape | base 0 | base 1 | units 1 | has ranges |  what every operation needs: one line
//            | units 0 | index lost | frozen | base 2 | units 2 | base 3 | ...
//   checks   the same again on lines of their own
//
//   shape    protection bytes (8) | shift of B (5) | 0 (50) | 1
// ```
// All words but the bases and sizes of chunks and the three flags are set while the table is made.
//
// Any thread may read. The lock of the arena's owners guards bases and sizes; a flag is only ever
// set to 1.

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

const COUNT: usize = ControlWord::units(CHUNKS_MAX - 1).0 + 1;
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

// The mapping of units to chunks: chunk 0 begins after the heads, chunk 1 at B, and each later
// chunk is twice as large as the one before.
//
// B is a power of two, `1 << shift`. See the picture in `arena.rs`. Pure functions.

/// The shift of a table with this write buffer.
pub(crate) fn shift_of(write_buffer_size: u64) -> u32 {
    let units = write_buffer_size.div_ceil(UNIT as u64).max(1);
    units
        .next_power_of_two()
        .trailing_zeros()
        .clamp(SHIFT_MIN, SHIFT_MAX)
}

/// Bytes of chunk 1 of a table with this write buffer.
pub(crate) fn first_chunk_bytes(write_buffer_size: u64) -> usize {
    UNIT << shift_of(write_buffer_size)
}

/// First unit of a chunk's range.
#[inline(always)]
pub(crate) fn chunk_start(index: usize, shift: u32) -> u64 {
    if index == 0 {
        HEADS_UNITS as u64
    } else {
        1u64 << (shift as usize + index - 1)
    }
}

/// The chunk whose range a unit lies in.
#[inline]
pub(crate) fn chunk_of(offset: u32, shift: u32) -> usize {
    let magnitude = 31 - (offset | ((1u32 << shift) - 1)).leading_zeros();
    (magnitude + 1 - shift) as usize
}

/// The chunk of a range of units, and the range in bytes from the chunk's start.
pub(crate) fn bytes_in_chunk(units: Range<u32>, shift: u32) -> (usize, Range<usize>) {
    let chunk = chunk_of(units.start, shift);
    let byte =
        |unit: u32| u64::from(unit).saturating_sub(chunk_start(chunk, shift)) as usize * UNIT;
    (chunk, byte(units.start)..byte(units.end))
}

/// Whether units from `start` on directly follow a range that ends at `end`. The first unit of a
/// chunk follows nothing, because chunks are adjacent in numbers but not in memory.
#[inline]
pub(crate) fn continues(start: u32, end: u32, shift: u32) -> bool {
    let first_of_chunk = start.is_power_of_two() && start >> shift != 0;
    start == end && !first_of_chunk
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::key_part;
    use crate::sync::{AtomicU64, Ordering};

    #[test]
    fn every_unit_lies_in_the_chunk_that_starts_last_before_it() {
        for shift in [9, 15, 23, 31] {
            for index in 1..=(32 - shift) as usize {
                let start = chunk_start(index, shift) as u32;
                assert_eq!(
                    [start - 1, start, start + 1].map(|unit| chunk_of(unit, shift)),
                    [index - 1, index, index]
                );
                assert_eq!(bytes_in_chunk(start + 1..start + 4, shift), (index, 8..32));
                assert!(!continues(start, start, shift) && continues(start + 1, start + 1, shift));
            }
            assert_eq!(bytes_in_chunk(0..0, shift), (0, 0..0));
        }
    }

    /// CONTROL-WORD-3: words, checks and lines of them that change places with others, or are
    /// copied over them.
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

    #[test]
    fn heights_fall_by_e() {
        let mut counts = [0u32; HEIGHT_MAX + 2];
        for n in 0u64..200_000 {
            let height = tower_height(Secret::from_seed(77), key_part(&n.to_be_bytes()), n, 0);
            for level in 1..=height {
                counts[level as usize] += 1;
            }
        }
        assert_eq!(counts[1], 200_000);
        for level in 1..6 {
            let ratio = f64::from(counts[level]) / f64::from(counts[level + 1]);
            assert!((2.5..2.95).contains(&ratio), "level {level}: {ratio}");
        }
    }
}
