//! One file, line by line: its code, its comments, and which lines are tests. Literals count as code.

/// One file. Lines are counted from 1: line 0 is empty.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the repository, with forward slashes.
    pub(crate) path: String,
    pub(crate) code: Vec<String>,
    pub(crate) comments: Vec<String>,
    /// Whether a line is in an inline test module.
    pub(crate) is_test: Vec<bool>,
    /// Names of `#[cfg(test)] mod x;`: files that are tests.
    pub(crate) test_files: Vec<String>,
}

impl Source {
    pub(crate) fn parse(path: &str, text: &str) -> Source {
        // A comment begins at two slashes that an even number of quotes precedes.
        let is_quote = |before: &str, at: usize| !before[..at].ends_with(['\\', '\'']);
        let is_outside =
            |before: &str| before.match_indices('"').filter(|(at, _)| is_quote(before, *at)).count() % 2 == 0;
        let split = |line: &str| {
            let at = line.match_indices("//").map(|(at, _)| at).find(|at| is_outside(&line[..*at]));
            let (code, comment) = line.split_at(at.unwrap_or(line.len()));
            (code.to_string(), comment.to_string())
        };
        let (code, comments): (Vec<_>, Vec<_>) = std::iter::once("").chain(text.lines()).map(split).unzip();
        let mut source = Source {
            path: path.into(),
            is_test: vec![false; code.len()],
            test_files: vec![],
            code,
            comments,
        };
        source.mark_tests();
        source
    }

    /// Finds `#[cfg(test)] mod x;` and `#[cfg(test)] mod x { .. }` at the left margin, where rustfmt puts them.
    fn mark_tests(&mut self) {
        let mut is_for_tests = false;
        for line in 1..self.code.len() {
            let text = self.code[line].clone();
            if text.starts_with("#[") {
                let is_cfg = text.starts_with("#[cfg(") && words(&text).any(|(_, word)| word == "test");
                is_for_tests |= is_cfg && !text.contains("not(test)");
            } else if let Some((_, name)) = text.split_once("mod ").filter(|_| is_for_tests) {
                let end = self.code.iter().zip(0..).skip(line).find(|(code, _)| code.starts_with('}'));
                let end = end.filter(|_| name.ends_with('{')).map_or(line, |(_, end)| end);
                self.is_test[line..=end].fill(true);
                self.test_files.extend(name.strip_suffix(';').map(String::from));
            }
            is_for_tests &= text.starts_with("#[") || text.is_empty();
        }
    }

    /// All code as one text.
    pub(crate) fn text(&self) -> String {
        self.code.join("\n")
    }
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
