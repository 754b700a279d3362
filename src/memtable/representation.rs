//! The internal trait that stands between meaning and order.
//!
//! A position is a `u32` that only the representation understands; 0 is the end (before the first and behind the
//! last entry). Every answer is certified by the representation: entries come verified, neighbours are neighbours.
//!
//! Any thread. Not promised: that positions of one representation, or of one sorted copy, mean anything to another.

#![forbid(unsafe_code)]

use crate::error::Corruption;
use crate::key::{Comparator, SequenceNumber, Target};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::splice::{Gap, NoTrail, Search};

/// The end: in front of the first entry and behind the last one.
pub(crate) const END: u32 = 0;

/// Most entries of a hole that are asked for their keys: a proof costs microseconds.
pub(crate) const HOLE_ENTRIES_MAX: u32 = 16;

/// An entry and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) at: u32,
    pub(crate) entry: Verified<'a>,
}

/// Neighbours around a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'a> {
    /// The position in front; its entry was verified.
    pub(crate) before: u32,
    /// The entry behind; `None` is the end.
    pub(crate) behind: Option<Spot<'a>>,
}

/// What breaks an order: the corruption, and the positions on both sides of the hole. Both sides are intact, or the end.
/// Where both name one entry, no entry is missing: what covers this one cannot be told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hole {
    pub(crate) corruption: Corruption,
    pub(crate) before: u32,
    pub(crate) behind: u32,
}

/// Entries in order.
pub(crate) trait Ordered<'a> {
    /// The neighbours around a position.
    fn find(&self, target: &Target<'_>) -> Result<Around<'a>, Hole>;
    /// The entry in front of a position.
    #[inline]
    fn find_before(&self, target: &Target<'_>) -> Result<Option<Spot<'a>>, Hole> {
        let around = self.find(target)?;
        if around.before == END {
            return Ok(None);
        }
        let behind = around.behind.map_or(END, |spot| spot.at);
        match self.entry(around.before) {
            Ok(entry) => Ok(Some(Spot { at: around.before, entry })),
            Err(corruption) => Err(Hole { corruption, before: END, behind }),
        }
    }
    /// The entry behind `at`; behind `END` stands the first one.
    fn next(&self, at: u32) -> Result<Option<Spot<'a>>, Hole>;
    /// The entry in front of `at`; in front of `END` stands the last one.
    fn prev(&self, at: u32) -> Result<Option<Spot<'a>>, Hole>;
    /// What stands behind a hole, if every damaged entry in it is proved to have a key and a sequence number for which
    /// `is_other` is true. `None`: not proved, the hole stays one.
    fn past_others(
        &self,
        hole: &Hole,
        is_other: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> Option<Option<Spot<'a>>>;
    /// The hole that is left where the entry at `at`, which was handed out before, does not verify any more: its links
    /// still lead on.
    #[cold]
    fn hole_at(&self, at: u32, corruption: Corruption) -> Hole {
        let position = |spot: Option<Spot<'a>>| spot.map_or(END, |spot| spot.at);
        let before = self.prev(at).map_or_else(|hole| hole.before, position);
        let behind = self.next(at).map_or_else(|hole| hole.behind, position);
        Hole { corruption, before, behind }
    }
    /// The entry at a position that was handed out before.
    fn entry(&self, at: u32) -> Result<Verified<'a>, Corruption>;
    /// The checked values that accesses need.
    fn view(&self) -> &View<'a>;
}

impl<C> Search<'_, C> {
    fn hole(self, gap: Gap) -> Hole {
        Hole {
            corruption: gap.corruption,
            before: self.position_of(gap.before),
            behind: self.position_of(gap.behind),
        }
    }

    fn position_of(&self, node: u32) -> u32 {
        if node == self.sentinel { END } else { node }
    }

    fn node(&self, at: u32) -> u32 {
        if at == END { self.sentinel } else { at }
    }
}

#[inline(always)]
fn spot<'a>(entry: Verified<'a>) -> Spot<'a> {
    Spot { at: entry.node().offset(), entry }
}

impl<'a, C: Comparator> Ordered<'a> for Search<'a, C> {
    #[inline]
    fn find(&self, target: &Target<'_>) -> Result<Around<'a>, Hole> {
        match Search::find(self, target, &mut NoTrail) {
            Ok(bracket) => {
                Ok(Around { before: self.position_of(bracket.pred), behind: bracket.entry.map(spot) })
            }
            Err(gap) => Err(self.hole(gap)),
        }
    }

    #[inline(always)]
    fn next(&self, at: u32) -> Result<Option<Spot<'a>>, Hole> {
        match Search::next(self, self.node(at)) {
            Ok(entry) => Ok(entry.map(spot)),
            Err(gap) => Err(self.hole(gap)),
        }
    }

    #[inline(always)]
    fn prev(&self, at: u32) -> Result<Option<Spot<'a>>, Hole> {
        match Search::prev(self, self.node(at)) {
            Ok(entry) => Ok(entry.map(spot)),
            Err(gap) => Err(self.hole(gap)),
        }
    }

    #[cold]
    fn past_others(
        &self,
        hole: &Hole,
        is_other: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> Option<Option<Spot<'a>>> {
        let (mut node, end) = (self.node(hole.before), self.node(hole.behind));
        for _ in 0..HOLE_ENTRIES_MAX {
            node = self.view.try_link(node, 0)?;
            if node == end {
                let entry = self.verified(node).ok()?;
                return Some(entry.map(spot));
            }
            if node == self.sentinel || !self.view.proves(node, &is_other) {
                return None;
            }
        }
        None
    }

    #[inline]
    fn entry(&self, at: u32) -> Result<Verified<'a>, Corruption> {
        self.view.open(at)?.verify(&self.view)
    }

    #[inline(always)]
    fn view(&self) -> &View<'a> {
        &self.view
    }
}
