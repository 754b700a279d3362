//! The merging cursor: what a snapshot sees of all tables of a view, and of the engine's own sources below them.
//!
//! ```text
//!   newest source    b@12   d@11 (delete)        heads: where each source stands, its key copied
//!   older            a@5    b@6    d@4           the smallest key among the heads, resolved over all sources
//!   oldest           a@1    c@2    d@1           a@5  b@12  c@2
//! ```
//! * MERGING-1: sources are given newest first: of one key, every entry and range tombstone of a source is newer than
//!   those of the sources after it. So the versions of a key are read source by source.
//! * MERGING-2: a head is the newest version up to the cursor's number (forward), or any version (backward), of its
//!   key; no key between the cursor's place and the heads is in a source.
//! * MERGING-3: a move that fails is reported once. The next move in its direction passes everything up to and including
//!   the next key that the failing source can read, in all sources: what could not be read may have hidden any of it.
//! * MERGING-4: an entry is shown only after its value was copied and the copy verified.
//!
//! One thread at a time moves a cursor.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ops::Bound;

use crate::error::Result;
use crate::key::{Bytewise, Comparator, Kind, SequenceNumber};
use crate::memtable::lifecycle::debug::shown;
use crate::set::merge_head::{Head, Move, Reach, Source, Way};
use crate::set::merged_entry::{MergeBase, MergedEntry, Resolved, Shown};
use crate::set::source::SortedSource;

/// A cursor over what a view sees, both ways. It is `'static` if its sources are, and `Send`; it keeps the memory of its
/// tables alive. Made by [`View::cursor`](crate::set::View::cursor) and
/// [`View::merging_cursor`](crate::set::View::merging_cursor).
///
/// ```
/// use paranoid_memtable::WriteBatch;
/// use paranoid_memtable::set::{MemTableSet, MergingCursor, SetOptions};
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
pub struct MergingCursor<'s, C = Bytewise> {
    comparator: C,
    sequence: SequenceNumber,
    sources: Vec<Source<'s>>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    state: State,
    shown: Shown,
}

/// Where the cursor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nowhere: not moved yet, or past an end.
    Nowhere,
    /// On the shown entry; the heads lead this way.
    On(Way),
    /// On a key that could not be read, its neighbours being intact.
    Unread(Way),
    /// At what a source could not read, on the way there.
    Failed(Way),
}

impl<'s, C: Comparator> MergingCursor<'s, C> {
    /// A cursor over the engine's own sources alone, newest first, at a sequence number: what a compaction reads. Which
    /// sources there may be, and in which order, says [`View::merging_cursor`](crate::set::View::merging_cursor).
    ///
    /// ```
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::set::{MergingCursor, SortedSource};
    /// let files: Vec<Box<dyn SortedSource>> = Vec::new();
    /// assert!(MergingCursor::over(Bytewise, u64::MAX, files).first()?.is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn over(comparator: C, sequence: SequenceNumber, sources: Vec<Box<dyn SortedSource + 's>>) -> Self {
        Self::new(comparator, sequence, sources.into_iter())
    }

    /// A cursor over sources, newest first (MERGING-1).
    pub(crate) fn new(
        comparator: C,
        sequence: SequenceNumber,
        sources: impl Iterator<Item = Box<dyn SortedSource + 's>>,
    ) -> Self {
        let sources =
            sources.map(|items| Source { items, head: Head::default(), state: Reach::Ready }).collect();
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        MergingCursor {
            comparator,
            sequence,
            sources,
            lower,
            upper,
            state: State::Nowhere,
            shown: Shown::default(),
        }
    }

    /// This cursor, restricted to keys between two bounds, and not positioned. An inverted range is empty.
    ///
    /// ```
    /// use std::ops::Bound;
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let set = MemTableSet::open(SetOptions::default(), ())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"a", b"1")?;
    /// batch.put(b"b", b"2")?;
    /// set.write(&batch)?;
    /// let mut cursor = set.view().cursor()?.with_bounds(Bound::Excluded(b"a"), Bound::Unbounded);
    /// assert_eq!(cursor.first()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_bounds(mut self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Self {
        (self.lower, self.upper) = (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec));
        self.state = State::Nowhere;
        self
    }

    /// The entry under the cursor; `None` if it is on none. It is in the cursor's own memory.
    #[must_use]
    pub fn entry(&self) -> Option<MergedEntry<'_>> {
        matches!(self.state, State::On(_)).then_some(MergedEntry { shown: &self.shown })
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// `Corruption`, and errors of the sources: what could not be read may hide an entry. The next move goes on after
    /// it.
    pub fn first(&mut self) -> Result<Option<MergedEntry<'_>>> {
        let lower = self.lower.clone();
        match &lower {
            Bound::Unbounded => self.arrive(Way::Forward, Move::First),
            Bound::Included(key) => self.arrive(Way::Forward, Move::Seek(key, self.sequence)),
            Bound::Excluded(key) => self.arrive(Way::Forward, Move::Seek(key, 0)),
        }
    }

    /// Goes to the last entry.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn last(&mut self) -> Result<Option<MergedEntry<'_>>> {
        let upper = self.upper.clone();
        match &upper {
            Bound::Unbounded => self.arrive(Way::Backward, Move::Last),
            Bound::Included(key) => self.arrive(Way::Backward, Move::ForPrev(key)),
            Bound::Excluded(key) => self.arrive(Way::Backward, Move::Before(key)),
        }
    }

    /// Goes to the first entry whose key is `key` or after it.
    ///
    /// ```
    /// use paranoid_memtable::WriteBatch;
    /// use paranoid_memtable::set::{MemTableSet, SetOptions};
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
    pub fn seek(&mut self, key: &[u8]) -> Result<Option<MergedEntry<'_>>> {
        if self.is_outside(Way::Backward, key) {
            return self.first();
        }
        self.arrive(Way::Forward, Move::Seek(key, self.sequence))
    }

    /// Goes to the last entry whose key is `key` or before it.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<MergedEntry<'_>>> {
        if self.is_outside(Way::Forward, key) {
            return self.last();
        }
        self.arrive(Way::Backward, Move::ForPrev(key))
    }

    /// Goes to the next entry. A cursor that is on none, and did not fail, stays there.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    #[expect(clippy::should_implement_trait, reason = "a cursor moves both ways and is no iterator")]
    pub fn next(&mut self) -> Result<Option<MergedEntry<'_>>> {
        self.step(Way::Forward)
    }

    /// Goes to the entry before. A cursor that is on none, and did not fail, stays there.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn prev(&mut self) -> Result<Option<MergedEntry<'_>>> {
        self.step(Way::Backward)
    }

    /// Moves all sources, and goes on to the first key shown from there.
    fn arrive(&mut self, way: Way, to: Move<'_>) -> Result<Option<MergedEntry<'_>>> {
        self.shown.key.clear();
        self.shown.has_place = false;
        self.each(way, |source, _, sequence| {
            source.go(to)?;
            if way == Way::Forward { source.settle(sequence) } else { Ok(()) }
        })?;
        self.find(way)
    }

    /// Does something with every source. If some fail, the cursor has failed, with the error of the first of them.
    fn each(
        &mut self,
        way: Way,
        mut act: impl FnMut(&mut Source<'s>, &C, SequenceNumber) -> Result<()>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        for source in &mut self.sources {
            if let Err(error) = act(source, &self.comparator, self.sequence) {
                source.state = Reach::Failed;
                outcome = outcome.and(Err(error));
            }
        }
        if outcome.is_err() {
            self.state = State::Failed(way);
        }
        outcome
    }

    fn step(&mut self, way: Way) -> Result<Option<MergedEntry<'_>>> {
        let key = std::mem::take(&mut self.shown.key);
        let moved = match self.state {
            State::Nowhere => Ok(()),
            State::On(at) | State::Unread(at) if at == way => self.leave(way, &key),
            State::On(_) | State::Unread(_) => self
                .each(way, |source, comparator, sequence| source.go_beyond(way, comparator, &key, sequence)),
            State::Failed(at) if at == way => self.recover(way),
            State::Failed(_) => self.turn_back(way, &key),
        };
        if self.shown.key.is_empty() {
            self.shown.key = key;
        }
        moved?;
        if self.state == State::Nowhere { Ok(None) } else { self.find(way) }
    }

    /// Goes on from a key that all sources may still be on.
    fn leave(&mut self, way: Way, key: &[u8]) -> Result<()> {
        self.each(way, |source, comparator, sequence| match way {
            Way::Forward => source.pass(comparator, key, sequence),
            Way::Backward if source.state == Reach::Moved || source.is_at(comparator, key) => {
                source.go(Move::Before(key))
            }
            Way::Backward => Ok(()),
        })
    }

    /// Goes back to the last place from what could not be read after it.
    fn turn_back(&mut self, way: Way, key: &[u8]) -> Result<()> {
        if !self.shown.has_place {
            self.state = State::Nowhere;
            return Ok(());
        }
        self.each(way, |source, _, sequence| match way {
            Way::Forward => source.go(Move::Seek(key, sequence)).and_then(|()| source.settle(sequence)),
            Way::Backward => source.go(Move::ForPrev(key)),
        })
    }

    /// Passes what could not be read, and everything that it may have hidden (MERGING-3).
    fn recover(&mut self, way: Way) -> Result<()> {
        let mut limit: Option<Vec<u8>> = None;
        let mut is_over = false;
        self.each(way, |source, comparator, sequence| {
            if source.state != Reach::Failed {
                return Ok(());
            }
            source.go(if way == Way::Forward { Move::Next } else { Move::Prev })?;
            if way == Way::Forward {
                source.settle(sequence)?;
            }
            is_over |= source.head.kind.is_none();
            let outward = if way == Way::Forward { Ordering::Greater } else { Ordering::Less };
            let is_further =
                limit.as_ref().is_none_or(|limit| source.head.order(comparator, limit) == Some(outward));
            if is_further {
                limit = Some(source.head.key.clone());
            }
            // Until all have passed it: an error of another source keeps this one failing as well.
            source.state = Reach::Failed;
            Ok(())
        })?;
        let Some(limit) = limit.filter(|_| !is_over) else {
            self.state = State::Nowhere;
            return Ok(());
        };
        self.each(way, |source, comparator, sequence| {
            let inward = if way == Way::Forward { Ordering::Greater } else { Ordering::Less };
            match source.head.order(comparator, &limit) {
                Some(order) if order != inward => source.go_beyond(way, comparator, &limit, sequence),
                _ => {
                    source.state = Reach::Ready;
                    Ok(())
                }
            }
        })
    }

    /// Goes on, from heads that lead this way, to the first key that is shown.
    fn find(&mut self, way: Way) -> Result<Option<MergedEntry<'_>>> {
        loop {
            let Some(key) = self.next_key(way).filter(|key| !self.is_outside(way, key)) else {
                self.state = State::Nowhere;
                return Ok(None);
            };
            self.shown.begin(key);
            match self.resolve(way)? {
                Resolved::Shown => break,
                Resolved::Hidden => {
                    let key = std::mem::take(&mut self.shown.key);
                    let left = self.leave(way, &key);
                    self.shown.key = key;
                    left?;
                }
            }
        }
        self.state = State::On(way);
        Ok(self.entry())
    }

    /// The first key among the heads.
    fn next_key(&self, way: Way) -> Option<Vec<u8>> {
        let heads = self.sources.iter().map(|source| &source.head).filter(|head| head.kind.is_some());
        let compare = |left: &&Head, right: &&Head| self.comparator.compare(&left.key, &right.key);
        let head = if way == Way::Forward { heads.min_by(compare) } else { heads.max_by(compare) };
        head.map(|head| head.key.clone())
    }

    /// Whether a key is beyond the bound in this direction.
    fn is_outside(&self, way: Way, key: &[u8]) -> bool {
        let (bound, outward) = match way {
            Way::Forward => (&self.upper, Ordering::Greater),
            Way::Backward => (&self.lower, Ordering::Less),
        };
        match bound {
            Bound::Unbounded => false,
            Bound::Included(bound) => self.comparator.compare(key, bound) == outward,
            Bound::Excluded(bound) => self.comparator.compare(key, bound) != outward.reverse(),
        }
    }

    /// Reads the versions of the shown key, source by source (MERGING-1).
    fn resolve(&mut self, way: Way) -> Result<Resolved> {
        for place in 0..self.sources.len() {
            match self.read(way, place) {
                Ok(Read::Older) => {}
                Ok(Read::End) => return Ok(self.shown.resolved()),
                Ok(Read::Covered(limit)) => {
                    let resolved = self.shown.resolved();
                    if let (Some(limit), Resolved::Hidden) = (limit, resolved) {
                        self.pass_covered(way, place, &limit)?;
                    }
                    return Ok(resolved);
                }
                Err(error) => {
                    let has_moved = self.sources.iter().any(|source| source.state == Reach::Failed);
                    self.state = if has_moved { State::Failed(way) } else { State::Unread(way) };
                    return Err(error);
                }
            }
        }
        Ok(self.shown.resolved())
    }

    /// Reads what one source has of the shown key.
    fn read(&mut self, way: Way, place: usize) -> Result<Read> {
        let MergingCursor { comparator, sequence, sources, shown, .. } = self;
        let Some(source) = sources.get_mut(place) else { return Ok(Read::Older) };
        if way == Way::Backward && source.is_at(comparator, &shown.key) {
            source.go(Move::Seek(&shown.key, *sequence))?;
            source.state = Reach::Moved;
        }
        let covered = source.items.cover(&shown.key, *sequence)?.map_or(0, |cover| cover.sequence);
        while source.is_at(comparator, &shown.key) && source.head.sequence >= covered {
            let kind = source.head.kind.unwrap_or(Kind::DELETE);
            if kind.is_point_delete() {
                shown.base = MergeBase::Deleted;
                return Ok(Read::End);
            }
            source.items.value_into(&mut shown.value)?;
            if kind != Kind::MERGE {
                shown.take_value(kind, source.head.sequence);
                return Ok(Read::End);
            }
            shown.take_operand(source.head.sequence);
            let state = source.state;
            source.go(Move::Next)?;
            source.state = if way == Way::Backward { Reach::Moved } else { state };
        }
        if covered == 0 {
            return Ok(Read::Older);
        }
        shown.base = MergeBase::Deleted;
        let cover = source.items.cover(&shown.key, *sequence)?;
        let span = cover.and_then(|cover| cover.span).filter(|(start, end)| {
            comparator.compare(start, &shown.key).is_le() && comparator.compare(&shown.key, end).is_lt()
        });
        Ok(Read::Covered(span.map(|(start, end)| if way == Way::Forward { end } else { start }.to_vec())))
    }

    /// Older sources pass what a range tombstone of this one covers, by one seek each.
    fn pass_covered(&mut self, way: Way, place: usize, limit: &[u8]) -> Result<()> {
        let mut number = 0;
        self.each(way, |source, comparator, sequence| {
            number += 1;
            let order = source.head.order(comparator, limit);
            match way {
                _ if number <= place + 1 => Ok(()),
                Way::Forward if order == Some(Ordering::Less) => {
                    source.go(Move::Seek(limit, sequence)).and_then(|()| source.settle(sequence))
                }
                Way::Backward if order.is_some_and(Ordering::is_ge) => source.go(Move::Before(limit)),
                _ => Ok(()),
            }
        })
    }
}

/// What a source has of a key.
enum Read {
    /// Nothing that ends the search.
    Older,
    /// The newest value or delete, which ends it.
    End,
    /// A range tombstone hides everything older; how far it reaches, if that is known.
    Covered(Option<Vec<u8>>),
}

shown! {
    "MergingCursor": impl [C] MergingCursor<'_, C>, |cursor| {
        "sources": cursor.sources.len(), "sequence": cursor.sequence, "state": cursor.state
    }
}
