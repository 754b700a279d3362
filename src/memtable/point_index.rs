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
//! * P6: an unused bucket looks like one that was zeroed as a whole, so it proves nothing by itself: the roll, one bit a
//!   bucket on lines of its own, is set before a bucket is used for the first time. A bucket of zeros is empty only if
//!   its bit is 0. An index that is too small for a roll sends the misses of such buckets to the list.
//!
//! Why a hit needs no bracket: an ordered answer says that nothing stands between two neighbours, so both are needed.
//! A hit says "this node is the newest version of its key". That the node has the key is proved by its key digest and
//! the comparison; that none newer has returned is P2, and P2 holds for the slot as read because control and check
//! agree (P4). If the node is too new for the snapshot, its verified successors are the answer, each next to the one
//! before by a tagged link; the first one of another key is the right side of a bracket whose left side is verified
//! too. A miss of this key in an agreeing bucket that is not full follows from P1. A node that fails to verify, or a
//! slot whose check fails, proves nothing: the list decides, and finds the damage if it matters.
//!
//! Any thread; lock-free. Not promised: that a bucket which was zeroed as a whole is still noticed once a new key has been
//! put into it.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "slot words are packed")]

use crate::error::{Corruption, Place, Result};
use crate::integrity::guarded::Words;
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::tags::Secret;
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber};
use crate::memtable::lines::{LINE_BITS, LINE_BYTES, LINE_WORDS, LINES_BYTES_MIN, Line, Lines};
use crate::memtable::skiplist::arena::{Arena, SubChunk, View};
use crate::memtable::skiplist::node::{Verified, bytes_of};
use crate::sync::{AtomicU64, Ordering};

/// Lines between the buckets and the roll: no block of 256 bytes reaches from one into the other, so that one fault does not
/// empty a bucket and its bit.
const ROLL_GAP: u64 = 4;
/// The first word of the roll.
const ROLL_FIRST: u32 = ROLL_GAP as u32 * LINE_WORDS as u32;
/// Slots of a bucket.
pub(crate) const SLOTS: u32 = LINE_WORDS as u32 - 1;
/// A level that no link has: slot checks are link tags of it.
const SLOT_LEVEL: u32 = 1 << 31;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct PointIndex {
    lines: Lines,
    /// Which lines are in use (P6).
    roll: Option<Lines>,
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
        let roll_bytes = Lines::bytes_of(ROLL_GAP + bytes / LINE_BYTES / LINE_BITS + 1);
        match bytes.checked_sub(roll_bytes).filter(|left| *left >= LINES_BYTES_MIN) {
            Some(left) => {
                let lines = Lines::carve(arena, sub, left)?;
                Ok(PointIndex { lines, roll: Some(Lines::carve(arena, sub, roll_bytes)?) })
            }
            None => Ok(PointIndex { lines: Lines::carve(arena, sub, bytes)?, roll: None }),
        }
    }

    /// Whether a bucket of zeros is known to be unused (P6).
    #[inline(never)]
    fn is_unused(&self, view: &View<'_>, bucket: Bucket) -> bool {
        // ORDERING: Relaxed: an insert that returned before this read began is seen in its slot.
        self.roll_bit(view, bucket.line).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit == 0)
    }

    /// Enters a bucket in the roll, before its first slot is filled (P6).
    #[cold]
    fn enroll(&self, view: &View<'_>, bucket: Bucket) {
        if planted(Bug::RollForgotten) {
            return;
        }
        if let Some((word, bit)) = self.roll_bit(view, bucket.line) {
            // ORDERING: Relaxed: the roll is asked about buckets that damage has emptied, long afterwards.
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The word of the roll with a line's bit, and the bit.
    #[inline(always)]
    fn roll_bit<'a>(&self, view: &View<'a>, line: Line) -> Option<(&'a AtomicU64, u64)> {
        let number = self.lines.number(line)?;
        let word = self.roll.as_ref()?.word(view, ROLL_FIRST + number / 64)?;
        Some((word, 1 << (number % 64)))
    }

    /// Reads a bucket. `None`: it proves nothing (P4, P6).
    #[inline(always)]
    pub(crate) fn look(&self, view: &View<'_>, bucket: Bucket) -> Option<Sight> {
        let (control, sight) = bucket.read(view)?;
        if control == 0 && (sight.words != [0; SLOTS as usize] || !self.is_unused(view, bucket)) {
            return None;
        }
        Some(sight)
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
        if bucket.is_untouched(view) {
            self.enroll(view, bucket);
        }
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

    /// The control words.
    pub(crate) fn control_words(&self) -> impl Iterator<Item = Words<'_>> {
        [Some(&self.lines), self.roll.as_ref()].into_iter().flatten().map(Lines::control_words)
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
        self.scrub_roll(view, settle, report)
    }

    /// Compares each word of the roll with the buckets that it is about.
    fn scrub_roll(
        &self,
        view: &View<'_>,
        settle: &mut dyn FnMut(),
        report: &mut dyn FnMut(Corruption),
    ) -> Result<(), Corruption> {
        let Some(roll) = &self.roll else { return Ok(()) };
        let (first, lines) = (self.lines.line(0)?.0, self.lines.count()?);
        let used = |number: u64| {
            let line = u32::try_from(number).ok().map(|number| Line(first + number * LINE_WORDS as u32));
            u64::from(line.is_some_and(|line| !Bucket { line, tag: 0 }.is_untouched(view)))
        };
        for number in 0..roll.count()? * LINE_WORDS as u64 {
            // Nothing stands in the gap.
            let part = number.checked_sub(u64::from(ROLL_FIRST)).map_or(lines, |part| 64 * part);
            let about = (part..part + 64).take_while(|line| *line < lines);
            let compare = || {
                let word = roll.word(view, number as u32)?;
                let expected = about.clone().fold(0, |sum, line| sum | used(line) << (line % 64));
                // ORDERING: Relaxed: the caller waits for writers through their locks before it is asked again.
                Some((expected, word.load(Ordering::Relaxed))).filter(|(expected, found)| expected != found)
            };
            if compare().is_some() {
                settle();
                if let Some((expected, found)) = compare() {
                    let at = bytes_of(roll.line(0)?.0) + 8 * number;
                    report(Corruption::new(Place::Slot, at, expected, found));
                }
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
        for index in 0..self.roll.as_ref().map_or(Ok(0), Lines::count)? {
            let line = self
                .roll
                .as_ref()
                .map_or_else(|| Err(crate::memtable::lines::lost()), |roll| roll.line(index))?;
            words.extend((0..LINE_WORDS as u32).map(|word| (line.0 + word, 0)));
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

    /// Whether no slot was ever counted here.
    #[inline(always)]
    fn is_untouched(&self, view: &View<'_>) -> bool {
        // ORDERING: Relaxed: a control word that is late sends its reader to the roll.
        self.line.word(view, 0).is_some_and(|control| control.load(Ordering::Relaxed) == 0)
    }

    /// Reads the bucket and its control word. `None`: they do not agree (P4).
    #[inline(always)]
    fn read(&self, view: &View<'_>) -> Option<(u64, Sight)> {
        let [control, slots @ ..] = self.line.words(view)?;
        // ORDERING: Relaxed: see `settle`.
        let control = control.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the Release in `settle`: the node named is visible behind its slot.
        let acquire = if planted(Bug::SlotLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        // ORDERING: as chosen above.
        let words: [u64; SLOTS as usize] = std::array::from_fn(|slot| slots[slot].load(acquire));
        let mut sum = 0;
        for slot in 0..SLOTS {
            sum ^= weight(view.secret, self.line.0 + 1 + slot, words[slot as usize]);
        }
        let agrees = sum == control || planted(Bug::IndexForgetsControl);
        agrees.then_some((control, Sight { bucket: *self, words }))
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
        for slot in 0..SLOTS {
            let word = self.words[slot as usize];
            if word == 0 {
                return Known::Absent;
            }
            match self.bucket.owner(view, comparator, key, self.bucket.line.0 + 1 + slot, word) {
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
    use crate::memtable::skiplist::build::{Fields, Shape};

    fn arena() -> Arena {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(3));
        Arena::new(&ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret }).unwrap()
    }

    /// An index over nodes k0@7, k0@5, k1@7, k1@5, ..; the newer ones are named.
    fn filled(arena: &Arena, keys: u64, bytes: u64) -> (PointIndex, Vec<[u32; 2]>) {
        let view = arena.view().unwrap();
        let mut sub = SubChunk::default();
        let index = PointIndex::new(arena, &mut sub, bytes).unwrap();
        let node_of = |n: u64| {
            let key = n.to_be_bytes();
            [7, 5].map(|sequence| {
                let mut reservation = arena.carve(&mut sub, 20).unwrap();
                let fields = Fields::new(sequence, Kind::PUT, &key, b"v", None);
                let node = view.build(&mut reservation, &fields, Shape::LOW).unwrap().offset;
                let version = Version { node, key: &key, sequence, revision: 0 };
                index.note(&view, &Bytewise, &version, key_part(&key));
                node
            })
        };
        let nodes = (0..keys).map(node_of).collect();
        (index, nodes)
    }

    fn ask<'a>(index: &PointIndex, view: &View<'a>, n: u64) -> Known<'a> {
        let sight = index.look(view, index.bucket(key_part(&n.to_be_bytes())).unwrap());
        sight.map_or(Known::Unsure, |sight| sight.judge(view, &Bytewise, &n.to_be_bytes()))
    }

    /// What a scrub finds.
    fn places(index: &PointIndex, view: &View<'_>) -> Vec<Place> {
        let mut found = Vec::new();
        index.scrub(view, &mut || (), &mut |damage| found.push(damage.place)).unwrap();
        found
    }

    #[test]
    fn damage_to_any_word_gives_no_wrong_answer_and_scrub_names_it() {
        let arena = arena();
        let view = arena.view().unwrap();
        let (index, nodes) = filled(&arena, 6, 190);
        let newest = |n: usize| match ask(&index, &view, n as u64) {
            Known::Newest(entry) => Some(entry.node().offset() == nodes[n][0]),
            Known::Absent => Some(false),
            Known::Unsure => None,
        };
        assert!((0..6).all(|n| newest(n) == Some(true)));
        assert!((6..1000).all(|n| matches!(ask(&index, &view, n), Known::Absent)));
        let scrub = || places(&index, &view);
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

    #[test]
    fn a_bucket_zeroed_as_a_whole_is_not_believed_and_an_unused_one_is() {
        let arena = arena();
        let view = arena.view().unwrap();
        let (index, _) = filled(&arena, 150, 16 << 10);
        assert!((150..5000).all(|n| matches!(ask(&index, &view, n), Known::Absent)));
        for line in (0..index.lines.count().unwrap()).map(|line| index.lines.line(line).unwrap()) {
            let used = usize::from(!Bucket { line, tag: 0 }.is_untouched(&view));
            let words = || (0..=SLOTS).map(|word| line.word(&view, word).unwrap());
            // ORDERING: Relaxed: one thread.
            let clean: Vec<u64> = words().map(|word| word.swap(0, Ordering::Relaxed)).collect();
            assert!((0..150).all(|n| !matches!(ask(&index, &view, n), Known::Absent)), "{line:?}");
            assert_eq!(places(&index, &view).len(), used, "{line:?}");
            // ORDERING: Relaxed: one thread.
            words().zip(clean).for_each(|(word, clean)| word.store(clean, Ordering::Relaxed));
        }
    }
}
