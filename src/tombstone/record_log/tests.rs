//! Tests of the log of records.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot continue panics"
)]

use super::*;
use crate::comparator::BYTEWISE;
use crate::integrity::Place;
use crate::integrity::tag::Secret;
use crate::tombstone::counter::Extent;
use crate::tombstone::tests::fixture::Nodes;

const CHECKS: Checks = Checks::new(Secret::from_seed(1));

/// A log, its tally, and the nodes that its records name.
struct Filled {
    log: RecordLog,
    tally: Tally,
    nodes: Nodes,
}

fn log(start: &[u8], end: &[u8]) -> Filled {
    let common_prefix = CommonPrefix::new(CHECKS, &BYTEWISE, [start, end]);
    Filled {
        log: RecordLog::new(CHECKS, common_prefix),
        tally: Tally::new(CHECKS, COUNTS),
        nodes: Nodes::new(),
    }
}

fn push(filled: &Filled, start: &[u8], end: &[u8]) -> Result<u32> {
    let Filled { log, tally, nodes } = filled;
    let sequence = 1000 + u64::from(tally.extent()?.count);
    let tombstone = nodes.add([start, end], sequence);
    log.push(nodes.source(&BYTEWISE), tally, &tombstone)
}

/// Forty records whose starts have all lengths from 0 to 39 bytes. One end has 300 bytes.
fn filled() -> Filled {
    let filled = log(b"", b"z");
    for len in 0..40 {
        let (start, end) = (
            vec![b'a'; len],
            vec![b'z'; if len == 7 { 300 } else { 40 - len }],
        );
        assert_eq!(push(&filled, &start, &end).ok(), Some(len as u32));
    }
    filled
}

fn flip(word: &AtomicU64, bit: u32) {
    // ORDERING: relaxed; one thread.
    word.fetch_xor(1 << bit, Ordering::Relaxed);
}

#[test]
fn a_full_log_refuses() {
    let log = log(b"a", b"b");
    log.tally.begin(|_| Ok((0, RECORDS_MAX))).unwrap();
    let full = push(&log, b"a", b"b");
    assert!(
        matches!(
            full,
            Err(Error::MemTableFull {
                needed: RECORD_BYTES,
                remaining: 0
            })
        ),
        "{full:?}"
    );
}

/// A record leaves out as many bytes as its bounds share with the common prefix, but at most as
/// many as the record before it.
#[test]
fn records_leave_out_what_they_share() {
    let log = log(b"tenant-7/users/a", b"tenant-7/users/b");
    let ends: [&[u8]; 7] = [
        b"users/b",
        b"users/cc",
        b"usual",
        b"users/b",
        b"v",
        b"users/zz",
        b"users/users/x",
    ];
    for (at, (end, skip)) in ends.into_iter().zip([15, 15, 11, 11, 9, 9, 9]).enumerate() {
        let index = push(&log, b"tenant-7/users/a", &[b"tenant-7/", end].concat()).unwrap();
        assert_eq!(index as usize, at);
        assert_eq!(
            log.log.record(index, 0).unwrap().unwrap().skip(),
            skip,
            "record {at}"
        );
    }
    for (end, skip) in [(&b"tenor"[..], 0), (b"tenant-7/users/b", 0)] {
        let index = push(&log, b"tenant-7/users/a", end).unwrap();
        assert_eq!(log.log.record(index, 0).unwrap().unwrap().skip(), skip);
    }
}

/// A run is read at once if its records are in one segment.
#[test]
fn runs_are_of_one_segment() {
    let Filled { log, .. } = filled();
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

/// The report of a damaged record has the record's offset.
#[test]
fn damaged_records_are_named() {
    let filled = filled();
    let Filled { log, tally, .. } = &filled;
    for index in 0..40 {
        let words = log.records.get(index).unwrap();
        let at = u64::from(index) * 40;
        for (word, bit) in (0..5).flat_map(|word| [(word, 0), (word, 33), (word, 63)]) {
            flip(&words[word], bit);
            let report = log.record(index, 40).unwrap_err();
            assert_eq!(
                (report.place, report.offset),
                (Place::Fragment, at),
                "word {word}"
            );
            flip(&words[word], bit);
        }
        let record = log.record(index, 40).unwrap().unwrap();
        assert_eq!(
            (record.sequence, record.index),
            (1000 + u64::from(index), index)
        );
    }
    // The mark of a record that is not written yet is damaged: nothing is written over it.
    let words = log.records.get(40).unwrap();
    flip(&words[4], 9);
    let report = *push(&filled, b"a", b"b").unwrap_err().corruption().unwrap();
    let pending = CHECKS.pending(40);
    assert_eq!(
        (report.offset, report.expected, report.found),
        (40 * 40, pending, pending ^ 1 << 9)
    );
    assert_eq!(
        tally.extent(),
        Ok(Extent {
            count: 41,
            complete: 0
        })
    );
}

/// A bound that is read from the node of a record is the right one, or a report.
#[test]
fn damaged_keys_are_noticed() {
    let filled = filled();
    for (index, len) in (0..40).zip(0..) {
        let record = filled.log.named(index).unwrap();
        let source = filled.nodes.source(&BYTEWISE);
        let ends = [
            (End::Start, b'a', len),
            (End::Stop, b'z', if len == 7 { 300 } else { 40 - len }),
        ];
        for (end, byte, len) in ends {
            assert_eq!(record.bound(source, end).unwrap(), vec![byte; len]);
            filled.nodes.each_word(record.node(), end, &mut |word| {
                flip(word, 3);
                assert!(record.bound(source, end).is_err());
                flip(word, 3);
            });
        }
        assert_eq!(
            record.key_bytes(source),
            Ok(if len == 7 { 307 } else { 40 })
        );
    }
}
