//! Builds nodes: paints a block of records, merges nodes into their parent, and crowns.
//!
//! ```text
//!   older   ----aaaa----cccc--
//!   newer   --bbbbb-----------
//!   parent  --bbbbba----cccc--      piece by piece the larger sequence number; equal neighbours become one
//! ```
//! * M1: every piece of a child goes into a digest as it is read, and the child's own digest, which its head's check
//!   binds to what it covers, must be the same before the parent is published. A damaged child has no parent: readers
//!   use what is there (F1).
//! * M2: one step reads at most `STEP_PIECES` pieces, or paints one block.
//! * M3: a block that cannot be painted (a damaged record) is given up, not tried again.
//! * M4: crowns are built while their memory stays small against the nodes', and once by `finish`.
//!
//! Who may call what: a `Merger` lives behind its owner's lock. Readers never see it.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;
use std::ops::Range;

use super::checks::Checks;
use super::forest::{BLOCK, Crown, Forest, NodeId};
use super::log::{End, Log, boundary, damage, end_of, high, low, pair};
use super::skyline::{Buffers, Builder, Columns, Head, NOBODY, Piece, Skyline, join};
use crate::error::Corruption;
use crate::invariants::{Bug, planted};
use crate::key::{Comparator, SequenceNumber};

/// Most pieces that one step reads.
pub(crate) const STEP_PIECES: u32 = 256;
/// Beyond this many records a crown is built only by `finish` (M4).
const CROWN_RECORDS_MAX: u32 = 1 << 14;

type Checked<T> = std::result::Result<T, Corruption>;

/// What a step found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Worked,
    Idle,
}

/// Where a node to be merged is.
#[derive(Debug)]
enum Source {
    Node(NodeId),
    Crown,
    Own(Box<Skyline>, u64),
}

impl Source {
    fn skyline<'a>(&'a self, forest: &'a Forest) -> Checked<(&'a Skyline, u64)> {
        let found = match self {
            Source::Node(id) => forest.node(*id).map(|skyline| (skyline, id.cover())),
            Source::Crown => forest.crown().map(|crown| (&crown.skyline, pair(0, crown.covered))),
            Source::Own(skyline, cover) => Some((&**skyline, *cover)),
        };
        found.ok_or_else(|| damage(0, 0, 0))
    }
}

/// What becomes of the result.
#[derive(Debug, Clone, Copy)]
enum Target {
    Node(NodeId),
    Crown,
}

/// Whose pieces are newer where two sides are painted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newest {
    /// The later side's: so said the sides' bounds.
    Later,
    /// The one with the larger sequence number.
    BySequence,
}

/// One child under way.
#[derive(Debug)]
struct Side {
    source: usize,
    /// The next piece: where it stands, where it begins, its name and painter.
    at: u32,
    prefix: u64,
    refs: u64,
    /// Who paints now.
    painter: u32,
    sequence: Option<SequenceNumber>,
    digest: u64,
    head: Head,
}

impl Side {
    fn new(source: usize, head: Head, columns: Columns<'_>) -> Checked<Side> {
        let (prefix, refs) = columns.stored(0).ok_or_else(|| damage(0, 0, 0))?;
        Ok(Side { source, at: 0, prefix, refs, painter: NOBODY, sequence: None, digest: 0, head })
    }

    /// Enters the next piece. Nothing is left behind the last one, which nobody paints (K1).
    #[inline(always)]
    fn enter(
        &mut self,
        log: &Log,
        checks: Checks,
        columns: Columns<'_>,
        newest: Newest,
    ) -> Checked<Progress> {
        self.painter = low(self.refs);
        if newest == Newest::BySequence {
            self.sequence = match self.painter {
                NOBODY => None,
                painter => Some(log.named(painter)?.sequence),
            };
        }
        self.digest = checks.digest(self.digest, self.prefix, self.refs);
        self.at += 1;
        match columns.stored(self.at) {
            Some((prefix, refs)) if u64::from(self.at) < self.head.len => {
                (self.prefix, self.refs) = (prefix, refs);
                Ok(Progress::Worked)
            }
            _ if self.digest == self.head.digest => Ok(Progress::Idle),
            _ => Err(damage(u64::from(self.at), self.head.digest, self.digest)),
        }
    }
}

/// A merge of nodes, in steps.
#[derive(Debug)]
struct Job {
    sources: Vec<Source>,
    /// Those that have pieces left, oldest first.
    sides: Vec<Side>,
    newest: Newest,
    out: Builder,
    cover: u64,
    bounds: (SequenceNumber, SequenceNumber),
    target: Target,
}

impl Job {
    /// `sources` lie side by side, oldest first, at most 64.
    fn start(forest: &Forest, sources: Vec<Source>, target: Target, buffers: Buffers) -> Checked<Job> {
        let checks = forest.checks;
        let mut sides: Vec<Side> = Vec::with_capacity(sources.len());
        let (mut first, mut last, mut pieces) = (None, 0, 0);
        let mut newest = Newest::Later;
        for (number, source) in sources.iter().enumerate() {
            let (skyline, cover) = source.skyline(forest)?;
            let head = skyline.head(checks, cover)?;
            if first.is_some() && last != high(cover) || number >= 64 {
                return Err(damage(u64::from(last), 0, cover));
            }
            if sides.last().is_some_and(|older| older.head.max > head.min) {
                newest = Newest::BySequence;
            }
            first = first.or(Some(high(cover)));
            last = low(cover);
            let columns = skyline.columns()?;
            pieces += usize::try_from(head.len).unwrap_or(0);
            sides.push(Side::new(number, head, columns)?);
        }
        let bounds = sides.iter().map(|side| (side.head.min, side.head.max)).reduce(join);
        let (Some(first), Some(bounds)) = (first, bounds) else { return Err(damage(0, 0, 0)) };
        let cover = pair(first, last);
        let out = Builder::new(checks, cover, buffers, pieces);
        Ok(Job { sources, sides, newest, out, cover, bounds, target })
    }

    /// Reads up to `budget` pieces, or a few more of one key. Whether that was all.
    fn advance<C: Comparator>(&mut self, forest: &Forest, comparator: &C, budget: u32) -> Checked<Progress> {
        let Job { sources, sides, out, newest, .. } = self;
        let mut columns = Vec::with_capacity(sides.len());
        for side in sides.iter() {
            let source = sources.get(side.source).ok_or_else(|| damage(0, 0, 0))?;
            columns.push(source.skyline(forest)?.0.columns()?);
        }
        let mut budget = budget;
        while budget > 0 {
            let Some((at, prefix)) = first_of(sides) else { return Ok(Progress::Idle) };
            let ties = if sides.iter().skip(at + 1).any(|side| side.prefix == prefix) {
                ties(&forest.log, comparator, sides, (at, prefix))?
            } else {
                1 << at
            };
            let name = sides.get(at_of(ties)).map_or(0, |side| high(side.refs));
            let mut left = ties;
            // The last one first: a side that is removed moves those behind it.
            while left != 0 {
                let at = 63 - left.leading_zeros() as usize;
                left &= !(1 << at);
                let (Some(side), Some(own)) = (sides.get_mut(at), columns.get(at)) else { continue };
                if side.enter(&forest.log, forest.checks, *own, *newest)? == Progress::Idle {
                    sides.remove(at);
                    columns.remove(at);
                }
                budget = budget.saturating_sub(1);
            }
            out.push(Piece { prefix, name, painter: winner(sides, *newest) });
        }
        Ok(Progress::Worked)
    }
}

/// The first side with the smallest prefix.
#[inline(always)]
fn first_of(sides: &[Side]) -> Option<(usize, u64)> {
    let mut sides = sides.iter().enumerate();
    let (_, first) = sides.next()?;
    let mut least = (0, first.prefix);
    for (at, side) in sides {
        if side.prefix < least.1 {
            least = (at, side.prefix);
        }
    }
    Some(least)
}

/// Which of the sides that have this prefix, the first one at `at`, come first: a bit a side.
#[cold]
fn ties<C: Comparator>(
    log: &Log,
    comparator: &C,
    sides: &[Side],
    (at, prefix): (usize, u64),
) -> Checked<u64> {
    let mut first = 1 << at;
    for (other, side) in sides.iter().enumerate().skip(at + 1).filter(|(_, side)| side.prefix == prefix) {
        let known = sides.get(at_of(first)).map_or(0, |side| high(side.refs));
        match log.tie(comparator, high(side.refs), known)? {
            Order::Less => first = 1 << other,
            Order::Equal => first |= 1 << other,
            Order::Greater => {}
        }
    }
    Ok(first)
}

/// The first side of a set.
fn at_of(sides: u64) -> usize {
    sides.trailing_zeros() as usize
}

/// Who paints where all sides say something.
#[inline(always)]
fn winner(sides: &[Side], newest: Newest) -> u32 {
    let mut painted = sides.iter().filter(|side| side.painter != NOBODY);
    let winner = match newest {
        Newest::BySequence if !planted(Bug::MergePrefersLaterArrival) => {
            painted.max_by_key(|side| side.sequence)
        }
        _ => painted.next_back(),
    };
    winner.map_or(NOBODY, |side| side.painter)
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    /// Blocks before this one are painted or given up.
    next_block: u32,
    /// Records that the newest crown covers, or was to cover: one that failed is not tried again and again.
    crowned: u32,
    job: Option<Box<Job>>,
    buffers: Buffers,
}

impl Merger {
    /// Does one piece of work (M2) for a log of `count` records.
    pub(crate) fn step<C: Comparator>(
        &mut self,
        (forest, comparator): (&Forest, &C),
        count: u32,
        budget: u32,
    ) -> Progress {
        match self.grow((forest, comparator), count, budget) {
            Progress::Worked => Progress::Worked,
            Progress::Idle => self.crown(forest),
        }
    }

    /// A step of the tree and of a crown that was begun.
    fn grow<C: Comparator>(
        &mut self,
        (forest, comparator): (&Forest, &C),
        count: u32,
        budget: u32,
    ) -> Progress {
        if let Some(mut job) = self.job.take() {
            match job.advance(forest, comparator, budget) {
                Ok(Progress::Worked) => self.job = Some(job),
                Ok(Progress::Idle) => self.complete(forest, *job),
                Err(_) => {} // M1
            }
            return Progress::Worked;
        }
        let block = NodeId { level: 0, index: self.next_block };
        if block.last() <= count {
            match self.paint(forest, comparator, (block.first(), block.last())) {
                Ok(Some(skyline)) => {
                    self.next_block += 1;
                    self.publish(forest, block, skyline);
                }
                // A record is still being written: whoever writes it comes by here afterwards.
                Ok(None) => return Progress::Idle,
                Err(_) => self.next_block += 1, // M3
            }
            return Progress::Worked;
        }
        Progress::Idle
    }

    /// Builds everything that can be built for `count` records, at last one node over all of them. No crown in between.
    pub(crate) fn finish<C: Comparator>(&mut self, (forest, comparator): (&Forest, &C), count: u32) {
        while self.grow((forest, comparator), count, u32::MAX) == Progress::Worked {}
        let blocks = count / BLOCK;
        if self.crowned >= count || blocks * BLOCK == count && NodeId::one_covers(blocks) {
            return;
        }
        let tail = blocks * BLOCK;
        let mut sources = sources(forest, blocks);
        match self.paint(forest, comparator, (tail, count)) {
            Ok(Some(skyline)) => sources.push(Source::Own(Box::new(skyline), pair(tail, count))),
            Ok(None) if tail == count => {}
            Ok(None) | Err(_) => return,
        }
        self.start_crown(forest, sources, count);
        while self.grow((forest, comparator), count, u32::MAX) == Progress::Worked {}
        self.buffers = Buffers::default();
    }

    /// A node over records `first..last` of one block. Nothing if there are none, or one of them is still being written.
    fn paint<C: Comparator>(
        &mut self,
        forest: &Forest,
        comparator: &C,
        (first, last): (u32, u32),
    ) -> Checked<Option<Skyline>> {
        let Some(canvas) = Canvas::read(forest, comparator, first..last)? else { return Ok(None) };
        let buffers = std::mem::take(&mut self.buffers);
        let (skyline, buffers) = canvas.paint(Builder::new(forest.checks, pair(first, last), buffers, EDGES));
        self.buffers = buffers;
        Ok(Some(skyline))
    }

    /// Begins a crown over all whole blocks if it is due (M4).
    fn crown(&mut self, forest: &Forest) -> Progress {
        let (blocks, crowned) = (self.next_block, self.crowned / BLOCK);
        let due = blocks >= 3
            && blocks.saturating_sub(crowned) > crowned / 8
            && blocks * BLOCK <= CROWN_RECORDS_MAX
            && self.crowned.is_multiple_of(BLOCK)
            && !NodeId::one_covers(blocks);
        if !due {
            return Progress::Idle;
        }
        let sources = sources(forest, blocks);
        self.start_crown(forest, sources, blocks * BLOCK);
        Progress::Worked
    }

    fn start_crown(&mut self, forest: &Forest, mut sources: Vec<Source>, covered: u32) {
        self.crowned = covered;
        match sources.pop() {
            Some(Source::Own(skyline, _)) if sources.is_empty() => {
                forest.publish_crown(Crown { skyline: *skyline, covered });
            }
            Some(newest) if !sources.is_empty() => {
                sources.push(newest);
                self.start(forest, sources, Target::Crown);
            }
            _ => {}
        }
    }

    /// Begins a merge, unless a child is missing or damaged (M1).
    fn start(&mut self, forest: &Forest, sources: Vec<Source>, target: Target) {
        let buffers = std::mem::take(&mut self.buffers);
        self.job = Job::start(forest, sources, target, buffers).ok().map(Box::new);
    }

    fn complete(&mut self, forest: &Forest, job: Job) {
        let (skyline, buffers) = job.out.finish(job.bounds);
        self.buffers = buffers;
        match job.target {
            Target::Node(id) => self.publish(forest, id, skyline),
            Target::Crown => forest.publish_crown(Crown { skyline, covered: low(job.cover) }),
        }
    }

    /// Publishes a node and, if it was the youngest child, begins the parent.
    fn publish(&mut self, forest: &Forest, id: NodeId, skyline: Skyline) {
        forest.publish_node(id, skyline);
        if let Some(parent) = id.completes()
            && parent.children().all(|child| forest.node(child).is_some())
        {
            self.start(forest, parent.children().map(Source::Node).collect(), Target::Node(parent));
        }
    }
}

/// Nodes that cover `blocks` blocks, oldest first: the newest crown, if it covers whole blocks, then younger nodes.
fn sources(forest: &Forest, blocks: u32) -> Vec<Source> {
    let crowned = forest.crown().map_or(0, |crown| crown.covered);
    let usable = crowned > 0 && crowned.is_multiple_of(BLOCK) && crowned / BLOCK <= blocks;
    let from = if usable { crowned / BLOCK } else { 0 };
    let mut sources: Vec<Source> = NodeId::decompose(from, blocks).map(Source::Node).collect();
    sources.extend(usable.then_some(Source::Crown));
    sources.reverse();
    sources
}

/// Ends of the records of a block.
const EDGES: usize = 2 * BLOCK as usize;

/// One boundary of a block. Those with equal prefixes are told apart by rank.
#[derive(Debug, Clone, Copy, Default)]
struct Edge {
    prefix: u64,
    rank: u32,
    name: u32,
}

/// The records of a block, verified, and their ends in order.
#[derive(Debug)]
struct Canvas {
    first: u32,
    sequences: [SequenceNumber; BLOCK as usize],
    edges: [Edge; EDGES],
    ends: usize,
    bounds: (SequenceNumber, SequenceNumber),
}

impl Canvas {
    /// Reads at most a block. Nothing if there is nothing, or a record is still being written.
    fn read<C: Comparator>(forest: &Forest, comparator: &C, records: Range<u32>) -> Checked<Option<Canvas>> {
        let first = records.start;
        let (mut sequences, mut edges, mut ends) = ([0; BLOCK as usize], [Edge::default(); EDGES], 0);
        let mut bounds = None;
        for (index, sequence) in records.zip(&mut sequences) {
            let Some(record) = forest.log.record(index)? else {
                if planted(Bug::PaintSkipsPending) {
                    continue;
                }
                return Ok(None);
            };
            *sequence = record.sequence;
            let own = (record.sequence, record.sequence);
            bounds = Some(bounds.map_or(own, |bounds| join(bounds, own)));
            for (end, edge) in [End::Start, End::Stop].into_iter().zip(edges.iter_mut().skip(ends)) {
                *edge = Edge { prefix: record.prefix(end), rank: 0, name: boundary(index, end) };
            }
            ends += 2;
        }
        let Some(bounds) = bounds else { return Ok(None) };
        let known = edges.get_mut(..ends).unwrap_or_default();
        known.sort_unstable_by_key(|edge| edge.prefix);
        for same in
            known.chunk_by_mut(|left, right| left.prefix == right.prefix).filter(|same| same.len() > 1)
        {
            rank(&forest.log, comparator, same)?;
        }
        Ok(Some(Canvas { first, sequences, edges, ends, bounds }))
    }

    /// Sweeps over the ends: who paints where.
    fn paint(&self, mut out: Builder) -> (Skyline, Buffers) {
        // A bit a record.
        let mut active = 0u64;
        let edges = self.edges.get(..self.ends).unwrap_or_default();
        for same in edges.chunk_by(|left, right| (left.prefix, left.rank) == (right.prefix, right.rank)) {
            for edge in same {
                active ^= 1 << ((edge.name >> 1) - self.first);
            }
            let records = (self.first..).zip(&self.sequences).zip(0u32..);
            let painted = records.filter(|(_, bit)| active >> bit & 1 == 1).map(|(record, _)| record);
            let painter = painted.max_by_key(|&(index, sequence)| (sequence, index));
            let painter = painter.map_or(NOBODY, |(index, _)| index);
            if let Some(edge) = same.first() {
                out.push(Piece { prefix: edge.prefix, name: edge.name, painter });
            }
        }
        out.finish(self.bounds)
    }
}

/// Sorts ends with equal prefixes by their keys, which are verified, and numbers the keys.
#[cold]
fn rank<C: Comparator>(log: &Log, comparator: &C, same: &mut [Edge]) -> Checked<()> {
    let mut keys = Vec::new();
    let mut known = Vec::with_capacity(same.len());
    for edge in same.iter() {
        let (from, record) = (keys.len(), log.named(edge.name >> 1)?);
        log.with_key(&record, end_of(edge.name), |key| keys.extend_from_slice(key))?;
        known.push((from..keys.len(), *edge));
    }
    let key = |range: &Range<usize>| keys.get(range.clone()).unwrap_or_default();
    known.sort_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)));
    let runs = known.chunk_by(|(left, _), (right, _)| comparator.compare(key(left), key(right)).is_eq());
    let ranked =
        runs.zip(0u32..).flat_map(|(run, rank)| run.iter().map(move |(_, edge)| Edge { rank, ..*edge }));
    same.iter_mut().zip(ranked).for_each(|(edge, ranked)| *edge = ranked);
    Ok(())
}
