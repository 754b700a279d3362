//! The benchmarks that read, and reads over all tables of a version.

use std::cmp::Ordering;

use paranoid_memtable::read::{Base, Operands};
use paranoid_memtable::scan::{AtSnapshot, Borrowed};
use paranoid_memtable::{ChecksumKind, Entry, Error, Lookup, ValueRef};

use crate::bench::{Histogram, Thread, Until};
use crate::failure::Failure;
use crate::fills::write_beside_readers;
use crate::output::print;
use crate::tables::{Held, Version};

fn of_read(error: Error) -> Failure {
    Failure::of_table("read", &error)
}

fn until_reads(thread: &Thread<'_>) -> Until {
    let extent = thread.shared.settings.extent;
    Until::new(extent.duration, extent.reads)
}

/// Takes the random number with which db_bench chooses a database, and then a key's number.
fn draw(thread: &mut Thread<'_>) -> u64 {
    thread.random.next();
    thread.random.below(thread.shared.settings.extent.num)
}

pub(crate) fn read_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    gets(thread, "")
}

/// Reads keys that are one byte longer than any key that is written.
pub(crate) fn read_missing(thread: &mut Thread<'_>) -> Result<(), Failure> {
    gets(thread, "\0")
}

fn gets(thread: &mut Thread<'_>, suffix: &str) -> Result<(), Failure> {
    let keys = thread.shared.settings.keys;
    let mut until = until_reads(thread);
    let (mut key, mut read, mut found) = (Vec::new(), 0u64, 0u64);
    while until.more(1) && !thread.in_vain() {
        let number = draw(thread);
        keys.write(number, &mut key);
        key.extend_from_slice(suffix.as_bytes());
        if let Answer::Value(len) = thread.session.version().get(&key).map_err(of_read)? {
            found += 1;
            thread.stats.bytes += (key.len() + len) as u64;
        }
        read += 1;
        thread.finished(1);
    }
    thread.stats.message = format!("({found} of {read} found)\n");
    Ok(())
}

pub(crate) fn multi_read_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let (num, stride, batched) = (
        settings.extent.num,
        settings.reading.stride,
        settings.reading.batched,
    );
    let batch = settings.batch_size as u64;
    let mut until = Until::new(
        settings.extent.duration,
        settings.extent.reads.next_multiple_of(batch),
    );
    let mut keys = vec![Vec::new(); settings.batch_size];
    let (mut buffers, mut read, mut found) = (MultiGet::default(), 0u64, 0u64);
    while until.more(batch) && !thread.in_vain() {
        let first = draw(thread);
        for (at, key) in keys.iter_mut().enumerate() {
            let number = match (at, stride) {
                (0, _) => first,
                (_, 0) => thread.random.below(num),
                _ => (first + at as u64 * stride) % num,
            };
            settings.keys.write(number, key);
        }
        let version = thread.session.version();
        let mut bytes = 0;
        let mut count = |key: &[u8], answer: Answer| {
            if let Answer::Value(len) = answer {
                found += 1;
                bytes += (key.len() + len) as u64;
            }
        };
        if batched {
            let answers = buffers.get(version, &keys).map_err(of_read)?;
            keys.iter()
                .zip(answers)
                .for_each(|(key, answer)| count(key, answer));
        } else {
            for key in &keys {
                count(key, version.get(key).map_err(of_read)?);
            }
        }
        thread.stats.bytes += bytes;
        read += batch;
        thread.finished(batch);
    }
    thread.stats.message = format!("({found} of {read} found)");
    Ok(())
}

pub(crate) fn read_seq(thread: &mut Thread<'_>) -> Result<(), Failure> {
    scan(thread, Way::Forward)
}

pub(crate) fn read_reverse(thread: &mut Thread<'_>) -> Result<(), Failure> {
    scan(thread, Way::Backward)
}

fn scan(thread: &mut Thread<'_>, way: Way) -> Result<(), Failure> {
    let snapshot = thread.session.db().snapshot();
    let version = std::sync::Arc::clone(thread.session.version());
    let mut scan = Scan::new(&version, snapshot, None);
    let (reads, mut read) = (thread.shared.settings.extent.reads, 0);
    let mut moved = match way {
        Way::Forward => scan.first(),
        Way::Backward => scan.last(),
    };
    while let Some(entry) = moved.map_err(of_read)?.filter(|_| read < reads) {
        let value = entry.value().map_err(of_read)?;
        thread.stats.bytes += (entry.user_key().len() + value.len()) as u64;
        thread.finished(1);
        read += 1;
        moved = match way {
            Way::Forward => scan.next(),
            Way::Backward => scan.prev(),
        };
    }
    Ok(())
}

pub(crate) fn seek_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let reading = settings.reading;
    let mut until = until_reads(thread);
    let (mut key, mut read, mut found) = (Vec::new(), 0u64, 0u64);
    while until.more(1) && !thread.in_vain() {
        let number = thread.random.below(settings.extent.num);
        settings.keys.write(number, &mut key);
        let snapshot = thread.session.db().snapshot();
        let prefix = reading.prefix.map(|len| &key[..len.min(key.len())]);
        let mut scan = Scan::new(thread.session.version(), snapshot, prefix);
        let mut moved = scan.seek(&key).map_err(of_read)?;
        read += 1;
        found += u64::from(moved.is_some_and(|entry| entry.user_key() == key));
        let mut bytes = 0;
        for _ in 0..reading.seek_nexts {
            let Some(entry) = moved else { break };
            bytes += (entry.user_key().len() + entry.value().map_err(of_read)?.len()) as u64;
            moved = if reading.backward {
                scan.prev()
            } else {
                scan.next()
            }
            .map_err(of_read)?;
        }
        drop(scan);
        thread.stats.bytes += bytes;
        thread.finished(1);
    }
    thread.stats.message = format!("({found} of {read} found)\n");
    Ok(())
}

/// Whether this thread is the writer beside the readers, which is the last thread.
fn writes(thread: &Thread<'_>) -> bool {
    thread.number >= thread.shared.settings.threads
}

pub(crate) fn read_while_writing(thread: &mut Thread<'_>) -> Result<(), Failure> {
    if writes(thread) {
        write_beside_readers(thread)
    } else {
        read_random(thread)
    }
}

pub(crate) fn seek_random_while_writing(thread: &mut Thread<'_>) -> Result<(), Failure> {
    if writes(thread) {
        write_beside_readers(thread)
    } else {
        seek_random(thread)
    }
}

pub(crate) fn multi_read_while_writing(thread: &mut Thread<'_>) -> Result<(), Failure> {
    if writes(thread) {
        write_beside_readers(thread)
    } else {
        multi_read_random(thread)
    }
}

/// Estimates how many entries are in random ranges of `batch_size` numbers.
pub(crate) fn approximate_stats(thread: &mut Thread<'_>) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let (num, width) = (settings.extent.num, settings.batch_size as u64);
    let mut until = until_reads(thread);
    let (mut start, mut end) = (Vec::new(), Vec::new());
    let mut counts = Histogram::new();
    while until.more(1) && !thread.in_vain() {
        thread.random.next();
        let number = thread.random.below(num.saturating_sub(width).max(1));
        settings.keys.write(number, &mut start);
        settings.keys.write(number + width, &mut end);
        let mut count = 0;
        for table in &thread.session.version().tables {
            let range = start.as_slice()..end.as_slice();
            count += table
                .approximate_range_stats(range)
                .map_err(of_read)?
                .entries;
        }
        counts.add(count);
        thread.finished(1);
    }
    print(format_args!(
        "\nReported entry count stats (expected {width}):\n{}\n",
        counts.render()
    ))?;
    Ok(())
}

/// Prints the content of the tables, and the counters of reads.
pub(crate) fn stats(thread: &mut Thread<'_>) -> Result<(), Failure> {
    print(thread.shared.db.describe())?;
    Ok(())
}

pub(crate) fn crc32c(thread: &mut Thread<'_>) -> Result<(), Failure> {
    checksums(thread, ChecksumKind::Crc32c)
}

pub(crate) fn xxhash(thread: &mut Thread<'_>) -> Result<(), Failure> {
    checksums(thread, ChecksumKind::XxHash32)
}

pub(crate) fn xxhash64(thread: &mut Thread<'_>) -> Result<(), Failure> {
    checksums(thread, ChecksumKind::XxHash64)
}

pub(crate) fn xxh3(thread: &mut Thread<'_>) -> Result<(), Failure> {
    checksums(thread, ChecksumKind::Xxh3)
}

fn checksums(thread: &mut Thread<'_>, kind: ChecksumKind) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let data = vec![b'x'; settings.block_size];
    let mut bytes = 0;
    while bytes < settings.checksum_bytes {
        std::hint::black_box(kind.checksum(std::hint::black_box(&data)));
        bytes += data.len() as u64;
        thread.finished(1);
    }
    thread.stats.bytes = bytes;
    thread.stats.message = format!("({} per op)", settings.block_size);
    Ok(())
}

// Point reads over all tables of a version, newest first.

/// The answer of a version for a key. No benchmark writes merge operands; a journal may hold some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A value of this many bytes.
    Value(usize),
    Absent,
}

/// The answer of one table's lookup. `None`: the next table has to be read.
fn decide(lookup: Lookup<ValueRef<'_>, Operands<'_>>) -> Result<Option<Answer>, Error> {
    Ok(match lookup {
        Lookup::Value(value) => Some(Answer::Value(value.len())),
        Lookup::Deleted { .. } => Some(Answer::Absent),
        Lookup::NotFound => None,
        // Only an engine knows how operands combine. Here their bytes are counted.
        Lookup::Merge(mut operands) => {
            let base = operands.base()?;
            let mut bytes = 0;
            for operand in operands.by_ref() {
                bytes += operand?.value.len();
            }
            if let Base::Value(value) = base {
                bytes += value.len();
            }
            Some(Answer::Value(bytes))
        }
    })
}

impl Version {
    /// The newest value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Answer, Error> {
        for table in &self.tables {
            if let Some(answer) = decide(table.get(key, u64::MAX)?)? {
                return Ok(answer);
            }
        }
        Ok(Answer::Absent)
    }
}

/// Buffers of a MultiGet, reused by the next one.
#[derive(Debug, Default)]
pub(crate) struct MultiGet {
    answers: Vec<Option<Answer>>,
    /// Keys without an answer so far, by their index in the caller's list.
    open: Vec<usize>,
}

impl MultiGet {
    /// The newest values of many keys, in the order of `keys`.
    pub(crate) fn get(
        &mut self,
        version: &Version,
        keys: &[Vec<u8>],
    ) -> Result<impl Iterator<Item = Answer>, Error> {
        self.answers.clear();
        self.answers.resize(keys.len(), None);
        self.open.clear();
        self.open.extend(0..keys.len());
        let mut lookups = Vec::with_capacity(keys.len());
        for (at, table) in version.tables.iter().enumerate() {
            if self.open.is_empty() {
                break;
            }
            if at == 0 {
                table.multi_get_into(keys, u64::MAX, &mut lookups);
            } else {
                let open: Vec<&[u8]> = self.open.iter().map(|at| keys[*at].as_slice()).collect();
                table.multi_get_into(&open, u64::MAX, &mut lookups);
            }
            for (at, lookup) in self.open.iter().zip(lookups.drain(..)) {
                self.answers[*at] = decide(lookup?)?;
            }
            self.open.retain(|at| self.answers[*at].is_none());
        }
        Ok(self
            .answers
            .iter()
            .map(|answer| answer.unwrap_or(Answer::Absent)))
    }
}

// A scan over all tables of a version.
//
// ```text
//   table 0 (newest)   .  b  .  d      each cursor shows what its own table shows: deletes applied
//   table 1            a  b  .  .
//   scan               a  b' .  d      the newest table's entry of a key; older ones may be deleted by a newer table
// ```
// For equal keys, the newest table's entry is shown; the other cursors are moved past the key. An
// entry is shown only if no newer table deletes its key. Only tables with deletes are asked.
//
// One thread at a time.

type Cursor<'v> = paranoid_memtable::Cursor<Borrowed<'v>, AtSnapshot>;

/// The position of the cursors: all at or after the scan's key, or all at or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// A scan over all tables of a version.
#[derive(Debug)]
pub(crate) struct Scan<'v> {
    version: &'v Version,
    snapshot: u64,
    /// Newest first.
    cursors: Vec<Cursor<'v>>,
    /// A heap of the cursors that are at an entry. The first cursor has the entry to show next.
    heap: Vec<usize>,
    way: Way,
    /// The key that the scan moves past; its memory is reused.
    key: Vec<u8>,
}

impl<'v> Scan<'v> {
    /// A scan at `snapshot`. With a prefix, it covers the keys that begin with it.
    pub(crate) fn new(version: &'v Version, snapshot: u64, prefix: Option<&[u8]>) -> Self {
        let cursor = |table: &'v Held| {
            let cursor = table.cursor_at(snapshot);
            match prefix {
                Some(prefix) => cursor.with_prefix(prefix),
                None => cursor,
            }
        };
        let cursors = version.tables.iter().map(cursor).collect();
        Scan {
            version,
            snapshot,
            cursors,
            heap: Vec::new(),
            way: Way::Forward,
            key: Vec::new(),
        }
    }

    /// The current entry of the scan.
    pub(crate) fn entry(&self) -> Result<Option<Entry<'v>>, Error> {
        match (self.cursors.as_slice(), self.heap.first()) {
            ([only], _) => only.table_entry(),
            (_, Some(at)) => self.cursors[*at].table_entry(),
            _ => Ok(None),
        }
    }

    pub(crate) fn first(&mut self) -> Result<Option<Entry<'_>>, Error> {
        self.arrive(Way::Forward, |cursor| cursor.first().map(drop))
    }

    pub(crate) fn last(&mut self) -> Result<Option<Entry<'_>>, Error> {
        self.arrive(Way::Backward, |cursor| cursor.last().map(drop))
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<Option<Entry<'_>>, Error> {
        self.arrive(Way::Forward, |cursor| cursor.seek(key).map(drop))
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry<'_>>, Error> {
        if self.cursors.len() == 1 {
            return self.cursors[0].next();
        }
        self.step(Way::Forward)?;
        self.entry()
    }

    pub(crate) fn prev(&mut self) -> Result<Option<Entry<'_>>, Error> {
        if self.cursors.len() == 1 {
            return self.cursors[0].prev();
        }
        self.step(Way::Backward)?;
        self.entry()
    }

    fn arrive(
        &mut self,
        way: Way,
        mut go: impl FnMut(&mut Cursor<'v>) -> Result<(), Error>,
    ) -> Result<Option<Entry<'_>>, Error> {
        for cursor in &mut self.cursors {
            go(cursor)?;
        }
        if self.cursors.len() > 1 {
            self.way = way;
            self.pile()?;
            self.skip_deleted()?;
        }
        self.entry()
    }

    fn step(&mut self, way: Way) -> Result<(), Error> {
        if !self.keep_key()? {
            return Ok(());
        }
        if self.way != way {
            self.way = way;
            for cursor in &mut self.cursors {
                match way {
                    Way::Forward => cursor.seek(&self.key)?,
                    Way::Backward => cursor.seek_for_prev(&self.key)?,
                };
            }
            self.pile()?;
        }
        self.pass()?;
        self.skip_deleted()
    }

    /// Copies the key of the first cursor. `false`: no cursor is at an entry.
    fn keep_key(&mut self) -> Result<bool, Error> {
        let entry = self.entry()?;
        self.key.clear();
        self.key
            .extend_from_slice(entry.map_or(&[], |entry| entry.user_key()));
        Ok(entry.is_some())
    }

    /// Moves every cursor that is at the copied key past it.
    fn pass(&mut self) -> Result<(), Error> {
        while let Some(&top) = self.heap.first() {
            let cursor = &mut self.cursors[top];
            if cursor
                .entry()?
                .is_none_or(|entry| entry.user_key() != self.key)
            {
                break;
            }
            let moved = match self.way {
                Way::Forward => cursor.next()?,
                Way::Backward => cursor.prev()?,
            };
            if moved.is_none() {
                let last = self.heap.len() - 1;
                self.heap.swap(0, last);
                self.heap.truncate(last);
            }
            self.sink(0)?;
        }
        Ok(())
    }

    /// Moves past entries of the first cursor while a newer table deletes them.
    fn skip_deleted(&mut self) -> Result<(), Error> {
        while let Some(&top) = self.heap.first() {
            let Some(entry) = self.cursors[top].table_entry()? else {
                return Ok(());
            };
            let key = entry.user_key();
            let newer = &self.version.tables[..top];
            let mut deleted = false;
            for table in newer
                .iter()
                .filter(|table| table.stats().deletes + table.stats().range_deletes > 0)
            {
                deleted |= matches!(table.get(key, self.snapshot)?, Lookup::Deleted { .. });
            }
            if !deleted {
                return Ok(());
            }
            self.keep_key()?;
            self.pass()?;
        }
        Ok(())
    }

    /// Whether the entry of cursor `a` is shown before that of cursor `b`.
    fn before(&self, a: usize, b: usize) -> Result<bool, Error> {
        let key = |at: usize| {
            self.cursors[at]
                .entry()
                .map(|entry| entry.map(|entry| entry.user_key()))
        };
        let (Some(left), Some(right)) = (key(a)?, key(b)?) else {
            return Ok(false);
        };
        let order = match self.way {
            Way::Forward => left.cmp(right),
            Way::Backward => right.cmp(left),
        };
        Ok(order.then(a.cmp(&b)) == Ordering::Less)
    }

    fn pile(&mut self) -> Result<(), Error> {
        self.heap.clear();
        self.heap
            .extend((0..self.cursors.len()).filter(|at| self.cursors[*at].is_valid()));
        for at in (0..self.heap.len() / 2).rev() {
            self.sink(at)?;
        }
        Ok(())
    }

    fn sink(&mut self, mut at: usize) -> Result<(), Error> {
        loop {
            let children = [2 * at + 1, 2 * at + 2]
                .into_iter()
                .filter(|child| *child < self.heap.len());
            let mut first = at;
            for child in children {
                if self.before(self.heap[child], self.heap[first])? {
                    first = child;
                }
            }
            if first == at {
                return Ok(());
            }
            self.heap.swap(at, first);
            at = first;
        }
    }
}
