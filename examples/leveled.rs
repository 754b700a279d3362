//! Works a leveled engine against a model, and checks it at every start.
//!
//! ```text
//!   cargo run --release --example leveled                     writes 500 batches, and checks gets and scans
//!   cargo run --release --example leveled -- 2000 --dir DIR   continues in a directory
//! ```
//! Batch number n follows from n alone, and writes n under a key of its own. So a start after a kill
//! knows what must be there. A line with n is printed when batch n is durable. `engine.rs` is the
//! engine. Exit code 0: every answer was right; 2: an answer was wrong, or it cannot be done.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use paranoid_memtable::WriteBatch;
use paranoid_memtable::scan::Direction;
use paranoid_set::{Snapshot, View};

#[path = "shared/arguments.rs"]
mod arguments;
#[path = "leveled/engine.rs"]
mod engine;
#[path = "shared/output.rs"]
mod output;

use arguments::arguments;
use engine::{Append, Engine, Version, cursor, get};
use output::{complain, print, with_causes};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The key of the last batch's number.
const COUNT: &str = "#";
const KEYS: u64 = 600;

/// Works a leveled engine against a model
#[derive(Debug, Parser)]
#[command(
    name = "leveled",
    after_help = "Exit code: 0 every answer was right; 2 an answer was wrong, or it cannot be done"
)]
struct Arguments {
    /// Directory of the engine, which must exist (default: a new one in the temporary directory,
    /// which is removed)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Batches to be written
    #[arg(default_value_t = 500)]
    batches: u64,
    /// Bytes of a table before it is flushed
    #[arg(long, default_value_t = 16 << 10)]
    write_buffer: u64,
}

fn main() -> ExitCode {
    sigpipe::reset();
    let arguments: Arguments = arguments();
    let done = match &arguments.dir {
        Some(directory) => run(directory, &arguments),
        None => run_in_new_directory(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("error: {}", with_causes(&*error)));
            ExitCode::from(2)
        }
    }
}

fn run_in_new_directory(arguments: &Arguments) -> Outcome<()> {
    let directory = std::env::temp_dir().join(format!("leveled-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let done = run(&directory, arguments);
    let _ = std::fs::remove_dir_all(&directory);
    done
}

fn run(directory: &Path, arguments: &Arguments) -> Outcome<()> {
    let engine = Engine::open(directory, arguments.write_buffer)
        .map_err(|error| format!("{}: {}", directory.display(), with_causes(&error)))?;
    let found = get(&engine.view(None)?, COUNT)?.unwrap_or_else(|| b"0".to_vec());
    let begun: u64 = String::from_utf8(found)?.parse()?;
    print(format_args!("begun at {begun}\n"))?;
    let mut model = Model::new();
    (1..=begun).for_each(|number| change(&mut model, number));
    let mut answers = check(&engine.view(None)?, &model, begun)?;
    let mut held: Option<(Snapshot, Model)> = None;
    for number in begun + 1..=begun + arguments.batches {
        engine.write(&batch(number)?)?;
        change(&mut model, number);
        print(format_args!("{number}\n"))?;
        if number % 40 == 0 {
            answers += check(&engine.view(None)?, &model, number)?;
            if let Some((snapshot, then)) = &held {
                answers += check(&engine.view(Some(snapshot))?, then, number)?;
            }
            if number % 160 == 0 {
                held = Some((engine.snapshot(), model.clone()));
            }
        }
    }
    let [flushed, first, second] = engine.shape();
    print(format_args!(
        "{answers} answers; files: {flushed} flushed, {first} + {second} in levels\n"
    ))?;
    Ok(())
}

/// Numbers that follow from a batch's number.
fn draws(number: u64) -> impl FnMut(u64) -> u64 {
    let mut state = number;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

fn key(number: u64) -> String {
    format!("key{number:04}")
}

/// The writes of a batch: what to do, a key, and the end of a range or a value.
fn writes(number: u64) -> Vec<(u64, String, String)> {
    let mut draw = draws(number);
    let mut all = vec![(0, COUNT.into(), number.to_string())];
    for place in 0..1 + draw(8) {
        let (what, at) = (draw(20), draw(KEYS));
        let other = if what == 19 {
            key(at + 1 + draw(40))
        } else {
            format!(
                "{number}-{place}-{}",
                "v".repeat(usize::try_from(draw(60)).unwrap_or(0))
            )
        };
        all.push((what, key(at), other));
    }
    all
}

fn batch(number: u64) -> Outcome<WriteBatch> {
    let mut batch = WriteBatch::new();
    for (what, key, other) in writes(number) {
        match what {
            0..12 => batch.put(key, other)?,
            12..16 => batch.merge(key, other)?,
            16..19 => batch.delete(key)?,
            _ => batch.delete_range(key, other)?,
        }
    }
    Ok(batch)
}

fn change(model: &mut Model, number: u64) {
    for (what, key, other) in writes(number) {
        let (key, other) = (key.into_bytes(), other.into_bytes());
        match what {
            0..12 => drop(model.insert(key, other)),
            12..16 => model.entry(key).or_default().extend(other),
            16..19 => drop(model.remove(&key)),
            _ => model.retain(|it, _| !(key <= *it && *it < other)),
        }
    }
}

/// Compares scans in both directions and some gets with the model. Returns the number of answers.
fn check(view: &View<Version>, model: &Model, number: u64) -> Outcome<u64> {
    for way in [Direction::Forward, Direction::Backward] {
        let (mut cursor, mut rows) = (cursor(view)?, vec![]);
        cursor.start(way)?;
        while let Some(entry) = cursor.entry() {
            let value = entry.merged(&Append, None)?.into_owned();
            rows.push((entry.user_key().to_vec(), value));
            cursor.step(way)?;
        }
        if way == Direction::Backward {
            rows.reverse();
        }
        if !rows.iter().map(|(key, value)| (key, value)).eq(model) {
            return Err(format!("batch {number}: a scan {way:?} is wrong").into());
        }
    }
    let mut draw = draws(!number);
    for _ in 0..200 {
        let key = key(draw(KEYS + 40));
        if get(view, &key)?.as_ref() != model.get(key.as_bytes()) {
            return Err(format!("batch {number}: a get of {key} is wrong").into());
        }
    }
    Ok(2 * model.len() as u64 + 200)
}
