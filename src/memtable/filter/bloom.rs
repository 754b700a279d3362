//! A Bloom filter: for most keys that the table does not have, it says so after it has read one
//! cache line and its control word.
//!
//! ```text
//!   line   | w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7 |     control word: in another cache line
//!
//!   hash --high bits--> line
//!   hash * odd --3 bits--> word of the line, --5 fields of 6 bits--> 5 bits of the word
//! ```
//! The Bloom filter is blocked, and its blocks are words. It hashes the key's digest part, which a
//! write and a read compute in any case, so a key is hashed once.
//!
//! * FILTER-1: a writer sets a key's bits before it publishes the key's node, and bits are never
//!   cleared. So a reader that knows of an entry finds its bits.
//!
//! The answer "absent" needs a missing bit in a line whose control word agrees, or a group without
//! any hash (LINES-3). So damage costs a search and hides no entry. "Absent" says nothing about
//! range tombstones, so a read asks their index in any case.
//!
//! Any thread; lock-free. Not promised: a rate of false positives beyond the intended load.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Salt;
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::{Arena, SubChunk, View};
use crate::memtable::filter::checked_lines::{CheckedLines, LINE_WORDS, Line, group_of, lost};
use crate::sync::Ordering;

/// Number of bits that a key sets. All of them are in one word, so a write changes one word. At 16
/// bits per key the filter passes 0.6 % of absent keys.
const PROBES: u32 = 5;
/// Width of a bit's index in a word.
const FIELD: u32 = 6;
/// Width of a word's index in a line.
const WORD_FIELD: u32 = 3;

const _: () = assert!(1 << FIELD == u64::BITS && 1 << WORD_FIELD == LINE_WORDS);

/// Marks the filter of whole user keys.
pub(crate) const KEYS: usize = 0;
/// Marks the filter of prefixes of user keys.
pub(crate) const PREFIXES: usize = 1;

/// A filter of keys or prefixes. `HOLDS` is [`KEYS`] or [`PREFIXES`], and both hashes and control
/// words depend on it. It is a constant because damage could copy a field with the control words.
pub(crate) struct Filter<const HOLDS: usize> {
    pub(crate) lines: CheckedLines,
}

/// The bits of a key in a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits {
    pub(crate) line: Line,
    /// The hash that all of these are made of; its high bits name the group (LINES-3).
    hash: u64,
    /// The place of the word in the line.
    place: usize,
    /// The bits of the word.
    mask: u64,
}

impl<const HOLDS: usize> Filter<HOLDS> {
    /// An empty filter of at most `bytes` bytes.
    pub(crate) fn new(arena: &Arena, sub: &mut SubChunk, bytes: u64) -> Result<Self> {
        Ok(Filter {
            lines: CheckedLines::carve(arena, sub, bytes, HOLDS as u64)?,
        })
    }

    /// The salt of the filter's control words.
    #[inline(always)]
    pub(crate) fn salt(secret: Secret) -> Salt {
        Salt::new(secret, HOLDS as u64)
    }

    /// The bits of a key or prefix with this digest part. `None` if the control words are damaged.
    #[inline(always)]
    pub(crate) fn bits(&self, secret: Secret, key_part: u64) -> Option<Bits> {
        const SALTS: [u64; 2] = [splitmix(201), splitmix(202)];
        const SPREAD: u64 = splitmix(203) | 1;
        let hash = mix(key_part, SALTS[HOLDS]);
        let line = self.lines.pick(Self::salt(secret), hash)?;
        let fields = hash.wrapping_mul(SPREAD) >> (u64::BITS - WORD_FIELD - FIELD * PROBES);
        let mask = (0..PROBES).fold(0, |mask, probe| {
            mask | 1 << ((fields >> (FIELD * probe)) % 64)
        });
        let place = (fields >> (FIELD * PROBES)) as usize % LINE_WORDS;
        Some(Bits {
            line,
            hash,
            place,
            mask,
        })
    }

    /// Adds a key or prefix (FILTER-1).
    #[inline(always)]
    pub(crate) fn add(&self, view: &View<'_>, key_part: u64) -> Result<(), Corruption> {
        let Bits {
            line,
            hash,
            place,
            mask,
        } = self.bits(view.secret, key_part).ok_or_else(lost)?;
        let word = line.word(view, place).ok_or_else(lost)?;
        // ORDERING: Relaxed: the Release in `publish_link` orders the bit before the node, even if
        // another thread set the bit: a reader that sees the node sees what this load saw.
        if word.load(Ordering::Relaxed) & mask == mask {
            return Ok(());
        }
        self.lines
            .open(view, Self::salt(view.secret), group_of(hash))?;
        // ORDERING: Relaxed: the Release in `publish_link` orders the bit before the node.
        let found = word.fetch_or(mask, Ordering::Relaxed);
        line.account(view, place, found, found | mask)
            .ok_or_else(lost)
    }

    /// Whether no entry has the key or prefix with this digest part. `false` if the filter does not
    /// know.
    #[inline(always)]
    pub(crate) fn lacks(&self, view: &View<'_>, key_part: u64) -> bool {
        self.bits(view.secret, key_part)
            .is_some_and(|bits| self.misses(view, bits))
    }

    /// Whether a bit is missing, so that no entry has the key. Reads the word, and if it lacks a
    /// bit, the line and its control word.
    #[inline(always)]
    pub(crate) fn misses(
        &self,
        view: &View<'_>,
        Bits {
            line,
            hash,
            place,
            mask,
        }: Bits,
    ) -> bool {
        let Some(word) = line.word(view, place) else {
            return false;
        };
        // ORDERING: Relaxed: a reader that knows of an entry reads after its publication; see
        // `Filter::add`.
        if word.load(Ordering::Relaxed) & mask == mask {
            return false;
        }
        match line.read(view) {
            Some(words) => words[place] & mask != mask,
            None => self.is_unused(view, hash),
        }
    }

    /// Whether the group of `hash` is unused (LINES-3).
    #[cold]
    #[inline(never)]
    fn is_unused(&self, view: &View<'_>, hash: u64) -> bool {
        self.lines
            .is_unused(Self::salt(view.secret), group_of(hash))
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;
    use crate::error::Place;
    use crate::integrity::digest::{Width, key_part};

    fn filter_in(arena: &Arena) -> Filter<KEYS> {
        Filter::new(arena, &mut SubChunk::default(), 2000).unwrap()
    }

    fn arena() -> Arena {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(7));
        Arena::new(1 << 20, 1 << 24, width, secret)
    }

    #[test]
    fn damage_to_any_word_hides_nothing_and_scrub_names_it() {
        let arena = arena();
        let (filter, view) = (filter_in(&arena), arena.view().unwrap());
        let present: Vec<u64> = (0..200u64).map(|n| key_part(&n.to_be_bytes())).collect();
        for key in &present {
            filter.add(&view, *key).unwrap();
        }
        let scrub = || {
            let mut found = Vec::new();
            let salt = Filter::<KEYS>::salt(view.secret);
            filter
                .lines
                .scrub(&view, salt, &mut || (), &mut |damage| found.push(damage))
                .unwrap();
            found
        };
        assert_eq!(scrub(), []);
        let lines = filter
            .lines
            .count(Filter::<KEYS>::salt(view.secret))
            .unwrap();
        assert!((20..=2000 / 64).contains(&lines));
        for place in filter
            .lines
            .every_word(&view, Filter::<KEYS>::salt(view.secret))
            .unwrap()
        {
            // ORDERING: Relaxed: one thread.
            let clean = place.load(Ordering::Relaxed);
            let flips = (0..64).map(|bit| clean ^ 1 << bit);
            for bent in flips.chain([0, u64::MAX]).filter(|bent| *bent != clean) {
                // ORDERING: Relaxed: one thread.
                place.store(bent, Ordering::Relaxed);
                assert!(present.iter().all(|key| !filter.lacks(&view, *key)));
                let found = scrub();
                assert_eq!(
                    (found.len(), found[0].place),
                    (1, Place::Filter),
                    "{clean:#x} {bent:#x}: {found:?}"
                );
                let flipped = found[0].flipped_bit.map(|bit| 1 << bit);
                assert_eq!(
                    flipped,
                    Some(clean ^ bent).filter(|change| change.is_power_of_two())
                );
            }
            // ORDERING: Relaxed: one thread.
            place.store(clean, Ordering::Relaxed);
        }
        let absent = (1000..11_000u64).filter(|n| filter.lacks(&view, key_part(&n.to_be_bytes())));
        assert!(absent.count() > 9_000);
    }

    /// Stretches of every length and place in two adjacent filters are cleared, filled, or copied
    /// from any other place. They hide no key, neither an earlier nor a later one (LINES-3).
    #[test]
    fn no_stretch_hides_a_key() {
        let (arena, mut sub) = (arena(), SubChunk::default());
        let keys = Filter::<KEYS>::new(&arena, &mut sub, 600).unwrap();
        let prefixes = Filter::<PREFIXES>::new(&arena, &mut sub, 600).unwrap();
        let view = arena.view().unwrap();
        let part = |number: u64| key_part(&number.to_be_bytes());
        (0..12).for_each(|number| keys.add(&view, part(number)).unwrap());
        (0..3).for_each(|number| prefixes.add(&view, part(number)).unwrap());
        let mut words = keys
            .lines
            .every_word(&view, Filter::<KEYS>::salt(view.secret))
            .unwrap();
        words.extend(
            prefixes
                .lines
                .every_word(&view, Filter::<PREFIXES>::salt(view.secret))
                .unwrap(),
        );
        // ORDERING: Relaxed: one thread.
        let now = || {
            words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect::<Vec<u64>>()
        };
        // ORDERING: Relaxed: one thread.
        let set = |values: &[u64]| {
            words
                .iter()
                .zip(values)
                .for_each(|(word, value)| word.store(*value, Ordering::Relaxed))
        };
        let clean = now();
        let hides = || {
            (0..12).any(|number| keys.lacks(&view, part(number)))
                || (0..3).any(|number| prefixes.lacks(&view, part(number)))
        };
        let judge = |from: usize, len: usize, values: &dyn Fn(usize) -> u64| {
            let mut changed = clean.clone();
            (from..from + len).for_each(|at| changed[at] = values(at));
            set(&changed);
            assert!(!hides(), "{len} words from {from}");
        };
        for (from, len) in
            (0..clean.len()).flat_map(|from| (1..=clean.len() - from).map(move |len| (from, len)))
        {
            judge(from, len, &|_| 0);
            judge(from, len, &|_| u64::MAX);
            judge(from, len, &|_| clean[from]);
            for source in
                (0..=clean.len() - len).step_by(if cfg!(debug_assertions) { 8 } else { 1 })
            {
                judge(from, len, &|at| clean[source + at - from]);
            }
        }
        // Keys that are added to damaged lines open further groups.
        set(&vec![0; clean.len()]);
        for number in 12..200 {
            keys.add(&view, part(number)).unwrap();
            assert!(
                (0..=number).all(|number| !keys.lacks(&view, part(number))),
                "{number}"
            );
        }
    }

    #[test]
    fn the_first_key_is_filtered() {
        let arena = arena();
        let (filter, view) = (filter_in(&arena), arena.view().unwrap());
        assert!(filter.lacks(&view, 1), "a table without entries");
        filter.add(&view, 1).unwrap();
        let absent = (2..10_000).filter(|key| filter.lacks(&view, *key));
        assert_eq!((filter.lacks(&view, 1), absent.count()), (false, 9_998));
    }
}
