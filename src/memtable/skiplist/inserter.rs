//! What a writer keeps between its inserts: where it was, where memory comes from, what is to be named.
//!
//! ```text
//!   beside the last insert   a few hops on level 0 from it, or from the node before it, if the last one was found so
//!   elsewhere                by the directory, which knows level 0 alone; else by the towers, which know all levels
//! ```
//! * INSERTER-1: a way is of use only for the list that it was found in, and only once it is complete.
//! * INSERTER-2: a name that finds its leaf locked is tried again with the next one; of too many the last is forgotten. A
//!   node without a name costs a step.
//!
//! One writer at a time.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "levels are few")]

use crate::error::Result;
use crate::key::Target;
use crate::memtable::skiplist::arena::SubChunk;
use crate::memtable::skiplist::directory::lookup::LeafSlot;
use crate::memtable::skiplist::directory::name::{NAMED_EVERY, Named};
use crate::memtable::skiplist::encode::Fields;
use crate::memtable::skiplist::link_tower::Tower;
use crate::memtable::skiplist::search::{Bracket, Search, Splice, Trail};

/// Most hops on level 0 from the last insert before a search from the top is cheaper.
const NEAR_HOPS: u32 = 4;

/// Where the next entry is looked for first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// After the last one: keys ascend.
    After,
    /// Right before the last one: keys descend, or it is a newer version of the same key.
    Before,
    /// Nowhere near it.
    Elsewhere,
}

/// Nodes that wait for a name.
#[derive(Debug, Default)]
struct Waiting {
    nodes: [u32; WAITING_MAX],
    count: usize,
    /// How many there was no room for (INSERTER-2).
    #[cfg(test)]
    forgotten: usize,
}

/// How many nodes of a writer wait for a name.
const WAITING_MAX: usize = 8;

impl Waiting {
    fn push(&mut self, node: u32) {
        match self.nodes.get_mut(self.count) {
            Some(slot) => (*slot, self.count) = (node, self.count + 1),
            #[cfg(test)]
            None => self.forgotten += 1,
            #[cfg(not(test))]
            None => (),
        }
    }
}

/// What a writer owns: its sub-chunk and the way of its last insert.
#[derive(Debug)]
pub(crate) struct Inserter {
    pub(crate) sub: SubChunk,
    /// Where pages of the directory come from.
    slab: SubChunk,
    splice: Splice,
    /// Nodes whose leaf was locked when they were to be named.
    waiting: Waiting,
    /// Entries in a row that followed the writer's last one; the next one of a batch counts as the first.
    run: u32,
    /// The list that the splice belongs to, by its sentinel; 0 = none.
    owner: u32,
    next: Next,
}

impl Default for Inserter {
    fn default() -> Self {
        Inserter {
            sub: SubChunk::default(),
            slab: SubChunk::default(),
            splice: Splice::new(0),
            waiting: Waiting::default(),
            run: 0,
            owner: 0,
            next: Next::After,
        }
    }
}

impl Inserter {
    /// Bytes that it took ahead.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.sub.left_bytes() + self.slab.left_bytes()
    }

    /// How many names it forgot (INSERTER-2).
    #[cfg(all(test, not(loom)))]
    pub(super) fn forgotten(&self) -> usize {
        self.waiting.forgotten
    }

    /// Goes on after a way that a search of this list has recorded.
    pub(crate) fn follow(&mut self, search: &Search<'_>, way: &Splice) {
        self.splice.clone_from(way);
        (self.owner, self.next, self.run) = (search.sentinel, Next::After, u32::MAX);
    }

    /// Goes on at a place that a search has certified and whose way it follows.
    #[inline(always)]
    pub(crate) fn arrive(&mut self) {
        (self.next, self.run) = (Next::After, self.run.wrapping_add(1));
    }

    /// The bracket around a position beside the writer's last insert: at most a few hops after it, or right before it.
    pub(crate) fn find_beside_last<'a>(
        &mut self,
        search: &Search<'a>,
        target: &Target<'_>,
    ) -> Option<Bracket<'a>> {
        match self.next {
            Next::Before => self.find_before(search, target),
            Next::After | Next::Elsewhere => self.find_after(search, target),
        }
    }

    /// The bracket around a position at most a few hops after the last insert, if the next one is looked for there.
    #[inline(always)]
    fn find_after<'a>(&mut self, search: &Search<'a>, target: &Target<'_>) -> Option<Bracket<'a>> {
        let hops = match self.next {
            Next::After => NEAR_HOPS,
            Next::Elsewhere if search.directory == 0 => 0,
            Next::Elsewhere | Next::Before => return None,
        };
        if self.owner != search.sentinel {
            return None;
        }
        let near = search.find_near(self.last(), hops, target, &mut self.splice);
        self.keep_to(if near.is_some() { Next::After } else { Next::Elsewhere });
        near
    }

    /// The bracket around a position right before the last insert, by its back link, if a link leads back from there.
    #[inline(never)]
    fn find_before<'a>(&mut self, search: &Search<'a>, target: &Target<'_>) -> Option<Bracket<'a>> {
        if self.owner != search.sentinel {
            return None;
        }
        let last = self.last();
        // Higher levels of the way end after the position.
        self.splice.levels = 1;
        let is_confirmed = |start: &u32| search.view.try_link(*start, 0) == Some(last);
        let start = search.view.back_hint(last).filter(is_confirmed);
        let near = start.and_then(|start| search.find_near(start, NEAR_HOPS, target, &mut self.splice));
        self.keep_to(match &near {
            Some(bracket) if bracket.succ == last => Next::Before,
            Some(_) => Next::After,
            None => Next::Elsewhere,
        });
        near
    }

    /// The next entry is looked for on the side of the last one on which this one was found.
    #[inline(always)]
    fn keep_to(&mut self, next: Next) {
        self.next = next;
        self.run = if next == Next::Elsewhere { 0 } else { self.run.wrapping_add(1) };
    }

    /// The node that it inserted last.
    #[inline(always)]
    pub(crate) fn last(&self) -> u32 {
        self.splice.prev[0]
    }

    /// The bracket around the place of an entry.
    #[inline(always)]
    pub(crate) fn find<'a>(&mut self, search: &Search<'a>, fields: &Fields<'_>) -> Result<Bracket<'a>> {
        let target = Target::new(search.comparator, fields.key, fields.sequence);
        match self.find_after(search, &target) {
            Some(bracket) => Ok(bracket),
            None => self.find_elsewhere(search, fields),
        }
    }

    /// The bracket around the place of an entry that is not after the last one.
    #[inline(never)]
    fn find_elsewhere<'a>(&mut self, search: &Search<'a>, fields: &Fields<'_>) -> Result<Bracket<'a>> {
        let target = &Target::new(search.comparator, fields.key, fields.sequence);
        if self.next == Next::Before
            && let Some(bracket) = self.find_before(search, target)
        {
            return Ok(bracket);
        }
        // A comparator may panic half-way (INSERTER-1).
        let last = if self.owner == search.sentinel { self.splice.prev[0] } else { 0 };
        self.owner = 0;
        if search.directory == 0 {
            self.splice = Splice::new(search.sentinel);
        } else {
            // If the towers are asked after all, they say nothing about higher levels.
            self.splice.levels = search.top + 1;
        }
        let bracket = search.find(target, &mut self.splice).map_err(|gap| gap.corruption)?;
        self.owner = search.sentinel;
        self.run = 0;
        if search.directory != 0 && [bracket.pred, bracket.succ].contains(&last) {
            self.next = if bracket.pred == last { Next::After } else { Next::Before };
        }
        Ok(bracket)
    }

    /// What is left to do once a node is published and counted: its name in the directory, and its higher levels. The
    /// comparator may panic here (LIST-4). What cannot be linked is left out: it costs speed only.
    #[inline(always)]
    pub(super) fn settle(&mut self, search: &Search<'_>, fields: &Fields<'_>, tower: Tower) {
        self.splice.record(0, tower.node);
        if search.directory != 0 && self.run.is_multiple_of(NAMED_EVERY) {
            self.name(search, fields, tower);
        }
        if tower.height == 1 {
            return;
        }
        if self.splice.levels < tower.height {
            self.find_tower(search, fields, tower);
        }
        search.link_tower(&mut self.splice, fields, tower);
    }

    /// Looks for the places of a tower whose node was placed by the directory. What is not found is left out: the head
    /// leads there as well, by more steps.
    #[cold]
    #[inline(never)]
    fn find_tower(&mut self, search: &Search<'_>, fields: &Fields<'_>, tower: Tower) {
        let target =
            &Target::new(search.comparator, fields.key, fields.sequence).with_revision(tower.revision);
        self.splice = Splice { named: self.splice.named, ..Splice::new(search.sentinel) };
        search.find_above(target, &mut self.splice);
        self.splice.record(0, tower.node);
    }

    /// Names a published node in the directory, and those that wait for it.
    #[inline(never)]
    fn name(&mut self, search: &Search<'_>, fields: &Fields<'_>, tower: Tower) {
        let target =
            Target::new(search.comparator, fields.key, fields.sequence).with_revision(tower.revision);
        let guess = self.splice.named;
        match search.directory().name(&mut self.slab, guess, tower.node, &target) {
            Named::In(place) => {
                let slot = place.slot.saturating_sub(u32::from(self.next == Next::Before));
                self.splice.named = LeafSlot { slot, ..place };
            }
            Named::Busy => self.waiting.push(tower.node),
            Named::Not => self.splice.named = LeafSlot::NONE,
        }
        if self.waiting.count > 0 {
            self.name_waiting(search);
        }
    }

    #[cold]
    fn name_waiting(&mut self, search: &Search<'_>) {
        let count = std::mem::take(&mut self.waiting.count);
        for node in self.waiting.nodes.into_iter().take(count) {
            let Some(opened) = search.view.try_open(node) else { continue };
            let target = search.position(&opened);
            if search.directory().name(&mut self.slab, LeafSlot::NONE, node, &target) == Named::Busy {
                self.waiting.push(node);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;
    use crate::integrity::digest::Width;
    use crate::integrity::options::{OrderChecks, SeekChecks};
    use crate::integrity::tag::Secret;
    use crate::key::{Kind, SequenceNumber};
    use crate::memtable::skiplist::arena::{Arena, ArenaOptions};
    use crate::memtable::skiplist::control_block::Head;
    use crate::memtable::skiplist::list::{DuplicatePolicy, List};

    /// A damaged back link of a writer's last entry names an entry of the other list, with the tag of that: no link leads
    /// back from there.
    #[test]
    fn a_back_link_leads_to_no_other_list() {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let options = ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret };
        let arena = Arena::new(&options).unwrap();
        let list = |head| List::new(&arena, head, SeekChecks::Bracket, OrderChecks::Off).unwrap();
        let (points, ranges) = (list(Head::Points).with_directory(&arena).unwrap(), list(Head::Ranges));
        let (in_points, in_ranges) = (
            points.search(Head::Points, arena.view().unwrap(), &BYTEWISE),
            ranges.search(Head::Ranges, arena.view().unwrap(), &BYTEWISE),
        );
        let entries = |search: &Search<'_>| {
            let (mut at, mut found) = (search.sentinel, Vec::new());
            while let Some(entry) = search.next(at).unwrap() {
                found.push((entry.key().to_vec(), entry.node().sequence()));
                at = entry.node().offset();
            }
            found
        };
        let insert = |inserter: &mut Inserter, (list, search): (&List, &_), key: &[u8], sequence, kind| {
            let fields = Fields::new(sequence, kind, key, b"zz", None);
            let placement = list.insert(search, inserter, &fields, DuplicatePolicy::Reject)?;
            list.link_tower(search, inserter, &fields, placement.linked.tower);
            Ok::<(), crate::error::Error>(())
        };
        let mut other = Inserter::default();
        insert(&mut other, (&ranges, &in_ranges), b"z", 1, Kind::RANGE_DELETE).unwrap();
        insert(&mut other, (&ranges, &in_ranges), b"a", 1, Kind::RANGE_DELETE).unwrap();
        let mut writer = Inserter::default();
        let mut put = |sequence: SequenceNumber| {
            insert(&mut writer, (&points, &in_points), b"k", sequence, Kind::PUT).map(|()| writer.last())
        };
        let last = (1..5).map(|sequence| put(sequence).unwrap()).last().unwrap();
        in_points.view.set_back(last, other.last());
        let put = put(5);
        assert_eq!(entries(&in_ranges), [(b"a".to_vec(), 1), (b"z".to_vec(), 1)]);
        assert!(put.unwrap_err().corruption().is_some());
    }
}
