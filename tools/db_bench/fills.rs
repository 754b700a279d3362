//! The benchmarks that write.

use std::sync::atomic::Ordering;

use paranoid_memtable::{Error, WriteBatch};

use crate::bench::{Thread, Until};
use crate::failure::Failure;
use crate::keys::Numbers;
use crate::random::{Twister, Values};
use crate::settings::RangeForm;
use crate::tables::Op;

/// What distinguishes one fill from another.
#[derive(Debug, Clone, Copy)]
struct Fill {
    order: Order,
    /// Entries of a batch; `None`: as the command line says.
    batch_size: Option<usize>,
    value_size: Option<usize>,
    /// The usual number is divided by this.
    fraction: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Random,
    Unique,
}

const PLAIN: Fill = Fill { order: Order::Ascending, batch_size: None, value_size: None, fraction: 1 };

pub(crate) fn fill_seq(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(thread, PLAIN)
}

pub(crate) fn fill_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(thread, Fill { order: Order::Random, ..PLAIN })
}

pub(crate) fn fill_unique_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(thread, Fill { order: Order::Unique, ..PLAIN })
}

pub(crate) fn fill_batch(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(thread, Fill { batch_size: Some(1000), ..PLAIN })
}

pub(crate) fn fill_sync(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(thread, Fill { order: Order::Random, fraction: 1000, ..PLAIN })
}

/// Bytes of a value of fill100K.
pub(crate) const LARGE_VALUE: usize = 100_000;

pub(crate) fn fill_100k(thread: &mut Thread<'_>) -> Result<(), Failure> {
    fill(thread, Fill { order: Order::Random, value_size: Some(LARGE_VALUE), fraction: 1000, ..PLAIN })
}

fn of_write(error: Error) -> Failure {
    Failure::of_table("write", &error)
}

/// Range deletes and the keys that they need.
#[derive(Debug, Default)]
struct RangeWriter {
    puts: u64,
    start: Vec<u8>,
    end: Vec<u8>,
}

impl RangeWriter {
    /// Counts a put, and writes a range delete if one is due after it.
    fn after_put(&mut self, thread: &mut Thread<'_>, numbers: &mut Numbers) -> Result<(), Failure> {
        let (plan, keys) = (thread.shared.settings.range_deletes, thread.shared.settings.keys);
        self.puts += 1;
        if plan.each == 0 || self.puts <= plan.after {
            return Ok(());
        }
        let counted = self.puts - plan.after;
        if !counted.is_multiple_of(plan.each) || counted / plan.each > plan.max {
            return Ok(());
        }
        let begin = numbers.next(&mut thread.random);
        // ORDERING: Relaxed: a sum that is read once the threads are joined.
        thread.shared.range_deletes.fetch_add(1, Ordering::Relaxed);
        if plan.form == RangeForm::EachKey {
            for number in begin..begin + plan.width {
                keys.write(number, &mut self.start);
                thread.session.write(Op::Delete(&self.start))?;
            }
            return Ok(());
        }
        keys.write(begin, &mut self.start);
        keys.write(begin + plan.width, &mut self.end);
        thread.session.write(Op::DeleteRange(&self.start, &self.end))
    }
}

fn fill(thread: &mut Thread<'_>, fill: Fill) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let (extent, ranges) = (settings.extent, settings.range_deletes);
    let operations = (extent.writes / fill.fraction).max(1);
    let mut numbers = match fill.order {
        Order::Ascending => Numbers::Ascending { next: 0 },
        Order::Random => Numbers::Random { bound: extent.num + ranges.max },
        Order::Unique => {
            let order = Twister::new(settings.seed).permutation(extent.num + ranges.max);
            Numbers::Unique { order, next: 0 }
        }
    };
    let mut values = Values::new(thread.shared.pool, fill.value_size.unwrap_or(settings.value_size));
    let batch_size = fill.batch_size.unwrap_or(settings.batch_size) as u64;
    let seconds = if fill.order == Order::Random { extent.duration } else { 0 };
    let mut until = Until::new(seconds, operations);
    let (mut key, mut range_writer) = (Vec::new(), RangeWriter::default());
    let mut batch = settings_batch(thread);
    while until.more(batch_size) && !thread.in_vain() {
        numbers.before_batch(&mut thread.random);
        batch.clear();
        for _ in 0..batch_size {
            settings.keys.write(numbers.next(&mut thread.random), &mut key);
            let value = values.next();
            if batch_size == 1 {
                thread.session.write(Op::Put(&key, value))?;
            } else {
                batch.put(&key, value).map_err(of_write)?;
            }
            thread.stats.bytes += (key.len() + value.len()) as u64;
            if ranges.each > 0 {
                // A range delete is a write of its own, after the puts that were counted.
                write_rest(thread, &mut batch)?;
                range_writer.after_put(thread, &mut numbers)?;
            }
        }
        write_rest(thread, &mut batch)?;
        thread.finished(batch_size);
    }
    if fill.fraction > 1 {
        thread.stats.message = format!("({operations} ops)");
    }
    Ok(())
}

fn settings_batch(thread: &Thread<'_>) -> WriteBatch {
    thread.session.db().batch()
}

/// Writes and empties a batch that holds entries.
fn write_rest(thread: &mut Thread<'_>, batch: &mut WriteBatch) -> Result<(), Failure> {
    if batch.is_empty() {
        return Ok(());
    }
    thread.session.write_batch(batch)?;
    batch.clear();
    Ok(())
}

pub(crate) fn delete_seq(thread: &mut Thread<'_>) -> Result<(), Failure> {
    delete(thread, Order::Ascending)
}

pub(crate) fn delete_random(thread: &mut Thread<'_>) -> Result<(), Failure> {
    delete(thread, Order::Random)
}

fn delete(thread: &mut Thread<'_>, order: Order) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let batch_size = settings.batch_size as u64;
    let seconds = if order == Order::Random { settings.extent.duration } else { 0 };
    let mut until = Until::new(seconds, settings.extent.deletes);
    let (mut key, mut batch, mut next) = (Vec::new(), settings_batch(thread), 0);
    while until.more(batch_size) && !thread.in_vain() {
        thread.random.next();
        for _ in 0..batch_size {
            let number = match order {
                Order::Ascending => next,
                _ => thread.random.below(settings.extent.num),
            };
            next += 1;
            settings.keys.write(number, &mut key);
            if batch_size == 1 {
                thread.session.write(Op::Delete(&key))?;
            } else {
                batch.delete(&key).map_err(of_write)?;
            }
        }
        write_rest(thread, &mut batch)?;
        thread.finished(batch_size);
    }
    Ok(())
}

/// Puts random keys for as long as other threads read, or until its writes are written.
pub(crate) fn write_beside_readers(thread: &mut Thread<'_>) -> Result<(), Failure> {
    let settings = thread.shared.settings;
    let mut values = Values::new(thread.shared.pool, settings.value_size);
    let mut numbers = Numbers::Random { bound: settings.extent.num };
    let (mut key, mut range_writer, mut written) = (Vec::new(), RangeWriter::default(), 0);
    while !thread.in_vain() {
        let done = if settings.finish_after_writes {
            written >= settings.extent.writes
        } else {
            thread.others_done()
        };
        if done {
            break;
        }
        settings.keys.write(numbers.next(&mut thread.random), &mut key);
        thread.session.write(Op::Put(&key, values.next()))?;
        range_writer.after_put(thread, &mut numbers)?;
        written += 1;
    }
    Ok(())
}
