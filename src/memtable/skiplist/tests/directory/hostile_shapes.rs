//! Keys that tell little apart, in the order in which they are written. The program
//! `benches/instructions` counts what they cost, so this file imports only a random word of a
//! number from its parent.
#![forbid(unsafe_code)]

use super::splitmix;

/// A set of keys, in the order in which they are written.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) keys: Vec<Vec<u8>>,
    /// Most bytes of pages for a key.
    pub(super) bytes: f64,
}

/// The path of a file in one of many folders.
pub(super) fn path(n: u64) -> Vec<u8> {
    let (project, module, file) = (n / 400 % 100, n / 20 % 20, n % 20);
    let folder = format!("/usr/local/share/project-{project:04}/module-{module:04}");
    format!("{folder}/source-{file:04}-{:04x}.tar.gz", splitmix(n) >> 48).into_bytes()
}

/// The path of a file whose directories have numbers and letters.
fn long_path(n: u64) -> Vec<u8> {
    let letters = |n: u64| splitmix(n) >> 40;
    let (project, module, source) = (n / 8000, n / 200 % 40, n / 10 % 20);
    let folder = format!(
        "/usr/local/share/project-{project:04}-{:06x}",
        letters(project)
    );
    let folder = format!("{folder}/module-{module:04}-{:06x}", letters(n / 200));
    let folder = format!("{folder}/source-{source:04}-{:06x}", letters(source));
    format!(
        "{folder}/file-{:02}-{:07x}.tar.gz",
        2 * (n % 10),
        splitmix(n) >> 36
    )
    .into_bytes()
}

fn user(tenant: u64, number: u64) -> Vec<u8> {
    format!("tenant-{tenant:04}:user:{number:010}").into_bytes()
}

/// Numbers below `count`, each once, in another order.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.sort_by_key(|number| splitmix(*number));
    numbers.into_iter()
}

/// All sets: `count` keys each, or `few` long ones.
pub(super) fn hostile_shapes(count: u64, few: u64) -> Vec<Shape> {
    [engines(count), long_keys(few), strewn(count)]
        .into_iter()
        .flatten()
        .collect()
}

fn shape(name: &'static str, bytes: f64, keys: impl Iterator<Item = Vec<u8>>) -> Shape {
    let keys = keys.collect();
    Shape { name, keys, bytes }
}

/// Tenants and folders: few beginnings, some of which come late.
fn engines(count: u64) -> Vec<Shape> {
    let phases = ["orders/of/", "a", "users/by/name/", "orders/"];
    let phase = |n: u64| phases[(n * 8 / count % 4) as usize];
    vec![
        shape(
            "ten tenants",
            40.0,
            shuffled(count).map(|n| user(n % 10, n / 10)),
        ),
        shape(
            "ten tenants, one after the other",
            40.0,
            (0..count).map(|n| user(n * 10 / count, n)),
        ),
        shape(
            "tenants that begin small and grow",
            40.0,
            (0..count).map(|n| user(splitmix(n) % (2 + n / 200), splitmix(n) >> 40)),
        ),
        shape(
            "phases: one prefix, then another",
            40.0,
            (0..count).map(|n| format!("{}{:08x}", phase(n), splitmix(n) >> 32).into_bytes()),
        ),
        shape("paths", 60.0, shuffled(count).map(path)),
        shape("paths with letters", 60.0, shuffled(count).map(long_path)),
        shape("paths in order", 60.0, (0..count).map(long_path)),
    ]
}

/// Keys of up to some 2 000 bytes.
fn long_keys(few: u64) -> Vec<Shape> {
    let last = |n: u64| n.to_be_bytes()[6..].to_vec();
    let one_byte = |n: u64| vec![b'x'; 1 + n as usize];
    vec![
        shape(
            "equal but for byte 2000",
            60.0,
            shuffled(few).map(|n| [&[b'x'; 2000][..], &last(n)].concat()),
        ),
        shape(
            "equal but for byte 0 and byte 2000",
            140.0,
            shuffled(few).map(|n| [&[n as u8][..], &[b'x'; 2000], &last(n)].concat()),
        ),
        shape("prefixes of each other", 140.0, shuffled(few).map(one_byte)),
        shape(
            "prefixes of each other, the longest first",
            140.0,
            (0..few).rev().map(one_byte),
        ),
        shape(
            "zeros, the shortest first",
            140.0,
            (0..few).map(|n| vec![0; n as usize]),
        ),
        shape(
            "one byte repeated, each byte in eight lengths",
            140.0,
            shuffled(few).map(|n| vec![n as u8; 1 + 31 * (n as usize >> 8)]),
        ),
    ]
}

/// Keys that differ at any two of 200 places.
fn strewn(count: u64) -> Vec<Shape> {
    let key = |n: u64| {
        let mut key = vec![b'x'; 200];
        key[(splitmix(n) % 200) as usize] = (n % 251) as u8;
        key[(splitmix(!n) % 200) as usize] = (n % 249) as u8;
        key
    };
    let keys = shuffled(count).map(key);
    vec![shape("bytes that vary everywhere", 140.0, keys)]
}
