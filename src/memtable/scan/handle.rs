//! How a cursor holds its table: borrowed, or by a share in it.
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::key::Comparator;
use crate::memtable::core::Core;

/// How a cursor holds its table.
pub trait Handle: sealed::Holds {}

pub(crate) mod sealed {
    /// Access to the table.
    pub trait Holds {
        /// The table's order.
        type Order: super::Comparator;
        /// The table.
        #[expect(private_interfaces, reason = "sealed")]
        fn core(&self) -> &super::Core<Self::Order>;
    }
}

/// A borrowed table.
#[derive(Debug)]
pub struct Borrowed<'t, C>(pub(crate) &'t Core<C>);

impl<C> Clone for Borrowed<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Borrowed<'_, C> {}

/// A share in a table.
#[derive(Debug)]
pub struct Owned<C>(pub(crate) Arc<Core<C>>);

impl<C: Comparator> sealed::Holds for Borrowed<'_, C> {
    type Order = C;
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core<C> {
        self.0
    }
}

impl<C: Comparator> sealed::Holds for Owned<C> {
    type Order = C;
    #[expect(private_interfaces, reason = "sealed")]
    fn core(&self) -> &Core<C> {
        &self.0
    }
}

impl<C: Comparator> Handle for Borrowed<'_, C> {}
impl<C: Comparator> Handle for Owned<C> {}
