//! What damage may reach: which keys may answer `Corruption`, and what a scrub must find.

use std::collections::{BTreeMap, BTreeSet};

use paranoid_memtable::DuplicatePolicy;
use paranoid_memtable::fault::{FaultInjector, Part, Region};

use super::model::Model;
use super::plan::Kind;

/// What damage may reach.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Probes that may answer `Corruption`; `None`: all.
    pub probes: Option<BTreeSet<usize>>,
    /// Probes that may answer `Corruption` to lookups, if one flipped bit of an entry is the only change.
    pub only: Option<BTreeSet<usize>>,
    /// Keys right before a damaged entry: a get that looks past their last version may answer `Corruption`.
    pub in_front: BTreeSet<usize>,
    /// (key, sequence) of entries whose own bytes were changed; `None`: any.
    pub entries: BTreeSet<(Vec<u8>, u64)>,
    /// A scrub must find something.
    pub must_find: bool,
    /// The control block was changed.
    pub control: bool,
    /// Places in the model's rows of the entries that were changed: where walks look closely.
    pub focus: BTreeSet<usize>,
    /// Entries that are damaged together with the links that lead on from them, forward and backward: a walk that was
    /// parked there ends.
    pub stranded: [BTreeSet<usize>; 2],
    /// Only one entry's own bytes were changed: a walk meets at most one gap.
    pub lone: bool,
}

/// What was changed of one point entry.
#[derive(Debug, Clone, Copy, Default)]
struct Harm {
    /// Header, key, value or digests changed.
    own: bool,
    back: bool,
    /// The back link changed into one that passes for the witness of a lost write.
    witness: bool,
    /// The highest changed link.
    link: Option<u32>,
    /// The level-0 link changed.
    next: bool,
}

impl Bounds {
    /// What the pieces that a fault injector changed may affect.
    pub fn of(model: &Model, injector: &FaultInjector<'_>, kind: Kind) -> Bounds {
        let mut bounds = Bounds::default();
        let mut limited = true;
        let mut harms: BTreeMap<Option<usize>, Harm> = BTreeMap::new();
        let changed = injector.changed();
        let mut ranges = [false; 2];
        // Entries of equal key and sequence number cannot be told apart in this test.
        let equals = changed.len() > 1 && model.shape.duplicates == DuplicatePolicy::Replace;
        for number in changed {
            let piece = &injector.pieces()[number];
            if matches!(piece.region, Region::Padding | Region::Free) {
                continue;
            }
            if piece.part == Part::Ranges {
                ranges[usize::from(piece.region == Region::TombstoneIndex)] = true;
            }
            let own = is_own(piece.region);
            bounds.must_find |= must_find(model, injector, number, kind);
            bounds.control |= piece.region == Region::Control;
            limited &= piece.part != Part::Control;
            if let (true, Some(owner)) = (own, &piece.owner) {
                bounds.entries.insert((owner.key.to_vec(), owner.sequence));
            }
            if piece.part == Part::Points {
                let row = piece.owner.as_ref().and_then(|owner| model.row(&owner.key, owner.sequence));
                bounds.focus.extend(row);
                let harm = harms.entry(row).or_default();
                harm.own |= own;
                harm.back |= piece.region == Region::BackLink;
                harm.witness |= harm.back && !kind.is_stale() && injector.back_link_matches(number);
                if matches!(piece.region, Region::Link | Region::HeadLink) {
                    harm.link = harm.link.max(Some(piece.level));
                    harm.next |= piece.level == 0;
                }
            }
        }
        let mut probes = BTreeSet::new();
        for (row, harm) in &harms {
            bounds.reach(model, injector, &harms, (*row, *harm), &mut probes);
        }
        // An intact list of range tombstones answers in place of their index.
        limited &= kind != Kind::StaleAndAnother && ranges != [true; 2];
        bounds.strand(&harms);
        bounds.probes = limited.then_some(probes);
        bounds.lone = limited
            && !equals
            && harms.len() == 1
            && harms.values().all(|harm| harm.own && harm.link.is_none());
        if model.shape.protection == 8 && injector.changed_bits() == 1 && harms.values().any(|harm| harm.own)
        {
            let row = harms.keys().copied().flatten().next();
            bounds.only = row.map(|row| model.probe(&model.rows[row].key).into_iter().collect());
        }
        bounds
    }

    /// Finds the parked walks that cannot go on.
    fn strand(&mut self, harms: &BTreeMap<Option<usize>, Harm>) {
        let harm = |row: Option<usize>| harms.get(&row).copied().unwrap_or_default();
        for row in harms.iter().filter(|(_, harm)| harm.own).filter_map(|(row, _)| *row) {
            let (own, before, after) = (harm(Some(row)), harm(row.checked_sub(1)), harm(Some(row + 1)));
            if own.next || after.own || after.next {
                self.stranded[0].insert(row);
            }
            if own.back || before.own || before.next {
                self.stranded[1].insert(row);
            }
        }
    }

    /// The keys that one damaged entry, or its broken level-0 link, may make uncertain.
    fn reach(
        &mut self,
        model: &Model,
        injector: &FaultInjector<'_>,
        harms: &BTreeMap<Option<usize>, Harm>,
        (row, harm): (Option<usize>, Harm),
        probes: &mut BTreeSet<usize>,
    ) {
        let place = row.and_then(|row| model.probe(&model.rows[row].key));
        if let (true, Some(place)) = (harm.own, place) {
            probes.extend(place.saturating_sub(1)..=place + 2);
            self.in_front.extend(place.checked_sub(2));
        }
        if harm.witness {
            let place = place.unwrap_or(model.probes.len() - 1);
            probes.extend(place.saturating_sub(1)..=place + 2);
            self.in_front.extend(place.checked_sub(2));
        }
        if !harm.next {
            return;
        }
        probes.extend(place.unwrap_or(0)..=place.map_or(1, |place| place + 2));
        // Upper levels lead to the next intact entry that is tall enough; the way back from there ends at the last
        // damaged one before it.
        let levels = harm.link.unwrap_or(0) + 2;
        for next in row.map_or(0, |row| row + 1)..model.rows.len() {
            if harms.get(&Some(next)).is_some_and(|harm| harm.own || harm.back || harm.next) {
                let end = model.probe(&model.rows[next].key).unwrap_or(0) + 2;
                probes.extend(place.unwrap_or(0)..=end);
                continue;
            }
            if model.height(injector, next) >= levels {
                return;
            }
        }
        if harms.get(&None).is_some_and(|harm| harm.back) {
            probes.extend(place.unwrap_or(0)..model.probes.len());
        }
    }
}

/// Whether a region is part of an entry that its digests or its header check cover.
fn is_own(region: Region) -> bool {
    matches!(region, Region::Header | Region::Key | Region::Value | Region::Digests)
}

/// Whether a scrub must report what was done to a piece.
fn must_find(model: &Model, injector: &FaultInjector<'_>, number: usize, kind: Kind) -> bool {
    let piece = &injector.pieces()[number];
    match piece.region {
        // The index has words that are not in use yet. A back link is a hint, and its tag is short. No answer rests
        // on the directory.
        Region::BackLink | Region::TombstoneIndex | Region::Directory => false,
        _ if kind == Kind::StaleAndAnother => false,
        // An upper link that leads past newer nodes costs steps; no answer rests on it.
        Region::Link | Region::HeadLink if kind.is_stale() => piece.level == 0,
        // At width 0 nothing but headers and links can be found.
        region => !is_own(region) || model.shape.protection > 0,
    }
}
