//! A growing array whose items never move, so that readers may keep references to them.
//!
//! ```text
//!   group 0: 4 segments of F items | group 1: 4 of 2F | group 2: 4 of 4F | ...
//! ```
//! A segment is filled with items before it is published, and never replaced.
//!
//! Any thread may call everything that takes `&self`. Readers never wait. If two writers build the
//! same segment, one of the two is dropped.

#![forbid(unsafe_code)]

use crate::sync::Published;

const GROUPS: usize = if cfg!(loom) { 2 } else { 26 };
pub(crate) const SLOTS: usize = 4 * GROUPS;

/// A growing array whose first four segments hold `FIRST` items each.
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

    /// The item at `index`. If its segment is missing, publishes one that `make` has filled, index
    /// by index, and calls `grown` with the number of bytes added. `None` if the index is too
    /// large.
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

    /// Calls `visit` for each published segment, with a function that makes it read as unpublished.
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
    /// Calls `visit` for each published item, with a function that makes it read as unpublished.
    pub(crate) fn items_cells(&mut self, visit: &mut dyn FnMut(&mut dyn FnMut())) {
        let segments = self.slots.iter_mut().filter_map(Published::get_mut);
        for cell in segments.flatten().filter(|cell| cell.get().is_some()) {
            visit(&mut || *cell = Published::new());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_one_segment() {
        let mut expected_first = 0;
        let mut previous: Option<SegmentSpan> = None;
        for index in 0..if cfg!(miri) { 3_000u32 } else { 100_000 } {
            let span = Segments::<u8, 8>::span(index);
            if previous != Some(span) {
                assert_eq!(span.first, expected_first, "index {index}");
                assert_eq!(span.slot, previous.map_or(0, |span| span.slot + 1));
                expected_first += span.len;
                previous = Some(span);
            }
            assert!((span.first..span.first + span.len).contains(&u64::from(index)));
        }
        assert!(Segments::<u8, 32>::span(u32::MAX).slot < SLOTS);
        assert!(Segments::<u8, 8>::new().get(u32::MAX).is_none());
    }

    /// Iteration is in the order of indices and skips missing segments.
    #[test]
    fn items_are_iterated_in_order() {
        let segments = Segments::<u32, 8>::new();
        for index in [0, 3, 8, 9, 5000] {
            let cell = segments.ensure(index, |index| index, |_| ());
            assert_eq!((cell, segments.get(index)), (Some(&index), Some(&index)));
        }
        assert!(
            segments.items().all(|(index, item)| index == *item)
                && segments.items().any(|(index, _)| index == 5000)
                && segments
                    .items()
                    .all(|(index, _)| !(100..2000).contains(&index))
        );
    }

    /// There are four segments of each length, and the bytes of each are counted once.
    #[test]
    fn segments_are_as_long_as_their_group_says() {
        let (segments, bytes) = (Segments::<u16, 8>::new(), std::cell::Cell::new(0));
        for index in (0..8 * 4 * 15).chain(0..20) {
            let grown = |more| bytes.set(bytes.get() + more);
            assert!(
                segments
                    .ensure(index, |_| 7, grown)
                    .is_some_and(|cell| *cell == 7)
            );
        }
        let lengths: Vec<usize> = segments.segments().map(<[u16]>::len).collect();
        assert_eq!(lengths, [[8; 4], [16; 4], [32; 4], [64; 4]].concat());
        assert_eq!(bytes.get(), 2 * 4 * 120);
        assert!(segments.items().map(|(index, _)| index).eq(0..480));
        assert!(
            segments.run(0, 9).is_none()
                && segments.run(7, 2).is_none()
                && segments.run(480, 1).is_none()
        );
    }
}
