//! Reads a data block of any bytes in an intact file, whose type says that it is compressed.
//! Opening, verifying, gets and walks never panic, and take no more memory than the stored bytes
//! can decode to.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::ChecksumKind;
use paranoid_sst::{SortedTable, TableSource};

#[path = "../../sst/tests/suite/by_hand.rs"]
#[allow(dead_code, reason = "shared by path")]
mod by_hand;
use by_hand::{ByHand, internal};

/// Snappy, lz4, lz4hc, zstd.
const TYPES: [u8; 4] = [1, 4, 5, 7];

// The first byte selects the type and the format version. The rest is the block as it is stored.
fuzz_target!(|input: &[u8]| {
    let Some((&which, stored)) = input.split_first() else {
        return;
    };
    let (compression, version) = (TYPES[usize::from(which % 4)], 1 + u32::from(which / 4 % 5));
    let mut file = ByHand::new(version, ChecksumKind::None);
    file.data(&internal(b"\xff", 0, 0), stored, compression);
    let source = TableSource::memory(Arc::new(file.finish()));
    let table = SortedTable::from_source("fuzz", source).expect("an intact file");
    let verified = table.verify();
    let mut cursor = table.cursor();
    let mut entries = 0;
    let mut step = cursor.first();
    while step.is_ok() && cursor.is_valid() {
        entries += 1;
        step = cursor.next();
    }
    if let Ok(report) = &verified {
        assert_eq!(report.entries, entries);
    }
    let mut step = cursor.last();
    while step.is_ok() && cursor.is_valid() {
        entries = entries.saturating_sub(1);
        step = cursor.prev();
    }
    if verified.is_ok() {
        assert_eq!(entries, 0, "a walk back that is not the walk forth");
    }
    for key in [&b""[..], b"key01", b"\xff"] {
        let _ = table.get(key, u64::MAX);
        let _ = cursor.seek_for_prev(key, 70);
    }
});
