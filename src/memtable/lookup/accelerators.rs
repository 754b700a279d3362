//! The accelerators of a table (its filters) and its counters. They are made once, empty. A writer adds a key before its
//! entry is published, and a reader asks before it searches.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::{Corruption, Result};
use crate::integrity::control_word::Words;
use crate::integrity::digest::key_part;
use crate::integrity::tag::Secret;
use crate::memtable::lookup::filter::{Answer, Bits, Filter, KEYS, PREFIXES};
use crate::memtable::lookup::statistics::{Event, Statistics};
use crate::memtable::options::MemTableOptions;
use crate::memtable::prefix::PrefixExtractor;
#[cfg(feature = "fault-injection")]
use crate::memtable::side_structure::VisitWords;
use crate::memtable::side_structure::{Report, Settle, SideStructure};
use crate::memtable::skiplist::arena::{Arena, SubChunk, View};

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Accelerators {
    keys: Option<Filter<KEYS>>,
    prefixes: Option<(Filter<PREFIXES>, Arc<dyn PrefixExtractor>)>,
    pub(crate) statistics: Option<Statistics>,
}

/// Whether a table has accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortcuts {
    None,
    Some,
}

impl Accelerators {
    /// Empty accelerators of the sizes that the options name.
    pub(crate) fn new(options: &MemTableOptions, arena: &Arena) -> Result<Accelerators> {
        let mut sub = SubChunk::default();
        let keys = options.key_filter_bytes.map(|bytes| Filter::new(arena, &mut sub, bytes)).transpose()?;
        let prefixes =
            options.prefix_filter_bytes.map(|bytes| Filter::new(arena, &mut sub, bytes)).transpose()?;
        let prefixes = prefixes.zip(options.prefix_extractor.clone());
        let statistics = options.counts_reads().then(Statistics::new);
        Ok(Accelerators { keys, prefixes, statistics })
    }

    #[inline(always)]
    pub(crate) fn shortcuts(&self) -> Shortcuts {
        if self.keys.is_none() && self.prefixes.is_none() {
            return Shortcuts::None;
        }
        Shortcuts::Some
    }

    /// Adds key and prefix of a node that is not published yet to the filters.
    #[inline]
    pub(crate) fn announce(&self, view: &View<'_>, key: &[u8], key_part: u64) -> Result<(), Corruption> {
        if let Some(filter) = &self.keys {
            filter.add(view, key_part)?;
        }
        if let Some((filter, extractor)) = &self.prefixes
            && let Some(prefix) = extractor.prefix(key)
        {
            filter.add(view, hash_of(prefix))?;
        }
        Ok(())
    }

    /// The bits of this key in the filter that point reads use: that of whole keys, if there is one.
    #[inline(always)]
    pub(crate) fn bits(&self, secret: Secret, key: &[u8], key_part: u64) -> Option<Bits> {
        if let Some(filter) = &self.keys {
            return filter.bits(secret, key_part);
        }
        let (filter, extractor) = self.prefixes.as_ref()?;
        filter.bits(secret, hash_of(extractor.prefix(key)?))
    }

    /// Whether entries may have keys that start with these bytes.
    pub(crate) fn may_start_with(&self, view: &View<'_>, start: &[u8]) -> Answer {
        let Some((filter, extractor)) = &self.prefixes else { return Answer::Perhaps };
        match extractor.shared_prefix(start) {
            Some(prefix) => filter.ask(view, hash_of(prefix)),
            None => Answer::Perhaps,
        }
    }

    /// The structures that exist.
    fn structures(&self) -> impl Iterator<Item = &dyn SideStructure> {
        let keys = self.keys.iter().map(|filter| filter as &dyn SideStructure);
        keys.chain(self.prefixes.iter().map(|(filter, _)| filter as &dyn SideStructure))
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event, count: u64) {
        if let Some(statistics) = &self.statistics {
            statistics.add(event, count);
        }
    }
}

impl SideStructure for Accelerators {
    fn each_control(&self, secret: Secret, visit: &mut dyn FnMut(Words<'_>)) {
        self.structures().for_each(|structure| structure.each_control(secret, visit));
    }

    /// Filters are in the arena; counters are not.
    fn heap_bytes(&self) -> u64 {
        self.statistics.as_ref().map_or(0, Statistics::bytes)
    }

    fn scrub(
        &self,
        arena: &Arena,
        settle: &mut Settle<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), Corruption> {
        self.structures().try_for_each(|structure| structure.scrub(arena, settle, report))
    }

    #[cfg(feature = "fault-injection")]
    fn fault_words(&self, arena: &Arena, visit: &mut VisitWords<'_>) -> Result<(), Corruption> {
        self.structures().try_for_each(|structure| structure.fault_words(arena, visit))
    }
}

/// K of a key, from which filters start.
#[inline(always)]
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    key_part(key)
}
