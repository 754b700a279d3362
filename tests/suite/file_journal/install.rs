//! Crashes of a whole engine: a set over a journal of files, table files and a manifest, on a disk
//! that loses, tears and reorders writes before a sync. The machine stops at any step, above all
//! around an install. Every batch that was acknowledged as synced is read, and the state is that
//! after some prefix of the batches.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use paranoid_memtable::{ChecksumKind, Error, Kind, MemTableOptions, WriteBatch};
use paranoid_set::{
    Durability, FileJournal, FlushJob, JournalRecovery, MemTableSet, RecoveryMode, SetOptions,
    SetOptionsBuilder, Storage,
};

use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
use crate::support::sets::{End, History, Plan, SimDisk, Version, read_through};

const KEYS: u64 = 12;
/// Each batch puts its number under this key, and under one of the names that the last batches
/// share.
const NUMBER: &[u8] = b"number";
const LAST: u64 = 8;

/// A step that an engine leaves out before it installs.
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

/// The engine.
pub(super) struct Engine {
    pub(super) set: MemTableSet<History>,
    pub(super) files: Arc<Mutex<Files>>,
    /// The length of one value in eight; the others have 80 bytes.
    pub(super) long: usize,
}

/// The engine's files, and their names and numbers.
pub(super) struct Files {
    disk: SimDisk,
    forgets: Forgets,
    /// Names of the table files.
    tables: Vec<String>,
    /// The number of the next file.
    next_file: u64,
}

/// The written batches, by their numbers: each attempt has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    /// The state after each batch. It also has refused batches, as long as nothing shows that they
    /// were not written.
    states: BTreeMap<u64, State>,
    /// The last batch that reads see, and the last one that was tried.
    visible: u64,
    tried: u64,
    /// The last batch that was acknowledged, and the last one that was acknowledged as synced.
    acknowledged: u64,
    synced: u64,
    /// Batches that were acknowledged as synced since the last opening.
    syncs: Vec<Sync>,
}

/// A durable batch, the newest file of the journal at that time, and its length.
#[derive(Debug, Clone, Default)]
struct Sync {
    number: u64,
    file: String,
    len: usize,
}

impl Written {
    /// Whether another file can show, by a later sync, that the first of the lost batches was
    /// durable.
    pub(super) fn is_known_outside(&self, first_lost: u64, file: &str) -> bool {
        let known = self
            .syncs
            .iter()
            .skip_while(|sync| sync.number < first_lost);
        known.skip(1).any(|sync| sync.file != file)
    }

    /// The last batch that was acknowledged as synced.
    pub(super) fn synced(&self) -> u64 {
        self.synced
    }

    /// A length of a file at the time of an acknowledged sync.
    pub(super) fn an_end_of(&self, file: &str, rng: &mut Rng) -> Option<usize> {
        let ends: Vec<usize> = self
            .syncs
            .iter()
            .filter(|sync| sync.file == file)
            .map(|sync| sync.len)
            .collect();
        (!ends.is_empty()).then(|| *rng.pick(&ends))
    }

    /// An end of the process or the power: data in the system's cache is lost with the power.
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

/// Fields after a checksum.
fn sealed(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![];
    fields.iter().for_each(|it| field(&mut body, it));
    [
        &ChecksumKind::Crc32c.checksum(&body).to_le_bytes(),
        body.as_slice(),
    ]
    .concat()
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
        [
            key.clone(),
            sequence.to_be_bytes().to_vec(),
            format!("{kind:?}").into_bytes(),
            value.clone(),
        ]
    };
    let ranges = history.ranges.iter().map(|(start, end, sequence)| {
        [
            start.clone(),
            sequence.to_be_bytes().to_vec(),
            b"range".to_vec(),
            end.clone(),
        ]
    });
    sealed(
        &history
            .points
            .iter()
            .map(point)
            .chain(ranges)
            .flatten()
            .collect::<Vec<_>>(),
    )
}

/// Adds the entries of a table file.
fn add_table(history: &mut History, bytes: &[u8]) -> Option<()> {
    let kinds = [
        (format!("{:?}", Kind::PUT), Kind::PUT),
        (format!("{:?}", Kind::DELETE), Kind::DELETE),
    ];
    for entry in unsealed(bytes)?.chunks(4) {
        let [key, sequence, kind, value] = entry else {
            return None;
        };
        let sequence = u64::from_be_bytes(sequence.as_slice().try_into().ok()?);
        let point = kinds.iter().find(|known| known.0.as_bytes() == kind);
        history.insert(
            sequence,
            point.map_or(Kind::RANGE_DELETE, |known| known.1),
            key,
            value,
        );
    }
    Some(())
}

impl Files {
    fn write_file(&mut self, kind: &str, bytes: &[u8]) -> Result<String, Error> {
        let name = format!("{kind}-{:08}", self.next_file);
        self.next_file += 1;
        let file = self.disk.create(&name)?;
        file.append(bytes)?;
        let is_forgotten = self.forgets
            == if kind == "table" {
                Forgets::Tables
            } else {
                Forgets::Manifest
            };
        if !is_forgotten {
            file.sync()?;
        }
        if self.forgets != Forgets::Names {
            self.disk.sync_dir()?;
        }
        Ok(name)
    }

    fn write_manifest(&mut self, last_sequence: u64, tables: &[String]) -> Result<(), Error> {
        let mut fields = vec![last_sequence.to_be_bytes().to_vec()];
        fields.extend(tables.iter().map(|name| name.clone().into_bytes()));
        self.write_file("manifest", &sealed(&fields)).map(drop)
    }

    /// Flushes into a table file and a new manifest, and installs them.
    pub(super) fn flush(&mut self, mut job: FlushJob<History>) -> Result<(), Error> {
        let mut flushed = History::default();
        job.flush(&mut flushed)?;
        let bytes = table_file(&flushed);
        let mut tables = self.tables.clone();
        tables.push(self.write_file("table", &bytes)?);
        self.write_manifest(job.last_sequence(), &tables)?;
        self.tables = tables;
        job.install(|base| {
            let mut base = base.clone();
            add_table(&mut base, &bytes);
            Ok(base)
        })
    }
}

impl Engine {
    /// Opens the files of the disk.
    pub(super) fn open(disk: &SimDisk, forgets: Forgets) -> Result<Engine, Error> {
        let table = MemTableOptions::builder()
            .write_buffer_size(16 << 10)
            .build()?;
        let options = SetOptions::builder()
            .table(table)
            .max_write_buffer_number(u64::MAX);
        let mode = RecoveryMode::TolerateCorruptedTailRecords;
        let (engine, recovery) = Engine::begin(disk, forgets, options, mode)?;
        recovery.replay(|_, batch| engine.set.replay(&batch).map(drop))?;
        Ok(engine)
    }

    /// Opens the files of the disk, without the batches of its journal.
    pub(super) fn begin(
        disk: &SimDisk,
        forgets: Forgets,
        options: SetOptionsBuilder,
        mode: RecoveryMode,
    ) -> Result<(Engine, JournalRecovery), Error> {
        let names = disk.list()?;
        let number = |name: &String| {
            name.split('-')
                .next_back()
                .and_then(|it| it.parse::<u64>().ok())
        };
        let own = |name: &&String| name.starts_with("manifest-") || name.starts_with("table-");
        let next_file = names
            .iter()
            .filter(own)
            .filter_map(number)
            .max()
            .unwrap_or(0)
            + 1;
        let (mut last, mut tables) = (0, vec![]);
        let manifests = names.iter().filter(|name| name.starts_with("manifest-"));
        for name in manifests {
            let Some(fields) = unsealed(&disk.read(name)?) else {
                continue;
            };
            let Some((number, files)) = fields.split_first() else {
                continue;
            };
            last = number.as_slice().try_into().map_or(0, u64::from_be_bytes);
            tables = files
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
        }
        let mut base = History::default();
        for name in &tables {
            let bytes = disk.read(name)?;
            add_table(&mut base, &bytes)
                .ok_or_else(|| std::io::Error::other(format!("{name} is torn")))?;
        }
        let mut files = Files {
            disk: disk.clone(),
            forgets,
            tables: tables.clone(),
            next_file,
        };
        // The manifest that was read may be only in the system's cache, and the journal drops the
        // batches that its tables hold.
        files.write_manifest(last, &tables)?;
        let storage = Arc::new(disk.clone());
        let (journal, recovery) = FileJournal::open_in(storage, last, ChecksumKind::Crc32c, mode)?;
        let options = options
            .first_table(journal.next_table())
            .last_sequence(last);
        let set = MemTableSet::open(options.journal(Arc::new(journal)).build()?, base)?;
        Ok((
            Engine {
                set,
                files: Arc::new(Mutex::new(files)),
                long: 80,
            },
            recovery,
        ))
    }

    /// Flushes the sealed tables.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let Some(job) = self.set.begin_flush()? else {
            return Ok(());
        };
        self.files.lock().unwrap().flush(job)
    }

    pub(super) fn write(&self, written: &mut Written, rng: &mut Rng) -> Result<(), Error> {
        let mut state = written
            .states
            .get(&written.visible)
            .cloned()
            .unwrap_or_default();
        written.tried += 1;
        let number = written.tried;
        let mut batch = WriteBatch::with_protection(8)?;
        for _ in 0..rng.below(4) {
            let len = if rng.one_in(8) { self.long } else { 80 };
            let (name, value) = (key(rng.below(KEYS)), rng.bytes(len));
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
            batch.put(&name, number.to_be_bytes())?;
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
        let newest = self
            .files
            .lock()
            .unwrap()
            .disk
            .files()
            .into_iter()
            .rfind(|(name, _)| name.ends_with(".journal"));
        let (file, bytes) = newest.unwrap_or_default();
        Sync {
            number,
            file,
            len: bytes.len(),
        }
    }

    pub(super) fn work(&self, written: &mut Written, rng: &mut Rng) -> Result<(), Error> {
        match rng.below(12) {
            0..=7 => self.write(written, rng),
            8..=9 => self.set.switch().map(drop),
            _ => self.flush(),
        }
    }

    /// Reads the state.
    fn read(&self) -> (u64, State) {
        let view = self.set.view();
        let keys = (0..KEYS)
            .map(key)
            .chain((0..LAST).map(last))
            .chain([NUMBER.to_vec()]);
        let read = keys.filter_map(|key| Some((key.clone(), read_through(&view, &key).value?)));
        let state: State = read.collect();
        let number = state.get(NUMBER).map_or(0, |it| {
            u64::from_be_bytes(it.as_slice().try_into().unwrap())
        });
        (number, state)
    }

    /// Compares the state, which ends with a batch at or after `first`, with the written batches.
    pub(super) fn compare(&self, written: &Written, first: u64) -> Result<u64, String> {
        let (number, state) = self.read();
        if number < first {
            return Err(format!(
                "batch {first} was acknowledged, and {number} is the last one"
            ));
        }
        let none = State::new();
        let known = written.states.get(&number).unwrap_or(&none);
        let differs = |key: &&Vec<u8>| known.get(*key) != state.get(*key);
        let wrong: Vec<_> = known
            .keys()
            .chain(state.keys())
            .filter(differs)
            .map(|key| key.escape_ascii())
            .collect();
        if let Some(first) = wrong.first() {
            return Err(format!(
                "after batch {number}: {first} and {} others are wrong",
                wrong.len() - 1
            ));
        }
        Ok(number)
    }

    /// Compares the state after an opening with the written batches, and continues from there.
    pub(super) fn opened(&self, written: &mut Written) -> Result<(), String> {
        let number = self.compare(written, written.acknowledged)?;
        written.states.split_off(&(number + 1));
        (written.visible, written.acknowledged, written.synced) = (number, number, number);
        written.syncs = vec![self.sync(number)];
        Ok(())
    }

    /// After a call that failed, reads see their earlier state, with or without the failed batch.
    /// Returns whether the set is read-only; then all that is visible is flushed, or not.
    pub(super) fn failed(&self, written: &mut Written, rng: &mut Rng) -> Result<bool, String> {
        written.visible = self.compare(written, written.visible)?;
        let is_over = self.set.read_only().is_some();
        if is_over && rng.one_in(2) && self.set.switch().is_ok() {
            // A call that fails changes nothing.
            let _ = self.flush();
        }
        Ok(is_over)
    }
}

/// Opens, works and crashes, a few times.
fn crash(seed: u64, forgets: Forgets) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut written = Written::default();
    let mut disk = SimDisk::new(rng.next_u64(), Plan::default());
    for _ in 0..3 {
        let crash_at = Some(rng.below(160));
        disk.set_plan(Plan {
            crash_at,
            ..Plan::default()
        });
        match Engine::open(&disk, forgets) {
            Err(_) if disk.is_down() => {}
            Err(error) => return Err(format!("open: {error}")),
            Ok(engine) => {
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

/// Every call of the storage fails in turn, and more goes wrong: the process restarts, the engine
/// continues to write, the power is cut at every later call, and one file is lost or cut. No
/// acknowledged batch is lost, nothing else is read, and a batch that is lost with a file is
/// refused if another file can show it.
///
/// ```text
///   life 1   opens, works, ends          a few calls, without trouble
///   life 2   opens, works, ends          call F fails, and those right after it
///   life 3   opens, works                until call C, and then the power or the process ends
///   then     opens and compares          as it is, and without one file or the end of one
/// ```
mod faults {
    use std::collections::BTreeMap;

    use paranoid_set::MemTableSet;

    use super::{Engine, Forgets, Written};
    use crate::support::rng::{Rng, Watchdog, amount, replay_line, scramble, seed_or};
    use crate::support::sets::{End, Plan, SimDisk};

    /// Number of the engine's calls in a life.
    const CALLS: u64 = 12;

    /// Bits of a seed for F and for C; the others are the script.
    const BITS: u64 = 10;

    /// Counts of the results of cases.
    #[derive(Debug, Default)]
    struct Counts {
        cases: u64,
        /// Cases in which the opening noticed the lost or cut file.
        refused: u64,
        /// Cases in which an acknowledged batch was lost with a file, and no other file can show
        /// it.
        hidden: u64,
    }

    /// The syncs that the journal's other files show when one is lost.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Noted {
        /// All of them: nothing failed, and the system's cache stays.
        Everything,
        /// Syncs after which another file was synced.
        Synced,
    }

    /// A disk, and the batches that were written to it.
    #[derive(Debug, Clone)]
    struct Past {
        disk: SimDisk,
        written: Written,
    }

    impl Past {
        fn after(&self, end: End, rng: &mut Rng) -> Past {
            let mut written = self.written.clone();
            written.ended(end);
            Past {
                disk: self.disk.after(end, rng),
                written,
            }
        }

        /// Opens the disk. `None`: the machine went down meanwhile.
        fn open(&mut self, plan: Plan) -> Result<Option<Engine>, String> {
            let mut opened = Engine::open(&self.disk, Forgets::Nothing);
            // The trouble passes after some calls.
            while opened.is_err()
                && plan
                    .fails_within
                    .is_some_and(|within| self.disk.steps() < within.1)
            {
                opened = Engine::open(&self.disk, Forgets::Nothing);
            }
            if opened.is_err() && plan.fails_within.is_some() && !self.disk.is_down() {
                opened = Engine::open(&self.disk, Forgets::Nothing);
            }
            let engine = match opened {
                Err(_) if self.disk.is_down() => return Ok(None),
                opened => opened.map_err(|error| format!("open: {error}"))?,
            };
            engine.opened(&mut self.written)?;
            Ok(Some(engine))
        }

        /// Opens and works until the plan ends that. Returns whether it was opened.
        fn live(&mut self, plan: Plan, rng: &mut Rng) -> Result<bool, String> {
            self.disk.set_plan(plan);
            let Some(mut engine) = self.open(plan)? else {
                return Ok(false);
            };
            for _ in 0..CALLS {
                let done = engine.work(&mut self.written, rng);
                if self.disk.is_down() {
                    break;
                }
                match done {
                    Err(error) if plan.fails_within.is_none() => {
                        return Err(format!("work: {error}"));
                    }
                    Err(_) if engine.failed(&mut self.written, rng)? => {
                        drop(engine);
                        let Some(anew) = self.open(plan)? else {
                            return Ok(true);
                        };
                        engine = anew;
                    }
                    _ => {}
                }
            }
            // After the trouble has passed, a set takes writes, or reports that it does not.
            let is_over = plan
                .fails_within
                .is_some_and(|(_, to)| self.disk.steps() >= to);
            let is_stuck =
                |set: &MemTableSet<_>| set.switch().is_err() && set.read_only().is_none();
            if is_over && is_stuck(&engine.set) && !self.disk.is_down() {
                return Err("the set refuses and is not read-only".into());
            }
            Ok(true)
        }

        /// Opens and compares.
        fn check(&self) -> Result<(), String> {
            let engine = Engine::open(&self.disk, Forgets::Nothing)
                .map_err(|error| format!("at last: {error}"))?;
            engine.opened(&mut self.written.clone())
        }

        /// Opens and compares without a file of the journal, or without the end of one.
        fn check_without_a_file(
            &self,
            noted: Noted,
            rng: &mut Rng,
            counts: &mut Counts,
        ) -> Result<(), String> {
            let mut files = self.disk.files();
            let own =
                |name: &&String| !name.starts_with("manifest-") && !name.starts_with("table-");
            let names: Vec<String> = files.keys().filter(own).cloned().collect();
            if names.is_empty() {
                return Ok(());
            }
            let name = rng.pick(&names);
            let text = lose(&mut files, name, &self.written, rng);
            counts.cases += 1;
            let disk = SimDisk::with_files(files, rng.next_u64(), Plan::default());
            let Ok(engine) = Engine::open(&disk, Forgets::Nothing) else {
                counts.refused += 1;
                return Ok(());
            };
            let last = engine
                .compare(&self.written, 0)
                .map_err(|error| format!("{text}: {error}"))?;
            if last < self.written.synced() {
                if noted == Noted::Everything || self.written.is_known_outside(last + 1, name) {
                    return Err(format!(
                        "{text}: batches after {last} are lost in silence, {} was synced",
                        self.written.synced()
                    ));
                }
                counts.hidden += 1;
            }
            Ok(())
        }
    }

    /// Removes a file or its end. Returns a description.
    fn lose(
        files: &mut BTreeMap<String, Vec<u8>>,
        name: &str,
        written: &Written,
        rng: &mut Rng,
    ) -> String {
        let bytes = files.get_mut(name).expect("a file that there is");
        if bytes.is_empty() || rng.one_in(2) {
            files.remove(name);
            return format!("without {name}");
        }
        let at_random = rng.index(bytes.len());
        let end = written
            .an_end_of(name, rng)
            .filter(|end| *end < bytes.len() && rng.one_in(2))
            .unwrap_or(at_random);
        let text = format!("{name} with {end} of {} bytes", bytes.len());
        bytes.truncate(end);
        text
    }

    /// Runs cases of one script, beginning with these calls, until there are `wanted`. After the
    /// first, one in `one_in` is run.
    fn sweep(
        seed: u64,
        one_in: u64,
        wanted: u64,
        counts: &mut Counts,
    ) -> Result<(), (u64, String)> {
        let (script, mask) = (seed >> (2 * BITS), (1 << BITS) - 1);
        let (first_f, first_c) = ((seed >> BITS) & mask, seed & mask);
        let mut rng = Rng::new(scramble(script));
        let mut first = Past {
            disk: SimDisk::new(rng.next_u64(), Plan::default()),
            written: Written::default(),
        };
        first
            .live(Plan::default(), &mut rng)
            .map_err(|text| (seed, text))?;
        for f in first_f..=mask {
            let seed_of = |c: u64| script << (2 * BITS) | f << BITS | c;
            let mut rng = Rng::new(scramble(seed_of(mask)));
            let mut second = first.after(*rng.pick(&[End::Process, End::Power]), &mut rng);
            let plan = Plan {
                fails_within: Some((f, f + *rng.pick(&[1, 1, 2, 5]))),
                ..Plan::default()
            };
            second
                .live(plan, &mut rng)
                .map_err(|text| (seed_of(0), text))?;
            let is_over = second.disk.steps() <= f;
            let second = second.after(
                *rng.pick(&[End::Process, End::Process, End::Power]),
                &mut rng,
            );
            for c in if f == first_f { first_c } else { 0 }..mask {
                let mut rng = Rng::new(scramble(seed_of(c)));
                if !rng.one_in(one_in) && (f, c) != (first_f, first_c) {
                    continue;
                }
                let mut third = second.after(End::Process, &mut rng);
                let plan = Plan {
                    crash_at: Some(c),
                    ..Plan::default()
                };
                let failed = |text| (seed_of(c), text);
                let was_opened = third.live(plan, &mut rng).map_err(failed)?;
                let (end, was_down) = (
                    *rng.pick(&[End::Process, End::Power, End::Power, End::Power]),
                    third.disk.is_down(),
                );
                let noted = if was_opened && end == End::Process {
                    Noted::Everything
                } else {
                    Noted::Synced
                };
                let last = third.after(end, &mut rng);
                counts.cases += 1;
                last.check().map_err(failed)?;
                last.check_without_a_file(noted, &mut rng, counts)
                    .map_err(failed)?;
                if counts.cases >= wanted {
                    return Ok(());
                }
                if !was_down {
                    break;
                }
            }
            if is_over {
                break;
            }
        }
        Ok(())
    }

    #[test]
    fn every_call_fails_and_nothing_that_was_acknowledged_is_lost() {
        let test = "file_journal::install::faults::every_call_fails_and_nothing_that_was_acknowledged_is_lost";
        let mut seed = seed_or(0x5eed << (2 * BITS));
        let wanted = amount(20_000, 150);
        let mut counts = Counts::default();
        while counts.cases < wanted {
            let _watchdog = Watchdog::new(test, seed);
            if let Err((seed, text)) = sweep(seed, (20_000 / wanted).max(1), wanted, &mut counts) {
                panic!("{text}\n{counts:?}\nreplay: {}", replay_line(test, seed));
            }
            seed = ((seed >> (2 * BITS)) + 1) << (2 * BITS);
        }
        let Counts {
            cases,
            refused,
            hidden,
        } = counts;
        println!(
            "{cases} cases: 0 lost, 0 invented; without a file {refused} refused, {hidden} that no disk can show"
        );
    }
}

/// A shortage for a moment: the process has no file descriptor left, or the disk no space. A failed
/// call changes nothing, and afterwards the journal continues.
mod shortage {
    use std::sync::Arc;

    use paranoid_memtable::{ChecksumKind, Error};
    use paranoid_set::{
        FileJournal, FindingReason, Journal, MemTableSet, RecoveryMode, SetOptions, Storage,
    };

    use super::super::{Files, batch, disk_of, empty_disk, read};
    use super::{Engine, Forgets, Written};
    use crate::support::rng::{Rng, Watchdog, amount, replay_line, seed_or};
    use crate::support::sets::{End, Plan, SECTOR, SimDisk};

    /// An engine opens and works, while each call in this interval fails if it opens or creates a
    /// file. Nothing stops: the opening is tried again, later calls are at most refused, and the
    /// same set takes writes afterwards. Returns the number of refused calls.
    fn work_without_descriptors(seed: u64, within: (u64, u64)) -> Result<u64, String> {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new(rng.next_u64(), Plan::default());
        disk.set_plan(Plan {
            without_descriptors: Some(within),
            ..Plan::default()
        });
        let (mut written, mut refused) = (Written::default(), 0);
        let engine = loop {
            let begun = disk.steps();
            match Engine::open(&disk, Forgets::Nothing) {
                Ok(engine) => break engine,
                Err(_) if begun < within.1 => refused += 1,
                Err(error) => return Err(format!("open: {error}")),
            }
        };
        engine.opened(&mut written)?;
        while disk.steps() < within.1 {
            if let Err(error) = engine.work(&mut written, &mut rng) {
                refused += 1;
                if engine.failed(&mut written, &mut rng)? {
                    return Err(format!("the set stopped: {error}"));
                }
            }
        }
        for _ in 0..12 {
            engine
                .work(&mut written, &mut rng)
                .map_err(|error| format!("afterwards: {error}"))?;
        }
        drop(engine);
        written.ended(End::Power);
        let disk = disk.after(End::Power, &mut rng);
        let engine =
            Engine::open(&disk, Forgets::Nothing).map_err(|error| format!("at last: {error}"))?;
        engine.opened(&mut written)?;
        Ok(refused)
    }

    #[test]
    fn a_set_without_file_descriptors_for_a_moment_continues() {
        let test = "file_journal::install::shortage::a_set_without_file_descriptors_for_a_moment_continues";
        let seed = seed_or(0xfd);
        let _watchdog = Watchdog::new(test, seed);
        let (runs, mut refused) = (amount(18_000, 450), 0);
        // Each call in turn, and then with another seed.
        for run in 0..runs {
            let (seed, from, calls) = (
                seed.wrapping_add(run / 450),
                run / 3 % 150,
                [1, 3, 40][run as usize % 3],
            );
            let worked = work_without_descriptors(seed, (from, from + calls));
            refused += worked.unwrap_or_else(|text| {
                panic!(
                    "calls {from} to {}: {text}\nreplay: {}",
                    from + calls - 1,
                    replay_line(test, seed)
                )
            });
        }
        println!("{refused} calls were refused");
        assert!(refused > runs, "{refused} in {runs} runs");
    }

    /// Each call of a switch fails once. Afterwards the set begins its table, or it is read-only
    /// and reports that.
    #[test]
    fn a_switch_that_failed_is_tried_again_or_ends_the_set() {
        let (mut tried_again, mut ended) = (0, 0);
        for call in 0..8 {
            let disk = empty_disk();
            let (journal, ..) = read(&disk, 0, RecoveryMode::default()).unwrap();
            let options = SetOptions::builder()
                .journal(Arc::new(journal))
                .build()
                .unwrap();
            let set = MemTableSet::open(options, ()).unwrap();
            set.put("k", "v").unwrap();
            let from = disk.steps() + call;
            disk.set_plan(Plan {
                fails_within: Some((from, from + 1)),
                ..Plan::default()
            });
            let failed = set.switch().is_err();
            disk.set_plan(Plan::default());
            let again = set.switch();
            assert!(
                again.is_ok() || set.read_only().is_some(),
                "call {call}: {again:?}"
            );
            tried_again += u64::from(failed && set.read_only().is_none());
            ended += u64::from(set.read_only().is_some());
        }
        assert!(tried_again > 0 && ended > 0, "{tried_again} {ended}");
    }

    /// A sync needs no file descriptor, neither for new names nor for the notes, and its result is
    /// right.
    #[test]
    fn a_sync_opens_nothing() {
        let disk = empty_disk();
        let (journal, ..) = read(&disk, 0, RecoveryMode::default()).unwrap();
        for table in 1..=3 {
            journal.switch(table).unwrap();
            disk.set_plan(Plan {
                without_descriptors: Some((0, u64::MAX)),
                ..Plan::default()
            });
            for sequence in 3 * table - 2..=3 * table {
                journal.append(&batch(sequence, b"value")).unwrap();
                journal.sync().unwrap();
            }
            assert!(matches!(
                journal.switch(table + 1),
                Err(Error::Io {
                    operation: "create",
                    ..
                })
            ));
            assert!(matches!(
                journal.obsolete_before(table),
                Err(Error::Io {
                    operation: "list",
                    ..
                })
            ));
            disk.set_plan(Plan::default());
        }
        journal.append(&batch(10, b"value")).unwrap();
        drop(journal);
        for seed in 0..20 {
            let after = disk.after(End::Power, &mut Rng::new(seed));
            let mut found = read(&after, 0, RecoveryMode::default()).unwrap().2;
            found.truncate(9);
            assert!(
                found.iter().map(|batch| batch.0).eq(1..=9),
                "power cut {seed}: {found:?}"
            );
            // The notes continued in the old file, so a loss is noticed.
            let mut files = after.files();
            files.retain(|name, _| !name.starts_with("000003"));
            assert!(
                read(&disk_of(&files), 0, RecoveryMode::default()).is_err(),
                "power cut {seed}"
            );
        }
    }

    /// The files of a journal that took a few hundred batches and ended badly: some of them
    /// durable, some torn, some damaged.
    fn ended_badly(rng: &mut Rng) -> Files {
        let disk = SimDisk::new(rng.next_u64(), Plan::default());
        let (journal, ..) = read(&disk, 0, RecoveryMode::default()).unwrap();
        for sequence in 1..=40 {
            if sequence == 1 || rng.one_in(15) {
                journal.switch(journal.next_table()).unwrap();
            }
            let len = rng.index(3 * SECTOR);
            journal.append(&batch(sequence, &rng.bytes(len))).unwrap();
            match rng.below(8) {
                0 => journal.sync().unwrap(),
                1..4 => journal.write().unwrap(),
                _ => {}
            }
        }
        drop(journal);
        let mut files = disk
            .after(*rng.pick(&[End::Process, End::Power]), rng)
            .files();
        let names: Vec<String> = files.keys().cloned().collect();
        let bytes = files.get_mut(rng.pick(&names)).unwrap();
        match rng.below(4) {
            0 if !bytes.is_empty() => {
                let at = rng.index(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            }
            1 => bytes.truncate(rng.index(bytes.len() + 1)),
            2 => bytes.extend([7; 700]),
            _ => {}
        }
        files
    }

    /// All files except the notes: batches, and files that were set aside for any reason.
    fn without_notes(disk: &SimDisk) -> Files {
        let files = disk
            .files()
            .into_iter()
            .filter(|(name, _)| name != "journal.synced");
        files
            .map(|(name, bytes)| (name.replace(".damaged", ".cut"), bytes))
            .collect()
    }

    /// The disk is full from each call of an opening, in each mode. An opening that fails leaves no
    /// more bytes and no more names. The next one, with space, finds what the first one would have
    /// found.
    #[test]
    fn an_opening_without_room_leaves_nothing() {
        let test = "file_journal::install::shortage::an_opening_without_room_leaves_nothing";
        let mut seed = seed_or(0xf011);
        let _watchdog = Watchdog::new(test, seed);
        let modes = [
            RecoveryMode::TolerateCorruptedTailRecords,
            RecoveryMode::PointInTime,
            RecoveryMode::SkipAnyCorrupted,
            RecoveryMode::AbsoluteConsistency,
        ];
        let (mut failed, mut cut) = (0, 0);
        let openings = amount(20_000, 2_500);
        while failed < openings {
            let text = replay_line(test, seed);
            let mut rng = Rng::new(seed);
            seed = rng.next_u64();
            let files = ended_badly(&mut rng);
            for mode in modes {
                let whole_disk = disk_of(&files);
                let Ok((_, whole, wanted)) = read(&whole_disk, 0, mode) else {
                    continue;
                };
                cut += u64::from(
                    whole
                        .findings
                        .iter()
                        .any(|it| it.reason == FindingReason::TornTail),
                );
                for call in 0..100 {
                    let text = format!("{mode:?}, call {call}\n{text}");
                    let disk = disk_of(&files);
                    disk.set_plan(Plan {
                        full_from: Some(call),
                        ..Plan::default()
                    });
                    let before = disk.used();
                    let Err(error) = read(&disk, 0, mode) else {
                        break;
                    };
                    assert!(matches!(error, Error::Io { .. }), "{error}, {text}");
                    failed += 1;
                    let left = disk.files();
                    assert!(
                        !left.keys().any(|name| name.ends_with(".copy")),
                        "{:?}, {text}",
                        left.keys()
                    );
                    assert!(
                        disk.used() <= before,
                        "{} bytes, {before} before, {text}",
                        disk.used()
                    );
                    disk.set_plan(Plan::default());
                    let found = read(&disk, 0, mode).map(|(.., found)| found);
                    assert!(
                        found.as_ref().is_ok_and(|found| *found == wanted),
                        "{:?}, {text}",
                        found.err()
                    );
                    // A salvage leaves damaged files as they are, and the next one may know less of
                    // them.
                    let is_same = without_notes(&disk) == without_notes(&whole_disk);
                    assert!(is_same || mode == RecoveryMode::SkipAnyCorrupted, "{text}");
                }
            }
        }
        println!("{failed} openings without room, {cut} of torn tails");
        assert!(cut > openings / 300, "{cut} openings of torn tails");
    }

    /// An opening whose process ended has left files that fill the disk. The next opening removes
    /// them before it needs space.
    #[test]
    fn what_an_opening_began_makes_room_for_the_next_one() {
        let disk = empty_disk();
        let (journal, ..) = read(&disk, 0, RecoveryMode::default()).unwrap();
        journal.switch(1).unwrap();
        (1..=200).for_each(|sequence| journal.append(&batch(sequence, &[7; 1000])).unwrap());
        drop(journal);
        let mut files = disk.files();
        // A copy of the file fits, and not a byte more.
        let capacity: usize =
            files.values().map(Vec::len).sum::<usize>() + files["000001.journal"].len() + 100;
        for name in [
            "000001.journal.copy",
            "000001.journal.cut.copy",
            "journal.synced.copy",
        ] {
            files.insert(name.into(), vec![1; 80_000]);
        }
        let disk = disk_of(&files);
        disk.set_plan(Plan {
            capacity: Some(capacity),
            ..Plan::default()
        });
        let storage = Arc::new(disk.clone());
        let opened = FileJournal::open_in(storage, 0, ChecksumKind::Xxh3, RecoveryMode::default());
        assert_eq!(
            opened.unwrap().1.replay(|_, _| Ok(())).unwrap().batches,
            200
        );
        assert_eq!(
            disk.files().keys().collect::<Vec<_>>(),
            ["000001.journal", "journal.synced"]
        );
    }

    /// A journal of 200 KB on a disk with 100 KB of free space: any number of openings takes no
    /// space.
    #[test]
    fn openings_without_room_take_none() {
        let disk = empty_disk();
        let (journal, ..) = read(&disk, 0, RecoveryMode::default()).unwrap();
        journal.switch(1).unwrap();
        (1..=200).for_each(|sequence| journal.append(&batch(sequence, &[7; 1000])).unwrap());
        drop(journal);
        let disk = disk_of(&disk.files());
        let (names, used) = (disk.list().unwrap(), disk.used());
        disk.set_plan(Plan {
            capacity: Some(used + 100_000),
            ..Plan::default()
        });
        for _ in 0..3 {
            assert!(matches!(
                read(&disk, 0, RecoveryMode::default()),
                Err(Error::Io { .. })
            ));
            assert_eq!((disk.list().unwrap(), disk.used()), (names.clone(), used));
        }
        disk.set_plan(Plan::default());
        assert_eq!(
            read(&disk, 0, RecoveryMode::default()).unwrap().2.len(),
            200
        );
    }
}
