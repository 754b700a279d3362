//! Prefetches what a scan reads next: by address where neighbours are adjacent in memory, by the
//! directory elsewhere.
//!
//! ```text
//!   adjacent    at -> next -> . -> . -> .               prefetch 2048 bytes ahead
//!   elsewhere   leaf [ .. expected . . . . . far .. ]   the scan meets `expected`: prefetch the node of the slot after `far`
//! ```
//! No answer depends on what is read here.
//!
//! Any thread; lock-free. Without a directory only adjacent neighbours are prefetched.

#![forbid(unsafe_code)]

use crate::key::{Direction, Target};
use crate::memtable::arena::node::Verified;
use crate::memtable::directory::lookup::LeafSlot;
use crate::memtable::skiplist::bracket::Gap;
use crate::memtable::skiplist::search::Search;
use crate::prefetch::prefetch_lines;

/// Neighbours at most this many arena units apart are adjacent: they were probably written one
/// after the other.
const NEAR_UNITS: u32 = 128;
/// How many bytes ahead adjacent neighbours are prefetched: farther than the processor does itself.
const NEAR_AHEAD: usize = 2048;
/// How many bytes ahead of its node a writer prefetches: a few entries.
const WRITER_AHEAD: usize = 1024;
/// How many named nodes the read-ahead is ahead in the directory.
const AHEAD: i32 = 6;
/// The read-ahead starts again after this many steps elsewhere without meeting `expected`: it has
/// lost the scan, or the scan is a new one.
const PATIENCE: u32 = 24;
/// The read-ahead ignores the directory after this many adjacent steps in a row.
const LONG_RUN: u32 = 16;

/// Where a scan and its read-ahead are in the directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadAhead {
    /// Steps to nodes elsewhere since the scan met `expected`.
    steps: u32,
    /// Adjacent steps in a row, up to `LONG_RUN`.
    run: u32,
    /// The next node of the scan that the directory names, and its slot.
    expected: u32,
    next: LeafSlot,
    /// The slot of the last prefetched node.
    far: LeafSlot,
}

impl Default for ReadAhead {
    /// A read-ahead that starts at the first step between entries that are not adjacent.
    fn default() -> Self {
        ReadAhead {
            steps: PATIENCE,
            run: 0,
            expected: 0,
            next: LeafSlot::NONE,
            far: LeafSlot::NONE,
        }
    }
}

impl ReadAhead {
    /// Whether the read-ahead moves after a step to this node, which is not adjacent.
    #[inline(always)]
    fn is_due_elsewhere(&mut self, node: u32) -> bool {
        self.run = 0;
        self.steps += 1;
        node == self.expected || self.steps > PATIENCE
    }

    /// Whether the read-ahead moves after a step to this node, which is adjacent. It rests in a
    /// long run of such steps; the first step out of the run starts it again.
    #[inline(always)]
    fn is_due_beside(&mut self, node: u32) -> bool {
        if self.run == LONG_RUN {
            return false;
        }
        self.run += 1;
        if self.run == LONG_RUN {
            self.steps = PATIENCE;
        }
        self.run < LONG_RUN && node == self.expected
    }
}

impl<'a> Search<'a> {
    /// The first entry at or after a position, where a scan begins. Prefetches the nodes that the
    /// directory names after it first.
    pub(crate) fn first_of_scan(
        &self,
        target: &Target<'_>,
        read_ahead: &mut ReadAhead,
    ) -> Result<Option<Verified<'a>>, Gap> {
        let hint = self.hint(target);
        if let Some(hint) = &hint {
            self.start_at_place(read_ahead, hint.at, Direction::Forward);
        }
        self.first_at_or_after_from(hint.as_ref(), target)
    }

    /// After a step from `at` to an adjacent `entry`, prefetches further in the same direction.
    /// `true`: the caller must move the read-ahead, with `read_on`.
    #[inline(always)]
    pub(crate) fn prefetch_beside(
        &self,
        read_ahead: &mut ReadAhead,
        at: u32,
        entry: &Verified<'_>,
    ) -> bool {
        let (to, key) = (entry.offset(), entry.key().as_ptr());
        if to.wrapping_sub(at) <= NEAR_UNITS {
            prefetch_lines(key.addr().wrapping_add(NEAR_AHEAD), 3);
        } else if at.wrapping_sub(to) <= NEAR_UNITS {
            prefetch_lines(key.addr().wrapping_sub(NEAR_AHEAD), 3);
        } else {
            return self.directory != 0 && read_ahead.is_due_elsewhere(to);
        }
        read_ahead.is_due_beside(to) && self.directory != 0
    }

    /// Moves the read-ahead after a step to a node. Compiled once for each direction.
    pub(crate) fn read_on(self, read_ahead: &mut ReadAhead, node: u32, direction: Direction) {
        match direction {
            Direction::Forward => self.move_on(read_ahead, node, Direction::Forward),
            Direction::Backward => self.move_on(read_ahead, node, Direction::Backward),
        }
    }

    #[inline(always)]
    fn move_on(self, read_ahead: &mut ReadAhead, node: u32, direction: Direction) {
        if node == read_ahead.expected {
            read_ahead.steps = 0;
            (read_ahead.next, read_ahead.expected) = self.named_after(read_ahead.next, direction);
            self.ask_further(read_ahead, direction);
        } else {
            self.start_in_directory(read_ahead, node, direction);
        }
    }

    /// Prefetches one more node.
    #[inline(always)]
    fn ask_further(&self, read_ahead: &mut ReadAhead, direction: Direction) {
        let (far, node) = self.named_after(read_ahead.far, direction);
        read_ahead.far = far;
        if node != 0 {
            self.prefetch_entry(node);
        }
    }

    /// The directory's slot after another one, and the node that it names; 0: none.
    #[inline(always)]
    fn named_after(&self, at: LeafSlot, direction: Direction) -> (LeafSlot, u32) {
        let next = LeafSlot {
            slot: at.slot.wrapping_add_signed(direction.pick((-1, 1))),
            ..at
        };
        match self.directory().named(next) {
            0 => self.named_beside(at, direction),
            node => (next, node),
        }
    }

    /// The slot after the last one of a leaf, and its node. Takes the search by value, so that the
    /// steps of scans keep it in registers.
    #[inline(never)]
    fn named_beside(self, at: LeafSlot, direction: Direction) -> (LeafSlot, u32) {
        let directory = self.directory();
        let Some(next) = directory.moved(at, direction.pick((-1, 1))) else {
            return (LeafSlot::NONE, 0);
        };
        if next.leaf != at.leaf {
            directory.prefetch_leaf(direction.pick(directory.beside(next.leaf)));
        }
        (next, directory.named(next))
    }

    /// Starts the read-ahead at the slot of a node of the scan.
    #[inline(never)]
    fn start_in_directory(self, read_ahead: &mut ReadAhead, node: u32, direction: Direction) {
        read_ahead.steps = 0;
        read_ahead.expected = 0;
        let Some(opened) = self.view.try_open(node) else {
            return;
        };
        let Some(hint) = self.hint(&opened.position(self.comparator)) else {
            return;
        };
        let is_before = direction == Direction::Forward && hint.after != node;
        let slot = if is_before {
            hint.at.slot.wrapping_sub(1)
        } else {
            hint.at.slot
        };
        self.start_at_place(read_ahead, LeafSlot { slot, ..hint.at }, direction);
    }

    /// Starts the read-ahead at this slot.
    #[inline(always)]
    fn start_at_place(&self, read_ahead: &mut ReadAhead, place: LeafSlot, direction: Direction) {
        read_ahead.steps = 0;
        read_ahead.far = place;
        for _ in 0..AHEAD {
            self.ask_further(read_ahead, direction);
        }
        (read_ahead.next, read_ahead.expected) = self.named_after(place, direction);
    }

    /// Prefetches the lines that a writer fills a few entries after this unit.
    #[inline(always)]
    pub(crate) fn prefetch_ahead(&self, unit: u32) {
        if let Some(address) = self.view.locate_near(unit) {
            prefetch_lines(address.wrapping_add(WRITER_AHEAD), 3);
        }
    }
}
