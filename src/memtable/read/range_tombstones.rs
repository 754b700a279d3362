//! What range tombstones say about a key.
//!
//! ```text
//!   no tombstone at all ........................... one load
//!   frozen, index built ........................... frozen index
//!   otherwise ..................................... live index
//!   an index does not verify ...................... the next one, at last the tombstones themselves (the truth)
//! ```
//! A tombstone covers a key if start <= key < end, and deletes what has a strictly smaller sequence number: one with
//! sequence number 0 deletes nothing.
//!
//! * RANGE-TOMBSTONES-1: a damaged index costs speed; an answer is `Corruption` only if the truth is damaged too.
//!
//! Any thread; readers never wait.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::key::{Comparator, SequenceNumber, Side, Target};
use crate::memtable::parts::representation::{END, Ordered};
use crate::memtable::skiplist::control_block::ControlWord;
use crate::memtable::table::Core;
use crate::planted::{Bug, planted};
use crate::tombstone::index::frozen::FrozenTombstones;
use crate::tombstone::index::live::CoveringRun;
use crate::tombstone::index::query::Asked;

/// A tombstone as it is read from the truth.
type Tombstone<'a> = (&'a [u8], &'a [u8], SequenceNumber);

/// Only what is newer than this covers.
#[inline(always)]
fn floor_of(newest: Option<SequenceNumber>) -> SequenceNumber {
    newest.unwrap_or(0).saturating_sub(u64::from(planted(Bug::CoverIncludesOwnSequence)))
}

impl<C: Comparator> Core<C> {
    /// Whether any range tombstone was written. Damage, and a flag that is being set, reads as yes.
    #[inline(always)]
    pub(crate) fn may_have_ranges(&self) -> bool {
        if planted(Bug::ZeroedFlagBelieved) {
            return !matches!(self.arena.control.get_so_far(ControlWord::HAS_RANGES), Ok(0));
        }
        !matches!(self.arena.control.get(ControlWord::HAS_RANGES), Ok(0))
    }

    /// Whether the live index has every tombstone. Damage reads as no.
    #[inline(always)]
    fn index_complete(&self) -> bool {
        matches!(self.arena.control.get(ControlWord::INDEX_LOST), Ok(0))
    }

    /// The largest sequence number <= `snapshot` and > `floor` among tombstones that cover `key`.
    #[inline(always)]
    pub(crate) fn covering(
        &self,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: Option<SequenceNumber>,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        if !self.may_have_ranges() {
            return Ok(None);
        }
        let floor = floor_of(floor);
        let answer = match self.frozen_tombstones.get() {
            Some(frozen) => frozen.max_covering(&self.comparator, key, snapshot, floor),
            None if self.index_complete() => {
                self.live_tombstones.max_covering(&self.comparator, key, snapshot, floor)
            }
            None => self.covering_truth(key, snapshot, floor),
        };
        answer.or_else(|_| self.covering_otherwise(key, snapshot, floor))
    }

    /// The newest range tombstone over each of many keys, above the floor of each. `None`: the keys have to be asked
    /// about one by one.
    pub(crate) fn covering_many<'k, const N: usize>(
        &self,
        keys: impl Iterator<Item = (&'k [u8], Option<SequenceNumber>)>,
        snapshot: SequenceNumber,
    ) -> Option<[Option<SequenceNumber>; N]> {
        if !self.may_have_ranges() {
            return Some([None; N]);
        }
        let mut asked = [Asked::new(&self.comparator, &[], SequenceNumber::MAX); N];
        let mut count = 0;
        for (slot, (key, floor)) in asked.iter_mut().zip(keys) {
            *slot = Asked::new(&self.comparator, key, floor_of(floor));
            count += 1;
        }
        let asked = asked.get_mut(..count)?;
        match self.frozen_tombstones.get() {
            Some(frozen) => frozen.ask(&self.comparator, snapshot, asked).ok()?,
            None if self.index_complete() => {
                self.live_tombstones.ask(&self.comparator, snapshot, asked).ok()?;
            }
            None => return None,
        }
        let mut answers = [None; N];
        for (answer, one) in answers.iter_mut().zip(asked) {
            *answer = one.answer().map(|(sequence, _)| sequence);
        }
        Some(answers)
    }

    /// The next copies in turn (RANGE-TOMBSTONES-1).
    #[cold]
    fn covering_otherwise(
        &self,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        if !self.index_complete() {
            return self.covering_truth(key, snapshot, floor);
        }
        let live = self.live_tombstones.max_covering(&self.comparator, key, snapshot, floor);
        live.or_else(|_| self.covering_truth(key, snapshot, floor))
    }

    /// Walks the tombstones that start at or before the key. O(tombstones).
    #[cold]
    fn covering_truth(
        &self,
        key: &[u8],
        snapshot: SequenceNumber,
        floor: SequenceNumber,
    ) -> Result<Option<SequenceNumber>, Corruption> {
        let search = self.range_search()?;
        let last = Target::behind_key(&self.comparator, key);
        let mut best = floor;
        let mut at = END;
        while let Some(spot) = Ordered::next(&search, at).map_err(|gap| gap.corruption)? {
            if !spot.entry.node().order(&self.comparator, &last).is_lt() {
                break;
            }
            let sequence = spot.entry.node().sequence();
            if sequence <= snapshot
                && sequence > best
                && self.comparator.compare(key, spot.entry.value(search.view().seal())?).is_lt()
            {
                best = sequence;
            }
            at = spot.at;
        }
        Ok((best > floor).then_some(best))
    }

    /// The stretch around `key` that its newest visible covering tombstone covers, if an index can tell.
    pub(crate) fn covering_run(&self, key: &[u8], snapshot: SequenceNumber, run: &mut CoveringRun) -> bool {
        let found = match self.frozen_tombstones.get() {
            Some(frozen) => frozen.covering_run_into(&self.comparator, key, snapshot, 0, run),
            None if self.index_complete() => {
                self.live_tombstones.covering_run_into(&self.comparator, key, snapshot, 0, run)
            }
            None => return false,
        };
        matches!(found, Ok(Some(())))
    }

    /// Every stored tombstone, verified, by start and descending sequence number; damaged ones as what they are.
    pub(crate) fn stored_tombstones(&self) -> Vec<Result<Tombstone<'_>, Corruption>> {
        let search = match self.range_search() {
            Ok(search) => search,
            Err(corruption) => return vec![Err(corruption)],
        };
        let expected = self.live_tombstones.len().unwrap_or(0);
        let mut tombstones = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        let mut next = Ordered::find(&search, &Target::extreme(Side::Start)).map(|around| around.after);
        loop {
            let at = match next {
                Ok(None) => return tombstones,
                Ok(Some(spot)) => {
                    let sequence = spot.entry.node().sequence();
                    tombstones.push(
                        spot.entry.value(search.view().seal()).map(|end| (spot.entry.key(), end, sequence)),
                    );
                    spot.at
                }
                Err(gap) => {
                    tombstones.push(Err(gap.corruption));
                    if gap.after == END {
                        return tombstones;
                    }
                    if let Ok(entry) = search.entry(gap.after) {
                        let end = entry.value(search.view().seal());
                        tombstones.push(end.map(|end| (entry.key(), end, entry.node().sequence())));
                    }
                    gap.after
                }
            };
            next = Ordered::next(&search, at);
        }
    }

    /// Whether each index holds as many tombstones as the list: `listed`. Of a frozen table. O(tombstones).
    pub(crate) fn compare_tombstones(&self, listed: u64) -> Result<(), Corruption> {
        let live = self.index_complete().then(|| self.live_tombstones.held());
        let frozen = self.frozen_tombstones.get().and_then(FrozenTombstones::held);
        match live.into_iter().chain(frozen).find(|held| *held != listed) {
            Some(held) => Err(Corruption::new(Place::Sum, 0, listed, held)),
            None => Ok(()),
        }
    }

    /// Builds what answers for the frozen table, off every lock that writers or readers take.
    pub(crate) fn freeze_tombstones(&self) -> Option<FrozenTombstones> {
        let view = self.arena.view().ok()?;
        FrozenTombstones::build(&self.comparator, view.secret, self.stored_tombstones()).ok()
    }
}
