//! Inserts into the skiplist: find, build, publish, link the tower.
//!
//! ```text
//!   find      the bracket [pred | succ] around the entry's position, by the writer's splice or a search
//!   build     the node's bytes; digests are made from the arena's own bytes and compared with the caller's digest
//!   publish   pred's level-0 link, succ -> node, by compare-and-swap (Release); then succ's back link, pred -> node
//!   tower     the same at each higher level; a level that cannot be linked is left out
//! ```
//! Nodes are never unlinked. Level 0 has every entry in order; upper levels and back links are
//! derived from it.
//! * LIST-1: a node is published once, at level 0, by one compare-and-swap in a certified bracket.
//! * LIST-2: nothing of a node is visible until its compare-and-swap succeeds. If that fails, the
//!   node's header check is inverted before anything else runs; if the node is never linked, its
//!   space is zeroed.
//! * LIST-3: the order of an entry and both neighbours, and the fields of its node, are checked
//!   twice, by different comparisons: by the search and the build, and right before publication. A
//!   processor may err once even where memory is right.
//! * LIST-4: a node that loses its compare-and-swap is kept for the next attempt if it has the
//!   right revision and cache lines for its new neighbours. Its words that depend on the neighbours
//!   are written again, all others are read back, and LIST-3 is checked again.
//! * LIST-5: a panicking comparator leaves the list as it was: it runs only before publication, and
//!   while the tower is linked.
//!
//! Any thread; an `Inserter` belongs to one writer at a time.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit; words are packed"
)]

use std::cmp;
use std::hint::black_box;

use crate::comparator::{KeyComparator, KeyEquality};
use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::digest::{Kvo, Protected};
use crate::integrity::options::{OrderChecks, SeekChecks};
use crate::key::{SequenceNumber, Target};
use crate::memtable::arena::arena::View;
use crate::memtable::arena::encode::{Built, Fields};
use crate::memtable::arena::heads::{Head, ROOT};
use crate::memtable::arena::layout::{HEIGHT_MAX, PAD_UNITS_MAX, UNIT};
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::{Node, Verified, misplaced};
use crate::memtable::arena::node_words::node_units;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::node_space::NodeSpace;
use crate::memtable::skiplist::search::{Bracket, List, Search, Splice, Trail};
#[cfg(all(test, not(loom)))]
use crate::memtable::skiplist::steps::{Step, reach};
use crate::memtable::skiplist::tower::Tower;
use crate::sync::{AtomicU32, Ordering};

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

/// The rule for an insert whose user key and sequence number are those of an existing entry.
///
/// ```
/// use paranoid_memtable::{DuplicatePolicy, Lookup, MemTable, MemTableOptions};
/// let options = MemTableOptions::builder().duplicates(DuplicatePolicy::Replace).build()?;
/// let table = MemTable::new(options)?;
/// table.put(1, b"key", b"first")?;
/// table.put(1, b"key", b"second")?;
/// assert!(matches!(table.get(b"key", 1)?, Lookup::Value(value) if *value == *b"second"));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DuplicatePolicy {
    /// The insert fails with `DuplicateEntry` (default).
    #[default]
    Reject,
    /// The new entry replaces the old one in every read that starts afterwards.
    Replace,
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
    /// The entry is not in the list. Either the list has an equal one, or another writer was faster
    /// and this space keeps the node.
    Not(Option<NodeSpace>),
}

/// The content of a node's space at the start of an attempt.
#[derive(Debug, Clone, Copy)]
enum NodeIs {
    /// Free units.
    New,
    /// A node that lost its compare-and-swap (LIST-4).
    Kept,
}

impl List {
    /// The list of this head, whose sentinel `make_heads` makes.
    pub(crate) fn new(head: Head, seek_checks: SeekChecks, order_checks: OrderChecks) -> List {
        let top = AtomicU32::new(0);
        List {
            top,
            seek_checks,
            order_checks,
            directory: 0,
            list: head,
        }
    }

    /// This list with a directory. The list must be empty.
    pub(crate) fn with_directory(mut self) -> List {
        self.directory = ROOT;
        self
    }

    /// The parameters of searches in this list.
    #[inline(always)]
    pub(crate) fn search<'a>(
        &'a self,
        view: View<'a>,
        comparator: &'a KeyComparator,
    ) -> Search<'a> {
        Search {
            view,
            comparator,
            skiplist: self,
            sentinel: self.list.sentinel(),
        }
    }

    /// Inserts an entry, as writers do.
    #[cfg(test)]
    pub(crate) fn insert<'a>(
        &self,
        search: &Search<'a>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        policy: DuplicatePolicy,
    ) -> Result<Placement<'a>> {
        let bracket = inserter.find(search, fields)?;
        match self.insert_between(search, inserter, fields, &bracket, || Ok(()))? {
            Quick::Placed(placement) => Ok(placement),
            Quick::Not(space) => self.insert_any(search, inserter, fields, policy, space),
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
            return Ok(Quick::Not(None));
        }
        let height = search.height(fields, 0);
        let mut space = self.take_space(search, inserter, fields, (height, bracket))?;
        let place = (bracket, None);
        match self.attempt(search, &mut space, fields, place, NodeIs::New, announce) {
            Ok(Some(placement)) => Ok(Quick::Placed(placement)),
            Ok(None) => Ok(Quick::Not(Some(space))),
            Err(error) => {
                space.give_back(&search.view, &mut inserter.sub)?;
                Err(error)
            }
        }
    }

    /// Inserts an entry that may have an equal, by as many attempts as it takes. `space` keeps its
    /// node, if there was an attempt before.
    #[inline(never)]
    pub(crate) fn insert_any<'a>(
        &self,
        search: &Search<'a>,
        inserter: &mut Inserter,
        fields: &Fields<'_>,
        policy: DuplicatePolicy,
        mut space: Option<NodeSpace>,
    ) -> Result<Placement<'a>> {
        let placement = self.insert_at(search, inserter, fields, policy, &mut space);
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
        space: &mut Option<NodeSpace>,
    ) -> Result<Placement<'a>> {
        // The revision of the node that is kept in the space.
        let mut kept = space.as_ref().map(|_| 0);
        for attempt in 0..ATTEMPTS_MAX {
            kept = kept.filter(|_| attempt < KEPT_MAX);
            let bracket = match kept {
                Some(_) => inserter.find_again(search, fields)?,
                None => inserter.find(search, fields)?,
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
                None => {
                    space.insert(self.take_space(search, inserter, fields, (height, &bracket))?)
                }
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
        (height, bracket): (u32, &Bracket<'_>),
    ) -> Result<NodeSpace> {
        let units = node_units(search.view.width, fields.lengths(), height);
        let space = NodeSpace::take(
            &search.view,
            &mut inserter.sub,
            (units, height),
            (bracket.pred, bracket.succ),
        )?;
        search.prefetch_ahead(space.node());
        Ok(space)
    }

    /// Builds the node and links it at level 0 (LIST-1). `None`: another writer was faster, and the
    /// node is kept.
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
        let (again, [pred, succ]) = (black_box(fields), black_box([bracket.pred, bracket.succ]));
        check_side(
            search,
            (again, revision),
            (pred, before),
            cmp::Ordering::Less,
        )?;
        check_side(
            search,
            (again, revision),
            (succ, after),
            cmp::Ordering::Greater,
        )?;
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
        check_claim(view, &built, fields)?;
        check_built(view, node, black_box(fields))?;
        announce()?;
        #[cfg(all(test, not(loom)))]
        reach(Step::Built(node));
        let is_linked = view.publish_link((bracket.pred, 0), bracket.succ, (node, before))?;
        if !is_linked {
            space.keep(view)?;
            #[cfg(all(test, not(loom)))]
            reach(Step::Kept(node));
            return Ok(None);
        }
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
    /// counted it, because the comparator may panic here (LIST-5).
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

    /// Estimates the number of entries between two positions, from the nodes between them on the
    /// highest level with more than 64. Counts the entries if no level has as many. Expected
    /// O(log n), at most some 10 000 steps where towers are sparse. Standard error 1/8.
    pub(crate) fn approximate_count(
        &self,
        search: &Search<'_>,
        from: &Target<'_>,
        to: &Target<'_>,
    ) -> Result<u64> {
        let mut splice = Splice::new(search.sentinel);
        if search
            .find_by_towers(from, &mut Trail::from(&mut splice))
            .is_ok()
        {
            for level in (1..=search.top()).rev() {
                let count = count_level(search, &splice, level, (from, to));
                if count > EXACT_COUNT {
                    return Ok((count as f64 * search.towers().entries_for_one(level)) as u64);
                }
            }
        }
        let (mut next, mut count) = (
            search
                .find_at_or_after(from)
                .map_err(|gap| gap.corruption)?,
            0,
        );
        while let Some(entry) = next
            && entry.node().order(search.comparator, to).is_lt()
        {
            count += 1;
            next = search
                .next_or_gap(entry.offset())
                .map_err(|gap| gap.corruption)?;
        }
        Ok(count)
    }
}

/// A level with at most this many nodes between two positions is too short for an estimate.
const EXACT_COUNT: u64 = 64;

/// The number of nodes on an upper level between two positions; 0 if damage is in the way.
fn count_level(
    search: &Search<'_>,
    splice: &Splice,
    level: u32,
    (from, to): (&Target<'_>, &Target<'_>),
) -> u64 {
    let mut at = splice
        .prev
        .get(level as usize)
        .copied()
        .unwrap_or(search.sentinel);
    let mut count = 0;
    while let Some(next) = search.view.try_link(at, level) {
        if next == search.sentinel {
            return count;
        }
        let Some(node) = search.view.try_open(next) else {
            break;
        };
        if !node.order(search.comparator, to).is_lt() {
            return count;
        }
        count += u64::from(!node.order(search.comparator, from).is_lt());
        at = next;
    }
    0
}

/// Compares an entry again with one side of its bracket (LIST-3): by whole keys, loaded again,
/// without images. The side must be `expected`, and have another key if the link says so.
#[inline(always)]
fn check_side(
    search: &Search<'_>,
    (fields, revision): (&Fields<'_>, u32),
    (side, ends): (u32, EndKeys),
    expected: cmp::Ordering,
) -> Result<(), Corruption> {
    let fits = |node: Node<'_>| {
        let keys = search.comparator.compare(node.key(), fields.key);
        let version = || (fields.sequence, revision).cmp(&(node.sequence(), node.revision()));
        keys == expected || (keys.is_eq() && ends == EndKeys::MAY_MATCH && version() == expected)
    };
    if side == search.sentinel || search.view.reload(side).is_some_and(fits) {
        return Ok(());
    }
    Err(misplaced(side, fields.sequence))
}

/// Compares the fields that no digest of the caller covers, sequence number and lengths, with the
/// arena's words, loaded again (LIST-3).
#[inline(always)]
fn check_built(view: &View<'_>, node: u32, fields: &Fields<'_>) -> Result<(), Corruption> {
    if view.stored_fields(node) == Some((fields.lengths(), fields.sequence)) {
        return Ok(());
    }
    Err(misplaced(node, fields.sequence))
}

/// Compares a node with the caller's buffers before it is published. K is compared even without a
/// digest of the caller, because the tower's height depends on it.
#[inline(always)]
pub(crate) fn check_claim(
    view: &View<'_>,
    built: &Built,
    fields: &Fields<'_>,
) -> Result<(), Corruption> {
    if let Some(parts) = built.parts
        && parts.key != fields.key_part
    {
        return Err(Corruption::new(Place::Entry, 0, parts.key, fields.key_part)
            .with_sequence(fields.sequence));
    }
    match fields.caller_digest {
        Some(caller_digest) => check_caller_digest(view, built, fields, caller_digest),
        None => Ok(()),
    }
}

/// Compares the caller's digest with K and V of the build, or with the node read back where these
/// do not suffice.
#[inline(always)]
fn check_caller_digest(
    view: &View<'_>,
    built: &Built,
    fields: &Fields<'_>,
    caller_digest: Protected<Kvo>,
) -> Result<(), Corruption> {
    let sequence = fields.sequence;
    let (there, stored_sequence) = match built.parts {
        Some(parts) if built.agrees => (
            Protected::of_parts(parts.key, parts.value, fields.kind),
            sequence,
        ),
        _ => read_back(*view, built.offset)?,
    };
    if there == caller_digest && stored_sequence == sequence {
        return Ok(());
    }
    let (found, expected) = (
        there.with_sequence(stored_sequence),
        caller_digest.with_sequence(sequence),
    );
    let report = Corruption::new(Place::Entry, 0, found.to_bits(), expected.to_bits());
    Err(report.with_sequence(stored_sequence))
}

/// The digest of a node's bytes, and its sequence number.
#[cold]
#[inline(never)]
fn read_back(view: View<'_>, node: u32) -> Result<(Protected<Kvo>, SequenceNumber), Corruption> {
    let entry = view.open(node)?.verify(&view)?;
    let sequence = entry.node().sequence();
    Ok((entry.carried().without_sequence(sequence), sequence))
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
        let is_last = |equal: &Verified<'a>| equal.node().revision() == u32::MAX;
        if equal.is_some_and(|equal| policy == DuplicatePolicy::Reject || is_last(&equal)) {
            return Err(Error::DuplicateEntry {
                sequence: fields.sequence,
            });
        }
        Ok(equal)
    }

    /// What the links to a new entry and from it say about the keys at their ends (LINKS-3). They
    /// say nothing if K was not verified, or if equal keys may have different bytes. The sentinel
    /// has no key, and counts as one whose K is 0.
    #[inline(always)]
    fn ends(&self, bracket: &Bracket<'a>, fields: &Fields<'_>) -> [EndKeys; 2] {
        let is_known =
            self.view.width.bytes > 0 && self.comparator.equality() == KeyEquality::Bytes;
        let succ_part = bracket.entry.map_or(0, |entry| entry.key_part());
        [bracket.pred_part, succ_part].map(|part| {
            if is_known && part != fields.key_part {
                EndKeys::DIFFER
            } else {
                EndKeys::MAY_MATCH
            }
        })
    }

    #[inline(always)]
    fn is_equal(&self, entry: &Verified<'_>, fields: &Fields<'_>) -> bool {
        entry.node().sequence() == fields.sequence
            && self.comparator.are_equal(entry.key(), fields.key)
    }
}

/// The revision of an entry that replaces `displaced`.
#[inline(always)]
fn next_revision(displaced: Option<&Verified<'_>>) -> u32 {
    displaced.map_or(0, |old| old.node().revision().saturating_add(1))
}
