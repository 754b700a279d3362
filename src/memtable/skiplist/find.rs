//! The searches, each named by its answer.
//!
//! ```text
//!   newest_version      the newest version of a key at or below a snapshot
//!   first_at_or_after   the first entry at or after a position
//!   last_before         the last entry before a position
//!   bracket             the two neighbours around a position
//! ```
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::comparator::KeyComparator;
use crate::error::Result;
use crate::integrity::options::SeekChecks;
use crate::key::Target;
use crate::memtable::arena::node::Verified;
use crate::memtable::directory::lookup::Hint;
use crate::memtable::directory::page::Likeness;
use crate::memtable::skiplist::bracket::{Bracket, Gap};
use crate::memtable::skiplist::near::{GUESS_HOPS, HINT_HOPS};
use crate::memtable::skiplist::search::Search;
use crate::memtable::skiplist::splice::Trail;
use crate::memtable::skiplist::tower_walk::{Checks, Progress};

/// The answer of [`Search::newest_version`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Newest<'a> {
    /// This entry, which has the target's key.
    Version(Verified<'a>),
    /// The first entry at or after the target. If it has another key, the target's key has no
    /// version.
    First(Option<Verified<'a>>),
}

impl<'a> Newest<'a> {
    /// The newest version of the key.
    #[inline(always)]
    pub(crate) fn of_key(self, comparator: &KeyComparator, key: &[u8]) -> Option<Verified<'a>> {
        match self {
            Newest::Version(entry) => Some(entry),
            Newest::First(first) => first.filter(|entry| comparator.are_equal(entry.key(), key)),
        }
    }
}

impl<'a> Search<'a> {
    /// The newest version of the target's key at or below the target's sequence number, beside the
    /// result of `meanwhile`.
    ///
    /// ```text
    ///   hint = directory.lookup(target)           hint.before is before the target; prefetch its nodes
    ///   meanwhile()                               the caller's work until memory answers
    ///   node = hint.before's level-0 link         the link's tag and node's header check match
    ///   if node is a version of the key, and its links prove that it is the first one (SEARCH-3):
    ///       return node                           once its key digest verifies
    ///   if the directory names another node that is probably the answer: ask the same of it
    ///   while node is before the target: hop to the next one, and ask the same of it
    ///   [pred | succ] = where the hops end        each of the three certifies the bracket (SEARCH-1)
    ///                or a walk down the towers
    ///                or the careful search, past damage
    ///   return succ                               a version of the key, or there is none
    /// ```
    #[inline(always)]
    pub(crate) fn newest_version<T, E: From<Gap>>(
        &self,
        target: &Target<'_>,
        meanwhile: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Newest<'a>), E> {
        let hint = self.hint_inlined(target);
        let done = meanwhile()?;
        if let Some(hint) = hint
            && let Some(newest) = self.newest_near(&hint, target)
        {
            return Ok((done, newest));
        }
        let first = self.first_again(target)?;
        Ok((done, Newest::First(first)))
    }

    /// [`newest_version`](Self::newest_version) in a few hops from a hint. `None`: the hint is of
    /// no use, or the search met anything unusual.
    #[inline(always)]
    fn newest_near(&self, hint: &Hint, target: &Target<'_>) -> Option<Newest<'a>> {
        let (at, link) = self.link_after_hint(hint)?;
        if link.0 != hint.after
            && hint.likeness == Likeness::Equal
            && let Some(entry) = self.proved_by_back_link(hint.after, target)
        {
            return Some(Newest::Version(entry));
        }
        let ahead = self.node_of_link(at, link)?;
        if let Some(entry) = self.proved_first(&ahead, target) {
            return Some(Newest::Version(entry));
        }
        if let Some(node) = ahead.node
            && self.is_before(&node, target)
        {
            let first = self.first_after_hops(ahead.at, ahead.next, node, *target);
            return first.map(Newest::First);
        }
        let bracket = self.bracket_over(ahead, target, &mut Trail::default())?;
        self.holds(bracket.entry)
            .then_some(Newest::First(bracket.entry))
    }

    /// The first entry at or after a position, where a hint is of no use.
    #[inline(never)]
    fn first_again(&self, target: &Target<'_>) -> Result<Option<Verified<'a>>, Gap> {
        Ok(self.bracket_again(target, &mut Trail::default())?.entry)
    }

    /// The first entry at or after a position.
    #[inline(never)]
    pub(crate) fn first_at_or_after(
        &self,
        target: &Target<'_>,
    ) -> Result<Option<Verified<'a>>, Gap> {
        self.first_at_or_after_from(self.hint(target).as_ref(), target)
    }

    /// [`first_at_or_after`](Self::first_at_or_after) from a hint of the directory.
    #[inline(always)]
    pub(crate) fn first_at_or_after_from(
        &self,
        hint: Option<&Hint>,
        target: &Target<'_>,
    ) -> Result<Option<Verified<'a>>, Gap> {
        if let Some(hint) = hint
            && let Some(newest) = self.newest_near(hint, target)
        {
            return Ok(match newest {
                Newest::Version(entry) => Some(entry),
                Newest::First(first) => first,
            });
        }
        // Not by `first_again`: a call of it costs `multi_get` 2 %.
        Ok(self.bracket_again(target, &mut Trail::default())?.entry)
    }

    /// The last entry before a position.
    #[inline]
    pub(crate) fn last_before(&self, target: &Target<'_>) -> Result<Option<Verified<'a>>, Gap> {
        let Bracket { pred, succ, .. } = self.bracket(target, &mut Trail::default())?;
        self.verified(pred).map_err(|corruption| Gap {
            corruption,
            before: self.sentinel,
            after: succ,
        })
    }

    /// The bracket around a position, with the checks that the table's options ask for.
    #[inline(never)]
    pub(crate) fn bracket(
        &self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        self.bracket_from(self.hint(target).as_ref(), target, trail)
    }

    /// [`bracket`](Self::bracket) from a hint of the directory.
    #[inline(always)]
    pub(crate) fn bracket_from(
        &self,
        hint: Option<&Hint>,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        // A closure might not be inlined.
        if let Some(hint) = hint
            && let Some(ahead) = self.node_after_hint(hint)
            && let Some(bracket) = self.bracket_ahead(ahead, GUESS_HOPS, target, trail)
            && self.holds(bracket.entry)
        {
            trail.start_at(hint);
            return Ok(bracket);
        }
        self.bracket_again(target, trail)
    }

    /// The bracket around a position that a hint did not lead to: the directory may have guessed it
    /// from chosen bytes (MEASURE-2), and is asked by keys before the towers.
    #[cold]
    #[inline(never)]
    fn bracket_again(
        &self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        if self.directory != 0
            && !target.is_extreme()
            && let Some(hint) = self.directory().lookup_by_keys(target)
            && let Some(ahead) = self.node_after_hint(&hint)
            && let Some(bracket) = self.bracket_ahead(ahead, HINT_HOPS, target, trail)
            && self.holds(bracket.entry)
        {
            trail.start_at(&hint);
            return Ok(bracket);
        }
        self.bracket_by_towers(target, trail)
    }

    /// The bracket around a position, by a walk down the towers, or by the careful search.
    #[inline(never)]
    pub(crate) fn bracket_by_towers(
        &self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        let every_node = self.seek_checks == SeekChecks::EveryNode;
        let checks = if every_node {
            Checks::EveryNode
        } else {
            Checks::Bracket
        };
        let (walk, progress) = self.walk(self.start(), 0, target, trail, checks);
        if let Progress::Arrived = progress
            && let Ok(bracket) = self.certify(walk.at, walk.greater)
        {
            return Ok(bracket);
        }
        self.bracket_with_care(target, trail)
    }
}
