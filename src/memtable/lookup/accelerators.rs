//! The accelerators of a table: its filters. They are made once, empty. A writer adds a key before
//! its entry is published, and a reader asks before it searches.
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
use crate::memtable::lookup::filter::{Bits, Filter, KEYS, PREFIXES};
use crate::memtable::lookup::lines::Lines;
use crate::memtable::options::MemTableOptions;

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
        if let Some(bits) = self
            .keys
            .as_ref()
            .and_then(|filter| filter.bits(view.secret, key_part))
        {
            bits.line.prefetch(view);
        }
    }

    /// Adds key and prefix of a node that is not published yet to the filters.
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

    /// The bits of this key in the filter that point reads use: that of whole keys, if there is
    /// one.
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
        self.bits(view.secret, key)
            .is_some_and(|bits| self.are_missing(view, bits))
    }

    /// Whether a bit is missing in the filter that point reads use, so that no entry has the key.
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

    /// Whether a filter says that no entry has a key that starts with these bytes.
    pub(crate) fn lacks_prefix(&self, view: &View<'_>, start: &[u8]) -> bool {
        let Some((filter, extractor)) = &self.prefixes else {
            return false;
        };
        let prefix = extractor.shared_prefix(start);
        prefix.is_some_and(|prefix| filter.lacks(view, key_part(prefix)))
    }

    /// The lines of each filter, with the salt of their control words.
    pub(crate) fn lines(&self, secret: Secret) -> impl Iterator<Item = (&Lines, Salt)> {
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
