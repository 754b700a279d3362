//! `Debug` for types that hold a table, its memory, or bytes of the user. Its rules:
//!
//! * The output has lengths and counts, and no key, value or bound; it has neither a table's secret
//!   nor the seed of the secret.
//! * Printing reads fields of the value itself, options, and one atomic flag: no table memory.
//! * Printing takes no lock, because a comparator may print its table from inside a write.
//! * The output is shorter than a kilobyte, however large the table is.
//!
//! All other types derive `Debug` from parts that follow these rules. `tests/suite/debug_output.rs`
//! tries every public type. Any thread.

#![forbid(unsafe_code)]

use std::fmt::{Debug, Formatter, Result};

use crate::memtable::arena::control_block::ControlWord;
use crate::memtable::arena::recycler::ArenaRecycler;
use crate::memtable::batch::batch::WriteBatch;
use crate::memtable::batch::reader::BatchEntry;
use crate::memtable::core::Core;
use crate::memtable::immutable::ImmutableMemTable;
use crate::memtable::lifecycle::flush::FlushIter;
use crate::memtable::lifecycle::flush_sink::FlushEntry;
use crate::memtable::lifecycle::salvage::Salvage;
use crate::memtable::lifecycle::scrub::ScrubReport;
use crate::memtable::options::MemTableOptions;
use crate::memtable::read::entry::{Entry, EntryBytes};
use crate::memtable::read::get::{Base, Operand, Operands, PinnedValue, ValueRef};
use crate::memtable::reader::TableReader;
use crate::memtable::scan::cursor::Cursor;
use crate::memtable::scan::handle::Handle;
use crate::memtable::scan::range::Range;
use crate::memtable::scan::source::{Cover, SourceKey, SourceMove};
use crate::memtable::scan::visibility::Visibility;
use crate::memtable::scan::walk::Walk;
use crate::memtable::table::MemTable;
use crate::memtable::write::prepared::{PreparedBatch, ReservedBatch};
use crate::memtable::writer::Writer;
use crate::tombstone::fragmenter::{FragmentIter, Fragmenter};
use crate::tombstone::fragments::{Fragment, Fragments};

/// Implements `Debug` with these fields, each computed by an expression over the value.
#[doc(hidden)]
#[macro_export]
macro_rules! shown {
    ($(
        $(#[$attribute:meta])*
        $name:literal: impl [$($generics:tt)*] $type:ty, |$it:pat_param| { $($field:literal: $value:expr),* $(,)? }
    )*) => {$(
        $(#[$attribute])*
        impl<$($generics)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_struct($name)$(.field($field, &$value))*.finish_non_exhaustive()
            }
        }
    )*};
}
#[cfg(all(feature = "fault-injection", not(loom)))]
pub(crate) use shown;

shown! {
    "Core": impl [] Core, |core| {
        "protection_bytes": core.options.paranoid.protection_bytes(),
        // A damaged flag counts as frozen, as in `is_frozen`.
        "frozen": !core.arena.control.is_unset(ControlWord::FROZEN),
    }
    "TableReader": impl [] TableReader, |table| { "core": table.core }
    "MemTable": impl [] MemTable, |table| { "core": table.reader.core }
    "ImmutableMemTable": impl [] ImmutableMemTable, |table| { "core": table.reader.core }
    "Writer": impl [] Writer, |writer| { "core": writer.core }

    "MemTableOptions": impl [] MemTableOptions, |options| {
        "write_buffer_size": options.write_buffer_size,
        "hard_limit": options.hard_limit,
        "paranoid": options.paranoid,
        "duplicates": options.duplicates,
        "key_len_max": options.key_len_max,
        "value_len_max": options.value_len_max,
        "whole_key_filter": options.key_filter(),
        "prefix_filter": options.prefix_filter.as_ref().map(|(_, share)| share),
        "directory": options.directory,
        "comparator": options.comparator.get().name(),
        "has_seed": options.seed.is_some(),
    }

    "WriteBatch": impl [] WriteBatch, |batch| {
        "sequence": batch.sequence(),
        "len": batch.len(),
        "data_size": batch.as_bytes().len(),
        "protection_bytes": batch.protection_bytes(),
    }
    "BatchEntry": impl [] BatchEntry<'_>, |entry| {
        "family": entry.family(),
        "kind": entry.kind(),
        "key_len": entry.key().len(),
        "value_len": entry.value().len(),
        "has_caller_digest": entry.caller_digest().is_some(),
    }
    "PreparedBatch": impl [] PreparedBatch<'_>, |batch| { "numbers": batch.numbers(), "bytes": batch.bytes() }
    "ReservedBatch": impl [] ReservedBatch<'_, '_>, |reserved| { "batch": reserved.batch }

    "FlushEntry": impl [] FlushEntry<'_>, |entry| {
        "sequence": entry.sequence,
        "kind": entry.kind,
        "key_len": entry.user_key.len(),
        "value_len": entry.value.len(),
    }
    "FlushIter": impl [] FlushIter<'_>, |flush| { "summary": flush.summary() }
    "Cursor": impl [H: Handle, L: Visibility] Cursor<H, L>, |cursor| { "walk": cursor.walk }
    "Range": impl [H: Handle, L: Visibility] Range<H, L>, |range| {
        "front": range.ends.front.walk,
        "back": range.ends.back.walk,
    }
    "Walk": impl [] Walk, |walk| { "visible": walk.scope.visible, "valid": walk.is_valid() }
    "SourceKey": impl [] SourceKey<'_>, |key| { "sequence": key.sequence, "kind": key.kind }
    "SourceMove": impl [] SourceMove<'_>, |to| {
        "is_seek": matches!(to, SourceMove::Seek(..) | SourceMove::SeekForPrev(_) | SourceMove::SeekBefore(_))
    }
    "Cover": impl [] Cover<'_>, |cover| { "sequence": cover.sequence }
    "Entry": impl [] Entry<'_>, |entry| {
        "sequence": entry.sequence(),
        "kind": entry.kind(),
        "key_len": entry.user_key().len(),
        "value_len": entry.value_len(),
    }
    "EntryBytes": impl [] EntryBytes, |entry| {
        "sequence": entry.sequence(),
        "kind": entry.kind(),
        "key_len": entry.user_key().len(),
        "value_len": entry.value().len(),
    }
    "ValueRef": impl [] ValueRef<'_>, |value| { "len": value.len(), "sequence": value.sequence() }
    "PinnedValue": impl [] PinnedValue, |value| { "len": value.len() }
    "Operands": impl [] Operands<'_>, |operands| { "cover": operands.cover }
    "Operand": impl [] Operand<'_>, |operand| {
        "sequence": operand.sequence,
        "value_len": operand.value.len(),
    }
    "ScrubReport": impl [] ScrubReport, |report| {
        "findings": report.findings.len(),
        "first_finding": report.findings.first(),
        "healed": report.healed.len(),
        "entries": report.entries,
        "bytes": report.bytes,
    }
    "Salvage": impl [] Salvage<'_>, |salvage| {
        "entries": salvage.entries.len(),
        "reach": salvage.reach,
        "missing": salvage.missing,
        "failure": salvage.failure,
    }

    "Fragment": impl [] Fragment<'_>, |fragment| {
        "start_len": fragment.start().len(),
        "end_len": fragment.end().len(),
        "newest": fragment.newest(),
        "sequences": fragment.sequences().len(),
    }
    "Fragments": impl [] Fragments, |fragments| {
        "len": fragments.len(),
        "unfragmented_len": fragments.unfragmented_len,
        "unfragmented_bytes": fragments.unfragmented_bytes,
    }
    "Fragmenter": impl [] Fragmenter, |_| {}
    "FragmentIter": impl [] FragmentIter, |fragments| { "fragment": fragments.last() }

    "ArenaRecycler": impl [] ArenaRecycler, |_| {}

}

impl<V: AsRef<[u8]>> Debug for Base<V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Base::Value(value) => f
                .debug_struct("Value")
                .field("len", &value.as_ref().len())
                .finish_non_exhaustive(),
            Base::Deleted => f.write_str("Deleted"),
            Base::Below => f.write_str("Below"),
        }
    }
}
