//! The directory's hints for searches.
//!
//! ```text
//!   directory leaf   .. | before | after | ..      a search for a target between the two starts at `before`
//! ```
//! Any thread; lock-free. A hint may be wrong, and costs steps then.

#![forbid(unsafe_code)]

use crate::key::Target;
use crate::memtable::arena::node::Verified;
use crate::memtable::directory::lookup::{GROUP, Hint, Pages};
use crate::memtable::skiplist::search::Search;
use crate::prefetch::prefetch_lines;

/// How many slots of the directory are tried for a way around a broken link.
const SLOTS_TRIED: i32 = 8;
/// Cache lines of an entry of usual size: one of 160 bytes reaches a fourth line in three cases of
/// eight.
const ENTRY_LINES: usize = 4;

impl<'a> Search<'a> {
    /// The directory of this list, if it has one.
    #[inline(always)]
    pub(crate) fn directory(&self) -> Pages<'_, 'a> {
        Pages {
            view: &self.view,
            comparator: self.comparator,
            root: self.skiplist.directory,
            sentinel: self.sentinel,
        }
    }

    /// [`hint`](Self::hint), for plain gets.
    #[inline(always)]
    pub(crate) fn hint_inlined(&self, target: &Target<'_>) -> Option<Hint> {
        if self.skiplist.directory == 0 || target.is_extreme() {
            return None;
        }
        let hint = self.directory().lookup(target)?;
        self.prefetch_hint(&hint);
        Some(hint)
    }

    /// The directory's hint for a target with a key; prefetches the nodes that it names.
    #[inline(never)]
    pub(super) fn hint(self, target: &Target<'_>) -> Option<Hint> {
        self.hint_inlined(target)
    }

    /// The directory's hints for many targets.
    #[inline(never)]
    pub(crate) fn hints(&self, targets: &[Target<'_>]) -> [Option<Hint>; GROUP] {
        let mut hints = [None; GROUP];
        if self.directory != 0 {
            self.directory()
                .lookup_many(targets, &mut hints, |hint| self.prefetch_hint(hint));
        }
        hints
    }

    /// Prefetches the two nodes that a hint names.
    #[inline(always)]
    pub(crate) fn prefetch_hint(&self, hint: &Hint) {
        self.prefetch_node(hint.before, 0);
        if hint.after != 0 {
            self.prefetch_entry(hint.after);
        }
    }

    /// Prefetches the lines of a whole entry of usual size.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, node: u32) {
        match self.view.locate_near(node) {
            Some(address) => prefetch_lines(address, ENTRY_LINES),
            None => self.prefetch_far(node),
        }
    }

    /// [`prefetch_entry`](Self::prefetch_entry), outside of the near chunk.
    #[cold]
    #[inline(never)]
    fn prefetch_far(self, node: u32) {
        if let Some((address, _)) = self.view.locate(node) {
            prefetch_lines(address, ENTRY_LINES);
        }
    }

    /// Whether an entry may be one of this list: a damaged hint may lead into the other list.
    #[inline(always)]
    pub(crate) fn holds(&self, entry: Option<Verified<'a>>) -> bool {
        entry.is_none_or(|entry| self.list.holds(entry.kind()))
    }

    /// The first node of this list that the directory names, that is not before the target, and
    /// that is before `right`. If there is none, `right`.
    #[cold]
    pub(super) fn named_at_or_after(&self, target: &Target<'_>, right: u32) -> u32 {
        let directory = self.directory();
        let hint = (!target.is_extreme()).then(|| directory.lookup_by_keys(target));
        let Some(hint) = hint.flatten() else {
            return right;
        };
        let slots = (0..SLOTS_TRIED).map_while(|ahead| directory.moved(hint.at, ahead));
        let mut nodes = slots.map(|at| directory.named(at));
        nodes
            .find(|node| self.is_between(*node, target, right))
            .unwrap_or(right)
    }

    /// Whether a node is linked in this list, not before the target, and before `right`.
    fn is_between(&self, node: u32, target: &Target<'_>, right: u32) -> bool {
        let Ok(Some(entry)) = self.verified(node) else {
            return false;
        };
        let left = self
            .view
            .back_hint(node)
            .filter(|left| self.view.try_link(*left, 0) == Some(node));
        let before_right = match self.verified(right) {
            Ok(Some(right)) => entry
                .order(self.comparator, &right.position(self.comparator))
                .is_lt(),
            Ok(None) => true,
            Err(_) => false,
        };
        left.is_some()
            && before_right
            && self.list.holds(entry.kind())
            && !entry.order(self.comparator, target).is_lt()
    }
}
