//! Reads everything back: compares it with the sources, across a range delete, and in order once
//! frozen.

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use paranoid_memtable::read::DeletedBy;
use paranoid_memtable::{Error, ImmutableMemTable, Lookup};

use crate::failure::Failure;
use crate::load::{Load, Receipt, sequence};
use crate::source::key;

/// The result of reading everything back.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    /// Entries that equal their source as it is now.
    pub(crate) equal: u64,
    /// Entries that equal the first read of their file, which has changed since.
    pub(crate) changed: Vec<String>,
    /// From the first to the last read.
    pub(crate) elapsed: Duration,
}

/// Compares every entry with the value that was put (by hash) and with its source as it is now
/// (byte by byte).
pub(crate) fn read_back(
    load: &Load<'_>,
    threads: usize,
    bar: &ProgressBar,
) -> Result<ReadBack, Failure> {
    let started = Instant::now();
    let put: Vec<(usize, Receipt)> = load.put().collect();
    let parts: Vec<Result<ReadBack, Failure>> = thread::scope(|scope| {
        let parts: Vec<_> = put
            .chunks(put.len().div_ceil(threads).max(1))
            .map(|part| scope.spawn(move || read_part(load, part, bar)))
            .collect();
        let panicked = |_| Err(Failure::Differs("a thread that read back panicked".into()));
        parts
            .into_iter()
            .map(|part| part.join().unwrap_or_else(panicked))
            .collect()
    });
    let mut all = ReadBack::default();
    for part in parts {
        let part = part?;
        all.equal += part.equal;
        all.changed.extend(part.changed);
    }
    all.elapsed = started.elapsed();
    Ok(all)
}

fn read_part(
    load: &Load<'_>,
    part: &[(usize, Receipt)],
    bar: &ProgressBar,
) -> Result<ReadBack, Failure> {
    let (mut value, mut source) = (Vec::new(), Vec::new());
    let mut result = ReadBack::default();
    for (index, receipt) in part {
        let path = &load.paths[*index];
        let found = load
            .table
            .get_into(key(path), u64::MAX, &mut value)
            .map_err(|error| at(path, &error))?;
        if found.into_value().map(|(of, _)| of) != Some(sequence(*index)) {
            return Err(Failure::Differs(format!(
                "{} was put and is now {found:?}",
                path.display()
            )));
        }
        if Receipt::of(&value) != *receipt {
            return Err(Failure::Differs(format!(
                "{} is not what was put",
                path.display()
            )));
        }
        match load.source.describe(path, &mut source) {
            Ok(()) if source == value => result.equal += 1,
            Ok(()) => result.changed.push(path.display().to_string()),
            Err(error) => result.changed.push(format!("{} ({error})", path.display())),
        }
        bar.inc(1);
    }
    Ok(result)
}

fn at(path: &Path, error: &Error) -> Failure {
    Failure::of_table(path.display(), error)
}

/// A part of the keys to delete: every key with `start <= key < end`.
#[derive(Debug)]
pub(crate) struct Doomed {
    /// The name to show.
    pub(crate) name: String,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl Doomed {
    /// The largest subdirectory that holds at most half of the paths that were put. Without such a
    /// one, the first half of the keys.
    pub(crate) fn choose(load: &Load<'_>) -> Doomed {
        let mut below: HashMap<&Path, u64> = HashMap::new();
        let mut keys: Vec<&[u8]> = Vec::new();
        for (index, _) in load.put() {
            let path = &load.paths[index];
            keys.push(key(path));
            for above in path
                .ancestors()
                .skip(1)
                .filter(|above| !above.as_os_str().is_empty())
            {
                *below.entry(above).or_default() += 1;
            }
        }
        let half = keys.len() as u64 / 2;
        let best =
            below
                .into_iter()
                .filter(|(_, held)| *held <= half)
                .max_by(|(a, of_a), (b, of_b)| {
                    // The larger one; if both are equal, the first by name.
                    of_a.cmp(of_b).then_with(|| b.cmp(a))
                });
        if let Some((directory, _)) = best {
            let separator = std::path::MAIN_SEPARATOR as u8;
            let edge = |last: u8| [key(directory), &[last]].concat();
            let name = directory.display().to_string();
            return Doomed {
                name,
                start: edge(separator),
                end: edge(separator + 1),
            };
        }
        keys.sort_unstable();
        let middle = keys
            .get(keys.len() / 2)
            .map_or_else(|| vec![u8::MAX], |key| key.to_vec());
        Doomed {
            name: "the first half of the paths".into(),
            start: Vec::new(),
            end: middle,
        }
    }

    fn holds(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// Deletes the range at sequence number `now` and checks every key at `now` and at the snapshot
    /// before it. Returns the number of entries that are gone.
    pub(crate) fn delete_and_check(&self, load: &Load<'_>, now: u64) -> Result<u64, Failure> {
        let failed = |error: Error| Failure::of_table(format!("delete of {}", self.name), &error);
        load.table
            .delete_range(now, &self.start, &self.end)
            .map_err(failed)?;
        let mut gone = 0;
        for (index, receipt) in load.put() {
            let path = &load.paths[index];
            let lookup = load
                .table
                .get(key(path), now)
                .map_err(|error| at(path, &error))?;
            let right = match &lookup {
                Lookup::Deleted {
                    sequence,
                    by: DeletedBy::Range,
                } => {
                    gone += 1;
                    *sequence == now && self.holds(key(path))
                }
                Lookup::Value(value) => !self.holds(key(path)) && Receipt::of(value) == receipt,
                _ => false,
            };
            if !right {
                let path = path.display();
                return Err(Failure::Differs(format!(
                    "after the range delete, {path} is {lookup:?}"
                )));
            }
            let before = load
                .table
                .get(key(path), now - 1)
                .map_err(|error| at(path, &error))?;
            if before.value().map(Receipt::of) != Some(receipt) {
                let path = path.display();
                return Err(Failure::Differs(format!(
                    "the snapshot before the range delete has {path} as {before:?}"
                )));
            }
        }
        for (snapshot, expected) in [(now, 0), (now - 1, gone)] {
            let range = load
                .table
                .range_at(self.start.as_slice()..self.end.as_slice(), snapshot);
            let mut seen = 0;
            for entry in range {
                entry.map_err(failed)?;
                seen += 1;
            }
            if seen != expected {
                return Err(Failure::Differs(format!(
                    "a scan of {} at snapshot {snapshot} shows {seen} entries, not {expected}",
                    self.name
                )));
            }
        }
        Ok(gone)
    }
}

/// Times and counts of walks over the frozen table.
#[derive(Debug)]
pub(crate) struct Walks {
    /// Entries of a full walk.
    pub(crate) entries: u64,
    pub(crate) forward: Duration,
    pub(crate) backward: Duration,
    /// Entries that the newest snapshot shows.
    pub(crate) visible: u64,
}

/// Walks a frozen table both ways and compares order, keys and values with the values that were
/// put; `gone` entries are hidden.
pub(crate) fn walk(
    frozen: &ImmutableMemTable,
    load: &Load<'_>,
    gone: u64,
) -> Result<Walks, Failure> {
    let mut expected: Vec<(&[u8], Receipt)> = load
        .put()
        .map(|(index, receipt)| (key(&load.paths[index]), receipt))
        .collect();
    expected.sort_unstable_by_key(|(key, _)| *key);
    let started = Instant::now();
    let entries = compare(frozen.range(..), expected.iter(), "forward")?;
    let forward = started.elapsed();
    let started = Instant::now();
    compare(frozen.range(..).rev(), expected.iter().rev(), "backward")?;
    let backward = started.elapsed();
    let mut visible = 0;
    for entry in frozen.range_at(.., u64::MAX) {
        entry.map_err(|error| Failure::of_table("walk at the newest snapshot", &error))?;
        visible += 1;
    }
    if visible + gone != entries {
        return Err(Failure::Differs(format!(
            "{visible} entries visible and {gone} deleted, of {entries}"
        )));
    }
    Ok(Walks {
        entries,
        forward,
        backward,
        visible,
    })
}

fn compare<'a>(
    walk: impl Iterator<Item = Result<paranoid_memtable::Entry<'a>, Error>>,
    mut expected: impl ExactSizeIterator<Item = &'a (&'a [u8], Receipt)>,
    way: &str,
) -> Result<u64, Failure> {
    let failed = |error: Error| Failure::of_table(format!("walk {way}"), &error);
    let total = expected.len() as u64;
    let mut seen = 0;
    for entry in walk {
        let entry = entry.map_err(failed)?;
        let name = || String::from_utf8_lossy(entry.user_key()).into_owned();
        let Some((key, receipt)) = expected.next() else {
            return Err(Failure::Differs(format!(
                "walk {way}: one entry too many, {}",
                name()
            )));
        };
        if *key != entry.user_key() {
            let wanted = String::from_utf8_lossy(key).into_owned();
            return Err(Failure::Differs(format!(
                "walk {way}: {} instead of {wanted}",
                name()
            )));
        }
        if Receipt::of(entry.value().map_err(failed)?) != *receipt {
            return Err(Failure::Differs(format!(
                "walk {way}: the value of {} is not what was put",
                name()
            )));
        }
        seen += 1;
    }
    if seen != total {
        return Err(Failure::Differs(format!(
            "walk {way}: {seen} entries of {total}"
        )));
    }
    Ok(seen)
}
