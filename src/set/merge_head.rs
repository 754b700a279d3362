//! One source of a merging cursor, and a copy of where it stands.
//!
//! * MERGE-HEAD-1: after a move that failed the source is on no entry and counts as failed, until a later move succeeds.
//!
//! One thread at a time.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use crate::comparator::KeyComparator;
use crate::error::Result;
use crate::key::{Direction, Kind, SequenceNumber};
use crate::set::source::{SortedSource, SourceKey};

/// Steps over versions of one key before a seek passes them.
const STEPS: usize = 4;

/// A source, and a copy of where it stands.
pub(crate) struct Source<'s> {
    pub(crate) items: Box<dyn SortedSource + 's>,
    /// The last number that the cursor sees.
    pub(crate) visible: SequenceNumber,
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
    /// `None` if it is on no entry.
    pub(crate) kind: Option<Kind>,
    pub(crate) state: Reach,
}

/// What became of the last move of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It leads where the cursor goes.
    Ready,
    /// It was moved to read the versions of the cursor's key.
    Moved,
    /// It failed (MERGING-3).
    Failed,
}

/// A move of one source, one way or the other.
#[derive(Clone, Copy)]
pub(crate) enum Move<'k> {
    /// To where the way begins.
    Start,
    Step,
    /// To a key, or else to the next one on the way.
    To(&'k [u8]),
    /// To the next key after one, but forward to a version of that key with the number 0 if there is one.
    Beyond(&'k [u8]),
}

impl<'s> Source<'s> {
    /// A source that is on no entry yet.
    pub(crate) fn new(items: Box<dyn SortedSource + 's>, visible: SequenceNumber) -> Self {
        Source { items, visible, key: Vec::new(), sequence: 0, kind: None, state: Reach::Ready }
    }

    /// Makes a move, and copies where it led.
    pub(crate) fn go(&mut self, way: Direction, to: Move<'_>) -> Result<()> {
        (self.kind, self.state) = (None, Reach::Failed);
        let found = match (way, to) {
            (Direction::Forward, Move::Start) => self.items.first(),
            (Direction::Backward, Move::Start) => self.items.last(),
            (Direction::Forward, Move::Step) => self.items.next(),
            (Direction::Backward, Move::Step) => self.items.prev(),
            (Direction::Forward, Move::To(key)) => self.items.seek(key, self.visible),
            (Direction::Backward, Move::To(key)) => self.items.seek_for_prev(key),
            (Direction::Forward, Move::Beyond(key)) => self.items.seek(key, 0),
            (Direction::Backward, Move::Beyond(key)) => self.items.seek_before(key),
        }?;
        if let Some(SourceKey { user_key, sequence, kind }) = found {
            self.key.clear();
            self.key.extend_from_slice(user_key);
            (self.sequence, self.kind) = (sequence, Some(kind));
        }
        self.state = Reach::Ready;
        Ok(())
    }

    /// Makes a move, and goes on to where a cursor on this way needs it (MERGING-2).
    pub(crate) fn lead(&mut self, comparator: &KeyComparator, way: Direction, to: Move<'_>) -> Result<()> {
        self.go(way, to)?;
        match (way, to) {
            (Direction::Backward, _) => Ok(()),
            (Direction::Forward, Move::Beyond(key)) => self.pass(comparator, key),
            (Direction::Forward, _) => self.settle(),
        }
    }

    /// Goes, forward, to the first visible version after this key.
    pub(crate) fn pass(&mut self, comparator: &KeyComparator, key: &[u8]) -> Result<()> {
        let mut moves = 0;
        while self.is_at(comparator, key) {
            self.go(Direction::Forward, if moves == STEPS { Move::Beyond(key) } else { Move::Step })?;
            moves += 1;
        }
        self.settle()
    }

    /// Goes on, forward, to a version that the cursor sees.
    fn settle(&mut self) -> Result<()> {
        while self.kind.is_some() && self.sequence > self.visible {
            let key = std::mem::take(&mut self.key);
            self.go(Direction::Forward, Move::To(&key))?;
        }
        Ok(())
    }

    /// How the key where it stands compares with this one, if it is on an entry.
    pub(crate) fn order(&self, comparator: &KeyComparator, key: &[u8]) -> Option<Ordering> {
        self.kind.map(|_| comparator.compare(&self.key, key))
    }

    pub(crate) fn is_at(&self, comparator: &KeyComparator, key: &[u8]) -> bool {
        self.order(comparator, key) == Some(Ordering::Equal)
    }
}
