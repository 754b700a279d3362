//! Reads of a set: entries and cursors over its tables and the base, compared with one ordered
//! history.

/// A set, compared with one ordered history: random batches, snapshots, kept views, switches,
/// flushes that fail or end, and recoveries of the journal.
mod set_model {
    use std::sync::Arc;

    use paranoid_memtable::flush::{FlushEntry, FlushItem, FlushSink, SinkError};
    use paranoid_memtable::scan::SortedSource;
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{Bytewise, Error, Kind, MemTableOptions, WriteBatch};
    use paranoid_set::{Compaction, Durability, MemTableSet, SetOptions, Snapshot, View};

    use super::set_scans::walk;
    use crate::support::rng::{Rng, Watchdog, amount_or_few, replay_line, seed_or};
    use crate::support::sets::{
        History, HistorySource, Known, MemoryJournal, finish, read_through,
    };

    const KEYS: u64 = 40;

    fn key(n: u64) -> Vec<u8> {
        format!("k{n:02}").into_bytes()
    }

    /// An empty range as in RocksDB's log: it takes a number and has no other effect.
    fn empty_range() -> WriteBatch {
        WriteBatch::from_bytes(b"\0\0\0\0\0\0\0\0\x01\0\0\0\x0f\x01x\x01x").unwrap()
    }

    /// A set, and its right answers.
    struct Trial {
        rng: Rng,
        set: MemTableSet<History>,
        journal: Option<MemoryJournal>,
        /// All writes.
        all: History,
        last: u64,
        /// The last number in the base.
        flushed: u64,
        /// Whether every batch is written with a durability that puts all of it into the journal.
        is_logged: bool,
        /// The last number that the journal does not have.
        unlogged: u64,
        kills: u64,
        snapshots: Vec<Snapshot>,
        views: Vec<View<History>>,
    }

    fn tables(rng: &mut Rng) -> MemTableOptions {
        let builder = MemTableOptions::builder().seed(rng.next_u64());
        builder
            .write_buffer_size(*rng.pick(&[20 << 10, 64 << 10, 300 << 10]))
            .build()
            .unwrap()
    }

    impl Trial {
        fn new(mut rng: Rng) -> Trial {
            let journal = rng.one_in(2).then(MemoryJournal::default);
            let mut options = SetOptions::builder()
                .table(tables(&mut rng))
                .max_write_buffer_number(u64::MAX);
            if let Some(journal) = &journal {
                options = options.journal(Arc::new(journal.clone()));
            }
            let set = MemTableSet::open(options.build().unwrap(), History::default()).unwrap();
            let (all, snapshots, views) = (History::default(), vec![], vec![]);
            let is_logged = journal.is_some() && rng.one_in(2);
            Trial {
                rng,
                set,
                journal,
                all,
                last: 0,
                flushed: 0,
                is_logged,
                unlogged: 0,
                kills: 0,
                snapshots,
                views,
            }
        }

        /// Adds one entry to the batch and to the history.
        fn draw(&mut self, batch: &mut WriteBatch, sequence: u64) {
            let (key, value) = (key(self.rng.below(KEYS)), self.rng.bytes(5));
            let kind = *self.rng.pick(&[
                Kind::PUT,
                Kind::PUT,
                Kind::PUT,
                Kind::DELETE,
                Kind::MERGE,
                Kind::RANGE_DELETE,
            ]);
            let value = match kind {
                Kind::DELETE => vec![],
                Kind::RANGE_DELETE => {
                    [key.as_slice(), &[b'a'; 2][..self.rng.index(2) + 1]].concat()
                }
                _ => value,
            };
            // Now and then over many keys.
            let value = if kind == Kind::RANGE_DELETE && self.rng.one_in(4) {
                b"k3".to_vec()
            } else {
                value
            };
            if kind == Kind::RANGE_DELETE && key >= value {
                batch.append(&empty_range()).unwrap();
                return;
            }
            let holds = |ranges: &History| {
                ranges
                    .ranges
                    .iter()
                    .any(|range| range.0 == key && range.2 == sequence)
            };
            if self
                .all
                .points
                .contains_key(&(key.clone(), std::cmp::Reverse(sequence)))
                || holds(&self.all)
            {
                return;
            }
            batch.insert(kind, &key, &value).unwrap();
            self.all.insert(sequence, kind, &key, &value);
        }

        fn write(&mut self) {
            let mut batch = WriteBatch::with_protection(*self.rng.pick(&[0, 8])).unwrap();
            for _ in 0..*self.rng.pick(&[0, 1, 1, 2, 3, 4, 5]) {
                let sequence = self.last + batch.len() as u64 + 1;
                self.draw(&mut batch, sequence);
            }
            self.last += batch.len() as u64;
            let durability = match (self.journal.is_some(), self.rng.below(10)) {
                (true, 0) if !self.is_logged => Durability::None,
                (true, 0..6) => Durability::Buffered,
                (true, _) => Durability::Synced,
                (false, _) => Durability::None,
            };
            if durability == Durability::None && !batch.is_empty() {
                self.unlogged = self.last;
            }
            let by_kind = self.rng.one_in(2);
            let single = if by_kind && batch.len() == 1 {
                self.write_single(&batch)
            } else {
                None
            };
            let written = single.unwrap_or_else(|| self.set.write_with(&batch, durability));
            assert_eq!(written.unwrap(), self.last);
        }

        /// Writes a batch of one by the call for its kind, unless it is an empty range.
        fn write_single(&self, batch: &WriteBatch) -> Option<Result<u64, Error>> {
            let entry = batch.entries().next().expect("one entry").unwrap();
            let (key, value) = (entry.key(), entry.value());
            let written = match entry.kind() {
                Kind::PUT => self.set.put(key, value),
                Kind::DELETE => self.set.delete(key),
                Kind::MERGE => self.set.merge(key, value),
                _ if key < value => self.set.delete_range(key, value),
                _ => return None,
            };
            Some(written)
        }

        /// Compares every key through one view.
        fn check(&mut self, view: &View<History>) {
            let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
            walk(view, &self.all, &keys, &mut self.rng);
            for (key, found) in keys.iter().zip(view.multi_get(&keys)) {
                let expected = self.all.read(key, view.sequence(), Known::default());
                assert_eq!(
                    read_through(view, key),
                    expected,
                    "{key:?} at {}",
                    view.sequence()
                );
                assert_eq!(
                    finish(view, key, found.unwrap()),
                    expected,
                    "{key:?} at {}",
                    view.sequence()
                );
            }
        }

        fn look(&mut self) {
            let view = self.set.view();
            assert_eq!(view.sequence(), self.last, "all writes have returned");
            self.check(&view);
            if let Some(snapshot) = self
                .snapshots
                .get(self.rng.index(self.snapshots.len().max(1)))
            {
                let view = self.set.view_at(snapshot).unwrap();
                assert_eq!(view.sequence(), snapshot.sequence());
                self.check(&view);
            }
            if let Some(view) = self.views.get(self.rng.index(self.views.len().max(1))) {
                self.check(&view.clone());
            }
        }

        fn keep_or_drop(&mut self) {
            match self.rng.below(4) {
                0 => self.snapshots.push(self.set.snapshot()),
                1 => self.views.push(self.set.view()),
                2 if !self.snapshots.is_empty() => {
                    drop(
                        self.snapshots
                            .swap_remove(self.rng.index(self.snapshots.len())),
                    );
                }
                3 if !self.views.is_empty() => {
                    drop(self.views.swap_remove(self.rng.index(self.views.len())))
                }
                _ => {}
            }
        }

        /// A failed sync: the batch is never seen or flushed and hides nothing. The visible entries
        /// are flushed, and a new set continues over them.
        fn stop(&mut self) {
            let Some(journal) = self.journal.clone() else {
                return;
            };
            journal.0.lock().unwrap().sync_fails = Some(Error::Frozen);
            let mut batch = WriteBatch::new();
            for _ in 0..1 + self.rng.below(3) {
                let key = key(self.rng.below(KEYS));
                let added = match self.rng.below(4) {
                    0 => batch.delete(&key),
                    1 => batch.merge(&key, b"abandoned"),
                    2 => batch.delete_range(&key, b"k9"),
                    _ => batch.put(&key, b"abandoned"),
                };
                added.unwrap();
            }
            let refused = self.set.write_with(&batch, Durability::Synced);
            assert!(
                matches!(refused, Err(Error::ReadOnly { cause }) if matches!(*cause, Error::Frozen))
            );
            assert!(matches!(
                self.set.write(&batch),
                Err(Error::ReadOnly { .. })
            ));
            self.look();
            self.set.switch().unwrap();
            self.look();
            let mut base = History::clone(self.set.view().base());
            let mut job = self.set.begin_flush().unwrap();
            if let Some(job) = &mut job {
                job.flush(&mut base).unwrap();
                self.flushed = job.last_sequence();
            }
            job.map_or(Ok(()), |job| job.install(|_| Ok(base))).unwrap();
            assert_eq!(
                (
                    self.set.view().readers().count(),
                    self.set.view().sequence()
                ),
                (1, self.last)
            );
            self.look();
            // The batch was not acknowledged; it may be in the journal.
            journal.0.lock().unwrap().batches.clear();
            self.flushed = self.last;
            self.kill();
        }

        fn flush(&mut self) {
            let Some(mut job) = self.set.begin_flush().unwrap() else {
                assert_eq!(self.set.view().readers().count(), 1);
                return;
            };
            assert!(
                self.set.begin_flush().unwrap().is_none(),
                "one job at a time"
            );
            let mut base = History::clone(self.set.view().base());
            if self.rng.one_in(3) {
                let failed = job.flush(&mut Failing(self.rng.below(10)));
                assert!(matches!(failed, Ok(_) | Err(Error::Sink(_))));
            }
            if self.rng.one_in(4) {
                drop(job);
                return;
            }
            let (last, flushed) = (job.last_sequence(), job.tables());
            if self.rng.one_in(2) {
                job.flush(&mut base).unwrap();
            } else {
                let mut items = job.items().unwrap();
                while let Some(item) = items.next().unwrap() {
                    match item {
                        FlushItem::Entry(entry) => base.entry(entry).unwrap(),
                        FlushItem::Fragment(fragment) => base.fragment(fragment).unwrap(),
                    }
                }
            }
            assert!(last <= self.last);
            self.flushed = last;
            let before = self.set.view().readers().count();
            if let Some(journal) = self.journal.as_ref().filter(|_| self.rng.one_in(3)) {
                journal.0.lock().unwrap().removal_fails = Some(Error::Frozen);
            }
            job.install(|_| Ok(base)).unwrap();
            assert_eq!(self.set.view().readers().count(), before - flushed);
        }

        /// A compaction of the base, beside any views and snapshots. Now and then it fails, or ends
        /// during a flush.
        fn compact(&mut self) {
            let job = if self.rng.one_in(3) {
                self.set.begin_flush().unwrap()
            } else {
                None
            };
            let view = self.set.view();
            let mut wanted: Vec<u64> = self.snapshots.iter().map(Snapshot::sequence).collect();
            wanted.sort_unstable();
            wanted.dedup();
            assert_eq!(self.set.snapshots(), wanted);
            let sources: Vec<Box<dyn SortedSource>> =
                vec![Box::new(HistorySource::new(view.base()))];
            let mut merge = Compaction::over(Arc::new(Bytewise), &self.set.snapshots(), sources);
            if self.rng.one_in(2) {
                merge = merge.to_lowest_level();
            }
            let mut base = History::default();
            merge.pass_to(&mut base).unwrap();
            if self.rng.one_in(4) {
                let failed = self.set.replace_base(|_| Err(Error::Frozen));
                assert!(
                    matches!(failed, Err(Error::Frozen))
                        && Arc::ptr_eq(self.set.view().base(), view.base())
                );
            }
            self.set.replace_base(|_| Ok(base)).unwrap();
            if let Some(mut job) = job {
                let mut flushed = History::default();
                job.flush(&mut flushed).unwrap();
                self.flushed = job.last_sequence();
                job.install(|base| {
                    flushed.points.extend(base.points.clone());
                    flushed.ranges.extend(base.ranges.clone());
                    Ok(flushed)
                })
                .unwrap();
            }
        }

        /// A kill, if the journal and the base have everything: a new set over both has the state
        /// of the old one, and continues.
        fn kill(&mut self) {
            let Some(journal) = self
                .journal
                .clone()
                .filter(|_| self.unlogged <= self.flushed)
            else {
                return;
            };
            let base = History::clone(self.set.view().base());
            self.snapshots.clear();
            self.views.clear();
            let first = journal.0.lock().unwrap().table + 1;
            let options = SetOptions::builder()
                .table(tables(&mut self.rng))
                .journal(Arc::new(journal.clone()));
            let options = options.first_table(first).last_sequence(self.flushed);
            let options = options.max_write_buffer_number(u64::MAX).build().unwrap();
            self.set = MemTableSet::open(options, base).unwrap();
            for batch in journal
                .recovered()
                .into_iter()
                .filter(|batch| batch.sequence() > self.flushed)
            {
                self.set.replay(&batch).unwrap();
            }
            self.kills += 1;
            self.look();
        }
    }

    /// A sink that takes this many items and then fails.
    struct Failing(u64);

    impl Failing {
        fn take(&mut self) -> Result<(), SinkError> {
            self.0 = self.0.checked_sub(1).ok_or("the disk is full")?;
            Ok(())
        }
    }

    impl FlushSink for Failing {
        fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
            self.take()
        }
        fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
            self.take()
        }
    }

    /// Runs a trial. One in `looks` of the possible comparisons of everything is made. Returns how
    /// often a set was killed.
    fn run(seed: u64, operations: u64, looks: u64) -> u64 {
        let mut trial = Trial::new(Rng::new(seed));
        for _ in 0..operations {
            match trial.rng.below(20) {
                0..12 => trial.write(),
                12..15 => trial.keep_or_drop(),
                15 => drop(trial.set.switch().unwrap()),
                16 if trial.rng.one_in(2) => trial.compact(),
                16 => trial.flush(),
                17 if trial.rng.one_in(4) => trial.stop(),
                18 if trial.rng.one_in(4) => trial.kill(),
                _ if trial.rng.one_in(looks) => trial.look(),
                _ => trial.write(),
            }
        }
        trial.look();
        trial.kill();
        trial.kills
    }

    #[test]
    fn a_set_is_its_history() {
        let test = "set_reads::set_model::a_set_is_its_history";
        let seed = seed_or(0x5e7);
        // A million operations in an optimised build, most of them with few comparisons: two thirds
        // of a minute.
        let (rounds, mut kills) = (amount_or_few(6_700, 5, 1), 0);
        for round in 0..rounds {
            let seed = seed.wrapping_add(round);
            let _watchdog = Watchdog::new(test, seed);
            println!("{}", replay_line(test, seed));
            kills += run(
                seed,
                if cfg!(miri) { 12 } else { 150 },
                if round < 400 { 1 } else { 12 },
            );
        }
        println!("{kills} kills");
        assert!(kills >= rounds / 3, "hardly a set was killed");
    }

    #[test]
    fn snapshots_of_other_sets_and_journals_that_are_missing_are_refused() {
        let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
        let other = MemTableSet::open(SetOptions::default(), ()).unwrap();
        assert!(matches!(
            set.view_at(&other.snapshot()),
            Err(Error::InvalidArgument(_))
        ));
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v").unwrap();
        for durability in [Durability::Buffered, Durability::Synced] {
            assert!(matches!(
                set.write_with(&batch, durability),
                Err(Error::InvalidArgument(_))
            ));
        }
        let short = MemTableOptions::builder().key_len_max(3).build().unwrap();
        let short =
            MemTableSet::open(SetOptions::builder().table(short).build().unwrap(), ()).unwrap();
        let mut long = WriteBatch::new();
        long.put(b"long", b"").unwrap();
        assert!(matches!(
            short.write(&long),
            Err(Error::KeyTooLarge { len: 4, max: 3 })
        ));
        assert_eq!(
            short.write(&batch).unwrap(),
            1,
            "a refused batch takes no number"
        );
        let options = SetOptions::builder()
            .last_sequence((1 << 56) - 2)
            .build()
            .unwrap();
        let set = MemTableSet::open(options, ()).unwrap();
        assert_eq!(set.write(&batch).unwrap(), (1 << 56) - 1);
        assert!(
            matches!(set.write(&batch), Err(Error::InvalidArgument(_))),
            "numbers end there"
        );
        assert!(set.read_only().is_none());
    }

    /// A batch that is larger than the write buffer gets a table of its own; one that fits no table
    /// is refused, and changes nothing.
    #[test]
    fn large_batches_have_tables_of_their_own() {
        // Miri takes a second for the bytes of a few pages.
        let unit = if cfg!(miri) { 1 << 6 } else { 1 << 10 };
        let tables = MemTableOptions::builder()
            .write_buffer_size(64 * unit)
            .hard_limit(1024 * unit)
            .build()
            .unwrap();
        let set =
            MemTableSet::open(SetOptions::builder().table(tables).build().unwrap(), ()).unwrap();
        let batch_of = |bytes: u64| {
            let mut batch = WriteBatch::new();
            batch.put(b"k", vec![7; bytes as usize]).unwrap();
            batch
        };
        set.write(&batch_of(10)).unwrap();
        set.write(&batch_of(900 * unit)).unwrap();
        let tables = set.view().readers().count();
        set.write(&batch_of(900 * unit)).unwrap();
        assert!(set.view().readers().count() > tables);
        let tables = set.view().readers().count();
        assert!(matches!(
            set.write(&batch_of(2048 * unit)),
            Err(Error::MemTableFull { .. })
        ));
        assert_eq!(set.view().readers().count(), tables);
        assert_eq!(set.write(&batch_of(10)).unwrap(), 4, "no number was taken");
    }

    /// A batch of empty ranges alone takes their numbers, as in RocksDB, and leaves an empty table
    /// empty.
    #[test]
    fn empty_ranges_alone_take_numbers() {
        let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
        let mut batch = empty_range();
        assert_eq!(
            (
                set.write(&batch).unwrap(),
                set.view().sequence(),
                set.switch().unwrap()
            ),
            (1, 1, 0)
        );
        batch.set_sequence(5);
        assert_eq!(set.replay(&batch).unwrap(), 5);
        batch.append(&empty_range()).unwrap();
        assert_eq!(set.write(&batch).unwrap(), 7);
        assert_eq!(set.write(&WriteBatch::new()).unwrap(), 7);
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v").unwrap();
        assert_eq!(
            (
                set.write(&batch).unwrap(),
                set.stats().entries,
                set.switch().unwrap()
            ),
            (8, 1, 1)
        );
    }

    /// Replayed batches are only in the old journals, which stay until all of the replay's tables
    /// are flushed.
    #[test]
    fn old_journals_outlive_every_replayed_table() {
        let journal = MemoryJournal::default();
        journal
            .0
            .lock()
            .unwrap()
            .batches
            .insert(1, vec![b"of an earlier set".to_vec()]);
        journal.0.lock().unwrap().table = 1;
        let options = SetOptions::builder()
            .journal(Arc::new(journal.clone()))
            .first_table(2)
            .build()
            .unwrap();
        let set = MemTableSet::open(options, History::default()).unwrap();
        for first in 1..=3 {
            let mut batch = WriteBatch::new();
            batch.put(key(first), b"v").unwrap();
            batch.set_sequence(first);
            set.replay(&batch).unwrap();
            if first < 3 {
                set.switch().unwrap();
            }
        }
        for is_kept in [true, false] {
            let mut job = set.begin_flush().unwrap().unwrap();
            let mut base = History::clone(set.view().base());
            job.flush(&mut base).unwrap();
            job.install(|_| Ok(base)).unwrap();
            assert_eq!(journal.0.lock().unwrap().batches.contains_key(&1), is_kept);
            set.switch().unwrap();
        }
    }

    /// A version under a range tombstone of a flushed table is flushed only for a snapshot between
    /// the two.
    #[test]
    fn what_range_tombstones_cover_is_left_out_of_a_flush() {
        for (snapshots, wanted) in [(0, vec![6, 5]), (1, vec![6, 1, 5, 2])] {
            let set = MemTableSet::open(SetOptions::default(), History::default()).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(b"a", b"1").unwrap();
            batch.put(b"b", b"2").unwrap();
            set.write(&batch).unwrap();
            set.switch().unwrap();
            let kept: Vec<Snapshot> = (0..snapshots).map(|_| set.snapshot()).collect();
            batch.clear();
            batch.put(b"bb", b"3").unwrap();
            batch.delete_range(b"a", b"c").unwrap();
            batch.put(b"b", b"5").unwrap();
            batch.merge(b"a", b"6").unwrap();
            set.write(&batch).unwrap();
            set.switch().unwrap();
            let mut job = set.begin_flush().unwrap().unwrap();
            let mut flushed = History::default();
            let summary = job.flush(&mut flushed).unwrap();
            let numbers: Vec<u64> = flushed
                .points
                .keys()
                .map(|(_, sequence)| sequence.0)
                .collect();
            assert_eq!(numbers, wanted, "{} snapshots", kept.len());
            assert_eq!(
                (summary.entries + summary.hidden, flushed.ranges.len()),
                (5, 1)
            );
        }
    }
}

/// Cursors over the tables of a set and the base below them. They agree with the history, in any
/// order of moves. Over damaged tables they show right entries, or an error first.
pub(crate) mod set_scans {
    use std::ops::Bound;
    use std::task::{Context, Poll, Waker};

    use paranoid_memtable::read::Base;
    use paranoid_memtable::{Error, Kind, WriteBatch};
    use paranoid_set::{MemTableSet, MergedEntry, MergingCursor, SetOptions, View};

    use crate::support::orders::CaseBlind;
    use crate::support::rng::Rng;
    use crate::support::set_under;
    use crate::support::sets::{History, HistorySource, Known};

    /// The right rows of a cursor: keys in order, each with its known state.
    type Rows = Vec<(Vec<u8>, Known)>;

    fn rows(all: &History, keys: &[Vec<u8>], sequence: u64) -> Rows {
        let known = |key: &Vec<u8>| (key.clone(), all.read(key, sequence, Known::default()));
        let is_shown = |row: &(Vec<u8>, Known)| row.1.value.is_some() || !row.1.operands.is_empty();
        keys.iter().map(known).filter(is_shown).collect()
    }

    pub(crate) fn row(entry: &MergedEntry) -> (Vec<u8>, Known) {
        let value = match (entry.operands(), entry.base()) {
            ([], _) => Some(entry.value().to_vec()),
            (_, Base::Value(value)) => Some(value.to_vec()),
            _ => None,
        };
        (
            entry.user_key().to_vec(),
            Known {
                operands: entry.operands().to_vec(),
                value,
            },
        )
    }

    /// Moves a cursor over a view and its base at random. `keys` ascend.
    pub(crate) fn walk(view: &View<History>, all: &History, keys: &[Vec<u8>], rng: &mut Rng) {
        let rows = rows(all, keys, view.sequence());
        let mut cursor = view
            .merging_cursor(vec![Box::new(HistorySource::new(view.base()))])
            .unwrap();
        let mut at: Option<usize> = None;
        for _ in 0..40 {
            let key = rng.pick(keys);
            let (moved, to) = match rng.below(10) {
                0 => (cursor.first(), Some(0)),
                1 => (cursor.last(), rows.len().checked_sub(1)),
                2 => (
                    cursor.seek(key),
                    Some(rows.partition_point(|row| row.0 < *key)),
                ),
                3 => (
                    cursor.seek_for_prev(key),
                    rows.partition_point(|row| row.0 <= *key).checked_sub(1),
                ),
                4..7 => (cursor.prev(), at.and_then(|at| at.checked_sub(1))),
                _ => (cursor.next(), at.map(|at| at + 1)),
            };
            at = to.filter(|to| *to < rows.len());
            assert_eq!(
                moved.unwrap().map(row),
                at.map(|at| rows[at].clone()),
                "at {}",
                view.sequence()
            );
            assert_eq!(cursor.entry().map(row), at.map(|at| rows[at].clone()));
        }
        bounded(view, &rows, keys, rng);
    }

    /// Keys that compare equal may differ in bytes: a key has the bytes of its newest version, from
    /// either direction.
    #[test]
    fn a_key_is_that_of_its_newest_version() {
        let set = MemTableSet::open(set_under(CaseBlind), ()).unwrap();
        let write = |key: &[u8], kind| {
            let mut batch = WriteBatch::new();
            batch.insert(kind, key, b"1").unwrap();
            set.write(&batch).unwrap()
        };
        write(b"a", Kind::PUT);
        write(b"key", Kind::PUT);
        set.switch().unwrap();
        write(b"Key", Kind::MERGE);
        write(b"KEY", Kind::MERGE);
        set.switch().unwrap();
        let view = set.view();
        write(b"kEY", Kind::PUT);
        for (view, shown) in [(view, b"KEY"), (set.view(), b"kEY")] {
            let mut cursor = view.cursor().unwrap();
            let name = |moved: paranoid_memtable::Result<Option<&MergedEntry>>| {
                moved.unwrap().map(|entry| entry.user_key().to_vec())
            };
            let names = [
                name(cursor.last()),
                name(cursor.prev()),
                name(cursor.next()),
                name(cursor.seek_for_prev(b"kez")),
            ];
            assert_eq!(
                names,
                [&shown[..], b"a", shown, shown].map(|name| Some(name.to_vec()))
            );
        }
    }

    /// Whole scans between two bounds, both ways.
    fn bounded(view: &View<History>, rows: &Rows, keys: &[Vec<u8>], rng: &mut Rng) {
        let mut draw = || {
            let key = rng.pick(keys).as_slice();
            *rng.pick(&[Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)])
        };
        let (lower, upper) = (draw(), draw());
        let is_inside = |row: &&(Vec<u8>, Known)| {
            let (after, before) = (row.0.as_slice(), row.0.as_slice());
            let from = match lower {
                Bound::Unbounded => true,
                Bound::Included(key) => after >= key,
                Bound::Excluded(key) => after > key,
            };
            from && match upper {
                Bound::Unbounded => true,
                Bound::Included(key) => before <= key,
                Bound::Excluded(key) => before < key,
            }
        };
        let expected: Rows = rows.iter().filter(is_inside).cloned().collect();
        let sources = || HistorySource::new(view.base());
        let cursor = || {
            view.merging_cursor(vec![Box::new(sources())])
                .unwrap()
                .with_bounds((lower, upper))
        };
        let mut backward = all_of(&mut cursor(), Way::Backward).0;
        backward.reverse();
        assert_eq!(
            all_of(&mut cursor(), Way::Forward).0,
            expected,
            "{lower:?} to {upper:?}"
        );
        assert_eq!(backward, expected, "{lower:?} to {upper:?}");
        let ascending: Rows = cursor()
            .ascending()
            .map(|entry| row(&entry.unwrap()))
            .collect();
        let mut descending: Rows = cursor()
            .descending()
            .map(|entry| row(&entry.unwrap()))
            .collect();
        descending.reverse();
        assert_eq!(
            (&ascending, &descending),
            (&expected, &expected),
            "{lower:?} to {upper:?}"
        );
        for (key, found) in keys
            .iter()
            .zip(view.merging_multi_get(keys, vec![Box::new(sources())]))
        {
            let expected = rows
                .binary_search_by(|row| row.0.cmp(key))
                .ok()
                .map(|at| rows[at].clone());
            assert_eq!(found.unwrap().as_ref().map(row), expected, "{key:?}");
            let found = view.merging_get(key, || vec![Box::new(sources())]);
            assert_eq!(found.unwrap().as_ref().map(row), expected, "{key:?}");
        }
    }

    /// Compactions give old entries the number 0: an excluded bound leaves these out too.
    #[test]
    fn an_excluded_bound_leaves_out_the_number_0() {
        let mut base = History::default();
        [b"a", b"b"]
            .iter()
            .for_each(|key| base.insert(0, Kind::PUT, *key, b"value"));
        let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
        let cursor = set
            .view()
            .merging_cursor(vec![Box::new(HistorySource::new(&base))])
            .unwrap();
        let mut cursor = cursor.with_bounds((Bound::Excluded(b"a"), Bound::Unbounded));
        assert_eq!(
            cursor.first().unwrap().map(MergedEntry::user_key),
            Some(b"b".as_slice())
        );
    }

    /// A value that a task of an async runtime holds over an `await` may move to another thread
    /// with it.
    #[test]
    fn a_future_that_holds_a_view_or_a_cursor_is_send() {
        fn is_send<T: Send + 'static>(task: T) -> T {
            task
        }
        let set = MemTableSet::open(SetOptions::default(), History::default()).unwrap();
        let (view, snapshot) = (set.view(), set.snapshot());
        let task = is_send(async move {
            let mut cursor = view.cursor()?;
            std::future::ready(()).await;
            let mut range = view.cursor()?.ascending();
            let first = cursor.first()?.is_none();
            std::future::ready(()).await;
            let is_empty = first && range.next().is_none() && snapshot.sequence() == 0;
            let job = set.begin_flush()?;
            std::future::ready(()).await;
            Ok::<_, Error>(is_empty && job.is_none())
        });
        let mut task = Box::pin(task);
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(true))));
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Way {
        Forward,
        Backward,
    }

    /// All rows that a cursor shows in one direction, and the number of errors.
    fn all_of(cursor: &mut MergingCursor<'_>, way: Way) -> (Rows, usize) {
        let (mut shown, mut errors) = (vec![], 0);
        let mut moved = if way == Way::Forward {
            cursor.first()
        } else {
            cursor.last()
        };
        loop {
            match moved {
                Ok(Some(entry)) => shown.push(row(entry)),
                Ok(None) => return (shown, errors),
                Err(error) => {
                    assert!(error.corruption().is_some(), "{error}");
                    errors += 1;
                    assert!(errors < 1000, "a scan ends");
                }
            }
            moved = if way == Way::Forward {
                cursor.next()
            } else {
                cursor.prev()
            };
        }
    }

    #[cfg(feature = "fault-injection")]
    mod damaged {
        use std::sync::Arc;

        use paranoid_memtable::MemTableOptions;
        use paranoid_memtable::fault::FaultInjector;
        use paranoid_set::FlushJob;

        use super::*;
        use crate::support::rng::{Watchdog, amount};
        use crate::support::sets::finish;

        /// Three immutable tables whose entries hide each other.
        fn made() -> (MemTableSet<History>, History) {
            let tables = MemTableOptions::builder()
                .write_buffer_size(64 << 10)
                .seed(3)
                .build()
                .unwrap();
            let options = SetOptions::builder().table(tables).build().unwrap();
            let set = MemTableSet::open(options, History::default()).unwrap();
            let mut all = History::default();
            let mut sequence = 0;
            for table in [
                [
                    (Kind::PUT, "a", "1"),
                    (Kind::PUT, "b", "2"),
                    (Kind::PUT, "d", "3"),
                    (Kind::PUT, "f", "4"),
                ],
                [
                    (Kind::DELETE, "b", ""),
                    (Kind::MERGE, "d", "+"),
                    (Kind::PUT, "e", "5"),
                    (Kind::PUT, "a", "6"),
                ],
                [
                    (Kind::RANGE_DELETE, "e", "g"),
                    (Kind::PUT, "c", "7"),
                    (Kind::PUT, "f", "8"),
                    (Kind::MERGE, "d", "x"),
                ],
            ] {
                let mut batch = WriteBatch::with_protection(8).unwrap();
                for (kind, key, value) in table {
                    sequence += 1;
                    batch
                        .insert(kind, key.as_bytes(), value.as_bytes())
                        .unwrap();
                    all.insert(sequence, kind, key.as_bytes(), value.as_bytes());
                }
                set.write(&batch).unwrap();
                set.switch().unwrap();
            }
            (set, all)
        }

        fn keys() -> Vec<Vec<u8>> {
            (b'a'..=b'h').map(|letter| vec![letter]).collect()
        }

        /// Shown rows are right and in order, and missing ones come with an error.
        fn check(view: &View<History>, all: &History, what: &str) {
            let expected = rows(all, &keys(), view.sequence());
            for way in [Way::Forward, Way::Backward] {
                let Ok(mut cursor) = view.cursor() else {
                    continue;
                };
                let (shown, errors) = all_of(&mut cursor, way);
                let mut rest = expected.clone();
                if way == Way::Backward {
                    rest.reverse();
                }
                let mut rest = rest.iter();
                for row in &shown {
                    assert!(rest.any(|expected| expected == row), "{what}: {row:?}");
                }
                assert!(
                    errors > 0 || shown.len() == expected.len(),
                    "{what}: rows are missing"
                );
                let Ok(cursor) = view.cursor() else { continue };
                let (mut kept, mut failed) = (0, 0);
                let range: Box<dyn Iterator<Item = _>> = if way == Way::Forward {
                    Box::new(cursor.ascending())
                } else {
                    Box::new(cursor.descending())
                };
                for entry in range {
                    match entry {
                        Ok(entry) => {
                            assert!(expected.contains(&row(&entry)), "{what}: {entry:?}");
                            kept += 1;
                        }
                        Err(error) => {
                            assert!(error.corruption().is_some(), "{what}: {error}");
                            failed += 1;
                        }
                    }
                }
                assert!(
                    failed > 0 || kept == expected.len(),
                    "{what}: rows are missing"
                );
            }
            for key in keys() {
                match view.get(&key) {
                    Ok(found) => {
                        let expected = all.read(&key, view.sequence(), Known::default());
                        assert_eq!(finish(view, &key, found), expected, "{what}: {key:?}");
                    }
                    Err(error) => assert!(error.corruption().is_some(), "{what}: {error}"),
                }
            }
        }

        /// A flush returns everything, or reports the damage.
        fn flush(job: &mut FlushJob<History>, all: &History, what: &str) {
            let mut base = History::default();
            match job.flush(&mut base) {
                Ok(_) => {
                    for key in keys() {
                        let last = job.last_sequence();
                        let read = |history: &History| history.read(&key, last, Known::default());
                        assert_eq!(read(&base), read(all), "{what}: {key:?}");
                    }
                }
                Err(Error::ReadOnly { cause }) => {
                    assert!(cause.corruption().is_some(), "{what}: {cause}")
                }
                Err(other) => panic!("{what}: {other}"),
            }
        }

        /// Flips bits of every entry, link and control word of every immutable table of a set, one
        /// after the other.
        #[test]
        fn no_flipped_bit_of_a_table_turns_an_answer() {
            let _watchdog = Watchdog::new(
                "set_reads::set_scans::damaged::no_flipped_bit_of_a_table_turns_an_answer",
                0,
            );
            let (set, all) = made();
            let mut job = set.begin_flush().unwrap().expect("three tables");
            let view = set.view();
            check(&view, &all, "intact");
            let (mut number, stride) = (0u64, 6000 / amount(6000, 400));
            for (place, reader) in view.readers().enumerate().skip(1) {
                #[expect(
                    unsafe_code,
                    reason = "the fault injector breaks the memory on purpose"
                )]
                // SAFETY: one thread, and nothing borrowed is held while a bit is changed.
                let mut injector = unsafe { FaultInjector::open(reader) }.unwrap();
                for piece in 0..injector.pieces().len() {
                    for bit in 0..injector.pieces()[piece].len() * 8 {
                        number += 1;
                        if !number.is_multiple_of(stride) {
                            continue;
                        }
                        injector.flip(piece, bit);
                        let what =
                            format!("table {place}, {:?}, bit {bit}", injector.pieces()[piece]);
                        check(&view, &all, &what);
                        flush(&mut job, &all, &what);
                        injector.undo();
                    }
                }
            }
            check(&view, &all, "mended");
            let refused = set.write(&WriteBatch::new()).unwrap_err();
            assert!(
                refused.corruption().is_some(),
                "a flush that met damage made the set read-only: {refused}"
            );
            flush(&mut job, &all, "mended");
            assert!(
                job.install(|_| Ok(Arc::unwrap_or_clone(Arc::new(History::default()))))
                    .is_ok()
            );
        }
    }
}
