//! The public face: what is `Send` and `Sync`, how large things are, what errors say.

use paranoid_memtable::{
    AtSnapshot, Base, Borrowed, Bytewise, Corruption, Cursor, DeletedBy, Descending, Displaced,
    DuplicatePolicy, Entry, Error, Found, ImmutableMemTable, Inserted, KeyEquality, Kind, Kvo, Kvos, Lookup,
    MemTable, MemTableOptions, MemTableOptionsBuilder, Operand, Operands, Owned, OwnedCursor,
    ParanoidOptions, ParanoidOptionsBuilder, PinnedValue, Place, Protected, Range, RangeStats, Raw,
    Representation, TableCursor, TableReader, ValueRef, Writer,
};

use crate::support::orders::{CaseBlind, Reverse};

const fn sync<T: Send + Sync>() {}
const fn send<T: Send>() {}
const fn stays<T: 'static>() {}

const _: () = {
    sync::<MemTable>();
    sync::<MemTable<Reverse>>();
    sync::<MemTable<CaseBlind>>();
    sync::<ImmutableMemTable>();
    sync::<TableReader>();
    send::<Writer>();
    sync::<TableCursor<'static>>();
    sync::<TableCursor<'static, Bytewise, AtSnapshot>>();
    sync::<Cursor<Borrowed<'static, Bytewise>, Raw>>();
    sync::<Cursor<Owned<Bytewise>, Raw>>();
    sync::<OwnedCursor>();
    sync::<OwnedCursor<Bytewise, AtSnapshot>>();
    stays::<OwnedCursor>();
    stays::<PinnedValue>();
    stays::<Writer>();
    sync::<Range<'static>>();
    sync::<Descending<'static>>();
    sync::<Lookup<'static>>();
    sync::<ValueRef<'static>>();
    sync::<PinnedValue>();
    sync::<Operands<'static>>();
    sync::<Operand<'static>>();
    sync::<Base<'static>>();
    sync::<Entry<'static>>();
    sync::<(Found, DeletedBy, Inserted, Displaced, RangeStats)>();
    sync::<(Kind, KeyEquality, DuplicatePolicy, Representation, Place, Corruption)>();
    sync::<(Protected<Kvo>, Protected<Kvos>)>();
    sync::<(MemTableOptions, MemTableOptionsBuilder, ParanoidOptions, ParanoidOptionsBuilder)>();
    sync::<Error>();
    stays::<Error>();
};

/// Handles are a pointer; what comes out of a read fits a few registers or a line.
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
        ("vector", build(|b| b.representation(Representation::Vector).duplicates(DuplicatePolicy::Replace))),
        (
            "vector",
            build(|b| b.representation(Representation::Vector).duplicates(DuplicatePolicy::KeepFirst)),
        ),
    ] {
        assert!(text.contains(name), "{name} is not in: {text}");
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
        table.insert_protected(2, Kind::PUT, secret, secret, caller_digest).unwrap_err(),
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

#[test]
fn flush_marks_tags_and_forks() {
    let options = MemTableOptions::builder().max_range_deletions(2).seed(4).build().unwrap();
    let table = MemTable::new(options).unwrap();
    assert!(!table.should_flush());
    table.delete_range(1, b"a", b"b").unwrap();
    assert!(!table.should_flush());
    table.delete_range(2, b"a", b"b").unwrap();
    assert!(table.should_flush(), "two range deletions");
    table.set_tag(77);
    let next = table.fork().unwrap();
    assert_eq!((table.tag(), next.tag(), next.len()), (77, 0, 0));
    assert!(!next.should_flush());
    next.mark_for_flush();
    assert!(next.should_flush());
    assert!(next.is_empty() && next.smallest_sequence().is_none() && next.largest_sequence().is_none());
}
