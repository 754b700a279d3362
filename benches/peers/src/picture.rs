//! Draws the README's picture of the newest record of rivals. Nothing is measured here.

use std::path::{Path, PathBuf};

use anyhow::Context;
use measure::Record;

use crate::record;

/// Entries of the tables that the picture is about.
const SHOWN_AT: u64 = 250_000;

/// Writes `docs/pictures/speed.svg`.
pub fn write() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let newest = newest(&root.join("benches/records"))?;
    let text = std::fs::read_to_string(&newest).with_context(|| newest.display().to_string())?;
    let record: Record = serde_json::from_str(&text)?;
    let stem = newest.file_stem().unwrap_or_default().to_string_lossy();
    let picture = record::front_picture(&record, &stem, SHOWN_AT)
        .with_context(|| format!("{stem} has no {SHOWN_AT} entries"))?;
    let to = root.join("docs/pictures/speed.svg");
    std::fs::write(&to, picture).with_context(|| to.display().to_string())?;
    eprintln!("wrote docs/pictures/speed.svg from {stem}");
    Ok(())
}

/// The newest record with the usual keys and values: names begin with their dates.
fn newest(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let paths = entries.iter().map(std::fs::DirEntry::path);
    let usual = paths.filter(|path| path.to_string_lossy().ends_with("-peers.json"));
    usual.max().context("no record of rivals")
}
