//! The careful search: over damage, to a bracket or to the gap that is left.
//!
//! ```text
//!   at --- x --- y --> greater       x is damaged: its own link leads on to y; what stays open is the gap [at, greater]
//!   at -/ /-- b <--- c <-- greater   at's link is broken: back links lead back to b, as far as forward links confirm them
//! ```
//! It keeps what `search` promises (SEARCH-2 to SEARCH-4): what it returns is a certified bracket, or a gap.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "levels are few")]

use crate::error::{Corruption, Place};
use crate::integrity::digest::{DIAGNOSIS_LEN_MAX, single_bit};
use crate::key::{SequenceNumber, Target};
use crate::memtable::skiplist::arena::View;
use crate::memtable::skiplist::layout::HEIGHT_MAX;
use crate::memtable::skiplist::node::{Node, bytes_of};
use crate::memtable::skiplist::search::{Bracket, Checks, Gap, Progress, Search, Trail, Walk};
use crate::memtable::skiplist::witness::Doubt;

impl<'a> Search<'a> {
    /// The careful search (SEARCH-3). Its result is certified like that of any search.
    #[cold]
    #[inline(never)]
    pub(crate) fn find_carefully(
        self,
        target: &Target<'_>,
        trail: &mut Trail<'_>,
    ) -> Result<Bracket<'a>, Gap> {
        loop {
            if let Some(found) = self.try_carefully(target, trail) {
                return found;
            }
        }
    }

    /// `None`: another writer came between the two nodes where the walk ended.
    fn try_carefully(&self, target: &Target<'_>, trail: &mut Trail<'_>) -> Option<Result<Bracket<'a>, Gap>> {
        let mut walk = Walk { level: HEIGHT_MAX as u32 - 1, ..self.start() };
        let mut progress = self.choose(&mut walk, self.sentinel, trail);
        while let Progress::On = progress {
            progress = self.step(&mut walk, target, trail, Checks::StepOver);
        }
        if let Progress::Stopped(from) = progress {
            return Some(self.find_backwards(from, &walk, target));
        }
        if walk.damaged_node != 0 {
            return Some(Err(self.gap(self.node_report(walk.damaged_node), walk.at, walk.greater)));
        }
        Some(match self.try_certify(walk.at, walk.greater) {
            Ok(bracket) => Ok(bracket),
            Err(Doubt::Changed) => return None,
            Err(Doubt::Lost(_)) => self.find_backwards(walk.at, &walk, target),
            Err(Doubt::Damage) => {
                Err(self.gap(self.bracket_report(walk.at, walk.greater), walk.at, walk.greater))
            }
        })
    }

    /// Makes a gap. If the control block is damaged, that is reported instead of `corruption`.
    #[cold]
    pub(crate) fn gap(self, corruption: Corruption, before: u32, after: u32) -> Gap {
        let corruption = self.view.arena().control.words().check().err().unwrap_or(corruption);
        Gap { corruption, before, after }
    }

    /// The report for a link that is not believed, because of its tag or of the back link of the node that it names.
    #[cold]
    pub(super) fn link_report(self, pred: u32) -> Corruption {
        let succ = match self.view.link(pred, 0) {
            Ok(succ) => succ,
            Err(broken) => return broken,
        };
        match self.view.question(self.sentinel, pred, succ) {
            Err(Doubt::Lost(hint)) => lost_link(pred, hint, succ),
            _ => self.bracket_report(pred, succ),
        }
    }

    /// Searches backward from `greater`, because the level-0 link of `from` is broken or lost (SEARCH-4).
    #[cold]
    fn find_backwards(self, from: u32, walk: &Walk, target: &Target<'_>) -> Result<Bracket<'a>, Gap> {
        let mut right = self.nearest_named(target, walk.greater);
        loop {
            let open = || Err(self.gap(self.link_report(from), walk.at, right));
            let Some(left) = self.view.back_hint(right) else { return open() };
            if left == from || left == self.sentinel || self.view.try_link(left, 0) != Some(right) {
                return open();
            }
            let Some(bracket) = self.certify(left, right) else { return open() };
            let Some(node) = self.view.try_open(left) else { return open() };
            if node.order(self.comparator, target).is_lt() {
                return Ok(bracket);
            }
            right = left;
        }
    }

    /// The report for a bracket that `certify` refused.
    #[cold]
    fn bracket_report(self, pred: u32, succ: u32) -> Corruption {
        let checked = self
            .verified(pred)
            .and_then(|left| self.check_order(left.as_ref(), self.verified(succ)?.as_ref()));
        checked.err().unwrap_or(Corruption::new(Place::Link, bytes_of(pred), 0, 0))
    }
}

/// The report for a link from `pred` that names `found`, whose back link names `expected`.
#[cold]
fn lost_link(pred: u32, expected: u32, found: u32) -> Corruption {
    Corruption::new(Place::Link, bytes_of(View::slot(pred, 0)), u64::from(expected), u64::from(found))
}

// Proves which key a damaged entry had, where that is possible. Runs only when the answer would otherwise be
// `Corruption`.
//
// ```text
//   before   d1   d2   after         a gap: damaged entries between intact ones, linked by links whose tags match
//            x    y                   proved keys: a read of any other key passes them
// ```
// * DAMAGED-KEY-1: a proof is 8 bytes of digest that match. Either the key digest does, over the fields and the key
//   with at most one bit of them put back; or the value digest does, which covers the key too, over the bytes as
//   they are.
// * DAMAGED-KEY-2: there is no other proof. Several flipped bits of a key or header stay `Corruption`, and so does
//   all damage with shorter digests, or of keys that are too long to try all their bits.
//
// With n bits tried, random damage is taken for another key with probability n * 2^-64. Any thread.

/// Digest bytes that make a proof (DAMAGED-KEY-2).
const PROOF_BYTES: usize = 8;

impl View<'_> {
    /// Whether the entry at `offset` is proved to have a key and a sequence number for which `holds` is true.
    #[cold]
    pub(crate) fn proves(&self, offset: u32, holds: impl Fn(&[u8], SequenceNumber) -> bool) -> bool {
        if self.width.bytes() < PROOF_BYTES {
            return false;
        }
        match self.try_open(offset) {
            Some(node) => self.proves_key(&node, holds),
            None => self.proves_header(offset, holds),
        }
    }

    /// Handles a header whose check matches: digests, key or value are damaged.
    fn proves_key(&self, node: &Node<'_>, holds: impl Fn(&[u8], SequenceNumber) -> bool) -> bool {
        let key = node.key();
        let holds = |key: &[u8]| holds(key, node.sequence());
        if node.has_key(key, self) || node.value_vouches(self) {
            return holds(key);
        }
        key.len() <= DIAGNOSIS_LEN_MAX
            && single_bit(key, |key| node.has_key(key, self) && holds(key)).is_some()
    }

    /// Handles a header whose check fails: the check is damaged, or one bit of what it covers.
    fn proves_header(&self, offset: u32, holds: impl Fn(&[u8], SequenceNumber) -> bool) -> bool {
        let Some((fields, _)) = self.raw_header(offset) else { return false };
        let explains = |fields: &[u8]| {
            let Some(node) = fields.try_into().ok().and_then(|fields| self.open_as(offset, fields)) else {
                return false;
            };
            let key = node.key();
            key.len() <= DIAGNOSIS_LEN_MAX && node.has_key(key, self) && holds(key, node.sequence())
        };
        explains(&fields) || single_bit(&fields, explains).is_some()
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use super::*;
    use crate::integrity::digest::Width;
    use crate::integrity::tag::Secret;
    use crate::key::Kind;
    use crate::memtable::skiplist::arena::{Arena, ArenaOptions, SubChunk};
    use crate::memtable::skiplist::encode::{Fields, Shape};
    use crate::memtable::skiplist::layout::{
        BACK_AT, BackWord, HEADER, Lengths, UNIT, entry_end, node_units,
    };
    use crate::sync::Ordering;

    const LOW: Shape = Shape { pad: 0, height: 1, revision: 0, back: 0, next: 0, end: 0 };

    fn fields() -> Fields<'static> {
        Fields::new(9, Kind::PUT, b"the key", b"value", None)
    }

    fn with_entry(test: impl Fn(&View<'_>, u32, usize)) {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(5));
        let options = ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret };
        let arena = Arena::new(&options).unwrap();
        let view = arena.view().unwrap();
        let lengths = Lengths::pack(fields().key.len(), fields().kind, fields().value.len());
        let mut reservation = arena.carve(&mut SubChunk::default(), node_units(width, lengths, 1)).unwrap();
        let built = view.build(&mut reservation, &fields(), LOW).unwrap();
        test(&view, built.offset, entry_end(width, lengths));
    }

    /// Flips a bit, counted from the entry's first byte on.
    fn flip(view: &View<'_>, offset: u32, bit: usize) {
        let word = view.word(offset + (bit / 64) as u32).unwrap();
        let mut mask = [0; 8];
        mask[bit / 8 % 8] = 1 << (bit % 8);
        // ORDERING: Relaxed: one thread.
        word.fetch_xor(u64::from_ne_bytes(mask), Ordering::Relaxed);
    }

    fn proves(view: &View<'_>, offset: u32, other: &[u8]) -> bool {
        view.proves(offset, |key, sequence| {
            assert_eq!(sequence, fields().sequence);
            assert_eq!(key, fields().key);
            key != other
        })
    }

    #[test]
    fn any_one_bit_leaves_the_key_proved() {
        with_entry(|view, offset, end| {
            for bit in (0..end * 8).step_by(if cfg!(miri) { 151 } else { 1 }) {
                flip(view, offset, bit);
                assert!(proves(view, offset, b"another"), "bit {bit}");
                assert!(!proves(view, offset, fields().key), "bit {bit}");
                flip(view, offset, bit);
            }
        });
    }

    #[test]
    fn two_bits_of_a_key_prove_nothing() {
        with_entry(|view, offset, _| {
            let key_at = 8 * (HEADER + 16);
            for second in (1..8 * fields().key.len()).step_by(if cfg!(miri) { 9 } else { 1 }) {
                flip(view, offset, key_at);
                flip(view, offset, key_at + second);
                assert!(!view.proves(offset, |_, _| true), "bits 0 and {second}");
                flip(view, offset, key_at);
                flip(view, offset, key_at + second);
            }
        });
    }

    /// A matching header check with lengths that lead out of the chunk.
    #[test]
    fn an_entry_ends_inside_its_chunk() {
        with_entry(|view, offset, _| {
            let lengths = Lengths::pack(fields().key.len(), fields().kind, 1 << 30).0;
            let check = Secret::header_check(view.secret.header_part(offset, lengths, fields().sequence, 0));
            let words = [(0, lengths), ((BACK_AT / UNIT) as u32, BackWord::pack(0, 0, check).0)];
            for (at, word) in words {
                // ORDERING: Relaxed: one thread.
                view.word(offset + at).unwrap().store(word, Ordering::Relaxed);
            }
            assert!(view.try_open(offset).is_none());
            let (fields, stored) = view.raw_header(offset).unwrap();
            assert_eq!(stored, check);
            assert!(view.open_as(offset, &fields).is_none());
        });
    }
}
