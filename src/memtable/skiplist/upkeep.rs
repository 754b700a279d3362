//! Keeps the directory in repair.
//!
//! ```text
//!   look     a few pages per call, on from where the last call ended
//!   renew    all pages are forgotten; then every node of level 0 is named as new ones are
//! ```
//! * UPKEEP-1: a directory is renewed once at most, so its pages take twice their memory at most. One that breaks again
//!   stays as it is: it costs steps.
//! * UPKEEP-2: while it is renewed, searches of what is not named yet go by the towers, and writers name what they
//!   write.
//!
//! Any thread, beside readers and writers. A look is O(1); renewing is O(entries), once per table.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "words are packed of halves")]

use crate::memtable::skiplist::arena::SubChunk;
use crate::memtable::skiplist::directory::look::{Look, Standing};
use crate::memtable::skiplist::directory::lookup::LeafSlot;
use crate::memtable::skiplist::directory::name::{NAMED_EVERY, Named};
use crate::memtable::skiplist::layout::HEADER;
use crate::memtable::skiplist::node::Node;
use crate::memtable::skiplist::read_ahead::NEAR_UNITS;
use crate::memtable::skiplist::search::Search;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Pages that one call looks at: some 2500 nodes.
const PAGES_PER_CALL: usize = 64;
/// A page that this many looks in turn found locked is suspect: a writer holds a lock for microseconds.
const BUSY_MAX: u32 = 4;

/// What upkeep remembers between its calls.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    /// The page to look at next: level 32 | page 32; 0: the root.
    next: AtomicU64,
    /// The last page that was found locked: page 32 | looks 32.
    busy: AtomicU64,
    /// 1: it was renewed.
    renewed: AtomicU32,
}

impl Upkeep {
    fn next(&self) -> Option<Standing> {
        // ORDERING: Relaxed: advice.
        let word = self.next.load(Ordering::Relaxed);
        (word != 0).then_some(Standing { level: (word >> 32) as u32, page: word as u32 })
    }

    fn set_next(&self, at: Option<Standing>) {
        let word = at.map_or(0, |at| u64::from(at.level) << 32 | u64::from(at.page));
        // ORDERING: Relaxed: advice.
        self.next.store(word, Ordering::Relaxed);
    }

    /// Counts a page that was found locked. `true`: too often in turn.
    fn found_busy(&self, page: u32) -> bool {
        // ORDERING: Relaxed: advice.
        let word = self.busy.load(Ordering::Relaxed);
        let looks = if (word >> 32) as u32 == page { word as u32 + 1 } else { 1 };
        // ORDERING: Relaxed: advice.
        self.busy.store(u64::from(page) << 32 | u64::from(looks), Ordering::Relaxed);
        looks >= BUSY_MAX
    }

    fn found_free(&self, page: u32) {
        // ORDERING: Relaxed: advice.
        if (self.busy.load(Ordering::Relaxed) >> 32) as u32 == page {
            // ORDERING: Relaxed: advice.
            self.busy.store(0, Ordering::Relaxed);
        }
    }

    /// Looks at some pages, and renews the directory if one is broken. `settle` waits until all writers at work have left.
    pub(crate) fn look_on(&self, search: &Search<'_>, settle: &mut impl FnMut()) {
        if search.directory == 0 {
            return;
        }
        // ORDERING: Relaxed: one of several callers wins; nothing is read through it.
        if self.meets_damage(search, settle) && self.renewed.swap(1, Ordering::Relaxed) == 0 {
            search.renew_directory();
        }
    }

    fn meets_damage(&self, search: &Search<'_>, settle: &mut impl FnMut()) -> bool {
        let directory = search.directory();
        let mut at = self.next().or_else(|| directory.first());
        let mut broken = directory.is_lost();
        for _ in 0..PAGES_PER_CALL {
            let Some(here) = at.filter(|_| !broken) else { break };
            match directory.look(here) {
                Look::Sound => self.found_free(here.page),
                Look::Busy => {
                    broken = self.found_busy(here.page) && directory.stays_locked(here, settle);
                }
                Look::Damaged(_) => broken = true,
            }
            at = directory.after(here);
        }
        self.set_next(at.filter(|_| !broken));
        broken
    }
}

impl Search<'_> {
    /// Builds the directory anew from level 0.
    #[cold]
    fn renew_directory(&self) {
        let directory = self.directory();
        let (mut slab, mut guess, mut at, mut run) = (SubChunk::default(), LeafSlot::NONE, self.sentinel, 0);
        directory.forget();
        for _ in 0..self.view.arena().room.handed_bytes() / HEADER as u64 {
            let Some(node) = self.next_intact(at) else { return };
            let beside = node.offset().abs_diff(at) <= NEAR_UNITS;
            (at, run) = (node.offset(), if beside { run + 1 } else { 0 });
            if run % NAMED_EVERY == 0
                && let Named::In(named) = directory.name(&mut slab, guess, at, &self.position(&node))
            {
                guess = named;
            }
        }
    }

    /// The next node that is intact.
    fn next_intact(&self, at: u32) -> Option<Node<'_>> {
        match self.next(at) {
            Ok(entry) => entry.map(|entry| *entry.node()),
            Err(gap) => self.verified(gap.after).ok().flatten().map(|entry| *entry.node()),
        }
    }
}
