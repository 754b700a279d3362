//! Shared by tests of sets and journals: a plain history of entries that answers every question, a
//! journal in memory, the base that a flush fills, and a disk that crashes and fails.
//!
//! At a power cut, anything that was not synced may be lost, survive in part, or survive without
//! earlier writes: names of files as well as bytes. After a failed sync the pages are still read
//! back right and count as written, but are not on the disk. Later syncs report success and do not
//! write them, also after a restart of the process.
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
use paranoid_memtable::read::Base;
use paranoid_memtable::scan::{Cover, SortedSource, SourceKey, SourceMove};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Comparator, Error, Kind, Lookup, ValueRef, WriteBatch};
use paranoid_set::{Journal, MergedEntry, Storage, StorageFile, View};

use super::rng::Rng;

/// A key and its sequence number, newest first.
pub type Version = (Vec<u8>, Reverse<u64>);

/// Entries and range tombstones, by key and descending sequence number.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub points: BTreeMap<Version, (Kind, Vec<u8>)>,
    /// Start, end, sequence number.
    pub ranges: BTreeSet<(Vec<u8>, Vec<u8>, u64)>,
}

/// The result of reads so far: merge operands, newest first, and their base.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub operands: Vec<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

impl History {
    pub fn insert(&mut self, sequence: u64, kind: Kind, key: &[u8], value: &[u8]) {
        if kind == Kind::RANGE_DELETE {
            self.ranges.insert((key.to_vec(), value.to_vec(), sequence));
        } else {
            self.points
                .insert((key.to_vec(), Reverse(sequence)), (kind, value.to_vec()));
        }
    }

    /// The largest sequence number up to the snapshot of a range tombstone that covers the key.
    fn cover(&self, key: &[u8], snapshot: u64) -> u64 {
        let covers = |(start, end, sequence): &&(Vec<u8>, Vec<u8>, u64)| {
            *sequence <= snapshot && start.as_slice() <= key && key < end.as_slice()
        };
        self.ranges
            .iter()
            .filter(covers)
            .map(|range| range.2)
            .max()
            .unwrap_or(0)
    }

    /// Adds what a read at the snapshot finds here to the result of newer sources.
    pub fn read(&self, key: &[u8], snapshot: u64, known: Known) -> Known {
        self.read_on(key, snapshot, known).0
    }

    /// As `read`. Also returns whether older sources do not matter.
    pub fn read_on(&self, key: &[u8], snapshot: u64, mut known: Known) -> (Known, bool) {
        let cover = self.cover(key, snapshot);
        let from = (key.to_vec(), Reverse(snapshot));
        for ((_, Reverse(sequence)), (kind, value)) in self
            .points
            .range(from..)
            .take_while(|((other, _), _)| other == key)
        {
            if *sequence < cover {
                return (known, true);
            }
            if *kind == Kind::MERGE {
                known.operands.push(value.clone());
                continue;
            }
            known.value = (!kind.is_point_delete()).then(|| value.clone());
            return (known, true);
        }
        (known, cover > 0)
    }
}

impl FlushSink for History {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        let stored =
            entry
                .protection
                .check(entry.user_key, entry.value, entry.sequence, entry.kind);
        assert!(stored.is_some(), "an entry agrees with its digests");
        if let Some(((key, Reverse(sequence)), _)) = self
            .points
            .get_key_value(&(entry.user_key.to_vec(), Reverse(entry.sequence)))
        {
            panic!("{key:?}@{sequence} twice");
        }
        self.insert(entry.sequence, entry.kind, entry.user_key, entry.value);
        Ok(())
    }

    fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
        for sequence in fragment.sequences() {
            self.insert(
                *sequence,
                Kind::RANGE_DELETE,
                fragment.start(),
                fragment.end(),
            );
        }
        Ok(())
    }
}

/// The answer of a view and its base together.
pub fn read_through(view: &View<History>, key: &[u8]) -> Known {
    finish(view, key, view.get(key).unwrap())
}

/// Adds the base's answer to that of the tables.
pub fn finish(
    view: &View<History>,
    key: &[u8],
    lookup: Lookup<ValueRef<'_>, Box<MergedEntry>>,
) -> Known {
    let below = |known: Known| view.base().read(key, view.sequence(), known);
    match lookup {
        Lookup::Value(value) => Known {
            operands: vec![],
            value: Some(value.to_vec()),
        },
        Lookup::Deleted { .. } => Known::default(),
        Lookup::NotFound => below(Known::default()),
        Lookup::Merge(pending) => {
            let operands = pending.operands().to_vec();
            match pending.base() {
                Base::Value(value) => Known {
                    operands,
                    value: Some(value.to_vec()),
                },
                Base::Deleted => Known {
                    operands,
                    value: None,
                },
                Base::Below => below(Known {
                    operands,
                    value: None,
                }),
            }
        }
    }
}

/// The calls of a journal.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// Batches by table.
    pub batches: BTreeMap<u64, Vec<Vec<u8>>>,
    pub appends: u64,
    pub synced: u64,
    pub table: u64,
    /// The results of the next calls.
    pub append_fails: Option<Error>,
    pub sync_fails: Option<Error>,
    pub switch_fails: Option<Error>,
    pub removal_fails: Option<Error>,
    pub sync_panics: bool,
}

/// A journal in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal(pub Arc<Mutex<Log>>);

impl Journal for MemoryJournal {
    fn append(&self, batch: &[u8]) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap();
        if let Some(error) = log.append_fails.take() {
            return Err(error);
        }
        let table = log.table;
        log.batches.entry(table).or_default().push(batch.to_vec());
        log.appends += 1;
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let mut log = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        assert!(!std::mem::take(&mut log.sync_panics), "a journal panics");
        if let Some(error) = log.sync_fails.take() {
            return Err(error);
        }
        log.synced = log.appends;
        Ok(())
    }

    fn switch(&self, table: u64) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap();
        if let Some(error) = log.switch_fails.take() {
            return Err(error);
        }
        assert!(table > log.table, "numbers ascend");
        log.table = table;
        Ok(())
    }

    fn obsolete_before(&self, table: u64) -> Result<(), Error> {
        let mut log = self.0.lock().unwrap();
        if let Some(error) = log.removal_fails.take() {
            return Err(error);
        }
        log.batches.retain(|number, _| *number >= table);
        Ok(())
    }
}

impl MemoryJournal {
    /// The batches that a recovery would replay, in order.
    pub fn recovered(&self) -> Vec<WriteBatch> {
        let log = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let batches = log.batches.values().flatten();
        batches
            .map(|bytes| WriteBatch::from_bytes(bytes).unwrap())
            .collect()
    }
}

/// A history as a source of a merging cursor.
pub struct HistorySource<'h> {
    history: &'h History,
    at: Option<&'h Version>,
}

impl<'h> HistorySource<'h> {
    pub fn new(history: &'h History) -> Self {
        HistorySource { history, at: None }
    }
}

impl SortedSource for HistorySource<'_> {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>, Error> {
        let points = &self.history.points;
        let found = match (to, self.at) {
            (SourceMove::First, _) => points.iter().next(),
            (SourceMove::Last, _) => points.iter().next_back(),
            (SourceMove::Next, Some(at)) => {
                points.range((Bound::Excluded(at), Bound::Unbounded)).next()
            }
            (SourceMove::Prev, Some(at)) => points.range(..at).next_back(),
            (SourceMove::Next | SourceMove::Prev, None) => None,
            (SourceMove::Seek(key, sequence), _) => {
                points.range((key.to_vec(), Reverse(sequence))..).next()
            }
            (SourceMove::SeekForPrev(key), _) => {
                points.range(..=(key.to_vec(), Reverse(0))).next_back()
            }
            (SourceMove::SeekBefore(key), _) => points
                .range(..(key.to_vec(), Reverse(u64::MAX)))
                .next_back(),
        };
        self.at = found.map(|(version, _)| version);
        Ok(
            found.map(|((key, Reverse(sequence)), (kind, _))| SourceKey {
                user_key: key,
                sequence: *sequence,
                kind: *kind,
            }),
        )
    }
    fn value_into(&self, value: &mut Vec<u8>) -> Result<(), Error> {
        value.clone_from(&self.history.points[self.at.expect("it stands on an entry")].1);
        Ok(())
    }
    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.history
            .ranges
            .iter()
            .try_for_each(|(start, end, sequence)| take(start, end, *sequence))
    }
    fn cover(
        &mut self,
        _: &dyn Comparator,
        key: &[u8],
        snapshot: u64,
    ) -> Result<Option<Cover<'_>>, Error> {
        let covers = |range: &&(Vec<u8>, Vec<u8>, u64)| {
            range.2 <= snapshot && range.0.as_slice() <= key && key < range.1.as_slice()
        };
        let newest = self
            .history
            .ranges
            .iter()
            .filter(covers)
            .max_by_key(|range| range.2);
        Ok(newest.map(|(start, end, sequence)| {
            let from = (start.clone(), Reverse(u64::MAX))..(end.clone(), Reverse(u64::MAX));
            let newer = *sequence..=snapshot;
            let has_newer = self
                .history
                .points
                .range(from)
                .any(|((_, point), _)| newer.contains(&point.0));
            Cover {
                sequence: *sequence,
                span: Some((start, end)),
                hides_own: !has_newer,
            }
        }))
    }
}

/// Bytes that are written as a whole or not at all.
pub const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
struct Inode {
    /// The bytes that are read.
    cache: Vec<u8>,
    /// Sectors of the cache that a failed sync did not write, with their bytes on the disk. Later
    /// syncs do not write them either, unless they change.
    lost: BTreeMap<usize, Vec<u8>>,
    /// The possible contents on the disk: first the content after the last sync, then the later
    /// writes.
    versions: Vec<Vec<u8>>,
}

impl Inode {
    fn of(bytes: Vec<u8>) -> Inode {
        Inode {
            cache: bytes.clone(),
            lost: BTreeMap::new(),
            versions: vec![bytes],
        }
    }

    fn sector(bytes: &[u8], number: usize) -> &[u8] {
        bytes
            .get(number * SECTOR..)
            .map_or(&[], |rest| &rest[..rest.len().min(SECTOR)])
    }

    /// The content on the disk after all sectors that count as unwritten are written. The file ends
    /// there with its last written sector.
    fn to_be_written(&self) -> Vec<u8> {
        let mut bytes = self.cache.clone();
        for (number, on_disk) in self.lost.iter().rev() {
            let at = number * SECTOR;
            if at + SECTOR >= bytes.len() {
                bytes.truncate(at + on_disk.len());
            }
            let end = bytes.len().min(at + SECTOR);
            let there = &mut bytes[at..end];
            there.fill(0);
            there
                .iter_mut()
                .zip(on_disk)
                .for_each(|(byte, on_disk)| *byte = *on_disk);
        }
        bytes
    }

    /// Changes the bytes that are read, from the first sector that differs.
    fn change(&mut self, bytes: Vec<u8>) {
        if self.cache != bytes {
            let same = self
                .cache
                .chunks(SECTOR)
                .zip(bytes.chunks(SECTOR))
                .take_while(|(old, new)| old == new)
                .count();
            self.lost.split_off(&same);
            self.cache = bytes;
        }
        self.versions.push(self.to_be_written());
    }

    fn synced(&mut self) {
        self.versions = vec![self.to_be_written()];
    }

    /// A sync failed: all or some of the sectors that are not on the disk count as written.
    fn sync_failed(&mut self, rng: &mut Rng) {
        let loses_all = rng.one_in(2);
        for number in 0..self.cache.len().div_ceil(SECTOR) {
            let on_disk = Inode::sector(&self.versions[0], number);
            if on_disk != Inode::sector(&self.cache, number) && (loses_all || rng.one_in(2)) {
                self.lost.insert(number, on_disk.to_vec());
            }
        }
        self.versions.push(self.to_be_written());
    }
}

/// The event between two lives of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process ends: the system's cache stays, with the pages of failed syncs.
    Process,
    /// The power fails: bytes that are not on the disk are lost.
    Power,
}

#[derive(Debug, Clone)]
enum Naming {
    Link(String, usize),
    Unlink(String),
    Rename(String, String, usize),
}

type Names = BTreeMap<String, usize>;

/// Number of files that were read, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reads {
    pub calls: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone)]
struct State {
    inodes: Vec<Inode>,
    names: Names,
    synced_names: Names,
    /// Changes of names since the directory was synced, in order.
    pending: Vec<Naming>,
    /// Set after a failed sync of the directory. Until a name changes, later syncs report success
    /// and write nothing.
    names_are_lost: bool,
    steps: u64,
    reads: Reads,
    rng: Rng,
    plan: Plan,
}

/// The failures of a disk and their times.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// The process or the machine stops before this step.
    pub crash_at: Option<u64>,
    /// One append, sync or truncation in this number fails.
    pub fails_one_in: Option<u64>,
    /// Every call fails from the first of these steps until before the second.
    pub fails_within: Option<(u64, u64)>,
    /// Every call that opens or creates a file fails from the first of these steps until before the
    /// second: the process has no file descriptor left.
    pub without_descriptors: Option<(u64, u64)>,
    /// From this step the disk takes no more bytes or files.
    pub full_from: Option<u64>,
    /// Bytes that the disk can hold.
    pub capacity: Option<usize>,
}

/// A disk that its clones share.
#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

fn change(names: &mut Names, naming: &Naming) {
    match naming {
        Naming::Link(name, inode) => drop(names.insert(name.clone(), *inode)),
        Naming::Unlink(name) => drop(names.remove(name)),
        Naming::Rename(from, to, inode) => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
    }
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        if self.plan.crash_at.is_some_and(|at| self.steps >= at) {
            return Err(io::Error::other("the machine is down"));
        }
        self.steps += 1;
        Ok(())
    }

    /// Whether the call of this step fails while the machine still runs.
    fn fails(&mut self, one_in: Option<u64>) -> io::Result<()> {
        let is_within = self
            .plan
            .fails_within
            .is_some_and(|(from, to)| (from..to).contains(&(self.steps - 1)));
        if is_within && self.rng.one_in(3) {
            Err(io::ErrorKind::StorageFull.into())
        } else if is_within || one_in.is_some_and(|n| self.rng.one_in(n)) {
            Err(io::Error::other("the device failed"))
        } else {
            Ok(())
        }
    }

    /// A call that fails only if the plan says so.
    fn call(&mut self) -> io::Result<()> {
        self.step().and_then(|()| self.fails(None))
    }

    /// A call that needs a file descriptor.
    fn opening_call(&mut self) -> io::Result<()> {
        self.call()?;
        let step = self.steps - 1;
        match self.plan.without_descriptors {
            // EMFILE, ENFILE.
            Some((from, to)) if (from..to).contains(&step) => {
                Err(io::Error::from_raw_os_error(24 - (step % 2) as i32))
            }
            _ => Ok(()),
        }
    }

    fn risky_call(&mut self) -> io::Result<()> {
        self.step()
            .and_then(|()| self.fails(self.plan.fails_one_in))
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, naming: Naming) {
        change(&mut self.names, &naming);
        self.pending.push(naming);
        self.names_are_lost = false;
    }

    fn is_full(&self) -> bool {
        self.plan.full_from.is_some_and(|from| self.steps > from)
    }

    fn used(&self) -> usize {
        self.names
            .values()
            .map(|inode| self.inodes[*inode].cache.len())
            .sum()
    }

    fn write(&mut self, inode: usize, bytes: &[u8]) -> io::Result<()> {
        let capacity = if self.is_full() {
            Some(0)
        } else {
            self.plan.capacity
        };
        let room = capacity.map_or(bytes.len(), |capacity| capacity.saturating_sub(self.used()));
        let written = &bytes[..bytes.len().min(room)];
        let inode = &mut self.inodes[inode];
        inode.change([inode.cache.as_slice(), written].concat());
        if written.len() < bytes.len() {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

/// The content of a file after a power cut.
fn survivor(inode: &Inode, rng: &mut Rng) -> Vec<u8> {
    let versions = &inode.versions;
    match rng.below(4) {
        // The whole content, or the content at some moment.
        0 => return inode.to_be_written(),
        1 => return rng.pick(versions).clone(),
        _ => {}
    }
    let lengths: Vec<usize> = versions.iter().map(Vec::len).collect();
    let longest = lengths.iter().max().copied().unwrap_or(0);
    let synced = lengths[0];
    let len = if rng.one_in(2) {
        *rng.pick(&lengths)
    } else {
        synced + rng.index(longest - synced + 1)
    };
    let mut bytes = vec![0; len.max(synced)];
    for (number, sector) in bytes.chunks_mut(SECTOR).enumerate() {
        let version = rng.pick(versions);
        let from = version.get(number * SECTOR..).unwrap_or_default();
        let len = from.len().min(sector.len());
        sector[..len].copy_from_slice(&from[..len]);
    }
    bytes
}

impl SimDisk {
    pub fn new(seed: u64, plan: Plan) -> Self {
        SimDisk::with_files(BTreeMap::new(), seed, plan)
    }

    /// A disk with these files, all of them durable.
    pub fn with_files(files: BTreeMap<String, Vec<u8>>, seed: u64, plan: Plan) -> Self {
        let (mut inodes, mut names) = (vec![], Names::new());
        for (name, bytes) in files {
            names.insert(name, inodes.len());
            inodes.push(Inode::of(bytes));
        }
        let (synced_names, rng) = (names.clone(), Rng::new(seed));
        let (pending, names_are_lost) = (vec![], false);
        let (steps, reads) = (0, Reads::default());
        let state = State {
            inodes,
            names,
            synced_names,
            pending,
            names_are_lost,
            steps,
            reads,
            rng,
            plan,
        };
        SimDisk(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn set_plan(&self, plan: Plan) {
        self.state().plan = plan;
    }

    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    pub fn reads(&self) -> Reads {
        self.state().reads
    }

    pub fn is_down(&self) -> bool {
        let state = self.state();
        state.plan.crash_at.is_some_and(|at| state.steps >= at)
    }

    /// Total number of bytes of all files.
    pub fn used(&self) -> usize {
        self.state().used()
    }

    /// All files as they are read now.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state
            .names
            .iter()
            .map(|(name, inode)| (name.clone(), state.inodes[*inode].cache.clone()))
            .collect()
    }

    /// The disk of the next life, with a step count and a plan of its own. Later calls on this disk
    /// do not change it.
    pub fn after(&self, end: End, rng: &mut Rng) -> SimDisk {
        if end == End::Power {
            return SimDisk::with_files(self.after_crash(rng), rng.next_u64(), Plan::default());
        }
        let (rng, plan) = (Rng::new(rng.next_u64()), Plan::default());
        let state = State {
            steps: 0,
            reads: Reads::default(),
            rng,
            plan,
            ..self.state().clone()
        };
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// The files after a power cut. `rng` decides about bytes that were not synced.
    pub fn after_crash(&self, rng: &mut Rng) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        let mut names = state.synced_names.clone();
        let until = if rng.one_in(3) {
            state.pending.len()
        } else {
            rng.index(state.pending.len() + 1)
        };
        let in_order = rng.one_in(2);
        for naming in &state.pending[..until] {
            if in_order || rng.one_in(2) {
                change(&mut names, naming);
            }
        }
        names
            .iter()
            .map(|(name, inode)| (name.clone(), survivor(&state.inodes[*inode], rng)))
            .collect()
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl StorageFile for SimFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        // In two parts, so that a crash or a failure may come between them.
        let cut = state.rng.index(bytes.len() + 1);
        state.call()?;
        state.write(self.inode, &bytes[..cut])?;
        state.risky_call()?;
        state.write(self.inode, &bytes[cut..])?;
        // After both parts, the disk does not keep the state between them.
        let versions = &mut state.inodes[self.inode].versions;
        versions.remove(versions.len() - 2);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.step()?;
        let one_in = state.plan.fails_one_in;
        let done = state.fails(one_in);
        let State { inodes, rng, .. } = &mut *state;
        match done {
            Ok(()) => inodes[self.inode].synced(),
            Err(_) => inodes[self.inode].sync_failed(rng),
        }
        done
    }
}

impl Storage for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.opening_call()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut state = self.state();
        state.opening_call()?;
        if state.is_full() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::of(vec![]));
        state.rename(Naming::Link(name.into(), inode));
        Ok(Box::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.opening_call()?;
        let inode = state.find(name)?;
        let bytes = state.inodes[inode].cache.clone();
        state.reads.calls += 1;
        state.reads.bytes += bytes.len() as u64;
        Ok(bytes)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        state.find(name)?;
        state.rename(Naming::Unlink(name.into()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.call()?;
        let inode = state.find(from)?;
        state.rename(Naming::Rename(from.into(), to.into(), inode));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let one_in = state.plan.fails_one_in;
        let done = state.fails(one_in);
        state.names_are_lost |= done.is_err();
        if !state.names_are_lost {
            state.synced_names = state.names.clone();
            state.pending.clear();
        }
        done
    }
}
