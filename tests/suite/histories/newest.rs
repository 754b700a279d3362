//! Histories of single entries whose numbers come in any order: threads insert the same few (key, number) pairs and ask for the
//! newest entry of a key. Each insert of a pair but one is refused, and what is asked for is the newest one that is there.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::scope;

use paranoid_memtable::{Directory, Error, Kind, MemTable, MemTableOptions};

use crate::support::linearizable::{Clock, Recorded, Specification, linearize};
use crate::support::rng::{Rng, amount, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

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

/// Insert if absent, and a question for the newest.
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
        let won = match table.insert(number, Kind::PUT, &[key], &value.to_be_bytes()) {
            Ok(_) => true,
            Err(Error::DuplicateEntry { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        return Call::Insert { name: (key, number), value, won };
    }
    let at = if rng.one_in(2) { u64::MAX } else { number };
    let found = table.get_entry(&[key], at).unwrap();
    let found = found.map(|entry| {
        let value = u64::from_be_bytes(entry.value().unwrap().try_into().unwrap());
        (entry.sequence(), value)
    });
    Call::Newest { key, at, found }
}

fn history(seed: u64) -> Vec<Recorded<Call>> {
    let mut rng = Rng::new(seed);
    let threads = 4 + rng.below(5);
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
                let calls: Vec<_> = (0..12).map(step).collect();
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

/// Changes of recorded answers are rejected: a winner too many, no winner, a value that nobody inserted.
#[test]
fn wrong_answers_are_rejected() {
    for seed in 0..20 {
        let calls = history(seed);
        assert!(linearize::<Entries>(&calls).is_ok());
        for (at, recorded) in calls.iter().enumerate() {
            let wrong = match recorded.call.clone() {
                Call::Insert { name, value, won } => Call::Insert { name, value, won: !won },
                Call::Newest { key, at, found: Some((number, value)) } => {
                    Call::Newest { key, at, found: Some((number, value + (1 << 40))) }
                }
                Call::Newest { .. } => continue,
            };
            let mut broken = calls.clone();
            broken[at].call = wrong;
            assert!(linearize::<Entries>(&broken).is_err(), "seed {seed}: {:?}", broken[at]);
        }
    }
}
