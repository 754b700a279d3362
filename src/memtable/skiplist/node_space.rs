//! Space for a node: its level-0 link and its back word are in other cache lines than the words of
//! its neighbours that confirm them (`layout.rs`).
//!
//! ```text
//!   reservation  | pad | link h-1 .. link 0 | header | .. |      pad: free units; most nodes have none
//!                                           ^ node
//! ```
//! Both neighbours are known before units are taken. An attempt between other neighbours checks the
//! place again.
//!
//! Space belongs to one writer.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "levels are few")]

use crate::error::Result;
use crate::memtable::arena::arena::{Arena, Reservation, SubChunk, View};
use crate::memtable::arena::cache_lines::{are_apart, pad_units};
use crate::memtable::arena::encode::Shape;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::layout::{HEIGHT_MAX, UNIT};
use crate::memtable::arena::links::EndKeys;

/// The units of one node, and the node's place in them.
pub(crate) struct NodeSpace {
    pub(super) reservation: Reservation,
    /// Free units before the node.
    pub(super) pad: u32,
    /// The number of the node's links.
    pub(super) height: u32,
}

impl NodeSpace {
    /// Takes units for a node between `pred` and `succ`.
    #[inline(always)]
    pub(super) fn take(
        view: &View<'_>,
        sub: &mut SubChunk,
        units: u64,
        height: u32,
        (pred, succ): (u32, u32),
    ) -> Result<NodeSpace> {
        let mut space = NodeSpace {
            reservation: view.arena().carve(sub, units)?,
            pad: 0,
            height,
        };
        if !space.fits(pred, succ) {
            space = space.set_apart(view, sub, (pred, succ))?;
        }
        Ok(space)
    }

    /// Puts free units before the node, so that it fits between its neighbours.
    #[cold]
    #[inline(never)]
    fn set_apart(
        mut self,
        view: &View<'_>,
        sub: &mut SubChunk,
        (pred, succ): (u32, u32),
    ) -> Result<NodeSpace> {
        let (units, height) = (self.reservation.bytes() / UNIT as u64, self.height);
        let mut room = 0;
        loop {
            self.pad = pad_units(pred, self.reservation.start() + height, succ);
            if self.pad <= room {
                return Ok(self);
            }
            // A second turn is needed only if the next units are not those that were given back.
            room = self.pad;
            self.give_back(view, sub)?;
            let reservation = view.arena().carve(sub, units + u64::from(room))?;
            self = NodeSpace {
                reservation,
                pad: 0,
                height,
            };
        }
    }

    /// Whether a node here is in other cache lines than the words of `pred` and `succ` that
    /// confirm its links.
    #[inline(always)]
    pub(super) fn fits(&self, pred: u32, succ: u32) -> bool {
        are_apart(pred, self.node(), succ)
    }

    /// The node's address, in arena units.
    #[inline(always)]
    pub(super) fn node(&self) -> u32 {
        self.reservation.start() + self.pad + self.height
    }

    /// The shape of a node here, after `back` and before `next`, in the list that ends at `end`.
    #[inline(always)]
    pub(super) fn shape(&self, revision: u32, back: u32, next: (u32, EndKeys), end: u32) -> Shape {
        Shape {
            pad: self.pad,
            height: self.height,
            revision,
            back,
            next,
            end,
        }
    }

    /// Keeps a node that lost its compare-and-swap (INSERT-4), unreadable until its next attempt:
    /// the comparator may panic in the search before that (INSERT-2).
    #[cold]
    #[inline(never)]
    pub(super) fn keep(&mut self, view: &View<'_>) -> Result<()> {
        view.invalidate_header(self.node())?;
        Ok(())
    }

    /// Gives the units back, zeroed (INSERT-2).
    #[cold]
    #[inline(never)]
    pub(super) fn give_back(self, view: &View<'_>, sub: &mut SubChunk) -> Result<()> {
        view.arena().give_back(sub, self.reservation)
    }
}

/// Makes the sentinels of both lists: every link of an empty list names its sentinel.
pub(crate) fn make_heads(arena: &Arena) -> Result<()> {
    let view = arena.view()?;
    for sentinel in [Head::Points, Head::Ranges].map(Head::sentinel) {
        for level in 0..HEIGHT_MAX as u32 {
            view.set_link(sentinel, level, sentinel)?;
        }
        view.set_back(sentinel, sentinel);
    }
    Ok(())
}
