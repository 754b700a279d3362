//! The writer by itself: the entries that it refuses, and that no file is left after a refusal or a
//! drop.

use std::num::NonZeroU32;
use std::ops::Bound;

use paranoid_memtable::Kind;
use paranoid_sst::{Error, SortedTable, SortedTableOptions, SortedTableWriter, limits};

use crate::model::{file_in, folder};

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("want a refusal, have {other:?}"),
    }
}

#[test]
fn what_rocksdb_cannot_hold_is_refused_by_name() {
    let folder = folder();
    let path = file_in(&folder);
    let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default()).unwrap();
    let largest = limits().sequence_max;
    assert_eq!(largest, (1 << 56) - 1);
    writer.add(b"a\x01", largest, Kind::PUT, b"1").unwrap();
    let text = refusal(writer.add(b"b", largest + 1, Kind::PUT, b""));
    assert!(
        text.contains("\"b\" @ 72057594037927936 PUT") && text.contains("56 bits"),
        "{text}"
    );
    for kind in [0x80, 0x91, 3, 14, 0xff] {
        let text = refusal(writer.add(b"b", 1, Kind::from_u8(kind), b""));
        assert!(text.contains("no such kind"), "{text}");
    }
    refusal(writer.add(b"b", 1, Kind::RANGE_DELETE, b"c"));
    let text = refusal(writer.add(b"a\x01", largest, Kind::PUT, b"2"));
    assert!(
        text.contains("\"a\\x01\"") && text.contains("equal"),
        "{text}"
    );
    refusal(writer.add(b"a", 7, Kind::PUT, b"2"));
    refusal(writer.add_range(b"c", b"c", 1));
    refusal(writer.add_range(b"d", b"c", 1));
    refusal(writer.add_range(b"c", b"d", largest + 1));
    writer.add_range(b"c", b"d", 5).unwrap();
    refusal(writer.add_range(b"c", b"e", 5));
    refusal(writer.add_range(b"b", b"e", 9));
    // The refused entry changed nothing.
    writer.add(b"a\x01", 4, Kind::MERGE, b"2").unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(
        (written.entries, written.range_deletions, written.sequences),
        (2, 1, Some((4, largest)))
    );
    assert_eq!(
        written.bounds,
        Some((b"a\x01".to_vec(), Bound::Excluded(b"d".to_vec())))
    );
    assert_eq!(
        SortedTable::open(&path).unwrap().verify().unwrap().entries,
        2
    );
}

#[test]
fn options_that_a_format_version_has_not_are_refused() {
    let bound = |version| {
        SortedTableOptions::builder()
            .format_version(version)
            .context_base(NonZeroU32::MIN)
    };
    for version in 2..=6 {
        match version {
            6 => assert!(bound(version).build().is_ok()),
            _ => assert!(
                refusal(bound(version).build()).contains("context base"),
                "version {version}"
            ),
        }
    }
}

#[test]
fn limits_are_where_the_writer_refuses() {
    let limits = limits();
    for len in [
        limits.entry_len_max - 3,
        limits.entry_len_max - 2,
        limits.entry_len_max,
    ] {
        let fits = len + 3 <= limits.entry_len_max;
        assert_eq!(
            limits.check(b"key", 1, Kind::PUT, len).is_ok(),
            fits,
            "{len}"
        );
    }
}

#[test]
fn nothing_is_left() {
    let folder = folder();
    let path = file_in(&folder);
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default()).unwrap();
    writer.add(b"a", 1, Kind::PUT, b"").unwrap();
    assert_eq!(names(), 1);
    drop(writer);
    assert_eq!(names(), 0);
    let writer = SortedTableWriter::create(&path, SortedTableOptions::default()).unwrap();
    refusal(writer.finish());
    assert_eq!(names(), 0);
    // A leftover of a killed process does not matter; a file of the final name is never
    // overwritten.
    std::fs::write(folder.path().join("000007.sst.0.tmp"), b"left over").unwrap();
    let mut writer = SortedTableWriter::create(&path, SortedTableOptions::default()).unwrap();
    writer.add(b"a", 1, Kind::PUT, b"").unwrap();
    std::fs::write(&path, b"somebody else's").unwrap();
    assert!(matches!(writer.finish(), Err(Error::Io { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody else's");
    assert!(SortedTableWriter::create(&path, SortedTableOptions::default()).is_err());
    assert_eq!(names(), 2);
}
