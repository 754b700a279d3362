//! Figures of documents come from records, and records from commits that exist.
//!
//! `tests/data/figures.txt` lists the sentences and tables of documents with measured figures. In a
//! sentence, `{KIND > TEXT > N}` means the N-th number after TEXT in the newest record of that kind
//! (`2026-11-23-peers.md` is of the kind `peers`). A heading with ` > ` may come before TEXT: the
//! search for TEXT begins there.

use std::collections::{BTreeMap, BTreeSet};

/// The texts of records, by name.
pub(crate) type Records = BTreeMap<String, String>;

/// The units of measured figures.
const UNITS: [&str; 8] = ["ns", "us", "ms", "times", "%", "seconds", "M/s", "faults"];

/// Endings of records in the order in which they are read.
const READABLE: [&str; 2] = [".md", ".txt"];

/// Date and kind of a record: `2026-11-23-peers-keys-64.md` is of the kind `peers-keys-64`.
fn dated(name: &str) -> Option<(&str, &str)> {
    let (stem, _) = name.rsplit_once('.')?;
    let is_date = |date: &str| {
        date.len() == 10
            && date
                .bytes()
                .enumerate()
                .all(|(at, byte)| (byte == b'-') == (at == 4 || at == 7))
    };
    let (date, kind) = stem.split_at_checked(10)?;
    is_date(date).then_some((date, kind.strip_prefix('-')?))
}

/// The newest record of a kind that has a text.
fn newest<'a>(records: &'a Records, kind: &str) -> Option<&'a str> {
    let of_kind = records
        .iter()
        .filter(|(name, _)| dated(name).is_some_and(|(_, its)| its == kind));
    let mut readable =
        of_kind.filter(|(name, _)| READABLE.iter().any(|ending| name.ends_with(ending)));
    readable.next_back().map(|(_, text)| text.as_str())
}

/// The picture of the newest record of a kind.
pub(crate) fn newest_drawn(records: &Records, kind: &str) -> Option<String> {
    let mut of_kind = records.iter().filter(|(name, _)| {
        name.ends_with(".svg") && dated(name).is_some_and(|(_, its)| its == kind)
    });
    of_kind.next_back().map(|(_, picture)| picture.clone())
}

/// The first words after `commit` or `commits` on a line that can be abbreviated commits: they name
/// the measured versions.
fn named_commits(text: &str) -> BTreeSet<&str> {
    let rests = text
        .lines()
        .filter_map(|line| line.split_once("commit").map(|(_, rest)| rest));
    let is_hash = |word: &&str| {
        (7..=40).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    rests
        .filter_map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric())
                .find(is_hash)
        })
        .collect()
}

/// Records without a commit of this history, records that a newer one of their kind replaces, and
/// records that are not in the index.
pub(crate) fn check_records(records: &Records, history: Option<&str>) -> Vec<String> {
    let names = records.keys().filter(|name| !name.ends_with(".svg"));
    let kinds: BTreeSet<&str> = names.filter_map(|name| Some(dated(name)?.1)).collect();
    let index = records.get("README.md").map_or("", String::as_str);
    let rows = index
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let listed: BTreeSet<&str> = rows
        .flat_map(|row| row.split(", "))
        .filter(|kind| *kind != "kind")
        .collect();
    let differ = kinds.symmetric_difference(&listed);
    let mut findings: Vec<String> = differ
        .map(|kind| format!("benches/records/README.md: `{kind}` is listed or there, not both"))
        .collect();
    for (name, text) in records.iter().filter(|(name, _)| !name.ends_with(".svg")) {
        let Some((date, kind)) = dated(name) else {
            continue;
        };
        let newer = records
            .keys()
            .filter_map(|other| dated(other))
            .any(|(its, other)| other == kind && its > date);
        findings.extend(
            newer.then(|| format!("benches/records/{name}: a newer one replaces it; remove it")),
        );
        let named = named_commits(text);
        findings.extend(
            named
                .is_empty()
                .then(|| format!("benches/records/{name}: name the commit, `commit: HASH`")),
        );
        let is_lost = |commit: &&&str| {
            history.is_some_and(|history| !history.lines().any(|line| line.starts_with(**commit)))
        };
        let lost = named.iter().filter(is_lost);
        findings.extend(lost.map(|commit| {
            format!("benches/records/{name}: no commit {commit} in the history; measure anew")
        }));
    }
    findings
}

/// Numbers of a text: digits in groups of three and a fraction (`2 603 704`, `1.14`), without their
/// groups.
fn numbers(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let begin = rest.find(|c: char| c.is_ascii_digit())?;
        let (number, length) = number(&rest[begin..]);
        rest = &rest[begin + length..];
        Some(number)
    })
}

/// The number at the start of a text, and its length there.
fn number(text: &str) -> (String, usize) {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut end = 0;
    loop {
        end += usize::from(digit(end));
        let is_group = end > 0 && end <= 3 || (end > 3 && bytes[..end].contains(&b' '));
        let is_grouped = is_group
            && bytes.get(end) == Some(&b' ')
            && (1..=3).all(|at| digit(end + at))
            && !digit(end + 4);
        let is_fraction =
            bytes.get(end) == Some(&b'.') && digit(end + 1) && !bytes[..end].contains(&b'.');
        match (digit(end), is_grouped, is_fraction) {
            (true, ..) => {}
            (_, true, _) | (.., true) => end += 1,
            _ => return (text[..end].replace(' ', ""), end),
        }
    }
}

/// The figure that `{KIND > HEADING > TEXT > N}` names.
fn figure(records: &Records, place: &str) -> Result<String, String> {
    let parts: Vec<&str> = place.split(" > ").collect();
    let (kind, texts, nth) = match &*parts {
        [kind, texts @ .., nth] if !texts.is_empty() => (*kind, texts, *nth),
        _ => return Err(format!("{{{place}}}: write {{KIND > TEXT > N}}")),
    };
    let mut rest =
        newest(records, kind).ok_or_else(|| format!("{{{place}}}: no record of that kind"))?;
    for text in texts {
        let behind = rest.split_once(text).map(|(_, behind)| behind);
        rest = behind.ok_or_else(|| format!("{{{place}}}: the newest record has no {text:?}"))?;
    }
    let nth: usize = nth
        .parse()
        .map_err(|_| format!("{{{place}}}: {nth:?} is no number"))?;
    let line = rest.lines().next().unwrap_or_default();
    numbers(line)
        .nth(nth - 1)
        .ok_or_else(|| format!("{{{place}}}: the line has fewer numbers"))
}

/// Whether a document's figure is that of a record, rounded to the document's digits.
fn agree(stated: &str, recorded: &str) -> bool {
    let digits = stated
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    recorded
        .parse::<f64>()
        .is_ok_and(|recorded| format!("{recorded:.digits$}") == stated)
}

/// Finds a sentence in a document, and the figures at its places. Removes it from the text.
fn take_sentence(text: &mut String, literals: &[&str]) -> Option<Vec<String>> {
    let (first, others) = literals.split_first()?;
    for (begin, _) in text.match_indices(first) {
        let (mut at, mut stated) = (begin + first.len(), vec![]);
        let is_there = others.iter().all(|literal| {
            let (number, length) = number(&text[at..]);
            at += length;
            stated.push(number);
            let follows = length > 0 && text[at..].starts_with(literal);
            at += if follows { literal.len() } else { 0 };
            follows
        });
        if is_there {
            text.replace_range(begin..at, " ");
            return Some(stated);
        }
    }
    None
}

/// The first table after a heading of a record.
fn table_of(record: &str, heading: &str) -> Option<String> {
    let (_, rest) = record.split_once(heading)?;
    let lines = rest.lines().skip_while(|line| !line.starts_with('|'));
    Some(
        lines
            .take_while(|line| line.starts_with('|'))
            .collect::<Vec<_>>()
            .join(" "),
    )
}

fn one_line(text: &str) -> String {
    text.replace("//!", " ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Checks one line of the list against a document, and removes its sentence or table from the text.
fn check_line(records: &Records, text: &mut String, line: &str) -> Vec<String> {
    if let Some(place) = line.strip_prefix("table ") {
        let (kind, heading) = place.split_once(" > ").unwrap_or((place, ""));
        let table = newest(records, kind)
            .and_then(|record| table_of(record, heading))
            .map(|table| one_line(&table));
        let found = table
            .as_ref()
            .and_then(|table| text.find(table).map(|at| (at, table.len())));
        let Some((at, length)) = found else {
            return vec![format!(
                "{line}: take the table from the newest record:\n{}",
                table.unwrap_or_default()
            )];
        };
        text.replace_range(at..at + length, " ");
        return vec![];
    }
    let parts: Vec<&str> = line.split(['{', '}']).collect();
    let (literals, places): (Vec<&str>, Vec<&str>) = (
        parts.iter().step_by(2).copied().collect(),
        parts.iter().skip(1).step_by(2).copied().collect(),
    );
    let Some(stated) = take_sentence(text, &literals) else {
        return vec![format!("no such sentence: {line}")];
    };
    let pairs = stated.iter().zip(places);
    let wrong = pairs.filter_map(|(stated, place)| match figure(records, place) {
        Ok(recorded) => (!agree(stated, &recorded))
            .then(|| format!("{stated} is {recorded} in the record: {line}")),
        Err(why) => Some(why),
    });
    wrong.collect()
}

/// Figures with a unit that no line of the list names.
fn unlisted(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let found = words.windows(2).filter(|pair| {
        let number = pair[0].trim_start_matches(['(', '+', '-', '~', '|']);
        let unit = pair[1].trim_end_matches(['.', ',', ';', ':', ')']);
        number.parse::<f64>().is_ok() && UNITS.contains(&unit)
    });
    found
        .map(|pair| format!("`{} {}` is from no record", pair[0], pair[1]))
        .collect()
}

/// Figures of documents that are not in records.
pub(crate) fn check(list: &str, documents: &[(String, String)], records: &Records) -> Vec<String> {
    let mut findings = vec![];
    for (path, text) in documents {
        let mut text = one_line(text);
        let lines = list
            .lines()
            .filter_map(|line| line.strip_prefix(path)?.strip_prefix(": "));
        let wrong: Vec<String> = lines
            .flat_map(|line| check_line(records, &mut text, line))
            .collect();
        let advice = |what: String| format!("{path}: {what}; see tests/data/figures.txt");
        findings.extend(wrong.into_iter().chain(unlisted(&text)).map(advice));
    }
    let is_known = |line: &&str| {
        line.starts_with('#')
            || documents
                .iter()
                .any(|(path, _)| line.starts_with(&format!("{path}: ")))
    };
    findings.extend(
        list.lines()
            .filter(|line| !is_known(line))
            .map(|line| format!("no such document: {line}")),
    );
    findings
}

/// The kind of the record whose rows the picture shows beside those of `peers`.
const DECIMALS: &str = "peers-keys-decimals";

/// Dots of the README's picture that are not in the newest record of their kind. Once there is a
/// record of decimal ids, the picture shows it.
pub(crate) fn check_picture(picture: &str, records: &Records) -> Vec<String> {
    let dots = picture.split("data-record=\"").skip(1).filter_map(|dot| {
        let kind = dot.split('"').next()?;
        let row = dot.split_once("data-row=\"")?.1.split('"').next()?;
        let (_, stated) = dot.split_once("<title>")?.1.split_once(": ")?;
        Some((kind, row, number(stated).0))
    });
    let dots: Vec<_> = dots.collect();
    let is_there = |kind: &str, row: &str, stated: &str| {
        let record = newest(records, kind).unwrap_or_default();
        let rows = record.split_once("## 250000 entries in short");
        let line = rows.and_then(|(_, rows)| {
            rows.lines()
                .find(|line| line.starts_with(&format!("| {row} |")))
        });
        line.is_some_and(|line| line.contains(&format!("({stated})")))
    };
    let wrong = dots
        .iter()
        .filter(|(kind, row, stated)| !is_there(kind, row, stated));
    let wrong = wrong.map(|(kind, row, stated)| format!("{row}: {stated} is in no record {kind}"));
    let missing = ["peers", DECIMALS].into_iter().filter(|kind| {
        newest(records, kind).is_some() && dots.iter().all(|(shown, ..)| shown != kind)
    });
    let missing = missing.map(|kind| format!("it shows no row of the record {kind}"));
    wrong
        .chain(missing)
        .map(|what| {
            format!("docs/pictures/speed.svg: {what}; run `cargo run -- picture` in benches/peers")
        })
        .collect()
}

/// Each rule refuses its violation.
#[test]
fn stale_figures_are_refused() {
    let record = "- commit: 12d4a83\n## 250000\n| get of 24 | 1 436.26 | 2.5 |\n";
    let records: Records = [
        ("2026-11-23-peers.md", record),
        ("2026-11-22-peers.json", "\"commit\": \"0012d4a\""),
        ("README.md", "| peers | rivals |"),
    ]
    .map(|(name, text)| (name.into(), text.into()))
    .into();
    let list = "a.md: A get takes {peers > 250000 > of 24 > 1} ns, {peers > of 24 > 2} times\na.md: table peers > ## 250000\n";
    let of = |text: &str| check(list, &[("a.md".into(), text.into())], &records);
    let table = "| get of 24 | 1 436.26 | 2.5 |";
    assert_eq!(
        of(&format!(
            "A get\ntakes 1436 ns, 2.5 times as long.\n{table}"
        )),
        Vec::<String>::new()
    );
    assert_eq!(
        of(&format!("A get takes 1437 ns, 2.5 times\n{table}")).len(),
        1
    );
    assert_eq!(
        of(&format!("A get takes 1436 ns, 2.5 times, so 7 ns\n{table}")).len(),
        1
    );
    assert_eq!(of("A get takes 1436 ns, 2.5 times").len(), 1);
    assert_eq!(of("").len(), 2);
    let dot = |stated: &str| {
        format!(
            "data-record=\"peers\" data-row=\"get\" data-rival=\"skl\"><title>a get: {stated} times</title>"
        )
    };
    let with_rows: Records = [(
        "2026-11-23-peers.md".into(),
        "## 250000 entries in short\n| get | 7 | 9 (1.25) |\n".into(),
    )]
    .into();
    let of_picture = |picture: &str| check_picture(picture, &with_rows).len();
    assert_eq!(
        [dot("1.25"), dot("1.5"), String::new()].map(|picture| of_picture(&picture)),
        [0, 1, 1]
    );
    assert_eq!(of_picture(&dot("1.25").replace("peers", DECIMALS)), 2);
    assert_eq!(check_records(&records, Some("12d4a83123\n")).len(), 2);
    assert_eq!(
        check_records(&records, Some("0012d4a123\n12d4a83\n")).len(),
        1
    );
}
