//! The tables of which every bit is flipped, one at a time: small ones and full ones of all shapes,
//! mutable and frozen.

use paranoid_memtable::{DuplicatePolicy, Error};

use crate::damage::Frozen;
use crate::damage::model::{Accelerators, Keys, Size};
use crate::{Mode, Only, Options, Plan, Setting, Stage};

/// In the short form, one of so many bits is flipped.
pub(crate) const SHORT: u64 = 100;

/// Which pieces of a table are flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pieces {
    All,
    /// Filters and directory.
    Accelerators,
}

/// A kind of table.
#[derive(Debug, Clone, Copy)]
struct Table {
    keys: Keys,
    entries: usize,
    size: Size,
    duplicates: DuplicatePolicy,
    accelerators: &'static [Accelerators],
    pieces: Pieces,
    /// One of so many bits is flipped, more of small tables.
    every: u64,
}

const SMALL: Table = Table {
    keys: Keys::Numbered,
    entries: 8,
    size: Size::SMALL,
    duplicates: DuplicatePolicy::Reject,
    accelerators: &[
        Accelerators::Nothing,
        Accelerators::Filters,
        Accelerators::All,
        Accelerators::Growing,
    ],
    pieces: Pieces::All,
    every: 1,
};

/// Tables of which only the directory is damaged: its pages have all forms.
const PAGES: Table = Table {
    entries: 160,
    accelerators: &[Accelerators::Directory],
    pieces: Pieces::Accelerators,
    every: 5,
    ..SMALL
};

const TABLES: [Table; 9] = [
    Table {
        entries: 1,
        ..SMALL
    },
    SMALL,
    Table {
        entries: 12,
        duplicates: DuplicatePolicy::Replace,
        accelerators: &[Accelerators::Nothing, Accelerators::All],
        ..SMALL
    },
    Table {
        keys: Keys::Versions,
        entries: 24,
        accelerators: &[Accelerators::Nothing, Accelerators::All],
        every: 3,
        ..SMALL
    },
    PAGES,
    Table {
        keys: Keys::Binary,
        ..PAGES
    },
    Table {
        keys: Keys::Paths,
        ..PAGES
    },
    // Full: longer than the write buffer.
    Table {
        entries: 500,
        accelerators: &[
            Accelerators::Nothing,
            Accelerators::All,
            Accelerators::Growing,
        ],
        every: 311,
        ..SMALL
    },
    // Keys and values of up to 8 KiB.
    Table {
        keys: Keys::Long,
        entries: 10,
        size: Size {
            buffer: 256 << 10,
            filter: 1 << 10,
            values: 80,
        },
        accelerators: &[Accelerators::Directory],
        every: 67,
        ..SMALL
    },
];

/// A stage for each kind of table, mutable and frozen.
pub(crate) fn stages(options: &Options) -> Result<Vec<Stage>, Error> {
    let Only::Bits { sample } = options.only else {
        return Ok(Vec::new());
    };
    let mut stages = Vec::new();
    for table in TABLES {
        for accelerators in table.accelerators.iter().copied() {
            for on_seek in options.on_seek.iter().copied() {
                for frozen in [Frozen::After, Frozen::Before] {
                    let plan = Plan {
                        accelerators,
                        keys: table.keys,
                        entries: table.entries,
                        size: table.size,
                        duplicates: table.duplicates,
                        count: table.every * sample,
                        ..Plan::small(options, Mode::SomeBits)
                    };
                    let mut stage = Stage::new(options, plan, Setting { on_seek, frozen })?;
                    if table.pieces == Pieces::Accelerators {
                        stage.map = stage.map.accelerators_only();
                        stage.count = stage.map.bits.div_ceil(plan.count);
                    }
                    stages.push(stage);
                }
            }
        }
    }
    for accelerators in [Accelerators::Nothing, Accelerators::All] {
        let plan = Plan {
            accelerators,
            entries: 24,
            count: 3 * sample,
            ..Plan::small(options, Mode::SetBits)
        };
        let (on_seek, frozen) = (false, Frozen::After);
        stages.push(Stage::new(options, plan, Setting { on_seek, frozen })?);
    }
    Ok(stages)
}
