//! Files as sources of an engine's merging cursor: a memtable and several files in one order, both
//! ways, and gets from the newest source to the oldest. `Source` and `Merging` are the code of an
//! engine; they use public calls only.

use paranoid_memtable::flush::Versions;
use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::scan::SortedSource;
use paranoid_memtable::{Kind, Lookup, MemTable, MemTableOptions, OwnedCursor};
use paranoid_set::{MemTableSet, MergedEntry, SetOptions};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, TableCursor};

use crate::model::{Model, Row, folder};
use crate::rng::{Rng, Watchdog, amount, seed_or};

/// A source of a merging cursor. It may move to another thread and outlive its maker.
trait Source: Send + 'static {
    /// Moves to the first entry of `key` with at most this sequence number, or of a later key.
    fn seek(&mut self, key: &[u8], sequence: u64);
    fn last(&mut self);
    fn next(&mut self);
    fn prev(&mut self);
    fn row(&self) -> Option<Row>;
}

impl Source for TableCursor {
    fn seek(&mut self, key: &[u8], sequence: u64) {
        TableCursor::seek(self, key, sequence).unwrap();
    }

    fn last(&mut self) {
        TableCursor::last(self).unwrap();
    }

    fn next(&mut self) {
        TableCursor::next(self).unwrap();
    }

    fn prev(&mut self) {
        TableCursor::prev(self).unwrap();
    }

    fn row(&self) -> Option<Row> {
        let entry = self.entry()?;
        let (key, value) = (entry.user_key.to_vec(), entry.value.to_vec());
        Some(Row {
            key,
            sequence: entry.sequence,
            kind: entry.kind,
            value,
        })
    }
}

impl Source for OwnedCursor {
    fn seek(&mut self, key: &[u8], sequence: u64) {
        self.seek_version(key, sequence).unwrap();
    }

    fn last(&mut self) {
        OwnedCursor::last(self).unwrap();
    }

    fn next(&mut self) {
        OwnedCursor::next(self).unwrap();
    }

    fn prev(&mut self) {
        OwnedCursor::prev(self).unwrap();
    }

    fn row(&self) -> Option<Row> {
        let entry = self.entry().unwrap()?;
        let (key, value) = (entry.user_key().to_vec(), entry.value().unwrap().to_vec());
        Some(Row {
            key,
            sequence: entry.sequence(),
            kind: entry.kind(),
            value,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
}

/// All sources in one order: user keys ascend, sequence numbers descend within a key.
struct Merging {
    sources: Vec<Box<dyn Source>>,
    way: Way,
}

fn place(row: &Row) -> (Vec<u8>, std::cmp::Reverse<u64>) {
    (row.key.clone(), std::cmp::Reverse(row.sequence))
}

impl Merging {
    fn seek(&mut self, key: &[u8], sequence: u64) {
        self.sources
            .iter_mut()
            .for_each(|source| source.seek(key, sequence));
        self.way = Way::Forward;
    }

    /// The source with the current entry of the merged order.
    fn at(&self) -> Option<usize> {
        let rows = self.sources.iter().enumerate();
        let rows = rows.filter_map(|(at, source)| Some((place(&source.row()?), at)));
        let nearest = if self.way == Way::Forward {
            rows.min()
        } else {
            rows.max()
        };
        nearest.map(|(_, at)| at)
    }

    fn row(&self) -> Option<Row> {
        self.sources[self.at()?].row()
    }

    fn step(&mut self, way: Way) {
        let (Some(at), Some(row)) = (self.at(), self.row()) else {
            return;
        };
        if way != self.way {
            // The other sources are on the wrong side of this entry.
            for (_, source) in self
                .sources
                .iter_mut()
                .enumerate()
                .filter(|(other, _)| *other != at)
            {
                source.seek(&row.key, row.sequence);
                match (way, source.row()) {
                    (Way::Forward, _) => {}
                    (Way::Backward, Some(_)) => source.prev(),
                    (Way::Backward, None) => source.last(),
                }
            }
            self.way = way;
        }
        match way {
            Way::Forward => self.sources[at].next(),
            Way::Backward => self.sources[at].prev(),
        }
    }
}

/// Three files, oldest first, a newer memtable, and a model of all four.
struct Layers {
    files: Vec<SortedTable>,
    memtable: MemTable,
    all: Model,
    newest: u64,
    _folder: tempfile::TempDir,
}

fn fill(table: &MemTable, all: &mut Model, sequence: &mut u64, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        *sequence += 1;
        let (key, number) = (format!("key{:03}", rng.below(200)).into_bytes(), *sequence);
        let value = number.to_string().into_bytes();
        if rng.one_in(60) {
            let end = format!("key{:03}", rng.below(220)).into_bytes();
            if key < end {
                table.delete_range(number, &key, &end).unwrap();
                all.ranges.push((key, end, number));
            }
            continue;
        }
        let (kind, value) = if rng.one_in(5) {
            (Kind::DELETE, vec![])
        } else {
            (Kind::PUT, value)
        };
        table.insert(number, kind, &key, &value).unwrap();
        all.rows.push(Row {
            key,
            sequence: number,
            kind,
            value,
        });
    }
}

fn layers(rng: &mut Rng) -> Layers {
    let (folder, mut all, mut sequence) = (folder(), Model::default(), 0);
    let new = || MemTable::new(MemTableOptions::default()).unwrap();
    let count = amount(2_000, 300);
    let mut files = vec![];
    for number in 0..3 {
        let table = new();
        fill(&table, &mut all, &mut sequence, rng, count);
        let path = folder.path().join(format!("{number}.sst"));
        let options = SortedTableOptions::builder()
            .block_size(300)
            .build()
            .unwrap();
        let mut writer = SortedTableWriter::create(&path, options).unwrap();
        table
            .freeze()
            .unwrap()
            .flush(Versions::All, &mut writer)
            .unwrap();
        files.push(SortedTable::open(writer.finish().unwrap().path).unwrap());
    }
    let memtable = new();
    fill(&memtable, &mut all, &mut sequence, rng, count);
    let rows = std::mem::take(&mut all.rows);
    all.rows = Model::from_rows(rows).rows;
    Layers {
        files,
        memtable,
        all,
        newest: sequence,
        _folder: folder,
    }
}

impl Layers {
    fn merging(&self) -> Merging {
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(self.memtable.cursor().owned())];
        for file in &self.files {
            sources.push(Box::new(file.cursor()));
        }
        Merging {
            sources,
            way: Way::Forward,
        }
    }

    /// The value of a key, from the newest layer to the oldest.
    fn get(&self, key: &[u8], snapshot: u64) -> Option<Vec<u8>> {
        match self.memtable.get(key, snapshot).unwrap() {
            Lookup::Value(value) => return Some(value.to_vec()),
            Lookup::Deleted { .. } => return None,
            _ => {}
        }
        for file in self.files.iter().rev() {
            match file.get(key, snapshot).unwrap() {
                Lookup::Value(value) => return Some(value.bytes),
                Lookup::Deleted {
                    by: DeletedBy::Point | DeletedBy::Range,
                    ..
                } => return None,
                _ => {}
            }
        }
        None
    }
}

#[test]
fn walks_over_a_memtable_and_files_go_both_ways() {
    let seed = seed_or(0x3e6);
    let _watchdog = Watchdog::new(
        "merging::walks_over_a_memtable_and_files_go_both_ways",
        seed,
    );
    let mut rng = Rng::new(seed);
    let layers = layers(&mut rng);
    let (rows, mut merging) = (&layers.all.rows, layers.merging());
    merging.seek(b"", u64::MAX);
    for row in rows {
        assert_eq!(merging.row().as_ref(), Some(row), "seed {seed:#x}");
        merging.step(Way::Forward);
    }
    assert_eq!(merging.row(), None);
    // The cursor and the model seek the same random place.
    for _ in 0..amount(2_000, 200) {
        let wanted = rng.pick(rows);
        let sequence = wanted.sequence + rng.below(3);
        merging.seek(&wanted.key, sequence);
        let target = (wanted.key.clone(), std::cmp::Reverse(sequence));
        let mut at = rows.partition_point(|row| place(row) < target);
        for _ in 0..rng.below(9) {
            assert_eq!(merging.row().as_ref(), rows.get(at), "seed {seed:#x}");
            let way = if rng.one_in(2) {
                Way::Forward
            } else {
                Way::Backward
            };
            if at == rows.len() || way == Way::Backward && at == 0 {
                break;
            }
            merging.step(way);
            at = if way == Way::Forward { at + 1 } else { at - 1 };
        }
    }
}

#[test]
fn gets_through_layers_agree_with_the_model() {
    let seed = seed_or(0x3e7);
    let _watchdog = Watchdog::new("merging::gets_through_layers_agree_with_the_model", seed);
    let mut rng = Rng::new(seed);
    let layers = layers(&mut rng);
    for _ in 0..amount(20_000, 2_000) {
        let (key, snapshot) = (
            format!("key{:03}", rng.below(230)).into_bytes(),
            rng.below(layers.newest + 2),
        );
        let mut versions = layers
            .all
            .rows
            .iter()
            .filter(|row| row.key == key && row.sequence <= snapshot);
        let covering = layers.all.covering(&key, snapshot).unwrap_or(0);
        let newest = versions
            .next()
            .filter(|row| row.kind == Kind::PUT && row.sequence > covering);
        let wanted = newest.map(|row| row.value.clone());
        assert_eq!(
            layers.get(&key, snapshot),
            wanted,
            "{key:?} @ {snapshot}, seed {seed:#x}"
        );
    }
}

/// The crate's own merging cursor over files, at any snapshot, both ways: keys and values are those
/// of the model.
#[test]
fn files_are_sources_of_the_merging_cursor() {
    let seed = seed_or(0x3e8);
    let _watchdog = Watchdog::new("merging::files_are_sources_of_the_merging_cursor", seed);
    let mut rng = Rng::new(seed);
    let layers = layers(&mut rng);
    let in_files = 3 * amount(2_000, 300);
    for _ in 0..amount(40, 8) {
        let snapshot = if rng.one_in(3) {
            in_files
        } else {
            rng.below(in_files)
        };
        let newest = |key: &Vec<u8>| {
            let mut versions = layers
                .all
                .rows
                .iter()
                .filter(|row| row.key == *key && row.sequence <= snapshot);
            let covering = layers.all.covering(key, snapshot).unwrap_or(0);
            let newest = versions
                .next()
                .filter(|row| row.kind == Kind::PUT && row.sequence > covering)?;
            Some((key.clone(), newest.sequence, newest.value.clone()))
        };
        let keys: Vec<Vec<u8>> = (0..200)
            .map(|number| format!("key{number:03}").into_bytes())
            .collect();
        let wanted: Vec<_> = keys.iter().filter_map(newest).collect();
        let newest_first = layers.files.iter().rev();
        let sources = newest_first.map(|file| Box::new(file.cursor()) as Box<dyn SortedSource>);
        let options = SetOptions::builder()
            .last_sequence(snapshot)
            .build()
            .unwrap();
        let set = MemTableSet::open(options, ()).unwrap();
        let mut cursor = set.view().merging_cursor(sources.collect()).unwrap();
        let row = |entry: &MergedEntry| {
            (
                entry.user_key().to_vec(),
                entry.sequence(),
                entry.value().to_vec(),
            )
        };
        let (mut forward, mut backward) = (vec![], vec![]);
        let mut entry = cursor.first().unwrap();
        while let Some(found) = entry {
            forward.push(row(found));
            entry = cursor.next().unwrap();
        }
        entry = cursor.last().unwrap();
        while let Some(found) = entry {
            backward.insert(0, row(found));
            entry = cursor.prev().unwrap();
        }
        assert_eq!(forward, wanted, "@ {snapshot}, seed {seed:#x}");
        assert_eq!(backward, wanted, "@ {snapshot}, seed {seed:#x}");
        for key in &keys {
            let at = wanted.partition_point(|row| row.0 < *key);
            assert_eq!(
                cursor.seek(key).unwrap().map(row).as_ref(),
                wanted.get(at),
                "seed {seed:#x}"
            );
        }
    }
}
