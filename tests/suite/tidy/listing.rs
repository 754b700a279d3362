//! How public items are written down in `tests/data/public_api.txt`: names with their modules, types with what is public in them,
//! functions with their signatures.

use std::collections::BTreeSet;

use super::source::{Source, words};

/// Lines as one, with single spaces and without the attributes among them.
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines = lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("#["));
    let text = lines.collect::<Vec<_>>().join(" ");
    [("( ", "("), (", )", ")"), ("< ", "<"), (", >", ">")]
        .iter()
        .fold(text, |text, (old, new)| text.replace(old, new))
}

/// A function or the head of an `impl`, from its line to where its body begins.
pub(crate) fn head(source: &Source, line: usize) -> String {
    let ends = |at: &usize| source.code[*at].trim_end().ends_with(['{', ';', '}']);
    let end = (line..source.code.len()).find(ends).unwrap_or(line);
    let text = joined(source.code[line..=end].iter().map(String::as_str));
    text.split(" {").next().unwrap_or_default().trim_end_matches(';').into()
}

/// A type: all of an enum and of the functions of a trait, what is public of a struct.
pub(crate) fn declaration(source: &Source, line: usize) -> String {
    let code = |at: usize| source.code[at].as_str();
    let (first, is_struct) = (head(source, line), code(line).contains("struct "));
    let end = (line..source.code.len()).find(|at| code(*at).starts_with('}') || code(*at).ends_with(';'));
    let inner: Vec<usize> = (line + 1..end.unwrap_or(line)).collect();
    let is_member = |at: &usize| code(*at).starts_with("    ") && !code(*at).starts_with("     ");
    let members: Vec<String> = if code(line).contains("trait ") {
        let declares = |at: &usize| {
            is_member(at) && words(code(*at)).any(|(_, word)| ["fn", "const", "type"].contains(&word))
        };
        inner.into_iter().filter(declares).map(|at| head(source, at)).collect()
    } else {
        let shown = inner.into_iter().map(code).filter(|code| !is_struct || code.trim().starts_with("pub "));
        vec![joined(shown)]
    };
    let above = (1..line).rev().map(code).take_while(|code| code.starts_with("#[") || code.is_empty());
    let kept = above.filter(|code| code.starts_with("#[derive") || *code == "#[non_exhaustive]");
    let attributes: String = kept.map(|attribute| format!(" {attribute}")).collect();
    format!("{first} {}", members.join("; ")).trim_end().to_owned() + &attributes
}

/// What `pub use` takes to the root and to the modules, each name with the path by which users call it.
pub(crate) fn paths(facades: &[&Source]) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for source in facades {
        let folder =
            source.path.trim_end_matches("/mod.rs").trim_end_matches("/lib.rs").trim_start_matches("src");
        let folder = folder.trim_start_matches('/').replace('/', "::");
        let (mut inside, mut item) = (String::new(), String::new());
        for code in &source.code {
            let spelled: Vec<&str> = words(code).map(|(_, word)| word).take(3).collect();
            if let ["pub", "mod", name] = spelled[..]
                && code.ends_with('{')
            {
                inside = name.into();
            } else if code.starts_with('}') {
                inside.clear();
            } else if !item.is_empty() || code.trim_start().starts_with("pub use ") {
                item += code;
            }
            if item.ends_with(';') {
                let names =
                    words(&item).map(|(_, word)| word).filter(|word| word.starts_with(char::is_uppercase));
                let path = |name: &str| {
                    let parts = ["paranoid_memtable", folder.as_str(), inside.as_str(), name];
                    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("::")
                };
                paths.extend(names.map(path));
                item.clear();
            }
        }
    }
    paths
}

/// What was added and what is gone, as lines of a difference.
pub(crate) fn difference(old: &str, new: &str) -> Vec<String> {
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) = (old.lines().collect(), new.lines().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}"));
    gone.chain(new.difference(&old).map(|line| format!("+ {line}"))).collect()
}
