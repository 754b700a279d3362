//! Notes of a long campaign: the result of each fault, one line each. A campaign that ended early
//! continues from its notes.
//!
//! ```text
//!   4016872 faults, program 3f0c.., --seed 1      the campaign that the notes belong to
//!   12  points key  flip  1  1  0  0              a result, as a worker writes it
//! ```

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::driver::Line;

/// Notes that are open for more results.
pub(crate) struct Notes {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Notes {
    /// Opens notes, or makes them, and passes the results that they have to `found`. Notes of another
    /// program, of other options or of another number of faults are refused.
    pub(crate) fn open(
        path: &Path,
        words: &[String],
        total: u64,
        mut found: impl FnMut(Line),
    ) -> Result<Notes, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut hasher = DefaultHasher::new();
        let program = std::env::current_exe().and_then(fs::read).map_err(failed)?;
        program.hash(&mut hasher);
        let head = format!(
            "{total} faults, program {:016x}, {}",
            hasher.finish(),
            words.join(" ")
        );
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("{head}\n"),
            text => text.map_err(failed)?,
        };
        // The last line may be cut.
        let text = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mut lines = text.lines();
        if lines.next() != Some(&head) {
            return Err(format!(
                "{}: notes of another campaign, not of: {head}",
                path.display()
            ));
        }
        lines.filter_map(Line::decode).for_each(&mut found);
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(path)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.set_len(text.len() as u64)?;
                Ok(file)
            });
        Ok(Notes {
            file: BufWriter::new(file.map_err(failed)?),
            path: path.to_path_buf(),
        })
    }

    /// Adds a result. A note that cannot be written ends the campaign.
    pub(crate) fn add(&mut self, line: &Line) -> Result<(), String> {
        let added = writeln!(self.file, "{}", line.encode());
        added.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// Passes everything to the file.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        let flushed = self.file.flush();
        flushed.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
