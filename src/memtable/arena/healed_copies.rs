//! The healed copies of an arena: a list that only grows, by the offset of the damaged entry.
//!
//! * HEALED-2: a copy never changes, and lives as long as its arena. Published bytes do not change
//!   either, so borrowed slices and pinned values stay what they were.
//!
//! Any thread; a lookup is lock-free, and O(copies). The computation of a copy is outside: of two
//! threads that heal one entry, the second drops its copy.

#![forbid(unsafe_code)]

use crate::sync::{Published, yield_now};

/// The list of copies.
#[derive(Default)]
pub(crate) struct HealedCopies {
    first: Published<Box<Copied>>,
}

/// The copy of an entry.
struct Copied {
    /// The place of the damaged entry.
    offset: u32,
    /// The bytes from the header to the end of the value.
    words: Box<[u64]>,
    next: Published<Box<Copied>>,
}

impl HealedCopies {
    fn copies(&self) -> impl Iterator<Item = &Copied> {
        let first = self.first.get().map(AsRef::as_ref);
        std::iter::successors(first, |copy| copy.next.get().map(AsRef::as_ref))
    }

    /// The words of the copy of the entry at `offset`.
    pub(crate) fn find(&self, offset: u32) -> Option<&[u64]> {
        let copy = self.copies().find(|copy| copy.offset == offset)?;
        Some(&copy.words)
    }

    /// Appends a copy, unless there is one of this entry.
    pub(crate) fn keep(&self, offset: u32, words: Box<[u64]>) {
        let next = Published::default();
        let mut copy = Box::new(Copied {
            offset,
            words,
            next,
        });
        let mut end = &self.first;
        loop {
            if let Some(there) = end.get() {
                if there.offset == offset {
                    return;
                }
                end = &there.next;
            } else if let Err(refused) = end.publish(copy) {
                copy = refused;
                yield_now();
            } else {
                return;
            }
        }
    }

    /// Bytes of all copies.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |copy: &Copied| size_of::<Copied>() + size_of_val(&*copy.words);
        self.copies().map(|copy| bytes(copy) as u64).sum()
    }
}

impl Drop for HealedCopies {
    /// Copy by copy: a nested drop would take stack for each.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut copy) = next {
            next = copy.next.take();
        }
    }
}

#[cfg(all(test, loom))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::model::{check, spawn};

    /// Threads that heal one entry keep one copy, and lose none of another entry. Red for
    /// `healed_copy_kept_twice`.
    #[test]
    fn loom_healed_copies_are_kept() {
        check(|| {
            let copies = Arc::new(HealedCopies::default());
            let keep = |offset: u32| {
                let copies = Arc::clone(&copies);
                spawn(move || {
                    copies.keep(offset, [u64::from(offset)].into());
                    assert_eq!(copies.find(offset).unwrap(), [u64::from(offset)]);
                })
            };
            copies.keep(2, [2].into());
            for thread in [keep(1), keep(1)] {
                thread.join().unwrap();
            }
            assert_eq!(copies.copies().count(), 2);
        });
    }
}
