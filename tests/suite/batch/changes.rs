//! Changes of a batch against a model: entries, appended batches, save points, rollbacks, a limit. Lengths that cannot be.

use paranoid_memtable::batch::RangeOrder;
use paranoid_memtable::integrity::Place;
use paranoid_memtable::{Error, Kind, WriteBatch};
use proptest::prelude::*;

use super::{Op, any_op, corruption, ops, oracle};

/// A batch as it should be: the operations, and how many there were at each save point.
#[derive(Default)]
struct Model {
    ops: Vec<Op>,
    save_points: Vec<usize>,
}

/// One change of a batch, with its outcome compared with the model's.
fn change(batch: &mut WriteBatch, model: &mut Model, other: &(Model, WriteBatch), step: u8, op: &Op) {
    let before = batch.as_bytes().to_vec();
    let len = oracle(0, std::slice::from_ref(op)).len() - 12;
    match step {
        0 => {
            batch.set_save_point();
            model.save_points.push(model.ops.len());
        }
        1 => match (batch.rollback_to_save_point(), model.save_points.pop()) {
            (Ok(()), Some(count)) => model.ops.truncate(count),
            (Err(Error::InvalidArgument(_)), None) => {}
            (result, wanted) => panic!("{result:?}, wanted {wanted:?}"),
        },
        2 => assert_eq!(batch.pop_save_point().is_ok(), model.save_points.pop().is_some()),
        3 => {
            let fits = batch.data_size() + other.1.data_size() - 12 <= batch.max_bytes();
            assert_eq!(batch.append(&other.1).is_ok(), fits);
            model.ops.extend(other.0.ops.iter().filter(|_| fits).cloned());
        }
        4 if op.1.is_empty() => {
            batch.clear();
            *model = Model::default();
        }
        _ => match batch.insert(op.0, &op.1, &op.2) {
            Ok(()) => {
                assert!(batch.data_size() <= batch.max_bytes());
                model.ops.push(op.clone());
            }
            Err(Error::BatchFull { needed, max }) => {
                assert_eq!((needed, max), ((before.len() + len) as u64, batch.max_bytes() as u64));
                assert!(needed > max);
                assert_eq!(batch.as_bytes(), before, "a refused entry changes nothing");
            }
            Err(other) => panic!("{other}"),
        },
    }
    assert_eq!(batch.as_bytes(), oracle(batch.sequence(), &model.ops));
    assert_eq!(ops(batch).unwrap(), model.ops);
}

proptest! {
    /// Save points, rollbacks, appended batches and a limit against a list of operations.
    #[test]
    fn changes_follow_a_model(
        steps in prop::collection::vec((0u8..12, any_op()), 0..40),
        theirs in prop::collection::vec(any_op(), 0..4),
        protections in prop::sample::select(vec![(0u8, 0u8), (0, 8), (8, 0), (8, 8)]),
        room in prop::sample::select(vec![0usize, 60, 700, 2000, usize::MAX - 12]),
    ) {
        let empty = |protection| WriteBatch::with_protection(protection).unwrap().with_range_order(RangeOrder::OfTable);
        let mut other = empty(protections.1);
        for (kind, key, value) in &theirs {
            other.insert(*kind, key, value).unwrap();
        }
        let other = (Model { ops: theirs, save_points: vec![] }, other);
        let (mut batch, mut model) = (empty(protections.0).with_max_bytes(12 + room).unwrap(), Model::default());
        batch.set_sequence(7);
        for (step, op) in &steps {
            change(&mut batch, &mut model, &other, *step, op);
        }
    }
}

/// A length that ends too early is reported where it begins, with how much of it is there; an end of a range is a key.
#[test]
fn lengths_that_cannot_be_are_named() {
    let header = [&[0; 8][..], &[1, 0, 0, 0]].concat();
    for there in 1..5 {
        let report = corruption(&[&header[..], &[Kind::PUT.as_u8()], &[0x81; 4][..there]].concat());
        assert_eq!((report.place, report.offset, report.found), (Place::Encoding, 13, there as u64));
    }
    let end = [&[0x80, 0x80, 0x80, 0x08][..], &vec![b'z'; 1 << 24]].concat();
    let range = [&header[..], &[Kind::RANGE_DELETE.as_u8(), 1, b'a'], &end].concat();
    let refused = WriteBatch::from_bytes(&range);
    assert!(matches!(refused, Err(Error::KeyTooLarge { len: 0x100_0000, max: 0xff_ffff })), "{refused:?}");
}
