//! The orders that tables are tested under, each with a second definition for the model.

use std::cmp::Ordering;

use paranoid_memtable::comparator::KeyEquality;
use paranoid_memtable::{Bytewise, Comparator};

/// An order with a second, plain definition for the model.
pub trait Order: Comparator + Copy + Default {
    fn plainly(left: &[u8], right: &[u8]) -> Ordering;
}

impl Order for Bytewise {
    fn plainly(left: &[u8], right: &[u8]) -> Ordering {
        left.iter().cmp(right.iter())
    }
}

/// Bytewise, backwards.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reverse;

impl Comparator for Reverse {
    const EQUALITY: KeyEquality = KeyEquality::Bytes;

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        right.cmp(left)
    }
}

impl Order for Reverse {
    fn plainly(left: &[u8], right: &[u8]) -> Ordering {
        right.iter().cmp(left.iter())
    }
}

/// ASCII letters that differ in case are equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct CaseBlind;

impl Comparator for CaseBlind {
    const EQUALITY: KeyEquality = KeyEquality::Custom;

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        let lower = |byte: &u8| byte.to_ascii_lowercase();
        left.iter().map(lower).cmp(right.iter().map(lower))
    }
}

impl Order for CaseBlind {
    fn plainly(left: &[u8], right: &[u8]) -> Ordering {
        left.to_ascii_lowercase().cmp(&right.to_ascii_lowercase())
    }
}
