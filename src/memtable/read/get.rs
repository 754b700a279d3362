//! The point read of one key, and the types that it returns.
//!
//! ```text
//!   search (key, snapshot) -> newest visible entry -> newer range tombstones -> value, verified
//! ```
//! A filter's "absent" skips the list, and never the range tombstones. If the newest version is
//! damaged, the answer is `Corruption` and no older version, because the search verifies that its
//! answer is the first version that the snapshot sees.
//!
//! Any thread; lock-free. A read that finds no range tombstone writes no memory.

#![forbid(unsafe_code)]

use std::iter::FusedIterator;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Corruption, Error, Result};
use crate::key::{SequenceNumber, Target};
use crate::kind::Kind;
use crate::memtable::arena::arena::Arena;
use crate::memtable::arena::node::{BytesIn, KeepsArena, Pinned, Verified};
use crate::memtable::core::Core;
use crate::memtable::read::entry::{Entry, copy_verified};
use crate::memtable::read::newest::{locate, older};
use crate::memtable::skiplist::bracket::Gap;
use crate::memtable::skiplist::find::Newest;
use crate::memtable::skiplist::search::Search;
use crate::tombstone::query::Question;

impl From<Gap> for Error {
    fn from(gap: Gap) -> Self {
        gap.corruption.into()
    }
}

/// The result of a point read: the answer of a table, a set or a file about a key at a snapshot.
/// `V` is the type of the value, and `M` the type of the merge operands: [`ValueRef`] and
/// [`Operands`] from [`TableReader::get`](crate::TableReader::get).
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable};
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// table.delete(2, b"pear")?;
/// table.merge(3, b"counter", b"+1")?;
/// assert!(table.get(b"apple", 3)?.value() == Some(b"red"));
/// assert!(table.get(b"pear", 3)?.is_deleted());
/// assert!(matches!(table.get(b"counter", 3)?, Lookup::Merge(_)));
/// assert!(table.get(b"plum", 3)?.found().is_none());
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup<V, M> {
    /// The key has this value.
    Value(V),
    /// The key is deleted, so older tables need not be read.
    Deleted {
        /// The sequence number of the tombstone.
        sequence: SequenceNumber,
        /// The type of the tombstone.
        by: DeletedBy,
    },
    /// Merge operands, newest first, and the base that they apply to.
    Merge(M),
    /// The key has no visible entry here; older tables may have one.
    NotFound,
}

impl<V, M> Lookup<V, M> {
    /// The bytes of the value. `None` if there is no value: the key is deleted, absent, or has
    /// merge operands. The slice lives as long as this `Lookup`; keep what
    /// [`into_value`](Self::into_value) returns to use the value longer.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, "apple", "red")?;
    /// assert!(table.get("apple", 1)?.value() == Some(b"red"));
    /// assert_eq!(table.get("apple", 1)?.value(), Some(&b"red"[..])); // which converts no array
    /// assert!(table.get("plum", 1)?.value().is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> Option<&[u8]>
    where
        V: AsRef<[u8]>,
    {
        match self {
            Lookup::Value(value) => Some(value.as_ref()),
            _ => None,
        }
    }

    /// The value, with what its type knows beside the bytes. `None` if there is no value: the key
    /// is deleted, absent, or has merge operands.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(7, "apple", "red")?;
    /// let value = table.get("apple", 9)?.into_value().expect("it was put");
    /// assert!(value == b"red" && value.sequence() == 7);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn into_value(self) -> Option<V> {
        match self {
            Lookup::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Whether a tombstone is the newest entry of the key. `false` for an absent key, about which
    /// this table knows nothing.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.delete_range(1, "a", "b")?;
    /// assert!(table.get("apple", 1)?.is_deleted());
    /// assert!(!table.get("pear", 1)?.is_deleted());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub const fn is_deleted(&self) -> bool {
        matches!(self, Lookup::Deleted { .. })
    }

    /// This answer, or `None` if it is `NotFound`: then ask the next older table.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let tables = [MemTable::default(), MemTable::default()]; // the newest first
    /// tables[1].put(1, "apple", "red")?;
    /// for table in &tables {
    ///     if let Some(answer) = table.get("apple", 1)?.found() {
    ///         assert!(answer.value() == Some(b"red"));
    ///         return Ok(());
    ///     }
    /// }
    /// panic!("no table has the key");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn found(self) -> Option<Self> {
        match self {
            Lookup::NotFound => None,
            found => Some(found),
        }
    }
}

/// The type of the tombstone that deleted a key.
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable};
/// use paranoid_memtable::read::DeletedBy;
/// let table = MemTable::default();
/// table.delete_range(1, b"a", b"b")?;
/// let lookup = table.get(b"apple", 1)?;
/// assert!(matches!(lookup, Lookup::Deleted { sequence: 1, by: DeletedBy::Range }));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeletedBy {
    /// A point tombstone.
    Point,
    /// A single delete.
    Single,
    /// A range tombstone.
    Range,
    /// A point tombstone of a custom kind, see [`Kind::custom_delete`].
    Custom(Kind),
}

/// A value in the table's memory, verified when it was returned. It borrows the table, and is equal
/// to anything that has the same bytes.
///
/// ```
/// use paranoid_memtable::{Kind, MemTable};
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// let value = table.get(b"apple", 1)?.into_value().expect("it was put");
/// assert!(value == b"red" && value == "red" && value == *"red".as_bytes());
/// assert_eq!((value.sequence(), value.kind()), (1, Kind::PUT));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct ValueRef<'a> {
    value: BytesIn<'a>,
    sequence: SequenceNumber,
    kind: Kind,
    owner: &'a Arc<Core>,
}

impl KeepsArena for Core {
    fn arena(&self) -> &Arena {
        &self.arena
    }
}

impl<'a> ValueRef<'a> {
    /// The bytes, for as long as the table is borrowed.
    #[inline]
    #[doc(hidden)]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.value.bytes()
    }

    /// The sequence number of the entry.
    #[must_use]
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The kind of the entry: `PUT` or a custom kind.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// This value, pinned: without a copy, but it keeps the memory of the whole table alive.
    ///
    /// ```
    /// use paranoid_memtable::MemTable;
    /// let table = MemTable::default();
    /// table.put(1, b"apple", b"red")?;
    /// let value = table.get(b"apple", 1)?.into_value().expect("it was put");
    /// let pinned = value.to_pinned();
    /// drop(table); // the pinned value keeps the memory alive
    /// assert!(pinned == b"red");
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Panics
    /// Never.
    #[must_use]
    pub fn to_pinned(&self) -> PinnedValue {
        match Pinned::new(Arc::<Core>::clone(self.owner), self.value) {
            Some(pinned) => PinnedValue {
                pinned: Arc::new(pinned),
            },
            None => unreachable!("a value is pinned in its own table"),
        }
    }
}

impl Deref for ValueRef<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.value.bytes()
    }
}

impl AsRef<[u8]> for ValueRef<'_> {
    fn as_ref(&self) -> &[u8] {
        self.value.bytes()
    }
}

impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for ValueRef<'_> {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
    }
}

/// A value that owns a share in its table: `'static`, and cheap to clone. It is equal to anything
/// that has the same bytes.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::read::PinnedValue;
/// let table = MemTable::default();
/// table.put(1, b"apple", b"red")?;
/// let value = table.get(b"apple", 1)?.into_value().expect("it was put");
/// let pinned: PinnedValue = value.to_pinned();
/// let thread = std::thread::spawn(move || pinned.len());
/// assert_eq!(thread.join().expect("no panic"), 3);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct PinnedValue {
    pinned: Arc<Pinned>,
}

impl Deref for PinnedValue {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        (*self.pinned).as_ref()
    }
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        (*self.pinned).as_ref()
    }
}

impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for PinnedValue {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
    }
}

#[cfg(feature = "bytes")]
#[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
impl From<PinnedValue> for bytes::Bytes {
    fn from(value: PinnedValue) -> Self {
        bytes::Bytes::from_owner(value)
    }
}

/// Implements [`TableReader::pin`](crate::TableReader::pin).
#[cfg(feature = "bytes")]
pub(crate) fn pin(core: &Arc<Core>, entry: &Entry<'_>) -> Result<(bytes::Bytes, bytes::Bytes)> {
    let pinned = Pinned::of_entry(Arc::<Core>::clone(core), &entry.whole()?);
    let pinned =
        pinned.ok_or_else(|| Error::InvalidArgument("the entry is one of another table".into()))?;
    let mut value = bytes::Bytes::from_owner(pinned);
    Ok((value.split_to(entry.user_key().len()), value))
}

/// One merge operand.
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable};
/// let table = MemTable::default();
/// table.merge(3, b"counter", b"+1")?;
/// let Lookup::Merge(mut operands) = table.get(b"counter", 3)? else { panic!("a merge operand") };
/// let operand = operands.next().expect("one operand")?;
/// assert_eq!((operand.sequence, operand.value), (3, b"+1".as_slice()));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// The sequence number of the operand.
    pub sequence: SequenceNumber,
    /// The verified bytes of the operand.
    pub value: &'a [u8],
}

/// The base that merge operands apply to.
///
/// ```
/// use paranoid_memtable::{Lookup, MemTable};
/// use paranoid_memtable::read::Base;
/// let table = MemTable::default();
/// table.put(1, b"counter", b"40")?;
/// table.merge(2, b"counter", b"+1")?;
/// let Lookup::Merge(operands) = table.get(b"counter", 2)? else { panic!("a merge operand") };
/// assert!(matches!(operands.base()?, Base::Value(b"40")));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Base<V> {
    /// This value, verified.
    Value(V),
    /// There is none: the key was deleted before the first operand.
    Deleted,
    /// This table does not have the base; older tables may have it.
    Below,
}

/// The merge operands of a key, newest first: an iterator over results that ends after its first
/// error.
///
/// ```
/// use paranoid_memtable::{Error, Lookup, MemTable};
/// let table = MemTable::default();
/// table.merge(1, b"counter", b"+1")?;
/// table.merge(2, b"counter", b"+2")?;
/// let Lookup::Merge(operands) = table.get(b"counter", 2)? else { panic!("merge operands") };
/// let values: Result<Vec<&[u8]>, Error> = operands.map(|operand| Ok(operand?.value)).collect();
/// assert_eq!(values?, [b"+2", b"+1"]); // newest first
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
pub struct Operands<'a> {
    core: &'a Core,
    /// The node of the next operand, which is verified when it is returned.
    next: Option<u32>,
    /// Sequence number of the newest range tombstone that covers the key and is older than the
    /// first operand.
    pub(crate) cover: Option<SequenceNumber>,
    base: Base<&'a [u8]>,
}

impl<'a> Operands<'a> {
    /// The base that the operands apply to. Reads the remaining operands. O(operands left).
    ///
    /// ```
    /// use paranoid_memtable::{Lookup, MemTable};
    /// use paranoid_memtable::read::Base;
    /// let table = MemTable::default();
    /// table.delete(1, b"counter")?;
    /// table.merge(2, b"counter", b"+1")?;
    /// let Lookup::Merge(operands) = table.get(b"counter", 2)? else { panic!("a merge operand") };
    /// assert!(matches!(operands.base()?, Base::Deleted));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corruption` if an operand or the base is damaged.
    pub fn base(&self) -> Result<Base<&'a [u8]>> {
        let mut rest = self.clone();
        for operand in rest.by_ref() {
            operand?;
        }
        Ok(rest.base)
    }

    fn step(&mut self, at: u32) -> Result<Option<Operand<'a>>> {
        // Each step opens the list again, which keeps `Operands` small.
        let search = self.core.point_search()?;
        let entry = search.view.entry(at)?;
        let sequence = entry.sequence();
        if self.cover.is_some_and(|cover| cover > sequence) {
            self.base = Base::Deleted;
            return Ok(None);
        }
        if entry.kind() != Kind::MERGE {
            self.base = if entry.kind().is_point_delete() {
                Base::Deleted
            } else {
                Base::Value(entry.value(&search.view)?)
            };
            return Ok(None);
        }
        let value = entry.value(&search.view)?;
        self.next = older(self.core, &search, &entry)?.map(|older| older.offset());
        if self.next.is_none() && self.cover.is_some() {
            self.base = Base::Deleted;
        }
        Ok(Some(Operand { sequence, value }))
    }
}

impl<'a> Iterator for Operands<'a> {
    type Item = Result<Operand<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next.take()?;
        self.step(at).transpose()
    }
}

impl FusedIterator for Operands<'_> {}

/// The deletion of a key whose newest visible entry is known. Asks for range tombstones also if
/// there is no such entry.
#[inline(always)]
pub(crate) fn deletion(
    core: &Core,
    key: &[u8],
    snapshot: SequenceNumber,
    entry: Option<&Verified<'_>>,
) -> Result<Option<(SequenceNumber, DeletedBy)>> {
    let floor = entry.map_or(0, |entry| entry.sequence());
    Ok(deletion_by(
        core.covering(Question::new(key, snapshot).above(floor))?,
        entry,
    ))
}

/// The deletion that hides an entry, from the newest range tombstone that covers the key.
#[inline]
pub(crate) fn deletion_by(
    cover: Option<SequenceNumber>,
    entry: Option<&Verified<'_>>,
) -> Option<(SequenceNumber, DeletedBy)> {
    if let Some(sequence) = cover {
        return Some((sequence, DeletedBy::Range));
    }
    let entry = entry?;
    let by = match entry.kind() {
        Kind::DELETE => DeletedBy::Point,
        Kind::SINGLE_DELETE => DeletedBy::Single,
        kind if kind.is_point_delete() => DeletedBy::Custom(kind),
        _ => return None,
    };
    Some((entry.sequence(), by))
}

/// Implements [`TableReader::get`](crate::TableReader::get).
#[inline(never)]
pub(crate) fn get<'t>(
    core: &'t Arc<Core>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Lookup<ValueRef<'t>, Operands<'t>>> {
    if core.filters.has_filters() || core.tombstones.may_be_any(&core.arena) {
        get_asked(core, key, snapshot)
    } else {
        get_led(core, &core.point_search()?, key, snapshot, || Ok(None))
    }
}

/// [`get`], with a filter, or range tombstones that must be asked.
#[inline(never)]
fn get_asked<'t>(
    core: &'t Arc<Core>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Lookup<ValueRef<'t>, Operands<'t>>> {
    if core.filters.has_filters() && core.filters.lacks(&core.arena.view()?, key) {
        match core.covering(Question::new(key, snapshot))? {
            None => Ok(Lookup::NotFound),
            cover => get_found(core, key, cover, None),
        }
    } else {
        get_covered(core, key, snapshot)
    }
}

/// [`get`], by the list, with range tombstones that must be asked if there are any.
#[cold]
#[inline(never)]
fn get_covered<'t>(
    core: &'t Arc<Core>,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Lookup<ValueRef<'t>, Operands<'t>>> {
    let (search, question) = (core.point_search()?, Question::new(key, snapshot));
    get_led(core, &search, key, snapshot, || core.covering(question))
}

/// [`get`], by the directory. Range tombstones are asked while the lines that the directory names
/// are on their way.
#[inline(always)]
fn get_led<'t>(
    core: &'t Arc<Core>,
    search: &Search<'t>,
    key: &[u8],
    snapshot: SequenceNumber,
    covering: impl FnOnce() -> Result<Option<SequenceNumber>, Corruption>,
) -> Result<Lookup<ValueRef<'t>, Operands<'t>>> {
    let target = Target::new(search.comparator, key, snapshot);
    let (cover, newest) = search.newest_version(&target, covering)?;
    match newest {
        Newest::Version(entry)
            if entry.kind() == Kind::PUT && cover.is_none_or(|cover| cover <= entry.sequence()) =>
        {
            answer(core, Some(entry), None, search)
        }
        Newest::Version(entry) => get_proved(core, key, cover, entry),
        Newest::First(first) => get_found(core, key, cover, first),
    }
}

/// [`get`], from the newest entry that the key may have. Cold, so that the way to a plain value
/// keeps entries in registers.
#[cold]
#[inline(never)]
fn get_proved<'t>(
    core: &'t Arc<Core>,
    key: &[u8],
    cover: Option<SequenceNumber>,
    entry: Verified<'t>,
) -> Result<Lookup<ValueRef<'t>, Operands<'t>>> {
    get_found(core, key, cover, Some(entry))
}

/// [`get`], from the newest range tombstone over the key, and the first entry at or after (`key`,
/// snapshot).
#[inline(never)]
fn get_found<'t>(
    core: &'t Arc<Core>,
    key: &[u8],
    cover: Option<SequenceNumber>,
    first: Option<Verified<'t>>,
) -> Result<Lookup<ValueRef<'t>, Operands<'t>>> {
    let entry = first.filter(|entry| core.comparator.are_equal(entry.key(), key));
    let newer = cover.filter(|cover| entry.is_none_or(|entry| *cover > entry.sequence()));
    let deleted = deletion_by(newer, entry.as_ref());
    if entry.is_none() {
        return Ok(
            deleted.map_or(Lookup::NotFound, |(sequence, by)| Lookup::Deleted {
                sequence,
                by,
            }),
        );
    }
    answer(core, entry, deleted, &core.point_search()?)
}

/// Makes a `Lookup` of the newest visible entry and its deletion.
#[inline(always)]
pub(crate) fn answer<'a>(
    core: &'a Arc<Core>,
    entry: Option<Verified<'a>>,
    deleted: Option<(SequenceNumber, DeletedBy)>,
    search: &Search<'a>,
) -> Result<Lookup<ValueRef<'a>, Operands<'a>>> {
    if let Some((sequence, by)) = deleted {
        return Ok(Lookup::Deleted { sequence, by });
    }
    let Some(entry) = entry else {
        return Ok(Lookup::NotFound);
    };
    if entry.kind() == Kind::MERGE {
        return operands(core, entry).map(Lookup::Merge);
    }
    let value = entry.value_in(&search.view)?;
    let (sequence, kind) = (entry.sequence(), entry.kind());
    Ok(Lookup::Value(ValueRef {
        value,
        sequence,
        kind,
        owner: core,
    }))
}

/// The merge operands of a key, from its newest visible entry.
pub(crate) fn operands<'a>(core: &'a Core, entry: Verified<'a>) -> Result<Operands<'a>> {
    let cover = core.covering(Question::new(entry.key(), entry.sequence()))?;
    Ok(Operands {
        core,
        next: Some(entry.offset()),
        cover,
        base: Base::Below,
    })
}

/// The newest entry of a key at or below a snapshot, as stored.
pub(crate) fn get_entry<'t>(
    core: &'t Core,
    key: &[u8],
    snapshot: SequenceNumber,
) -> Result<Option<Entry<'t>>> {
    let search = core.point_search()?;
    let entry = locate(core, &search, key, snapshot)?;
    Ok(entry.map(|entry| Entry::new(entry, core)))
}

/// Implements [`TableReader::get_into`](crate::TableReader::get_into): copies the value, and
/// verifies the copy.
pub(crate) fn get_into(
    core: &Core,
    key: &[u8],
    snapshot: SequenceNumber,
    buffer: &mut Vec<u8>,
) -> Result<Lookup<(SequenceNumber, Kind), ()>> {
    buffer.clear();
    let search = core.point_search()?;
    let entry = locate(core, &search, key, snapshot)?;
    let deleted = deletion(core, key, snapshot, entry.as_ref())?;
    if let Some((sequence, by)) = deleted {
        return Ok(Lookup::Deleted { sequence, by });
    }
    let Some(entry) = entry else {
        return Ok(Lookup::NotFound);
    };
    if entry.kind() == Kind::MERGE {
        return Ok(Lookup::Merge(()));
    }
    copy_verified(&entry, &search.view, buffer)?;
    Ok(Lookup::Value((entry.sequence(), entry.kind())))
}
