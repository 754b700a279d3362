//! The flags of RocksDB's db_bench, with the effect of each one here, or the reason why it has
//! none.
//!
//! ```text
//!   --name=value   --name value   --name   --noname        one dash or two
//! ```
//! * Acts: the flag does the same as in RocksDB.
//! * Anyway: the flag requests the only behaviour there is here; values that request another one
//!   are refused.
//! * Refused: the flag has no meaning for a set of tables in memory, and is refused by name.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The kind of value that a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// true, false, 1, 0, yes, no. The bare name is true, the name after `no` is false.
    YesNo,
    Number,
    Share,
    Text,
}

/// The effect of a flag.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Acts(&'static str),
    /// The flag requests the only behaviour there is. The list has the values that request it; an
    /// empty list means all values.
    Anyway(&'static [&'static str], &'static str),
}

struct Flag(&'static str, Shape, Fate, &'static str);

use Fate::{Acts, Anyway};
use Shape::{Number, Share, Text, YesNo};

const KEPT: &str = "full tables are frozen and kept in memory, never flushed";

pub(crate) const ONE_REPRESENTATION: &str = "there is one representation, the skiplist";

const FLAGS: &[Flag] = &[
    Flag(
        "benchmarks",
        Text,
        Acts(DEFAULT_BENCHMARKS),
        "what to run, in order; NAME[-X20] repeats, [-W2] warms up",
    ),
    Flag(
        "num",
        Number,
        Acts("1000000"),
        "numbers that keys are made of",
    ),
    Flag("reads", Number, Acts("-1"), "reads of each thread; -1: num"),
    Flag(
        "writes",
        Number,
        Acts("-1"),
        "writes of each thread; -1: num",
    ),
    Flag(
        "deletes",
        Number,
        Acts("-1"),
        "deletes of each thread; -1: num",
    ),
    Flag(
        "duration",
        Number,
        Acts("0"),
        "seconds that a benchmark runs, instead of counts",
    ),
    Flag("threads", Number, Acts("1"), "threads of a benchmark"),
    Flag(
        "seed",
        Number,
        Acts("0"),
        "seed of the keys; 0: from the clock",
    ),
    Flag("key_size", Number, Acts("16"), "bytes of a key"),
    Flag("value_size", Number, Acts("100"), "bytes of a value"),
    Flag(
        "prefix_size",
        Number,
        Acts("0"),
        "bytes of the prefix that filters and scans go by",
    ),
    Flag(
        "keys_per_prefix",
        Number,
        Acts("0"),
        "keys that share a prefix before the number",
    ),
    Flag(
        "batch_size",
        Number,
        Acts("1"),
        "entries of a batch, keys of a MultiGet",
    ),
    Flag(
        "histogram",
        YesNo,
        Acts("false"),
        "times of single operations",
    ),
    Flag(
        "confidence_interval_only",
        YesNo,
        Acts("false"),
        "repeats print intervals",
    ),
    Flag(
        "db",
        Text,
        Acts(""),
        "directory of the journal; default $TEST_TMPDIR/dbbench or one under the temporary directory",
    ),
    Flag(
        "use_existing_db",
        YesNo,
        Acts("false"),
        "replay the journal that an earlier command left",
    ),
    Flag(
        "readonly",
        YesNo,
        Acts("false"),
        "writes are refused, the journal is not opened for writing",
    ),
    Flag("disable_wal", YesNo, Acts("false"), "write no journal"),
    Flag(
        "sync",
        YesNo,
        Acts("false"),
        "sync the journal after each write",
    ),
    Flag(
        "checksum_type",
        Number,
        Acts("4"),
        "checksum of the journal's records: 0 none, 1 crc32c, 2 xxhash, 3 xxhash64, 4 xxh3",
    ),
    Flag(
        "block_size",
        Number,
        Acts("4096"),
        "bytes of a block in the checksum benchmarks",
    ),
    Flag(
        "write_buffer_size",
        Number,
        Acts("67108864"),
        "bytes after which the active table is frozen",
    ),
    Flag(
        "memtable_bloom_size_ratio",
        Share,
        Acts("0"),
        "share of the write buffer for filters; whole keys and prefixes halve it",
    ),
    Flag(
        "memtable_whole_key_filtering",
        YesNo,
        Acts("false"),
        "filter whole keys",
    ),
    Flag(
        "memtable_protection_bytes_per_key",
        Number,
        Acts("0"),
        "0, 1, 2, 4 or 8",
    ),
    Flag(
        "write_batch_protection_bytes_per_key",
        Number,
        Acts("0"),
        "0 or 8",
    ),
    Flag(
        "paranoid_memory_checks",
        YesNo,
        Acts("false"),
        "compare neighbours on the way",
    ),
    Flag(
        "memtable_verify_per_key_checksum_on_seek",
        YesNo,
        Acts("false"),
        "verify every key that a search visits (old spelling: paranoid_memory_check_key_checksum_on_seek)",
    ),
    Flag(
        "allow_concurrent_memtable_write",
        YesNo,
        Acts("true"),
        "false: one write at a time",
    ),
    Flag(
        "multiread_batched",
        YesNo,
        Acts("false"),
        "MultiGet as one call instead of a loop of gets",
    ),
    Flag(
        "multiread_stride",
        Number,
        Acts("0"),
        "distance of the keys of a MultiGet; 0: random",
    ),
    Flag("seek_nexts", Number, Acts("0"), "steps after a seek"),
    Flag(
        "reverse_iterator",
        YesNo,
        Acts("false"),
        "steps go backward",
    ),
    Flag(
        "total_order_seek",
        YesNo,
        Acts("false"),
        "seeks ignore prefixes",
    ),
    Flag(
        "prefix_same_as_start",
        YesNo,
        Acts("false"),
        "scans end with the prefix of their seek",
    ),
    Flag(
        "writes_per_range_tombstone",
        Number,
        Acts("0"),
        "puts between two range deletes; 0: no range delete",
    ),
    Flag(
        "range_tombstone_width",
        Number,
        Acts("100"),
        "numbers that a range delete covers",
    ),
    Flag(
        "max_num_range_tombstones",
        Number,
        Acts("0"),
        "most range deletes of a thread",
    ),
    Flag(
        "writes_before_delete_range",
        Number,
        Acts("0"),
        "puts before the first range delete",
    ),
    Flag(
        "expand_range_tombstones",
        YesNo,
        Acts("false"),
        "a delete for each key instead of a range delete",
    ),
    Flag(
        "finish_after_writes",
        YesNo,
        Acts("false"),
        "the writer beside readers stops after its writes, not with them",
    ),
    Flag(
        "directory",
        YesNo,
        Acts("true"),
        "ours: an ordered directory beside the list",
    ),
    Flag(
        "checksum_mebibytes",
        Number,
        Acts("5000"),
        "ours: what a checksum benchmark goes through",
    ),
    Flag(
        "memtablerep",
        Text,
        Anyway(&["skip_list", "vector"], ONE_REPRESENTATION),
        "",
    ),
    Flag("max_write_buffer_number", Number, Anyway(&[], KEPT), ""),
    Flag(
        "min_write_buffer_number_to_merge",
        Number,
        Anyway(&[], KEPT),
        "",
    ),
    Flag(
        "max_write_buffer_size_to_maintain",
        Number,
        Anyway(&[], KEPT),
        "",
    ),
    Flag(
        "disable_auto_compactions",
        YesNo,
        Anyway(&["true"], "there are no files to compact"),
        "",
    ),
    Flag(
        "avoid_flush_during_recovery",
        YesNo,
        Anyway(&["true"], KEPT),
        "",
    ),
    Flag(
        "compression_type",
        Text,
        Anyway(&["none"], "nothing is compressed"),
        "",
    ),
    Flag(
        "enable_pipelined_write",
        YesNo,
        Anyway(&[], "writers have no queue"),
        "",
    ),
    Flag(
        "unordered_write",
        YesNo,
        Anyway(&[], "writers have no queue"),
        "",
    ),
    Flag(
        "memtable_use_huge_page",
        YesNo,
        Anyway(&[], "large chunks are advised for huge pages"),
        "",
    ),
    Flag(
        "memtable_batch_lookup_optimization",
        YesNo,
        Anyway(&[], "the searches of a MultiGet overlap"),
        "",
    ),
    Flag(
        "memtable_insert_with_hint_prefix_size",
        Number,
        Anyway(&[], "a writer keeps its splice"),
        "",
    ),
    Flag(
        "skip_list_lookahead",
        Number,
        Anyway(&["0"], "scans start at the top"),
        "",
    ),
    Flag(
        "inplace_update_support",
        YesNo,
        Anyway(&["false"], "entries never change"),
        "",
    ),
    Flag(
        "memtable_op_scan_flush_trigger",
        Number,
        Anyway(&["0"], KEPT),
        "",
    ),
    Flag(
        "min_tombstones_for_range_conversion",
        Number,
        Anyway(&["0"], "deletes stay what they are"),
        "",
    ),
    Flag(
        "arena_block_size",
        Number,
        Anyway(&["0"], "the arena chooses its chunks"),
        "",
    ),
    Flag("db_write_buffer_size", Number, Anyway(&["0"], KEPT), ""),
    Flag(
        "num_column_families",
        Number,
        Anyway(&["1"], "there is one keyspace"),
        "",
    ),
    Flag(
        "num_multi_db",
        Number,
        Anyway(&["0", "1"], "there is one database"),
        "",
    ),
    Flag(
        "use_tailing_iterator",
        YesNo,
        Anyway(&["false"], "each seek has a cursor of its own"),
        "",
    ),
    Flag(
        "benchmark_write_rate_limit",
        Number,
        Anyway(&["0"], "nothing is slowed down"),
        "",
    ),
    Flag(
        "benchmark_read_rate_limit",
        Number,
        Anyway(&["0"], "nothing is slowed down"),
        "",
    ),
    Flag(
        "value_size_distribution_type",
        Text,
        Anyway(&["fixed"], "all values are equally long"),
        "",
    ),
    Flag(
        "perf_level",
        Number,
        Anyway(&["1"], "there are no performance contexts"),
        "",
    ),
    Flag(
        "stats_interval",
        Number,
        Anyway(&["0"], "a bar on stderr shows progress"),
        "",
    ),
    Flag(
        "progress_reports",
        YesNo,
        Anyway(&["true"], "a bar on stderr shows progress"),
        "",
    ),
    Flag(
        "merge_operator",
        Text,
        Anyway(&[""], "no benchmark merges"),
        "",
    ),
];

/// The benchmarks of a command without `--benchmarks`.
const DEFAULT_BENCHMARKS: &str = "fillseq,fillrandom,overwrite,readrandom,readmissing,readseq,readreverse,seekrandom,\
    multireadrandom,readwhilewriting,deleterandom,crc32c,xxhash,xxhash64,xxh3";

/// Names with the same meaning.
const SPELLINGS: &[(&str, &str)] = &[(
    "paranoid_memory_check_key_checksum_on_seek",
    "memtable_verify_per_key_checksum_on_seek",
)];

/// Flags of RocksDB's db_bench that have no meaning here, by topic. A star matches the rest of a
/// name.
const REFUSED: &[(&str, &str)] = &[
    (
        "there are no table files",
        "block_* bloom_* cache_* charge_* compressed_* secondary_* simcache_size row_cache_size pin_* prepopulate_* \
         index_* data_block_* metadata_block_size partition_index* optimize_filters_* whole_key_filtering \
         use_ribbon_filter use_keep_filter use_hash_search use_data_block_hash_index use_cuckoo_table use_plain_table \
         enable_index_compression format_version file_checksum open_files table_cache_numshardbits read_amp_* \
         verify_checksum cost_write_buffer_to_cache use_*_cache use_cache_* readahead_size adaptive_readahead \
         initial_auto_readahead_size max_auto_readahead_size num_file_reads_for_auto_readahead async_io \
         auto_prefix_mode max_successive_merges hash_bucket_count cuckoo_hash_ratio identity_as_first_hash \
         use_uint64_comparator user_timestamp_size read_with_latest_user_timestamp allow_data_in_errors",
    ),
    (
        "nothing is compacted",
        "compaction_* level* universal_* fifo_* subcompactions target_file_size_* max_bytes_* max_compaction_bytes \
         max_background_* max_write_buffer_number_to_maintain num_levels num_*_threads hard_pending_* \
         soft_pending_* delayed_write_rate periodic_compaction_seconds ttl_seconds min_level_to_compress \
         disable_seek_compaction preclude_* preserve_internal_time_seconds experimental_mempurge_threshold \
         report_bg_io_stats force_consistency_checks check_flush_compaction_key_order",
    ),
    (
        "nothing is compressed",
        "compression_* sample_for_compression wal_compression",
    ),
    (
        "there are no blob files",
        "blob_* use_blob_* enable_blob_* min_blob_size",
    ),
    (
        "there are no transactions",
        "transaction_* optimistic_transaction_db",
    ),
    (
        "the journal is one file, written through",
        "wal_* max_total_wal_size manual_wal_flush use_fsync \
         track_and_verify_wals_in_manifest log_readahead_size wal_bytes_per_sync bytes_per_sync",
    ),
    (
        "files are those of the system",
        "env_uri fs_uri hdfs use_direct_* mmap_* simulate_* rate_limit* enable_io_prio enable_cpu_prio enable_numa \
         writable_file_max_buffer_size random_access_max_buffer_size advise_random_on_open use_adaptive_mutex \
         delete_obsolete_files_period_micros file_opening_threads use_secondary_db secondary_* use_multi_*",
    ),
    (
        "the benchmarks that it belongs to are not here",
        "mix_* keyrange_* key_dist_* value_k value_sigma value_theta iter_* sine_* trace_* read_random_exp_range \
         readwritepercent mergereadpercent deletepercent numdistinct merge_keys stddev time_range key_id_range \
         expire_style disposable_* persistent_* overwrite_* backup_* restore_* seek_missing_prefix \
         max_scan_distance use_single_deletes use_existing_keys read_cache_* truth_db io_trace_file value_size_m* \
         seek_nexts_to_delete",
    ),
    (
        "there are no such statistics",
        "statistics stats_* statistics_string report_* dump_malloc_stats print_malloc_stats show_table_properties \
         thread_status_per_interval slow_usecs ops_between_duration_checks use_stderr_info_logger build_info \
         options_file persist_stats_to_disk",
    ),
];

/// The flags of a command, checked.
#[derive(Debug, Clone)]
pub(crate) struct Flags {
    given: BTreeMap<&'static str, String>,
}

/// Whether a name fits a pattern with at most one star.
fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((front, back)) => {
            name.len() >= front.len() + back.len()
                && name.starts_with(front)
                && name.ends_with(back)
        }
    }
}

fn find(name: &str) -> Option<&'static Flag> {
    let name = SPELLINGS
        .iter()
        .find(|(old, _)| *old == name)
        .map_or(name, |(_, new)| new);
    FLAGS.iter().find(|flag| flag.0 == name)
}

/// The known name that is nearest to a misspelt one.
pub(crate) fn nearest(
    name: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let best = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.85).then_some(best)
}

/// The message for a name that is not a flag.
fn refusal(name: &str) -> String {
    let words = |patterns: &'static str| patterns.split_whitespace();
    let about = REFUSED
        .iter()
        .find(|(_, patterns)| words(patterns).any(|pattern| fits(name, pattern)));
    match about {
        Some((reason, _)) => format!("--{name} has no meaning here: {reason}"),
        None => {
            let meant = nearest(name, FLAGS.iter().map(|flag| flag.0));
            let meant = meant.map_or(String::new(), |flag| format!("; did you mean --{flag}?"));
            format!("--{name} is not a flag of db_bench{meant}")
        }
    }
}

impl Flag {
    /// The value in its normal form.
    fn plain(&self, value: &str) -> Result<String, String> {
        let refuse = |what: &str| Err(format!("--{}: `{value}` is not {what}", self.0));
        let plain = match self.1 {
            YesNo => match value.to_ascii_lowercase().as_str() {
                "true" | "t" | "1" | "yes" | "y" => "true".to_owned(),
                "false" | "f" | "0" | "no" | "n" => "false".to_owned(),
                _ => return refuse("yes or no"),
            },
            Number => match value.parse::<i64>() {
                Ok(number) => number.to_string(),
                Err(_) => return refuse("a whole number"),
            },
            Share => match value.parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => share.to_string(),
                _ => return refuse("a share from 0 to 1"),
            },
            Text => value.to_owned(),
        };
        match self.2 {
            Anyway(allowed, why) if !allowed.is_empty() && !allowed.contains(&plain.as_str()) => {
                Err(format!(
                    "--{}={value} has no meaning here: {why}; accepted: {}",
                    self.0,
                    allowed.join(", ")
                ))
            }
            _ => Ok(plain),
        }
    }
}

impl Flags {
    /// Reads a command's words.
    pub(crate) fn parse<W: AsRef<str>>(words: &[W]) -> Result<Flags, String> {
        let mut given = BTreeMap::new();
        let mut words = words.iter().map(AsRef::as_ref);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                return Err(format!("`{word}` is no flag"));
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (name, None),
            };
            let (flag, value) = match (find(name), value) {
                (Some(flag), Some(value)) => (flag, value),
                (Some(flag), None) if flag.1 == YesNo => (flag, "true"),
                (Some(flag), None) => (
                    flag,
                    words
                        .next()
                        .ok_or_else(|| format!("--{name} needs a value"))?,
                ),
                (None, value) => match name.strip_prefix("no").and_then(find) {
                    Some(flag) if flag.1 == YesNo && value.is_none() => (flag, "false"),
                    _ => return Err(refusal(name)),
                },
            };
            given.insert(flag.0, flag.plain(value)?);
        }
        Ok(Flags { given })
    }

    /// The value that was given, or the default.
    pub(crate) fn text(&self, name: &str) -> &str {
        let Some(flag) = find(name) else { return "" };
        match (self.given.get(flag.0), flag.2) {
            (Some(value), _) => value,
            (None, Acts(default)) => default,
            (None, Anyway(..)) => "",
        }
    }

    pub(crate) fn yes(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    pub(crate) fn number(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(0)
    }

    pub(crate) fn share(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(0.0)
    }

    /// A number that is at least `least`.
    pub(crate) fn count(&self, name: &str, least: u64) -> Result<u64, String> {
        match u64::try_from(self.number(name)) {
            Ok(number) if number >= least => Ok(number),
            _ => Err(format!(
                "--{name}: {} is less than {least}",
                self.number(name)
            )),
        }
    }

    /// A number in a range.
    pub(crate) fn count_in(&self, name: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
        match self.count(name, *range.start())? {
            number if number > *range.end() => {
                Err(format!("--{name}: {number} is more than {}", range.end()))
            }
            number => Ok(number),
        }
    }

    /// A number; `num` replaces a negative one.
    pub(crate) fn count_or_num(&self, name: &str) -> Result<u64, String> {
        u64::try_from(self.number(name)).or_else(|_| self.count("num", 1))
    }
}

/// The help text, with all accepted flags.
pub(crate) fn help() -> String {
    let mut text = String::from("Flags that act (default):\n");
    for Flag(name, _, fate, what) in FLAGS {
        if let Acts(default) = fate {
            let default = if default.len() > 20 {
                "see below"
            } else {
                default
            };
            text.push_str(&format!("  --{name} ({default})\n        {what}\n"));
        }
    }
    text.push_str("\nFlags that ask for what happens anyway:\n");
    for Flag(name, _, fate, _) in FLAGS {
        if let Anyway(allowed, why) = fate {
            let allowed = if allowed.is_empty() {
                String::new()
            } else {
                format!("={}", allowed.join("|"))
            };
            text.push_str(&format!("  --{name}{allowed}: {why}\n"));
        }
    }
    text.push_str(&format!(
        "\nBenchmarks without --benchmarks: {DEFAULT_BENCHMARKS}\n"
    ));
    text.push_str(
        "\nExit code: 0 it ran; 1 memory or journal is damaged; 2 the command cannot be run\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_flag_are_read() {
        let words = [
            "-num=5",
            "--reads",
            "7",
            "--histogram",
            "--nomemtable_whole_key_filtering",
            "-sync=0",
            "--memtable_bloom_size_ratio=0.1",
        ];
        let flags = Flags::parse(&words).unwrap();
        assert_eq!(
            (
                flags.number("num"),
                flags.number("reads"),
                flags.number("writes")
            ),
            (5, 7, -1)
        );
        assert_eq!(
            (
                flags.yes("histogram"),
                flags.yes("memtable_whole_key_filtering"),
                flags.yes("sync")
            ),
            (true, false, false)
        );
        assert_eq!(flags.share("memtable_bloom_size_ratio"), 0.1);
        assert_eq!(flags.count_or_num("writes"), Ok(5));
        for spelling in [
            "memtable_verify_per_key_checksum_on_seek",
            "paranoid_memory_check_key_checksum_on_seek",
        ] {
            let flags = Flags::parse(&[format!("--{spelling}=true")]).unwrap();
            assert!(flags.yes("memtable_verify_per_key_checksum_on_seek"));
        }
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name() {
        for (word, wanted) in [
            (
                "--compaction_style=1",
                "--compaction_style has no meaning here: nothing is compacted",
            ),
            (
                "--cache_size=1",
                "--cache_size has no meaning here: there are no table files",
            ),
            (
                "--compression_type=snappy",
                "--compression_type=snappy has no meaning here",
            ),
            ("--noisy", "--noisy is not a flag"),
            (
                "--valuesize=1",
                "--valuesize is not a flag of db_bench; did you mean --value_size?",
            ),
            ("--num", "--num needs a value"),
            ("--num=many", "--num: `many` is not a whole number"),
            ("--histogram=2", "`2` is not yes or no"),
            ("num=5", "`num=5` is no flag"),
        ] {
            let error = Flags::parse(&[word]).unwrap_err();
            assert!(error.contains(wanted), "{word}: {error}");
        }
        assert!(
            Flags::parse(&["--compression_type=none", "--max_write_buffer_number=100"]).is_ok()
        );
    }

    #[test]
    fn no_flag_is_listed_twice() {
        for (at, flag) in FLAGS.iter().enumerate() {
            assert!(
                FLAGS[..at].iter().all(|other| other.0 != flag.0),
                "{}",
                flag.0
            );
        }
    }
}
