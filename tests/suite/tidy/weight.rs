//! What there is to compile, read and trust: code lines, files, public items and words, of each package and each room.
//!
//! Code lines are lines with code: no blank lines, comments, tests or models. Files are all
//! files. A room is a folder without its subfolders.

use std::collections::BTreeMap;

use super::layers::is_for_tests;
use super::source::Source;

/// Most code lines and files of a package's sources, by folder.
pub(crate) const LIMITS: [(&str, u64, u64); 2] = [("src/", 21_250, 132), ("sst/src/", 3_550, 21)];

/// Most words of the documents that are not part of the rustdoc, without CHANGELOG and records.
pub(crate) const WORDS_MAX: u64 = 9_000;

/// Most words of SAFETY.md.
pub(crate) const SAFETY_WORDS_MAX: u64 = 3_500;

/// Most words of the pages of the rustdoc that are files: `guide` and `internals`.
pub(crate) const PAGES_MAX: u64 = 7_000;

/// Most lines of the list of public items.
pub(crate) const PUBLIC_MAX: u64 = 691;

/// Code lines and files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) lines: u64,
    pub(crate) files: u64,
}

/// The size of each room, by its path with a slash at its end.
pub(crate) fn rooms(sources: &[Source]) -> BTreeMap<String, Size> {
    let mut rooms = BTreeMap::<String, Size>::new();
    for source in sources {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let room = rooms.entry(format!("{folder}/")).or_default();
        room.lines += if is_for_tests(&source.path) { 0 } else { code_lines(source) };
        room.files += 1;
    }
    rooms
}

/// Lines with code, without items for tests and models: they end with a semicolon, or with the brace that closes them.
fn code_lines(source: &Source) -> u64 {
    let begins = ["#[cfg(test", "#[cfg(all(test", "#[cfg(loom", "#[cfg(all(loom"];
    let (mut count, mut lines) =
        (0, source.code.iter().map(|line| line.trim()).filter(|line| !line.is_empty()));
    while let Some(line) = lines.next() {
        if !begins.iter().any(|begin| line.starts_with(begin)) {
            count += 1;
            continue;
        }
        let mut depth = 0_usize;
        for line in lines.by_ref().skip_while(|line| line.starts_with("#[")) {
            depth =
                (depth + line.matches(['{', '(']).count()).saturating_sub(line.matches(['}', ')']).count());
            if depth == 0 && line.ends_with([';', '}', ',']) {
                break;
            }
        }
    }
    count
}

/// The size of all rooms below a folder.
pub(crate) fn below(rooms: &BTreeMap<String, Size>, folder: &str) -> Size {
    let inside = rooms.iter().filter(|(room, _)| room.starts_with(folder));
    inside.fold(Size::default(), |sum, (_, room)| Size {
        lines: sum.lines + room.lines,
        files: sum.files + room.files,
    })
}

/// The number of words of these documents.
pub(crate) fn words_of(documents: &[(String, String)]) -> u64 {
    documents.iter().map(|(_, text)| text.split_whitespace().count() as u64).sum()
}

/// The table: a line for each package, each room, and for words and public items.
pub(crate) fn table(rooms: &BTreeMap<String, Size>, words: u64, pages: u64, public: u64) -> String {
    let packages = LIMITS.map(|(folder, ..)| (format!("{folder}.."), below(rooms, folder)));
    let rooms = rooms.iter().map(|(room, size)| (room.clone(), *size));
    let lines = packages.into_iter().chain(rooms);
    let mut table = String::from("| room | code lines | files |\n|---|---|---|\n");
    table.extend(lines.map(|(room, size)| format!("| `{room}` | {} | {} |\n", size.lines, size.files)));
    table
        + &format!(
            "\n{public} public items; {words} words of documents beside the rustdoc, {pages} of its pages\n"
        )
}

/// What is above its limit.
pub(crate) fn check(
    rooms: &BTreeMap<String, Size>,
    words: u64,
    safety: u64,
    pages: u64,
    public: u64,
) -> Vec<String> {
    let sizes = LIMITS.into_iter().flat_map(|(folder, lines, files)| {
        let size = below(rooms, folder);
        [(folder, "code lines", size.lines, lines), (folder, "files", size.files, files)]
    });
    let others = [
        ("*.md", "words", words, WORDS_MAX),
        ("SAFETY.md", "words", safety, SAFETY_WORDS_MAX),
        ("docs/*.md", "words", pages, PAGES_MAX),
        ("public_api.txt", "public items", public, PUBLIC_MAX),
    ];
    let over = sizes.chain(others).filter(|(_, _, is, limit)| is > limit);
    let advice = "take something away that is no longer needed";
    over.map(|(what, of, is, limit)| format!("{what}: {is} {of}, limit {limit}; {advice}")).collect()
}
