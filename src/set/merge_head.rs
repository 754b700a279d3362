//! One source of a merging cursor, and a copy of where it stands.
//!
//! * MERGE-HEAD-1: after a move that failed the head is on no entry and the source counts as failed, until a later move
//!   succeeds.
//!
//! One thread at a time.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use crate::error::Result;
use crate::key::{Comparator, Kind, SequenceNumber};
use crate::set::source::{SortedSource, SourceKey};

/// Steps over versions of one key before a seek passes them.
const STEPS: usize = 4;

/// A source, and a copy of where it stands.
pub(crate) struct Source<'s> {
    pub(crate) items: Box<dyn SortedSource + 's>,
    pub(crate) head: Head,
    pub(crate) state: Reach,
}

/// Where a source stands, copied.
#[derive(Default)]
pub(crate) struct Head {
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
    /// `None` if it is on no entry.
    pub(crate) kind: Option<Kind>,
}

/// What became of the last move of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Its head leads where the cursor goes.
    Ready,
    /// It was moved to read the versions of the cursor's key.
    Moved,
    /// It failed (MERGING-3).
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// A move of one source.
#[derive(Clone, Copy)]
pub(crate) enum Move<'k> {
    First,
    Last,
    Next,
    Prev,
    Seek(&'k [u8], SequenceNumber),
    Before(&'k [u8]),
    ForPrev(&'k [u8]),
}

impl Head {
    pub(crate) fn set(&mut self, key: Option<SourceKey<'_>>) {
        self.kind = key.map(|key| key.kind);
        let Some(SourceKey { user_key, sequence, .. }) = key else { return };
        self.key.clear();
        self.key.extend_from_slice(user_key);
        self.sequence = sequence;
    }

    /// How its key compares with this one, if it is on an entry.
    pub(crate) fn order<C: Comparator>(&self, comparator: &C, key: &[u8]) -> Option<Ordering> {
        self.kind.map(|_| comparator.compare(&self.key, key))
    }
}

impl Source<'_> {
    /// Makes a move, and copies where it led.
    pub(crate) fn go(&mut self, to: Move<'_>) -> Result<()> {
        self.head.kind = None;
        self.state = Reach::Failed;
        let items = &mut self.items;
        self.head.set(match to {
            Move::First => items.first(),
            Move::Last => items.last(),
            Move::Next => items.next(),
            Move::Prev => items.prev(),
            Move::Seek(key, sequence) => items.seek(key, sequence),
            Move::Before(key) => items.seek_before(key),
            Move::ForPrev(key) => items.seek_for_prev(key),
        }?);
        self.state = Reach::Ready;
        Ok(())
    }

    pub(crate) fn is_at<C: Comparator>(&self, comparator: &C, key: &[u8]) -> bool {
        self.head.order(comparator, key) == Some(Ordering::Equal)
    }

    /// Goes on, forward, to a version that the cursor sees (MERGING-2).
    pub(crate) fn settle(&mut self, sequence: SequenceNumber) -> Result<()> {
        while self.head.kind.is_some() && self.head.sequence > sequence {
            let key = std::mem::take(&mut self.head.key);
            self.go(Move::Seek(&key, sequence))?;
        }
        Ok(())
    }

    /// Goes, forward, to the first visible version after this key.
    pub(crate) fn pass<C: Comparator>(
        &mut self,
        comparator: &C,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        for _ in 0..STEPS {
            if !self.is_at(comparator, key) {
                return self.settle(sequence);
            }
            self.go(Move::Next)?;
        }
        if self.is_at(comparator, key) {
            self.go(Move::Seek(key, 0))?;
        }
        while self.is_at(comparator, key) {
            self.go(Move::Next)?;
        }
        self.settle(sequence)
    }

    /// Goes beyond a key, which may be far away.
    pub(crate) fn go_beyond<C: Comparator>(
        &mut self,
        way: Way,
        comparator: &C,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        if way == Way::Backward {
            return self.go(Move::Before(key));
        }
        self.go(Move::Seek(key, 0))?;
        self.pass(comparator, key, sequence)
    }
}
