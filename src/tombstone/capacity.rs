//! The capacity of an index: a number of tombstones, and the most bytes that an index of so many
//! allocates. The table's limit of memory counts these bytes before a tombstone is written.

#![forbid(unsafe_code)]

use crate::sync::Published;
use crate::tombstone::coverage_node::CoverageNode;
use crate::tombstone::record_log::{FIRST_RECORDS, RecordWords};
use crate::tombstone::segments::Segments;
use crate::tombstone::tree::{BLOCK, RADIX_BITS, SUMMARY_RECORDS_MAX, SummaryNode, Tree};

/// More summary nodes than an index ever has: each covers at least an eighth more records than the
/// one before, and only the last one may cover more than `SUMMARY_RECORDS_MAX`.
const SUMMARY_NODES_MAX: u64 = 80;

/// The number of records that an index holds, or has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load(u64);

impl Load {
    /// The load of an index with this number of tombstones.
    pub(crate) fn of(tombstones: u64) -> Load {
        Load(tombstones)
    }

    /// The sum of both.
    pub(crate) fn plus(self, more: Load) -> Load {
        Load(self.0 + more.0)
    }

    /// The sum of this and `more`, and the most bytes that an index of the sum allocates.
    pub(crate) fn with(self, more: Load) -> (Load, u64) {
        let load = self.plus(more);
        (load, load.bytes_max())
    }

    /// The rest after `less` is subtracted; nothing if `less` is larger.
    pub(crate) fn without(self, less: Load) -> Load {
        Load(self.0.saturating_sub(less.0))
    }

    /// The part of this load that does not fit into `room`; `None` if `room` is large enough.
    pub(crate) fn missing_in(self, room: Load) -> Option<Load> {
        Some(self.without(room)).filter(|missing| *missing != Load::default())
    }

    /// The most bytes that the freeze adds to an index of this load: one summary node over all
    /// records.
    pub(crate) fn finish_bytes_max(self) -> u64 {
        CoverageNode::bytes_max(self.0)
    }

    /// The most bytes that an index of this load allocates: the log, nodes of all levels, summary
    /// nodes, and what the freeze adds.
    pub(crate) fn bytes_max(self) -> u64 {
        let Load(records) = self;
        if records == 0 {
            return 0;
        }
        let block = u64::from(BLOCK);
        let stored = size_of::<Tree>() as u64
            + Segments::<RecordWords, FIRST_RECORDS>::bytes_max(records)
            + Segments::<Published<CoverageNode>, 4>::bytes_max(2 * records / block)
            + Segments::<Published<SummaryNode>, 4>::bytes_max(SUMMARY_NODES_MAX);
        let spans = (0..)
            .map(|level| block << (RADIX_BITS * level))
            .take_while(|span| *span <= records);
        let nodes: u64 = spans
            .map(|span| records / span * CoverageNode::bytes_max(span))
            .sum();
        // Each summary node covers at least an eighth more records than the one before, so all of
        // them together cover at most nine times as many as the last one.
        let summaries = 9 * CoverageNode::bytes_max(records.min(SUMMARY_RECORDS_MAX.into()));
        stored + nodes + summaries + self.finish_bytes_max()
    }
}
