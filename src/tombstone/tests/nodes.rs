//! Coverage nodes of every size, and which queries they exclude.

#![forbid(unsafe_code)]

use crate::comparator::BYTEWISE;
use crate::integrity::tag::Secret;
use crate::tombstone::index::checks::{Checks, Cover, pair};
use crate::tombstone::index::common_prefix::{CommonPrefix, KeyRange, Probe};
use crate::tombstone::index::log::Log;
use crate::tombstone::index::node::{Builder, CoverageNode, NOBODY, Piece, SequenceSpan};

const COVER: u64 = pair(8, 16);

fn checks() -> Checks {
    Checks::new(Secret::from_seed(1))
}

/// A node whose pieces begin at these prefixes. The last one has no painter.
fn node(prefixes: impl Iterator<Item = u64>) -> CoverageNode {
    let mut builder = Builder::new(checks(), Cover { records: COVER, skip: 0 }, 0);
    let mut prefixes = (0..).zip(prefixes).peekable();
    while let Some((name, prefix)) = prefixes.next() {
        let painter = if prefixes.peek().is_some() { name } else { NOBODY };
        builder.push(Piece { prefix, name, painter });
    }
    builder.finish(SequenceSpan { min: 5, max: 9 })
}

/// QUERY-1, at each bound of a node, and one below and above it.
#[test]
fn a_node_excludes_what_lies_outside_of_its_bounds() {
    let bounds = node([100, 150, 200].into_iter()).head(checks(), COVER).unwrap().bounds;
    for prefix in [0, 99, 100, 101, 199, 200, 201, u64::MAX] {
        for (best, snapshot) in (0..12).flat_map(|best| (0..12).map(move |snapshot| (best, snapshot))) {
            let inside = (100..=200).contains(&prefix) && best < 9 && snapshot >= 5;
            let key = prefix.to_be_bytes();
            let probe = Probe::new(&BYTEWISE, &key);
            assert_eq!(bounds.exclude(&probe, best, snapshot), !inside, "{prefix} {best} {snapshot}");
        }
    }
}

/// Sizes around one block, one line of fences, and one line of outer fences.
#[test]
fn nodes_of_every_size_answer() {
    let range = KeyRange { start: b"a", end: b"b" };
    let log = Log::new(checks(), CommonPrefix::new(checks(), &BYTEWISE, range));
    let sizes = [2..36, 254..275, 510..516, 4080..4130, 4350..4353];
    for len in sizes.into_iter().flatten().step_by(if cfg!(miri) { 40 } else { 1 }) {
        let node = node((1..=len).map(|number| 10 * number));
        node.verify(checks(), COVER).unwrap();
        assert_eq!(node.head(checks(), COVER).unwrap().len, len);
        let (blocks, inner) = (len.div_ceil(16), len.div_ceil(16) - 1);
        assert_eq!(node.allocated_bytes(), 8 * (40 * blocks + inner + inner / 16), "{len}");
        for number in (0..=len).step_by(if len < 40 { 1 } else { 7 }).chain([len]) {
            let key = (10 * number + 5).to_be_bytes();
            let found = node.painter(&log, checks(), COVER, &BYTEWISE, &Probe::new(&BYTEWISE, &key));
            let painter = number.checked_sub(1).filter(|piece| piece + 1 < len);
            assert_eq!(found, Ok(painter.map_or(NOBODY, |piece| piece as u32)), "{number} of {len}");
        }
    }
}

/// A builder that was given no piece makes a node that is whole and answers nothing.
#[test]
fn a_node_without_pieces() {
    let node = node(std::iter::empty());
    assert_eq!((node.verify(checks(), COVER).map(drop), node.allocated_bytes()), (Ok(()), 0));
    assert_eq!((node.stored(0), node.head(checks(), COVER).unwrap().len), (None, 0));
}
