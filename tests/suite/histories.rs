//! Histories of concurrent calls on a table and on a set, recorded and checked for linearizability: 4 to 8 threads write
//! batches of puts, deletes, merges and range deletions, read single keys, many keys and ranges, now and at snapshots that they
//! keep, while others switch, flush or freeze.
//!
//! Stores that break 1, 2 or 4 of their calls must be rejected (`broken`).

mod broken;
mod checker;
mod newest;
mod stores;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;

use crate::support::linearizable::{CALLS_MAX, Clock, Recorded, Specification, linearize};
use crate::support::rng::{Rng, amount, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};
use stores::{Freezes, OneTable, Store, Tables};

/// Keys that all threads write and read; range deletions are among these.
const SHARED_KEYS: u16 = 5;

/// Begins the keys that one batch alone writes: whether it arrived whole shows in the last scan.
const OWN_KEYS: u16 = 100;

/// One entry of a batch. All values of a history differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Change {
    Put(u16, u32),
    Merge(u16, u32),
    Delete(u16),
    DeleteRange(u16, u16),
}

/// What a read knows of a key: the value, then the merge operands in the order in which they were written.
type Known = Vec<u32>;

/// When a read looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Now,
    Kept,
}

/// What was asked and answered.
#[derive(Debug, Clone)]
enum Call {
    /// The entries have the numbers that end with `last`.
    Write {
        changes: Vec<Change>,
        last: u64,
    },
    Read {
        moment: Moment,
        at: u64,
        found: Vec<(u16, Known)>,
    },
    /// Whether a frozen table refused what was asked of it.
    Admitted,
    Refused,
    Freeze,
}

/// Entries in the order of their numbers, and whether the table is frozen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Written {
    last: u64,
    entries: Vec<(u64, Change)>,
    frozen: bool,
}

impl Written {
    /// What a snapshot knows of a key.
    fn read(&self, key: u16, at: u64) -> Known {
        let mut known = vec![];
        for (_, change) in self.entries.iter().take_while(|(sequence, _)| *sequence <= at) {
            match change {
                Change::Put(of, value) if *of == key => known = vec![*value],
                Change::Merge(of, operand) if *of == key => known.push(*operand),
                Change::Delete(of) if *of == key => known.clear(),
                Change::DeleteRange(start, end) if (*start..*end).contains(&key) => known.clear(),
                _ => {}
            }
        }
        known
    }
}

/// Batches one after the other, each seen whole or not at all.
struct Batches;

impl Specification for Batches {
    type State = Written;
    type Call = Call;

    fn apply(state: &Written, call: &Call) -> Option<Written> {
        let mut after = state.clone();
        let allowed = match call {
            Call::Write { changes, last } => {
                let numbered = (state.last + 1..).zip(changes.iter().cloned());
                after.entries.extend(numbered);
                after.last += changes.len() as u64;
                after.last == *last
            }
            Call::Read { moment, at, found } => {
                let looks_here = *moment == Moment::Kept || *at == state.last;
                looks_here
                    && *at <= state.last
                    && found.iter().all(|(key, known)| state.read(*key, *at) == *known)
            }
            Call::Admitted => !state.frozen,
            Call::Refused => state.frozen,
            Call::Freeze => {
                after.frozen = true;
                true
            }
        };
        allowed.then_some(after)
    }
}

/// One thread of a history.
struct Caller<'h, S: Store> {
    store: &'h S,
    clock: &'h Clock,
    values: &'h AtomicU64,
    rng: Rng,
    /// The next key that one batch alone writes.
    own_key: u16,
    kept: Option<S::Pin>,
    calls: Vec<Recorded<Call>>,
}

impl<S: Store> Caller<'_, S> {
    fn change(&mut self) -> Change {
        let key = self.rng.below(u64::from(SHARED_KEYS)) as u16;
        let value = self.values.fetch_add(1, Ordering::Relaxed) as u32;
        match self.rng.below(8) {
            0..4 => Change::Put(key, value),
            4..6 => Change::Merge(key, value),
            6 => Change::Delete(key),
            _ => Change::DeleteRange(key, key + 1 + self.rng.below(3) as u16),
        }
    }

    /// Up to three entries, the last one under a key of its own.
    fn batch(&mut self) -> Vec<Change> {
        let mut changes = vec![];
        for _ in 0..self.rng.below(3) {
            changes.push(self.change());
        }
        self.own_key += 1;
        changes.push(Change::Put(self.own_key, self.values.fetch_add(1, Ordering::Relaxed) as u32));
        changes
    }

    fn read(&mut self, moment: Moment) {
        let keys: Vec<u16> = match self.rng.below(3) {
            0 => vec![self.rng.below(u64::from(SHARED_KEYS)) as u16],
            1 => (0..SHARED_KEYS).collect(),
            _ => (0..SHARED_KEYS).chain([self.own_key]).collect(),
        };
        let Caller { store, clock, rng, kept, .. } = self;
        let pin = kept.as_ref().filter(|_| moment == Moment::Kept);
        let recorded = clock.record(|| {
            let (at, found) = store.read(pin, &keys, rng);
            Call::Read { moment, at, found }
        });
        self.calls.push(recorded);
    }

    fn step(&mut self) {
        match self.rng.below(10) {
            0..4 => {
                let changes = self.batch();
                self.store.write(self.clock, changes, &mut self.calls);
            }
            4..7 => self.read(Moment::Now),
            7 if self.kept.is_some() => self.read(Moment::Kept),
            8 => self.kept = Some(self.store.pin()),
            _ => self.store.upkeep(self.clock, &mut self.rng, &mut self.calls),
        }
        if self.rng.one_in(4) {
            std::thread::yield_now();
        }
    }
}

/// The calls of some threads on a store, and at the end a scan of everything.
fn history<S: Store>(store: &S, seed: u64) -> Vec<Recorded<Call>> {
    let mut rng = Rng::new(seed);
    let threads = 4 + rng.below(5);
    // Some calls are recorded as two.
    let steps = (CALLS_MAX as u64 - 8) / (2 * threads);
    let (clock, values, all) = (Clock::default(), AtomicU64::new(1), Mutex::new(vec![]));
    scope(|scope| {
        for thread in 0..threads {
            let (clock, values, all) = (&clock, &values, &all);
            let rng = Rng::new(scramble(seed ^ scramble(thread)));
            let own_key = OWN_KEYS * (thread as u16 + 1);
            scope.spawn(move || {
                let mut caller = Caller { store, clock, values, rng, own_key, kept: None, calls: vec![] };
                (0..steps).for_each(|_| caller.step());
                all.lock().unwrap().extend(caller.calls);
            });
        }
    });
    let mut calls = all.into_inner().unwrap();
    let mut keys: Vec<u16> = (0..SHARED_KEYS).collect();
    keys.extend(
        (1..=threads as u16).flat_map(|thread| OWN_KEYS * thread + 1..=OWN_KEYS * thread + steps as u16),
    );
    calls.push(clock.record(|| {
        let (at, found) = store.read(None, &keys, &mut rng);
        Call::Read { moment: Moment::Now, at, found }
    }));
    calls
}

/// Checks so many histories of each kind of store.
fn check(test: &str, one: impl Fn(u64) -> Vec<Recorded<Call>>) {
    let test = format!("histories::{test}");
    let seed = seed_or(0x4157);
    println!("{}", replay_line(&test, seed));
    for round in 0..amount(2000, 60) {
        let seed = seed.wrapping_add(round);
        let _watchdog = Watchdog::new(&test, seed);
        let calls = one(seed);
        if let Err(text) = linearize::<Batches>(&calls) {
            panic!("seed {seed:#x}: {text}replay: {}", replay_line(&test, seed));
        }
    }
}

#[test]
fn of_a_set() {
    check("of_a_set", |seed| history(&Tables::new(seed), seed));
}

/// Batches become visible in the order of their numbers, as an engine arranges it; one thread freezes the table.
#[test]
fn of_a_table() {
    check("of_a_table", |seed| history(&OneTable::new(seed, Freezes::Sometimes), seed));
}
