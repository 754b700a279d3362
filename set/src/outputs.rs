//! A compaction that cuts its output: several files whose keys do not overlap.
//!
//! ```text
//!   merged     a@5  c@7  c@2       f@9     k@1          [b, h)@8
//!   outputs    a@5  c@7  c@2  [b, f)@8  |  f@9  k@1  [f, h)@8
//!   bounds     a .. f, excluded         |  f .. k, included
//! ```
//! * OUTPUTS-1: a cut is between two user keys. It is the key of the entry after it, or, past the
//!   last entry, the end of a fragment. The output before a cut has all fragments up to the cut,
//!   and the output after it begins with the cut or later.
//! * OUTPUTS-2: a key that is kept between two entries has a digest, computed from the entry. It is
//!   compared before the key decides about a cut or becomes a bound. The copy of a cut is compared
//!   with the digests of its entry.
//! * OUTPUTS-3: range tombstones are collected before the first entry and again after the last one.
//!   The pass ends well only if both are the same.
//!
//! One thread at a time.

#![forbid(unsafe_code)]

use std::ops::Bound;

use paranoid_memtable::flush::{FlushEntry, FlushItem, FlushSink, FlushSummary};
use paranoid_memtable::integrity::StoredProtection;
use paranoid_memtable::sibling::KeyComparator;
use paranoid_memtable::tombstone::FragmentIter;
use paranoid_memtable::{Kind, Result, shown};

use crate::compaction::{Compaction, Next, Pass, lost};
use crate::compaction_input::verified;

/// The outputs of a compaction, one after the other: a sink for each file of a level. Made by
/// [`Compaction::outputs`].
///
/// ```
/// use std::ops::Bound::{Excluded, Included};
/// use std::sync::Arc;
/// use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
/// use paranoid_memtable::tombstone::Fragment;
/// use paranoid_memtable::{Bytewise, MemTable};
/// use paranoid_set::{Compaction, Level, Output, Outputs};
/// /// A table in place of a file.
/// #[derive(Clone)]
/// struct Writer(MemTable);
/// impl FlushSink for Writer {
///     fn entry(&mut self, it: FlushEntry<'_>) -> Result<(), SinkError> {
///         self.0.insert(it.sequence, it.kind, it.user_key, it.value)?;
///         Ok(())
///     }
///     fn fragment(&mut self, it: Fragment<'_>) -> Result<(), SinkError> {
///         self.0.delete_range(it.newest(), it.start(), it.end())?;
///         Ok(())
///     }
/// }
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let source = MemTable::default();
/// for (sequence, key) in [(1, "a"), (2, "c"), (3, "f"), (4, "k")] {
///     source.put(sequence, key, "value")?;
/// }
/// source.delete_range(5, "b", "h")?;
/// source.put(6, "f", "again")?;
/// let merged = Compaction::over(Arc::new(Bytewise), &[], vec![source.source()]);
/// let mut outputs: Outputs<'_, Writer> = merged
///     .outputs(1 << 20, |_number| Ok(Writer(MemTable::default())))
///     .cutting(|_, key| key == b"f"); // where the overlap with the level below is large
/// let (mut files, mut bounds) = (vec![], vec![]);
/// while let Some(output) = outputs.next()? {
///     let Output { sink, bounds: its, .. } = output;
///     files.push(sink.0);
///     bounds.push(its);
/// }
/// assert_eq!(bounds, [(b"a".into(), Excluded(b"f".into())), (b"f".into(), Included(b"k".into()))]);
/// let level = Level::new(Arc::new(Bytewise), bounds)?.source(|place: usize| Ok(files[place].source()));
/// # drop(level);
/// # Ok(()) }
/// ```
pub struct Outputs<'s, S> {
    merge: Compaction<'s>,
    open: Open<'s, S>,
    /// Bytes of keys and values.
    limit: u64,
    is_cut_before: Option<CutRule<'s, S>>,
    /// The number of sinks that were opened.
    opened: u64,
    /// The counts when the last output ended.
    before: FlushSummary,
    fragments: Option<FragmentIter>,
    stage: Stage,
}

/// Opens the sink of an output, by number.
type Open<'s, S> = Box<dyn FnMut(u64) -> Result<S> + Send + 's>;

/// Whether an output ends before a key.
type CutRule<'s, S> = Box<dyn FnMut(&S, &[u8]) -> bool + Send + 's>;

/// What comes next.
enum Stage {
    Entries,
    /// The first entry of the next output, which ended the last one.
    Waiting(Next),
    /// No entry.
    Fragments,
}

/// One finished output of a compaction.
///
/// ```
/// use std::ops::Bound::Included;
/// use std::sync::Arc;
/// # use paranoid_memtable::flush::{FlushEntry, FlushSink, SinkError};
/// # use paranoid_memtable::tombstone::Fragment;
/// use paranoid_memtable::{Bytewise, MemTable};
/// use paranoid_set::{Compaction, Output};
/// # struct Count;
/// # impl FlushSink for Count {
/// #     fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> { Ok(()) }
/// #     fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> { Ok(()) }
/// # }
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let source = MemTable::default();
/// source.put(1, "a", "value")?;
/// source.put(2, "c", "value")?;
/// let merged = Compaction::over(Arc::new(Bytewise), &[], vec![source.source()]);
/// let output: Output<Count> = merged.outputs(1 << 20, |_| Ok(Count)).next()?.expect("one output");
/// assert_eq!((output.bounds, output.summary.entries), ((b"a".into(), Included(b"c".into())), 2));
/// # Ok(()) }
/// ```
pub struct Output<S> {
    /// The sink, with all its entries and fragments. The engine finishes and syncs the file.
    pub sink: S,
    /// The first key and the end, as a [`Level`](crate::Level) takes them: `Included` for the last
    /// key of an entry, `Excluded` for the end of a range tombstone after every entry.
    pub bounds: (Vec<u8>, Bound<Vec<u8>>),
    /// The counts of this output, and in `hidden` those of the versions that were dropped meanwhile.
    pub summary: FlushSummary,
}

/// A sink that is open.
struct Filling<S> {
    sink: S,
    first: Option<Sealed>,
    /// The key of the last entry.
    last: Option<Sealed>,
    /// The end of the last fragment.
    end: Option<Sealed>,
}

impl<'s> Compaction<'s> {
    /// This merge in several outputs, each of about `limit` bytes of keys and values. An output
    /// ends before the first user key at which it has that many, and takes all range tombstones up
    /// to that key, so it may be larger. Range tombstones past the last entry are cut at their
    /// ends. A range tombstone over a cut is cut there, one part into each output.
    /// [`cutting`](Outputs::cutting) adds a rule of the engine.
    ///
    /// `open` makes a sink for each output, by its number from 0, once its first item is known: at
    /// most one sink is open, and none is made in vain. Range tombstones of all sources are read
    /// before the first entry and after the last one, and stay in memory meanwhile.
    ///
    /// See [`Outputs`] for an example.
    pub fn outputs<S: FlushSink>(
        self,
        limit: u64,
        open: impl FnMut(u64) -> Result<S> + Send + 's,
    ) -> Outputs<'s, S> {
        Outputs {
            merge: self,
            open: Box::new(open),
            limit,
            is_cut_before: None,
            opened: 0,
            before: FlushSummary::default(),
            fragments: None,
            stage: Stage::Entries,
        }
    }
}

impl<'s, S: FlushSink> Outputs<'s, S> {
    /// These outputs, which also end before each key that `rule` names. It is asked about each user
    /// key after the first one of an output, with the output's sink: so an engine can limit the
    /// bytes of a file, or its overlap with the files of the next level.
    #[must_use]
    pub fn cutting(mut self, rule: impl FnMut(&S, &[u8]) -> bool + Send + 's) -> Self {
        self.is_cut_before = Some(Box::new(rule));
        self
    }

    /// Fills the next output. `None` means that all items were returned, and all checks of
    /// [`Compaction::next`] passed. Only then may the engine name the files in its manifest; until
    /// then the old version is whole, and after an error the engine removes the files of the outputs
    /// that it got.
    ///
    /// # Errors
    /// Every later call returns the same error; the open sink is dropped:
    ///
    /// - those of [`Compaction::next`];
    /// - `Sink` for an error of the sink, and the errors of `open`;
    /// - `Corruption` if a bound or a cut was damaged in memory;
    /// - `ReaderPanicked` also after a panic of `open`, a sink, or the rule.
    #[expect(
        clippy::should_implement_trait,
        reason = "an error ends the outputs, and the caller must see it"
    )]
    pub fn next(&mut self) -> Result<Option<Output<S>>> {
        self.merge.begin_move()?;
        let filled = match self.merge.ended() {
            Some(Ok(())) => Ok(None),
            Some(Err(error)) => Err(error.clone()),
            None => self.fill(),
        };
        self.merge.end_move(filled)
    }

    fn fill(&mut self) -> Result<Option<Output<S>>> {
        let mut fragments = match self.fragments.take() {
            Some(fragments) => fragments,
            None => self.merge.tombstones(Pass::First)?.finish_iter(),
        };
        let mut filling = None;
        self.pass_entries(&mut filling, &mut fragments)?;
        self.pass_fragments(&mut filling, &mut fragments)?;
        self.fragments = Some(fragments);
        let Some(filled) = filling else {
            return Ok(None);
        };
        let bounds = bounds(self.merge.comparator(), &filled)?;
        let mut summary = *self.merge.summary();
        let before = std::mem::replace(&mut self.before, summary);
        summary.entries -= before.entries;
        summary.hidden -= before.hidden;
        summary.fragments -= before.fragments;
        summary.data_bytes -= before.data_bytes;
        Ok(Some(Output {
            sink: filled.sink,
            bounds,
            summary,
        }))
    }

    /// Passes entries up to a cut, or up to the last entry.
    fn pass_entries(
        &mut self,
        filling: &mut Option<Filling<S>>,
        fragments: &mut FragmentIter,
    ) -> Result<()> {
        loop {
            let next = match std::mem::replace(&mut self.stage, Stage::Entries) {
                Stage::Entries => self.merge.pull()?,
                Stage::Waiting(next) => Some(next),
                Stage::Fragments => None,
            };
            let Some(next) = next else {
                self.stage = Stage::Fragments;
                return Ok(());
            };
            let is_full = self.is_full();
            let (comparator, entry) = (self.merge.comparator(), self.merge.entry(&next)?);
            let key = entry.user_key;
            if let Some(Filling {
                sink,
                last: Some(last),
                ..
            }) = filling
                && comparator.compare(&last.key, key).is_ne()
                && (is_full || is_named(&mut self.is_cut_before, sink, key))
            {
                // OUTPUTS-2.
                last.verify()?;
                let user_key = fragments.cut_at(key);
                verified(FlushEntry { user_key, ..entry })?;
                self.stage = Stage::Waiting(next);
                return Ok(());
            }
            let it = opened(filling, &mut self.open, &mut self.opened)?;
            seal(&mut it.last, key);
            if it.first.is_none() {
                seal(&mut it.first, key);
            }
            let bytes = (key.len() + entry.value.len()) as u64;
            FlushItem::Entry(entry).hand_to(&mut it.sink)?;
            let summary = self.merge.summary();
            (summary.entries, summary.data_bytes) =
                (summary.entries + 1, summary.data_bytes + bytes);
        }
    }

    /// Passes the fragments up to the cut. Past the last entry, a full output is cut at the end of
    /// a fragment. After the last fragment, ends the pass.
    fn pass_fragments(
        &mut self,
        filling: &mut Option<Filling<S>>,
        fragments: &mut FragmentIter,
    ) -> Result<()> {
        let mut is_cut = matches!(self.stage, Stage::Waiting(_));
        while fragments.advance()? {
            let fragment = fragments.fragment().ok_or_else(lost)?;
            let it = opened(filling, &mut self.open, &mut self.opened)?;
            let is_before =
                |left: &[u8], right: &[u8]| self.merge.comparator().compare(left, right).is_lt();
            if it.end.is_none()
                && it
                    .first
                    .as_ref()
                    .is_none_or(|first| is_before(fragment.start(), &first.key))
            {
                it.first.iter().try_for_each(Sealed::verify)?;
                seal(&mut it.first, fragment.start());
            }
            seal(&mut it.end, fragment.end());
            let last = it.last.as_ref();
            let is_past_entries = last.is_none_or(|last| is_before(&last.key, fragment.end()));
            let bytes = (fragment.start().len() + fragment.end().len()) as u64;
            FlushItem::Fragment(fragment).hand_to(&mut it.sink)?;
            let summary = self.merge.summary();
            (summary.fragments, summary.data_bytes) =
                (summary.fragments + 1, summary.data_bytes + bytes);
            if !is_cut
                && is_past_entries
                && let Some(end) = &it.end
                && (self.is_full() || is_named(&mut self.is_cut_before, &it.sink, &end.key))
            {
                it.last.iter().try_for_each(Sealed::verify)?;
                fragments.cut_at(&end.key);
                is_cut = true;
            }
        }
        if !is_cut {
            // OUTPUTS-3.
            fragments.compare(&self.merge.tombstones(Pass::Last)?)?;
            self.merge.end();
        }
        Ok(())
    }

    fn is_full(&mut self) -> bool {
        self.merge.summary().data_bytes - self.before.data_bytes >= self.limit
    }
}

/// Whether the engine's rule names a key.
fn is_named<S>(rule: &mut Option<CutRule<'_, S>>, sink: &S, key: &[u8]) -> bool {
    rule.as_mut().is_some_and(|rule| rule(sink, key))
}

/// The open sink. Opens it if there is none.
fn opened<'f, S>(
    filling: &'f mut Option<Filling<S>>,
    open: &mut Open<'_, S>,
    opened: &mut u64,
) -> Result<&'f mut Filling<S>> {
    if let Some(filling) = filling {
        return Ok(filling);
    }
    let sink = open(*opened)?;
    *opened += 1;
    Ok(filling.insert(Filling {
        sink,
        first: None,
        last: None,
        end: None,
    }))
}

/// The first key and the end of an output, verified.
fn bounds<S>(comparator: &KeyComparator, filled: &Filling<S>) -> Result<(Vec<u8>, Bound<Vec<u8>>)> {
    let Filling {
        first, last, end, ..
    } = filled;
    let kept = [first, last, end].map(Option::as_ref);
    kept.iter().flatten().try_for_each(|key| key.verify())?;
    let [first, last, end] = kept.map(|key| key.map(|key| key.key.clone()));
    let end = match (last, end) {
        (Some(last), Some(end)) if comparator.compare(&last, &end).is_lt() => Bound::Excluded(end),
        (Some(last), _) => Bound::Included(last),
        (None, Some(end)) => Bound::Excluded(end),
        (None, None) => Bound::Unbounded,
    };
    Ok((first.ok_or_else(lost)?, end))
}

/// A copy of a key, with a digest that was computed from the original.
struct Sealed {
    key: Vec<u8>,
    digest: StoredProtection,
}

impl Sealed {
    fn verify(&self) -> Result<()> {
        let agrees = self.digest.check(&self.key, b"", 0, Kind::PUT);
        agrees.map(drop).ok_or_else(lost)
    }
}

/// Copies a key, into the memory of the last copy.
fn seal(copy: &mut Option<Sealed>, key: &[u8]) {
    let digest = StoredProtection::of(key, b"", 0, Kind::PUT);
    let mut bytes = copy.take().map_or_else(Vec::new, |copy| copy.key);
    bytes.clear();
    bytes.extend_from_slice(key);
    *copy = Some(Sealed { key: bytes, digest });
}

shown! { "Outputs": impl [S] Outputs<'_, S>, |outputs| { "opened": outputs.opened } }
shown! { "Output": impl [S] Output<S>, |output| { "summary": output.summary } }

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that cannot continue panics")]
mod tests {
    use std::sync::Arc;

    use paranoid_memtable::flush::SinkError;
    use paranoid_memtable::tombstone::Fragment;
    use paranoid_memtable::{Bytewise, Error, MemTable};

    use super::*;

    struct Nowhere;

    impl FlushSink for Nowhere {
        fn entry(&mut self, _: FlushEntry<'_>) -> Result<(), SinkError> {
            Ok(())
        }

        fn fragment(&mut self, _: Fragment<'_>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    /// Every flipped bit of a kept key is an error before the key becomes a bound (OUTPUTS-2).
    #[test]
    fn a_damaged_key_is_no_bound() {
        let table = MemTable::default();
        for (sequence, key) in [(1, "ab"), (2, "cd"), (3, "ef")] {
            table.put(sequence, key, "value").unwrap();
        }
        table.delete_range(4, "b", "d").unwrap();
        let ended = |kept: usize, bit: usize| {
            let merge = Compaction::over(Arc::new(Bytewise), &[], vec![table.source()]);
            let mut outputs =
                (merge.outputs(u64::MAX, |_| Ok(Nowhere))).cutting(|_, key| key == b"ef");
            let mut fragments = outputs.merge.tombstones(Pass::First).unwrap().finish_iter();
            let mut filling = None;
            outputs
                .pass_entries(&mut filling, &mut fragments)
                .and_then(|()| outputs.pass_fragments(&mut filling, &mut fragments))
                .unwrap();
            let mut filled = filling.unwrap();
            let keys = [&mut filled.first, &mut filled.last, &mut filled.end];
            if let Some(key) = keys.into_iter().nth(kept) {
                key.as_mut().unwrap().key[bit / 8] ^= 1 << (bit % 8);
            }
            bounds(outputs.merge.comparator(), &filled)
        };
        assert_eq!(
            ended(3, 0).unwrap(),
            (b"ab".to_vec(), Bound::Excluded(b"d".to_vec()))
        );
        for (kept, bytes) in [(0, 2), (1, 2), (2, 1)] {
            for bit in 0..8 * bytes {
                assert!(matches!(ended(kept, bit), Err(Error::Corruption(_))));
            }
        }
    }
}
