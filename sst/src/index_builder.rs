//! Builds the index: a separator and a handle for each data block.
//!
//! The index holds user keys where the format version allows it (3 and up). It holds internal keys
//! if a block ends with the user key with which the next block begins. This is known only at the
//! end, so separators are kept whole.
//!
//! One owner.

use crate::block_builder::{BlockBuilder, ValueForm};
use crate::coding::{BlockHandle, put_handle, put_varint, zigzag};
use crate::internal_key::user_key;
use crate::options::{IndexShortening, SortedTableOptions};
use crate::separator::{same_user_key, separator};

/// The form of an index, which the properties state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexForm {
    pub(crate) user_keys: bool,
    pub(crate) values: ValueForm,
}

#[derive(Debug)]
pub(crate) struct IndexBuilder {
    form: IndexForm,
    interval: u32,
    shortening: IndexShortening,
    /// Separators, one after the other.
    keys: Vec<u8>,
    /// Where each separator ends, and its block.
    rows: Vec<(usize, BlockHandle)>,
}

impl IndexBuilder {
    pub(crate) fn new(options: &SortedTableOptions) -> Self {
        let values = if options.format_version >= 4 {
            ValueForm::DeltaHandles
        } else {
            ValueForm::Plain
        };
        IndexBuilder {
            form: IndexForm {
                user_keys: options.format_version >= 3,
                values,
            },
            interval: options.index_block_restart_interval,
            shortening: options.index_shortening,
            keys: vec![],
            rows: vec![],
        }
    }

    /// Adds a block that ends with the internal key `last`; `next` is the first key of the next
    /// block.
    pub(crate) fn add(&mut self, last: &[u8], next: Option<&[u8]>, handle: BlockHandle) {
        if next.is_some_and(|next| same_user_key(last, next)) {
            self.form.user_keys = false;
        }
        let shorten = match self.shortening {
            IndexShortening::None => false,
            IndexShortening::Separators => next.is_some(),
            IndexShortening::SeparatorsAndSuccessor => true,
        };
        if shorten {
            self.keys.extend_from_slice(&separator(last, next));
        } else {
            self.keys.extend_from_slice(last);
        }
        self.rows.push((self.keys.len(), handle));
    }

    /// Number of data blocks.
    pub(crate) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// The index block, and its form.
    pub(crate) fn finish(self) -> (Vec<u8>, IndexForm) {
        let mut block = BlockBuilder::new(self.interval, self.form.values);
        let (mut start, mut before) = (0, BlockHandle::default());
        let (mut whole, mut after) = (vec![], vec![]);
        for (end, handle) in self.rows {
            let key = &self.keys[start..end];
            let key = if self.form.user_keys {
                user_key(key)
            } else {
                key
            };
            whole.clear();
            put_handle(&mut whole, handle);
            after.clear();
            put_varint(
                &mut after,
                zigzag(
                    handle
                        .size
                        .cast_signed()
                        .wrapping_sub(before.size.cast_signed()),
                ),
            );
            match self.form.values {
                ValueForm::Plain => block.add(key, &whole),
                ValueForm::DeltaHandles => block.add_either(key, &whole, &after),
            }
            (start, before) = (end, handle);
        }
        (block.finish().to_vec(), self.form)
    }
}
