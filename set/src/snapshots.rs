//! Snapshots: the sequence numbers at which an engine still reads.
//!
//! * SNAPSHOT-1: a snapshot loads the visible number and is registered under one lock. So a
//!   snapshot that is not in a list taken under that lock is at least as new as what was visible
//!   then.
//!
//! Any thread. A snapshot keeps no memory of tables.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::publication::Publication;
use paranoid_memtable::sibling::Mutex;
use paranoid_memtable::{Result, SequenceNumber, shown};

/// The snapshots of one set, and its visible number.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) publication: Publication,
    /// The number of snapshots at each sequence number.
    live: Mutex<BTreeMap<SequenceNumber, u64>>,
}

impl Registry {
    pub(crate) fn new(publication: Publication) -> Self {
        Registry {
            publication,
            live: Mutex::new(BTreeMap::new()),
        }
    }

    /// Makes a snapshot at the visible number (SNAPSHOT-1).
    pub(crate) fn register(self: &Arc<Self>) -> Snapshot {
        let mut live = self.live.lock();
        let sequence = self.publication.visible();
        *live.entry(sequence).or_default() += 1;
        drop(live);
        Snapshot {
            registry: Arc::clone(self),
            sequence,
        }
    }

    /// Waits until `last` is visible, and returns the numbers of all snapshots, ascending.
    /// Snapshots that are registered later see `last` (SNAPSHOT-1).
    ///
    /// # Errors
    /// `ReadOnly` if `last` never will be visible.
    pub(crate) fn numbers_after(&self, last: SequenceNumber) -> Result<Vec<SequenceNumber>> {
        self.publication.wait_for(last)?;
        Ok(self.numbers())
    }

    /// The numbers of all snapshots, ascending.
    pub(crate) fn numbers(&self) -> Vec<SequenceNumber> {
        self.live.lock().keys().copied().collect()
    }
}

/// A snapshot of a set at one moment. Made by
/// [`MemTableSet::snapshot`](crate::MemTableSet::snapshot). Until it is dropped, reads at it see
/// what was visible then, whatever is written and flushed meanwhile: flushes keep the versions that
/// it needs. A snapshot keeps no memory of tables.
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{MemTableSet, SetOptions, Snapshot};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// let before: Snapshot = set.snapshot();
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// assert_eq!((before.sequence(), set.write(&batch)?), (0, 1));
/// assert!(set.view_at(&before)?.get(b"k")?.found().is_none());
/// # Ok(()) }
/// ```
pub struct Snapshot {
    pub(crate) registry: Arc<Registry>,
    sequence: SequenceNumber,
}

impl Snapshot {
    /// The last sequence number that reads at this snapshot see.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// assert_eq!(set.snapshot().sequence(), 0);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}

shown! { "Snapshot": impl [] Snapshot, |snapshot| { "sequence": snapshot.sequence } }

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut live = self.registry.live.lock();
        if let Some(count) = live.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.sequence);
            }
        }
    }
}
