//! The bytes of a table: chunks that never move, addressed by 32-bit offsets in units of 8 bytes.
//!
//! ```text
//!   offset   0       72        552       4168   B                2B                4B   2^32
//!            | heads | chunk 0 | chunk 1 | ..     | chunk 2        | chunk 3        | .. |
//!            | field | on the heap         | .. | B units, mapped | 2B units, mapped
//! ```
//! B is the size of the write buffer, rounded up to a power of two. The first write that does not
//! fit into the existing chunks makes the next one, so an empty table has only its heads. A writer
//! takes a sub-chunk from a chunk by one compare-and-swap, and allocates from its sub-chunk without
//! any atomic operation. A failed allocation takes nothing.
//!
//! Invariants:
//! * ARENA-1: a chunk's base address and size are set once, before any offset into the chunk
//!   exists; 0 is no base. The memory lives as long as the arena. Base and size are control words:
//!   each is compared with its check before use. The heads are a field of the arena, and a view
//!   borrows the arena, so the heads do not move while a view exists.
//! * ARENA-2: an offset becomes an address only after a check that it is inside a chunk. A length
//!   is used only after a check that it ends inside the same chunk.
//! * ARENA-3: a unit belongs to at most one `SubChunk` or `Reservation`, and neither can be copied.
//!   Only the owner of a reservation writes its bytes as plain memory. Publishing consumes the
//!   reservation; after that, nothing writes its bytes as plain memory.
//! * ARENA-4: from publication on, words that change (links, back words) are accessed only as
//!   atomics.
//! * ARENA-5: all memory is initialised: heads and chunks start zeroed, also chunks of dropped
//!   arenas (RECYCLER-1).
//!
//! Any thread may call any method. Not promised: that an offset leads to an entry; `node.rs` checks
//! that.

#![expect(unsafe_code, reason = "turns checked offsets into references")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "bounded by the address limit, or packed"
)]

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::error::{Corruption, Error, Place, Result};
use crate::integrity::digest::Width;
use crate::integrity::tag::Secret;
use crate::memtable::arena::chunks::{
    CHUNKS_MAX, SECOND_START, SMALL, SMALL_END, bytes_in_chunk, chunk_of, chunk_start, chunk_units,
    continues, shift_of,
};
use crate::memtable::arena::control_block::{Control, ControlWord, Shape};
use crate::memtable::arena::heads::{HEADS_UNITS, ROOT};
use crate::memtable::arena::healed_copies::HealedCopies;
use crate::memtable::arena::layout::UNIT;
use crate::memtable::arena::memory::{Mapping, Memory};
use crate::memtable::arena::memory_limit::MemoryLimit;
use crate::memtable::arena::recycler::{ArenaRecycler, recycle, take_or_allocate};
use crate::memtable::heals::Heals;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The number by which a table says that it stores digests whole. All of its bits differ in a table
/// of another width, so no few flipped bits make a reader look for digests where there are none.
const WHOLE_DIGESTS: u32 = 0x9d3a_61c5;

/// Units of a sub-chunk of a small chunk: about 1 KiB, a few entries.
const SMALL_UNITS_AT_ONCE: u64 = SMALL_END as u64 / 32;
/// Units at the start of each chunk that stay unused, so that a sub-chunk at the end of a chunk
/// never continues in the next chunk.
const RESERVED_UNITS: u64 = 1;

/// The bytes of a table, in chunks.
pub(crate) struct Arena {
    pub(crate) control: Control,
    heads: Heads,
    /// For each chunk, the number of units from its start that are allocated.
    used: [AtomicU64; CHUNKS_MAX],
    pub(crate) limit: MemoryLimit,
    owners: Mutex<Vec<Memory>>,
    /// Provides chunks of dropped arenas, and takes the chunks of this arena when it is dropped.
    pub(crate) recycler: Weak<ArenaRecycler>,
    /// [`WHOLE_DIGESTS`] if digests are stored whole. It has no check: a reader that finds any other
    /// number asks a view for the width.
    whole_digests: u32,
    pub(crate) healed: HealedCopies,
    #[cfg(loom)]
    model: model::Words,
}

/// The heads of both lists and the root of the directory, aligned to a cache line.
#[repr(align(64))]
struct Heads([AtomicU64; HEADS_UNITS as usize]);

/// A range of units from which one writer allocates by advancing `next` (ARENA-3).
#[derive(Debug, Default)]
pub(crate) struct SubChunk {
    next: u32,
    end: u32,
}

impl SubChunk {
    /// Units that no reservation has taken yet.
    pub(crate) fn left(&self) -> Range<u32> {
        self.next..self.end
    }

    /// Bytes that no reservation has taken yet.
    pub(crate) fn left_bytes(&self) -> u64 {
        u64::from(self.end - self.next) * UNIT as u64
    }
}

/// Units that belong to one unpublished node (ARENA-3).
pub(crate) struct Reservation {
    start: u32,
    units: u32,
}

impl Reservation {
    /// First unit.
    pub(crate) fn start(&self) -> u32 {
        self.start
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.units) * UNIT as u64
    }
}

impl Arena {
    /// An arena without chunks, and with heads of zeros.
    #[inline(always)]
    pub(crate) fn new(
        write_buffer_size: u64,
        hard_limit: u64,
        width: Width,
        secret: Secret,
    ) -> Arena {
        let shift = shift_of(write_buffer_size);
        Arena {
            control: Control::new(secret, Shape::new(width, shift)),
            heads: Heads(std::array::from_fn(|_| AtomicU64::new(0))),
            used: std::array::from_fn(|_| AtomicU64::new(RESERVED_UNITS)),
            limit: MemoryLimit::new(hard_limit),
            owners: Mutex::new(Vec::new()),
            recycler: Weak::new(),
            whole_digests: if width == Width::default() {
                WHOLE_DIGESTS
            } else {
                !WHOLE_DIGESTS
            },
            healed: HealedCopies::default(),
            #[cfg(loom)]
            model: model::Words::new(),
        }
    }

    /// Whether digests are known to be stored whole, without a look at the control block.
    #[inline(always)]
    pub(crate) fn has_whole_digests(&self) -> bool {
        self.whole_digests == WHOLE_DIGESTS
    }

    /// The places of the table's memory that were put right.
    pub(crate) fn heals(&self) -> &Heals {
        &self.control.heals
    }

    /// Address of the heads, with its provenance exposed.
    #[inline(always)]
    fn heads(&self) -> usize {
        self.heads.0.as_ptr().expose_provenance()
    }

    /// The checked control values, which an operation reads once.
    #[inline(always)]
    pub(crate) fn view(&self) -> Result<View<'_>, Corruption> {
        let near = self.near_view();
        if let Some(view) = near {
            Ok(view)
        } else {
            Ok(self.small_view()?)
        }
    }

    /// The view of an arena that has chunk 2. It calls nothing that may fail: such a call would
    /// force the values out of registers.
    #[inline(always)]
    fn near_view(&self) -> Option<View<'_>> {
        const WORDS: [ControlWord; 6] = [
            ControlWord::SHAPE,
            ControlWord::MASK,
            ControlWord::FACTOR,
            ControlWord::base(SMALL),
            ControlWord::units(SMALL),
            ControlWord::base(SMALL - 1),
        ];
        let ([shape, mask, factor, base, units, second], mismatches) = self.control.get_all(WORDS);
        if mismatches != 0 || base == 0 {
            return None;
        }
        let shape = Shape(shape);
        let secret = Secret { mask, factor };
        self.view_from(base, second, 1 << shape.shift(), units, shape, secret)
    }

    /// The view of an arena without chunk 2, or the report of the damaged control word.
    #[cold]
    #[inline(never)]
    fn small_view(&self) -> Result<View<'_>, Corruption> {
        let (shape, secret) = (self.control.shape()?, self.control.secret()?);
        // A base that went back to 0 looks like the base of a chunk that does not exist yet.
        // `locate_beyond` finds the damage when an offset leads into the chunk.
        const BASES: [ControlWord; 3] = [
            ControlWord::base(0),
            ControlWord::base(1),
            ControlWord::base(SMALL),
        ];
        let (mut bases, mismatches) = self.control.get_all(BASES);
        if mismatches != 0 {
            for (base, word) in bases.iter_mut().zip(BASES) {
                *base = self.control.get_or_unset(word)?;
            }
        }
        let shift = shape.shift();
        let (base, start, units) = match bases {
            [0, 0, 0] => (self.heads() as u64, 0, HEADS_UNITS.into()),
            [first, 0, 0] => (first, HEADS_UNITS, chunk_units(0, shift)),
            [_, second, 0] => (second, SECOND_START, chunk_units(1, shift)),
            [.., large] => (large, 1 << shift, self.units_of(SMALL, shift)?),
        };
        self.view_from(base, bases[1], start, units, shape, secret)
            .ok_or_else(|| bad_control(0))
    }

    #[inline(always)]
    fn view_from(
        &self,
        base: u64,
        second: u64,
        start: u32,
        units: u64,
        shape: Shape,
        secret: Secret,
    ) -> Option<View<'_>> {
        let width = shape.width()?;
        let (base, second) = (base as usize, second as usize);
        let units = units as u32;
        let end = base.wrapping_add(units as usize * UNIT);
        Some(View {
            base,
            end,
            second,
            start,
            units,
            shape,
            secret,
            width,
            arena: self,
        })
    }

    /// Units of a chunk that was made.
    fn units_of(&self, index: usize, shift: u32) -> Result<u64, Corruption> {
        if index < SMALL {
            Ok(chunk_units(index, shift))
        } else {
            self.control.get(ControlWord::units(index))
        }
    }

    /// Takes `units` from the writer's sub-chunk, and refills or extends it first if it holds
    /// fewer. O(1).
    #[inline(always)]
    pub(crate) fn carve(&self, sub: &mut SubChunk, units: u64) -> Result<Reservation> {
        if u64::from(sub.end - sub.next) < units {
            let reservation = self.carve_cold(sub, units)?;
            return Ok(reservation);
        }
        let reservation = Reservation {
            start: sub.next,
            units: units as u32,
        };
        sub.next += reservation.units;
        Ok(reservation)
    }

    #[cold]
    fn carve_cold(&self, sub: &mut SubChunk, units: u64) -> Result<Reservation> {
        let shift = self.control.shape()?.shift();
        // A sub-chunk is 1/256 of the buffer, between 4 and 256 KiB, and, above 4 KiB, at most a
        // quarter of what all writers have taken.
        let quarter = self.limit.taken_bytes() / (4 * UNIT as u64);
        let wish = ((1u64 << shift) >> 8)
            .clamp(512, 32 << 10)
            .min(quarter.max(512));
        let left = u64::from(sub.end - sub.next);
        let (start, got) = self.allocate(units, left, sub.end, wish, shift)?;
        if continues(start, sub.end, shift) {
            sub.end += got;
        } else if u64::from(got) > units || left == 0 {
            *sub = SubChunk {
                next: start,
                end: start + got,
            };
        } else {
            return Ok(Reservation { start, units: got });
        }
        self.carve(sub, units)
    }

    /// Takes exactly `units`, and none from the sub-chunk of a writer.
    pub(crate) fn carve_alone(&self, units: u64) -> Result<Reservation> {
        let (start, units) = self.allocate(units, 0, 0, 0, self.control.shape()?.shift())?;
        Ok(Reservation { start, units })
    }

    /// Makes the sub-chunk hold at least `bytes`, or fails and takes nothing.
    pub(crate) fn reserve(&self, sub: &mut SubChunk, bytes: u64) -> Result<()> {
        let units = bytes.div_ceil(UNIT as u64);
        if u64::from(sub.end - sub.next) >= units {
            return Ok(());
        }
        let reservation = self.carve(sub, units)?;
        let end = reservation.start + reservation.units;
        // A reservation right after the sub-chunk extends it.
        *sub = SubChunk {
            next: reservation.start,
            end: if sub.next == end { sub.end } else { end },
        };
        Ok(())
    }

    /// Allocates at least `units` from a chunk, and returns their first unit and number. If the
    /// units from `adjacent` on are free, the `left` units before them count: only the rest is
    /// allocated. Takes a lock only to make a chunk.
    fn allocate(
        &self,
        units: u64,
        left: u64,
        adjacent: u32,
        wish: u64,
        shift: u32,
    ) -> Result<(u32, u32)> {
        let mut is_refused = false;
        for (index, used) in self.used.iter().enumerate() {
            match self.ensure_chunk(index, shift, units)? {
                Chunk::There => {}
                chunk => {
                    is_refused |= chunk == Chunk::Refused;
                    continue;
                }
            }
            let (first, capacity) = (chunk_start(index, shift), self.units_of(index, shift)?);
            loop {
                // ORDERING: Relaxed: threads share only the number itself. The memory that it
                // counts was published with the chunk's base (ControlWords::set).
                let next = used.load(Ordering::Relaxed);
                let adjacent = continues((first + next) as u32, adjacent, shift);
                let missing = if adjacent { units - left } else { units };
                let room = capacity.saturating_sub(next);
                if room < missing {
                    break;
                }
                let wish = if index < SMALL {
                    SMALL_UNITS_AT_ONCE
                } else {
                    wish
                };
                let take = if units > wish / 2 {
                    missing
                } else {
                    wish.max(missing).min(room)
                };
                let take = self
                    .limit
                    .admit(take, missing)
                    .ok_or_else(|| self.limit.full(units))?;
                // ORDERING: Relaxed on both sides: as for the load.
                let swapped =
                    used.compare_exchange(next, next + take, Ordering::Relaxed, Ordering::Relaxed);
                if swapped.is_ok() {
                    return Ok(((first + next) as u32, take as u32));
                }
                self.limit.give_back(take);
            }
        }
        let needed = units.saturating_mul(UNIT as u64);
        if is_refused && needed <= self.limit.remaining_bytes() {
            return Err(Error::MemoryRefused { needed });
        }
        Err(self.limit.full(units))
    }

    /// Makes chunk `index` if it does not exist, for an entry of `need` units.
    fn ensure_chunk(&self, index: usize, shift: u32, need: u64) -> Result<Chunk> {
        let base = ControlWord::base(index);
        if self.control.get_or_unset(base)? != 0 {
            return Ok(Chunk::There);
        }
        // An entry that the limit refuses makes no chunk.
        if need > self.limit.remaining_bytes() / UNIT as u64 {
            return Ok(Chunk::TooSmall);
        }
        let whole = chunk_units(index, shift);
        let mut units = whole;
        let mut outcome = Chunk::TooSmall;
        let mut owners = self.owners.lock();
        // Only the owner of this lock sets bases. So a base of 0 whose check disagrees is damage,
        // and not a chunk that another thread is making.
        while self.control.get(base)? == 0 {
            // If the system refuses memory, a smaller chunk is tried; small chunks have only their
            // full size.
            if units < need + RESERVED_UNITS || (index < SMALL && units < whole) {
                return Ok(outcome);
            }
            outcome = Chunk::Refused;
            if let Some((memory, address)) =
                take_or_allocate(&self.recycler, index, units as usize * UNIT)
            {
                owners.push(memory);
                if index >= SMALL {
                    self.control.set(ControlWord::units(index), units);
                }
                self.control.set(base, address as u64);
            }
            units /= 2;
        }
        Ok(Chunk::There)
    }

    /// Makes the system back the pages of these reserved units, if their chunk is a mapping.
    pub(crate) fn back(&self, units: Range<u32>) -> Result<(), Corruption> {
        let (chunk, bytes) = bytes_in_chunk(units, self.control.shape()?.shift());
        let is_of_chunk = |mapping: &&Arc<Mapping>| mapping.chunk == chunk;
        let mapping = self
            .owners
            .lock()
            .iter()
            .filter_map(Memory::mapping)
            .find(is_of_chunk)
            .cloned();
        if let Some(mapping) = mapping {
            mapping.back(bytes);
        }
        Ok(())
    }

    /// Zeroes a reservation, and returns it to its sub-chunk if it is the newest one there. The
    /// units of an older reservation stay unused.
    pub(crate) fn give_back(&self, sub: &mut SubChunk, mut reservation: Reservation) -> Result<()> {
        let view = self.view()?;
        let bytes = reservation.bytes() as usize;
        view.plain(&mut reservation, 0, bytes)?.fill(0);
        if reservation.start + reservation.units == sub.next {
            sub.next = reservation.start;
        }
        Ok(())
    }

    /// Bytes of the small chunks that are not allocated. A chunk that is not made has none.
    pub(crate) fn free_small_bytes(&self) -> u64 {
        let is_made = |index: &usize| self.control.get(ControlWord::base(*index)) != Ok(0);
        let free = (0..SMALL).filter(is_made).map(|index| {
            // ORDERING: Relaxed: a count, exact once no writer is inside (their exit is the partner).
            chunk_units(index, 0).saturating_sub(self.used[index].load(Ordering::Relaxed))
        });
        free.sum::<u64>() * UNIT as u64
    }

    /// The allocated ranges of units, which a salvage searches. No other thread may be setting a
    /// control word during the call.
    pub(crate) fn stretches(&self) -> Result<Stretches, Corruption> {
        let shift = self.control.shape()?.shift();
        let (mut stretches, mut damage) = (vec![(0, HEADS_UNITS)], None);
        for (index, used) in self.used.iter().enumerate() {
            let there = self.control.get(ControlWord::base(index));
            match there.and_then(|base| Ok((base, self.units_of(index, shift)?))) {
                Ok((0, _)) => {}
                Ok((_, units)) => {
                    // ORDERING: Relaxed: a bound for a search that checks all that it finds.
                    let next = used.load(Ordering::Relaxed).min(units);
                    stretches.push((chunk_start(index, shift) as u32, next as u32));
                }
                Err(corruption) => damage = damage.or(Some(corruption)),
            }
        }
        Ok((stretches, damage))
    }

    /// `View::locate` for the heads, and for chunks whose base is not in a view. It takes no view,
    /// so that callers keep theirs in registers.
    #[cold]
    #[inline(never)]
    fn locate_beyond(&self, shift: u32, offset: u32) -> Option<(usize, usize)> {
        if offset < HEADS_UNITS {
            return Some((
                self.heads() + offset as usize * UNIT,
                (HEADS_UNITS - offset) as usize * UNIT,
            ));
        }
        if offset < SECOND_START {
            // Tables with few entries come here often.
            let ([base], mismatch) = self.control.get_all([ControlWord::base(0)]);
            if mismatch == 0 && base != 0 {
                let address = (base as usize).wrapping_add((offset - HEADS_UNITS) as usize * UNIT);
                return Some((address, (SECOND_START - offset) as usize * UNIT));
            }
        }
        self.locate_far(shift, offset)
    }

    /// [`locate_beyond`](Self::locate_beyond) for chunks after chunk 0, and for damage.
    #[cold]
    #[inline(never)]
    fn locate_far(&self, shift: u32, offset: u32) -> Option<(usize, usize)> {
        let index = chunk_of(offset, shift);
        if index >= CHUNKS_MAX {
            return None;
        }
        let base = self.control.get(ControlWord::base(index)).ok()?;
        let units = self.units_of(index, shift).ok()?;
        let ahead = u64::from(offset).wrapping_sub(chunk_start(index, shift));
        if base == 0 || ahead >= units {
            return None;
        }
        let available = ((units - ahead) as usize).saturating_mul(UNIT);
        Some((
            (base as usize).wrapping_add(ahead as usize * UNIT),
            available,
        ))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        recycle(&self.recycler, &self.owners, &self.used);
    }
}

/// Whether a chunk can take an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    There,
    /// Its range of units is too short for the entry.
    TooSmall,
    /// The system refused its memory.
    Refused,
}

/// Ranges of units as (first unit, number), and the first damage that hides further ranges.
type Stretches = (Vec<(u32, u32)>, Option<Corruption>);

#[cold]
fn bad_control(found: u64) -> Corruption {
    Corruption::new(Place::Control, 0, 0, found)
}

/// The checked control values of an arena, held in registers during an operation. They describe the
/// near chunk: the newest one up to chunk 2; before any exists, the heads.
#[derive(Clone, Copy)]
pub(crate) struct Values<A> {
    /// Addresses of the near chunk's first byte and of its end.
    base: usize,
    end: usize,
    /// Address of chunk 1, or 0 before it is made.
    second: usize,
    /// First unit of the near chunk, and their number.
    start: u32,
    units: u32,
    shape: Shape,
    /// The secret of tags.
    pub(crate) secret: Secret,
    /// Stored bytes of each digest.
    pub(crate) width: Width,
    /// The arena of these values, or its address.
    arena: A,
}

/// The checked control values with a borrow of the arena. A view also finds chunks that are made
/// after it.
pub(crate) type View<'a> = Values<&'a Arena>;

/// The checked control values with the arena's address. Cursors keep a frame from step to step.
pub(crate) type Frame = Values<usize>;

impl<A> Values<A> {
    #[inline(always)]
    fn of<B>(self, arena: B) -> Values<B> {
        let Values {
            base,
            end,
            second,
            start,
            units,
            shape,
            secret,
            width,
            ..
        } = self;
        Values {
            base,
            end,
            second,
            start,
            units,
            shape,
            secret,
            width,
            arena,
        }
    }
}

impl Frame {
    /// The values of no arena.
    pub(crate) const NONE: Frame = Values {
        base: 0,
        end: 0,
        second: 0,
        start: 0,
        units: 0,
        shape: Shape::NONE,
        secret: Secret { mask: 0, factor: 1 },
        width: Width { bytes: 0 },
        arena: 0,
    };

    /// The view of `arena` with these values. `None` if they belong to another arena.
    #[inline(always)]
    pub(crate) fn on(self, arena: &Arena) -> Option<View<'_>> {
        (self.arena == std::ptr::from_ref(arena).addr()).then_some(self.of(arena))
    }
}

impl<'a> View<'a> {
    /// The address of a unit, if it is in the near chunk.
    #[inline(always)]
    pub(crate) fn locate_near(&self, offset: u32) -> Option<usize> {
        let ahead = offset.wrapping_sub(self.start);
        if ahead < self.units {
            Some(self.base.wrapping_add(ahead as usize * UNIT))
        } else {
            None
        }
    }

    /// Whether an address is in the near chunk.
    #[inline(always)]
    pub(crate) fn is_near(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.end.wrapping_sub(self.base)
    }

    /// The address of a unit if it is in the near chunk, and some other number otherwise. For
    /// prefetches only.
    #[inline(always)]
    pub(crate) fn likely_address(&self, offset: u32) -> usize {
        self.base
            .wrapping_add((offset.wrapping_sub(self.start) as usize).wrapping_mul(UNIT))
    }

    /// The address of a unit and the number of bytes from there to the end of its chunk, if it is in
    /// chunk 1.
    #[inline(always)]
    fn locate_second(&self, offset: u32) -> Option<(usize, usize)> {
        let ahead = offset.wrapping_sub(SECOND_START);
        if ahead < SMALL_END - SECOND_START && self.second != 0 {
            let address = self.second.wrapping_add(ahead as usize * UNIT);
            Some((address, (SMALL_END - offset) as usize * UNIT))
        } else {
            None
        }
    }

    /// The address of a unit and the number of bytes from there to the end of its chunk. `None` if
    /// the offset is in no chunk (ARENA-2).
    #[inline(always)]
    pub(crate) fn locate(&self, offset: u32) -> Option<(usize, usize)> {
        match self.locate_near(offset) {
            Some(address) => Some((address, self.end.wrapping_sub(address))),
            None => self
                .locate_second(offset)
                .or_else(|| self.arena.locate_beyond(self.shape.shift(), offset)),
        }
    }

    /// The root word of the directory.
    #[inline(always)]
    pub(crate) fn root(&self) -> &'a AtomicU64 {
        &self.arena.heads.0[ROOT as usize]
    }

    /// The atomic word at a unit of the heads.
    #[inline(always)]
    pub(crate) fn head_word(&self, offset: u32) -> Option<&'a AtomicU64> {
        self.arena.heads.0.get(offset as usize)
    }

    /// The atomic word at a unit (ARENA-4).
    #[inline(always)]
    #[cfg(not(loom))]
    pub(crate) fn word(&self, offset: u32) -> Option<&'a AtomicU64> {
        let (address, _) = self.locate(offset)?;
        // SAFETY: ARENA-1: no chunk begins at address 0. With this hint, the returned `Option`
        // costs callers no test for a null reference.
        unsafe { std::hint::assert_unchecked(address != 0) };
        let pointer = std::ptr::with_exposed_provenance_mut::<u64>(address);
        // SAFETY: ARENA-1, ARENA-2: the unit is inside a live chunk, and aligned to 8. ARENA-4:
        // after publication, links and back words are accessed only as atomics. ARENA-3: an
        // unpublished word belongs to one writer.
        Some(unsafe { AtomicU64::from_ptr(pointer) })
    }

    /// The atomic word at a unit. Under loom, words are in a side table.
    #[cfg(loom)]
    pub(crate) fn word(&self, offset: u32) -> Option<&'a AtomicU64> {
        self.head_word(offset)
            .or_else(|| self.arena.model.word(offset))
    }

    /// `N` atomic words from a unit on. `None` if one chunk does not hold all of them.
    #[inline(always)]
    #[cfg(not(loom))]
    pub(crate) fn words<const N: usize>(&self, offset: u32) -> Option<&'a [AtomicU64; N]> {
        let ahead = offset.wrapping_sub(self.start);
        let address = if u64::from(ahead) + N as u64 <= u64::from(self.units) {
            self.base.wrapping_add(ahead as usize * UNIT)
        } else {
            self.locate(offset)
                .filter(|(_, available)| *available >= N * UNIT)?
                .0
        };
        // SAFETY: ARENA-1: no chunk begins at address 0.
        unsafe { std::hint::assert_unchecked(address != 0) };
        let pointer = std::ptr::with_exposed_provenance::<[AtomicU64; N]>(address);
        // SAFETY: ARENA-1, ARENA-2: all N words are inside one live chunk, and aligned to 8.
        // ARENA-4: after publication, links and back words are accessed only as atomics. ARENA-3:
        // an unpublished word belongs to one writer.
        Some(unsafe { &*pointer })
    }

    /// Bytes `from..to` of a reservation, which the caller writes before it publishes them.
    #[inline(always)]
    pub(crate) fn plain<'r>(
        &self,
        reservation: &'r mut Reservation,
        from: usize,
        to: usize,
    ) -> Result<&'r mut [u8]> {
        #[cfg(loom)]
        self.arena
            .model
            .written(reservation.start, reservation.units);
        let (address, available) = self
            .locate(reservation.start)
            .ok_or_else(|| bad_control(0))?;
        if from > to || to > reservation.bytes() as usize || to > available {
            return Err(bad_control(to as u64).into());
        }
        let pointer = std::ptr::with_exposed_provenance_mut::<u8>(address + from);
        // SAFETY: ARENA-2: both ends were checked above. ARENA-3: no other thread reads or writes
        // these bytes, and the slice borrows the reservation. ARENA-5: they are initialised.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, to - from) })
    }

    /// `len` bytes that begin `at` bytes after the unit `offset`. `None` if they do not end inside
    /// its chunk. The caller asks only for bytes that are immutable after publication.
    #[cfg(any(loom, feature = "fault-injection"))]
    pub(crate) fn published(&self, offset: u32, at: usize, len: usize) -> Option<&'a [u8]> {
        #[cfg(loom)]
        self.arena.model.read(offset);
        let (address, available) = self.locate(offset)?;
        if at.checked_add(len)? > available {
            return None;
        }
        let pointer = std::ptr::with_exposed_provenance::<u8>(address + at);
        // SAFETY: ARENA-1, ARENA-2: the bytes are inside a live chunk. ARENA-5: they are
        // initialised. ARENA-3: published bytes are not written as plain memory. ARENA-4: callers
        // ask for no word that changes.
        Some(unsafe { std::slice::from_raw_parts(pointer, len) })
    }

    /// The arena itself.
    pub(crate) fn arena(&self) -> &'a Arena {
        self.arena
    }

    /// This view without its borrow.
    pub(crate) fn frame(&self) -> Frame {
        self.of(std::ptr::from_ref(self.arena).addr())
    }
}

#[cfg(loom)]
mod model {
    use super::SMALL_END;
    use crate::sync::{AtomicU64, UnsafeCell};

    /// The atomic words of a model. Loom's atomics cannot be laid over raw bytes, so this table
    /// holds them, and one cell for each unit notices races on its bytes.
    pub(super) struct Words {
        words: Vec<AtomicU64>,
        cells: Vec<UnsafeCell<()>>,
    }

    // SAFETY: ARENA-3: the cells hold no data, and loom itself checks that no two threads use one
    // at the same time.
    unsafe impl Sync for Words {}

    impl std::fmt::Debug for Words {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Words")
        }
    }

    impl Words {
        /// The words of the heads and of small chunks.
        pub(super) fn new() -> Self {
            Words {
                words: (0..SMALL_END).map(|_| AtomicU64::new(0)).collect(),
                cells: (0..SMALL_END).map(|_| UnsafeCell::new(())).collect(),
            }
        }

        pub(super) fn word(&self, offset: u32) -> Option<&AtomicU64> {
            self.words.get(offset as usize)
        }

        pub(super) fn written(&self, start: u32, units: u32) {
            for cell in &self.cells[start as usize..(start + units) as usize] {
                cell.with_mut(|_| ());
            }
        }

        pub(super) fn read(&self, offset: u32) {
            if let Some(cell) = self.cells.get(offset as usize) {
                cell.with(|_| ());
            }
        }
    }
}
