//! Answers by looking at every row that was ever written.

use paranoid_memtable::read::{Base, DeletedBy};
use paranoid_memtable::{Error, Kind, Lookup};

/// SplitMix64: a run can be repeated from its seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Value(Vec<u8>, u64),
    Deleted(u64, DeletedBy),
    Merge(Vec<Vec<u8>>, &'static str),
    NotFound,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) key: Vec<u8>,
    pub(super) sequence: u64,
    pub(super) kind: Kind,
    pub(super) value: Vec<u8>,
}

/// Every row in the order of arrival; answers by looking at all of them.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) rows: Vec<Row>,
}

impl Oracle {
    fn cover(&self, key: &[u8], snapshot: u64) -> Option<u64> {
        let covers = |row: &&Row| {
            row.kind == Kind::RANGE_DELETE
                && row.sequence <= snapshot
                && row.key.as_slice() <= key
                && key < row.value.as_slice()
        };
        self.rows.iter().filter(covers).map(|row| row.sequence).max()
    }

    /// Visible versions, newest first. Of equals the last one to arrive counts.
    pub(super) fn versions(&self, key: &[u8], snapshot: u64) -> Vec<&Row> {
        let mut versions: Vec<&Row> = Vec::new();
        for row in self.rows.iter().rev() {
            let known = versions.iter().any(|seen| seen.sequence == row.sequence);
            if row.key == key && row.kind != Kind::RANGE_DELETE && row.sequence <= snapshot && !known {
                versions.push(row);
            }
        }
        versions.sort_by_key(|row| std::cmp::Reverse(row.sequence));
        versions
    }

    pub(super) fn get(&self, key: &[u8], snapshot: u64) -> Answer {
        let versions = self.versions(key, snapshot);
        let cover = self.cover(key, snapshot);
        let Some(newest) = versions.first() else {
            return cover.map_or(Answer::NotFound, |sequence| Answer::Deleted(sequence, DeletedBy::Range));
        };
        match (cover, newest.kind) {
            (Some(cover), _) if cover > newest.sequence => Answer::Deleted(cover, DeletedBy::Range),
            (_, Kind::DELETE) => Answer::Deleted(newest.sequence, DeletedBy::Point),
            (_, Kind::SINGLE_DELETE) => Answer::Deleted(newest.sequence, DeletedBy::Single),
            (_, kind) if kind.as_u8() >= 0xc0 => Answer::Deleted(newest.sequence, DeletedBy::Custom(kind)),
            (_, Kind::MERGE) => {
                let cover = self.cover(key, newest.sequence);
                let mut operands = Vec::new();
                for row in &versions {
                    if cover.is_some_and(|cover| cover > row.sequence) || row.kind.is_point_delete() {
                        return Answer::Merge(operands, "deleted");
                    }
                    operands.push(row.value.clone());
                    if row.kind != Kind::MERGE {
                        return Answer::Merge(operands, "value");
                    }
                }
                Answer::Merge(operands, if cover.is_some() { "deleted" } else { "below" })
            }
            _ => Answer::Value(newest.value.clone(), newest.sequence),
        }
    }
}

/// A lookup's answer as the oracle writes it.
pub(super) fn told(lookup: Lookup<'_>) -> Result<Answer, Error> {
    Ok(match lookup {
        Lookup::Value(value) => Answer::Value(value.to_vec(), value.sequence()),
        Lookup::Deleted { sequence, by } => Answer::Deleted(sequence, by),
        Lookup::NotFound => Answer::NotFound,
        Lookup::Merge(operands) => {
            let base = operands.base()?;
            let mut values = Vec::new();
            for operand in operands {
                values.push(operand?.value.to_vec());
            }
            match base {
                Base::Value(value) => {
                    values.push(value.to_vec());
                    Answer::Merge(values, "value")
                }
                Base::Deleted => Answer::Merge(values, "deleted"),
                Base::Below => Answer::Merge(values, "below"),
            }
        }
    })
}
