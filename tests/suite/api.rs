//! The public face: what is `Send` and `Sync`, how large things are, what errors say.

use paranoid_memtable::KeyEquality;
use paranoid_memtable::flush::{FlushEntry, FlushItem, FlushIter, FlushSink, SinkError};
use paranoid_memtable::integrity::{Kvo, Kvos, Place, Protected};
use paranoid_memtable::read::{
    Base, DeletedBy, EntryBytes, EntryParts, Found, Operand, Operands, PinnedEntry, PinnedValue,
};
use paranoid_memtable::scan::{
    AtSnapshot, Borrowed, Cursor, Descending, Owned, OwnedDescending, RangeStats, Raw,
};
use paranoid_memtable::tombstone::Fragment;
use paranoid_memtable::{
    Bytewise, Corruption, Directory, Displaced, DuplicatePolicy, Entry, Error, ImmutableMemTable, Inserted,
    Kind, Lookup, MemTable, MemTableOptions, MemTableOptionsBuilder, OwnedCursor, OwnedRange,
    ParanoidOptions, ParanoidOptionsBuilder, Range, TableCursor, TableReader, ValueRef, Writer,
};

use crate::support::orders::Reverse;
use crate::support::under::under;

const fn sync<T: Send + Sync>() {}
const fn send<T: Send>() {}
const fn stays<T: 'static>() {}

const _: () = {
    sync::<MemTable>();
    sync::<MemTable>();
    sync::<MemTable>();
    sync::<ImmutableMemTable>();
    sync::<TableReader>();
    send::<Writer>();
    sync::<TableCursor<'static>>();
    sync::<TableCursor<'static, AtSnapshot>>();
    sync::<Cursor<Borrowed<'static>, Raw>>();
    sync::<Cursor<Owned, Raw>>();
    sync::<OwnedCursor>();
    sync::<OwnedCursor<AtSnapshot>>();
    stays::<OwnedCursor>();
    stays::<PinnedValue>();
    sync::<(EntryBytes, PinnedEntry, EntryParts<'static>)>();
    stays::<(EntryBytes, PinnedEntry)>();
    stays::<Writer>();
    sync::<Range<'static>>();
    sync::<Descending<'static>>();
    sync::<(OwnedRange, OwnedRange<AtSnapshot>, OwnedDescending)>();
    stays::<(OwnedRange, OwnedRange<AtSnapshot>, OwnedDescending)>();
    sync::<Lookup<'static>>();
    sync::<ValueRef<'static>>();
    sync::<PinnedValue>();
    sync::<Operands<'static>>();
    sync::<Operand<'static>>();
    sync::<(FlushIter<'static>, FlushItem<'static>)>();
    sync::<Base<'static>>();
    sync::<Entry<'static>>();
    sync::<(Found, DeletedBy, Inserted, Displaced, RangeStats)>();
    sync::<(Kind, KeyEquality, DuplicatePolicy, Place, Corruption)>();
    sync::<(Protected<Kvo>, Protected<Kvos>)>();
    sync::<(MemTableOptions, MemTableOptionsBuilder, ParanoidOptions, ParanoidOptionsBuilder)>();
    sync::<Error>();
    stays::<Error>();
};

/// Table handles have the size of a pointer, results of reads that of a few registers or of a cache line.
const _: () = {
    assert!(size_of::<MemTable>() == size_of::<usize>());
    assert!(size_of::<ImmutableMemTable>() == size_of::<usize>());
    assert!(size_of::<PinnedValue>() == size_of::<usize>());
    assert!(size_of::<Writer>() <= 2 * size_of::<usize>());
    assert!(size_of::<Kind>() == 1);
    assert!(size_of::<Found>() <= 24);
    assert!(size_of::<Error>() <= 72);
    assert!(size_of::<Corruption>() <= 64);
};

fn text_of(error: Error) -> String {
    match error {
        Error::InvalidArgument(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn refused_options_name_the_thing() {
    for bytes in [3, 5, 6, 7, 9, 16, 255] {
        let text = text_of(ParanoidOptions::builder().protection_bytes(bytes).build().unwrap_err());
        assert!(text.contains("protection_bytes") && text.contains(&bytes.to_string()), "{text}");
    }
    let nothing_to_check = ParanoidOptions::builder().protection_bytes(0).checksum_on_seek(true).build();
    assert!(text_of(nothing_to_check.unwrap_err()).contains("checksum_on_seek"));
    let build = |change: fn(MemTableOptionsBuilder) -> MemTableOptionsBuilder| {
        text_of(change(MemTableOptions::builder()).build().unwrap_err())
    };
    for (name, text) in [
        ("write_buffer_size", build(|b| b.write_buffer_size(0))),
        ("write_buffer_size", build(|b| b.write_buffer_size((32 << 30) + 1))),
        ("hard_limit", build(|b| b.hard_limit(4095).write_buffer_size(1))),
        ("hard_limit", build(|b| b.hard_limit((32 << 30) + 1))),
        ("hard_limit", build(|b| b.hard_limit(4096).write_buffer_size(4097))),
        ("key_len_max", build(|b| b.key_len_max(0))),
        ("key_len_max", build(|b| b.key_len_max(1 << 24))),
        ("value_len_max", build(|b| b.value_len_max(1 << 32))),
    ] {
        assert!(text.contains(name), "{name} is not in: {text}");
    }
}

/// An order without images has no directory by `Auto`, and `On` is refused.
#[test]
fn a_directory_needs_an_order_of_bytes_or_images() {
    #[derive(Debug)]
    struct FromBehind;
    impl paranoid_memtable::Comparator for FromBehind {
        fn name(&self) -> &str {
            "test.FromBehind"
        }

        fn equality(&self) -> KeyEquality {
            KeyEquality::Bytes
        }
        fn compare(&self, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
            left.iter().rev().cmp(right.iter().rev())
        }
    }
    for (directory, taken) in [(Directory::Off, true), (Directory::Auto, true), (Directory::On, false)] {
        let options = || MemTableOptions::builder().directory(directory);
        let text = options().comparator(std::sync::Arc::new(FromBehind)).build().map(drop).map_err(text_of);
        assert_eq!(text.is_ok(), taken, "{directory:?}: {text:?}");
        assert!(MemTable::new(under(options(), Bytewise)).is_ok());
        assert!(MemTable::new(under(options(), Reverse)).is_ok());
        assert_eq!(options().build().unwrap().directory(), directory);
    }
}

#[test]
fn options_at_their_limits_are_taken() {
    for bytes in [0, 1, 2, 4, 8] {
        let options = ParanoidOptions::builder().protection_bytes(bytes).build().unwrap();
        assert_eq!(options.protection_bytes(), bytes);
    }
    let build = |change: fn(MemTableOptionsBuilder) -> MemTableOptionsBuilder| {
        MemTable::new(change(MemTableOptions::builder()).build().unwrap()).unwrap()
    };
    for table in [
        build(|b| b.write_buffer_size(1)),
        build(|b| b.write_buffer_size(32 << 30)),
        build(|b| b.write_buffer_size(4096).hard_limit(4096)),
        build(|b| b.hard_limit(32 << 30)),
        build(|b| b.key_len_max(1)),
        build(|b| b.key_len_max((1 << 24) - 1)),
        build(|b| b.value_len_max(0)),
        build(|b| b.value_len_max((1 << 32) - 1)),
    ] {
        table.put(1, b"k", b"").unwrap();
        assert!(matches!(table.get(b"k", 1).unwrap(), Lookup::Value(value) if value.is_empty()));
    }
}

#[test]
fn errors_and_debug_output_hold_no_user_bytes() {
    let secret = b"swordfish";
    let options = MemTableOptions::builder().key_len_max(20).value_len_max(20).hard_limit(4096);
    let table = MemTable::new(options.write_buffer_size(4096).build().unwrap()).unwrap();
    table.put(1, secret, secret).unwrap();
    let long = secret.repeat(3);
    let caller_digest = Protected::<Kvo>::of(b"other", secret, Kind::PUT);
    let mut errors = vec![
        table.put(1, secret, secret).unwrap_err(),
        table.put(2, &long, secret).unwrap_err(),
        table.put(2, secret, &long).unwrap_err(),
        table.delete_range(2, secret, secret).unwrap_err(),
        table.insert(2, Kind::from_u8(9), secret, secret).unwrap_err(),
        table.insert_parts(2, Kind::PUT, secret, &[secret], Some(caller_digest)).unwrap_err(),
        table.try_reserve(1 << 20).unwrap_err(),
    ];
    let mut cursor = table.cursor();
    cursor.first().unwrap();
    let mut texts = vec![
        format!("{:?}", cursor.entry()),
        format!("{cursor:?}"),
        format!("{:?}", table.get(secret, 1)),
        format!("{:?}", table.range(..)),
        format!("{:?}", table.writer()),
        format!("{:?}", table.freeze()),
    ];
    errors.push(table.put(3, secret, secret).unwrap_err());
    for error in &errors {
        assert!(!error.to_string().is_empty() && !error.to_string().contains('\n'));
        texts.push(format!("{error} {error:?}"));
    }
    let bytes = format!("{secret:?}");
    let inner = bytes.trim_matches(['[', ']']);
    for text in texts {
        assert!(!text.contains("swordfish") && !text.contains(inner), "{text}");
    }
}

#[test]
fn a_cursor_that_stands_nowhere_has_no_entry() {
    let table = MemTable::new(MemTableOptions::default()).unwrap();
    for filled in [false, true] {
        if filled {
            table.put(1, b"k", b"v").unwrap();
        }
        let mut cursor = table.cursor();
        assert!(cursor.entry().unwrap().is_none() && !cursor.is_valid());
        for _ in 0..2 {
            assert!(cursor.next().unwrap().is_none());
            assert!(cursor.entry().unwrap().is_none());
            assert!(cursor.prev().unwrap().is_none());
            assert!(cursor.entry().unwrap().is_none());
        }
        assert_eq!(cursor.last().unwrap().is_some(), filled);
        assert_eq!(cursor.is_valid(), filled);
        assert!(cursor.next().unwrap().is_none());
        assert!(cursor.prev().unwrap().is_none());
        assert!(cursor.entry().unwrap().is_none(), "off an end it stands nowhere");
    }
}

/// Each thread that waits for one flush gets the error, and can downcast it to the sink's own type.
#[test]
fn errors_are_shared_among_threads() {
    #[derive(Debug)]
    struct ShelfFull(u32);
    impl std::fmt::Display for ShelfFull {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "shelf {} is full", self.0)
        }
    }
    impl std::error::Error for ShelfFull {}
    struct Full;
    impl FlushSink for Full {
        fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
            Err(ShelfFull(7).into())
        }
        fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
            Ok(())
        }
    }
    let table = MemTable::default();
    table.put(1, b"k", b"v").unwrap();
    let error = table.freeze().unwrap().flush(&[], &mut Full).unwrap_err();
    let told: Vec<Error> = (0..3).map(|_| error.clone()).collect();
    std::thread::scope(|threads| {
        for error in told {
            threads.spawn(move || {
                assert!(
                    std::error::Error::source(&error).is_some_and(|source| source.to_string().contains('7'))
                );
                let Error::Sink(cause) = &error else { panic!("{error:?}") };
                assert!(matches!(cause.downcast_ref::<ShelfFull>(), Some(ShelfFull(7))));
            });
        }
    });
    let cause = Box::new(Error::DuplicateEntry { sequence: 4 });
    let interrupted = Error::BatchInterrupted { applied: 3, cause };
    assert_eq!(interrupted.clone().to_string(), interrupted.to_string());
}

/// Two tables of one seed have the same secret: only the place in memory tells their entries apart.
#[test]
fn an_entry_is_pinned_in_its_own_table_only() {
    let table = || {
        let table = MemTable::new(MemTableOptions::builder().seed(4).build().unwrap()).unwrap();
        table.put(1, b"k", b"v").unwrap();
        table
    };
    let (table, twin) = (table(), table());
    let entry = table.get_exact(b"k", 1).unwrap().unwrap();
    assert!(text_of(twin.pin(&entry).unwrap_err()).contains("another table"));
    let (pinned, copy) = (table.pin(&entry).unwrap(), entry.to_bytes().unwrap());
    drop(table);
    for (key, value) in [(pinned.user_key(), pinned.value()), (copy.user_key(), copy.value())] {
        assert_eq!((key, value), (b"k".as_slice(), b"v".as_slice()));
    }
}

/// An entry written in slices equals one written whole: its digest and its limits are those of the whole value.
#[test]
fn a_value_in_slices_is_held_to_what_the_whole_is() {
    let options = MemTableOptions::builder().value_len_max(8).key_len_max(4).build().unwrap();
    let table = MemTable::new(options).unwrap();
    let eight: [&[u8]; 3] = [b"abc", b"", b"defgh"];
    let digest = Protected::of(b"k", b"abcdefgh", Kind::PUT);
    table.insert_parts(1, Kind::PUT, b"k", &eight, Some(digest)).unwrap();
    let swapped: [&[u8]; 3] = [b"defgh", b"", b"abc"];
    let error = table.insert_parts(2, Kind::PUT, b"k", &swapped, Some(digest)).unwrap_err();
    assert!(error.corruption().is_some(), "{error}");
    let nine: [&[u8]; 2] = [b"abcdefgh", b"i"];
    let refused = table.insert_parts(3, Kind::PUT, b"k", &nine, None);
    assert!(matches!(refused, Err(Error::ValueTooLarge { len: 9, max: 8 })), "{refused:?}");
    let refused = table.insert_parts(3, Kind::DELETE, b"k", &[b"", b"x"], None);
    assert!(text_of(refused.unwrap_err()).contains("no value"));
    let refused = table.insert_parts(3, Kind::RANGE_DELETE, b"b", &[b"", b"b"], None);
    assert!(text_of(refused.unwrap_err()).contains("range"));
    table.insert_parts(4, Kind::RANGE_DELETE, b"a", &[b"b", b"c"], None).unwrap();
    assert_eq!((table.len(), table.num_range_deletes(), table.data_bytes()), (2, 1, 12));
}

#[test]
fn flush_marks_tags_and_forks() {
    let table = MemTable::new(MemTableOptions::builder().seed(4).build().unwrap()).unwrap();
    assert!(!table.should_flush());
    table.delete_range(1, b"a", b"b").unwrap();
    assert!(!table.should_flush());
    table.set_tag(77);
    let next = table.fork().unwrap();
    assert_eq!((table.tag(), next.tag(), next.len()), (77, 0, 0));
    assert!(!next.should_flush());
    next.mark_for_flush();
    assert!(next.should_flush());
    assert!(next.is_empty() && next.smallest_sequence().is_none() && next.largest_sequence().is_none());
}
