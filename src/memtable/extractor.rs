//! Prefix extractors: the part of a user key that a prefix filter contains.
//!
//! ```text
//!   extractor      key "ab"      key "abcdef"       all keys that start with "abc"
//!   FixedPrefix 3  outside       "abc"              "abc"
//!   CappedPrefix 3 "ab"          "abc"              "abc"
//!   CappedPrefix 5 "ab"          "abcde"            no single prefix
//! ```
//! A key outside the domain is never added to the filter, and always passes it. Any thread. Not
//! promised: right answers with an extractor that is not a pure function.

#![forbid(unsafe_code)]

use std::fmt;

/// Maps user keys to the prefixes that a filter holds.
///
/// An extractor must be a pure function of the bytes. An extractor that is not hides keys from
/// reads, but causes no undefined behaviour.
///
/// ```
/// use paranoid_memtable::filter::PrefixExtractor;
///
/// /// The part before the first slash.
/// #[derive(Debug)]
/// struct Directory;
/// impl PrefixExtractor for Directory {
///     fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
///         key.iter().position(|&byte| byte == b'/').map(|at| &key[..at])
///     }
/// }
/// assert_eq!(Directory.prefix(b"usr/bin"), Some(b"usr".as_slice()));
/// assert_eq!(Directory.prefix(b"README"), None);
/// ```
pub trait PrefixExtractor: fmt::Debug + Send + Sync + 'static {
    /// The prefix of a key; `None` if the key is outside the domain.
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]>;

    /// The one prefix of all keys that start with these bytes; `None` if they have different
    /// prefixes or some are outside the domain. The default returns `None`, and then a cursor in
    /// prefix mode cannot use the filter.
    fn shared_prefix<'k>(&self, start: &'k [u8]) -> Option<&'k [u8]> {
        let _ = start;
        None
    }
}

/// A prefix extractor that takes the first n bytes. Shorter keys are outside the domain.
///
/// ```
/// use paranoid_memtable::filter::{FixedPrefix, PrefixExtractor};
/// assert_eq!(FixedPrefix::new(3).prefix(b"abcd"), Some(b"abc".as_slice()));
/// assert_eq!(FixedPrefix::new(3).prefix(b"ab"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPrefix {
    len: usize,
}

impl FixedPrefix {
    /// The extractor for prefixes of `len` bytes.
    ///
    /// ```
    /// use paranoid_memtable::filter::{FixedPrefix, PrefixExtractor};
    /// assert_eq!(FixedPrefix::new(3).prefix(b"abcdef"), Some(b"abc".as_slice()));
    /// assert_eq!(FixedPrefix::new(3).prefix(b"ab"), None);
    /// ```
    #[must_use]
    pub const fn new(len: usize) -> Self {
        FixedPrefix { len }
    }
}

impl PrefixExtractor for FixedPrefix {
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.get(..self.len)
    }

    fn shared_prefix<'k>(&self, start: &'k [u8]) -> Option<&'k [u8]> {
        start.get(..self.len)
    }
}

/// A prefix extractor that takes the first n bytes, or the whole key if it is shorter. Every key is
/// inside the domain.
///
/// ```
/// use paranoid_memtable::filter::{CappedPrefix, PrefixExtractor};
/// assert_eq!(CappedPrefix::new(3).prefix(b"abcd"), Some(b"abc".as_slice()));
/// assert_eq!(CappedPrefix::new(3).prefix(b"ab"), Some(b"ab".as_slice()));
/// assert_eq!(CappedPrefix::new(3).shared_prefix(b"ab"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CappedPrefix {
    len: usize,
}

impl CappedPrefix {
    /// The extractor for prefixes of at most `len` bytes.
    ///
    /// ```
    /// use paranoid_memtable::filter::{CappedPrefix, PrefixExtractor};
    /// assert_eq!(CappedPrefix::new(3).prefix(b"ab"), Some(b"ab".as_slice()));
    /// ```
    #[must_use]
    pub const fn new(len: usize) -> Self {
        CappedPrefix { len }
    }
}

impl PrefixExtractor for CappedPrefix {
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        Some(key.get(..self.len).unwrap_or(key))
    }

    fn shared_prefix<'k>(&self, start: &'k [u8]) -> Option<&'k [u8]> {
        start.get(..self.len)
    }
}
