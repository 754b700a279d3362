//! The range tombstones of a table: which of them is the newest over a key.
//!
//! ```text
//!   the table has no tombstone ................ one load
//!   it has some ............................... the index; once frozen, one search in one node
//!   a node of the index does not verify ....... the nodes or records that it was made of
//!   the index has lost or damaged a tombstone . the list of tombstones (the truth)
//! ```
//! A tombstone covers a key if start <= key < end, and deletes entries with a strictly smaller
//! sequence number. One with sequence number 0 deletes nothing.
//!
//! A damaged index costs speed; an answer is `Corruption` only if the list is damaged too. Any
//! thread; readers never wait.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::OnceLock;

use crate::error::{Corruption, Place, Result};
use crate::integrity::tag::Secret;
use crate::key::{SequenceNumber, Target};
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::arena::control_block::{Control, ControlWord};
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::node::Verified;
use crate::memtable::ground::Ground;
use crate::memtable::options::MemTableOptions;
use crate::memtable::skiplist::list::List;
use crate::memtable::skiplist::search::Search;
use crate::sync::Mutex;
use crate::tombstone::capacity::Load;
use crate::tombstone::fragments::Fragments;
use crate::tombstone::index::{CoveringRun, TombstoneIndex};
use crate::tombstone::query::{Asked, Question};
use crate::tombstone::span::{End, Source, Spans, Tombstone};

/// The range tombstones of a table: the list of their entries, and the index that answers for it.
pub(crate) struct RangeTombstones {
    pub(crate) list: List,
    /// The index over the list. The freeze finishes it.
    pub(crate) live: TombstoneIndex,
    finished: OnceLock<()>,
    /// The tombstones that the table's limit has counted, and their bytes in the index.
    counted: Mutex<(Load, u64)>,
}

/// The entry of a node of the list, verified as stored.
#[inline(always)]
fn stored<'t>(view: &View<'t>, node: u32) -> Option<Verified<'t>> {
    view.try_open(node).and_then(|node| node.try_verify(view))
}

#[inline(always)]
fn bound<'t>(view: &View<'t>, node: u32, end: End) -> Result<&'t [u8], Corruption> {
    if let Some(entry) = stored(view, node) {
        let value = entry.value_unverified();
        match end {
            End::Start => return Ok(entry.key()),
            End::Stop if entry.has_value(value, view.width) => return Ok(value),
            End::Stop => {}
        }
    }
    healed_bound(*view, node, end)
}

/// [`bound`] of a damaged entry.
#[cold]
#[inline(never)]
fn healed_bound<'t>(view: View<'t>, node: u32, end: End) -> Result<&'t [u8], Corruption> {
    let entry = view.entry(node)?;
    match end {
        End::Start => Ok(entry.key()),
        End::Stop => entry.value(&view),
    }
}

/// The bytes of start and end. The key's digest covers both lengths.
#[inline(never)]
fn key_bytes(view: &View<'_>, node: u32) -> Result<u64, Corruption> {
    let entry = stored(view, node).map_or_else(|| view.entry(node), Ok)?;
    Ok(entry.lengths().data_len())
}

/// The list's entries over one view, for work that reads many of them.
struct Entries<'t>(View<'t>);

impl Spans for Entries<'_> {
    fn bound(&self, node: u32, end: End) -> Result<&[u8], Corruption> {
        bound(&self.0, node, end)
    }

    fn key_bytes(&self, node: u32) -> Result<u64, Corruption> {
        key_bytes(&self.0, node)
    }
}

/// The list's entries, for questions: few of them need a key, so each makes its own view.
impl Spans for Arena {
    fn bound(&self, node: u32, end: End) -> Result<&[u8], Corruption> {
        bound(&self.view()?, node, end)
    }

    fn key_bytes(&self, node: u32) -> Result<u64, Corruption> {
        key_bytes(&self.view()?, node)
    }
}

/// The comparator and the entries, as the index takes them.
#[inline(always)]
fn source<'t>(ground: Ground<'t>, spans: &'t dyn Spans) -> Source<'t> {
    Source {
        comparator: ground.comparator,
        spans,
    }
}

/// How often a freeze walks the list, in O(n), because tombstones of one number may overlap.
const WALKS_MAX: u32 = 64;

impl RangeTombstones {
    #[inline(always)]
    pub(crate) fn new(options: &MemTableOptions, secret: Secret) -> Self {
        let list = List::new(
            Head::Ranges,
            options.paranoid.checksum_on_seek,
            options.paranoid.order_checks,
        );
        let (live, finished) = (TombstoneIndex::new(secret), OnceLock::new());
        RangeTombstones {
            list,
            live,
            finished,
            counted: Mutex::default(),
        }
    }

    /// A search in the list, which is ordered by start.
    #[inline(never)]
    pub(crate) fn search<'t>(&'t self, ground: Ground<'t>) -> Result<Search<'t>, Corruption> {
        Ok(self.list.search(ground.arena.view()?, ground.comparator))
    }

    /// Gives the writer room in the index for at least `wanted`, or changes nothing. The table's
    /// limit counts here, before a tombstone is written, what the index may take for it, and what
    /// the freeze adds to the index. `freeze_bytes` has what the freeze builds besides. O(log n).
    pub(crate) fn reserve(&self, arena: &Arena, room: &mut Load, wanted: Load) -> Result<()> {
        let Some(missing) = wanted.missing_in(*room) else {
            return Ok(());
        };
        let mut counted = self.counted.lock();
        let after = counted.0.with(missing);
        arena.limit.count_beside(counted.1, after.1)?;
        (*counted, *room) = (after, room.plus(missing));
        Ok(())
    }

    /// Bytes that the limit would count for `more` tombstones.
    pub(crate) fn bytes_for(&self, more: Load) -> u64 {
        let counted = self.counted.lock();
        counted.0.with(more).1.saturating_sub(counted.1)
    }

    /// The most bytes of heap memory that the freeze will add; 0 once it is done.
    pub(crate) fn freeze_bytes(&self) -> u64 {
        if self.finished.get().is_some() {
            return 0;
        }
        let last = self.counted.lock().0.finish_bytes_max();
        // Before the last node the freeze builds the nodes that merging has left: one for each
        // level, each four times as large as the one below.
        last + last + last.div_ceil(3)
    }

    /// Gives back the room of a writer whose write was refused.
    #[cold]
    pub(crate) fn give_back(&self, arena: &Arena, room: &mut Load) {
        let mut counted = self.counted.lock();
        let load = counted.0.without(std::mem::take(room));
        let after = (load, load.bytes_max());
        // The limit never refuses a smaller count.
        if arena.limit.count_beside(counted.1, after.1).is_ok() {
            *counted = after;
        }
    }

    /// Adds a tombstone of the list to the live index, and returns its number there. From then on
    /// the list answers in place of the index if the insert fails, if the index answers wrongly for
    /// the tombstone, or if the comparator panics.
    pub(crate) fn index(&self, ground: Ground<'_>, write: &Fields<'_>, node: u32) -> Option<u32> {
        let unless_indexed = ListAnswers {
            control: &ground.arena.control,
        };
        let view = ground.arena.view().ok()?;
        let entries = Entries(view);
        let source = source(ground, &entries);
        let tombstone = Tombstone {
            node,
            keys: [write.key, write.value],
            sequence: write.sequence,
        };
        let inserted = self.live.insert(source, &tombstone);
        let write = black_box(write);
        if inserted.is_err() || self.misses(source, write.key, write.sequence) {
            return None;
        }
        std::mem::forget(unless_indexed);
        inserted.ok()
    }

    /// Whether the index does not find a tombstone at its own start. An answer of `Corruption` is
    /// no miss, because each question that meets damage asks the list.
    fn misses(&self, source: Source<'_>, start: &[u8], sequence: SequenceNumber) -> bool {
        let found = self
            .live
            .max_covering(source, Question::new(start, sequence));
        // A tombstone with number 0 deletes nothing.
        found.is_ok_and(|found| found != (sequence > 0).then_some(sequence))
    }

    /// Whether the index misses a tombstone of the list at its start, or lets one reach beyond its
    /// end. Checks the list up to its first gap: a damaged list does not accuse the index. O(n log
    /// n).
    fn contradicts_list(&self, ground: Ground<'_>) -> Result<bool, Corruption> {
        let search = self.search(ground)?;
        let entries = Entries(search.view);
        let source = source(ground, &entries);
        let (mut at, mut walks) = (search.sentinel, 0..WALKS_MAX);
        while let Some(entry) = search.next(at).map_err(|gap| gap.corruption)? {
            let sequence = entry.sequence();
            let end = Question::new(entry.value(&search.view)?, sequence);
            let reaches = || self.live.max_covering(source, end) == Ok(Some(sequence));
            // Another tombstone of this number may cover the end: the list decides.
            if self.misses(source, entry.key(), sequence)
                || reaches()
                    && walks.next().is_some()
                    && self
                        .covering_truth(ground, end)
                        .is_ok_and(|truth| truth != Some(sequence))
            {
                return Ok(true);
            }
            at = entry.offset();
        }
        Ok(false)
    }

    /// Whether a range tombstone was written. A flag that is damaged or being set counts as yes.
    #[inline(always)]
    pub(crate) fn may_be_any(&self, arena: &Arena) -> bool {
        !arena.control.is_unset(ControlWord::HAS_RANGES)
    }

    /// Whether the live index has every tombstone. A damaged flag counts as no.
    #[inline(always)]
    fn index_complete(&self, arena: &Arena) -> bool {
        arena.control.is_unset(ControlWord::INDEX_LOST)
    }

    /// The sequence number of the newest tombstone over the question's key, at or below its
    /// snapshot and above its floor.
    #[inline(always)]
    pub(crate) fn covering(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        if !self.may_be_any(ground.arena) {
            return Ok(None);
        }
        if self.index_complete(ground.arena)
            && let Ok(answer) = self
                .live
                .max_covering(source(ground, ground.arena), question)
        {
            return Ok(answer);
        }
        self.covering_truth(ground, question)
    }

    /// The sequence number of the newest range tombstone over each of several keys, above the floor
    /// of each. `None` if the caller must ask key by key.
    pub(crate) fn covering_many<'k, const N: usize>(
        &self,
        ground: Ground<'_>,
        keys: impl Iterator<Item = (&'k [u8], Option<SequenceNumber>)>,
        snapshot: SequenceNumber,
    ) -> Option<[Option<SequenceNumber>; N]> {
        if !self.may_be_any(ground.arena) {
            return Some([None; N]);
        }
        let mut asked = [Asked::new(ground.comparator, &[], SequenceNumber::MAX); N];
        let mut count = 0;
        for (slot, (key, floor)) in asked.iter_mut().zip(keys) {
            *slot = Asked::new(ground.comparator, key, floor.unwrap_or(0));
            count += 1;
        }
        let asked = asked.get_mut(..count)?;
        if !self.index_complete(ground.arena) {
            return None;
        }
        self.live
            .ask(source(ground, ground.arena), snapshot, asked)
            .ok()?;
        let mut answers = [None; N];
        for (answer, one) in answers.iter_mut().zip(asked) {
            *answer = one.answer();
        }
        Some(answers)
    }

    /// Answers from the list: walks the tombstones that start at or before the key. O(tombstones).
    #[cold]
    fn covering_truth(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        let search = self.search(ground)?;
        let last = Target::after_key(ground.comparator, question.key);
        let mut best = question.floor;
        let mut at = search.sentinel;
        while let Some(entry) = search.next_or_gap(at).map_err(|gap| gap.corruption)? {
            if !entry.order(ground.comparator, &last).is_lt() {
                break;
            }
            let sequence = entry.sequence();
            if sequence <= question.snapshot
                && sequence > best
                && ground
                    .comparator
                    .compare(question.key, entry.value(&search.view)?)
                    .is_lt()
            {
                best = sequence;
            }
            at = entry.offset();
        }
        Ok((best > question.floor).then_some(best))
    }

    /// Answers as [`covering`](Self::covering) does, and writes the interval of that tombstone to
    /// `run`. The interval is empty if the index does not answer.
    pub(crate) fn covering_run(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
        run: &mut CoveringRun,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        if !self.may_be_any(ground.arena) {
            return Ok(None);
        }
        if self.index_complete(ground.arena)
            && let Ok(found) = self
                .live
                .covering_run(source(ground, ground.arena), question, run)
        {
            return Ok(found);
        }
        *run = CoveringRun::default();
        self.covering_truth(ground, question)
    }

    /// The fragments of a frozen table, each with its newest sequence number. `None` if the caller
    /// must cut them from the list: the index is damaged, or a tombstone is newer than `snapshot`
    /// or deletes nothing. O(tombstones).
    pub(crate) fn fragments(
        &self,
        ground: Ground<'_>,
        snapshot: SequenceNumber,
    ) -> Option<Fragments> {
        self.finished
            .get()
            .filter(|()| self.index_complete(ground.arena))?;
        let view = ground.arena.view().ok()?;
        self.live
            .fragments(source(ground, &Entries(view)), snapshot)
            .ok()?
    }

    /// Compares the number of tombstones in the index of a frozen table with `listed`, their number
    /// in the list. O(tombstones).
    pub(crate) fn compare(&self, arena: &Arena, listed: u64) -> Result<(), Corruption> {
        match self
            .index_complete(arena)
            .then(|| self.live.held())
            .filter(|held| *held != listed)
        {
            Some(held) => Err(Corruption::new(Place::Sum, 0, listed, held)),
            None => Ok(()),
        }
    }

    /// Builds one index node over all tombstones: their fragments, each with its newest sequence
    /// number. Holds no lock that readers take or that a writer waits for. A second thread that
    /// freezes waits.
    pub(crate) fn freeze(&self, ground: Ground<'_>) {
        if self.may_be_any(ground.arena) && self.finished.get().is_none() {
            // The check below finds what a processor error left in the index. Then the list
            // answers.
            let unless_right = ListAnswers {
                control: &ground.arena.control,
            };
            let entries = ground.arena.view().map(Entries);
            let spans = entries
                .as_ref()
                .map_or(ground.arena as &dyn Spans, |entries| entries);
            self.live.finish(source(ground, spans));
            if self.contradicts_list(ground) != Ok(true) {
                std::mem::forget(unless_right);
            }
            let _ = self.finished.set(());
        }
    }
}

/// A guard. It is dropped after an error or a panic of the comparator. The index then lacks a
/// tombstone, so the list answers from then on.
struct ListAnswers<'t> {
    control: &'t Control,
}

impl Drop for ListAnswers<'_> {
    fn drop(&mut self) {
        self.control.set(ControlWord::INDEX_LOST, 1);
    }
}
