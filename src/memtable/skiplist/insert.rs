//! Inserts into the skiplist: find, build, publish, link the tower.
//!
//! ```text
//!   find      the bracket [pred | succ] around the entry's position, by the writer's splice or a search
//!   build     the node's bytes; digests are made from the arena's own bytes and compared with the caller's digest
//!   publish   pred's level-0 link, succ -> node, by compare-and-swap (Release); then succ's back link, pred -> node
//!   tower     the same at each higher level; a level that cannot be linked is left out
//! ```
//! * INSERT-1: a node is published once, at level 0, by one compare-and-swap in a certified
//!   bracket.
//! * INSERT-2: nothing of a node is visible until its compare-and-swap succeeds. If that fails, the
//!   node's header check is inverted before anything else runs; if the node is never linked, its
//!   space is zeroed.
//! * INSERT-3: the order of an entry and both neighbours, and the fields of its node, are checked
//!   twice, by different comparisons: by the search and the build, and right before publication. A
//!   processor may err once even where memory is right.
//! * INSERT-4: a node that loses its compare-and-swap is kept for the next attempt if it has the
//!   right revision and cache lines for its new neighbours. Its words that depend on the neighbours
//!   are written again, all others are read back, and INSERT-3 is checked again.
//! * INSERT-5: a panicking comparator leaves the list as it was: it runs only before publication,
//!   and while the tower is linked.
//!
//! Any thread; an `Inserter` belongs to one writer at a time.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use std::cmp;
use std::hint::black_box;

use crate::comparator::KeyEquality;
use crate::error::{Corruption, Error, Result};
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::layout::{HEIGHT_MAX, PAD_UNITS_MAX, UNIT};
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::{Verified, misplaced};
use crate::memtable::arena::node_words::node_units;
use crate::memtable::skiplist::bracket::Bracket;
use crate::memtable::skiplist::insert_checks::{check_built, check_claim, check_side};
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::link_tower::Tower;
use crate::memtable::skiplist::list::{DuplicatePolicy, List};
use crate::memtable::skiplist::node_space::NodeSpace;
use crate::memtable::skiplist::search::Search;
#[cfg(all(test, not(loom)))]
use crate::memtable::skiplist::test_hooks::{Step, reach};
use crate::sync::Ordering;

/// Most attempts of an insert. Other writers would have to link as many entries at its place: only
/// a fault leads here.
const ATTEMPTS_MAX: u32 = 1 << 20;

/// How often an insert keeps its node and searches from where it lost. After that it starts over at
/// each attempt.
pub(super) const KEPT_MAX: u32 = 64;

/// The most arena bytes that an entry takes. Under `Replace` the height depends on the entry that
/// it replaces, so the tallest is assumed.
#[inline]
pub(crate) fn entry_bytes(
    search: &Search<'_>,
    fields: &Fields<'_>,
    policy: DuplicatePolicy,
) -> u64 {
    let view = &search.view;
    let height = match policy {
        DuplicatePolicy::Replace => HEIGHT_MAX as u32,
        _ => search.height(fields, 0),
    };
    (node_units(view.width, fields.lengths(), height) + u64::from(PAD_UNITS_MAX)) * UNIT as u64
}

/// An entry that was linked at level 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement<'a> {
    /// Its stored key digest.
    pub(crate) digest: u64,
    /// The arena bytes that it takes.
    pub(crate) bytes: u64,
    /// The levels that [`List::link_tower`] has to link.
    pub(crate) tower: Tower,
    /// The equal entry that it hides.
    pub(crate) displaced: Option<Verified<'a>>,
}

/// The result of [`List::insert_between`].
pub(crate) enum Quick<'a> {
    /// The entry is in the list, which has no equal one.
    Placed(Placement<'a>),
    /// The entry is not in the list: the list has an equal one, right after the bracket.
    Equal,
    /// The entry is not in the list, because another writer was faster. The space keeps the node.
    Lost(NodeSpace),
}

/// What [`List::insert_any`] has before its first attempt.
pub(crate) enum Begun<'b, 'a> {
    /// Nothing.
    New,
    /// The certified bracket of the entry.
    At(&'b Bracket<'a>),
    /// The space of a node that lost its compare-and-swap (INSERT-4).
    Lost(NodeSpace),
}

/// The content of a node's space at the start of an attempt.
#[derive(Debug, Clone, Copy)]
enum NodeIs {
    /// Free units.
    New,
    /// A node that lost its compare-and-swap (INSERT-4).
    Kept,
}

impl List {
    /// Inserts an entry, as writers do.
    #[cfg(test)]
    pub(crate) fn insert<'a>(
        &self,
        search: &Search<'a>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        policy: DuplicatePolicy,
    ) -> Result<Placement<'a>> {
        let bracket = inserter.bracket(search, fields)?;
        match self.insert_between(search, inserter, fields, &bracket, || Ok(()))? {
            Quick::Placed(placement) => Ok(placement),
            Quick::Equal => self.insert_any(search, inserter, fields, policy, Begun::At(&bracket)),
            Quick::Lost(space) => {
                self.insert_any(search, inserter, fields, policy, Begun::Lost(space))
            }
        }
    }

    /// Inserts an entry without an equal into its certified bracket, at the first attempt. All
    /// other cases are left to [`insert_any`](Self::insert_any). Calls `announce` right before the
    /// entry is published, so that the lines that it changes have had the most time to arrive.
    #[inline(always)]
    pub(crate) fn insert_between<'a>(
        &self,
        search: &Search<'a>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        bracket: &Bracket<'a>,
        announce: impl FnOnce() -> Result<(), Corruption>,
    ) -> Result<Quick<'a>> {
        if bracket
            .entry
            .is_some_and(|entry| search.is_equal(&entry, fields))
        {
            return Ok(Quick::Equal);
        }
        let height = search.height(fields, 0);
        let mut space = self.take_space(search, inserter, fields, height, bracket)?;
        let place = (bracket, None);
        match self.attempt(search, &mut space, fields, place, NodeIs::New, announce) {
            Ok(Some(placement)) => Ok(Quick::Placed(placement)),
            Ok(None) => Ok(Quick::Lost(space)),
            Err(error) => {
                space.give_back(&search.view, &mut inserter.sub)?;
                Err(error)
            }
        }
    }

    /// Inserts an entry that may have an equal, by as many attempts as it takes.
    #[inline(never)]
    pub(crate) fn insert_any<'a>(
        &self,
        search: &Search<'a>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        policy: DuplicatePolicy,
        begun: Begun<'_, 'a>,
    ) -> Result<Placement<'a>> {
        let (first, mut space) = match begun {
            Begun::New => (None, None),
            Begun::At(bracket) => (Some(*bracket), None),
            Begun::Lost(space) => (None, Some(space)),
        };
        let placement = self.insert_at(search, inserter, fields, policy, first, &mut space);
        if let Some(space) = space {
            space.give_back(&search.view, &mut inserter.sub)?;
        }
        placement
    }

    /// [`insert_any`](Self::insert_any), but leaves unused space for the caller to give back.
    fn insert_at<'a>(
        &self,
        search: &Search<'a>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        policy: DuplicatePolicy,
        mut first: Option<Bracket<'a>>,
        space: &mut Option<NodeSpace>,
    ) -> Result<Placement<'a>> {
        // The revision of the node that is kept in the space.
        let mut kept = space.as_ref().map(|_| 0);
        for attempt in 0..ATTEMPTS_MAX {
            kept = kept.filter(|_| attempt < KEPT_MAX);
            let bracket = match (first.take(), kept) {
                (Some(bracket), _) => bracket,
                (None, Some(_)) => inserter.bracket_after_race(search, fields)?,
                (None, None) => inserter.bracket(search, fields)?,
            };
            let displaced = search.apply_policy(&bracket, fields, policy)?;
            let revision = next_revision(displaced.as_ref());
            let height = search.height(fields, revision);
            let unfit = |space: &mut NodeSpace| {
                space.height != height || !space.fits(bracket.pred, bracket.succ)
            };
            if let Some(old) = space.take_if(unfit) {
                old.give_back(&search.view, &mut inserter.sub)?;
                kept = None;
            }
            let taken = match space {
                Some(taken) => taken,
                None => space.insert(self.take_space(search, inserter, fields, height, &bracket)?),
            };
            let place = (&bracket, displaced);
            let node = match kept {
                Some(kept) if kept == revision => NodeIs::Kept,
                _ => NodeIs::New,
            };
            let placement = self.attempt(search, taken, fields, place, node, || Ok(()));
            if let Some(placement) = placement? {
                // The space of a published node is never given back.
                *space = None;
                return Ok(placement);
            }
            kept = Some(revision);
        }
        Err(misplaced(search.sentinel, fields.sequence).into())
    }

    /// Takes space for a node.
    #[inline(always)]
    fn take_space(
        &self,
        search: &Search<'_>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        height: u32,
        bracket: &Bracket<'_>,
    ) -> Result<NodeSpace> {
        let units = node_units(search.view.width, fields.lengths(), height);
        let space = NodeSpace::take(
            &search.view,
            &mut inserter.sub,
            units,
            height,
            (bracket.pred, bracket.succ),
        )?;
        search.prefetch_ahead(space.node());
        Ok(space)
    }

    /// Builds the node between the bracket's two nodes and links it at level 0 (INSERT-1).
    ///
    /// ```text
    ///   +--------+         +--------+         +--------+
    ///   |  pred  |--link-->|  node  |--link-->|  succ  |
    ///   |        |<--back--|        |<--back--|        |
    ///   +--------+         +--------+         +--------+
    /// ```
    /// 1. Compare the entry with `pred` and `succ` again.
    /// 2. Build the node, or renew a kept one: its link names `succ`, its back link `pred`.
    /// 3. Compare the node with the caller's digest and fields.
    /// 4. Exchange `pred`'s link, `succ` to `node` (Release): the node is published. If the link no
    ///    longer names `succ`, another writer was faster: keep the node, and return `None`.
    /// 5. Exchange `succ`'s back link, `pred` to `node`. `settle_back` handles a back link that names
    ///    another node by now.
    #[inline(always)]
    fn attempt<'a>(
        &self,
        search: &Search<'a>,
        space: &mut NodeSpace,
        fields: &Fields<'_>,
        (bracket, displaced): (&Bracket<'a>, Option<Verified<'a>>),
        node: NodeIs,
        announce: impl FnOnce() -> Result<(), Corruption>,
    ) -> Result<Option<Placement<'a>>> {
        let view = &search.view;
        let revision = next_revision(displaced.as_ref());
        let [before, after] = search.ends(bracket, fields);
        // 1. Compare again.
        let (again, [pred, succ]) = (black_box(fields), black_box([bracket.pred, bracket.succ]));
        let before = check_side(search, again, revision, pred, before, cmp::Ordering::Less)?;
        let after = check_side(search, again, revision, succ, after, cmp::Ordering::Greater)?;
        // 2. Build.
        let shape = space.shape(
            revision,
            bracket.pred,
            (bracket.succ, after),
            search.sentinel,
        );
        let built = match node {
            NodeIs::New => view.build(&mut space.reservation, fields, shape)?,
            NodeIs::Kept => view.renew(&mut space.reservation, fields, shape)?,
        };
        let node = built.offset;
        // 3. Check.
        check_claim(view, &built, fields)?;
        check_built(view, node, black_box(fields))?;
        announce()?;
        #[cfg(all(test, not(loom)))]
        reach(Step::Built(node));
        // 4. Publish.
        let is_linked = view.publish_link((bracket.pred, 0), bracket.succ, (node, before))?;
        if !is_linked {
            space.keep(view)?;
            #[cfg(all(test, not(loom)))]
            reach(Step::Kept(node));
            return Ok(None);
        }
        // 5. Renew the back link.
        if !view.renew_back(bracket.succ, bracket.pred, node) {
            view.settle_back(search.sentinel, node, bracket.succ);
        }
        let tower = Tower {
            node,
            height: shape.height,
            revision,
            pred: bracket.pred,
        };
        Ok(Some(Placement {
            digest: built.digest,
            bytes: space.reservation.bytes(),
            tower,
            displaced,
        }))
    }

    /// Names a published node in the directory and links it at its higher levels. Its writer has
    /// counted it, because the comparator may panic here (INSERT-5).
    #[inline(always)]
    pub(crate) fn link_tower(
        &self,
        search: &Search<'_>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        tower: Tower,
    ) {
        inserter.name_and_link(search, fields, tower);
        let top = tower.height - 1;
        // ORDERING: Relaxed: a hint, as in `List::top`.
        if self.top.load(Ordering::Relaxed) < top {
            // ORDERING: Relaxed: a hint, as in `List::top`.
            self.top.fetch_max(top, Ordering::Relaxed);
        }
    }
}

impl<'a> Search<'a> {
    /// Applies the duplicate policy to the entry after the bracket. Returns the equal entry that
    /// the new one hides.
    #[inline(always)]
    pub(crate) fn apply_policy(
        &self,
        bracket: &Bracket<'a>,
        fields: &Fields<'_>,
        policy: DuplicatePolicy,
    ) -> Result<Option<Verified<'a>>> {
        let equal = bracket.entry.filter(|entry| self.is_equal(entry, fields));
        let is_last = |equal: &Verified<'a>| equal.revision() == u32::MAX;
        if equal.is_some_and(|equal| policy == DuplicatePolicy::Reject || is_last(&equal)) {
            return Err(Error::DuplicateEntry {
                sequence: fields.sequence,
            });
        }
        Ok(equal)
    }

    /// What the links to a new entry and from it say about the keys at their ends (LINKS-3). They
    /// say nothing if equal keys may have different bytes. `None`: no K is known, because the table
    /// stores no digests; the keys decide, when they are compared again. The sentinel has no key,
    /// and counts as one whose K is 0.
    #[inline(always)]
    fn ends(&self, bracket: &Bracket<'a>, fields: &Fields<'_>) -> [Option<EndKeys>; 2] {
        if self.comparator.equality() != KeyEquality::Bytes {
            return [Some(EndKeys::MAY_MATCH); 2];
        }
        if self.view.width.bytes == 0 {
            return [None; 2];
        }
        let succ_part = bracket.entry.map_or(0, |entry| entry.key_part());
        [bracket.pred_part, succ_part]
            .map(|part| Some(EndKeys::of_order(part.cmp(&fields.key_part))))
    }

    #[inline(always)]
    fn is_equal(&self, entry: &Verified<'_>, fields: &Fields<'_>) -> bool {
        entry.sequence() == fields.sequence && self.comparator.are_equal(entry.key(), fields.key)
    }
}

/// The revision of an entry that replaces `displaced`.
#[inline(always)]
fn next_revision(displaced: Option<&Verified<'_>>) -> u32 {
    displaced.map_or(0, |old| old.revision().saturating_add(1))
}
