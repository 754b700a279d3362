//! What `{:?}` shows of a set, a journal, and what they hand out.

use std::sync::Arc;

use paranoid_memtable::set::{
    Cover, Durability, FileJournal, FileStorage, Listener, MemTableSet, OnDamage, SalvageSummary, SetEvent,
    SetLookup, SetOptions, SourceKey, StallCause, WriteBufferManager, WriteOptions,
};
use paranoid_memtable::{ChecksumKind, Kind, WriteBatch};

use super::{Outputs, bytes, options};
use crate::support::disk::{Plan, SimDisk};

/// What a listener is told.
fn event(letter: u8) -> SetEvent {
    let told = std::sync::Arc::new(Told::default());
    let options = SetOptions::builder().listener(told.clone()).build().unwrap();
    let set = MemTableSet::open(options, ()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&bytes(letter, 0), b"").unwrap();
    set.write(&batch).unwrap();
    set.switch().unwrap();
    let events = told.0.lock().unwrap();
    events[0].clone()
}

/// Keeps what it is told.
#[derive(Default)]
struct Told(std::sync::Mutex<Vec<SetEvent>>);

impl Listener for Told {
    fn event(&self, event: &SetEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// A set, and what it hands out.
pub(super) fn sets(letter: u8, out: &mut Outputs) {
    let manager = WriteBufferManager::with_hard_cap(1 << 20, 1 << 30).unwrap();
    out.show("WriteBufferManager", &manager);
    out.show("WriteBufferStats", &manager.stats());
    out.show("StallCause", &StallCause::Pinned);
    out.show("WriteOptions", &WriteOptions::new());
    let builder = SetOptions::builder().table(options(1)).write_buffer_manager(&manager);
    out.show("SetOptionsBuilder", &builder);
    let options = builder.build().unwrap();
    out.show("SetOptions", &options);
    out.show("Durability", &Durability::Buffered);
    let set = MemTableSet::open(options, bytes(letter, 0)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&bytes(letter, 1), &bytes(letter, 2)).unwrap();
    for n in 0..if cfg!(miri) { 4 } else { 100 } {
        batch.merge(&bytes(letter, 3), &bytes(letter, n)).unwrap();
    }
    set.write(&batch).unwrap();
    out.show("MemTableSet", &set);
    out.show("Snapshot", &set.snapshot());
    out.show("SetStats", &set.stats());
    let view = set.view();
    out.show("View", &view);
    out.show("SetLookup", &view.get(&bytes(letter, 1)).unwrap());
    let SetLookup::Merge(pending) = view.get(&bytes(letter, 3)).unwrap() else { panic!("no operands") };
    out.show("PendingMerge", &pending);
    let mut cursor = view.cursor().unwrap();
    let entry = cursor.first().unwrap().unwrap();
    out.show("MergedEntry", entry);
    out.show("SourceKey", &SourceKey { user_key: entry.user_key(), sequence: 1, kind: Kind::PUT });
    out.show("Cover", &Cover { sequence: 1, span: Some((entry.user_key(), entry.value())) });
    out.show("MergingCursor", &cursor);
    out.show("SetEvent", &event(letter));
    out.show("FlushThread", &set.start_flush_thread(|job| job.install(vec![])).unwrap());
    out.show("SetRange", &view.range(..).unwrap());
    set.switch().unwrap();
    let mut job = set.begin_flush().unwrap().unwrap();
    out.show("SetFlush", &job.items().unwrap());
    out.show("FlushJob", &job);
    out.show("SalvageSummary", &SalvageSummary::default());
    let disk = Arc::new(SimDisk::new(1, Plan::default()));
    let opened = FileJournal::open_in(disk, 0, ChecksumKind::Xxh3, OnDamage::Refuse);
    let (journal, recovery) = opened.unwrap();
    out.show("FileJournal", &journal);
    out.show("JournalRecovery", &recovery);
    out.show("Replayed", &recovery.replay(|_, _| Ok(())).unwrap());
    out.show("OnDamage", &OnDamage::PassOver);
    out.show("FileStorage", &FileStorage::new("/"));
}
