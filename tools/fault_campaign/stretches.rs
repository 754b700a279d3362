//! The tables whose memory is overwritten, cleared, filled or copied in stretches of 8 to 4 096
//! bytes: write buffers of 64 KiB to 64 MiB, all with filters.

use paranoid_memtable::DuplicatePolicy;

use crate::damage::Frozen;
use crate::damage::model::{Accelerators, Keys, Size};
use crate::{Mode, Only, Options, Plan, Setting};

/// Number of stretches in the long form.
pub(crate) const LONG: u64 = 300_000;

/// Entries of each table.
const ENTRIES: usize = 150;

/// Sizes of write buffers, with filters of two lines or more, up to a share of 0.02; the factor by
/// which values are longer; and the share of all faults, which is smaller for larger tables.
const SIZES: [(Size, u64); 9] = [
    (
        Size {
            buffer: 64 << 10,
            filter: 248,
            values: 1,
        },
        10,
    ),
    (
        Size {
            buffer: 64 << 10,
            filter: 700,
            values: 2,
        },
        10,
    ),
    (
        Size {
            buffer: 64 << 10,
            filter: 3 << 10,
            values: 1,
        },
        8,
    ),
    (
        Size {
            buffer: 256 << 10,
            filter: 1 << 10,
            values: 6,
        },
        6,
    ),
    (
        Size {
            buffer: 1 << 20,
            filter: 2 << 10,
            values: 16,
        },
        5,
    ),
    (
        Size {
            buffer: 1 << 20,
            filter: 20 << 10,
            values: 16,
        },
        4,
    ),
    (
        Size {
            buffer: 8 << 20,
            filter: 6 << 10,
            values: 40,
        },
        4,
    ),
    (
        Size {
            buffer: 64 << 20,
            filter: 1 << 10,
            values: 100,
        },
        2,
    ),
    (
        Size {
            buffer: 64 << 20,
            filter: 1300 << 10,
            values: 100,
        },
        1,
    ),
];

/// All stretches. The short form has a tenth of the number of other random faults.
pub(crate) fn plans(options: &Options) -> Vec<(Plan, Setting)> {
    let count = match (options.only, options.short) {
        (Only::Stretches, _) => options.faults,
        (_, true) => options.faults / 10,
        (_, false) => LONG,
    };
    let parts: u64 = SIZES.iter().map(|(_, part)| part).sum();
    let kinds = [
        Accelerators::All,
        Accelerators::Filters,
        Accelerators::Prefixes,
        Accelerators::Growing,
    ];
    let tables = (kinds.len() * options.on_seek.len() * 2) as u64;
    let mut plans = Vec::new();
    for (size, part) in SIZES {
        let plan = |accelerators| Plan {
            mode: Mode::Stretches,
            accelerators,
            keys: Keys::Numbered,
            entries: ENTRIES,
            size,
            duplicates: DuplicatePolicy::Reject,
            protection: options.protection,
            order_checks: options.order_checks,
            count: (count * part).div_ceil(parts * tables),
        };
        for accelerators in kinds {
            for on_seek in options.on_seek.iter().copied() {
                for frozen in [Frozen::After, Frozen::Before] {
                    plans.push((plan(accelerators), Setting { on_seek, frozen }));
                }
            }
        }
    }
    plans
}
