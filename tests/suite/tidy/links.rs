//! Links of documents lead to files inside the package of the document. Links of the guide's pages
//! work on a forge and in the rustdoc.
//!
//! `src/lib.rs` includes each file of `docs/` as a page. A forge follows paths of files, rustdoc
//! follows paths of Rust. So a page links by a label. The page defines the label as a file, for a
//! forge; `src/lib.rs` defines it above the page, for rustdoc: the first definition counts.
//!
//! ```text
//!   docs/migrating.md    the page [performance] says so      src/lib.rs    /// [performance]: crate::guide::performance
//!                        [performance]: performance.md                     #[doc = include_str!("../docs/migrating.md")]
//! ```

use std::path::{Component, Path, PathBuf};

/// The files of `include` in the library's manifest. `paranoid-set` and `paranoid-sst` take `src` and
/// their READMEs.
pub(crate) const PACKAGED: [&str; 3] = ["src", "examples", "docs"];

/// Folders of packages whose documents link inside them.
pub(crate) const PACKAGES: [&str; 2] = ["set/", "sst/"];

/// A path without `..`. `None`: it leads out of the repository.
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

/// Whether cargo packages a file together with the library's documents: no folder above it has a
/// manifest of its own.
fn is_packaged(root: &Path, path: &Path) -> bool {
    let above = path
        .ancestors()
        .skip(1)
        .filter(|folder| !folder.as_os_str().is_empty());
    let is_other = above
        .into_iter()
        .any(|folder| root.join(folder).join("Cargo.toml").exists());
    let is_atop = path
        .parent()
        .is_some_and(|folder| folder.as_os_str().is_empty())
        && !root.join(path).is_dir();
    !is_other && (is_atop || PACKAGED.iter().any(|folder| path.starts_with(folder)))
}

/// A link of a document.
#[derive(Debug, Clone, Copy)]
struct Link<'t> {
    line: usize,
    /// The label of a definition. `None`: the link has its target in place.
    label: Option<&'t str>,
    /// The target, without the place inside a document.
    target: &'t str,
}

/// The links of a document that lead out of it and begin with no scheme.
fn links(text: &str) -> impl Iterator<Item = Link<'_>> {
    let found = (1..).zip(text.lines()).flat_map(|(line, text)| {
        let places = text.split("](").skip(1);
        let places = places.filter_map(|rest| Some((None, rest.split_once(')')?.0)));
        let definition = text
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        let definition = definition.map(|(label, target)| (Some(label), target));
        places.chain(definition).map(move |(label, target)| Link {
            line,
            label,
            target: target.split('#').next().unwrap_or_default(),
        })
    });
    found.filter(|link| !link.target.is_empty() && !link.target.contains("://"))
}

/// Broken links of one document, and links that lead out of its package.
pub(crate) fn check(root: &Path, path: &str, text: &str) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let broken = links(text).filter_map(|Link { line, target, .. }| {
        if target.contains("::") {
            return Some(format!(
                "{path}:{line}: a forge does not follow {target}; define a label"
            ));
        }
        let leads = plain(&folder.join(target)).filter(|leads| root.join(leads).exists());
        let Some(leads) = leads else {
            return Some(format!("{path}:{line}: {target} does not exist"));
        };
        let own = PACKAGES.iter().find(|folder| path.starts_with(*folder));
        // A record is in no package: all of its links must exist.
        let is_record = path.starts_with("benches/records/");
        let is_inside = own.map_or_else(
            || is_record || is_packaged(root, &leads),
            |own| leads.starts_with(own),
        );
        let advice = "is not in the package; name it in words, or link to where it is published";
        (!is_inside).then(|| format!("{path}:{line}: {target} {advice}"))
    });
    broken.collect()
}

/// The paragraphs of `library` before the line that includes the page: rustdoc reads them above it.
fn above<'l>(library: &'l str, page: &str) -> &'l str {
    let include = format!("#[doc = include_str!(\"../{page}\")]");
    let before = library
        .split_once(&include)
        .map_or("", |(before, _)| before);
    before.rsplit("\n\n").next().unwrap_or_default()
}

/// Links of one of the guide's pages that rustdoc would not follow.
pub(crate) fn check_page(library: &str, page: &str, text: &str) -> Vec<String> {
    let stray = links(text).filter_map(
        |Link {
             line,
             label,
             target,
         }| {
            let Some(label) = label else {
                return Some(format!(
                    "{page}:{line}: rustdoc does not follow {target}; define a label"
                ));
            };
            let module = target.trim_end_matches(".md").replace('-', "_");
            let wanted = format!("/// [{label}]: crate::guide::{module}");
            let is_there = above(library, page)
                .lines()
                .any(|line| line.trim() == wanted);
            (!is_there).then(|| format!("{page}:{line}: write `{wanted}` above it in src/lib.rs"))
        },
    );
    stray.collect()
}

/// Each rule refuses its violation.
#[test]
fn links_that_one_reader_cannot_follow_are_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let of = |text: &str| check(&root, "docs/options.md", text);
    let good =
        "see [performance], [above](#filters) and <https://a.b/c>\n\n[performance]: performance.md";
    assert_eq!(of(good), [""; 0]);
    for bad in [
        "[a](crate::guide::performance)",
        "[a]: crate::guide::performance",
        "[a](no.md)",
        "[a]: no.md",
        "[a](../tests/Cargo.toml)",
        "[a](../../a.md)",
    ] {
        assert_eq!(of(bad).len(), 1, "{bad}");
    }
    let library = "/// [far]: crate::guide::far\n#[doc = include_str!(\"../docs/a.md\")]\n\n\
        /// [b]: crate::guide::b_c\n#[doc = include_str!(\"../docs/options.md\")]";
    let of = |text: &str| check_page(library, "docs/options.md", text);
    assert_eq!(of("[b] and [above](#filters)\n[b]: b-c.md"), [""; 0]);
    for bad in ["[a](b-c.md)", "[b]: c.md", "[far]: far.md"] {
        assert_eq!(of(bad).len(), 1, "{bad}");
    }
}
