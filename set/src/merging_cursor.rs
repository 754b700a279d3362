//! The merging cursor: the entries that a view sees in its tables and in the engine's own sources
//! below them, in the order of keys.
//!
//! ```text
//!   newest source   b@12   d@11 (delete)      each source is on an entry, whose key is copied;
//!   older           a@5    b@6    d@4         the smallest of these keys is next, and its versions
//!   oldest          a@1    c@2    d@1         are read from all sources: a@5, then b@12, then c@2
//! ```
//! The sources are newest first: for each key, every version and range tombstone of a source is
//! newer than those of the sources after it. So the versions of a key are read source by source.
//! * MERGING-1: forward, each source is on the newest version of its key up to the cursor's number;
//!   backward, on any version of its key. No source has a key between the cursor's place and these.
//! * MERGING-2: a failed move is reported once. The next move in the same direction skips, in all
//!   sources, everything up to and including the next key that the failed source can read, because
//!   the unread part may have hidden it.
//!
//! One thread at a time moves a cursor.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use paranoid_memtable::scan::{Direction, KeyRange, SortedSource};
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::{Error, KeyEquality, Kind, Result, shown};

use crate::merged_entry::MergedEntry;
use crate::merging_source::{Move, Reach, Source};
use crate::tables::Slot;

/// A cursor over the entries that a view sees, in both directions. The cursor is `Send`, and
/// `'static` if its sources are. It keeps the memory of its tables alive. Made by
/// [`View::cursor`](crate::View::cursor) and [`View::merging_cursor`](crate::View::merging_cursor).
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_set::{MemTableSet, MergingCursor, SetOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let set = MemTableSet::open(SetOptions::default(), ())?;
/// for key in [b"a", b"b", b"c"] {
///     let mut batch = WriteBatch::new();
///     batch.put(key, b"value")?;
///     set.write(&batch)?;
///     set.switch()?;
/// }
/// let mut batch = WriteBatch::new();
/// batch.delete_range(b"b", b"c")?;
/// set.write(&batch)?;
/// let mut cursor: MergingCursor<'_> = set.view().cursor()?;
/// let mut keys = vec![];
/// let mut entry = cursor.last()?;
/// while let Some(found) = entry {
///     keys.push(found.user_key().to_vec());
///     entry = cursor.prev()?;
/// }
/// assert_eq!(keys, [b"c", b"a"]);
/// # Ok(()) }
/// ```
pub struct MergingCursor<'s> {
    comparator: KeyComparator,
    sources: Vec<CursorSource<'s>>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    state: State,
    /// The entry at the cursor's place, or only the key if no entry is shown there.
    shown: MergedEntry,
    /// Whether `shown` has the key of a place that the cursor reached since its last seek.
    has_place: bool,
    watched: Option<Box<Watched>>,
}

/// The moves since the last seek, and the hidden entries of the active table, the first source,
/// that they passed. Too many of them make the cursor ask for a seal of the table.
struct Watched {
    active: Arc<Slot>,
    moves: u64,
    hidden: u64,
}

/// A source of a cursor, which may be of any type.
pub(crate) type CursorSource<'s> = Source<Box<dyn SortedSource + 's>>;

/// The reach of a range tombstone in the cursor's direction: the first source that it hides,
/// counted from its own, and the bound where it ends.
type Hidden = (usize, Vec<u8>);

/// The position of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// On no entry: not moved yet, or past an end.
    Nowhere,
    /// On the shown entry, or on a key that could not be read. The sources are where this direction
    /// needs them.
    On(Direction),
    /// At a part that a source could not read in a move in this direction.
    Failed(Direction),
    /// In a move. A step that finds this follows a move that panicked, which left the sources
    /// anywhere; every step is an error until the next seek.
    Moving,
}

impl<'s> MergingCursor<'s> {
    /// A cursor over these sources, newest first, under the comparator of the tables.
    pub(crate) fn under(comparator: KeyComparator, sources: Vec<CursorSource<'s>>) -> Self {
        MergingCursor {
            comparator,
            sources,
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            state: State::Nowhere,
            shown: MergedEntry::default(),
            has_place: false,
            watched: None,
        }
    }

    /// This cursor, which counts the hidden entries of the active table, the first source, if the
    /// options let scans have it sealed.
    pub(crate) fn watching(mut self, active: &Arc<Slot>) -> Self {
        let is_watched = active.scans.operation > 0;
        self.watched = is_watched.then(|| {
            Box::new(Watched {
                active: Arc::clone(active),
                moves: 0,
                hidden: 0,
            })
        });
        self
    }

    /// Ends a move: asks for a seal of the active table if moves pass too many of its hidden
    /// entries.
    fn note_move(&mut self) {
        let (Some(watched), Some(active)) = (&mut self.watched, self.sources.first_mut()) else {
            return;
        };
        let (hidden, triggers) = (std::mem::take(&mut active.hidden), watched.active.scans);
        watched.moves += 1;
        watched.hidden += hidden;
        let is_mean_high = triggers.mean > 0 && watched.hidden / watched.moves >= triggers.mean;
        if hidden >= triggers.operation || is_mean_high && watched.hidden >= triggers.operation {
            watched.active.bytes.ask_seal();
            self.watched = None;
        }
    }

    /// This cursor, restricted to keys in `range` and on no entry. An inverted range is empty.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// batch.put(b"b", b"2")?;
    /// set.write(&batch)?;
    /// let mut cursor = set.view().cursor()?.with_bounds("b"..);
    /// assert_eq!(cursor.first()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_bounds(mut self, range: impl KeyRange) -> Self {
        let (lower, upper) = range.key_bounds();
        (self.lower, self.upper) = (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec));
        self.state = State::Nowhere;
        self
    }

    /// The current entry, in the cursor's own memory; `None` if the cursor is on no entry.
    #[must_use]
    pub fn entry(&self) -> Option<&MergedEntry> {
        let is_shown = matches!(self.state, State::On(_)) && self.shown.kind.is_some();
        is_shown.then_some(&self.shown)
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// - `Corruption` and errors of the sources. The unread part may hide an entry; the next move
    ///   continues past it.
    /// - `InvalidArgument` for a source whose move leads back, or to the wrong side of the key of a
    ///   seek. The text has the place of the source among the engine's sources, and the next step
    ///   ends the scan.
    pub fn first(&mut self) -> Result<Option<&MergedEntry>> {
        self.start(Direction::Forward)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn last(&mut self) -> Result<Option<&MergedEntry>> {
        self.start(Direction::Backward)
    }

    /// Moves to the first entry whose key is at or after `key`.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"b", b"2")?;
    /// set.write(&batch)?;
    /// let mut cursor = set.view().cursor()?;
    /// assert_eq!(cursor.seek(b"a")?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// assert!(cursor.seek_for_prev(b"a")?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    #[inline]
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&MergedEntry>> {
        self.seek_on(Direction::Forward, key.as_ref())
    }

    /// Moves to the last entry whose key is at or before `key`.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    #[inline]
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&MergedEntry>> {
        self.seek_on(Direction::Backward, key.as_ref())
    }

    /// Moves to the first entry at or past a key in this direction. A key before the bound where
    /// the direction begins counts as that bound.
    fn seek_on(&mut self, way: Direction, key: &[u8]) -> Result<Option<&MergedEntry>> {
        if self.is_outside(way.opposite(), key) {
            return self.start(way);
        }
        self.enter(way, Move::To(key))
    }

    /// Moves to the next entry. A cursor on no entry, for example one that was never positioned,
    /// stays there, unless its last move failed.
    ///
    /// # Errors
    /// Those of [`first`](Self::first), and `ReaderPanicked` after a move that panicked, until the
    /// next seek.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor moves in both directions and is no iterator"
    )]
    pub fn next(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Forward)
    }

    /// Moves to the entry before. A cursor on no entry stays there, unless its last move failed.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn prev(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Backward)
    }

    /// An iterator over copies of the entries in this cursor's bounds, in ascending order. A part
    /// that cannot be read is an error of one step; the next step continues past it.
    ///
    /// ```
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// for key in ["a", "b", "c"] {
    ///     set.put(key, "value")?;
    /// }
    /// let keys = set.view().cursor()?.with_bounds("b"..).ascending().map(|entry| Ok(entry?.user_key().to_vec()));
    /// assert_eq!(keys.collect::<Result<Vec<_>, paranoid_memtable::Error>>()?, [b"b", b"c"]);
    /// let last = set.view().cursor()?.descending().next().expect("three keys")?;
    /// assert_eq!(last.user_key(), b"c");
    /// # Ok(()) }
    /// ```
    pub fn ascending(self) -> impl FusedIterator<Item = Result<MergedEntry>> + Send + 's {
        self.entries(Direction::Forward)
    }

    /// An iterator in descending order; see [`ascending`](Self::ascending).
    pub fn descending(self) -> impl FusedIterator<Item = Result<MergedEntry>> + Send + 's {
        self.entries(Direction::Backward)
    }

    fn entries(
        mut self,
        way: Direction,
    ) -> impl FusedIterator<Item = Result<MergedEntry>> + Send + 's {
        let mut has_begun = false;
        let next = move || {
            let moved = match std::mem::replace(&mut has_begun, true) {
                true => self.step(way),
                false => self.start(way),
            };
            moved.map(Option::<&_>::cloned).transpose()
        };
        std::iter::from_fn(next).fuse()
    }

    /// The bound at which this direction ends.
    fn end_of(&self, way: Direction) -> &Bound<Vec<u8>> {
        if way == Direction::Forward {
            &self.upper
        } else {
            &self.lower
        }
    }

    /// Moves to the first entry of a direction: forward to the first one, backward to the last.
    ///
    /// ```
    /// use paranoid_memtable::scan::Direction;
    /// use paranoid_set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// (1..4).try_for_each(|n| set.put(format!("{n}"), "value").map(drop))?;
    /// let keys = |way| -> Result<String, paranoid_memtable::Error> {
    ///     let (mut cursor, mut keys) = (set.view().cursor()?, String::new());
    ///     let mut entry = cursor.start(way)?;
    ///     while let Some(found) = entry {
    ///         keys += &String::from_utf8_lossy(found.user_key());
    ///         entry = cursor.step(way)?;
    ///     }
    ///     Ok(keys)
    /// };
    /// assert_eq!((keys(Direction::Forward)?, keys(Direction::Backward)?), ("123".into(), "321".into()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn start(&mut self, way: Direction) -> Result<Option<&MergedEntry>> {
        match self.end_of(way.opposite()).clone() {
            Bound::Unbounded => self.enter(way, Move::Start),
            Bound::Included(key) => self.enter(way, Move::To(&key)),
            Bound::Excluded(key) => self.enter(way, Move::Beyond(&key)),
        }
    }

    /// Makes a move of all sources, then moves to the first entry shown from there.
    fn enter(&mut self, way: Direction, to: Move<'_>) -> Result<Option<&MergedEntry>> {
        (self.has_place, self.state) = (false, State::Moving);
        if let Some(watched) = &mut self.watched {
            (watched.moves, watched.hidden) = (0, 0);
        }
        self.each(way, |source, comparator, _| {
            source.lead(comparator, way, to)
        })?;
        self.find(way)
    }

    /// Calls `act` with every source and the key at the cursor's place. Returns the first error
    /// after all calls; the cursor has failed then.
    fn each(
        &mut self,
        way: Direction,
        mut act: impl FnMut(&mut CursorSource<'s>, &KeyComparator, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for source in &mut self.sources {
            if let Err(error) = act(source, &self.comparator, &self.shown.key) {
                outcome = outcome.and(Err(error));
            }
        }
        if outcome.is_err() {
            self.state = State::Failed(way);
        }
        outcome
    }

    /// Moves to the next entry of a direction: [`next`](Self::next) or [`prev`](Self::prev). So a
    /// loop in either direction has one body: [`start`](Self::start), then `step`.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn step(&mut self, way: Direction) -> Result<Option<&MergedEntry>> {
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Moving => return Err(Error::ReaderPanicked),
            State::Nowhere => self.state = State::Nowhere,
            State::On(at) if at == way => self.leave(way)?,
            State::On(_) => {
                self.each(way, |source, comparator, key| {
                    source.lead(comparator, way, Move::Beyond(key))
                })?;
            }
            State::Failed(at) if at == way => self.recover(way)?,
            // The cursor turns at a part that could not be read: back to the last place before it.
            State::Failed(_) if self.has_place => {
                self.each(way, |source, comparator, key| {
                    source.lead(comparator, way, Move::To(key))
                })?;
            }
            State::Failed(_) => self.state = State::Nowhere,
        }
        if self.state == State::Nowhere {
            Ok(None)
        } else {
            self.find(way)
        }
    }

    /// Moves the sources past the key at the cursor's place.
    fn leave(&mut self, way: Direction) -> Result<()> {
        self.each(way, |source, comparator, key| match way {
            Direction::Forward => source.pass(comparator, key),
            Direction::Backward
                if source.state == Reach::Moved || source.is_at(comparator, key) =>
            {
                source.go(comparator, way, Move::Beyond(key))
            }
            Direction::Backward => Ok(()),
        })
    }

    /// Skips a part that could not be read, and all that it may have hidden (MERGING-2).
    fn recover(&mut self, way: Direction) -> Result<()> {
        let mut limit: Option<Vec<u8>> = None;
        let mut is_over = false;
        self.each(way, |source, comparator, _| {
            is_over |= source.state == Reach::Stuck;
            if source.state != Reach::Failed {
                return Ok(());
            }
            source.lead(comparator, way, Move::Step)?;
            is_over |= source.kind.is_none();
            if limit
                .as_ref()
                .is_none_or(|limit| source.order(comparator, limit) == Some(way.outward()))
            {
                limit = Some(source.key.clone());
            }
            // It counts as failed until all sources have passed: another one may fail here.
            source.state = Reach::Failed;
            Ok(())
        })?;
        let Some(limit) = limit.filter(|_| !is_over) else {
            self.state = State::Nowhere;
            return Ok(());
        };
        self.each(way, |source, comparator, _| {
            source.state = Reach::Ready;
            match source.order(comparator, &limit) {
                Some(order) if order != way.outward() => {
                    source.lead(comparator, way, Move::Beyond(&limit))
                }
                _ => Ok(()),
            }
        })
    }

    /// Moves to the first entry shown, from sources that are where this direction needs them.
    fn find(&mut self, way: Direction) -> Result<Option<&MergedEntry>> {
        loop {
            let Some(key) = self.next_key(way).filter(|key| !self.is_outside(way, key)) else {
                self.state = State::Nowhere;
                self.note_move();
                return Ok(None);
            };
            self.shown.begin(key);
            self.has_place = true;
            self.resolve(way)?;
            if self.shown.kind.is_some() {
                self.state = State::On(way);
                self.note_move();
                return Ok(self.entry());
            }
            if let Some(first) = self.sources.first_mut() {
                first.hidden += u64::from(first.is_at(&self.comparator, &self.shown.key));
            }
            self.leave(way)?;
        }
    }

    /// The first key, in this direction, of the entries that the sources are on.
    fn next_key(&self, way: Direction) -> Option<Vec<u8>> {
        let keys = self
            .sources
            .iter()
            .filter(|source| source.kind.is_some())
            .map(|source| &source.key);
        let compare = |left: &&Vec<u8>, right: &&Vec<u8>| self.comparator.compare(left, right);
        let key = if way == Direction::Forward {
            keys.min_by(compare)
        } else {
            keys.max_by(compare)
        };
        key.cloned()
    }

    /// Whether a key is past the bound at which this direction ends.
    fn is_outside(&self, way: Direction, key: &[u8]) -> bool {
        match self.end_of(way) {
            Bound::Unbounded => false,
            Bound::Included(bound) => self.comparator.compare(key, bound) == way.outward(),
            Bound::Excluded(bound) => {
                self.comparator.compare(key, bound) != way.outward().reverse()
            }
        }
    }

    /// Reads the versions of the key at the cursor's place, source by source, newest first.
    fn resolve(&mut self, way: Direction) -> Result<()> {
        for place in 0..self.sources.len() {
            let Some(source) = self.sources.get_mut(place) else {
                break;
            };
            match source.read(&self.comparator, way, &mut self.shown) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(Some((first, limit)))) if self.shown.kind.is_none() => {
                    return self.pass_covered(way, place + first, &limit);
                }
                Ok(ControlFlow::Break(_)) => return Ok(()),
                Err(error) => {
                    let has_moved = self
                        .sources
                        .iter()
                        .any(|source| source.state >= Reach::Failed);
                    self.state = if has_moved {
                        State::Failed(way)
                    } else {
                        State::On(way)
                    };
                    self.shown.kind = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Moves the sources from number `first` on past the keys that a range tombstone covers, by one
    /// seek each.
    fn pass_covered(&mut self, way: Direction, first: usize, limit: &[u8]) -> Result<()> {
        let mut places = 0..;
        self.each(way, |source, comparator, _| {
            let order = source.order(comparator, limit);
            match way {
                _ if places.next() < Some(first) => Ok(()),
                Direction::Forward if order == Some(Ordering::Less) => {
                    source.lead(comparator, way, Move::To(limit))
                }
                Direction::Backward if order.is_some_and(Ordering::is_ge) => {
                    source.go(comparator, way, Move::Beyond(limit))
                }
                _ => Ok(()),
            }
        })
    }
}

impl<S: SortedSource> Source<S> {
    /// Looks the key of `shown` up for a point read.
    pub(crate) fn look_up(
        &mut self,
        comparator: &KeyComparator,
        shown: &mut MergedEntry,
    ) -> Result<()> {
        if self.items.may_hold(&shown.key)? {
            self.go(comparator, Direction::Forward, Move::To(&shown.key))?;
        }
        self.read(comparator, Direction::Forward, shown).map(drop)
    }

    /// Reads the versions of the key of `shown`. The newest value or delete ends the search, and so
    /// does a range tombstone that hides everything older. For a range tombstone, returns how far
    /// it reaches in this direction if that is known, and the first source that it hides.
    fn read(
        &mut self,
        comparator: &KeyComparator,
        way: Direction,
        shown: &mut MergedEntry,
    ) -> Result<ControlFlow<Option<Hidden>>> {
        if way == Direction::Backward && self.is_at(comparator, &shown.key) {
            let oldest = self.sequence;
            self.go(comparator, Direction::Forward, Move::To(&shown.key))?;
            self.state = Reach::Moved;
            // Numbers in a set's tables are unique: a different number belongs to another version,
            // or to the next key.
            self.hidden += u64::from(self.kind.is_none() || self.sequence != oldest);
        }
        let covered = self
            .items
            .cover(comparator.get(), &shown.key, self.visible)?
            .map_or(0, |cover| cover.sequence);
        while self.is_at(comparator, &shown.key) && self.sequence >= covered {
            let kind = self.kind.unwrap_or(Kind::DELETE);
            if kind.is_point_delete() {
                shown.base = Some(kind);
                return Ok(ControlFlow::Break(None));
            }
            if comparator.equality() == KeyEquality::Custom && shown.kind.is_none() {
                shown.key.clone_from(&self.key);
            }
            // The copy of the value is verified before it is shown.
            self.items.value_into(&mut shown.value)?;
            if kind != Kind::MERGE {
                shown.take_value(kind, self.sequence);
                return Ok(ControlFlow::Break(None));
            }
            shown.take_operand(self.sequence);
            let state = self.state;
            self.go(comparator, Direction::Forward, Move::Step)?;
            self.state = if way == Direction::Backward {
                Reach::Moved
            } else {
                state
            };
        }
        if covered == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        shown.base = Some(Kind::DELETE);
        let cover = self
            .items
            .cover(comparator.get(), &shown.key, self.visible)?;
        let span = cover.and_then(|cover| cover.span.map(|span| (span, cover.hides_own)));
        let span = span.filter(|((start, end), _)| {
            comparator.compare(start, &shown.key).is_le()
                && comparator.compare(&shown.key, end).is_lt()
        });
        Ok(ControlFlow::Break(span.map(|((start, end), hides_own)| {
            let limit = if way == Direction::Forward {
                end
            } else {
                start
            };
            (usize::from(!hides_own), limit.to_vec())
        })))
    }
}

shown! {
    "MergingCursor": impl [] MergingCursor<'_>, |cursor| {
        "sources": cursor.sources.len(), "state": cursor.state
    }
}
