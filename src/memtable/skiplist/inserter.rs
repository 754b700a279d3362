//! A writer's state between inserts: its last place, its memory, and its nodes that wait for a slot
//! in the directory.
//!
//! ```text
//!   beside the last insert   a few hops on level 0 from it, or from the node before it
//!   elsewhere                by the directory, which knows level 0 only; else by the towers, which know all levels
//! ```
//! To name a node is to put it into a leaf of the directory. A node without a name costs searches a
//! step.
//! * INSERTER-1: a node whose leaf is locked waits for the writer's next name. At most eight nodes
//!   wait; one more stays unnamed.
//! * INSERTER-2: all appending writers want the last leaf. Only the writer that has its lock names
//!   its node there; the others name their next node instead.
//!
//! One writer at a time.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "levels are few")]

use crate::error::Result;
use crate::key::Target;
use crate::memtable::arena::arena::SubChunk;
use crate::memtable::arena::encode::Fields;
use crate::memtable::directory::lookup::LeafSlot;
use crate::memtable::directory::name::{NAMED_EVERY, Named};
use crate::memtable::skiplist::bracket::Bracket;
use crate::memtable::skiplist::link_tower::Tower;
use crate::memtable::skiplist::near::HINT_HOPS;
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::{Splice, Trail};
use crate::memtable::skiplist::tower_walk::{Checks, Progress};

/// Most hops on level 0 from the last insert before a search from the top is cheaper.
const NEAR_HOPS: u32 = 4;

/// Where a writer looks for the place of its next entry first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    /// After its last entry: keys ascend.
    #[default]
    After,
    /// Right before its last entry: keys descend, or the entry is a newer version of the same key.
    Before,
    /// Nowhere near its last entry.
    Elsewhere,
    /// Further after its last entry: keys ascend, with entries of other writers between.
    Among,
}

/// Most nodes of a writer that wait for a name.
const WAITING_MAX: usize = 8;

/// A writer's memory, and the splice of its last insert.
#[derive(Debug, Default)]
pub(crate) struct Inserter {
    /// Memory for nodes.
    pub(crate) sub: SubChunk,
    /// Memory for pages of the directory.
    slab: SubChunk,
    splice: Splice,
    /// Nodes whose leaf was locked.
    waiting: Vec<u32>,
    /// How many nodes stayed unnamed because too many waited.
    #[cfg(test)]
    forgotten: usize,
    /// How many entries in a row were beside the writer's last one. Every second of them is named.
    run: u32,
    /// The list that the splice belongs to, by its sentinel; 0: the splice is not complete.
    owner: u32,
    next: Next,
}

impl Inserter {
    /// The arena bytes that the writer has taken and not used.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.sub.left_bytes() + self.slab.left_bytes()
    }

    /// How many nodes stayed unnamed because too many waited.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn forgotten(&self) -> usize {
        self.forgotten
    }

    /// Adopts the splice of a search in this list. The next insert is the first of a run.
    pub(crate) fn follow(&mut self, search: &Search<'_>, splice: &Splice) {
        self.splice.clone_from(splice);
        (self.owner, self.next, self.run) = (search.sentinel, Next::After, u32::MAX);
    }

    /// Notes that the next insert is in the bracket of the adopted splice.
    #[inline(always)]
    pub(crate) fn arrive(&mut self) {
        (self.next, self.run) = (Next::After, self.run.wrapping_add(1));
    }

    /// The bracket around a position, if it is beside the writer's last insert: a few hops after
    /// it, or right before it.
    #[inline(always)]
    pub(crate) fn bracket_beside_last<'a>(
        &mut self,
        search: &Search<'a>,
        target: &Target<'_>,
    ) -> Option<Bracket<'a>> {
        if self.owner != search.sentinel {
            return None;
        }
        let hops = match self.next {
            Next::After => NEAR_HOPS,
            Next::Elsewhere if search.directory == 0 => 0,
            Next::Elsewhere => return None,
            Next::Among => return self.bracket_among(search, target),
            Next::Before => return self.bracket_before_last(search, target),
        };
        let near = search.bracket_near(
            self.last(),
            hops,
            target,
            &mut Trail::from(&mut self.splice),
        );
        if near.is_none() {
            self.miss(hops);
            return None;
        }
        self.keep_to(Next::After);
        near
    }

    /// Notes that the position is not within `hops` hops of the last insert.
    #[cold]
    #[inline(never)]
    fn miss(&mut self, hops: u32) {
        self.keep_to(Next::Elsewhere);
        if hops > 0 {
            self.next = Next::Among;
        }
    }

    /// The bracket around a position right before the last insert, from the node that its back link
    /// names, if that node's link confirms it.
    #[inline(never)]
    fn bracket_before_last<'a>(
        &mut self,
        search: &Search<'a>,
        target: &Target<'_>,
    ) -> Option<Bracket<'a>> {
        let last = self.last();
        // On higher levels the splice is after the position.
        self.splice.levels = 1;
        let is_confirmed = |start: &u32| search.view.try_link(*start, 0) == Some(last);
        let start = search.view.back_hint(last).filter(is_confirmed);
        let near = start.and_then(|start| {
            search.bracket_near(start, NEAR_HOPS, target, &mut Trail::from(&mut self.splice))
        });
        self.keep_to(match &near {
            Some(bracket) if bracket.succ == last => Next::Before,
            Some(_) => Next::After,
            None => Next::Elsewhere,
        });
        near
    }

    /// Makes the next search start on the side of the last entry where this one ended.
    #[inline(always)]
    fn keep_to(&mut self, next: Next) {
        self.next = next;
        self.run = if next == Next::Elsewhere {
            0
        } else {
            self.run.wrapping_add(1)
        };
    }

    /// The bracket around a position that is expected further after the last insert. The node gets
    /// no name if it is a few steps after a named one, in the leaf of the last insert or the next
    /// leaf: the entries of all writers ascend there.
    #[inline(never)]
    fn bracket_among<'a>(
        &mut self,
        search: &Search<'a>,
        target: &Target<'_>,
    ) -> Option<Bracket<'a>> {
        self.next = Next::Elsewhere;
        if search.directory == 0 {
            return None;
        }
        let (last, place) = (self.last(), std::mem::take(&mut self.splice.named));
        self.splice.hops = 0;
        let bracket = self.bracket_elsewhere(search, target).ok()?;
        let Splice { named, hops, .. } = self.splice;
        let is_after = || Some(search.is_before(&search.view.try_open(last)?, target));
        if self.next == Next::Elsewhere && search.directory().ascends(place, named) {
            (self.next, self.run) = (Next::Among, u32::from(hops + 1 < NAMED_EVERY));
        } else if self.next == Next::Elsewhere && is_after() == Some(true) {
            self.next = Next::Among;
        }
        Some(bracket)
    }

    /// The node of the last insert.
    #[inline(always)]
    pub(crate) fn last(&self) -> u32 {
        self.splice.prev[0]
    }

    /// The bracket around the place of an entry.
    #[inline(never)]
    pub(crate) fn bracket<'a>(
        &mut self,
        search: &Search<'a>,
        fields: &Fields<'_>,
    ) -> Result<Bracket<'a>> {
        let target = search.target(fields);
        match self.bracket_beside_last(search, &target) {
            Some(bracket) => Ok(bracket),
            None => self.bracket_elsewhere(search, &target),
        }
    }

    /// The bracket around the place of an entry, after another writer linked a node in the bracket
    /// of the last search.
    #[cold]
    #[inline(never)]
    pub(crate) fn bracket_after_race<'a>(
        &mut self,
        search: &Search<'a>,
        fields: &Fields<'_>,
    ) -> Result<Bracket<'a>> {
        let (target, last) = (search.target(fields), self.last());
        let trail = &mut Trail::from(&mut self.splice);
        match search.bracket_near(last, HINT_HOPS, &target, trail) {
            Some(bracket) => Ok(bracket),
            None => self.bracket_elsewhere(search, &target),
        }
    }

    /// The bracket around a position that is not beside the last insert.
    #[inline(never)]
    pub(crate) fn bracket_elsewhere<'a>(
        &mut self,
        search: &Search<'a>,
        target: &Target<'_>,
    ) -> Result<Bracket<'a>> {
        // No list owns the splice while it is incomplete: a comparator may panic in the search.
        let last = if self.owner == search.sentinel {
            self.splice.prev[0]
        } else {
            0
        };
        self.owner = 0;
        if search.directory == 0 {
            self.splice = Splice::new(search.sentinel);
        } else {
            // A search by the towers knows no level above the top; one by the directory sets this
            // to 1.
            self.splice.levels = search.top() + 1;
        }
        let bracket = search
            .bracket(target, &mut Trail::from(&mut self.splice))
            .map_err(|gap| gap.corruption)?;
        self.owner = search.sentinel;
        self.run = 0;
        if search.directory != 0 && [bracket.pred, bracket.succ].contains(&last) {
            self.next = if bracket.pred == last {
                Next::After
            } else {
                Next::Before
            };
        }
        Ok(bracket)
    }

    /// Names a published and counted node in the directory, and links its higher levels. The
    /// comparator may panic here (INSERT-5). A name or link that fails costs only speed.
    #[inline(always)]
    pub(crate) fn name_and_link(&mut self, search: &Search<'_>, fields: &Fields<'_>, tower: Tower) {
        self.splice.record(0, tower.node);
        if search.directory != 0 && self.run.is_multiple_of(NAMED_EVERY) {
            self.name(search, fields, tower);
        }
        if tower.height == 1 {
            return;
        }
        if self.splice.levels < tower.height {
            self.find_levels(search, fields, tower);
        }
        search.link_tower(&mut self.splice, fields, tower);
    }

    /// Fills in the splice's higher levels, for a node that the directory placed. A level that is
    /// not found starts at the sentinel, which costs steps.
    #[cold]
    #[inline(never)]
    fn find_levels(&mut self, search: &Search<'_>, fields: &Fields<'_>, tower: Tower) {
        let target = &search.target(fields).with_revision(tower.revision);
        self.splice = Splice {
            named: self.splice.named,
            ..Splice::new(search.sentinel)
        };
        let trail = &mut Trail::from(&mut self.splice);
        let (_, progress) = search.walk(search.start(), 1, target, trail, Checks::Bracket);
        if let Progress::Stopped(_) = progress {
            // Damage: the careful search finds the neighbours.
            let _ = search.bracket_by_towers(target, trail);
        }
        self.splice.record(0, tower.node);
    }

    /// Names a published node in the directory, if that is of use, and then one that waits.
    #[inline(never)]
    fn name(&mut self, search: &Search<'_>, fields: &Fields<'_>, tower: Tower) {
        if !is_worth_a_name(tower.revision) {
            return;
        }
        let target = search.target(fields).with_revision(tower.revision);
        let guess = self.splice.named;
        match search
            .directory()
            .name(&mut self.slab, guess, tower.node, &target)
        {
            Named::In(place) => {
                let slot = place
                    .slot
                    .saturating_sub(u32::from(self.next == Next::Before));
                self.splice.named = LeafSlot { slot, ..place };
            }
            Named::Busy => self.wait(tower.node),
            // The writer's next node is named instead.
            Named::Left => self.run = u32::MAX,
            Named::Not => self.splice.named = LeafSlot::NONE,
        }
        if !self.waiting.is_empty() {
            self.name_waiting(search);
        }
    }

    #[cold]
    fn name_waiting(&mut self, search: &Search<'_>) {
        let node = self.waiting.remove(0);
        let Some(opened) = search.view.try_open(node) else {
            return;
        };
        let target = opened.position_as_stored(search.comparator);
        let directory = search.directory();
        if directory.name(&mut self.slab, LeafSlot::NONE, node, &target) == Named::Busy {
            self.wait(node);
        }
    }

    /// Makes a node wait for the writer's next name (INSERTER-1).
    #[cold]
    fn wait(&mut self, node: u32) {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.push(node);
        }
        #[cfg(test)]
        {
            self.forgotten += usize::from(!has_room);
        }
    }
}

/// Whether searches start at a node of this revision if it has a name. Newer revisions are before
/// older ones, so a search for a later key starts at the oldest revision that has a name, and no
/// search ends between two of them. If the first ones stayed unnamed, a later one gets a name.
fn is_worth_a_name(revision: u32) -> bool {
    revision & revision.wrapping_sub(1) == 0
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;
    use crate::comparator::BYTEWISE;
    use crate::integrity::digest::Width;
    use crate::integrity::options::{OrderChecks, SeekChecks};
    use crate::integrity::tag::Secret;
    use crate::key::SequenceNumber;
    use crate::kind::Kind;
    use crate::memtable::arena::arena::Arena;
    use crate::memtable::arena::heads::Head;
    use crate::memtable::skiplist::list::{DuplicatePolicy, List};
    use crate::memtable::skiplist::node_space::make_heads;

    /// The back link of a writer's last entry is damaged, and names an entry of the other list with
    /// a matching tag: a writer does not follow it, because no link confirms it.
    #[test]
    fn a_back_link_leads_to_no_other_list() {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let arena = Arena::new(1 << 20, 1 << 24, width, secret);
        make_heads(&arena).unwrap();
        let list = |head| List::new(head, SeekChecks::Bracket, OrderChecks::Off);
        let (points, ranges) = (list(Head::Points).with_directory(), list(Head::Ranges));
        let (in_points, in_ranges) = (
            points.search(arena.view().unwrap(), &BYTEWISE),
            ranges.search(arena.view().unwrap(), &BYTEWISE),
        );
        let entries = |search: &Search<'_>| {
            let (mut at, mut found) = (search.sentinel, Vec::new());
            while let Some(entry) = search.next(at).unwrap() {
                found.push((entry.key().to_vec(), entry.sequence()));
                at = entry.offset();
            }
            found
        };
        let insert =
            |inserter: &mut Inserter, (list, search): (&List, &_), key: &[u8], sequence, kind| {
                let fields = Fields::new(sequence, kind, key, b"zz", None);
                let placement = list.insert(search, inserter, &fields, DuplicatePolicy::Reject)?;
                list.link_tower(search, inserter, &fields, placement.tower);
                Ok::<(), crate::error::Error>(())
            };
        let mut other = Inserter::default();
        insert(
            &mut other,
            (&ranges, &in_ranges),
            b"z",
            1,
            Kind::RANGE_DELETE,
        )
        .unwrap();
        insert(
            &mut other,
            (&ranges, &in_ranges),
            b"a",
            1,
            Kind::RANGE_DELETE,
        )
        .unwrap();
        let mut writer = Inserter::default();
        let mut put = |sequence: SequenceNumber| {
            insert(
                &mut writer,
                (&points, &in_points),
                b"k",
                sequence,
                Kind::PUT,
            )
            .map(|()| writer.last())
        };
        let last = (1..5)
            .map(|sequence| put(sequence).unwrap())
            .last()
            .unwrap();
        in_points.view.set_back(last, other.last());
        let put = put(5);
        assert_eq!(
            entries(&in_ranges),
            [(b"a".to_vec(), 1), (b"z".to_vec(), 1)]
        );
        assert!(put.unwrap_err().corruption().is_some());
    }
}
