//! Tests of the log: what it refuses, what its records leave out, and where it reports damage.

#![forbid(unsafe_code)]
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

use crate::comparator::BYTEWISE;
use crate::error::Place;
use crate::integrity::tag::Secret;
use crate::tombstone::index::log::*;

const CHECKS: Checks = Checks::new(Secret::from_seed(1));

fn log(start: &[u8], end: &[u8]) -> (Log, Tally) {
    let common_prefix = CommonPrefix::new(CHECKS, &BYTEWISE, KeyRange { start, end });
    (Log::new(CHECKS, common_prefix), Log::tally(CHECKS))
}

fn push((log, tally): &(Log, Tally), start: &[u8], end: &[u8]) -> Result<u32> {
    log.push(&BYTEWISE, tally, KeyRange { start, end }, 1000 + u64::from(tally.extent(CHECKS)?.count))
}

/// Forty records whose keys are of all lengths from 0 to 39, and of 300 bytes.
fn filled() -> (Log, Tally) {
    let filled = log(b"", b"z");
    for len in 0..40 {
        let (start, end) = (vec![b'a'; len], vec![b'z'; if len == 7 { 300 } else { 40 - len }]);
        assert_eq!(push(&filled, &start, &end).ok(), Some(len as u32));
    }
    filled
}

fn flip(word: &AtomicU64, bit: u32) {
    // ORDERING: relaxed; one thread.
    word.fetch_xor(1 << bit, Ordering::Relaxed);
}

/// The head of `common_prefix`: a record leaves out at most as many bytes as the one before it, and no fewer than it
/// may.
#[test]
fn records_leave_out_what_they_share() {
    let log = log(b"tenant-7/users/a", b"tenant-7/users/b");
    let ends: [&[u8]; 7] =
        [b"users/b", b"users/cc", b"usual", b"users/b", b"v", b"users/zz", b"users/users/x"];
    for (at, (end, skip)) in ends.into_iter().zip([15, 15, 11, 11, 9, 9, 9]).enumerate() {
        let index = push(&log, b"tenant-7/users/a", &[b"tenant-7/", end].concat()).unwrap();
        assert_eq!(index as usize, at);
        assert_eq!(log.0.record(index, 0).unwrap().unwrap().skip(), skip, "record {at}");
    }
    for (end, skip) in [(&b"tenor"[..], 0), (b"tenant-7/users/b", 0)] {
        let index = push(&log, b"tenant-7/users/a", end).unwrap();
        assert_eq!(log.0.record(index, 0).unwrap().unwrap().skip(), skip);
    }
}

#[test]
fn a_full_log_refuses() {
    let (start, end) = (vec![1; 8], vec![2; 2210]);
    let words = 2 + 278;
    for (used, needed) in [(u32::MAX - 300, Some(8 * words)), (u32::MAX - 255, Some(8 * words)), (0, None)] {
        let log = log(b"a", b"b");
        log.0.key_words.begin(CHECKS, |_| Ok((0, used))).unwrap();
        match (push(&log, &start, &end), needed) {
            (Err(Error::MemTableFull { needed, remaining: 0 }), Some(expected)) => {
                assert_eq!(needed, expected)
            }
            (found, needed) => assert_eq!((found.ok(), needed), (Some(0), None), "{used}"),
        }
        assert_eq!(log.1.extent(CHECKS).unwrap().count, u32::from(needed.is_none()));
    }
    let log = log(b"a", b"b");
    log.1.begin(CHECKS, |_| Ok((0, RECORDS_MAX))).unwrap();
    let full = log.0.push(&BYTEWISE, &log.1, KeyRange { start: b"a", end: b"b" }, 1);
    assert!(matches!(full, Err(Error::MemTableFull { needed: RECORD_BYTES, remaining: 0 })), "{full:?}");
}

/// Records of one segment are read at once.
#[test]
fn runs_are_of_one_segment() {
    let (log, _) = filled();
    for (from, to) in [(0, 8), (0, 32), (24, 32), (32, 40), (32, 33), (31, 32)] {
        let run = log.run(from, to).unwrap();
        assert_eq!(run.len(), (to - from) as usize);
        for (stored, index) in run.iter().zip(from..to) {
            let record = log.decode(stored, index, 40).unwrap().unwrap();
            assert_eq!(record.sequence, 1000 + u64::from(index));
        }
    }
    assert!(log.run(31, 33).is_none() && log.run(5, 4).is_none() && log.run(400, 401).is_none());
}

/// Where a record is damaged: at its own offset, with its sequence number if that was read.
#[test]
fn damaged_records_are_named() {
    let filled = filled();
    let (log, tally) = &filled;
    for index in 0..40 {
        let RecordWords(words) = log.records.get(index).unwrap();
        let at = u64::from(index) * 48;
        for (word, bit) in [0, 1, 2, 5].into_iter().flat_map(|word| [(word, 0), (word, 63)]) {
            flip(&words[word], bit);
            let report = log.record(index, 40).unwrap_err();
            assert_eq!((report.place, report.offset), (Place::Fragment, at), "word {word}");
            flip(&words[word], bit);
        }
        let record = log.record(index, 40).unwrap().unwrap();
        assert_eq!((record.sequence, record.index), (1000 + u64::from(index), index));
        for (word, bit) in [(3, 0), (3, 63), (4, 0), (4, 33)] {
            flip(&words[word], bit);
            let record = log.record(index, 40).unwrap().unwrap();
            let report = log.with_key(&record, End::Start, |_| ()).unwrap_err();
            assert_eq!((report.offset, report.sequence), (at, Some(record.sequence)), "word {word}");
            flip(&words[word], bit);
        }
    }
    // LOG-6: the mark of a record that is not there yet.
    let RecordWords(words) = log.records.get(40).unwrap();
    flip(&words[5], 9);
    let report = *push(&filled, b"a", b"b").unwrap_err().corruption().unwrap();
    let pending = CHECKS.pending(40);
    assert_eq!((report.offset, report.expected, report.found), (40 * 48, pending, pending ^ 1 << 9));
    assert_eq!(tally.extent(CHECKS), Ok(crate::tombstone::index::counter::Extent { count: 41, complete: 0 }));
}

/// Where a key is damaged or lost: at its own offset, with the sequence number of its record.
#[test]
fn damaged_keys_are_named() {
    let (mut log, _) = filled();
    let records: Vec<Record> = (0..40).map(|index| log.named(index).unwrap()).collect();
    let mut place = 0;
    for record in &records {
        for (end, len) in [(End::Start, high(record.lengths) & LEN_BITS), (End::Stop, low(record.lengths))] {
            let words = len.div_ceil(8) + 1;
            // No key lies across two segments.
            place = if end == End::Start { low(record.keys) } else { place };
            let key = log.with_key(record, end, <[u8]>::to_vec).unwrap();
            assert_eq!(key, vec![if end == End::Start { b'a' } else { b'z' }; len as usize]);
            for word in place..place + words {
                flip(log.keys.get(word).unwrap(), 3);
                let report = log.with_key(record, end, |_| ()).unwrap_err();
                let found = (report.place, report.offset, report.sequence);
                assert_eq!(found, (Place::Fragment, 8 * u64::from(place), Some(record.sequence)));
                flip(log.keys.get(word).unwrap(), 3);
            }
            place += words;
        }
    }
    log.cells(&mut |name, lose| {
        if name == "segment of keys" {
            lose()
        }
    });
    for record in &records {
        let report = log.with_key(record, End::Start, |_| ()).unwrap_err();
        let found = (report.offset, report.expected, report.sequence);
        let len = u64::from(high(record.lengths) & LEN_BITS);
        assert_eq!(found, (8 * u64::from(low(record.keys)), len, Some(record.sequence)));
    }
}
