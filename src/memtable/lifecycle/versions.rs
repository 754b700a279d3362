//! The versions of a key that a flush keeps.
//!
//! A version is left out only if every snapshot that could see it sees a newer version of its key.
//! Bases of merge operands, single deletes, and versions older than a single delete are kept.

#![forbid(unsafe_code)]

use std::hint::black_box;

use crate::key::SequenceNumber;
use crate::kind::Kind;
use crate::sort::sorted_by;

/// The versions of a key that a flush passes to its sink.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::flush::Versions;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::default();
/// for sequence in 1..=3 {
///     table.put(sequence, b"key", b"value")?;
/// }
/// let frozen = table.freeze()?;
/// for (versions, passed) in [(Versions::SeenBy(&[]), 1), (Versions::SeenBy(&[2]), 2), (Versions::All, 3)] {
///     let mut flush = frozen.flush_iter(versions)?;
///     while flush.next()?.is_some() {}
///     assert_eq!(flush.summary().map(|summary| summary.entries), Some(passed));
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Versions<'s> {
    /// The versions that a read could need at the newest sequence number or at one of these
    /// snapshots, which may be in any order.
    SeenBy(&'s [SequenceNumber]),
    /// All versions, also those that no snapshot sees.
    All,
}

/// A filter that decides which versions of a key are needed. It gets the versions newest first.
#[derive(Debug)]
pub(crate) struct VersionFilter {
    /// The snapshots, ascending. `None`: every version is needed.
    pub(crate) snapshots: Option<Vec<SequenceNumber>>,
    /// The snapshot stripe of the last version that hides older ones: snapshots from this index on
    /// see that version.
    stripe: Option<usize>,
    /// Whether a newer version of this key is a single delete.
    below_single: bool,
    /// The version of this key that was admitted last.
    admitted: Option<SequenceNumber>,
}

impl VersionFilter {
    /// A filter for the versions of one key after another.
    pub(crate) fn new(versions: Versions<'_>) -> Self {
        let snapshots = match versions {
            Versions::SeenBy(snapshots) => Some(sorted_by(snapshots, Ord::cmp)),
            Versions::All => None,
        };
        VersionFilter {
            snapshots,
            stripe: None,
            below_single: false,
            admitted: None,
        }
    }

    /// Begins another key.
    pub(crate) fn start_key(&mut self) {
        self.stripe = None;
        self.below_single = false;
        self.admitted = None;
    }

    /// Whether every snapshot that sees a version also sees a newer one of the same key. O(log
    /// snapshots).
    pub(crate) fn is_one_stripe(&self, sequence: SequenceNumber, newer: SequenceNumber) -> bool {
        let stripe = |number| {
            black_box(&self.snapshots)
                .as_ref()
                .map(|all| all.partition_point(|at| *at < number))
        };
        stripe(sequence).is_some() && stripe(sequence) == stripe(newer)
    }

    /// Whether a reader may need this version. O(log snapshots).
    pub(crate) fn admits(&mut self, sequence: SequenceNumber, kind: Kind) -> bool {
        let Some(snapshots) = &self.snapshots else {
            return true;
        };
        // Snapshots from this index on see this version; snapshots before it do not.
        let stripe = snapshots.partition_point(|snapshot| *snapshot < sequence);
        let answered = self.stripe == Some(stripe);
        self.below_single |= kind == Kind::SINGLE_DELETE;
        if kind != Kind::MERGE {
            self.stripe = Some(stripe);
        }
        // Neither of two duplicates is newer than the other.
        let twin = self.admitted == Some(sequence);
        let admits = !answered || twin || self.below_single;
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
        let mut filter = VersionFilter::new(Versions::SeenBy(snapshots));
        versions
            .iter()
            .filter(|(sequence, kind)| filter.admits(*sequence, *kind))
            .map(|v| v.0)
            .collect()
    }

    #[test]
    fn versions_between_snapshots() {
        let puts = [9, 8, 7, 5, 4, 2].map(|sequence| (sequence, Kind::PUT));
        assert_eq!(kept(&[], &puts), [9]);
        assert_eq!(kept(&[7], &puts), [9, 7]);
        assert_eq!(kept(&[3, 6], &puts), [9, 5, 2]);
        assert_eq!(kept(&[1, 100], &puts), [9]);
        let twins = [9, 9, 7, 7, 5, 5, 5].map(|sequence| (sequence, Kind::PUT));
        assert_eq!(
            kept(&[6], &twins),
            [9, 9, 5, 5, 5],
            "all versions of a number, or none"
        );
    }

    #[test]
    fn merges_and_single_deletes_keep_older_versions() {
        let merges = [
            (9, Kind::MERGE),
            (8, Kind::MERGE),
            (7, Kind::PUT),
            (6, Kind::PUT),
        ];
        assert_eq!(kept(&[], &merges), [9, 8, 7]);
        let singles = [
            (9, Kind::PUT),
            (8, Kind::SINGLE_DELETE),
            (7, Kind::PUT),
            (6, Kind::PUT),
        ];
        assert_eq!(kept(&[], &singles), [9, 8, 7, 6]);
    }
}
