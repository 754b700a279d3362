//! One comparison goes wrong, as on a processor that errs: each of an operation's comparisons in
//! turn.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering as Memory};

use paranoid_memtable::flush::{FlushItem, Versions};
use paranoid_memtable::{Error, KeyOrder, MemTable, MemTableOptions, WriteBatch};

use crate::support::orders::{Script, Scripted, script};
use crate::support::rng::Watchdog;
use crate::support::under;

/// Bytewise order, with one wrong answer.
#[derive(Debug)]
struct Liar {
    /// Number of comparisons before the wrong answer.
    left: AtomicU64,
    /// The wrong answer, one of two: 1 or 2.
    wrong: AtomicUsize,
}

impl Liar {
    fn honest() -> Self {
        Self {
            left: AtomicU64::new(u64::MAX),
            wrong: AtomicUsize::new(1),
        }
    }

    fn lie_after(&self, comparisons: u64, wrong: usize) {
        self.wrong.store(wrong, Memory::Relaxed);
        self.left.store(comparisons, Memory::Relaxed);
    }
}

impl Script for Liar {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        match self.left.fetch_sub(1, Memory::Relaxed) {
            0 => {
                let answers = [Ordering::Less, Ordering::Equal, Ordering::Greater];
                let right = (left.cmp(right) as i8 + 1) as usize;
                answers[(right + self.wrong.load(Memory::Relaxed)) % answers.len()]
            }
            _ => left.cmp(right),
        }
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Images
    }

    fn image(&self, key: &[u8], at: usize) -> u64 {
        if at > 0 {
            0
        } else {
            u64::from(key.first().copied().unwrap_or(0)) << 56
        }
    }
}

/// A key. All of these keys have one image.
fn alike(n: u8) -> [u8; 2] {
    [b'k', n]
}

/// A table with older entries under range deletes that writers watch, and the entries that it
/// shows.
fn table_with_ranges() -> (MemTable, BTreeMap<Vec<u8>, u64>) {
    let options = MemTableOptions::builder()
        .seed(6)
        .write_buffer_size(64 << 10);
    let table = MemTable::new(under(options, Scripted::new(Liar::honest()))).unwrap();
    for n in 0..40 {
        table.put(u64::from(n), alike(n), b"").unwrap();
    }
    for (start, end, sequence) in [(2, 14, 50), (10, 20, 51), (18, 30, 52)] {
        table
            .delete_range(sequence, alike(start), alike(end))
            .unwrap();
    }
    // The first put after a range delete reads it.
    table.put(53, alike(35), b"").unwrap();
    script::<Liar>(table.comparator()).lie_after(u64::MAX, 1);
    let shown = [0, 1]
        .into_iter()
        .chain(30..40)
        .map(|n| (alike(n).to_vec(), u64::from(n)));
    let mut shown: BTreeMap<_, _> = shown.collect();
    shown.insert(alike(35).to_vec(), 53);
    (table, shown)
}

fn shown(table: &MemTable) -> Result<BTreeMap<Vec<u8>, u64>, Error> {
    table
        .range_at(.., u64::MAX)
        .map(|entry| entry.map(|entry| (entry.user_key().to_vec(), entry.sequence())))
        .collect()
}

/// Runs an operation with a wrong answer at its first comparison, at its second, and so on, once
/// with each of the two wrong answers. `check` judges the runs that returned no error.
fn with_each_lie<T>(
    operation: impl Fn(&MemTable) -> Result<T, Error>,
    check: impl Fn(&MemTable, T, &str),
) {
    for (fuse, wrong) in (0..).flat_map(|fuse| [(fuse, 1), (fuse, 2)]) {
        let (table, _) = table_with_ranges();
        let liar = &script::<Liar>(table.comparator());
        liar.lie_after(fuse, wrong);
        let outcome = catch_unwind(AssertUnwindSafe(|| operation(&table)));
        // The comparison was not reached: its number is larger than the count.
        let is_over = liar.left.load(Memory::Relaxed) < u64::MAX / 2;
        liar.lie_after(u64::MAX, 1);
        match outcome {
            Ok(Ok(answer)) => check(
                &table,
                answer,
                &format!("comparison {fuse}, wrong answer {wrong}"),
            ),
            Ok(Err(error)) => assert!(!is_over, "without a lie: {error}"),
            // The standard library's sort may notice a wrong order.
            Err(payload) => {
                assert!(
                    payload
                        .downcast_ref::<&str>()
                        .is_some_and(|text| text.contains("total order"))
                )
            }
        }
        if is_over {
            break;
        }
    }
}

/// A processor that flips a flag makes one comparison go wrong.
#[test]
fn a_lie_hides_no_put_under_a_range_delete() {
    let _watchdog = Watchdog::new("one_lie::a_lie_hides_no_put_under_a_range_delete", 0);
    for n in [5, 12, 19, 25] {
        with_each_lie(
            |table| table.put(60, alike(n), b""),
            |table, _, what| {
                let mut right = table_with_ranges().1;
                right.insert(alike(n).to_vec(), 60);
                assert_eq!(shown(table).unwrap(), right, "{n}, {what}");
            },
        );
    }
}

#[test]
fn a_lie_cuts_no_fragment_wrongly() {
    type Piece = (Vec<u8>, Vec<u8>, Vec<u64>);
    let _watchdog = Watchdog::new("one_lie::a_lie_cuts_no_fragment_wrongly", 0);
    let piece = |(start, end, numbers): (u8, u8, &[u64])| {
        (alike(start).to_vec(), alike(end).to_vec(), numbers.to_vec())
    };
    let all: [(u8, u8, &[u64]); 5] = [
        (2, 10, &[50]),
        (10, 14, &[51, 50]),
        (14, 18, &[51]),
        (18, 20, &[52, 51]),
        (20, 30, &[52]),
    ];
    let newest: [(u8, u8, &[u64]); 3] = [(2, 10, &[50]), (10, 18, &[51]), (18, 30, &[52])];
    for (versions, right) in [
        (Versions::All, &all[..]),
        (Versions::SeenBy(&[]), &newest[..]),
    ] {
        let right: Vec<Piece> = right.iter().copied().map(piece).collect();
        let flush = |table: &MemTable| -> Result<Vec<Piece>, Error> {
            let (frozen, mut pieces) = (table.freeze()?, Vec::new());
            let mut flush = frozen.flush_iter(versions)?;
            while let Some(item) = flush.next()? {
                if let FlushItem::Fragment(it) = item {
                    pieces.push((
                        it.start().to_vec(),
                        it.end().to_vec(),
                        it.sequences().to_vec(),
                    ));
                }
            }
            Ok(pieces)
        };
        with_each_lie(flush, |_, pieces, what| {
            assert_eq!(pieces, right, "{versions:?}, {what}")
        });
    }
}

#[test]
fn a_lie_leaves_no_entry_out_of_a_batch() {
    let _watchdog = Watchdog::new("one_lie::a_lie_leaves_no_entry_out_of_a_batch", 0);
    let write = |table: &MemTable| {
        let mut batch = WriteBatch::new();
        for n in [3, 16, 33] {
            batch.put(alike(n), b"")?;
        }
        batch.delete_range(alike(31), alike(33))?;
        table.write_batch(60, &batch)
    };
    with_each_lie(write, |table, written, what| {
        let mut right = table_with_ranges().1;
        right.extend(
            [(3, 60), (16, 61), (33, 62)].map(|(n, sequence)| (alike(n).to_vec(), sequence)),
        );
        right.retain(|key, _| !(&alike(31)[..]..&alike(33)[..]).contains(&&key[..]));
        assert_eq!(
            (written.entries, shown(table).unwrap()),
            (4, right),
            "{what}"
        );
    });
}
