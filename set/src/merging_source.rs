//! One source of a merging cursor, with a copy of the key that it is on.
//!
//! Every move of an engine's source is checked: a step must not lead back, and a seek must not end
//! before its target. So each loop over a source ends. After a failed move the source is on no
//! entry until a later move succeeds.
//!
//! One thread at a time.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

use paranoid_memtable::scan::{Direction, SortedSource, SourceKey, SourceMove};
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::{Error, Kind, Result, SequenceNumber};

/// The number of steps over versions of one key before a seek skips the rest.
const STEPS: u64 = 4;

/// A source, with a copy of its entry's key, number and kind.
pub(crate) struct Source<S> {
    pub(crate) items: S,
    /// Its place among the engine's own sources; `None` for a table of the set.
    pub(crate) place: Option<usize>,
    /// The last number that the cursor sees.
    pub(crate) visible: SequenceNumber,
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
    /// `None` if the source is on no entry.
    pub(crate) kind: Option<Kind>,
    /// Whether `key` and `sequence` are those of the last entry reached, so that the next step can
    /// be checked. They stay after a failed step.
    pub(crate) has_last: bool,
    pub(crate) state: Reach,
    /// The number of entries passed that no cursor at this number shows.
    pub(crate) hidden: u64,
}

/// The result of a source's last move. After `Failed` and `Stuck` the source is on no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Reach {
    /// The source is where the cursor's direction needs it (MERGING-1).
    Ready,
    /// The source was moved to read the versions of the cursor's key.
    Moved,
    /// The move failed (MERGING-2).
    Failed,
    /// The move led back. No step is made from there.
    Stuck,
}

/// A move of one source, in either direction.
#[derive(Clone, Copy)]
pub(crate) enum Move<'k> {
    /// To the first entry in the direction.
    Start,
    Step,
    /// To this key, or else to the next key in the direction.
    To(&'k [u8]),
    /// To the next key after this one. Forward, a version of this key with the number 0 comes
    /// first.
    Beyond(&'k [u8]),
}

impl<S: SortedSource> Source<S> {
    /// A table of the set as a source, or the engine's source at a place. It is on no entry yet.
    pub(crate) fn new(items: S, place: Option<usize>, visible: SequenceNumber) -> Self {
        let (key, kind, state) = (Vec::new(), None, Reach::Ready);
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

    /// Makes a move, and copies the entry's key, number and kind.
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
            check_move(comparator, place, last, to, at)?;
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

    /// Makes a move, then continues to where a cursor in this direction needs the source
    /// (MERGING-1).
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

    /// Moves forward to the first visible version after this key.
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

    /// Moves forward to a version that the cursor sees, unless the source is on one.
    fn skip_invisible(&mut self, comparator: &KeyComparator) -> Result<()> {
        while self.kind.is_some() && self.sequence > self.visible {
            let key = std::mem::take(&mut self.key);
            self.go(comparator, Direction::Forward, Move::To(&key))?;
            self.hidden += 1;
        }
        Ok(())
    }

    /// Compares the source's key with this one, if the source is on an entry.
    pub(crate) fn order(&self, comparator: &KeyComparator, key: &[u8]) -> Option<Ordering> {
        self.kind.map(|_| comparator.compare(&self.key, key))
    }

    pub(crate) fn is_at(&self, comparator: &KeyComparator, key: &[u8]) -> bool {
        self.order(comparator, key) == Some(Ordering::Equal)
    }
}

/// Checks that a source's move ended where it must: a step strictly past `last`, a seek at its
/// target or past it.
///
/// # Errors
/// `InvalidArgument`, with the place of the source among the engine's sources.
pub(crate) fn check_move(
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
    let is_valid = match (to, last) {
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
    is_valid.then_some(()).ok_or_else(refused)
}
