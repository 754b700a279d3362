//! One source of a merging cursor, and a copy of where it stands.
//!
//! * MERGE-HEAD-1: after a move that failed the source is on no entry and counts as failed, until a
//!   later move succeeds.
//! * MERGE-HEAD-2: every move of an engine's source is checked: it leads on. So each loop over a
//!   source ends with its entries.
//!
//! One thread at a time.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use paranoid_memtable::scan::{SortedSource, SourceKey, SourceMove};
use paranoid_memtable::sibling::{Direction, KeyComparator};
use paranoid_memtable::{Error, Kind, Result, SequenceNumber};

/// Steps over versions of one key before a seek passes them.
const STEPS: u64 = 4;

/// A source, and a copy of where it stands.
pub(crate) struct Source<'s> {
    pub(crate) items: Box<dyn SortedSource + 's>,
    /// Its place among the engine's own sources; `None` for a table of the set.
    pub(crate) place: Option<usize>,
    /// The last number that the cursor sees.
    pub(crate) visible: SequenceNumber,
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
    /// `None` if it is on no entry.
    pub(crate) kind: Option<Kind>,
    /// Whether key and number are those of the entry that the last move led to, also after a step
    /// from there failed.
    pub(crate) has_last: bool,
    pub(crate) state: Reach,
    /// Entries passed that no cursor of this number shows.
    pub(crate) hidden: u64,
}

/// The result of a source's last move. From `Failed` on the source is on no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Reach {
    /// It leads where the cursor goes.
    Ready,
    /// It was moved to read the versions of the cursor's key.
    Moved,
    /// It failed (MERGING-3).
    Failed,
    /// It did not go on. There is no step from there.
    Stuck,
}

/// A move of one source, one way or the other.
#[derive(Clone, Copy)]
pub(crate) enum Move<'k> {
    /// To where the way begins.
    Start,
    Step,
    /// To a key, or else to the next one on the way.
    To(&'k [u8]),
    /// To the next key after one, but forward to a version of that key with the number 0 if there
    /// is one.
    Beyond(&'k [u8]),
}

impl<'s> Source<'s> {
    /// A table of the set as a source that is on no entry yet.
    pub(crate) fn new(items: Box<dyn SortedSource + 's>, visible: SequenceNumber) -> Self {
        let (place, key, kind, state) = (None, Vec::new(), None, Reach::Ready);
        Source {
            items,
            place,
            visible,
            key,
            sequence: 0,
            kind,
            has_last: false,
            state,
            hidden: 0,
        }
    }

    /// Makes a move, and copies where it led.
    pub(crate) fn go(
        &mut self,
        comparator: &KeyComparator,
        way: Direction,
        to: Move<'_>,
    ) -> Result<()> {
        (self.kind, self.state) = (None, Reach::Failed);
        self.has_last &= matches!(to, Move::Step);
        let to = match (way, to) {
            (Direction::Forward, Move::Start) => SourceMove::First,
            (Direction::Backward, Move::Start) => SourceMove::Last,
            (Direction::Forward, Move::Step) => SourceMove::Next,
            (Direction::Backward, Move::Step) => SourceMove::Prev,
            (Direction::Forward, Move::To(key)) => SourceMove::Seek(key, self.visible),
            (Direction::Backward, Move::To(key)) => SourceMove::SeekForPrev(key),
            (Direction::Forward, Move::Beyond(key)) => SourceMove::Seek(key, 0),
            (Direction::Backward, Move::Beyond(key)) => SourceMove::SeekBefore(key),
        };
        let found = self.items.go(to)?;
        let last =
            std::mem::take(&mut self.has_last).then_some((self.key.as_slice(), self.sequence));
        if let (Some(at), Some(place)) = (&found, self.place) {
            self.state = Reach::Stuck;
            leads_on(comparator, place, last, to, at)?;
        }
        if let Some(SourceKey {
            user_key,
            sequence,
            kind,
        }) = found
        {
            self.key.clear();
            self.key.extend_from_slice(user_key);
            (self.sequence, self.kind, self.has_last) = (sequence, Some(kind), true);
        }
        self.state = Reach::Ready;
        Ok(())
    }

    /// Makes a move, and goes on to where a cursor on this way needs it (MERGING-2).
    pub(crate) fn lead(
        &mut self,
        comparator: &KeyComparator,
        way: Direction,
        to: Move<'_>,
    ) -> Result<()> {
        self.go(comparator, way, to)?;
        match (way, to) {
            (Direction::Backward, _) => Ok(()),
            (Direction::Forward, Move::Beyond(key)) => self.pass(comparator, key),
            (Direction::Forward, _) => self.skip_invisible(comparator),
        }
    }

    /// Goes, forward, to the first visible version after this key.
    pub(crate) fn pass(&mut self, comparator: &KeyComparator, key: &[u8]) -> Result<()> {
        let mut moves = 0;
        while self.is_at(comparator, key) {
            let to = if moves == STEPS {
                Move::Beyond(key)
            } else {
                Move::Step
            };
            self.go(comparator, Direction::Forward, to)?;
            moves += 1;
        }
        self.hidden += u64::saturating_sub(moves, 1);
        self.skip_invisible(comparator)
    }

    /// Goes on, forward, to a version that the cursor sees.
    fn skip_invisible(&mut self, comparator: &KeyComparator) -> Result<()> {
        while self.kind.is_some() && self.sequence > self.visible {
            let key = std::mem::take(&mut self.key);
            self.go(comparator, Direction::Forward, Move::To(&key))?;
            self.hidden += 1;
        }
        Ok(())
    }

    /// Compares the source's key with this one, if it is on an entry.
    pub(crate) fn order(&self, comparator: &KeyComparator, key: &[u8]) -> Option<Ordering> {
        self.kind.map(|_| comparator.compare(&self.key, key))
    }

    pub(crate) fn is_at(&self, comparator: &KeyComparator, key: &[u8]) -> bool {
        self.order(comparator, key) == Some(Ordering::Equal)
    }
}

/// Checks that a source's move led where it had to: a step strictly on from `last`, a seek to its
/// target or beyond (MERGE-HEAD-2).
///
/// # Errors
/// `InvalidArgument`, with the place of the source among the engine's.
pub(crate) fn leads_on(
    comparator: &KeyComparator,
    place: usize,
    last: Option<(&[u8], SequenceNumber)>,
    to: SourceMove<'_>,
    at: &SourceKey<'_>,
) -> Result<()> {
    let order = |key, sequence: u64| {
        comparator
            .compare(at.user_key, key)
            .then(sequence.cmp(&at.sequence))
    };
    let is_led_on = match (to, last) {
        (SourceMove::Next, Some((key, sequence))) => order(key, sequence).is_gt(),
        (SourceMove::Prev, Some((key, sequence))) => order(key, sequence).is_lt(),
        (SourceMove::Seek(key, sequence), _) => order(key, sequence).is_ge(),
        (SourceMove::SeekForPrev(key), _) => order(key, 0).is_le(),
        (SourceMove::SeekBefore(key), _) => order(key, SequenceNumber::MAX).is_lt(),
        _ => true,
    };
    let refused = || {
        Error::InvalidArgument(format!(
            "sorted source {place} does not go on: a move led back"
        ))
    };
    is_led_on.then_some(()).ok_or_else(refused)
}
