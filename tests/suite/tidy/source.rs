//! One file, line by line: its code, its comments, and which lines are tests. Literals count as code.

/// One file. Lines are counted from 1: line 0 is empty.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the repository, with forward slashes.
    pub(crate) path: String,
    pub(crate) code: Vec<String>,
    pub(crate) comments: Vec<String>,
    /// Whether a line declares a test module or is in one.
    pub(crate) is_test: Vec<bool>,
}

impl Source {
    pub(crate) fn parse(path: &str, text: &str) -> Source {
        let lines = std::iter::once("").chain(text.lines());
        let (code, comments): (Vec<_>, Vec<_>) = lines.map(split).unzip();
        let is_test = test_lines(&code);
        Source { path: path.into(), code, comments, is_test }
    }

    /// All code as one text.
    pub(crate) fn text(&self) -> String {
        self.code.join("\n")
    }
}

/// Code and comment of a line. A comment begins at two slashes that an even number of quotes precedes.
fn split(line: &str) -> (String, String) {
    let is_quote = |at: usize| !line[..at].ends_with(['\\', '\'']);
    let quotes = |end: usize| line[..end].match_indices('"').filter(|(at, _)| is_quote(*at)).count();
    let at = line.match_indices("//").map(|(at, _)| at).find(|at| quotes(*at).is_multiple_of(2));
    let (code, comment) = line.split_at(at.unwrap_or(line.len()));
    (code.into(), comment.into())
}

/// Marks `#[cfg(test)] mod x;` and `#[cfg(test)] mod x { .. }` at the left margin, where rustfmt puts them.
fn test_lines(code: &[String]) -> Vec<bool> {
    let (mut is_test, mut is_for_tests) = (vec![false; code.len()], false);
    for (line, text) in code.iter().enumerate().skip(1) {
        if text.starts_with("#[") {
            let is_cfg = text.starts_with("#[cfg(") && words(text).any(|(_, word)| word == "test");
            is_for_tests |= is_cfg && !text.contains("not(test)");
        } else if is_for_tests && text.contains("mod ") {
            let end = (line..code.len()).find(|end| !text.ends_with('{') || code[*end].starts_with('}'));
            is_test[line..=end.unwrap_or(line)].fill(true);
        }
        is_for_tests &= text.starts_with("#[") || text.is_empty();
    }
    is_test
}

/// The words of a text, with their places.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let all = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    all.map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

/// The line of a place in [`Source::text`].
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}
