//! Planted bugs: each patch of tests/mutants names its tests and applies to the sources as they are.

const PLACES: [&str; 3] = ["lib", "suite", "loom"];

/// What is wrong with a patch; `read` gives the text of a file.
pub(crate) fn check(path: &str, patch: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (mut findings, mut file, mut tests) = (vec![], None, 0);
    let head = patch.lines().take_while(|line| !line.starts_with("--- a/"));
    for test in head.filter_map(|line| line.strip_prefix("test: ")) {
        tests += 1;
        let is_whole = test.split_once(' ').is_some_and(|(place, _)| PLACES.contains(&place));
        findings.extend((!is_whole).then(|| format!("{path}: write `test: PLACE FILTER`, not {test:?}")));
    }
    findings
        .extend((tests == 0).then(|| format!("{path}: name the test that must fail: `test: PLACE FILTER`")));
    for part in patch.split("\n--- a/").skip(1) {
        let name = part.lines().next().unwrap_or_default();
        let text = read(name);
        for hunk in part.split("\n@@ ").skip(1) {
            file = Some(name);
            let old: String = hunk
                .lines()
                .skip(1)
                .filter(|line| !line.starts_with('+'))
                .fold(String::new(), |old, line| old + line.get(1..).unwrap_or_default() + "\n");
            let count = text.as_deref().map_or(0, |text| text.matches(&old).count());
            let advice = "write it anew, or remove it if its mistake cannot be made any more";
            findings.extend((count != 1).then(|| {
                format!("{path}: what it replaces in {name} is there {count} times; {advice}:\n{old}")
            }));
        }
    }
    findings.extend(file.is_none().then(|| format!("{path}: changes nothing")));
    findings
}
