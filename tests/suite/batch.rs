//! The write batch: its literal encoding, round trips, limits, and damage of every bit.

use paranoid_memtable::batch::RangeOrder;
use paranoid_memtable::integrity::{Place, Protected};
use paranoid_memtable::{Corruption, Error, Kind, WriteBatch};
use proptest::prelude::*;

/// An entry in the form of the tests.
pub(crate) type Op = (Kind, Vec<u8>, Vec<u8>);

const KINDS: [Kind; 7] = [
    Kind::DELETE,
    Kind::PUT,
    Kind::MERGE,
    Kind::SINGLE_DELETE,
    Kind::RANGE_DELETE,
    Kind::FIRST_CUSTOM,
    Kind::from_u8(0xff),
];

fn ops(batch: &WriteBatch) -> Result<Vec<Op>, Error> {
    batch
        .entries()
        .map(|entry| entry.map(|e| (e.kind(), e.key().to_vec(), e.value().to_vec())))
        .collect()
}

fn corruption(bytes: &[u8]) -> Corruption {
    match WriteBatch::from_bytes(bytes) {
        Err(Error::Corruption(report)) => report,
        other => panic!("want corruption of {bytes:?}, have {other:?}"),
    }
}

/// A second encoder, written only from the format's description.
fn oracle(sequence: u64, ops: &[Op]) -> Vec<u8> {
    fn slice(out: &mut Vec<u8>, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let septets = (1..=5)
            .find(|n| len >> (7 * n) == 0)
            .expect("a 32-bit length");
        for i in 0..septets {
            let last = i + 1 == septets;
            out.push((len >> (7 * i)) as u8 % 128 + if last { 0 } else { 128 });
        }
        out.extend(bytes);
    }
    let mut out = sequence.to_le_bytes().to_vec();
    out.extend((ops.len() as u32).to_le_bytes());
    for (kind, key, value) in ops {
        out.push(kind.as_u8());
        slice(&mut out, key);
        if *kind != Kind::DELETE && *kind != Kind::SINGLE_DELETE {
            slice(&mut out, value);
        }
    }
    out
}

fn sample() -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.set_sequence(0x0807_0605_0403_0201);
    batch.put(b"k", b"v").unwrap();
    batch.delete(b"d").unwrap();
    batch.merge(b"m", b"+1").unwrap();
    batch.single_delete(b"").unwrap();
    batch.delete_range(b"a", b"c").unwrap();
    batch.insert(Kind::FIRST_CUSTOM, b"e", b"x").unwrap();
    batch.put(b"", [9; 200]).unwrap();
    batch
}

/// The bytes of `sample`, written by hand.
fn sample_bytes() -> Vec<u8> {
    let mut bytes = vec![1, 2, 3, 4, 5, 6, 7, 8, 7, 0, 0, 0];
    bytes.extend(b"\x01\x01k\x01v");
    bytes.extend(b"\x00\x01d");
    bytes.extend(b"\x02\x01m\x02+1");
    bytes.extend(b"\x07\x00");
    bytes.extend(b"\x0f\x01a\x01c");
    bytes.extend(b"\x80\x01e\x01x");
    bytes.extend(b"\x01\x00\xc8\x01");
    bytes.extend([9; 200]);
    bytes
}

#[test]
fn the_encoding_is_literally_this() {
    let (batch, bytes) = (sample(), sample_bytes());
    assert_eq!(batch.as_bytes(), bytes);
    assert_eq!((batch.len(), batch.as_bytes().len()), (7, bytes.len()));
    let read = WriteBatch::from_bytes(&bytes).unwrap();
    assert_eq!(
        (read.sequence(), read.len(), read.protection_bytes()),
        (batch.sequence(), 7, 0)
    );
    assert_eq!(ops(&read).unwrap(), ops(&batch).unwrap());
    assert_eq!(WriteBatch::new().as_bytes(), [0; 12]);
}

/// RocksDB 11.8's log of an empty range, a put and an inverted range. The empty range takes the
/// first sequence number: `GetLatestSequenceNumber` counts it.
#[test]
fn ranges_of_a_log_are_read() {
    let bytes = b"\0\0\0\0\0\0\0\0\x03\0\0\0\x0f\x01a\x01a\x01\x01k\x01v\x0f\x01b\x01a";
    let batch = WriteBatch::from_bytes(bytes).unwrap();
    let range = |start: &[u8], end: &[u8]| (Kind::RANGE_DELETE, start.to_vec(), end.to_vec());
    let put = (Kind::PUT, b"k".to_vec(), b"v".to_vec());
    assert_eq!(
        ops(&batch).unwrap(),
        [range(b"a", b"a"), put, range(b"b", b"a")]
    );
}

/// RocksDB 11.8's bytes for a put, `PutLogData`, a delete, a single delete and a merge in a
/// transaction, whose batch begins with `Noop`: four entries by its own count.
const WITH_LOG_DATA: &[u8] =
    b"\0\0\0\0\0\0\0\0\x04\0\0\0\x0d\x01\x01k\x01v\x03\x04note\0\x01d\x07\x01s\x02\x01m\x02+1";

#[test]
fn log_data_and_noop_are_kept_and_are_no_entries() {
    let op = |kind, key: &[u8], value: &[u8]| (kind, key.to_vec(), value.to_vec());
    let wanted = [
        op(Kind::PUT, b"k", b"v"),
        op(Kind::DELETE, b"d", b""),
        op(Kind::SINGLE_DELETE, b"s", b""),
        op(Kind::MERGE, b"m", b"+1"),
    ];
    let plain = WriteBatch::from_bytes(WITH_LOG_DATA).unwrap();
    let protected = WriteBatch::from_verified(WITH_LOG_DATA.to_vec(), |_| Ok(())).unwrap();
    for from in [plain, protected] {
        let mut appended = WriteBatch::with_protection(8).unwrap();
        appended.append(&from).unwrap();
        for batch in [from, appended] {
            assert_eq!(ops(&batch).unwrap(), wanted);
            assert_eq!(batch.as_bytes(), WITH_LOG_DATA);
        }
    }
}

/// The literal marks of RocksDB 11.8 for two-phase commits, and its records of other kinds.
#[test]
fn records_of_rocksdb_alone_are_refused_by_name() {
    for (record, name) in [
        (b"\x09".as_slice(), "BeginPrepareXID"),
        (b"\x0a\x03xid", "EndPrepareXID"),
        (b"\x0b\x03xid", "CommitXID"),
        (b"\x0c\x03xid", "RollbackXID"),
        (b"\x11\x01k\x01v", "BlobIndex"),
        (b"\x16\x01k\x01v", "WideColumnEntity"),
    ] {
        let bytes = [b"\0\0\0\0\0\0\0\0\x02\0\0\0\x01\x01k\x01v", record].concat();
        for read in [
            WriteBatch::from_bytes(&bytes),
            WriteBatch::from_verified(bytes, |_| Ok(())),
        ] {
            match read {
                Err(Error::NotSupported(text)) => assert!(text.starts_with(name), "{text}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[test]
fn other_tags_are_corruption_at_their_offset() {
    for tag in 0..0x80 {
        if (0..0x1a).contains(&tag) {
            let read = WriteBatch::from_bytes(
                &[b"\0\0\0\0\0\0\0\0\x01\0\0\0".as_slice(), &[tag, 0, 0]].concat(),
            );
            let pebbles = (18..25).contains(&tag);
            let refused =
                matches!(&read, Err(Error::NotSupported(s)) if s.contains("Pebble") == pebbles);
            assert_eq!(
                refused,
                ![0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15].contains(&tag),
                "{tag}: {read:?}"
            );
            continue;
        }
        let mut bytes = vec![0; 12];
        bytes[8] = 2;
        bytes.extend(b"\x01\x01k\x01v");
        bytes.extend([tag, 1, b'k', 1, b'v']);
        let report = corruption(&bytes);
        assert_eq!(
            (report.place, report.offset, report.found),
            (Place::Encoding, 17, u64::from(tag))
        );
    }
}

#[test]
fn the_count_is_compared() {
    for count in [0, 6, 8, 255] {
        let mut bytes = sample_bytes();
        bytes[8] = count;
        let report = corruption(&bytes);
        assert_eq!(
            (report.offset, report.expected, report.found),
            (8, 7, u64::from(count))
        );
    }
}

#[test]
fn overlong_and_huge_lengths_are_refused() {
    for length in [
        b"\x81\x00".as_slice(),
        b"\x80\x00",
        b"\x81\x80\x80\x80\x00",
        b"\xff\xff\xff\xff\x1f",
        b"\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff\xff\x0f",
        b"\x80",
    ] {
        let mut bytes = vec![0; 12];
        bytes[8] = 1;
        bytes.push(0);
        bytes.extend(length);
        bytes.extend(b"kkkk");
        // A reader that trusted the length would take all of it as the key.
        bytes.truncate(if length[0] == 0x80 {
            13 + length.len()
        } else {
            14 + length.len()
        });
        assert_eq!(corruption(&bytes).offset, 13, "{length:?}");
    }
}

#[test]
fn every_truncation_is_corruption() {
    let bytes = sample_bytes();
    for len in 0..bytes.len() {
        let report = corruption(&bytes[..len]);
        assert!(
            report.place == Place::Encoding && report.offset <= len as u64,
            "{len}: {report:?}"
        );
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(corruption(&longer).offset, bytes.len() as u64 + 1);
}

#[test]
fn every_flipped_bit_is_another_batch_or_corruption() {
    let clean = sample();
    let content = |batch: &WriteBatch| (batch.sequence(), ops(batch).unwrap());
    let (mut refused, mut differ, mut foreign) = (0, 0, 0);
    for bit in 0..clean.as_bytes().len() * 8 {
        let mut bytes = clean.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match WriteBatch::from_bytes(&bytes) {
            Ok(batch) => {
                assert_ne!(content(&batch), content(&clean), "bit {bit}");
                assert_eq!(batch.as_bytes(), bytes);
                differ += 1;
            }
            Err(Error::Corruption(report)) => {
                assert_eq!(report.place, Place::Encoding, "bit {bit}");
                refused += 1;
            }
            Err(Error::NotSupported(_)) => foreign += 1,
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
    assert!(
        refused > 80 && differ > 1600 && foreign > 10,
        "{refused} refused, {differ} differ, {foreign} foreign"
    );
}

#[cfg(feature = "fault-injection")]
#[test]
fn a_bit_flipped_after_the_batch_is_corruption() {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(b"key", b"value").unwrap();
    batch.delete_range(b"a", b"b").unwrap();
    for bit in 0..batch.as_bytes().len() * 8 {
        batch.flip_buffer_bit(bit);
        let error = ops(&batch).expect_err("a flipped bit");
        let report = error.corruption().expect("corruption");
        assert_eq!(
            report.flipped_bit.map(|b| report.offset * 8 + b),
            Some(bit as u64)
        );
        batch.flip_buffer_bit(bit);
    }
    assert_eq!(ops(&batch).unwrap().len(), 2);
}

#[test]
fn keys_at_their_limit() {
    const MAX: usize = (1 << 24) - 1;
    let bytes = vec![7; MAX + 1];
    let mut batch = WriteBatch::with_protection(8).unwrap();
    for len in [MAX - 1, MAX] {
        batch.delete(&bytes[..len]).unwrap();
    }
    batch.delete_range([], &bytes[..MAX]).unwrap();
    let encoded = batch.as_bytes().to_vec();
    for error in [
        batch.put(&bytes, b"v"),
        batch.delete(&bytes),
        batch.merge(&bytes, b""),
        batch.delete_range(&bytes, b"z"),
        batch.delete_range(b"a", &bytes),
    ] {
        assert!(
            matches!(
                error,
                Err(Error::KeyTooLarge {
                    len: 0x100_0000,
                    max: 0xff_ffff
                })
            ),
            "{error:?}"
        );
    }
    assert!(batch.as_bytes() == encoded);
    let read = WriteBatch::from_bytes(&encoded).unwrap();
    let visibility: Vec<usize> = ops(&read)
        .unwrap()
        .iter()
        .map(|(_, key, value)| key.len() + value.len())
        .collect();
    assert_eq!(visibility, [MAX - 1, MAX, MAX]);

    let long = oracle(0, &[(Kind::DELETE, bytes, vec![])]);
    let error = WriteBatch::from_bytes(&long).unwrap_err();
    assert!(
        matches!(
            error,
            Error::KeyTooLarge {
                len: 0x100_0000,
                max: 0xff_ffff
            }
        ),
        "{error}"
    );
}

#[cfg(target_pointer_width = "64")]
#[test]
fn a_value_over_its_limit_is_refused() {
    // The bytes are never touched, so the system maps no page: only the length is read.
    let value = vec![0u8; 1 << 32];
    let mut batch = WriteBatch::with_protection(8).unwrap();
    let error = batch.put(b"k", &value).unwrap_err();
    assert!(
        matches!(
            error,
            Error::ValueTooLarge {
                len: 0x1_0000_0000,
                max: 0xffff_ffff
            }
        ),
        "{error}"
    );
    assert!(batch.is_empty() && batch.as_bytes().len() == 12);
}

#[test]
fn refused_arguments_change_nothing() {
    for bytes in (1..=255).filter(|&bytes| bytes != 8) {
        assert!(
            matches!(
                WriteBatch::with_protection(bytes),
                Err(Error::InvalidArgument(_))
            ),
            "{bytes}"
        );
    }
    let mut batch = sample();
    for kind in (0..=255).map(Kind::from_u8).filter(|kind| !kind.is_known()) {
        assert!(
            matches!(
                batch.insert(kind, b"k", b"v"),
                Err(Error::InvalidArgument(_))
            ),
            "{kind:?}"
        );
    }
    for kind in [Kind::DELETE, Kind::SINGLE_DELETE] {
        assert!(
            matches!(
                batch.insert(kind, b"k", b"v"),
                Err(Error::InvalidArgument(_))
            ),
            "{kind:?}"
        );
    }
    for key in [b"".as_slice(), b"k", &[7; 300]] {
        assert!(
            matches!(batch.delete_range(key, key), Err(Error::InvalidArgument(_))),
            "{key:?}"
        );
    }
    for (start, end) in [
        (b"b".as_slice(), b"a".as_slice()),
        (b"a", b""),
        (b"ab", b"a"),
    ] {
        assert!(
            matches!(
                batch.delete_range(start, end),
                Err(Error::InvalidArgument(_))
            ),
            "{start:?}"
        );
    }
    assert!(matches!(
        batch.clone().with_max_bytes(sample_bytes().len() - 1),
        Err(Error::InvalidArgument(_))
    ));
    assert_eq!(batch.as_bytes(), sample_bytes());
}

/// A put of one byte each takes 5 bytes after the header's 12.
#[test]
fn a_batch_is_full_after_its_last_byte() {
    assert!(matches!(
        WriteBatch::new().with_max_bytes(11),
        Err(Error::InvalidArgument(_))
    ));
    for (max, fitting) in [(12, 0), (16, 0), (17, 1), (21, 1), (22, 2), (27, 3)] {
        let empty = || WriteBatch::new().with_max_bytes(max).unwrap();
        let (mut put, mut appended, mut other) = (empty(), empty(), WriteBatch::new());
        other.put(b"k", b"v").unwrap();
        for count in 1..=3 {
            for (batch, written) in [(&mut put, None), (&mut appended, Some(&other))] {
                let refused = match written {
                    None => batch.put(b"k", b"v"),
                    Some(other) => batch.append(other),
                };
                let needed = 12 + 5 * (fitting.min(count - 1) + 1);
                match refused {
                    Ok(()) => assert!(count <= fitting, "{count} in {max} bytes"),
                    Err(Error::BatchFull {
                        needed: reported,
                        max: limit,
                    }) => {
                        assert!(
                            count > fitting && (reported, limit) == (needed, max as u64),
                            "{reported} {limit}"
                        );
                    }
                    Err(other) => panic!("{other}"),
                }
                assert_eq!(batch.len() as u64, count.min(fitting));
            }
        }
    }
}

#[test]
fn a_cleared_batch_is_a_new_one() {
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(b"old", b"old").unwrap();
    batch.set_sequence(9);
    batch.clear();
    assert_eq!(
        (batch.as_bytes(), batch.len(), batch.is_empty()),
        ([0; 12].as_slice(), 0, true)
    );
    assert_eq!(batch.protection_bytes(), 8);
    batch.put(b"new", b"new").unwrap();
    assert_eq!(
        ops(&batch).unwrap(),
        [(Kind::PUT, b"new".to_vec(), b"new".to_vec())]
    );
}

#[test]
fn a_batch_from_a_log_has_its_protection_back() {
    let bytes = sample_bytes();
    let place = bytes.as_ptr();
    let logged = bytes.clone();
    let batch = WriteBatch::from_verified(bytes, |read| {
        assert_eq!(read, logged);
        Ok(())
    })
    .unwrap();
    assert_eq!(batch.as_bytes().as_ptr(), place, "the buffer is taken over");
    assert_eq!(
        (batch.protection_bytes(), batch.sequence()),
        (8, 0x0807_0605_0403_0201)
    );
    for entry in batch.entries() {
        let entry = entry.unwrap();
        let digest = Protected::of(entry.key(), entry.value(), entry.kind());
        assert_eq!(entry.caller_digest(), Some(digest));
    }
    // The error of the log's checksum comes first, for any bytes.
    let refused = || Error::InvalidArgument("the checksum differs".into());
    for bytes in [vec![], b"short".to_vec(), sample_bytes(), vec![0x55; 40]] {
        let error = WriteBatch::from_verified(bytes, |_| Err(refused())).unwrap_err();
        assert_eq!(error.to_string(), refused().to_string());
    }
    assert!(matches!(
        WriteBatch::from_verified(vec![0; 11], |_| Ok(())),
        Err(Error::Corruption(_))
    ));
}

/// A flip before, while or after the log's checksum is compared: the checksum or the digests notice
/// it.
#[cfg(feature = "fault-injection")]
#[test]
fn a_bit_flipped_after_the_log_verified_is_corruption() {
    let mut batch = WriteBatch::from_verified(WITH_LOG_DATA.to_vec(), |_| Ok(())).unwrap();
    for bit in 0..batch.as_bytes().len() * 8 {
        batch.flip_buffer_bit(bit);
        let error = ops(&batch).expect_err("a flipped bit");
        let report = error.corruption().expect("corruption");
        assert_eq!(
            report.flipped_bit.map(|b| report.offset * 8 + b),
            Some(bit as u64)
        );
        let mut into = WriteBatch::new();
        assert!(
            matches!(into.append(&batch), Err(Error::Corruption(_))),
            "bit {bit}"
        );
        assert!(into.is_empty() && into.as_bytes().len() == 12);
        batch.flip_buffer_bit(bit);
    }
    assert_eq!(ops(&batch).unwrap().len(), 4);
}

fn any_op() -> impl Strategy<Value = Op> {
    let bytes = |len| prop::collection::vec(any::<u8>(), 0..len);
    (prop::sample::select(KINDS.to_vec()), bytes(200), bytes(300)).prop_map(|(kind, key, value)| {
        let mut value = if kind.is_point_delete() {
            vec![]
        } else {
            value
        };
        if kind == Kind::RANGE_DELETE && key == value {
            value.push(0);
        }
        (kind, key, value)
    })
}

proptest! {
    #[test]
    fn round_trips(wanted in prop::collection::vec(any_op(), 0..20), sequence: u64, protection in prop::sample::select(vec![0u8, 8])) {
        let mut batch = WriteBatch::with_protection(protection).unwrap().with_range_order(RangeOrder::OfTable);
        for (kind, key, value) in &wanted {
            batch.insert(*kind, key, value).unwrap();
        }
        batch.set_sequence(sequence);
        prop_assert_eq!(batch.as_bytes(), oracle(sequence, &wanted));
        prop_assert_eq!(batch.len(), wanted.len());
        prop_assert_eq!(&ops(&batch).unwrap(), &wanted);
        for (entry, (kind, key, value)) in batch.entries().zip(&wanted) {
            let caller_digest = (protection == 8).then(|| Protected::of(key, value, *kind));
            prop_assert_eq!(entry.unwrap().caller_digest(), caller_digest);
        }
        let read = WriteBatch::from_bytes(batch.as_bytes()).unwrap();
        prop_assert_eq!(read.sequence(), sequence);
        prop_assert_eq!(ops(&read).unwrap(), wanted);
    }

    /// Bytes that begin like a batch: nothing panics, and a batch that is taken encodes to the
    /// bytes that were read.
    #[test]
    fn any_bytes_are_a_batch_or_corruption(tail in prop::collection::vec(0u8..18, 0..60), count in 0u8..6) {
        let mut bytes = vec![0; 12];
        bytes[8] = count;
        bytes.extend(tail);
        match WriteBatch::from_bytes(&bytes) {
            Ok(batch) => {
                prop_assert_eq!(batch.as_bytes(), &bytes);
                prop_assert_eq!(ops(&batch).unwrap().len(), usize::from(count));
            }
            Err(Error::Corruption(report)) => prop_assert!(report.offset <= bytes.len() as u64),
            Err(Error::NotSupported(_)) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

/// Compares changes of a batch with a model: entries, appended batches, a limit. Also impossible
/// lengths.
mod changes {
    use paranoid_memtable::batch::RangeOrder;
    use paranoid_memtable::integrity::Place;
    use paranoid_memtable::{Error, Kind, WriteBatch};
    use proptest::prelude::*;

    use super::{Op, any_op, corruption, ops, oracle};

    /// Changes a batch, and compares the outcome with the model's.
    fn change(
        (batch, max_bytes): (&mut WriteBatch, usize),
        model: &mut Vec<Op>,
        other: &(Vec<Op>, WriteBatch),
        step: u8,
        op: &Op,
    ) {
        let before = batch.as_bytes().to_vec();
        let len = oracle(0, std::slice::from_ref(op)).len() - 12;
        match step {
            0 => {
                let fits = batch.as_bytes().len() + other.1.as_bytes().len() - 12 <= max_bytes;
                assert_eq!(batch.append(&other.1).is_ok(), fits);
                model.extend(other.0.iter().filter(|_| fits).cloned());
            }
            1 if op.1.is_empty() => {
                batch.clear();
                model.clear();
            }
            _ => match batch.insert(op.0, &op.1, &op.2) {
                Ok(()) => {
                    assert!(batch.as_bytes().len() <= max_bytes);
                    model.push(op.clone());
                }
                Err(Error::BatchFull { needed, max }) => {
                    assert_eq!(
                        (needed, max),
                        ((before.len() + len) as u64, max_bytes as u64)
                    );
                    assert!(needed > max);
                    assert_eq!(batch.as_bytes(), before, "a refused entry changes nothing");
                }
                Err(other) => panic!("{other}"),
            },
        }
        assert_eq!(batch.as_bytes(), oracle(batch.sequence(), model));
        assert_eq!(&ops(batch).unwrap(), model);
    }

    proptest! {
        /// Compares appended batches and a limit with a list of operations.
        #[test]
        fn changes_follow_a_model(
            steps in prop::collection::vec((0u8..9, any_op()), 0..40),
            theirs in prop::collection::vec(any_op(), 0..4),
            protections in prop::sample::select(vec![(0u8, 0u8), (0, 8), (8, 0), (8, 8)]),
            room in prop::sample::select(vec![0usize, 60, 700, 2000, usize::MAX - 12]),
        ) {
            let empty = |protection| WriteBatch::with_protection(protection).unwrap().with_range_order(RangeOrder::OfTable);
            let mut other = empty(protections.1);
            for (kind, key, value) in &theirs {
                other.insert(*kind, key, value).unwrap();
            }
            let other = (theirs, other);
            let (mut batch, mut model) = (empty(protections.0).with_max_bytes(12 + room).unwrap(), vec![]);
            batch.set_sequence(7);
            for (step, op) in &steps {
                change((&mut batch, 12 + room), &mut model, &other, *step, op);
            }
        }
    }

    /// A length that ends too early is reported at its first byte, with the number of its bytes
    /// that are there. An end of a range is a key.
    #[test]
    fn lengths_that_cannot_be_are_named() {
        let header = [&[0; 8][..], &[1, 0, 0, 0]].concat();
        for there in 1..5 {
            let report =
                corruption(&[&header[..], &[Kind::PUT.as_u8()], &[0x81; 4][..there]].concat());
            assert_eq!(
                (report.place, report.offset, report.found),
                (Place::Encoding, 13, there as u64)
            );
        }
        let end = [&[0x80, 0x80, 0x80, 0x08][..], &vec![b'z'; 1 << 24]].concat();
        let range = [&header[..], &[Kind::RANGE_DELETE.as_u8(), 1, b'a'], &end].concat();
        let refused = WriteBatch::from_bytes(&range);
        assert!(
            matches!(
                refused,
                Err(Error::KeyTooLarge {
                    len: 0x100_0000,
                    max: 0xff_ffff
                })
            ),
            "{refused:?}"
        );
    }
}
