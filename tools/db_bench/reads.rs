//! The benchmarks that read.

use paranoid_memtable::{ChecksumKind, Error};

use crate::bench::{Thread, Until};
use crate::failure::Failure;
use crate::fills::write_beside_readers;
use crate::histogram::Histogram;
use crate::lookups::{Answer, MultiGet};
use crate::scan::Scan;

fn of_read(error: Error) -> Failure {
    Failure::of_table("read", &error)
}

fn until_reads(thread: &Thread<'_>) -> Until {
    let extent = thread.shared.settings.extent;
    Until::new(extent.duration, extent.reads)
}

/// Draws what db_bench draws to choose among databases, and then a key's number.
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
    let (num, stride, batched) = (settings.extent.num, settings.reading.stride, settings.reading.batched);
    let batch = settings.batch_size as u64;
    let mut until = Until::new(settings.extent.duration, settings.extent.reads.next_multiple_of(batch));
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
            keys.iter().zip(answers).for_each(|(key, answer)| count(key, answer));
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

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forward,
    Backward,
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
            moved = if reading.backward { scan.prev() } else { scan.next() }.map_err(of_read)?;
        }
        drop(scan);
        thread.stats.bytes += bytes;
        thread.finished(1);
    }
    thread.stats.message = format!("({found} of {read} found)\n");
    Ok(())
}

/// Whether this thread is the writer beside the readers: the last one.
fn writes(thread: &Thread<'_>) -> bool {
    thread.number >= thread.shared.settings.threads
}

pub(crate) fn read_while_writing(thread: &mut Thread<'_>) -> Result<(), Failure> {
    if writes(thread) { write_beside_readers(thread) } else { read_random(thread) }
}

pub(crate) fn seek_random_while_writing(thread: &mut Thread<'_>) -> Result<(), Failure> {
    if writes(thread) { write_beside_readers(thread) } else { seek_random(thread) }
}

pub(crate) fn multi_read_while_writing(thread: &mut Thread<'_>) -> Result<(), Failure> {
    if writes(thread) { write_beside_readers(thread) } else { multi_read_random(thread) }
}

/// Asks the tables how many entries lie in random ranges of `batch_size` numbers.
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
            count += table.approximate_range_stats(range).map_err(of_read)?.entries;
        }
        counts.add(count);
        thread.finished(1);
    }
    println!("\nReported entry count stats (expected {width}):\n{}", counts.render());
    Ok(())
}

/// Prints what the tables hold, and the counters of reads.
pub(crate) fn stats(thread: &mut Thread<'_>) -> Result<(), Failure> {
    print!("{}", thread.shared.db.describe());
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
