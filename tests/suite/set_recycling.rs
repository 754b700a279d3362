//! Tables of a set in memory of earlier ones: what they answer, how much memory is kept and when it is let go, what keeps
//! it from being used again, and damage in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use paranoid_memtable::flush::FlushItem;
use paranoid_memtable::set::{FlushJob, MemTableSet, SetLookup, SetOptions, View, WriteBufferManager};
use paranoid_memtable::{Error, MemTableOptions, MemTableOptionsBuilder, WriteBatch};

use crate::support::rng::{Rng, amount, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

/// Bytes of the first large chunk of a table.
const CHUNK: u64 = 256 << 10;

/// What an engine has flushed: the newest value of each key.
type Files = BTreeMap<Vec<u8>, Vec<u8>>;

fn tables() -> MemTableOptionsBuilder {
    MemTableOptions::builder().write_buffer_size(CHUNK)
}

fn open(table: MemTableOptionsBuilder, arenas: u64) -> MemTableSet<Files> {
    let options = SetOptions::builder()
        .table(table.build().unwrap())
        .recycled_arenas(arenas)
        .max_write_buffer_number(u64::MAX);
    MemTableSet::open(options.build().unwrap(), Files::new()).unwrap()
}

fn key(n: u64) -> [u8; 8] {
    scramble(n).to_be_bytes()
}

/// A value that tells which one it is.
fn value(key: u64, version: u64) -> Vec<u8> {
    let seed = scramble(key << 32 | version);
    seed.to_be_bytes().repeat(2 + seed as usize % 60)
}

fn put(set: &MemTableSet<Files>, n: u64, version: u64) {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(&key(n), &value(n, version)).unwrap();
    set.write(&batch).unwrap();
}

/// The base, without the tables that a view of it would hold.
fn files(set: &MemTableSet<Files>) -> Files {
    set.view().base().as_ref().clone()
}

fn finish(mut job: FlushJob<Files>, mut files: Files) -> Result<(), Error> {
    let mut flushed: Files = BTreeMap::new();
    let mut items = job.items()?;
    while let Some(item) = items.next()? {
        let FlushItem::Entry(entry) = item else { continue };
        flushed.entry(entry.user_key.to_vec()).or_insert_with(|| entry.value.to_vec());
    }
    drop(items);
    files.append(&mut flushed);
    job.install(files)
}

/// Flushes what is sealed, and the active table too.
fn flush(set: &MemTableSet<Files>) {
    set.switch().unwrap();
    let Some(job) = set.begin_flush().unwrap() else { return };
    let files = files(set);
    finish(job, files).unwrap();
}

fn read(view: &View<Files>, n: u64) -> Result<Option<Vec<u8>>, Error> {
    Ok(match view.get(&key(n))? {
        SetLookup::Value(value) => Some(value.to_vec()),
        SetLookup::NotFound => view.base().get(key(n).as_slice()).cloned(),
        other => panic!("only values are put: {other:?}"),
    })
}

/// Puts until the active table has handed out about so many bytes.
fn fill(set: &MemTableSet<Files>, bytes: u64, version: u64) {
    let from = set.stats().visible;
    for n in from.. {
        put(set, n % 500, version);
        if set.view().readers().next().unwrap().allocated_bytes() >= bytes {
            return;
        }
    }
}

/// Entries of earlier tables never come back, although all tables have one seed, so that what is left of one would
/// verify in the next. Filters and directories find their memory zeroed as well.
#[test]
fn tables_in_recycled_memory_agree_with_a_model() {
    let seed = seed_or(1);
    let _watchdog = Watchdog::new("set_recycling::tables_in_recycled_memory_agree_with_a_model", seed);
    let mut rng = Rng::new(seed);
    let set = open(tables().seed(7).whole_key_filter(0.1), 1 + rng.below(2));
    let (mut versions, mut recycled) = (BTreeMap::new(), 0);
    for rotation in 0..amount(60, 12).clamp(12, 60) {
        for _ in 0..rng.below(2 * CHUNK / 250) {
            let (n, version) = (rng.below(2000), rng.next_u64() >> 32);
            put(&set, n, version);
            versions.insert(n, version);
        }
        let view = set.view();
        for (n, version) in &versions {
            assert_eq!(read(&view, *n).unwrap(), Some(value(*n, *version)), "{n}");
        }
        for table in view.readers() {
            let report = table.scrub(|_| {});
            assert!(report.findings.is_empty(), "rotation {rotation}: {:?}", report.findings);
        }
        drop(view);
        let before = set.stats().recycled_bytes;
        flush(&set);
        recycled += u64::from(before < set.stats().recycled_bytes);
    }
    assert!(recycled > 5, "{recycled}, {}", replay_line("set_recycling::tables_in", seed));
}

/// At most so many arenas are kept, none of them outlives its set, and none is kept for nobody.
#[test]
fn what_is_kept_is_bounded_and_let_go_with_the_set() {
    let _watchdog = Watchdog::new("set_recycling::what_is_kept_is_bounded_and_let_go_with_the_set", 0);
    let manager = WriteBufferManager::new(64 << 20).unwrap();
    for arenas in [0, 1, 3] {
        let options = SetOptions::builder().table(tables().build().unwrap()).write_buffer_manager(&manager);
        let options = options.max_write_buffer_number(u64::MAX);
        let set = MemTableSet::open(options.recycled_arenas(arenas).build().unwrap(), Files::new()).unwrap();
        for version in 0..6 {
            fill(&set, CHUNK / 2, version);
            set.switch().unwrap();
        }
        fill(&set, CHUNK / 2, 6);
        flush(&set);
        for version in 7..9 {
            assert_eq!(set.stats().recycled_bytes, arenas * CHUNK);
            assert_eq!((manager.stats().recycled_bytes, manager.stats().pinned_bytes), (arenas * CHUNK, 0));
            fill(&set, CHUNK / 2, version);
            assert_eq!(set.stats().recycled_bytes, arenas.saturating_sub(1) * CHUNK, "the table took one");
            flush(&set);
        }
        fill(&set, CHUNK / 2, 9);
        let view = set.view();
        drop(set);
        assert!(manager.stats().pinned_bytes > 0);
        assert_eq!((manager.stats().sets, manager.stats().recycled_bytes), (0, 0));
        drop(view);
        assert_eq!(manager.stats(), WriteBufferManager::new(1).unwrap().stats());
    }
}

/// The memory of a pinned value is not used again while it is pinned.
#[test]
fn pinned_memory_is_not_recycled() {
    let _watchdog = Watchdog::new("set_recycling::pinned_memory_is_not_recycled", 0);
    let set = open(tables(), 4);
    put(&set, 1000, 0);
    fill(&set, CHUNK / 2, 0);
    let view = set.view();
    let SetLookup::Value(found) = view.get(&key(1000)).unwrap() else { panic!("it was put") };
    let pinned = found.to_pinned();
    drop(view);
    for version in 1..6 {
        flush(&set);
        assert_eq!(set.stats().recycled_bytes, if version == 1 { 0 } else { CHUNK });
        fill(&set, CHUNK / 2, version);
        assert_eq!(*pinned, *value(1000, 0));
    }
    assert_eq!(set.stats().recycled_bytes, 0);
    drop(pinned);
    assert_eq!(set.stats().recycled_bytes, CHUNK, "kept, although its last owner was a reader");
    flush(&set);
    assert_eq!(set.stats().recycled_bytes, 2 * CHUNK);
}

/// Writers, readers that keep values of flushed tables, and a flush thread.
#[test]
fn threads_find_what_was_written() {
    let seed = seed_or(2);
    let _watchdog = Watchdog::new("set_recycling::threads_find_what_was_written", seed);
    let options = SetOptions::builder().table(tables().seed(9).build().unwrap()).max_write_buffer_number(3);
    let set = MemTableSet::open(options.recycled_arenas(2).build().unwrap(), Files::new()).unwrap();
    let view_of = set.clone();
    let thread = set
        .start_flush_thread(move |job| {
            let files = files(&view_of);
            finish(job, files)
        })
        .unwrap();
    let is_over = AtomicBool::new(false);
    let rounds = amount(12_000, 1_500).max(50);
    scope(|scope| {
        let writers = [0, 1].map(|writer| {
            let set = &set;
            scope.spawn(move || (1..=rounds).for_each(|round| put(set, writer * 50 + round % 50, round)))
        });
        let (set, is_over) = (&set, &is_over);
        let reader = scope.spawn(move || {
            let (mut rng, mut kept) = (Rng::new(seed), vec![]);
            while !is_over.load(Ordering::Relaxed) {
                let (n, view) = (rng.below(100), set.view());
                if let SetLookup::Value(value) = view.get(&key(n)).unwrap() {
                    kept.push((n, value.to_pinned()));
                }
                if kept.len() > 20 {
                    let (n, held) = kept.swap_remove(rng.index(kept.len()));
                    let is_a_value = (1..=rounds).any(|round| *value(n, round) == *held);
                    assert!(is_a_value, "{n}, {}", replay_line("set_recycling::threads", seed));
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    thread.close().unwrap();
    let view = set.view();
    for n in 0..100 {
        let last = (1..=rounds).rev().find(|round| round % 50 == n % 50).unwrap();
        assert_eq!(read(&view, n).unwrap(), Some(value(n, last)));
    }
}

/// Arenas are not recycled where a budget could not be kept, and not where there are none.
#[test]
fn what_cannot_be_recycled_is_refused() {
    let small = MemTableOptions::builder().write_buffer_size(64 << 10).build().unwrap();
    let capped = WriteBufferManager::with_hard_cap(1 << 20, 2 << 20).unwrap();
    let free = WriteBufferManager::new(1 << 20).unwrap();
    let refused = [
        SetOptions::builder().table(small.clone()).recycled_arenas(1),
        SetOptions::builder().write_buffer_manager(&capped).recycled_arenas(1),
    ];
    for options in refused {
        assert!(matches!(options.build(), Err(Error::InvalidArgument(_))));
    }
    let taken = [
        SetOptions::builder().table(small).recycled_arenas(0),
        SetOptions::builder().write_buffer_manager(&capped),
        SetOptions::builder().write_buffer_manager(&free).recycled_arenas(9),
    ];
    assert!(taken.into_iter().all(|options| options.build().is_ok()));
}

/// A bit that flips in recycled memory, before or after an entry is put there, hides nothing: reads are right or refused.
#[cfg(feature = "fault-injection")]
#[test]
fn damage_in_recycled_memory_is_noticed() {
    use std::collections::BTreeSet;

    use paranoid_memtable::fault::{FaultInjector, Region};
    let seed = seed_or(3);
    let _watchdog = Watchdog::new("set_recycling::damage_in_recycled_memory_is_noticed", seed);
    let mut rng = Rng::new(seed);
    let (mut met, mut free) = (0, 0);
    for _ in 0..amount(400, 40).max(10) {
        let set = open(tables().seed(7).whole_key_filter(0.1), 1);
        fill(&set, CHUNK / 2, 0);
        flush(&set);
        fill(&set, CHUNK / 2, 1);
        assert_eq!((set.stats().recycled_bytes, set.switch().unwrap()), (CHUNK, 1));
        assert_eq!(set.stats().recycled_bytes, 0, "the active table has it");
        (0..30).for_each(|n| put(&set, n, 2));
        let view = set.view();
        // SAFETY: one thread, and nothing borrowed from the table is held.
        #[expect(unsafe_code, reason = "breaks memory on purpose")]
        let injector = unsafe { FaultInjector::open(view.readers().next().unwrap()) };
        let mut injector = injector.unwrap();
        let regions: BTreeSet<Region> = injector.pieces().iter().map(|piece| piece.region).collect();
        let region = *rng.pick(&Vec::from_iter(regions));
        let pieces = injector.pieces().iter().enumerate().filter(|(_, piece)| piece.region == region);
        let pieces: Vec<usize> = pieces.map(|(at, _)| at).collect();
        let piece = *rng.pick(&pieces);
        injector.flip(piece, rng.index(8 * injector.pieces()[piece].len()));
        drop(injector);
        drop(view);
        let mut last = 2;
        for n in 0..30 {
            let mut batch = WriteBatch::with_protection(8).unwrap();
            batch.put(&key(n), &value(n, 3)).unwrap();
            match set.write(&batch) {
                Ok(_) => last = 3,
                Err(Error::ReadOnly { .. } | Error::Corruption(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let view = set.view();
        let found: Vec<_> = (0..30).map(|n| read(&view, n)).collect();
        for (n, found) in found.iter().enumerate() {
            match found {
                Ok(found) => {
                    let expected = [2, last].map(|version| Some(value(n as u64, version)));
                    assert!(
                        expected.contains(found),
                        "{n} after {region:?}, {}",
                        replay_line("set_recycling::damage", seed)
                    );
                }
                Err(error) => {
                    assert!(error.corruption().is_some(), "{error}");
                    met += 1;
                }
            }
        }
        free += u64::from(region == Region::Free);
    }
    assert!(met > 0 && free > 0, "{met} refused, {free} in free memory");
}
