//! The right content of a file: rows in order and range deletions, and random models from a seed.

use std::path::{Path, PathBuf};

use paranoid_memtable::{Kind, SequenceNumber};
use paranoid_sst::{SortedTableOptionsBuilder, SortedTableWriter, Written};

use crate::rng::Rng;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: Kind,
    pub(crate) value: Vec<u8>,
}

/// Rows in internal order, and range deletions in order of starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) rows: Vec<Row>,
    pub(crate) ranges: Vec<(Vec<u8>, Vec<u8>, SequenceNumber)>,
}

impl Model {
    pub(crate) fn from_rows(mut rows: Vec<Row>) -> Model {
        rows.sort_by(|a, b| a.key.cmp(&b.key).then(b.sequence.cmp(&a.sequence)));
        rows.dedup_by(|a, b| a.key == b.key && a.sequence == b.sequence);
        Model {
            rows,
            ranges: vec![],
        }
    }

    /// Random entries of every kind: empty keys and values, long values, shared prefixes, many
    /// versions.
    pub(crate) fn random(rng: &mut Rng, entries: u64) -> Model {
        let kinds = [
            Kind::PUT,
            Kind::PUT,
            Kind::PUT,
            Kind::DELETE,
            Kind::SINGLE_DELETE,
            Kind::MERGE,
        ];
        let mut rows = vec![];
        while (rows.len() as u64) < entries {
            let key = key(rng, entries);
            for _ in 0..if rng.one_in(20) { 1 + rng.below(40) } else { 1 } {
                let kind = *rng.pick(&kinds);
                let len = match rng.below(40) {
                    0 => rng.index(9000),
                    1..8 => 0,
                    _ => rng.index(60),
                };
                let value = if kind.is_point_delete() {
                    vec![]
                } else {
                    rng.bytes(len)
                };
                rows.push(Row {
                    key: key.clone(),
                    sequence: 1 + rng.below(1 << 40),
                    kind,
                    value,
                });
            }
        }
        let mut model = Model::from_rows(rows);
        let mut cuts: Vec<Vec<u8>> = (0..8).map(|_| key(rng, entries)).collect();
        cuts.sort();
        cuts.dedup();
        for pair in cuts.chunks_exact(2) {
            model
                .ranges
                .push((pair[0].clone(), pair[1].clone(), 1 + rng.below(1 << 40)));
        }
        model
    }

    pub(crate) fn write(&self, path: &Path, options: SortedTableOptionsBuilder) -> Written {
        let mut writer = SortedTableWriter::create(path, options.build().unwrap()).unwrap();
        for row in &self.rows {
            writer
                .add(&row.key, row.sequence, row.kind, &row.value)
                .unwrap();
        }
        for (start, end, sequence) in &self.ranges {
            writer.add_range(start, end, *sequence).unwrap();
        }
        writer.finish().unwrap()
    }

    /// The newest sequence number of a range deletion over a key up to a snapshot.
    pub(crate) fn covering(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        let over = self
            .ranges
            .iter()
            .filter(|range| *range.0 <= *key && *key < *range.1);
        over.map(|range| range.2)
            .filter(|sequence| *sequence <= snapshot)
            .max()
    }

    /// The newest value of a key. `None`: deleted, absent, or a merge without a base.
    pub(crate) fn newest(&self, key: &[u8]) -> Option<&Row> {
        let row = self.rows.iter().find(|row| row.key == key)?;
        let covered = self
            .covering(key, u64::MAX)
            .is_some_and(|sequence| sequence > row.sequence);
        (row.kind == Kind::PUT && !covered).then_some(row)
    }
}

fn key(rng: &mut Rng, entries: u64) -> Vec<u8> {
    let number = rng.below(entries * 2);
    match rng.below(12) {
        0 => vec![],
        1 => rng.bytes(3),
        2 => [&[b'p'; 150][..], &number.to_be_bytes()].concat(),
        3..6 => format!("user{number:08}:name").into_bytes(),
        _ => number.to_be_bytes()[4..].to_vec(),
    }
}

/// An empty folder, which is removed when it is dropped.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) fn file_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("000007.sst")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
