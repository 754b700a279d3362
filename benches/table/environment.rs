//! What was asked for, and where it ran.

use std::process::Command;

use crate::sizes::Extent;

/// Whether the README gets the results.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readme {
    #[default]
    Keep,
    Rewrite,
}

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// Day of the record; without one nothing is written.
    pub(crate) date: Option<String>,
    /// Name of the record.
    pub(crate) name: String,
    pub(crate) entries: Vec<u32>,
    pub(crate) rounds: usize,
    pub(crate) readme: Readme,
    /// Only measure the memory of (candidate, entries): what the bench asks of its own child.
    pub(crate) memory: Option<(usize, u32)>,
}

impl Arguments {
    pub(crate) fn parse(extent: Extent) -> Result<Arguments, String> {
        let mut arguments = Arguments {
            name: env!("CARGO_CRATE_NAME").into(),
            entries: extent.entries(),
            rounds: 200,
            ..Arguments::default()
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--bench" | "--test" => {}
                "--readme" => arguments.readme = Readme::Rewrite,
                "--date" => arguments.date = Some(plain("--date", value()?)?),
                "--name" => arguments.name = plain("--name", value()?)?,
                "--rounds" => arguments.rounds = number::<usize>(&word, &value()?)?.max(1),
                "--entries" => {
                    let sizes: Result<Vec<u32>, String> =
                        value()?.split(',').map(|size| number(&word, size)).collect();
                    arguments.entries = sizes?;
                }
                "--memory" => {
                    let text = value()?;
                    let (candidate, entries) = text.split_once(',').ok_or("--memory CANDIDATE,ENTRIES")?;
                    arguments.memory = Some((number(&word, candidate)?, number(&word, entries)?));
                }
                // Filters and flags of other benches under a bare `cargo bench`.
                _ => eprintln!("ignored argument: {word}"),
            }
        }
        if arguments.entries.iter().any(|entries| *entries < 1_000) {
            return Err("--entries: at least 1000".into());
        }
        Ok(arguments)
    }
}

/// A word that can be part of a file's name.
fn plain(what: &str, text: String) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !text.is_empty() && !text.starts_with('.') && text.chars().all(fits) {
        Ok(text)
    } else {
        Err(format!("{what} `{text}`: letters, digits, `-`, `_` and `.` only"))
    }
}

fn number<N: std::str::FromStr>(what: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{what}: `{text}` is not a number that fits"))
}

/// Where it ran.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) processor: String,
    pub(crate) compiler: String,
    pub(crate) commit: String,
    pub(crate) command: String,
    pub(crate) date: String,
}

impl Environment {
    pub(crate) fn here(arguments: &Arguments) -> Environment {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let changed = said("git", &["status", "--porcelain", "--untracked-files=no"]);
        let changed = if changed.is_some_and(|text| !text.is_empty()) { " with changes" } else { "" };
        let commit = said("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
        let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
        let words = if words.is_empty() { String::new() } else { format!(" -- {}", words.join(" ")) };
        Environment {
            processor: format!("{}, {threads} threads, {}", processor(), std::env::consts::ARCH),
            compiler: said("rustc", &["--version"]).unwrap_or_else(|| "unknown".into()),
            commit: format!("{commit}{changed}"),
            command: format!("cargo bench --bench {}{words}", env!("CARGO_CRATE_NAME")),
            date: arguments.date.clone().unwrap_or_else(|| "not given".into()),
        }
    }
}

fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = all.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown processor".into(), |(_, name)| name.trim().into())
}

/// What a program prints, if it succeeds.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Bytes of this process in memory; 0 where `/proc` does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
