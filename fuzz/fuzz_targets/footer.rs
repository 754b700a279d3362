//! Decodes any bytes as the end of a file. Decoding never panics, and a decoded footer encodes to
//! the same bytes, except for LevelDB's footers, which are not written.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use paranoid_sst::Footer;

fuzz_target!(|input: (u64, &[u8])| {
    let (at, tail) = input;
    let Some(stored) = tail.last_chunk::<{ Footer::LEN }>() else {
        return;
    };
    // A file's offsets fit 64 bits.
    let at = at.min(u64::MAX - Footer::LEN as u64);
    let file: Arc<Path> = Path::new("fuzzed").into();
    let Ok(footer) = Footer::decode(&file, stored, at) else {
        return;
    };
    if footer.format_version() == 0 {
        footer
            .encode(at)
            .expect_err("LevelDB's footers are not written");
    } else {
        let again = footer.encode(at).expect("what was decoded can be encoded");
        if footer.format_version() < 6 {
            assert_eq!(again, *stored);
        } else {
            // The reserved bytes may differ, and then the checksum too.
            assert_eq!(again[9..17], stored[9..17]);
            assert_eq!(
                Footer::decode(&file, &again, at).expect("what was encoded can be decoded"),
                footer
            );
        }
    }
    // Blocks, checked with this footer's checks.
    let checks = footer.checks();
    if checks.verify(tail, at).is_err() {
        let trailer = checks.trailer(tail, 7, at);
        let whole = [tail, &trailer].concat();
        assert_eq!(
            checks
                .verify(&whole, at)
                .expect("what was written verifies"),
            (tail, 7)
        );
    }
});
