//! The command line, and the record of the run.

use measure::environment::Environment;
use measure::record::{Record, Section};

use crate::rivals::{KEY_LEN, VALUE_LEN};
use crate::sizes::Extent;

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// Day of the record; without one nothing is written.
    pub(crate) date: Option<String>,
    /// Name of the record.
    pub(crate) name: String,
    pub(crate) entries: Vec<u32>,
    pub(crate) rounds: usize,
    /// Only measures the memory of (candidate, entries): the bench starts itself with this option.
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

    /// The record of this run.
    pub(crate) fn record(
        &self,
        candidates: Vec<String>,
        rounds: usize,
        slice: usize,
        sections: Vec<Section>,
    ) -> Record {
        let program = env!("CARGO_CRATE_NAME");
        Record {
            program: program.into(),
            environment: Environment::here(&format!("cargo bench --bench {program}"), self.date.as_deref()),
            keys: KEY_LEN,
            values: VALUE_LEN,
            threads: 1,
            rounds,
            slice,
            candidates,
            sections,
        }
    }

    /// Writes the record and its page if a date was given and this is no quick run.
    pub(crate) fn save(&self, extent: Extent, record: &Record, page: &str) -> Result<(), String> {
        let Some(date) = self.date.as_ref().filter(|_| extent == Extent::Full) else { return Ok(()) };
        let stem = format!("{date}-{}", self.name);
        let path = record.save(&stem, page).map_err(|error| format!("{stem}: {error}"))?;
        eprintln!("wrote {}.md and .json", path.display());
        Ok(())
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
