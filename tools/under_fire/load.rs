//! The load, and its right answers.
//!
//! ```text
//!   group 7, generation 5:   g007/      counter, 5
//!                            g007/0 .. g007/7   bytes that follow from group, generation and key; of each fifth generation
//!                                               every second key alone
//! ```
//! One batch makes one generation of a group from the one before: it adds 1 to the counter, deletes
//! the range of keys where it leaves some out, and puts the others. So a scan of a group says which
//! generation it shows, and must show all of it. A group has one writer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use paranoid_memtable::{Error, WriteBatch};
use paranoid_set::{MergedEntry, View};

use crate::files::{Base, Counters, Outcome};
use crate::store::scan;
use crate::{Shared, count};

/// Number of groups.
pub(crate) const GROUPS: u64 = 48;
/// Number of threads that write, and of those that read.
pub(crate) const WRITERS: u64 = 2;
pub(crate) const READERS: u64 = 2;
/// Keys of a group beside its counter.
const KEYS: u64 = 8;
/// The longest value.
const VALUE_MAX: u64 = 400;
/// The pause after each batch, so that a table lives for some flips.
const PAUSE: Duration = Duration::from_micros(500);
/// Tenths of a second from one flush of a table that is not full to the next.
const FLUSH_EVERY: u64 = 37;

/// Keys and values of a group.
pub(crate) type Contents = Vec<(String, Vec<u8>)>;

/// A group of keys, and which of its generations a read may show.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) number: u64,
    /// The last generation that was acknowledged.
    acknowledged: AtomicU64,
    /// The last generation that was begun.
    begun: AtomicU64,
}

impl Group {
    pub(crate) fn new(number: u64) -> Group {
        Group {
            number,
            acknowledged: AtomicU64::new(0),
            begun: AtomicU64::new(0),
        }
    }

    /// Whether these are the contents of a generation that is acknowledged or was begun.
    pub(crate) fn allows(&self, found: &Contents) -> bool {
        let generations =
            self.acknowledged.load(Ordering::Acquire)..=self.begun.load(Ordering::Acquire);
        let mut contents = generations.map(|generation| contents_of(self.number, generation));
        contents.any(|contents| contents == *found)
    }
}

/// A well mixed number.
pub(crate) fn mixed(seed: u64) -> u64 {
    let word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn counter_of(group: u64) -> String {
    format!("g{group:03}/")
}

fn key_of(group: u64, number: u64) -> String {
    format!("g{group:03}/{number}")
}

fn value_of(group: u64, generation: u64, number: u64) -> Vec<u8> {
    let word = mixed(mixed(mixed(group) ^ generation) ^ number);
    let bytes = word.to_le_bytes();
    let len = word % VALUE_MAX + 8;
    (0..len)
        .zip(bytes.iter().cycle())
        .map(|(_, byte)| *byte)
        .collect()
}

/// The keys that a generation has.
fn numbers_of(generation: u64) -> impl Iterator<Item = u64> {
    (0..KEYS).filter(move |number| !is_sparse(generation) || number % 2 == 0)
}

fn is_sparse(generation: u64) -> bool {
    generation.is_multiple_of(5)
}

/// The right contents of a generation of a group.
fn contents_of(group: u64, generation: u64) -> Contents {
    if generation == 0 {
        return Vec::new();
    }
    let counter = (counter_of(group), generation.to_string().into_bytes());
    let keys = numbers_of(generation);
    let entries = keys.map(|number| (key_of(group, number), value_of(group, generation, number)));
    std::iter::once(counter).chain(entries).collect()
}

/// The batch that makes this generation from the one before.
fn batch_of(group: u64, generation: u64) -> Result<WriteBatch, Error> {
    let mut batch = WriteBatch::new();
    batch.merge(counter_of(group), "1")?;
    if is_sparse(generation) {
        batch.delete_range(key_of(group, 0), key_of(group, KEYS))?;
    }
    for number in numbers_of(generation) {
        batch.put(key_of(group, number), value_of(group, generation, number))?;
    }
    Ok(batch)
}

fn contents(entry: &MergedEntry) -> Outcome<(String, Vec<u8>)> {
    let key = String::from_utf8(entry.user_key().to_vec())?;
    Ok((key, entry.merged(&Counters, None)?.into_owned()))
}

/// What a scan of a group shows.
pub(crate) fn contents_in(view: &View<Base>, group: u64) -> Outcome<Contents> {
    let bounds = counter_of(group)..counter_of(group + 1);
    let entries = scan(view, bounds)?.ascending();
    entries.map(|entry| contents(&entry?)).collect()
}

/// Whether an error is, or was caused by, `Corruption`.
fn is_corruption(error: &(dyn std::error::Error + 'static)) -> bool {
    let table = error.downcast_ref::<Error>();
    table.is_some_and(|error| error.corruption().is_some())
}

/// Writes one generation after the other of the writer's groups, and reads each back.
pub(crate) fn write(shared: &Shared, seed: u64, writer: u64) {
    let mut turn = mixed(seed ^ writer);
    while !shared.is_over() {
        turn = mixed(turn);
        let number = turn % (GROUPS / WRITERS) * WRITERS + writer;
        let group = &shared.groups[number as usize];
        let generation = group.acknowledged.load(Ordering::Relaxed) + 1;
        // What was begun by a write that returned an error may be there or not.
        if group.begun.load(Ordering::Relaxed) >= generation {
            settle(shared, group);
            continue;
        }
        group.begun.store(generation, Ordering::Release);
        let Ok(batch) = batch_of(number, generation) else {
            return shared.wrong("a batch cannot be made");
        };
        let inside = shared.enter();
        let written = shared.store.write(&batch);
        drop(inside);
        match written {
            Ok(_) => {
                group.acknowledged.store(generation, Ordering::Release);
                count(&shared.counts.batches);
            }
            Err(_) => count(&shared.counts.stops),
        }
        thread::sleep(PAUSE);
    }
}

/// Reads whether a batch was written whose write returned an error. Only the group's writer calls
/// it.
fn settle(shared: &Shared, group: &Group) {
    let (acknowledged, begun) = (
        group.acknowledged.load(Ordering::Relaxed),
        group.begun.load(Ordering::Relaxed),
    );
    let inside = shared.enter();
    let found = contents_in(&shared.store.view(), group.number);
    drop(inside);
    match found {
        Ok(found) if found == contents_of(group.number, begun) => {
            group.acknowledged.store(begun, Ordering::Release);
        }
        Ok(found) if found == contents_of(group.number, acknowledged) => {
            group.begun.store(acknowledged, Ordering::Release);
        }
        Ok(_) => {
            shared.wrong(&format!("group {} after an error", group.number));
            group.begun.store(acknowledged, Ordering::Release);
        }
        Err(error) => {
            refused(shared, &*error);
            // A set that is read-only is opened again by a write.
            let inside = shared.enter();
            let _ = shared.store.write(&WriteBatch::new());
            drop(inside);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Counts an error of a read.
fn refused(shared: &Shared, error: &(dyn std::error::Error + 'static)) {
    if is_corruption(error) {
        count(&shared.counts.corruption);
    } else {
        shared.wrong(&format!("a read: {error}"));
    }
}

/// Reads groups, whole and by single keys. Each answer is of a generation that a read may show.
pub(crate) fn read(shared: &Shared, seed: u64, reader: u64) {
    let mut turn = mixed(seed ^ (reader + 100));
    while !shared.is_over() {
        turn = mixed(turn);
        let group = &shared.groups[(turn % GROUPS) as usize];
        let first = group.acknowledged.load(Ordering::Acquire);
        let inside = shared.enter();
        let (found, part) = match turn >> 32 & 3 {
            0 => (one_by_one(shared, group.number), Part::All),
            1 => (counter_alone(shared, group.number), Part::Counter),
            _ => (contents_in(&shared.store.view(), group.number), Part::All),
        };
        drop(inside);
        let mut generations = first..=group.begun.load(Ordering::Acquire).max(first);
        count(&shared.counts.reads);
        match found {
            Err(error) => refused(shared, &*error),
            Ok(found) if generations.any(|it| part.of(contents_of(group.number, it)) == found) => {}
            Ok(found) => shared.wrong(&format!(
                "group {}, not before generation {first}: {:?}",
                group.number,
                found.first()
            )),
        }
    }
}

/// What is read of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Counter,
}

impl Part {
    fn of(self, mut contents: Contents) -> Contents {
        if self == Part::Counter {
            contents.truncate(1);
        }
        contents
    }
}

/// What a get of a group's counter shows.
fn counter_alone(shared: &Shared, group: u64) -> Outcome<Contents> {
    let found = shared.store.get(&counter_of(group))?;
    found.iter().map(contents).collect()
}

/// Flushes now and then, though tables are not full.
pub(crate) fn flush(shared: &Shared) {
    let mut turns = 0u64;
    while !shared.is_over() {
        thread::sleep(Duration::from_millis(100));
        turns += 1;
        if turns.is_multiple_of(FLUSH_EVERY) {
            let inside = shared.enter();
            let flushed = shared.store.flush();
            drop(inside);
            if flushed.is_ok() {
                count(&shared.counts.flushes);
            }
        }
    }
}

/// What gets of all keys of a group in one view show.
fn one_by_one(shared: &Shared, group: u64) -> Outcome<Contents> {
    let view = shared.store.view();
    let keys = std::iter::once(counter_of(group)).chain((0..KEYS).map(|n| key_of(group, n)));
    let mut found = Vec::new();
    for key in keys {
        if let Some(entry) = view.merging_get(&key, || view.base().sources())? {
            found.push(contents(&entry)?);
        }
    }
    Ok(found)
}

/// Holds one snapshot after the other, and scans it twice: the second time step by step, while the
/// store changes.
pub(crate) fn hold_snapshots(shared: &Shared) {
    while !shared.is_over() {
        match scan_twice(shared) {
            Ok(true) => count(&shared.counts.reads),
            Ok(false) => shared.wrong("a snapshot changes"),
            Err(error) if is_ended(&*error) => thread::sleep(Duration::from_millis(20)),
            Err(error) => refused(shared, &*error),
        }
    }
}

/// Whether the set of a snapshot was closed.
fn is_ended(error: &(dyn std::error::Error + 'static)) -> bool {
    let table = error.downcast_ref::<Error>();
    table.is_some_and(|error| {
        matches!(error, Error::InvalidArgument(_)) || matches!(error, Error::ReadOnly { .. })
    })
}

/// Whether two scans of a snapshot agree.
fn scan_twice(shared: &Shared) -> Outcome<bool> {
    let inside = shared.enter();
    let snapshot = shared.store.snapshot()?;
    let before: Outcome<Contents> = scan(&shared.store.view_at(&snapshot)?, ..)?
        .ascending()
        .map(|entry| contents(&entry?))
        .collect();
    let before = before?;
    let view = shared.store.view_at(&snapshot)?;
    drop(inside);
    let inside = shared.enter();
    let mut cursor = scan(&view, ..)?;
    let mut entry = cursor.first()?.cloned();
    drop(inside);
    for wanted in &before {
        if entry.as_ref().map(contents).transpose()?.as_ref() != Some(wanted) {
            return Ok(false);
        }
        thread::sleep(Duration::from_micros(200));
        let inside = shared.enter();
        entry = cursor.next()?.cloned();
        drop(inside);
    }
    let inside = shared.enter();
    drop(cursor);
    drop(view);
    drop(inside);
    Ok(entry.is_none())
}
