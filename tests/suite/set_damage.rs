//! The fault campaign of a set: every bit of an immutable table flips in turn. The flush finds the
//! flip, the set is read-only with that cause, all other entries are read, a salvage returns all
//! intact entries, and another set continues over them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use paranoid_memtable::fault::{FaultInjector, Part, Piece, Region};
use paranoid_memtable::flush::{FlushItem, FlushSink, FlushSummary};
use paranoid_memtable::{Error, MemTableOptions, WriteBatch};
use paranoid_set::{Compaction, FlushJob, MemTableSet, SetOptions, View};

use crate::support::rng::{Watchdog, replay_line, seed_or};
use crate::support::sets::{History, Known, finish};

const KEYS: [&[u8]; 12] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"g",
    b"h",
    b"i",
    b"j",
    b"k",
    b"a much longer key",
];

/// Number of keys in the oldest table.
const OLDEST: usize = 9;

/// A set of three tables, and the history of all writes.
struct Setup {
    set: MemTableSet<History>,
    all: History,
}

impl Setup {
    fn write(&mut self, fill: impl FnOnce(&mut WriteBatch)) {
        let mut batch = WriteBatch::with_protection(8).unwrap();
        fill(&mut batch);
        let last = self.set.write(&batch).unwrap();
        for (entry, sequence) in batch.entries().zip(last + 1 - batch.len() as u64..) {
            let entry = entry.unwrap();
            self.all
                .insert(sequence, entry.kind(), entry.key(), entry.value());
        }
    }

    fn new() -> Self {
        let table = MemTableOptions::builder()
            .write_buffer_size(16 << 10)
            .seed(5)
            .build()
            .unwrap();
        let options = SetOptions::builder().table(table).build().unwrap();
        let set = MemTableSet::open(options, History::default()).unwrap();
        let mut setup = Setup {
            set,
            all: History::default(),
        };
        setup.write(|batch| {
            KEYS[..9].iter().for_each(|key| {
                batch
                    .put(key, [*key, b" of the first table"].concat())
                    .unwrap()
            });
            batch.delete_range(b"g", b"h").unwrap();
            batch.merge(b"c", b"operand").unwrap();
        });
        setup.set.switch().unwrap();
        setup.write(|batch| {
            batch.put(b"b", b"newer").unwrap();
            batch.delete(b"d").unwrap();
            batch.delete_range(b"e", b"f").unwrap();
            batch.merge(b"c", b"another operand").unwrap();
            batch.put(KEYS[11], b"").unwrap();
        });
        setup.set.switch().unwrap();
        setup.write(|batch| batch.put(b"k", b"active").unwrap());
        setup
    }

    /// The right state of a key.
    fn wanted(&self, key: &[u8]) -> Known {
        self.all.read(key, u64::MAX, Known::default())
    }
}

fn read(view: &View<History>, key: &[u8]) -> Result<Known, Error> {
    Ok(finish(view, key, view.get(key)?))
}

/// The role of a piece of the oldest table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hit {
    /// A part of an entry: only this entry is lost.
    Entry,
    /// A part of the way to entries: no entry is lost.
    Way,
    /// A part that decides how all is read.
    Other,
}

fn hit(piece: &Piece) -> Hit {
    match piece.region {
        Region::Header | Region::Digests | Region::Key | Region::Value => Hit::Entry,
        Region::Link | Region::BackLink | Region::Padding | Region::Free => Hit::Way,
        _ => Hit::Other,
    }
}

/// The keys that may be refused: the key of the damaged entry, and those beside it if the keys
/// between are unknown.
fn allowed(piece: &Piece) -> BTreeSet<&'static [u8]> {
    let table = &KEYS[..OLDEST];
    let own = piece.owner.as_ref().filter(|_| piece.part == Part::Points);
    let Some(at) = own.and_then(|owner| table.iter().position(|key| *key == &*owner.key)) else {
        return KEYS.into();
    };
    if piece.region == Region::Value {
        return [table[at]].into();
    }
    let (before, after) = (at.checked_sub(1).map(|at| table[at]), table.get(at + 1));
    let is_beside = |key: &&[u8]| {
        before.is_none_or(|before| before <= *key) && after.is_none_or(|after| key <= after)
    };
    KEYS.into_iter().filter(is_beside).collect()
}

/// Reads every key. Each answer must be right; returns the refused keys.
fn read_all(setup: &Setup, when: &str) -> Result<BTreeSet<&'static [u8]>, String> {
    let view = setup.set.view();
    let mut refused = BTreeSet::new();
    for key in KEYS {
        match read(&view, key) {
            Ok(known) if known == setup.wanted(key) => {}
            Ok(known) => return Err(format!("{when}: {key:?} is {known:?}")),
            Err(Error::Corruption(_)) => drop(refused.insert(key)),
            Err(error) => return Err(format!("{when}: {error}")),
        }
    }
    Ok(refused)
}

/// Ends a trial with a text if a condition does not hold.
macro_rules! ensure {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

/// Flushes a set with a flipped bit in its oldest table. Returns whether the flush met damage.
fn trial(setup: &mut Setup, piece: &Piece, control: &History) -> Result<bool, String> {
    let refused = read_all(setup, "before the flush")?;
    let allowed = allowed(piece);
    ensure!(refused.is_subset(&allowed), "{refused:?} are not read");
    let mut job = setup
        .set
        .begin_flush()
        .map_err(|error| format!("begin: {error}"))?
        .ok_or("no job")?;
    let mut flushed = History::default();
    match job.flush(&mut flushed) {
        Ok(summary) => {
            ensure!(
                flushed.points == control.points && flushed.ranges == control.ranges,
                "flushed"
            );
            ensure!(summary != FlushSummary::default(), "nothing flushed");
            return Ok(false);
        }
        Err(Error::ReadOnly { cause }) if cause.corruption().is_some() => {}
        Err(error) => return Err(format!("flush: {error}")),
    }
    let is_stopped = |error: Option<Error>| error.is_some_and(|it| it.corruption().is_some());
    ensure!(is_stopped(setup.set.read_only()), "the set takes writes");
    ensure!(
        is_stopped(setup.set.write(&WriteBatch::new()).err()),
        "a batch was taken"
    );
    let refused = read_all(setup, "after the flush")?;
    ensure!(refused.is_subset(&allowed), "{refused:?} are not read");
    salvage(setup, job, piece)?;
    Ok(true)
}

/// Salvages the tables, installs the result, and continues.
fn salvage(setup: &mut Setup, mut job: FlushJob<History>, piece: &Piece) -> Result<(), String> {
    let last = job.last_sequence();
    let mut saved = History::default();
    let summary = job
        .salvage(&mut saved)
        .map_err(|error| format!("salvage: {error}"))?;
    let written = |sequence: &u64| *sequence <= last;
    let owner = piece.owner.as_ref().filter(|_| hit(piece) == Hit::Entry);
    let is_lost = |sequence: u64| owner.is_some_and(|owner| owner.sequence == sequence);
    let all = &setup.all;
    if hit(piece) != Hit::Other {
        let points = all
            .points
            .iter()
            .filter(|((_, Reverse(number)), _)| written(number) && !is_lost(*number));
        let ranges = all
            .ranges
            .iter()
            .filter(|range| written(&range.2) && !is_lost(range.2));
        ensure!(points.eq(&saved.points), "salvaged {:?}", saved.points);
        ensure!(
            ranges
                .map(|range| range.2)
                .eq(saved.ranges.iter().map(|range| range.2)),
            "ranges"
        );
        ensure!(summary.missing == u64::from(owner.is_some()), "{summary:?}");
    }
    ensure!(
        saved
            .points
            .iter()
            .all(|entry| all.points.get(entry.0) == Some(entry.1)),
        "made up"
    );
    job.install(|_| Ok(saved))
        .map_err(|error| format!("install: {error}"))?;
    ensure!(
        setup.set.write(&WriteBatch::new()).is_err(),
        "it takes writes"
    );
    // The rest is flushed, and another set continues.
    let rest = setup.set.switch().and_then(|_| setup.set.begin_flush());
    let mut rest = rest
        .map_err(|error| format!("begin: {error}"))?
        .ok_or("no job for the rest")?;
    let mut base = History::clone(setup.set.view().base());
    rest.flush(&mut base)
        .map_err(|error| format!("the rest: {error}"))?;
    let options = SetOptions::builder()
        .last_sequence(rest.last_sequence())
        .build()
        .unwrap();
    setup.set = MemTableSet::open(options, base).unwrap();
    setup.write(|batch| batch.put(b"j", b"after").unwrap());
    let view = setup.set.view();
    for key in KEYS
        .into_iter()
        .filter(|key| owner.is_none_or(|owner| *owner.key != **key))
    {
        let known = read(&view, key).map_err(|error| format!("{key:?}: {error}"))?;
        ensure!(
            known == setup.wanted(key) || hit(piece) == Hit::Other,
            "{key:?} is {known:?}"
        );
    }
    Ok(())
}

fn injector(view: &View<History>) -> FaultInjector<'_> {
    // SAFETY: one thread uses the set, and nothing borrowed from it is held while a bit is flipped.
    #[expect(unsafe_code, reason = "breaks memory on purpose")]
    let injector = unsafe { FaultInjector::open(view.readers().next_back().unwrap()) };
    injector.unwrap()
}

/// The bits of a byte that are flipped: all of them, or in a debug build one per five bytes.
fn bits(number: u64) -> std::ops::Range<usize> {
    let bit = (number % 8) as usize;
    match (cfg!(debug_assertions), number.is_multiple_of(5)) {
        (false, _) => 0..8,
        (true, true) => bit..bit + 1,
        (true, false) => 0..0,
    }
}

/// The result of a flush of an undamaged set.
fn control() -> History {
    let mut setup = Setup::new();
    assert!(read_all(&setup, "undamaged").unwrap().is_empty());
    let mut job = setup.set.begin_flush().unwrap().unwrap();
    let mut flushed = History::default();
    job.flush(&mut flushed).unwrap();
    assert!(
        matches!(
            job.salvage(&mut History::default()),
            Err(Error::InvalidArgument(_))
        ),
        "nothing is damaged"
    );
    job.install(|_| Ok(flushed.clone())).unwrap();
    setup.write(|batch| batch.put(b"j", b"after").unwrap());
    assert!(read_all(&setup, "flushed").unwrap().is_empty());
    flushed
}

#[test]
fn every_flipped_bit_of_a_table_is_harmless_or_salvaged() {
    let test = "set_damage::every_flipped_bit_of_a_table_is_harmless_or_salvaged";
    let seed = seed_or(3);
    let _watchdog = Watchdog::new(test, seed);
    let control = control();
    let pieces = injector(&Setup::new().set.view()).pieces().to_vec();
    let (mut salvaged, mut harmless, mut number) = (0, 0, seed);
    for (at, piece) in pieces.iter().enumerate() {
        // Four bytes represent all free space.
        let bytes = if piece.region == Region::Free {
            piece.len().min(4)
        } else {
            piece.len()
        };
        for bit in (0..bytes).flat_map(|byte| {
            number += 1;
            bits(number).map(move |bit| byte * 8 + bit)
        }) {
            let mut setup = Setup::new();
            let view = setup.set.view();
            let mut injector = injector(&view);
            // One bit would heal.
            injector.flip(at, bit);
            injector.flip(at, bit ^ 1);
            match trial(&mut setup, &injector.pieces()[at].clone(), &control) {
                Ok(true) => salvaged += 1,
                Ok(false) => harmless += 1,
                Err(text) => panic!(
                    "{piece:?}, bit {bit}: {text}\nreplay: {}",
                    replay_line(test, seed)
                ),
            }
        }
    }
    println!(
        "of {} flips, {salvaged} were found by the flush and salvaged, {harmless} did no harm",
        salvaged + harmless
    );
    let floors = if cfg!(debug_assertions) {
        (100, 10)
    } else {
        (4_800, 30_000)
    };
    assert!(
        salvaged > floors.0 && harmless > floors.1,
        "{salvaged} {harmless}"
    );
}

/// Pulls up to `most` items of a set's flush.
fn pull(items: &mut Compaction<'_>, into: &mut History, most: usize) -> Result<bool, String> {
    for _ in 0..most {
        match items.next() {
            Ok(Some(FlushItem::Entry(entry))) => {
                let (key, value) = (entry.user_key, entry.value);
                let own = entry
                    .protection
                    .check(key, value, entry.sequence, entry.kind);
                ensure!(
                    own.is_some(),
                    "{}@{} is torn",
                    key.escape_ascii(),
                    entry.sequence
                );
                into.insert(entry.sequence, entry.kind, key, value);
            }
            Ok(Some(FlushItem::Fragment(fragment))) => into.fragment(fragment).unwrap(),
            Ok(None) => return Ok(true),
            Err(error) if error.corruption().is_some() => return Ok(false),
            Err(error) => return Err(format!("{error}")),
        }
    }
    Ok(false)
}

/// A bit of the oldest table flips between two calls of a pulled flush: all returned items are
/// right, and they are complete if the flush comes to its end.
#[test]
fn a_pulled_flush_returns_nothing_that_was_damaged_meanwhile() {
    let test = "set_damage::a_pulled_flush_returns_nothing_that_was_damaged_meanwhile";
    let seed = seed_or(4);
    let _watchdog = Watchdog::new(test, seed);
    let control = control();
    let setup = Setup::new();
    let view = setup.set.view();
    let mut ended = 0;
    let mut injector = injector(&view);
    let pieces = injector.pieces().to_vec();
    for (number, (at, piece)) in pieces
        .iter()
        .enumerate()
        .filter(|(_, piece)| hit(piece) == Hit::Entry)
        .enumerate()
    {
        for bit in (0..piece.len() * 8)
            .skip(number % 5)
            .step_by(if cfg!(debug_assertions) { 5 } else { 1 })
        {
            for gone in 0..=control.points.len() {
                let mut job = setup.set.begin_flush().unwrap().unwrap();
                let mut flushed = History::default();
                let mut items = job.items().unwrap();
                let trial = pull(&mut items, &mut flushed, gone).and_then(|_| {
                    injector.flip(at, bit);
                    pull(&mut items, &mut flushed, usize::MAX)
                });
                injector.undo();
                let is_whole = flushed.points == control.points && flushed.ranges == control.ranges;
                let is_right = flushed
                    .points
                    .iter()
                    .all(|entry| control.points.get(entry.0) == Some(entry.1));
                ended += usize::from(trial == Ok(true));
                assert!(
                    is_right && trial.as_ref().is_ok_and(|ended| !ended || is_whole),
                    "{piece:?} bit {bit} after {gone}: {trial:?} {:?}\nreplay: {}",
                    flushed.points,
                    replay_line(test, seed)
                );
            }
        }
    }
    assert!(ended > 0, "an entry that was handed out may be damaged");
}

/// Sets that are damaged where they stopped. The table with numbers on both sides of the stop is
/// flushed or salvaged up to the stop. Later numbers are not returned, and another set continues.
mod set_stopped_damage {
    use std::sync::Arc;

    use paranoid_memtable::fault::{FaultInjector, Piece, Region};
    use paranoid_memtable::{Error, MemTableOptions, TableReader, WriteBatch};
    use paranoid_set::{Durability, MemTableSet, SetOptions};

    use crate::support::rng::Watchdog;
    use crate::support::sets::{History, MemoryJournal, finish};

    const BEFORE: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    const BATCH: [&[u8]; 6] = [b"aa", b"b", b"bb", b"m", b"n", b"z"];

    fn options() -> MemTableOptions {
        let options = MemTableOptions::builder()
            .write_buffer_size(32 << 10)
            .seed(5);
        options.whole_key_filter(0.04).build().unwrap()
    }

    /// Puts of these keys.
    fn puts(keys: &[&[u8]], value: &[u8]) -> WriteBatch {
        let mut batch = WriteBatch::with_protection(8).unwrap();
        keys.iter().for_each(|key| batch.put(key, value).unwrap());
        batch
    }

    fn injector(table: &TableReader) -> FaultInjector<'_> {
        // SAFETY: one thread uses the table, and nothing borrowed from it is held while a bit is
        // flipped.
        #[expect(unsafe_code, reason = "breaks memory on purpose")]
        let injector = unsafe { FaultInjector::open(table) };
        injector.unwrap()
    }

    /// Every piece of such a table with the bits that are flipped in turn: one per byte, fewer in a
    /// debug build.
    fn flips(pieces: &[Piece]) -> Vec<(usize, usize)> {
        let step = if cfg!(debug_assertions) { 5 } else { 1 };
        let bits = |(at, piece): (usize, &Piece)| {
            (at % step..piece.len())
                .step_by(step)
                .map(move |byte| (at, byte * 8 + (at + byte) % 8))
        };
        let is_used = |(_, piece): &(usize, &Piece)| piece.region != Region::Free;
        pieces
            .iter()
            .enumerate()
            .filter(is_used)
            .flat_map(bits)
            .collect()
    }

    /// A set with a journal, and its acknowledged writes.
    struct Stopped {
        set: MemTableSet<History>,
        journal: MemoryJournal,
        known: History,
    }

    impl Stopped {
        fn new() -> Self {
            let journal = MemoryJournal::default();
            let options = SetOptions::builder()
                .table(options())
                .journal(Arc::new(journal.clone()));
            let set = MemTableSet::open(options.build().unwrap(), History::default()).unwrap();
            let mut stopped = Stopped {
                set,
                journal,
                known: History::default(),
            };
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
                self.known
                    .insert(sequence, entry.kind(), entry.key(), entry.value());
            }
            Ok(())
        }

        /// A view shows the acknowledged entries, or returns an error for those that it cannot
        /// show.
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

        /// Closes a set that is damaged where it stopped, flushes its table up to the stop, and
        /// opens another one. Returns whether a salvage was needed.
        fn open_again(&mut self, piece: &Piece) -> bool {
            assert_eq!(self.set.switch().unwrap(), 1);
            self.check(|_| false);
            let mut job = self
                .set
                .begin_flush()
                .unwrap()
                .expect("the closed table can be flushed");
            let mut saved = History::default();
            let is_damaged = job.flush(&mut saved).is_err();
            if is_damaged {
                assert!(self.set.write(&WriteBatch::new()).is_err());
                saved = History::default();
                job.salvage(&mut saved).unwrap();
                let owner = piece.owner.as_ref();
                let is_lost = |key: &[u8]| owner.is_none_or(|owner| *owner.key == *key);
                for (key, sequence) in self.known.points.keys() {
                    let is_saved = saved.points.contains_key(&(key.clone(), *sequence));
                    assert!(is_saved || is_lost(key), "{key:?} {piece:?}");
                }
            }
            // Only known entries that verify are returned.
            let is_known = |entry: &(&_, &_)| self.known.points.get(entry.0) == Some(entry.1);
            assert!(
                saved.points.iter().all(|entry| is_known(&entry)),
                "{saved:?}"
            );
            assert!(saved.ranges.is_subset(&self.known.ranges), "{saved:?}");
            let last = job.last_sequence();
            job.install(|_| Ok(saved)).unwrap();
            let options = SetOptions::builder().table(options()).last_sequence(last);
            let options = options
                .first_table(9)
                .journal(Arc::new(self.journal.clone()));
            let base = History::clone(self.set.view().base());
            self.set = MemTableSet::open(options.build().unwrap(), base).unwrap();
            is_damaged
        }
    }

    /// A failed sync stops a set, and its table is damaged: entries before the stop are salvaged,
    /// later ones are gone.
    #[test]
    fn a_stopped_set_that_is_damaged_is_salvaged_up_to_the_stop() {
        let _watchdog = Watchdog::new(
            "set_damage::set_stopped_damage::a_stopped_set_that_is_damaged_is_salvaged_up_to_the_stop",
            0,
        );
        let (mut salvaged, mut harmless) = (0, 0);
        let stop = || {
            let mut stopped = Stopped::new();
            let mut batch = puts(&BATCH, b"unfinished");
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
            // One bit would heal.
            injector.flip(at, bit);
            injector.flip(at, bit ^ 1);
            let piece = injector.pieces()[at].clone();
            drop(injector);
            let needed = stopped.open_again(&piece);
            (salvaged, harmless) = (
                salvaged + usize::from(needed),
                harmless + usize::from(!needed),
            );
            let is_lost =
                |key: &[u8]| needed && piece.owner.as_ref().is_none_or(|owner| *owner.key == *key);
            stopped.check(is_lost);
            stopped.write(&puts(&BATCH, b"after")).unwrap();
            stopped.check(is_lost);
            assert_eq!(stopped.set.snapshot().sequence(), 12);
        }
        assert!(salvaged > 100 && harmless > 100, "{salvaged} {harmless}");
    }
}
