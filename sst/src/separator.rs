//! Separators: short keys between two blocks, by RocksDB's rule for bytewise order.
//!
//! ```text
//!   last key A of a block, first key B of the next:   A <= separator < B
//!   apple | apricot  ->  app + one more than `l`, cut: "appm"
//! ```
//! Pure functions; any thread.

use crate::internal_key::{SEEK_KIND, SEQUENCE_MAX, TAIL_LEN, pack, split, user_key};

/// A user key at or after `from` and before `to`, no longer than `from`. `None`: only `from` itself
/// separates them.
pub(crate) fn short_separator(from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let first = from.iter().zip(to).position(|(from, to)| from != to)?;
    let (low, high) = (from[first], to[first]);
    if low >= high {
        return None;
    }
    if first + 1 < to.len() || low + 1 < high {
        let mut cut = from[..=first].to_vec();
        cut[first] = low + 1;
        return Some(cut);
    }
    let raised = first + 1 + from[first + 1..].iter().position(|byte| *byte != 0xff)?;
    let mut cut = from[..=raised].to_vec();
    cut[raised] += 1;
    Some(cut)
}

/// A user key at or after `key`, no longer than `key`. `None`: all its bytes are 0xff.
pub(crate) fn short_successor(key: &[u8]) -> Option<Vec<u8>> {
    let first = key.iter().position(|byte| *byte != 0xff)?;
    let mut cut = key[..=first].to_vec();
    cut[first] += 1;
    Some(cut)
}

/// The internal key `last`, or a shorter one that is still before `next`. Without a next key, any
/// key after `last` will do.
pub(crate) fn separator(last: &[u8], next: Option<&[u8]>) -> Vec<u8> {
    let from = user_key(last);
    let short = match next {
        Some(next) => short_separator(from, user_key(next)),
        None => short_successor(from),
    };
    match short {
        Some(mut short) if short.len() <= from.len() && short.as_slice() > from => {
            short.reserve(TAIL_LEN);
            short.extend_from_slice(&pack(SEQUENCE_MAX, SEEK_KIND).to_le_bytes());
            short
        }
        _ => last.to_vec(),
    }
}

/// Whether two internal keys are versions of one user key.
pub(crate) fn same_user_key(left: &[u8], right: &[u8]) -> bool {
    matches!((split(left), split(right)), (Some((left, _)), Some((right, _))) if left == right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_stand_between() {
        type Case<'a> = (&'a [u8], &'a [u8], Option<&'a [u8]>);
        let cases: [Case<'_>; 9] = [
            (b"apple", b"apricot", Some(b"apq")),
            (b"abc", b"abd", None),
            (b"abcx", b"abd", Some(b"abcy")),
            (b"abc", b"abdx", Some(b"abd")),
            (b"abc\xff\xff", b"abd", None),
            (b"abc\xff\x01", b"abd", Some(b"abc\xff\x02")),
            (b"ab", b"abc", None),
            (b"a", b"d", Some(b"b")),
            (b"", b"d", None),
        ];
        for (from, to, want) in cases {
            assert_eq!(
                short_separator(from, to).as_deref(),
                want,
                "{from:?} {to:?}"
            );
        }
        assert_eq!(
            short_successor(b"\xff\xffabc").as_deref(),
            Some(&b"\xff\xffb"[..])
        );
        assert_eq!(short_successor(b"\xff\xff"), None);
    }
}
