//! The crate as a caller sees it: its types and their sizes, the memory that it reports, its texts.

/// The public API: types that are `Send` and `Sync`, sizes, texts of errors.
mod api {
    use std::ops::Bound;

    use paranoid_memtable::KeyEquality;
    use paranoid_memtable::flush::{
        FlushEntry, FlushItem, FlushIter, FlushSink, SinkError, Versions,
    };
    use paranoid_memtable::integrity::{Kvo, Kvos, Place, Protected, Repair};
    use paranoid_memtable::read::{Base, DeletedBy, EntryBytes, Operand, Operands, PinnedValue};
    use paranoid_memtable::scan::{AtSnapshot, Borrowed, Owned, RangeStats, Raw};
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{
        Bytewise, Corruption, Cursor, Directory, Displaced, DuplicatePolicy, Entry, Error,
        ImmutableMemTable, Inserted, Kind, Lookup, MemTable, MemTableOptions,
        MemTableOptionsBuilder, OwnedCursor, OwnedRange, ParanoidOptions, ParanoidOptionsBuilder,
        Range, TableReader, ValueRef, WriteBatch, Writer,
    };
    use paranoid_set::{MemTableSet, SetOptions};

    use crate::support::orders::Reverse;
    use crate::support::under;

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
        sync::<Cursor<Borrowed<'static>>>();
        sync::<Cursor<Borrowed<'static>, AtSnapshot>>();
        sync::<Cursor<Borrowed<'static>, Raw>>();
        sync::<Cursor<Owned, Raw>>();
        sync::<OwnedCursor>();
        sync::<OwnedCursor<AtSnapshot>>();
        stays::<OwnedCursor>();
        stays::<PinnedValue>();
        sync::<EntryBytes>();
        stays::<EntryBytes>();
        stays::<Writer>();
        sync::<Range<Borrowed<'static>>>();
        sync::<(OwnedRange, OwnedRange<AtSnapshot>)>();
        stays::<(OwnedRange, OwnedRange<AtSnapshot>)>();
        sync::<Lookup<ValueRef<'static>, Operands<'static>>>();
        sync::<ValueRef<'static>>();
        sync::<PinnedValue>();
        sync::<Operands<'static>>();
        sync::<Operand<'static>>();
        sync::<(FlushIter<'static>, FlushItem<'static>)>();
        sync::<Base<&'static [u8]>>();
        sync::<Entry<'static>>();
        sync::<(DeletedBy, Inserted, Displaced, RangeStats)>();
        sync::<(Kind, KeyEquality, DuplicatePolicy, Place, Corruption)>();
        sync::<(Protected<Kvo>, Protected<Kvos>)>();
        sync::<(
            MemTableOptions,
            MemTableOptionsBuilder,
            ParanoidOptions,
            ParanoidOptionsBuilder,
        )>();
        sync::<Error>();
        stays::<Error>();
    };

    /// Table handles have the size of a pointer, results of reads that of a few registers or of a
    /// cache line.
    const _: () = {
        assert!(size_of::<MemTable>() == size_of::<usize>());
        assert!(size_of::<ImmutableMemTable>() == size_of::<usize>());
        assert!(size_of::<PinnedValue>() == size_of::<usize>());
        assert!(size_of::<Writer>() <= 2 * size_of::<usize>());
        assert!(size_of::<Kind>() == 1);
        assert!(size_of::<Lookup<(u64, Kind), ()>>() <= 24);
        assert!(size_of::<Error>() <= 72);
        assert!(size_of::<Corruption>() <= 64);
    };

    /// Every form of a range of keys, for every call that takes one.
    #[test]
    fn every_form_of_a_key_range() {
        let table = MemTable::default();
        for (sequence, key) in (1..).zip(["a", "b", "c"]) {
            table.put(sequence, key.as_bytes(), b"").unwrap();
        }
        let set = MemTableSet::open(SetOptions::default(), ()).unwrap();
        let batch = table
            .range(..)
            .map(|entry| entry.unwrap().user_key().to_vec());
        let mut writes = WriteBatch::new();
        batch.for_each(|key| writes.put(&key, b"").unwrap());
        set.write(&writes).unwrap();
        let (low, high) = (b"a".to_vec(), b"b".to_vec());
        let pair: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Excluded(b"a"), Bound::Unbounded);
        assert_eq!(table.range(..).count(), 3);
        assert_eq!(table.range_at("b".., 9).count(), 2);
        assert_eq!(table.range("a".."b").owned().count(), 1);
        assert_eq!(table.range_at(..=b"b", 9).owned().count(), 2);
        assert_eq!(
            table.approximate_range_stats(&low..&high).unwrap().entries,
            1
        );
        assert_eq!(
            table
                .approximate_range_stats(low.as_slice()..=high.as_slice())
                .unwrap()
                .entries,
            2
        );
        assert!(
            table
                .cursor()
                .with_bounds(.."a".to_string())
                .first()
                .unwrap()
                .is_none()
        );
        assert!(
            table
                .cursor()
                .owned()
                .with_bounds(pair)
                .first()
                .unwrap()
                .is_some()
        );
        let owned = (Bound::Included(low.clone()), Bound::Excluded(high.clone()));
        assert_eq!(
            set.view()
                .cursor()
                .unwrap()
                .with_bounds(owned)
                .ascending()
                .count(),
            1
        );
        assert_eq!(
            set.view()
                .cursor()
                .unwrap()
                .with_bounds(&low..=&high)
                .descending()
                .count(),
            2
        );
        let mut cursor = set.view().cursor().unwrap().with_bounds(pair);
        assert_eq!(
            cursor.first().unwrap().map(|entry| entry.user_key()),
            Some(b"b".as_slice())
        );
    }

    /// Keys and values of every type with bytes, in every call that takes some, and a table that is
    /// iterated by reference.
    #[test]
    fn keys_are_all_types_with_bytes() {
        let table = MemTable::default();
        table.put(1, "a", String::from("text")).unwrap();
        table.put(2, vec![b'b'], [1, 2]).unwrap();
        table.merge(3, String::from("c"), b"").unwrap();
        table
            .writer()
            .delete_range(4, Box::<[u8]>::from(*b"d"), String::from("e"))
            .unwrap();
        assert!(table.get("b", 9).unwrap().value() == Some(&[1, 2]));
        assert!(matches!(
            table.get([b'd'], 9).unwrap(),
            Lookup::Deleted { sequence: 4, .. }
        ));
        assert!(matches!(
            table.multi_get(&["a", "x"], 9)[..],
            [Ok(Lookup::Value(_)), Ok(Lookup::NotFound)]
        ));
        assert!(
            table
                .cursor()
                .seek("b")
                .unwrap()
                .is_some_and(|entry| entry.sequence() == 2)
        );
        assert_eq!(table.versions(("a", 1)..("b", 2)).count(), 1);
        let keys = |entries: Range<Borrowed<'_>>| {
            entries
                .map(|entry| entry.unwrap().user_key().to_vec())
                .collect::<Vec<_>>()
        };
        let reader: &TableReader = &table;
        let frozen = table.freeze().unwrap();
        for all in [
            (&table).into_iter(),
            reader.into_iter(),
            (&frozen).into_iter(),
        ] {
            assert_eq!(keys(all), [b"a", b"b", b"c"]);
        }
        for entry in &frozen {
            assert!(entry.is_ok());
        }
    }

    fn text_of(error: Error) -> String {
        match error {
            Error::InvalidArgument(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refused_options_name_the_thing() {
        for bytes in [3, 5, 6, 7, 9, 16, 255] {
            let text = text_of(
                ParanoidOptions::builder()
                    .protection_bytes(bytes)
                    .build()
                    .unwrap_err(),
            );
            assert!(
                text.contains("protection_bytes") && text.contains(&bytes.to_string()),
                "{text}"
            );
        }
        let nothing_to_check = ParanoidOptions::builder()
            .protection_bytes(0)
            .checksum_on_seek(true)
            .build();
        assert!(text_of(nothing_to_check.unwrap_err()).contains("checksum_on_seek"));
        let build = |change: fn(MemTableOptionsBuilder) -> MemTableOptionsBuilder| {
            text_of(change(MemTableOptions::builder()).build().unwrap_err())
        };
        for (name, text) in [
            ("write_buffer_size", build(|b| b.write_buffer_size(0))),
            (
                "write_buffer_size",
                build(|b| b.write_buffer_size((32 << 30) + 1)),
            ),
            (
                "hard_limit",
                build(|b| b.hard_limit(4095).write_buffer_size(1)),
            ),
            ("hard_limit", build(|b| b.hard_limit((32 << 30) + 1))),
            (
                "hard_limit",
                build(|b| b.hard_limit(4096).write_buffer_size(4097)),
            ),
            ("key_len_max", build(|b| b.key_len_max(0))),
            ("key_len_max", build(|b| b.key_len_max(1 << 24))),
            ("value_len_max", build(|b| b.value_len_max(1 << 32))),
            ("protection_bytes", build(|b| b.protection_bytes(3))),
            (
                "checksum_on_seek",
                build(|b| b.checksum_on_seek(true).protection_bytes(0)),
            ),
            ("repair", build(|b| b.repair(Repair::On { places_max: 0 }))),
        ] {
            assert!(text.contains(name), "{name} is not in: {text}");
        }
    }

    /// What the methods of an answer return, for every answer.
    #[test]
    fn an_answer_has_a_value_or_says_why_not() {
        let table = MemTable::default();
        table.put(1, "put", "red").unwrap();
        table.put(2, "empty", "").unwrap();
        table.put(3, "gone", "red").unwrap();
        table.delete(4, "gone").unwrap();
        table.delete_range(5, "ranged", "ranges").unwrap();
        table.merge(6, "merged", "+1").unwrap();
        for (key, value, is_deleted, is_found) in [
            ("put", Some(&b"red"[..]), false, true),
            ("empty", Some(b""), false, true),
            ("gone", None, true, true),
            ("ranged", None, true, true),
            ("merged", None, false, true),
            ("absent", None, false, false),
        ] {
            let get = || table.get(key, 9).unwrap();
            assert_eq!(get().value(), value, "{key}");
            assert_eq!(get().into_value().as_deref(), value, "{key}");
            assert_eq!(get().is_deleted(), is_deleted, "{key}");
            let found = get().found();
            assert_eq!(found.is_some(), is_found, "{key}");
            if let Some(found) = found {
                assert_eq!(format!("{found:?}"), format!("{:?}", get()), "{key}");
            }
        }
        let value = table.get("put", 9).unwrap().into_value().unwrap();
        let pinned = value.to_pinned();
        assert!(value == "red" && value == b"red" && value == *b"red" && value == b"red"[..]);
        assert!(value == b"red".to_vec() && value == pinned);
        assert!(pinned == value);
        assert!(value != "re" && value != "rea" && value != "redd" && pinned != "reb");
    }

    /// With an order without images, `Auto` makes no directory, and `On` is refused.
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
        for (directory, taken) in [
            (Directory::Off, true),
            (Directory::Auto, true),
            (Directory::On, false),
        ] {
            let options = || MemTableOptions::builder().directory(directory);
            let text = options()
                .comparator(std::sync::Arc::new(FromBehind))
                .build()
                .map(drop)
                .map_err(text_of);
            assert_eq!(text.is_ok(), taken, "{directory:?}: {text:?}");
            assert!(MemTable::new(under(options(), Bytewise)).is_ok());
            assert!(MemTable::new(under(options(), Reverse)).is_ok());
        }
    }

    #[test]
    fn options_at_their_limits_are_taken() {
        for bytes in [0, 1, 2, 4, 8] {
            let options = ParanoidOptions::builder()
                .protection_bytes(bytes)
                .build()
                .unwrap();
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
            assert!(table.get(b"k", 1).unwrap().value() == Some(b""));
        }
    }

    #[test]
    fn errors_and_debug_output_hold_no_user_bytes() {
        let secret = b"swordfish";
        let options = MemTableOptions::builder()
            .key_len_max(20)
            .value_len_max(20)
            .hard_limit(4096);
        let table = MemTable::new(options.write_buffer_size(4096).build().unwrap()).unwrap();
        table.put(1, secret, secret).unwrap();
        let long = secret.repeat(3);
        let caller_digest = Protected::of(b"other", secret, Kind::PUT).with_sequence(2);
        let mut errors = vec![
            table.put(1, secret, secret).unwrap_err(),
            table.put(2, &long, secret).unwrap_err(),
            table.put(2, secret, &long).unwrap_err(),
            table.delete_range(2, secret, secret).unwrap_err(),
            table
                .insert(2, Kind::from_u8(9), secret, secret)
                .unwrap_err(),
            table
                .insert_parts(2, Kind::PUT, secret, &[secret], Some(caller_digest))
                .unwrap_err(),
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
            assert!(
                !text.contains("swordfish") && !text.contains(inner),
                "{text}"
            );
        }
    }

    #[test]
    fn a_cursor_without_a_position_has_no_entry() {
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
            assert!(
                cursor.entry().unwrap().is_none(),
                "off an end it stands nowhere"
            );
        }
    }

    /// Each thread that waits for one flush gets the error, and can downcast it to the sink's own
    /// type.
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
        let error = table
            .freeze()
            .unwrap()
            .flush(Versions::SeenBy(&[]), &mut Full)
            .unwrap_err();
        let reported: Vec<Error> = (0..3).map(|_| error.clone()).collect();
        std::thread::scope(|threads| {
            for error in reported {
                threads.spawn(move || {
                    assert!(
                        std::error::Error::source(&error)
                            .is_some_and(|source| source.to_string().contains('7'))
                    );
                    let Error::Sink(cause) = &error else {
                        panic!("{error:?}")
                    };
                    assert!(matches!(
                        cause.downcast_ref::<ShelfFull>(),
                        Some(ShelfFull(7))
                    ));
                });
            }
        });
        let cause = Box::new(Error::DuplicateEntry { sequence: 4 });
        let interrupted = Error::BatchInterrupted { applied: 3, cause };
        assert_eq!(interrupted.clone().to_string(), interrupted.to_string());
    }

    /// An entry written in slices equals one written whole: its digest and its limits are those of
    /// the whole value.
    #[test]
    fn a_value_in_slices_is_held_to_what_the_whole_is() {
        let options = MemTableOptions::builder()
            .value_len_max(8)
            .key_len_max(4)
            .build()
            .unwrap();
        let table = MemTable::new(options).unwrap();
        let eight: [&[u8]; 3] = [b"abc", b"", b"defgh"];
        let digest =
            |sequence| Some(Protected::of(b"k", b"abcdefgh", Kind::PUT).with_sequence(sequence));
        table
            .insert_parts(1, Kind::PUT, b"k", &eight, digest(1))
            .unwrap();
        let swapped: [&[u8]; 3] = [b"defgh", b"", b"abc"];
        let error = table
            .insert_parts(2, Kind::PUT, b"k", &swapped, digest(2))
            .unwrap_err();
        assert!(error.corruption().is_some(), "{error}");
        let error = table
            .insert_parts(2, Kind::PUT, b"k", &eight, digest(3))
            .unwrap_err();
        assert!(error.corruption().is_some(), "{error}");
        let nine: [&[u8]; 2] = [b"abcdefgh", b"i"];
        let refused = table.insert_parts(3, Kind::PUT, b"k", &nine, None);
        assert!(
            matches!(refused, Err(Error::ValueTooLarge { len: 9, max: 8 })),
            "{refused:?}"
        );
        let refused = table.insert_parts(3, Kind::DELETE, b"k", &[b"", b"x"], None);
        assert!(text_of(refused.unwrap_err()).contains("no value"));
        let refused = table.insert_parts(3, Kind::RANGE_DELETE, b"b", &[b"", b"b"], None);
        assert!(text_of(refused.unwrap_err()).contains("range"));
        table
            .insert_parts(4, Kind::RANGE_DELETE, b"a", &[b"b", b"c"], None)
            .unwrap();
        assert_eq!(
            (
                table.len(),
                table.stats().range_deletes,
                table.stats().data_bytes
            ),
            (2, 1, 12)
        );
    }

    #[test]
    fn flush_marks_and_forks() {
        let table = MemTable::new(MemTableOptions::builder().seed(4).build().unwrap()).unwrap();
        assert!(!table.should_flush());
        table.delete_range(1, b"a", b"b").unwrap();
        assert!(!table.should_flush());
        let next = table.fork().unwrap();
        assert!(!next.should_flush());
        next.mark_for_flush();
        assert!(next.should_flush());
        assert!(
            next.is_empty()
                && next.stats().smallest_sequence.is_none()
                && next.stats().largest_sequence.is_none()
        );
    }
}

/// Room: the memory that tables and batches report, and the objects that are dropped with it.
mod room {
    use std::sync::Arc;

    use paranoid_memtable::{
        ArenaRecycler, Directory, Error, Kind, MemTable, MemTableOptions, MemTableOptionsBuilder,
        WriteBatch,
    };
    use paranoid_set::SetOptions;

    use crate::limits::counters;
    use crate::support::rng::{Rng, Watchdog, seed_or};

    const HARD_LIMIT: u64 = 256 << 10;

    /// Memory of a dropped table is given to one of its size, zeroed, after its last reader: young,
    /// full and frozen tables of three sizes. A set, which has a recycler of its own, refuses
    /// options with another one.
    #[test]
    fn a_recycler_gives_memory_to_tables_of_its_size() {
        let _watchdog = Watchdog::new(
            "surface::room::a_recycler_gives_memory_to_tables_of_its_size",
            0,
        );
        assert!(matches!(
            ArenaRecycler::new(128 << 10, 1),
            Err(Error::InvalidArgument(_))
        ));
        for (size, len, is_frozen) in [256 << 10, 1 << 20, 4 << 20]
            .into_iter()
            .flat_map(|size| [1, size / 400].map(|len| (size, len)))
            .flat_map(|(size, len)| [(size, len, false), (size, len, true)])
        {
            let recycler = ArenaRecycler::new(size, 1).unwrap();
            let of = |size| {
                builder()
                    .write_buffer_size(size)
                    .build()
                    .unwrap()
                    .with_recycler(&recycler)
            };
            let filled = |size, value: u8| {
                let table = MemTable::new(of(size)).unwrap();
                // More than the first chunk holds, so that there is one to keep.
                for sequence in 1..=len + 120 {
                    table
                        .put(sequence, sequence.to_be_bytes(), [value; 300])
                        .unwrap();
                }
                table
            };
            let reads = |table: &MemTable, value: u8| {
                table
                    .range(..)
                    .all(|entry| entry.unwrap().value().unwrap() == [value; 300])
            };
            let (first, extra) = (filled(size, 7), filled(size, 9));
            if is_frozen {
                first.freeze().unwrap();
            }
            let reader = first.range(..).owned();
            drop(first);
            assert_eq!(recycler.backed_bytes(), 0, "a reader has it");
            drop(reader);
            let kept = recycler.backed_bytes();
            assert!(kept > 0, "{size} {len}");
            drop(extra);
            assert_eq!(recycler.backed_bytes(), kept, "one table is kept");
            let early = filled(size, 1);
            assert!(
                recycler.backed_bytes() == kept && reads(&early, 1),
                "what is not zeroed is not handed out"
            );
            recycler.zero();
            let other = filled(2 * size, 2);
            assert!(
                recycler.backed_bytes() == kept && reads(&other, 2),
                "for another size"
            );
            let next = filled(size, 3);
            assert!(
                recycler.backed_bytes() == 0 && reads(&next, 3),
                "{size} {len}"
            );
            assert_eq!(next.len() as u64, len + 120);
            let set = SetOptions::builder().table(of(size)).build();
            assert!(matches!(set, Err(Error::InvalidArgument(_))));
        }
    }

    fn builder() -> MemTableOptionsBuilder {
        MemTableOptions::builder().seed(7)
    }

    /// Without a directory, whose pages would use a part of the hard limit.
    fn bare() -> MemTableOptionsBuilder {
        builder().directory(Directory::Off)
    }

    fn table(options: MemTableOptionsBuilder) -> MemTable {
        MemTable::new(options.build().unwrap()).unwrap()
    }

    /// If `can_fit` returns `true`, the next insert succeeds, up to the hard limit. The error of a
    /// full table has the number of `remaining`.
    #[test]
    fn room_that_is_promised_is_there() {
        let table = table(
            builder()
                .write_buffer_size(64 << 10)
                .hard_limit(HARD_LIMIT)
                .value_len_max(3000),
        );
        assert!(
            !table.can_fit(Kind::PUT, 1 << 24, 0) && !table.can_fit(Kind::PUT, 0, 3001),
            "beyond the limits of lengths"
        );
        let (mut rng, mut sequence, mut full) = (Rng::new(seed_or(11)), 0, 0);
        while full < 50 {
            let value = vec![b'v'; rng.index(3000)];
            let (promised, remaining) = (
                table.can_fit(Kind::PUT, 8, value.len() as u64),
                table.remaining(),
            );
            sequence += 1;
            match table.put(sequence, sequence.to_be_bytes(), &value) {
                Ok(_) => {}
                Err(Error::MemTableFull {
                    remaining: reported,
                    ..
                }) => {
                    assert!(!promised, "{} bytes, {remaining} remain", value.len());
                    assert_eq!(reported, remaining);
                    full += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(table.remaining() < MemTable::max_entry_bytes(8, 3000));
        table.freeze().unwrap();
        assert!(!table.can_fit(Kind::PUT, 1, 1), "frozen");
    }

    /// `can_fit` is also right beside range tombstones, for entries of both sorts.
    #[test]
    fn room_that_is_promised_beside_range_tombstones() {
        for seed in 0..8 {
            let table = table(
                builder()
                    .seed(seed)
                    .write_buffer_size(64 << 10)
                    .hard_limit(HARD_LIMIT),
            );
            let (mut rng, mut sequence, mut full) = (Rng::new(seed_or(13) + seed), 0_u64, 0);
            while full < 40 {
                sequence += 1;
                let (is_range, len) = (rng.one_in(3), rng.below(2000));
                let (key, remaining) = (sequence.to_be_bytes(), table.remaining());
                let (promised, written) = if is_range {
                    let end = [&key[..], &vec![7; 1 + len as usize]].concat();
                    let promised = table.can_fit(Kind::RANGE_DELETE, 8, end.len() as u64);
                    (promised, table.delete_range(sequence, key, &end))
                } else {
                    (
                        table.can_fit(Kind::PUT, 8, len),
                        table.put(sequence, key, vec![7; len as usize]),
                    )
                };
                match written {
                    Ok(_) => {}
                    Err(Error::MemTableFull {
                        remaining: reported,
                        ..
                    }) => {
                        assert!(!promised, "{len} bytes, {remaining} remain");
                        assert_eq!((reported, table.remaining()), (remaining, remaining));
                        full += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            table.freeze().unwrap();
            assert!(
                table.allocated_bytes() < HARD_LIMIT + (16 << 10),
                "{}",
                table.allocated_bytes()
            );
        }
    }

    /// The bounds of range delete number `number`, in several shapes.
    fn range_of(shape: &str, number: u64) -> (Vec<u8>, Vec<u8>) {
        let far = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let (start, end) = match shape {
            "in order" | "long keys" => (2 * number, 2 * number + 1),
            "nested" => ((1 << 40) - number, (1 << 40) + number + 1),
            _ => (far(number), far(number) + (1 << (number % 40))),
        };
        let tail = vec![
            b'k';
            if shape == "long keys" {
                (far(number) % 300) as usize
            } else {
                0
            }
        ];
        [start, end]
            .map(|key| [&key.to_be_bytes()[..], &tail].concat())
            .into()
    }

    /// Range deletes up to the hard limit: their memory outside of the arena, and the additions of
    /// a freeze, are counted in advance, and a refused one changes nothing.
    #[test]
    fn the_hard_limit_counts_range_deletes() {
        let test = "surface::room::the_hard_limit_counts_range_deletes";
        let _watchdog = Watchdog::new(test, 0);
        for shape in ["in order", "nested", "long keys", "anywhere"] {
            for limit in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
                let what = format!("{shape} under {limit}");
                let table = table(bare().write_buffer_size(64 << 10).hard_limit(limit));
                let (start, end) = range_of(shape, 1);
                table.delete_range(1, &start, &end).unwrap();
                // The table itself is not counted, nor the rest of its small chunks.
                let own = 36 << 10;
                let mut number = 1;
                let refused = loop {
                    number += 1;
                    let (start, end) = range_of(shape, number);
                    let fits =
                        table.can_fit(Kind::RANGE_DELETE, start.len() as u64, end.len() as u64);
                    let (before, remaining) = (table.allocated_bytes(), table.remaining());
                    match table.delete_range(number, &start, &end) {
                        Ok(_) => {
                            assert!(table.allocated_bytes() <= limit + own, "{what}: {number}");
                            assert!(table.allocated_bytes() + table.remaining() <= limit + own);
                        }
                        Err(Error::MemTableFull {
                            needed,
                            remaining: reported,
                        }) => {
                            assert!(!fits && needed > reported, "{needed} of {reported}");
                            assert_eq!(
                                (table.allocated_bytes(), table.remaining()),
                                (before, remaining)
                            );
                            break (start, end);
                        }
                        Err(other) => panic!("{other}"),
                    }
                };
                let before = counters(&table);
                assert_eq!(before.numbers[2], number - 1);
                let mut batch = WriteBatch::new();
                batch.put(b"first", b"1").unwrap();
                batch.delete_range(&refused.0, &refused.1).unwrap();
                for again in [
                    table.write_batch(number, &batch),
                    table.writer().write_batch(number, &batch),
                ] {
                    assert!(
                        matches!(again, Err(Error::MemTableFull { .. })),
                        "{again:?}"
                    );
                }
                let mut after = counters(&table);
                // The writer that was made for the batch is counted.
                after.numbers[5] = before.numbers[5];
                assert_eq!(after, before);
                if table.can_fit(Kind::PUT, 8, 8) {
                    table.put(number, number.to_be_bytes(), [7; 8]).unwrap();
                }
                let most = limit + own + 4096;
                assert!(table.allocated_bytes() <= most, "{what}");
                table.freeze().unwrap();
                let frozen = table.allocated_bytes();
                assert!(frozen <= most, "{what}: {frozen} once frozen");
                assert!(
                    frozen > most / 4,
                    "{what}: {frozen}, too much is never used"
                );
            }
        }
    }

    /// The hard limit at minus one unit, exact and plus one, for the last of some range deletes:
    /// alone, by a writer, in a batch.
    #[test]
    fn the_last_range_delete_below_the_hard_limit() {
        const LIMIT: u64 = 1 << 20;
        let write = |table: &MemTable, path: u64, number: u64| {
            let (start, end) = range_of("in order", number);
            let mut batch = WriteBatch::new();
            batch.delete_range(&start, &end).unwrap();
            match path {
                0 => table.delete_range(number, &start, &end).map(drop),
                1 => table.write_batch(number, &batch).map(drop),
                _ => table
                    .insert_parts(
                        number,
                        Kind::RANGE_DELETE,
                        &start,
                        &[&end[..3], &end[3..]],
                        None,
                    )
                    .map(drop),
            }
        };
        let mut earlier_ones = 0;
        for (path, count) in (0..3).flat_map(|path| [1, 2, 7, 8, 9, 16].map(|count| (path, count)))
        {
            let made = |limit: u64| {
                let table = table(bare().write_buffer_size(4 << 10).hard_limit(limit));
                let earlier = (1..count).all(|number| write(&table, path, number).is_ok());
                earlier.then_some(table)
            };
            let probe = made(LIMIT).unwrap();
            write(&probe, path, count).unwrap();
            // A writer takes nothing in advance if the limit does not allow it.
            let below = (1..=(LIMIT - probe.remaining()) / 8)
                .rev()
                .map(|units| 8 * units);
            let fits =
                |limit: &u64| made(*limit).is_some_and(|table| write(&table, path, count).is_ok());
            let exact = below.take_while(fits).last().unwrap();
            for (limit, fits) in [(exact - 8, false), (exact, true), (exact + 8, true)] {
                let Some(table) = made(limit) else {
                    // An earlier range delete takes more: it is judged with its own count.
                    assert!(!fits && count > 1);
                    earlier_ones += 1;
                    continue;
                };
                let before = (counters(&table), table.remaining());
                let written = write(&table, path, count);
                assert_eq!(written.is_ok(), fits, "{path} {count}: {written:?}");
                if !fits {
                    assert!(matches!(written, Err(Error::MemTableFull { .. })));
                    let mut after = (counters(&table), table.remaining());
                    if count == 1 {
                        // The first write makes shards and a chunk, even if it is refused.
                        after.0.numbers[5] = before.0.numbers[5];
                    }
                    assert_eq!(after, before);
                }
                table.freeze().unwrap();
                assert!(
                    table.delete_range(99, b"a", b"b").is_err()
                        && !table.can_fit(Kind::RANGE_DELETE, 1, 1)
                );
            }
        }
        assert!(earlier_ones <= 9, "{earlier_ones} of 18 judge nothing");
    }

    /// An error names the missing part of memory. The test runs again as a process that may have 4
    /// GiB of addresses.
    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_the_system_refuses() {
        const CHILD: &str = "PARANOID_TEST_FEW_ADDRESSES";
        let test = "surface::room::memory_that_the_system_refuses";
        let _watchdog = Watchdog::new(test, 0);
        if std::env::var_os(CHILD).is_none() {
            let mut shell = std::process::Command::new("sh");
            shell.args([
                "-c",
                "ulimit -v 4194304 && exec \"$0\" --exact \"$1\" --test-threads 1",
            ]);
            let output = shell
                .arg(std::env::current_exe().unwrap())
                .arg(test)
                .env(CHILD, "1")
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stdout)
            );
            return;
        }
        let table = MemTable::default();
        table.put(1, b"before", b"1").unwrap();
        let (remaining, before) = (table.remaining(), counters(&table));
        assert!(remaining > 8 << 30, "the table is not full");
        let refused = table.try_reserve(8 << 30).unwrap_err();
        assert!(
            matches!(refused, Error::MemoryRefused { needed } if needed >= 8 << 30),
            "{refused:?}"
        );
        assert!(
            refused.to_string().contains("system refused memory"),
            "{refused}"
        );
        assert_eq!(
            (counters(&table).raw, table.remaining()),
            (before.raw, remaining)
        );
        table.put(2, b"after", b"2").unwrap();
        assert!(table.get(b"after", 2).unwrap().value() == Some(b"2"));
        let full = MemTable::new(bare().hard_limit(64 << 20).build().unwrap()).unwrap();
        assert!(matches!(
            full.try_reserve(8 << 30),
            Err(Error::MemTableFull { .. })
        ));
    }

    /// A batch takes no more of the arena than its estimate.
    #[test]
    fn a_batch_takes_no_more_than_it_says() {
        let mut rng = Rng::new(seed_or(12));
        for protection in [0, 1, 8] {
            let table = table(builder().protection_bytes(protection));
            let mut sequence = 1;
            for _ in 0..50 {
                let mut batch = WriteBatch::new();
                for number in 0..rng.below(20) {
                    let (key, value) = (rng.bytes(9), vec![7; rng.index(200)]);
                    match number % 4 {
                        0 => batch.delete(&key).unwrap(),
                        1 => batch.delete_range(&key, [&key[..], b"x"].concat()).unwrap(),
                        _ => batch.put(&key, &value).unwrap(),
                    }
                }
                let most = table.prepare(&batch).unwrap().bytes();
                let written = table.write_batch(sequence, &batch).unwrap();
                assert!(written.bytes <= most, "{written:?}");
                sequence += batch.len() as u64;
            }
        }
    }

    /// A batch without room for it changes nothing, also if it is the first one of its writer.
    #[test]
    fn a_batch_that_does_not_fit_changes_nothing() {
        let mut batch = WriteBatch::new();
        batch.put(b"one", b"1").unwrap();
        batch.put(b"two", b"2").unwrap();
        for fill in 0..400 {
            let table = table(
                builder()
                    .seed(fill)
                    .write_buffer_size(4 << 10)
                    .hard_limit(8 << 10),
            );
            table
                .put(1, b"fill", vec![0; usize::try_from(fill).unwrap()])
                .unwrap();
            let mut writers = Vec::new();
            for number in 1.. {
                let (before, mut writer) = (table.len(), table.writer());
                match writer.write_batch(10 * number, &batch) {
                    Ok(_) => assert_eq!(table.len(), before + 2),
                    Err(Error::MemTableFull { .. }) => {
                        assert_eq!(table.len(), before, "{fill} bytes");
                        break;
                    }
                    Err(other) => panic!("{fill} bytes: {other}"),
                }
                writers.push(writer);
            }
        }
    }

    /// An attachment is dropped with the memory, after the last handle that keeps it.
    #[test]
    fn attachments_live_as_long_as_the_memory() {
        let permit = Arc::new(());
        let table = table(builder());
        table.attach(permit.clone());
        table.attach(permit.clone());
        table.put(1, b"k", b"v").unwrap();
        let value = table.get(b"k", 1).unwrap().into_value().unwrap();
        let keepers: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(value.to_pinned()),
            Box::new(table.cursor().owned()),
            Box::new(table.writer()),
            Box::new(table.freeze().unwrap()),
            Box::new(table),
        ];
        for keeper in keepers {
            assert_eq!(Arc::strong_count(&permit), 3);
            drop(keeper);
        }
        assert_eq!(Arc::strong_count(&permit), 1);
    }
}

/// Small public items that no other module of the suite calls: texts of reports, digests under
/// another number, and calls at the wrong time.
mod reports {
    use std::error::Error as StdError;

    use paranoid_memtable::StallCause;
    use paranoid_memtable::integrity::{Place, Protected, StoredProtection};
    use paranoid_memtable::{Error, Kind, WriteBatch};
    use paranoid_set::{MemTableSet, SetOptions};

    use crate::support::rng::{Rng, seed_or};
    use crate::support::sets::History;

    /// No two reasons read alike, and none is empty.
    #[test]
    fn every_reason_has_a_text_of_its_own() {
        let causes = [StallCause::Tables, StallCause::Unflushed].map(|cause| cause.to_string());
        assert!(causes.iter().all(|text| !text.is_empty()));
        assert_ne!(causes[0], causes[1]);
        // The report of a damaged batch has its place, its offset, both checks and the bit.
        let mut batch = WriteBatch::with_protection(8).unwrap();
        batch.put(b"key", b"value").unwrap();
        let bytes = batch.as_bytes().to_vec();
        let cut = WriteBatch::from_bytes(&bytes[..bytes.len() - 1]).unwrap_err();
        let Error::Corruption(report) = &cut else {
            panic!("{cut}")
        };
        assert_eq!(report.place, Place::Encoding);
        assert!(cut.to_string().contains("encoding at offset"), "{cut}");
    }

    /// The text of an error does not repeat that of its source, and the last source is the system's
    /// error.
    #[test]
    fn the_source_of_an_error_is_printed_once() {
        let disk = || Error::io("sync", "7.journal")(std::io::Error::other("no disk"));
        let boxed = || std::sync::Arc::new(std::io::Error::other("no disk"));
        let corruption = WriteBatch::from_bytes(b"short").unwrap_err();
        for (error, last) in [
            (disk(), "no disk"),
            (Error::read_only(disk()), "no disk"),
            (Error::Sink(boxed()), "no disk"),
            (Error::Merge(boxed()), "no disk"),
            (Error::Source(boxed()), "no disk"),
            (std::io::Error::other("no disk").into(), "no disk"),
            (
                Error::BatchInterrupted {
                    applied: 1,
                    cause: Box::new(corruption.clone()),
                },
                "encoding",
            ),
            (
                Error::DamagedFile {
                    file: "7.journal".into(),
                    cause: Box::new(corruption),
                },
                "encoding",
            ),
        ] {
            let chain =
                std::iter::successors(Some(&error as &dyn StdError), |&error| error.source());
            let texts: Vec<String> = chain.map(ToString::to_string).collect();
            let repeats = texts.windows(2).any(|pair| pair[0].contains(&pair[1]));
            assert!(
                texts.len() > 1 && !repeats && texts.last().unwrap().contains(last),
                "{texts:?}"
            );
            assert_eq!(texts.concat().matches(last).count(), 1, "{texts:?}");
        }
    }

    /// Digests that got another sequence number and kind are those of the new entry, and of no
    /// other one.
    #[test]
    fn digests_follow_number_and_kind() {
        let mut rng = Rng::new(seed_or(0xd19e57));
        let kinds = [
            Kind::PUT,
            Kind::DELETE,
            Kind::SINGLE_DELETE,
            Kind::MERGE,
            Kind::custom(3),
        ];
        for _ in 0..500 {
            let (len, other) = (rng.index(40), rng.index(40));
            let (key, value) = (rng.bytes(len), rng.bytes(other));
            let mut draw = || (rng.below(1 << 56), *rng.pick(&kinds));
            let (from, to) = (draw(), draw());
            let stored = StoredProtection::of(&key, &value, from.0, from.1).rewritten(from, to);
            assert_eq!(stored, StoredProtection::of(&key, &value, to.0, to.1));
            assert!(stored.check(&key, &value, to.0, to.1).is_some());
            assert!(from == to || stored.check(&key, &value, from.0, from.1).is_none());
            let digest = Protected::of(&key, &value, from.1);
            assert_eq!(digest.with_sequence(to.0).without_sequence(to.0), digest);
            let moved = digest.with_sequence(to.0).without_sequence(from.0);
            assert_eq!(moved == digest, from.0 == to.0);
        }
    }

    /// A job that has not reached its end is not installed, and a replayed batch does not go back.
    /// Neither changes anything.
    #[test]
    fn calls_at_the_wrong_time_are_refused() {
        let set = MemTableSet::open(SetOptions::default(), History::default()).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"v").unwrap();
        set.write(&batch).unwrap();
        set.switch().unwrap();
        let job = set.begin_flush().unwrap().unwrap();
        let early = job.install(|_| Ok(History::default()));
        assert!(matches!(early, Err(Error::InvalidArgument(_))), "{early:?}");
        assert_eq!(set.view().readers().count(), 2, "the table stays");
        batch.set_sequence(1);
        assert!(
            matches!(set.replay(&batch), Err(Error::InvalidArgument(_))),
            "number 1 is taken"
        );
        batch.set_sequence(5);
        assert_eq!(set.replay(&batch).unwrap(), 5);
        let mut job = set.begin_flush().unwrap().unwrap();
        let mut base = History::default();
        job.flush(&mut base).unwrap();
        job.install(|_| Ok(base)).unwrap();
        assert_eq!(set.view().readers().count(), 1);
    }
}
