//! Which faults there are: every bit in turn, and random ones spread evenly over region and kind.

use paranoid_memtable::{Bytewise, Door, Part, Region};

use super::rng::Rng;

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
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::Flip,
        Kind::Burst,
        Kind::Noise,
        Kind::Zero,
        Kind::SwapLinks,
        Kind::SwapEntries,
        Kind::Copy,
        Kind::ZeroLine,
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
        }
    }
}

/// A row of the report: structure, region, and for links whether they serve an upper level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Area {
    pub part: Part,
    pub region: Region,
    pub upper: bool,
}

impl Area {
    pub fn of(piece: &paranoid_memtable::Piece) -> Area {
        Area { part: piece.part, region: piece.region, upper: piece.level > 0 }
    }

    pub fn name(self) -> String {
        let upper = if self.upper { " (upper)" } else { "" };
        format!("{:?} {:?}{upper}", self.part, self.region).to_lowercase()
    }

    /// Whether it belongs to a filter or to the point index.
    pub fn is_aid(self) -> bool {
        matches!(self.region, Region::FilterWord | Region::IndexSlot | Region::IndexControl)
    }

    pub fn is_link(self) -> bool {
        matches!(self.region, Region::Link | Region::HeadLink)
    }
}

/// Whether a region lies beside the arena: blocks of another shape are not copied there.
fn beside(region: Region) -> bool {
    matches!(region, Region::TombstoneIndex | Region::SortedWord)
}

/// Words of a line of a filter or of the index.
const LINE_WORDS: usize = 8;

/// Where faults of one table can go.
#[derive(Debug, Clone)]
pub struct Map {
    /// Pieces by area.
    pub areas: Vec<(Area, Vec<usize>)>,
    /// (area, kind) that make sense, in a fixed order.
    pub cells: Vec<(usize, Kind)>,
    /// Bits of all pieces that are flipped in turn.
    pub bits: u64,
    lens: Vec<u64>,
    /// Pieces that are flipped in turn.
    turns: Vec<usize>,
    kinds: Vec<Kind>,
}

impl Map {
    pub fn of(door: &Door<'_, Bytewise>, kinds: &[Kind]) -> Map {
        let mut areas: Vec<(Area, Vec<usize>)> = Vec::new();
        for (number, piece) in door.pieces().iter().enumerate() {
            let area = Area::of(piece);
            match areas.iter_mut().find(|(known, _)| *known == area) {
                Some((_, pieces)) => pieces.push(number),
                None => areas.push((area, vec![number])),
            }
        }
        areas.sort();
        let mut cells = Vec::new();
        for (number, (area, _)) in areas.iter().enumerate() {
            for kind in kinds {
                let fits = match kind {
                    Kind::SwapLinks => area.is_link(),
                    Kind::ZeroLine => area.is_aid(),
                    Kind::SwapEntries => area.region == Region::Header,
                    Kind::Copy => area.part != Part::Control && !beside(area.region),
                    _ => true,
                };
                if fits {
                    cells.push((number, *kind));
                }
            }
        }
        let lens: Vec<u64> = door.pieces().iter().map(|piece| piece.len() as u64).collect();
        let turns = (0..lens.len()).collect();
        Map { areas, cells, bits: lens.iter().sum::<u64>() * 8, lens, turns, kinds: kinds.to_vec() }
    }

    /// The map for one more table made in the same way. Lines start at multiples of 64 bytes, so that the words of
    /// filters and index lie elsewhere between entries if the system puts the memory elsewhere.
    fn for_table(&self, door: &Door<'_, Bytewise>) -> Map {
        if !self.areas.iter().any(|(area, _)| area.is_aid()) {
            return self.clone();
        }
        let mut map = Map::of(door, &self.kinds);
        if self.turns.len() < self.lens.len() {
            map = map.aids_only();
        }
        map.cells.clone_from(&self.cells);
        map
    }

    /// The same, but only filters and index are flipped in turn.
    #[must_use]
    pub fn aids_only(mut self) -> Map {
        let aids = self.areas.iter().filter(|(area, _)| area.is_aid());
        self.turns = aids.flat_map(|(_, pieces)| pieces.iter().copied()).collect();
        self.bits = self.bytes(&self.turns) as u64 * 8;
        self
    }

    /// Bytes of these pieces.
    pub fn bytes(&self, pieces: &[usize]) -> usize {
        pieces.iter().map(|piece| self.lens[*piece] as usize).sum()
    }

    /// Flips bit number `bit` of all that are flipped in turn, counted through the pieces. Returns the area.
    pub fn flip_nth(&self, door: &mut Door<'_, Bytewise>, mut bit: u64) -> Area {
        let map = self.for_table(door);
        for number in &map.turns {
            let bits = map.lens[*number] * 8;
            if bit < bits {
                door.flip(*number, bit as usize);
                return Area::of(&door.pieces()[*number]);
            }
            bit -= bits;
        }
        unreachable!("a bit beyond the last piece")
    }

    /// Breaks something of one cell.
    pub fn strike(&self, door: &mut Door<'_, Bytewise>, cell: usize, rng: &mut Rng) -> (Area, Kind) {
        let map = self.for_table(door);
        let (area, kind) = map.cells[cell];
        let (area, pieces) = &map.areas[area];
        let piece = pieces[rng.below(pieces.len())];
        let len = door.pieces()[piece].len();
        match kind {
            Kind::Flip => door.flip(piece, rng.below(len * 8)),
            Kind::Burst => {
                for _ in 0..2 + rng.below(15) {
                    door.flip(piece, rng.below(len * 8));
                }
            }
            Kind::Noise => {
                let bytes: Vec<u8> = (0..1 + rng.below(64)).map(|_| rng.next() as u8).collect();
                door.overwrite(piece, &bytes);
            }
            Kind::Zero => door.zero_word(piece, rng.below(len)),
            Kind::ZeroLine => {
                let first = piece - door.place_in_line(piece);
                (first..first + LINE_WORDS).for_each(|word| door.zero_word(word, 0));
            }
            Kind::SwapLinks => {
                let links = map.areas.iter().filter(|(other, _)| other.is_link() && other.part == area.part);
                let links: Vec<usize> = links.flat_map(|(_, pieces)| pieces.iter().copied()).collect();
                door.swap(piece, links[rng.below(links.len())]);
            }
            Kind::SwapEntries => {
                let owner = door.pieces()[piece].owner.clone();
                let of_owner = |entry: &usize| door.owner(*entry) == owner.as_ref();
                let left = (0..door.entries()).find(of_owner).unwrap_or(0);
                door.swap_entries(left, rng.below(door.entries()));
            }
            Kind::Copy => {
                let arena: Vec<usize> = (0..map.lens.len())
                    .filter(|piece| {
                        let piece = &door.pieces()[*piece];
                        piece.part != Part::Control && !beside(piece.region)
                    })
                    .collect();
                door.copy(arena[rng.below(arena.len())], piece, 8 + rng.below(89));
            }
        }
        (*area, kind)
    }
}
