//! Range tombstones and the fragmenter, from outside: drawn cases, brute force, and cursors
//! compared with plain lists.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use paranoid_memtable::tombstone::Fragmenter;
use paranoid_memtable::{Bytewise, Comparator, Error};

use crate::support::orders::Reverse;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/spans.txt");

/// Reads a drawn span, whose letters must be in their columns.
fn drawn(line: &str) -> (String, String, u64) {
    let picture = &line[6..];
    let (from, to) = (
        picture.find(char::is_alphabetic).unwrap(),
        picture.rfind(char::is_alphabetic).unwrap(),
    );
    let (start, end) = (&picture[from..=from], &picture[to..=to]);
    let column = |letter: &str| usize::from(letter.as_bytes()[0] - b'a');
    assert!(
        (from, to) == (column(start), column(end)),
        "a letter stands in a wrong column: {line}"
    );
    (
        start.to_owned(),
        end.to_owned(),
        picture[to + 1..].trim().parse().unwrap(),
    )
}

fn answer(case: &str) -> String {
    let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    let (mut asks, mut spans) = (Vec::new(), Vec::new());
    for line in case.lines() {
        if let Some(list) = line.strip_prefix("snapshots ") {
            let list: Vec<u64> = list
                .split(' ')
                .filter_map(|number| number.parse().ok())
                .collect();
            fragmenter = fragmenter.with_snapshots(&list);
        } else if line.starts_with("span ") {
            let (start, end, sequence) = drawn(line);
            fragmenter
                .add(start.clone(), end.clone(), sequence)
                .unwrap();
            spans.push((start, end, sequence));
        } else if let Some(snapshot) = line.strip_prefix("ask ") {
            asks.push(snapshot.parse::<u64>().unwrap());
        }
    }
    let fragments = fragmenter.finish();
    let mut out = String::new();
    for fragment in fragments.iter() {
        let (start, end) = (fragment.start()[0] - b'a', fragment.end()[0] - b'a');
        let dashes = "-".repeat(usize::from(end - start) - 1);
        let letters = format!(
            "{}{dashes}{}",
            char::from(start + b'a'),
            char::from(end + b'a')
        );
        let numbers: Vec<String> = fragment.sequences().iter().map(u64::to_string).collect();
        let picture = format!("{}{letters}", " ".repeat(usize::from(start)));
        writeln!(out, "frag  {picture:16} {}", numbers.join(" ")).unwrap();
    }
    for snapshot in asks {
        let sees = |key: u8| match fragments.max_covering_sequence([key], snapshot) {
            None => ".".to_owned(),
            Some(sequence) => sequence.to_string(),
        };
        let row: String = (b'a'..=b'p').map(sees).collect();
        writeln!(out, "at {snapshot}  {row}").unwrap();
    }
    out
}

#[test]
fn drawn_cases() {
    let text = std::fs::read_to_string(CASES).unwrap();
    let (head, body) = text.split_once("case ").unwrap();
    let mut rewritten = head.to_owned();
    for case in body.split("\ncase ") {
        let question = case.split_once("\n=").unwrap().0;
        write!(rewritten, "case {question}\n=\n{}\n", answer(question)).unwrap();
    }
    let rewritten = format!("{}\n", rewritten.trim_end());
    if std::env::var_os("PARANOID_REWRITE").is_some() {
        std::fs::write(CASES, rewritten).unwrap();
    } else {
        assert_eq!(
            text, rewritten,
            "if the new drawing is right: PARANOID_REWRITE=1 cargo test --test suite spans"
        );
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("PARANOID_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=count).collect(),
    }
}

type Span = (Vec<u8>, Vec<u8>, u64);

fn draw<C: Comparator>(comparator: &C, rng: &mut Rng, len: u64) -> Vec<Span> {
    let space = [4, 30, 1000][rng.below(3) as usize];
    let numbers = [3, len * 2 + 1][rng.below(2) as usize];
    let key = |number: u64| format!("{number:04}").into_bytes();
    let mut spans = Vec::new();
    while spans.len() < len as usize {
        let (left, right) = (key(rng.below(space)), key(rng.below(space)));
        match comparator.compare(&left, &right) {
            std::cmp::Ordering::Less => spans.push((left, right, rng.below(numbers))),
            std::cmp::Ordering::Greater => spans.push((right, left, rng.below(numbers))),
            std::cmp::Ordering::Equal => {}
        }
    }
    if rng.below(2) == 0 {
        spans.sort_by(|l, r| comparator.compare(&l.0, &r.0));
    }
    spans
}

/// All sequence numbers over a key.
fn over<C: Comparator>(comparator: &C, spans: &[Span], key: &[u8]) -> BTreeSet<u64> {
    let covers = |span: &&Span| {
        comparator.compare(&span.0, key).is_le() && comparator.compare(key, &span.1).is_lt()
    };
    spans.iter().filter(covers).map(|span| span.2).collect()
}

fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..1001u64).map(|number| format!("{number:04}").into_bytes())
}

/// The numbers that a fragment at this key must list: all, or the newest ones between every two
/// snapshots.
fn kept(all: &BTreeSet<u64>, snapshots: Option<&[u64]>) -> Vec<u64> {
    let Some(snapshots) = snapshots else {
        return all.iter().rev().copied().collect();
    };
    let stripe = |sequence: u64| {
        snapshots
            .iter()
            .filter(|&&snapshot| snapshot < sequence)
            .collect::<BTreeSet<_>>()
            .len()
    };
    let mut seen = BTreeSet::new();
    all.iter()
        .rev()
        .copied()
        .filter(|&sequence| seen.insert(stripe(sequence)))
        .collect()
}

fn check<C: Comparator + Clone>(comparator: C, seed: u64) {
    let mut rng = Rng(seed);
    let spans = draw(
        &comparator,
        &mut rng,
        [0, 1, 2, 5, 20, 100][seed as usize % 6],
    );
    let snapshots: Option<Vec<u64>> =
        (rng.below(2) == 0).then(|| (0..rng.below(5)).map(|_| rng.below(220)).collect());
    let mut fragmenter = Fragmenter::new(Arc::new(comparator.clone()));
    if let Some(snapshots) = &snapshots {
        fragmenter = fragmenter.with_snapshots(snapshots);
    }
    for (start, end, sequence) in &spans {
        fragmenter
            .add(start.clone(), end.clone(), *sequence)
            .unwrap();
    }
    let fragments = fragmenter.clone().finish();
    assert_eq!(fragments.is_empty(), spans.is_empty());
    fragments.verify().unwrap();
    let list: Vec<_> = fragments.iter().collect();
    let (mut one_by_one, mut left) = (fragmenter.finish_iter(), list.iter());
    while let Some(fragment) = one_by_one.next().unwrap() {
        assert_eq!(Some(&fragment), left.next(), "PARANOID_SEED={seed}");
    }
    assert!(
        left.next().is_none() && one_by_one.next().unwrap().is_none(),
        "PARANOID_SEED={seed}"
    );
    for fragment in &list {
        assert!(
            comparator.compare(fragment.start(), fragment.end()).is_lt(),
            "PARANOID_SEED={seed}"
        );
        assert!(
            fragment.sequences().is_sorted_by(|l, r| l > r) && !fragment.sequences().is_empty()
        );
    }
    for two in list.windows(2) {
        assert!(
            comparator.compare(two[0].end(), two[1].start()).is_le(),
            "PARANOID_SEED={seed}: overlap"
        );
        assert!(
            two[0].end() != two[1].start() || two[0].sequences() != two[1].sequences(),
            "PARANOID_SEED={seed}"
        );
    }
    for key in keys() {
        let expected = kept(&over(&comparator, &spans, &key), snapshots.as_deref());
        let here = |fragment: &&paranoid_memtable::tombstone::Fragment<'_>| {
            comparator.compare(fragment.start(), &key).is_le()
                && comparator.compare(&key, fragment.end()).is_lt()
        };
        let found = list
            .iter()
            .find(here)
            .map_or(&[][..], |fragment| fragment.sequences());
        assert_eq!(
            found, expected,
            "PARANOID_SEED={seed} key {key:?} snapshots {snapshots:?}"
        );
        let snapshot = rng.below(230);
        let visible = expected.into_iter().find(|&sequence| sequence <= snapshot);
        assert_eq!(
            fragments.max_covering_sequence(&key, snapshot),
            visible,
            "PARANOID_SEED={seed} key {key:?}"
        );
    }
}

#[test]
fn fragments_agree_with_brute_force() {
    for seed in seeds(if cfg!(debug_assertions) { 36 } else { 600 }) {
        check(Bytewise, seed);
        check(Reverse, seed);
    }
}

#[test]
fn nested_ranges_stay_small_with_snapshots() {
    let build = |snapshots: Option<&[u64]>, len: u64| {
        let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
        if let Some(snapshots) = snapshots {
            fragmenter = fragmenter.with_snapshots(snapshots);
        }
        for number in 0..len {
            let (start, end) = (number.to_be_bytes(), (2 * len - number).to_be_bytes());
            fragmenter.add(start, end, number + 1).unwrap();
        }
        fragmenter
            .finish()
            .iter()
            .map(|fragment| fragment.sequences().len() as u64)
            .sum::<u64>()
    };
    assert_eq!(build(None, 300), 300 * 300);
    assert!(build(Some(&[100, 200]), 3000) <= 2 * 3000 * 3);
    assert!(build(Some(&[]), 3000) <= 2 * 3000);
}

#[test]
fn a_range_must_start_before_it_ends() {
    let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    for (start, end) in [("b", "a"), ("a", "a"), ("", "")] {
        assert!(matches!(
            fragmenter.add(start, end, 1),
            Err(Error::InvalidArgument(_))
        ));
    }
    let mut reverse = Fragmenter::new(Arc::new(Reverse));
    assert!(matches!(
        reverse.add("a", "b", 1),
        Err(Error::InvalidArgument(_))
    ));
    assert!(reverse.add("b", "a", 1).is_ok());
    let fragments = fragmenter.finish();
    assert!(fragments.is_empty() && fragments.get(0).is_none());
    assert_eq!(fragments.max_covering_sequence(b"", u64::MAX), None);
}

/// Lost writes in the tombstone index of a table: a piece of it has its content from before a range
/// delete. Reads are right, a scrub reports it, and a flush fails.
#[cfg(feature = "fault-injection")]
mod lost_tombstones {
    use paranoid_memtable::fault::{FaultInjector, Part, Region};
    use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError, Versions};
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{Error, Lookup, MemTable, MemTableOptions};

    use crate::support::rng::Watchdog;

    const KEYS: u64 = 12;

    fn key(number: u64) -> Vec<u8> {
        format!("a/shared/beginning/{number:02}").into_bytes()
    }

    /// Range delete number `turn`: start, end, sequence number. They are not in the order of
    /// sequence numbers.
    fn range(turn: u64) -> (u64, u64, u64) {
        let start = turn * 5 % (KEYS - 2);
        (start, start + 1 + turn % 3, 100 + (turn ^ 1))
    }

    fn keys_only() -> MemTable {
        let table = MemTable::new(MemTableOptions::builder().seed(9).build().unwrap()).unwrap();
        for number in 0..KEYS {
            table.put(number + 1, key(number), b"value").unwrap();
        }
        table
    }

    fn delete(table: &MemTable, turn: u64) {
        let (start, end, sequence) = range(turn);
        table.delete_range(sequence, key(start), key(end)).unwrap();
    }

    fn open_injector(table: &MemTable) -> FaultInjector<'_> {
        #[expect(
            unsafe_code,
            reason = "the fault injector for breaking memory on purpose"
        )]
        // SAFETY: one thread, and nothing borrowed from the table is held across a break.
        unsafe { FaultInjector::open(table) }.unwrap()
    }

    /// The two counters of the tally, which come first, and every record: 40 bytes each.
    fn pieces_of_index(injector: &FaultInjector<'_>) -> Vec<usize> {
        let pieces = injector
            .pieces()
            .iter()
            .enumerate()
            .filter(|(_, piece)| piece.region == Region::TombstoneIndex);
        let wanted = pieces
            .enumerate()
            .filter(|(place, (_, piece))| *place < 2 || piece.len() == 40);
        wanted.map(|(_, (number, _))| number).collect()
    }

    fn bytes_of_index(table: &MemTable) -> Vec<Vec<u8>> {
        let injector = open_injector(table);
        pieces_of_index(&injector)
            .into_iter()
            .map(|number| injector.bytes(number))
            .collect()
    }

    fn read_everything(table: &MemTable, turns: u64, note: &str) {
        for number in 0..KEYS {
            for snapshot in [50].into_iter().chain(100..102 + turns) {
                let deleted = (0..turns).map(range).any(|(start, end, sequence)| {
                    (start..end).contains(&number) && sequence <= snapshot
                });
                match table.get(key(number), snapshot) {
                    Ok(Lookup::Value(_)) => {
                        assert!(!deleted, "{note}: key {number} at {snapshot} is deleted")
                    }
                    Ok(_) => assert!(deleted, "{note}: key {number} at {snapshot} is not deleted"),
                    Err(Error::Corruption(_)) => {}
                    Err(error) => panic!("{note}: {error}"),
                }
            }
        }
    }

    /// A sink that keeps keys and fragments.
    #[derive(Debug, Default, PartialEq)]
    struct Kept(Vec<(Vec<u8>, Vec<u8>, Vec<u64>)>);

    impl FlushSink for Kept {
        fn entry(&mut self, entry: FlushEntry<'_>) -> Result<(), SinkError> {
            self.0
                .push((entry.user_key.to_vec(), Vec::new(), vec![entry.sequence]));
            Ok(())
        }

        fn fragment(&mut self, fragment: Fragment<'_>) -> Result<(), SinkError> {
            self.0.push((
                fragment.start().to_vec(),
                fragment.end().to_vec(),
                fragment.sequences().to_vec(),
            ));
            Ok(())
        }
    }

    /// Gives one piece of the index of a table with `turns` range deletes its content from before
    /// one of them.
    fn went_back(turns: u64, piece: usize, old: &[u8], note: &str) {
        let table = keys_only();
        (0..turns).for_each(|turn| delete(&table, turn));
        let mut injector = open_injector(&table);
        let number = pieces_of_index(&injector)[piece];
        injector.overwrite(number, old);
        drop(injector);
        read_everything(&table, turns, note);
        assert!(
            table.scrub(|_| {}).check().is_err(),
            "{note}: scrub is silent"
        );
        let frozen = table.freeze().unwrap();
        read_everything(&table, turns, &format!("{note}, frozen"));
        assert!(
            frozen.scrub(|_| {}).check().is_err(),
            "{note}: scrub of the frozen table is silent"
        );
        // The flush is refused, or the freeze has noticed that the index lacks something, and the
        // list answers.
        let twin = keys_only();
        (0..turns).for_each(|turn| delete(&twin, turn));
        let (mut flushed, mut wanted) = (Kept::default(), Kept::default());
        twin.freeze()
            .unwrap()
            .flush(Versions::SeenBy(&[]), &mut wanted)
            .unwrap();
        match frozen.flush(Versions::SeenBy(&[]), &mut flushed) {
            Err(Error::Corruption(_)) => {}
            Ok(_) => assert_eq!(flushed, wanted, "{note}"),
            Err(error) => panic!("{note}: flush says {error}"),
        }
    }

    #[test]
    fn a_tombstone_index_that_lost_a_write_hides_nothing() {
        let _watchdog = Watchdog::new("spans::lost_tombstones::", 9);
        let turns = 20;
        let (table, mut history) = (keys_only(), Vec::new());
        for turn in 0..turns {
            history.push(bytes_of_index(&table));
            delete(&table, turn);
        }
        let now = bytes_of_index(&table);
        read_everything(&table, turns, "undamaged");
        assert!(table.scrub(|_| {}).check().is_ok());
        let mut tried = 0;
        for (turn, before) in history.iter().enumerate() {
            for (piece, (old, new)) in before.iter().zip(&now).enumerate() {
                if old != new {
                    went_back(
                        turns,
                        piece,
                        old,
                        &format!("piece {piece} as before range delete {turn}"),
                    );
                    tried += 1;
                }
            }
        }
        assert!(tried > 100, "{tried}");
        let frozen = table.freeze().unwrap();
        frozen
            .flush(Versions::SeenBy(&[]), &mut Kept::default())
            .unwrap();
    }

    /// Gets all keys after piece number `turn` of the list was damaged. Only keys at the bounds of
    /// the damaged tombstone may return `Corruption`.
    fn read_past_damage(table: &MemTable, turn: Option<usize>, bounds: &[u64]) {
        for number in 0..KEYS {
            let covers = |range: &(u64, u64, u64)| (range.0..range.1).contains(&number);
            let newest = (0..20).map(range).filter(covers).map(|range| range.2).max();
            match table.get(key(number), u64::MAX) {
                Ok(Lookup::Deleted { sequence, .. }) => {
                    assert_eq!(Some(sequence), newest, "{turn:?}: key {number}")
                }
                Ok(_) => assert_eq!(newest, None, "{turn:?}: key {number}"),
                Err(Error::Corruption(_)) if bounds.contains(&number) => {}
                Err(error) => panic!("{turn:?}: key {number}: {error}"),
            }
        }
    }

    /// A freeze compares the index with the list. Damage of the list does not make the index
    /// suspect: it affects a get only if a key must be compared with a bound of the damaged
    /// tombstone itself, before the freeze and after it.
    #[test]
    fn a_damaged_list_leaves_the_index_of_a_frozen_table() {
        let _watchdog = Watchdog::new(
            "spans::lost_tombstones::a_damaged_list_leaves_the_index_of_a_frozen_table",
            9,
        );
        let is_entry = |region| {
            matches!(
                region,
                Region::Header | Region::Key | Region::Value | Region::Digests
            )
        };
        let of_list = |injector: &FaultInjector<'_>| {
            let pieces = injector.pieces().iter().enumerate();
            let wanted =
                pieces.filter(|(_, piece)| piece.part == Part::Ranges && is_entry(piece.region));
            wanted.map(|(number, _)| number).collect::<Vec<_>>()
        };
        let damaged = |turn: Option<usize>| {
            let table = keys_only();
            (0..20).for_each(|turn| delete(&table, turn));
            let mut injector = open_injector(&table);
            let pieces = of_list(&injector);
            let bounds = turn.map_or(Vec::new(), |turn| {
                let owner = injector.pieces()[pieces[turn]].owner.as_ref();
                let sequence = owner.expect("an entry").sequence;
                let hit = (0..20).map(range).find(|range| range.2 == sequence);
                hit.map_or(Vec::new(), |(start, end, _)| vec![start, end])
            });
            turn.iter().for_each(|turn| injector.flip(pieces[*turn], 3));
            drop(injector);
            read_past_damage(&table, turn, &bounds);
            let _ = table.freeze();
            read_past_damage(&table, turn, &bounds);
            pieces.len()
        };
        let pieces = damaged(None);
        assert!(pieces >= 60, "{pieces}");
        (0..pieces).for_each(|turn| _ = damaged(Some(turn)));
    }

    /// Indexes of the pieces that hold the starts of range tombstones.
    fn starts_of_ranges(injector: &FaultInjector<'_>) -> Vec<usize> {
        let pieces = injector.pieces().iter().enumerate();
        let wanted =
            pieces.filter(|(_, piece)| piece.region == Region::Key && piece.part == Part::Ranges);
        wanted.map(|(number, _)| number).collect()
    }

    /// Overwrites the start of a range tombstone, and the memory after it, by a copy of another
    /// one's. Then come more range deletes, and the freeze.
    fn copied_start(protection: u8, [from, to, len]: [usize; 3]) {
        let options = MemTableOptions::builder()
            .seed(2)
            .protection_bytes(protection)
            .build()
            .unwrap();
        let table = MemTable::new(options).unwrap();
        let delete = |sequence, start| table.delete_range(sequence, key(start), key(12));
        for (sequence, start) in (100..).zip([1, 3, 3, 8]) {
            delete(sequence, start).unwrap();
        }
        let mut injector = open_injector(&table);
        let starts = starts_of_ranges(&injector);
        let intact = injector.bytes(starts[to]);
        injector.copy(starts[from], starts[to], len);
        let changed = injector.bytes(starts[to]) != intact;
        drop(injector);
        for (sequence, start) in (200..).zip([6, 8]) {
            let _ = delete(sequence, start);
        }
        let _ = table.freeze();
        let frozen = table.immutable().expect("writing has ended");
        let _ = frozen.flush(Versions::SeenBy(&[]), &mut Kept::default());
        let damaged = !frozen.scrub(|_| {}).findings.is_empty();
        assert!(
            damaged || protection == 0 || !changed,
            "{len} bytes from {from} over {to}"
        );
    }

    /// The freeze ends, with any content of the list. Without protection bytes it cannot know that
    /// the list is wrong.
    #[test]
    fn a_freeze_ends_over_a_copied_start() {
        let _watchdog = Watchdog::new(
            "spans::lost_tombstones::a_freeze_ends_over_a_copied_start",
            2,
        );
        for protection in [0, 8] {
            for from in 0..4 {
                for to in 0..4 {
                    [16, 48, 96]
                        .into_iter()
                        .for_each(|len| copied_start(protection, [from, to, len]));
                }
            }
        }
    }
}

/// Damage in watched range tombstones, with which writers compare their keys: each byte of each,
/// and of the slots that name them. Every read is right, before and after later writes.
#[cfg(feature = "fault-injection")]
mod watched_tombstones {
    use std::ops::Range;

    use paranoid_memtable::fault::{FaultInjector, Part, Piece, Region};
    use paranoid_memtable::{Error, Lookup, MemTable, MemTableOptions};

    use super::{Rng, seeds};
    use crate::support::rng::{Watchdog, amount};

    /// Number of intervals of three keys each, with a key between two of them. A tombstone covers
    /// one interval, so that a scan may jump over it.
    const INTERVALS: u64 = 8;
    const KEYS: u64 = 4 * INTERVALS;

    fn key(number: u64) -> [u8; 4] {
        u32::try_from(number).unwrap().to_be_bytes()
    }

    /// A write: of a key, or of a range.
    #[derive(Debug, Clone)]
    enum Write {
        Put(u64),
        Delete(Range<u64>),
    }

    /// A history: each write has a sequence number, and is made by one of two writers.
    struct History(Vec<(u64, Write, usize)>);

    impl History {
        /// Draws `deletes` range deletes. Each has an older put under it and mostly a newer one.
        /// Between them both writers put elsewhere, so that their shards know the tombstone;
        /// sometimes one does not. Numbers ascend, but some puts have those of a later time.
        fn draw(rng: &mut Rng, deletes: u64) -> Self {
            let mut writes = Vec::new();
            for turn in 0..deletes {
                let interval = turn % INTERVALS * 4;
                let mut write = |write, writer| writes.push((write, writer));
                write(Write::Put(interval), rng.below(2));
                write(Write::Delete(interval..interval + 3), rng.below(2));
                write(Write::Put(3 + 4 * rng.below(INTERVALS)), 0);
                (rng.below(4) > 0).then(|| write(Write::Put(3 + 4 * rng.below(INTERVALS)), 1));
                (rng.below(3) > 0).then(|| write(Write::Put(interval + 2), rng.below(2)));
            }
            let numbered = writes.into_iter().zip(1..).map(|((write, writer), step)| {
                let is_early = matches!(write, Write::Put(_)) && rng.below(60) == 0;
                (
                    if is_early {
                        4 * (step + 15) + 1
                    } else {
                        4 * step
                    },
                    write,
                    writer as usize,
                )
            });
            History(numbered.collect())
        }

        /// Makes a write. A range delete beside a damaged one may be refused, and then changes
        /// nothing.
        fn apply(&self, at: usize, writers: &mut [paranoid_memtable::Writer]) -> bool {
            let (sequence, write, writer) = &self.0[at];
            let writer = &mut writers[*writer];
            match write {
                Write::Put(number) => {
                    writer.put(*sequence, key(*number), b"value").unwrap();
                }
                Write::Delete(range) => {
                    let deleted = writer.delete_range(*sequence, key(range.start), key(range.end));
                    match deleted {
                        Err(error) if error.corruption().is_some() => return false,
                        deleted => drop(deleted.unwrap()),
                    }
                }
            }
            true
        }

        /// The entry of a key that a snapshot sees after `count` writes.
        fn visible(&self, count: usize, number: u64, snapshot: u64) -> Option<u64> {
            let seen = || {
                self.0[..count]
                    .iter()
                    .filter(|(sequence, ..)| *sequence <= snapshot)
            };
            let puts =
                seen().filter(|(_, write, _)| matches!(write, Write::Put(put) if *put == number));
            let covers =
                |write: &Write| matches!(write, Write::Delete(range) if range.contains(&number));
            let newest = puts.map(|(sequence, ..)| *sequence).max()?;
            (!seen().any(|(sequence, write, _)| *sequence > newest && covers(write)))
                .then_some(newest)
        }

        /// Compares gets, and scans both ways, at each snapshot. Reads may be refused if a
        /// tombstone is damaged.
        fn compare(&self, table: &MemTable, count: usize, damaged: Region, note: &str) {
            let is_refused =
                |error: &Error| damaged != Region::WatchedTombstone && error.corruption().is_some();
            for snapshot in (0..self.0.len() as u64)
                .step_by(7)
                .map(|step| 4 * step + 2)
                .chain([u64::MAX])
            {
                let rows = (0..KEYS)
                    .filter_map(|number| Some((number, self.visible(count, number, snapshot)?)));
                let rows: Vec<([u8; 4], u64)> = rows
                    .map(|(number, sequence)| (key(number), sequence))
                    .collect();
                let of = |entry: Result<paranoid_memtable::Entry<'_>, Error>| {
                    let entry = entry?;
                    Ok((entry.user_key().try_into().unwrap(), entry.sequence()))
                };
                let compare = |found: Result<Vec<_>, Error>, way: &str| {
                    if !found.as_ref().is_err_and(is_refused) {
                        assert_eq!(found.unwrap(), rows, "{note}: {way} at {snapshot}");
                    }
                };
                compare(table.range_at(.., snapshot).map(of).collect(), "forward");
                let back: Result<Vec<_>, Error> =
                    table.range_at(.., snapshot).rev().map(of).collect();
                let back = back.map(|mut back| {
                    back.reverse();
                    back
                });
                compare(back, "back");
                for number in 0..KEYS {
                    let found = table.get(key(number), snapshot);
                    if !found.as_ref().is_err_and(is_refused) {
                        let is_there = matches!(found.unwrap(), Lookup::Value(_));
                        let wanted = rows.iter().any(|(row, _)| *row == key(number));
                        assert_eq!(is_there, wanted, "{note}: key {number} at {snapshot}");
                    }
                }
            }
        }
    }

    /// Whether writers compare keys with this piece, or find a tombstone by it.
    fn is_compared(piece: &Piece) -> bool {
        let is_tombstone = matches!(piece.region, Region::Header | Region::Key | Region::Value);
        piece.region == Region::WatchedTombstone || piece.part == Part::Ranges && is_tombstone
    }

    /// Fills a table, breaks a byte that writers compare with, compares, writes more, and compares
    /// again. Returns the region of each such byte.
    fn trial(seed: u64, byte: usize, mask: u8) -> Vec<Region> {
        let note = format!("PARANOID_SEED={seed}, byte {byte} ^ {mask:#x}");
        let mut rng = Rng(seed);
        let mut history = History::draw(&mut rng, 11);
        let table = MemTable::new(MemTableOptions::builder().seed(seed).build().unwrap()).unwrap();
        let mut writers = [table.writer(), table.writer()];
        let half = history.0.len() / 2 + rng.below(4) as usize;
        (0..half).for_each(|at| assert!(history.apply(at, &mut writers), "{note}"));
        #[expect(
            unsafe_code,
            reason = "the fault injector for breaking memory on purpose"
        )]
        // SAFETY: one thread, and nothing borrowed from the table is held across a break.
        let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let pieces = injector.pieces();
        let bytes: Vec<(usize, usize)> = (0..pieces.len())
            .filter(|number| is_compared(&pieces[*number]))
            .flat_map(|number| (0..pieces[number].len()).map(move |at| (number, at)))
            .collect();
        let regions = bytes.iter().map(|(number, _)| pieces[*number].region);
        let regions = regions.collect();
        let (number, at) = bytes[byte % bytes.len()];
        let damaged = match mask {
            0 => Region::WatchedTombstone,
            _ => pieces[number].region,
        };
        for bit in (0..8).filter(|bit| mask >> bit & 1 == 1) {
            injector.flip(number, 8 * at + bit);
        }
        drop(injector);
        history.compare(&table, half, damaged, &note);
        let mut count = half;
        while count < history.0.len() {
            if history.apply(count, &mut writers) {
                count += 1;
            } else {
                assert_ne!(mask, 0, "{note}");
                history.0.remove(count);
            }
            if count.is_multiple_of(4) || count == history.0.len() {
                history.compare(&table, count, damaged, &note);
            }
        }
        regions
    }

    #[test]
    fn every_byte_of_every_copy() {
        let _watchdog = Watchdog::new("spans::watched_tombstones::every_byte_of_every_copy", 0);
        for seed in seeds(amount(16, 14)) {
            let regions = trial(seed, 0, 0);
            assert!(
                regions.len() >= 3 * 40,
                "{} bytes that are compared",
                regions.len()
            );
            for (byte, region) in regions.into_iter().enumerate() {
                // A wrong key gives wrong comparisons, so keys are tried more often.
                let stride = match region {
                    Region::Key | Region::Value => amount(1, 13),
                    _ => amount(3, 97),
                } as usize;
                let masks = (0..8).map(|bit| 1 << bit).chain([0xff]);
                masks.skip(byte % stride).step_by(stride).for_each(|mask| {
                    trial(seed, byte, mask);
                });
            }
        }
    }

    /// A scrub names a slot that is damaged.
    #[test]
    fn a_scrub_reports_a_damaged_slot() {
        let table = MemTable::new(MemTableOptions::builder().seed(3).build().unwrap()).unwrap();
        table.delete_range(5, key(2), key(7)).unwrap();
        #[expect(
            unsafe_code,
            reason = "the fault injector for breaking memory on purpose"
        )]
        // SAFETY: one thread, and nothing borrowed from the table is held across a break.
        let mut injector = unsafe { FaultInjector::open(&table) }.unwrap();
        let is_copy =
            |number: &usize| injector.pieces()[*number].region == Region::WatchedTombstone;
        let copy = (0..injector.pieces().len()).find(is_copy).unwrap();
        for bit in 0..8 * injector.pieces()[copy].len() {
            injector.flip(copy, bit);
            assert_eq!(table.scrub(|_| ()).findings.len(), 1, "bit {bit}");
            injector.undo();
            assert!(table.scrub(|_| ()).check().is_ok());
        }
    }
}
