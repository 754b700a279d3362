//! Chooses by which bytes a page tells its keys apart.
//!
//! ```text
//!   keys of a page, in order -> bytes that all share (left out)
//!                            -> the next 4 or 8 bytes, if few neighbours are equal in them
//!                            -> else the bytes in which neighbours first differ (MEASURE-2)
//! ```
//! Any thread that holds the page's lock. O(page).

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "a page keeps few bytes")]

use std::cmp::Ordering as Order;

use crate::comparator::KeyOrder;
use crate::memtable::arena::node::Node;
use crate::memtable::directory::discriminator::{
    Kind, Measure, PLACES, Places, Shares, WORD, choose, difference, shared,
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

/// The keys of a page by slot.
struct Keys<'a> {
    /// The first slot with a key: the one before it is the start of the list.
    first: usize,
    keys: [&'a [u8]; SLOTS],
}

/// A rule, and how many neighbours it leaves equal.
struct Choice {
    measure: Measure,
    ties: usize,
}

/// Where a key goes that comes to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Into the page.
    Here,
    /// Into a new page after it.
    Next,
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

    /// The keys of a page's slots. `None`: damage.
    fn keys(&self, locked: &Locked<'a>) -> Option<Keys<'a>> {
        let first = usize::from(locked.node(self.view, 0)? == START);
        let mut keys = [&[][..]; SLOTS];
        for (place, key) in keys.iter_mut().enumerate().take(locked.count).skip(first) {
            *key = self.view.try_open(locked.node(self.view, place)?)?.key();
        }
        Some(Keys { first, keys })
    }

    /// The rule that tells most of these keys apart: those of a page, and one that comes to them.
    /// `None`: damage.
    fn choice(
        &self,
        locked: &Locked<'a>,
        Keys { first, keys }: &Keys<'a>,
        coming: Option<Coming<'_>>,
    ) -> Option<Choice> {
        let (mut all, mut count) = ([&[][..]; SLOTS + 1], locked.count);
        all[..SLOTS].copy_from_slice(keys);
        if let Some(Coming { place, key }) = coming {
            all.get_mut(place..=count)?.rotate_right(1);
            all[place] = key;
            count += 1;
        }
        let keys = all.get(*first..count)?;
        let skip = shared(self.comparator, keys.first()?, keys.last()?);
        // How many neighbours first differ in each place after the shared bytes.
        let (mut differ, mut places) = ([0_u8; 256], Places::default());
        for pair in keys.windows(2) {
            let at = difference(self.comparator, pair[0], pair[1], skip as usize);
            let place = at.map_or(PLACES, |at| at - skip as usize);
            if place < PLACES {
                differ[place] += 1;
                places.insert(place as u8);
            }
        }
        let bytes = locked.kind.bytes();
        let ties = |kept: [u8; WORD]| {
            let told = kept[..bytes]
                .iter()
                .map(|place| differ[usize::from(*place)]);
            keys.len() - 1 - told.map(usize::from).sum::<usize>()
        };
        let measure = self.measure_of(&self.node_in(locked, *first)?, skip);
        let plain = Choice {
            measure,
            ties: ties([0, 1, 2, 3, 4, 5, 6, 7]),
        };
        if plain.ties <= allowed(locked.kind) || self.comparator.key_order() != KeyOrder::Bytes {
            return Some(plain);
        }
        let chosen = choose(places, bytes);
        let ties = ties(chosen.to_be_bytes());
        Some(if ties < plain.ties {
            let measure = Measure { chosen, ..measure };
            Choice { measure, ties }
        } else {
            plain
        })
    }

    /// How many neighbours a page leaves equal, if it is worth another rule and may get one. Any rule
    /// is better than that of a page that was not measured since its split. A key that comes after a
    /// full page stays out of it.
    pub(super) fn ties(&self, locked: &Locked<'a>, coming: Coming<'_>) -> Option<usize> {
        let measure = locked.page.measure(self.view, locked.kind);
        if measure.turns == 0 {
            return Some(usize::MAX);
        }
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
        (ties >= worth).then_some(ties)
    }

    /// Prepares a page, which is not split, for a key that comes to it. The page is measured again if
    /// it does not suit the key, or leaves that many neighbours equal. `None`: damage, or the key
    /// belongs elsewhere.
    pub(super) fn prepare(
        &self,
        locked: &mut Locked<'a>,
        level: u32,
        coming: Coming<'_>,
        ties: Option<usize>,
    ) -> Option<Room> {
        let is_full = locked.count == SLOTS;
        if !is_full {
            let measure = locked.page.measure(self.view, locked.kind);
            let kept = measure.kept(self.comparator, coming.key, locked.kind);
            let side = measure.side(self.view, self.comparator, coming.key);
            // A writer that came to a page beside the right one may find a wrong place (PAGE-2).
            let is_placed = match side {
                Order::Less => coming.place == usize::from(locked.node(self.view, 0)? == START),
                Order::Equal => true,
                Order::Greater => coming.place == locked.count,
            };
            if !is_placed {
                return None;
            }
            // Only chosen bytes may be out of order (MEASURE-1).
            let is_ordered = measure.chosen == 0 || Self::is_ordered(locked, coming.place, kept);
            if side.is_ne() || !is_ordered {
                return self.unsuited(locked, level, coming, side);
            }
        }
        if let Some(ties) = ties {
            let keys = self.keys(locked)?;
            let comes = Some(coming).filter(|_| !is_full);
            let choice = self.choice(locked, &keys, comes)?;
            if choice.ties <= ties / 2 {
                let turns = locked.page.measure(self.view, locked.kind).turns + 1;
                self.remeasure(locked, &keys, choice.measure.at_turn(turns))?;
            }
        }
        Some(if is_full { Room::Next } else { Room::Here })
    }

    /// Gives a page another rule, which its keys suit (PAGE-3).
    fn remeasure(&self, locked: &mut Locked<'a>, keys: &Keys<'a>, measure: Measure) -> Option<()> {
        let page = locked.page;
        // Before the first store, because the comparator may panic (NAME-2).
        let (first, mut words) = (keys.first, [0; SLOTS]);
        let keys = words.iter_mut().zip(&keys.keys).take(locked.count);
        for (word, key) in keys.skip(first) {
            *word = measure.kept(self.comparator, key, locked.kind);
        }
        let shares = match page.prev() {
            _ if measure.skip == 0 => Shares::BOTH,
            0 => self.high_shares(&measure, page.next()),
            _ => {
                let low = self.shares(&measure, page.low(), Shares::LOW);
                low.and(self.high_shares(&measure, page.next()))
            }
        };
        locked.set_measure(self.view, self.comparator, &Measure { shares, ..measure })?;
        locked.set_discriminators(&words);
        Some(())
    }

    /// Measures a page again that does not suit a key, or leaves the key to the next page. `side` is
    /// where the key is beside those that begin with the page's bytes. `None`: damage.
    fn unsuited(
        &self,
        locked: &mut Locked<'a>,
        level: u32,
        coming: Coming<'_>,
        side: Order,
    ) -> Option<Room> {
        let is_last = level == 0 && locked.page.next() == 0;
        let is_after = coming.place == locked.count;
        if is_last && is_after && locked.count >= APART_LAST_MIN {
            return Some(Room::Next);
        }
        let keys = self.keys(locked)?;
        let suited = self.suited(locked, &keys, coming, side)?;
        let is_apart = side.is_ne() && suited.chosen != 0 && locked.count >= APART_MIN;
        if is_apart && is_after && !is_last {
            return Some(Room::Next);
        }
        self.remeasure(locked, &keys, suited)?;
        Some(Room::Here)
    }

    /// The rule for a page whose own does not suit a key that comes to it.
    fn suited(
        &self,
        locked: &Locked<'a>,
        keys: &Keys<'a>,
        coming: Coming<'_>,
        side: Order,
    ) -> Option<Measure> {
        let old = locked.page.measure(self.view, locked.kind);
        let turns = old.turns + 1;
        if turns >= TURNS_MAX {
            // It suits every key: the page is not measured again.
            return Some(Measure::PLAIN.at_turn(TURNS_MAX));
        }
        if side.is_ne() {
            let choice = self.choice(locked, keys, Some(coming))?;
            return Some(choice.measure.at_turn(turns));
        }
        // The key is out of order by the chosen bytes: it differs from a neighbour before the last of
        // them, in another one.
        let bytes = locked.kind.bytes();
        let mut places = Places::default();
        old.chosen.to_be_bytes()[..bytes]
            .iter()
            .for_each(|place| places.insert(*place));
        for slot in
            coming.place.saturating_sub(1).max(keys.first)..locked.count.min(coming.place + 1)
        {
            let at = difference(
                self.comparator,
                keys.keys[slot],
                coming.key,
                old.skip as usize,
            );
            let place = at.and_then(|at| u8::try_from(at - old.skip as usize).ok());
            place.iter().for_each(|place| places.insert(*place));
        }
        let chosen = choose(places, bytes);
        Some(Measure {
            chosen,
            turns,
            ..old
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
