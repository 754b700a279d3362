//! Cursors over fragments, and over (fragment, sequence number) pairs.
//!
//! ```text
//!   fragments   a--c [9, 4]      c--f [4]        m--p [7, 2]
//!   pairs       (a,9) (a,4)      (c,4)           (m,7) (m,2)        next ->   <- prev
//! ```
//! * FRAGMENT-CURSOR-1: a cursor shows only fragments with a visible sequence number, and only their visible sequence
//!   numbers.
//! * FRAGMENT-CURSOR-2: `next` at the last fragment and `prev` at the first one make the cursor invalid; an invalid
//!   cursor stays so until the next seek.
//!
//! Who may call what: a cursor belongs to one thread at a time; any number of them may walk the same fragments.

#![forbid(unsafe_code)]

use crate::key::SequenceNumber;
use crate::tombstone::fragment::fragments::{Fragment, FragmentView};

impl<'a> FragmentView<'a> {
    /// A cursor over the visible fragments. It is not positioned yet.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// let fragments = fragmenter.finish();
    /// let mut cursor = fragments.view(..).cursor();
    /// assert!(cursor.fragment().is_none()); // not positioned yet
    /// cursor.first();
    /// assert_eq!(cursor.fragment().map(|fragment| fragment.start()), Some(b"a".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn cursor(&self) -> FragmentCursor<'a> {
        FragmentCursor { view: *self, at: None }
    }

    /// A cursor over the visible (fragment, sequence number) pairs. It is not positioned yet.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("a", "c", 5)?;
    /// let fragments = fragmenter.finish();
    /// let mut pairs = fragments.view(..).pairs();
    /// pairs.first();
    /// assert_eq!(pairs.sequence(), Some(5));
    /// pairs.next();
    /// assert_eq!(pairs.sequence(), Some(3));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[must_use]
    pub fn pairs(&self) -> PairCursor<'a> {
        PairCursor { cursor: self.cursor(), depth: 0 }
    }
}

/// A cursor over the fragments of a [`FragmentView`], ascending by key.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::Bytewise;
/// use paranoid_memtable::tombstone::Fragmenter;
/// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
/// fragmenter.add("a", "c", 3)?;
/// fragmenter.add("m", "p", 7)?;
/// let fragments = fragmenter.finish();
/// let mut cursor = fragments.view(..).cursor();
/// cursor.seek(b"c");
/// assert_eq!(cursor.fragment().unwrap().start(), b"m", "the first that covers the key or starts after it");
/// cursor.seek_for_prev(b"c");
/// assert_eq!(cursor.fragment().unwrap().start(), b"a", "the last that starts at the key or before it");
/// cursor.prev();
/// assert_eq!(cursor.fragment(), None);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub struct FragmentCursor<'a> {
    view: FragmentView<'a>,
    at: Option<(usize, Fragment<'a>)>,
}

impl<'a> FragmentCursor<'a> {
    /// Goes to the first visible fragment that covers `key` or starts after it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("m", "p", 4)?;
    /// let fragments = fragmenter.finish();
    /// let mut cursor = fragments.view(..).cursor();
    /// cursor.seek(b"b"); // inside the first one
    /// assert_eq!(cursor.fragment().map(|fragment| fragment.start()), Some(b"a".as_slice()));
    /// cursor.seek(b"c"); // after its end
    /// assert_eq!(cursor.fragment().map(|fragment| fragment.start()), Some(b"m".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn seek(&mut self, key: &[u8]) {
        self.forward_from(self.view.fragments().ended_before(key));
    }

    /// Goes to the last visible fragment that starts at or before `key`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// let fragments = fragmenter.finish();
    /// let mut cursor = fragments.view(..).cursor();
    /// cursor.seek_for_prev(b"x");
    /// assert_eq!(cursor.fragment().map(|fragment| fragment.end()), Some(b"c".as_slice()));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        self.backward_from(self.view.fragments().started_by(key));
    }

    /// Goes to the first visible fragment.
    pub fn first(&mut self) {
        self.forward_from(0);
    }

    /// Goes to the last visible fragment.
    pub fn last(&mut self) {
        self.backward_from(self.view.fragments().len());
    }

    /// Goes to the next visible fragment.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// let fragments = fragmenter.finish();
    /// let mut cursor = fragments.view(..).cursor();
    /// cursor.first();
    /// cursor.next();
    /// assert!(cursor.fragment().is_none());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn next(&mut self) {
        if let Some((index, _)) = self.at {
            self.forward_from(index + 1);
        }
    }

    /// Goes to the previous visible fragment.
    pub fn prev(&mut self) {
        if let Some((index, _)) = self.at {
            self.backward_from(index);
        }
    }

    /// The fragment at the cursor, with its visible sequence numbers; `None` if the cursor is not positioned.
    #[must_use]
    pub fn fragment(&self) -> Option<Fragment<'a>> {
        self.at.map(|(_, fragment)| fragment)
    }

    fn forward_from(&mut self, index: usize) {
        self.at =
            (index..self.view.fragments().len()).find_map(|index| Some((index, self.view.fragment(index)?)));
    }

    /// Goes to the last visible fragment before number `index`.
    fn backward_from(&mut self, index: usize) {
        self.at = (0..index).rev().find_map(|index| Some((index, self.view.fragment(index)?)));
    }
}

/// A cursor over the (fragment, sequence number) pairs of a [`FragmentView`]: ascending by fragment, and within a
/// fragment the newest sequence number first.
///
/// ```
/// use std::sync::Arc;
/// use paranoid_memtable::Bytewise;
/// use paranoid_memtable::tombstone::Fragmenter;
/// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
/// fragmenter.add("a", "c", 3)?;
/// fragmenter.add("a", "c", 9)?;
/// let fragments = fragmenter.finish();
/// let mut pairs = fragments.view(..).pairs();
/// pairs.first();
/// assert_eq!(pairs.sequence(), Some(9));
/// pairs.next();
/// assert_eq!(pairs.sequence(), Some(3));
/// pairs.next();
/// assert_eq!(pairs.sequence(), None);
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
pub struct PairCursor<'a> {
    cursor: FragmentCursor<'a>,
    /// Index of the pair's sequence number among the fragment's visible ones.
    depth: usize,
}

impl<'a> PairCursor<'a> {
    /// Goes to the newest visible pair of the first visible fragment that covers `key` or starts after it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// fragmenter.add("b", "c", 5)?;
    /// let fragments = fragmenter.finish();
    /// let mut pairs = fragments.view(..).pairs();
    /// pairs.seek(b"b");
    /// assert_eq!(pairs.sequence(), Some(5));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn seek(&mut self, key: &[u8]) {
        self.cursor.seek(key);
        self.depth = 0;
    }

    /// Goes to the newest visible pair of the last visible fragment that starts at or before `key`. If that fragment
    /// covers `key`, the pair is the newest visible deletion of `key`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paranoid_memtable::Bytewise;
    /// use paranoid_memtable::tombstone::Fragmenter;
    /// let mut fragmenter = Fragmenter::new(Arc::new(Bytewise));
    /// fragmenter.add("a", "c", 3)?;
    /// let fragments = fragmenter.finish();
    /// let mut pairs = fragments.view(..).pairs();
    /// pairs.seek_for_prev(b"x");
    /// assert_eq!(pairs.sequence(), Some(3));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        self.cursor.seek_for_prev(key);
        self.depth = 0;
    }

    /// Goes to the first visible pair: the newest of the first fragment.
    pub fn first(&mut self) {
        self.cursor.first();
        self.depth = 0;
    }

    /// Goes to the last visible pair: the oldest of the last fragment.
    pub fn last(&mut self) {
        self.cursor.last();
        self.go_oldest();
    }

    /// Goes to the next visible pair.
    pub fn next(&mut self) {
        let Some(fragment) = self.cursor.fragment() else {
            return;
        };
        self.depth += 1;
        if self.depth >= fragment.sequences().len() {
            self.cursor.next();
            self.depth = 0;
        }
    }

    /// Goes to the previous visible pair.
    pub fn prev(&mut self) {
        match self.depth.checked_sub(1) {
            Some(depth) => self.depth = depth,
            None => {
                self.cursor.prev();
                self.go_oldest();
            }
        }
    }

    /// The fragment at the cursor, with its visible sequence numbers; `None` if the cursor is not positioned.
    #[must_use]
    pub fn fragment(&self) -> Option<Fragment<'a>> {
        self.cursor.fragment()
    }

    /// The sequence number at the cursor; `None` if the cursor is not positioned.
    #[must_use]
    pub fn sequence(&self) -> Option<SequenceNumber> {
        self.cursor.fragment()?.sequences().get(self.depth).copied()
    }

    fn go_oldest(&mut self) {
        self.depth = self.cursor.fragment().map_or(0, |fragment| fragment.sequences().len() - 1);
    }
}
