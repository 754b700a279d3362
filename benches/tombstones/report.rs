//! The record: what was done, how long it took, what was hoped for.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use crate::Size;
use crate::environment::Environment;
use crate::paper::{numbers, quartiles, quoted};
use crate::rivals;

/// One line of a table.
#[derive(Debug)]
struct Line {
    work: String,
    figures: String,
    target: String,
    samples: Vec<(String, Vec<f64>)>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Report {
    environment: Environment,
    size: Size,
    tables: Vec<(String, String, Vec<Line>)>,
    hash: u64,
}

impl Report {
    pub(crate) fn new(environment: Environment, size: Size) -> Report {
        Report { environment, size, tables: Vec::new(), hash: 0 }
    }

    pub(crate) fn start_table(&mut self, title: &str, columns: &str) {
        self.tables.push((title.into(), columns.into(), Vec::new()));
    }

    /// One line; `samples` are nanoseconds of one operation by candidate.
    pub(crate) fn line(
        &mut self,
        work: impl Into<String>,
        figures: impl Into<String>,
        target: impl Into<String>,
        samples: Vec<(String, Vec<f64>)>,
    ) {
        let line = Line { work: work.into(), figures: figures.into(), target: target.into(), samples };
        eprintln!("{}: {}", line.work, line.figures);
        if let Some((_, _, lines)) = self.tables.last_mut() {
            lines.push(line);
        }
    }

    /// Takes a sum over what was read into the hash of the work.
    pub(crate) fn saw(&mut self, sum: u64) {
        self.hash = rivals::mix(self.hash ^ sum);
    }

    pub(crate) fn markdown(&self) -> String {
        let Environment { processor, compiler, commit, command, date } = &self.environment;
        let mut text = format!(
            "# Results: `{command}`\n\n- date: {date}\n- processor: {processor}\n- compiler: {compiler}, profile bench, \
             default target\n- commit: {commit}\n- 16-byte keys, 100-byte values, {} entries inserted at random, \
             protection 8, medians over {} rounds\n",
            self.size.entries, self.size.rounds
        );
        for (title, columns, lines) in &self.tables {
            let count = columns.matches('|').count() - 1;
            // Writing to a string cannot fail.
            let _ = write!(text, "\n## {title}\n\n{columns}\n|{}\n", "---|".repeat(count));
            for line in lines {
                let _ = writeln!(text, "| {} | {} | {} |", line.work, line.figures, line.target);
            }
        }
        let _ = writeln!(text, "\nHash of the work: `{:016x}`", self.hash);
        text
    }

    pub(crate) fn json(&self) -> String {
        let Environment { processor, compiler, commit, command, date } = &self.environment;
        let head = [
            ("date", date),
            ("processor", processor),
            ("compiler", compiler),
            ("commit", commit),
            ("command", command),
        ];
        let mut fields: Vec<String> =
            head.iter().map(|(name, value)| format!("  {}: {}", quoted(name), quoted(value))).collect();
        fields.push(format!("  \"entries\": {}, \"hash\": \"{:016x}\"", self.size.entries, self.hash));
        let lines = self.tables.iter().flat_map(|(_, _, lines)| lines).map(|line| {
            let candidate = |(name, samples): &(String, Vec<f64>)| {
                format!("{}: {}", quoted(name), numbers(samples.iter().copied().map(Some)))
            };
            let candidates: Vec<String> = line.samples.iter().map(candidate).collect();
            format!(
                "    {{\"work\": {}, \"figures\": {}, \"nanoseconds\": {{{}}}}}",
                quoted(&line.work),
                quoted(&line.figures),
                candidates.join(", ")
            )
        });
        fields.push(format!("  \"lines\": [\n{}\n  ]", lines.collect::<Vec<_>>().join(",\n")));
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }
}

/// What takes its turn: a name, and work that returns a sum over what it saw.
pub(crate) type Candidate<'w> = (&'static str, Box<dyn FnMut(u64) -> u64 + 'w>);

/// Nanoseconds of one operation by candidate, with the candidates' names; each round gives each candidate the same slice.
pub(crate) fn turns(
    report: &mut Report,
    rounds: usize,
    ops: usize,
    candidates: &mut [Candidate<'_>],
) -> Vec<(String, Vec<f64>)> {
    let mut samples: Vec<(String, Vec<f64>)> =
        candidates.iter().map(|(name, _)| ((*name).into(), Vec::with_capacity(rounds))).collect();
    let mut sum = 0u64;
    // The first round warms up.
    for round in 0..=rounds {
        for turn in 0..candidates.len() {
            let candidate = (round + turn) % candidates.len();
            let started = Instant::now();
            sum = sum.wrapping_add(black_box(candidates[candidate].1(round as u64)));
            if round > 0 {
                samples[candidate].1.push(started.elapsed().as_secs_f64() * 1e9 / ops.max(1) as f64);
            }
        }
    }
    report.saw(sum);
    samples
}

pub(crate) fn median(samples: &[f64]) -> f64 {
    quartiles(samples.to_vec())[1]
}

/// The median over the rounds of a figure made of two candidates.
pub(crate) fn paired(a: &[f64], b: &[f64], how: impl Fn(f64, f64) -> f64) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| how(*a, *b)).collect::<Vec<_>>())
}

/// The first candidate against the second one: times, ratio, difference.
pub(crate) fn against(with: &[f64], without: &[f64]) -> String {
    format!(
        "{:.0} ns against {:.0}: {:.2} x, {:+.0} ns",
        median(with),
        median(without),
        paired(with, without, |with, without| with / without),
        paired(with, without, |with, without| with - without)
    )
}
