//! Lines and control words that go back to earlier values.

#![forbid(unsafe_code)]
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use crate::integrity::digest::Width;
use crate::memtable::lookup::lines::*;
use crate::memtable::skiplist::arena::ArenaOptions;

const LINE_COUNT: usize = 9;
const LINES: u64 = LINE_COUNT as u64;
const STEPS: u64 = 240;
const NAME: u64 = 5;

fn salt(view: &View<'_>) -> Salt {
    Salt::new(view.secret, NAME)
}

fn arena(seed: u64) -> Arena {
    let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(seed));
    Arena::new(&ArenaOptions { write_buffer_size: 1 << 20, hard_limit: 1 << 24, width, secret }).unwrap()
}

/// Lines, and every value that each of their cache lines held, noted after each atomic step.
struct Life<'a> {
    lines: Lines,
    view: View<'a>,
    /// Cache lines: those of words, then those of control words.
    stretches: Vec<Vec<&'a AtomicU64>>,
    history: Vec<Vec<Vec<u64>>>,
}

impl<'a> Life<'a> {
    fn new(arena: &'a Arena) -> Self {
        let bytes = PAD_MAX + (LINES + GAP + control_lines(LINES)) * LINE_BYTES;
        let (lines, view) =
            (Lines::carve(arena, &mut SubChunk::default(), bytes, NAME).unwrap(), arena.view().unwrap());
        assert_eq!(lines.count(salt(&view)), Ok(LINES));
        let mut stretches: Vec<Vec<&AtomicU64>> = Vec::new();
        for word in lines.every_word(&view, salt(&view)) {
            let line = |word: &AtomicU64| std::ptr::from_ref(word).addr() / 64;
            match stretches.last_mut().filter(|last| line(last[0]) == line(word)) {
                Some(last) => last.push(word),
                None => stretches.push(vec![word]),
            }
        }
        let history = vec![Vec::new(); stretches.len()];
        let mut life = Life { lines, view, stretches, history };
        life.record();
        life
    }

    fn record(&mut self) {
        for (stretch, history) in self.stretches.iter().zip(&mut self.history) {
            // ORDERING: Relaxed: one thread.
            let now: Vec<u64> = stretch.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            if history.last() != Some(&now) {
                history.push(now);
            }
        }
    }

    /// A change of a word as an index makes it (an exchange) or as a filter does (bits are added).
    fn change(&mut self, random: u64) {
        let (line, place) =
            (self.lines.line(salt(&self.view), random % LINES).unwrap(), (random >> 8) as usize % LINE_WORDS);
        let (from, to) = step(line.word(&self.view, place).unwrap(), place, random);
        self.record();
        line.account(&self.view, place, from, to).unwrap();
        self.record();
    }

    /// Writes one word and its account, without noting it in the history.
    fn write(&self, line: u64, place: usize, random: u64) {
        let line = self.lines.line(salt(&self.view), line).unwrap();
        let (from, to) = step(line.word(&self.view, place).unwrap(), place, random);
        line.account(&self.view, place, from, to).unwrap();
    }

    /// The lines whose control word agrees.
    fn believed(&self) -> Vec<bool> {
        let believed = |index| {
            let line = self.lines.line(salt(&self.view), index).unwrap();
            // ORDERING: Relaxed: one thread.
            line.read(&self.view).is_some()
        };
        (0..LINES).map(believed).collect()
    }

    fn findings(&self) -> usize {
        let mut found = 0;
        let mut report = |_| found += 1;
        self.lines.scrub(&self.view, salt(&self.view), &mut || (), &mut report).unwrap();
        found
    }

    /// The lines with words, or a control word, at these places of a cache line.
    fn lines_at(&self, stretch: usize, places: &[usize]) -> Vec<usize> {
        match stretch.checked_sub(LINE_COUNT) {
            None => vec![stretch],
            Some(controls) => places.iter().map(|place| controls * LINE_WORDS + place).collect(),
        }
    }
}

fn step(word: &AtomicU64, place: usize, random: u64) -> (u64, u64) {
    // ORDERING: Relaxed: one thread.
    let from = word.load(Ordering::Relaxed);
    let to = if place.is_multiple_of(2) { splitmix(random) } else { from | 1 << ((random >> 16) % 64) };
    // ORDERING: Relaxed: one thread.
    word.store(to, Ordering::Relaxed);
    (from, to)
}

/// Each word and each cache line goes back to each value that it held. A line that differs is not believed, a scrub
/// reports it, and later writes do not hide it.
#[test]
fn whatever_goes_back_to_an_earlier_value_is_not_believed_again() {
    for seed in 1..4 {
        let arena = arena(seed);
        let mut life = Life::new(&arena);
        let mut tried = 0;
        for step in 0..STEPS {
            assert!((life.believed(), life.findings()) == (vec![true; LINE_COUNT], 0), "{seed} {step}");
            life.change(splitmix(seed << 32 | step));
            if step % 60 == 59 {
                tried += go_back(&life);
            }
        }
        assert!(tried > 2000, "{tried}");
    }
}

/// The words of a cache line that go back, and their earlier values.
type Case = Vec<(usize, u64)>;

fn cases(history: &[Vec<u64>]) -> Vec<Case> {
    let whole = history.iter().map(|old| old.iter().copied().enumerate().collect());
    let single = history.iter().flat_map(|old| old.iter().copied().enumerate().map(|word| vec![word]));
    let mut cases: Vec<Case> = whole.chain(single).collect();
    cases.sort_unstable();
    cases.dedup();
    cases
}

fn go_back(life: &Life<'_>) -> usize {
    let mut tried = 0;
    // ORDERING: Relaxed: one thread.
    let load = |words: &[&AtomicU64]| words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    // ORDERING: Relaxed: one thread.
    let store = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
    let now: Vec<Vec<u64>> = life.stretches.iter().map(|words| load(words)).collect();
    for (stretch, history) in life.history.iter().enumerate() {
        for case in cases(history) {
            let changes = |(place, old): &&(usize, u64)| now[stretch][*place] != *old;
            let differs: Vec<usize> = case.iter().filter(changes).map(|(place, _)| *place).collect();
            if differs.is_empty() {
                continue;
            }
            for (place, old) in &case {
                store(life.stretches[stretch][*place], *old);
            }
            let broken = life.lines_at(stretch, &differs);
            let expected: Vec<bool> = (0..LINE_COUNT).map(|line| !broken.contains(&line)).collect();
            assert_eq!(life.believed(), expected, "cache line {stretch}, words {differs:?}");
            assert_eq!(life.findings(), broken.len());
            for line in &broken {
                (0..LINE_WORDS).for_each(|place| life.write(*line as u64, place, tried as u64));
            }
            assert_eq!(life.believed(), expected, "cache line {stretch}, words {differs:?}, written again");
            tried += 1;
            for (word, old) in life.stretches.iter().flatten().zip(now.iter().flatten()) {
                store(word, *old);
            }
        }
    }
    tried
}
