//! The field's terms: words that this crate once used for them are refused.

use super::lexer::Source;

/// Refused everywhere. Spelled in halves, so that a search for them does not find this file.
const RETIRED: [&str; 9] = [
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

/// Refused as names of types, functions, modules and files.
const RETIRED_NAMES: [&str; 7] = ["edge", "forest", "hole", "promise", "guarded", "raise", "door"];

/// What records and command lines of former days are still read by.
const FORMER: &str = concat!("alias = \"la", "nes\"");

/// What declares a name.
const DECLARES: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "mod", "union"];

/// The words of a name or of prose, in lower case, plurals taken back.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    for c in text.chars() {
        if c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.extend(if c.is_alphabetic() { c.to_lowercase().next() } else { Some(' ') });
    }
    let words: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    words.into_iter()
}

fn is_one_of(list: &[&str], word: &str) -> bool {
    list.iter().any(|retired| word == *retired || word.strip_suffix('s') == Some(retired))
}

/// Retired words in a text, line by line.
pub(crate) fn retired(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().zip(1..);
    let found = lines.filter_map(|(line, number)| {
        if line.contains(FORMER) {
            return None;
        }
        let word = words(line).find(|word| is_one_of(&RETIRED, word))?;
        Some(format!("{path}:{number}: {word}; use the field's term, see the glossary of ARCHITECTURE.md"))
    });
    found.collect()
}

/// Retired words in the names that a file declares, and in its own.
pub(crate) fn retired_names(source: &Source) -> Vec<String> {
    let path = &source.path;
    let declared = source.tokens.windows(2).filter(|pair| DECLARES.contains(&pair[0].text.as_str()));
    let names = declared.map(|pair| (pair[1].line, pair[1].text.as_str()));
    let file = path.rsplit('/').next().map(|file| (1, file.trim_end_matches(".rs")));
    let found = names.chain(file).filter_map(|(line, name)| {
        let word = words(name).find(|word| is_one_of(&RETIRED_NAMES, word))?;
        Some(format!(
            "{path}:{line}: {name}: {word} is no term of the field; see the glossary of ARCHITECTURE.md"
        ))
    });
    found.collect()
}
