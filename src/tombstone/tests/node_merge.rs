//! Tests of merges: which children a merge takes.

#![forbid(unsafe_code)]

use crate::halves::pair;
use crate::tombstone::node_merge::NodeMerge;
use crate::tombstone::tests::tree_builder::OneRange;
use crate::tombstone::tree::{BLOCK, Child, NodeId};

/// The children of a merge are adjacent, and there are at most 64.
#[test]
fn a_merge_refuses_gaps_and_too_many() {
    let mut parts = OneRange::new();
    parts.push(65 * BLOCK);
    parts.merge_all();
    let start = |blocks: &[u32]| {
        let children = blocks
            .iter()
            .map(|&index| Child::Node(NodeId { level: 0, index }))
            .collect();
        NodeMerge::start(&parts.tree, children, None).map(|merge| merge.out.cover.records)
    };
    assert_eq!(start(&[3, 4, 5]), Ok(pair(3 * BLOCK, 6 * BLOCK)));
    for refused in [&[3, 5][..], &[4, 3], &[3, 3], &[]] {
        assert!(start(refused).is_err(), "{refused:?}");
    }
    let all: Vec<u32> = (0..65).collect();
    assert_eq!(start(&all[1..]), Ok(pair(BLOCK, 65 * BLOCK)));
    assert!(start(&all).is_err());
}
