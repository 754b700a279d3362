//! A simulated disk for a journal: at a crash whatever was not synced may be lost, be there in part, or be there without
//! what was written before it, names of files as well as bytes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use paranoid_memtable::set::{Storage, StorageFile};

use super::rng::Rng;

/// What is written as a whole or not at all.
pub const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
struct Inode {
    /// What the file held since the last sync, that moment first. The last one is what is read.
    versions: Vec<Vec<u8>>,
    /// A sync failed: later ones report success and write nothing.
    is_lost: bool,
}

impl Inode {
    fn bytes(&self) -> &Vec<u8> {
        self.versions.last().expect("a file has bytes")
    }
}

#[derive(Debug, Clone)]
enum Naming {
    Link(String, usize),
    Unlink(String),
}

type Names = BTreeMap<String, usize>;

#[derive(Debug)]
struct State {
    inodes: Vec<Inode>,
    names: Names,
    synced_names: Names,
    /// Changes of names since the directory was synced, in order.
    pending: Vec<Naming>,
    steps: u64,
    rng: Rng,
    plan: Plan,
}

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// The machine stops before this step.
    pub crash_at: Option<u64>,
    /// One append, sync or truncation in so many fails.
    pub fails_one_in: Option<u64>,
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

    /// A step that may fail while the machine runs on.
    fn risky_step(&mut self) -> io::Result<()> {
        self.step()?;
        match self.plan.fails_one_in {
            Some(n) if self.rng.one_in(n) => Err(io::Error::other("the device failed")),
            _ => Ok(()),
        }
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    fn write(&mut self, inode: usize, bytes: &[u8]) -> io::Result<()> {
        let used: usize = self.names.values().map(|inode| self.inodes[*inode].bytes().len()).sum();
        let room = self.plan.capacity.map_or(bytes.len(), |capacity| capacity.saturating_sub(used));
        let written = &bytes[..bytes.len().min(room)];
        let mut version = self.inodes[inode].bytes().clone();
        version.extend_from_slice(written);
        self.inodes[inode].versions.push(version);
        if written.len() < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

/// What of a file is there after a crash.
fn survivor(inode: &Inode, rng: &mut Rng) -> Vec<u8> {
    let versions = &inode.versions;
    match rng.below(4) {
        // All of it, as if only the process had ended, or as far as some moment.
        0 => return inode.bytes().clone(),
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
            inodes.push(Inode { versions: vec![bytes], is_lost: false });
        }
        let (synced_names, rng) = (names.clone(), Rng::new(seed));
        let state = State { inodes, names, synced_names, pending: vec![], steps: 0, rng, plan };
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

    pub fn is_down(&self) -> bool {
        let state = self.state();
        state.plan.crash_at.is_some_and(|at| state.steps >= at)
    }

    /// All files as they are read now.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state();
        state.names.iter().map(|(name, inode)| (name.clone(), state.inodes[*inode].bytes().clone())).collect()
    }

    /// What there is after a crash, up to `rng` where nothing was synced.
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
        state.step()?;
        state.write(self.inode, &bytes[..cut])?;
        state.risky_step()?;
        state.write(self.inode, &bytes[cut..])?;
        // Once both are there, no moment between them is on the disk alone.
        let versions = &mut state.inodes[self.inode].versions;
        versions.remove(versions.len() - 2);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let done = state.risky_step();
        let inode = self.inode;
        if done.is_ok() && !state.inodes[inode].is_lost {
            let bytes = state.inodes[inode].bytes().clone();
            state.inodes[inode].versions = vec![bytes];
        }
        state.inodes[inode].is_lost |= done.is_err();
        done
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.risky_step()?;
        let mut version = state.inodes[self.inode].bytes().clone();
        version.truncate(len as usize);
        state.inodes[self.inode].versions.push(version);
        Ok(())
    }
}

impl Storage for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.step()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut state = self.state();
        state.step()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode { versions: vec![vec![]], is_lost: false });
        let naming = Naming::Link(name.into(), inode);
        change(&mut state.names, &naming);
        state.pending.push(naming);
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StorageFile>> {
        let mut state = self.state();
        state.step()?;
        Ok(Box::new(SimFile { disk: self.clone(), inode: state.find(name)? }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.step()?;
        let inode = state.find(name)?;
        Ok(state.inodes[inode].bytes().clone())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.find(name)?;
        let naming = Naming::Unlink(name.into());
        change(&mut state.names, &naming);
        state.pending.push(naming);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        state.risky_step()?;
        state.synced_names = state.names.clone();
        state.pending.clear();
        Ok(())
    }
}
