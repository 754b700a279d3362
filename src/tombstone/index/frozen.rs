//! The tombstone index of an immutable table, built once from all range-tombstone entries without holding a lock.
//!
//! ```text
//!   truth (verified as it is read) -> sorted by sequence number -> log, nodes, one summary node over all
//!   snapshot at or above the largest sequence number: the summary node, one binary search
//!   older snapshot: the summary node says "nobody", or is visible, or its nodes are opened
//! ```
//! * FROZEN-INDEX-1: a tombstone that fails to verify is not skipped silently. The failure is kept, and every query
//!   whose answer the lost tombstone could change returns it.
//!
//! Who may call what: everything, any thread. The index never changes after `build`.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::error::{Corruption, Error, Result};
use crate::integrity::tag::Secret;
use crate::key::SequenceNumber;
use crate::tombstone::index::live::{CoveringRun, LiveIndex};
use crate::tombstone::index::query::{Asked, Question};

type Checked<T> = std::result::Result<T, Corruption>;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct FrozenTombstones {
    index: LiveIndex,
    failure: Option<Corruption>,
}

impl FrozenTombstones {
    /// Builds the index of all tombstones that `truth` yields. O(n log n).
    ///
    /// Errors other than corruption, such as a key that is too long or an empty range, end the build, because no
    /// table contains such a tombstone.
    pub(crate) fn build<K: AsRef<[u8]>>(
        comparator: &KeyComparator,
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

    /// The first tombstone that failed to verify in `build`. A caller with another, intact copy queries that one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn failure(&self) -> Option<Corruption> {
        self.failure
    }

    /// See [`LiveIndex::max_covering`].
    #[inline]
    pub(crate) fn max_covering(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
    ) -> Checked<Option<SequenceNumber>> {
        let answer = self.index.max_covering(comparator, question)?;
        self.admit(question, answer)?;
        Ok(answer)
    }

    /// See [`LiveIndex::ask`]. Fails if a tombstone was lost in `build`; `max_covering` may still answer single keys
    /// then.
    pub(crate) fn ask(
        &self,
        comparator: &KeyComparator,
        snapshot: SequenceNumber,
        asked: &mut [Asked<'_>],
    ) -> Checked<()> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.index.ask(comparator, snapshot, asked),
        }
    }

    /// See [`LiveIndex::covering_run_into`].
    pub(crate) fn covering_run_into(
        &self,
        comparator: &KeyComparator,
        question: Question<'_>,
        run: &mut CoveringRun,
    ) -> Checked<Option<()>> {
        let answer = self.index.covering_run_into(comparator, question, run)?;
        self.admit(question, answer.map(|()| run.sequence))?;
        Ok(answer)
    }

    /// FROZEN-INDEX-1: if a tombstone was lost, an answer stands only if no tombstone could exceed it.
    #[inline(always)]
    fn admit(&self, question: Question<'_>, answer: Option<SequenceNumber>) -> Checked<()> {
        match self.failure {
            Some(failure) if answer.unwrap_or(question.floor) < question.snapshot => Err(failure),
            _ => Ok(()),
        }
    }

    /// Number of tombstones in the index.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> Checked<u32> {
        self.index.len()
    }

    /// See [`LiveIndex::held`]. `None` if a tombstone was lost in `build`.
    pub(crate) fn held(&self) -> Option<u64> {
        self.failure.is_none().then(|| self.index.held())
    }

    /// Bytes of heap memory.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.index.allocated_bytes()
    }

    /// See [`LiveIndex::scrub`]. Reports tombstones that were lost in `build`, too.
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
