//! What histories are recorded of: a set with its flushes, and one table whose batches an engine makes visible in order.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use paranoid_memtable::read::Base;
use paranoid_memtable::set::{MemTableSet, SetOptions, Snapshot, View};
use paranoid_memtable::{Directory, Error, Kind, Lookup, MemTable, MemTableOptions, WriteBatch};

use super::{Call, Change, Known};
use crate::support::linearizable::{Clock, Recorded};
use crate::support::rng::Rng;
use crate::support::sets::{self, History, HistorySource, finish, read_through};

/// What threads call.
pub(super) trait Store: Sync {
    /// What keeps a snapshot.
    type Pin: Send;

    fn write(&self, clock: &Clock, changes: Vec<Change>, calls: &mut Vec<Recorded<Call>>);

    /// Reads the keys now or at a snapshot, in one of several ways; the number at which it looked, and what it found.
    fn read(&self, pin: Option<&Self::Pin>, keys: &[u16], rng: &mut Rng) -> (u64, Vec<(u16, Known)>);

    fn pin(&self) -> Self::Pin;

    /// What happens beside writes and reads.
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
            Change::Put(of, value) => batch.put(&key(*of), &value.to_be_bytes()),
            Change::Merge(of, operand) => batch.merge(&key(*of), &operand.to_be_bytes()),
            Change::Delete(of) => batch.delete(&key(*of)),
            Change::DeleteRange(start, end) => batch.delete_range(&key(*start), &key(*end)),
        }
        .unwrap();
    }
    batch
}

fn options(seed: u64) -> MemTableOptions {
    let mut rng = Rng::new(seed);
    let directory = *rng.pick(&[Directory::On, Directory::Off]);
    let builder = MemTableOptions::builder().directory(directory).seed(seed);
    let builder = if rng.one_in(3) { builder.whole_key_filter(0.02) } else { builder };
    builder.write_buffer_size(64 << 10).build().unwrap()
}

/// The value, then operands from the oldest to the newest.
fn in_order(known: sets::Known) -> Known {
    known.value.iter().chain(known.operands.iter().rev()).map(|value| number(value)).collect()
}

/// A set whose base is a plain history.
pub(super) struct Tables {
    set: MemTableSet<History>,
    flushes: Mutex<()>,
}

impl Tables {
    pub(super) fn new(seed: u64) -> Tables {
        let options = SetOptions::builder().table(options(seed)).max_write_buffer_number(64);
        let set = MemTableSet::open(options.build().unwrap(), History::default()).unwrap();
        Tables { set, flushes: Mutex::new(()) }
    }

    /// A scan of everything, from either end.
    fn scan(view: &View<History>, keys: &[u16], rng: &mut Rng) -> Vec<(u16, Known)> {
        let mut range = view.merging_range(|| vec![Box::new(HistorySource::new(view.base()))], ..).unwrap();
        let mut shown = vec![];
        let backward = rng.one_in(2);
        loop {
            let next = if backward { range.next_back_entry() } else { range.next_entry() };
            let Some(entry) = next.unwrap() else { break };
            let (key, known) = super::super::set_scans::row(entry);
            shown.push((key_back(&key), in_order(known)));
        }
        pick(&shown, keys)
    }
}

/// What a scan showed of these keys.
fn pick(shown: &[(u16, Known)], keys: &[u16]) -> Vec<(u16, Known)> {
    let known = |key: &u16| shown.iter().find(|row| row.0 == *key).map(|row| row.1.clone());
    keys.iter().map(|key| (*key, known(key).unwrap_or_default())).collect()
}

impl Store for Tables {
    type Pin = Snapshot;

    fn write(&self, clock: &Clock, changes: Vec<Change>, calls: &mut Vec<Recorded<Call>>) {
        let batch = encode(&changes);
        calls.push(clock.record(|| Call::Write { changes, last: self.set.write(&batch).unwrap() }));
    }

    fn read(&self, pin: Option<&Snapshot>, keys: &[u16], rng: &mut Rng) -> (u64, Vec<(u16, Known)>) {
        let view = match pin {
            Some(snapshot) => self.set.view_at(snapshot).unwrap(),
            None => self.set.view(),
        };
        let bytes: Vec<Vec<u8>> = keys.iter().map(|of| key(*of)).collect();
        let found = match rng.below(3) {
            0 => bytes.iter().map(|key| in_order(read_through(&view, key))).collect::<Vec<_>>(),
            1 => {
                let found = view.multi_get(&bytes).into_iter().zip(&bytes);
                found.map(|(found, key)| in_order(finish(&view, key, found.unwrap()))).collect()
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
        // One flush at a time: the base of a second one would lack what the first one adds.
        let Ok(_flush) = self.flushes.try_lock() else { return };
        if rng.one_in(3) {
            return;
        }
        if let Some(mut job) = self.set.begin_flush().unwrap() {
            let mut base = History::clone(self.set.view().base());
            job.flush(&mut base).unwrap();
            job.install(base).unwrap();
        }
    }
}

/// Whether somebody freezes a table while others write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freezes {
    Sometimes,
    Never,
}

/// One table: numbers are given out first, and become visible when all before them are written.
pub(super) struct OneTable {
    table: MemTable,
    freezes: Freezes,
    next: AtomicU64,
    visible: AtomicU64,
    /// First and last numbers that are written, but not visible.
    written: Mutex<BTreeSet<(u64, u64)>>,
}

impl OneTable {
    pub(super) fn new(seed: u64, freezes: Freezes) -> OneTable {
        let table = MemTable::new(options(seed)).unwrap();
        let (next, visible, written) = (AtomicU64::new(1), AtomicU64::new(0), Mutex::default());
        OneTable { table, freezes, next, visible, written }
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

    fn get(lookup: Lookup<'_>) -> Known {
        let known = match lookup {
            Lookup::Value(value) => sets::Known { operands: vec![], value: Some(value.to_vec()) },
            Lookup::Deleted { .. } | Lookup::NotFound => sets::Known::default(),
            Lookup::Merge(mut operands) => {
                let base = operands.base().unwrap();
                let stack = operands.by_ref().map(|operand| operand.unwrap().value.to_vec()).collect();
                let value = if let Base::Value(value) = base { Some(value.to_vec()) } else { None };
                sets::Known { operands: stack, value }
            }
        };
        in_order(known)
    }

    /// A scan shows which keys there are; the operands of merges are asked for.
    fn scan(&self, at: u64, keys: &[u16], rng: &mut Rng) -> Vec<(u16, Known)> {
        let row = |entry: paranoid_memtable::Entry<'_>| {
            let known = if entry.kind() == Kind::MERGE {
                Self::get(self.table.get(entry.user_key(), at).unwrap())
            } else {
                vec![number(entry.value().unwrap())]
            };
            (key_back(entry.user_key()), known)
        };
        let range = self.table.range_at(at, ..);
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
        calls.push(Recorded { began, ended: clock.now(), call: admission.clone() });
        self.publish(first, last);
        // A refused batch takes its numbers all the same, for a key that nobody reads.
        let refused = || vec![Change::Delete(u16::MAX); changes.len()];
        let changes = if matches!(admission, Call::Admitted) { changes.clone() } else { refused() };
        calls.push(Recorded { began, ended: clock.now(), call: Call::Write { changes, last } });
    }

    fn read(&self, pin: Option<&u64>, keys: &[u16], rng: &mut Rng) -> (u64, Vec<(u16, Known)>) {
        let at = pin.copied().unwrap_or_else(|| self.pin());
        let bytes: Vec<Vec<u8>> = keys.iter().map(|of| key(*of)).collect();
        let found: Vec<Known> = match rng.below(3) {
            0 => bytes.iter().map(|key| Self::get(self.table.get(key, at).unwrap())).collect(),
            1 => {
                let keys: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
                self.table.multi_get(&keys, at).into_iter().map(|found| Self::get(found.unwrap())).collect()
            }
            _ => return (at, self.scan(at, keys, rng)),
        };
        (at, keys.iter().copied().zip(found).collect())
    }

    fn pin(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Now and then the table is frozen, and a frozen one is flushed.
    fn upkeep(&self, clock: &Clock, rng: &mut Rng, calls: &mut Vec<Recorded<Call>>) {
        if self.freezes == Freezes::Never || !rng.one_in(6) {
            return self.table.maintain();
        }
        let mut frozen = None;
        calls.push(clock.record(|| {
            frozen = self.table.freeze().ok();
            Call::Freeze
        }));
        let mut sink = History::default();
        frozen.unwrap().flush(&[], &mut sink).unwrap();
    }
}
