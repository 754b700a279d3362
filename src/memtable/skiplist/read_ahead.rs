//! Prefetches what a scan reads next: by address where neighbours are adjacent in memory, by the
//! directory elsewhere.
//!
//! ```text
//!   adjacent    at -> next -> . -> . -> .               prefetch 2048 bytes ahead
//!   elsewhere   leaf [ .. expected . . . later . far .. ]   the scan meets `expected`: prefetch the nodes of the four slots
//!                                                           after `far`, expect `later`, and note the node four slots after it
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
/// How many named nodes the read-ahead prefetches at a time.
const GROUP: u32 = 4;
/// How many further ones it prefetches when it starts. The scan meets the last but one of each group.
const AHEAD: u32 = 2;
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
    /// Nodes at which the scan moves the read-ahead, next and after that; 0: unknown.
    expected: u32,
    later: u32,
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
            later: 0,
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
    #[inline(never)]
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
        direction: Direction,
    ) -> bool {
        let (to, key) = (entry.offset(), entry.key().as_ptr().addr());
        let (back, on) = (at.wrapping_sub(to), to.wrapping_sub(at));
        // Most tables are filled in ascending order, if they are filled in order.
        if direction.pick((back, on)) <= NEAR_UNITS {
            prefetch_lines(ahead(key, direction), 3);
        } else if direction.pick((on, back)) <= NEAR_UNITS {
            prefetch_against(key, direction);
        } else {
            return self.directory != 0 && read_ahead.is_due_elsewhere(to);
        }
        read_ahead.is_due_beside(to) && self.directory != 0
    }

    /// Moves the read-ahead after a step to a node. Compiled once for each direction.
    #[inline(never)]
    pub(crate) fn read_on(self, read_ahead: &mut ReadAhead, node: u32, direction: Direction) {
        match direction {
            Direction::Forward => self.move_on(read_ahead, node, Direction::Forward),
            Direction::Backward => self.move_on(read_ahead, node, Direction::Backward),
        }
    }

    #[inline(always)]
    fn move_on(self, read_ahead: &mut ReadAhead, node: u32, direction: Direction) {
        if node == read_ahead.expected {
            self.ask_group(read_ahead, direction);
        } else {
            self.start_in_directory(read_ahead, node, direction);
        }
    }

    /// Prefetches a group of nodes, and expects the node that was noted in the group before.
    #[inline(always)]
    fn ask_group(&self, read_ahead: &mut ReadAhead, direction: Direction) {
        read_ahead.steps = 0;
        (read_ahead.expected, read_ahead.later) = (read_ahead.later, 0);
        self.ask_further(read_ahead, GROUP, direction);
    }

    /// Prefetches `count` more nodes, and notes the last but one.
    #[inline(always)]
    fn ask_further(&self, read_ahead: &mut ReadAhead, count: u32, direction: Direction) {
        let (directory, mut far) = (self.directory(), read_ahead.far);
        for left in (0..count).rev() {
            let next = slot_after(far, direction);
            let node = directory.named(next);
            if node == 0 {
                read_ahead.far = far;
                return self.ask_beside(read_ahead, left + 1, direction);
            }
            self.prefetch_entry(node);
            far = next;
            if left == 1 {
                read_ahead.later = node;
            }
        }
        read_ahead.far = far;
    }

    /// [`ask_further`](Self::ask_further), past the last slot of a leaf.
    #[inline(never)]
    fn ask_beside(self, read_ahead: &mut ReadAhead, count: u32, direction: Direction) {
        for left in (0..count).rev() {
            let next = slot_after(read_ahead.far, direction);
            let (far, node) = match self.directory().named(next) {
                0 => self.named_beside(read_ahead.far, direction),
                node => (next, node),
            };
            read_ahead.far = far;
            if node == 0 {
                return;
            }
            self.prefetch_entry(node);
            if left == 1 {
                read_ahead.later = node;
            }
        }
    }

    /// The directory's slot after another one, in another leaf, and the node that it names; 0: none.
    /// Prefetches the leaf after that one.
    fn named_beside(&self, at: LeafSlot, direction: Direction) -> (LeafSlot, u32) {
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
        (read_ahead.steps, read_ahead.expected) = (0, 0);
        let Some(opened) = self.view.try_open(node) else {
            return;
        };
        let Some(hint) = self.hint(&opened.position_as_stored(self.comparator)) else {
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
        (read_ahead.far, read_ahead.later) = (place, 0);
        self.ask_further(read_ahead, AHEAD, direction);
        self.ask_group(read_ahead, direction);
    }

    /// Prefetches the lines that a writer fills a few entries after this unit.
    #[inline(always)]
    pub(crate) fn prefetch_ahead(&self, unit: u32) {
        if let Some(address) = self.view.locate_near(unit) {
            prefetch_lines(address.wrapping_add(WRITER_AHEAD), 3);
        }
    }
}

/// The address that is prefetched at an adjacent entry, in memory that ascends with the keys.
#[inline(always)]
fn ahead(key: usize, direction: Direction) -> usize {
    direction.pick((key.wrapping_sub(NEAR_AHEAD), key.wrapping_add(NEAR_AHEAD)))
}

/// Prefetches ahead of an adjacent entry in memory that descends while keys ascend.
#[cold]
#[inline(never)]
fn prefetch_against(key: usize, direction: Direction) {
    prefetch_lines(ahead(key, direction.opposite()), 3);
}

/// The slot after another one in its leaf. There may be no such slot.
#[inline(always)]
fn slot_after(at: LeafSlot, direction: Direction) -> LeafSlot {
    let slot = direction.pick((at.slot.wrapping_sub(1), at.slot.wrapping_add(1)));
    LeafSlot { slot, ..at }
}
