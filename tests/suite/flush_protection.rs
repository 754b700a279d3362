//! Flush entries carry the digests that their table stored: they disagree with an entry in which any bit has changed.

use paranoid_memtable::flush::{FlushEntry, FlushSink, HiddenVersions, SinkError};
use paranoid_memtable::integrity::StoredProtection;
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{Kind, MemTable, MemTableOptions, ParanoidOptions};

/// Compares each entry, and each entry with one bit of it flipped, with the entry's stored digests.
#[derive(Default)]
struct Flips {
    protection: u8,
    entries: u64,
    missed: u64,
    tried: u64,
}

impl Flips {
    fn try_flip(&mut self, stored: &StoredProtection, entry: (&[u8], &[u8], u64, Kind)) {
        self.tried += 1;
        self.missed += u64::from(stored.check(entry.0, entry.1, entry.2, entry.3).is_some());
    }
}

impl FlushSink for Flips {
    fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
        let FlushEntry { user_key, sequence, kind, value, protection } = entry;
        assert_eq!(protection.bytes(), self.protection);
        let whole = protection.check(user_key, value, sequence, kind).expect("an intact entry agrees");
        assert_eq!(
            whole,
            paranoid_memtable::integrity::Protected::of(user_key, value, kind).with_sequence(sequence)
        );
        self.entries += 1;
        let (mut key, mut copy) = (user_key.to_vec(), value.to_vec());
        for bit in 0..8 * key.len() {
            key[bit / 8] ^= 1 << (bit % 8);
            self.try_flip(&protection, (&key, value, sequence, kind));
            key[bit / 8] ^= 1 << (bit % 8);
        }
        for bit in 0..8 * copy.len() {
            copy[bit / 8] ^= 1 << (bit % 8);
            self.try_flip(&protection, (user_key, &copy, sequence, kind));
            copy[bit / 8] ^= 1 << (bit % 8);
        }
        for bit in 0..64 {
            self.try_flip(&protection, (user_key, value, sequence ^ 1 << bit, kind));
        }
        for bit in 0..8 {
            self.try_flip(&protection, (user_key, value, sequence, Kind::from_u8(kind.as_u8() ^ 1 << bit)));
        }
        // A key and a value that belong to two entries.
        self.try_flip(&protection, (user_key, &[value, b"x"].concat(), sequence, kind));
        Ok(())
    }

    fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

#[test]
fn a_flip_after_the_table_disagrees_with_the_stored_digests() {
    for protection in [0, 1, 2, 4, 8] {
        let paranoid = ParanoidOptions::builder().protection_bytes(protection).build().unwrap();
        let options = MemTableOptions::builder().paranoid(paranoid);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        for number in 0..60u64 {
            let kind = [Kind::PUT, Kind::MERGE, Kind::DELETE, Kind::from_u8(0x91)][number as usize % 4];
            let value = if kind == Kind::DELETE { vec![] } else { vec![number as u8; number as usize] };
            table.insert(number + 1, kind, format!("k{}", number / 2).as_bytes(), &value).unwrap();
        }
        let mut sink = Flips { protection, ..Flips::default() };
        let frozen = table.freeze().unwrap();
        frozen.flush_with(&[], HiddenVersions::Keep, &mut sink).unwrap();
        assert_eq!(sink.entries, 60);
        // A digest of n bytes misses one flip in 2^8n; without digests nothing is compared.
        let allowed = match protection {
            0 => sink.tried,
            1 => sink.tried / 64,
            2 => 10,
            _ => 0,
        };
        assert!(sink.missed <= allowed, "{protection} bytes: {} of {}", sink.missed, sink.tried);
    }
}
