//! How records reach the disk: names, quoting, quartiles.

use std::path::Path;

use crate::environment::Arguments;
use crate::sizes::Extent;

/// Lower quartile, median, upper quartile.
pub(crate) fn quartiles(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    let last = samples.len().saturating_sub(1);
    [1, 2, 3].map(|quarter| samples.get(last * quarter / 4).copied().unwrap_or(f64::NAN))
}

/// Writes both files if a date was given and this is no quick look: the stem of their names.
pub(crate) fn save(
    arguments: &Arguments,
    extent: Extent,
    markdown: &str,
    json: &str,
) -> Result<Option<String>, String> {
    let Some(date) = arguments.date.as_ref().filter(|_| extent == Extent::Full) else { return Ok(None) };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("records");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let stem = format!("{date}-{}", arguments.name);
    std::fs::write(folder.join(format!("{stem}.md")), markdown).map_err(failed)?;
    std::fs::write(folder.join(format!("{stem}.json")), json).map_err(failed)?;
    Ok(Some(stem))
}

/// Text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// Numbers as a JSON array.
pub(crate) fn numbers(numbers: impl Iterator<Item = Option<f64>>) -> String {
    let shown: Vec<String> =
        numbers.map(|number| number.map_or("null".into(), |number| format!("{number:.1}"))).collect();
    format!("[{}]", shown.join(", "))
}
