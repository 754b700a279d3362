//! The tombstones of an immutable table: built once from the complete truth, off every lock.
//!
//! ```text
//!   truth (verified as it is read) -> sorted by sequence number -> log, nodes, one summary node over all
//!   snapshot at or above the largest sequence number: the summary node, one binary search
//!   older snapshot: the summary node says "nobody", or is visible, or its nodes are opened
//! ```
//! * FROZEN-INDEX-1: input that fails to verify is never dropped: the failure is kept, and every answer that the lost
//!   tombstone could change is that failure.
//!
//! Who may call what: everything, any thread. Nothing changes after `build`.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Error, Result};
use crate::integrity::tag::Secret;
use crate::key::{Comparator, SequenceNumber};
use crate::tombstone::index::live::{CoveringRun, LiveIndex};
use crate::tombstone::index::query::Asked;

type Checked<T> = std::result::Result<T, Corruption>;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct FrozenTombstones {
    index: LiveIndex,
    failure: Option<Corruption>,
}

impl FrozenTombstones {
    /// Reads the truth to its end. O(n log n).
    ///
    /// Errors other than corruption (a key that is too long, an empty range) end the build: such a tombstone could
    /// never have been in a table.
    pub(crate) fn build<C: Comparator, K: AsRef<[u8]>>(
        comparator: &C,
        secret: Secret,
        truth: impl IntoIterator<Item = Checked<(K, K, SequenceNumber)>>,
    ) -> Result<Self> {
        let truth = truth.into_iter();
        let mut failure = None;
        let mut tombstones = Vec::with_capacity(truth.size_hint().0);
        for tombstone in truth {
            match tombstone {
                Ok(tombstone) => tombstones.push(tombstone),
                Err(corruption) => failure = failure.or(Some(corruption)),
            }
        }
        let mut order: Vec<(SequenceNumber, usize)> =
            tombstones.iter().enumerate().map(|(at, (_, _, sequence))| (*sequence, at)).collect();
        order.sort_unstable_by_key(|(sequence, _)| *sequence);
        let index = LiveIndex::new(secret);
        for (start, end, sequence) in order.iter().filter_map(|(_, at)| tombstones.get(*at)) {
            match index.append(comparator, start.as_ref(), end.as_ref(), *sequence) {
                Ok(()) => {}
                Err(Error::Corruption(corruption)) => failure = failure.or(Some(corruption)),
                Err(error) => return Err(error),
            }
        }
        index.finish(comparator);
        Ok(FrozenTombstones { index, failure })
    }

    /// What failed to verify while building, if anything did. A caller with another intact copy asks that one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn failure(&self) -> Option<Corruption> {
        self.failure
    }

    /// As [`LiveIndex::max_covering`].
    #[inline]
    pub(crate) fn max_covering<C: Comparator>(
        &self,
        comparator: &C,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
    ) -> Checked<Option<SequenceNumber>> {
        let answer = self.index.max_covering(comparator, key, snapshot, floor)?;
        self.admit(snapshot, floor, answer)?;
        Ok(answer)
    }

    /// As [`LiveIndex::ask`]; with a tombstone lost, keys must be asked about one by one.
    pub(crate) fn ask<C: Comparator>(
        &self,
        comparator: &C,
        snapshot: SequenceNumber,
        asked: &mut [Asked<'_>],
    ) -> Checked<()> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.index.ask(comparator, snapshot, asked),
        }
    }

    /// As [`LiveIndex::covering_run_into`].
    pub(crate) fn covering_run_into<C: Comparator>(
        &self,
        comparator: &C,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
        run: &mut CoveringRun,
    ) -> Checked<Option<()>> {
        let answer = self.index.covering_run_into(comparator, key, snapshot, floor, run)?;
        self.admit(snapshot, floor, answer.map(|()| run.sequence))?;
        Ok(answer)
    }

    /// FROZEN-INDEX-1: with a tombstone lost, only an answer that nothing could exceed stands.
    #[inline(always)]
    fn admit(
        &self,
        snapshot: SequenceNumber,
        floor: SequenceNumber,
        answer: Option<SequenceNumber>,
    ) -> Checked<()> {
        match self.failure {
            Some(failure) if answer.unwrap_or(floor) < snapshot => Err(failure),
            _ => Ok(()),
        }
    }

    /// How many tombstones were read.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> Checked<u32> {
        self.index.len()
    }

    /// As [`LiveIndex::held`], with those that were lost in building: nothing can be said about them.
    pub(crate) fn held(&self) -> Option<u64> {
        self.failure.is_none().then(|| self.index.held())
    }

    /// Bytes of heap memory.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.index.allocated_bytes()
    }

    /// As [`LiveIndex::scrub`]; reports what was lost in building too.
    pub(crate) fn scrub(&self, report: &mut dyn FnMut(Corruption)) {
        if let Some(failure) = self.failure {
            report(failure);
        }
        self.index.scrub(&mut || (), report);
    }

    /// The index, for the fault injector and for tests.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn index(&self) -> &LiveIndex {
        &self.index
    }
}
