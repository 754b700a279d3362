//! A simulated disk. Anything that was not synced may be lost at a crash, in part or as a whole:
//! names as well as bytes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use paranoid_sst::{Storage, StorageFile, TableSource};

use crate::rng::Rng;

const SECTOR: usize = 64;

/// The failure of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    #[default]
    None,
    /// `sync` of a file does nothing.
    NoFileSync,
    /// `sync` of a directory does nothing.
    NoDirectorySync,
}

#[derive(Debug, Default)]
struct Inode {
    bytes: Vec<u8>,
    /// Bytes that survive a crash for certain.
    synced: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Naming {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
pub(crate) struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    /// Changes of names since the last sync of the directory, in order.
    pending: Vec<Naming>,
    steps: u64,
    used: usize,
}

/// A disk that stops at a step, or is full at a size.
#[derive(Debug, Default)]
pub(crate) struct SimDisk {
    pub(crate) state: Mutex<State>,
    pub(crate) fault: Fault,
    pub(crate) crash_at: Option<u64>,
    pub(crate) capacity: Option<usize>,
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &Naming) {
    match change {
        Naming::Link(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        Naming::Unlink(path) => {
            names.remove(path);
        }
        Naming::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

impl SimDisk {
    /// Number of steps so far.
    pub(crate) fn steps(&self) -> u64 {
        self.state.lock().unwrap().steps
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> Vec<PathBuf> {
        self.state.lock().unwrap().names.keys().cloned().collect()
    }

    fn step<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock().unwrap();
        if self.crash_at.is_some_and(|at| state.steps >= at) {
            return Err(io::Error::other("the machine is down"));
        }
        state.steps += 1;
        act(&mut state)
    }

    /// The content of a file after a crash. `None`: its name did not survive. `rng` decides which
    /// changes of names and which sectors survive besides the synced ones. Changes of names survive
    /// in order.
    pub(crate) fn after_crash(&self, path: &Path, rng: &mut Rng) -> Option<Vec<u8>> {
        let state = self.state.lock().unwrap();
        let mut names = state.synced_names.clone();
        let survive = rng.index(state.pending.len() + 1);
        state.pending[..survive]
            .iter()
            .for_each(|change| apply(&mut names, change));
        let inode = &state.inodes[*names.get(path)?];
        let len = if rng.one_in(2) {
            inode.bytes.len()
        } else {
            rng.index(inode.bytes.len() + 1)
        };
        let mut bytes = inode.synced.clone();
        bytes.resize(len.max(bytes.len()), 0);
        for (at, sector) in inode.bytes.chunks(SECTOR).enumerate() {
            let (start, end) = (at * SECTOR, (at * SECTOR + sector.len()).min(bytes.len()));
            if start < end && rng.one_in(2) {
                bytes[start..end].copy_from_slice(&sector[..end - start]);
            }
        }
        bytes[..inode.synced.len()].copy_from_slice(&inode.synced);
        Some(bytes)
    }
}

/// A file on a simulated disk.
#[derive(Debug)]
pub(crate) struct SimFile {
    disk: Arc<SimDisk>,
    inode: usize,
}

impl Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let capacity = self.disk.capacity;
        let inode = self.inode;
        // Takes only a part of the bytes, so that crashes also come in the middle of writes.
        let part = &bytes[..bytes.len().min(3 * SECTOR / 2)];
        self.disk.step(|state| {
            let room =
                capacity.map_or(part.len(), |capacity| part.len().min(capacity - state.used));
            if room == 0 && !part.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.used += room;
            state.inodes[inode].bytes.extend_from_slice(&part[..room]);
            Ok(room)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StorageFile for SimFile {
    fn sync(&mut self) -> io::Result<()> {
        let (fault, inode) = (self.disk.fault, self.inode);
        self.disk.step(|state| {
            if fault != Fault::NoFileSync {
                state.inodes[inode].synced = state.inodes[inode].bytes.clone();
            }
            Ok(())
        })
    }
}

/// A simulated disk as a storage.
#[derive(Debug, Clone)]
pub(crate) struct Shared(pub(crate) Arc<SimDisk>);

impl Storage for Shared {
    type File = SimFile;

    fn create_new(&self, path: &Path) -> io::Result<SimFile> {
        self.0.step(|state| {
            if state.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.inodes.push(Inode::default());
            let inode = state.inodes.len() - 1;
            state.names.insert(path.to_path_buf(), inode);
            state.pending.push(Naming::Link(path.to_path_buf(), inode));
            Ok(SimFile {
                disk: Arc::clone(&self.0),
                inode,
            })
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.step(|state| Ok(state.names.contains_key(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step(|state| {
            let change = Naming::Rename(from.to_path_buf(), to.to_path_buf());
            apply(&mut state.names, &change);
            state.pending.push(change);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.step(|state| {
            let change = Naming::Unlink(path.to_path_buf());
            apply(&mut state.names, &change);
            state.pending.push(change);
            Ok(())
        })
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        let fault = self.0.fault;
        self.0.step(|state| {
            if fault != Fault::NoDirectorySync {
                state.synced_names = state.names.clone();
                state.pending.clear();
            }
            Ok(())
        })
    }

    fn open(&self, path: &Path) -> io::Result<TableSource> {
        self.0.step(|state| {
            let inode = state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
            Ok(TableSource::memory(Arc::new(
                state.inodes[*inode].bytes.clone(),
            )))
        })
    }
}
