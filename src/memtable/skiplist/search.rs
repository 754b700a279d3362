//! The parameters of a search in a list, and the rules of all searches.
//!
//! ```text
//!   find.rs             newest_version, first_at_or_after, last_before, bracket; each tries in this order:
//!   near.rs             a few hops on level 0, from a hint of the directory (hints.rs)
//!   tower_walk.rs       down the towers
//!   careful_search.rs   past damaged nodes, and along back links
//!   bracket.rs          certifies [pred | succ], where each of these ends
//! ```
//! * SEARCH-1: a search answers by a certified bracket: pred < target <= succ; the link from pred
//!   to succ has a matching tag; succ's back link confirms that link; both key digests verify. This
//!   holds for every path to the bracket: towers, splice, hint, directory.
//! * SEARCH-2: a link above level 0 that fails its check counts as absent. Where a level-0 link is
//!   broken, or went back to an earlier value, the search starts at the next node that upper
//!   levels, the directory or that earlier value name, and follows back links that forward links
//!   confirm.
//! * SEARCH-3: one answer needs no bracket. An entry is the first one at or after a position if it
//!   has the position's key, its link says that the node before it has another key (LINKS-3), and
//!   its back link confirms that link. Only a version of the same key could come before the entry:
//!   it would be the node before it, or between the two. It does not matter how the search came to
//!   the node before: by a hint, by hops from one, or by the entry's own back link.
//!
//! Any thread; lock-free. Expected O(log n) steps, without a bound.

#![forbid(unsafe_code)]

use crate::comparator::{BYTEWISE, KeyComparator};
use crate::error::{Corruption, Result};
use crate::integrity::digest::Width;
use crate::key::Target;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::encode::Fields;
use crate::memtable::arena::node::{Node, Verified};
use crate::memtable::skiplist::list::List;

impl List {
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
}

/// The parameters of a search.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) view: View<'a>,
    pub(crate) comparator: &'a KeyComparator,
    pub(crate) skiplist: &'a List,
    pub(crate) sentinel: u32,
}

impl<'a> Search<'a> {
    /// This search, in a table for which `Core::is_plain` holds: the compiler knows its comparator
    /// and its digests then.
    #[inline(always)]
    pub(crate) fn plain(mut self) -> Self {
        (self.view.width, self.comparator) = (Width::default(), &BYTEWISE);
        self
    }

    /// The height of an entry's tower.
    #[inline(always)]
    pub(crate) fn height(&self, fields: &Fields<'_>, revision: u32) -> u32 {
        self.towers()
            .height(self.view.secret, fields.key_part, fields.sequence, revision)
    }

    /// The position of an entry.
    #[inline(always)]
    pub(crate) fn target<'k>(&'k self, fields: &Fields<'k>) -> Target<'k> {
        Target::new(self.comparator, fields.key, fields.sequence)
    }

    /// Whether a node, as it is stored, is before a position.
    #[inline(always)]
    pub(super) fn is_before(&self, node: &Node<'a>, target: &Target<'_>) -> bool {
        node.order_as_stored(self.comparator, target).is_lt()
    }

    /// Opens and verifies a node, which may be a healed copy; `None` for the sentinel. Compiled once:
    /// hot paths open and verify stored nodes inline.
    #[inline(never)]
    pub(crate) fn verified(&self, node: u32) -> Result<Option<Verified<'a>>, Corruption> {
        if node == self.sentinel {
            return Ok(None);
        }
        self.view.entry(node).map(Some)
    }
}

impl std::ops::Deref for Search<'_> {
    type Target = List;
    #[inline(always)]
    fn deref(&self) -> &List {
        self.skiplist
    }
}
