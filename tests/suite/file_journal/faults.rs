//! Every call of the storage fails in turn, and what follows is bad as well: the process restarts, the engine writes on, the power is cut at
//! every later call, and one file is lost or cut. Nothing that was acknowledged is lost, nothing else is read, and what is lost with a
//! file is refused wherever another file can know of it.
//!
//! ```text
//!   life 1   opens, works, ends          a few calls, without trouble
//!   life 2   opens, works, ends          call F fails, and those right after it
//!   life 3   opens, works                until call C, and then the power or the process ends
//!   then     opens and compares          as it is, and without one file or the end of one
//! ```

use std::collections::BTreeMap;

use super::install::{Engine, Forgets, Written};
use crate::support::disk::{End, Plan, SimDisk};
use crate::support::rng::{Rng, amount, scramble, seed_or};
use crate::support::watchdog::{Watchdog, replay_line};

/// Calls of the engine in a life.
const CALLS: u64 = 12;

/// Bits of a seed for F and for C; the others are the script.
const BITS: u64 = 10;

/// How cases ended.
#[derive(Debug, Default)]
struct Counts {
    cases: u64,
    /// The file that was lost or cut was missed.
    refused: u64,
    /// What was acknowledged was lost with a file, and no other one can know of it.
    hidden: u64,
}

/// Which syncs the journal's other files know of when one is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    /// All of them: nothing failed, and the system's cache stays.
    Everything,
    /// Those after which another file was synced.
    Synced,
}

/// A disk, and what was written to it.
#[derive(Debug, Clone)]
struct Past {
    disk: SimDisk,
    written: Written,
}

impl Past {
    fn after(&self, end: End, rng: &mut Rng) -> Past {
        let mut written = self.written.clone();
        written.ended(end);
        Past { disk: self.disk.after(end, rng), written }
    }

    /// Opens and works until the plan ends that; returns whether it was opened.
    fn live(&mut self, plan: Plan, rng: &mut Rng) -> Result<bool, String> {
        self.disk.set_plan(plan);
        let mut opened = Engine::open(&self.disk, Forgets::Nothing);
        // What is in its way passes.
        while opened.is_err() && plan.fails_within.is_some_and(|within| self.disk.steps() < within.1) {
            opened = Engine::open(&self.disk, Forgets::Nothing);
        }
        if opened.is_err() && plan.fails_within.is_some() && !self.disk.is_down() {
            opened = Engine::open(&self.disk, Forgets::Nothing);
        }
        let mut engine = match opened {
            Err(_) if self.disk.is_down() => return Ok(false),
            opened => opened.map_err(|error| format!("open: {error}"))?,
        };
        engine.opened(&mut self.written)?;
        for _ in 0..CALLS {
            let done = engine.work(&mut self.written, rng);
            if self.disk.is_down() {
                break;
            }
            match done {
                Err(error) if plan.fails_within.is_none() => return Err(format!("work: {error}")),
                Err(_) => engine.failed(&mut self.written)?,
                Ok(()) => {}
            }
        }
        Ok(true)
    }

    /// Opens and compares.
    fn check(&self) -> Result<(), String> {
        let engine =
            Engine::open(&self.disk, Forgets::Nothing).map_err(|error| format!("at last: {error}"))?;
        engine.opened(&mut self.written.clone())
    }

    /// Opens and compares without a file of the journal, or without the end of one.
    fn check_without_a_file(&self, noted: Noted, rng: &mut Rng, counts: &mut Counts) -> Result<(), String> {
        let mut files = self.disk.files();
        let own = |name: &&String| !name.starts_with("manifest-") && !name.starts_with("table-");
        let names: Vec<String> = files.keys().filter(own).cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        let name = rng.pick(&names);
        let text = lose(&mut files, name, &self.written, rng);
        counts.cases += 1;
        let disk = SimDisk::with_files(files, rng.next_u64(), Plan::default());
        let Ok(engine) = Engine::open(&disk, Forgets::Nothing) else {
            counts.refused += 1;
            return Ok(());
        };
        let last = engine.compare(&self.written, 0).map_err(|error| format!("{text}: {error}"))?;
        if last < self.written.synced() {
            if noted == Noted::Everything || self.written.is_known_outside(last + 1, name) {
                return Err(format!(
                    "{text}: batches after {last} are lost in silence, {} was synced",
                    self.written.synced()
                ));
            }
            counts.hidden += 1;
        }
        Ok(())
    }
}

/// Removes a file or its end, and says so.
fn lose(files: &mut BTreeMap<String, Vec<u8>>, name: &str, written: &Written, rng: &mut Rng) -> String {
    let bytes = files.get_mut(name).expect("a file that there is");
    if bytes.is_empty() || rng.one_in(2) {
        files.remove(name);
        return format!("without {name}");
    }
    let at_random = rng.index(bytes.len());
    let end =
        written.an_end_of(name, rng).filter(|end| *end < bytes.len() && rng.one_in(2)).unwrap_or(at_random);
    let text = format!("{name} with {end} of {} bytes", bytes.len());
    bytes.truncate(end);
    text
}

/// The cases of one script from these calls on, until there are `wanted`. One in so many is run, but for the first.
fn sweep(seed: u64, one_in: u64, wanted: u64, counts: &mut Counts) -> Result<(), (u64, String)> {
    let (script, mask) = (seed >> (2 * BITS), (1 << BITS) - 1);
    let (first_f, first_c) = ((seed >> BITS) & mask, seed & mask);
    let mut rng = Rng::new(scramble(script));
    let mut first = Past { disk: SimDisk::new(rng.next_u64(), Plan::default()), written: Written::default() };
    first.live(Plan::default(), &mut rng).map_err(|text| (seed, text))?;
    for f in first_f..=mask {
        let seed_of = |c: u64| script << (2 * BITS) | f << BITS | c;
        let mut rng = Rng::new(scramble(seed_of(mask)));
        let mut second = first.after(*rng.pick(&[End::Process, End::Power]), &mut rng);
        let plan = Plan { fails_within: Some((f, f + *rng.pick(&[1, 1, 2, 5]))), ..Plan::default() };
        second.live(plan, &mut rng).map_err(|text| (seed_of(0), text))?;
        let is_over = second.disk.steps() <= f;
        let second = second.after(*rng.pick(&[End::Process, End::Process, End::Power]), &mut rng);
        for c in if f == first_f { first_c } else { 0 }..mask {
            let mut rng = Rng::new(scramble(seed_of(c)));
            if !rng.one_in(one_in) && (f, c) != (first_f, first_c) {
                continue;
            }
            let mut third = second.after(End::Process, &mut rng);
            let plan = Plan { crash_at: Some(c), ..Plan::default() };
            let failed = |text| (seed_of(c), text);
            let was_opened = third.live(plan, &mut rng).map_err(failed)?;
            let (end, was_down) =
                (*rng.pick(&[End::Process, End::Power, End::Power, End::Power]), third.disk.is_down());
            let noted = if was_opened && end == End::Process { Noted::Everything } else { Noted::Synced };
            let last = third.after(end, &mut rng);
            counts.cases += 1;
            last.check().map_err(failed)?;
            last.check_without_a_file(noted, &mut rng, counts).map_err(failed)?;
            if counts.cases >= wanted {
                return Ok(());
            }
            if !was_down {
                break;
            }
        }
        if is_over {
            break;
        }
    }
    Ok(())
}

#[test]
fn every_call_fails_and_nothing_that_was_acknowledged_is_lost() {
    let test = "file_journal::faults::every_call_fails_and_nothing_that_was_acknowledged_is_lost";
    let mut seed = seed_or(0x5eed << (2 * BITS));
    let wanted = amount(20_000, 400);
    let mut counts = Counts::default();
    while counts.cases < wanted {
        let _watchdog = Watchdog::new(test, seed);
        if let Err((seed, text)) = sweep(seed, (20_000 / wanted).max(1), wanted, &mut counts) {
            panic!("{text}\n{counts:?}\nreplay: {}", replay_line(test, seed));
        }
        seed = ((seed >> (2 * BITS)) + 1) << (2 * BITS);
    }
    let Counts { cases, refused, hidden } = counts;
    println!(
        "{cases} cases: 0 lost, 0 invented; without a file {refused} refused, {hidden} that no disk can show"
    );
}
