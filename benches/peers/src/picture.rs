//! Writes the pictures of the newest records: draws the README's picture of rivals, and copies the
//! guide's from the record of threads. Measures nothing.

use std::path::{Path, PathBuf};

use anyhow::Context;
use measure::Record;

use crate::record::{self, SHOWN, SHOWN_OF_DECIMALS, Shown};

/// Number of entries of the tables in the picture.
const SHOWN_AT: u64 = 250_000;

/// The record of keys that are random bytes at most, and that of user ids of 16 decimal digits.
const KINDS: [&str; 2] = ["peers", "peers-keys-decimals"];

/// Writes `docs/pictures/speed.svg` and `docs/pictures/threads.svg`.
pub fn write() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let records = root.join("benches/records");
    let drawn = newest(&records, "-threads.svg")?;
    let to = root.join("docs/pictures/threads.svg");
    std::fs::copy(&drawn, &to).with_context(|| to.display().to_string())?;
    let paths = [
        newest(&records, &format!("-{}.json", KINDS[0]))?,
        newest(&records, &format!("-{}.json", KINDS[1]))?,
    ];
    let names = paths.each_ref().map(|path| stem(path));
    let [bytes, decimals] = [read(&paths[0])?, read(&paths[1])?];
    let shown = [
        Shown {
            record: &bytes,
            kind: KINDS[0],
            rows: &SHOWN,
            suffix: "",
        },
        Shown {
            record: &decimals,
            kind: KINDS[1],
            rows: &SHOWN_OF_DECIMALS,
            suffix: ", decimal ids",
        },
    ];
    let names = names.join(", ");
    let title = format!("{SHOWN_AT} entries: {names}");
    let picture = record::front_picture(&shown, &title, SHOWN_AT)
        .with_context(|| format!("{names}: one has no {SHOWN_AT} entries"))?;
    let to = root.join("docs/pictures/speed.svg");
    std::fs::write(&to, picture).with_context(|| to.display().to_string())?;
    let threads = stem(&drawn);
    eprintln!("wrote docs/pictures: speed.svg from {names}, threads.svg from {threads}");
    Ok(())
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into()
}

fn read(path: &Path) -> anyhow::Result<Record> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

/// The newest record whose name ends with `ending`. Names begin with their dates.
fn newest(folder: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let paths = entries.iter().map(std::fs::DirEntry::path);
    let fitting = paths.filter(|path| path.to_string_lossy().ends_with(ending));
    fitting.max().with_context(|| format!("no record {ending}"))
}
