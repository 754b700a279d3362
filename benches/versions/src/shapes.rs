//! Measures keys as engines have them: each shape of `measure::keys`, filled at random and in
//! order.
//!
//! ```text
//!   benches/versions/run COMMIT keys [ENTRIES [ROUNDS [PROTECTION_BYTES]]]
//! ```
//! A table of each version takes the keys with even numbers. Then it is asked, in another random
//! order, for each of them, for the absent key with the odd number after each, and for the first
//! entry from each key on.

use measure::keys::{Generator, Keys, Presence, Shape, mix, shuffled};

use crate::{Row, SLICES, VALUE_LEN};

const VALUE: [u8; VALUE_LEN] = [0x61; VALUE_LEN];
const OPERATIONS: [&str; 4] = ["insert", "get hit", "get miss", "seek"];

/// Seeds of the order of a fill at random, and of the order of reads.
const SEEDS: [u64; 2] = [4, 5];

/// The arguments of a run.
pub struct Options {
    pub entries: u64,
    pub rounds: usize,
    pub protection: u8,
    /// The only shape and fill to run, for profiles.
    pub only: Option<String>,
}

/// The order in which a table is filled.
#[derive(Clone, Copy)]
enum Fill {
    Random,
    Ascending,
}

impl Fill {
    fn name(self) -> &'static str {
        match self {
            Fill::Random => "at random",
            Fill::Ascending => "in order",
        }
    }
}

/// The operations of a version. Profiles tell them apart by the names of these functions, so no two
/// have equal code: the compiler would merge them.
trait Candidate {
    fn insert(&self, keys: &Keys, first: u64);
    fn hit(&self, keys: &Keys) -> u64;
    fn miss(&self, keys: &Keys) -> u64;
    fn seek(&self, keys: &Keys) -> u64;
}

macro_rules! candidate {
    ($name:ident) => {
        mod $name {
            use super::{Candidate, Keys, VALUE};
            use $name::{Lookup, MemTable, MemTableOptions, ParanoidOptions};

            struct Table(MemTable);

            pub fn table(protection: u8, seed: u64) -> Box<dyn Candidate> {
                let paranoid = ParanoidOptions::builder()
                    .protection_bytes(protection)
                    .build()
                    .expect("options");
                let options = MemTableOptions::builder().paranoid(paranoid).seed(seed);
                let table = MemTable::new(options.build().expect("options"));
                Box::new(Table(table.expect("a table")))
            }

            impl Candidate for Table {
                #[inline(never)]
                fn insert(&self, keys: &Keys, first: u64) {
                    for (key, sequence) in keys.iter().zip(first..) {
                        self.0.put(sequence, key, &VALUE).expect("a put");
                    }
                }

                #[inline(never)]
                fn hit(&self, keys: &Keys) -> u64 {
                    let found = |key: &[u8]| match self.0.get(key, u64::MAX).expect("a get") {
                        Lookup::Value(value) => value.sequence() + u64::from(value[0]),
                        _ => panic!("a present key is not found"),
                    };
                    keys.iter().map(found).sum()
                }

                #[inline(never)]
                fn miss(&self, keys: &Keys) -> u64 {
                    let absent = |key: &[u8]| match self.0.get(key, u64::MAX).expect("a get") {
                        Lookup::Value(_) => panic!("an absent key is found"),
                        _ => 1_u64,
                    };
                    keys.iter().map(absent).sum()
                }

                #[inline(never)]
                fn seek(&self, keys: &Keys) -> u64 {
                    let first = |key: &[u8]| {
                        let entry = self.0.range(key..).next().expect("a present key");
                        entry.expect("intact memory").sequence()
                    };
                    keys.iter().map(first).sum()
                }
            }
        }
    };
}

candidate!(before);
candidate!(after);

/// The keys of one shape, in slices.
struct Work {
    filled: Vec<Keys>,
    present: Vec<Keys>,
    absent: Vec<Keys>,
}

impl Work {
    /// Keys of `entries` entries, which are whole slices.
    fn new(shape: Shape, fill: Fill, entries: u64) -> Work {
        let generator = Generator::new(shape, entries);
        let slices = |order: &[u64], presence| {
            order
                .chunks_exact(order.len() / SLICES)
                .map(|part| generator.keys(part, presence))
                .collect()
        };
        let filled: Vec<u64> = match fill {
            Fill::Random => shuffled(entries, SEEDS[0]),
            Fill::Ascending => (0..entries).collect(),
        };
        let read = shuffled(entries, SEEDS[1]);
        Work {
            filled: slices(&filled, Presence::Hit),
            present: slices(&read, Presence::Hit),
            absent: slices(&read, Presence::Miss),
        }
    }
}

/// Fills a table of each version, and reads both.
fn round(rows: &mut [Row; 4], work: &Work, protection: u8, seed: u64) {
    let before = before::table(protection, seed);
    let after = after::table(protection, seed);
    let [insert, hit, miss, seek] = rows;
    for (at, keys) in work.filled.iter().enumerate() {
        let first = (at * keys.count()) as u64 + 1;
        let put = |table: &dyn Candidate| {
            table.insert(keys, first);
            0_u64
        };
        let (before, after) = (&mut || put(&*before), &mut || put(&*after));
        insert.slice(keys.count(), at, before, after);
    }
    for (at, (present, absent)) in work.present.iter().zip(&work.absent).enumerate() {
        let count = present.count();
        let (old, new) = (&mut || before.hit(present), &mut || after.hit(present));
        hit.slice(count, at, old, new);
        let (old, new) = (&mut || before.miss(absent), &mut || after.miss(absent));
        miss.slice(count, at, old, new);
        let (old, new) = (&mut || before.seek(present), &mut || after.seek(present));
        seek.slice(count, at, old, new);
    }
}

pub fn run(options: &Options) {
    let Options {
        entries,
        rounds,
        protection,
        only,
    } = options;
    let entries = entries / SLICES as u64 * SLICES as u64;
    println!(
        "{entries} entries, values of {VALUE_LEN} bytes, protection {protection}, \
         {rounds} rounds of {SLICES} slices; after / before"
    );
    let mut hash = 0;
    for shape in Shape::ALL {
        for fill in [Fill::Random, Fill::Ascending] {
            let name = format!("{}, {}", shape.name(), fill.name());
            if only.as_ref().is_some_and(|only| *only != name) {
                continue;
            }
            let work = Work::new(shape, fill, entries);
            let mut rows: [Row; 4] = Default::default();
            for seed in 0..*rounds as u64 {
                round(&mut rows, &work, *protection, seed);
            }
            for (operation, row) in OPERATIONS.iter().zip(&rows) {
                row.print(&format!("{name}: {operation}"));
                hash = mix(hash ^ row.hash);
            }
        }
    }
    println!("operations {}", entries * *rounds as u64);
    println!("hash of the work {hash:016x}");
}
