//! The work at one size: its kinds, their order, and their tables.

use anyhow::Result;
use measure::{Row, Section};

use crate::Arguments;
use crate::rivals::{Accelerator, Candidate, Extra, Fresh, Room};
use crate::work::{
    Entries, KeyShape, Keys, Presence, Shape, Slice, Tables, Way, Work, mix, picks, row, shuffled,
};

pub const SEED: u64 = 4;
/// Entries of a write batch.
const BATCH: usize = 32;
/// Keys of a multi_get.
const TOGETHER: usize = 24;
/// Number of entries after a seek.
const STEPS: usize = 10;
/// Threads that work at once, in rows that name them.
const AT_ONCE: [usize; 2] = [2, 8];
/// Numbers that a range delete covers.
const WIDTH: u64 = 10;

/// Numbers of entries of small tables.
const SMALL: [usize; 3] = [20, 100, 1_000];

/// The order in which a table is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Random,
}

/// Whether entries come one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Single,
    Batched,
}

/// The parameters and tables of one size.
struct Stage<'a> {
    arguments: &'a Arguments,
    candidates: &'a [Candidate],
    entries: u64,
    shape: Shape,
    room: Room,
    /// Number of threads that work at once in the next rows.
    threads: usize,
    rows: Vec<Row>,
}

/// Measures all work with keys of one shape at one size.
pub fn section(
    arguments: &Arguments,
    candidates: &[Candidate],
    key: KeyShape,
    entries: u64,
) -> Result<Section> {
    let room = arguments.room(key, entries);
    let mut stage = Stage {
        arguments,
        candidates,
        entries,
        shape: room.shape,
        room,
        threads: 1,
        rows: Vec::new(),
    };
    stage.in_order()?;
    stage.batched("insert in order, batches of 32", Order::Ascending)?;
    stage.batched("insert at random, batches of 32", Order::Random)?;
    let counted = stage.at_random()?;
    stage.mixed()?;
    stage.small();
    if arguments.wants_threads(entries) {
        stage.at_once()?;
    }
    stage.checksums()?;
    let is_one_of_several = arguments.keys.len() > 1;
    Ok(Section {
        title: is_one_of_several.then(|| key.name()).unwrap_or_default(),
        entries,
        keys: is_one_of_several.then(|| key.len()),
        rows: stage.rows,
        counted,
        ..Section::default()
    })
}

/// Whether a candidate takes part in all rows. The others differ only in some work.
fn plain(candidate: Candidate) -> bool {
    !matches!(candidate, Candidate::Ours(_, Accelerator::Filter))
        && !matches!(
            candidate,
            Candidate::RocksDb(_, Extra::Bloom | Extra::Promise | Extra::BatchLookup)
        )
}

fn point_reads(candidate: Candidate) -> bool {
    plain(candidate)
        || matches!(
            candidate,
            Candidate::Ours(..) | Candidate::RocksDb(_, Extra::Bloom)
        )
}

fn multi_reads(candidate: Candidate) -> bool {
    point_reads(candidate) || matches!(candidate, Candidate::RocksDb(_, Extra::BatchLookup))
}

fn with_ranges(candidate: Candidate) -> bool {
    matches!(candidate, Candidate::Ours(_, Accelerator::Nothing))
        || plain(candidate) && matches!(candidate, Candidate::RocksDb(..))
}

impl Stage<'_> {
    fn wants(&self, row: &str) -> bool {
        self.arguments.wants(row)
    }

    /// Whether a candidate takes part in rows of this many threads. arenaskiplist 0.2 loses some of
    /// the entries that eight threads insert.
    fn shares(&self, candidate: Candidate) -> bool {
        plain(candidate) && (self.threads <= 2 || candidate != Candidate::ArenaSkiplist)
    }

    /// The name of a row, with its number of threads.
    fn named(&self, row: &str) -> String {
        if self.threads == 1 {
            row.to_owned()
        } else {
            format!("{row}, {} threads", self.threads)
        }
    }

    fn tables(&self) -> Result<Tables> {
        let room = Room {
            threads: self.threads,
            ..self.room
        };
        self.candidates
            .iter()
            .map(|candidate| candidate.table(room))
            .collect()
    }

    /// Operations of a slice. It is small enough that a table of this size gives enough rounds.
    fn slice(&self, of: u64) -> usize {
        let most = usize::try_from(of).unwrap_or(usize::MAX) / self.arguments.rounds;
        (self.arguments.slice * self.threads).min(most).max(1)
    }

    /// Slices of entries to put, with a part per thread, and the rest. Sequence numbers count up
    /// from `first`.
    fn entries(&self, order: &[u64], count: usize, first: u64) -> (Vec<Slice>, Slice) {
        let of = |at: usize, part: &[u64]| {
            let share = part.len().div_ceil(self.threads).max(1);
            let parts = part.chunks(share).enumerate();
            let first = first + at as u64;
            let entries = parts
                .map(|(thread, part)| self.shape.entries(part, first + (thread * share) as u64));
            Slice {
                operations: part.len(),
                entries: entries.collect(),
                ..Slice::default()
            }
        };
        let whole = order.chunks_exact(count);
        let rest = whole.remainder();
        let slices = whole
            .enumerate()
            .map(|(round, part)| of(round * count, part))
            .collect();
        (slices, of(order.len() - rest.len(), rest))
    }

    /// Fills all tables side by side, a slice each in turn, so that compared tables always have the
    /// same size.
    fn fill(&self, name: &str, order: Order, pace: Pace) -> Result<(Tables, Row)> {
        let tables = self.tables()?;
        let order = match order {
            Order::Ascending => (0..self.entries).collect(),
            Order::Random => shuffled(self.entries, SEED),
        };
        let (slices, rest) = self.entries(&order, self.slice(self.entries), 1);
        let row = row(
            &self.named(name),
            self.candidates,
            &tables,
            &slices,
            |candidate| self.threads == 1 || self.shares(candidate),
            |slice| {
                let insert = |entries| match pace {
                    Pace::Single => Work::Insert(entries),
                    Pace::Batched => Work::InsertBatches(entries, BATCH),
                };
                slice.entries.iter().map(insert).collect()
            },
        );
        put_all(&tables, &rest);
        Ok((tables, row))
    }

    fn in_order(&mut self) -> Result<()> {
        let scans = [
            ("scan forward, filled in order", Way::Forward),
            ("scan backward, filled in order", Way::Backward),
        ];
        let gets = [
            ("get hit, filled in order", Presence::Hit),
            ("get miss, filled in order", Presence::Miss),
        ];
        let (name, seek) = ("insert in order", "seek + next 10, filled in order");
        let of_reads = scans.map(|(name, _)| name).into_iter();
        let mut all = of_reads
            .chain(gets.map(|(name, _)| name))
            .chain([name, seek]);
        if !all.any(|name| self.wants(name)) {
            return Ok(());
        }
        let (tables, row) = self.fill(name, Order::Ascending, Pace::Single)?;
        self.rows.push(row);
        for (name, presence) in gets {
            self.get(name, &tables, presence);
        }
        self.seek(seek, &tables);
        for (name, way) in scans {
            self.scan(name, &tables, way);
        }
        Ok(())
    }

    fn batched(&mut self, name: &str, order: Order) -> Result<()> {
        if self.wants(&self.named(name)) {
            let row = self.fill(name, order, Pace::Batched)?.1;
            self.rows.push(row);
        }
        Ok(())
    }

    /// Reads tables that were filled at random. Returns the bytes that each of them counts.
    fn at_random(&mut self) -> Result<Vec<Option<f64>>> {
        let (mut tables, row) = self.fill("insert at random", Order::Random, Pace::Single)?;
        self.rows.push(row);
        let counted = tables.iter().map(|table| {
            table
                .counted()
                .map(|bytes| bytes as f64 / self.entries as f64)
        });
        let counted = counted.collect();
        for (name, presence) in [("get hit", Presence::Hit), ("get miss", Presence::Miss)] {
            self.get(name, &tables, presence);
        }
        self.multi_get(&tables);
        self.seek("seek + next 10", &tables);
        self.scan("scan forward, filled at random", &tables, Way::Forward);
        self.scan("scan backward, filled at random", &tables, Way::Backward);
        self.ranges(&mut tables);
        Ok(counted)
    }

    /// Slices of keys to read, with a part per thread.
    fn keys(&self, seed: u64, presence: Presence, multiple: usize) -> Vec<Slice> {
        let threads = self.threads;
        let share = (self.arguments.slice / multiple).max(1) * multiple;
        let slice = |round: u64| {
            let part = |thread: u64| {
                let seed = mix(SEED ^ seed ^ round << 8 ^ thread) >> 32;
                self.shape.keys(&picks(self.entries, share, seed), presence)
            };
            let keys: Vec<Keys> = (0..threads as u64).map(part).collect();
            Slice {
                operations: share * threads,
                keys,
                ..Slice::default()
            }
        };
        (0..self.arguments.rounds as u64).map(slice).collect()
    }

    fn get(&mut self, name: &str, tables: &Tables, presence: Presence) {
        let name = self.named(name);
        if self.wants(&name) {
            let slices = self.keys(1 << 32, presence, 1);
            let takes_part = |candidate| {
                if self.threads == 1 {
                    point_reads(candidate)
                } else {
                    self.shares(candidate)
                }
            };
            let row = row(
                &name,
                self.candidates,
                tables,
                &slices,
                takes_part,
                |slice| slice.keys.iter().map(Work::Get).collect(),
            );
            self.rows.push(row);
        }
    }

    fn multi_get(&mut self, tables: &Tables) {
        let name = "multi_get of 24";
        if self.wants(name) {
            let slices = self.keys(2 << 32, Presence::Hit, TOGETHER);
            let row = row(
                name,
                self.candidates,
                tables,
                &slices,
                multi_reads,
                |slice| {
                    slice
                        .keys
                        .iter()
                        .map(|keys| Work::MultiGet(keys, TOGETHER))
                        .collect()
                },
            );
            self.rows.push(row);
        }
    }

    fn seek(&mut self, name: &str, tables: &Tables) {
        if self.wants(name) {
            let mut slices = self.keys(3 << 32, Presence::Hit, 1);
            for slice in &mut slices {
                // A seek is as much work as several gets.
                slice.operations = 0;
                for keys in &mut slice.keys {
                    let kept = (keys.bytes.len() / keys.len / 4).max(1);
                    keys.bytes.truncate(kept * keys.len);
                    slice.operations += kept;
                }
            }
            let row = row(name, self.candidates, tables, &slices, plain, |slice| {
                slice
                    .keys
                    .iter()
                    .map(|keys| Work::Seek(keys, STEPS))
                    .collect()
            });
            self.rows.push(row);
        }
    }

    fn scan(&mut self, name: &str, tables: &Tables, way: Way) {
        if !self.wants(name) {
            return;
        }
        let half = self.entries / 2;
        let steps = self
            .arguments
            .slice
            .min(usize::try_from(half).unwrap_or(usize::MAX));
        let slices: Vec<Slice> = (0..self.arguments.rounds as u64)
            .map(|round| {
                // Far enough from the end for all steps.
                let from = picks(half, 1, SEED + 2_000 + round)[0];
                let from = if way == Way::Forward {
                    from
                } else {
                    self.entries - 1 - from
                };
                let keys = vec![self.shape.keys(&[from], Presence::Hit)];
                Slice {
                    operations: steps,
                    keys,
                    ..Slice::default()
                }
            })
            .collect();
        let row = row(name, self.candidates, tables, &slices, plain, |slice| {
            slice
                .keys
                .iter()
                .map(|key| Work::Scan(key, steps, way))
                .collect()
        });
        self.rows.push(row);
    }

    /// Half puts, half gets, on tables that grow from half their size.
    fn mixed(&mut self) -> Result<()> {
        let name = self.named("put and get, half and half");
        if !self.wants(&name) {
            return Ok(());
        }
        let tables = self.tables()?;
        let order = shuffled(self.entries, SEED + 1);
        let (there, new) = order.split_at(order.len() / 2);
        put_all(&tables, &self.entries(there, there.len().max(1), 1).0[0]);
        let count = self
            .slice(new.len() as u64)
            .min(self.arguments.slice * self.threads / 2);
        let (mut slices, _) = self.entries(new, count, 1 + there.len() as u64);
        slices.truncate(self.arguments.rounds);
        for (round, slice) in slices.iter_mut().enumerate() {
            slice.operations *= 2;
            let keys_of = |(thread, part): (usize, &Entries)| {
                let seed = SEED + 5_000 + round as u64 + ((thread as u64) << 16);
                let asked = picks(there.len() as u64, part.count(), seed);
                let asked: Vec<u64> = asked.iter().map(|at| there[*at as usize]).collect();
                self.shape.keys(&asked, Presence::Hit)
            };
            slice.keys = slice.entries.iter().enumerate().map(keys_of).collect();
        }
        let row = row(
            &name,
            self.candidates,
            &tables,
            &slices,
            |candidate| self.shares(candidate),
            |slice| {
                slice
                    .entries
                    .iter()
                    .zip(&slice.keys)
                    .map(|(entries, keys)| Work::Mix(entries, keys))
                    .collect()
            },
        );
        self.rows.push(row);
        Ok(())
    }

    /// Inserts, gets and both by several threads at once.
    fn at_once(&mut self) -> Result<()> {
        for threads in AT_ONCE {
            self.threads = threads;
            let (insert, get) = ("insert at random", "get hit");
            if [insert, get].iter().any(|row| self.wants(&self.named(row))) {
                let (tables, row) = self.fill(insert, Order::Random, Pace::Single)?;
                self.rows.push(row);
                self.get(get, &tables, Presence::Hit);
            }
            self.batched("insert at random, batches of 32", Order::Random)?;
            self.mixed()?;
        }
        self.threads = 1;
        Ok(())
    }

    /// A slice of range deletes at random places, and gets if `gets` has a seed.
    fn range_slice(&self, count: usize, first: u64, seed: u64, gets: Option<u64>) -> Slice {
        let from = picks(self.entries - WIDTH, count, SEED + seed);
        let gets = gets.map(|seed| picks(self.entries, count, SEED + seed));
        let ranges = vec![self.shape.ranges(&from, WIDTH, first, gets.as_deref())];
        Slice {
            operations: count,
            ranges,
            ..Slice::default()
        }
    }

    /// Small tables, which engines may have by the thousand: each is made, filled at random, and
    /// dropped.
    fn small(&mut self) {
        for size in SMALL {
            let name = format!("fill and drop {size} entries");
            if !self.wants(&name) {
                continue;
            }
            let entries = size as u64;
            let shape = Shape {
                entries,
                ..self.shape
            };
            let room = Room {
                shape,
                entries,
                ..self.room
            };
            let times = self.arguments.slice.div_ceil(size);
            let fresh = |candidate: &Candidate| {
                Box::new(Fresh {
                    candidate: *candidate,
                    room,
                    times,
                })
            };
            let tables: Tables = self
                .candidates
                .iter()
                .map(|candidate| fresh(candidate) as _)
                .collect();
            let slice = |round| Slice {
                operations: size * times,
                entries: vec![shape.entries(&shuffled(entries, SEED + round), 1)],
                ..Slice::default()
            };
            let slices: Vec<Slice> = (0..self.arguments.rounds as u64).map(slice).collect();
            let row = row(&name, self.candidates, &tables, &slices, plain, |slice| {
                slice.entries.iter().map(Work::Insert).collect()
            });
            self.rows.push(row);
        }
    }

    /// Pairs of a range delete and a get, and gets among range tombstones.
    fn ranges(&mut self, tables: &mut Tables) {
        if !self.wants("range delete and get") && !self.wants("get hit, range tombstones") {
            return;
        }
        let (mut next, mut seed) = (self.entries * 10, 10_000);
        let mut standing = 0usize;
        let sizes: [usize; 2] = if self.entries < 10_000 {
            [10, 100]
        } else {
            [1_000, 10_000]
        };
        for (size, pairs) in sizes.into_iter().zip([50, 20]) {
            let missing = size.saturating_sub(standing);
            let slice = self.range_slice(missing, next, seed, None);
            for (table, candidate) in tables.iter().zip(self.candidates) {
                if with_ranges(*candidate)
                    && let Some(task) = table.prepare(Work::DeleteRanges(&slice.ranges[0]))
                {
                    task();
                }
            }
            next += missing as u64;
            let slices: Vec<Slice> = (0..self.arguments.rounds as u64)
                .map(|round| {
                    let first = next + round * pairs as u64;
                    self.range_slice(pairs, first, seed + 1 + round, Some(seed + 500 + round))
                })
                .collect();
            let name = format!("range delete and get, {size} range tombstones");
            let row = row(
                &name,
                self.candidates,
                tables,
                &slices,
                with_ranges,
                |slice| slice.ranges.iter().map(Work::DeleteRanges).collect(),
            );
            self.rows.push(row);
            standing = size + pairs * self.arguments.rounds;
            next += (pairs * self.arguments.rounds) as u64;
            seed += 1_000;
            self.get_among(&format!("get hit, {size} range tombstones"), tables);
        }
        for (table, candidate) in tables.iter_mut().zip(self.candidates) {
            if with_ranges(*candidate) {
                table.freeze();
            }
        }
        self.get_among(
            &format!("get hit, {} range tombstones, frozen", sizes[1]),
            tables,
        );
    }

    fn get_among(&mut self, name: &str, tables: &Tables) {
        let slices = self.keys(4 << 32, Presence::Hit, 1);
        let row = row(
            name,
            self.candidates,
            tables,
            &slices,
            with_ranges,
            |slice| slice.keys.iter().map(Work::Get).collect(),
        );
        self.rows.push(row);
    }

    fn checksums(&mut self) -> Result<()> {
        if !self.wants("checksum") {
            return Ok(());
        }
        let tables = self.tables()?;
        let first_of =
            |wanted: fn(&Candidate) -> bool| self.candidates.iter().copied().find(wanted);
        let chosen = [
            first_of(|candidate| matches!(candidate, Candidate::Ours(..))),
            first_of(|candidate| matches!(candidate, Candidate::RocksDb(..))),
        ];
        for (kind, name) in [(1, "crc32c"), (2, "xxhash"), (3, "xxhash64"), (4, "xxh3")] {
            for len in [64usize, 4_096, 65_536] {
                // 256 KiB fit into the caches. The passes add up to a slice of 8 MiB.
                let (bytes, passes) =
                    (256 << 10, (self.arguments.slice * 420 / (256 << 10)).max(1));
                let words = (0..bytes as u64 / 8).flat_map(|at| mix(at).to_le_bytes());
                let blocks = Keys {
                    bytes: words.collect(),
                    len,
                };
                let slices: Vec<Slice> = (0..self.arguments.rounds)
                    .map(|_| Slice {
                        operations: bytes / len * passes,
                        keys: vec![blocks.clone()],
                        ..Slice::default()
                    })
                    .collect();
                let name = format!("checksum {name}, {len} bytes");
                let takes_part = |candidate| chosen.contains(&Some(candidate));
                let row = row(
                    &name,
                    self.candidates,
                    &tables,
                    &slices,
                    takes_part,
                    |slice| {
                        slice
                            .keys
                            .iter()
                            .map(|blocks| Work::Checksum(kind, blocks, passes))
                            .collect()
                    },
                );
                self.rows.push(row);
            }
        }
        Ok(())
    }
}

/// Puts without timing.
fn put_all(tables: &Tables, slice: &Slice) {
    for table in tables {
        for task in slice
            .entries
            .iter()
            .filter_map(|entries| table.prepare(Work::Insert(entries)))
        {
            task();
        }
    }
}
