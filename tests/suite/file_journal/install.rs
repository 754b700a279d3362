//! Crashes of a whole engine: a set over a journal of files, table files and a manifest on a disk that forgets, tears and
//! reorders what was not synced. Whatever step the machine stops at, around an install above all: what was acknowledged as
//! synced is read, and what is read is what some prefix of the batches wrote.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use paranoid_memtable::set::{Durability, FileJournal, MemTableSet, RecoveryMode, SetOptions, Storage};
use paranoid_memtable::{ChecksumKind, Error, Kind, MemTableOptions, WriteBatch};

use crate::support::disk::{End, Plan, SimDisk};
use crate::support::rng::{Rng, amount, seed_or};
use crate::support::sets::{History, Version, read_through};
use crate::support::watchdog::{Watchdog, replay_line};

const KEYS: u64 = 12;
/// Each batch puts its number here, and under one of the names that the last batches share.
const NUMBER: &[u8] = b"number";
const LAST: u64 = 8;

/// What an engine leaves out before it installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forgets {
    Nothing,
    /// The sync of its table files.
    Tables,
    /// The sync of its manifest.
    Manifest,
    /// The sync of the directory.
    Names,
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The engine, and what it knows.
pub(super) struct Engine {
    disk: SimDisk,
    set: MemTableSet<History>,
    forgets: Forgets,
    /// Names of its table files.
    tables: Vec<String>,
    /// The number of its next file.
    next_file: u64,
}

/// What was written, by the numbers of the batches: each attempt has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    /// What is read after each batch; also after those that were refused, as long as nothing says that they were not written after all.
    states: BTreeMap<u64, State>,
    /// The last batch that reads see, and the last one that was tried.
    visible: u64,
    tried: u64,
    /// The last batch that was acknowledged, and the last one that was acknowledged as synced.
    acknowledged: u64,
    synced: u64,
    /// What was acknowledged as synced since the last opening.
    syncs: Vec<Sync>,
}

/// A batch that is durable, the newest file of the journal at that time, and its length.
#[derive(Debug, Clone, Default)]
struct Sync {
    number: u64,
    file: String,
    len: usize,
}

impl Written {
    /// Whether another file than this one can know of a later sync that the first of the lost batches was durable.
    pub(super) fn is_known_outside(&self, first_lost: u64, file: &str) -> bool {
        let known = self.syncs.iter().skip_while(|sync| sync.number < first_lost);
        known.skip(1).any(|sync| sync.file != file)
    }

    /// The last batch that was acknowledged as synced.
    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// Where a file ended when a sync was acknowledged.
    pub(super) fn an_end_of(&self, file: &str, rng: &mut Rng) -> Option<usize> {
        let ends: Vec<usize> =
            self.syncs.iter().filter(|sync| sync.file == file).map(|sync| sync.len).collect();
        (!ends.is_empty()).then(|| *rng.pick(&ends))
    }

    /// Whatever ends: what only the system's cache has ends with the power.
    pub(super) fn ended(&mut self, end: End) {
        if end == End::Power {
            self.acknowledged = self.synced;
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("k{number:02}").into_bytes()
}

fn last(number: u64) -> Vec<u8> {
    format!("last{}", number % LAST).into_bytes()
}

fn field(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend((field.len() as u32).to_le_bytes());
    bytes.extend(field);
}

/// Fields behind a checksum.
fn sealed(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![];
    fields.iter().for_each(|it| field(&mut body, it));
    [&ChecksumKind::Crc32c.checksum(&body).to_le_bytes(), body.as_slice()].concat()
}

fn unsealed(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (checksum, mut body) = bytes.split_at_checked(4)?;
    if ChecksumKind::Crc32c.checksum(body).to_le_bytes() != checksum {
        return None;
    }
    let mut fields = vec![];
    while let Some((len, rest)) = body.split_first_chunk::<4>() {
        let (field, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        fields.push(field.to_vec());
        body = rest;
    }
    Some(fields)
}

fn table_file(history: &History) -> Vec<u8> {
    let point = |((key, Reverse(sequence)), (kind, value)): (&Version, &(Kind, Vec<u8>))| {
        [key.clone(), sequence.to_be_bytes().to_vec(), format!("{kind:?}").into_bytes(), value.clone()]
    };
    let ranges = history.ranges.iter().map(|(start, end, sequence)| {
        [start.clone(), sequence.to_be_bytes().to_vec(), b"range".to_vec(), end.clone()]
    });
    sealed(&history.points.iter().map(point).chain(ranges).flatten().collect::<Vec<_>>())
}

/// Adds what a table file holds.
fn add_table(history: &mut History, bytes: &[u8]) -> Option<()> {
    let kinds = [(format!("{:?}", Kind::PUT), Kind::PUT), (format!("{:?}", Kind::DELETE), Kind::DELETE)];
    for entry in unsealed(bytes)?.chunks(4) {
        let [key, sequence, kind, value] = entry else { return None };
        let sequence = u64::from_be_bytes(sequence.as_slice().try_into().ok()?);
        let point = kinds.iter().find(|known| known.0.as_bytes() == kind);
        history.insert(sequence, point.map_or(Kind::RANGE_DELETE, |known| known.1), key, value);
    }
    Some(())
}

fn io(error: std::io::Error) -> Error {
    Error::Sink(Arc::new(error))
}

impl Engine {
    /// Opens what the disk has.
    pub(super) fn open(disk: &SimDisk, forgets: Forgets) -> Result<Engine, Error> {
        let names = disk.list().map_err(io)?;
        let number = |name: &String| name.split('-').next_back().and_then(|it| it.parse::<u64>().ok());
        let own = |name: &&String| name.starts_with("manifest-") || name.starts_with("table-");
        let next_file = names.iter().filter(own).filter_map(number).max().unwrap_or(0) + 1;
        let (mut last, mut tables) = (0, vec![]);
        let manifests = names.iter().filter(|name| name.starts_with("manifest-"));
        for name in manifests {
            let Some(fields) = unsealed(&disk.read(name).map_err(io)?) else { continue };
            let Some((number, files)) = fields.split_first() else { continue };
            last = number.as_slice().try_into().map_or(0, u64::from_be_bytes);
            tables = files.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        }
        let mut base = History::default();
        for name in &tables {
            let bytes = disk.read(name).map_err(io)?;
            add_table(&mut base, &bytes)
                .ok_or_else(|| io(std::io::Error::other(format!("{name} is torn"))))?;
        }
        let set = MemTableSet::open(SetOptions::default(), History::default())?;
        let mut engine = Engine { disk: disk.clone(), set, forgets, tables: tables.clone(), next_file };
        // Only the system's cache may have the manifest that was read, and the journal forgets what its tables hold.
        engine.write_manifest(last, &tables)?;
        let storage = Arc::new(disk.clone());
        let (journal, recovery) = FileJournal::open_in(
            storage,
            last,
            ChecksumKind::Crc32c,
            RecoveryMode::TolerateCorruptedTailRecords,
        )?;
        let table = MemTableOptions::builder().write_buffer_size(16 << 10).build()?;
        let options =
            SetOptions::builder().table(table).first_table(journal.next_table()).last_sequence(last);
        let options = options.max_write_buffer_number(u64::MAX);
        engine.set = MemTableSet::open(options.journal(Arc::new(journal)).build()?, base)?;
        let replayed = recovery.replay(|_, batch| engine.set.replay(&batch).map(drop))?;
        engine.set.skip_to(replayed.last_sequence)?;
        Ok(engine)
    }

    fn write_file(&mut self, kind: &str, bytes: &[u8]) -> Result<String, Error> {
        let name = format!("{kind}-{:08}", self.next_file);
        self.next_file += 1;
        let file = self.disk.create(&name).map_err(io)?;
        file.append(bytes).map_err(io)?;
        let is_forgotten = self.forgets == if kind == "table" { Forgets::Tables } else { Forgets::Manifest };
        if !is_forgotten {
            file.sync().map_err(io)?;
        }
        if self.forgets != Forgets::Names {
            self.disk.sync_dir().map_err(io)?;
        }
        Ok(name)
    }

    fn write_manifest(&mut self, last_sequence: u64, tables: &[String]) -> Result<(), Error> {
        let mut fields = vec![last_sequence.to_be_bytes().to_vec()];
        fields.extend(tables.iter().map(|name| name.clone().into_bytes()));
        self.write_file("manifest", &sealed(&fields)).map(drop)
    }

    /// A flush into a table file and a new manifest, and its install.
    fn flush(&mut self) -> Result<(), Error> {
        let Some(mut job) = self.set.begin_flush()? else { return Ok(()) };
        let mut flushed = History::default();
        job.flush(&mut flushed)?;
        let bytes = table_file(&flushed);
        let mut tables = self.tables.clone();
        tables.push(self.write_file("table", &bytes)?);
        self.write_manifest(job.last_sequence(), &tables)?;
        self.tables = tables;
        let mut base = History::clone(self.set.view().base());
        add_table(&mut base, &bytes);
        job.install(base)
    }

    fn write(&self, written: &mut Written, rng: &mut Rng) -> Result<(), Error> {
        let mut state = written.states.get(&written.visible).cloned().unwrap_or_default();
        written.tried += 1;
        let number = written.tried;
        let mut batch = WriteBatch::with_protection(8)?;
        for _ in 0..rng.below(4) {
            let (name, value) = (key(rng.below(KEYS)), rng.bytes(80));
            match rng.below(5) {
                0 => {
                    batch.delete(&name)?;
                    state.remove(&name);
                }
                1 => {
                    let end = key(rng.below(KEYS) + 1);
                    if name < end {
                        batch.delete_range(&name, &end)?;
                        state.retain(|it, _| *it < name || *it >= end);
                    }
                }
                _ => {
                    batch.put(&name, &value)?;
                    state.insert(name, value);
                }
            }
        }
        for name in [NUMBER.to_vec(), last(number)] {
            batch.put(&name, &number.to_be_bytes())?;
            state.insert(name, number.to_be_bytes().to_vec());
        }
        written.states.insert(number, state);
        let durability = *rng.pick(&[Durability::Buffered, Durability::Synced]);
        self.set.write_with(&batch, durability)?;
        (written.visible, written.acknowledged) = (number, number);
        if durability == Durability::Synced {
            written.synced = number;
            written.syncs.push(self.sync(number));
        }
        Ok(())
    }

    fn sync(&self, number: u64) -> Sync {
        let newest = self.disk.files().into_iter().rfind(|(name, _)| name.ends_with(".journal"));
        let (file, bytes) = newest.unwrap_or_default();
        Sync { number, file, len: bytes.len() }
    }

    pub(super) fn work(&mut self, written: &mut Written, rng: &mut Rng) -> Result<(), Error> {
        match rng.below(12) {
            0..=7 => self.write(written, rng),
            8..=9 => self.set.switch().map(drop),
            _ => self.flush(),
        }
    }

    /// What is read.
    fn read(&self) -> (u64, State) {
        let view = self.set.view();
        let keys = (0..KEYS).map(key).chain((0..LAST).map(last)).chain([NUMBER.to_vec()]);
        let read = keys.filter_map(|key| Some((key.clone(), read_through(&view, &key).value?)));
        let state: State = read.collect();
        let number = state.get(NUMBER).map_or(0, |it| u64::from_be_bytes(it.as_slice().try_into().unwrap()));
        (number, state)
    }

    /// Compares what is read, which ends with a batch from `first` on, with what was written.
    pub(super) fn compare(&self, written: &Written, first: u64) -> Result<u64, String> {
        let (number, state) = self.read();
        if number < first {
            return Err(format!("batch {first} was acknowledged, and {number} is the last one"));
        }
        let none = State::new();
        let known = written.states.get(&number).unwrap_or(&none);
        let differs = |key: &&Vec<u8>| known.get(*key) != state.get(*key);
        let wrong: Vec<_> =
            known.keys().chain(state.keys()).filter(differs).map(|key| key.escape_ascii()).collect();
        if let Some(first) = wrong.first() {
            return Err(format!("after batch {number}: {first} and {} others are wrong", wrong.len() - 1));
        }
        Ok(number)
    }

    /// Compares what is read after an opening with what was written, and goes on from there.
    pub(super) fn opened(&self, written: &mut Written) -> Result<(), String> {
        let number = self.compare(written, written.acknowledged)?;
        written.states.split_off(&(number + 1));
        (written.visible, written.acknowledged, written.synced) = (number, number, number);
        written.syncs = vec![self.sync(number)];
        Ok(())
    }

    /// After a call that failed: the set takes writes again, and reads see what they saw, with what failed or without.
    pub(super) fn failed(&self, written: &mut Written) -> Result<(), String> {
        for _ in 0..20 {
            if self.set.read_only().is_none() || self.set.resume().is_ok() {
                break;
            }
        }
        written.visible = self.compare(written, written.visible)?;
        Ok(())
    }
}

/// Opens, works, crashes, a few times.
fn crash(seed: u64, forgets: Forgets) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut written = Written::default();
    let mut disk = SimDisk::new(rng.next_u64(), Plan::default());
    for _ in 0..3 {
        let crash_at = Some(rng.below(160));
        disk.set_plan(Plan { crash_at, ..Plan::default() });
        match Engine::open(&disk, forgets) {
            Err(_) if disk.is_down() => {}
            Err(error) => return Err(format!("open: {error}")),
            Ok(mut engine) => {
                engine.opened(&mut written)?;
                while !disk.is_down() {
                    if let Err(error) = engine.work(&mut written, &mut rng)
                        && !disk.is_down()
                    {
                        return Err(format!("work: {error}"));
                    }
                }
            }
        }
        let end = *rng.pick(&[End::Process, End::Power, End::Power]);
        written.ended(end);
        disk = disk.after(end, &mut rng);
    }
    let engine = Engine::open(&disk, forgets).map_err(|error| format!("at last: {error}"))?;
    engine.opened(&mut written)
}

#[test]
fn what_was_installed_is_read_after_a_crash() {
    let test = "file_journal::install::what_was_installed_is_read_after_a_crash";
    let mut seed = seed_or(std::process::id().into());
    let crashes = amount(10_000, 100);
    println!("{test}: seed {seed:#x}, {crashes} crashes");
    let _watchdog = Watchdog::new(test, seed);
    for _ in 0..crashes / 3 {
        if let Err(text) = crash(seed, Forgets::Nothing) {
            panic!("{text}\nreplay: {}", replay_line(test, seed));
        }
        seed = Rng::new(seed).next_u64();
    }
}

#[test]
fn a_forgotten_sync_before_an_install_is_noticed() {
    let test = "file_journal::install::a_forgotten_sync_before_an_install_is_noticed";
    let seed = seed_or(5);
    let _watchdog = Watchdog::new(test, seed);
    for forgets in [Forgets::Tables, Forgets::Manifest, Forgets::Names] {
        let noticed = (seed..seed + 400).find_map(|seed| crash(seed, forgets).err());
        println!("{forgets:?}: {noticed:?}");
        assert!(noticed.is_some(), "{forgets:?}");
    }
}
