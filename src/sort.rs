//! The one sort of the crate. It sorts the places of items by an order that it calls through a
//! pointer, so its code is compiled once, whatever the items are.

#![forbid(unsafe_code)]

use std::cmp::Ordering;

/// The items in this order. Equal items may change places. O(n log n).
pub(crate) fn sorted_by<T: Clone>(items: &[T], order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    let places = sorted_places(items.len(), &|left, right| {
        order(&items[left], &items[right])
    });
    places.iter().map(|place| items[*place].clone()).collect()
}

#[inline(never)]
fn sorted_places(count: usize, order: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_unstable_by(|left, right| order(*left, *right));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_the_order_asked_for() {
        let items: Vec<u64> = (0..1000).map(|at| at * 7919 % 1009).collect();
        let mut expected = items.clone();
        expected.sort_unstable();
        assert_eq!(sorted_by(&items, Ord::cmp), expected);
        expected.reverse();
        assert_eq!(sorted_by(&items, |left, right| right.cmp(left)), expected);
        assert!(sorted_by(&[] as &[u64], Ord::cmp).is_empty());
    }
}
