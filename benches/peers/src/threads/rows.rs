//! The rows: their work and their participants.

use super::crew::Numbers;
use super::lanes::{Lane, rivals};
use super::parts::{BATCH, Does};
use super::stores::{Logged, Place, Store};
use crate::rivals::{Candidate, Extra};
use crate::work::Presence;

/// One row.
pub struct Row {
    pub name: String,
    pub does: Does,
    pub lanes: Vec<Lane>,
}

/// A sync of a disk takes as long as thousands of puts. One synced write counts for this many puts.
const SYNC_ON_A_FILE: u64 = 400;
/// The same for a sync that does nothing.
const SYNC_IN_MEMORY: u64 = 8;

const OURS: [Lane; 2] = [Lane::Table(Numbers::Consecutive), Lane::Writer];

/// All rows: those of tables, then those of sets.
pub fn all() -> Vec<Row> {
    let mut rows = tables();
    rows.extend(sets());
    rows
}

fn row(name: impl Into<String>, does: Does, lanes: impl IntoIterator<Item = Lane>) -> Row {
    let lanes = lanes.into_iter().filter(|lane| lane.is_built());
    Row {
        name: name.into(),
        does,
        lanes: lanes.collect(),
    }
}

fn tables() -> Vec<Row> {
    let ours = Lane::Table(Numbers::Consecutive);
    let modulo = Lane::Table(Numbers::EqualModulo8);
    let others = || rivals(Extra::Nothing);
    // masstree keeps one value of a key, and artmap's scan shows one, so their versions cannot be
    // counted.
    let versioned = || {
        let hidden = [Candidate::Masstree, Candidate::ArtMap].map(Lane::Rival);
        let is_versioned = move |lane: &Lane| !hidden.contains(lane);
        others().into_iter().filter(is_versioned)
    };
    let written = || OURS.into_iter().chain(others());
    let absent = [Lane::Filtered, ours].into_iter();
    vec![
        row(
            "put at random",
            Does::Put,
            [ours, modulo, Lane::Writer].into_iter().chain(others()),
        ),
        row("half put, half get", Does::Half, written()),
        row("put ascending, interleaved", Does::PutAscending, written()),
        row(
            "new versions of 100 hot keys",
            Does::PutHot,
            OURS.into_iter().chain(versioned()),
        ),
        row("batches of 32", Does::PutBatches, written()),
        row("95 get, 5 put", Does::MostlyGets, written()),
        row(
            "get hit",
            Does::Get(Presence::Hit),
            [ours].into_iter().chain(others()),
        ),
        row(
            "get absent",
            Does::Get(Presence::Miss),
            absent.chain(rivals(Extra::Bloom)),
        ),
        row(
            "scan of 100",
            Does::Scan,
            [ours].into_iter().chain(others()),
        ),
        // RocksDB's memtable cuts all of its range tombstones again for the first get after each
        // one.
        row("delete_range 1, get 15", Does::DeleteRanges, [ours]),
    ]
}

fn sets() -> Vec<Row> {
    let without = |does, name: &str| {
        let lanes = [Store::Set(Logged::Off), Store::RocksDb(Logged::Off)];
        row(name, does, lanes.map(|store| Lane::Store(store, None)))
    };
    let mut rows = vec![
        without(Does::Put, "set, put, no journal"),
        without(Does::PutBatches, "set, batches of 32, no journal"),
    ];
    for (place, at) in [(Place::File, "on a file"), (Place::Memory, "in memory")] {
        for (logged, name) in [
            (Logged::Written, "Buffered"),
            (Logged::Queued, "Queued"),
            (Logged::Synced, "Synced"),
        ] {
            for (batch, size) in [(1, "put"), (BATCH, "batches of 32")] {
                let does = match (logged, place, batch) {
                    (Logged::Synced, Place::File, _) => Does::PutSynced {
                        batch,
                        share: SYNC_ON_A_FILE,
                    },
                    (Logged::Synced, Place::Memory, _) => Does::PutSynced {
                        batch,
                        share: SYNC_IN_MEMORY * batch as u64,
                    },
                    (_, _, 1) => Does::Put,
                    _ => Does::PutBatches,
                };
                rows.push(row(
                    format!("set, {size}, {name}, {at}"),
                    does,
                    stores(logged).map(|store| Lane::Store(store, Some(place))),
                ));
            }
        }
    }
    let lanes = [
        Lane::Store(Store::Set(Logged::Off), None),
        Lane::Store(Store::RocksDb(Logged::Off), None),
        Lane::Store(Store::Fjall(Logged::Written), Some(Place::Memory)),
    ];
    rows.push(row("set, view and get", Does::Get(Presence::Hit), lanes));
    rows
}

/// The stores that have such a log.
fn stores(logged: Logged) -> impl Iterator<Item = Store> {
    let others = [Store::RocksDb(logged), Store::Fjall(logged)];
    let has_one = logged != Logged::Queued;
    [Store::Set(logged)]
        .into_iter()
        .chain(others.into_iter().filter(move |_| has_one))
}
