//! Links of documents lead to files, inside the package that the document comes in.

use std::path::{Component, Path, PathBuf};

/// What `include` of the library's manifest takes; `paranoid-sst` takes `src`, `examples` and its README.
const PACKAGED: [&str; 3] = ["src", "examples", "docs"];

/// A path without `..`, or `None` if it leads out of the repository.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !plain.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            part => plain.push(part),
        }
    }
    Some(plain)
}

/// Whether cargo packages a file together with the library's documents: no folder above it has a manifest of its own.
fn is_packaged(root: &Path, path: &Path) -> bool {
    let above = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    let is_other = above.into_iter().any(|folder| root.join(folder).join("Cargo.toml").exists());
    let is_atop =
        path.parent().is_some_and(|folder| folder.as_os_str().is_empty()) && !root.join(path).is_dir();
    !is_other && (is_atop || PACKAGED.iter().any(|folder| path.starts_with(folder)))
}

/// Where the links of a document lead that begin with no scheme and are no paths of Rust, and their lines.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines());
    lines.flat_map(|(number, line)| line.split("](").skip(1).map(move |rest| (number, rest))).filter_map(
        |(number, rest)| {
            let target = rest.split_once(')')?.0.split('#').next()?;
            (!target.is_empty() && !target.contains("::") && !target.contains("://"))
                .then_some((number, target))
        },
    )
}

/// Broken links of one document, and those that lead out of its package.
pub(crate) fn check(root: &Path, path: &str, text: &str) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let broken = targets(text).filter_map(|(line, target)| {
        let leads = plain(&folder.join(target)).filter(|leads| root.join(leads).exists());
        let Some(leads) = leads else { return Some(format!("{path}:{line}: {target} does not exist")) };
        let is_inside =
            if path.starts_with("sst/") { leads.starts_with("sst") } else { is_packaged(root, &leads) };
        let advice = "is not in the package; name it in words, or link to where it is published";
        (!is_inside).then(|| format!("{path}:{line}: {target} {advice}"))
    });
    broken.collect()
}
