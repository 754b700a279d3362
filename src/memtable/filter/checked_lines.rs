//! Cache lines of words, each with a control word in another cache line. Parts of filters consist of
//! such lines.
//!
//! ```text
//!   arena   ... | pad | line 0: w0 w1 w2 w3 w4 w5 w6 w7 | line 1 | ... | last | c0 .. c7 | c8 ..
//!
//!   control word   key ^ weight of each word of the line; the weight of 0 is 0
//!   weight         a hash of the word, its place in the line, and the secret
//!   key            made of the control word's place in the arena and the secret; never 0
//!   group          one of 64 equal parts of all hashes; a word of the filter has its bit
//! ```
//! The lines take a stretch of the arena that no entry gets. The arena zeroes and commits it
//! lazily, uses huge pages as it does for entries, and counts, bounds-checks and frees it.
//!
//! * LINES-1: a writer changes a word by a read-modify-write, and then adds the weights of the old
//!   and the new value to the control word. So a line and its control word agree whenever no writer
//!   is between these two steps, and a difference that damage made survives all later writes.
//! * LINES-2: a line is used only if its control word agrees. The two are in different cache lines,
//!   and both change with each write. So a word or a line that went back to an earlier value
//!   disagrees, and so does a flipped, zeroed or copied one.
//! * LINES-3: a line of zeros proves nothing, because damage may have cleared its control word too.
//!   So a writer opens a group before it writes the group's first hash: it gives each line of the
//!   group its key, once, and then sets the group's bit, which has a check. A group without its bit
//!   is unused, and a line that was cleared after it was opened never agrees again.
//!
//! Any thread; lock-free, but for the writes that open groups. Not promised: that a line agrees
//! while it is written; readers of that line search the list meanwhile.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place, Result};
use crate::halves::{high, low, pair};
use crate::integrity::hash::{fold, splitmix};
use crate::integrity::tag::Secret;
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::arena::layout::UNIT;
use crate::memtable::arena::node::bytes_of;
use crate::memtable::options::LINES_BYTES_MIN;
use crate::prefetch::prefetch_read;
use crate::sync::{AtomicU64, Ordering};

/// Words of a line.
pub(crate) const LINE_WORDS: usize = 8;
/// Units of a line: words are as long as units.
const UNITS: u32 = 8;
const _: () = assert!(UNITS as usize == LINE_WORDS && UNIT == 8);
/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = (LINE_WORDS * UNIT) as u64;
/// Number of groups of hashes (LINES-3).
pub(crate) const GROUPS: u64 = u64::BITS as u64;
// The smallest size that options accept holds one line at any alignment.
const _: () = assert!(LINES_BYTES_MIN == PAD_MAX + (1 + 1) * LINE_BYTES);
/// Most bytes of padding before line 0.
const PAD_MAX: u64 = LINE_BYTES - UNIT as u64;
/// How often a scrub reads a line again that disagrees and whose difference changes.
const WAITS_FOR_LINE: u32 = 3;

/// Adjacent lines, and after them their control words. One word names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The first unit of line 0.
    first: u32,
    /// Number of lines.
    count: u32,
}

/// The bit of a hash's group.
#[inline(always)]
pub(crate) const fn group_of(hash: u64) -> u64 {
    1 << (hash >> (u64::BITS - GROUPS.ilog2()))
}

/// The bits of the groups that have hashes in line `index` of `count`.
fn groups_of_line(index: u64, count: u64) -> u64 {
    let (first, last) = (index * GROUPS / count, ((index + 1) * GROUPS - 1) / count);
    (first..=last.min(GROUPS - 1)).fold(0, |groups, group| groups | 1 << group)
}

/// The places of one line and its control word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    /// The first unit of the line.
    first: u32,
    /// The unit of its control word.
    control: u32,
}

/// The weight of a word at a place in its line; 0 has the weight 0. Each place has its own
/// multiplier, so that equal changes of two words do not cancel each other.
#[inline(always)]
const fn weight(secret: Secret, place: usize, word: u64) -> u64 {
    /// Even numbers; the secret's factor is odd, so their XOR is never 0.
    const MULTIPLIERS: [u64; LINE_WORDS] = {
        let mut multipliers = [0; LINE_WORDS];
        let mut place = 0;
        while place < LINE_WORDS {
            multipliers[place] = splitmix(220 + place as u64) & !1;
            place += 1;
        }
        multipliers
    };
    if word == 0 {
        0
    } else {
        fold(word ^ secret.mask, secret.factor ^ MULTIPLIERS[place])
    }
}

/// The sum of the weights of a line's words.
#[inline(always)]
fn sum(secret: Secret, words: &[u64; LINE_WORDS]) -> u64 {
    let mut sum = 0;
    for (place, word) in words.iter().enumerate() {
        sum ^= weight(secret, place, *word);
    }
    sum
}

impl Lines {
    /// Number of lines that take at most `bytes`, with their control words and padding.
    pub(crate) const fn count_in(bytes: u64) -> u64 {
        let room = (bytes - PAD_MAX) / LINE_BYTES;
        // Eight lines need one line of control words.
        room - room.div_ceil(LINE_WORDS as u64 + 1)
    }

    /// Takes `count` lines and their control words from the arena. No group is open.
    pub(crate) fn carve(arena: &Arena, count: u64) -> Result<Self> {
        let units = (count + control_lines(count)) * u64::from(UNITS) + PAD_MAX / UNIT as u64;
        let reservation = arena.carve_alone(units)?;
        let view = arena.view()?;
        let (address, _) = view.locate(reservation.start()).ok_or_else(lost)?;
        let pad = address.wrapping_neg() % (LINE_WORDS * UNIT) / UNIT;
        let narrow = |number: u64| u32::try_from(number).map_err(|_| lost());
        Ok(Lines {
            first: narrow(u64::from(reservation.start()) + pad as u64)?,
            count: narrow(count)?,
        })
    }

    /// The word that names these lines; never 0.
    pub(crate) const fn word(self) -> u64 {
        pair(self.count, self.first)
    }

    /// The lines that a word names. A damaged word names any lines; the arena checks their bounds.
    #[inline(always)]
    pub(crate) const fn of_word(word: u64) -> Lines {
        Lines {
            first: low(word),
            count: high(word),
        }
    }

    /// Gives the lines of a group their keys, except those that an open group has too (LINES-3).
    /// The caller then sets the group's bit.
    pub(crate) fn give_keys(
        self,
        view: &View<'_>,
        open: u64,
        group: u64,
    ) -> Result<(), Corruption> {
        let (number, count) = (u64::from(group.trailing_zeros()), self.count());
        let (first, last) = (number * count / GROUPS, ((number + 1) * count - 1) / GROUPS);
        for index in first..=last {
            // The first and the last line may belong to an open group too.
            if first < index && index < last || groups_of_line(index, count) & open == 0 {
                self.line(index).give_key(view)?;
            }
        }
        Ok(())
    }

    /// Gives every line its key, before any group is open. The caller then sets all bits.
    pub(crate) fn give_all_keys(self, view: &View<'_>) -> Result<(), Corruption> {
        (0..self.count()).try_for_each(|index| self.line(index).give_key(view))
    }

    /// The index of the line of a hash: the high bits choose it.
    #[inline(always)]
    pub(crate) const fn index_of(self, hash: u64) -> u64 {
        ((hash as u128 * self.count as u128) >> 64) as u64
    }

    /// The line of a hash.
    #[inline(always)]
    pub(crate) const fn pick(self, hash: u64) -> Line {
        self.line(self.index_of(hash))
    }

    /// Number of lines.
    pub(crate) fn count(self) -> u64 {
        u64::from(self.count)
    }

    /// Line `index`, counted from 0. The lines may be damaged, so the arithmetic wraps; the arena
    /// checks the bounds.
    #[expect(clippy::cast_possible_truncation, reason = "it wraps")]
    #[inline(always)]
    pub(crate) const fn line(self, index: u64) -> Line {
        let controls = self.first.wrapping_add(self.count.wrapping_mul(UNITS));
        Line {
            first: self.first.wrapping_add((index as u32).wrapping_mul(UNITS)),
            control: controls.wrapping_add(index as u32),
        }
    }

    /// Verifies each line, and reports a control word that disagrees. A line disagrees while a
    /// writer is between its two steps (LINES-1), so the scrub waits for the writers at work.
    /// `are_unused` says whether none of these groups is open. O(lines).
    pub(crate) fn scrub(
        self,
        view: &View<'_>,
        are_unused: &dyn Fn(u64) -> bool,
        wait_out_writers: &mut dyn FnMut(),
        report: &mut dyn FnMut(Corruption),
    ) -> Result<(), Corruption> {
        let count = self.count();
        for index in 0..count {
            let line = self.line(index);
            let unused = || are_unused(groups_of_line(index, count)) && line.is_clear(view);
            let difference = || line.damage(view).filter(|_| !unused());
            let mut found = difference();
            for _ in 0..WAITS_FOR_LINE {
                let Some(before) = found else { break };
                wait_out_writers();
                found = difference();
                // All writers that were between their steps have finished, so a difference that has
                // not changed is damage.
                if found == Some(before) {
                    report(before);
                    break;
                }
            }
        }
        // The last line of control words has some that belong to no line.
        for index in count..control_lines(count) * LINE_WORDS as u64 {
            let control = self.line(index).control;
            // ORDERING: Relaxed: no thread writes there.
            let found = view.word(control).ok_or_else(lost)?.load(Ordering::Relaxed);
            if found != 0 {
                report(Corruption::of_word(
                    Place::Filter,
                    bytes_of(control),
                    0,
                    found,
                ));
            }
        }
        Ok(())
    }

    /// Every word, line by line, and then every control word, for tests and the fault injector.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn every_word<'a>(self, view: &View<'a>) -> Result<Vec<&'a AtomicU64>, Corruption> {
        let (count, mut words) = (self.count(), Vec::new());
        for index in 0..count {
            for place in 0..LINE_WORDS {
                words.push(self.line(index).word(view, place).ok_or_else(lost)?);
            }
        }
        for index in 0..control_lines(count) * LINE_WORDS as u64 {
            words.push(view.word(self.line(index).control).ok_or_else(lost)?);
        }
        Ok(words)
    }
}

/// Number of lines that the control words of `count` lines take.
const fn control_lines(count: u64) -> u64 {
    count.div_ceil(LINE_WORDS as u64)
}

impl Line {
    /// The unit of the word at `place`.
    #[expect(clippy::cast_possible_truncation, reason = "a place is below 8")]
    #[inline(always)]
    const fn unit(self, place: usize) -> u32 {
        self.first.wrapping_add(place as u32)
    }

    /// The word at `place`. A caller that changes the word must then call
    /// [`account`](Self::account).
    #[inline(always)]
    pub(crate) fn word<'a>(self, view: &View<'a>, place: usize) -> Option<&'a AtomicU64> {
        view.word(self.unit(place))
    }

    /// All words.
    #[inline(always)]
    #[cfg(not(loom))]
    fn words<'a>(self, view: &View<'a>) -> Option<&'a [AtomicU64; LINE_WORDS]> {
        view.words(self.first)
    }

    /// All words, each an atomic of loom.
    #[cfg(loom)]
    fn words<'a>(self, view: &View<'a>) -> Option<[&'a AtomicU64; LINE_WORDS]> {
        let words: Option<Vec<_>> = (0..LINE_WORDS)
            .map(|place| self.word(view, place))
            .collect();
        words?.try_into().ok()
    }

    /// The words and the control word.
    #[inline(always)]
    fn load(self, view: &View<'_>) -> Option<([u64; LINE_WORDS], u64)> {
        let words = self.words(view)?;
        // ORDERING: Relaxed: a reader that knows of an entry reads after its publication, see
        // `Filter::add`.
        let words = std::array::from_fn(|place| words[place].load(Ordering::Relaxed));
        // ORDERING: Relaxed: the caller only asks whether the control word agrees with the words
        // that were read.
        Some((words, view.word(self.control)?.load(Ordering::Relaxed)))
    }

    /// The key of an open line. It depends on the control word's place, so a line that was copied
    /// together with its control word does not agree.
    #[inline(always)]
    fn key(self, view: &View<'_>) -> u64 {
        view.secret.mask ^ u64::from(self.control)
    }

    /// Adds the key to the control word, once.
    fn give_key(self, view: &View<'_>) -> Result<(), Corruption> {
        // ORDERING: Relaxed: published by the bit of the group, or with the part.
        view.word(self.control)
            .ok_or_else(lost)?
            .fetch_xor(self.key(view), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the words and the control word are 0.
    fn is_clear(self, view: &View<'_>) -> bool {
        self.load(view) == Some(([0; LINE_WORDS], 0))
    }

    /// The words, if the control word agrees (LINES-2).
    #[inline(always)]
    pub(crate) fn read(self, view: &View<'_>) -> Option<[u64; LINE_WORDS]> {
        let (words, control) = self.load(view)?;
        let agrees = sum(view.secret, &words) ^ self.key(view) == control;
        agrees.then_some(words)
    }

    /// Adds a change of the word at `place` to the control word (LINES-1). `None` if the arena has
    /// no such place.
    #[inline(always)]
    pub(crate) fn account(self, view: &View<'_>, place: usize, from: u64, to: u64) -> Option<()> {
        let taken = weight(view.secret, place, from);
        // ORDERING: Relaxed: see `load`.
        view.word(self.control)?
            .fetch_xor(taken ^ weight(view.secret, place, to), Ordering::Relaxed);
        Some(())
    }

    /// The report of a line whose control word disagrees. It names the one flipped bit that
    /// explains the difference, if there is one.
    fn damage(self, view: &View<'_>) -> Option<Corruption> {
        let (words, control) = self.load(view)?;
        let sum = sum(view.secret, &words) ^ self.key(view);
        let difference = sum ^ control;
        if difference == 0 {
            return None;
        }
        for (at, word) in words.into_iter().enumerate() {
            let flipped = |bit: &u32| {
                let before = weight(view.secret, at, word ^ 1 << bit);
                weight(view.secret, at, word) ^ before == difference
            };
            if let Some(bit) = (0..u64::BITS).find(flipped) {
                let offset = bytes_of(self.unit(at));
                return Some(Corruption::of_word(
                    Place::Filter,
                    offset,
                    word ^ 1 << bit,
                    word,
                ));
            }
        }
        let at = if difference.is_power_of_two() {
            self.control
        } else {
            self.first
        };
        Some(Corruption::of_word(
            Place::Filter,
            bytes_of(at),
            sum,
            control,
        ))
    }

    /// Prefetches the line and its control word.
    #[inline(always)]
    pub(crate) fn prefetch(self, view: &View<'_>) {
        for unit in [self.first, self.control] {
            prefetch_read(std::ptr::without_provenance(view.likely_address(unit)));
        }
    }
}

/// The report of a line that the arena does not have: its control words were damaged.
#[cold]
pub(crate) fn lost() -> Corruption {
    Corruption::new(Place::Control, 0, 0, 0)
}

/// Tests of lines and control words that go back to earlier values.
#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use crate::integrity::digest::Width;
    use crate::memtable::filter::checked_lines::*;

    const LINE_COUNT: usize = 9;
    const LINES: u64 = LINE_COUNT as u64;
    const STEPS: u64 = 240;

    fn arena(seed: u64) -> Arena {
        let (width, secret) = (Width::new(8).unwrap(), Secret::from_seed(seed));
        Arena::new(1 << 20, 1 << 24, width, secret)
    }

    /// Lines, and every value that each of their cache lines had after an atomic step.
    struct Life<'a> {
        lines: Lines,
        view: View<'a>,
        /// The cache lines of words, and then those of control words.
        stretches: Vec<Vec<&'a AtomicU64>>,
        history: Vec<Vec<Vec<u64>>>,
    }

    impl<'a> Life<'a> {
        fn new(arena: &'a Arena) -> Self {
            let bytes = PAD_MAX + (LINES + control_lines(LINES)) * LINE_BYTES;
            let (lines, view) = (
                Lines::carve(arena, Lines::count_in(bytes)).unwrap(),
                arena.view().unwrap(),
            );
            assert_eq!(lines.count(), LINES);
            let open = |open: u64, group: u64| {
                lines.give_keys(&view, open, 1 << group).unwrap();
                open | 1 << group
            };
            (0..GROUPS).fold(0, open);
            let mut stretches: Vec<Vec<&AtomicU64>> = Vec::new();
            for word in lines.every_word(&view).unwrap() {
                let line = |word: &AtomicU64| std::ptr::from_ref(word).addr() / 64;
                match stretches
                    .last_mut()
                    .filter(|last| line(last[0]) == line(word))
                {
                    Some(last) => last.push(word),
                    None => stretches.push(vec![word]),
                }
            }
            let history = vec![Vec::new(); stretches.len()];
            let mut life = Life {
                lines,
                view,
                stretches,
                history,
            };
            life.record();
            life
        }

        fn record(&mut self) {
            for (stretch, history) in self.stretches.iter().zip(&mut self.history) {
                // ORDERING: Relaxed: one thread.
                let now: Vec<u64> = stretch
                    .iter()
                    .map(|word| word.load(Ordering::Relaxed))
                    .collect();
                if history.last() != Some(&now) {
                    history.push(now);
                }
            }
        }

        /// Changes a word: replaces it at an even place, and adds a bit at an odd place.
        fn change(&mut self, random: u64) {
            let (line, place) = (
                self.lines.line(random % LINES),
                (random >> 8) as usize % LINE_WORDS,
            );
            let (from, to) = step(line.word(&self.view, place).unwrap(), place, random);
            self.record();
            line.account(&self.view, place, from, to).unwrap();
            self.record();
        }

        /// Writes one word and its account, and does not record them in the history.
        fn write(&self, line: u64, place: usize, random: u64) {
            let line = self.lines.line(line);
            let (from, to) = step(line.word(&self.view, place).unwrap(), place, random);
            line.account(&self.view, place, from, to).unwrap();
        }

        /// Whether the control word of each line agrees.
        fn believed(&self) -> Vec<bool> {
            let believed = |index| {
                let line = self.lines.line(index);
                // ORDERING: Relaxed: one thread.
                line.read(&self.view).is_some()
            };
            (0..LINES).map(believed).collect()
        }

        fn findings(&self) -> usize {
            let mut found = 0;
            let mut report = |_| found += 1;
            self.lines
                .scrub(&self.view, &|_| false, &mut || (), &mut report)
                .unwrap();
            found
        }

        /// The lines that have a word or a control word at these places of a cache line.
        fn lines_at(&self, stretch: usize, places: &[usize]) -> Vec<usize> {
            match stretch.checked_sub(LINE_COUNT) {
                None => vec![stretch],
                Some(controls) => places
                    .iter()
                    .map(|place| controls * LINE_WORDS + place)
                    .collect(),
            }
        }
    }

    fn step(word: &AtomicU64, place: usize, random: u64) -> (u64, u64) {
        // ORDERING: Relaxed: one thread.
        let from = word.load(Ordering::Relaxed);
        let to = if place.is_multiple_of(2) {
            splitmix(random)
        } else {
            from | 1 << ((random >> 16) % 64)
        };
        // ORDERING: Relaxed: one thread.
        word.store(to, Ordering::Relaxed);
        (from, to)
    }

    /// Each word and each cache line goes back to each value that it had. A line that differs then
    /// disagrees, a scrub reports it, and later writes do not hide it.
    #[test]
    fn a_line_that_goes_back_to_an_earlier_value_disagrees() {
        for seed in 1..4 {
            let arena = arena(seed);
            let mut life = Life::new(&arena);
            let mut tried = 0;
            for step in 0..STEPS {
                assert!(
                    (life.believed(), life.findings()) == (vec![true; LINE_COUNT], 0),
                    "{seed} {step}"
                );
                life.change(splitmix(seed << 32 | step));
                if step % 60 == 59 {
                    tried += go_back(&life);
                }
            }
            assert!(tried > 2000, "{tried}");
        }
    }

    /// The places of words that go back, and their earlier values.
    type Case = Vec<(usize, u64)>;

    fn cases(history: &[Vec<u64>]) -> Vec<Case> {
        let whole = history
            .iter()
            .map(|old| old.iter().copied().enumerate().collect());
        let single = history
            .iter()
            .flat_map(|old| old.iter().copied().enumerate().map(|word| vec![word]));
        let mut cases: Vec<Case> = whole.chain(single).collect();
        cases.sort_unstable();
        cases.dedup();
        cases
    }

    fn go_back(life: &Life<'_>) -> usize {
        let mut tried = 0;
        // ORDERING: Relaxed: one thread.
        let load = |words: &[&AtomicU64]| {
            words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect()
        };
        // ORDERING: Relaxed: one thread.
        let store = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        let now: Vec<Vec<u64>> = life.stretches.iter().map(|words| load(words)).collect();
        for (stretch, history) in life.history.iter().enumerate() {
            for case in cases(history) {
                let changes = |(place, old): &&(usize, u64)| now[stretch][*place] != *old;
                let differs: Vec<usize> = case
                    .iter()
                    .filter(changes)
                    .map(|(place, _)| *place)
                    .collect();
                if differs.is_empty() {
                    continue;
                }
                for (place, old) in &case {
                    store(life.stretches[stretch][*place], *old);
                }
                let broken = life.lines_at(stretch, &differs);
                let expected: Vec<bool> = (0..LINE_COUNT)
                    .map(|line| !broken.contains(&line))
                    .collect();
                assert_eq!(
                    life.believed(),
                    expected,
                    "cache line {stretch}, words {differs:?}"
                );
                assert_eq!(life.findings(), broken.len());
                for line in &broken {
                    (0..LINE_WORDS).for_each(|place| life.write(*line as u64, place, tried as u64));
                }
                assert_eq!(
                    life.believed(),
                    expected,
                    "cache line {stretch}, words {differs:?}, written again"
                );
                tried += 1;
                for (word, old) in life.stretches.iter().flatten().zip(now.iter().flatten()) {
                    store(word, *old);
                }
            }
        }
        tried
    }
}
