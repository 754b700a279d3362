//! A level as one source: files whose keys do not overlap.
//!
//! ```text
//!   [a .. f]   [g .. m)[m .. p)   [q .. z]     a range delete of [h, p) is cut at m
//!                       ^                      m is the first key of the third file
//! ```
//! A key is inside the bounds of at most one file, which has all its versions. A file is opened by
//! the first move or question that needs it.
//!
//! One thread at a time moves a source.

#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use paranoid_memtable::scan::{Cover, SortedSource, SourceKey, SourceMove};
use paranoid_memtable::{Comparator, Error, Kind, Result, SequenceNumber, shown};

/// The bounds of the files of a level, whose keys do not overlap. They are checked once; clones and
/// [sources](Self::source) share them. An engine keeps one with each version of its files.
///
/// ```
/// use std::ops::Bound::{Excluded, Included};
/// use std::sync::Arc;
/// use paranoid_memtable::{Bytewise, Error};
/// use paranoid_set::Level;
/// let level = |end| {
///     let bounds = vec![(b"a".to_vec(), end), (b"m".to_vec(), Included(b"z".to_vec()))];
///     Level::new(Arc::new(Bytewise), bounds).map(drop)
/// };
/// assert!(level(Excluded(b"m".to_vec())).is_ok());
/// assert!(matches!(level(Included(b"m".to_vec())), Err(Error::InvalidArgument(_))));
/// ```
#[derive(Clone)]
pub struct Level {
    order: Arc<dyn Comparator>,
    bounds: Arc<[FileBounds]>,
}

/// The first key and the end of a file.
type FileBounds = (Vec<u8>, Bound<Vec<u8>>);

impl Level {
    /// A level of files. `bounds` lists each file's first key and end, range tombstones included.
    /// The end is `Included` for the last key of an entry, and `Excluded` for the end of a range
    /// tombstone after every entry; [`Output::bounds`](crate::Output::bounds) and `Written::bounds`
    /// of `paranoid-sst` have this form. The bounds ascend and do not overlap. Where a level is cut
    /// at a key, the first file ends with that key excluded, the second file has all versions of
    /// the key, and a range tombstone over the key is cut in two. O(files).
    ///
    /// # Errors
    /// `InvalidArgument` for a file that ends before it begins, and for files that overlap or are
    /// not in order. A file that includes the first key of the next one overlaps it.
    pub fn new(
        order: Arc<dyn Comparator>,
        bounds: impl Into<Arc<[(Vec<u8>, Bound<Vec<u8>>)]>>,
    ) -> Result<Self> {
        let bounds = bounds.into();
        for (place, (first, end)) in bounds.iter().enumerate() {
            let has_inside = |key: &[u8]| is_before_end(&*order, key, end);
            if !has_inside(first)
                || bounds
                    .get(place + 1)
                    .is_some_and(|(next, _)| has_inside(next))
            {
                return Err(refused(
                    place,
                    "ends before it begins, or not before the next one begins",
                ));
            }
        }
        Ok(Level { order, bounds })
    }

    /// The level as one source. `open` gets a file's place among the bounds. O(1), and one
    /// allocation, however many files the level has.
    ///
    /// A range tombstone that reaches past the bounds of its file deletes nothing outside them. A
    /// [`Compaction`](crate::Compaction) refuses a range tombstone that reaches past an included
    /// end, because the cut range would have no end.
    ///
    /// # Errors
    /// Moves of the source return
    ///
    /// - `InvalidArgument` for an entry outside the bounds of its file;
    /// - `ReaderPanicked` for a step after a move that panicked, until the next seek;
    /// - the errors of `open`; the next step continues in the file beside it.
    pub fn source<'s, F: SortedSource>(
        &self,
        open: impl FnMut(usize) -> Result<F> + Send + 's,
    ) -> LevelSource<'s, F> {
        let nowhere = || (usize::MAX, None);
        LevelSource {
            level: self.clone(),
            files: Files {
                open: Box::new(open),
                here: nowhere(),
                asked: nowhere(),
            },
            key: Vec::new(),
            is_moving: false,
        }
    }
}

/// A level as one source: files whose keys do not overlap. The source opens a file only when a move
/// or a question needs it. Made by [`Level::source`].
///
/// ```
/// use std::ops::Bound::{Excluded, Included};
/// use std::sync::Arc;
/// use paranoid_memtable::scan::{SortedSource, SourceMove};
/// use paranoid_memtable::{Bytewise, MemTable};
/// use paranoid_set::{Level, LevelSource};
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let open = |place| {
///     let file = MemTable::default(); // in place of file number `place` of the level
///     file.put(1, ["b", "k"][place], b"value")?;
///     file.delete_range(2, ["c", "g"][place], ["g", "j"][place])?; // [c, j), cut at g
///     Ok(file.source())
/// };
/// let bounds = vec![(b"b".to_vec(), Excluded(b"g".to_vec())), (b"g".to_vec(), Included(b"k".to_vec()))];
/// let level = Level::new(Arc::new(Bytewise), bounds)?;
/// let mut source: LevelSource<'_, _> = level.source(open);
/// assert_eq!(source.go(SourceMove::Seek(b"c", 9))?.map(|key| key.user_key), Some(&b"k"[..]));
/// assert_eq!(source.go(SourceMove::Prev)?.map(|key| key.user_key), Some(&b"b"[..]));
/// assert_eq!(source.cover(&Bytewise, b"g", 9)?.map(|cover| cover.sequence), Some(2));
/// # Ok(()) }
/// ```
pub struct LevelSource<'s, F> {
    level: Level,
    files: Files<'s, F>,
    /// The key of the entry that the last move led to.
    key: Vec<u8>,
    /// Set while a move runs. A move that finds it set knows that the move before it panicked.
    is_moving: bool,
}

impl<F: SortedSource> LevelSource<'_, F> {
    /// The number of files that end before a key.
    fn before(&self, key: &[u8]) -> usize {
        self.level
            .bounds
            .partition_point(|(_, end)| !is_before_end(&*self.level.order, key, end))
    }

    /// The place of the only file that may have a key.
    fn place_of(&self, key: &[u8]) -> Option<usize> {
        Some(self.before(key)).filter(|place| self.is_inside(*place, key))
    }

    /// Whether a key is inside the bounds of a file.
    fn is_inside(&self, place: usize, key: &[u8]) -> bool {
        self.level.bounds.get(place).is_some_and(|(first, end)| {
            self.level.order.compare(first, key).is_le()
                && is_before_end(&*self.level.order, key, end)
        })
    }

    /// Makes a move, and copies the key of the entry that it reaches.
    fn find(&mut self, to: SourceMove<'_>) -> Result<Option<(SequenceNumber, Kind)>> {
        let (here, is_open) = (self.files.here.0, self.files.here.1.is_some());
        let is_forward = matches!(
            to,
            SourceMove::First | SourceMove::Next | SourceMove::Seek(..)
        );
        let began = |key, how| {
            self.level
                .bounds
                .partition_point(|(first, _)| self.level.order.compare(first, key) < how)
        };
        let (mut place, mut to) = match to {
            SourceMove::First => (0, to),
            SourceMove::Last => (self.level.bounds.len().wrapping_sub(1), to),
            // A step skips a file that could not be opened.
            SourceMove::Next if !is_open => (here.saturating_add(1), SourceMove::First),
            SourceMove::Prev if !is_open => (here.wrapping_sub(1), SourceMove::Last),
            SourceMove::Next | SourceMove::Prev => (here, to),
            SourceMove::Seek(key, _) => (self.before(key), to),
            SourceMove::SeekForPrev(key) => (began(key, Ordering::Greater).wrapping_sub(1), to),
            SourceMove::SeekBefore(key) => (began(key, Ordering::Equal).wrapping_sub(1), to),
        };
        while place < self.level.bounds.len() {
            if let Some(SourceKey {
                user_key,
                sequence,
                kind,
            }) = self.files.go_to(place)?.go(to)?
            {
                self.key.clear();
                self.key.extend_from_slice(user_key);
                let is_inside = self.is_inside(place, &self.key);
                let outside = || refused(place, "has an entry outside its bounds");
                return is_inside
                    .then_some((sequence, kind))
                    .ok_or_else(outside)
                    .map(Some);
            }
            let beside = if is_forward {
                place + 1
            } else {
                place.wrapping_sub(1)
            };
            (place, to) = (
                beside,
                if is_forward {
                    SourceMove::First
                } else {
                    SourceMove::Last
                },
            );
        }
        Ok(None)
    }
}

impl<F: SortedSource> SortedSource for LevelSource<'_, F> {
    fn go(&mut self, to: SourceMove<'_>) -> Result<Option<SourceKey<'_>>> {
        let is_step = matches!(to, SourceMove::Next | SourceMove::Prev);
        if std::mem::replace(&mut self.is_moving, true) && is_step {
            return Err(Error::ReaderPanicked);
        }
        let found = self.find(to);
        self.is_moving = false;
        Ok(found?.map(|(sequence, kind)| SourceKey {
            user_key: &self.key,
            sequence,
            kind,
        }))
    }

    fn value_into(&self, value: &mut Vec<u8>) -> Result<()> {
        self.files
            .here
            .1
            .as_ref()
            .map_or(Ok(()), |file| file.value_into(value))
    }

    fn range_tombstones(
        &mut self,
        take: &mut dyn FnMut(&[u8], &[u8], SequenceNumber) -> Result<()>,
    ) -> Result<()> {
        for (place, bounds) in self.level.bounds.iter().enumerate() {
            self.files
                .ask(place)?
                .range_tombstones(&mut |start, end, sequence| {
                    let (from, to) = clipped(&*self.level.order, bounds, (start, end));
                    match &bounds.1 {
                        Bound::Included(last)
                            if to != end && self.level.order.compare(from, last).is_le() =>
                        {
                            Err(refused(
                                place,
                                "has a range tombstone past its included end",
                            ))
                        }
                        _ if self.level.order.compare(from, to).is_lt() => take(from, to, sequence),
                        _ => Ok(()),
                    }
                })?;
        }
        Ok(())
    }

    fn cover(
        &mut self,
        order: &dyn Comparator,
        key: &[u8],
        snapshot: SequenceNumber,
    ) -> Result<Option<Cover<'_>>> {
        let Some(place) = self.place_of(key) else {
            return Ok(None);
        };
        let (bounds, file) = (&self.level.bounds[place], self.files.ask(place)?);
        Ok(file.cover(order, key, snapshot)?.map(|cover| {
            let span = cover.span.map(|span| clipped(order, bounds, span));
            // A span that ends at the included last key does not contain it: no span then.
            Cover {
                span: span.filter(|(_, end)| order.compare(key, end).is_lt()),
                ..cover
            }
        }))
    }

    fn may_hold(&mut self, key: &[u8]) -> Result<bool> {
        self.place_of(key)
            .map_or(Ok(false), |place| self.files.ask(place)?.may_hold(key))
    }
}

/// Start and end of a range tombstone.
type Range<'k> = (&'k [u8], &'k [u8]);

/// Opens the file at a place of a level.
type Open<'s, F> = Box<dyn FnMut(usize) -> Result<F> + Send + 's>;

/// A place, and its file unless the file could not be opened.
type Opened<F> = (usize, Option<F>);

/// The open files, at most two.
struct Files<'s, F> {
    open: Open<'s, F>,
    /// The file that the source is in.
    here: Opened<F>,
    /// Another file: the source was in it before, or a question opened it.
    asked: Opened<F>,
}

impl<F> Files<'_, F> {
    /// The file at a place. The source moves to it.
    fn go_to(&mut self, place: usize) -> Result<&mut F> {
        if self.here.0 != place {
            std::mem::swap(&mut self.here, &mut self.asked);
        }
        opened(&mut self.here, &mut self.open, place)
    }

    /// The file at a place, for a question. The source does not move.
    fn ask(&mut self, place: usize) -> Result<&mut F> {
        let is_here = self.here.0 == place && self.here.1.is_some();
        opened(
            if is_here {
                &mut self.here
            } else {
                &mut self.asked
            },
            &mut self.open,
            place,
        )
    }
}

/// Opens the file at a place, unless `file` has it already.
fn opened<'f, F>(
    file: &'f mut Opened<F>,
    open: &mut Open<'_, F>,
    place: usize,
) -> Result<&'f mut F> {
    if file.0 != place {
        *file = (place, None);
    }
    match &mut file.1 {
        Some(file) => Ok(file),
        none => Ok(none.insert(open(place)?)),
    }
}

/// Whether a key is before the end of a file, or is its included last key.
fn is_before_end(order: &dyn Comparator, key: &[u8], end: &Bound<Vec<u8>>) -> bool {
    match end {
        Bound::Included(last) => order.compare(key, last).is_le(),
        Bound::Excluded(end) => order.compare(key, end).is_lt(),
        Bound::Unbounded => true,
    }
}

/// The part of a range tombstone inside the bounds of its file. Outside them it deletes nothing.
fn clipped<'k>(
    order: &dyn Comparator,
    bounds: &'k FileBounds,
    (start, end): Range<'k>,
) -> Range<'k> {
    let start = if order.compare(start, &bounds.0).is_lt() {
        &bounds.0
    } else {
        start
    };
    match &bounds.1 {
        Bound::Included(last) | Bound::Excluded(last) if order.compare(last, end).is_lt() => {
            (start, last)
        }
        _ => (start, end),
    }
}

#[cold]
fn refused(place: usize, why: &str) -> Error {
    Error::InvalidArgument(format!("file {place} of a level {why}"))
}

shown! { "Level": impl [] Level, |level| { "files": level.bounds.len() } }
shown! { "LevelSource": impl [F] LevelSource<'_, F>, |source| { "files": source.level.bounds.len() } }
