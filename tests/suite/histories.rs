//! Histories of concurrent calls on a table and on a set, recorded and checked for linearizability.
//! Between 4 and 8 threads, or 16, write batches of puts, deletes, merges and range deletions. They
//! read single keys, many keys and ranges, now and at snapshots that they keep, while others switch,
//! flush or freeze.
//!
//! Stores that break 1, 2 or 4 of their calls must be rejected (`broken`).

mod linearizable;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;

use linearizable::{CALLS_MAX, Clock, Recorded, Specification, linearize};
use stores::{Freezes, OneTable, Store, Tables};

use crate::support::rng::{Rng, Watchdog, amount, replay_line, scramble, seed_or};

/// Keys that all threads write and read; range deletions are among these.
const SHARED_KEYS: u16 = 5;

/// The first of the keys that only one batch writes. The last scan shows whether such a batch
/// arrived whole.
const OWN_KEYS: u16 = 100;

/// One entry of a batch. All values of a history differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Change {
    Put(u16, u32),
    Merge(u16, u32),
    Delete(u16),
    DeleteRange(u16, u16),
}

/// A read's knowledge of a key: the value, then the merge operands in the order of their writes.
type Known = Vec<u32>;

/// The time at which a read looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Now,
    Kept,
}

/// A call and its result.
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
    /// Whether a frozen table refused a call.
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
    /// The knowledge of a snapshot about a key.
    fn read(&self, key: u16, at: u64) -> Known {
        let mut known = vec![];
        for (_, change) in self
            .entries
            .iter()
            .take_while(|(sequence, _)| *sequence <= at)
        {
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
                    && found
                        .iter()
                        .all(|(key, known)| state.read(*key, *at) == *known)
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
    /// The next key that only one batch writes.
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

    /// Up to three entries, the last one with a key of its own.
    fn batch(&mut self) -> Vec<Change> {
        let mut changes = vec![];
        for _ in 0..self.rng.below(3) {
            changes.push(self.change());
        }
        self.own_key += 1;
        changes.push(Change::Put(
            self.own_key,
            self.values.fetch_add(1, Ordering::Relaxed) as u32,
        ));
        changes
    }

    fn read(&mut self, moment: Moment) {
        let keys: Vec<u16> = match self.rng.below(3) {
            0 => vec![self.rng.below(u64::from(SHARED_KEYS)) as u16],
            1 => (0..SHARED_KEYS).collect(),
            _ => (0..SHARED_KEYS).chain([self.own_key]).collect(),
        };
        let Caller {
            store,
            clock,
            rng,
            kept,
            ..
        } = self;
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
            _ => self
                .store
                .upkeep(self.clock, &mut self.rng, &mut self.calls),
        }
        if self.rng.one_in(4) {
            std::thread::yield_now();
        }
    }
}

/// The number of threads of a history: half of the histories have 16.
fn threads(rng: &mut Rng) -> u64 {
    *rng.pick(&[4, 5, 6, 7, 8, 16, 16, 16, 16, 16])
}

/// The calls of several threads on a store, and at the end a scan of everything.
fn history<S: Store>(store: &S, seed: u64) -> Vec<Recorded<Call>> {
    let mut rng = Rng::new(seed);
    let threads = threads(&mut rng);
    // Some calls are recorded as two.
    let steps = (CALLS_MAX as u64 - 8) / (2 * threads);
    let (clock, values, all) = (Clock::default(), AtomicU64::new(1), Mutex::new(vec![]));
    scope(|scope| {
        for thread in 0..threads {
            let (clock, values, all) = (&clock, &values, &all);
            let rng = Rng::new(scramble(seed ^ scramble(thread)));
            let own_key = OWN_KEYS * (thread as u16 + 1);
            scope.spawn(move || {
                let mut caller = Caller {
                    store,
                    clock,
                    values,
                    rng,
                    own_key,
                    kept: None,
                    calls: vec![],
                };
                (0..steps).for_each(|_| caller.step());
                all.lock().unwrap().extend(caller.calls);
            });
        }
    });
    let mut calls = all.into_inner().unwrap();
    let mut keys: Vec<u16> = (0..SHARED_KEYS).collect();
    keys.extend(
        (1..=threads as u16)
            .flat_map(|thread| OWN_KEYS * thread + 1..=OWN_KEYS * thread + steps as u16),
    );
    calls.push(clock.record(|| {
        let (at, found) = store.read(None, &keys, &mut rng);
        Call::Read {
            moment: Moment::Now,
            at,
            found,
        }
    }));
    calls
}

/// Checks a number of histories of each kind of store.
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

/// Batches become visible in the order of their numbers, as in an engine; one thread freezes the
/// table.
#[test]
fn of_a_table() {
    check("of_a_table", |seed| {
        history(&OneTable::new(seed, Freezes::Sometimes), seed)
    });
}

/// Stores that break a few of their calls. Histories of them must be rejected, or the other checks
/// would prove nothing.
mod broken {
    use std::cell::Cell;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::linearizable::{Clock, Recorded, linearize};
    use super::stores::{Freezes, OneTable, Store, Tables};
    use super::{Batches, Call, Change, Known, history};
    use crate::support::rng::{Rng, Watchdog, seed_or};

    /// The effect of a broken call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Break {
        /// Returns an older snapshot's state as the present one.
        StaleRead,
        /// Returns the state before the first write as the present one.
        ReadOfTheBeginning,
        /// Reports a batch as written, and does not write it.
        LostWrite,
        /// Leaves out half of a batch.
        TornBatch,
    }

    /// A store that breaks several calls.
    struct Broken<S: Store> {
        store: S,
        how: Break,
        left: AtomicU64,
        beginning: S::Pin,
        /// The last read that was not broken.
        earlier: Mutex<Option<S::Pin>>,
    }

    thread_local! {
        /// Whether a write of this thread has returned: the thread may not read the state before
        /// it.
        static WROTE: Cell<bool> = const { Cell::new(false) };
    }

    impl<S: Store> Broken<S> {
        fn new(store: S, how: Break, calls: u64) -> Self {
            let (beginning, left) = (store.pin(), AtomicU64::new(calls));
            Broken {
                store,
                how,
                left,
                beginning,
                earlier: Mutex::new(None),
            }
        }

        /// Whether to break one more call.
        fn takes_one(&self) -> bool {
            self.left
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
        }
    }

    /// A key that no call reads, in place of a lost entry.
    const LOST: Change = Change::Delete(u16::MAX);

    impl<S: Store> Store for Broken<S>
    where
        S::Pin: Sync,
    {
        type Pin = S::Pin;

        fn write(&self, clock: &Clock, changes: Vec<Change>, calls: &mut Vec<Recorded<Call>>) {
            let mut arriving = changes.clone();
            let whole = match self.how {
                Break::LostWrite => false,
                Break::TornBatch => changes.len() < 2,
                _ => true,
            };
            if !whole && self.takes_one() {
                let kept = if self.how == Break::LostWrite {
                    0
                } else {
                    changes.len() / 2
                };
                arriving[kept..].fill(LOST);
            }
            self.store.write(clock, arriving, calls);
            // The changes that the caller assumes.
            if let Some(Recorded {
                call: Call::Write {
                    changes: returned, ..
                },
                ..
            }) = calls.last_mut()
            {
                *returned = changes;
            }
            WROTE.set(true);
        }

        fn read(
            &self,
            pin: Option<&S::Pin>,
            keys: &[u16],
            rng: &mut Rng,
        ) -> (u64, Vec<(u16, Known)>) {
            let (at, found) = self.store.read(pin, keys, rng);
            if pin.is_some() || !WROTE.get() {
                return (at, found);
            }
            match self.how {
                Break::ReadOfTheBeginning if self.takes_one() => {
                    return self.store.read(Some(&self.beginning), keys, rng);
                }
                Break::StaleRead => {
                    let earlier = self.earlier.lock().unwrap().replace(self.store.pin());
                    let stale = self.store.read(
                        Some(earlier.as_ref().unwrap_or(&self.beginning)),
                        keys,
                        rng,
                    );
                    if stale.1 != found && self.takes_one() {
                        return (at, stale.1);
                    }
                }
                _ => {}
            }
            (at, found)
        }

        fn pin(&self) -> S::Pin {
            self.store.pin()
        }

        fn upkeep(&self, clock: &Clock, rng: &mut Rng, calls: &mut Vec<Recorded<Call>>) {
            self.store.upkeep(clock, rng, calls);
        }
    }

    fn is_rejected<S: Store>(store: S, how: Break, calls: u64, seed: u64) -> bool
    where
        S::Pin: Sync,
    {
        let broken = Broken::new(store, how, calls);
        let verdict = linearize::<Batches>(&history(&broken, seed));
        assert!(broken.left.into_inner() < calls, "a call was broken");
        verdict.is_err()
    }

    #[test]
    fn broken_stores_are_rejected() {
        let test = "histories::broken::broken_stores_are_rejected";
        let seed = seed_or(0xb40);
        let _watchdog = Watchdog::new(test, seed);
        let ways = [
            Break::StaleRead,
            Break::ReadOfTheBeginning,
            Break::LostWrite,
            Break::TornBatch,
        ];
        for (how, calls) in ways
            .into_iter()
            .flat_map(|how| [1, 2, 4].map(|calls| (how, calls)))
        {
            for seed in seed..seed + 6 {
                assert!(
                    is_rejected(Tables::new(seed), how, calls, seed),
                    "{how:?} {calls} of a set: {seed:#x}"
                );
                assert!(
                    is_rejected(OneTable::new(seed, Freezes::Never), how, calls, seed),
                    "{how:?} {calls} of a table: {seed:#x}"
                );
            }
        }
    }
}

/// Histories of single entries whose numbers come in any order: threads insert the same few (key,
/// number) pairs and look up the newest entry of a key. All inserts of a pair except one are
/// refused, and a lookup returns the newest pair at that time.
mod newest {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::thread::scope;

    use paranoid_memtable::{Directory, Error, Kind, MemTable, MemTableOptions};

    use super::linearizable::{CALLS_MAX, Clock, Recorded, Specification, linearize};
    use super::threads;
    use crate::support::rng::{Rng, Watchdog, amount, replay_line, scramble, seed_or};

    /// A key and a number.
    type Name = (u8, u64);

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Call {
        Insert {
            name: Name,
            value: u64,
            won: bool,
        },
        /// The newest entry of the key with a number up to this one.
        Newest {
            key: u8,
            at: u64,
            found: Option<(u64, u64)>,
        },
    }

    /// Insert if absent, and lookup of the newest.
    struct Entries;

    impl Specification for Entries {
        type State = BTreeMap<Name, u64>;
        type Call = Call;

        fn apply(state: &Self::State, call: &Call) -> Option<Self::State> {
            let mut after = state.clone();
            let allowed = match call {
                Call::Insert { name, value, won } => {
                    let is_new = !state.contains_key(name);
                    if is_new {
                        after.insert(*name, *value);
                    }
                    is_new == *won
                }
                Call::Newest { key, at, found } => {
                    let newest = state.range((*key, 0)..=(*key, *at)).next_back();
                    newest.map(|((_, number), value)| (*number, *value)) == *found
                }
            };
            allowed.then_some(after)
        }
    }

    fn one_call(table: &MemTable, rng: &mut Rng, value: u64) -> Call {
        let (key, number) = (rng.below(3) as u8, rng.below(12));
        if rng.one_in(2) {
            let won = match table.insert(number, Kind::PUT, [key], value.to_be_bytes()) {
                Ok(_) => true,
                Err(Error::DuplicateEntry { .. }) => false,
                Err(error) => panic!("{error}"),
            };
            return Call::Insert {
                name: (key, number),
                value,
                won,
            };
        }
        let at = if rng.one_in(2) { u64::MAX } else { number };
        let found = table.get_entry([key], at).unwrap();
        let found = found.map(|entry| {
            let value = u64::from_be_bytes(entry.value().unwrap().try_into().unwrap());
            (entry.sequence(), value)
        });
        Call::Newest { key, at, found }
    }

    fn history(seed: u64) -> Vec<Recorded<Call>> {
        let mut rng = Rng::new(seed);
        let threads = threads(&mut rng);
        let directory = *rng.pick(&[Directory::On, Directory::Off]);
        let options = MemTableOptions::builder().directory(directory);
        let table = MemTable::new(options.seed(seed).build().unwrap()).unwrap();
        let (clock, all) = (Clock::default(), Mutex::new(vec![]));
        scope(|scope| {
            for thread in 0..threads {
                let (table, clock, all) = (&table, &clock, &all);
                scope.spawn(move || {
                    let mut rng = Rng::new(scramble(seed ^ scramble(thread)));
                    let step = |n| clock.record(|| one_call(table, &mut rng, thread << 32 | n));
                    let steps = 12.min(CALLS_MAX as u64 / threads);
                    let calls: Vec<_> = (0..steps).map(step).collect();
                    all.lock().unwrap().extend(calls);
                });
            }
        });
        all.into_inner().unwrap()
    }

    #[test]
    fn of_single_entries() {
        let test = "histories::newest::of_single_entries";
        let seed = seed_or(0x6e77);
        println!("{}", replay_line(test, seed));
        for round in 0..amount(2000, 60) {
            let seed = seed.wrapping_add(round);
            let _watchdog = Watchdog::new(test, seed);
            let calls = history(seed);
            if let Err(text) = linearize::<Entries>(&calls) {
                panic!("seed {seed:#x}: {text}replay: {}", replay_line(test, seed));
            }
        }
    }

    /// Changed results are rejected: a winner too many, no winner, a value that was not inserted.
    #[test]
    fn wrong_answers_are_rejected() {
        for seed in 0..20 {
            let calls = history(seed);
            assert!(linearize::<Entries>(&calls).is_ok());
            for (at, recorded) in calls.iter().enumerate() {
                let wrong = match recorded.call.clone() {
                    Call::Insert { name, value, won } => Call::Insert {
                        name,
                        value,
                        won: !won,
                    },
                    Call::Newest {
                        key,
                        at,
                        found: Some((number, value)),
                    } => Call::Newest {
                        key,
                        at,
                        found: Some((number, value + (1 << 40))),
                    },
                    Call::Newest { .. } => continue,
                };
                let mut broken = calls.clone();
                broken[at].call = wrong;
                assert!(
                    linearize::<Entries>(&broken).is_err(),
                    "seed {seed}: {:?}",
                    broken[at]
                );
            }
        }
    }
}

/// The stores of the histories: a set with its flushes, and one table whose batches an engine makes
/// visible in order.
mod stores {
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use paranoid_memtable::flush::Versions;
    use paranoid_memtable::read::{Base, Operands};
    use paranoid_memtable::{
        Directory, Error, Kind, Lookup, MemTable, MemTableOptions, ValueRef, WriteBatch,
    };
    use paranoid_set::{MemTableSet, MergedEntry, SetOptions, Snapshot, View};

    use super::linearizable::{Clock, Recorded};
    use super::{Call, Change, Known};
    use crate::support::rng::Rng;
    use crate::support::sets::{self, History, HistorySource, finish, read_through};

    /// The calls of the threads.
    pub(super) trait Store: Sync {
        /// Keeps a snapshot.
        type Pin: Send;

        fn write(&self, clock: &Clock, changes: Vec<Change>, calls: &mut Vec<Recorded<Call>>);

        /// Reads the keys now or at a snapshot, in one of several ways. Returns the number at which
        /// it read, and the results.
        fn read(
            &self,
            pin: Option<&Self::Pin>,
            keys: &[u16],
            rng: &mut Rng,
        ) -> (u64, Vec<(u16, Known)>);

        fn pin(&self) -> Self::Pin;

        /// Does the work beside writes and reads.
        fn upkeep(&self, clock: &Clock, rng: &mut Rng, calls: &mut Vec<Recorded<Call>>);
    }

    fn key(of: u16) -> Vec<u8> {
        [b"key of a history ".as_slice(), &of.to_be_bytes()].concat()
    }

    fn key_back(bytes: &[u8]) -> u16 {
        u16::from_be_bytes(bytes[bytes.len() - 2..].try_into().unwrap())
    }

    fn number(value: &[u8]) -> u32 {
        u32::from_be_bytes(value.try_into().unwrap())
    }

    fn encode(changes: &[Change]) -> WriteBatch {
        let mut batch = WriteBatch::with_protection(8).unwrap();
        for change in changes {
            match change {
                Change::Put(of, value) => batch.put(key(*of), value.to_be_bytes()),
                Change::Merge(of, operand) => batch.merge(key(*of), operand.to_be_bytes()),
                Change::Delete(of) => batch.delete(key(*of)),
                Change::DeleteRange(start, end) => batch.delete_range(key(*start), key(*end)),
            }
            .unwrap();
        }
        batch
    }

    fn options(seed: u64) -> MemTableOptions {
        let mut rng = Rng::new(seed);
        let directory = *rng.pick(&[Directory::On, Directory::Off]);
        let builder = MemTableOptions::builder().directory(directory).seed(seed);
        let builder = if rng.one_in(3) {
            builder.whole_key_filter(0.02)
        } else {
            builder
        };
        builder.write_buffer_size(64 << 10).build().unwrap()
    }

    /// The value, then operands from the oldest to the newest.
    fn in_order(known: sets::Known) -> Known {
        known
            .value
            .iter()
            .chain(known.operands.iter().rev())
            .map(|value| number(value))
            .collect()
    }

    /// A set whose base is a plain history.
    pub(super) struct Tables {
        set: MemTableSet<History>,
        flushes: Mutex<()>,
    }

    impl Tables {
        pub(super) fn new(seed: u64) -> Tables {
            let options = SetOptions::builder()
                .table(options(seed))
                .max_write_buffer_number(64);
            let set = MemTableSet::open(options.build().unwrap(), History::default()).unwrap();
            Tables {
                set,
                flushes: Mutex::new(()),
            }
        }

        /// A scan of everything, from either end.
        fn scan(view: &View<History>, keys: &[u16], rng: &mut Rng) -> Vec<(u16, Known)> {
            let cursor = view
                .merging_cursor(vec![Box::new(HistorySource::new(view.base()))])
                .unwrap();
            let row = |entry: paranoid_memtable::Result<MergedEntry>| {
                let (key, known) = crate::set_reads::set_scans::row(&entry.unwrap());
                (key_back(&key), in_order(known))
            };
            let shown: Vec<_> = match rng.below(2) {
                0 => cursor.descending().map(row).collect(),
                _ => cursor.ascending().map(row).collect(),
            };
            pick(&shown, keys)
        }
    }

    /// The results of a scan for these keys.
    fn pick(shown: &[(u16, Known)], keys: &[u16]) -> Vec<(u16, Known)> {
        let known = |key: &u16| {
            shown
                .iter()
                .find(|row| row.0 == *key)
                .map(|row| row.1.clone())
        };
        keys.iter()
            .map(|key| (*key, known(key).unwrap_or_default()))
            .collect()
    }

    impl Store for Tables {
        type Pin = Snapshot;

        fn write(&self, clock: &Clock, changes: Vec<Change>, calls: &mut Vec<Recorded<Call>>) {
            let batch = encode(&changes);
            calls.push(clock.record(|| Call::Write {
                changes,
                last: self.set.write(&batch).unwrap(),
            }));
        }

        fn read(
            &self,
            pin: Option<&Snapshot>,
            keys: &[u16],
            rng: &mut Rng,
        ) -> (u64, Vec<(u16, Known)>) {
            let view = match pin {
                Some(snapshot) => self.set.view_at(snapshot).unwrap(),
                None => self.set.view(),
            };
            let bytes: Vec<Vec<u8>> = keys.iter().map(|of| key(*of)).collect();
            let found = match rng.below(3) {
                0 => bytes
                    .iter()
                    .map(|key| in_order(read_through(&view, key)))
                    .collect::<Vec<_>>(),
                1 => {
                    let found = view.multi_get(&bytes).into_iter().zip(&bytes);
                    found
                        .map(|(found, key)| in_order(finish(&view, key, found.unwrap())))
                        .collect()
                }
                _ => return (view.sequence(), Self::scan(&view, keys, rng)),
            };
            (view.sequence(), keys.iter().copied().zip(found).collect())
        }

        fn pin(&self) -> Snapshot {
            self.set.snapshot()
        }

        fn upkeep(&self, _: &Clock, rng: &mut Rng, _: &mut Vec<Recorded<Call>>) {
            self.set.switch().unwrap();
            // One flush at a time: the base of a second one would lack the entries of the first
            // one.
            let Ok(_flush) = self.flushes.try_lock() else {
                return;
            };
            if rng.one_in(3) {
                return;
            }
            if let Some(mut job) = self.set.begin_flush().unwrap() {
                let mut base = History::clone(self.set.view().base());
                job.flush(&mut base).unwrap();
                job.install(|_| Ok(base)).unwrap();
            }
        }
    }

    /// Whether a thread freezes a table while others write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Freezes {
        Sometimes,
        Never,
    }

    /// One table. Numbers are taken first, and become visible when all before them are written.
    pub(super) struct OneTable {
        table: MemTable,
        freezes: Freezes,
        next: AtomicU64,
        visible: AtomicU64,
        /// First and last numbers of batches that are written, but not visible.
        written: Mutex<BTreeSet<(u64, u64)>>,
    }

    impl OneTable {
        pub(super) fn new(seed: u64, freezes: Freezes) -> OneTable {
            let table = MemTable::new(options(seed)).unwrap();
            let (next, visible, written) = (AtomicU64::new(1), AtomicU64::new(0), Mutex::default());
            OneTable {
                table,
                freezes,
                next,
                visible,
                written,
            }
        }

        /// Returns when the numbers are visible.
        fn publish(&self, first: u64, last: u64) {
            {
                let mut written = self.written.lock().unwrap();
                written.insert((first, last));
                while let Some(&(first, last)) = written.first()
                    && first == self.visible.load(Ordering::Acquire) + 1
                {
                    written.pop_first();
                    self.visible.store(last, Ordering::Release);
                }
            }
            while self.visible.load(Ordering::Acquire) < last {
                std::thread::yield_now();
            }
        }

        fn get(lookup: Lookup<ValueRef<'_>, Operands<'_>>) -> Known {
            let known = match lookup {
                Lookup::Value(value) => sets::Known {
                    operands: vec![],
                    value: Some(value.to_vec()),
                },
                Lookup::Deleted { .. } | Lookup::NotFound => sets::Known::default(),
                Lookup::Merge(mut operands) => {
                    let base = operands.base().unwrap();
                    let stack = operands
                        .by_ref()
                        .map(|operand| operand.unwrap().value.to_vec())
                        .collect();
                    let value = if let Base::Value(value) = base {
                        Some(value.to_vec())
                    } else {
                        None
                    };
                    sets::Known {
                        operands: stack,
                        value,
                    }
                }
            };
            in_order(known)
        }

        /// A scan shows the keys; operands of merges are read by gets.
        fn scan(&self, at: u64, keys: &[u16], rng: &mut Rng) -> Vec<(u16, Known)> {
            let row = |entry: paranoid_memtable::Entry<'_>| {
                let known = if entry.kind() == Kind::MERGE {
                    Self::get(self.table.get(entry.user_key(), at).unwrap())
                } else {
                    vec![number(entry.value().unwrap())]
                };
                (key_back(entry.user_key()), known)
            };
            let range = self.table.range_at(.., at);
            let shown: Vec<_> = if rng.one_in(2) {
                range.map(|entry| row(entry.unwrap())).collect()
            } else {
                range.rev().map(|entry| row(entry.unwrap())).collect()
            };
            pick(&shown, keys)
        }
    }

    impl Store for OneTable {
        type Pin = u64;

        fn write(&self, clock: &Clock, changes: Vec<Change>, calls: &mut Vec<Recorded<Call>>) {
            let (batch, began) = (encode(&changes), clock.now());
            let entries = changes.len() as u64;
            let first = self.next.fetch_add(entries, Ordering::Relaxed);
            let written = self.table.write_batch(first, &batch);
            let last = first + entries - 1;
            let admission = match written {
                Ok(_) => Call::Admitted,
                Err(Error::Frozen) => Call::Refused,
                Err(error) => panic!("{error}"),
            };
            calls.push(Recorded {
                began,
                ended: clock.now(),
                call: admission.clone(),
            });
            self.publish(first, last);
            // A refused batch takes its numbers too, for a key that no call reads.
            let refused = || vec![Change::Delete(u16::MAX); changes.len()];
            let changes = if matches!(admission, Call::Admitted) {
                changes.clone()
            } else {
                refused()
            };
            calls.push(Recorded {
                began,
                ended: clock.now(),
                call: Call::Write { changes, last },
            });
        }

        fn read(&self, pin: Option<&u64>, keys: &[u16], rng: &mut Rng) -> (u64, Vec<(u16, Known)>) {
            let at = pin.copied().unwrap_or_else(|| self.pin());
            let bytes: Vec<Vec<u8>> = keys.iter().map(|of| key(*of)).collect();
            let found: Vec<Known> = match rng.below(3) {
                0 => bytes
                    .iter()
                    .map(|key| Self::get(self.table.get(key, at).unwrap()))
                    .collect(),
                1 => {
                    let keys: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
                    self.table
                        .multi_get(&keys, at)
                        .into_iter()
                        .map(|found| Self::get(found.unwrap()))
                        .collect()
                }
                _ => return (at, self.scan(at, keys, rng)),
            };
            (at, keys.iter().copied().zip(found).collect())
        }

        fn pin(&self) -> u64 {
            self.visible.load(Ordering::Acquire)
        }

        /// Now and then freezes the table, and flushes a frozen one.
        fn upkeep(&self, clock: &Clock, rng: &mut Rng, calls: &mut Vec<Recorded<Call>>) {
            if self.freezes == Freezes::Never || !rng.one_in(6) {
                return;
            }
            let mut frozen = None;
            calls.push(clock.record(|| {
                frozen = self.table.freeze().ok();
                Call::Freeze
            }));
            let mut sink = History::default();
            frozen
                .unwrap()
                .flush(Versions::SeenBy(&[]), &mut sink)
                .unwrap();
        }
    }
}
