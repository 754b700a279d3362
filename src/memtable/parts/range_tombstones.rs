//! The range tombstones of a table: which of them deletes a key.
//!
//! ```text
//!   no tombstone at all ........................... one load
//!   otherwise ..................................... the index; once frozen, one search among the newest of all fragments
//!   a node of the index does not verify ........... what it was made of
//!   the index has lost or damaged a tombstone ..... the tombstones themselves (the truth)
//! ```
//! A tombstone covers a key if start <= key < end, and deletes what has a strictly smaller sequence
//! number: one with sequence number 0 deletes nothing.
//!
//! * RANGE-TOMBSTONES-1: a damaged index costs speed; an answer is `Corruption` only if the truth
//!   is damaged too.
//! * RANGE-TOMBSTONES-2: before a tombstone is written, the table's limit has counted what the
//!   index may take with it, with what the freeze adds to it. What the freeze builds besides
//!   belongs into `freeze_bytes`.
//!
//! Any thread; readers never wait.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::OnceLock;

use crate::error::{Corruption, Place, Result};
use crate::integrity::tag::Secret;
use crate::key::{SequenceNumber, Target};
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::arena::control::{Control, ControlWord, Head};
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::node::{Verified, no_node};
use crate::memtable::lookup::ground::Ground;
use crate::memtable::options::MemTableOptions;
use crate::memtable::skiplist::search::{List, Search};
use crate::sync::Mutex;
use crate::tombstone::fragments::Fragments;
use crate::tombstone::live::{CoveringRun, LiveIndex};
use crate::tombstone::query::{Asked, Question};
use crate::tombstone::span::{End, Source, Spans, Tombstone};
use crate::tombstone::tree::Load;

/// The range tombstones of a table: the list of their entries, and the index that answers for it.
pub(crate) struct RangeTombstones {
    pub(crate) list: List,
    /// The index. The freeze finishes it.
    pub(crate) live: LiveIndex,
    finished: OnceLock<()>,
    /// What the limit has counted, and the bytes for that (RANGE-TOMBSTONES-2).
    counted: Mutex<(Load, u64)>,
}

/// The entry of a node of the list, verified.
#[inline(always)]
fn entry<'t>(view: &View<'t>, node: u32) -> Result<Verified<'t>, Corruption> {
    let entry = view.try_open(node).and_then(|node| node.try_verify(view));
    entry.map_or_else(|| Err(damaged(view, node)), Ok)
}

#[cold]
#[inline(never)]
fn damaged(view: &View<'_>, node: u32) -> Corruption {
    let found = view.open(node).and_then(|node| node.verify(view));
    found.err().unwrap_or_else(|| no_node(node))
}

#[inline(always)]
fn bound<'t>(view: &View<'t>, node: u32, end: End) -> Result<&'t [u8], Corruption> {
    let entry = entry(view, node)?;
    match end {
        End::Start => Ok(entry.key()),
        End::Stop => entry.value(view.width),
    }
}

/// The key's digest covers both lengths.
fn key_bytes(view: &View<'_>, node: u32) -> Result<u64, Corruption> {
    Ok(entry(view, node)?.node().lengths().data_len())
}

/// The list's entries, for work that reads many of them.
struct Entries<'t>(View<'t>);

impl Spans for Entries<'_> {
    fn bound(&self, node: u32, end: End) -> Result<&[u8], Corruption> {
        bound(&self.0, node, end)
    }

    fn key_bytes(&self, node: u32) -> Result<u64, Corruption> {
        key_bytes(&self.0, node)
    }
}

/// For questions, of which few need a key.
impl Spans for Arena {
    fn bound(&self, node: u32, end: End) -> Result<&[u8], Corruption> {
        bound(&self.view()?, node, end)
    }

    fn key_bytes(&self, node: u32) -> Result<u64, Corruption> {
        key_bytes(&self.view()?, node)
    }
}

/// What the index takes of the list.
#[inline(always)]
fn source<'t>(ground: Ground<'t>, spans: &'t dyn Spans) -> Source<'t> {
    Source {
        comparator: ground.comparator,
        spans,
    }
}

/// How often a freeze walks the list because tombstones of one number may overlap: a walk is O(n).
const WALKS_MAX: u32 = 64;

impl RangeTombstones {
    pub(crate) fn new(options: &MemTableOptions, secret: Secret) -> Self {
        let list = List::new(
            Head::Ranges,
            options.paranoid.checksum_on_seek,
            options.paranoid.order_checks,
        );
        let (live, finished) = (LiveIndex::new(secret), OnceLock::new());
        RangeTombstones {
            list,
            live,
            finished,
            counted: Mutex::default(),
        }
    }

    /// A search among the tombstones by start.
    #[inline]
    pub(crate) fn search<'t>(&'t self, ground: Ground<'t>) -> Result<Search<'t>, Corruption> {
        Ok(self.list.search(ground.arena.view()?, ground.comparator))
    }

    /// Reserves room until the writer has at least `wanted`, or changes nothing
    /// (RANGE-TOMBSTONES-2). O(log n).
    pub(crate) fn reserve(&self, arena: &Arena, room: &mut Load, wanted: Load) -> Result<()> {
        let Some(missing) = wanted.missing_in(*room) else {
            return Ok(());
        };
        let mut counted = self.counted.lock();
        let after = counted.0.with(missing);
        arena.room.count_beside(counted.1, after.1)?;
        (*counted, *room) = (after, room.plus(missing));
        Ok(())
    }

    /// Bytes that the limit would count for `more`.
    pub(crate) fn bytes_for(&self, more: Load) -> u64 {
        let counted = self.counted.lock();
        counted.0.with(more).1.saturating_sub(counted.1)
    }

    /// Bytes of heap memory that the freeze will add, at most; 0 once it is done.
    pub(crate) fn freeze_bytes(&self) -> u64 {
        if self.finished.get().is_some() {
            return 0;
        }
        let last = self.counted.lock().0.finish_bytes_max();
        // Before the last node the freeze builds what merging has left: a node of each level, each
        // four times as large as the one below.
        last + last + last.div_ceil(3)
    }

    /// Gives back the room of a writer whose write was refused.
    #[cold]
    pub(crate) fn give_back(&self, arena: &Arena, room: &mut Load) {
        let mut counted = self.counted.lock();
        let load = counted.0.without(std::mem::take(room));
        let after = (load, load.bytes_max());
        // Less is never refused.
        if arena.room.count_beside(counted.1, after.1).is_ok() {
            *counted = after;
        }
    }

    /// Adds a tombstone of the list to the live index, and returns its number there. If that fails,
    /// the index answers wrongly for it, or the comparator panics, the list answers from then on.
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

    /// Whether the index denies a tombstone its start. Damage that it meets is no denial: each
    /// question that meets it asks the list.
    fn misses(&self, source: Source<'_>, start: &[u8], sequence: SequenceNumber) -> bool {
        let found = self
            .live
            .max_covering(source, Question::new(start, sequence));
        // One with number 0 deletes nothing.
        found.is_ok_and(|found| found != (sequence > 0).then_some(sequence))
    }

    /// Whether the index denies a tombstone of the list its start, or lets one reach beyond its
    /// end. O(n log n). Up to the first gap of the list: a key behind it is not the index's fault.
    fn contradicts_list(&self, ground: Ground<'_>) -> Result<bool, Corruption> {
        let search = self.search(ground)?;
        let entries = Entries(search.view);
        let source = source(ground, &entries);
        let (mut at, mut walks) = (search.sentinel, 0..WALKS_MAX);
        while let Some(entry) = search.next_or_gap(at).map_err(|gap| gap.corruption)? {
            let sequence = entry.node().sequence();
            let end = Question::new(entry.value(search.view.width)?, sequence);
            let reaches = || self.live.max_covering(source, end) == Ok(Some(sequence));
            // Another one of this number may cover the end: the list knows.
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

    /// Whether a range tombstone was written. A damaged flag, or one that is being set, counts as
    /// yes.
    #[inline(always)]
    pub(crate) fn may_be_any(&self, arena: &Arena) -> bool {
        !matches!(arena.control.get(ControlWord::HAS_RANGES), Ok(0))
    }

    /// Whether the live index has every tombstone. A damaged flag counts as no.
    #[inline(always)]
    fn index_complete(&self, arena: &Arena) -> bool {
        matches!(arena.control.get(ControlWord::INDEX_LOST), Ok(0))
    }

    /// The sequence number of the tombstone that the question is about.
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

    /// The newest range tombstone over each of several keys, above the floor of each. `None` if the
    /// keys must be asked one by one.
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

    /// Walks the list over the tombstones that start at or before the key. O(tombstones).
    #[cold]
    fn covering_truth(
        &self,
        ground: Ground<'_>,
        question: Question<'_>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        let search = self.search(ground)?;
        let last = Target::behind_key(ground.comparator, question.key);
        let mut best = question.floor;
        let mut at = search.sentinel;
        while let Some(entry) = search.next_or_gap(at).map_err(|gap| gap.corruption)? {
            if !entry.node().order(ground.comparator, &last).is_lt() {
                break;
            }
            let sequence = entry.node().sequence();
            if sequence <= question.snapshot
                && sequence > best
                && ground
                    .comparator
                    .compare(question.key, entry.value(search.view.width)?)
                    .is_lt()
            {
                best = sequence;
            }
            at = entry.offset();
        }
        Ok((best > question.floor).then_some(best))
    }

    /// See [`covering`](Self::covering). Writes the interval of that tombstone as well; it is empty
    /// if the index does not answer.
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

    /// The fragments of a frozen table, each with its newest sequence number. `None` if they must
    /// be cut from the list: the index is damaged, or a tombstone is newer than `snapshot` or
    /// deletes nothing. O(tombstones).
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

    /// Compares the number of tombstones in the index of a frozen table with `listed`, that of the
    /// list. O(tombstones).
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

    /// Cuts all tombstones into fragments, each with its newest sequence number: one node of the
    /// index over everything. Holds no lock that readers take or that a writer waits for; a second
    /// thread that freezes waits.
    pub(crate) fn freeze(&self, ground: Ground<'_>) {
        if self.may_be_any(ground.arena) && self.finished.get().is_none() {
            // The index is merged; if a processor erred meanwhile, the list answers.
            let unless_right = ListAnswers {
                control: &ground.arena.control,
            };
            self.live.finish(source(ground, ground.arena));
            if self.contradicts_list(ground) != Ok(true) {
                std::mem::forget(unless_right);
            }
            let _ = self.finished.set(());
        }
    }
}

/// A guard. If it is dropped, after an error or a panic of the comparator, the index lacks a
/// tombstone, and the list answers from then on.
struct ListAnswers<'t> {
    control: &'t Control,
}

impl Drop for ListAnswers<'_> {
    fn drop(&mut self) {
        self.control.set(ControlWord::INDEX_LOST, 1);
    }
}
