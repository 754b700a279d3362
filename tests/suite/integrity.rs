//! Options of integrity: they say what was asked for, and refuse what cannot be had.

#[cfg(feature = "fault-injection")]
use paranoid_memtable::fault::{FaultInjector, Region};
use paranoid_memtable::{Error, ParanoidOptions};
#[cfg(feature = "fault-injection")]
use paranoid_memtable::{MemTable, MemTableOptions};

#[test]
fn options_say_what_was_asked_for() {
    for bytes in 0..=u8::MAX {
        for (seek, order) in [(false, false), (false, true), (true, false), (true, true)] {
            let builder = ParanoidOptions::builder().protection_bytes(bytes);
            let built = builder.checksum_on_seek(seek).order_checks(order).build();
            let has_width = matches!(bytes, 0 | 1 | 2 | 4 | 8);
            match built {
                Ok(options) => {
                    assert!(has_width && (bytes > 0 || !seek), "{options:?}");
                    let said =
                        (options.protection_bytes(), options.checksum_on_seek(), options.order_checks());
                    assert_eq!(said, (bytes, seek, order));
                }
                Err(Error::InvalidArgument(text)) => {
                    let reason = if has_width { "checksum_on_seek needs" } else { "must be 0, 1, 2, 4 or 8" };
                    assert!((!has_width || seek && bytes == 0) && text.contains(reason), "{bytes}: {text}");
                }
                Err(other) => panic!("{bytes}: {other}"),
            }
        }
    }
    let options = ParanoidOptions::default();
    assert_eq!(
        (options.protection_bytes(), options.checksum_on_seek(), options.order_checks()),
        (8, false, false)
    );
    assert_eq!(ParanoidOptions::builder().build().unwrap(), options);
}

/// Every bit of an entry flipped while a cursor is parked on it: its getters agree on whether the entry verifies where they return
/// the same parts of it, and what is damaged is the finding of a scrub in any case.
#[cfg(feature = "fault-injection")]
#[test]
fn getters_of_an_entry_verify_what_they_return() {
    for protection in [1, 8] {
        let paranoid = ParanoidOptions::builder().protection_bytes(protection).build().unwrap();
        let table =
            MemTable::new(MemTableOptions::builder().paranoid(paranoid).seed(3).build().unwrap()).unwrap();
        table.put(5, b"apple", b"red and round").unwrap();
        let mut cursor = table.cursor();
        cursor.first().unwrap();
        // SAFETY: this thread alone uses the table, and holds nothing borrowed from its memory: a cursor holds offsets.
        #[expect(unsafe_code, reason = "opens the fault injector")]
        let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let regions = [Region::Header, Region::Digests, Region::Key, Region::Value];
        let pieces: Vec<usize> = (0..injector.pieces().len())
            .filter(|piece| regions.contains(&injector.pieces()[*piece].region))
            .collect();
        let mut refused = 0;
        for (piece, bit) in pieces.into_iter().flat_map(|piece| (0..8 * 24).map(move |bit| (piece, bit))) {
            if bit >= 8 * injector.bytes(piece).len() {
                continue;
            }
            injector.flip(piece, bit);
            let note = format!("{:?} bit {bit}", injector.pieces()[piece].region);
            if let Ok(Some(entry)) = cursor.entry() {
                assert_eq!((entry.user_key(), entry.sequence()), (b"apple".as_slice(), 5), "{note}");
                let value = entry.value().map(<[u8]>::to_vec);
                let parts = entry.parts().map(|parts| parts.value.to_vec());
                let copy = entry.to_bytes().map(|copy| copy.value().to_vec());
                let pinned = table.pin(&entry).map(|pinned| pinned.value().to_vec());
                let mut buffer = Vec::new();
                let into = entry.value_into(&mut buffer).map(|()| buffer);
                for same in [&parts, &copy, &pinned, &into] {
                    assert_eq!(same.is_ok(), value.is_ok(), "{note}");
                }
                for got in [value, parts, copy, pinned, into] {
                    refused += u32::from(got.is_err());
                    assert!(got.is_err() || got.is_ok_and(|value| value == b"red and round"), "{note}");
                }
            }
            assert!(!table.scrub(|_| ()).findings.is_empty(), "{note}");
            injector.undo();
        }
        assert!(refused > 0);
    }
}
