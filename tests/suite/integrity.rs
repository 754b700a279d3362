//! Options of integrity: they say what was asked for, and refuse what cannot be had.

use paranoid_memtable::{Error, ParanoidOptions};

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
