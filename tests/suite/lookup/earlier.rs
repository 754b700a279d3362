//! Words and cache lines of filters that go back to what they held before: a store that never reached
//! memory.
//!
//! A table is filled and overwritten, and after each write every word of filters is recorded. Then each
//! word, and each cache line, goes back to each value that it ever held, one at a time; of several words that one
//! write changed in a line, any part may have arrived. Every read still answers like the oracle, and a scrub reports
//! what happened.

use std::collections::BTreeSet;

use paranoid_memtable::fault::{FaultInjector, Region};
use paranoid_memtable::filter::FixedPrefix;
use paranoid_memtable::integrity::Place;
use paranoid_memtable::{DuplicatePolicy, Kind, MemTable, MemTableOptions};

use super::open_injector;
use super::oracle::{Answer, Oracle, Random, Row, told};

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// The newest snapshot.
const NOW: u64 = u64::MAX;

type Words = Vec<[u8; 8]>;

/// A table, what it should answer, and what its words were.
struct Life {
    table: MemTable,
    oracle: Oracle,
    /// All words of filters, after each write.
    history: Vec<Words>,
    keys: Vec<Vec<u8>>,
    seed: u64,
}

/// The pieces of filters, in the order of their addresses: whole cache lines.
fn beside(injector: &FaultInjector<'_>) -> Vec<usize> {
    let is_beside = |region| region == Region::FilterWord;
    let pieces: Vec<usize> =
        (0..injector.pieces().len()).filter(|n| is_beside(injector.pieces()[*n].region)).collect();
    assert!(pieces.len().is_multiple_of(LINE_WORDS));
    assert!(pieces.iter().enumerate().all(|(n, piece)| injector.place_in_line(*piece) == n % LINE_WORDS));
    pieces
}

fn key_of(n: u64) -> Vec<u8> {
    // A byte of prefix for about three keys.
    vec![b'a' + (n / 3) as u8, b'k', n as u8]
}

impl Life {
    fn new(seed: u64, keys: u64) -> Life {
        let options = MemTableOptions::builder()
            .write_buffer_size(64 << 10)
            .duplicates(DuplicatePolicy::Replace)
            .whole_key_filter(0.008)
            .prefix_filter(FixedPrefix::new(1), 0.008)
            .seed(seed);
        let table = MemTable::new(options.build().unwrap()).unwrap();
        // The last few are never written.
        let keys = (0..keys + 8).map(key_of).collect();
        let mut life = Life { table, oracle: Oracle::default(), history: Vec::new(), keys, seed };
        life.record();
        life
    }

    fn record(&mut self) {
        let injector = open_injector(&self.table);
        let word = |piece: usize| <[u8; 8]>::try_from(injector.bytes(piece)).unwrap();
        let words = beside(&injector).into_iter().map(word).collect();
        drop(injector);
        self.history.push(words);
    }

    /// Writes a version of a key that may be the newest, an older one, or in place of an equal.
    fn write(&mut self, random: &mut Random) {
        let key = self.keys[random.below(self.keys.len() as u64 - 8) as usize].clone();
        let kind = if random.below(6) == 0 { Kind::DELETE } else { Kind::PUT };
        let value = if kind == Kind::PUT { random.next().to_be_bytes().to_vec() } else { Vec::new() };
        let row = Row { key, sequence: 1 + random.below(40), kind, value };
        self.table.insert(row.sequence, row.kind, &row.key, &row.value).unwrap();
        self.oracle.rows.push(row);
        self.record();
    }

    /// The answer for each key, at an old snapshot and at the newest.
    fn expected(&self) -> Vec<(u64, Vec<Answer>)> {
        let at = |snapshot| self.keys.iter().map(|key| self.oracle.get(key, snapshot)).collect();
        [20, NOW].map(|snapshot| (snapshot, at(snapshot))).into()
    }

    fn check(&self, expected: &[(u64, Vec<Answer>)], told_by: &str) {
        for (snapshot, answers) in expected {
            let many = self.table.multi_get(&self.keys, *snapshot);
            for ((key, answer), batched) in self.keys.iter().zip(answers).zip(many) {
                let single = told(self.table.get(key, *snapshot).unwrap()).unwrap();
                assert_eq!(single, *answer, "get {key:?} at {snapshot}; {told_by}");
                let batched = told(batched.unwrap()).unwrap();
                assert_eq!(batched, *answer, "multi_get {key:?} at {snapshot}; {told_by}");
            }
        }
        for start in self.keys.iter().map(|key| key[0]).collect::<BTreeSet<u8>>() {
            let mut cursor = self.table.cursor().with_prefix(&[start]);
            let shown = cursor.first().unwrap().map(|entry| entry.user_key().to_vec());
            let first = self.oracle.rows.iter().map(|row| &row.key).filter(|key| key[0] == start).min();
            assert_eq!(shown.as_ref(), first, "prefix {start}; {told_by}");
        }
    }

    /// Every value that a cache line may have held: as recorded, and with some of the words that one write changed.
    fn lines(&self, first: usize) -> BTreeSet<Words> {
        let mut lines = BTreeSet::new();
        for (before, after) in self.history.iter().zip(&self.history[1..]) {
            let (before, after) = (&before[first..first + LINE_WORDS], &after[first..first + LINE_WORDS]);
            let changed: Vec<usize> = (0..LINE_WORDS).filter(|word| before[*word] != after[*word]).collect();
            for arrived in 0..1u32 << changed.len() {
                let mut line = before.to_vec();
                for (n, word) in changed.iter().enumerate().filter(|(n, _)| arrived >> n & 1 == 1) {
                    let _ = n;
                    line[*word] = after[*word];
                }
                lines.insert(line);
            }
        }
        lines
    }

    /// Lets every word and every line go back to each of its values. Returns how many differed.
    fn go_back(&self, stage: &str) -> usize {
        let expected = self.expected();
        let told_by = format!(
            "seed {}, {stage}; replay: LOOKUP_SEED={} cargo test --all-features --test suite lookup::earlier",
            self.seed, self.seed
        );
        self.check(&expected, &told_by);
        assert!(self.table.scrub(|_| {}).findings.is_empty(), "{told_by}");
        let mut injector = open_injector(&self.table);
        let (pieces, mut tried) = (beside(&injector), 0);
        for first in (0..pieces.len()).step_by(LINE_WORDS) {
            let words =
                |line: &Words| (0..LINE_WORDS).map(|n| vec![(first + n, line[n])]).collect::<Vec<_>>();
            let lines = self.lines(first);
            let single: BTreeSet<Vec<(usize, [u8; 8])>> = lines.iter().flat_map(words).collect();
            let whole = lines.iter().map(|line| (first..).zip(line.iter().copied()).collect());
            for case in single.into_iter().chain(whole) {
                case.iter().for_each(|(word, old)| injector.overwrite(pieces[*word], old));
                if injector.changed().is_empty() {
                    injector.undo();
                    continue;
                }
                tried += 1;
                let told_by =
                    format!("word {} of {}, {} back; {told_by}", case[0].0, pieces.len(), case.len());
                self.check(&expected, &told_by);
                let found = self.table.scrub(|_| {}).findings;
                assert!(found.iter().any(|finding| finding.place == Place::Filter), "{found:?}; {told_by}");
                injector.undo();
            }
        }
        tried
    }
}

/// Young: a few keys. Full: as many as the filters are made for. Overflowed: three times as many.
#[test]
fn whatever_goes_back_to_an_earlier_value_changes_no_answer() {
    let seeds = std::env::var("LOOKUP_SEED").map_or(vec![1, 2, 3], |seed| vec![seed.parse().unwrap()]);
    for seed in seeds {
        for (keys, writes) in [(3, 12), (16, 40), (48, 130)] {
            let (mut life, mut random) = (Life::new(seed, keys), Random(seed));
            for write in 0..writes {
                life.write(&mut random);
                if write + 1 == writes / 2 {
                    life.go_back("half way");
                }
            }
            let tried = life.go_back("mutable");
            life.table.freeze().unwrap();
            assert_eq!(life.go_back("frozen"), tried);
            println!("seed {seed}, {keys} keys: {tried} values that differ");
            assert!(tried > 10, "{tried}");
        }
    }
}
