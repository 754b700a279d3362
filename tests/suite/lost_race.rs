//! A writer loses its race for a place, and its comparator panics while it looks for another one.

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use paranoid_memtable::{MemTable, MemTableOptions};

use crate::support::orders::{Script, Scripted, script};
use crate::support::under::under;
use crate::support::watchdog::Watchdog;

/// What a comparator does during an insert.
#[derive(Debug, Clone, Copy)]
enum Plot {
    /// After so many comparisons it writes another entry; after so many more, it panics.
    Rival {
        after: u32,
        then: u32,
    },
    Panic {
        after: u32,
    },
    Over,
}

/// Lets a writer lose its race, and panics while it looks for another place.
#[derive(Debug)]
struct Ambush {
    plot: Mutex<Plot>,
    table: OnceLock<Weak<MemTable>>,
}

impl Ambush {
    fn lock(&self) -> MutexGuard<'_, Plot> {
        self.plot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Script for Ambush {
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        let plot = *self.lock();
        *self.lock() = match plot {
            Plot::Rival { after: 0, .. } | Plot::Panic { after: 0 } | Plot::Over => Plot::Over,
            Plot::Rival { after, then } => Plot::Rival { after: after - 1, then },
            Plot::Panic { after } => Plot::Panic { after: after - 1 },
        };
        match plot {
            Plot::Rival { after: 0, then } => {
                self.table.get().and_then(Weak::upgrade).unwrap().put(9, b"b", b"rival").unwrap();
                *self.lock() = Plot::Panic { after: then };
            }
            Plot::Panic { after: 0 } => std::panic::resume_unwind(Box::new("without a message")),
            _ => {}
        }
        left.cmp(right)
    }
}

/// What Miri tries: panics at the first and at a later comparison after a lost race, no panic, and no lost race.
const FEW: [(u32, u32); 4] = [(0, 0), (1, 2), (1, 4), (3, 0)];

/// What a writer built before it lost its race is wiped before the comparator is called again: a salvage does not
/// find it.
#[test]
fn a_panic_after_a_lost_race_leaves_no_entry() {
    let _watchdog = Watchdog::new("lost_race::a_panic_after_a_lost_race_leaves_no_entry", 0);
    let mut panics = 0;
    let all = (0..6).flat_map(|after| (0..6).map(move |then| (after, then)));
    for (after, then) in all.filter(|plot| !cfg!(miri) || FEW.contains(plot)) {
        let comparator = Ambush { plot: Mutex::new(Plot::Over), table: OnceLock::new() };
        let table =
            Arc::new(MemTable::new(under(MemTableOptions::builder(), Scripted::new(comparator))).unwrap());
        script::<Ambush>(table.comparator()).table.set(Arc::downgrade(&table)).unwrap();
        table.put(1, b"a", b"first").unwrap();
        table.put(2, b"d", b"last").unwrap();
        *script::<Ambush>(table.comparator()).lock() = Plot::Rival { after, then };
        panics += u32::from(catch_unwind(AssertUnwindSafe(|| table.put(3, b"c", b"victim"))).is_err());
        *script::<Ambush>(table.comparator()).lock() = Plot::Over;
        let stored: Vec<Vec<u8>> = table.range(..).map(|entry| entry.unwrap().user_key().to_vec()).collect();
        let frozen = table.freeze().unwrap();
        let salvage = frozen.salvage();
        let salvaged: Vec<_> = salvage.entries.iter().map(|found| found.entry.user_key().to_vec()).collect();
        assert_eq!(salvaged, stored, "a rival after {after} comparisons, a panic after {then} more");
    }
    assert!(panics > 0);
}
