//! Scrub: verifies everything that a table stores and reports every finding.
//!
//! ```text
//!   control words: first, one damaged copy of a word is put right
//!   level 0      every entry: header, key digest, value digest, order, tag of its link
//!   levels 1..   every link: its target is after the link's node, and tall enough for the level
//!   back links   every one: its tag; in a frozen table also its target
//!   tombstones   every record and piece of the index
//!   filters      every line and its control word
//!   directory    every page, if nothing else was found: its slots against the nodes that they name
//!   frozen       counts and digest sums == the sealed ones; tombstones of the index == the list's
//! ```
//! A finding never ends the scrub, and entries after a gap are visited too. An undamaged table has
//! no findings, even during writes or a freeze.
//!
//! Any thread. A scrub takes locks only where a word does not verify and its writer may still be
//! storing it. Not promised: a visit of entries that are inserted while the scrub runs.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit"
)]

use std::collections::HashMap;

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::control_word::Words;
use crate::integrity::digest::key_part;
use crate::memtable::arena::layout::{HEADER, HEIGHT_MAX};
use crate::memtable::arena::node::{Verified, bytes_of};
use crate::memtable::core::Core;
use crate::memtable::directory::inspect::{PageAt, PageState};
use crate::memtable::heals::Healed;
use crate::memtable::shards::totals::Totals;
use crate::memtable::skiplist::search::Search;
use crate::trace;

/// The progress of a running scrub.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::repair::ScrubProgress;
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// let mut last = 0;
/// table.scrub(|progress: ScrubProgress| last = progress.entries);
/// assert_eq!(last, 1);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ScrubProgress {
    /// The number of visited entries, damaged ones included.
    pub entries: u64,
    /// Bytes of keys and values that were verified so far, without those of damaged entries.
    pub bytes: u64,
    /// The number of findings so far.
    pub findings: u64,
}

/// The findings and counts of a scrub.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// let report = table.scrub(|_| ());
/// assert!(report.findings.is_empty());
/// assert_eq!((report.entries, report.bytes), (1, 8));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
#[must_use]
pub struct ScrubReport {
    /// All findings, in the order of the scrub: control words, lists, range tombstone index,
    /// filters, directory, sums.
    pub findings: Vec<Corruption>,
    /// The places that the table has put right so far, by this scrub or before.
    pub healed: Vec<Healed>,
    /// The number of visited entries, damaged ones included.
    pub entries: u64,
    /// Bytes of their keys and values that verified.
    pub bytes: u64,
}

impl ScrubReport {
    /// Returns the first finding as an error.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"key", b"value")?;
    /// table.scrub(|_| ()).check()?;
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if there is any finding.
    pub fn check(&self) -> Result<()> {
        self.findings
            .first()
            .map_or(Ok(()), |finding| Err(Error::Corruption(*finding)))
    }
}

/// The number of entries between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 1024;

/// Implements [`TableReader::scrub`](crate::TableReader::scrub). O(entries).
pub(crate) fn scrub(core: &Core, progress: &mut dyn FnMut(ScrubProgress)) -> ScrubReport {
    let sealed = core.sealed.get();
    let (report, seen) = (ScrubReport::default(), Totals::default());
    let mut scrub = Scrub {
        core,
        sealed,
        report,
        seen,
        progress,
    };
    core.heal_control();
    core.each_control(&mut |words| scrub.control(words));
    let count = || core.tombstones.live.len().ok();
    core.shards
        .watches
        .verify(count)
        .for_each(|found| scrub.find(found));
    for search in [core.point_search(), core.range_search()] {
        match search {
            Ok(search) => scrub.list(&search),
            Err(corruption) => scrub.find(corruption),
        }
    }
    core.tombstones
        .live
        .scrub(&mut || core.shards.wait_out_writers(), &mut |found| {
            scrub.find(found)
        });
    scrub.filters();
    scrub.directory();
    if let Some(sealed) = sealed {
        let sums = scrub.seen.compare(sealed);
        let tombstones = core
            .tombstones
            .compare(&core.arena, scrub.seen.range_deletes);
        [sums, tombstones]
            .into_iter()
            .filter_map(Result::err)
            .for_each(|found| scrub.find(found));
    }
    scrub.report_progress();
    scrub.report.healed = core.arena.heals().all();
    scrub.report
}

/// A running scrub.
struct Scrub<'a> {
    core: &'a Core,
    /// The sealed sums, if the table was frozen when the scrub began: only then must the walk meet
    /// every entry that the sums cover.
    sealed: Option<&'a Totals>,
    report: ScrubReport,
    seen: Totals,
    progress: &'a mut dyn FnMut(ScrubProgress),
}

/// A node that the walk along level 0 met.
#[derive(Debug, Clone, Copy)]
struct Met {
    node: u32,
    /// The height of its tower, if its header and key verify.
    height: Option<u32>,
}

impl<'a> Scrub<'a> {
    /// Adds a finding, unless it repeats the last one.
    fn find(&mut self, corruption: Corruption) {
        if self.report.findings.last() != Some(&corruption) {
            trace::damage(&corruption);
            self.report.findings.push(corruption);
        }
    }

    fn report_progress(&mut self) {
        (self.progress)(ScrubProgress {
            entries: self.report.entries,
            bytes: self.report.bytes,
            findings: self.report.findings.len() as u64,
        });
    }

    /// Reports words that disagree with their checks. A word that disagrees is compared again after
    /// all writers inside have left, because one of them may be setting it.
    fn control(&mut self, words: Words<'_>) {
        let mut found: Vec<Corruption> = words.damages().collect();
        if found.is_empty() {
            return;
        }
        self.core.shards.wait_out_writers();
        found.retain(|before| words.damages().any(|now| now == *before));
        found
            .into_iter()
            .for_each(|corruption| self.find(corruption));
    }

    /// Verifies the filters. A finding is reported only if it remains after all writers inside have
    /// left.
    fn filters(&mut self) {
        let core = self.core;
        let ended = core.arena.view().and_then(|view| {
            let (wait, find) = (&mut || core.shards.wait_out_writers(), &mut |found| {
                self.find(found)
            });
            let mut parts = core.filters.parts(view.secret);
            parts.try_for_each(|(parts, salt)| parts.scrub(&view, salt, wait, find))
        });
        ended.err().into_iter().for_each(|found| self.find(found));
    }

    /// Verifies the pages of the directory, unless damage was found before: a page that names
    /// damaged nodes looks damaged itself.
    fn directory(&mut self) {
        let Ok(search) = self.core.point_search() else {
            return;
        };
        if search.directory == 0 || !self.report.findings.is_empty() {
            return;
        }
        let directory = search.directory();
        let broken = |at: PageAt| match directory.inspect(at) {
            PageState::Damaged(found) => Some((at, found)),
            PageState::Sound | PageState::Busy => None,
        };
        let found: Vec<_> = directory.pages().filter_map(broken).collect();
        if !found.is_empty() {
            self.core.shards.wait_out_writers();
        }
        let remaining = found.into_iter().filter_map(|(at, _)| broken(at));
        let lost = directory
            .is_lost()
            .then(|| Corruption::new(Place::Directory, bytes_of(search.directory), 0, 0));
        remaining
            .map(|(_, found)| found)
            .chain(lost)
            .for_each(|found| self.find(found));
    }

    fn list(&mut self, search: &Search<'a>) {
        let met = self.level_zero(search);
        let places: HashMap<u32, usize> = met
            .iter()
            .enumerate()
            .map(|(i, met)| (met.node, i))
            .collect();
        for level in 1..HEIGHT_MAX as u32 {
            self.upper_level(search, level, &met, &places);
        }
        self.back_links(search, &met, &places);
    }

    /// Visits the entries in order, and continues past gaps. It takes at most as many steps as the
    /// arena has room for entries, so it ends.
    fn level_zero(&mut self, search: &Search<'a>) -> Vec<Met> {
        let mut met: Vec<Met> = Vec::new();
        let mut left: Option<Verified<'a>> = None;
        let (mut at, mut intact) = (search.sentinel, search.sentinel);
        let room = search.view.arena().limit.taken_bytes() / HEADER as u64;
        while (met.len() as u64) < room {
            let next = match search.linked(at) {
                Ok(next) => next,
                Err(corruption) => {
                    self.find(corruption);
                    left = None;
                    search.resume_after(intact)
                }
            };
            if next == search.sentinel || next == at {
                break;
            }
            let right = self.entry(search, next, left.as_ref());
            met.push(Met {
                node: next,
                height: right.map(|entry| height(search, &entry)),
            });
            (left, at) = (right, next);
            intact = if right.is_some() { next } else { intact };
        }
        met
    }

    fn entry(
        &mut self,
        search: &Search<'a>,
        node: u32,
        left: Option<&Verified<'a>>,
    ) -> Option<Verified<'a>> {
        self.report.entries += 1;
        if self.report.entries.is_multiple_of(PROGRESS_EVERY) {
            self.report_progress();
        }
        let entry = match search
            .view
            .open(node)
            .and_then(|node| node.verify(&search.view))
        {
            Ok(entry) => entry,
            Err(corruption) => {
                self.find(corruption);
                return None;
            }
        };
        self.report.bytes += entry.key().len() as u64;
        match entry.value_as_stored(search.view.width) {
            Ok(value) => self.report.bytes += value.len() as u64,
            Err(corruption) => self.find(corruption),
        }
        if let Err(corruption) = search.check_order(left, Some(&entry)) {
            self.find(corruption);
        }
        let hidden = self.core.hidden_by(left.map(Verified::version), &entry);
        self.seen.meet(&entry, hidden, &search.view);
        Some(entry)
    }

    /// Verifies the links of one level in every node that is tall enough, linked there or not.
    fn upper_level(
        &mut self,
        search: &Search<'a>,
        level: u32,
        met: &[Met],
        places: &HashMap<u32, usize>,
    ) {
        let tall = met
            .iter()
            .enumerate()
            .filter(|(_, met)| met.height.is_some_and(|height| height > level));
        let known = tall.map(|(place, met)| (met.node, Some(place)));
        for (node, place) in [(search.sentinel, None)].into_iter().chain(known) {
            let (mut node, mut place) = (node, place);
            // A damaged node's height is unknown: it is visited along the link of the node before
            // it.
            while let Some(next) = self.upper_link(search, level, node, place, places) {
                let unknown = met.get(next).is_some_and(|met| met.height.is_none());
                if !unknown || place == Some(next) {
                    break;
                }
                (node, place) = (met[next].node, Some(next));
            }
        }
    }

    /// Verifies the tag of one link, and that it leads forward to a node of this level. Returns the
    /// place of that node.
    fn upper_link(
        &mut self,
        search: &Search<'a>,
        level: u32,
        node: u32,
        from: Option<usize>,
        places: &HashMap<u32, usize>,
    ) -> Option<usize> {
        let target = match search.view.link(node, level) {
            Ok(target) => target,
            Err(corruption) => {
                self.find(corruption);
                return None;
            }
        };
        if target == search.sentinel {
            return None;
        }
        let to = places.get(&target).copied();
        let forward = match (from, to) {
            (Some(from), Some(to)) => from < to,
            // The walk along level 0 did not meet this node: it was inserted meanwhile, or is in a
            // reported gap.
            _ => true,
        };
        if !forward {
            self.find(Corruption::new(
                Place::Order,
                bytes_of(node),
                u64::from(target),
                0,
            ));
            return None;
        }
        if let Ok(entry) = search
            .view
            .open(target)
            .and_then(|node| node.verify(&search.view))
        {
            let height = height(search, &entry);
            if height <= level {
                let report = Corruption::new(
                    Place::Link,
                    bytes_of(node),
                    u64::from(height),
                    u64::from(level),
                );
                self.find(report.with_sequence(entry.sequence()));
            }
        }
        to
    }

    /// Verifies back links: the tag must match, and in a frozen table the target must not be the
    /// entry itself or a later one.
    fn back_links(&mut self, search: &Search<'a>, met: &[Met], places: &HashMap<u32, usize>) {
        let last = (search.sentinel, met.len());
        let nodes = met.iter().enumerate().map(|(place, met)| (met.node, place));
        for (node, place) in nodes.chain([last]) {
            let Some(target) = search.view.back_hint(node) else {
                self.find(Corruption::new(Place::Link, bytes_of(node), 0, 0));
                continue;
            };
            let after = places.get(&target).is_some_and(|target| *target >= place);
            if after && self.sealed.is_some() {
                self.find(Corruption::new(
                    Place::Order,
                    bytes_of(node),
                    u64::from(target),
                    0,
                ));
            }
        }
    }
}

/// The height of an entry's tower, computed from its key and numbers.
fn height(search: &Search<'_>, entry: &Verified<'_>) -> u32 {
    let (part, version) = (key_part(entry.key()), (entry.sequence(), entry.revision()));
    search
        .towers()
        .height(search.view.secret, part, version.0, version.1)
}
