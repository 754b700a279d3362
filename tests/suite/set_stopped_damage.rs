//! Sets that are damaged where they stopped: the table that has numbers on both sides of the stop is salvaged up to there,
//! nothing above it is handed out, and the set resumes.

use std::sync::Arc;

use paranoid_memtable::fault::{FaultInjector, Piece, Region};
use paranoid_memtable::set::{Durability, MemTableSet, SetOptions};
use paranoid_memtable::{Error, MemTableOptions, TableReader, WriteBatch};

use crate::support::sets::{History, MemoryJournal, finish};
use crate::support::watchdog::Watchdog;

const BEFORE: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
const BATCH: [&[u8]; 6] = [b"aa", b"b", b"bb", b"m", b"n", b"z"];

fn options() -> MemTableOptions {
    let options = MemTableOptions::builder().write_buffer_size(16 << 10).seed(5);
    options.whole_key_filter(0.04).build().unwrap()
}

/// Puts of these keys.
fn puts(keys: &[&[u8]], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    keys.iter().for_each(|key| batch.put(key, value).unwrap());
    batch
}

fn injector(table: &TableReader) -> FaultInjector<'_> {
    // SAFETY: one thread uses the table, and nothing borrowed from it is held while a bit is flipped.
    #[expect(unsafe_code, reason = "breaks memory on purpose")]
    let injector = unsafe { FaultInjector::open(table) };
    injector.unwrap()
}

/// Every piece of such a table with the bits of it that are flipped in turn: one per byte, fewer in a debug build.
fn flips(pieces: &[Piece]) -> Vec<(usize, usize)> {
    let step = if cfg!(debug_assertions) { 5 } else { 1 };
    let bits = |(at, piece): (usize, &Piece)| {
        (at % step..piece.len()).step_by(step).map(move |byte| (at, byte * 8 + (at + byte) % 8))
    };
    let is_used = |(_, piece): &(usize, &Piece)| piece.region != Region::Free;
    pieces.iter().enumerate().filter(is_used).flat_map(bits).collect()
}

/// A set with a journal, and what was acknowledged.
struct Stopped {
    set: MemTableSet<History>,
    journal: MemoryJournal,
    known: History,
}

impl Stopped {
    fn new() -> Self {
        let journal = MemoryJournal::default();
        let options = SetOptions::builder().table(options()).journal(Arc::new(journal.clone()));
        let set = MemTableSet::open(options.build().unwrap(), History::default()).unwrap();
        let mut stopped = Stopped { set, journal, known: History::default() };
        let mut batch = puts(&BEFORE, b"before");
        batch.merge(b"c", b"operand").unwrap();
        batch.delete_range(b"d", b"e").unwrap();
        stopped.write(&batch).unwrap();
        stopped
    }

    fn write(&mut self, batch: &WriteBatch) -> Result<(), Error> {
        let last = self.set.write_with(batch, Durability::Synced)?;
        for (entry, sequence) in batch.entries().zip(last + 1 - batch.len() as u64..) {
            let entry = entry.unwrap();
            self.known.insert(sequence, entry.kind(), entry.key(), entry.value());
        }
        Ok(())
    }

    /// A view shows what was acknowledged; what it cannot show is an error.
    fn check(&self, may_be_lost: impl Fn(&[u8]) -> bool) {
        let view = self.set.view();
        for key in BEFORE.into_iter().chain(BATCH) {
            match view.get(key) {
                Ok(lookup) if may_be_lost(key) => drop(lookup),
                Ok(lookup) => {
                    let wanted = self.known.read(key, u64::MAX, Default::default());
                    assert_eq!(finish(&view, key, lookup), wanted, "{key:?}");
                }
                Err(error) => assert!(error.corruption().is_some(), "{error}"),
            }
        }
    }

    /// Resumes a set that is damaged where it stopped. Returns whether a salvage was needed.
    fn resume(&mut self, piece: &Piece, abandoned: (u64, u64)) -> bool {
        let resumed = self.set.resume();
        if let Err(error) = &resumed {
            assert!(error.corruption().is_some(), "{error}");
            self.salvage(piece);
            assert_eq!(self.set.resume().unwrap(), Some(abandoned));
        } else {
            assert_eq!(resumed.as_ref().unwrap(), &Some(abandoned));
        }
        resumed.is_err()
    }

    /// What is known and verifies is handed out, and nothing else.
    fn salvage(&mut self, piece: &Piece) {
        self.check(|_| false);
        assert!(self.set.write(&WriteBatch::new()).is_err() && self.set.resume().is_err());
        let mut job = self.set.begin_flush().unwrap().expect("the damaged table can be flushed");
        let mut saved = History::default();
        if job.flush(&mut saved).is_err() {
            saved = History::default();
            job.salvage(&mut saved).unwrap();
        }
        let is_known = |entry: &(&_, &_)| self.known.points.get(entry.0) == Some(entry.1);
        assert!(saved.points.iter().all(|entry| is_known(&entry)), "{saved:?}");
        assert!(saved.ranges.is_subset(&self.known.ranges), "{saved:?}");
        let owner = piece.owner.as_ref();
        let is_lost = |key: &[u8]| owner.is_none_or(|owner| *owner.key == *key);
        for (key, sequence) in self.known.points.keys() {
            let is_saved = saved.points.contains_key(&(key.clone(), *sequence));
            assert!(is_saved || is_lost(key), "{key:?} {piece:?}");
        }
        job.install(saved).unwrap();
    }
}

/// A sync that fails stops a set, and its table is damaged: what is below the stop is salvaged, what is above it is gone.
#[test]
fn a_stopped_set_that_is_damaged_is_salvaged_up_to_the_stop() {
    let _watchdog =
        Watchdog::new("set_stopped_damage::a_stopped_set_that_is_damaged_is_salvaged_up_to_the_stop", 0);
    let (mut salvaged, mut harmless) = (0, 0);
    let stop = || {
        let mut stopped = Stopped::new();
        let mut batch = puts(&BATCH, b"abandoned");
        batch.delete_range(b"a", b"c").unwrap();
        stopped.journal.0.lock().unwrap().sync_fails = Some(Error::Frozen);
        assert!(matches!(stopped.write(&batch), Err(Error::ReadOnly { .. })));
        stopped
    };
    let view = stop().set.view();
    for (at, bit) in flips(injector(view.readers().next().unwrap()).pieces()) {
        let mut stopped = stop();
        let view = stopped.set.view();
        let mut injector = injector(view.readers().next().unwrap());
        injector.flip(at, bit);
        let piece = injector.pieces()[at].clone();
        drop(injector);
        let needed = stopped.resume(&piece, (7, 13));
        (salvaged, harmless) = (salvaged + usize::from(needed), harmless + usize::from(!needed));
        let is_lost = |key: &[u8]| needed && piece.owner.as_ref().is_none_or(|owner| *owner.key == *key);
        stopped.check(is_lost);
        stopped.write(&puts(&BATCH, b"after")).unwrap();
        stopped.check(is_lost);
        assert_eq!(stopped.set.snapshot().sequence(), 19);
    }
    assert!(salvaged > 100 && harmless > 100, "{salvaged} {harmless}");
}
