//! `FaultInjector` breaks a table's memory on purpose, for tests. It needs the feature
//! `fault-injection`, which is not for production.
//!
//! ```text
//!   open:   walks every level over the undamaged words      ->  pieces: content, place, owner
//!   break:  flip, overwrite, zero_word, copy, revert_*      ->  journal of the old bytes
//!   after:  changed() names the pieces that differ now; undo() restores all bytes
//!   look:   between writes, notes the value of every word   ->  Past: the values for revert_*
//! ```
//! * FAULT-1: the caller of `open` promises that nothing else uses the table while a method of the
//!   fault injector runs, and that nothing borrowed from the table, such as a value or a key, is
//!   alive during a call. Reads between two calls are allowed. Cursors and ranges may stay parked,
//!   because they hold offsets.
//! * FAULT-2: every piece is inside one chunk of the arena (`View::locate` checks the bounds), in
//!   the lines of a `ControlWords`, or in a slice of atomics of a side structure. All of them live
//!   as long as the table, which the fault injector borrows.
//! * FAULT-3: a break changes only bytes of pieces, and bytes of the aligned word around a byte of
//!   a piece, which is in the same unit.
//!
//! The walk trusts every word, so open a fault injector on undamaged memory. Not promised: that
//! pieces stay the same when entries are inserted; open a new fault injector then.

#![expect(unsafe_code, reason = "writes to memory without its owning types")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "levels and places in a header are small constants"
)]

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Corruption, Place, Result};
use crate::integrity::control_word::Words;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::heads::Head;
use crate::memtable::arena::layout::{BACK_AT, HEADER, HEIGHT_MAX, REVISION_AT, SEQUENCE_AT, UNIT};
use crate::memtable::arena::node_words::{Lengths, entry_end, key_at};
use crate::memtable::core::Core;
use crate::memtable::debug::shown;
use crate::memtable::fault::past::{Fresh, LINE, Past, WORD};
use crate::memtable::fault::piece::{Owner, Part, Piece, Region};
use crate::memtable::reader::TableReader;
use crate::sync::{AtomicU64, Ordering};

/// A fault injector, which breaks a table's memory on purpose. [`FaultInjector::open`] makes one.
///
/// ```
/// use paranoid_memtable::{Error, MemTable, MemTableOptions};
/// use paranoid_memtable::fault::{FaultInjector, Region};
/// # fn main() -> Result<(), Error> {
/// let table = MemTable::new(MemTableOptions::default())?;
/// table.put(1, b"key", b"value")?;
/// // SAFETY: one thread, and nothing borrowed is held.
/// let mut injector = unsafe { FaultInjector::open(&table) }?;
/// let value = injector.pieces().iter().position(|piece| piece.region == Region::Value).unwrap();
/// injector.flip(value, 3);
/// injector.flip(value, 4);
/// assert!(matches!(table.get(b"key", 1), Err(Error::Corruption(_))), "one bit heals, two do not");
/// injector.undo();
/// assert!(table.get(b"key", 1).is_ok());
/// # Ok(()) }
/// ```
pub struct FaultInjector<'t> {
    core: &'t Core,
    /// Disjoint pieces, ascending by place in the arena, then control words.
    pieces: Vec<Piece>,
    /// The addresses of the pieces, ascending, each with the index of its piece.
    by_address: Vec<(usize, usize)>,
    /// For each control word: the indices of its piece and of the piece of its check.
    checks: Vec<(usize, usize)>,
    /// The replaced bytes, oldest first.
    journal: Vec<Broken>,
}

shown! {
    "FaultInjector": impl [] FaultInjector<'_>, |injector| { "pieces": injector.pieces().len() }
}

/// The bytes that a break replaced.
struct Broken {
    address: usize,
    old: Vec<u8>,
}

impl<'t> FaultInjector<'t> {
    /// Opens a fault injector, which lists every byte of `table`. The table must be undamaged.
    /// O(entries log entries).
    ///
    /// # Safety
    /// While any method of the fault injector runs, no other thread may use the table, and nothing
    /// borrowed from the table (a value, a key, an entry, a pinned value) may be alive.
    ///
    /// # Errors
    /// `Corruption` if the table is already damaged.
    pub unsafe fn open(table: &'t TableReader) -> Result<Self> {
        let core = &*table.core;
        let mut injector = FaultInjector {
            core,
            pieces: Vec::new(),
            by_address: Vec::new(),
            checks: Vec::new(),
            journal: Vec::new(),
        };
        let view = core.arena.view()?;
        injector.list(&view, Head::Points, Part::Points)?;
        injector.list(&view, Head::Ranges, Part::Ranges)?;
        for (parts, salt) in core.filters.parts(view.secret) {
            let words = parts
                .every_word(&view, salt)?
                .into_iter()
                .map(std::slice::from_ref);
            words.for_each(|word| injector.words(Region::FilterWord, Part::Points, word));
        }
        injector.directory(&view)?;
        injector.arrange(&view)?;
        core.each_control(&mut |words| injector.control(words));
        let index = &core.tombstones.live;
        index.regions(&mut |_, words| injector.words(Region::TombstoneIndex, Part::Ranges, words));
        injector.words(
            Region::WatchedTombstone,
            Part::Ranges,
            core.shards.watches.slots(),
        );
        let addresses = injector
            .pieces
            .iter()
            .enumerate()
            .map(|(place, piece)| (piece.address, place));
        injector.by_address = addresses.collect();
        injector.by_address.sort_unstable();
        Ok(injector)
    }

    /// Notes the value of every word of an undamaged table. Call it between writes, so that a later
    /// fault injector can restore earlier values. O(bytes).
    ///
    /// # Safety
    /// No other thread may use the table during the call.
    ///
    /// # Errors
    /// `Corruption` if the control block is damaged.
    pub unsafe fn look(table: &TableReader, past: &mut Past) -> Result<()> {
        let core = &*table.core;
        let view = core.arena.view()?;
        past.begin_look();
        for (first, units) in core.arena.stretches()?.0 {
            let len = units as usize * UNIT;
            if len > 0 {
                let address = address_of(&view, first, len)?;
                past.note(address, read(address, len), Fresh::Zeros);
            }
        }
        let mut words = |words: &[AtomicU64], fresh| {
            if !words.is_empty() {
                let address = words.as_ptr().expose_provenance();
                past.note(address, read(address, size_of_val(words)), fresh);
            }
        };
        core.each_control(&mut |control| {
            control.runs().for_each(|run| words(run, Fresh::Made));
        });
        core.tombstones
            .live
            .regions(&mut |_, run| words(run, Fresh::Zeros));
        words(core.shards.watches.slots(), Fresh::Zeros);
        Ok(())
    }

    /// Whether this piece is a back link whose tag matches the node that it names now. A tag has 16
    /// bits: one in 65 536 changed words matches by chance, and then counts as proof of a lost
    /// write.
    #[must_use]
    pub fn back_link_matches(&self, piece: usize) -> bool {
        let piece = &self.pieces[piece];
        let Ok(view) = self.core.arena.view() else {
            return false;
        };
        let unit = || {
            let start = piece.address.checked_sub(BACK_AT + BACK_BYTES.0)?;
            let (stretches, _) = self.core.arena.stretches().ok()?;
            stretches.into_iter().find_map(|(first, units)| {
                let ahead = start.checked_sub(view.locate(first)?.0)? / UNIT;
                (ahead < units as usize).then_some(first + ahead as u32)
            })
        };
        piece.region == Region::BackLink
            && unit().is_some_and(|node| view.back_hint(node).is_some())
    }

    /// All pieces of the fault model: ascending by place in the arena, then the control words. Two
    /// tables that were filled in the same way have their pieces in the same order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The control words: for each, the indices of its piece and of the piece of its check.
    #[must_use]
    pub fn checks(&self) -> &[(usize, usize)] {
        &self.checks
    }

    /// The number of bytes of the table's own struct that no piece covers: locks, counters, hints,
    /// options, allocation marks.
    #[must_use]
    pub fn excluded_bytes(&self) -> usize {
        let core = std::ptr::from_ref(self.core).addr();
        let inside = self
            .pieces
            .iter()
            .filter(|piece| (core..core + size_of::<Core>()).contains(&piece.address));
        size_of::<Core>().saturating_sub(inside.map(Piece::len).sum())
    }

    fn list(&mut self, view: &View<'_>, head: Head, part: Part) -> Result<()> {
        let sentinel = head.sentinel();
        let mut heights = BTreeMap::new();
        for level in (0..HEIGHT_MAX as u32).rev() {
            let mut node = raw_link(view, sentinel, level)?;
            while node != sentinel {
                let height = heights.entry(node).or_insert(0);
                *height = (level + 1).max(*height);
                node = raw_link(view, node, level)?;
            }
        }
        self.head(view, sentinel, part)?;
        let mut node = raw_link(view, sentinel, 0)?;
        while node != sentinel {
            self.entry(view, node, heights.get(&node).copied().unwrap_or(1), part)?;
            node = raw_link(view, node, 0)?;
        }
        Ok(())
    }

    fn head(&mut self, view: &View<'_>, sentinel: u32, part: Part) -> Result<()> {
        let start = address_of(view, sentinel, BACK_AT + UNIT)?;
        for level in 0..HEIGHT_MAX as u32 {
            self.add(
                Region::HeadLink,
                part,
                level,
                None,
                start - UNIT * (level as usize + 1),
                UNIT,
            );
        }
        self.add(Region::Padding, part, 0, None, start, BACK_AT);
        let back = start + BACK_AT;
        self.add(
            Region::BackLink,
            part,
            0,
            None,
            back + BACK_BYTES.0,
            BACK_BYTES.1,
        );
        self.add(Region::Padding, part, 0, None, back + CHECK_AT, 2);
        Ok(())
    }

    fn entry(&mut self, view: &View<'_>, node: u32, height: u32, part: Part) -> Result<()> {
        let lengths = Lengths(raw_word(view, node)?);
        let sequence = raw_word(view, node + (SEQUENCE_AT / UNIT) as u32)?;
        let (key_at, end) = (key_at(view.width), entry_end(view.width, lengths) as usize);
        let start = address_of(view, node, end)?;
        let key = view
            .published(node, key_at, lengths.key_len())
            .ok_or_else(lost)?;
        let owner = Some(Owner {
            key: key.into(),
            sequence,
        });
        for level in 0..height {
            let link = start - UNIT * (level as usize + 1);
            self.add(Region::Link, part, level, owner.clone(), link, UNIT);
        }
        let value_at = key_at + lengths.key_len();
        let spans = [
            (Region::Header, 0, BACK_AT),
            (Region::BackLink, BACK_AT + BACK_BYTES.0, BACK_BYTES.1),
            (Region::Header, BACK_AT + CHECK_AT, 2),
            (Region::Header, REVISION_AT, HEADER - REVISION_AT),
            (Region::Digests, HEADER, 2 * view.width.bytes),
            (Region::Key, key_at, lengths.key_len()),
            (Region::Value, value_at, lengths.value_len()),
            (Region::Padding, end, end.next_multiple_of(UNIT) - end),
        ];
        for (region, at, len) in spans {
            self.add(region, part, 0, owner.clone(), start + at, len);
        }
        Ok(())
    }

    /// Sorts the pieces by place in the arena, and adds a free piece for each gap between them.
    fn arrange(&mut self, view: &View<'_>) -> Result<()> {
        let mut found = std::mem::take(&mut self.pieces);
        found.sort_by_key(|piece| piece.address);
        for (first, units) in self.core.arena.stretches()?.0 {
            let len = units as usize * UNIT;
            if len == 0 {
                continue;
            }
            let mut at = address_of(view, first, len)?;
            let inside = found.partition_point(|piece| piece.address < at)
                ..found.partition_point(|piece| piece.address < at + len);
            let end = at + len;
            for piece in &found[inside] {
                self.add(Region::Free, Part::Arena, 0, None, at, piece.address - at);
                at = piece.end();
                self.pieces.push(piece.clone());
            }
            self.add(Region::Free, Part::Arena, 0, None, at, end - at);
        }
        Ok(())
    }

    /// Adds a run of words of a side structure as one piece.
    fn words(&mut self, region: Region, part: Part, words: &[AtomicU64]) {
        self.add(
            region,
            part,
            0,
            None,
            words.as_ptr().expose_provenance(),
            size_of_val(words),
        );
    }

    /// Adds the words of the directory.
    fn directory(&mut self, view: &View<'_>) -> Result<()> {
        let search = self.core.point_search()?;
        let root = (search.directory != 0).then_some(search.directory..search.directory + 1);
        let directory = search.directory();
        let pages = directory.pages().map(|at| at.page..at.page + at.units());
        for units in root.into_iter().chain(pages) {
            let words = units.map(|unit| address_of(view, unit, UNIT));
            for address in words.collect::<Result<Vec<_>>>()? {
                self.add(Region::Directory, Part::Points, 0, None, address, UNIT);
            }
        }
        Ok(())
    }

    fn control(&mut self, words: Words<'_>) {
        let mut starts = Vec::new();
        for run in words.runs() {
            starts.push(self.pieces.len());
            for word in run {
                self.words(Region::Control, Part::Control, std::slice::from_ref(word));
            }
            let end = run.last().map_or(0, |word| word.as_ptr().addr() + UNIT);
            self.add(
                Region::Padding,
                Part::Control,
                0,
                None,
                end,
                end.next_multiple_of(LINE) - end,
            );
        }
        let (values, checks) = (starts[0], starts[1]);
        self.checks
            .extend(
                (values..checks)
                    .zip(checks..self.pieces.len())
                    .filter(|(value, check)| {
                        [value, check]
                            .iter()
                            .all(|piece| self.pieces[**piece].region == Region::Control)
                    }),
            );
    }

    fn add(
        &mut self,
        region: Region,
        part: Part,
        level: u32,
        owner: Option<Owner>,
        address: usize,
        len: usize,
    ) {
        if len > 0 {
            self.pieces.push(Piece {
                region,
                part,
                level,
                owner,
                address,
                len,
            });
        }
    }

    /// The current bytes of a piece.
    ///
    /// # Panics
    /// If there is no such piece. The other methods that take the index of a piece panic then, too.
    #[must_use]
    pub fn bytes(&self, piece: usize) -> Vec<u8> {
        let piece = &self.pieces[piece];
        read(piece.address, piece.len)
    }

    /// Flips one bit of a piece. `bit` is byte * 8 + bit, modulo the number of bits.
    pub fn flip(&mut self, piece: usize, bit: usize) {
        let piece = &self.pieces[piece];
        let bit = bit % (piece.len * 8);
        let address = piece.address + bit / 8;
        let old = read(address, 1);
        self.write(address, &[old[0] ^ 1 << (bit % 8)]);
    }

    /// Zeroes the aligned 8-byte word around a byte of a piece (`byte` modulo its length), bytes of
    /// other pieces in that word included.
    pub fn zero_word(&mut self, piece: usize, byte: usize) {
        let piece = &self.pieces[piece];
        let address = (piece.address + byte % piece.len) & !(UNIT - 1);
        self.write(address, &[0; UNIT]);
    }

    /// The place, 0 to 7, of the word in which a piece starts, within its line of 64 bytes. Words
    /// of filters and index fill whole lines.
    #[must_use]
    pub fn place_in_line(&self, piece: usize) -> usize {
        self.pieces[piece].address % LINE / UNIT
    }

    /// Writes bytes over the start of a piece, at most up to its end.
    pub fn overwrite(&mut self, piece: usize, bytes: &[u8]) {
        self.overwrite_from(piece, 0, bytes);
    }

    /// Writes bytes over a piece from its byte `from` on, at most up to its end.
    ///
    /// # Panics
    /// If the piece ends before byte `from`.
    pub fn overwrite_from(&mut self, piece: usize, from: usize, bytes: &[u8]) {
        let piece = &self.pieces[piece];
        let len = bytes.len().min(piece.len - from);
        self.write(piece.address + from, &bytes[..len]);
    }

    /// The parts of pieces in the `len` bytes of memory from byte `from` of a piece on, in
    /// ascending order. For each part: its distance from that byte, the index of its piece, and
    /// which bytes of the piece it is.
    #[must_use]
    pub fn stretch(
        &self,
        piece: usize,
        from: usize,
        len: usize,
    ) -> Vec<(usize, usize, Range<usize>)> {
        let start = self.pieces[piece].address + from;
        let first = self
            .by_address
            .partition_point(|(address, _)| *address <= start)
            .saturating_sub(1);
        let reached = self.by_address[first..]
            .iter()
            .take_while(|(address, _)| *address < start + len);
        let part = |(address, piece): &(usize, usize)| {
            let bytes =
                start.saturating_sub(*address)..self.pieces[*piece].len.min(start + len - address);
            (!bytes.is_empty()).then(|| (address + bytes.start - start, *piece, bytes))
        };
        reached.filter_map(part).collect()
    }

    /// Copies up to `len` bytes from the start of piece `from` to the start of piece `to`. The copy
    /// continues into pieces that follow without a gap, and ends before the first gap on either
    /// side.
    pub fn copy(&mut self, from: usize, to: usize, len: usize) {
        let len = len.min(self.run(from)).min(self.run(to));
        let bytes = read(self.pieces[from].address, len);
        self.write(self.pieces[to].address, &bytes);
    }

    /// Copies `count` aligned lines of 64 bytes, from the line around piece `from` on, to the lines
    /// from the line around piece `to` on. Words that belong to no piece in one of the two places
    /// stay.
    pub fn copy_lines(&mut self, from: usize, to: usize, count: usize) {
        let [from, to] = [from, to].map(|piece| self.pieces[piece].address & !(LINE - 1));
        let inside = |word: usize| self.piece_around(word).is_some();
        let places = (0..count * LINE).step_by(WORD);
        let places = places.filter(|place| inside(from + place) && inside(to + place));
        let words: Vec<(usize, Vec<u8>)> = places
            .map(|place| (to + place, read(from + place, WORD)))
            .collect();
        words
            .into_iter()
            .for_each(|(word, bytes)| self.write(word, &bytes));
    }

    /// Sets the aligned 8-byte word around a byte of a piece (`byte` modulo its length) to an
    /// earlier value, as a lost store would. `turn` chooses among the earlier values. Returns
    /// `false` if there are none.
    pub fn revert_word(&mut self, past: &Past, piece: usize, byte: usize, turn: usize) -> bool {
        let piece = &self.pieces[piece];
        let address = (piece.address + byte % piece.len) & !(WORD - 1);
        let now = read(address, WORD);
        let old = past.word(
            address,
            u64::from_ne_bytes(std::array::from_fn(|i| now[i])),
            turn,
        );
        old.inspect(|old| self.write(address, &old.to_ne_bytes()))
            .is_some()
    }

    /// Sets the aligned line of 64 bytes around a byte of a piece to its state before one of its
    /// changes, which `turn` chooses. Words that belong to no piece stay. Returns whether a word
    /// changed.
    pub fn revert_line(&mut self, past: &Past, piece: usize, byte: usize, turn: usize) -> bool {
        let piece = &self.pieces[piece];
        let line = (piece.address + byte % piece.len) & !(LINE - 1);
        let mut changed = false;
        for (address, old) in past.line(line, turn) {
            if self.piece_around(address).is_some() && read(address, WORD) != old.to_ne_bytes() {
                self.write(address, &old.to_ne_bytes());
                changed = true;
            }
        }
        changed
    }

    /// The number of bytes from the start of a piece to the next byte that no piece covers.
    fn run(&self, piece: usize) -> usize {
        let start = self.pieces[piece].address;
        let mut end = start;
        for piece in &self.pieces[piece..] {
            if piece.address != end {
                break;
            }
            end = piece.end();
        }
        end - start
    }

    /// The pieces whose bytes differ now from their bytes when the fault injector was opened, each
    /// with its number of changed bits.
    #[must_use]
    pub fn changed(&self) -> BTreeMap<usize, u32> {
        let mut original: BTreeMap<usize, u8> = BTreeMap::new();
        for broken in self.journal.iter().rev() {
            original.extend(
                broken
                    .old
                    .iter()
                    .enumerate()
                    .map(|(i, byte)| (broken.address + i, *byte)),
            );
        }
        let mut changed = BTreeMap::new();
        for (address, byte) in original {
            let bits = (read(address, 1)[0] ^ byte).count_ones();
            if let Some(piece) = self.piece_around(address).filter(|_| bits > 0) {
                *changed.entry(piece).or_default() += bits;
            }
        }
        changed
    }

    fn piece_around(&self, address: usize) -> Option<usize> {
        let after = self
            .by_address
            .partition_point(|(start, _)| *start <= address);
        let (_, place) = self.by_address.get(after.checked_sub(1)?)?;
        (address < self.pieces[*place].end()).then_some(*place)
    }

    /// Restores every byte that this fault injector has changed.
    pub fn undo(&mut self) {
        for broken in std::mem::take(&mut self.journal).into_iter().rev() {
            write(broken.address, &broken.old);
        }
    }

    fn write(&mut self, address: usize, bytes: &[u8]) {
        self.journal.push(Broken {
            address,
            old: read(address, bytes.len()),
        });
        write(address, bytes);
    }
}

/// The bytes of target and tag in a back word: the first one, and their number.
const BACK_BYTES: (usize, usize) = if cfg!(target_endian = "little") {
    (2, 6)
} else {
    (0, 6)
};
/// The first byte of the header check in a back word.
const CHECK_AT: usize = if cfg!(target_endian = "little") { 0 } else { 6 };

fn read(address: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let pointer = std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: FAULT-2, FAULT-3: inside a chunk or a control word, whose addresses were exposed;
    // FAULT-1: no thread writes meanwhile.
    unsafe { pointer.copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
    bytes
}

fn write(address: usize, bytes: &[u8]) {
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: FAULT-2, FAULT-3: inside a chunk or a control word, whose addresses were exposed
    // mutable; FAULT-1: no thread reads or writes meanwhile, and no borrow of these bytes is alive.
    unsafe { pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn lost() -> Corruption {
    Corruption::new(Place::Link, 0, 0, 0)
}

/// The address of `len` bytes inside one chunk (FAULT-2).
fn address_of(view: &View<'_>, offset: u32, len: usize) -> Result<usize> {
    match view.locate(offset) {
        Some((address, available)) if len <= available => Ok(address),
        _ => Err(lost().into()),
    }
}

/// A word of the arena. The fault injector does not read through `Node`, so it does not depend on
/// the code under test.
fn raw_word(view: &View<'_>, offset: u32) -> Result<u64> {
    let word = view.word(offset).ok_or_else(lost)?;
    // ORDERING: Relaxed: nothing else runs (FAULT-1).
    Ok(word.load(Ordering::Relaxed))
}

fn raw_link(view: &View<'_>, node: u32, level: u32) -> Result<u32> {
    let word = raw_word(view, View::slot(node, level))?;
    Ok(u32::try_from(word >> 32).unwrap_or(0))
}
