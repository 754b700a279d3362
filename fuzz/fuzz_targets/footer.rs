//! Any bytes as the end of a file: decoding never panics, and what decodes is encoded to the bytes that were read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::format::Footer;

fuzz_target!(|input: (u64, &[u8])| {
    let (before, tail) = input;
    let Some(file_size) = before.checked_add(tail.len() as u64) else { return };
    let Ok(footer) = Footer::decode(tail, file_size) else { return };
    let len = if footer.format_version() == 0 { 48 } else { 53 };
    let stored = &tail[tail.len() - len..];
    let again = footer.encode(file_size - len as u64).expect("what was decoded can be encoded");
    if footer.format_version() < 6 {
        assert_eq!(again, stored);
    } else {
        // The reserved bytes may differ, and with them the checksum.
        assert_eq!(again[9..17], stored[9..17]);
        let decoded = Footer::decode(&again, file_size).expect("what was encoded can be decoded");
        assert_eq!(decoded, footer);
    }
    // Blocks, checked with this footer's checks.
    let checks = footer.checks();
    if checks.verify(tail, before).is_err() {
        let trailer = checks.trailer(tail, 7, before);
        let whole = [tail, &trailer].concat();
        assert_eq!(checks.verify(&whole, before).expect("what was written verifies"), (tail, 7));
    }
});
