//! The filter: says "not here" about most keys that are not in the table, for one cache line.
//!
//! ```text
//!   line   | a0 | a1 | a2 | a3 | b0 | b1 | b2 | b3 |        a: 256 bits; b: the same, each word XOR a mask of its place
//!
//!   hash --high bits--> line        hash * odd --6 fields of 8 bits--> 6 bits of a, the same 6 of b
//! ```
//! A blocked Bloom filter. It starts from the hash that digests start from, so a key is hashed once.
//!
//! * L1: a key's bits are in both copies before its node is published, and bits are never taken back. So a reader that
//!   knows of an entry finds its bits.
//! * L2: "absent" is an answer only if a word of a lacks a bit and its word of b agrees. The mask is not 0 and differs
//!   from place to place, so bytes copied from elsewhere do not agree. A word of b that is 0 proves nothing: unused
//!   words look like zeroed ones. Damage costs a search, never an entry.
//! * L3: "absent" says nothing about range tombstones; who asks the filter asks them all the same.
//! * L4: whole keys and prefixes have a filter each, with hashes of their own.
//!
//! Any thread; lock-free. Not promised: a rate of false answers beyond the intended load, nor far below it, where lines
//! that were never used let all keys pass; and that a scrub notices a line zeroed as a whole (no read believes it).

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::integrity::guarded::Words;
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::tags::Secret;
use crate::invariants::{Bug, planted};
use crate::memtable::lines::{LINE_WORDS, Line, Lines, lost};
use crate::memtable::skiplist::arena::{Arena, SubChunk, View};
use crate::memtable::skiplist::node::bytes_of;
use crate::sync::{AtomicU64, Ordering};

/// Words of one copy.
const COPY_WORDS: usize = LINE_WORDS / 2;
/// From a word of a to its word of b.
const TWIN: u32 = 4;
/// Bits that a key sets in each copy. The best number at 9 bits a key.
const PROBES: u32 = 6;

const _: () = assert!(COPY_WORDS * 64 == 256, "a probe is a field of 8 bits");
const _: () = assert!(COPY_WORDS == TWIN as usize, "b stands behind a");

/// What a filter holds (L4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Whole user keys.
    Keys,
    /// Their prefixes.
    Prefixes,
}

/// What a filter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No entry has this key or prefix.
    Absent,
    /// One may have.
    Perhaps,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Filter {
    lines: Lines,
    holds: Holds,
}

/// Where a key's bits are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits {
    line: Line,
    /// A bit of a copy in each field of 8 bits, the lowest first.
    fields: u64,
}

impl Filter {
    /// An empty filter of at most `bytes` bytes.
    pub(crate) fn new(arena: &Arena, sub: &mut SubChunk, bytes: u64, holds: Holds) -> Result<Filter> {
        Ok(Filter { lines: Lines::carve(arena, sub, bytes)?, holds })
    }

    /// Where the bits of a key or prefix with this K are. `None`: the filter's control words are damaged.
    #[inline(always)]
    pub(crate) fn bits(&self, key_part: u64) -> Option<Bits> {
        const SALTS: [u64; 2] = [splitmix(201), splitmix(202)];
        const SPREAD: u64 = splitmix(203) | 1;
        let hash = mix(key_part, SALTS[self.holds as usize]);
        let line = self.lines.pick(hash)?;
        let fields = hash.wrapping_mul(SPREAD) >> (64 - 8 * PROBES);
        Some(Bits { line, fields })
    }

    /// Adds a key or prefix (L1).
    #[inline]
    pub(crate) fn add(&self, view: &View<'_>, key_part: u64) -> Result<(), Corruption> {
        let bits = self.bits(key_part).ok_or_else(lost)?;
        for (index, mask) in bits.wanted() {
            let word = bits.line.word(view, index).ok_or_else(lost)?;
            // ORDERING: Relaxed: the bit is ordered in front of the node by the Release in `publish_link`, also
            // where another thread set it: what this load saw, whoever reads behind that Release sees.
            if word.load(Ordering::Relaxed) & mask != mask {
                // ORDERING: Relaxed: as above.
                word.fetch_or(mask, Ordering::Relaxed);
            }
            let twin = bits.line.word(view, index + TWIN).ok_or_else(lost)?;
            add_to_twin(twin, veil(view.secret, bits.line, index), mask);
        }
        Ok(())
    }

    /// Whether an entry may have the key or prefix with this K (L2).
    #[inline(always)]
    pub(crate) fn ask(&self, view: &View<'_>, key_part: u64) -> Answer {
        match self.bits(key_part) {
            Some(bits) => bits.ask(view),
            None => Answer::Perhaps,
        }
    }

    /// The control words.
    pub(crate) fn control_words(&self) -> Words<'_> {
        self.lines.control_words()
    }

    /// Compares the two copies and reports each pair of words that differs. `settle` waits for the writers inside: a
    /// bit that one copy had before and the other has not afterwards is damage. O(lines).
    pub(crate) fn scrub(
        &self,
        view: &View<'_>,
        settle: &mut dyn FnMut(),
        report: &mut dyn FnMut(Corruption),
    ) -> Result<(), Corruption> {
        for index in 0..self.lines.count()? {
            let line = self.lines.line(index)?;
            for word in 0..COPY_WORDS {
                if let Some(damage) = compare(line, view, word, settle) {
                    report(damage);
                }
            }
        }
        Ok(())
    }

    /// Every word, by its unit, for the fault door.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn words(&self) -> Result<Vec<u32>, Corruption> {
        let mut words = Vec::new();
        for index in 0..self.lines.count()? {
            let line = self.lines.line(index)?;
            words.extend((0u32..8).map(|word| line.0 + word));
        }
        Ok(words)
    }
}

/// The mask of the word of b that belongs to word `index` of a (L2). Never 0.
#[inline(always)]
const fn veil(secret: Secret, line: Line, index: u32) -> u64 {
    mix(secret.mask ^ (line.0 + index) as u64, secret.factor) | 1
}

/// Adds bits to a word of b.
#[inline(always)]
fn add_to_twin(twin: &AtomicU64, veil: u64, mask: u64) {
    // ORDERING: Relaxed: as for the word of a.
    let mut found = twin.load(Ordering::Relaxed);
    loop {
        let held = if found == 0 { 0 } else { found ^ veil };
        if held & mask == mask {
            return;
        }
        // ORDERING: Relaxed: as above.
        match twin.compare_exchange(found, (held | mask) ^ veil, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => found = now,
        }
    }
}

fn load(line: Line, view: &View<'_>, word: usize) -> Option<u64> {
    let word = line.word(view, u32::try_from(word).ok()?)?;
    // ORDERING: Relaxed: the caller has waited for writers through their locks where that matters.
    Some(word.load(Ordering::Relaxed))
}

fn compare(line: Line, view: &View<'_>, word: usize, settle: &mut dyn FnMut()) -> Option<Corruption> {
    let veil = veil(view.secret, line, u32::try_from(word).ok()?);
    let unveil = |twin: u64| if twin == 0 { 0 } else { twin ^ veil };
    let pair = || Some((load(line, view, word)?, unveil(load(line, view, COPY_WORDS + word)?)));
    let (first, second) = pair()?;
    if first == second {
        return None;
    }
    settle();
    let (later_first, later_second) = pair()?;
    let missing = (first & !later_second) | (second & !later_first);
    if missing == 0 {
        return None;
    }
    let at = bytes_of(line.0) + 8 * word as u64;
    let mut damage = Corruption::new(Place::Filter, at, later_second, later_first);
    damage.flipped_bit = missing.is_power_of_two().then(|| u64::from(missing.trailing_zeros()));
    Some(damage)
}

impl Bits {
    /// The bits one by one: the word of a, and the mask.
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = (u32, u64)> {
        let fields = self.fields;
        (0..PROBES).map(move |probe| {
            let field = fields >> (8 * probe);
            #[expect(clippy::cast_possible_truncation, reason = "two bits")]
            let word = ((field >> 6) & u64::from(TWIN - 1)) as u32;
            (word, 1 << (field & 63))
        })
    }

    /// Words of a with the bits wanted in them.
    #[inline(always)]
    fn wanted(&self) -> impl Iterator<Item = (u32, u64)> {
        let mut masks = [0u64; COPY_WORDS];
        for (index, mask) in self.each() {
            masks[index as usize] |= mask;
        }
        (0u32..).zip(masks).filter(|(_, mask)| *mask != 0)
    }

    /// Asks the line (L2). The first bit that is missing is an answer, if the other copy agrees.
    #[inline(always)]
    pub(crate) fn ask(&self, view: &View<'_>) -> Answer {
        let Some(words) = self.line.words(view) else { return Answer::Perhaps };
        for (index, mask) in self.each() {
            // ORDERING: Relaxed: who knows of an entry reads behind its publication, see `Filter::add`.
            let word = words[index as usize].load(Ordering::Relaxed);
            if word & mask == 0 {
                // ORDERING: Relaxed: as for the first copy.
                let twin = words[(index + TWIN) as usize].load(Ordering::Relaxed);
                let agrees = twin != 0 && twin ^ veil(view.secret, self.line, index) == word;
                if agrees || planted(Bug::FilterBelievesOneCopy) {
                    return Answer::Absent;
                }
            }
        }
        Answer::Perhaps
    }

    /// Asks for the line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, view: &View<'_>) {
        self.line.prefetch(view);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::protection::{Width, key_part};
    use crate::integrity::tags::Secret;
    use crate::memtable::skiplist::arena::ArenaOptions;

    fn filter_in(arena: &Arena) -> Filter {
        Filter::new(arena, &mut SubChunk::default(), 2000, Holds::Keys).unwrap()
    }

    fn arena() -> Arena {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(7));
        Arena::new(&ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret }).unwrap()
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
            filter.scrub(&view, &mut || (), &mut |damage| found.push(damage)).unwrap();
            found
        };
        assert_eq!(scrub(), []);
        let lines = filter.lines.count().unwrap();
        assert!((1..=2000 / 64).contains(&lines));
        for word in 0..lines * 8 {
            let place = filter.lines.line(word / 8).unwrap().word(&view, (word % 8) as u32).unwrap();
            // ORDERING: Relaxed: one thread.
            let clean = place.load(Ordering::Relaxed);
            let flips = (0..64).map(|bit| clean ^ 1 << bit);
            for bent in flips.chain([0, u64::MAX]).filter(|bent| *bent != clean) {
                // ORDERING: Relaxed: one thread.
                place.store(bent, Ordering::Relaxed);
                assert!(present.iter().all(|key| filter.ask(&view, *key) == Answer::Perhaps));
                let found = scrub();
                assert_eq!((found.len(), found[0].place), (1, Place::Filter), "word {word}: {found:?}");
                if clean == 0 || bent == 0 {
                    continue;
                }
                let flipped = found[0].flipped_bit.map(|bit| 1 << bit);
                assert_eq!(flipped, Some(clean ^ bent).filter(|change| change.is_power_of_two()));
            }
            // ORDERING: Relaxed: one thread.
            place.store(clean, Ordering::Relaxed);
        }
        let absent =
            (1000..11_000u64).filter(|n| filter.ask(&view, key_part(&n.to_be_bytes())) == Answer::Absent);
        assert!(absent.count() > 9_000);
    }
}
