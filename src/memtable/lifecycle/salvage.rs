//! Salvage: recovers every entry that still verifies, even where links are damaged.
//!
//! ```text
//!   links   from the heads and every found node: each level and the back link, if tags match
//!   arena   every 8-byte boundary in space that writers took, except inside the entries that links
//!           reached: header check, then both digests (with 4 or 8 protection bytes)
//!   sort    by key, sequence number, revision; duplicates go
//! ```
//! With 4 or more protection bytes, damaged links lose no entry. With fewer, random bytes could
//! pass as an entry, so a salvage returns only entries that links reach.
//!
//! Any thread. The table is frozen, so nothing is being inserted.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "offsets and levels are bounded by the address limit"
)]

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;

use crate::error::{Corruption, Result};
use crate::integrity::digest::key_part;
use crate::kind::Kind;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::layout::{BACK_AT, HEADER, HEIGHT_MAX, REVISION_AT, SEQUENCE_AT, UNIT};
use crate::memtable::arena::node::Verified;
use crate::memtable::arena::node_words::{BackWord, Lengths, entry_end, key_at, node_units};
use crate::memtable::core::Core;
use crate::memtable::read::entry::Entry;
use crate::sort::sorted_by;
use crate::sync::Ordering;

/// Where a salvage searched for entries.
///
/// ```
/// use paranoid_memtable::MemTable;
/// use paranoid_memtable::repair::Reach;
/// let table = MemTable::default();
/// assert_eq!(table.freeze()?.salvage().reach, Reach::Arena); // 8 protection bytes
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Along all links that verify, and through the whole arena.
    Arena,
    /// Along the links only, because with fewer than 4 protection bytes random bytes could pass as
    /// entries.
    Links,
}

/// A recovered entry, whose key and value verify.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.put(7, b"key", b"value")?;
/// let frozen = table.freeze()?;
/// let salvaged = &frozen.salvage().entries[0];
/// assert_eq!((salvaged.entry.user_key(), salvaged.entry.value()?), (b"key".as_slice(), b"value".as_slice()));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Salvaged<'t> {
    /// The entry.
    pub entry: Entry<'t>,
    /// The number of earlier entries that this entry replaced. Among entries with equal keys and
    /// sequence numbers, the entry with the largest revision is the valid one.
    pub revision: u32,
}

/// The result of a salvage.
///
/// ```
/// use paranoid_memtable::MemTable;
/// let table = MemTable::default();
/// table.put(7, b"key", b"value")?;
/// let frozen = table.freeze()?;
/// let salvage = frozen.salvage();
/// assert_eq!((salvage.entries.len(), salvage.missing, salvage.failure), (1, 0, None));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
#[must_use]
pub struct Salvage<'t> {
    /// The recovered entries, in order: keys ascend, sequence numbers and then revisions descend.
    /// They include replaced entries, and range tombstones (kind `RANGE_DELETE`, whose value is the
    /// end).
    pub entries: Vec<Salvaged<'t>>,
    /// Where the salvage searched.
    pub reach: Reach,
    /// The number of written entries, replaced ones included, that were not recovered.
    pub missing: u64,
    /// Damage in the control block that kept the salvage from searching everywhere.
    pub failure: Option<Corruption>,
}

/// Implements [`ImmutableMemTable::salvage`](crate::ImmutableMemTable::salvage).
pub(crate) fn salvage(core: &Core) -> Salvage<'_> {
    let (found, reach, failure) =
        gather(core).unwrap_or_else(|corruption| (Vec::new(), Reach::Links, Some(corruption)));
    let written = core
        .sealed
        .get()
        .map_or(0, |sealed| sealed.entries.wrapping_add(sealed.displaced));
    let missing = written.saturating_sub(found.len() as u64);
    Salvage {
        entries: found,
        reach,
        missing,
        failure,
    }
}

/// The entries found, where the salvage searched, and the damage that kept it from searching
/// further.
type Gathered<'t> = (Vec<Salvaged<'t>>, Reach, Option<Corruption>);

fn gather(core: &Core) -> Result<Gathered<'_>, Corruption> {
    let view = core.arena.view()?;
    let mut offsets = HashSet::new();
    for head in [Head::Points, Head::Ranges] {
        along_links(&view, head.sentinel(), &mut offsets);
    }
    let (reach, failure) = if view.width.bytes >= 4 {
        (Reach::Arena, through_arena(&view, &mut offsets)?)
    } else {
        (Reach::Links, None)
    };
    let verified = offsets.iter().filter_map(|offset| {
        // A damaged entry that heals is returned as its copy.
        let entry = view.entry(*offset).ok()?;
        entry.value(&view).ok().map(|_| entry.or_healed(view))
    });
    let verified: Vec<_> = verified.collect();
    Ok((sorted(core, &verified), reach, failure))
}

fn sorted<'t>(core: &'t Core, verified: &[Verified<'t>]) -> Vec<Salvaged<'t>> {
    let version = |entry: &Verified<'_>| {
        let (sequence, revision) = (entry.sequence(), entry.revision());
        (
            Reverse(sequence),
            Reverse(revision),
            entry.kind() == Kind::RANGE_DELETE,
        )
    };
    let mut verified = sorted_by(verified, |left, right| {
        let order = core.comparator.compare(left.key(), right.key());
        order.then_with(|| (version(left), left.offset()).cmp(&(version(right), right.offset())))
    });
    verified.dedup_by(|left, right| {
        version(left) == version(right) && core.comparator.compare(left.key(), right.key()).is_eq()
    });
    let salvaged = |entry: Verified<'t>| Salvaged {
        revision: entry.revision(),
        entry: Entry::new(entry, core),
    };
    verified.into_iter().map(salvaged).collect()
}

/// Collects all nodes that the head reaches through links and back links whose tags match.
fn along_links(view: &View<'_>, sentinel: u32, offsets: &mut HashSet<u32>) {
    let mut open = vec![sentinel];
    while let Some(node) = open.pop() {
        let links = (0..HEIGHT_MAX as u32).filter_map(|level| view.link(node, level).ok());
        for target in links.chain(view.back_hint(node)) {
            if target != 0 && target != sentinel && offsets.insert(target) {
                open.push(target);
            }
        }
    }
}

/// Collects all offsets in the arena where a node verifies. Returns the damage that hides a part of
/// the arena from the search, if there is any.
fn through_arena(
    view: &View<'_>,
    offsets: &mut HashSet<u32>,
) -> Result<Option<Corruption>, Corruption> {
    let (stretches, unknown) = view.arena().stretches()?;
    let known: Vec<_> = offsets
        .iter()
        .filter_map(|offset| space_of(view, *offset))
        .collect();
    let known = sorted_by(&known, |left, right| left.start.cmp(&right.start));
    for (first, units) in stretches {
        let after = known.partition_point(|space| space.end <= first);
        let mut known = known[after..].iter().peekable();
        let (mut offset, end) = (first, first + units);
        while offset < end {
            if let Some(space) = known.next_if(|space| space.start <= offset) {
                offset = offset.max(space.end);
                continue;
            }
            if is_entry(view, offset, end).is_some() {
                offsets.insert(offset);
            }
            offset += 1;
        }
    }
    Ok(unknown)
}

/// The level-0 link and the bytes of an entry that links reach and that verifies: no other entry is
/// there. Bytes that look like a header claim a key of any length, which would be copied.
fn space_of(view: &View<'_>, offset: u32) -> Option<Range<u32>> {
    let entry = view.open(offset).and_then(|node| node.verify(view)).ok()?;
    let units = node_units(view.width, entry.lengths(), 1) as u32;
    let start = offset.checked_sub(1)?;
    Some(start..start.checked_add(units)?)
}

/// Whether an entry whose header and key verify begins at this boundary, and ends before the end of
/// the allocated range. The words are copied one by one, and the copy is verified, before anything
/// is read as a node: a concurrent reader may be repairing a back link here.
fn is_entry(view: &View<'_>, offset: u32, end: u32) -> Option<()> {
    let word = |at: usize| {
        let word = view.word(offset.checked_add((at / UNIT) as u32)?)?;
        // ORDERING: Acquire pairs with the Release in `exchange_back`; no other word changes after
        // the freeze.
        Some(word.load(Ordering::Acquire))
    };
    let (lengths, sequence) = (Lengths(word(0)?), word(SEQUENCE_AT)?);
    let check = BackWord(word(BACK_AT)?).header_check();
    let revision = word(REVISION_AT)?.to_ne_bytes();
    let revision = u32::from_ne_bytes(std::array::from_fn(|i| revision[i]));
    let (fixed, expected) = view.secret.header(offset, lengths.0, sequence, revision);
    let (_, there) = view.locate(offset)?;
    let available = there.min((end - offset) as usize * UNIT);
    if check != expected || entry_end(view.width, lengths) > available as u64 {
        return None;
    }
    let end = key_at(view.width) + lengths.key_len();
    let mut copy = Vec::with_capacity(end.next_multiple_of(UNIT));
    while copy.len() < end {
        copy.extend_from_slice(&word(copy.len())?.to_ne_bytes());
    }
    let key_part = key_part(&copy[key_at(view.width)..end]);
    let digest = fixed.key_digest(key_part);
    let width = view.width.bytes;
    (copy[HEADER..HEADER + width] == digest.to_le_bytes()[..width]).then_some(())
}
