//! Homes: a growing array of the shards that threads of a table share. Each thread begins at its
//! own place. A table has one home at first, and more once threads meet.
//!
//! ```text
//!   level     0     1        2         3          4 ..
//!   places    0     1..8     8..16     16..32     32..64     level 2 and later double the places
//! ```
//! Levels are made in order, each once, and never move. Any thread finds a place without a lock;
//! callers of `grow` hold one lock.

#![forbid(unsafe_code)]

use crate::sync::Published;

/// Number of homes after the first growth. It is a power of two, like every later number of homes.
#[cfg(not(loom))]
pub(crate) const SECOND: usize = 8;
#[cfg(loom)]
pub(crate) const SECOND: usize = 2;

/// Number of levels after the second one: enough for more homes than a machine has memory for.
const LATER: usize = 24;

/// The homes of one table.
pub(crate) struct Homes<S> {
    first: Published<Box<S>>,
    grown: Published<Box<Grown<S>>>,
}

/// The levels that only tables with several writers have.
struct Grown<S> {
    second: Box<[S]>,
    later: [Published<Box<[S]>>; LATER],
}

impl<S> Homes<S> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Homes {
            first: Published::new(),
            grown: Published::new(),
        }
    }

    /// The home at a place, if its level is made.
    #[inline(always)]
    pub(crate) fn at(&self, place: usize) -> Option<&S> {
        if place == 0 {
            self.first.get().map(|home| &**home)
        } else {
            self.grown.get()?.at(place)
        }
    }

    /// Number of homes: 0, 1, or a power of two from [`SECOND`] on. Their places are the numbers
    /// below it.
    pub(crate) fn count(&self) -> usize {
        let is_first = usize::from(self.first.get().is_some());
        self.grown
            .get()
            .map_or(is_first, |grown| SECOND << grown.later().count())
    }

    /// Makes the next level after the first `count` homes, unless it is made already. `new` makes
    /// the home of a place. The caller holds a lock, the same one at each call.
    pub(crate) fn grow(&self, count: usize, new: impl Fn(usize) -> S) {
        match count {
            0 => drop(self.first.get_or_publish(|| Box::new(new(0)), |_| ())),
            1 => drop(
                self.grown
                    .get_or_publish(|| Box::new(Grown::new(&new)), |_| ()),
            ),
            _ => {
                let level = self
                    .grown
                    .get()
                    .and_then(|grown| grown.later.get(later_level(count)));
                level.map(|level| {
                    level.get_or_publish(|| (count..2 * count).map(new).collect(), |_| ())
                });
            }
        }
    }

    /// All homes, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> {
        let grown = self.grown.get().into_iter();
        let first = self.first.get().into_iter().map(|home| &**home);
        first.chain(grown.flat_map(|grown| grown.second.iter().chain(grown.later().flatten())))
    }

    /// Bytes of the homes' own memory, without memory that they own.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.count() * size_of::<S>() + self.grown.get().map_or(0, |_| size_of::<Grown<S>>())
    }
}

impl<S> Grown<S> {
    fn new(new: impl Fn(usize) -> S) -> Self {
        let second = (1..SECOND).map(new).collect();
        Grown {
            second,
            later: std::array::from_fn(|_| Published::new()),
        }
    }

    /// The home at a place from 1 on, if its level is made.
    #[inline]
    fn at(&self, place: usize) -> Option<&S> {
        if place < SECOND {
            return self.second.get(place - 1);
        }
        let level = later_level(place);
        self.later.get(level)?.get()?.get(place - (SECOND << level))
    }

    /// The levels after the second one that are made.
    fn later(&self) -> impl Iterator<Item = &Box<[S]>> {
        self.later.iter().map_while(Published::get)
    }
}

/// The level of a place from [`SECOND`] on, counted from the level after the second.
fn later_level(place: usize) -> usize {
    (place.ilog2() - SECOND.ilog2()) as usize
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use super::*;

    /// Every place has its own home after each growth, and has none before it.
    #[test]
    fn homes_keep_their_places_while_they_grow() {
        let homes = Homes::new();
        for wanted in [0, 1, SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND] {
            assert_eq!(homes.count(), wanted);
            assert_eq!(
                homes.iter().copied().collect::<Vec<_>>(),
                (0..wanted).collect::<Vec<_>>()
            );
            assert!((0..wanted).all(|place| homes.at(place) == Some(&place)));
            assert!((wanted..40 * SECOND).all(|place| homes.at(place).is_none()));
            homes.grow(wanted, |place| place);
            // A thread that saw the old number changes nothing.
            homes.grow(wanted, |_| usize::MAX);
        }
        assert_eq!(homes.at(usize::MAX), None);
    }
}
