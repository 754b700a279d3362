//! Both representations as one type, for code that chooses at run time.
//!
//! Any thread. It promises what the representation promises.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Corruption;
use crate::key::{Comparator, SequenceNumber, Target};
use crate::memtable::parts::representation::{Around, Ordered, Spot};
use crate::memtable::parts::vector::{Sorted, SortedSearch};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::{Gap, Search};

/// The point entries of a table in order, in either representation.
#[derive(Debug)]
pub(crate) enum Order<'a, C> {
    List(Search<'a, C>),
    Sorted(SortedSearch<'a, C>),
}

impl<C> Order<'_, C> {
    /// The sorted copy, if it is one.
    pub(crate) fn sorted(&self) -> Option<Arc<Sorted>> {
        match self {
            Order::List(_) => None,
            Order::Sorted(search) => Some(Arc::clone(&search.sorted)),
        }
    }
}

impl<'a, C: Comparator> Ordered<'a> for Order<'a, C> {
    #[inline(always)]
    fn find(&self, target: &Target<'_>) -> Result<Around<'a>, Gap> {
        match self {
            Order::List(search) => Ordered::find(search, target),
            Order::Sorted(search) => search.find(target),
        }
    }

    #[inline(always)]
    fn seek(&self, target: &Target<'_>, read_ahead: &mut ReadAhead) -> Result<Around<'a>, Gap> {
        match self {
            Order::List(search) => search.seek(target, read_ahead),
            Order::Sorted(search) => search.find(target),
        }
    }

    #[inline(always)]
    fn next(&self, at: u32) -> Result<Option<Spot<'a>>, Gap> {
        match self {
            Order::List(search) => Ordered::next(search, at),
            Order::Sorted(search) => search.next(at),
        }
    }

    #[inline(always)]
    fn prev(&self, at: u32) -> Result<Option<Spot<'a>>, Gap> {
        match self {
            Order::List(search) => Ordered::prev(search, at),
            Order::Sorted(search) => search.prev(at),
        }
    }

    fn past_others(
        &self,
        gap: &Gap,
        is_other: impl Fn(&[u8], SequenceNumber) -> bool,
    ) -> Option<Option<Spot<'a>>> {
        match self {
            Order::List(search) => search.past_others(gap, is_other),
            Order::Sorted(search) => search.past_others(gap, is_other),
        }
    }

    fn entry(&self, at: u32) -> Result<Verified<'a>, Corruption> {
        match self {
            Order::List(search) => search.entry(at),
            Order::Sorted(search) => search.entry(at),
        }
    }

    #[inline(always)]
    fn view(&self) -> &View<'a> {
        match self {
            Order::List(search) => &search.view,
            Order::Sorted(search) => &search.view,
        }
    }
}
