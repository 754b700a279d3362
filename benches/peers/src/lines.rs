//! Reads the result lines of db_bench, as scripts for RocksDB's do.
//!
//! ```text
//!   readrandom   :       0.904 micros/op 1104728 ops/sec 0.018 seconds 20000 operations;   75.8 MB/s (12409 of ...
//! ```

use serde::{Deserialize, Serialize};

/// The results of one benchmark, one figure per run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    pub benchmark: String,
    pub micros: Vec<f64>,
    pub rates: Vec<f64>,
    /// MB/s; empty where the benchmark counts no bytes.
    pub speeds: Vec<f64>,
}

/// Every result line of an output, by benchmark, in the order in which they came. Lines of averages are not read.
pub fn read(output: &str) -> Vec<Results> {
    let mut all: Vec<Results> = Vec::new();
    for line in output.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, ":", micros, "micros/op", rate, "ops/sec", rest @ ..] = fields.as_slice() else {
            continue;
        };
        let (Ok(micros), Ok(rate)) = (micros.parse(), rate.parse()) else { continue };
        if !all.iter().any(|results| results.benchmark == *name) {
            all.push(Results { benchmark: (*name).to_owned(), ..Results::default() });
        }
        if let Some(results) = all.iter_mut().find(|results| results.benchmark == *name) {
            results.micros.push(micros);
            results.rates.push(rate);
            let unit = rest.iter().position(|word| *word == "MB/s");
            results.speeds.extend(unit.and_then(|at| rest.get(at.checked_sub(1)?)?.parse::<f64>().ok()));
        }
    }
    all
}
