//! The targets that the crate sets itself against its rivals, and whether this run reached them.

use std::fmt::Write;

use measure::record::Section;

/// One target about a row.
enum Target {
    /// At least so many times as fast: ours, the rival.
    Ahead(f64, &'static str, &'static str),
    /// At most so many nanoseconds more: the dearer candidate, the cheaper one.
    Added(f64, &'static str, &'static str),
    /// At most so many times the time: the dearer candidate, the cheaper one.
    Times(f64, &'static str, &'static str),
    /// At most so many times the time of another row, in this candidate.
    Row(f64, &'static str, &'static str),
    /// At most so many nanoseconds more than another row, in this candidate.
    RowAdded(f64, &'static str, &'static str),
}

use Target::{Added, Ahead, Row, RowAdded, Times};

const IN_ORDER: &str = "insert in order";
const AT_RANDOM: &str = "insert at random";
const BATCHES: &str = "insert at random, batches of 32";
const BATCHES_IN_ORDER: &str = "insert in order, batches of 32";
const HIT: &str = "get hit";
const MISS: &str = "get miss";
const MULTI: &str = "multi_get of 24";
const SEEK: &str = "seek + next 10";
const FORWARD_ORDER: &str = "scan forward, filled in order";
const FORWARD_RANDOM: &str = "scan forward, filled at random";
const BACKWARD_ORDER: &str = "scan backward, filled in order";
const BACKWARD_RANDOM: &str = "scan backward, filled at random";

const TARGETS: &[(&str, Target)] = &[
    (HIT, Ahead(4.0, "ours-8", "rocksdb-8")),
    (HIT, Ahead(5.0, "ours-8-on-seek", "rocksdb-8-on-seek")),
    (MISS, Ahead(2.0, "ours-0-filter", "rocksdb-0-bloom")),
    (MISS, Ahead(2.0, "ours-8-filter", "rocksdb-8-bloom")),
    (AT_RANDOM, Ahead(2.8, "ours-8", "rocksdb-8")),
    (BATCHES, Ahead(6.0, "ours-8", "rocksdb-8")),
    (MULTI, Ahead(13.0, "ours-8", "rocksdb-8")),
    (SEEK, Ahead(2.8, "ours-8", "rocksdb-8")),
    (FORWARD_RANDOM, Ahead(3.2, "ours-8", "rocksdb-8")),
    (BACKWARD_RANDOM, Ahead(9.0, "ours-8", "rocksdb-8")),
    (IN_ORDER, Ahead(1.7, "ours-8", "rocksdb-8")),
    (BATCHES_IN_ORDER, Ahead(1.6, "ours-8", "rocksdb-8")),
    (FORWARD_ORDER, Ahead(1.5, "ours-0", "rocksdb-0")),
    (FORWARD_ORDER, Ahead(1.5, "ours-8", "rocksdb-8")),
    (BACKWARD_ORDER, Ahead(8.0, "ours-8", "rocksdb-8")),
    (HIT, Ahead(0.7, "ours-8", "artmap")),
    (AT_RANDOM, Ahead(0.9, "ours-8", "artmap")),
    (BATCHES, Ahead(2.0, "ours-8", "artmap")),
    (MULTI, Ahead(2.5, "ours-8", "artmap")),
    (SEEK, Ahead(0.9, "ours-8", "artmap")),
    (FORWARD_RANDOM, Ahead(1.0, "ours-8", "artmap")),
    (BACKWARD_RANDOM, Ahead(1.0, "ours-8", "artmap")),
    (IN_ORDER, Ahead(1.5, "ours-8", "artmap")),
    (IN_ORDER, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (AT_RANDOM, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (FORWARD_ORDER, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (FORWARD_RANDOM, Ahead(2.0, "ours-8", "crossbeam-skiplist")),
    (HIT, Ahead(1.5, "ours-8", "crossbeam-skiplist")),
    (IN_ORDER, Added(20.0, "ours-8", "ours-0")),
    (HIT, Added(20.0, "ours-8", "ours-0")),
    (FORWARD_ORDER, Added(15.0, "ours-8", "ours-0")),
    (FORWARD_RANDOM, Added(15.0, "ours-8", "ours-0")),
    (AT_RANDOM, Times(1.03, "ours-8", "ours-0")),
    (HIT, Times(1.10, "ours-8-on-seek", "ours-8")),
    (HIT, Times(1.05, "ours-8-order", "ours-8")),
    (FORWARD_ORDER, Times(1.05, "ours-8-order", "ours-8")),
    ("get hit, 1000 range tombstones", Row(1.25, HIT, "ours-8")),
    ("get hit, 10000 range tombstones, frozen", Row(1.1, HIT, "ours-8")),
    ("multi_get of 24, 1000 range tombstones", RowAdded(30.0, MULTI, "ours-8")),
    (IN_ORDER, Added(45.0, "ours-0-filter", "ours-0")),
];

/// Bytes per entry that tables of this crate may count beyond RocksDB's.
const MEMORY: [(f64, &str, &str); 2] = [(12.0, "ours-0", "rocksdb-0"), (20.0, "ours-8", "rocksdb-8")];

impl Target {
    /// The target, the candidates that it is about, what was measured, and whether that is enough.
    fn judge(&self, candidates: &[String], section: &Section, row: &str) -> (String, Option<(String, bool)>) {
        match *self {
            Ahead(wanted, ours, rival) => {
                let speed = section.speed(candidates, row, rival, ours);
                let measured = speed.map(|[low, median, high]| {
                    (format!("{median:.2}x ({low:.2}..{high:.2})"), median >= wanted)
                });
                (format!("{ours}: {wanted}x {rival}"), measured)
            }
            Added(most, dear, cheap) => {
                let added = section.paired(candidates, row, (dear, cheap), |dear, cheap| dear - cheap);
                let measured = added.map(|[_, added, _]| (format!("{added:+.1} ns"), added <= most));
                (format!("{dear}: {cheap} +{most:.0} ns"), measured)
            }
            Times(most, dear, cheap) => {
                let ratio = section.paired(candidates, row, (dear, cheap), |dear, cheap| dear / cheap);
                let measured = ratio.map(|[_, ratio, _]| (format!("{ratio:.3}"), ratio <= most));
                (format!("{dear}: at most {most} times {cheap}"), measured)
            }
            Row(most, other, candidate) => {
                let (this, other_time) =
                    (section.time(candidates, row, candidate), section.time(candidates, other, candidate));
                let ratio = this.zip(other_time).map(|(this, other)| this / other);
                let measured = ratio.map(|ratio| (format!("{ratio:.2}"), ratio <= most));
                (format!("{candidate}: at most {most} times `{other}`"), measured)
            }
            RowAdded(most, other, candidate) => {
                let (this, other_time) =
                    (section.time(candidates, row, candidate), section.time(candidates, other, candidate));
                let added = this.zip(other_time).map(|(this, other)| this - other);
                let measured = added.map(|added| (format!("{added:+.1} ns"), added <= most));
                (format!("{candidate}: `{other}` +{most:.0} ns"), measured)
            }
        }
    }
}

fn verdict(kept: bool) -> &'static str {
    if kept { "reached" } else { "**missed**" }
}

/// The table of targets; those whose candidates or rows are not in this run are marked.
pub fn render(text: &mut String, candidates: &[String], section: &Section) -> std::fmt::Result {
    writeln!(text, "\n## {} entries: budgets\n", section.entries)?;
    writeln!(text, "| work | wanted | measured | |\n|---|---|---|---|")?;
    for (row, target) in TARGETS {
        let (wanted, measured) = target.judge(candidates, section, row);
        match measured {
            Some((measured, kept)) => {
                writeln!(text, "| {row} | {wanted} | {measured} | {} |", verdict(kept))?
            }
            None => writeln!(text, "| {row} | {wanted} | not measured | |")?,
        }
    }
    for (most, ours, rival) in MEMORY {
        let of = |candidate: &str| {
            let at = candidates.iter().position(|name| name == candidate)?;
            section.counted.get(at).copied().flatten()
        };
        if let Some((ours_bytes, theirs)) = of(ours).zip(of(rival)) {
            let added = ours_bytes - theirs;
            let kept = verdict(added <= most);
            writeln!(text, "| bytes an entry | {ours}: {rival} +{most:.0} | {added:+.1} | {kept} |")?;
        }
    }
    Ok(())
}
