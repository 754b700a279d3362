//! An array that grows at its end and whose items never move, so that readers may keep references to them.
//!
//! ```text
//!   group 0: 4 segments of F items | group 1: 4 of 2F | group 2: 4 of 4F | ...      at most a quarter is unused
//! ```
//! * SEGMENTS-1: a segment is filled with items before it is published, and never replaced.
//! * SEGMENTS-2: every index is compared with the bounds of its segment; one outside gives `None`.
//!
//! Who may call what: everything through `&self`, any thread. Readers never wait; if two writers build one segment at
//! a time, one of the two is dropped.

#![forbid(unsafe_code)]

use crate::sync::Published;

const GROUPS: usize = if cfg!(loom) { 2 } else { 26 };
const SLOTS: usize = 4 * GROUPS;

/// A growing array whose first segments hold `FIRST` items each.
#[derive(Debug)]
pub(crate) struct Segments<T, const FIRST: u32> {
    slots: [Published<Box<[T]>>; SLOTS],
}

/// The place of an index: its segment, and its offset there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    slot: usize,
    /// First index of the segment.
    first: u64,
    /// Number of items of the segment.
    len: u64,
}

impl<T, const FIRST: u32> Segments<T, FIRST> {
    pub(crate) fn new() -> Self {
        Segments { slots: std::array::from_fn(|_| Published::new()) }
    }

    #[inline(always)]
    fn spot(index: u32) -> Spot {
        let unit = u64::from(index / FIRST);
        let group = (unit / 4 + 1).ilog2();
        let group_first = 4 * ((1u64 << group) - 1);
        let quarter = (unit - group_first) >> group;
        let first = (group_first + (quarter << group)) * u64::from(FIRST);
        let slot = 4 * group as usize + usize::from(quarter.to_le_bytes()[0]);
        Spot { slot, first, len: u64::from(FIRST) << group }
    }

    /// The item at `index`, if its segment is published.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let spot = Self::spot(index);
        let segment = self.slots.get(spot.slot)?.get()?;
        segment.get(usize::try_from(u64::from(index) - spot.first).ok()?)
    }

    /// The `len` items from `index` on, if one published segment holds them all.
    #[inline(always)]
    pub(crate) fn run(&self, index: u32, len: usize) -> Option<&[T]> {
        let spot = Self::spot(index);
        let segment = self.slots.get(spot.slot)?.get()?;
        segment.get(usize::try_from(u64::from(index) - spot.first).ok()?..)?.get(..len)
    }

    /// The `len` cells from `index` on. Publishes their segment if it is missing: `make` fills it, index by index,
    /// and `grown` is told how many bytes were added.
    pub(crate) fn ensure_run(
        &self,
        index: u32,
        len: usize,
        make: impl Fn(u32) -> T,
        grown: impl FnOnce(u64),
    ) -> Option<&[T]> {
        if let Some(run) = self.run(index, len) {
            return Some(run);
        }
        let spot = Self::spot(index);
        let first = u32::try_from(spot.first).ok()?;
        let segment_len = u32::try_from(spot.len).ok()?;
        let last = first.checked_add(segment_len - 1)?;
        self.slots.get(spot.slot)?.get_or_publish(
            || (first..=last).map(make).collect(),
            |_| grown(spot.len * size_of::<T>() as u64),
        );
        self.run(index, len)
    }

    /// Bytes of the segments of the first `items` items.
    pub(crate) fn bytes_max(items: u64) -> u64 {
        let last = u32::try_from(items).unwrap_or(u32::MAX).checked_sub(1).map(Self::spot);
        last.map_or(0, |spot| (spot.first + spot.len) * size_of::<T>() as u64)
    }

    /// The first place at or after `index` where `len` items fit into one segment: `index` itself, or the start of a
    /// later segment.
    pub(crate) fn fit(index: u32, len: u64) -> Option<u32> {
        let mut at = u64::from(index);
        loop {
            let spot = Self::spot(u32::try_from(at).ok()?);
            if at + len <= spot.first + spot.len {
                return u32::try_from(at).ok();
            }
            at = spot.first + spot.len;
        }
    }

    /// Iterates over the items of all published segments, with their indices, in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u32, &T)> {
        let firsts = (0..SLOTS as u64).map(|slot| {
            let (group, quarter) = (slot / 4, slot % 4);
            u64::from(FIRST) * (4 * ((1 << group) - 1) + (quarter << group))
        });
        let segments = self.slots.iter().zip(firsts).filter_map(|(slot, first)| Some((slot.get()?, first)));
        segments.flat_map(|(segment, first)| {
            (first..).map_while(|index| u32::try_from(index).ok()).zip(segment.iter())
        })
    }

    /// Passes each published cell to `visit`, as a function that makes the cell read as unpublished.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn cells(&mut self, visit: &mut dyn FnMut(&mut dyn FnMut())) {
        for slot in self.slots.iter_mut().filter(|slot| slot.get().is_some()) {
            visit(&mut || *slot = Published::new());
        }
    }

    /// Iterates over the published segments, in order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &[T]> {
        self.slots.iter().filter_map(|slot| slot.get().map(|segment| &**segment))
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_one_spot() {
        let mut expected_first = 0;
        let mut previous: Option<Spot> = None;
        for index in 0..if cfg!(miri) { 3_000u32 } else { 100_000 } {
            let spot = Segments::<u8, 8>::spot(index);
            if previous != Some(spot) {
                assert_eq!(spot.first, expected_first, "index {index}");
                assert_eq!(spot.slot, previous.map_or(0, |spot| spot.slot + 1));
                expected_first += spot.len;
                previous = Some(spot);
            }
            assert!((spot.first..spot.first + spot.len).contains(&u64::from(index)));
        }
        assert!(Segments::<u8, 32>::spot(u32::MAX).slot < SLOTS);
        assert!(Segments::<u8, 8>::new().get(u32::MAX).is_none());
    }

    #[test]
    fn runs_do_not_straddle() {
        let segments = Segments::<u32, 8>::new();
        let mut at = 0;
        for len in [3u32, 5, 1, 8, 9, 30, 2, 1000, 1] {
            let start = Segments::<u32, 8>::fit(at, u64::from(len)).unwrap();
            assert!(start >= at);
            let run = segments.ensure_run(start, len as usize, |index| index, |_| ()).unwrap();
            assert_eq!(run, (start..start + len).collect::<Vec<_>>());
            assert_eq!(segments.get(start), Some(&start));
            at = start + len;
        }
        let far = Segments::<u32, 8>::fit(at + 5000, 1).unwrap();
        segments.ensure_run(far, 1, |index| index, |_| ()).unwrap();
        assert!(
            segments.items().all(|(index, item)| index == *item)
                && segments.items().any(|(index, _)| index == far)
        );
    }
    /// Four segments of each length, and bytes that are counted once per segment.
    #[test]
    fn segments_are_as_long_as_their_group_says() {
        let (segments, bytes) = (Segments::<u16, 8>::new(), std::cell::Cell::new(0));
        for index in (0..8 * 4 * 15).chain(0..20) {
            let grown = |more| bytes.set(bytes.get() + more);
            assert!(segments.ensure_run(index, 1, |_| 7, grown).is_some_and(|run| run == [7]));
        }
        let lengths: Vec<usize> = segments.segments().map(<[u16]>::len).collect();
        assert_eq!(lengths, [[8; 4], [16; 4], [32; 4], [64; 4]].concat());
        assert_eq!(bytes.get(), 2 * 4 * 120);
        assert!(segments.items().map(|(index, _)| index).eq(0..480));
        assert!(
            segments.run(0, 9).is_none() && segments.run(7, 2).is_none() && segments.run(480, 1).is_none()
        );
    }
}
