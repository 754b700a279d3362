//! One source of a compaction, on its next entry.
//!
//! ```text
//!   a table of a flush    its own flush, which verifies each entry and compares sums at the end
//!   an engine's file      a sorted source, and a copy of the entry that it is on
//! ```
//! One thread at a time.

#![forbid(unsafe_code)]

use paranoid_memtable::flush::{FlushEntry, FlushIter};
use paranoid_memtable::integrity::{Place, StoredProtection};
use paranoid_memtable::scan::{SortedSource, SourceKey, SourceMove};
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::{Corruption, Kind, Result, SequenceNumber};

use crate::merging_source::check_move;

/// A copy of an entry. Its digests are those of its table; for an engine's source they are computed
/// from the copy.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: Kind,
    pub(crate) value: Vec<u8>,
    protection: StoredProtection,
}

impl Version {
    pub(crate) fn of(entry: FlushEntry<'_>) -> Self {
        let FlushEntry {
            user_key,
            sequence,
            kind,
            value,
            protection,
        } = entry;
        Version {
            key: user_key.to_vec(),
            sequence,
            kind,
            value: value.to_vec(),
            protection,
        }
    }

    pub(crate) fn entry(&self) -> FlushEntry<'_> {
        let Version {
            key,
            sequence,
            kind,
            value,
            protection,
        } = self;
        FlushEntry {
            user_key: key,
            sequence: *sequence,
            kind: *kind,
            value,
            protection: *protection,
        }
    }

    /// This single delete as a delete, which hides every older version. The digests are rewritten
    /// for the new kind, not computed again from the copy.
    pub(crate) fn into_delete(self) -> Self {
        let protection = self
            .protection
            .rewritten((self.sequence, self.kind), (self.sequence, Kind::DELETE));
        Version {
            kind: Kind::DELETE,
            protection,
            ..self
        }
    }

    /// Compares the copy with its digests.
    pub(crate) fn verify(&self) -> Result<()> {
        verified(self.entry()).map(drop)
    }
}

/// Compares an entry with its digests.
pub(crate) fn verified(entry: FlushEntry<'_>) -> Result<FlushEntry<'_>> {
    let FlushEntry {
        user_key,
        sequence,
        kind,
        value,
        protection,
    } = entry;
    let agrees = protection.check(user_key, value, sequence, kind);
    agrees
        .map(|_| entry)
        .ok_or_else(|| Corruption::new(Place::Value, 0, 0, 0).into())
}

/// Where the entries of a source come from.
pub(crate) enum Entries<'s> {
    /// A table's own flush.
    Table(Box<FlushIter<'s>>),
    /// The source itself: its next move, and a copy of the entry that it is on.
    Source(SourceMove<'static>, Option<Version>),
}

/// One source of the merge, on its next entry.
pub(crate) struct Input<'s> {
    pub(crate) entries: Entries<'s>,
    /// The source that answers for range tombstones.
    pub(crate) source: Box<dyn SortedSource + 's>,
    /// Entries with larger numbers are skipped (COMPACTION-4).
    pub(crate) last: SequenceNumber,
}

impl Input<'_> {
    #[inline(always)]
    pub(crate) fn entry(&self) -> Option<FlushEntry<'_>> {
        match &self.entries {
            Entries::Table(items) => items.entry(),
            Entries::Source(_, version) => version.as_ref().map(Version::entry),
        }
    }

    /// Moves to the next entry. Returns the number of entries skipped. `place` is that of the
    /// source, for errors.
    pub(crate) fn advance(&mut self, comparator: &KeyComparator, place: usize) -> Result<u64> {
        let mut skipped = 0;
        match &mut self.entries {
            Entries::Table(items) => {
                while items
                    .next_entry()?
                    .is_some_and(|entry| entry.sequence > self.last)
                {
                    skipped += 1;
                }
            }
            Entries::Source(next, version) => {
                let last = version.take();
                let to = std::mem::replace(next, SourceMove::Next);
                let Some(found) = self.source.go(to)? else {
                    return Ok(0);
                };
                let from = last
                    .as_ref()
                    .map(|last| (last.key.as_slice(), last.sequence));
                check_move(comparator, place, from, to, &found)?;
                let SourceKey {
                    user_key,
                    sequence,
                    kind,
                } = found;
                let (mut key, mut value) =
                    last.map(|last| (last.key, last.value)).unwrap_or_default();
                key.clear();
                key.extend_from_slice(user_key);
                self.source.value_into(&mut value)?;
                let protection = StoredProtection::of(&key, &value, sequence, kind);
                *version = Some(Version {
                    key,
                    sequence,
                    kind,
                    value,
                    protection,
                });
            }
        }
        Ok(skipped)
    }
}
