//! Kinds: what each number means, and what it is called. Images of an order that has none.

use paranoid_memtable::{Bytewise, KeyOrder};
use paranoid_memtable::{Comparator, Kind};

use crate::support::orders::CaseBlind;

/// Name and meaning of a kind, from the table in the documents.
fn listed(number: u8) -> (String, &'static str) {
    match number {
        0 => ("DELETE".to_owned(), "point delete"),
        1 => ("PUT".to_owned(), "value"),
        2 => ("MERGE".to_owned(), "neither"),
        7 => ("SINGLE_DELETE".to_owned(), "point delete"),
        15 => ("RANGE_DELETE".to_owned(), "neither"),
        0x80..0xc0 => (format!("custom({})", number - 0x80), "value"),
        0xc0.. => (format!("custom_delete({})", number - 0xc0), "point delete"),
        _ => (format!("Kind({number:#04x})"), "unknown"),
    }
}

#[test]
fn every_kind_is_what_its_number_says() {
    for number in 0..=u8::MAX {
        let (kind, (name, meaning)) = (Kind::from_u8(number), listed(number));
        assert_eq!((kind.as_u8(), format!("{kind:?}")), (number, name));
        assert_eq!(kind.is_value(), meaning == "value", "{kind:?}");
        assert_eq!(kind.is_point_delete(), meaning == "point delete", "{kind:?}");
        assert_eq!(kind.is_known(), meaning != "unknown", "{kind:?}");
        assert_eq!(kind.custom_number(), (number >= 0x80).then_some(number % 64), "{kind:?}");
    }
    let named = [Kind::DELETE, Kind::PUT, Kind::MERGE, Kind::SINGLE_DELETE, Kind::RANGE_DELETE];
    assert_eq!(named.map(Kind::as_u8), [0, 1, 2, 7, 15]);
}

#[test]
fn an_engine_has_64_kinds_of_each_sort() {
    assert_eq!(Kind::CUSTOM_COUNT, 64);
    for number in 0..64 {
        assert_eq!(Kind::custom(number).as_u8(), 0x80 + number);
        assert_eq!(Kind::custom_delete(number).as_u8(), 0xc0 + number);
    }
    for make in [Kind::custom, Kind::custom_delete] {
        assert!(std::panic::catch_unwind(|| make(64)).is_err());
    }
}

#[test]
fn an_order_without_images_gives_all_keys_the_same() {
    assert_eq!(CaseBlind.key_order(), KeyOrder::Custom);
    for key in [&b""[..], b"a", &[0xff; 9]] {
        assert_eq!([0, 1, 8, 9].map(|at| CaseBlind.image(key, at)), [0; 4]);
    }
}

#[test]
fn the_image_of_bytes_in_order_is_the_key_and_zeros() {
    let image = |key: &[u8], at| Bytewise.image(key, at).to_be_bytes();
    assert_eq!((image(b"abcdefghij", 1), image(b"abc", 1)), (*b"bcdefghi", *b"bc\0\0\0\0\0\0"));
    assert_eq!((image(b"abc", 3), image(b"", 9)), ([0; 8], [0; 8]));
}
