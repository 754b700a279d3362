//! Flush: every entry in order, verified, to a sink, and the sums compared with those of the freeze.
//!
//! ```text
//!   control block -> point entries: key verified, value copied, copy verified -> sink.entry
//!                 -> range tombstones, verified, cut into fragments by snapshots -> sink.fragment
//!                 -> counts and digest sums == those sealed at the freeze; as many tombstones in the indexes
//! ```
//! * FLUSH-1: what the sink gets has been verified; a pass that returns `Ok` has seen every entry that was written.
//! * FLUSH-2: `Err` means that the sink's output must be thrown away: it is a prefix at best.
//! * FLUSH-3: with `HiddenVersions::Drop` a version is left out only if a newer one of the same key stands between it
//!   and every snapshot. What merge operands stand on, single deletes, and all below one, is kept. Duplicates that a
//!   `Vector` table took are not newer than each other: all of them are handed out, or none.
//!
//! Any thread; several flushes of one table may run at once.

#![forbid(unsafe_code)]

use std::error::Error as StdError;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::integrity::digest::StoredProtection;
use crate::key::{Comparator, Kind, SequenceNumber};
use crate::memtable::core::Core;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::representation::{END, Ordered, Spot};
use crate::memtable::parts::writer_shards::Hidden;
use crate::memtable::parts::writer_shards::Totals;
use crate::memtable::scan::tombstones::{NextOf, Take, copy, fragments};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::iterate::ReadAhead;
use crate::memtable::skiplist::node::Verified;
use crate::planted::{Bug, planted};
use crate::tombstone::fragment::fragments::Fragment;

/// Why a sink refuses.
pub type SinkError = Box<dyn StdError + Send + Sync>;

/// Takes what a flush produces: first all entries, then all fragments, each in ascending order.
pub trait FlushSink {
    /// The next entry: user keys ascend, sequence numbers descend within a key. Both may be those of the entry before
    /// only if [`freeze`](crate::MemTable::freeze) answered `DuplicateEntry`.
    ///
    /// # Errors
    /// Whatever stops the flush; it comes back as `Error::Sink`.
    fn entry(&mut self, entry: FlushEntry<'_>) -> std::result::Result<(), SinkError>;

    /// The next range tombstone fragment: starts ascend.
    ///
    /// # Errors
    /// Whatever stops the flush; it comes back as `Error::Sink`.
    fn fragment(&mut self, fragment: Fragment<'_>) -> std::result::Result<(), SinkError>;
}

/// A verified entry on its way to a file.
#[derive(Clone, Copy)]
pub struct FlushEntry<'a> {
    /// The user key.
    pub user_key: &'a [u8],
    /// The sequence number.
    pub sequence: SequenceNumber,
    /// The kind.
    pub kind: Kind,
    /// A copy of the value, verified after it was made.
    pub value: &'a [u8],
    /// The digests that the table stored when the entry was written: the next stage compares its own bytes with them.
    pub protection: StoredProtection,
}

impl<'a> FlushEntry<'a> {
    /// An entry from somewhere else than a table. Its digests are computed here, over the caller's bytes. O(length).
    #[must_use]
    pub fn new(user_key: &'a [u8], sequence: SequenceNumber, kind: Kind, value: &'a [u8]) -> Self {
        let protection = StoredProtection::of(user_key, value, sequence, kind);
        FlushEntry { user_key, sequence, kind, value, protection }
    }
}

/// What a flush does with versions that no snapshot sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum HiddenVersions {
    /// It leaves them out (default).
    #[default]
    Drop,
    /// It hands them out as well.
    Keep,
}

/// What a flush handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FlushSummary {
    /// Entries given to the sink.
    pub entries: u64,
    /// Entries verified and left out.
    pub hidden: u64,
    /// Fragments given to the sink.
    pub fragments: u64,
    /// Bytes of the keys and values given to the sink.
    pub data_bytes: u64,
}

/// Hands everything that a read at one of `snapshots` or at the newest sequence number could need to the sink.
pub(crate) fn flush<C: Comparator>(
    core: &Arc<Core<C>>,
    snapshots: &[SequenceNumber],
    hidden: HiddenVersions,
    sink: &mut impl FlushSink,
) -> Result<FlushSummary> {
    core.check_control()?;
    let mut pass = Pass {
        core,
        filter: VersionFilter::new(snapshots, hidden),
        buffer: Vec::new(),
        seen: Totals::default(),
        summary: FlushSummary::default(),
    };
    pass.points(sink)?;
    pass.ranges(sink)?;
    if !planted(Bug::FlushForgetsSums) {
        core.compare_sums(&pass.seen)?;
    }
    Ok(pass.summary)
}

/// One pass over a table.
struct Pass<'a, C> {
    core: &'a Arc<Core<C>>,
    filter: VersionFilter,
    buffer: Vec<u8>,
    seen: Totals,
    summary: FlushSummary,
}

impl<'a, C: Comparator> Pass<'a, C> {
    fn points(&mut self, sink: &mut impl FlushSink) -> Result<()> {
        let order = self.core.order(None)?;
        let mut newer: Option<Verified<'a>> = None;
        let mut read_ahead = ReadAhead::default();
        let mut next = order.next_of(END)?;
        while let Some(spot) = next {
            next = order.next_of(spot.at)?;
            if let (Order::List(search), Some(next)) = (&order, &next) {
                search.look_ahead(&mut read_ahead, spot.at, next.at);
            }
            copy(&order, &spot, &mut self.buffer)?;
            let hidden = self.core.points.hidden_by(&self.core.comparator, newer.as_ref(), &spot.entry);
            self.seen.meet(&spot.entry, hidden, order.view());
            if hidden == Hidden::Yes {
                continue;
            }
            let same_key = newer
                .is_some_and(|newer| self.core.comparator.compare(newer.key(), spot.entry.key()).is_eq());
            if !same_key {
                self.filter.start_key();
            }
            newer = Some(spot.entry);
            self.hand_out(&spot, order.view(), sink)?;
        }
        Ok(())
    }

    fn hand_out(&mut self, spot: &Spot<'_>, view: &View<'_>, sink: &mut impl FlushSink) -> Result<()> {
        let (sequence, kind) = (spot.entry.node().sequence(), spot.entry.kind());
        if !self.filter.admits(sequence, kind) {
            self.summary.hidden += 1;
            return Ok(());
        }
        let protection = spot.entry.stored_protection(view.seal());
        let entry =
            FlushEntry { user_key: spot.entry.key(), sequence, kind, value: &self.buffer, protection };
        self.summary.entries += 1;
        self.summary.data_bytes += (entry.user_key.len() + entry.value.len()) as u64;
        sink.entry(entry).map_err(|cause| Error::Sink(cause.into()))
    }

    fn ranges(&mut self, sink: &mut impl FlushSink) -> Result<()> {
        let stripes = match self.filter.hidden {
            HiddenVersions::Drop => Some(self.filter.snapshots.as_slice()),
            HiddenVersions::Keep => None,
        };
        let seen = &mut self.seen;
        let fragments = fragments(self.core, stripes, |entry, view| {
            seen.meet(entry, Hidden::No, view);
            Take::Yes
        })?;
        for fragment in fragments.iter() {
            self.summary.fragments += 1;
            self.summary.data_bytes += (fragment.start().len() + fragment.end().len()) as u64;
            sink.fragment(fragment).map_err(|cause| Error::Sink(cause.into()))?;
        }
        // Fragments are a chain of their own: what was handed out is still what was built.
        fragments.verify()
    }
}

/// Decides which versions of a key are needed (FLUSH-3). Versions come newest first.
#[derive(Debug)]
struct VersionFilter {
    /// Ascending.
    snapshots: Vec<SequenceNumber>,
    hidden: HiddenVersions,
    /// The shard that a newer version already answers: snapshots below index n do not see it.
    shard: Option<usize>,
    /// A single delete of this key was met.
    below_single: bool,
    /// The version of this key that was admitted last.
    admitted: Option<SequenceNumber>,
}

impl VersionFilter {
    /// For the versions of one key after the other.
    fn new(snapshots: &[SequenceNumber], hidden: HiddenVersions) -> Self {
        let mut snapshots = snapshots.to_vec();
        snapshots.sort_unstable();
        VersionFilter { snapshots, hidden, shard: None, below_single: false, admitted: None }
    }

    fn start_key(&mut self) {
        self.shard = None;
        self.below_single = false;
        self.admitted = None;
    }

    fn admits(&mut self, sequence: SequenceNumber, kind: Kind) -> bool {
        // Snapshots from here on see this version; those before do not.
        let shard = self.snapshots.partition_point(|snapshot| *snapshot < sequence);
        let answered = self.shard == Some(shard);
        self.below_single |= kind == Kind::SINGLE_DELETE;
        if kind != Kind::MERGE {
            self.shard = Some(shard);
        }
        // Neither of two duplicates is newer than the other.
        let twin = self.admitted == Some(sequence);
        let admits = !answered || twin || self.below_single || self.hidden == HiddenVersions::Keep;
        if admits {
            self.admitted = Some(sequence);
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(snapshots: &[u64], versions: &[(u64, Kind)]) -> Vec<u64> {
        let mut filter = VersionFilter::new(snapshots, HiddenVersions::Drop);
        versions.iter().filter(|(sequence, kind)| filter.admits(*sequence, *kind)).map(|v| v.0).collect()
    }

    #[test]
    fn versions_between_snapshots() {
        let puts = [9, 8, 7, 5, 4, 2].map(|sequence| (sequence, Kind::PUT));
        assert_eq!(kept(&[], &puts), [9]);
        assert_eq!(kept(&[7], &puts), [9, 7]);
        assert_eq!(kept(&[3, 6], &puts), [9, 5, 2]);
        assert_eq!(kept(&[1, 100], &puts), [9]);
        let twins = [9, 9, 7, 7, 5, 5, 5].map(|sequence| (sequence, Kind::PUT));
        assert_eq!(kept(&[6], &twins), [9, 9, 5, 5, 5], "all of a number or none");
    }

    #[test]
    fn merges_and_single_deletes_keep_what_they_stand_on() {
        let merges = [(9, Kind::MERGE), (8, Kind::MERGE), (7, Kind::PUT), (6, Kind::PUT)];
        assert_eq!(kept(&[], &merges), [9, 8, 7]);
        let singles = [(9, Kind::PUT), (8, Kind::SINGLE_DELETE), (7, Kind::PUT), (6, Kind::PUT)];
        assert_eq!(kept(&[], &singles), [9, 8, 7, 6]);
    }
}
