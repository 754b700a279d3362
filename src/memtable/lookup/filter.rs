//! The filter: says for most keys that the table does not have them, by reading one cache line and
//! its control word.
//!
//! ```text
//!   line   | w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7 |        its control word stands elsewhere (lines.rs)
//!
//!   hash --high bits--> line        hash * odd --3 bits--> word, 5 fields of 6 bits--> bits of it
//! ```
//! A blocked Bloom filter whose blocks are words. It starts from the hash that digests start from,
//! so a key is hashed once.
//!
//! * FILTER-1: a key's bits are in its word before its node is published, and bits are never taken
//!   back. So a reader that knows of an entry finds its bits.
//! * FILTER-2: "absent" is an answer only if the word lacks a bit and the line's control word
//!   agrees, or if no hash of the group was ever written (lines.rs, LINES-7): the filter answers
//!   from the first key on. Damage costs a search, never an entry.
//! * FILTER-3: "absent" says nothing about range tombstones, which reads ask in any case.
//! * FILTER-4: whole keys and prefixes have a filter each, with hashes of their own.
//!
//! Any thread; lock-free. Not promised: a rate of false positives beyond the intended load.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Salt;
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::{Arena, SubChunk, View};
use crate::memtable::lookup::lines::{LINE_WORDS, Line, Lines, group_of, lost};
use crate::sync::Ordering;

/// Number of bits that a key sets, all in one word, which makes writes cheap. At 16 bits per key
/// 0.6 % of absent keys pass.
const PROBES: u32 = 5;
/// Width of a bit's index in a word.
const FIELD: u32 = 6;
/// Width of a word's index in a line.
const WORD_FIELD: u32 = 3;

const _: () = assert!(1 << FIELD == u64::BITS && 1 << WORD_FIELD == LINE_WORDS);

/// What a filter contains (FILTER-4): whole user keys.
pub(crate) const KEYS: usize = 0;
/// Prefixes of user keys.
pub(crate) const PREFIXES: usize = 1;

/// A filter of keys or prefixes. A constant says which, because a field could be copied together
/// with the control words.
pub(crate) struct Filter<const HOLDS: usize> {
    pub(crate) lines: Lines,
}

/// The bits of a key in a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits {
    pub(crate) line: Line,
    /// What all of these are made of, and the group (LINES-7).
    hash: u64,
    /// Which word of the line.
    place: usize,
    /// Which bits of the word.
    mask: u64,
}

impl<const HOLDS: usize> Filter<HOLDS> {
    /// An empty filter of at most `bytes` bytes.
    pub(crate) fn new(arena: &Arena, sub: &mut SubChunk, bytes: u64) -> Result<Self> {
        Ok(Filter {
            lines: Lines::carve(arena, sub, bytes, HOLDS as u64)?,
        })
    }

    #[inline(always)]
    pub(crate) fn salt(secret: Secret) -> Salt {
        Salt::new(secret, HOLDS as u64)
    }

    /// The bits of a key or prefix with this K. `None` if the filter's control words are damaged.
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
        // another thread set it: a reader that sees the node sees what this load saw.
        if word.load(Ordering::Relaxed) & mask == mask {
            return Ok(());
        }
        self.lines
            .open(view, Self::salt(view.secret), group_of(hash))?;
        // ORDERING: Relaxed: ordered before the node by the Release in `publish_link`.
        let found = word.fetch_or(mask, Ordering::Relaxed);
        line.account(view, place, found, found | mask)
            .ok_or_else(lost)
    }

    /// Whether no entry has the key or prefix with this K (FILTER-2). `false` if the filter cannot
    /// tell.
    #[inline(always)]
    pub(crate) fn lacks(&self, view: &View<'_>, key_part: u64) -> bool {
        self.bits(view.secret, key_part)
            .is_some_and(|bits| self.misses(view, bits))
    }

    /// Whether a bit is missing, so that no entry has the key. Reads the word, and the control word
    /// if it lacks a bit (FILTER-2).
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
        // ORDERING: Relaxed: a reader that knows of an entry reads after its publication, see
        // `Filter::add`.
        if word.load(Ordering::Relaxed) & mask == mask {
            return false;
        }
        match line.read(view) {
            Some(words) => words[place] & mask != mask,
            None => self.is_unused(view, hash),
        }
    }

    /// Whether no hash of this one's group was ever written (LINES-7).
    #[cold]
    #[inline(never)]
    fn is_unused(&self, view: &View<'_>, hash: u64) -> bool {
        self.lines
            .is_unused(Self::salt(view.secret), group_of(hash))
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
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

    /// LINES-7: stretches of every length and place in two filters side by side, cleared, filled,
    /// or copied from any other place, hide no key, neither one that was there nor one that comes
    /// later.
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
            assert!(!hides(), "{len} words from {from} on");
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
        // What is added to damaged lines opens groups beside those that were open.
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

/// A model of the filter: what a reader may find while a writer is between its steps.
///
/// Words are loom's atomics and a cell a unit watches the bytes of nodes, on the production code.
/// All actors are spawned threads. Each model names the planted bugs that turn it red.
#[cfg(all(test, loom))]
mod loom {
    use crate::memtable::options::MemTableOptions;
    use crate::memtable::read::get::Lookup;
    use crate::memtable::table::MemTable;
    use crate::sync::model::{self, spawn};

    /// Red for `filter_after_publication`.
    #[test]
    fn loom_who_sees_an_entry_finds_it_through_the_filter() {
        model::check(|| {
            let options = MemTableOptions::builder()
                .write_buffer_size(1 << 16)
                .seed(1)
                .whole_key_filter(0.007);
            let table = MemTable::new(options.build().unwrap()).unwrap();
            let (writing, reading) = (table.clone(), table);
            let writer = spawn(move || writing.put(1, b"k", b"v").map(|_| ()).unwrap());
            let reader = spawn(move || {
                let mut cursor = reading.cursor();
                cursor.seek(b"k").unwrap();
                if cursor.is_valid() {
                    assert!(
                        matches!(reading.get(b"k", 1).unwrap(), Lookup::Value(_)),
                        "the filter hides an entry"
                    );
                }
            });
            writer.join().unwrap();
            reader.join().unwrap();
        });
    }
}
