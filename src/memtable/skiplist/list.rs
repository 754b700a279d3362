//! A skiplist over an arena: insert is find, build, publish, raise.
//!
//! ```text
//!   find      bracket [pred | succ] around the position, by the writer's splice or from the top
//!   build     node bytes, digests from the arena's own bytes, compared with the caller's promise
//!   publish   pred's level-0 link, succ -> node, by compare-and-swap (Release)
//!   raise     the same at each higher level; a level that cannot be linked is left out
//! ```
//! * S1: a node is published once, at level 0, by one compare-and-swap in a certified bracket.
//! * S2: nodes are never unlinked; order at level 0 is the truth, upper levels and back links are derived.
//! * S3: until the compare-and-swap succeeds nothing is visible; a losing node is zeroed again.
//! * S4: a panicking comparator leaves the list as it was: it runs only before publication or while raising.
//!
//! Who may call what: everything takes `&self`; an `Inserter` belongs to one writer at a time.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use super::arena::{Arena, Reservation, SubChunk, View};
use super::build::{Built, Fields};
use super::height::tower_height;
use super::layout::{HEIGHT_MAX, Lengths, UNIT, node_units};
use super::node::Verified;
use super::splice::{Bracket, Course, Search, Splice, Trail};
use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::guarded::Guarded;
use crate::integrity::paranoid::{OrderChecks, SeekChecks};
use crate::integrity::protection::{Kvo, Protected, key_part};
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber, Target};
use crate::sync::{AtomicU32, Ordering};

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct List {
    sentinel: Guarded,
    /// Levels in use: a hint that only grows.
    top: AtomicU32,
    seek_checks: SeekChecks,
    order_checks: OrderChecks,
}

/// What a writer owns: its sub-chunk and the way of its last insert.
#[derive(Debug)]
pub(crate) struct Inserter {
    pub(crate) sub: SubChunk,
    splice: Splice,
    /// The list that the splice belongs to, by its sentinel; 0 = none.
    owner: u32,
}

impl Default for Inserter {
    fn default() -> Self {
        Inserter { sub: SubChunk::default(), splice: Splice { prev: [0; HEIGHT_MAX] }, owner: 0 }
    }
}

impl Inserter {
    /// Goes on behind a way that a search of this list has recorded.
    pub(crate) fn follow<C>(&mut self, search: &Search<'_, C>, way: &Splice) {
        self.splice.clone_from(way);
        self.owner = search.sentinel;
    }
}

/// Bytes of the arena that an entry takes.
pub(crate) fn entry_bytes(view: &View<'_>, fields: &Fields<'_>) -> u64 {
    let height = tower_height(view.secret.nonce(), key_part(fields.key), fields.sequence);
    let lengths = Lengths::pack(fields.key.len(), fields.kind, fields.value.len());
    node_units(view.width, lengths, height) * UNIT as u64
}

/// What happens when (user key, sequence) exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DuplicatePolicy {
    /// The insert fails with `DuplicateEntry` (default).
    #[default]
    Reject,
    /// The insert succeeds and changes nothing.
    KeepFirst,
    /// The new entry takes the place of the old one in every read that starts afterwards.
    Replace,
}

/// What an insert did.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Placement<'a> {
    /// The entry is in the list.
    Linked {
        /// Its stored key digest.
        digest: u64,
        /// Arena bytes that it takes.
        bytes: u64,
        /// The equal entry that it hides.
        displaced: Option<Verified<'a>>,
        /// What is left for [`List::raise`] to do.
        tower: Option<Tower>,
    },
    /// This equal entry was kept.
    Kept(Verified<'a>),
}

/// A published node whose higher levels are not linked yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tower {
    pub(crate) node: u32,
    height: u32,
    pub(crate) revision: u32,
}

/// What the duplicate policy says to a bracket.
#[derive(Debug, Clone, Copy)]
enum Verdict<'a> {
    /// Go on; the entry hides this one.
    Insert(Option<Verified<'a>>),
    /// The insert is over: this one stays.
    Kept(Verified<'a>),
}

/// Most hops on level 0 from the last insert before a search from the top is cheaper.
const NEAR_HOPS: u32 = 4;

impl List {
    /// An empty list in `arena`.
    pub(crate) fn new(arena: &Arena, seek_checks: SeekChecks, order_checks: OrderChecks) -> Result<List> {
        let view = arena.view()?;
        // The sentinel: a full tower below, and room for a back word above.
        let mut sub = SubChunk::default();
        let reservation = arena.carve(&mut sub, HEIGHT_MAX as u64 + 3)?;
        let sentinel = reservation.start() + HEIGHT_MAX as u32;
        for level in 0..HEIGHT_MAX as u32 {
            view.set_link(sentinel, level, sentinel)?;
        }
        view.set_back(sentinel, sentinel);
        Ok(List {
            sentinel: Guarded::new(u64::from(sentinel)),
            top: AtomicU32::new(0),
            seek_checks,
            order_checks,
        })
    }

    /// What a search in this list needs.
    #[inline(always)]
    pub(crate) fn search<'a, C>(
        &self,
        view: View<'a>,
        comparator: &'a C,
    ) -> Result<Search<'a, C>, Corruption> {
        // ORDERING: Relaxed: a hint; a smaller value only makes the search longer.
        let top = self.top.load(Ordering::Relaxed).min(HEIGHT_MAX as u32 - 1);
        let sentinel = self.sentinel.get()? as u32;
        let (seek_checks, order_checks) = (self.seek_checks, self.order_checks);
        Ok(Search { view, comparator, course: Course { sentinel, top, seek_checks, order_checks } })
    }

    /// The guarded word of the list, for control checks.
    pub(crate) fn control_word(&self) -> &Guarded {
        &self.sentinel
    }

    /// Inserts an entry. Expected O(log n); O(1) behind the writer's last insert.
    pub(crate) fn insert<'a, C: Comparator>(
        &self,
        search: &Search<'a, C>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        policy: DuplicatePolicy,
        promise: Option<Protected<Kvo>>,
    ) -> Result<Placement<'a>> {
        let target = Target::new(search.comparator, fields.key, fields.sequence);
        let mut bracket = self.find_place(search, inserter, &target)?;
        let mut fields = *fields;
        let mut displaced = match settle(search, &bracket, &mut fields, policy)? {
            Verdict::Insert(displaced) => displaced,
            Verdict::Kept(equal) => return Ok(Placement::Kept(equal)),
        };
        let height = tower_height(search.view.secret.nonce(), key_part(fields.key), fields.sequence);
        let lengths = Lengths::pack(fields.key.len(), fields.kind, fields.value.len());
        let units = node_units(search.view.width, lengths, height);
        let mut reservation = search.view.arena().carve(&mut inserter.sub, units)?;
        let built = loop {
            let built = match self.prepare(search, &mut reservation, height, &fields, promise, &bracket) {
                Ok(built) => built,
                Err(error) => return self.give_up(search, inserter, reservation, Err(error)),
            };
            if self.publish(search, built.offset, &bracket)? {
                break built;
            }
            bracket = match self.find_from_top(search, inserter, &target) {
                Ok(bracket) => bracket,
                Err(error) => return self.give_up(search, inserter, reservation, Err(error)),
            };
            displaced = match settle(search, &bracket, &mut fields, policy) {
                Ok(Verdict::Insert(displaced)) => displaced,
                Ok(Verdict::Kept(equal)) => {
                    return self.give_up(search, inserter, reservation, Ok(Placement::Kept(equal)));
                }
                Err(error) => return self.give_up(search, inserter, reservation, Err(error)),
            }
        };
        let tower = Tower { node: built.offset, height, revision: fields.revision };
        Ok(Placement::Linked {
            digest: built.digest,
            bytes: reservation.bytes(),
            displaced,
            tower: Some(tower),
        })
    }

    /// The bracket for an insert: near the last one, or from the top.
    #[inline]
    fn find_place<'a, C: Comparator>(
        &self,
        search: &Search<'a, C>,
        inserter: &mut Inserter,
        target: &Target<'_>,
    ) -> Result<Bracket<'a>> {
        match self.find_behind_last(search, inserter, target) {
            Some(bracket) => Ok(bracket),
            None => self.find_from_top(search, inserter, target),
        }
    }

    /// The bracket around a position at most a few hops behind the writer's last insert.
    #[inline]
    pub(crate) fn find_behind_last<'a, C: Comparator>(
        &self,
        search: &Search<'a, C>,
        inserter: &mut Inserter,
        target: &Target<'_>,
    ) -> Option<Bracket<'a>> {
        if inserter.owner != search.sentinel {
            return None;
        }
        let at = inserter.splice.prev[0];
        let before = at == search.sentinel
            || search.view.open(at).is_ok_and(|node| node.order(search.comparator, target).is_lt());
        if before { search.find_near(at, NEAR_HOPS, target, &mut inserter.splice) } else { None }
    }

    fn find_from_top<'a, C: Comparator>(
        &self,
        search: &Search<'a, C>,
        inserter: &mut Inserter,
        target: &Target<'_>,
    ) -> Result<Bracket<'a>> {
        // The way is of use only once it is complete: a comparator may panic half-way (S4).
        inserter.owner = 0;
        inserter.splice.prev = [search.sentinel; HEIGHT_MAX];
        let bracket = search.find(target, &mut inserter.splice).map_err(|gap| gap.corruption)?;
        inserter.owner = search.sentinel;
        Ok(bracket)
    }

    /// Builds the node and sets its level-0 link and hint.
    fn prepare<'a, C: Comparator>(
        &self,
        search: &Search<'a, C>,
        reservation: &mut Reservation,
        height: u32,
        fields: &Fields<'_>,
        promise: Option<Protected<Kvo>>,
        bracket: &Bracket<'a>,
    ) -> Result<Built> {
        let view = &search.view;
        let built = view.build(reservation, height, fields)?;
        let node = built.offset;
        check_promise(view, &built, promise, fields.sequence)?;
        for level in 1..height {
            view.set_link(node, level, search.sentinel)?;
        }
        view.set_link(node, 0, bracket.succ)?;
        view.set_back(node, bracket.pred);
        Ok(built)
    }

    /// Links the node at level 0 (S1).
    fn publish<'a, C: Comparator>(
        &self,
        search: &Search<'a, C>,
        node: u32,
        bracket: &Bracket<'a>,
    ) -> Result<bool> {
        if !search.view.publish_link(bracket.pred, 0, bracket.succ, node)? {
            return Ok(planted(Bug::LostRaceBelieved));
        }
        search.view.set_back(bracket.succ, node);
        Ok(true)
    }

    /// Links a published node at its higher levels, after its writer has counted it: the comparator may panic here (S4).
    /// What cannot be linked is left out: it costs speed only.
    #[inline]
    pub(crate) fn raise<C: Comparator>(
        &self,
        search: &Search<'_, C>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        placement: &Placement<'_>,
    ) {
        let Placement::Linked { tower: Some(tower), .. } = placement else { return };
        let Tower { node, height, revision } = *tower;
        inserter.splice.record(0, node);
        if height == 1 {
            return;
        }
        let target = &Target::new(search.comparator, fields.key, fields.sequence).with_revision(revision);
        for level in 1..height {
            let Some(prev) = inserter.splice.prev.get(level as usize).copied() else { return };
            if self.raise_level(search, prev, node, level, target).is_none() {
                break;
            }
            inserter.splice.record(level, node);
        }
        // ORDERING: Relaxed: a hint, see `search`.
        if self.top.load(Ordering::Relaxed) < height - 1 {
            // ORDERING: Relaxed: as above.
            self.top.fetch_max(height - 1, Ordering::Relaxed);
        }
    }

    /// Links the node at one level, behind the last node before it. `None`: this level is damaged here.
    #[inline]
    fn raise_level<C: Comparator>(
        &self,
        search: &Search<'_, C>,
        mut prev: u32,
        node: u32,
        level: u32,
        target: &Target<'_>,
    ) -> Option<()> {
        loop {
            let next = search.view.try_link(prev, level)?;
            let behind = search.verified(next).ok()?;
            if behind.is_some_and(|next| next.node().order(search.comparator, target).is_lt()) {
                prev = next;
                continue;
            }
            search.verified(prev).ok()?;
            search.view.set_link(node, level, next).ok()?;
            if search.view.publish_link(prev, level, next, node).ok()? {
                return Some(());
            }
            if planted(Bug::RaiseGivesUpNode) {
                return search.view.set_link(prev, level, search.sentinel).ok();
            }
        }
    }

    /// About how many entries stand between two positions: exact up to 64 of them, else counted on the lowest level that
    /// shows more than that and multiplied by e a level. Expected O(log n). Standard error 1/8.
    pub(crate) fn approximate_count<C: Comparator>(
        &self,
        search: &Search<'_, C>,
        from: &Target<'_>,
        to: &Target<'_>,
    ) -> Result<u64> {
        let mut splice = Splice { prev: [search.sentinel; HEIGHT_MAX] };
        search.find(from, &mut splice).map_err(|gap| gap.corruption)?;
        let mut count = 0;
        for level in (0..=search.top).rev() {
            count = count_level(search, &splice, level, from, to)?;
            if count > EXACT_COUNT && level > 0 {
                let estimate = count as f64 * f64::from(level).exp();
                return Ok(estimate as u64);
            }
        }
        Ok(count)
    }

    /// Takes an unpublished node back (S3).
    #[cold]
    fn give_up<'a, C>(
        &self,
        search: &Search<'a, C>,
        inserter: &mut Inserter,
        reservation: Reservation,
        outcome: Result<Placement<'a>>,
    ) -> Result<Placement<'a>> {
        search.view.arena().give_back(&mut inserter.sub, reservation)?;
        outcome
    }
}

/// Ranges of at most this many entries on a level are counted on the level below.
const EXACT_COUNT: u64 = 64;

/// Nodes of one level between two positions.
fn count_level<C: Comparator>(
    search: &Search<'_, C>,
    splice: &Splice,
    level: u32,
    from: &Target<'_>,
    to: &Target<'_>,
) -> Result<u64, Corruption> {
    let mut at = splice.prev.get(level as usize).copied().unwrap_or(search.sentinel);
    let mut count = 0;
    loop {
        at = match search.view.link(at, level) {
            Ok(next) => next,
            Err(corruption) if level == 0 => return Err(corruption),
            Err(_) => return Ok(0),
        };
        if at == search.sentinel {
            return Ok(count);
        }
        let node = search.view.open(at)?;
        if !node.order(search.comparator, to).is_lt() {
            return Ok(count);
        }
        count += u64::from(!node.order(search.comparator, from).is_lt());
    }
}

/// Compares what the caller promised with what the arena holds, before it is published.
pub(crate) fn check_promise(
    view: &View<'_>,
    built: &Built,
    promise: Option<Protected<Kvo>>,
    sequence: SequenceNumber,
) -> Result<(), Corruption> {
    let Some(promise) = promise else { return Ok(()) };
    let there = view.open(built.offset)?.verify(view)?.carried();
    let promised = promise.with_sequence(sequence);
    if promised == there || planted(Bug::PromiseIgnored) {
        return Ok(());
    }
    Err(Corruption::new(Place::Entry, 0, there.to_bits(), promised.to_bits()).with_sequence(sequence))
}

/// Applies the duplicate policy to what the bracket shows.
#[inline]
fn settle<'a, C: Comparator>(
    search: &Search<'a, C>,
    bracket: &Bracket<'a>,
    fields: &mut Fields<'_>,
    policy: DuplicatePolicy,
) -> Result<Verdict<'a>> {
    let Some(equal) = bracket.entry.filter(|entry| equals(search, entry, fields)) else {
        fields.revision = 0;
        return Ok(Verdict::Insert(None));
    };
    match policy {
        DuplicatePolicy::Reject => Err(Error::DuplicateEntry { sequence: fields.sequence }),
        DuplicatePolicy::KeepFirst => Ok(Verdict::Kept(equal)),
        DuplicatePolicy::Replace => {
            let Some(revision) = equal.node().revision().checked_add(1) else {
                return Err(Error::DuplicateEntry { sequence: fields.sequence });
            };
            fields.revision = if planted(Bug::ReplaceForgetsRevision) { 0 } else { revision };
            Ok(Verdict::Insert(Some(equal)))
        }
    }
}

#[inline(always)]
fn equals<C: Comparator>(search: &Search<'_, C>, entry: &Verified<'_>, fields: &Fields<'_>) -> bool {
    entry.node().sequence() == fields.sequence && search.comparator.compare(entry.key(), fields.key).is_eq()
}
