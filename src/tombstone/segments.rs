//! An array that grows at its end and whose items never move, so that readers may keep references to
//! them.
//!
//! ```text
//!   group 0: 4 segments of F items | group 1: 4 of 2F | group 2: 4 of 4F | ...      at most a quarter is unused
//! ```
//! * SEGMENTS-1: a segment is filled with items before it is published, and never replaced.
//! * SEGMENTS-2: every index is compared with the bounds of its segment; one outside gives `None`.
//!
//! Who may call what: everything through `&self`, any thread. Readers never wait; if two writers
//! build one segment at a time, one of the two is dropped.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::sync::Published;

const GROUPS: usize = if cfg!(loom) { 2 } else { 26 };
pub(crate) const SLOTS: usize = 4 * GROUPS;

/// A growing array whose first segments hold `FIRST` items each.
pub(crate) struct Segments<T, const FIRST: u32> {
    slots: [Published<Box<[T]>>; SLOTS],
}

/// The place of an index: its segment, and its offset there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentSpan {
    pub(crate) slot: usize,
    /// First index of the segment.
    pub(crate) first: u64,
    /// Number of items of the segment.
    pub(crate) len: u64,
}

impl<T, const FIRST: u32> Segments<T, FIRST> {
    pub(crate) fn new() -> Self {
        Segments {
            slots: std::array::from_fn(|_| Published::new()),
        }
    }

    #[inline(always)]
    pub(crate) fn span(index: u32) -> SegmentSpan {
        let unit = u64::from(index / FIRST);
        let group = (unit / 4 + 1).ilog2();
        let group_first = 4 * ((1u64 << group) - 1);
        let quarter = (unit - group_first) >> group;
        let first = (group_first + (quarter << group)) * u64::from(FIRST);
        let slot = 4 * group as usize + usize::from(quarter.to_le_bytes()[0]);
        SegmentSpan {
            slot,
            first,
            len: u64::from(FIRST) << group,
        }
    }

    /// The item at `index`, if its segment is published.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.run(index, 1)?.first()
    }

    /// The `len` items from `index` on, if one published segment holds them all.
    #[inline(always)]
    pub(crate) fn run(&self, index: u32, len: usize) -> Option<&[T]> {
        let span = Self::span(index);
        let segment = self.slots.get(span.slot)?.get()?;
        segment
            .get(usize::try_from(u64::from(index) - span.first).ok()?..)?
            .get(..len)
    }

    /// The cell at `index`. Publishes its segment if it is missing: `make` fills it,
    /// index by index, and `grown` is told how many bytes were added.
    pub(crate) fn ensure(
        &self,
        index: u32,
        make: impl Fn(u32) -> T,
        grown: impl FnOnce(u64),
    ) -> Option<&T> {
        if let Some(cell) = self.get(index) {
            return Some(cell);
        }
        let span = Self::span(index);
        let first = u32::try_from(span.first).ok()?;
        let segment_len = u32::try_from(span.len).ok()?;
        let last = first.checked_add(segment_len - 1)?;
        self.slots.get(span.slot)?.get_or_publish(
            || (first..=last).map(make).collect(),
            |_| grown(span.len * size_of::<T>() as u64),
        );
        self.get(index)
    }

    /// Bytes of the segments of the first `items` items.
    pub(crate) fn bytes_max(items: u64) -> u64 {
        let last = u32::try_from(items)
            .unwrap_or(u32::MAX)
            .checked_sub(1)
            .map(Self::span);
        last.map_or(0, |span| (span.first + span.len) * size_of::<T>() as u64)
    }

    /// Iterates over the items of all published segments, with their indices, in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u32, &T)> {
        let firsts = (0..SLOTS as u64).map(|slot| {
            let (group, quarter) = (slot / 4, slot % 4);
            u64::from(FIRST) * (4 * ((1 << group) - 1) + (quarter << group))
        });
        let segments = self
            .slots
            .iter()
            .zip(firsts)
            .filter_map(|(slot, first)| Some((slot.get()?, first)));
        segments.flat_map(|(segment, first)| {
            (first..)
                .map_while(|index| u32::try_from(index).ok())
                .zip(segment.iter())
        })
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as
    /// unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&mut dyn FnMut())) {
        for slot in self.slots.iter_mut().filter(|slot| slot.get().is_some()) {
            visit(&mut || *slot = Published::new());
        }
    }

    /// Iterates over the published segments, in order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &[T]> {
        self.slots
            .iter()
            .filter_map(|slot| slot.get().map(|segment| &**segment))
    }
}

#[cfg(all(test, not(loom)))]
impl<T, const FIRST: u32> Segments<Published<T>, FIRST> {
    /// Visits the cells in the segments.
    pub(crate) fn items_cells(&mut self, visit: &mut dyn FnMut(&mut dyn FnMut())) {
        let segments = self.slots.iter_mut().filter_map(Published::get_mut);
        for cell in segments.flatten().filter(|cell| cell.get().is_some()) {
            visit(&mut || *cell = Published::new());
        }
    }
}

pub(crate) const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(crate) const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[cold]
pub(crate) fn damage(offset: u64, expected: u64, found: u64) -> Corruption {
    Corruption::new(Place::Fragment, offset, expected, found)
}
