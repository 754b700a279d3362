//! Memory that the machine has already backed, given back to the system just before a slice needs new memory.
//!
//! Under a hypervisor the first touch of a page that the guest has not used for a while waits for the host: 4.7 ms for 2
//! MiB as one huge page, 1.2 ms as small ones, against 0.2 ms for a huge page that the host still backs (measured where
//! the first records were made). That price says nothing about a table, and it falls on those that ask for huge pages.

use memmap2::{Advice, MmapMut};

const PIECE: usize = 2 << 20;
/// No more than this is held.
const MOST: usize = 3 << 30;

/// Memory that was touched and is not used.
#[derive(Debug, Default)]
pub struct Ballast(Vec<MmapMut>);

impl Ballast {
    /// Takes and touches at least so many bytes, but no more than may be held.
    pub fn hold(bytes: usize) -> Ballast {
        let pieces = bytes.min(MOST).div_ceil(PIECE);
        Ballast((0..pieces).filter_map(|_| piece()).collect())
    }

    /// Gives at least so many bytes back, if there are as many.
    pub fn release(&mut self, bytes: usize) {
        let kept = self.0.len().saturating_sub(bytes.div_ceil(PIECE));
        self.0.truncate(kept);
    }
}

fn piece() -> Option<MmapMut> {
    // The mapping is large enough for an aligned piece inside.
    let mut map = MmapMut::map_anon(2 * PIECE).ok()?;
    #[cfg(target_os = "linux")]
    let _ = map.advise(Advice::HugePage);
    let skip = map.as_ptr().align_offset(PIECE);
    map.get_mut(skip..skip + PIECE)?.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    Some(map)
}
