//! The faults: every bit in turn, and random ones, spread evenly over region and kind. For each
//! fault, the keys that may return `Corruption`, and the finding that a scrub must report.

use std::collections::{BTreeMap, BTreeSet};

use paranoid_memtable::DuplicatePolicy;
use paranoid_memtable::fault::{FaultInjector, Part, Past, Region};

use super::model::{Model, Row};

/// A way to break memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One bit.
    Flip,
    /// 2 to 16 bits of one piece.
    Burst,
    /// Up to 64 bytes of one piece overwritten with random ones.
    Noise,
    /// An aligned word set to 0.
    Zero,
    /// Two links of the same structure swapped.
    SwapLinks,
    /// Two entries' bytes swapped.
    SwapEntries,
    /// 8 to 96 bytes copied over others.
    Copy,
    /// A whole line of a filter or of the index set to 0.
    ZeroLine,
    /// A lost write: an aligned word gets a value again that it held before.
    StaleWord,
    /// A lost write: an aligned line of 64 bytes gets a content again that it held before.
    StaleLine,
    /// A control word and its check, or 64 to 512 aligned bytes of them, copied over others.
    CopyControl,
    /// Two control words swapped: with their checks, or a word with its own check; or two lines of
    /// them.
    SwapControl,
    /// A stretch of up to a page, in any part of memory, overwritten with random bytes.
    StretchNoise,
    /// A stretch set to 0.
    StretchClear,
    /// A stretch filled with one byte, or with one word of the table.
    StretchFill,
    /// A stretch copied over another one.
    StretchCopy,
    /// Two places at once, each broken in one of the ways above; no lost writes.
    TwoPlaces,
    /// Two places at once, the first one by a lost write: it may take the second copy of a word
    /// back too. Only crashes and hangs count.
    StaleAndAnother,
}

impl Kind {
    pub const ALL: [Kind; 18] = [
        Kind::Flip,
        Kind::Burst,
        Kind::Noise,
        Kind::Zero,
        Kind::SwapLinks,
        Kind::SwapEntries,
        Kind::Copy,
        Kind::ZeroLine,
        Kind::StaleWord,
        Kind::StaleLine,
        Kind::CopyControl,
        Kind::SwapControl,
        Kind::StretchNoise,
        Kind::StretchClear,
        Kind::StretchFill,
        Kind::StretchCopy,
        Kind::TwoPlaces,
        Kind::StaleAndAnother,
    ];
    pub const STRETCHES: [Kind; 4] = [
        Kind::StretchNoise,
        Kind::StretchClear,
        Kind::StretchFill,
        Kind::StretchCopy,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Flip => "flip",
            Kind::Burst => "burst",
            Kind::Noise => "noise",
            Kind::Zero => "zero",
            Kind::SwapLinks => "swap-links",
            Kind::SwapEntries => "swap-entries",
            Kind::Copy => "copy",
            Kind::ZeroLine => "zero-line",
            Kind::StaleWord => "stale-word",
            Kind::StaleLine => "stale-line",
            Kind::CopyControl => "copy-control",
            Kind::SwapControl => "swap-control",
            Kind::StretchNoise => "stretch-noise",
            Kind::StretchClear => "stretch-clear",
            Kind::StretchFill => "stretch-fill",
            Kind::StretchCopy => "stretch-copy",
            Kind::TwoPlaces => "two-places",
            Kind::StaleAndAnother => "stale-and-another",
        }
    }

    pub fn is_stretch(self) -> bool {
        Kind::STRETCHES.contains(&self)
    }

    /// Whether memory gets an earlier content again, which has to be recorded.
    pub fn is_stale(self) -> bool {
        matches!(
            self,
            Kind::StaleWord | Kind::StaleLine | Kind::StaleAndAnother
        )
    }

    /// Whether a fault of this kind can hit an area.
    fn fits(self, area: Area) -> bool {
        let control = area.part == Part::Control;
        match self {
            Kind::SwapLinks => area.is_link(),
            Kind::ZeroLine => area.moves(),
            Kind::SwapEntries => area.region == Region::Header,
            Kind::Copy => is_copied(area.part, area.region),
            Kind::CopyControl | Kind::SwapControl => control,
            // A word that was never written has no earlier value.
            Kind::StaleWord | Kind::StaleLine | Kind::StaleAndAnother => {
                !matches!(area.region, Region::Free | Region::Padding)
            }
            _ => true,
        }
    }
}

/// A row of the report: structure, region, and, for links, whether they are on an upper level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Area {
    pub part: Part,
    pub region: Region,
    pub upper: bool,
}

impl Area {
    pub fn of(piece: &paranoid_memtable::fault::Piece) -> Area {
        Area {
            part: piece.part,
            region: piece.region,
            upper: piece.level > 0,
        }
    }

    pub fn name(self) -> String {
        let upper = if self.upper { " (upper)" } else { "" };
        format!("{:?} {:?}{upper}", self.part, self.region).to_lowercase()
    }

    /// Whether the area belongs to a filter or to the directory.
    pub fn is_accelerator(self) -> bool {
        self.moves() || self.region == Region::Directory
    }

    /// Whether its address in the arena depends on where the system maps the memory.
    fn moves(self) -> bool {
        self.region == Region::FilterWord
    }

    pub fn is_link(self) -> bool {
        matches!(self.region, Region::Link | Region::HeadLink)
    }
}

/// Whether bytes are copied from a region and to it. Blocks of the control block and of the index
/// have another layout.
fn is_copied(part: Part, region: Region) -> bool {
    part != Part::Control && region != Region::TombstoneIndex
}

/// Number of words of a line of a filter or of the index.
const LINE_WORDS: usize = 8;

/// The places of a table that faults can hit.
#[derive(Debug, Clone)]
pub struct Map {
    /// Pieces by area.
    pub areas: Vec<(Area, Vec<usize>)>,
    /// Useful pairs (area, kind), in a fixed order.
    pub cells: Vec<(usize, Kind)>,
    /// Number of bits of all pieces that are flipped in turn.
    pub bits: u64,
    visibility: Vec<u64>,
    /// Pieces that are flipped in turn.
    turns: Vec<usize>,
    kinds: Vec<Kind>,
}

impl Map {
    pub fn of(injector: &FaultInjector<'_>, kinds: &[Kind]) -> Map {
        let mut areas: Vec<(Area, Vec<usize>)> = Vec::new();
        for (number, piece) in injector.pieces().iter().enumerate() {
            let area = Area::of(piece);
            match areas.iter_mut().find(|(known, _)| *known == area) {
                Some((_, pieces)) => pieces.push(number),
                None => areas.push((area, vec![number])),
            }
        }
        areas.sort();
        let mut cells = Vec::new();
        for (number, (area, _)) in areas.iter().enumerate() {
            let fitting = kinds.iter().filter(|kind| kind.fits(*area));
            cells.extend(fitting.map(|kind| (number, *kind)));
        }
        let visibility: Vec<u64> = injector
            .pieces()
            .iter()
            .map(|piece| piece.len() as u64)
            .collect();
        let turns = (0..visibility.len()).collect();
        Map {
            areas,
            cells,
            bits: visibility.iter().sum::<u64>() * 8,
            visibility,
            turns,
            kinds: kinds.to_vec(),
        }
    }

    /// The map for one more table that was made in the same way. Lines start at multiples of 64
    /// bytes. So the words of filters and index are at other places between entries if the system
    /// maps the memory elsewhere.
    fn for_table(&self, injector: &FaultInjector<'_>) -> Map {
        if !self.areas.iter().any(|(area, _)| area.moves()) {
            return self.clone();
        }
        let mut map = Map::of(injector, &self.kinds);
        if self.turns.len() < self.visibility.len() {
            map = map.accelerators_only();
        }
        map.cells.clone_from(&self.cells);
        map
    }

    /// A map with turns for filters and index alone.
    #[must_use]
    pub fn accelerators_only(self) -> Map {
        self.only(Area::is_accelerator)
    }

    /// A map with turns for these areas alone.
    #[must_use]
    pub fn only(mut self, wanted: impl Fn(Area) -> bool) -> Map {
        let areas = self.areas.iter().filter(|(area, _)| wanted(*area));
        self.turns = areas
            .flat_map(|(_, pieces)| pieces.iter().copied())
            .collect();
        self.bits = self.bytes(&self.turns) as u64 * 8;
        self
    }

    /// Number of bytes of these pieces.
    pub fn bytes(&self, pieces: &[usize]) -> usize {
        pieces
            .iter()
            .map(|piece| self.visibility[*piece] as usize)
            .sum()
    }

    /// Flips bit number `bit` of all pieces that are flipped in turn. Returns the area.
    pub fn flip_nth(&self, injector: &mut FaultInjector<'_>, mut bit: u64) -> Area {
        let map = self.for_table(injector);
        for number in &map.turns {
            let bits = map.visibility[*number] * 8;
            if bit < bits {
                injector.flip(*number, bit as usize);
                return Area::of(&injector.pieces()[*number]);
            }
            bit -= bits;
        }
        unreachable!("a bit beyond the last piece")
    }

    /// Breaks something of one cell. `past` has the table's earlier contents, for lost writes.
    pub fn strike(
        &self,
        injector: &mut FaultInjector<'_>,
        past: &Past,
        cell: usize,
        rng: &mut Rng,
    ) -> (Area, Kind) {
        self.for_table(injector)
            .strike_here(injector, past, cell, rng)
    }

    /// Breaks something of one cell of the table that the map was made for.
    pub fn strike_here(
        &self,
        injector: &mut FaultInjector<'_>,
        past: &Past,
        cell: usize,
        rng: &mut Rng,
    ) -> (Area, Kind) {
        let map = self;
        let (area, kind) = map.cells[cell];
        match kind {
            Kind::TwoPlaces => {
                map.strike_plainly(injector, area, rng);
                let other = rng.below(map.areas.len());
                map.strike_plainly(injector, other, rng);
            }
            Kind::StaleAndAnother => {
                let stale = [Kind::StaleWord, Kind::StaleLine][rng.below(2)];
                map.strike_as(injector, past, (area, stale), rng);
                let other = rng.below(map.areas.len());
                map.strike_plainly(injector, other, rng);
            }
            kind => map.strike_as(injector, past, (area, kind), rng),
        }
        (map.areas[area].0, kind)
    }

    /// Breaks something of an area by one of the kinds that need only its bytes.
    fn strike_plainly(&self, injector: &mut FaultInjector<'_>, area: usize, rng: &mut Rng) {
        let kind = [Kind::Flip, Kind::Burst, Kind::Noise, Kind::Zero][rng.below(4)];
        self.strike_as(injector, &Past::default(), (area, kind), rng);
    }

    fn strike_as(
        &self,
        injector: &mut FaultInjector<'_>,
        past: &Past,
        (area, kind): (usize, Kind),
        rng: &mut Rng,
    ) {
        let (area, pieces) = &self.areas[area];
        let piece = pieces[rng.below(pieces.len())];
        let len = injector.pieces()[piece].len();
        match kind {
            Kind::Flip => injector.flip(piece, rng.below(len * 8)),
            Kind::Burst => {
                for _ in 0..2 + rng.below(15) {
                    injector.flip(piece, rng.below(len * 8));
                }
            }
            Kind::Noise => {
                let bytes: Vec<u8> = (0..1 + rng.below(64)).map(|_| rng.next() as u8).collect();
                injector.overwrite(piece, &bytes);
            }
            Kind::Zero => injector.zero_word(piece, rng.below(len)),
            Kind::ZeroLine => {
                let first = piece - injector.place_in_line(piece);
                (first..first + LINE_WORDS).for_each(|word| injector.zero_word(word, 0));
            }
            Kind::SwapLinks => {
                let links = self
                    .areas
                    .iter()
                    .filter(|(other, _)| other.is_link() && other.part == area.part);
                let links: Vec<usize> = links
                    .flat_map(|(_, pieces)| pieces.iter().copied())
                    .collect();
                swap(injector, piece, links[rng.below(links.len())]);
            }
            Kind::SwapEntries => {
                let owner = injector.pieces()[piece].owner.clone();
                let entries = entries(injector);
                let of_owner = |entry: &&Vec<usize>| injector.pieces()[entry[0]].owner == owner;
                let left = entries.iter().find(of_owner).unwrap_or(&entries[0]);
                swap_entries(injector, left, &entries[rng.below(entries.len())]);
            }
            Kind::Copy => {
                let arena: Vec<usize> = (0..self.visibility.len())
                    .filter(|piece| {
                        let piece = &injector.pieces()[*piece];
                        is_copied(piece.part, piece.region)
                    })
                    .collect();
                injector.copy(arena[rng.below(arena.len())], piece, 8 + rng.below(89));
            }
            Kind::StaleWord => lose_write(injector, pieces, rng, |injector, piece, byte, turn| {
                injector.revert_word(past, piece, byte, turn)
            }),
            Kind::StaleLine => lose_write(injector, pieces, rng, |injector, piece, byte, turn| {
                injector.revert_line(past, piece, byte, turn)
            }),
            Kind::CopyControl | Kind::SwapControl => strike_control(injector, pieces, kind, rng),
            Kind::StretchNoise | Kind::StretchClear | Kind::StretchFill | Kind::StretchCopy => {
                strike_stretch(injector, piece, kind, rng);
            }
            Kind::TwoPlaces | Kind::StaleAndAnother => unreachable!("made of others"),
        }
    }
}

/// Restores an earlier value in an area: in the first piece, from a random one, that ever had
/// another value.
fn lose_write(
    injector: &mut FaultInjector<'_>,
    pieces: &[usize],
    rng: &mut Rng,
    mut revert: impl FnMut(&mut FaultInjector<'_>, usize, usize, usize) -> bool,
) {
    let (first, byte, turn) = (rng.below(pieces.len()), rng.next(), rng.next());
    for ahead in 0..pieces.len() {
        let piece = pieces[(first + ahead) % pieces.len()];
        let words = injector.pieces()[piece].len().div_ceil(8) as u64;
        for word in 0..words {
            if revert(
                injector,
                piece,
                ((byte % words + word) % words * 8) as usize,
                turn as usize,
            ) {
                return;
            }
        }
    }
}

/// Swaps the first bytes of two pieces, as many as the shorter one has.
pub fn swap(injector: &mut FaultInjector<'_>, left: usize, right: usize) {
    let [from_left, from_right] = [left, right].map(|piece| injector.bytes(piece));
    injector.overwrite(left, &from_right);
    injector.overwrite(right, &from_left);
}

/// The pieces of each entry, without links and padding, side by side. Its links come before them.
fn entries(injector: &FaultInjector<'_>) -> Vec<Vec<usize>> {
    let mut entries: Vec<Vec<usize>> = Vec::new();
    for (number, piece) in injector
        .pieces()
        .iter()
        .enumerate()
        .filter(|(_, piece)| piece.owner.is_some())
    {
        match (piece.region, entries.last_mut()) {
            (Region::Padding, _) => {}
            (Region::Link, Some(last)) if last.is_empty() => {}
            (Region::Link, _) => entries.push(Vec::new()),
            (_, Some(last)) => last.push(number),
            (_, None) => unreachable!("an entry has a link"),
        }
    }
    entries
}

/// Swaps header, digests, key and value of two entries, as many bytes as the shorter one has. Their
/// links stay.
fn swap_entries(injector: &mut FaultInjector<'_>, left: &[usize], right: &[usize]) {
    let bytes = |pieces: &[usize]| {
        pieces
            .iter()
            .flat_map(|piece| injector.bytes(*piece))
            .collect()
    };
    let [from_left, from_right]: [Vec<u8>; 2] = [left, right].map(bytes);
    for (pieces, bytes) in [(left, &from_right), (right, &from_left)] {
        let len = bytes.len().min(from_left.len()).min(from_right.len());
        let mut rest = &bytes[..len];
        for piece in pieces {
            let (here, after) = rest.split_at(rest.len().min(injector.pieces()[*piece].len()));
            injector.overwrite(*piece, here);
            rest = after;
        }
    }
}

/// Copies `count` pieces, beginning with number `from`, over those beginning with number `to`:
/// piece by piece, as many bytes as the shorter one has. An example is a control word with its
/// check.
pub fn copy_pieces(injector: &mut FaultInjector<'_>, from: usize, to: usize, count: usize) {
    let len = injector.pieces().len();
    let sources: Vec<Vec<u8>> = (from..len)
        .take(count)
        .map(|piece| injector.bytes(piece))
        .collect();
    for (to, bytes) in (to..len).zip(sources) {
        injector.overwrite(to, &bytes);
    }
}

/// Bytes of the longest stretch: a page.
pub const STRETCH_MAX: usize = 4096;

/// Whether a stretch that begins in a part reaches a piece. Stretches that begin outside of the
/// control block leave it out.
fn reaches(injector: &FaultInjector<'_>, from: Part, piece: usize) -> bool {
    from == Part::Control || injector.pieces()[piece].part != Part::Control
}

/// Damages a stretch of 8 to 4 096 bytes that begins somewhere in a piece.
fn strike_stretch(injector: &mut FaultInjector<'_>, piece: usize, kind: Kind, rng: &mut Rng) {
    let octave = 8 << rng.below(10);
    let len = (octave + rng.below(octave)).min(STRETCH_MAX);
    let (from, part) = (
        rng.below(injector.pieces()[piece].len()),
        injector.pieces()[piece].part,
    );
    let reached = |other: &usize| reaches(injector, part, *other);
    // Half of the copies come from nearby: a wrong move would leave such memory.
    let number = injector.pieces().len();
    let near = piece
        .saturating_add_signed(rng.below(1024) as isize - 512)
        .min(number - 1);
    let source = Some([near, rng.below(number)][rng.below(2)])
        .filter(reached)
        .unwrap_or(piece);
    let bytes: Vec<Option<u8>> = match kind {
        Kind::StretchClear => vec![Some(0); len],
        Kind::StretchFill if rng.below(2) == 0 => {
            vec![Some([0xff, 0x55, rng.next() as u8][rng.below(3)]); len]
        }
        Kind::StretchFill => {
            let word = injector.bytes(source);
            word.iter()
                .take(8)
                .cycle()
                .take(len)
                .copied()
                .map(Some)
                .collect()
        }
        Kind::StretchCopy => {
            let at = if from < injector.pieces()[source].len() {
                from
            } else {
                0
            };
            bytes_of(injector, (source, at, len), part)
        }
        _ => (0..len).map(|_| Some(rng.next() as u8)).collect(),
    };
    overwrite_stretch(injector, (piece, from, len), part, &bytes);
}

/// The bytes of a stretch. `None`: a place in it belongs to no piece.
fn bytes_of(
    injector: &FaultInjector<'_>,
    (piece, from, len): (usize, usize, usize),
    part: Part,
) -> Vec<Option<u8>> {
    let mut bytes = vec![None; len];
    for (ahead, piece, range) in injector.stretch(piece, from, len) {
        if reaches(injector, part, piece) {
            let found = &injector.bytes(piece)[range];
            bytes[ahead..]
                .iter_mut()
                .zip(found)
                .for_each(|(slot, byte)| *slot = Some(*byte));
        }
    }
    bytes
}

/// Writes bytes over the pieces in a stretch.
fn overwrite_stretch(
    injector: &mut FaultInjector<'_>,
    (piece, from, len): (usize, usize, usize),
    part: Part,
    bytes: &[Option<u8>],
) {
    for (ahead, piece, range) in injector.stretch(piece, from, len) {
        if reaches(injector, part, piece) {
            let mut now = injector.bytes(piece)[range.clone()].to_vec();
            now.iter_mut()
                .zip(&bytes[ahead..])
                .for_each(|(byte, new)| *byte = new.unwrap_or(*byte));
            injector.overwrite_from(piece, range.start, &now);
        }
    }
}

/// Swaps `count` lines of 64 bytes around two pieces, as far as these lines have pieces.
fn swap_lines(injector: &mut FaultInjector<'_>, pieces: [usize; 2], count: usize) {
    let stretches = pieces.map(|piece| {
        let first = piece.saturating_sub(injector.place_in_line(piece));
        (first, 0, 64 * count)
    });
    let [left, right] = stretches.map(|stretch| bytes_of(injector, stretch, Part::Control));
    overwrite_stretch(injector, stretches[0], Part::Control, &right);
    overwrite_stretch(injector, stretches[1], Part::Control, &left);
}

/// Damages the control block: copies or swaps words, checks, or whole lines.
fn strike_control(injector: &mut FaultInjector<'_>, pieces: &[usize], kind: Kind, rng: &mut Rng) {
    let [from, to] = [0, 0].map(|_| pieces[rng.below(pieces.len())]);
    let [source, target] = [0, 0].map(|_| injector.checks()[rng.below(injector.checks().len())]);
    match (kind, rng.below(4)) {
        (Kind::CopyControl, 0) => copy_pieces(injector, from, to, 1 + rng.below(2)),
        (Kind::CopyControl, 1) => injector.copy_lines(from, to, 1 + rng.below(8)),
        (Kind::CopyControl, _) => {
            copy_pieces(injector, source.0, target.0, 1);
            copy_pieces(injector, source.1, target.1, 1);
        }
        (_, 0) => swap(injector, target.0, target.1),
        (_, 1) => swap(injector, from, to),
        (_, 2) => swap_lines(injector, [from, to], 1 + rng.below(8)),
        (_, _) => {
            swap(injector, source.0, target.0);
            swap(injector, source.1, target.1);
        }
    }
}

/// Bytes of the longest damaged key that a read can prove to be another one.
const PROVED_MAX: usize = 384;

/// The effects that damage may have.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Probes that may return `Corruption`. `None`: all.
    pub probes: Option<BTreeSet<usize>>,
    /// Probes whose lookups may return `Corruption`, if one flipped bit of an entry is the only
    /// change.
    pub only: Option<BTreeSet<usize>>,
    /// Keys right before a damaged entry. A get that reads past their last version may return
    /// `Corruption`.
    pub in_front: BTreeSet<usize>,
    /// (key, sequence) of entries whose own bytes were changed. `None`: any.
    pub entries: BTreeSet<(Vec<u8>, u64)>,
    /// Whether a scrub must find something.
    pub must_find: bool,
    /// Whether the control block was changed.
    pub control: bool,
    /// Indexes of changed entries in the model's rows. Walks are checked closely there.
    pub focus: BTreeSet<usize>,
    /// Entries that are damaged together with their links to the next entry, forward and backward.
    /// A walk that was parked there ends.
    pub stranded: [BTreeSet<usize>; 2],
    /// Whether only one entry's own bytes were changed: a walk then meets at most one gap.
    pub lone: bool,
}

/// The changes of one point entry.
#[derive(Debug, Clone, Copy, Default)]
struct Harm {
    /// Whether header, key, value or digests changed.
    own: bool,
    back: bool,
    /// Whether the back link looks like the second copy of a lost write.
    witness: bool,
    /// The highest changed link.
    link: Option<u32>,
    /// Whether the level-0 link changed.
    next: bool,
}

impl Bounds {
    /// The possible effects of the pieces that a fault injector changed.
    pub fn of(model: &Model, injector: &FaultInjector<'_>, kind: Kind) -> Bounds {
        let mut bounds = Bounds::default();
        let mut limited = true;
        let mut harms: BTreeMap<Option<usize>, Harm> = BTreeMap::new();
        let changed = injector.changed();
        let mut ranges = [false; 2];
        // This test cannot distinguish entries of equal key and sequence number.
        let equals = changed.len() > 1 && model.shape.duplicates == DuplicatePolicy::Replace;
        for number in changed.keys().copied() {
            let piece = &injector.pieces()[number];
            if matches!(piece.region, Region::Padding | Region::Free) {
                continue;
            }
            // No answer rests on a damaged slot.
            if piece.part == Part::Ranges && piece.region != Region::WatchedTombstone {
                ranges[usize::from(piece.region == Region::TombstoneIndex)] = true;
            }
            let own = is_own(piece.region);
            bounds.must_find |= must_find(model, injector, number, kind);
            bounds.control |= piece.region == Region::Control;
            limited &= piece.part != Part::Control;
            if let (true, Some(owner)) = (own, &piece.owner) {
                bounds.entries.insert((owner.key.to_vec(), owner.sequence));
            }
            if piece.part == Part::Points {
                let row = piece
                    .owner
                    .as_ref()
                    .and_then(|owner| model.row(&owner.key, owner.sequence));
                bounds.focus.extend(row);
                let harm = harms.entry(row).or_default();
                harm.own |= own;
                harm.back |= piece.region == Region::BackLink;
                harm.witness |= harm.back && !kind.is_stale() && injector.back_link_matches(number);
                if matches!(piece.region, Region::Link | Region::HeadLink) {
                    harm.link = harm.link.max(Some(piece.level));
                    harm.next |= piece.level == 0;
                }
            }
        }
        let mut probes = BTreeSet::new();
        for (row, harm) in &harms {
            bounds.reach(model, injector, &harms, (*row, *harm), &mut probes);
        }
        // After a stretch over many entries, intact ones between two damaged ones may be
        // unreachable.
        if let (true, Some(first), Some(last)) = (
            kind.is_stretch(),
            probes.first().copied(),
            probes.last().copied(),
        ) {
            probes.extend(first..=last);
        }
        probes.extend(bounds.tied(model));
        // An intact list of range tombstones answers in place of their index.
        limited &= kind != Kind::StaleAndAnother && ranges != [true; 2];
        bounds.strand(&harms);
        bounds.probes = limited.then_some(probes);
        bounds.lone = limited
            && !equals
            && harms.len() == 1
            && harms.values().all(|harm| harm.own && harm.link.is_none());
        if model.shape.protection == 8
            && changed.values().sum::<u32>() == 1
            && harms.values().any(|harm| harm.own)
        {
            let row = harms.keys().copied().flatten().next();
            let key = row.map(|row| &model.rows[row].key);
            let proved = key.filter(|key| key.len() <= PROVED_MAX);
            bounds.only = proved.map(|key| model.probe(key).into_iter().collect());
        }
        bounds
    }

    /// The effects of damaged range tombstones: only for these keys the index reads a tombstone's
    /// entry.
    fn tied(&self, model: &Model) -> BTreeSet<usize> {
        let is_damaged = |row: &&Row| self.entries.contains(&(row.key.clone(), row.sequence));
        let damaged = model.tombstones.iter().filter(is_damaged);
        let keys = damaged.flat_map(|row| [&row.key, &row.value]);
        keys.filter_map(|key| model.probe(key)).collect()
    }

    /// Finds the parked walks that cannot continue.
    fn strand(&mut self, harms: &BTreeMap<Option<usize>, Harm>) {
        let harm = |row: Option<usize>| harms.get(&row).copied().unwrap_or_default();
        for row in harms
            .iter()
            .filter(|(_, harm)| harm.own)
            .filter_map(|(row, _)| *row)
        {
            let (own, before, after) = (
                harm(Some(row)),
                harm(row.checked_sub(1)),
                harm(Some(row + 1)),
            );
            if own.next || after.own || after.next {
                self.stranded[0].insert(row);
            }
            if own.back || before.own || before.next {
                self.stranded[1].insert(row);
            }
        }
    }

    /// The keys that one damaged entry, or its broken level-0 link, may make uncertain.
    fn reach(
        &mut self,
        model: &Model,
        injector: &FaultInjector<'_>,
        harms: &BTreeMap<Option<usize>, Harm>,
        (row, harm): (Option<usize>, Harm),
        probes: &mut BTreeSet<usize>,
    ) {
        let place = row.and_then(|row| model.probe(&model.rows[row].key));
        if let (true, Some(place)) = (harm.own, place) {
            probes.extend(place.saturating_sub(1)..=place + 2);
            self.in_front.extend(place.checked_sub(2));
        }
        if harm.witness {
            let place = place.unwrap_or(model.probes.len() - 1);
            probes.extend(place.saturating_sub(1)..=place + 2);
            self.in_front.extend(place.checked_sub(2));
        }
        if !harm.next {
            return;
        }
        probes.extend(place.unwrap_or(0)..=place.map_or(1, |place| place + 2));
        // Upper levels lead to the next intact entry that is tall enough. The way back from there
        // ends at the last damaged entry before it.
        // A damaged link of an earlier entry cuts its own level, too.
        let links = harms.range(..=row).filter_map(|(_, harm)| harm.link);
        let levels = links.max().unwrap_or(0) + 2;
        for next in row.map_or(0, |row| row + 1)..model.rows.len() {
            if harms
                .get(&Some(next))
                .is_some_and(|harm| harm.own || harm.back || harm.next)
            {
                let end = model.probe(&model.rows[next].key).unwrap_or(0) + 2;
                probes.extend(place.unwrap_or(0)..=end);
                continue;
            }
            if model.height(injector, next) >= levels {
                return;
            }
        }
        if harms.get(&None).is_some_and(|harm| harm.back) {
            probes.extend(place.unwrap_or(0)..model.probes.len());
        }
    }
}

/// Whether a region is part of an entry that its digests or its header check cover.
fn is_own(region: Region) -> bool {
    matches!(
        region,
        Region::Header | Region::Key | Region::Value | Region::Digests
    )
}

/// Whether a scrub must report the change of a piece.
fn must_find(model: &Model, injector: &FaultInjector<'_>, number: usize, kind: Kind) -> bool {
    let piece = &injector.pieces()[number];
    match piece.region {
        // The index has words that are not in use yet. A back link is a hint, and its tag is short.
        // No answer rests on the directory. A cleared slot watches no tombstone.
        Region::BackLink
        | Region::TombstoneIndex
        | Region::WatchedTombstone
        | Region::Directory => false,
        _ if kind == Kind::StaleAndAnother => false,
        // An upper link that passes over newer nodes costs steps; no answer rests on it.
        Region::Link | Region::HeadLink if kind.is_stale() => piece.level == 0,
        // Without protection bytes only headers and links can be found.
        region => !is_own(region) || model.shape.protection > 0,
    }
}

/// A splitmix generator.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number in `0..bound`; `bound` is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
