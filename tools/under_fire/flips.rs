//! The thread that flips bits of the active table.
//!
//! ```text
//!   table   |-- wait for some entries --| list its bytes |-- flip -- flip -- flip --| sealed: the next one
//! ```
//! It leaves an entry alone that it has hit, and the entries beside it, as long as their table
//! lives: two flips in one entry, or in a link and in the way back along it, are more than a table
//! promises to answer. Of the memory that belongs to no entry it hits each kind once, filters and
//! directory more often. The fault injector trusts the memory that it lists, so it lists a table
//! once, before the first flip.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use paranoid_memtable::TableReader;
use paranoid_memtable::fault::{FaultInjector, Part, Piece, Region};

use crate::load::mixed;
use crate::{Arguments, Shared, count};

/// A table is listed once it has some entries, fewer than this.
const LISTED_MAX: u64 = 3000;
/// A try to hit something, before another one.
const PAUSE: Duration = Duration::from_millis(2);

/// An entry, in the order of its list.
type Place = (Part, Vec<u8>, Reverse<u64>);

/// Flips bits until the load is over.
pub(crate) fn flip(shared: &Shared, arguments: &Arguments) {
    let mut flips = Flips {
        shared,
        bits: arguments.bits,
        turn: mixed(arguments.seed ^ 77),
        begun: Instant::now(),
        every: Duration::from_secs(1) / u32::try_from(arguments.rate).unwrap_or(1),
    };
    while !shared.is_over() {
        flips.turn = mixed(flips.turn);
        flips.in_active_table();
        thread::sleep(PAUSE);
    }
}

/// The number of the first entry of the active table, if the flush thread uses no table: it begins
/// with none as long as nothing is written.
fn first_of_lone(mut tables: impl Iterator<Item = u64>) -> Option<u64> {
    let first = tables.next()?;
    tables.next().is_none().then_some(first)
}

fn first_number(table: &TableReader) -> u64 {
    table.stats().smallest_sequence.unwrap_or(0)
}

/// The flips of a run.
struct Flips<'s> {
    shared: &'s Shared,
    /// Bits that flip at once.
    bits: u64,
    /// A random word.
    turn: u64,
    begun: Instant,
    /// The time from one flip to the next.
    every: Duration,
}

impl Flips<'_> {
    /// How long it is until the next flip. What was missed is made up for.
    fn rest(&self) -> Duration {
        let flips = self.shared.counts.flips.load(Ordering::Relaxed);
        let due = self.every.saturating_mul(flips as u32);
        due.saturating_sub(self.begun.elapsed()).max(PAUSE)
    }

    /// Flips bits of the active table until it is sealed.
    fn in_active_table(&mut self) {
        let shared = self.shared;
        let closed = shared.close();
        let view = shared.store.view();
        let Some(first) = first_of_lone(view.readers().map(first_number)) else {
            return;
        };
        let Some(table) = view.readers().next() else {
            return;
        };
        if first == 0 || (table.len() as u64) < self.turn % LISTED_MAX {
            return;
        }
        // SAFETY: the gate is closed whenever a method of the fault injector runs, so no writer and
        // no reader uses the table, and there is no other table that the flush thread could use.
        // Cursors keep offsets, and copies of entries.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let injector = unsafe { FaultInjector::open(table) };
        let Ok(mut injector) = injector else {
            return shared.wrong("a table is damaged before it was hit");
        };
        drop(closed);
        self.until_sealed(&mut injector, first);
        drop(injector);
        let healed = table.stats().healed;
        shared.counts.healed.fetch_add(healed, Ordering::Relaxed);
    }

    /// Flips bits of a table whose first number is `first`, as long as it is the active one.
    fn until_sealed(&mut self, injector: &mut FaultInjector<'_>, first: u64) {
        let mut hits = Hits::new(injector.pieces());
        while !self.shared.is_over() {
            let closed = self.shared.close();
            let now = self.shared.store.view();
            let numbers: Vec<u64> = now.readers().map(first_number).collect();
            if numbers.first() != Some(&first) {
                return;
            }
            if first_of_lone(numbers.into_iter()).is_some()
                && let Some(piece) = hits.choose(injector.pieces(), &mut self.turn)
            {
                for _ in 0..self.bits {
                    self.turn = mixed(self.turn);
                    injector.flip(piece, (self.turn >> 16) as usize);
                }
                count(&self.shared.counts.flips);
            }
            drop((now, closed));
            thread::sleep(self.rest());
        }
    }
}

/// What was hit in a table.
struct Hits {
    /// All entries, in order.
    entries: Vec<Place>,
    hit: BTreeSet<Place>,
    /// Memory of no entry that was hit.
    others: BTreeSet<(Part, Region)>,
    regions: Vec<(Part, Region)>,
}

impl Hits {
    fn new(pieces: &[Piece]) -> Hits {
        let entries: BTreeSet<Place> = pieces.iter().filter_map(place_of).collect();
        let regions: BTreeSet<(Part, Region)> = pieces.iter().map(region_of).collect();
        Hits {
            entries: entries.into_iter().collect(),
            hit: BTreeSet::new(),
            others: BTreeSet::new(),
            regions: regions.into_iter().collect(),
        }
    }

    /// Chooses a piece that may be hit: first the kind of memory, then a piece.
    fn choose(&mut self, pieces: &[Piece], turn: &mut u64) -> Option<usize> {
        const TRIES: usize = 64;
        for _ in 0..TRIES {
            *turn = mixed(*turn);
            let region = self.regions[(*turn >> 8) as usize % self.regions.len()];
            let of_region = (0..pieces.len()).filter(|piece| region_of(&pieces[*piece]) == region);
            let all: Vec<usize> = of_region.collect();
            *turn = mixed(*turn);
            let piece = all[(*turn >> 8) as usize % all.len()];
            if self.take(&pieces[piece]) {
                return Some(piece);
            }
        }
        None
    }

    /// Takes a piece, if it may be hit.
    fn take(&mut self, piece: &Piece) -> bool {
        let Some(place) = place_of(piece) else {
            // No answer rests on filters, directory and unused bytes.
            let is_advice = matches!(
                piece.region,
                Region::FilterWord | Region::Directory | Region::Free | Region::Padding
            );
            return is_advice || self.others.insert(region_of(piece));
        };
        let at = self.entries.partition_point(|entry| *entry < place);
        let beside = at.saturating_sub(1)..(at + 2).min(self.entries.len());
        if self.entries[beside]
            .iter()
            .any(|entry| self.hit.contains(entry))
        {
            return false;
        }
        self.hit.insert(place)
    }
}

fn region_of(piece: &Piece) -> (Part, Region) {
    (piece.part, piece.region)
}

fn place_of(piece: &Piece) -> Option<Place> {
    let owner = piece.owner.as_ref()?;
    Some((piece.part, owner.key.to_vec(), Reverse(owner.sequence)))
}
