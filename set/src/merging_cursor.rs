//! The merging cursor: what a snapshot sees of all tables of a view, and of the engine's own
//! sources below them.
//!
//! ```text
//!   newest source    b@12   d@11 (delete)        each source stands on an entry, whose key is copied
//!   older            a@5    b@6    d@4           the smallest of these keys, resolved over all sources
//!   oldest           a@1    c@2    d@1           a@5  b@12  c@2
//! ```
//! * MERGING-1: sources are given newest first: of one key, every entry and range tombstone of a
//!   source is newer than those of the sources after it. So the versions of a key are read source
//!   by source.
//! * MERGING-2: a source stands on the newest version up to the cursor's number (forward), or on
//!   any version (backward), of its key; no key between the cursor's place and these is in a
//!   source.
//! * MERGING-3: a move that fails is reported once. The next move in its direction passes
//!   everything up to and including the next key that the failing source can read, in all sources:
//!   what could not be read may have hidden any of it.
//! * MERGING-4: an entry is shown only after its value was copied and the copy verified.
//! * MERGING-5: a move that panicked leaves sources anywhere: until the next seek every step is an
//!   error.
//!
//! One thread at a time moves a cursor.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use paranoid_memtable::scan::KeyRange;
use paranoid_memtable::sibling::{Direction, KeyComparator};
use paranoid_memtable::{Error, KeyEquality, Kind, Result, shown};

use crate::merged_entry::MergedEntry;
use crate::merging_source::{Move, Reach, Source};
use crate::tables::Slot;

/// A cursor over what a view sees, both ways. It is `'static` if its sources are, and `Send`; it
/// keeps the memory of its tables alive. Made by [`View::cursor`](crate::View::cursor) and
/// [`View::merging_cursor`](crate::View::merging_cursor).
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
    sources: Vec<Source<'s>>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    state: State,
    /// The entry at the cursor's place, or only its key if nothing is shown there.
    shown: MergedEntry,
    /// Whether the cursor has a place.
    has_place: bool,
    watched: Option<Box<Watched>>,
}

/// What a cursor has done since its last seek, until it asks for its active table, the first
/// source, to be sealed.
struct Watched {
    active: Arc<Slot>,
    moves: u64,
    hidden: u64,
}

/// What a range tombstone hides on the cursor's way: from which source on, and how far.
type Hidden = (usize, Vec<u8>);

/// Where the cursor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nowhere: not moved yet, or past an end.
    Nowhere,
    /// On the shown entry, or on a key that could not be read, its neighbours being intact; the
    /// sources lead this way.
    On(Direction),
    /// At what a source could not read, on the way there.
    Failed(Direction),
    /// In a move. A step that begins here follows a move that panicked (MERGING-5).
    Moving,
}

impl<'s> MergingCursor<'s> {
    /// A cursor over these sources, newest first, in an order that is known already.
    pub(crate) fn under(comparator: KeyComparator, sources: Vec<Source<'s>>) -> Self {
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

    /// Counts the hidden entries of the active table, the first source, if scans are to have it
    /// sealed.
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

    /// Ends a move: asks for the active table to be sealed if moves pass too many hidden entries of
    /// it.
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

    /// This cursor, restricted to keys in `range`, and not positioned. An inverted range is empty.
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

    /// The entry under the cursor; `None` if it is on none. It is in the cursor's own memory.
    #[must_use]
    pub fn entry(&self) -> Option<&MergedEntry> {
        let is_shown = matches!(self.state, State::On(_)) && self.shown.kind.is_some();
        is_shown.then_some(&self.shown)
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// `Corruption`, and errors of the sources: what could not be read may hide an entry. The next
    /// move goes on after it. `InvalidArgument` for a source that does not go on: one that a move
    /// leads back, or to the wrong side of the key that was sought; the text has its place among
    /// the engine's sources, and the next step ends the scan.
    pub fn first(&mut self) -> Result<Option<&MergedEntry>> {
        self.begin(Direction::Forward)
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn last(&mut self) -> Result<Option<&MergedEntry>> {
        self.begin(Direction::Backward)
    }

    /// Goes to the first entry whose key is `key` or after it.
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

    /// Goes to the last entry whose key is `key` or before it.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    #[inline]
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&MergedEntry>> {
        self.seek_on(Direction::Backward, key.as_ref())
    }

    /// Goes to the first entry on this way from a key on, or from the bound where the way begins if
    /// the key is before that.
    fn seek_on(&mut self, way: Direction, key: &[u8]) -> Result<Option<&MergedEntry>> {
        if self.is_outside(way.opposite(), key) {
            return self.begin(way);
        }
        self.enter(way, Move::To(key))
    }

    /// Goes to the next entry. A cursor that is on none, and did not fail, stays there.
    ///
    /// # Errors
    /// Those of [`first`](Self::first), and `ReaderPanicked` after a move that panicked, until the
    /// next seek.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor moves both ways and is no iterator"
    )]
    pub fn next(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Forward)
    }

    /// Goes to the entry before. A cursor that is on none, and did not fail, stays there.
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub fn prev(&mut self) -> Result<Option<&MergedEntry>> {
        self.step(Direction::Backward)
    }

    /// The entries of this cursor's bounds as an iterator over copies, in ascending order. What
    /// cannot be read is an error of the step that comes to it; the next one goes on after it.
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

    /// The entries of this cursor's bounds in descending order; see [`ascending`](Self::ascending).
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
                false => self.begin(way),
            };
            moved.map(Option::<&_>::cloned).transpose()
        };
        std::iter::from_fn(next).fuse()
    }

    /// Reads one key source by source, as far as the answer needs, after newer tables have said
    /// what they have of it.
    pub(crate) fn complete(&mut self, entry: MergedEntry) -> Result<Option<MergedEntry>> {
        if entry.is_complete() {
            return Ok(entry.if_shown());
        }
        self.shown = entry;
        for place in 0..self.sources.len() {
            if let Some(source) = self.sources.get_mut(place)
                && source.items.may_hold(&self.shown.key)?
            {
                source.go(
                    &self.comparator,
                    Direction::Forward,
                    Move::To(&self.shown.key),
                )?;
            }
            if self.read(Direction::Forward, place)?.is_break() {
                break;
            }
        }
        Ok(std::mem::take(&mut self.shown).if_shown())
    }

    /// The bound at which this way ends.
    fn end_of(&self, way: Direction) -> &Bound<Vec<u8>> {
        if way == Direction::Forward {
            &self.upper
        } else {
            &self.lower
        }
    }

    /// Goes to the first key shown on this way from its bound on.
    fn begin(&mut self, way: Direction) -> Result<Option<&MergedEntry>> {
        match self.end_of(way.opposite()).clone() {
            Bound::Unbounded => self.enter(way, Move::Start),
            Bound::Included(key) => self.enter(way, Move::To(&key)),
            Bound::Excluded(key) => self.enter(way, Move::Beyond(&key)),
        }
    }

    /// Makes a move of all sources, and goes on to the first key shown from there.
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

    /// Calls `act` with every source and the key at the cursor's place. If some fail, the cursor
    /// fails with the first error.
    fn each(
        &mut self,
        way: Direction,
        mut act: impl FnMut(&mut Source<'s>, &KeyComparator, &[u8]) -> Result<()>,
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

    fn step(&mut self, way: Direction) -> Result<Option<&MergedEntry>> {
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
            // Back to the last place from what could not be read after it.
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

    /// Goes on from a key that all sources may still be on.
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

    /// Passes what could not be read, and everything that it may have hidden (MERGING-3).
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
            // Until all have passed it: an error of another source keeps this one failing as well.
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

    /// Goes on, from sources that lead this way, to the first key that is shown.
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

    /// The first key on which a source stands.
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

    /// Whether a key is beyond the bound at which this way ends.
    fn is_outside(&self, way: Direction, key: &[u8]) -> bool {
        match self.end_of(way) {
            Bound::Unbounded => false,
            Bound::Included(bound) => self.comparator.compare(key, bound) == way.outward(),
            Bound::Excluded(bound) => {
                self.comparator.compare(key, bound) != way.outward().reverse()
            }
        }
    }

    /// Reads the versions of the key, source by source (MERGING-1).
    fn resolve(&mut self, way: Direction) -> Result<()> {
        for place in 0..self.sources.len() {
            match self.read(way, place) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(Some((first, limit)))) if self.shown.kind.is_none() => {
                    return self.pass_covered(way, first, &limit);
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

    /// Reads what one source has of the key. What ends the search is its newest value or delete, or
    /// a range tombstone that hides everything older: then it returns how far that reaches on this
    /// way, if it is known, and from which source on.
    fn read(&mut self, way: Direction, place: usize) -> Result<ControlFlow<Option<Hidden>>> {
        let MergingCursor {
            comparator,
            sources,
            shown,
            ..
        } = self;
        let Some(source) = sources.get_mut(place) else {
            return Ok(ControlFlow::Continue(()));
        };
        if way == Direction::Backward && source.is_at(comparator, &shown.key) {
            let oldest = source.sequence;
            source.go(comparator, Direction::Forward, Move::To(&shown.key))?;
            source.state = Reach::Moved;
            // Numbers of a set's tables are unique: another one is that of another version, or of
            // the next key.
            source.hidden += u64::from(source.kind.is_none() || source.sequence != oldest);
        }
        let covered = source
            .items
            .cover(comparator.get(), &shown.key, source.visible)?
            .map_or(0, |cover| cover.sequence);
        while source.is_at(comparator, &shown.key) && source.sequence >= covered {
            let kind = source.kind.unwrap_or(Kind::DELETE);
            if kind.is_point_delete() {
                shown.base = Some(kind);
                return Ok(ControlFlow::Break(None));
            }
            if comparator.equality() == KeyEquality::Custom && shown.kind.is_none() {
                shown.key.clone_from(&source.key);
            }
            source.items.value_into(&mut shown.value)?;
            if kind != Kind::MERGE {
                shown.take_value(kind, source.sequence);
                return Ok(ControlFlow::Break(None));
            }
            shown.take_operand(source.sequence);
            let state = source.state;
            source.go(comparator, Direction::Forward, Move::Step)?;
            source.state = if way == Direction::Backward {
                Reach::Moved
            } else {
                state
            };
        }
        if covered == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        shown.base = Some(Kind::DELETE);
        let cover = source
            .items
            .cover(comparator.get(), &shown.key, source.visible)?;
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
            (place + usize::from(!hides_own), limit.to_vec())
        })))
    }

    /// The sources from number `first` on pass what a range tombstone covers, by one seek each.
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

shown! {
    "MergingCursor": impl [] MergingCursor<'_>, |cursor| {
        "sources": cursor.sources.len(), "state": cursor.state
    }
}
