//! Cursors: a place in a table that moves both ways.
//!
//! ```text
//!             seek, first, last           next, prev
//!   Nowhere ---------------------> At(entry) <------+
//!      ^                            |   |  damage   |  goes on strictly beyond the gap
//!      +----- ran off an end -------+   +--> Gap --+
//! ```
//! * CURSOR-1: a cursor reports a gap once and keeps the positions of both its sides in its own memory; the next step
//!   goes on at the other side, strictly beyond what was reported.
//! * CURSOR-2: a cursor that stands nowhere has no entry, and steps leave it there. So does a control block that is
//!   damaged.
//! * CURSOR-3: a step never shows an entry twice; entries inserted after the cursor are not shown, those before it may
//!   be.
//! * CURSOR-4: what a call hands out, it has verified itself: a move the entry that it led to, `entry` the one that the
//!   cursor is parked on. A step takes nothing else from the node that it leaves than its link, whose tag is bound to
//!   it, and its key, verified again where the key decides.
//! * CURSOR-5: however a comparator lies, a walk in one direction ends (`StepLimit`).
//!
//! One thread at a time moves a cursor; tables may be written meanwhile. Steps are expected O(1), seeks O(log n).

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::error::{Corruption, Result};
use crate::key::{Bytewise, Comparator, KeyOrder, Kind, SequenceNumber, Side, Target};
use crate::memtable::parts::ordered::Order;
use crate::memtable::read::entry::Entry;
use crate::memtable::read::get::{Operands, operands};
use crate::memtable::scan::bounds::{ScanBound, prefix_bounds};
use crate::memtable::scan::gap::ReportedGap;
use crate::memtable::scan::handle::{Borrowed, Handle, Owned};
use crate::memtable::scan::runs::{Run, Stand, StepLimit, Way, first_of_run};
use crate::memtable::scan::visibility::{AtSnapshot, Raw, Visibility};

use crate::memtable::core::Core;
use crate::memtable::parts::vector::Sorted;
use crate::memtable::skiplist::arena::Frame;
use crate::memtable::skiplist::iterate::ReadAhead;
use crate::memtable::skiplist::search::{Course, Gap};

/// Where a cursor stands.
#[derive(Debug, Clone, Copy)]
pub(crate) enum State {
    Nowhere,
    At(Stand),
    /// In the gap that was met last.
    Gap,
}

/// How long a walk has gone on in one direction by steps that decide.
#[derive(Debug, Clone, Copy)]
struct Heading {
    way: Way,
    limit: StepLimit,
}

/// A position in a table. Made by [`cursor`](crate::MemTable::cursor), [`cursor_at`](crate::MemTable::cursor_at) and their
/// owned forms.
///
/// ```
/// use paranoid_memtable::{MemTable, MemTableOptions};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"a", b"1")?;
/// table.put(2, b"b", b"2")?;
/// table.delete(3, b"a")?;
/// let mut cursor = table.cursor_at(3);
/// let entry = cursor.first()?.expect("b is there");
/// assert_eq!(entry.user_key(), b"b");
/// assert!(cursor.next()?.is_none());
/// # Ok(()) }
/// ```
///
/// Every move verifies the entry that it leads to and returns it. [`entry`](Self::entry) verifies the entry under the
/// cursor once more, however long the cursor has stood there.
pub struct Cursor<H: Handle, L: Visibility = Raw> {
    pub(super) handle: H,
    pub(super) visibility: L,
    pub(super) state: State,
    pub(super) reported: Option<Box<ReportedGap>>,
    heading: Heading,
    /// The table's checked values as of the last seek.
    pub(super) kept: Option<(Frame, Kept)>,
    pub(super) lower: Option<ScanBound>,
    pub(super) upper: Option<ScanBound>,
    /// What all keys shown start with, in prefix mode.
    pub(super) prefix: Option<Box<[u8]>>,
    /// How far memory was asked for in advance.
    read_ahead: ReadAhead,
    /// Why a move ended nowhere, if that was damage.
    failed: Option<Box<Corruption>>,
}

/// A cursor that borrows its table.
pub type TableCursor<'t, C = Bytewise, L = Raw> = Cursor<Borrowed<'t, C>, L>;
/// A cursor that keeps its table alive: `'static`, `Send` and `Sync`.
pub type OwnedCursor<C = Bytewise, L = Raw> = Cursor<Owned<C>, L>;

impl<H: Handle, L: Visibility> fmt::Debug for Cursor<H, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("visibility", &self.visibility)
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// Where a move ended: an entry, an end, or a gap; or a control block that is damaged.
pub(super) type Arrival = Result<Result<Option<Stand>, Gap>, Corruption>;

/// What a cursor keeps of its table's order.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    List(Course),
    Sorted(Arc<Sorted>),
}

impl<H: Handle, L: Visibility> Cursor<H, L> {
    pub(crate) fn new(handle: H, visibility: L) -> Self {
        Cursor {
            handle,
            visibility,
            state: State::Nowhere,
            reported: None,
            heading: Heading { way: Way::Forward, limit: StepLimit::default() },
            kept: None,
            lower: None,
            upper: None,
            prefix: None,
            read_ahead: ReadAhead::default(),
            failed: None,
        }
    }

    /// This cursor, restricted to user keys in `range`. It stands nowhere. An inverted range is empty. Where the
    /// type of the keys is open, as with `..` or a pair of [`Bound`](std::ops::Bound)s, name it:
    /// `with_bounds::<&[u8]>(..)`.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut cursor = table.cursor().with_bounds("b".to_string()..);
    /// assert_eq!(cursor.first()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
    /// assert!(cursor.with_bounds("b".."a").first()?.is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_bounds<K: AsRef<[u8]>>(mut self, range: impl RangeBounds<K>) -> Self {
        self.set_bounds(range);
        self
    }

    /// Sets the bounds anew, in place of those before and of a prefix: as [`with_bounds`](Self::with_bounds), for a
    /// cursor that is kept. It stands nowhere afterwards.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut cursor = table.owned_cursor();
    /// for (bounds, expected) in [("a".."b", b"a"), ("b".."c", b"b")] {
    ///     cursor.set_bounds(bounds);
    ///     assert_eq!(cursor.last()?.map(|entry| entry.user_key()), Some(expected.as_slice()));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn set_bounds<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) {
        self.lower = ScanBound::lower(range.start_bound().map(|key| (key.as_ref(), None)));
        self.upper = ScanBound::upper(range.end_bound().map(|key| (key.as_ref(), None)));
        self.prefix = None;
        (self.state, self.failed) = (State::Nowhere, None);
    }

    /// This cursor in prefix mode: restricted to user keys that start with `prefix`, in place of any bounds. If the
    /// table has a prefix filter, seeks ask it first and go nowhere when it says that there are none. It stands
    /// nowhere.
    ///
    /// In the order of the bytes ([`KeyOrder::Bytes`](crate::comparator::KeyOrder::Bytes)) these keys are neighbours, and only they
    /// are looked at. In any other order they may stand anywhere: a move passes the others, O(entries passed).
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions};
    /// use paranoid_memtable::filter::FixedPrefix;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let options = MemTableOptions::builder().prefix_filter(FixedPrefix::new(4), 0.01).build()?;
    /// let table = MemTable::new(options)?;
    /// table.put(1, b"user7", b"x")?;
    /// let mut cursor = table.cursor().with_prefix(b"user");
    /// cursor.first()?;
    /// assert!(cursor.is_valid());
    /// cursor.next()?;
    /// assert!(!cursor.is_valid());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_prefix(mut self, prefix: &[u8]) -> Self {
        self.set_prefix(prefix);
        self
    }

    /// Sets the prefix anew, in place of the one before and of any bounds: as [`with_prefix`](Self::with_prefix), for
    /// a cursor that is kept. It stands nowhere afterwards.
    pub fn set_prefix(&mut self, prefix: &[u8]) {
        (self.lower, self.upper) = match <H::Order as Comparator>::ORDER {
            KeyOrder::Bytes => prefix_bounds(prefix),
            KeyOrder::Custom => (None, None),
        };
        self.prefix = Some(prefix.into());
        (self.state, self.failed) = (State::Nowhere, None);
    }

    /// Whether the last seek or step ended in damage: `Ok` on an entry, off an end and before the first move; else the
    /// error that the move answered, until the next move that ends elsewhere. For callers whose own moves answer
    /// nothing, as those of RocksDB's iterators.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let mut cursor = MemTable::default().owned_cursor();
    /// let _ = cursor.first();
    /// assert!(!cursor.is_valid());
    /// cursor.status()?; // the end, not damage
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption`, as the move answered it.
    pub fn status(&self) -> Result<()> {
        match (&self.state, &self.reported, &self.failed) {
            (State::Gap, Some(reported), _) => Err(reported.gap.corruption.into()),
            (State::Nowhere, _, Some(corruption)) => Err((**corruption).into()),
            _ => Ok(()),
        }
    }

    /// Whether the cursor stands on an entry.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        matches!(self.state, State::At(..))
    }

    /// The entry under the cursor, verified now. `None`: the cursor stands on none.
    ///
    /// A move returns the entry that it led to, verified by the move: a loop over moves need not ask again.
    ///
    /// # Errors
    /// `Corruption` if the entry under the cursor does not verify any more. The cursor stays where it is: the next step
    /// goes on along the entry's links.
    #[inline]
    pub fn entry(&self) -> Result<Option<Entry<'_>>> {
        verified(&self.state, self.kept.as_ref(), self.handle.core())
    }

    /// The entry that the move which ends here has verified.
    #[inline(always)]
    fn shown(&self) -> Option<Entry<'_>> {
        resume(&self.state, self.kept.as_ref(), self.handle.core())
    }

    /// Goes to the first entry shown whose user key is `key` or after it, and returns it.
    ///
    /// # Errors
    /// `Corruption` if the place cannot be certified; the next step goes on at the other side of the damage.
    pub fn seek(&mut self, key: &[u8]) -> Result<Option<Entry<'_>>> {
        self.seek_version(key, SequenceNumber::MAX)
    }

    /// Goes to the first entry shown at or after (`key`, `sequence`), and returns it.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_version(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<Entry<'_>>> {
        self.refresh()?;
        let target = Target::new(&self.handle.core().comparator, key, L::search_from(sequence));
        let outcome = self.arrive(Way::Forward, &target);
        self.land(outcome)?;
        self.pass_others(Way::Forward)?;
        // A key's only version shown may stand before the position.
        let in_front = sequence < SequenceNumber::MAX
            && self.shown().is_some_and(|entry| {
                entry.sequence() > sequence
                    && self.handle.core().comparator.compare(entry.user_key(), key).is_eq()
            });
        if in_front { self.next() } else { Ok(self.shown()) }
    }

    /// Goes to the last entry shown whose user key is `key` or before it, and returns it.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<Option<Entry<'_>>> {
        self.refresh()?;
        let target = Target::behind_key(&self.handle.core().comparator, key);
        let outcome = self.arrive(Way::Backward, &target);
        self.land(outcome)?;
        self.pass_others(Way::Backward)?;
        Ok(self.shown())
    }

    /// Goes to the last entry shown whose user key is before `key`, and returns it.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"a", b"")?;
    /// table.put(2, b"b", b"")?;
    /// let mut cursor = table.cursor();
    /// assert_eq!(cursor.seek_before(b"b")?.map(|entry| entry.user_key()), Some(b"a".as_slice()));
    /// assert!(cursor.seek_before(b"a")?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_before(&mut self, key: &[u8]) -> Result<Option<Entry<'_>>> {
        self.refresh()?;
        let target = Target::new(&self.handle.core().comparator, key, SequenceNumber::MAX);
        let outcome = self.arrive(Way::Backward, &target);
        self.land(outcome)?;
        self.pass_others(Way::Backward)?;
        Ok(self.shown())
    }

    /// Goes to the first entry shown, and returns it.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn first(&mut self) -> Result<Option<Entry<'_>>> {
        self.go_to_end(Way::Forward)?;
        Ok(self.shown())
    }

    /// Goes to the last entry shown, and returns it.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn last(&mut self) -> Result<Option<Entry<'_>>> {
        self.go_to_end(Way::Backward)?;
        Ok(self.shown())
    }

    /// Goes to the next entry shown, and returns it.
    ///
    /// ```
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// # let table = paranoid_memtable::MemTable::new(Default::default())?;
    /// # table.put(1, b"a", b"x")?;
    /// let mut cursor = table.cursor();
    /// let mut entry = cursor.first()?;
    /// while let Some(found) = entry {
    ///     println!("{} bytes", found.value()?.len());
    ///     entry = cursor.next()?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if what follows cannot be told; the next step goes on after the damage.
    #[expect(clippy::should_implement_trait, reason = "a cursor moves both ways and is no iterator")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>> {
        self.go(Way::Forward)?;
        self.pass_others(Way::Forward)?;
        Ok(self.shown())
    }

    /// Goes to the previous entry shown, and returns it.
    ///
    /// # Errors
    /// `Corruption` if the entry before cannot be told; the next step goes on before the damage.
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>> {
        self.go(Way::Backward)?;
        self.pass_others(Way::Backward)?;
        Ok(self.shown())
    }

    /// Goes to the first entry shown of a walk in this direction.
    fn go_to_end(&mut self, way: Way) -> Result<()> {
        self.refresh()?;
        let outcome =
            self.arrive(way, &Target::extreme(if way == Way::Forward { Side::Start } else { Side::End }));
        self.land(outcome)?;
        self.pass_others(way)
    }

    /// Passes entries without the prefix, where the order does not keep those with it together.
    #[inline(always)]
    fn pass_others(&mut self, way: Way) -> Result<()> {
        if <H::Order as Comparator>::ORDER == KeyOrder::Bytes || self.prefix.is_none() {
            return Ok(());
        }
        self.pass_others_by_steps(way)
    }

    #[cold]
    fn pass_others_by_steps(&mut self, way: Way) -> Result<()> {
        let is_other = |cursor: &Self| match (cursor.shown(), &cursor.prefix) {
            (Some(entry), Some(prefix)) => !entry.user_key().starts_with(prefix),
            _ => false,
        };
        while is_other(self) {
            self.go(way)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn go(&mut self, way: Way) -> Result<()> {
        let mut read_ahead = self.read_ahead;
        match self.step_fast(self.handle.core(), way, &mut read_ahead) {
            Some(moved) => {
                self.state = moved.map_or(State::Nowhere, |entry| State::At(Stand::at(&entry)));
                self.read_ahead = read_ahead;
                Ok(())
            }
            None => self.step_slow(way),
        }
    }

    #[inline(never)]
    fn step_slow(&mut self, way: Way) -> Result<()> {
        if matches!(self.state, State::Nowhere) {
            return Ok(());
        }
        if self.heading.way != way {
            self.heading = Heading { way, limit: StepLimit::default() };
        }
        if let Err(corruption) = self.heading.limit.count(self.handle.core()) {
            return self.fail(corruption);
        }
        let mut read_ahead = self.read_ahead;
        let outcome = self.step(self.handle.core(), way, &mut read_ahead);
        let landed = self.stand(outcome);
        self.read_ahead = read_ahead;
        landed
    }

    /// Ends a move that is no step: a new walk begins.
    #[inline(always)]
    fn land(&mut self, outcome: Arrival) -> Result<()> {
        self.read_ahead = ReadAhead::default();
        self.heading.limit = StepLimit::default();
        self.stand(outcome)
    }

    #[inline(always)]
    fn stand(&mut self, outcome: Arrival) -> Result<()> {
        match outcome {
            Ok(Ok(Some(stand))) => self.state = State::At(stand),
            Ok(Ok(None)) => self.state = State::Nowhere,
            Ok(Err(gap)) => return self.fall(gap),
            Err(corruption) => return self.fail(corruption),
        }
        Ok(())
    }

    /// Nowhere, by damage that no gap tells of (CURSOR-2).
    #[cold]
    fn fail(&mut self, corruption: Corruption) -> Result<()> {
        self.state = State::Nowhere;
        self.failed = Some(Box::new(corruption));
        Err(corruption.into())
    }

    /// Into a gap: the positions of its sides are copied while they verify (CURSOR-1).
    #[cold]
    #[inline(never)]
    fn fall(&mut self, gap: Gap) -> Result<()> {
        let order = self.order(self.handle.core()).ok();
        self.reported = Some(Box::new(ReportedGap::around(order.as_ref(), gap)));
        self.state = State::Gap;
        Err(gap.corruption.into())
    }

    /// Looks at the control block again. A copy that was sorted for this cursor is kept.
    fn refresh(&mut self) -> Result<()> {
        self.failed = None;
        if let Some((_, Kept::Sorted(_))) = self.kept {
            return Ok(());
        }
        self.state = State::Nowhere;
        let (frame, kept) = match self.handle.core().order(None) {
            Ok(Order::List(search)) => (search.view.frame, Kept::List(search.course)),
            Ok(Order::Sorted(search)) => (search.view.frame, Kept::Sorted(search.sorted)),
            Err(corruption) => return self.fail(corruption),
        };
        self.kept = Some((frame, kept));
        Ok(())
    }

    /// Takes over the copy that was sorted for another cursor, if there is one: the two then agree on what a gap is.
    pub(crate) fn share_order(&mut self, other: &Self) {
        if let Some((frame, Kept::Sorted(sorted))) = &other.kept {
            self.kept = Some((*frame, Kept::Sorted(Arc::clone(sorted))));
        }
    }

    /// The gap that the cursor is in, as long as it is in one.
    pub(crate) fn gap(&self) -> Option<Gap> {
        self.reported.as_ref().filter(|_| matches!(self.state, State::Gap)).map(|reported| reported.gap)
    }

    /// Where the gap that the cursor is in begins, as seen by a walk in this direction.
    pub(crate) fn gap_bound(&self, way: Way) -> Option<&ScanBound> {
        let reported = self.reported.as_ref().filter(|_| matches!(self.state, State::Gap))?;
        reported.far(if way == Way::Forward { Way::Backward } else { Way::Forward })
    }
}

impl<'t, C: Comparator, L: Visibility> Cursor<Borrowed<'t, C>, L> {
    /// As [`entry`](Self::entry), for as long as the table is borrowed.
    ///
    /// # Errors
    /// As [`entry`](Self::entry).
    #[inline]
    pub fn table_entry(&self) -> Result<Option<Entry<'t>>> {
        verified(&self.state, self.kept.as_ref(), self.handle.0)
    }

    /// One step, and the entry that it led to.
    #[inline(always)]
    pub(crate) fn advance(&mut self, way: Way) -> Result<Option<Entry<'t>>> {
        let mut read_ahead = self.read_ahead;
        if let Some(moved) = self.step_fast(self.handle.0, way, &mut read_ahead)
            && let Some((frame, _)) = &self.kept
        {
            self.read_ahead = read_ahead;
            let entry = moved.map(|entry| Entry::new(entry, frame));
            self.state = moved.map_or(State::Nowhere, |entry| State::At(Stand::at(&entry)));
            return Ok(entry);
        }
        self.step_slow(way)?;
        Ok(resume(&self.state, self.kept.as_ref(), self.handle.0))
    }

    /// Goes to the entry with which a walk in this direction begins.
    pub(crate) fn begin(&mut self, way: Way) -> Result<Option<Entry<'t>>> {
        self.go_to_end(way)?;
        Ok(resume(&self.state, self.kept.as_ref(), self.handle.0))
    }

    pub(crate) fn with_visibility(core: &'t Core<C>, visibility: L) -> Self {
        Cursor::new(Borrowed(core), visibility)
    }

    pub(crate) fn with_scan_bounds(mut self, lower: Option<ScanBound>, upper: Option<ScanBound>) -> Self {
        self.lower = lower;
        self.upper = upper;
        self
    }
}

impl<H: Handle> Cursor<H, AtSnapshot> {
    /// The merge operands of the key under the cursor, newest first, and what they stand on: what
    /// [`get`](crate::TableReader::get) answers for it. `None`: the cursor stands on none, or on a value.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::default();
    /// table.put(1, b"sum", b"5")?;
    /// table.merge(2, b"sum", b"+1")?;
    /// table.merge(3, b"sum", b"+2")?;
    /// let mut cursor = table.cursor_at(3);
    /// cursor.first()?;
    /// let operands = cursor.operands()?.expect("the newest entry is an operand");
    /// let values = operands.map(|operand| Ok(operand?.value)).collect::<Result<Vec<_>, paranoid_memtable::Error>>()?;
    /// assert_eq!(values, [b"+2", b"+1"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Corruption` if the entry under the cursor does not verify any more, or if damaged memory could matter for what
    /// the operands stand on.
    pub fn operands(&self) -> Result<Option<Operands<'_, H::Order>>> {
        let State::At(stand) = &self.state else { return Ok(None) };
        let core = self.handle.core();
        let order = self.order(core)?;
        let spot = stand.spot(&order)?;
        let is_operand = spot.entry.kind() == Kind::MERGE;
        is_operand.then(|| operands(core, &order, (spot.entry.key(), spot))).transpose()
    }
}

impl<'t, C: Comparator> TableCursor<'t, C> {
    /// From any version of a key to its first one.
    pub(crate) fn rewind_key(&mut self) -> Result<Option<Entry<'t>>> {
        let core = self.handle.0;
        let State::At(stand) = self.state else { return Ok(None) };
        let first = self.order(core).map(|order| {
            let spot = stand.spot(&order)?;
            first_of_run(core, &order, spot, Run::Key).map(|spot| Some(Stand::on(&spot)))
        });
        self.stand(first)?;
        Ok(resume(&self.state, self.kept.as_ref(), core))
    }

    /// Where the cursor stands, to come back to.
    pub(crate) fn mark(&self) -> Mark {
        Mark { state: self.state, reported: self.reported.clone() }
    }

    /// Back to where it stood.
    pub(crate) fn return_to(&mut self, mark: Mark) {
        (self.state, self.reported) = (mark.state, mark.reported);
    }
}

/// A place that a cursor comes back to.
#[derive(Clone)]
pub(crate) struct Mark {
    state: State,
    reported: Option<Box<ReportedGap>>,
}

/// The entry under a cursor, verified again (CURSOR-4).
#[inline]
fn verified<'a, C>(
    state: &State,
    kept: Option<&(Frame, Kept)>,
    core: &'a Core<C>,
) -> Result<Option<Entry<'a>>> {
    let State::At(stand) = state else { return Ok(None) };
    let Some(view) = kept.and_then(|(frame, _)| frame.on(&core.arena)) else { return Ok(None) };
    Ok(Some(Entry::new(stand.parked.verify(&view)?, &view)))
}

/// The entry that the call which asks has just verified.
#[inline(always)]
fn resume<'a, C>(state: &State, kept: Option<&(Frame, Kept)>, core: &'a Core<C>) -> Option<Entry<'a>> {
    let State::At(stand) = state else { return None };
    let view = kept?.0.on(&core.arena)?;
    stand.parked.resume(&view).map(|entry| Entry::new(entry, &view))
}
