//! Who is asked for a key, and in which order: filter, index, list.
//!
//! ```text
//!   K(key) -> filter "absent" ------------------------------> no entry
//!               | perhaps
//!             index "absent" --------------------------------> no entry
//!               | newest node of the key -> visible? older ones at level 0, a few -> entry
//!               | unsure, or too many versions are too new
//!             list, certified ------------------------------> entry or none
//! ```
//! * FIND-ENTRY-1: what is found here is the newest visible entry as stored. Range tombstones are asked by the
//!   caller, whatever a filter or an index said.
//! * FIND-ENTRY-2: filter before publication, index after it, both before the insert returns.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::error::Result;
use crate::integrity::options::SeekChecks;
use crate::key::{Comparator, SequenceNumber, Target};
use crate::memtable::lookup::accelerators::{Shortcuts, hash_of};
use crate::memtable::lookup::filter::Answer;
use crate::memtable::lookup::point_index::{Bucket, Known};
use crate::memtable::lookup::statistics::Event;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::representation::{Ordered, Spot};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::node::Verified;
use crate::memtable::skiplist::search::{Bracket, Gap, Search, Tally};
use crate::memtable::table::Core;
use crate::planted::{Bug, planted};

/// Versions that are passed at level 0 before the list is searched.
const STEPS_MAX: u32 = 4;

/// What the shortcuts know about a key at a snapshot.
pub(crate) enum Shortcut<'a> {
    Found(Spot<'a>),
    Absent,
    AskList,
}

impl<C: Comparator> Core<C> {
    /// The newest entry of `key` at or below `snapshot`, as stored, by the shortest way (FIND-ENTRY-1).
    #[inline]
    pub(crate) fn locate<'a>(
        &self,
        order: &Order<'a, C>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Spot<'a>>> {
        let spot = match order {
            Order::List(search) if self.accelerators.shortcuts() == Shortcuts::Some => {
                self.locate_by_shortcut(search, key, snapshot)?
            }
            Order::List(search) => self.search_list(search, key, snapshot)?,
            Order::Sorted(search) => self.newest(search, key, snapshot)?,
        };
        if self.accelerators.statistics.is_some() {
            self.count_lookup(u64::from(spot.is_some()));
        }
        Ok(spot)
    }

    #[inline(always)]
    fn search_list<'a>(
        &self,
        search: &Search<'a, C>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Spot<'a>>> {
        if self.accelerators.statistics.is_some() {
            return self.search_list_and_count(search, key, snapshot);
        }
        self.newest(search, key, snapshot)
    }

    #[cold]
    fn search_list_and_count<'a>(
        &self,
        search: &Search<'a, C>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Spot<'a>>> {
        let mut tally = Tally::default();
        let found = search.find(&Target::new(&self.comparator, key, snapshot), &mut tally);
        self.count_search(search, &found, &tally);
        // Whether a gap matters for this key is decided elsewhere.
        let Ok(bracket) = found else { return self.newest(search, key, snapshot) };
        Ok(bracket.entry.filter(|entry| self.comparator.compare(entry.key(), key).is_eq()).map(spot_of))
    }

    /// Counts what a search of the list did.
    #[cold]
    pub(crate) fn count_search(
        &self,
        search: &Search<'_, C>,
        found: &Result<Bracket<'_>, Gap>,
        tally: &Tally,
    ) {
        self.accelerators.count(Event::ListSearch, 1);
        self.accelerators.count(Event::NodeVisited, u64::from(tally.nodes));
        let on_the_way = if search.seek_checks == SeekChecks::EveryNode { u64::from(tally.nodes) } else { 0 };
        let ends = found.as_ref().map_or(0, |bracket| {
            u64::from(bracket.pred != search.sentinel) + u64::from(bracket.entry.is_some())
        });
        self.count_digests(search.view(), on_the_way + ends);
    }

    /// Counts digests that were verified, if there are any.
    #[inline]
    pub(crate) fn count_digests(&self, view: &View<'_>, count: u64) {
        if self.accelerators.statistics.is_some() && view.width.bytes() > 0 {
            self.accelerators.count(Event::DigestVerified, count);
        }
    }

    fn locate_by_shortcut<'a>(
        &self,
        search: &Search<'a, C>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Spot<'a>>> {
        let (view, key_part) = (search.view(), hash_of(key));
        let bucket = self.accelerators.bucket(key_part);
        let bits = self.accelerators.bits(key, key_part);
        if let (Some(bits), Some(bucket)) = (&bits, &bucket) {
            bucket.prefetch(view);
            bits.prefetch(view);
        }
        if bits.is_some_and(|bits| bits.ask(view) == Answer::Absent) {
            self.accelerators.count(Event::FilterNegative, 1);
            return Ok(None);
        }
        let spot = self.locate_unfiltered(search, bucket, key, snapshot)?;
        if spot.is_none() && bits.is_some() {
            self.accelerators.count(Event::FilterFalsePositive, 1);
        }
        Ok(spot)
    }

    /// Index, then list.
    #[inline(always)]
    fn locate_unfiltered<'a>(
        &self,
        search: &Search<'a, C>,
        bucket: Option<Bucket>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Spot<'a>>> {
        let view = search.view();
        let known = match bucket.and_then(|bucket| self.accelerators.look(view, bucket)) {
            Some(sight) => {
                sight.candidates().for_each(|node| search.prefetch_entry(node));
                sight.judge(view, &self.comparator, key)
            }
            None => Known::Unsure,
        };
        match self.visible(search, known, key, snapshot) {
            Shortcut::Found(spot) => Ok(Some(spot)),
            Shortcut::Absent => Ok(None),
            Shortcut::AskList => self.search_list(search, key, snapshot),
        }
    }

    /// The newest visible version, from what the index knows about the newest one of all.
    #[inline(always)]
    pub(crate) fn visible<'a>(
        &self,
        search: &Search<'a, C>,
        known: Known<'a>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Shortcut<'a> {
        match known {
            Known::Newest(entry)
                if entry.node().sequence() <= snapshot || planted(Bug::IndexForgetsSnapshot) =>
            {
                self.accelerators.count(Event::IndexHit, 1);
                self.count_digests(search.view(), 1);
                Shortcut::Found(spot_of(entry))
            }
            Known::Newest(entry) => self.visible_behind(search, entry, key, snapshot),
            Known::Absent => {
                self.accelerators.count(Event::IndexNegative, 1);
                Shortcut::Absent
            }
            Known::Unsure => Shortcut::AskList,
        }
    }

    /// The newest entry is too new: older ones follow at level 0.
    fn visible_behind<'a>(
        &self,
        search: &Search<'a, C>,
        newest: Verified<'a>,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Shortcut<'a> {
        let mut at = newest.node().offset();
        for steps in 1..=STEPS_MAX {
            // Damage on the way: the list decides whether it matters.
            let Ok(next) = Ordered::next(search, at) else { return Shortcut::AskList };
            match next.filter(|next| self.comparator.compare(next.entry.key(), key).is_eq()) {
                Some(spot) if spot.entry.node().sequence() <= snapshot => {
                    self.accelerators.count(Event::IndexHit, 1);
                    self.accelerators.count(Event::Hidden, u64::from(steps));
                    self.count_digests(search.view(), 1 + u64::from(steps));
                    return Shortcut::Found(spot);
                }
                Some(spot) => at = spot.at,
                None => {
                    self.accelerators.count(Event::IndexNegative, 1);
                    return Shortcut::Absent;
                }
            }
        }
        Shortcut::AskList
    }

    #[cold]
    pub(crate) fn count_lookup(&self, hits: u64) {
        self.accelerators.count(Event::Get, 1);
        self.accelerators.count(Event::Hit, hits);
    }
}

#[inline(always)]
fn spot_of(entry: Verified<'_>) -> Spot<'_> {
    Spot { at: entry.node().offset(), entry }
}
