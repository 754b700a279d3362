//! Scopes: which entries a walk may show, and how it opens the list that has them.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::comparator::KeyEquality;
use crate::error::{Corruption, Result};
use crate::integrity::options::OrderChecks;
use crate::key::Direction;
use crate::memtable::arena::arena::Frame;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::node::Verified;
use crate::memtable::arena::parked_node::Parked;
use crate::memtable::core::Core;
use crate::memtable::scan::bounds::ScanBounds;
use crate::memtable::scan::pass::Pass;
use crate::memtable::scan::visibility::Visible;
use crate::memtable::skiplist::read_ahead::ReadAhead;
use crate::memtable::skiplist::search::Search;

/// The steps of a walk that may be plain: two adjacent entries decide them alone, in a table that
/// orders keys by their bytes, stores digests whole, and makes no order checks. None of this changes
/// between two steps, so that a step asks for one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// None.
    Never,
    /// Steps forward.
    Forward,
    /// Steps in both directions.
    BothWays,
}

impl Plain {
    /// Whether a step in this direction may be plain.
    #[inline(always)]
    pub(crate) fn holds(self, way: Direction) -> bool {
        match way {
            Direction::Forward => self != Plain::Never,
            Direction::Backward => self == Plain::BothWays,
        }
    }
}

/// The entries that a walk may show. A step does not change these values, so they are apart from
/// those that it changes, and stay in registers.
pub(crate) struct Scope {
    pub(crate) visible: Visible,
    pub(crate) bounds: ScanBounds,
    /// In prefix mode, the prefix of all keys shown.
    pub(crate) prefix: Option<Box<[u8]>>,
    /// The table's checked values, as read by the last seek; before it, those of no arena.
    pub(crate) kept: Frame,
}

impl Scope {
    /// The table's list, opened with the values kept from the last seek, if there was one.
    #[inline(always)]
    pub(crate) fn list<'a>(&self, core: &'a Core) -> Option<Search<'a>> {
        let view = self.kept.on(&core.arena)?;
        let sentinel = Head::Points.sentinel();
        Some(Search {
            sentinel,
            ..core.points.search(view, &core.comparator)
        })
    }

    /// The plain steps of a walk with this scope.
    pub(crate) fn plain(&self, core: &Core) -> Plain {
        if !core.is_plain() || core.points.order_checks == OrderChecks::On {
            return Plain::Never;
        }
        let is_plain = |way| self.visible.is_plain(core, way);
        match (is_plain(Direction::Forward), is_plain(Direction::Backward)) {
            (false, _) => Plain::Never,
            (true, false) => Plain::Forward,
            (true, true) => Plain::BothWays,
        }
    }

    /// The table's list, opened with the values kept from the last seek, or with values read now.
    #[inline]
    pub(crate) fn search<'a>(&self, core: &'a Core) -> Result<Search<'a>, Corruption> {
        self.list(core).map_or_else(|| core.point_search(), Ok)
    }

    /// A move in this direction.
    #[inline(always)]
    pub(crate) fn pass<'s, 'a>(
        &'s self,
        core: &'a Core,
        search: &'s Search<'a>,
        way: Direction,
    ) -> Pass<'s, 'a> {
        Pass {
            core,
            search,
            visible: self.visible,
            bounds: &self.bounds,
            way,
            hidden: 0,
        }
    }

    /// Whether the entry after a shown one is shown, too. At a snapshot it must be visible, no
    /// tombstone, of another key, and in a table without range tombstones. `false` if the two
    /// entries do not decide.
    #[inline(always)]
    pub(crate) fn shows_neighbour(
        &self,
        core: &Core,
        equality: KeyEquality,
        parked: &Parked,
        next: &Verified<'_>,
    ) -> bool {
        let Visible::At(snapshot) = self.visible else {
            return true;
        };
        let is_seen = next.sequence() <= snapshot
            && !next.kind().is_point_delete()
            && !core.tombstones.may_be_any(&core.arena);
        let differs = equality == KeyEquality::Bytes && parked.has_other_key(next);
        is_seen && (differs || self.has_other_key(core, parked, next.key()))
    }

    /// Whether the entry that a walk is on still verifies and has another key (WALK-2).
    #[inline(never)]
    fn has_other_key(&self, core: &Core, parked: &Parked, key: &[u8]) -> bool {
        let entry = self
            .list(core)
            .and_then(|search| parked.verify(&search.view).ok());
        entry.is_some_and(|entry| !core.comparator.are_equal(entry.key(), key))
    }

    /// Whether a step in this direction from `at` to `next` keeps the order: by the images of both
    /// keys, if that of `at` is in `compared`, or else by both nodes.
    #[inline(always)]
    pub(crate) fn come_in_order(
        &self,
        core: &Core,
        way: Direction,
        compared: &mut (u32, u64),
        (at, next): (u32, &Verified<'_>),
    ) -> bool {
        let (left, right) = (*compared, core.comparator.image(next.key(), 0));
        *compared = (next.offset(), right);
        let is_clear = left.0 == at && way.pick((right < left.1, left.1 < right));
        is_clear || self.are_in_order(core, at, next.offset(), way)
    }

    /// Whether a step in this direction between two nodes keeps the order, compared by whole keys.
    #[inline(never)]
    fn are_in_order(&self, core: &Core, at: u32, to: u32, way: Direction) -> bool {
        let (left, right) = way.pick(((to, at), (at, to)));
        self.list(core)
            .is_some_and(|search| search.are_in_order(left, right))
    }

    /// Moves the read-ahead after a step to a node.
    #[inline(never)]
    pub(crate) fn read_on(&self, core: &Core, read_ahead: &mut ReadAhead, to: u32, way: Direction) {
        if let Some(search) = self.list(core) {
            search.read_on(read_ahead, to, way);
        }
    }
}
