//! The point index: from a user key to its newest node in two cache lines and a control word.
//!
//! ```text
//!   bucket (one line)   | slot 0 | slot 1 | ... | slot 7 |        its control word stands elsewhere (lines.rs)
//!
//!   slot      node offset (32) | key tag (16) | check (16)       check = over slot place, offset, tag, secret
//! ```
//! The index answers only where it can prove its answer; otherwise it says "unsure", and the list is searched.
//!
//! * POINT-INDEX-1: slots of a bucket fill from the left by compare-and-swap and never empty again. Two writers of
//!   one new key therefore meet at the same slot, and the loser finds the winner there: a key has at most one slot.
//! * POINT-INDEX-2: a slot only ever moves to a newer node of its key (larger sequence, then larger revision), and an
//!   insert returns only after its own node or a newer one is named. So at the start of a read the slot is at least
//!   as new as every version whose insert has returned.
//! * POINT-INDEX-3: a node is named only after it is in the list: its level-0 link leads to the older versions.
//! * POINT-INDEX-4: no answer without an agreeing control word (lines.rs, LINES-5). A slot that was zeroed, flipped,
//!   copied from elsewhere or went back to an older version disagrees, and so does a writer between its two steps:
//!   readers of that bucket ask the list meanwhile. A bucket that was never used agrees: it has no key.
//! * POINT-INDEX-5: a full bucket does not know which keys found no room, so its misses go to the list.
//!
//! Why a hit needs no bracket: an ordered answer says that nothing stands between two neighbours, so both are needed.
//! A hit says "this node is the newest version of its key". That the node has the key is proved by its key digest and
//! the comparison; that none newer has returned is POINT-INDEX-2, and POINT-INDEX-2 holds for the slot as read
//! because the control word, in another cache line, changed with each version and agrees (POINT-INDEX-4). If the node
//! is too new for the snapshot, its verified successors are the answer, each next to the one before by a tagged link;
//! the first one of another key is the right side of a bracket whose left side is verified too. A miss of this key in
//! an agreeing bucket that is not full follows from POINT-INDEX-1. A node that fails to verify, or a slot whose check
//! fails, proves nothing: the list decides, and finds the damage if it matters.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "slot words are packed")]

use crate::error::{Corruption, Place, Result};
use crate::integrity::control_word::Words;
use crate::integrity::hash::{mix, splitmix};
use crate::integrity::tag::Secret;
use crate::key::{Comparator, SequenceNumber};
#[cfg(feature = "fault-injection")]
use crate::memtable::lookup::lines::Role;
use crate::memtable::lookup::lines::{LINE_WORDS, Line, Lines};
#[cfg(feature = "fault-injection")]
use crate::memtable::side_structure::{FaultWords, VisitWords};
use crate::memtable::side_structure::{Report, Settle, SideStructure};
use crate::memtable::skiplist::arena::{Arena, SubChunk, View};
use crate::memtable::skiplist::node::{Verified, bytes_of};
use crate::planted::{Bug, planted};
use crate::sync::Ordering;

/// Slots of a bucket.
pub(crate) const SLOTS: usize = LINE_WORDS;
/// Slot checks are link tags of this level, which no link has.
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

/// The bucket of a key, and the tag of its slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    line: Line,
    tag: u16,
}

/// A bucket that was read, and whose control word agreed (POINT-INDEX-4).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    bucket: Bucket,
    words: [u64; SLOTS],
}

/// What the index knows about a key.
#[derive(Debug)]
pub(crate) enum Known<'a> {
    /// The newest node of the key.
    Newest(Verified<'a>),
    /// The key has no node.
    Absent,
    /// The list must be asked.
    Unsure,
}

/// The result of a writer's step at a slot.
enum Settled {
    /// The slot belongs to the key, or nothing more is to be done.
    Here,
    /// The slot belongs to another key.
    Elsewhere,
}

/// Whom a filled slot belongs to.
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

impl PointIndex {
    /// An empty index of at most `bytes` bytes.
    pub(crate) fn new(arena: &Arena, sub: &mut SubChunk, bytes: u64) -> Result<PointIndex> {
        Ok(PointIndex { lines: Lines::carve(arena, sub, bytes)? })
    }

    /// Reads a bucket. `None` if its control word disagrees (POINT-INDEX-4).
    #[inline(always)]
    pub(crate) fn look(&self, view: &View<'_>, bucket: Bucket) -> Option<Sight> {
        // ORDERING: Acquire pairs with the Release in `settle`: the node named is visible after its slot.
        let acquire = if planted(Bug::SlotLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        Some(Sight { bucket, words: bucket.line.read(view, acquire)? })
    }

    /// The bucket of a key with this K. `None` if the control words of the index are damaged.
    #[inline(always)]
    pub(crate) fn bucket(&self, key_part: u64) -> Option<Bucket> {
        let hash = mix(key_part, const { splitmix(211) });
        Some(Bucket { line: self.lines.pick(hash)?, tag: hash as u16 })
    }

    /// Names a node that is in the list (POINT-INDEX-3) as the newest of its key, unless a newer one is named already.
    #[inline]
    pub(crate) fn note<C: Comparator>(
        &self,
        view: &View<'_>,
        comparator: &C,
        version: &Version<'_>,
        key_part: u64,
    ) {
        // Readers find these control words damaged, too, and ask the list.
        let Some(bucket) = self.bucket(key_part) else { return };
        for slot in 0..SLOTS {
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
        (0..SLOTS).filter(|slot| line.word(view, *slot).unwrap().load(Ordering::Relaxed) != 0).count()
    }
}

impl SideStructure for PointIndex {
    /// Place and number of the lines.
    fn each_control(&self, visit: &mut dyn FnMut(Words<'_>)) {
        visit(self.lines.control_words());
    }

    /// Verifies every slot and every line's control word. O(buckets).
    fn scrub(
        &self,
        arena: &Arena,
        settle: &mut Settle<'_>,
        report: &mut Report<'_>,
    ) -> Result<(), Corruption> {
        let view = arena.view()?;
        let slots = |line: Line| (0..SLOTS).find_map(|slot| damage(&view, line, slot));
        self.lines.scrub(&view, Place::Slot, &slots, settle, report)
    }

    #[cfg(feature = "fault-injection")]
    fn fault_words(&self, arena: &Arena, visit: &mut VisitWords<'_>) -> Result<(), Corruption> {
        let what =
            |role| if role == Role::Control { FaultWords::IndexControl } else { FaultWords::IndexSlot };
        self.lines.each_word(&arena.view()?, &mut |role, words| visit(what(role), words))
    }
}

/// The report for a filled slot whose check fails.
fn damage(view: &View<'_>, line: Line, slot: usize) -> Option<Corruption> {
    let place = line.unit(slot);
    // ORDERING: Relaxed: only the word itself is looked at.
    let word = line.word(view, slot)?.load(Ordering::Relaxed);
    let expected = slot_word(view.secret, place, offset_in(word), tag_in(word));
    (word != 0 && word != expected).then(|| Corruption::new(Place::Slot, bytes_of(place), expected, word))
}

impl Bucket {
    /// Claims an empty slot for a version, or moves the slot of its key to it. `None` if there is no such slot.
    #[inline(always)]
    fn settle<C: Comparator>(
        &self,
        view: &View<'_>,
        comparator: &C,
        version: &Version<'_>,
        slot: usize,
    ) -> Option<Settled> {
        let (place, word) = (self.line.unit(slot), self.line.word(view, slot)?);
        let mine = slot_word(view.secret, place, version.node, self.tag);
        loop {
            // ORDERING: Acquire pairs with the Release below: the node named is visible after its slot.
            let found = word.load(Ordering::Acquire);
            if found != 0 {
                match self.owner(view, comparator, version.key, place, found) {
                    Owner::Other => return Some(Settled::Elsewhere),
                    // Reads of this key find the damaged node here and ask the list.
                    Owner::Damaged => return Some(Settled::Here),
                    Owner::Same(named) if !version.newer_than(&named) => return Some(Settled::Here),
                    Owner::Same(_) => {}
                }
            }
            // ORDERING: Release pairs with the Acquire loads of slots; Relaxed on failure: the slot is read again.
            let swapped = word.compare_exchange(found, mine, Ordering::Release, Ordering::Relaxed);
            if swapped.is_ok() {
                self.line.account(view, slot, found, mine)?;
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
        // A key that compares as different is believed only once it is verified.
        match view.try_open(offset_in(word)).and_then(|node| node.try_verify(view)) {
            Some(named) if comparator.compare(named.key(), key).is_eq() => Owner::Same(named),
            Some(_) => Owner::Other,
            None => Owner::Damaged,
        }
    }

    /// Prefetches the line and its control word.
    #[inline(always)]
    pub(crate) fn prefetch(&self, view: &View<'_>) {
        self.line.prefetch(view);
    }
}

impl Sight {
    /// The nodes that may have the key, because their slots have its tag. The offsets are hints until `judge` has
    /// checked them.
    #[inline(always)]
    pub(crate) fn candidates(&self) -> impl Iterator<Item = u32> + '_ {
        let tag = self.bucket.tag;
        self.words
            .iter()
            .filter(move |word| **word != 0 && tag_in(**word) == tag)
            .map(|word| offset_in(*word))
    }

    /// Decides what the bucket proves about a key.
    #[inline(always)]
    pub(crate) fn judge<'a, C: Comparator>(&self, view: &View<'a>, comparator: &C, key: &[u8]) -> Known<'a> {
        for slot in 0..SLOTS {
            let word = self.words[slot];
            if word == 0 {
                return Known::Absent;
            }
            match self.bucket.owner(view, comparator, key, self.bucket.line.unit(slot), word) {
                Owner::Same(named) => return Known::Newest(named),
                Owner::Other => {}
                Owner::Damaged => return Known::Unsure,
            }
        }
        // A full bucket proves no absence (POINT-INDEX-5).
        Known::Unsure
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::{Width, key_part};
    use crate::key::{Bytewise, Kind};
    use crate::memtable::skiplist::arena::ArenaOptions;
    use crate::memtable::skiplist::encode::{Fields, Shape};

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
                let node = view.build(&mut reservation, &fields, Shape::low(0, 0)).unwrap().offset;
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
        index.scrub(view.arena(), &mut || (), &mut |damage| found.push(damage.place)).unwrap();
        found
    }

    #[test]
    fn damage_to_any_word_gives_no_wrong_answer_and_scrub_names_it() {
        let arena = arena();
        let view = arena.view().unwrap();
        let (index, nodes) = filled(&arena, 6, 500);
        let newest = |n: usize| match ask(&index, &view, n as u64) {
            Known::Newest(entry) => Some(entry.node().offset() == nodes[n][0]),
            Known::Absent => Some(false),
            Known::Unsure => None,
        };
        assert!((0..6).all(|n| newest(n) == Some(true)));
        assert!((6..1000).all(|n| matches!(ask(&index, &view, n), Known::Absent)));
        let scrub = || places(&index, &view);
        assert_eq!(scrub(), []);
        for place in index.lines.every_word(&view) {
            // ORDERING: Relaxed: one thread.
            let clean = place.load(Ordering::Relaxed);
            let older = (0..6).map(|n| clean & 0xffff_ffff | u64::from(nodes[n][1]) << 32);
            let bent = (0..64).map(|bit| clean ^ 1 << bit).chain([0, u64::MAX]).chain(older);
            for bent in bent.filter(|bent| *bent != clean) {
                // ORDERING: Relaxed: one thread.
                place.store(bent, Ordering::Relaxed);
                assert!((0..6).all(|n| newest(n) != Some(false)), "{clean:#x}: {bent:#x}");
                assert_eq!(scrub(), [Place::Slot], "{clean:#x}: {bent:#x}");
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
            let words = || (0..SLOTS).map(|slot| line.word(&view, slot).unwrap());
            // ORDERING: Relaxed: one thread.
            let clean: Vec<u64> = words().map(|word| word.swap(0, Ordering::Relaxed)).collect();
            let used = usize::from(clean[0] != 0);
            assert!((0..150).all(|n| !matches!(ask(&index, &view, n), Known::Absent)), "{line:?}");
            assert_eq!(places(&index, &view).len(), used, "{line:?}");
            // ORDERING: Relaxed: one thread.
            words().zip(clean).for_each(|(word, clean)| word.store(clean, Ordering::Relaxed));
        }
    }
}
