//! A Bloom filter: for most keys that the table does not have, it says so after it has read one
//! cache line and its control word in each of its parts.
//!
//! ```text
//!   line   | w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7 |     control word: in another cache line
//!
//!   hash --high bits--> line of a part
//!   hash * odd --3 bits--> word of the line, --5 fields of 6 bits--> 5 bits of the word
//! ```
//! The Bloom filter is blocked, and its blocks are words. It hashes the key's digest part, which a
//! write computes in any case, so a write hashes a key once.
//!
//! * FILTER-1: a writer sets a key's bits in a part before it publishes the key's node, and bits
//!   are never cleared. So a reader that knows of an entry asks that part (PARTS-1) and finds its
//!   bits.
//!
//! The answer "absent" needs, in every part, a missing bit in a line whose control word agrees, or
//! a group without any hash (LINES-3). So damage costs a search and hides no entry. "Absent" says
//! nothing about range tombstones, so a read asks their index in any case.
//!
//! Any thread; lock-free. Not promised: a rate of false positives beyond the intended load.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Salt;
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::filter::checked_lines::{LINE_WORDS, Line, Lines, group_of, lost};
use crate::memtable::filter::parts::{Growth, Part, Parts};
use crate::sync::Ordering;

/// Number of bits that a key sets. All of them are in one word, so a write changes one word. At 16
/// bits per key one part passes 0.6 % of absent keys, at 10 bits 1.8 %.
const PROBES: u32 = 5;
/// Width of a bit's index in a word.
const FIELD: u32 = 6;
/// Width of a word's index in a line.
const WORD_FIELD: u32 = 3;
/// The share of a word's bits that a key sets: 5 of 64, less those that coincide.
const ONES: f64 = 0.0757;
/// Of so many new keys one is followed by a look at the newest part.
const NEW_KEYS_OF_LOOK: u64 = 64;

const _: () = assert!(1 << FIELD == u64::BITS && 1 << WORD_FIELD == LINE_WORDS);

/// Marks the filter of whole user keys.
pub(crate) const KEYS: usize = 0;
/// Marks the filter of prefixes of user keys.
pub(crate) const PREFIXES: usize = 1;

/// A filter of keys or prefixes. `HOLDS` is [`KEYS`] or [`PREFIXES`], and both hashes and control
/// words depend on it. It is a constant because damage could copy a field with the control words.
pub(crate) struct Filter<const HOLDS: usize> {
    pub(crate) parts: Parts,
    /// How the filter grows; `None` if its size is fixed.
    growth: Option<Growth>,
}

/// The bits of a key, in any part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    /// The hash that all of these are made of; its high bits name line and group.
    hash: u64,
    /// The place of the word in the line.
    place: usize,
    /// The bits of the word.
    mask: u64,
}

impl Probe {
    /// The line of this key in a part.
    #[inline(always)]
    fn line(&self, lines: Lines) -> Line {
        lines.pick(self.hash)
    }
}

/// The bits of a key that a writer will announce.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    probe: Probe,
    part: Part,
    line: Line,
}

/// What an announcement changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announced {
    /// Bits of a key, after which the writer need not look whether the newest part is full.
    Done,
    /// The writer should look.
    LookAfter,
}

impl<const HOLDS: usize> Filter<HOLDS> {
    /// An empty filter of `lines` lines.
    pub(crate) fn fixed(arena: &Arena, lines: u64) -> Result<Self> {
        let salt = Self::salt(arena.control.secret()?);
        let parts = Parts::new(salt);
        parts.make_single(arena, salt, lines)?;
        Ok(Filter {
            parts,
            growth: None,
        })
    }

    /// A filter without parts. The first write makes the first one.
    pub(crate) fn growing(secret: Secret, write_buffer: u64, bits: u64) -> Self {
        Filter {
            parts: Parts::new(Self::salt(secret)),
            growth: Some(Growth::new(write_buffer, bits, ONES)),
        }
    }

    /// The salt of the filter's control words.
    #[inline(always)]
    pub(crate) fn salt(secret: Secret) -> Salt {
        Salt::new(secret, HOLDS as u64)
    }

    /// The bits of a key or prefix with this digest part.
    #[inline(always)]
    pub(crate) fn probe(key_part: u64) -> Probe {
        const SALTS: [u64; 2] = [splitmix(201), splitmix(202)];
        const SPREAD: u64 = splitmix(203) | 1;
        let hash = mix(key_part, SALTS[HOLDS]);
        let fields = hash.wrapping_mul(SPREAD) >> (u64::BITS - WORD_FIELD - FIELD * PROBES);
        let mask = (0..PROBES).fold(0, |mask, probe| {
            mask | 1 << ((fields >> (FIELD * probe)) % 64)
        });
        let place = (fields >> (FIELD * PROBES)) as usize % LINE_WORDS;
        Probe { hash, place, mask }
    }

    /// Makes part 0 of a filter that grows, unless it is made.
    #[inline(always)]
    pub(crate) fn begin(&self, arena: &Arena, secret: Secret) -> Result<()> {
        let newest = self
            .parts
            .newest(arena, Self::salt(secret), self.growth.as_ref());
        newest.map(drop)
    }

    /// Chooses the part in which a writer announces a key (PARTS-1), and prefetches its line.
    #[inline(always)]
    pub(crate) fn mark(&self, view: &View<'_>, key_part: u64) -> Result<Mark> {
        let salt = Self::salt(view.secret);
        let part = self
            .parts
            .newest(view.arena(), salt, self.growth.as_ref())?;
        let mark = Self::mark_in(part, key_part);
        mark.line.prefetch(view);
        Ok(mark)
    }

    /// The bits of a key or prefix in a filter that does not grow.
    #[inline(always)]
    pub(crate) fn mark_single(&self, view: &View<'_>, key_part: u64) -> Result<Mark, Corruption> {
        let part = self
            .parts
            .known_newest(view.arena().heals(), Self::salt(view.secret))?;
        Ok(Self::mark_in(part, key_part))
    }

    #[inline(always)]
    fn mark_in(part: Part, key_part: u64) -> Mark {
        let probe = Self::probe(key_part);
        let line = probe.line(part.lines);
        Mark { probe, part, line }
    }

    /// Adds a key or prefix (FILTER-1).
    #[inline(always)]
    pub(crate) fn add(
        &self,
        view: &View<'_>,
        Mark { probe, part, line }: &Mark,
    ) -> Result<Announced, Corruption> {
        let Probe { hash, place, mask } = *probe;
        let word = line.word(view, place).ok_or_else(lost)?;
        // ORDERING: Relaxed: the Release in `publish_link` orders the bit before the node, even if
        // another thread set the bit: a reader that sees the node sees what this load saw.
        if word.load(Ordering::Relaxed) & mask == mask {
            return Ok(Announced::Done);
        }
        self.parts
            .open(view, Self::salt(view.secret), part, group_of(hash))?;
        // ORDERING: Relaxed: the Release in `publish_link` orders the bit before the node.
        let found = word.fetch_or(mask, Ordering::Relaxed);
        line.account(view, place, found, found | mask)
            .ok_or_else(lost)?;
        let is_look = self.growth.is_some() && hash.is_multiple_of(NEW_KEYS_OF_LOOK);
        Ok(if is_look {
            Announced::LookAfter
        } else {
            Announced::Done
        })
    }

    /// Makes the next part if the newest one is full. Called after an announcement that says so.
    pub(crate) fn grow_if_full(&self, view: &View<'_>, mark: &Mark) {
        if let Some(growth) = &self.growth {
            let salt = Self::salt(view.secret);
            self.parts.grow_if_full(view, salt, growth, mark.probe.hash);
        }
    }

    /// Makes the next part.
    #[cfg(any(loom, test))]
    pub(crate) fn grow(&self, arena: &Arena, secret: Secret) {
        let salt = Self::salt(secret);
        if let (Some(growth), Ok(newest)) =
            (&self.growth, self.parts.known_newest(arena.heals(), salt))
        {
            self.parts.grow(arena, salt, growth, newest.number + 1);
        }
    }

    /// Whether no entry has the key or prefix with this digest part. `false` if the filter does not
    /// know.
    #[inline(always)]
    pub(crate) fn lacks(&self, view: &View<'_>, key_part: u64) -> bool {
        self.misses(view, Self::probe(key_part))
    }

    /// The line of a key in the newest part.
    #[inline(always)]
    pub(crate) fn likely_line(&self, probe: &Probe) -> Line {
        probe.line(self.parts.likely_newest())
    }

    /// Whether no part has all bits, so that no entry has the key. It first looks at words alone:
    /// a part that may have the key ends the question without any check.
    #[inline(always)]
    pub(crate) fn misses(&self, view: &View<'_>, probe: Probe) -> bool {
        let has_bits = |lines| {
            let word = probe.line(lines).word(view, probe.place);
            // ORDERING: Relaxed: "no" only means that the parts are asked, with all checks.
            word.is_some_and(|word| word.load(Ordering::Relaxed) & probe.mask == probe.mask)
        };
        if self.parts.is_likely_true_of_one(has_bits) {
            return false;
        }
        let Some(newest) = self.parts.verified_newest(Self::salt(view.secret)) else {
            return false;
        };
        self.lacks_bit(view, &probe, newest)
            && (newest.number == 0 || self.misses_before(*view, probe, newest))
    }

    /// Whether a part lacks a bit, in a line that verifies.
    #[inline(always)]
    fn lacks_bit(&self, view: &View<'_>, probe: &Probe, Part { number, lines }: Part) -> bool {
        // A reader that knows of an entry reads after its publication; see `add`.
        match probe.line(lines).read(view) {
            Some(words) => words[probe.place] & probe.mask != probe.mask,
            None => {
                let salt = Self::salt(view.secret);
                self.parts.are_unused(salt, number, group_of(probe.hash))
            }
        }
    }

    /// Whether each part before this one lacks a bit. It takes a copy of the view, so that callers
    /// keep theirs in registers.
    #[inline(never)]
    fn misses_before(&self, view: View<'_>, probe: Probe, part: Part) -> bool {
        let salt = Self::salt(view.secret);
        self.parts
            .is_true_of_older(salt, part, |part| self.lacks_bit(&view, &probe, part))
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;
    use crate::error::Place;
    use crate::integrity::digest::key_part;
    use crate::memtable::filter::tests::add;

    fn filter_in(arena: &Arena) -> Filter<KEYS> {
        Filter::fixed(arena, Lines::count_in(2000)).unwrap()
    }

    fn arena() -> Arena {
        crate::memtable::filter::tests::arena(1 << 20, 1 << 24)
    }

    #[test]
    fn damage_to_any_word_hides_nothing_and_scrub_names_it() {
        let arena = arena();
        let (filter, view) = (filter_in(&arena), arena.view().unwrap());
        let present: Vec<u64> = (0..200u64).map(|n| key_part(&n.to_be_bytes())).collect();
        for key in &present {
            add(&filter, &view, *key);
        }
        let scrub = || {
            let mut found = Vec::new();
            let salt = Filter::<KEYS>::salt(view.secret);
            filter
                .parts
                .scrub(&view, salt, &mut || (), &mut |damage| found.push(damage))
                .unwrap();
            found
        };
        assert_eq!(scrub(), []);
        let parts = filter
            .parts
            .all(arena.heals(), Filter::<KEYS>::salt(view.secret))
            .unwrap();
        assert!(parts.len() == 1 && (20..=2000 / 64).contains(&parts[0].lines.count()));
        for place in filter
            .parts
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
        let arena = arena();
        let keys = Filter::<KEYS>::fixed(&arena, Lines::count_in(600)).unwrap();
        let prefixes = Filter::<PREFIXES>::fixed(&arena, Lines::count_in(600)).unwrap();
        let view = arena.view().unwrap();
        let part = |number: u64| key_part(&number.to_be_bytes());
        (0..12).for_each(|number| add(&keys, &view, part(number)));
        (0..3).for_each(|number| add(&prefixes, &view, part(number)));
        let mut words = keys
            .parts
            .every_word(&view, Filter::<KEYS>::salt(view.secret))
            .unwrap();
        words.extend(
            prefixes
                .parts
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
            add(&keys, &view, part(number));
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
        add(&filter, &view, 1);
        let absent = (2..10_000).filter(|key| filter.lacks(&view, *key));
        assert_eq!((filter.lacks(&view, 1), absent.count()), (false, 9_998));
    }
}
