//! Each level-0 link says correctly whether the keys at its ends differ.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use crate::integrity::hash::splitmix;
use crate::integrity::options::ParanoidOptions;
use crate::memtable::arena::links::EndKeys;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::options::MemTableOptions;
use crate::memtable::skiplist::list::DuplicatePolicy;
use crate::memtable::table::MemTable;

/// Every level-0 link says whether the keys at its ends differ, after puts, batches in any order,
/// versions of a key, and entries that replace others. Red for `versions_differ`.
#[test]
fn links_say_whether_the_keys_at_their_ends_differ() {
    for protection in [0, 1, 8] {
        let paranoid = ParanoidOptions::builder()
            .protection_bytes(protection)
            .build()
            .unwrap();
        let options = MemTableOptions::builder()
            .paranoid(paranoid)
            .duplicates(DuplicatePolicy::Replace);
        let table = MemTable::new(options.seed(0xd1ff).build().unwrap()).unwrap();
        let key = |draw: u64| (splitmix(draw) % 40).to_be_bytes();
        for round in 0..if cfg!(miri) { 20 } else { 300 } {
            let sequence = 1 + 8 * (round - round % 5);
            table.put(sequence, key(20 * round), b"put").unwrap();
            let mut batch = WriteBatch::with_protection(8).unwrap();
            for place in 1..=splitmix(round) % 8 {
                batch
                    .put(key(20 * round + place / 2), b"in a batch")
                    .unwrap();
            }
            table.write_batch(sequence, &batch).unwrap();
        }
        let search = table.core().point_search().unwrap();
        let (mut at, mut left) = (search.sentinel, None);
        while let Some((next, ends)) = search
            .view
            .try_link_with_ends(at, 0)
            .filter(|(next, _)| *next != search.sentinel)
        {
            let right = search.view.open(next).unwrap().key().to_vec();
            let differ = left.as_ref() != Some(&right);
            assert_eq!(ends == EndKeys::DIFFER, differ, "{left:?} {right:?}");
            (at, left) = (next, Some(right));
        }
    }
}
