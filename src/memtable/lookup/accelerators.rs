//! The accelerators of a table: its filters. They are made once, empty. A writer adds a key before its entry is published, and a
//! reader asks before it searches.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Salt;
use crate::integrity::digest::{Secret, key_part, mix, splitmix};
use crate::memtable::arena::arena::{Arena, SubChunk, View};
use crate::memtable::lookup::lines::{LINE_WORDS, Line, Lines, lost};
use crate::memtable::options::{MemTableOptions, PrefixExtractor};
use crate::sync::Ordering;

/// The filters of a table.
#[derive(Default)]
pub(crate) struct Accelerators {
    keys: Option<Filter<KEYS>>,
    prefixes: Option<(Filter<PREFIXES>, Arc<dyn PrefixExtractor>)>,
}

impl Accelerators {
    /// Makes empty accelerators of the sizes that the options name.
    pub(crate) fn make(&mut self, options: &MemTableOptions, arena: &Arena) -> Result<()> {
        let mut sub = SubChunk::default();
        if let Some(share) = options.key_filter {
            self.keys = Some(Filter::new(arena, &mut sub, options.bytes_of_share(share))?);
        }
        if let Some((extractor, share)) = &options.prefix_filter {
            let filter = Filter::new(arena, &mut sub, options.bytes_of_share(*share))?;
            self.prefixes = Some((filter, Arc::clone(extractor)));
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn has_filters(&self) -> bool {
        self.keys.is_some() || self.prefixes.is_some()
    }

    /// Prefetches what the filter of whole keys stores of a key with this K, which is added soon.
    #[inline(never)]
    pub(crate) fn prefetch(&self, view: &View<'_>, key_part: u64) {
        if let Some(bits) = self.keys.as_ref().and_then(|filter| filter.bits(view.secret, key_part)) {
            bits.line.prefetch(view);
        }
    }

    /// Adds key and prefix of a node that is not published yet to the filters.
    #[inline(never)]
    pub(crate) fn announce(&self, view: &View<'_>, key: &[u8], hash: u64) -> Result<(), Corruption> {
        if let Some(filter) = &self.keys {
            filter.add(view, hash)?;
        }
        if let Some((filter, extractor)) = &self.prefixes
            && let Some(prefix) = extractor.prefix(key)
        {
            filter.add(view, key_part(prefix))?;
        }
        Ok(())
    }

    /// The bits of this key in the filter that point reads use: that of whole keys, if there is one.
    #[inline(always)]
    pub(crate) fn bits(&self, secret: Secret, key: &[u8]) -> Option<Bits> {
        if let Some(filter) = &self.keys {
            return filter.bits(secret, key_part(key));
        }
        let (filter, extractor) = self.prefixes.as_ref()?;
        filter.bits(secret, key_part(extractor.prefix(key)?))
    }

    /// Whether the filter that point reads use says that no entry has this key.
    #[inline(always)]
    pub(crate) fn lacks(&self, view: &View<'_>, key: &[u8]) -> bool {
        self.bits(view.secret, key).is_some_and(|bits| bits.are_missing(view))
    }

    /// Whether a filter says that no entry has a key that starts with these bytes.
    pub(crate) fn lacks_prefix(&self, view: &View<'_>, start: &[u8]) -> bool {
        let Some((filter, extractor)) = &self.prefixes else { return false };
        let prefix = extractor.shared_prefix(start);
        prefix.is_some_and(|prefix| filter.lacks(view, key_part(prefix)))
    }

    /// The lines of each filter, with the salt of their control words.
    pub(crate) fn lines(&self, secret: Secret) -> impl Iterator<Item = (&Lines, Salt)> {
        let keys = self.keys.iter().map(move |filter| (&filter.lines, Filter::<KEYS>::salt(secret)));
        let prefixes = self.prefixes.iter();
        keys.chain(prefixes.map(move |(filter, _)| (&filter.lines, Filter::<PREFIXES>::salt(secret))))
    }
}

// The filter: says for most keys that the table does not have them, by reading one cache line and its control word.
//
// ```text
//   line   | w0 | w1 | w2 | w3 | w4 | w5 | w6 | w7 |        its control word stands elsewhere (lines.rs)
//
//   hash --high bits--> line        hash * odd --3 bits--> word, 5 fields of 6 bits--> bits of it
// ```
// A blocked Bloom filter whose blocks are words. It starts from the hash that digests start from, so a key is hashed
// once.
//
// * FILTER-1: a key's bits are in its word before its node is published, and bits are never taken back. So a reader
//   that knows of an entry finds its bits.
// * FILTER-2: "absent" is an answer only if the word lacks a bit and the line's control word agrees. Damage costs a
//   search, never an entry. Lines that were never used agree (lines.rs, LINES-7): the filter answers from the first key
//   on.
// * FILTER-3: "absent" says nothing about range tombstones, which reads ask in any case.
// * FILTER-4: whole keys and prefixes have a filter each, with hashes of their own.
//
// Any thread; lock-free. Not promised: a rate of false positives beyond the intended load.

/// Number of bits that a key sets, all in one word, which makes writes cheap. At 16 bits per key 0.6 % of absent keys
/// pass.
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

/// A filter of keys or prefixes. A constant says which, because a field could be copied together with the control
/// words.
pub(crate) struct Filter<const HOLDS: usize> {
    lines: Lines,
}

/// The bits of a key in a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bits {
    pub(crate) line: Line,
    /// Which word of the line.
    place: usize,
    /// Which bits of the word.
    mask: u64,
}

impl<const HOLDS: usize> Filter<HOLDS> {
    /// An empty filter of at most `bytes` bytes.
    pub(crate) fn new(arena: &Arena, sub: &mut SubChunk, bytes: u64) -> Result<Self> {
        Ok(Filter { lines: Lines::carve(arena, sub, bytes, HOLDS as u64)? })
    }

    #[inline(always)]
    fn salt(secret: Secret) -> Salt {
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
        let mask = (0..PROBES).fold(0, |mask, probe| mask | 1 << ((fields >> (FIELD * probe)) % 64));
        let place = (fields >> (FIELD * PROBES)) as usize % LINE_WORDS;
        Some(Bits { line, place, mask })
    }

    /// Adds a key or prefix (FILTER-1).
    #[inline(always)]
    pub(crate) fn add(&self, view: &View<'_>, key_part: u64) -> Result<(), Corruption> {
        let Bits { line, place, mask } = self.bits(view.secret, key_part).ok_or_else(lost)?;
        let word = line.word(view, place).ok_or_else(lost)?;
        // ORDERING: Relaxed: the Release in `publish_link` orders the bit before the node, even if another thread set
        // it: a reader that sees the node sees what this load saw.
        if word.load(Ordering::Relaxed) & mask == mask {
            return Ok(());
        }
        // ORDERING: Relaxed: ordered before the node by the Release in `publish_link`.
        let found = word.fetch_or(mask, Ordering::Relaxed);
        line.account(view, place, found, found | mask).ok_or_else(lost)
    }

    /// Whether no entry has the key or prefix with this K (FILTER-2). `false` if the filter cannot tell.
    #[inline(always)]
    pub(crate) fn lacks(&self, view: &View<'_>, key_part: u64) -> bool {
        self.bits(view.secret, key_part).is_some_and(|bits| bits.are_missing(view))
    }
}

impl Bits {
    /// Whether a bit is missing, so that no entry has the key. Reads the word, and the control word if it lacks a bit
    /// (FILTER-2).
    #[inline(always)]
    pub(crate) fn are_missing(&self, view: &View<'_>) -> bool {
        let Some(word) = self.line.word(view, self.place) else { return false };
        // ORDERING: Relaxed: a reader that knows of an entry reads after its publication, see `Filter::add`.
        let lacks_bit = word.load(Ordering::Relaxed) & self.mask != self.mask;
        lacks_bit && self.line.read(view).is_some_and(|words| words[self.place] & self.mask != self.mask)
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
            filter.lines.scrub(&view, salt, &mut || (), &mut |damage| found.push(damage)).unwrap();
            found
        };
        assert_eq!(scrub(), []);
        let lines = filter.lines.count(Filter::<KEYS>::salt(view.secret)).unwrap();
        assert!((20..=2000 / 64).contains(&lines));
        for place in filter.lines.every_word(&view, Filter::<KEYS>::salt(view.secret)).unwrap() {
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
                assert_eq!(flipped, Some(clean ^ bent).filter(|change| change.is_power_of_two()));
            }
            // ORDERING: Relaxed: one thread.
            place.store(clean, Ordering::Relaxed);
        }
        let absent = (1000..11_000u64).filter(|n| filter.lacks(&view, key_part(&n.to_be_bytes())));
        assert!(absent.count() > 9_000);
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
/// Words are loom's atomics and a cell a unit watches the bytes of nodes, on the production code. All actors are
/// spawned threads. Each model names the planted bugs that turn it red.
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
            let options =
                MemTableOptions::builder().write_buffer_size(1 << 16).seed(1).whole_key_filter(0.007);
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
