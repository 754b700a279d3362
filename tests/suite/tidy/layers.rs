//! Imports go downward: the list is the fenced `layers` block of ARCHITECTURE.md.

use std::collections::BTreeMap;

use super::lexer::{Ground, Source};

/// One line of the list.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) layer: u8,
    /// A file, or a folder with a trailing slash.
    pub(crate) path: String,
}

/// Reads the block: a number, a path and what it is for, on each line.
pub(crate) fn rooms(architecture: &str) -> Result<Vec<Room>, String> {
    let mut inside = false;
    let mut rooms: Vec<Room> = vec![];
    for (index, line) in architecture.lines().enumerate() {
        match line.trim() {
            "```layers" => inside = true,
            "```" => inside = false,
            "" => {}
            text if inside => {
                let mut words = text.split_whitespace();
                let layer = words.next().and_then(|word| word.parse().ok());
                let (Some(layer), Some(path), Some(_)) = (layer, words.next(), words.next()) else {
                    return Err(format!(
                        "ARCHITECTURE.md:{}: write a layer line as `number path purpose`",
                        index + 1
                    ));
                };
                rooms.push(Room { layer, path: path.into() });
            }
            _ => {}
        }
    }
    if rooms.is_empty() {
        return Err("ARCHITECTURE.md:1: add a fenced block that opens with ```layers".into());
    }
    Ok(rooms)
}

/// A path as code names it: `crate::key::Kind`, groups taken apart.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    pub(crate) ground: Ground,
    inline_mods: Vec<String>,
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Every path of two segments or more, and everything that `use` and `extern crate` name.
pub(crate) fn paths(source: &Source) -> Vec<Named> {
    let mut found = vec![];
    for (index, token) in source.tokens.iter().enumerate() {
        if !is_word(&token.text) || matches!(token.text.as_str(), "use" | "in") {
            continue;
        }
        let before = |back: usize| index.checked_sub(back).map_or("", |i| source.text(i));
        let continues = before(1) == "::" && (is_word(before(2)) || matches!(before(2), ">" | "$"));
        let imported = before(1) == "use" || (before(1) == "crate" && before(2) == "extern");
        let follows = source.text(index + 1) == "::";
        if !continues && before(1) != "in" && (follows || imported) {
            let mut tree = vec![];
            walk(source, index, &mut vec![], &mut tree);
            found.extend(tree.into_iter().map(|segments| Named {
                segments,
                line: token.line,
                ground: token.ground,
                inline_mods: token.inline_mods.clone(),
            }));
        }
    }
    found
}

/// Takes the use tree at `index` apart; returns the index after it.
fn walk(source: &Source, mut index: usize, prefix: &mut Vec<String>, out: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    loop {
        prefix.push(source.text(index).into());
        index += 1;
        if source.text(index) != "::" {
            break;
        }
        let next = source.text(index + 1);
        if next == "{" {
            index += 2;
            while !matches!(source.text(index), "}" | "") {
                if is_word(source.text(index)) || source.text(index) == "*" {
                    index = walk(source, index, prefix, out);
                } else {
                    index += 1;
                }
            }
            prefix.truncate(depth);
            return index + 1;
        }
        if !is_word(next) && next != "*" {
            break;
        }
        index += 1;
    }
    if source.text(index) == "as" {
        index += 2;
    }
    out.push(prefix.clone());
    prefix.truncate(depth);
    index
}

/// The module path of a file in src/.
pub(crate) fn module_path(path: &str) -> Vec<String> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut segments: Vec<String> = inner.split('/').map(String::from).collect();
    if matches!(segments.last().map(String::as_str), Some("mod" | "lib")) {
        segments.pop();
    }
    segments
}

/// The list's line that decides about `path`: the longest that matches.
fn room_of<'r>(rooms: &'r [Room], path: &str) -> Option<(usize, &'r Room)> {
    let matches =
        |room: &Room| room.path == path || (room.path.ends_with('/') && path.starts_with(&room.path));
    rooms.iter().enumerate().filter(|(_, room)| matches(room)).max_by_key(|(_, room)| room.path.len())
}

/// One file that names another, and where.
struct Import<'s> {
    from: &'s Source,
    to: &'s str,
    named: Named,
}

/// Every import of shipped code that leads to one of our files.
fn imports(sources: &[Source]) -> Vec<Import<'_>> {
    let files: BTreeMap<Vec<String>, &str> =
        sources.iter().map(|source| (module_path(&source.path), source.path.as_str())).collect();
    let mut found = vec![];
    for from in sources.iter().filter(|source| !is_test(source, sources)) {
        for named in paths(from).into_iter().filter(|named| named.ground == Ground::Code) {
            if let Some(to) = resolve(from, &named, &files) {
                found.push(Import { from, to, named });
            }
        }
    }
    found
}

/// Whether the file is a test module, or below one.
fn is_test(source: &Source, sources: &[Source]) -> bool {
    let module = module_path(&source.path);
    sources.iter().any(|parent| {
        let declaring = module_path(&parent.path);
        let next = module.get(declaring.len());
        module.starts_with(&declaring) && next.is_some_and(|name| parent.test_files.contains(name))
    })
}

/// Every import that does not go downward, and every line of the list that stands for nothing. If the order within
/// layers is at fault, a list that would do is added.
pub(crate) fn check(rooms: &[Room], sources: &[Source]) -> Vec<String> {
    let mut findings = vec![];
    for room in rooms {
        if !sources.iter().any(|s| s.path == room.path || s.path.starts_with(&room.path)) {
            findings
                .push(format!("ARCHITECTURE.md:1: no file stands after `{}`; remove its line", room.path));
        }
    }
    for source in sources.iter().filter(|source| room_of(rooms, &source.path).is_none()) {
        findings.push(format!("{}:1: give the file a line in ARCHITECTURE.md's layers", source.path));
    }
    let imports = imports(sources);
    for Import { from, to, named } in &imports {
        if let Some(wrong) = judge(rooms, &from.path, to) {
            let path = named.segments.join("::");
            findings.push(format!("{}:{}: `{path}` {wrong}", from.path, named.line));
        }
    }
    for layer in 0..=u8::MAX {
        let marker = format!("stays in layer {layer};");
        if findings.iter().any(|finding| finding.contains(&marker)) {
            findings.push(proposal(rooms, sources, &imports, layer));
        }
    }
    findings
}

/// The lines of one layer in an order that its imports allow; what is left over imports itself in a circle.
fn proposal(rooms: &[Room], sources: &[Source], imports: &[Import<'_>], layer: u8) -> String {
    let is_here = |path: &str| room_of(rooms, path).is_some_and(|(_, room)| room.layer == layer);
    let mut left: Vec<&Source> = sources
        .iter()
        .filter(|s| is_here(&s.path) && !s.path.ends_with("mod.rs") && !is_test(s, sources))
        .collect();
    let mut text = format!("layer {layer} could be listed as\n");
    while let Some(next) = left.iter().position(|file| {
        let waits = |import: &Import<'_>| {
            import.from.path == file.path
                && import.to != file.path
                && left.iter().any(|other| other.path == import.to)
        };
        !imports.iter().any(waits)
    }) {
        let file = left.remove(next);
        let purpose = file.comments.get(1).map_or("", |line| line.trim_start_matches(['/', '!', ' ']));
        text += &format!("{layer}  {:<36} {}\n", file.path, purpose.trim_end_matches('.'));
    }
    if !left.is_empty() {
        let circle: Vec<&str> = left.iter().map(|file| file.path.as_str()).collect();
        text += &format!("and a circle has to be cut among {}", circle.join(", "));
    }
    text
}

/// The file that a path leads to, if it is one of ours.
fn resolve<'f>(source: &Source, named: &Named, files: &BTreeMap<Vec<String>, &'f str>) -> Option<&'f str> {
    let mut module = module_path(&source.path);
    let mut segments = named.segments.iter().map(String::as_str).peekable();
    match segments.peek() {
        Some(&"crate") => {
            module.clear();
            segments.next();
        }
        Some(&"super" | &"self") => {
            module.extend(named.inline_mods.iter().cloned());
            while let Some(step @ ("super" | "self")) = segments.peek().copied() {
                if step == "super" {
                    module.pop();
                }
                segments.next();
            }
        }
        Some(first) => {
            module.push((*first).into());
            files.get(&module)?;
            segments.next();
        }
        None => return None,
    }
    module.extend(segments.map(String::from));
    (0..=module.len()).rev().find_map(|len| files.get(&module[..len]).copied())
}

/// Why `from` may not import `to`, with what to do instead.
fn judge(rooms: &[Room], from: &str, to: &str) -> Option<String> {
    let folder = from.strip_suffix("mod.rs");
    if from == to || folder.is_some_and(|folder| to.starts_with(folder)) {
        return None;
    }
    let ((from_line, from_room), (to_line, to_room)) = (room_of(rooms, from)?, room_of(rooms, to)?);
    if to == "src/lib.rs" || (to.ends_with("/mod.rs") && to_room.path != to) {
        return Some(format!("goes through the facade {to}; import from the file that defines it"));
    }
    if to_room.layer < from_room.layer {
        return None;
    }
    if to_room.layer > from_room.layer {
        return Some(format!(
            "goes up from layer {} to {} ({to}); move the shared part down, or hand it in from above",
            from_room.layer, to_room.layer
        ));
    }
    if to_room.path != to || from_room.path != from || to_line > from_line {
        return Some(format!(
            "stays in layer {}; list `{to}` and below it `{from}` in ARCHITECTURE.md, or move the shared part down",
            from_room.layer
        ));
    }
    None
}
