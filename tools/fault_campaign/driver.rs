//! Workers under a watchdog.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::report::{Class, Line, Report};
use crate::stages::{Mode, Stage, stages};

/// Faults that one worker process runs.
const RANGE: u64 = 4000;
/// A worker that reports nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(30);

fn stage_of(stages: &[Stage], number: u64) -> &Stage {
    let before = stages.partition_point(|stage| stage.first <= number);
    &stages[before - 1]
}

/// A worker: runs a range of faults, one line each.
pub(crate) fn work(options: &Options, from: u64, to: u64) {
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let stages = stages(options).unwrap();
    let mut out = std::io::stdout().lock();
    for number in from..to {
        let stage = stage_of(&stages, number);
        let line = match catch_unwind(AssertUnwindSafe(|| stage.run(number))) {
            Ok(Ok((area, kind, verdict))) => Line::of(number, area, kind, &verdict),
            Ok(Err(error)) => Line::failed(number, &error.to_string()),
            Err(_) => Line::failed(number, "panic"),
        };
        if writeln!(out, "{}", line.encode()).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// Runs all faults in worker processes.
pub(crate) fn campaign(options: &Options) -> Report {
    let stages = stages(options).unwrap();
    let total = stages.last().map_or(0, |stage| stage.first + stage.count);
    let mut report = Report::new(options, &stages);
    for stage in &stages {
        report.control(&stage.control().unwrap());
    }
    let bits = stages.iter().filter(|stage| stage.mode != Mode::Random).map(|stage| stage.count).sum::<u64>();
    eprintln!("{bits} bits in turn, {} random faults, {} workers", total - bits, options.workers);
    let ranges: VecDeque<(u64, u64)> =
        (0..total).step_by(RANGE as usize).map(|from| (from, (from + RANGE).min(total))).collect();
    let ranges = Arc::new(Mutex::new(ranges));
    let (lines, results) = channel();
    let threads: Vec<_> = (0..options.workers)
        .map(|_| {
            let (ranges, lines, words) = (Arc::clone(&ranges), lines.clone(), options.words.clone());
            std::thread::spawn(move || {
                let next = || ranges.lock().unwrap().pop_front();
                while let Some((from, to)) = next() {
                    supervise(&words, from, to, |line| {
                        // Sending fails only once the campaign is over.
                        let _ = lines.send(line);
                    });
                }
            })
        })
        .collect();
    drop(lines);
    collect(&mut report, &results, total);
    for thread in threads {
        thread.join().unwrap();
    }
    report
}

fn collect(report: &mut Report, results: &Receiver<Line>, total: u64) {
    let started = Instant::now();
    let mut told = started;
    for (done, line) in results.iter().enumerate() {
        report.add(&line);
        if told.elapsed() > Duration::from_secs(2) {
            told = Instant::now();
            let (done, spent) = (done as f64 + 1.0, started.elapsed().as_secs_f64());
            let left = spent * (total as f64 - done) / done;
            eprint!("\r{:5.1} %  {left:5.0} s to go  {} ", 100.0 * done / total as f64, report.summary());
        }
    }
    eprintln!("\r{total} faults in {:.0} s{:60}", started.elapsed().as_secs_f64(), "");
}

/// Runs a range in workers. After a fault that ends or hangs its worker, a new one goes on with the next fault.
fn supervise(words: &[String], mut from: u64, to: u64, mut report: impl FnMut(Line)) {
    while from < to {
        let program = std::env::current_exe().unwrap();
        let range = ["--run".to_string(), from.to_string(), to.to_string()];
        let mut worker = Command::new(program)
            .args(words.iter().chain(&range))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(worker.stdout.take().unwrap());
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let ending = loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(text) => {
                    let Some(line) = Line::decode(&text) else { break Class::Crash };
                    from = line.number + 1;
                    report(line);
                }
                Err(RecvTimeoutError::Timeout) => break Class::Hang,
                Err(RecvTimeoutError::Disconnected) => break Class::Crash,
            }
        };
        // Kills the child that this function started, by its own handle.
        let _ = worker.kill();
        let _ = worker.wait();
        let _ = reader.join();
        if from < to {
            report(Line::lost(from, ending));
            from += 1;
        }
    }
}
