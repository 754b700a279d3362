//! A simulated disk for a journal: at a power cut whatever was not synced may be lost, be there in part, or be there without
//! what was written before it, names of files as well as bytes. A sync that fails leaves pages that are read back right, count as
//! written and are not on the disk: later syncs report success and write nothing of them, also after a restart of the process.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use paranoid_memtable::set::{Storage, StorageFile};

use super::rng::Rng;

/// What is written as a whole or not at all.
pub const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
struct Inode {
    /// What is read.
    cache: Vec<u8>,
    /// Sectors of the cache that a failed sync did not write and that no later sync writes unless they change, and what the disk has
    /// instead.
    lost: BTreeMap<usize, Vec<u8>>,
    /// What may be on the disk: what the last sync left there first, then what was to be written since.
    versions: Vec<Vec<u8>>,
}

impl Inode {
    fn of(bytes: Vec<u8>) -> Inode {
        Inode { cache: bytes.clone(), lost: BTreeMap::new(), versions: vec![bytes] }
    }

    fn sector(bytes: &[u8], number: usize) -> &[u8] {
        bytes.get(number * SECTOR..).map_or(&[], |rest| &rest[..rest.len().min(SECTOR)])
    }

    /// What the disk has once all that counts as unwritten is written. The file ends there with its last sector that was written.
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
            there.iter_mut().zip(on_disk).for_each(|(byte, on_disk)| *byte = *on_disk);
        }
        bytes
    }

    /// Changes what is read, from the first sector that is not as it was.
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

    /// A sync failed: of the sectors that are not on the disk all, or some, count as written.
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

/// What ends between two lives of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process: the system's cache stays, with what a failed sync left in it.
    Process,
    /// The power: what is not on the disk is gone.
    Power,
}

#[derive(Debug, Clone)]
enum Naming {
    Link(String, usize),
    Unlink(String),
    Rename(String, String, usize),
}

type Names = BTreeMap<String, usize>;

/// How many files were read, and bytes of them.
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
    /// A sync of the directory failed: until a name changes later ones report success and write nothing.
    names_are_lost: bool,
    steps: u64,
    reads: Reads,
    rng: Rng,
    plan: Plan,
}

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// The process or the machine stops before this step.
    pub crash_at: Option<u64>,
    /// One append, sync or truncation in so many fails.
    pub fails_one_in: Option<u64>,
    /// Every call fails whose step is from the first of these on, and before the second.
    pub fails_within: Option<(u64, u64)>,
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

    /// Whether the call of this step fails while the machine runs on.
    fn fails(&mut self, one_in: Option<u64>) -> io::Result<()> {
        let is_within =
            self.plan.fails_within.is_some_and(|(from, to)| (from..to).contains(&(self.steps - 1)));
        if is_within && self.rng.one_in(3) {
            Err(io::ErrorKind::StorageFull.into())
        } else if is_within || one_in.is_some_and(|n| self.rng.one_in(n)) {
            Err(io::Error::other("the device failed"))
        } else {
            Ok(())
        }
    }

    /// A call that fails only where the plan says so.
    fn call(&mut self) -> io::Result<()> {
        self.step().and_then(|()| self.fails(None))
    }

    fn risky_call(&mut self) -> io::Result<()> {
        self.step().and_then(|()| self.fails(self.plan.fails_one_in))
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, naming: Naming) {
        change(&mut self.names, &naming);
        self.pending.push(naming);
        self.names_are_lost = false;
    }

    fn write(&mut self, inode: usize, bytes: &[u8]) -> io::Result<()> {
        let used: usize = self.names.values().map(|inode| self.inodes[*inode].cache.len()).sum();
        let room = self.plan.capacity.map_or(bytes.len(), |capacity| capacity.saturating_sub(used));
        let written = &bytes[..bytes.len().min(room)];
        let inode = &mut self.inodes[inode];
        inode.change([inode.cache.as_slice(), written].concat());
        if written.len() < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

/// What of a file is there after a power cut.
fn survivor(inode: &Inode, rng: &mut Rng) -> Vec<u8> {
    let versions = &inode.versions;
    match rng.below(4) {
        // All of it, or as far as some moment.
        0 => return inode.to_be_written(),
        1 => return rng.pick(versions).clone(),
        _ => {}
    }
    let lengths: Vec<usize> = versions.iter().map(Vec::len).collect();
    let longest = lengths.iter().max().copied().unwrap_or(0);
    let synced = lengths[0];
    let len = if rng.one_in(2) { *rng.pick(&lengths) } else { synced + rng.index(longest - synced + 1) };
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
        let state = State { inodes, names, synced_names, pending, names_are_lost, steps, reads, rng, plan };
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

    /// All files as they are read now.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[*inode].cache.clone())).collect()
    }

    /// The disk that the next life finds, with calls and a plan of its own. What this disk's files are asked later changes nothing there.
    pub fn after(&self, end: End, rng: &mut Rng) -> SimDisk {
        if end == End::Power {
            return SimDisk::with_files(self.after_crash(rng), rng.next_u64(), Plan::default());
        }
        let (rng, plan) = (Rng::new(rng.next_u64()), Plan::default());
        let state = State { steps: 0, reads: Reads::default(), rng, plan, ..self.state().clone() };
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// What there is after a power cut, up to `rng` where nothing was synced.
    pub fn after_crash(&self, rng: &mut Rng) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        let mut names = state.synced_names.clone();
        let until = if rng.one_in(3) { state.pending.len() } else { rng.index(state.pending.len() + 1) };
        let in_order = rng.one_in(2);
        for naming in &state.pending[..until] {
            if in_order || rng.one_in(2) {
                change(&mut names, naming);
            }
        }
        names.iter().map(|(name, inode)| (name.clone(), survivor(&state.inodes[*inode], rng))).collect()
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
        // In two parts: a crash or a failure may come between them.
        let cut = state.rng.index(bytes.len() + 1);
        state.call()?;
        state.write(self.inode, &bytes[..cut])?;
        state.risky_call()?;
        state.write(self.inode, &bytes[cut..])?;
        // Once both are there, no moment between them is on the disk alone.
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

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.risky_call()?;
        let mut bytes = state.inodes[self.inode].cache.clone();
        bytes.truncate(len as usize);
        state.inodes[self.inode].change(bytes);
        Ok(())
    }
}

impl Storage for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.call()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut state = self.state();
        state.call()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::of(vec![]));
        state.rename(Naming::Link(name.into(), inode));
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut state = self.state();
        state.call()?;
        Ok(Box::new(SimFile { disk: self.clone(), inode: state.find(name)? }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.call()?;
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
