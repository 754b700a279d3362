//! The filters of a table: of whole keys, of prefixes, both, or none. A writer adds a key before it
//! publishes the entry, and a reader asks before it searches.
//!
//! Any thread; lock-free, but for what `parts.rs` says of a first or next part.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Salt;
use crate::integrity::digest::key_part;
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::extractor::PrefixExtractor;
use crate::memtable::filter::bloom::{Announced, Filter, KEYS, Mark, PREFIXES, Probe};
use crate::memtable::filter::checked_lines::{Line, Lines};
use crate::memtable::filter::parts::Parts;
use crate::memtable::options::{KeyFilter, MemTableOptions};

/// The filters of a table.
#[derive(Default)]
pub(crate) struct Filters {
    keys: Option<Box<Filter<KEYS>>>,
    prefixes: Option<(Box<Filter<PREFIXES>>, Arc<dyn PrefixExtractor>)>,
}

impl Filters {
    /// Makes the filters that the options name, empty.
    pub(crate) fn make(&mut self, options: &MemTableOptions, arena: &Arena) -> Result<()> {
        let lines = |share| Lines::count_in(options.bytes_of_share(share));
        self.keys = match options.key_filter() {
            KeyFilter::Off => None,
            KeyFilter::Share(share) => Some(Box::new(Filter::fixed(arena, lines(share))?)),
            KeyFilter::Bits(bits) => {
                let secret = arena.control.secret()?;
                let filter = Filter::growing(secret, options.write_buffer_size, bits.into());
                Some(Box::new(filter))
            }
        };
        if let Some((extractor, share)) = &options.prefix_filter {
            let filter = Filter::fixed(arena, lines(*share))?;
            self.prefixes = Some((Box::new(filter), Arc::clone(extractor)));
        }
        Ok(())
    }

    /// Bytes of heap memory: the filters' own structs. Their lines are in the arena.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let keys = self.keys.iter().map(|filter| size_of_val(&**filter));
        let prefixes = self
            .prefixes
            .iter()
            .map(|(filter, _)| size_of_val(&**filter));
        keys.chain(prefixes).sum::<usize>() as u64
    }

    #[inline(always)]
    pub(crate) fn has_filters(&self) -> bool {
        self.keys.is_some() || self.prefixes.is_some()
    }

    /// Takes what the first write takes from the arena, so that a write into reserved space takes
    /// no more than that.
    pub(crate) fn begin(&self, arena: &Arena) -> Result<()> {
        match &self.keys {
            Some(filter) => filter.begin(arena, arena.control.secret()?),
            None => Ok(()),
        }
    }

    /// Chooses the bits of a key in the filter of whole keys, and prefetches their line. They
    /// follow from the key's digest part.
    #[inline(never)]
    pub(crate) fn mark(&self, view: &View<'_>, key_part: u64) -> Result<Option<Mark>> {
        match &self.keys {
            Some(filter) => filter.mark(view, key_part).map(Some),
            None => Ok(None),
        }
    }

    /// Adds the key and the prefix of a node that is not published yet (FILTER-1). `mark` is what
    /// [`mark`](Self::mark) returned for the key.
    #[inline(never)]
    pub(crate) fn announce(
        &self,
        view: &View<'_>,
        key: &[u8],
        mark: Option<&Mark>,
    ) -> Result<Announced, Corruption> {
        let mut announced = Announced::Done;
        if let (Some(filter), Some(mark)) = (&self.keys, mark) {
            announced = filter.add(view, mark)?;
        }
        if let Some((filter, extractor)) = &self.prefixes {
            announce_prefix(view, filter, &**extractor, key)?;
        }
        Ok(announced)
    }

    /// Makes the next part of the filter of whole keys if its newest one is full. Called outside
    /// of the announcement, because it takes memory.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow_if_full(&self, view: &View<'_>, mark: Option<&Mark>) {
        if let (Some(filter), Some(mark)) = (&self.keys, mark) {
            filter.grow_if_full(view, mark);
        }
    }

    /// Makes the next part of the filter of whole keys, for a model.
    #[cfg(loom)]
    pub(crate) fn grow(&self, arena: &Arena) {
        let secret = arena.control.secret();
        if let (Some(filter), Ok(secret)) = (&self.keys, secret) {
            filter.grow(arena, secret);
        }
    }

    /// The bits of this key in the filter that point reads use: the filter of whole keys, or else
    /// the prefix filter.
    #[inline(always)]
    pub(crate) fn probe(&self, key: &[u8]) -> Option<Probe> {
        if self.keys.is_some() {
            return Some(Filter::<KEYS>::probe(key_part(key)));
        }
        let (_, extractor) = self.prefixes.as_ref()?;
        Some(Filter::<PREFIXES>::probe(key_part(extractor.prefix(key)?)))
    }

    /// The line that most likely has these bits, in the filter that point reads use.
    #[inline(always)]
    pub(crate) fn likely_line(&self, probe: &Probe) -> Option<Line> {
        match (&self.keys, &self.prefixes) {
            (Some(filter), _) => Some(filter.likely_line(probe)),
            (None, Some((filter, _))) => Some(filter.likely_line(probe)),
            (None, None) => None,
        }
    }

    /// Whether no entry has this key, according to the filter that point reads use.
    #[inline(always)]
    pub(crate) fn lacks(&self, view: &View<'_>, key: &[u8]) -> bool {
        self.probe(key)
            .is_some_and(|probe| self.are_missing(view, probe))
    }

    /// Whether the filter that point reads use lacks these bits, so that no entry has the key.
    #[inline(always)]
    pub(crate) fn are_missing(&self, view: &View<'_>, probe: Probe) -> bool {
        match &self.keys {
            Some(filter) => filter.misses(view, probe),
            None => self
                .prefixes
                .as_ref()
                .is_some_and(|(filter, _)| filter.misses(view, probe)),
        }
    }

    /// Whether no entry has a key that starts with these bytes, according to the prefix filter.
    pub(crate) fn lacks_prefix(&self, view: &View<'_>, start: &[u8]) -> bool {
        let Some((filter, extractor)) = &self.prefixes else {
            return false;
        };
        let prefix = extractor.shared_prefix(start);
        prefix.is_some_and(|prefix| filter.lacks(view, key_part(prefix)))
    }

    /// The parts of each filter, and the salt of their control words.
    pub(crate) fn parts(&self, secret: Secret) -> impl Iterator<Item = (&Parts, Salt)> {
        let keys = self
            .keys
            .iter()
            .map(move |filter| (&filter.parts, Filter::<KEYS>::salt(secret)));
        let prefixes = self.prefixes.iter();
        keys.chain(
            prefixes.map(move |(filter, _)| (&filter.parts, Filter::<PREFIXES>::salt(secret))),
        )
    }
}

/// Adds the prefix of a key, if the key is inside the extractor's domain.
#[inline(never)]
fn announce_prefix(
    view: &View<'_>,
    filter: &Filter<PREFIXES>,
    extractor: &dyn PrefixExtractor,
    key: &[u8],
) -> Result<(), Corruption> {
    if let Some(prefix) = extractor.prefix(key) {
        let mark = filter.mark_single(view, key_part(prefix))?;
        filter.add(view, &mark)?;
    }
    Ok(())
}
