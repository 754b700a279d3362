//! Many keys at once: stages instead of lookups, so that memory is waited for once per stage and not once per key.
//!
//! ```text
//!   group of up to 32 keys
//!     hash      K of every key; filter lines and buckets are asked for
//!     sift      filters say "absent"; buckets are read, the nodes they name are asked for
//!     judge     nodes are verified and compared; who is left needs the list
//!     search    interleaved searches, 16 in flight
//!     finish    tombstones, then the value, in the order asked
//! ```
//! * MULTI-GET-1: each key's result is what `get` would have returned; damage answers for its own key only.
//! * MULTI-GET-2: nothing is allocated but the results' own buffer.
//!
//! Any thread; lock-free.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::key::{Comparator, SequenceNumber, Side, Target};
use crate::memtable::lookup::accelerators::{Shortcuts, hash_of};
use crate::memtable::lookup::filter::{Answer, Bits};
use crate::memtable::lookup::point_index::{Bucket, Known, Sight};
use crate::memtable::lookup::statistics::Event;
use crate::memtable::parts::ordered::Order;
use crate::memtable::parts::representation::{Ordered, Spot};
use crate::memtable::read::find_entry::Shortcut;
use crate::memtable::read::get::Lookup;
use crate::memtable::skiplist::interleaved_search::find_many;
use crate::memtable::skiplist::search::{Bracket, Gap, NoTrail, Search, Tally};
use crate::memtable::table::{Core, TableReader};
use crate::planted::{Bug, planted};

/// Keys of a group.
const GROUP: usize = 32;

/// How far a key's lookup has come.
#[derive(Clone, Copy)]
enum Stage<'a> {
    /// The filter is to be asked, then the bucket to be read.
    Hashed(Option<Bits>, Option<Bucket>),
    /// The bucket was read; the nodes that it names are on their way.
    Seen(Sight),
    /// The list must be searched.
    AskList,
    /// The newest visible entry.
    Done(Option<Spot<'a>>),
}

/// The keys of a group that a filter let pass.
#[derive(Debug, Clone, Copy, Default)]
struct Passed(u32);

const _: () = assert!(GROUP == u32::BITS as usize);

impl Passed {
    #[inline(always)]
    fn insert(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

impl<C: Comparator> Core<C> {
    /// Finds the newest visible entry of each key of a group.
    fn locate_group<'a, K: AsRef<[u8]>>(
        &self,
        search: &Search<'a, C>,
        keys: &[K],
        snapshot: SequenceNumber,
        stages: &mut [Stage<'a>],
    ) {
        let mut passed = Passed::default();
        if self.accelerators.shortcuts() == Shortcuts::Some {
            self.hash_group(search, keys, stages);
            passed = self.sift_group(search, stages);
            self.judge_group(search, keys, snapshot, stages);
        }
        self.search_group(search, keys, snapshot, stages);
        if self.accelerators.statistics.is_some() {
            self.count_group(stages, passed);
        }
    }

    /// Counts the keys whose lookup ends here. The others are looked up one by one, and counted there.
    #[cold]
    fn count_group(&self, stages: &[Stage<'_>], passed: Passed) {
        for (place, stage) in stages.iter().enumerate() {
            let Stage::Done(found) = stage else { continue };
            self.count_lookup(u64::from(found.is_some()));
            if found.is_none() && passed.has(place) {
                self.accelerators.count(Event::FilterFalsePositive, 1);
            }
        }
    }

    fn hash_group<K: AsRef<[u8]>>(&self, search: &Search<'_, C>, keys: &[K], stages: &mut [Stage<'_>]) {
        for (key, stage) in keys.iter().zip(stages) {
            let key = key.as_ref();
            let key_part = hash_of(key);
            let (bits, bucket) = (self.accelerators.bits(key, key_part), self.accelerators.bucket(key_part));
            if let Some(bits) = &bits {
                bits.prefetch(search.view());
            }
            if let Some(bucket) = &bucket {
                bucket.prefetch(search.view());
            }
            *stage = Stage::Hashed(bits, bucket);
        }
    }

    fn sift_group(&self, search: &Search<'_, C>, stages: &mut [Stage<'_>]) -> Passed {
        let mut passed = Passed::default();
        for (place, stage) in stages.iter_mut().enumerate() {
            let Stage::Hashed(bits, bucket) = stage else { continue };
            if bits.is_some_and(|bits| bits.ask(search.view()) == Answer::Absent) {
                self.accelerators.count(Event::FilterNegative, 1);
                *stage = Stage::Done(None);
                continue;
            }
            if bits.is_some() {
                passed.insert(place);
            }
            *stage = match bucket.and_then(|bucket| self.accelerators.look(search.view(), bucket)) {
                Some(sight) => {
                    for node in sight.candidates() {
                        search.prefetch_entry(node);
                    }
                    Stage::Seen(sight)
                }
                None => Stage::AskList,
            };
        }
        passed
    }

    fn judge_group<'a, K: AsRef<[u8]>>(
        &self,
        search: &Search<'a, C>,
        keys: &[K],
        snapshot: SequenceNumber,
        stages: &mut [Stage<'a>],
    ) {
        for (key, stage) in keys.iter().zip(stages) {
            let Stage::Seen(sight) = stage else { continue };
            let known: Known<'a> = sight.judge(search.view(), &self.comparator, key.as_ref());
            *stage = match self.visible(search, known, key.as_ref(), snapshot) {
                Shortcut::Found(spot) => Stage::Done(Some(spot)),
                Shortcut::Absent => Stage::Done(None),
                Shortcut::AskList => Stage::AskList,
            };
        }
    }

    fn search_group<'a, K: AsRef<[u8]>>(
        &self,
        search: &Search<'a, C>,
        keys: &[K],
        snapshot: SequenceNumber,
        stages: &mut [Stage<'a>],
    ) {
        let mut targets = [Target::extreme(Side::End); GROUP];
        let mut places = [0; GROUP];
        let mut count = 0;
        for (place, key) in keys.iter().enumerate() {
            if matches!(stages[place], Stage::AskList) {
                targets[count] = Target::new(&self.comparator, key.as_ref(), snapshot);
                places[count] = place;
                count += 1;
            }
        }
        if count == 0 {
            return;
        }
        let (targets, mut finished) = (&targets[..count], 0);
        let mut done = |index: usize, outcome: Result<Bracket<'a>, Gap>| {
            let place = if planted(Bug::MultiGetMixesKeys) { places[finished] } else { places[index] };
            finished += 1;
            let key = targets[index].key;
            let found = outcome.map(|bracket| {
                let entry = bracket.entry.filter(|entry| self.comparator.compare(entry.key(), key).is_eq());
                entry.map(|entry| Spot { at: entry.node().offset(), entry })
            });
            // A gap is looked at again by a search of its own: it may be proved not to matter for this key.
            stages[place] = found.map_or(Stage::AskList, Stage::Done);
        };
        if self.accelerators.statistics.is_some() {
            find_many(search, targets, &Tally::default(), &mut |index, outcome, tally| {
                self.count_search(search, &outcome, tally);
                done(index, outcome);
            });
        } else {
            find_many(search, targets, &NoTrail, &mut |index, outcome, _| done(index, outcome));
        }
    }
}

/// How many bytes of values may still be handed out.
#[derive(Debug, Clone, Copy)]
enum Budget {
    Unlimited,
    Of { bytes: u64, used: u64 },
}

impl Budget {
    /// The refusal, if nothing is left.
    fn refusal(&self) -> Option<Error> {
        match *self {
            Budget::Of { bytes, used } if used >= bytes => Some(Error::BudgetUsedUp { budget: bytes }),
            _ => None,
        }
    }

    fn spend<C: Comparator>(&mut self, result: &Result<Lookup<'_, C>>) {
        if let (Budget::Of { used, .. }, Ok(Lookup::Value(value))) = (self, result) {
            *used = used.saturating_add(value.len() as u64);
        }
    }
}

impl<C: Comparator> TableReader<C> {
    /// What the table knows about many keys at one snapshot, in the order asked. Any number, in any order, duplicates
    /// allowed. Each result is what [`get`](Self::get) would return; damage answers for its own key only. Much faster
    /// than a loop of gets: searches and probes wait for memory together.
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"a", b"x")?;
    /// let results = table.multi_get(&[b"b", b"a"], 1);
    /// assert!(matches!(results[0], Ok(Lookup::NotFound)));
    /// assert!(matches!(results[1], Ok(Lookup::Value(_))));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        snapshot: SequenceNumber,
    ) -> Vec<Result<Lookup<'_, C>>> {
        let mut results = Vec::with_capacity(keys.len());
        self.multi_get_into(keys, snapshot, &mut results);
        results
    }

    /// Looks up many keys and fills a buffer, which is cleared first: one that is large enough is not grown, and
    /// nothing else is allocated.
    pub fn multi_get_into<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        snapshot: SequenceNumber,
        results: &mut Vec<Result<Lookup<'a, C>>>,
    ) {
        self.multi_get_limited(keys, snapshot, Budget::Unlimited, results);
    }

    /// Looks up many keys until the values found take up `budget` bytes: the keys after the one that reaches it answer
    /// `BudgetUsedUp`. Merge operands do not count.
    ///
    /// ```
    /// use paranoid_memtable::{Error, MemTable, MemTableOptions};
    /// # fn main() -> Result<(), paranoid_memtable::Error> {
    /// let table = MemTable::new(MemTableOptions::default())?;
    /// table.put(1, b"a", b"1234")?;
    /// let mut results = Vec::new();
    /// table.multi_get_with_budget(&[b"a", b"a", b"a"], 1, 5, &mut results);
    /// assert!(results[1].is_ok());
    /// assert!(matches!(results[2], Err(Error::BudgetUsedUp { budget: 5 })));
    /// # Ok(()) }
    /// ```
    pub fn multi_get_with_budget<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        snapshot: SequenceNumber,
        budget: u64,
        results: &mut Vec<Result<Lookup<'a, C>>>,
    ) {
        self.multi_get_limited(keys, snapshot, Budget::Of { bytes: budget, used: 0 }, results);
    }

    fn multi_get_limited<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        snapshot: SequenceNumber,
        mut budget: Budget,
        results: &mut Vec<Result<Lookup<'a, C>>>,
    ) {
        results.clear();
        results.reserve(keys.len());
        let order = match self.core.order(None) {
            Ok(order) => order,
            Err(corruption) => {
                results.extend(keys.iter().map(|_| Err(corruption.into())));
                return;
            }
        };
        for group in keys.chunks(GROUP) {
            if budget.refusal().is_some() {
                results.extend(group.iter().filter_map(|_| budget.refusal()).map(Err));
                continue;
            }
            let mut stages = [Stage::AskList; GROUP];
            let stages = &mut stages[..group.len()];
            self.core.accelerators.count(Event::MultiGetKey, group.len() as u64);
            if let Order::List(search) = &order {
                self.core.locate_group(search, group, snapshot, stages);
            }
            let covers = self.covers(group, snapshot, stages);
            for (place, (key, stage)) in group.iter().zip(&*stages).enumerate() {
                let cover = covers.and_then(|covers| covers.get(place).copied());
                let result = match budget.refusal() {
                    Some(refusal) => Err(refusal),
                    None => self.finish(&order, (key.as_ref(), snapshot), stage, cover),
                };
                budget.spend(&result);
                results.push(result);
            }
        }
    }

    /// The newest tombstone over each key of a group. `None`: each is asked about by itself.
    #[inline]
    fn covers<K: AsRef<[u8]>>(
        &self,
        group: &[K],
        snapshot: SequenceNumber,
        stages: &[Stage<'_>],
    ) -> Option<[Option<SequenceNumber>; GROUP]> {
        let asked = group.iter().zip(stages).map(|(key, stage)| match stage {
            Stage::Done(Some(spot)) => (key.as_ref(), Some(spot.entry.node().sequence())),
            _ => (key.as_ref(), None),
        });
        self.core.covering_many(asked, snapshot)
    }

    /// Tombstones, then the value.
    #[inline]
    fn finish<'a>(
        &'a self,
        order: &Order<'a, C>,
        (key, snapshot): (&[u8], SequenceNumber),
        stage: &Stage<'a>,
        cover: Option<Option<SequenceNumber>>,
    ) -> Result<Lookup<'a, C>> {
        let (spot, cover) = match stage {
            Stage::Done(found) => (*found, cover),
            // A sorted table, whose order was made once for all keys, or damage.
            _ => (self.core.locate(order, key, snapshot)?, None),
        };
        let deleted = match cover {
            Some(cover) => Core::<C>::deletion_by(cover, spot.as_ref()),
            None => self.core.deletion(key, snapshot, spot.as_ref())?,
        };
        self.answer(key, spot, deleted, order)
    }
}
