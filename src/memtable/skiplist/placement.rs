//! Placement: nodes and heads are built in other cache lines than the words that vouch for their links.
//!
//! ```text
//!   reservation  | pad | link h-1 .. link 0 | header | .. |      pad: free units, none for most nodes
//!                                           ^ node: stands apart (LAYOUT-3) from the two that it comes between
//! ```
//! * This file keeps LAYOUT-3 (`layout.rs`): both neighbours of a node are known before its units are taken, and if a
//!   second attempt finds other neighbours, the place is checked again.
//! * The units of a node that is not published are zeroed before anything else runs.
//!
//! A site belongs to one writer.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "bytes of a reservation and heights of towers are bounded"
)]

use crate::error::Result;
use crate::memtable::skiplist::arena::{Reservation, SubChunk, View};
use crate::memtable::skiplist::layout::{HEIGHT_MAX, LINE_UNITS, UNIT, pad_units, stand_apart};

/// The units of one node, and the node's place in them.
#[derive(Debug)]
pub(crate) struct Site {
    reservation: Reservation,
    pad: u32,
    height: u32,
}

impl Site {
    /// Takes units for a node between `pred` and `succ`.
    #[inline(always)]
    pub(super) fn take(
        view: &View<'_>,
        sub: &mut SubChunk,
        (units, height): (u64, u32),
        (pred, succ): (u32, u32),
    ) -> Result<Site> {
        let mut site = Site { reservation: view.arena().carve(sub, units)?, pad: 0, height };
        if !site.fits(pred, succ) {
            site = site.set_apart(view, sub, (pred, succ))?;
        }
        Ok(site)
    }

    /// Moves the node by free units before it, so that it stands apart.
    #[cold]
    #[inline(never)]
    fn set_apart(mut self, view: &View<'_>, sub: &mut SubChunk, (pred, succ): (u32, u32)) -> Result<Site> {
        let (units, height) = (self.bytes() / UNIT as u64, self.height);
        let mut room = 0;
        loop {
            self.pad = pad_units(pred, self.reservation.start() + height, succ);
            if self.pad <= room {
                return Ok(self);
            }
            // Repeats only if the next units are in another place.
            room = self.pad;
            self.give_back(view, sub)?;
            let reservation = view.arena().carve(sub, units + u64::from(room))?;
            self = Site { reservation, pad: 0, height };
        }
    }

    /// Whether a node here stands apart from `pred` and `succ` (LAYOUT-3).
    #[inline(always)]
    pub(super) fn fits(&self, pred: u32, succ: u32) -> bool {
        stand_apart(pred, self.node(), succ)
    }

    /// The node's address, in arena units.
    #[inline(always)]
    pub(super) fn node(&self) -> u32 {
        self.reservation.start() + self.pad + self.height
    }

    /// Free units before the node.
    #[inline(always)]
    pub(super) fn pad(&self) -> u32 {
        self.pad
    }

    /// The node's links.
    #[inline(always)]
    pub(super) fn height(&self) -> u32 {
        self.height
    }

    /// All of its bytes.
    #[inline(always)]
    pub(super) fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }

    /// The units, to be written.
    #[inline(always)]
    pub(super) fn reservation(&mut self) -> &mut Reservation {
        &mut self.reservation
    }

    /// Zeroes a node that lost its race, because the comparator may panic in the search for its next place.
    #[cold]
    #[inline(never)]
    pub(super) fn wipe(&mut self, view: &View<'_>) -> Result<()> {
        let bytes = self.bytes() as usize;
        view.plain(&mut self.reservation, 0, bytes)?.fill(0);
        Ok(())
    }

    /// Gives the units back, zeroed.
    pub(super) fn give_back(self, view: &View<'_>, sub: &mut SubChunk) -> Result<()> {
        view.arena().give_back(sub, self.reservation)
    }
}

/// Makes a head, all links of which name it. Its back word has a line without any other word (LAYOUT-3).
pub(crate) fn new_sentinel(view: &View<'_>, sub: &mut SubChunk) -> Result<u32> {
    let height = HEIGHT_MAX as u32;
    let units = u64::from(height) + u64::from(2 * LINE_UNITS - 1);
    let reservation = view.arena().carve(sub, units)?;
    let sentinel = (reservation.start() + height).next_multiple_of(LINE_UNITS);
    for level in 0..height {
        view.set_link(sentinel, level, sentinel)?;
    }
    view.set_back(sentinel, sentinel);
    Ok(sentinel)
}
