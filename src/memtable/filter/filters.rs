//! The filters of a table: of whole keys, of prefixes, both, or none. They are made once, empty. A
//! writer adds a key before it publishes the entry, and a reader asks before it searches.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Salt;
use crate::integrity::digest::key_part;
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::{Arena, SubChunk, View};
use crate::memtable::extractor::PrefixExtractor;
use crate::memtable::filter::bloom::{Bits, Filter, KEYS, PREFIXES};
use crate::memtable::filter::checked_lines::CheckedLines;
use crate::memtable::options::MemTableOptions;

/// The filters of a table.
#[derive(Default)]
pub(crate) struct Filters {
    keys: Option<Filter<KEYS>>,
    prefixes: Option<(Filter<PREFIXES>, Arc<dyn PrefixExtractor>)>,
}

impl Filters {
    /// Makes the filters that the options name, empty.
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

    /// Prefetches the line of a key in the filter of whole keys, before the key is added. The line
    /// follows from the key's digest part.
    #[inline(never)]
    pub(crate) fn prefetch(&self, view: &View<'_>, key_part: u64) {
        if let Some(bits) = self
            .keys
            .as_ref()
            .and_then(|filter| filter.bits(view.secret, key_part))
        {
            bits.line.prefetch(view);
        }
    }

    /// Adds the key and the prefix of a node that is not published yet (FILTER-1). `hash` is the
    /// key's digest part.
    #[inline(never)]
    pub(crate) fn announce(
        &self,
        view: &View<'_>,
        key: &[u8],
        hash: u64,
    ) -> Result<(), Corruption> {
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

    /// The bits of this key in the filter that point reads use: the filter of whole keys, or else
    /// the prefix filter.
    #[inline(always)]
    pub(crate) fn bits(&self, secret: Secret, key: &[u8]) -> Option<Bits> {
        if let Some(filter) = &self.keys {
            return filter.bits(secret, key_part(key));
        }
        let (filter, extractor) = self.prefixes.as_ref()?;
        filter.bits(secret, key_part(extractor.prefix(key)?))
    }

    /// Whether no entry has this key, according to the filter that point reads use.
    #[inline(always)]
    pub(crate) fn lacks(&self, view: &View<'_>, key: &[u8]) -> bool {
        self.bits(view.secret, key)
            .is_some_and(|bits| self.are_missing(view, bits))
    }

    /// Whether the filter that point reads use lacks one of these bits, so that no entry has the
    /// key.
    #[inline(always)]
    pub(crate) fn are_missing(&self, view: &View<'_>, bits: Bits) -> bool {
        match &self.keys {
            Some(filter) => filter.misses(view, bits),
            None => self
                .prefixes
                .as_ref()
                .is_some_and(|(filter, _)| filter.misses(view, bits)),
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

    /// The lines of each filter, and the salt of their control words.
    pub(crate) fn lines(&self, secret: Secret) -> impl Iterator<Item = (&CheckedLines, Salt)> {
        let keys = self
            .keys
            .iter()
            .map(move |filter| (&filter.lines, Filter::<KEYS>::salt(secret)));
        let prefixes = self.prefixes.iter();
        keys.chain(
            prefixes.map(move |(filter, _)| (&filter.lines, Filter::<PREFIXES>::salt(secret))),
        )
    }
}
