//! The point index: from a user key to its newest node in two cache lines.
//!
//! ```text
//!   bucket (one line)   | control | slot 0 | slot 1 | ... | slot 6 |
//!
//!   slot      node offset (32) | key tag (16) | check (16)      check = over slot place, offset, tag, secret
//!   control   XOR of a 64-bit weight of every filled slot       weight = over slot place, slot word, secret
//! ```
//! The list is the truth. The index answers only where it can prove its answer; otherwise it says "unsure" and the
//! list is searched.
//!
//! * P1: slots of a bucket fill from the left by compare-and-swap and never empty again. Two writers of one new key
//!   therefore meet at the same slot, and the loser finds the winner there: a key has at most one slot.
//! * P2: a slot only ever moves to a newer node of its key (larger sequence, then larger revision), and an insert
//!   returns only after its own node or a newer one is named. So at the start of a read the slot is at least as new as
//!   every version whose insert has returned.
//! * P3: a node is named only after it is in the list: its level-0 link leads to the older versions.
//! * P4: no answer without an agreeing control word. A slot that was zeroed, flipped or copied from elsewhere changes the
//!   XOR, and so does a writer between its two steps: readers of that bucket ask the list meanwhile.
//! * P5: a full bucket cannot tell who found no room. Its misses go to the list.
//! * P6: a bucket whose control word is 0 proves nothing either: an unused one looks like one that was zeroed as a
//!   whole. That costs misses a search while the table is nearly empty.
//!
//! Why a hit needs no bracket: an ordered answer says that nothing stands between two neighbours, so both are needed.
//! A hit says "this node is the newest version of its key". That the node has the key is proved by its key digest and
//! the comparison; that none newer has returned is P2, and P2 holds for the slot as read because control and check
//! agree (P4). If the node is too new for the snapshot, its verified successors are the answer, each next to the one
//! before by a tagged link; the first one of another key is the right side of a bracket whose left side is verified
//! too. A miss of this key in an agreeing bucket that is not full follows from P1. A node that fails to verify, or a
//! slot whose check fails, proves nothing: the list decides, and finds the damage if it matters.
//!
//! Any thread; lock-free. Not promised: that a scrub notices a bucket zeroed as a whole (P6: no read believes it).

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "slot words are packed")]

use crate::error::{Corruption, Place, Result};
use crate::integrity::guarded::Guarded;
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::tags::Secret;
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber};
use crate::memtable::lines::{LINE_WORDS, Line, Lines};
use crate::memtable::skiplist::arena::{Arena, SubChunk, View};
use crate::memtable::skiplist::node::{Verified, bytes_of};
use crate::sync::Ordering;

/// Slots of a bucket.
pub(crate) const SLOTS: u32 = LINE_WORDS as u32 - 1;
/// A level that no link has: slot checks are link tags of it.
const SLOT_LEVEL: u32 = 1 << 31;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct PointIndex {
    lines: Lines,
}

/// A node that is in the list, and what it is a version of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'k> {
    pub(crate) node: u32,
    pub(crate) key: &'k [u8],
    pub(crate) sequence: SequenceNumber,
    pub(crate) revision: u32,
}

impl Version<'_> {
    /// Whether this is newer than another version of the same key.
    #[inline(always)]
    fn newer_than(&self, other: &Verified<'_>) -> bool {
        (self.sequence, self.revision) > (other.node().sequence(), other.node().revision())
    }
}

/// Where a key's slot is, if it has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    line: Line,
    tag: u16,
}

/// A bucket that was read, and whose control word agreed (P4).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    bucket: Bucket,
    words: [u64; SLOTS as usize],
}

/// What the index knows about a key.
#[derive(Debug)]
pub(crate) enum Known<'a> {
    /// Its newest node.
    Newest(Verified<'a>),
    /// It has none.
    Absent,
    /// The list must be asked.
    Unsure,
}

/// What came of a writer's look at a slot.
enum Settled {
    /// The slot is the key's, or nothing more is to be done.
    Here,
    /// The slot belongs to another key.
    Elsewhere,
}

/// What the slot of a key may be.
enum Owner<'a> {
    Same(Verified<'a>),
    Other,
    Damaged,
}

#[inline(always)]
const fn offset_in(word: u64) -> u32 {
    (word >> 32) as u32
}

#[inline(always)]
const fn tag_in(word: u64) -> u16 {
    (word >> 16) as u16
}

/// The word of a slot at unit `place`.
#[inline(always)]
const fn slot_word(secret: Secret, place: u32, node: u32, tag: u16) -> u64 {
    let check = secret.link_tag(place, SLOT_LEVEL | tag as u32, node) as u16;
    (node as u64) << 32 | (tag as u64) << 16 | check as u64
}

/// What a slot adds to its control word; nothing if it is empty.
#[inline(always)]
const fn weight(secret: Secret, place: u32, word: u64) -> u64 {
    if word == 0 { 0 } else { mix(word ^ secret.mask, secret.factor ^ (place as u64).rotate_left(17)) }
}

impl PointIndex {
    /// An empty index of at most `bytes` bytes.
    pub(crate) fn new(arena: &Arena, sub: &mut SubChunk, bytes: u64) -> Result<PointIndex> {
        Ok(PointIndex { lines: Lines::carve(arena, sub, bytes)? })
    }

    /// The bucket of a key with this K. `None`: the control words of the index are damaged.
    #[inline(always)]
    pub(crate) fn bucket(&self, key_part: u64) -> Option<Bucket> {
        let hash = mix(key_part, const { splitmix(211) });
        Some(Bucket { line: self.lines.pick(hash)?, tag: hash as u16 })
    }

    /// Names a node that is in the list (P3) as the newest of its key, unless a newer one is named already.
    #[inline]
    pub(crate) fn note<C: Comparator>(
        &self,
        view: &View<'_>,
        comparator: &C,
        version: &Version<'_>,
        key_part: u64,
    ) {
        // Control words that are damaged for a writer are so for readers: they ask the list.
        let Some(bucket) = self.bucket(key_part) else { return };
        for slot in 1..=SLOTS {
            match bucket.settle(view, comparator, version, slot) {
                Some(Settled::Here) | None => return,
                Some(Settled::Elsewhere) => {}
            }
        }
    }

    /// Slots in use, for models.
    #[cfg(all(test, loom))]
    pub(crate) fn filled(&self, view: &View<'_>) -> usize {
        let line = self.lines.line(0).unwrap();
        // ORDERING: Relaxed: all writers have been joined.
        (1..=SLOTS).filter(|slot| line.word(view, *slot).unwrap().load(Ordering::Relaxed) != 0).count()
    }

    /// The guarded words, for control checks.
    pub(crate) fn control_words(&self) -> [&Guarded; 2] {
        self.lines.control_words()
    }

    /// Checks every bucket and reports what disagrees. `settle` waits for the writers inside. O(buckets).
    pub(crate) fn scrub(
        &self,
        view: &View<'_>,
        settle: &mut dyn FnMut(),
        report: &mut dyn FnMut(Corruption),
    ) -> Result<(), Corruption> {
        for index in 0..self.lines.count()? {
            let line = self.lines.line(index)?;
            let bucket = Bucket { line, tag: 0 };
            // A writer between its two steps disagrees as well, so the bucket is read again behind it. Under steady
            // writes to one bucket that may happen each time: then it is not damaged, and the next pass looks again.
            let mut damage = bucket.damage(view);
            for _ in 0..SETTLE_ROUNDS {
                let Some(first) = damage else { break };
                settle();
                damage = bucket.damage(view).filter(|again| *again == first);
            }
            if let Some(damage) = damage {
                report(damage);
            }
        }
        Ok(())
    }

    /// Every word, as (unit, 0 = control or 1 + slot), for the fault door.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn words(&self) -> Result<Vec<(u32, u32)>, Corruption> {
        let mut words = Vec::new();
        for index in 0..self.lines.count()? {
            let line = self.lines.line(index)?;
            words.extend((0..=SLOTS).map(|word| (line.0 + word, word)));
        }
        Ok(words)
    }
}

/// How often a disagreeing bucket is read again before it is reported.
const SETTLE_ROUNDS: u32 = 3;

impl Bucket {
    /// Claims the slot for the version or moves it on. `None`: there is no such word.
    #[inline(always)]
    fn settle<C: Comparator>(
        &self,
        view: &View<'_>,
        comparator: &C,
        version: &Version<'_>,
        slot: u32,
    ) -> Option<Settled> {
        let place = self.line.0 + slot;
        let (word, control) = (self.line.word(view, slot)?, self.line.word(view, 0)?);
        let mine = slot_word(view.secret, place, version.node, self.tag);
        loop {
            // ORDERING: Acquire pairs with the Release below: the node named is visible behind its slot.
            let found = word.load(Ordering::Acquire);
            if found != 0 {
                match self.owner(view, comparator, version.key, place, found) {
                    Owner::Other => return Some(Settled::Elsewhere),
                    // Reads of this key find the damaged node here and ask the list.
                    Owner::Damaged => return Some(Settled::Here),
                    Owner::Same(named) if !version.newer_than(&named) => return Some(Settled::Here),
                    Owner::Same(_) if planted(Bug::IndexKeepsFirstVersion) => return Some(Settled::Here),
                    Owner::Same(_) => {}
                }
            }
            // ORDERING: Release pairs with the Acquire loads of slots; Relaxed on failure: the slot is read again.
            let swapped = word.compare_exchange(found, mine, Ordering::Release, Ordering::Relaxed);
            if swapped.is_ok() {
                let change = weight(view.secret, place, found) ^ weight(view.secret, place, mine);
                // ORDERING: Relaxed: the word proves nothing by its order; a reader believes it only if it agrees with
                // the slots that the reader saw.
                control.fetch_xor(change, Ordering::Relaxed);
                return Some(Settled::Here);
            }
            if planted(Bug::IndexLoserGoesOn) {
                return Some(Settled::Elsewhere);
            }
        }
    }

    /// Whether a filled slot belongs to this key.
    #[inline(always)]
    fn owner<'a, C: Comparator>(
        &self,
        view: &View<'a>,
        comparator: &C,
        key: &[u8],
        place: u32,
        word: u64,
    ) -> Owner<'a> {
        if tag_in(word) != self.tag {
            return Owner::Other;
        }
        if word != slot_word(view.secret, place, offset_in(word), self.tag) {
            return Owner::Damaged;
        }
        // A key that compares different is verified before that is believed.
        match view.try_open(offset_in(word)).and_then(|node| node.try_verify(view)) {
            Some(named) if comparator.compare(named.key(), key).is_eq() => Owner::Same(named),
            Some(_) => Owner::Other,
            None => Owner::Damaged,
        }
    }

    /// Reads the bucket. `None`: its control word does not agree (P4).
    #[inline(always)]
    pub(crate) fn look(&self, view: &View<'_>) -> Option<Sight> {
        // ORDERING: Relaxed: see `settle`.
        let control = self.line.word(view, 0)?.load(Ordering::Relaxed);
        let mut words = [0; SLOTS as usize];
        let mut sum = 0;
        for (slot, word) in (1u32..).zip(&mut words) {
            // ORDERING: Acquire pairs with the Release in `settle`: the node named is visible behind its slot.
            let acquire = if planted(Bug::SlotLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
            *word = self.line.word(view, slot)?.load(acquire);
            sum ^= weight(view.secret, self.line.0 + slot, *word);
        }
        let agrees = sum == control || planted(Bug::IndexForgetsControl);
        // P6.
        let agrees = agrees && control != 0;
        agrees.then_some(Sight { bucket: *self, words })
    }

    /// The first thing that disagrees in this bucket.
    fn damage(&self, view: &View<'_>) -> Option<Corruption> {
        let mut sum = 0;
        for slot in 1..=SLOTS {
            let place = self.line.0 + slot;
            // ORDERING: Relaxed: only the word itself is looked at.
            let word = self.line.word(view, slot)?.load(Ordering::Relaxed);
            let expected = slot_word(view.secret, place, offset_in(word), tag_in(word));
            if word != 0 && word != expected {
                return Some(Corruption::new(Place::Slot, bytes_of(place), expected, word));
            }
            sum ^= weight(view.secret, place, word);
        }
        // ORDERING: Relaxed: as above.
        let control = self.line.word(view, 0)?.load(Ordering::Relaxed);
        (sum != control).then(|| Corruption::new(Place::Slot, bytes_of(self.line.0), sum, control))
    }

    /// Asks for the line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, view: &View<'_>) {
        self.line.prefetch(view);
    }
}

impl Sight {
    /// The nodes that may have the key: their slots carry its tag. Offsets are advice until `judge` has checked them.
    #[inline(always)]
    pub(crate) fn candidates(&self) -> impl Iterator<Item = u32> + '_ {
        let tag = self.bucket.tag;
        self.words
            .iter()
            .filter(move |word| **word != 0 && tag_in(**word) == tag)
            .map(|word| offset_in(*word))
    }

    /// What the bucket proves about a key.
    #[inline(always)]
    pub(crate) fn judge<'a, C: Comparator>(&self, view: &View<'a>, comparator: &C, key: &[u8]) -> Known<'a> {
        for (slot, word) in (1u32..).zip(self.words) {
            if word == 0 {
                return Known::Absent;
            }
            match self.bucket.owner(view, comparator, key, self.bucket.line.0 + slot, word) {
                Owner::Same(named) => return Known::Newest(named),
                Owner::Other => {}
                Owner::Damaged => return Known::Unsure,
            }
        }
        // P5.
        if planted(Bug::IndexBelievesFullBuckets) { Known::Absent } else { Known::Unsure }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::protection::{Width, key_part};
    use crate::key::{Bytewise, Kind};
    use crate::memtable::skiplist::arena::ArenaOptions;
    use crate::memtable::skiplist::build::Fields;

    fn arena() -> Arena {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(3));
        Arena::new(&ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret }).unwrap()
    }

    /// An index of two buckets over nodes k0@7, k0@5, k1@7, k1@5, ..; the newer ones are named.
    fn filled(arena: &Arena, keys: u64) -> (PointIndex, Vec<[u32; 2]>) {
        let view = arena.view().unwrap();
        let mut sub = SubChunk::default();
        let index = PointIndex::new(arena, &mut sub, 190).unwrap();
        let node_of = |n: u64| {
            let key = n.to_be_bytes();
            [7, 5].map(|sequence| {
                let mut reservation = arena.carve(&mut sub, 20).unwrap();
                let fields = Fields { key: &key, value: b"v", kind: Kind::PUT, sequence, revision: 0 };
                let node = view.build(&mut reservation, 1, &fields).unwrap().offset;
                let version = Version { node, key: &key, sequence, revision: 0 };
                index.note(&view, &Bytewise, &version, key_part(&key));
                node
            })
        };
        let nodes = (0..keys).map(node_of).collect();
        (index, nodes)
    }

    fn ask<'a>(index: &PointIndex, view: &View<'a>, n: u64) -> Known<'a> {
        let sight = index.bucket(key_part(&n.to_be_bytes())).unwrap().look(view);
        sight.map_or(Known::Unsure, |sight| sight.judge(view, &Bytewise, &n.to_be_bytes()))
    }

    #[test]
    fn damage_to_any_word_gives_no_wrong_answer_and_scrub_names_it() {
        let arena = arena();
        let view = arena.view().unwrap();
        let (index, nodes) = filled(&arena, 6);
        let newest = |n: usize| match ask(&index, &view, n as u64) {
            Known::Newest(entry) => Some(entry.node().offset() == nodes[n][0]),
            Known::Absent => Some(false),
            Known::Unsure => None,
        };
        assert!((0..6).all(|n| newest(n) == Some(true)));
        assert!((6..1000).all(|n| matches!(ask(&index, &view, n), Known::Absent)));
        let scrub = || {
            let mut found = Vec::new();
            index.scrub(&view, &mut || (), &mut |damage| found.push(damage.place)).unwrap();
            found
        };
        assert_eq!(scrub(), []);
        for word in 0..index.lines.count().unwrap() * 8 {
            let place = index.lines.line(word / 8).unwrap().word(&view, (word % 8) as u32).unwrap();
            // ORDERING: Relaxed: one thread.
            let clean = place.load(Ordering::Relaxed);
            let older = (0..6).map(|n| clean & 0xffff_ffff | u64::from(nodes[n][1]) << 32);
            let bent = (0..64).map(|bit| clean ^ 1 << bit).chain([0, u64::MAX]).chain(older);
            for bent in bent.filter(|bent| *bent != clean) {
                // ORDERING: Relaxed: one thread.
                place.store(bent, Ordering::Relaxed);
                assert!((0..6).all(|n| newest(n) != Some(false)), "word {word}: {bent:#x}");
                assert_eq!(scrub(), [Place::Slot], "word {word}: {bent:#x}");
            }
            // ORDERING: Relaxed: one thread.
            place.store(clean, Ordering::Relaxed);
        }
    }
}
