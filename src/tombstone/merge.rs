//! Builds nodes: paints a block of records, merges two nodes into their parent, and crowns.
//!
//! ```text
//!   older   ----aaaa----cccc--
//!   newer   --bbbbb-----------
//!   parent  --bbbbba----cccc--      piece by piece the larger sequence number; equal neighbours become one
//! ```
//! * M1: every piece of a child is verified as it is read, and the child's digest at its end, before the parent is
//!   published. A damaged child has no parent: readers use what is there (F1).
//! * M2: one step reads at most `STEP_PIECES` pieces, or paints one block.
//! * M3: a block that cannot be painted (a damaged record) is given up, not tried again.
//! * M4: crowns are built while their memory stays small against the nodes', and once by `finish`.
//!
//! Who may call what: a `Merger` lives behind its owner's lock. Readers never see it.

#![forbid(unsafe_code)]

use std::cmp::Ordering as Order;

use super::checks::Checks;
use super::forest::{BLOCK, Crown, Forest, NodeId};
use super::log::{End, boundary, damage, high, low, pair};
use super::skyline::{Builder, NOBODY, Piece, Skyline, join};
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
#[derive(Debug)]
enum Target {
    Node(NodeId),
    /// To be merged with these, the last one first, then published as a crown.
    Crown(Vec<Source>),
}

/// One child under way.
#[derive(Debug)]
struct Side {
    next: Option<Piece>,
    at: u32,
    painter: u32,
    sequence: Option<SequenceNumber>,
    digest: u64,
}

impl Side {
    fn new(skyline: &Skyline, checks: Checks, cover: u64) -> Checked<Side> {
        let next = Some(skyline.piece(checks, cover, 0)?);
        Ok(Side { next, at: 0, painter: NOBODY, sequence: None, digest: 0 })
    }

    /// Enters the next piece.
    fn enter(&mut self, forest: &Forest, (skyline, cover): (&Skyline, u64), piece: Piece) -> Checked<()> {
        self.painter = piece.painter;
        self.sequence = match piece.painter {
            NOBODY => None,
            painter => Some(forest.log.named(painter)?.sequence),
        };
        self.digest = forest.checks.digest(self.digest, piece.prefix, pair(piece.name, piece.painter));
        self.at += 1;
        self.next = match self.at < skyline.len() {
            true => Some(skyline.piece(forest.checks, cover, self.at)?),
            false => None,
        };
        Ok(())
    }
}

/// A merge of two nodes, in steps.
#[derive(Debug)]
struct Job {
    sources: [Source; 2],
    sides: [Side; 2],
    out: Builder,
    cover: u64,
    bounds: (SequenceNumber, SequenceNumber),
    digests: [u64; 2],
    target: Target,
}

impl Job {
    fn start(forest: &Forest, older: Source, newer: Source, target: Target) -> Checked<Job> {
        let checks = forest.checks;
        let (left, left_cover) = older.skyline(forest)?;
        let (right, right_cover) = newer.skyline(forest)?;
        if low(left_cover) != high(right_cover) {
            return Err(damage(left_cover, 0, right_cover));
        }
        let (left_head, right_head) = (left.head(checks, left_cover)?, right.head(checks, right_cover)?);
        let cover = pair(high(left_cover), low(right_cover));
        let sides = [Side::new(left, checks, left_cover)?, Side::new(right, checks, right_cover)?];
        let out = Builder::new(checks, cover, (left.len() + right.len()) as usize);
        let bounds = join((left_head.min, left_head.max), (right_head.min, right_head.max));
        let digests = [left_head.digest, right_head.digest];
        Ok(Job { sources: [older, newer], sides, out, cover, bounds, digests, target })
    }

    /// Reads up to `budget` pieces. Whether that was all.
    fn advance<C: Comparator>(&mut self, forest: &Forest, comparator: &C, budget: u32) -> Checked<Progress> {
        let Job { sources: [older, newer], sides: [left, right], out, digests, .. } = self;
        let (older, newer) = (older.skyline(forest)?, newer.skyline(forest)?);
        let mut budget = budget;
        while budget > 0 {
            let order = match (left.next, right.next) {
                (None, None) if [left.digest, right.digest] == *digests => return Ok(Progress::Idle),
                (None, None) => return Err(damage(0, left.digest ^ right.digest, digests[0] ^ digests[1])),
                (Some(_), None) => Order::Less,
                (None, Some(_)) => Order::Greater,
                (Some(l), Some(r)) if l.prefix == r.prefix => forest.log.tie(comparator, l.name, r.name)?,
                (Some(l), Some(r)) => l.prefix.cmp(&r.prefix),
            };
            let mut place = None;
            if order != Order::Greater
                && let Some(piece) = left.next
            {
                left.enter(forest, older, piece)?;
                place = Some(piece);
                budget = budget.saturating_sub(1);
            }
            if order != Order::Less
                && let Some(piece) = right.next
            {
                right.enter(forest, newer, piece)?;
                place = Some(piece);
                budget = budget.saturating_sub(1);
            }
            if let Some(piece) = place {
                out.push(Piece { painter: winner(left, right), ..piece });
            }
        }
        Ok(Progress::Worked)
    }
}

fn winner(older: &Side, newer: &Side) -> u32 {
    let arrival = planted(Bug::MergePrefersLaterArrival) && newer.sequence.is_some();
    if newer.sequence >= older.sequence || arrival { newer.painter } else { older.painter }
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    /// Blocks before this one are painted or given up.
    next_block: u32,
    /// Records that the newest crown covers, or was to cover: one that failed is not tried again and again.
    crowned: u32,
    job: Option<Box<Job>>,
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
            match paint(forest, comparator, (block.first(), block.last())) {
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
        if self.crowned >= count || blocks * BLOCK == count && blocks.is_power_of_two() {
            return;
        }
        let tail = blocks * BLOCK;
        let mut sources = sources(forest, blocks);
        match paint(forest, comparator, (tail, count)) {
            Ok(Some(skyline)) => sources.push(Source::Own(Box::new(skyline), pair(tail, count))),
            Ok(None) if tail == count => {}
            Ok(None) | Err(_) => return,
        }
        self.start_crown(forest, sources, count);
        while self.grow((forest, comparator), count, u32::MAX) == Progress::Worked {}
    }

    /// Begins a crown over all whole blocks if it is due (M4).
    fn crown(&mut self, forest: &Forest) -> Progress {
        let (blocks, crowned) = (self.next_block, self.crowned / BLOCK);
        let due = blocks >= 3
            && blocks.saturating_sub(crowned) > crowned / 8
            && blocks * BLOCK <= CROWN_RECORDS_MAX
            && self.crowned.is_multiple_of(BLOCK)
            && !blocks.is_power_of_two();
        if !due {
            return Progress::Idle;
        }
        let sources = sources(forest, blocks);
        self.start_crown(forest, sources, blocks * BLOCK);
        Progress::Worked
    }

    fn start_crown(&mut self, forest: &Forest, mut sources: Vec<Source>, covered: u32) {
        self.crowned = covered;
        match (sources.pop(), sources.pop()) {
            (Some(newer), Some(older)) => self.start(forest, older, newer, Target::Crown(sources)),
            (Some(Source::Own(skyline, _)), None) => {
                forest.publish_crown(Crown { skyline: *skyline, covered });
            }
            _ => {}
        }
    }

    /// Begins a merge, unless a child is missing or damaged (M1).
    fn start(&mut self, forest: &Forest, older: Source, newer: Source, target: Target) {
        self.job = Job::start(forest, older, newer, target).ok().map(Box::new);
    }

    fn complete(&mut self, forest: &Forest, job: Job) {
        let skyline = job.out.finish(job.bounds);
        match job.target {
            Target::Node(id) => self.publish(forest, id, skyline),
            Target::Crown(mut older) => match older.pop() {
                None => forest.publish_crown(Crown { skyline, covered: low(job.cover) }),
                Some(next) => {
                    let own = Source::Own(Box::new(skyline), job.cover);
                    self.start(forest, next, own, Target::Crown(older));
                }
            },
        }
    }

    /// Publishes a node and, if it was the younger of two, begins the parent.
    fn publish(&mut self, forest: &Forest, id: NodeId, skyline: Skyline) {
        forest.publish_node(id, skyline);
        if id.index.is_multiple_of(2) {
            return;
        }
        let sibling = NodeId { index: id.index - 1, ..id };
        if forest.node(sibling).is_none() {
            return;
        }
        let parent = NodeId { level: id.level + 1, index: id.index / 2 };
        self.start(forest, Source::Node(sibling), Source::Node(id), Target::Node(parent));
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

/// One boundary of a block, with its key's place in a common buffer.
struct Edge {
    prefix: u64,
    key: (usize, usize),
    name: u32,
}

/// Paints records `first..last`. Nothing if there are none, or one of them is still being written.
fn paint<C: Comparator>(
    forest: &Forest,
    comparator: &C,
    (first, last): (u32, u32),
) -> Checked<Option<Skyline>> {
    let mut keys = Vec::new();
    let mut edges = Vec::new();
    let mut sequences = Vec::new();
    for index in first..last {
        let Some(record) = forest.log.record(index)? else {
            if planted(Bug::PaintSkipsPending) {
                sequences.push(0);
                continue;
            }
            return Ok(None);
        };
        sequences.push(record.sequence);
        for end in [End::Start, End::Stop] {
            let at = keys.len();
            forest.log.with_key(&record, end, |key| keys.extend_from_slice(key))?;
            let (prefix, key) = (record.prefix(end), (at, keys.len()));
            edges.push(Edge { prefix, key, name: boundary(index, end) });
        }
    }
    let Some(bounds) = sequences.iter().map(|&sequence| (sequence, sequence)).reduce(join) else {
        return Ok(None);
    };
    let key = |edge: &Edge| keys.get(edge.key.0..edge.key.1).unwrap_or_default();
    let order = |left: &Edge, right: &Edge| {
        left.prefix.cmp(&right.prefix).then_with(|| comparator.compare(key(left), key(right)))
    };
    edges.sort_unstable_by(order);
    let mut out = Builder::new(forest.checks, pair(first, last), edges.len());
    let mut active: Vec<(SequenceNumber, u32)> = Vec::new();
    for same in edges.chunk_by(|left, right| order(left, right) == Order::Equal) {
        for edge in same {
            let index = edge.name >> 1;
            match super::log::end_of(edge.name) {
                End::Start => active.extend(sequences.get((index - first) as usize).map(|&s| (s, index))),
                End::Stop => active.retain(|&(_, other)| other != index),
            }
        }
        let painter = active.iter().max().map_or(NOBODY, |&(_, index)| index);
        if let Some(edge) = same.first() {
            out.push(Piece { prefix: edge.prefix, name: edge.name, painter });
        }
    }
    Ok(Some(out.finish(bounds)))
}
