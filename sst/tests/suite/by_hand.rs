//! Files that are built by hand, block by block: no writer makes such files.

use std::collections::BTreeMap;

use paranoid_memtable::ChecksumKind;
use paranoid_memtable::integrity::BlockChecks;
use paranoid_sst::{BlockHandle, Footer};

/// A file that is being built: data blocks come first, in order.
pub(crate) struct ByHand {
    version: u32,
    checks: BlockChecks,
    bytes: Vec<u8>,
    index: Vec<(Vec<u8>, Vec<u8>)>,
    names: BTreeMap<Vec<u8>, BlockHandle>,
    pub(crate) properties: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl ByHand {
    /// A file of format version 1 to 5.
    pub(crate) fn new(version: u32, kind: ChecksumKind) -> ByHand {
        let checks = BlockChecks::new(kind);
        let properties =
            BTreeMap::from([(b"rocksdb.block.based.table.index.type".to_vec(), vec![0; 4])]);
        ByHand {
            version,
            checks,
            bytes: vec![],
            index: vec![],
            names: BTreeMap::new(),
            properties,
        }
    }

    fn append(&mut self, block: &[u8], compression: u8) -> BlockHandle {
        let offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(block);
        self.bytes
            .extend_from_slice(&self.checks.trailer(block, compression, offset));
        BlockHandle {
            offset,
            size: block.len() as u64,
        }
    }

    /// Appends a data block in its stored form. `last` is its last internal key.
    pub(crate) fn data(&mut self, last: &[u8], block: &[u8], compression: u8) {
        let handle = self.append(block, compression);
        self.index
            .push((last.to_vec(), varints(&[handle.offset, handle.size])));
    }

    /// Appends a block that the metaindex names.
    pub(crate) fn named(&mut self, name: &[u8], block: &[u8]) {
        let handle = self.append(block, 0);
        self.names.insert(name.to_vec(), handle);
    }

    /// Gives a block another name.
    pub(crate) fn renamed(&mut self, name: &[u8], other: &[u8]) {
        self.names.insert(other.to_vec(), self.names[name]);
    }

    /// Ends a file as LevelDB does: no properties, and the index last. Its version and kind are not
    /// stored.
    pub(crate) fn finish_leveldb(mut self) -> Vec<u8> {
        let names = self.names();
        let metaindex = self.append(&block(&names), 0);
        let index = block(&std::mem::take(&mut self.index));
        let index = self.append(&index, 0);
        let mut footer = varints(&[metaindex.offset, metaindex.size, index.offset, index.size]);
        footer.resize(40, 0);
        footer.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
        [self.bytes, footer].concat()
    }

    fn names(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let names = std::mem::take(&mut self.names).into_iter();
        names
            .map(|(name, to)| (name, varints(&[to.offset, to.size])))
            .collect()
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let properties: Vec<_> = std::mem::take(&mut self.properties).into_iter().collect();
        self.named(b"rocksdb.properties", &block(&properties));
        let index = block(&std::mem::take(&mut self.index));
        let index = self.append(&index, 0);
        let names = self.names();
        let metaindex = self.append(&block(&names), 0);
        let footer = Footer::new(self.version, self.checks, metaindex, Some(index));
        let footer = footer.unwrap().encode(self.bytes.len() as u64).unwrap();
        self.bytes.extend_from_slice(&footer);
        self.bytes
    }
}

/// A user key with sequence number and kind.
pub(crate) fn internal(user_key: &[u8], sequence: u64, kind: u8) -> Vec<u8> {
    [user_key, &(sequence << 8 | u64::from(kind)).to_le_bytes()].concat()
}

fn varints(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![];
    for number in numbers {
        let mut left = *number;
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
    }
    bytes
}

/// A block whose keys are stored whole, each at a restart.
pub(crate) fn block(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut restarts) = (vec![], vec![]);
    for (key, value) in entries {
        restarts.push(bytes.len() as u32);
        bytes.extend(varints(&[0, key.len() as u64, value.len() as u64]));
        bytes.extend([key.as_slice(), value].concat());
    }
    ended(bytes, &restarts)
}

/// A block with one restart. Keys share their whole common prefix with the key before.
pub(crate) fn one_restart(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut last) = (vec![], &[][..]);
    for (key, value) in entries {
        let shared = last
            .iter()
            .zip(key)
            .take_while(|(left, right)| left == right)
            .count();
        bytes.extend(varints(&[
            shared as u64,
            (key.len() - shared) as u64,
            value.len() as u64,
        ]));
        bytes.extend([&key[shared..], value].concat());
        last = key;
    }
    ended(bytes, &[0])
}

fn ended(mut bytes: Vec<u8>, restarts: &[u32]) -> Vec<u8> {
    // A block without entries has one restart.
    let restarts = if restarts.is_empty() { &[0] } else { restarts };
    bytes.extend(restarts.iter().flat_map(|restart| restart.to_le_bytes()));
    bytes.extend((restarts.len() as u32).to_le_bytes());
    bytes
}
