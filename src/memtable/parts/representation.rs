//! The internal trait of representations: how table code reads entries in order, whichever structure keeps them.
//!
//! A position is a `u32` that only the representation understands; 0 is the end (before the first and after the last
//! entry). The representation certifies every answer: entries are verified, and neighbours are adjacent.
//!
//! Any thread. Positions are valid only for the representation, or the sorted copy, that gave them out.

#![forbid(unsafe_code)]

use crate::error::Corruption;
use crate::key::{Comparator, SequenceNumber, Target};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::{Bracket, Gap, NoTrail, Search};

/// The end: before the first entry and after the last one.
pub(crate) const END: u32 = 0;

/// At most this many damaged entries of a gap are tried for proofs of their keys, because a proof takes microseconds.
pub(crate) const GAP_ENTRIES_MAX: u32 = 16;

/// An entry and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) at: u32,
    pub(crate) entry: Verified<'a>,
}

/// Neighbours around a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'a> {
    /// The position before, whose entry was verified.
    pub(crate) before: u32,
    /// The entry after; `None` is the end.
    pub(crate) after: Option<Spot<'a>>,
}

/// Entries in order.
pub(crate) trait Ordered<'a> {
    /// The neighbours around a position.
    fn find(&self, target: &Target<'_>) -> Result<Around<'a>, Gap>;
    /// The neighbours around a position from which a walk goes on upwards.
    #[inline(always)]
    fn seek(&self, target: &Target<'_>, _read_ahead: &mut ReadAhead) -> Result<Around<'a>, Gap> {
        self.find(target)
    }
    /// The entry before a position.
    #[inline]
    fn find_before(&self, target: &Target<'_>) -> Result<Option<Spot<'a>>, Gap> {
        let around = self.find(target)?;
        if around.before == END {
            return Ok(None);
        }
        let after = around.after.map_or(END, |spot| spot.at);
        match self.entry(around.before) {
            Ok(entry) => Ok(Some(Spot { at: around.before, entry })),
            Err(corruption) => Err(Gap { corruption, before: END, after }),
        }
    }
    /// The entry after `at`; after `END` comes the first one.
    fn next(&self, at: u32) -> Result<Option<Spot<'a>>, Gap>;
    /// The entry before `at`; before `END` comes the last one.
    fn prev(&self, at: u32) -> Result<Option<Spot<'a>>, Gap>;
    /// The entry after a gap, if every damaged entry in it is proved to have a key and a sequence number for which
    /// `is_other` is true. `None` without such a proof.
    fn past_others(
        &self,
        gap: &Gap,
        is_other: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> Option<Option<Spot<'a>>>;
    /// The gap around the entry at `at`, which verified before and no longer does. Its links still lead on.
    #[cold]
    fn gap_at(&self, at: u32, corruption: Corruption) -> Gap {
        let position = |spot: Option<Spot<'a>>| spot.map_or(END, |spot| spot.at);
        let before = self.prev(at).map_or_else(|gap| gap.before, position);
        let after = self.next(at).map_or_else(|gap| gap.after, position);
        Gap { corruption, before, after }
    }
    /// The entry at a position that was given out before.
    fn entry(&self, at: u32) -> Result<Verified<'a>, Corruption>;
    /// The view that entries are read through.
    fn view(&self) -> &View<'a>;
}

/// What a search has found, from nodes to positions.
#[inline(always)]
fn around<'a>(sentinel: u32, found: Result<Bracket<'a>, Gap>) -> Result<Around<'a>, Gap> {
    match found {
        Ok(bracket) => {
            Ok(Around { before: position_of(sentinel, bracket.pred), after: bracket.entry.map(spot) })
        }
        Err(gap) => Err(between_positions(sentinel, gap)),
    }
}

/// A gap between positions, from one between nodes of the list.
fn between_positions(sentinel: u32, gap: Gap) -> Gap {
    Gap { before: position_of(sentinel, gap.before), after: position_of(sentinel, gap.after), ..gap }
}

fn position_of(sentinel: u32, node: u32) -> u32 {
    if node == sentinel { END } else { node }
}

fn node_at(sentinel: u32, at: u32) -> u32 {
    if at == END { sentinel } else { at }
}

#[inline(always)]
fn spot<'a>(entry: Verified<'a>) -> Spot<'a> {
    Spot { at: entry.node().offset(), entry }
}

impl<'a, C: Comparator> Ordered<'a> for Search<'a, C> {
    #[inline]
    fn find(&self, target: &Target<'_>) -> Result<Around<'a>, Gap> {
        around(self.sentinel, Search::find(self, target, &mut NoTrail))
    }

    #[inline]
    fn seek(&self, target: &Target<'_>, read_ahead: &mut ReadAhead) -> Result<Around<'a>, Gap> {
        around(self.sentinel, Search::find(self, target, read_ahead))
    }

    #[inline(always)]
    fn next(&self, at: u32) -> Result<Option<Spot<'a>>, Gap> {
        match Search::next(self, node_at(self.sentinel, at)) {
            Ok(entry) => Ok(entry.map(spot)),
            Err(gap) => Err(between_positions(self.sentinel, gap)),
        }
    }

    #[inline(always)]
    fn prev(&self, at: u32) -> Result<Option<Spot<'a>>, Gap> {
        match Search::prev(self, node_at(self.sentinel, at)) {
            Ok(entry) => Ok(entry.map(spot)),
            Err(gap) => Err(between_positions(self.sentinel, gap)),
        }
    }

    #[cold]
    fn past_others(
        &self,
        gap: &Gap,
        is_other: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> Option<Option<Spot<'a>>> {
        let (mut node, end) = (node_at(self.sentinel, gap.before), node_at(self.sentinel, gap.after));
        for _ in 0..GAP_ENTRIES_MAX {
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
