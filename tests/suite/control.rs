//! The control block: what is copied from another place of it, exchanged, flipped, or went back to what it held before,
//! is not believed.
//!
//! Every 16 aligned bytes and every line of 64 bytes over every other one, every pair of words exchanged, every bit,
//! each word and line as it was before each write: in release builds all of them, in debug builds a share that
//! `PARANOID_TEST_SEED` moves. On tables of one chunk, of two and of many, frozen and not. Longer copies, which take along
//! all words and checks of a filter or a writer shard, have a test of their own.

use paranoid_memtable::fault::{FaultInjector, Part};
use paranoid_memtable::{Error, MemTable, WriteBatch};

use super::corruption::damage::model::{Accelerators, Model, Shape};
use super::corruption::damage::plan::{Area, Kind};
use super::corruption::damage::{Frozen, run_fault, run_fault_on};
use super::support::rng::seed_or;
use super::support::watchdog::Watchdog;

/// What is done to the control block; numbers are indexes of pieces.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Copy {
        from: usize,
        to: usize,
        len: usize,
    },
    /// So many lines of the block, each over the line that stands as far after the target.
    CopyLines {
        from: usize,
        to: usize,
        count: usize,
    },
    Swap {
        left: usize,
        right: usize,
    },
    Flip {
        piece: usize,
        bit: usize,
    },
}

/// A table's life up to the damage.
#[derive(Debug, Clone, Copy)]
struct Stage {
    entries: usize,
    accelerators: Accelerators,
    frozen: Frozen,
    /// One of how many faults is tried in a debug and in a release build.
    share: (usize, usize),
}

const fn stage(entries: usize, frozen: Frozen, share: (usize, usize)) -> Stage {
    Stage { entries, accelerators: Accelerators::Nothing, frozen, share }
}

const STAGES: [Stage; 7] = [
    stage(12, Frozen::After, (61, 1)),
    stage(12, Frozen::Before, (61, 1)),
    stage(40, Frozen::After, (211, 5)),
    stage(40, Frozen::Before, (211, 5)),
    stage(1300, Frozen::After, (20_011, 2003)),
    stage(1300, Frozen::Before, (20_011, 2003)),
    Stage { accelerators: Accelerators::Filters, ..stage(20, Frozen::After, (211, 5)) },
];

fn model_of(stage: &Stage) -> Model {
    let Stage { entries, accelerators, .. } = *stage;
    let (on_seek, order_checks) = (false, false);
    Model::new(Shape { on_seek, order_checks, accelerators, ..Shape::plain(entries, 7) })
}

fn open(table: &MemTable) -> FaultInjector<'_> {
    // SAFETY: the test's own thread alone uses the table, and holds nothing borrowed from it.
    #[expect(unsafe_code, reason = "opens the fault injector")]
    let injector = unsafe { FaultInjector::open(table) };
    injector.unwrap()
}

fn control_pieces(injector: &FaultInjector<'_>) -> Vec<usize> {
    let control = |piece: &usize| injector.pieces()[*piece].part == Part::Control;
    (0..injector.pieces().len()).filter(control).collect()
}

/// The pieces of the control block, by line.
fn lines(injector: &FaultInjector<'_>) -> Vec<Vec<usize>> {
    let mut lines: Vec<Vec<usize>> = Vec::new();
    for piece in control_pieces(injector) {
        let place = |piece: &usize| injector.place_in_line(*piece);
        match lines.last_mut() {
            Some(line) if line.last().is_some_and(|last| place(last) < place(&piece)) => line.push(piece),
            _ => lines.push(vec![piece]),
        }
    }
    lines
}

/// Every fault that changes something.
fn faults(model: &Model, frozen: Frozen) -> Vec<Fault> {
    let table = model.table().unwrap();
    if frozen == Frozen::Before {
        table.freeze().unwrap();
    }
    let injector = open(&table);
    let pieces = control_pieces(&injector);
    let mut faults = Vec::new();
    let starts = |len: usize| pieces.iter().copied().filter(move |_| len > 0);
    for (len, step) in [(16, 2), (64, 8)] {
        let aligned = |piece: &usize| injector.place_in_line(*piece).is_multiple_of(step);
        let starts: Vec<usize> = starts(len).filter(aligned).collect();
        for from in &starts {
            let others = starts.iter().filter(|to| *to != from);
            faults.extend(others.map(|to| Fault::Copy { from: *from, to: *to, len }));
        }
    }
    for (index, left) in pieces.iter().enumerate() {
        let others =
            pieces[index + 1..].iter().filter(|right| injector.bytes(*left) != injector.bytes(**right));
        faults.extend(others.map(|right| Fault::Swap { left: *left, right: *right }));
    }
    let bits =
        pieces.iter().flat_map(|piece| (0..8 * injector.bytes(*piece).len()).map(move |bit| (*piece, bit)));
    faults.extend(bits.map(|(piece, bit)| Fault::Flip { piece, bit }));
    faults
}

fn strike(injector: &mut FaultInjector<'_>, fault: Fault) -> (Area, Kind) {
    let (piece, kind) = match fault {
        Fault::Copy { from, to, len } => {
            injector.copy(from, to, len);
            (to, Kind::Copy)
        }
        Fault::CopyLines { from, to, count } => {
            let lines = lines(injector);
            for (from, to) in lines[from..].iter().zip(&lines[to..]).take(count) {
                injector.copy_pieces(from[0], to[0], from.len().min(to.len()));
            }
            (lines[to][0], Kind::Copy)
        }
        Fault::Swap { left, right } => {
            injector.swap(left, right);
            (left, Kind::SwapLinks)
        }
        Fault::Flip { piece, bit } => {
            injector.flip(piece, bit);
            (piece, Kind::Flip)
        }
    };
    (Area::of(&injector.pieces()[piece]), kind)
}

fn try_stages(test: &str, stages: &[Stage]) {
    for stage in stages {
        let model = model_of(stage);
        let faults = faults(&model, stage.frozen);
        assert!(faults.len() > 5000, "{}", faults.len());
        try_faults(test, stage, &model, &faults);
    }
}

fn try_faults(test: &str, stage: &Stage, model: &Model, faults: &[Fault]) {
    let seed = seed_or(29);
    let _watchdog = Watchdog::new(test, seed);
    let share = if cfg!(debug_assertions) { stage.share.0 } else { stage.share.1 };
    for fault in faults.iter().skip(seed as usize % share).step_by(share) {
        let verdict = run_fault(model, stage.frozen, |injector| strike(injector, *fault));
        let (_, _, verdict) = verdict.unwrap();
        let fine = verdict.wrong.is_none() && verdict.endless.is_none();
        assert!(fine, "{fault:?}, {stage:?}, seed {seed:#x}: {verdict:?}");
    }
}

/// Words and lines copied from another place of the block, words exchanged, and every bit flipped.
#[test]
fn no_place_of_the_control_block_stands_for_another() {
    try_stages("control::no_place_of_the_control_block_stands_for_another", &STAGES[..4]);
}

#[test]
fn no_place_of_a_large_tables_control_block_stands_for_another() {
    try_stages("control::no_place_of_a_large_tables_control_block_stands_for_another", &STAGES[4..6]);
}

#[test]
fn no_control_word_of_filters_and_index_stands_for_another() {
    try_stages("control::no_control_word_of_filters_and_index_stands_for_another", &STAGES[6..]);
}

/// Words move together with their checks where a copy is long enough: 2 to 8 lines of 64 bytes. Whole filters and shards, which
/// are two lines each at the end of the list, over each other: always all of them.
#[test]
fn no_group_of_control_words_stands_for_another() {
    let test = "control::no_group_of_control_words_stands_for_another";
    let stages = [
        Stage { accelerators: Accelerators::Filters, ..stage(20, Frozen::After, (499, 1)) },
        Stage { accelerators: Accelerators::Filters, ..stage(20, Frozen::Before, (997, 1)) },
    ];
    for stage in stages {
        let model = model_of(&stage);
        let table = model.table().unwrap();
        let lines = lines(&open(&table)).len();
        let groups = lines - 2 * 10;
        let pairs = (0..lines).flat_map(|from| (0..lines).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| from != to);
        let copies = |(from, to)| [2, 3, 4, 6, 8].map(|count| Fault::CopyLines { from, to, count });
        let is_whole = |fault: &Fault| match *fault {
            Fault::CopyLines { from, to, count: 2 } => {
                [from, to].iter().all(|line| *line >= groups && (line - groups).is_multiple_of(2))
            }
            _ => false,
        };
        let (whole, others): (Vec<Fault>, Vec<Fault>) = pairs.flat_map(copies).partition(is_whole);
        try_faults(test, &Stage { share: (1, 1), ..stage }, &model, &whole);
        try_faults(test, &stage, &model, &others);
    }
}

/// What some pieces held before a write.
type Old = Vec<(usize, Vec<u8>)>;

/// The words and lines of the control block that held something else before some write, with the number of that
/// write; the freeze has the last number.
fn earlier(model: &Model, frozen: Frozen) -> Vec<(usize, Vec<usize>)> {
    let mut history: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut groups = Vec::new();
    let mut look = |table: &MemTable| {
        let injector = open(table);
        if groups.is_empty() {
            let lines = lines(&injector);
            groups.extend(lines.iter().flatten().map(|piece| vec![*piece]));
            groups.extend(lines.into_iter().filter(|line| line.len() > 1));
        }
        let first = groups.first().map_or(0, |group| group[0]);
        // Pieces of the arena come and go with entries, so the block is found from the end of the list.
        let shift = control_pieces(&injector)[0] - first;
        let held =
            |group: &Vec<usize>| group.iter().flat_map(|piece| injector.bytes(piece + shift)).collect();
        history.push(groups.iter().map(held).collect());
    };
    let table = model.table_watched(|_, table| look(table)).unwrap();
    look(&table);
    if frozen == Frozen::Before {
        table.freeze().unwrap();
        look(&table);
    }
    let now = history.pop().unwrap();
    let mut found = Vec::new();
    for (number, then) in history.iter().enumerate() {
        for (group, held) in then.iter().enumerate() {
            let known = history[..number].iter().any(|before| before[group] == *held);
            if !known && *held != now[group] {
                let first = groups[0][0];
                found.push((number, groups[group].iter().map(|piece| piece - first).collect()));
            }
        }
    }
    found
}

/// The fault model's lost write: a word or a line keeps what it held before some write.
#[test]
fn a_control_word_that_went_back_is_noticed() {
    let seed = seed_or(31);
    let mut tried = 0;
    for stage in [&STAGES[..4], &STAGES[6..]].concat() {
        let _watchdog = Watchdog::new("control::a_control_word_that_went_back_is_noticed", seed);
        let model = model_of(&stage);
        let share = if cfg!(debug_assertions) && stage.entries > 12 { 5 } else { 1 };
        let all = earlier(&model, stage.frozen);
        for (number, group) in all.iter().skip(seed as usize % share).step_by(share) {
            let mut old: Old = Vec::new();
            let mut look = |table: &MemTable| {
                let injector = open(table);
                let first = control_pieces(&injector)[0];
                old = group.iter().map(|piece| (*piece, injector.bytes(first + piece))).collect();
            };
            let table = model
                .table_watched(|now, table| {
                    if now == *number {
                        look(table)
                    }
                })
                .unwrap();
            if *number == model.writes.len() {
                look(&table);
            }
            let (_, _, verdict) = run_fault_on(&model, stage.frozen, &table, |injector| {
                let first = control_pieces(injector)[0];
                old.iter().for_each(|(piece, bytes)| injector.overwrite(first + piece, bytes));
                (Area::of(&injector.pieces()[first]), Kind::Zero)
            })
            .unwrap();
            let fine = verdict.wrong.is_none() && verdict.endless.is_none();
            assert!(fine, "{group:?} as before write {number}, {stage:?}, seed {seed:#x}: {verdict:?}");
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried}");
}

/// A range deletion asks a control word that no put asks. A batch that has one is refused before its first put is linked.
#[test]
fn a_batch_with_a_range_asks_every_control_word_first() {
    let test = "control::a_batch_with_a_range_asks_every_control_word_first";
    let _watchdog = Watchdog::new(test, 0);
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").unwrap();
    batch.delete_range(b"b", b"c").unwrap();
    let mut refused = 0;
    for piece in control_pieces(&open(&MemTable::default())) {
        let table = MemTable::default();
        let mut injector = open(&table);
        injector.flip(piece, 5);
        drop(injector);
        if let Err(error) = table.write_batch(1, &batch) {
            assert!(matches!(error, Error::Corruption(_)), "{error}");
            assert_eq!(table.len(), 0);
            refused += 1;
        }
    }
    assert!(refused > 3, "{refused}");
}
