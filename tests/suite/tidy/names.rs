//! The field's terms: words that this crate once used for them are refused.

use super::source::{Source, words};

/// Refused everywhere. Spelled in halves, so that a search for them does not find this file.
pub(crate) const RETIRED: [&str; 9] = [
    concat!("le", "ns"),
    concat!("sky", "line"),
    concat!("cro", "wn"),
    concat!("gli", "de"),
    concat!("sco", "ut"),
    concat!("ai", "ds"),
    concat!("hur", "dle"),
    concat!("la", "nes"),
    concat!("sto", "rey"),
];

/// Refused in the names of types, functions, modules and files.
pub(crate) const RETIRED_NAMES: [&str; 9] =
    ["edge", "forest", "hole", "promise", "guarded", "raise", "door", "roll", "proof"];

/// Refused as the whole name of a module or file.
pub(crate) const RETIRED_FILES: [&str; 6] = ["probe", "cover", "decide", "splice", "stripes", "invariants"];

/// How records of former days were made, and are still read.
const FORMER: [&str; 2] = [concat!("alias = \"la", "nes\""), concat!("--la", "nes ")];

/// What declares a name.
const DECLARES: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "mod", "union"];

/// The words of a name or of prose, in lower case.
fn parts(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in text.chars() {
        spaced.extend(c.is_uppercase().then_some(' '));
        spaced.extend(if c.is_alphabetic() { c.to_lowercase().next() } else { Some(' ') });
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// The first part that is in the list, or is the plural of one that is.
fn found(list: &[&str], text: &str) -> Option<String> {
    let is_listed = |word: &String| list.iter().any(|old| word == old || word.strip_suffix('s') == Some(old));
    parts(text).into_iter().find(is_listed)
}

/// Retired words in a text, line by line.
pub(crate) fn retired(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !FORMER.iter().any(|old| line.contains(old)));
    let found = lines.filter_map(|(line, number)| Some((number, found(&RETIRED, line)?)));
    found
        .map(|(line, word)| format!("{path}:{line}: {word}; use the term of ARCHITECTURE.md's glossary"))
        .collect()
}

/// Retired words in the names that a file declares, and in its own.
pub(crate) fn retired_names(source: &Source) -> Vec<String> {
    let file = source.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    let declared = source.code.iter().enumerate().flat_map(|(line, code)| {
        let words: Vec<&str> = words(code).map(|(_, word)| word).collect();
        let pairs: Vec<(usize, &str, &str)> = words.windows(2).map(|pair| (line, pair[0], pair[1])).collect();
        pairs.into_iter().filter(|(_, keyword, _)| DECLARES.contains(keyword))
    });
    let names = declared.map(|(line, keyword, name)| (line, keyword == "mod", name)).chain([(1, true, file)]);
    let found = names.filter_map(|(line, is_file, name)| {
        let whole = is_file && RETIRED_FILES.contains(&name);
        let word = found(&RETIRED_NAMES, name).or(whole.then(|| name.into()))?;
        Some(format!("{}:{line}: {name}: {word}; use the term of ARCHITECTURE.md's glossary", source.path))
    });
    found.collect()
}
