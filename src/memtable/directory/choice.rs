//! Chooses by which bytes a page tells its keys apart.
//!
//! ```text
//!   keys of a page, in order -> bytes that all share (left out)
//!                            -> the next 4 or 8 bytes, if few neighbours are equal in them
//!                            -> else the bytes in which neighbours first differ (MEASURE-2)
//! ```
//! Any thread that holds the page's lock. O(page).

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;
use std::ops::Range;

use crate::comparator::{KeyComparator, KeyOrder};
use crate::memtable::arena::node::Node;
use crate::memtable::directory::discriminator::{
    Kind, Measure, Shares, choose, difference, shared,
};
use crate::memtable::directory::lookup::{Pages, START};
use crate::memtable::directory::page::{Locked, Page, SLOTS, TURNS_MAX};

/// Most neighbours of a full leaf with equal discriminators: a page with more is measured again.
const TIES_MAX: usize = SLOTS / 16;
/// The number of slots at which a page is measured again before it is full: most keys of a small
/// table may have equal discriminators.
pub(super) const EARLY: usize = 4;

/// The number of slots from which on a page is left to its own keys: a key after them that does not
/// begin with their bytes, and would make the page choose bytes, gets a page.
const APART_MIN: usize = SLOTS / 4;
/// The same for the last leaf, which probably fills in order, and for every key that does not suit
/// it. The next leaf keeps the same bytes, so one that is at most half full is measured again.
const APART_LAST_MIN: usize = SLOTS / 2 + 1;

/// A key that is not in a page yet, and the slot before which it belongs.
#[derive(Clone, Copy)]
pub(super) struct Coming<'k> {
    pub(super) place: usize,
    pub(super) key: &'k [u8],
}

/// A rule, and how many neighbours it leaves equal.
pub(super) struct Choice {
    pub(super) measure: Measure,
    ties: usize,
}

/// What becomes of a page that a key does not suit.
pub(super) enum Unsuited {
    /// A page with this rule replaces it.
    Replaced(Measure),
    /// The key begins the next page.
    Left,
}

/// The places after the first `skip` bytes in which each of these keys, which are in order, first
/// differs from the one before, as far as bytes can be chosen. `None`: later or nowhere.
fn places(comparator: &KeyComparator, keys: &[&[u8]], skip: u32) -> [Option<u8>; SLOTS] {
    let (skip, mut places) = (skip as usize, [None; SLOTS]);
    for (place, pair) in places.iter_mut().zip(keys.windows(2)) {
        *place = difference(comparator, pair[0], pair[1], skip)
            .and_then(|at| u8::try_from(at - skip).ok());
    }
    places
}

impl<'a> Pages<'_, 'a> {
    /// The rule with this reference, by the bytes after the first `skip`.
    pub(super) fn measure_of(&self, reference: &Node<'a>, skip: u32) -> Measure {
        let shares = if skip == 0 {
            Shares::BOTH
        } else {
            Shares::NONE
        };
        let start = self.comparator.image(reference.key(), 0);
        Measure {
            reference: reference.offset(),
            skip,
            start,
            shares,
            ..Measure::PLAIN
        }
    }

    /// The rule that tells most of these keys apart: those of a page's slots, and one that comes to
    /// them. `None`: damage.
    pub(super) fn choice(
        &self,
        locked: &Locked<'a>,
        slots: Range<usize>,
        coming: Option<Coming<'_>>,
    ) -> Option<Choice> {
        let (mut keys, mut count, mut reference) = ([&[][..]; SLOTS + 1], 0, None);
        for place in slots.start..=slots.end {
            if let Some(coming) = coming.filter(|coming| coming.place == place) {
                keys[count] = coming.key;
                count += 1;
            }
            if place == slots.end {
                break;
            }
            let node = locked.slot(self.view, place)?.node;
            if node != START {
                let node = self.view.try_open(node)?;
                keys[count] = node.key();
                count += 1;
                reference.get_or_insert(node);
            }
        }
        let keys = &keys[..count];
        let skip = shared(self.comparator, keys.first()?, keys.last()?);
        let places = places(self.comparator, keys, skip);
        let places = &places[..count - 1];
        let measure = self.measure_of(&reference?, skip);
        let ties = |tells: &dyn Fn(u8) -> bool| {
            let is_tied = |place: &&Option<u8>| !place.is_some_and(tells);
            places.iter().filter(is_tied).count()
        };
        let bytes = locked.kind.bytes();
        let plain = Choice {
            measure,
            ties: ties(&|place| usize::from(place) < bytes),
        };
        if plain.ties <= allowed(locked.kind) || self.comparator.key_order() != KeyOrder::Bytes {
            return Some(plain);
        }
        let chosen = choose(places.iter().flatten().copied(), bytes);
        let kept = chosen.to_be_bytes();
        let measure = Measure { chosen, ..measure };
        let ties = ties(&|place| kept[..bytes].contains(&place));
        Some(if ties < plain.ties {
            Choice { measure, ties }
        } else {
            plain
        })
    }

    /// A rule that leaves at most half as many neighbours equal as a page's own, if the page is worth
    /// it and may be replaced once more. A key that comes after a full page stays out of it.
    pub(super) fn better(&self, locked: &Locked<'a>, coming: Coming<'_>) -> Option<Measure> {
        let measure = locked.page.measure(self.view, locked.kind);
        let is_full = locked.count == SLOTS;
        let worth = match locked.kind {
            Kind::Leaf if is_full => TIES_MAX + 1,
            Kind::Leaf if locked.count == EARLY => EARLY / 2 + 1,
            Kind::Leaf => return None,
            Kind::Inner => 1,
        };
        if measure.turns >= TURNS_MAX {
            return None;
        }
        let words = |slot| locked.kind.words_with(locked.page.word(slot)).0;
        let (place, kept) = (
            coming.place,
            measure.kept(self.comparator, coming.key, locked.kind),
        );
        let new = locked.kind.words_with(kept).0;
        let is_tied = |slot: usize| slot < locked.count && words(slot) == new;
        let comes = !(is_full && place == SLOTS);
        let news = comes && (is_tied(place) || place > 0 && is_tied(place - 1));
        if locked.kind == Kind::Inner && !is_full && !news {
            return None;
        }
        let old = (1..locked.count).filter(|slot| words(*slot) == words(slot - 1));
        let ties = old.count() + usize::from(news);
        if ties < worth {
            return None;
        }
        let slots = 0..locked.count;
        let choice = self.choice(locked, slots, Some(coming).filter(|_| comes))?;
        (choice.ties <= ties / 2).then_some(Measure {
            turns: measure.turns + 1,
            ..choice.measure
        })
    }

    /// What becomes of a page that does not suit a key. `side` is where the key is beside those that
    /// begin with the page's bytes.
    pub(super) fn unsuited(
        &self,
        locked: &Locked<'a>,
        level: u32,
        coming: Coming<'_>,
        side: Order,
    ) -> Option<Unsuited> {
        let is_last = level == 0 && locked.page.next() == 0;
        let is_after = coming.place == locked.count;
        if is_last && is_after && locked.count >= APART_LAST_MIN {
            return Some(Unsuited::Left);
        }
        let suited = self.suited(locked, coming)?;
        let is_apart = side.is_ne() && suited.chosen != 0 && locked.count >= APART_MIN;
        Some(if is_apart && is_after && !is_last {
            Unsuited::Left
        } else {
            Unsuited::Replaced(suited)
        })
    }

    /// The rule for a page whose own does not suit a key that comes to it.
    fn suited(&self, locked: &Locked<'a>, coming: Coming<'_>) -> Option<Measure> {
        let turns = locked.page.measure(self.view, locked.kind).turns + 1;
        let plain = Measure {
            turns: TURNS_MAX,
            ..Measure::PLAIN
        };
        if turns >= TURNS_MAX {
            // It suits every key: the page is not replaced again.
            return Some(plain);
        }
        let choice = self.choice(locked, 0..locked.count, Some(coming))?;
        Some(Measure {
            turns,
            ..choice.measure
        })
    }

    /// Whether a page's discriminators stay in order with one more, before this slot.
    pub(super) fn is_ordered(locked: &Locked<'a>, place: usize, kept: u64) -> bool {
        let (least, last) = locked.kind.words_with(kept);
        (place == 0 || locked.page.word(place - 1) <= last) && least <= locked.page.word(place)
    }

    /// `fence`, if the key of this node begins with the bytes that a page leaves out.
    pub(super) fn shares(&self, measure: &Measure, node: u32, fence: Shares) -> Shares {
        if self.begins(measure, node) {
            fence
        } else {
            Shares::NONE
        }
    }

    /// `Shares::HIGH`, if the first node of the next page begins with the bytes of a page.
    pub(super) fn high_shares(&self, measure: &Measure, next: u32) -> Shares {
        match Page::open(self.view, next) {
            Some(next) => self.shares(measure, next.low(), Shares::HIGH),
            None if measure.skip == 0 => Shares::HIGH,
            None => Shares::NONE,
        }
    }
}

/// Most neighbours of a page that may be equal before bytes are chosen: a lookup hops over few of
/// them in a leaf, and reads keys for any in an inner page.
fn allowed(kind: Kind) -> usize {
    match kind {
        Kind::Leaf => TIES_MAX,
        Kind::Inner => 0,
    }
}
