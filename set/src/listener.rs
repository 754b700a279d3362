//! Listeners: an engine is told what its set does.
//!
//! * LISTENER-1: a listener is called without any lock of the set, by a thread that works for the
//!   set. What happens under a lock is noted there, and told once the lock is free. A batch with
//!   numbers ends before anything is told, because a listener may wait for it.
//! * LISTENER-2: a listener that panics changes nothing: the panic ends in this file.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use paranoid_memtable::sibling::{IS_TRACED, Mutex, stalled, stopped};
use paranoid_memtable::{Error, SequenceNumber, StallCause};

/// Is told what a set does. Called by the thread that did it, without any lock of the set, so it
/// may call the set; that thread goes on when the call returns. Several threads may call it at
/// once, and then order is not promised. A panic in it is caught and changes nothing.
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
    /// Takes an event.
    fn event(&self, event: &SetEvent);
}

/// What happened in a set: see [`Listener`].
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
    /// An empty table became the active one.
    #[non_exhaustive]
    Switched {
        /// Number of the table that was active and can be flushed now.
        sealed: u64,
        /// Number of the active one.
        active: u64,
    },
    /// A flush job was installed or dropped.
    #[non_exhaustive]
    FlushEnded {
        /// The last sequence number of its tables.
        last_sequence: SequenceNumber,
        /// Number of tables that the new base replaced; 0 if the job was dropped without an
        /// install.
        installed: u64,
    },
    /// A flush was installed, and the journal could not remove what is flushed. The next install
    /// tries again.
    #[non_exhaustive]
    JournalKept {
        /// The error of [`Journal::obsolete_before`](crate::Journal::obsolete_before).
        cause: Error,
    },
    /// A write or a switch found a budget used up.
    #[non_exhaustive]
    StallBegun {
        /// Which one.
        cause: StallCause,
    },
    /// That write or switch goes on, or is refused.
    #[non_exhaustive]
    StallEnded {
        /// How long it waited; zero if nobody could make room.
        waited: Duration,
        /// Why it is refused, if it is.
        refused: Option<StallCause>,
    },
    /// The set is read-only: because of damage that a flush met, a batch that was not finished, or
    /// a failed write or sync.
    #[non_exhaustive]
    Stopped {
        /// The cause; of damage it has the report.
        cause: Error,
    },
}

/// Undelivered events, and the listener.
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

    /// Queues an event for `deliver`; the caller may hold locks.
    pub(crate) fn note(&self, event: impl FnOnce() -> SetEvent) {
        if self.has_audience() {
            let event = event();
            self.pending.lock().push_back(event);
        }
    }

    /// Delivers queued events (LISTENER-1). While this thread panics the next one does.
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
            // LISTENER-2.
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
