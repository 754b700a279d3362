//! Small public items that no other module of the suite calls: texts of reports, digests under another number, what a range
//! tombstone covers, and calls that come at the wrong time.

use paranoid_memtable::integrity::{Place, Protected, StoredProtection};
use paranoid_memtable::set::{MemTableSet, SetOptions, StallCause};
use paranoid_memtable::tombstone::RangeTombstone;
use paranoid_memtable::{Bytewise, Error, Kind, WriteBatch};

use crate::support::rng::{Rng, seed_or};
use crate::support::sets::History;

/// No two reasons read alike, and none is empty.
#[test]
fn every_reason_has_a_text_of_its_own() {
    let causes =
        [StallCause::Tables, StallCause::Unflushed, StallCause::Pinned].map(|cause| cause.to_string());
    assert!(causes.iter().all(|text| !text.is_empty()));
    assert!(causes[0] != causes[1] && causes[1] != causes[2] && causes[0] != causes[2]);
    // A damaged batch names its place, its offset, both checks and the bit.
    let mut batch = WriteBatch::with_protection(8).unwrap();
    batch.put(b"key", b"value").unwrap();
    let bytes = batch.as_bytes().to_vec();
    let cut = WriteBatch::from_vec(bytes[..bytes.len() - 1].to_vec()).unwrap_err();
    let Error::Corruption(report) = &cut else { panic!("{cut}") };
    assert_eq!(report.place, Place::Encoding);
    assert!(cut.to_string().contains("encoding at offset"), "{cut}");
}

/// Digests that were given another sequence number and kind are those of the new entry, and of no other one.
#[test]
fn digests_follow_number_and_kind() {
    let mut rng = Rng::new(seed_or(0xd19e57));
    let kinds = [Kind::PUT, Kind::DELETE, Kind::SINGLE_DELETE, Kind::MERGE, Kind::custom(3)];
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

/// The bounds by ones: start included, end excluded, only what is older.
#[test]
fn a_range_tombstone_covers_what_is_older_and_inside() {
    let tombstone = RangeTombstone::new(&Bytewise, *b"bb", *b"dd", 7).unwrap();
    for key in [&b"b"[..], b"ba", b"bb", b"bb\0", b"cc", b"dc\xff", b"dd", b"dd\0", b"e"] {
        for sequence in [0, 6, 7, 8] {
            let is_inside = (&b"bb"[..]..b"dd").contains(&key);
            assert_eq!(
                tombstone.covers(&Bytewise, key, sequence),
                is_inside && sequence < 7,
                "{key:?}@{sequence}"
            );
        }
    }
    assert_eq!(tombstone.into_parts(), (b"bb".to_vec(), b"dd".to_vec(), 7));
}

/// A job that has not reached its end is not installed, and a replayed batch does not go back: nothing is changed by either.
#[test]
fn calls_at_the_wrong_time_are_refused() {
    let set = MemTableSet::open(SetOptions::default(), History::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"v").unwrap();
    set.write(&batch).unwrap();
    set.switch().unwrap();
    let job = set.begin_flush().unwrap().unwrap();
    let early = job.install(History::default());
    assert!(matches!(early, Err(Error::InvalidArgument(_))), "{early:?}");
    assert_eq!(set.view().tables(), 2, "the table stays");
    batch.set_sequence(1);
    assert!(matches!(set.replay(&batch), Err(Error::InvalidArgument(_))), "number 1 is taken");
    batch.set_sequence(5);
    assert_eq!(set.replay(&batch).unwrap(), 5);
    let mut job = set.begin_flush().unwrap().unwrap();
    let mut base = History::default();
    job.flush(&mut base).unwrap();
    job.install(base).unwrap();
    assert_eq!(set.view().tables(), 1);
}
