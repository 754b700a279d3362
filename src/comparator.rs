//! Comparators of user keys: the trait, the order of bytes, and the type through which tables
//! compare.
//!
//! ```text
//!   KeyComparator   order of bytes   one branch, then a comparison that is inlined
//!                   any other        that branch, then a virtual call
//! ```
//! Any thread.

#![forbid(unsafe_code)]

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Whether two keys that compare equal are always byte-for-byte identical. Filters need that.
///
/// ```
/// use paranoid_memtable::{Bytewise, Comparator, KeyEquality};
/// assert_eq!(Bytewise.equality(), KeyEquality::Bytes);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEquality {
    /// Two keys are equal exactly if their bytes are equal.
    Bytes,
    /// Different bytes may compare equal. Tables with this order refuse filters.
    Custom,
}

/// How the bytes of keys determine their order.
///
/// ```
/// use paranoid_memtable::{Bytewise, Comparator, KeyOrder};
/// assert_eq!(Bytewise.key_order(), KeyOrder::Bytes);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// Keys are ordered by their bytes, like slices in Rust and `memcmp`. Tables then compare bytes
    /// and do not call [`Comparator::compare`].
    Bytes,
    /// Keys whose images ([`Comparator::image`]) differ are ordered by the bytes of these. Tables
    /// can have a directory.
    Images,
    /// Any other order.
    Custom,
}

/// A named order of user keys: see
/// [`MemTableOptionsBuilder::comparator`](crate::MemTableOptionsBuilder::comparator). It must be a
/// total order that never changes. A comparator that contradicts itself makes answers meaningless,
/// but causes no undefined behaviour and no endless loop. Calls that sort keys (freeze, flush,
/// salvage, `multi_get`, batches) may panic, because the standard library's sort may notice it.
///
/// Threads share a table, so a comparator is `Send` and `Sync`: one in an `Rc`, or with a `Cell`,
/// cannot be used.
///
/// A comparator may panic. The panic reaches the caller, and the entry that was being written may
/// or may not be in the table. A comparator may read and write the table that it orders, but it may
/// recurse without end if it does so in every comparison. If it freezes that table inside a write,
/// the freeze is `InvalidArgument`.
///
/// ```
/// use paranoid_memtable::{Bytewise, Comparator, KeyEquality, KeyOrder, MemTable, MemTableOptions};
/// use std::cmp::Ordering;
/// use std::sync::Arc;
///
/// #[derive(Debug)]
/// struct Reverse;
/// impl Comparator for Reverse {
///     fn name(&self) -> &str {
///         "example.Reverse"
///     }
///     fn equality(&self) -> KeyEquality {
///         KeyEquality::Bytes
///     }
///     fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
///         right.cmp(left)
///     }
///     fn key_order(&self) -> KeyOrder {
///         KeyOrder::Images
///     }
///     fn image(&self, key: &[u8], at: usize) -> u64 {
///         !Bytewise.image(key, at)
///     }
/// }
/// assert_eq!(Reverse.compare(b"a", b"b"), Ordering::Greater);
/// assert!(Reverse.image(b"a", 0) > Reverse.image(b"b", 0));
///
/// let table = MemTable::new(MemTableOptions::builder().comparator(Arc::new(Reverse)).build()?)?;
/// table.put(1, b"a", b"")?;
/// table.put(2, b"b", b"")?;
/// assert_eq!(table.cursor().first()?.map(|entry| entry.user_key()), Some(b"b".as_slice()));
/// assert_eq!(table.comparator().name(), "example.Reverse");
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub trait Comparator: Any + fmt::Debug + Send + Sync {
    /// The name of this order. An engine stores it with its files, so that no file is opened under
    /// another order.
    fn name(&self) -> &str;

    /// Whether equal keys have equal bytes. Every call must return the same.
    fn equality(&self) -> KeyEquality;

    /// Compares two user keys.
    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering;

    /// How the bytes of keys determine this order. Every call must return the same. The default is
    /// `Custom`.
    fn key_order(&self) -> KeyOrder {
        KeyOrder::Custom
    }

    /// Eight bytes of a key's image, from byte `at` on, as a big-endian number. An image is an
    /// endless string of bytes that preserves the order: if the images of two keys differ, the key
    /// with the smaller image is the smaller key. Keys with equal images are compared in full.
    /// Tables call this only for orders by [`KeyOrder::Images`]. By default, all images are equal.
    fn image(&self, key: &[u8], at: usize) -> u64 {
        let _ = (key, at);
        0
    }
}

/// Lexicographic order of bytes, the default. It has the name that RocksDB gives it. The image of a
/// key is the key, followed by zeros.
///
/// ```
/// use paranoid_memtable::{Bytewise, Comparator};
/// assert!(Bytewise.compare(b"a", b"ab").is_lt());
/// assert!(Bytewise.image(b"a", 0) < Bytewise.image(b"b", 0));
/// assert_eq!(Bytewise.name(), "leveldb.BytewiseComparator");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytewise;

impl Comparator for Bytewise {
    fn name(&self) -> &str {
        "leveldb.BytewiseComparator"
    }

    fn equality(&self) -> KeyEquality {
        KeyEquality::Bytes
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        compare_words(left, right)
    }

    fn key_order(&self) -> KeyOrder {
        KeyOrder::Bytes
    }

    fn image(&self, key: &[u8], at: usize) -> u64 {
        bytes_at(key, at)
    }
}

/// The order of a table's keys: a comparator, with its answers about equality and order.
#[derive(Debug, Clone)]
pub struct KeyComparator {
    order: KeyOrder,
    equality: KeyEquality,
    /// `None`: [`Bytewise`].
    chosen: Option<Arc<dyn Comparator>>,
}

/// The order of bytes.
pub(crate) static BYTEWISE: KeyComparator = KeyComparator {
    order: KeyOrder::Bytes,
    equality: KeyEquality::Bytes,
    chosen: None,
};

impl From<Arc<dyn Comparator>> for KeyComparator {
    fn from(chosen: Arc<dyn Comparator>) -> Self {
        KeyComparator {
            order: chosen.key_order(),
            equality: chosen.equality(),
            chosen: Some(chosen),
        }
    }
}

impl KeyComparator {
    /// The comparator itself.
    pub fn get(&self) -> &dyn Comparator {
        self.chosen.as_deref().unwrap_or(&Bytewise)
    }

    /// Whether `other` is known to be the same order.
    pub(crate) fn is_same(&self, other: &KeyComparator) -> bool {
        let is_shared = |chosen: &Arc<dyn Comparator>| {
            other
                .chosen
                .as_ref()
                .is_some_and(|other| Arc::ptr_eq(chosen, other))
        };
        let are_bytes = self.order == KeyOrder::Bytes && other.order == KeyOrder::Bytes;
        are_bytes || self.chosen.as_ref().is_some_and(is_shared)
    }

    /// How the bytes of keys determine their order.
    #[inline(always)]
    pub(crate) fn key_order(&self) -> KeyOrder {
        self.order
    }

    /// Whether equal keys have equal bytes.
    #[inline(always)]
    pub fn equality(&self) -> KeyEquality {
        self.equality
    }

    /// Compares two user keys.
    #[inline(always)]
    pub fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        match self.order {
            KeyOrder::Bytes => compare_words(left, right),
            KeyOrder::Images | KeyOrder::Custom => self.ask(left, right),
        }
    }

    /// Whether two keys are equal. If equal keys have equal bytes, the comparator is not called.
    #[inline(always)]
    pub fn are_equal(&self, left: &[u8], right: &[u8]) -> bool {
        match self.equality {
            KeyEquality::Bytes => are_same(left, right),
            KeyEquality::Custom => self.ask(left, right).is_eq(),
        }
    }

    /// Eight bytes of a key's image, see [`Comparator::image`].
    #[inline(always)]
    pub(crate) fn image(&self, key: &[u8], at: usize) -> u64 {
        match self.order {
            KeyOrder::Bytes => bytes_at(key, at),
            KeyOrder::Images | KeyOrder::Custom => self.ask_image(key, at),
        }
    }

    /// Calls the comparator. It is cold, so that the order of bytes is inlined alone.
    #[cold]
    #[inline(never)]
    fn ask(&self, left: &[u8], right: &[u8]) -> Ordering {
        self.get().compare(left, right)
    }

    /// The image of a key by the comparator; 0 if its order has no images. Cold, as
    /// [`ask`](Self::ask).
    #[cold]
    #[inline(never)]
    fn ask_image(&self, key: &[u8], at: usize) -> u64 {
        if self.order == KeyOrder::Images {
            self.get().image(key, at)
        } else {
            0
        }
    }
}

/// Eight bytes of a key from `at` on, as a big-endian number; zeros after its end.
#[inline(always)]
pub(crate) fn bytes_at(key: &[u8], at: usize) -> u64 {
    const WORD: usize = 8;
    let Some(rest) = key.get(at..) else { return 0 };
    if let Some(word) = rest.first_chunk::<WORD>() {
        return u64::from_be_bytes(*word);
    }
    // The last eight bytes of the key, shifted so that the byte at `at` comes first.
    if let Some(word) = key.last_chunk::<WORD>() {
        let empty = u32::try_from(8 * (WORD - rest.len())).unwrap_or(u64::BITS);
        return u64::from_be_bytes(*word).checked_shl(empty).unwrap_or(0);
    }
    let mut word = [0; WORD];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(word)
}

/// Keys of more bytes are compared by one call of `memcmp`.
const SHORT: usize = 48;

/// `left.cmp(right)`, of short keys eight bytes at a time, which is faster than a call of `memcmp`.
#[inline(always)]
fn compare_words(mut left: &[u8], mut right: &[u8]) -> Ordering {
    if left.len().min(right.len()) > SHORT {
        return compare_long(left, right);
    }
    while let (Some((l, left_rest)), Some((r, right_rest))) = (
        left.split_first_chunk::<8>(),
        right.split_first_chunk::<8>(),
    ) {
        if l != r {
            return u64::from_be_bytes(*l).cmp(&u64::from_be_bytes(*r));
        }
        left = left_rest;
        right = right_rest;
    }
    left.cmp(right)
}

/// `left.cmp(right)`, not inlined.
#[inline(never)]
fn compare_long(left: &[u8], right: &[u8]) -> Ordering {
    left.cmp(right)
}

/// `left == right`. Keys of 8 to 16 bytes are compared as two pairs of words, which is faster than
/// a call.
#[inline(always)]
pub(crate) fn are_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() == right.len()
        && left.len() <= 16
        && let (Some(first), Some(last)) = (left.first_chunk::<8>(), left.last_chunk::<8>())
    {
        return right.first_chunk() == Some(first) && right.last_chunk() == Some(last);
    }
    left == right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_compare_is_byte_compare() {
        let keys: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0, 0],
            b"abcdefg".to_vec(),
            b"abcdefgh".to_vec(),
            b"abcdefgh\0".to_vec(),
            b"abcdefghi".to_vec(),
            b"abcdefghijklmnop".to_vec(),
            b"abcdefghijklmnoq".to_vec(),
            vec![0xff; 7],
            vec![0xff; 8],
            vec![0xff; 17],
            vec![0xff; SHORT],
            vec![0xff; SHORT + 1],
            [vec![0xff; SHORT], vec![0; 2]].concat(),
            [vec![0xff; SHORT - 1], vec![0xfe; 9]].concat(),
        ];
        for left in &keys {
            for right in &keys {
                assert_eq!(
                    Bytewise.compare(left, right),
                    left.cmp(right),
                    "{left:?} {right:?}"
                );
                assert_eq!(
                    BYTEWISE.are_equal(left, right),
                    left == right,
                    "{left:?} {right:?}"
                );
                let (l, r) = (Bytewise.image(left, 0), Bytewise.image(right, 0));
                assert!(l == r || l.cmp(&r) == left.cmp(right), "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn words_are_bytes_with_zeros_after_the_end() {
        let key: Vec<u8> = (1..=20).collect();
        for len in 0..=key.len() {
            for at in 0..=key.len() + 1 {
                let mut rest = key[..len].iter().skip(at).copied();
                let expected = std::array::from_fn(|_| rest.next().unwrap_or(0));
                assert_eq!(
                    bytes_at(&key[..len], at),
                    u64::from_be_bytes(expected),
                    "{len} bytes from {at}"
                );
            }
        }
    }
}
