//! The subject: a table of some four hundred entries, one operation on it, and all reads of it
//! afterwards.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use paranoid_memtable::flush::{FlushItem, Versions};
use paranoid_memtable::integrity::Protected;
use paranoid_memtable::read::Operands;
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{
    ChecksumKind, DuplicatePolicy, Entry, Error, ImmutableMemTable, Kind, Lookup, MemTable,
    MemTableOptions, Result, SequenceNumber, TableReader, ValueRef, WriteBatch,
};
use paranoid_set::{FileJournal, MemTableSet, RecoveryMode, SetOptions, Storage, StorageFile};
use paranoid_sst::{SortedTable, SortedTableOptions, SortedTableWriter, TableSource};
use register_faults::model::{
    Collected, Deleted, Flushed, Model, Numbers, Random, Version, key, value,
};
use register_faults::{Verdict, measured, ready};

/// User keys of a table; each third has two versions.
const KEYS: u64 = 300;
const ENTRIES: u64 = KEYS + KEYS / 3;
/// One entry in this number is a range delete, of at most `WIDTH_MAX` of the 2^64 keys. Together
/// they cover over half of the keys.
const RANGE_EVERY: u64 = 25;
const WIDTH_MAX: u64 = 3 << 59;
/// More than the number of entries, and of numbers of fragments, in a table.
const COPIES_MAX: usize = 4096;
/// Number of range deletes that a table watches.
const WATCHED: usize = 4;

/// One call, or one loop of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// A put without a digest of the caller.
    Put,
    /// A put with a caller's digest.
    PutWithDigest,
    /// A put with a caller's digest, of a key under a watched range delete.
    PutUnder,
    /// A put that replaces an equal entry.
    Replace,
    /// A batch of 8 puts, protected.
    Batch8,
    /// A batch of 1 000 puts, protected.
    Batch1000,
    /// A range delete.
    DeleteRange,
    /// A batch of 8 through a set with a journal.
    SetWrite,
    /// A freeze.
    Freeze,
    /// A flush of all versions into a list.
    Flush,
    /// A flush of the newest versions into a list.
    FlushNewest,
    /// A flush into a table file.
    FlushToFile,
    /// A get of a key that is present.
    Get,
    /// A get of an absent key.
    GetAbsent,
    /// A `multi_get` of 24 keys.
    MultiGet,
    /// A seek and ten steps.
    Cursor,
    /// A scan of everything.
    Scan,
    /// A scrub.
    Scrub,
}

/// A table, and the model of its content.
struct Subject {
    table: MemTable,
    model: Model,
    random: Random,
    next: SequenceNumber,
}

impl Subject {
    fn new(seed: u64, duplicates: DuplicatePolicy) -> Result<Self> {
        let options = MemTableOptions::builder()
            .write_buffer_size(4 << 20)
            .duplicates(duplicates)
            .seed(seed);
        let table = MemTable::new(options.build()?)?;
        let mut subject = Subject {
            table,
            model: Model::default(),
            random: Random(seed),
            next: 1,
        };
        for at in 0..ENTRIES {
            let sequence = subject.take_number();
            if at % RANGE_EVERY == RANGE_EVERY / 2 {
                let (start, width) = (subject.random.draw(), 1 + subject.random.below(WIDTH_MAX));
                let (start, end) = (
                    key(start.min(u64::MAX - width)),
                    key(start.saturating_add(width)),
                );
                subject.table.delete_range(sequence, &start, &end)?;
                subject.model.delete_range(start, end, sequence);
                continue;
            }
            let user_key = key(Random(at % KEYS).draw());
            if at % 17 == 3 {
                subject.table.delete(sequence, &user_key)?;
                subject
                    .model
                    .insert(user_key, sequence, Kind::DELETE, Vec::new());
            } else {
                subject.table.put(sequence, &user_key, value(sequence))?;
                subject
                    .model
                    .insert(user_key, sequence, Kind::PUT, value(sequence));
            }
        }
        Ok(subject)
    }

    fn take_number(&mut self) -> SequenceNumber {
        self.next += 1;
        self.next - 1
    }

    /// Draws a key that is present, or a new one with a probability that grows with `amount`.
    fn draw(&mut self, amount: usize) -> Vec<u8> {
        let at = self.random.below(2 * KEYS + 4 * amount as u64);
        key(Random(at).draw())
    }

    /// Makes the batch, and the model after it.
    fn batch(&mut self, len: usize) -> Result<(WriteBatch, Model, SequenceNumber)> {
        let (mut batch, mut after) = (WriteBatch::with_protection(8)?, self.model.clone());
        let first = self.next;
        // The keys are distinct: after a batch that ends in the middle, each key has its old state
        // or its new one.
        let keys: BTreeSet<Vec<u8>> = std::iter::repeat_with(|| self.draw(len))
            .take(2 * len)
            .collect();
        for user_key in keys.into_iter().take(len) {
            let sequence = self.take_number();
            batch.put(&user_key, value(sequence))?;
            after.insert(user_key, sequence, Kind::PUT, value(sequence));
        }
        Ok((batch, after, first))
    }

    /// The verdict for a write that leads to `after` if it returned `Ok`.
    fn judge_write(self, after: Model, outcome: Result<()>) -> Verdict {
        let sum = (self.model.sum(), after.sum());
        let allowed = Allowed {
            before: &self.model,
            after: &after,
            is_done: outcome.is_ok(),
        };
        let mut findings = Findings::default();
        findings.inspect(&self.table, &allowed);
        findings.verdict(&outcome, || sum == (self.model.sum(), after.sum()))
    }

    /// The verdict for a read, which changed nothing, and whose answer was right or not.
    fn judge_read(self, answer: Result<bool>) -> Verdict {
        let sum = self.model.sum();
        let allowed = Allowed {
            before: &self.model,
            after: &self.model,
            is_done: true,
        };
        let mut findings = Findings::default();
        findings.answer(
            "the operation",
            answer.as_ref().map_err(Error::clone).copied(),
        );
        findings.inspect(&self.table, &allowed);
        findings.verdict(&answer, || sum == self.model.sum())
    }
}

/// Makes a table with this seed, waits for the tracer, runs the operation and judges.
pub(crate) fn run(
    operation: Operation,
    seed: u64,
) -> std::result::Result<Verdict, Box<dyn std::error::Error + Send + Sync>> {
    let policy = match operation {
        Operation::Replace => DuplicatePolicy::Replace,
        _ => DuplicatePolicy::Reject,
    };
    if operation == Operation::SetWrite {
        return set_write(seed);
    }
    let subject = Subject::new(seed, policy)?;
    Ok(match operation {
        Operation::Put
        | Operation::PutWithDigest
        | Operation::PutUnder
        | Operation::Replace
        | Operation::DeleteRange => write(subject, operation)?,
        Operation::Batch8 => batch(subject, 8)?,
        Operation::Batch1000 => batch(subject, 1000)?,
        Operation::Freeze | Operation::Flush | Operation::FlushNewest | Operation::FlushToFile => {
            flush(subject, operation)?
        }
        _ => read(subject, operation)?,
    })
}

fn write(
    mut subject: Subject,
    operation: Operation,
) -> std::result::Result<Verdict, Box<dyn std::error::Error + Send + Sync>> {
    let mut after = subject.model.clone();
    let (mut user_key, mut sequence) = (subject.draw(1), subject.take_number());
    let table = subject.table.clone();
    if operation == Operation::DeleteRange {
        let end = user_key
            .iter()
            .map(|byte| byte.saturating_add(1))
            .collect::<Vec<u8>>();
        after.delete_range(user_key.clone(), end.clone(), sequence);
        ready()?;
        let outcome = measured(|| table.delete_range(sequence, &user_key, &end));
        return Ok(subject.judge_write(after, outcome.map(drop)));
    }
    let new = value(sequence);
    while operation == Operation::PutUnder && !after.is_under_last(WATCHED, &user_key) {
        user_key = subject.draw(1);
    }
    if operation == Operation::Replace {
        let at = subject.random.below(after.points() as u64);
        (user_key, sequence) = after.nth(at);
    }
    after.insert(user_key.clone(), sequence, Kind::PUT, new.clone());
    let digest = matches!(operation, Operation::PutWithDigest | Operation::PutUnder)
        .then(|| Protected::of(&user_key, &new, Kind::PUT).with_sequence(sequence));
    ready()?;
    let outcome = measured(|| table.insert_parts(sequence, Kind::PUT, &user_key, &[&new], digest));
    Ok(subject.judge_write(after, outcome.map(drop)))
}

fn batch(
    mut subject: Subject,
    len: usize,
) -> std::result::Result<Verdict, Box<dyn std::error::Error + Send + Sync>> {
    let (batch, after, first) = subject.batch(len)?;
    let table = subject.table.clone();
    ready()?;
    let outcome = measured(|| table.write_batch(first, &batch));
    Ok(subject.judge_write(after, outcome.map(drop)))
}

fn flush(
    subject: Subject,
    operation: Operation,
) -> std::result::Result<Verdict, Box<dyn std::error::Error + Send + Sync>> {
    let table = subject.table.clone();
    if operation == Operation::Freeze {
        ready()?;
        let outcome = measured(|| table.freeze());
        return Ok(subject.judge_read(outcome.map(|_| true)));
    }
    let frozen = table.freeze()?;
    let (versions, numbers) = match operation {
        Operation::FlushNewest => (Versions::SeenBy(&[]), Numbers::Newest),
        _ => (Versions::All, Numbers::All),
    };
    let answer = if operation == Operation::FlushToFile {
        let memory = Memory::default();
        ready()?;
        let outcome = measured(|| to_file(&frozen, memory.clone()));
        outcome.and_then(|()| Ok(of_file(&memory)? == subject.model.flushed(numbers)))
    } else {
        ready()?;
        let flushed = measured(|| collect(&frozen, versions));
        flushed.map(|flushed| Flushed::new(flushed) == subject.model.flushed(numbers))
    };
    Ok(subject.judge_read(answer))
}

fn foreign(error: paranoid_sst::Error) -> Error {
    Error::Sink(Arc::new(error))
}

fn to_file(frozen: &ImmutableMemTable, memory: Memory) -> Result<()> {
    let mut writer = SortedTableWriter::create_in(memory, "table", SortedTableOptions::default())
        .map_err(foreign)?;
    frozen.flush(Versions::All, &mut writer)?;
    writer.finish().map_err(foreign)?;
    Ok(())
}

fn of_file(memory: &Memory) -> Result<Flushed> {
    let source = TableSource::memory(Arc::new(memory.file("table")));
    let table = SortedTable::from_source("table", source).map_err(foreign)?;
    table.verify().map_err(foreign)?;
    let mut cursor = table.cursor();
    let mut entries = Vec::new();
    cursor.first().map_err(foreign)?;
    while let Some(entry) = cursor.entry() {
        entries.push((
            entry.user_key.to_vec(),
            entry.sequence,
            entry.kind,
            entry.value.to_vec(),
        ));
        cursor.next().map_err(foreign)?;
    }
    let ranges = table
        .range_tombstones()
        .map(|(start, end, number)| (start.to_vec(), end.to_vec(), number));
    Ok(Flushed::new((entries, ranges.collect())))
}

fn read(
    mut subject: Subject,
    operation: Operation,
) -> std::result::Result<Verdict, Box<dyn std::error::Error + Send + Sync>> {
    let table = subject.table.clone();
    let keys: Vec<Vec<u8>> = (0..24).map(|_| subject.draw(1)).collect();
    let model = subject.model.clone();
    let visible = |user_key: &[u8]| {
        model
            .visible(user_key, SequenceNumber::MAX)
            .map(<[u8]>::to_vec)
    };
    let answer = match operation {
        Operation::Get | Operation::GetAbsent => {
            let is_sought =
                |at: &u64| model.has(&key(Random(*at).draw())) == (operation == Operation::Get);
            let at = (subject.random.below(KEYS)..).find(is_sought).unwrap_or(0);
            let user_key = key(Random(at).draw());
            ready()?;
            let found = measured(|| {
                Ok(match table.get(&user_key, SequenceNumber::MAX)? {
                    Lookup::Value(value) => Some(value.to_vec()),
                    _ => None,
                })
            });
            found.map(|found| found == visible(&user_key))
        }
        Operation::MultiGet => {
            ready()?;
            let found = measured(|| table.multi_get(&keys, SequenceNumber::MAX));
            let found: Result<Vec<_>> = found.into_iter().map(|found| found.map(bytes)).collect();
            found.map(|found| {
                found
                    == keys
                        .iter()
                        .map(|user_key| visible(user_key))
                        .collect::<Vec<_>>()
            })
        }
        Operation::Cursor => {
            ready()?;
            let found = measured(|| steps(&table, &keys[0], 10));
            found.map(|found| found == model.from(&keys[0], 10))
        }
        Operation::Scan => {
            ready()?;
            let found = measured(|| steps(&table, b"", usize::MAX));
            found.map(|found| found == model.from(b"", usize::MAX))
        }
        _ => {
            ready()?;
            let report = measured(|| table.scrub(|_| {}));
            // A report of damage that is not there is an error, not a wrong answer.
            report.check().map(|()| true)
        }
    };
    Ok(subject.judge_read(answer))
}

/// Key and value of up to `count` visible entries at or after `start`.
fn steps(table: &MemTable, start: &[u8], count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut cursor = table.cursor_at(SequenceNumber::MAX);
    let mut found = Vec::new();
    let mut entry = cursor.seek(start)?;
    while let Some(at) = entry.filter(|_| found.len() < count) {
        found.push((at.user_key().to_vec(), at.value()?.to_vec()));
        entry = cursor.next()?;
    }
    Ok(found)
}

/// A write through a set. The set and the recovery of its journal are judged.
fn set_write(seed: u64) -> std::result::Result<Verdict, Box<dyn std::error::Error + Send + Sync>> {
    let memory = Memory::default();
    let open = || {
        FileJournal::open_in(
            Arc::new(memory.clone()),
            0,
            ChecksumKind::Crc32c,
            RecoveryMode::PointInTime,
        )
    };
    let (journal, _) = open()?;
    let tables = MemTableOptions::builder()
        .write_buffer_size(4 << 20)
        .seed(seed)
        .build()?;
    let set = MemTableSet::open(
        SetOptions::builder()
            .table(tables)
            .journal(Arc::new(journal))
            .build()?,
        (),
    )?;
    let (mut model, mut random, mut number) = (Model::default(), Random(seed), 0);
    let mut batch_of = |model: &mut Model| -> Result<WriteBatch> {
        let mut batch = WriteBatch::with_protection(8)?;
        let keys: BTreeSet<Vec<u8>> =
            std::iter::repeat_with(|| key(Random(random.below(KEYS)).draw()))
                .take(8)
                .collect();
        for user_key in keys {
            number += 1;
            batch.put(&user_key, value(number))?;
            model.insert(user_key, number, Kind::PUT, value(number));
        }
        Ok(batch)
    };
    for _ in 0..30 {
        let batch = batch_of(&mut model)?;
        set.write(&batch)?;
    }
    let mut after = model.clone();
    let batch = batch_of(&mut after)?;
    ready()?;
    let outcome = measured(|| set.write(&batch));

    let sum = (model.sum(), after.sum());
    let allowed = Allowed {
        before: &model,
        after: &after,
        is_done: outcome.is_ok(),
    };
    let mut findings = Findings::default();
    let view = set.view();
    for reader in view.readers() {
        findings.read(reader, &allowed);
    }
    drop((view, set));
    let recovered = MemTable::default();
    let replayed = open().and_then(|(_, recovery)| {
        recovery.replay(|first, batch| recovered.write_batch(first, &batch).map(drop))
    });
    match replayed {
        Err(error) => findings.answer("recovery", Err(error)),
        Ok(replayed) if replayed.cut_bytes > 0 || !replayed.findings.is_empty() => {
            findings.notice()
        }
        Ok(_) => findings.inspect(&recovered, &allowed),
    }
    Ok(findings.verdict(&outcome, || sum == (model.sum(), after.sum())))
}

// Compares all answers of a table with the answers that are allowed.

/// The states that a table may have: the one after the operation, and, if it returned an error,
/// also the one before.
struct Allowed<'m> {
    before: &'m Model,
    after: &'m Model,
    is_done: bool,
}

impl Allowed<'_> {
    fn has(&self, is_right: impl Fn(&Model) -> bool) -> bool {
        is_right(self.after) || (!self.is_done && is_right(self.before))
    }
}

/// Counts of wrong answers and errors so far.
#[derive(Debug, Default)]
struct Findings {
    wrong: usize,
    missing: usize,
    errors: usize,
    scrubbed: usize,
}

fn bytes(found: Lookup<ValueRef<'_>, Operands<'_>>) -> Option<Vec<u8>> {
    match found {
        Lookup::Value(value) => Some(value.to_vec()),
        _ => None,
    }
}

/// Collects the output of a flush. As the next stage of an engine does, it compares its own copies
/// with the flush's items: an entry by its digests, a fragment by its bytes.
fn collect(frozen: &ImmutableMemTable, versions: Versions<'_>) -> Result<Collected> {
    // A list that grows would be copied once more.
    let (mut entries, mut ranges) = (
        Vec::with_capacity(COPIES_MAX),
        Vec::with_capacity(COPIES_MAX),
    );
    let mut flush = frozen.flush_iter(versions)?;
    while let Some(item) = flush.next()? {
        let is_copied = match item {
            FlushItem::Entry(entry) => {
                entries.push((
                    entry.user_key.to_vec(),
                    entry.sequence,
                    entry.kind,
                    entry.value.to_vec(),
                ));
                black_box(&entries)
                    .last()
                    .is_some_and(|(user_key, sequence, kind, value)| {
                        entry
                            .protection
                            .check(user_key, value, *sequence, *kind)
                            .is_some()
                    })
            }
            FlushItem::Fragment(fragment) => {
                let before = ranges.len();
                ranges.extend(pieces(&fragment));
                black_box(&ranges)[before..]
                    .iter()
                    .cloned()
                    .eq(pieces(black_box(&fragment)))
            }
        };
        if !is_copied {
            return Err(Error::InvalidArgument(
                "a copy differs from what was flushed".into(),
            ));
        }
    }
    // A flipped register may have turned an item into `None`.
    flush
        .summary()
        .ok_or_else(|| Error::InvalidArgument("the flush did not end".into()))?;
    Ok((entries, ranges))
}

/// A fragment, repeated for each of its numbers.
fn pieces<'f>(fragment: &Fragment<'f>) -> impl Iterator<Item = Deleted> + use<'f> {
    let (start, end) = (fragment.start(), fragment.end());
    fragment
        .sequences()
        .iter()
        .map(move |sequence| (start.to_vec(), end.to_vec(), *sequence))
}

fn version(entry: Entry<'_>) -> Result<Version> {
    Ok((
        entry.user_key().to_vec(),
        entry.sequence(),
        entry.kind(),
        entry.value()?.to_vec(),
    ))
}

impl Findings {
    /// Counts an answer, which was right or not, or an error.
    fn answer(&mut self, question: &str, answer: Result<bool>) {
        match answer {
            Ok(true) => {}
            Ok(false) => {
                self.wrong += 1;
                eprintln!("wrong: {question}");
            }
            Err(error) => {
                self.errors += 1;
                eprintln!("{question}: {error}");
            }
        }
    }

    /// Counts damage that was reported, but not as an error.
    fn notice(&mut self) {
        self.errors += 1;
    }

    /// Reads everything, and then freezes and flushes the table.
    fn inspect(&mut self, table: &MemTable, allowed: &Allowed<'_>) {
        self.read(table, allowed);
        if table.scrub(|_| {}).check().is_err() {
            self.scrubbed += 1;
        }
        let flushed = table
            .freeze()
            .and_then(|frozen| collect(&frozen, Versions::All));
        self.answer(
            "flush",
            flushed.map(|flushed| {
                !allowed.is_done || Flushed::new(flushed) == allowed.after.flushed(Numbers::All)
            }),
        );
    }

    /// Reads everything through a reader.
    fn read(&mut self, table: &TableReader, allowed: &Allowed<'_>) {
        let keys: Vec<&[u8]> = allowed.after.user_keys().collect();
        for user_key in &keys {
            self.point(table, user_key, allowed);
        }
        for keys in keys.chunks(24) {
            for (user_key, found) in keys.iter().zip(table.multi_get(keys, SequenceNumber::MAX)) {
                let is_right = |found| allowed.has(|model| shown(model, user_key) == found);
                self.answer("multi_get", found.map(|found| is_right(bytes(found))));
            }
        }
        let visible =
            |entries: Result<Vec<Version>>| entries.map(|entries| is_visible(&entries, allowed));
        let of = |entry: Result<Entry<'_>>| entry.and_then(version);
        self.answer(
            "scan",
            visible(table.range_at(.., SequenceNumber::MAX).map(of).collect()),
        );
        let backward: Result<Vec<_>> = table
            .range_at(.., SequenceNumber::MAX)
            .rev()
            .map(of)
            .collect();
        self.answer("scan back", visible(backward.map(reversed)));
        let raw = |entries: Result<Vec<Version>>| entries.map(|entries| is_raw(&entries, allowed));
        self.answer("all versions", raw(table.range(..).map(of).collect()));
        let backward: Result<Vec<_>> = table.range(..).rev().map(of).collect();
        self.answer("all versions, back", raw(backward.map(reversed)));
        self.seeks(table, &keys, allowed);
        let fragments = table
            .range_tombstones(SequenceNumber::MAX)
            .map(|fragments| {
                let of = |it: Fragment<'_>| {
                    (
                        it.start().to_vec(),
                        it.end().to_vec(),
                        it.sequences().to_vec(),
                    )
                };
                let found: Vec<_> = fragments.iter().map(of).collect();
                allowed.has(|model| model.fragments(Numbers::Newest) == found)
            });
        self.answer("range tombstones", fragments);
    }

    fn point(&mut self, table: &TableReader, user_key: &[u8], allowed: &Allowed<'_>) {
        let found = table.get(user_key, SequenceNumber::MAX).map(bytes);
        if let Ok(found) = &found
            && allowed.is_done
            && *found != shown(allowed.after, user_key)
            && *found == shown(allowed.before, user_key)
        {
            self.missing += 1;
        }
        self.answer(
            "get",
            found.map(|found| allowed.has(|model| shown(model, user_key) == found)),
        );
    }

    fn seeks(&mut self, table: &TableReader, keys: &[&[u8]], allowed: &Allowed<'_>) {
        if !allowed.is_done {
            return;
        }
        for user_key in keys.iter().step_by(7) {
            let mut cursor = table.cursor_at(SequenceNumber::MAX);
            let found = cursor
                .seek(user_key)
                .and_then(|entry| entry.map(version).transpose());
            let is_right = |found: Option<Version>| {
                let found = found.map(|(user_key, .., value)| (user_key, value));
                found == allowed.after.from(user_key, 1).pop()
            };
            self.answer("seek", found.map(is_right));
        }
    }

    /// The verdict on all findings. `is_intact` says whether the model has changed.
    fn verdict<T>(&self, outcome: &Result<T>, is_intact: impl Fn() -> bool) -> Verdict {
        match self {
            _ if self.wrong > 0 && !is_intact() => Verdict::Stray,
            _ if self.wrong > 0 && self.missing > 0 => Verdict::Lost,
            _ if self.wrong > 0 => Verdict::Silent,
            _ if outcome.is_err() => Verdict::Refused,
            _ if self.errors > 0 => Verdict::Noticed,
            _ if self.scrubbed > 0 => Verdict::Scrubbed,
            _ => Verdict::Right,
        }
    }
}

fn shown(model: &Model, user_key: &[u8]) -> Option<Vec<u8>> {
    model
        .visible(user_key, SequenceNumber::MAX)
        .map(<[u8]>::to_vec)
}

fn reversed(mut entries: Vec<Version>) -> Vec<Version> {
    entries.reverse();
    entries
}

/// Whether the entries are those of a scan: in order, and each with an allowed version.
fn is_visible(entries: &[Version], allowed: &Allowed<'_>) -> bool {
    let found: BTreeMap<&[u8], &[u8]> = entries
        .iter()
        .map(|(key, .., value)| (&key[..], &value[..]))
        .collect();
    let keys = allowed
        .before
        .user_keys()
        .chain(allowed.after.user_keys())
        .chain(found.keys().copied());
    let is_right = |user_key: &[u8]| {
        allowed.has(|model| {
            model.visible(user_key, SequenceNumber::MAX) == found.get(user_key).copied()
        })
    };
    entries.is_sorted_by(|one, next| one.0 < next.0) && keys.into_iter().all(is_right)
}

/// Whether the entries are all versions, in order: no more than after the operation, no fewer than
/// before it.
fn is_raw(entries: &[Version], allowed: &Allowed<'_>) -> bool {
    if allowed.is_done {
        return entries == allowed.after.versions();
    }
    let has = |of: &[Version], version| of.contains(version);
    let (before, after) = (allowed.before.versions(), allowed.after.versions());
    entries
        .iter()
        .all(|entry| has(&before, entry) || has(&after, entry))
        && entries.len() >= before.len()
}

// Files in memory, so that copies of a process do not share them.

/// The bytes of a file, which stay the same when it is renamed.
type Bytes = Arc<Mutex<Vec<u8>>>;
type Files = BTreeMap<String, Bytes>;

/// A directory, shared by its clones.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Files>>);

/// One file of a directory.
#[derive(Debug)]
struct MemoryFile(Bytes);

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn name_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl Memory {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All bytes of a file; none if there is no such file.
    fn file(&self, name: &str) -> Vec<u8> {
        self.bytes_of(name).unwrap_or_default()
    }

    fn bytes_of(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = self.files().get(name).cloned().ok_or_else(missing)?;
        Ok(MemoryFile(file).bytes().clone())
    }

    fn make(&self, name: &str) -> io::Result<MemoryFile> {
        let file = Bytes::default();
        match self.files().insert(name.to_string(), Arc::clone(&file)) {
            None => Ok(MemoryFile(file)),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn move_file(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or_else(missing)?;
        files.insert(to.to_string(), file);
        Ok(())
    }
}

impl MemoryFile {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageFile for MemoryFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.bytes().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for Memory {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(self.make(name)?))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.bytes_of(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name).map(drop).ok_or_else(missing)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.move_file(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for MemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl paranoid_sst::StorageFile for MemoryFile {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl paranoid_sst::Storage for Memory {
    type File = MemoryFile;

    fn create_new(&self, path: &Path) -> io::Result<MemoryFile> {
        self.make(&name_of(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.files().contains_key(&name_of(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.move_file(&name_of(from), &name_of(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files()
            .remove(&name_of(path))
            .map(drop)
            .ok_or_else(missing)
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<TableSource> {
        Ok(TableSource::memory(Arc::new(
            self.bytes_of(&name_of(path))?,
        )))
    }
}
