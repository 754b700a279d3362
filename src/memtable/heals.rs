//! Heals: the places of a table that were damaged and put right, each counted and told once.
//!
//! ```text
//!   a copy, a link or a control word can be put right
//!     -> admit(place) ---- told before, or below the limit --> yes: count it, tell it, put it right
//!                     \--- healing is off, or the limit is reached --> no: the damage is reported
//! ```
//! Whoever puts a place right asks here first. So a table whose memory fails in more places than the
//! limit reports damage, and a bit that is stuck, and is put right again and again, is told once.
//!
//! Any thread. The lock is held for a search among at most as many places as the limit, and only
//! after a check has failed.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::error::Place;
use crate::integrity::options::Repair;
use crate::sync::Mutex;
use crate::trace;

/// A place of a table's memory that was damaged, and that the table has put right. Returned by
/// [`TableReader::healed`](crate::TableReader::healed).
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::repair::Healed;
/// let table = MemTable::default();
/// table.put(1, b"key", b"value")?;
/// let healed: Vec<Healed> = table.healed();
/// assert!(healed.is_empty(), "nothing was damaged");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Healed {
    /// The kind of memory.
    pub place: Place,
    /// The address of the first damaged byte in the memory of the process. The system translates it
    /// into the address of a memory module.
    pub address: u64,
    /// The bit of that byte that was flipped, 0 to 7. `None` if more than one bit was changed.
    pub bit: Option<u8>,
}

impl Healed {
    /// A flipped bit of the bytes at this address.
    pub(crate) fn of_bit(place: Place, address: usize, bit: u64) -> Healed {
        Healed {
            place,
            address: address as u64 + bit / 8,
            bit: Some((bit % 8) as u8),
        }
    }

    /// Damage to a word in memory: its address, its value, and the value that it should have.
    /// `None` if the two are equal.
    pub(crate) fn of_word(place: Place, address: usize, found: u64, right: u64) -> Option<Healed> {
        let (found, right) = (found.to_ne_bytes(), right.to_ne_bytes());
        let differ: Vec<usize> = (0..8).filter(|byte| found[*byte] != right[*byte]).collect();
        let first = *differ.first()?;
        let bits = found[first] ^ right[first];
        let is_one = differ.len() == 1 && bits.is_power_of_two();
        Some(Healed {
            place,
            address: (address + first) as u64,
            #[expect(clippy::cast_possible_truncation, reason = "below 8")]
            bit: is_one.then(|| bits.trailing_zeros() as u8),
        })
    }
}

/// What is told of each healed place. It is called in the middle of an operation, perhaps under a
/// lock of the table.
pub(crate) type Tell = Arc<dyn Fn(&Healed) + Send + Sync>;

/// The healed places of a table.
#[derive(Default)]
pub(crate) struct Heals {
    repair: Repair,
    tell: Option<Tell>,
    healed: Mutex<Vec<Healed>>,
}

impl Heals {
    pub(crate) fn new(repair: Repair, tell: Option<Tell>) -> Heals {
        Heals {
            repair,
            tell,
            healed: Mutex::default(),
        }
    }

    /// Whether damage may be put right. Asked before the search for what was there.
    pub(crate) fn is_on(&self) -> bool {
        self.repair != Repair::Off
    }

    /// Whether this place may be put right. A place that was not told before is counted and told.
    #[cold]
    #[inline(never)]
    pub(crate) fn admits(&self, healed: Healed) -> bool {
        let Repair::On { places_max } = self.repair else {
            return false;
        };
        let mut before = self.healed.lock();
        if before.contains(&healed) {
            return true;
        }
        if before.len() >= places_max as usize {
            return false;
        }
        before.push(healed);
        drop(before);
        trace::healed(&healed.place, healed.address, healed.bit);
        self.tell.iter().for_each(|tell| tell(&healed));
        true
    }

    /// Decides whether a copy of a control word, by its address, may be put right.
    pub(crate) fn words(&self) -> impl Fn(usize, u64, u64) -> bool {
        |address, found, right| {
            Healed::of_word(Place::Control, address, found, right)
                .is_some_and(|healed| self.admits(healed))
        }
    }

    /// All places, in the order in which they were put right.
    pub(crate) fn all(&self) -> Vec<Healed> {
        self.healed.lock().clone()
    }

    /// The number of places.
    pub(crate) fn count(&self) -> u64 {
        self.healed.lock().len() as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU64, Ordering};

    fn at(address: usize, bit: u32) -> Healed {
        Healed::of_word(Place::Control, address, 0, 1 << bit).expect("they differ")
    }

    #[test]
    fn a_word_names_its_first_damaged_byte() {
        let of = |found, right| Healed::of_word(Place::Link, 4096, found, right);
        assert_eq!(of(7, 7), None);
        for bit in 0..64u32 {
            let healed = at(4096, bit);
            let byte = (1u64 << bit)
                .to_ne_bytes()
                .iter()
                .position(|byte| *byte != 0);
            assert_eq!(byte.map(|byte| byte as u64 + 4096), Some(healed.address));
            assert_eq!(healed.bit.map(u32::from), Some(bit % 8));
        }
        assert_eq!(of(0, 3).and_then(|healed| healed.bit), None);
        assert_eq!(of(0, 1 << 60 | 1).and_then(|healed| healed.bit), None);
    }

    #[test]
    fn each_place_is_told_once_up_to_the_limit() {
        let told = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&told);
        let tell: Tell = Arc::new(move |_| {
            // ORDERING: Relaxed: one thread.
            count.fetch_add(1, Ordering::Relaxed);
        });
        let heals = Heals::new(Repair::On { places_max: 3 }, Some(tell));
        for _ in 0..2 {
            assert!((0..3).all(|place| heals.admits(at(8 * place, 5))));
            assert!(!heals.admits(at(24, 5)), "a fourth place");
            assert!(!heals.admits(at(0, 6)), "another bit is another place");
        }
        // ORDERING: Relaxed: one thread.
        assert_eq!((heals.count(), told.load(Ordering::Relaxed)), (3, 3));
        assert_eq!(heals.all(), [at(0, 5), at(8, 5), at(16, 5)]);
    }

    #[test]
    fn without_repair_nothing_is_admitted() {
        let heals = Heals::new(Repair::Off, None);
        assert!(!heals.is_on() && !heals.admits(at(0, 0)));
        assert_eq!(heals.count(), 0);
        assert!(Heals::default().is_on());
    }
}
