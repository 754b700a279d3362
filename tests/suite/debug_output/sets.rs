//! What `{:?}` shows of a set, a journal, and what they hand out.

use std::sync::Arc;

use paranoid_memtable::set::{
    Cover, Durability, FileJournal, FileStorage, Listener, MemTableSet, RecoveryMode, SalvageSummary,
    SetEvent, SetLookup, SetOptions, SourceKey, StallCause, WriteBufferManager, WriteOptions,
};
use paranoid_memtable::{ChecksumKind, Kind, WriteBatch};

use super::uses::*;
use super::{Outputs, bytes, options, show};
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
    show!(out, "WriteBufferManager", &manager);
    show!(out, "WriteBufferStats", &manager.stats());
    show!(out, "StallCause", &StallCause::Pinned);
    show!(out, "WriteOptions", &WriteOptions::new());
    let builder = SetOptions::builder().table(options(1)).write_buffer_manager(&manager);
    show!(out, "SetOptionsBuilder", &builder);
    let options = builder.build().unwrap();
    show!(out, "SetOptions", &options);
    show!(out, "Durability", &Durability::Buffered);
    let set = MemTableSet::open(options, bytes(letter, 0)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&bytes(letter, 1), &bytes(letter, 2)).unwrap();
    for n in 0..if cfg!(miri) { 4 } else { 100 } {
        batch.merge(&bytes(letter, 3), &bytes(letter, n)).unwrap();
    }
    set.write(&batch).unwrap();
    show!(out, "MemTableSet", &set);
    show!(out, "Snapshot", &set.snapshot());
    show!(out, "SetStats", &set.stats());
    let view = set.view();
    show!(out, "View", &view);
    show!(out, "SetLookup", &view.get(&bytes(letter, 1)).unwrap());
    let SetLookup::Merge(pending) = view.get(&bytes(letter, 3)).unwrap() else { panic!("no operands") };
    show!(out, "PendingMerge", &pending);
    let mut cursor = view.cursor().unwrap();
    let entry = cursor.first().unwrap().unwrap();
    show!(out, "MergedEntry", entry);
    show!(out, "SourceKey", &SourceKey { user_key: entry.user_key(), sequence: 1, kind: Kind::PUT });
    show!(
        out,
        "Cover",
        &Cover { sequence: 1, span: Some((entry.user_key(), entry.value())), hides_own: true }
    );
    show!(out, "MergingCursor", &cursor);
    show!(out, "SetEvent", &event(letter));
    show!(out, "FlushThread", &set.start_flush_thread(|job| job.install(vec![])).unwrap());
    show!(out, "SetRange", &view.range(..).unwrap());
    set.switch().unwrap();
    let mut job = set.begin_flush().unwrap().unwrap();
    show!(out, "SetFlush", &job.items().unwrap());
    show!(out, "FlushJob", &job);
    show!(out, "SalvageSummary", &SalvageSummary::default());
    let torn = [("000001.journal".to_string(), b"torn".to_vec())].into();
    let disk = Arc::new(SimDisk::with_files(torn, 1, Plan::default()));
    let opened =
        FileJournal::open_in(disk, 0, ChecksumKind::Xxh3, RecoveryMode::TolerateCorruptedTailRecords);
    let (journal, recovery) = opened.unwrap();
    show!(out, "FileJournal", &journal);
    show!(out, "JournalRecovery", &recovery);
    let replayed = recovery.replay(|_, _| Ok(())).unwrap();
    show!(out, "Replayed", &replayed);
    show!(out, "JournalFinding", &replayed.findings[0]);
    show!(out, "FindingReason", &replayed.findings[0].reason);
    show!(out, "RecoveryMode", &RecoveryMode::SkipAnyCorrupted);
    show!(out, "FileStorage", &FileStorage::new("/"));
}
