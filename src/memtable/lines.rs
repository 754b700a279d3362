//! Cache lines of words beside the entries: where filter and index live.
//!
//! ```text
//!   arena   ... | pad | line 0: w0 w1 w2 w3 w4 w5 w6 w7 | line 1 | ... | line n-1 | ...
//! ```
//! The lines are a stretch of the arena that no entry gets: zeroed and committed lazily, on huge pages where entries
//! are, counted, bounds-checked and freed with it.
//!
//! * I1: the stretch is at most as long as the bytes asked for, padding to line boundaries included.
//! * I2: words of the stretch are only accessed as atomics, from the first access on.
//! * I3: start and count are control words. Lines that cannot be told are `None`: the list answers.
//!
//! Any thread.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::guarded::{Guarded, Words};
use crate::memtable::skiplist::arena::{Arena, SubChunk, View};
use crate::memtable::skiplist::layout::UNIT;
use crate::prefetch::prefetch_read;
use crate::sync::AtomicU64;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = 8;
/// Units of a line: words are as long as units.
const UNITS: u32 = 8;
const _: () = assert!(UNITS as usize == LINE_WORDS && UNIT == 8);
/// Bytes of a line.
pub(crate) const LINE_BYTES: u64 = (LINE_WORDS * UNIT) as u64;
/// Bits of a line.
pub(crate) const LINE_BITS: u64 = 8 * LINE_BYTES;
/// The least that holds one line wherever it starts, in bytes.
pub(crate) const LINES_BYTES_MIN: u64 = Lines::bytes_of(1);

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Lines {
    /// First unit of line 0, and how many lines there are.
    place: Guarded<2>,
}

const START: usize = 0;
const COUNT: usize = 1;

/// One line, by its first unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line(pub(crate) u32);

impl Lines {
    /// What so many lines take, wherever they start.
    pub(crate) const fn bytes_of(lines: u64) -> u64 {
        lines * LINE_BYTES + LINE_BYTES - UNIT as u64
    }

    /// Takes at most `bytes` from the arena (I1).
    pub(crate) fn carve(arena: &Arena, sub: &mut SubChunk, bytes: u64) -> Result<Lines> {
        let Some(count) = bytes.checked_sub(LINES_BYTES_MIN).map(|more| 1 + more / LINE_BYTES) else {
            return Err(Error::InvalidArgument(format!(
                "{bytes} bytes hold no line of a filter or an index"
            )));
        };
        let units = count * LINE_WORDS as u64 + (LINE_WORDS as u64 - 1);
        let reservation = arena.carve(sub, units)?;
        let view = arena.view()?;
        let (address, _) = view.locate(reservation.start()).ok_or_else(lost)?;
        let pad = address.wrapping_neg() % (LINE_WORDS * UNIT) / UNIT;
        let pad = u32::try_from(pad).map_err(|_| lost())?;
        let place = Guarded::new(view.secret, u64::from(reservation.start()));
        place.set(START, u64::from(reservation.start() + pad));
        place.set(COUNT, count);
        Ok(Lines { place })
    }

    /// The line that a hash belongs to: its high bits decide. `None`: the control words are damaged (I3).
    #[inline(always)]
    pub(crate) fn pick(&self, hash: u64) -> Option<Line> {
        let (start, count) = (self.place.get(START).ok()?, self.place.get(COUNT).ok()?);
        let index = ((u128::from(hash) * u128::from(count)) >> 64) as u64;
        u32::try_from(start + index * LINE_WORDS as u64).ok().filter(|_| start != 0 && count != 0).map(Line)
    }

    /// Which line this is, counted from 0. `None`: the control words are damaged (I3).
    #[inline(always)]
    pub(crate) fn number(&self, line: Line) -> Option<u32> {
        let start = u32::try_from(self.place.get(START).ok()?).ok()?;
        Some(line.0.checked_sub(start)? / UNITS)
    }

    /// Word `number` of all lines. `None`: there is no such word, or the control words are damaged (I3).
    #[inline(always)]
    pub(crate) fn word<'a>(&self, view: &View<'a>, number: u32) -> Option<&'a AtomicU64> {
        let (start, count) = (self.place.get(START).ok()?, self.place.get(COUNT).ok()?);
        if u64::from(number) >= count * LINE_WORDS as u64 {
            return None;
        }
        view.word(u32::try_from(start).ok()?.checked_add(number)?)
    }

    /// How many lines there are.
    pub(crate) fn count(&self) -> Result<u64, Corruption> {
        self.place.get(COUNT)
    }

    /// Line `index`, counted from 0.
    pub(crate) fn line(&self, index: u64) -> Result<Line, Corruption> {
        let first = self.place.get(START)? + index * LINE_WORDS as u64;
        u32::try_from(first).map(Line).map_err(|_| lost())
    }

    /// The control words.
    pub(crate) fn control_words(&self) -> Words<'_> {
        self.place.words()
    }
}

impl Line {
    /// The word at `index` (I2).
    #[inline(always)]
    pub(crate) fn word<'a>(self, view: &View<'a>, index: u32) -> Option<&'a AtomicU64> {
        view.word(self.0 + index)
    }

    /// All words (I2).
    #[inline(always)]
    #[cfg(not(loom))]
    pub(crate) fn words<'a>(self, view: &View<'a>) -> Option<&'a [AtomicU64; LINE_WORDS]> {
        view.words(self.0)
    }

    /// Loom's twin.
    #[cfg(loom)]
    pub(crate) fn words<'a>(self, view: &View<'a>) -> Option<[&'a AtomicU64; LINE_WORDS]> {
        let words: Option<Vec<_>> = (0..UNITS).map(|index| self.word(view, index)).collect();
        words?.try_into().ok()
    }

    /// Asks for the line.
    #[inline(always)]
    pub(crate) fn prefetch(self, view: &View<'_>) {
        if let Some((address, _)) = view.locate(self.0) {
            prefetch_read(std::ptr::without_provenance(address));
        }
    }
}

#[cold]
pub(crate) fn lost() -> Corruption {
    Corruption::new(Place::Control, 0, 0, 0)
}
