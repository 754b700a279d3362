//! Writes the pictures of the newest records: draws the README's picture of rivals, and copies the
//! guide's from the record of threads. Measures nothing.

use std::path::{Path, PathBuf};

use anyhow::Context;
use measure::Record;

use crate::record;

/// Number of entries of the tables in the picture.
const SHOWN_AT: u64 = 250_000;

/// Writes `docs/pictures/speed.svg` and `docs/pictures/threads.svg`.
pub fn write() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let records = root.join("benches/records");
    let drawn = newest(&records, "-threads.svg")?;
    let to = root.join("docs/pictures/threads.svg");
    std::fs::copy(&drawn, &to).with_context(|| to.display().to_string())?;
    let newest = newest(&records, "-peers.json")?;
    let text = std::fs::read_to_string(&newest).with_context(|| newest.display().to_string())?;
    let record: Record = serde_json::from_str(&text)?;
    let stem = newest.file_stem().unwrap_or_default().to_string_lossy();
    let picture = record::front_picture(&record, &stem, SHOWN_AT)
        .with_context(|| format!("{stem} has no {SHOWN_AT} entries"))?;
    let to = root.join("docs/pictures/speed.svg");
    std::fs::write(&to, picture).with_context(|| to.display().to_string())?;
    let threads = drawn.file_stem().unwrap_or_default().to_string_lossy();
    eprintln!("wrote docs/pictures: speed.svg from {stem}, threads.svg from {threads}");
    Ok(())
}

/// The newest record whose name ends with `ending`. Names begin with their dates.
fn newest(folder: &Path, ending: &str) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let paths = entries.iter().map(std::fs::DirEntry::path);
    let fitting = paths.filter(|path| path.to_string_lossy().ends_with(ending));
    fitting.max().with_context(|| format!("no record {ending}"))
}
