//! Planted bugs: each patch applies, and names tests that exist.

use std::collections::BTreeSet;

use super::rules::source::{Source, words};

const PLACES: [&str; 3] = ["lib", "suite", "loom"];

/// The errors of a patch. `read` returns the text of a file.
pub(crate) fn check(
    path: &str,
    patch: &str,
    tests: &Tests,
    read: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let (mut findings, mut file, mut named) = (vec![], None, 0);
    let head = patch.lines().take_while(|line| !line.starts_with("--- a/"));
    for test in head.filter_map(|line| line.strip_prefix("test: ")) {
        named += 1;
        let is_whole = test
            .split_once(' ')
            .is_some_and(|(place, _)| PLACES.contains(&place));
        findings.extend(
            (!is_whole).then(|| format!("{path}: write `test: PLACE FILTER`, not {test:?}")),
        );
        let filters = test.split(' ').skip(1).filter(|filter| !tests.have(filter));
        findings
            .extend(filters.map(|filter| format!("{path}: no test has {filter:?} in its name")));
    }
    findings.extend(
        (named == 0).then(|| format!("{path}: name the test that must fail: `test: PLACE FILTER`")),
    );
    for part in patch.split("\n--- a/").skip(1) {
        let name = part.lines().next().unwrap_or_default();
        let text = read(name);
        for hunk in part.split("\n@@ ").skip(1) {
            file = Some(name);
            let old: String = hunk
                .lines()
                .skip(1)
                .filter(|line| !line.starts_with('+'))
                .fold(String::new(), |old, line| {
                    old + line.get(1..).unwrap_or_default() + "\n"
                });
            let count = text.as_deref().map_or(0, |text| text.matches(&old).count());
            let advice = "write it anew, or remove it if its mistake cannot be made any more";
            findings.extend((count != 1).then(|| {
                format!(
                    "{path}: what it replaces in {name} is there {count} times; {advice}:\n{old}"
                )
            }));
        }
    }
    findings.extend(file.is_none().then(|| format!("{path}: changes nothing")));
    findings
}

/// The names of all tests and models, as cargo lists them.
#[derive(Debug, Default)]
pub(crate) struct Tests(BTreeSet<String>);

impl Tests {
    pub(crate) fn of(sources: &[Source]) -> Tests {
        Tests(sources.iter().flat_map(names).collect())
    }

    /// Whether a filter of `cargo test` finds a test.
    fn have(&self, filter: &str) -> bool {
        self.0.iter().any(|name| name.contains(filter))
    }
}

/// The tests of a file, with their modules. rustfmt's indentation shows where a module ends.
fn names(source: &Source) -> Vec<String> {
    let path = source.path.trim_start_matches("tests/suite/");
    let path = path.split("src/").last().unwrap_or(path);
    let file = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let file = match file {
        "lib" | "main" => String::new(),
        file => file.replace('/', "::") + "::",
    };
    let (mut modules, mut is_test, mut found) = (Vec::<(usize, String)>::new(), false, vec![]);
    for line in &source.code {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let spelled: Vec<&str> = words(text).map(|(_, word)| word).collect();
        let after = |keyword| {
            let pair = spelled.windows(2).find(|pair| pair[0] == keyword);
            pair.map(|pair| pair[1].to_string())
        };
        if text.starts_with('}') && modules.last().is_some_and(|module| module.0 == indent) {
            modules.pop();
        }
        is_test |= text.starts_with("#[test]");
        if text.starts_with(['m', 'p'])
            && text.ends_with('{')
            && let Some(name) = after("mod")
        {
            modules.push((indent, name));
        } else if is_test && let Some(name) = after("fn") {
            is_test = false;
            let inside: String = modules
                .iter()
                .map(|(_, name)| format!("{name}::"))
                .collect();
            found.push(format!("{file}{inside}{name}"));
        }
    }
    found
}

#[test]
fn planted_bugs_without_a_test_are_refused() {
    let text = "mod tests {\n    #[test]\n    fn f_is_g() {\n    }\n    fn h() {}\n}\n\n#[test]\nfn i() {}";
    let tests = Tests::of(&[
        Source::parse("src/a/b.rs", text),
        Source::parse("tests/suite/c.rs", text),
        Source::parse("set/src/d/mod.rs", text),
    ]);
    for (filter, is_there) in [
        ("a::b::tests::f_is_g", true),
        ("a::b::i", true),
        ("c::tests::", true),
        ("d::tests::f_", true),
        ("a::b::tests::h", false),
        ("a::b::tests::i", false),
        ("e::", false),
    ] {
        let patch = format!("Wrong.\ntest: lib {filter}\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n");
        let found = check("p.patch", &patch, &tests, |_| Some("a\n".into()));
        assert_eq!(found.is_empty(), is_there, "{filter}: {found:?}");
    }
}
