//! The parts of a filter: runs of lines, each some eight times as long as the one before. A filter
//! of a fixed size has one part.
//!
//! ```text
//!   part 0   ####               keys that were announced first: full
//!   part 1   ################   later keys                      full
//!   part 2   ##..............   new keys: NEWEST names it
//!
//!   control words   NEWEST | name of part 0, 1, .. | open groups of part 0, 1, ..
//!   name            number of the part, number of its lines, first unit
//! ```
//! No key moves: a full part keeps its keys, and readers ask every part. A writer that finds the
//! newest part full makes the next one. It looks at some lines after one of 64 new keys.
//!
//! * PARTS-1: a writer loads NEWEST before it publishes its node, and announces the key in that
//!   part or in one that became the newest later. So a reader that knows of the entry loads the
//!   same name or a later one, and asks each part up to it, the one with the key among them.
//! * PARTS-2: NEWEST and each name have a check. A reader that cannot verify one of them says
//!   nothing about a key, so no damage takes a part out of the filter; a writer or a scrub puts the
//!   word right. While NEWEST changes, it does not verify: a writer then waits for the thread that
//!   sets it.
//!
//! Any thread; lock-free, but for the writes that make the first part or open a group. If the arena
//! has no room for a part, the part before is used on. Not promised: a number of keys for each part.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Result};
use crate::integrity::control_word::{Salt, Words};
use crate::integrity::spare_words::{Key, SpareWords};
use crate::memtable::arena::arena::{Arena, View};
use crate::memtable::filter::checked_lines::{GROUPS, LINE_BYTES, LINE_WORDS, Lines, lost};
use crate::memtable::heals::Heals;
use crate::sync::{Mutex, Ordering};

/// The largest number of parts: enough for the largest write buffer.
pub(crate) const PARTS_MAX: usize = 8;
/// A part has 2^GROWTH times as many lines as the one before.
#[cfg(not(loom))]
const GROWTH: u32 = 3;
#[cfg(loom)]
const GROWTH: u32 = 1;
/// The fewest lines of the first part; the most are 2^GROWTH times as many.
#[cfg(not(loom))]
const FIRST_LINES: u64 = 8;
#[cfg(loom)]
const FIRST_LINES: u64 = 1;
/// Bytes of the write buffer for which the last part but one has bits for a key.
const BYTES_OF_KEY: u64 = 160;
/// All groups of a part with at most so many lines are opened when it is made.
const LINES_AT_ONCE: u64 = 2 * GROUPS;

/// The name of the newest part.
const NEWEST: usize = 0;
/// From here on, the name of each part.
const NAME: usize = NEWEST + 1;
/// From here on, the open groups of each part (LINES-3).
const OPEN: usize = NAME + PARTS_MAX;

/// The parts of one filter.
pub(crate) struct Parts {
    control: SpareWords<{ OPEN + PARTS_MAX }>,
    /// A writer holds this lock while it opens a group.
    opening: Mutex<()>,
    /// A writer holds this lock while it makes a part.
    making: Mutex<Making>,
}

/// What the writer that makes a part knows.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum Making {
    #[default]
    Growing,
    /// The arena had no room for a part.
    Ended,
}

/// A part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) number: usize,
    pub(crate) lines: Lines,
}

/// A name has the part's number above the number of lines.
const NUMBER_AT: u32 = 60;
const _: () = assert!(PARTS_MAX <= 1 << (u64::BITS - NUMBER_AT));

impl Part {
    const fn name(self) -> u64 {
        self.lines.word() | (self.number as u64) << NUMBER_AT
    }

    /// The part with this name; `None` for 0.
    #[inline(always)]
    fn named(name: u64) -> Option<Part> {
        (name != 0).then_some(Part {
            number: (name >> NUMBER_AT) as usize,
            lines: lines_of(name),
        })
    }
}

#[inline(always)]
fn lines_of(name: u64) -> Lines {
    Lines::of_word(name & ((1 << NUMBER_AT) - 1))
}

/// How the parts of a filter grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    /// Lines of part 0.
    first: u64,
    /// Number of parts.
    parts: usize,
    /// A part is full when fewer of 1 024 bits are 0.
    full: u64,
}

impl Growth {
    /// The growth to `bits` bits for a key in a table with this write buffer. `ones` is the share
    /// of a word's bits that a key sets.
    pub(crate) fn new(write_buffer: u64, bits: u64, ones: f64) -> Self {
        let target = write_buffer / (BYTES_OF_KEY * 8) * bits / LINE_BYTES;
        let (mut first, mut parts) = (target, 2);
        while first >= FIRST_LINES << GROWTH {
            (first, parts) = (first >> GROWTH, parts + 1);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 1024"
        )]
        let full = (1024.0 * (-(u64::BITS as f64) / bits as f64 * ones).exp()) as u64;
        Growth {
            first: first.max(FIRST_LINES),
            parts: parts.min(PARTS_MAX),
            full,
        }
    }

    /// Lines of a part.
    fn lines_of(&self, number: usize) -> u64 {
        self.first << (GROWTH as usize * number)
    }

    /// Whether these lines have as few bits of 0 as a full part.
    fn are_full(&self, view: &View<'_>, lines: Lines, which: impl Iterator<Item = u64>) -> bool {
        let (mut zeros, mut bits) = (0, 0);
        for index in which {
            for place in 0..LINE_WORDS {
                let Some(word) = lines.line(index).word(view, place) else {
                    return false;
                };
                // ORDERING: Relaxed: only decides when the filter grows.
                zeros += u64::from(word.load(Ordering::Relaxed).count_zeros());
                bits += u64::from(u64::BITS);
            }
        }
        zeros * 1024 < bits * self.full
    }
}

impl Parts {
    /// No part.
    pub(crate) fn new(salt: Salt) -> Self {
        Parts {
            control: SpareWords::new(salt),
            opening: Mutex::new(()),
            making: Mutex::default(),
        }
    }

    /// Makes the one part of a filter that does not grow. The caller has the parts to itself.
    pub(crate) fn make_single(&self, arena: &Arena, salt: Salt, lines: u64) -> Result<()> {
        let part = Part {
            number: 0,
            lines: Lines::carve(arena, lines)?,
        };
        self.begin(salt, part);
        Ok(())
    }

    /// Names a part, and makes it the newest one.
    fn begin(&self, salt: Salt, part: Part) {
        self.control.set(salt, NAME + part.number, part.name());
        self.control.set(salt, NEWEST, part.name());
    }

    /// The newest part, for a writer that then announces a key. Makes part 0 if there is none.
    #[inline(always)]
    pub(crate) fn newest(
        &self,
        arena: &Arena,
        salt: Salt,
        growth: Option<&Growth>,
    ) -> Result<Part> {
        let (name, mismatch) = self.control.get_with_mismatch(salt, NEWEST);
        match Part::named(name) {
            Some(part) if mismatch == 0 => Ok(part),
            _ => self.settled(arena, salt, growth),
        }
    }

    /// [`newest`](Self::newest), if NEWEST is 0 or does not verify: after any thread that sets it.
    #[cold]
    #[inline(never)]
    fn settled(&self, arena: &Arena, salt: Salt, growth: Option<&Growth>) -> Result<Part> {
        let _making = self.making.lock();
        if let Some(part) = Part::named(self.get(arena.heals(), salt, NEWEST)?) {
            return Ok(part);
        }
        let growth = growth.ok_or_else(lost)?;
        self.make_open(arena, salt, 0, growth)
    }

    /// The part that NEWEST names.
    #[inline(always)]
    pub(crate) fn known_newest(&self, heals: &Heals, salt: Salt) -> Result<Part, Corruption> {
        Part::named(self.get(heals, salt, NEWEST)?).ok_or_else(lost)
    }

    /// A control word, after damage to one of its copies was put right.
    #[inline(always)]
    fn get(&self, heals: &Heals, salt: Salt, word: usize) -> Result<u64, Corruption> {
        self.control.get(salt, word, &heals.words())
    }

    /// Puts right every control word of which one copy is damaged.
    pub(crate) fn heal(&self, heals: &Heals, salt: Salt) {
        // What cannot be put right costs no answer: a scrub reports it.
        let _ = self.control.check(|_| Key::Salt(salt), &heals.words());
    }

    /// Makes a part of a filter that grows. The groups of a small part are all open.
    fn make_open(&self, arena: &Arena, salt: Salt, number: usize, growth: &Growth) -> Result<Part> {
        let part = Part {
            number,
            lines: Lines::carve(arena, growth.lines_of(number))?,
        };
        if part.lines.count() <= LINES_AT_ONCE {
            part.lines.give_all_keys(&arena.view()?)?;
            self.control.set(salt, OPEN + number, u64::MAX);
        }
        self.begin(salt, part);
        Ok(part)
    }

    /// Makes the next part if the newest one is full. Never waits. Called after one of 64 new keys;
    /// `hash` is its hash.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow_if_full(&self, view: &View<'_>, salt: Salt, growth: &Growth, hash: u64) {
        /// Lines of the first look, and of the second.
        const LOOKS: [u64; 2] = [2, 32];
        let Some(Part { number, lines }) = self.known_newest(view.arena().heals(), salt).ok()
        else {
            return;
        };
        if number + 1 == growth.parts {
            return;
        }
        let (from, count) = (lines.index_of(hash), lines.count());
        let is_full = LOOKS.iter().all(|look| {
            let (look, step) = (count.min(*look), count / count.min(*look));
            growth.are_full(view, lines, (0..look).map(|n| (from + n * step) % count))
        });
        if is_full {
            self.grow(view.arena(), salt, growth, number + 1);
        }
    }

    /// Makes a part, if it is the next one and no other writer makes it.
    pub(crate) fn grow(&self, arena: &Arena, salt: Salt, growth: &Growth, number: usize) {
        let Some(mut making) = self.making.try_lock() else {
            return;
        };
        let is_next = self
            .known_newest(arena.heals(), salt)
            .is_ok_and(|newest| newest.number + 1 == number);
        if is_next
            && number < growth.parts
            && *making == Making::Growing
            && self.make_open(arena, salt, number, growth).is_err()
        {
            *making = Making::Ended;
        }
    }

    /// The newest part, for a reader. `None` if there is none, or if its name does not verify
    /// (PARTS-2).
    #[inline(always)]
    pub(crate) fn verified_newest(&self, salt: Salt) -> Option<Part> {
        let (name, mismatch) = self.control.get_with_mismatch(salt, NEWEST);
        Part::named(name).filter(|_| mismatch == 0)
    }

    /// Whether `ask` is true of every part before this one, the last one first. `false` if a name
    /// does not verify (PARTS-2).
    #[inline(always)]
    pub(crate) fn is_true_of_older(
        &self,
        salt: Salt,
        part: Part,
        ask: impl Fn(Part) -> bool,
    ) -> bool {
        (0..part.number).rev().all(|number| {
            let name = NAME + number % PARTS_MAX;
            let (name, mismatch) = self.control.get_with_mismatch(salt, name);
            mismatch == 0 && Part::named(name).is_some_and(&ask)
        })
    }

    /// The lines of the newest part, whatever the check of its name says.
    #[inline(always)]
    pub(crate) fn likely_newest(&self) -> Lines {
        lines_of(self.control.unchecked(NEWEST))
    }

    /// Whether `ask` is true of the lines of a part, the newest one first, whatever the checks of
    /// the names say.
    #[inline(always)]
    pub(crate) fn is_likely_true_of_one(&self, ask: impl Fn(Lines) -> bool) -> bool {
        let newest = self.control.unchecked(NEWEST);
        let older = (newest >> NUMBER_AT) as usize % PARTS_MAX;
        ask(lines_of(newest))
            || (0..older)
                .rev()
                .any(|number| ask(lines_of(self.control.unchecked(NAME + number))))
    }

    /// Opens a group of a part unless it is open. A writer calls this before it writes a hash of
    /// the group (LINES-3).
    #[inline(always)]
    pub(crate) fn open(
        &self,
        view: &View<'_>,
        salt: Salt,
        part: &Part,
        group: u64,
    ) -> Result<(), Corruption> {
        let open = OPEN + part.number % PARTS_MAX;
        let (open, mismatch) = self.control.get_with_mismatch(salt, open);
        if mismatch == 0 && open & group != 0 {
            Ok(())
        } else {
            self.open_more(view, salt, part, group)
        }
    }

    #[cold]
    #[inline(never)]
    fn open_more(
        &self,
        view: &View<'_>,
        salt: Salt,
        part: &Part,
        group: u64,
    ) -> Result<(), Corruption> {
        let _opening = self.opening.lock();
        let place = OPEN + part.number % PARTS_MAX;
        let open = self.get(view.arena().heals(), salt, place)?;
        if open & group == 0 {
            part.lines.give_keys(view, open, group)?;
            self.control.set(salt, place, open | group);
        }
        Ok(())
    }

    /// Whether no hash of these groups was ever written to this part (LINES-3). Asked about lines
    /// that do not agree.
    pub(crate) fn are_unused(&self, salt: Salt, number: usize, groups: u64) -> bool {
        let (open, mismatch) = self
            .control
            .get_with_mismatch(salt, OPEN + number % PARTS_MAX);
        mismatch == 0 && open & groups == 0
    }

    /// The control words: names, and open groups.
    pub(crate) fn control_words(&self, salt: Salt) -> Words<'_> {
        self.control.words(salt)
    }

    /// Every part, oldest first.
    pub(crate) fn all(&self, heals: &Heals, salt: Salt) -> Result<Vec<Part>, Corruption> {
        let named = |number| Ok(Part::named(self.get(heals, salt, NAME + number)?));
        let parts: Result<Vec<Option<Part>>, Corruption> = (0..PARTS_MAX).map(named).collect();
        Ok(parts?.into_iter().flatten().collect())
    }

    /// Verifies each line of each part: see [`Lines::scrub`]. O(lines).
    pub(crate) fn scrub(
        &self,
        view: &View<'_>,
        salt: Salt,
        wait_out_writers: &mut dyn FnMut(),
        report: &mut dyn FnMut(Corruption),
    ) -> Result<(), Corruption> {
        for Part { number, lines } in self.all(view.arena().heals(), salt)? {
            let are_unused = |groups| self.are_unused(salt, number, groups);
            lines.scrub(view, &are_unused, wait_out_writers, report)?;
        }
        Ok(())
    }

    /// Every word of every part, for tests and the fault injector.
    #[cfg(any(all(test, not(loom)), feature = "fault-injection"))]
    pub(crate) fn every_word<'a>(
        &self,
        view: &View<'a>,
        salt: Salt,
    ) -> Result<Vec<&'a crate::sync::AtomicU64>, Corruption> {
        let words = self.all(view.arena().heals(), salt)?.into_iter();
        let words: Result<Vec<_>, _> = words.map(|part| part.lines.every_word(view)).collect();
        Ok(words?.concat())
    }
}
