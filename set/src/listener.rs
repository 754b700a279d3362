//! Listeners: the events of a set, and their delivery to the engine.
//!
//! An event is queued, often under a lock, and delivered by a thread that has no lock of the set:
//! the thread that queued it, or one that delivers at the same time. A batch with numbers ends
//! before its thread delivers events, because a listener may wait for the batch.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use paranoid_memtable::repair::Healed;
use paranoid_memtable::sibling::{IS_TRACED, Mutex, stalled, stopped};
use paranoid_memtable::{Error, SequenceNumber, StallCause};

/// Receives the events of a set. A thread that works for the set calls the listener, usually the
/// one that caused the event, and continues when the call returns. The thread has no lock of the
/// set, so the listener may call the set. Several threads may call the listener at once, in any
/// order. A panic of the listener is caught and changes nothing.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{Listener, MemTableSet, SetEvent, SetOptions};
/// #[derive(Default)]
/// struct Switches(Mutex<Vec<u64>>);
/// impl Listener for Switches {
///     fn event(&self, event: &SetEvent) {
///         if let SetEvent::Switched { active, .. } = event {
///             self.0.lock().expect("no panic").push(*active);
///         }
///     }
/// }
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let switches = Arc::new(Switches::default());
/// let set = MemTableSet::open(SetOptions::builder().listener(switches.clone()).build()?, ())?;
/// let mut batch = WriteBatch::new();
/// batch.put(b"k", b"v")?;
/// set.write(&batch)?;
/// set.switch()?;
/// assert_eq!(*switches.0.lock().expect("no panic"), [2]);
/// # Ok(()) }
/// ```
pub trait Listener: Send + Sync {
    /// Receives one event.
    fn event(&self, event: &SetEvent);
}

/// An event of a set: see [`Listener`].
///
/// ```
/// use paranoid_set::SetEvent;
/// fn log(event: &SetEvent) -> Option<String> {
///     match event {
///         SetEvent::StallEnded { waited, .. } => Some(format!("a write waited {waited:?}")),
///         SetEvent::Stopped { cause, .. } => Some(format!("read-only: {cause}")),
///         _ => None,
///     }
/// }
/// # let _ = log;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SetEvent {
    /// An empty table has become the active one.
    #[non_exhaustive]
    Switched {
        /// Number of the table that was active, and can be flushed now.
        sealed: u64,
        /// Number of the table that is active now.
        active: u64,
    },
    /// A flush job was installed or dropped.
    #[non_exhaustive]
    FlushEnded {
        /// The last sequence number of its tables.
        last_sequence: SequenceNumber,
        /// Number of tables that the new base replaces; 0 if the job was dropped without an
        /// install.
        installed: u64,
    },
    /// A flush was installed, but the journal could not remove flushed batches. The next install
    /// tries again.
    #[non_exhaustive]
    JournalKept {
        /// The error of [`Journal::flushed`](crate::Journal::flushed).
        cause: Error,
    },
    /// A write or a switch has found a budget used up.
    #[non_exhaustive]
    StallBegun {
        /// The budget that is used up.
        cause: StallCause,
    },
    /// A stalled write or switch continues, or is refused.
    #[non_exhaustive]
    StallEnded {
        /// How long it waited; zero if no flush could make room.
        waited: Duration,
        /// The budget that is used up, if it is refused.
        refused: Option<StallCause>,
    },
    /// A table of the set has put right a damaged place of its memory. The event is delivered with the
    /// next one, or by the next write, switch or flush. A memory module that does so again should be
    /// replaced.
    #[non_exhaustive]
    Healed {
        /// The place: what it holds, its address in the memory of the process, and the bit.
        place: Healed,
    },
    /// The set has become read-only: a flush met damage, a batch was not finished, or a write or a
    /// sync of the journal failed.
    #[non_exhaustive]
    Stopped {
        /// The error that writes get from now on. After damage it has the report.
        cause: Error,
    },
}

/// The listener, and the events that are not delivered yet.
pub(crate) struct Reports {
    listener: Option<Arc<dyn Listener>>,
    pending: Mutex<VecDeque<SetEvent>>,
}

impl Reports {
    pub(crate) fn new(listener: Option<Arc<dyn Listener>>) -> Self {
        Reports {
            listener,
            pending: Mutex::new(VecDeque::new()),
        }
    }

    /// Queues an event. The caller may hold locks, and calls `deliver` without them.
    pub(crate) fn note(&self, event: impl FnOnce() -> SetEvent) {
        if self.has_audience() {
            let event = event();
            self.pending.lock().push_back(event);
        }
    }

    /// Delivers queued events. The caller has no lock. A thread that panics leaves the events to
    /// the next caller.
    #[inline(always)]
    pub(crate) fn deliver(&self) {
        if self.has_audience() {
            self.deliver_all();
        }
    }

    #[inline(never)]
    fn deliver_all(&self) {
        while !std::thread::panicking()
            && let Some(event) = self.next()
        {
            // A panic of the listener ends here.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                match &event {
                    SetEvent::StallBegun { cause } => stalled(cause),
                    SetEvent::Stopped { cause } => stopped(cause),
                    _ => {}
                }
                self.listener
                    .iter()
                    .for_each(|listener| listener.event(&event));
            }));
        }
    }

    #[inline]
    fn has_audience(&self) -> bool {
        IS_TRACED || self.listener.is_some()
    }

    fn next(&self) -> Option<SetEvent> {
        self.pending.lock().pop_front()
    }

    /// Queues an event and delivers.
    pub(crate) fn tell(&self, event: impl FnOnce() -> SetEvent) {
        self.note(event);
        self.deliver();
    }
}
