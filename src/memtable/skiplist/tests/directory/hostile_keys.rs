//! Keys that tell little apart: searches take few steps, and pages take few bytes. Planted bugs:
//! `appended_key_begins_so`, `copied_byte_ignored`, `end_has_bytes`, `every_node_is_last`,
//! `misordered_page_believed`, `named_by_a_guess`, `replaced_without_end`.
#![forbid(unsafe_code)]

use super::{Table, path};
use crate::comparator::BYTEWISE;
use crate::integrity::hash::splitmix;
use crate::key::Target;
use crate::memtable::skiplist::inserter::Inserter;
use crate::memtable::skiplist::splice::Trail;

/// A set of keys, in the order in which they are written.
struct Shape {
    name: &'static str,
    keys: Vec<Vec<u8>>,
    /// Most bytes of pages for a key, those included that were replaced.
    bytes: f64,
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

fn shapes() -> Vec<Shape> {
    let (count, few) = (6000, 2000);
    let shape = |name, bytes, keys: Vec<Vec<u8>>| Shape { name, keys, bytes };
    let of = |name, bytes, key: &dyn Fn(u64) -> Vec<u8>| {
        shape(name, bytes, shuffled(count).map(key).collect())
    };
    vec![
        of("ten tenants", 40.0, &|n| user(n % 10, n / 10)),
        shape(
            "ten tenants, one after the other",
            40.0,
            (0..count).map(|n| user(n * 10 / count, n)).collect(),
        ),
        shape(
            "tenants that begin small and grow",
            40.0,
            (0..count)
                .map(|n| user(splitmix(n) % (2 + n / 200), splitmix(n) >> 40))
                .collect(),
        ),
        shape(
            "phases: one prefix, then another",
            40.0,
            (0..count)
                .map(|n| {
                    let phase = ["orders/of/", "a", "users/by/name/", "orders/"];
                    let phase = phase[(n * 8 / count % 4) as usize];
                    format!("{phase}{:08x}", splitmix(n) >> 32).into_bytes()
                })
                .collect(),
        ),
        of("paths", 60.0, &path),
        of("paths with letters", 60.0, &long_path),
        shape("paths in order", 60.0, (0..count).map(long_path).collect()),
        shape(
            "equal but for byte 2000",
            60.0,
            shuffled(few)
                .map(|n| [&[b'x'; 2000][..], &n.to_be_bytes()[6..]].concat())
                .collect(),
        ),
        shape(
            "equal but for byte 0 and byte 2000",
            140.0,
            shuffled(few)
                .map(|n| [&[n as u8][..], &[b'x'; 2000], &n.to_be_bytes()[6..]].concat())
                .collect(),
        ),
        shape(
            "prefixes of each other",
            140.0,
            shuffled(few).map(|n| vec![b'x'; 1 + n as usize]).collect(),
        ),
        shape(
            "prefixes of each other, the longest first",
            140.0,
            (0..few).rev().map(|n| vec![b'x'; 1 + n as usize]).collect(),
        ),
        shape(
            "zeros, the shortest first",
            140.0,
            (0..few).map(|n| vec![0; n as usize]).collect(),
        ),
        of("bytes that vary everywhere", 140.0, &|n| {
            let mut key = vec![b'x'; 200];
            key[(splitmix(n) % 200) as usize] = (n % 251) as u8;
            key[(splitmix(!n) % 200) as usize] = (n % 249) as u8;
            key
        }),
    ]
}

/// Bytes that a table with these keys takes.
fn taken(table: &Table) -> u64 {
    table.arena.limit.taken_bytes()
}

#[test]
#[cfg_attr(miri, ignore = "many long keys")]
fn hostile_keys_cost_few_steps_and_bytes() {
    for Shape { name, keys, bytes } in shapes() {
        let (table, plain) = (Table::new(), Table::without_directory());
        let mut inserters = [Inserter::default(), Inserter::default()];
        let mut entries = Vec::new();
        for (sequence, key) in (1..).zip(&keys) {
            table.put(&mut inserters[0], key, sequence);
            plain.put(&mut inserters[1], key, sequence);
            entries.push((key.clone(), sequence));
        }
        let nodes = table.finds(&entries, name);
        let pages = (taken(&table) - taken(&plain)) as f64 / keys.len() as f64;
        println!("{name}: {nodes:.2} nodes a search, {pages:.1} bytes of pages an entry");
        assert!(
            super::is_sound(&table.search()),
            "{name}: a page is refused"
        );
        assert!(nodes < 6.0, "{name}: {nodes} nodes a search");
        assert!(pages < bytes, "{name}: {pages} bytes of pages an entry");
    }
}

/// Keys beside the beginning that all keys of a table share are before or after all of them.
#[test]
fn keys_without_the_shared_beginning_are_found_to_be_absent_at_once() {
    let count = if cfg!(miri) { 70 } else { 2000 };
    let (table, mut inserter) = (Table::new(), Inserter::default());
    let shared = b"all keys begin with this";
    for n in 0..count {
        let key = [shared.as_slice(), &splitmix(n).to_be_bytes()].concat();
        table.put(&mut inserter, &key, n + 1);
    }
    let search = table.search();
    for at in 0..shared.len() {
        for by in [1, u8::MAX] {
            let mut key = [shared.as_slice(), &[0x80; 8]].concat();
            key[at] = key[at].wrapping_add(by);
            let mut trail = Trail::default();
            let target = Target::new(&BYTEWISE, &key, 1);
            let bracket = search.bracket(&target, &mut trail).unwrap();
            assert_eq!(bracket.entry.is_none(), by == 1, "byte {at}");
            assert!(trail.nodes <= 4, "byte {at}: {} nodes", trail.nodes);
        }
    }
}
