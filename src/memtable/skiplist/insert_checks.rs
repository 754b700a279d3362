//! The comparisons of an insert before its node is published: the entry with both neighbours, and
//! the node with the caller's digest and fields (INSERT-3).
//!
//! Any thread.

#![forbid(unsafe_code)]

use std::cmp;

use crate::error::{Corruption, Place};
use crate::integrity::digest::{Kvo, Protected};
use crate::key::SequenceNumber;
use crate::memtable::arena::arena::View;
use crate::memtable::arena::encode::{Built, Fields};
use crate::memtable::arena::links::EndKeys;
use crate::memtable::arena::node::misplaced;
use crate::memtable::skiplist::search::Search;

/// Compares an entry again with one side of its bracket (INSERT-3): by whole keys, loaded again,
/// without images; if they do not fit, with the verified or healed side. The side must be
/// `expected`, and have another key if the link says so. Returns what the link says; if `ends` is
/// `None`, by this comparison.
#[inline(always)]
pub(super) fn check_side(
    search: &Search<'_>,
    fields: &Fields<'_>,
    revision: u32,
    side: u32,
    ends: Option<EndKeys>,
    expected: cmp::Ordering,
) -> Result<EndKeys, Corruption> {
    if side == search.sentinel {
        return Ok(ends.unwrap_or(EndKeys::DIFFER));
    }
    // A closure might not be inlined.
    if let Some(node) = search.view.reload(side)
        && let version = (node.sequence(), node.revision())
        && let Some(ends) = fitting(
            search,
            (fields, revision),
            (node.key(), version),
            ends,
            expected,
        )
    {
        return Ok(ends);
    }
    check_healed_side(search, fields, revision, side, ends, expected)
}

/// [`check_side`] of a damaged side.
#[cold]
#[inline(never)]
fn check_healed_side(
    search: &Search<'_>,
    fields: &Fields<'_>,
    revision: u32,
    side: u32,
    ends: Option<EndKeys>,
    expected: cmp::Ordering,
) -> Result<EndKeys, Corruption> {
    let entry = search.view.entry(side)?;
    let (key, version) = (entry.key(), (entry.sequence(), entry.revision()));
    let ends = fitting(search, (fields, revision), (key, version), ends, expected);
    ends.ok_or_else(|| misplaced(side, fields.sequence))
}

/// What a link between an entry and its neighbour says, if the two compare as expected.
#[inline(always)]
fn fitting(
    search: &Search<'_>,
    (fields, revision): (&Fields<'_>, u32),
    (key, side): (&[u8], (SequenceNumber, u32)),
    ends: Option<EndKeys>,
    expected: cmp::Ordering,
) -> Option<EndKeys> {
    let keys = search.comparator.compare(key, fields.key);
    let ends = ends.unwrap_or(EndKeys::of_order(keys));
    let version = || (fields.sequence, revision).cmp(&side);
    let fits =
        keys == expected || (keys.is_eq() && ends == EndKeys::MAY_MATCH && version() == expected);
    fits.then_some(ends)
}

/// Compares the fields that no digest of the caller covers, sequence number and lengths, with the
/// arena's words, loaded again (INSERT-3).
#[inline(always)]
pub(super) fn check_built(
    view: &View<'_>,
    node: u32,
    fields: &Fields<'_>,
) -> Result<(), Corruption> {
    if view.stored_fields(node) == Some((fields.lengths(), fields.sequence)) {
        return Ok(());
    }
    Err(misplaced(node, fields.sequence))
}

/// Compares a node with the caller's buffers before it is published. K is compared even without a
/// digest of the caller, because the tower's height depends on it.
#[inline(always)]
pub(super) fn check_claim(
    view: &View<'_>,
    built: &Built,
    fields: &Fields<'_>,
) -> Result<(), Corruption> {
    if let Some(parts) = built.parts
        && parts.key != fields.key_part
    {
        return Err(Corruption::new(Place::Entry, 0, parts.key, fields.key_part)
            .with_sequence(fields.sequence));
    }
    match fields.caller_digest {
        Some(caller_digest) => check_caller_digest(view, built, fields, caller_digest),
        None => Ok(()),
    }
}

/// Compares the caller's digest with K and V of the build, or with the node read back where these
/// do not suffice.
#[inline(always)]
fn check_caller_digest(
    view: &View<'_>,
    built: &Built,
    fields: &Fields<'_>,
    caller_digest: Protected<Kvo>,
) -> Result<(), Corruption> {
    let sequence = fields.sequence;
    let (there, stored_sequence) = match built.parts {
        Some(parts) if built.agrees => (
            Protected::of_parts(parts.key, parts.value, fields.kind),
            sequence,
        ),
        _ => read_back(*view, built.offset)?,
    };
    if there == caller_digest && stored_sequence == sequence {
        return Ok(());
    }
    let (found, expected) = (
        there.with_sequence(stored_sequence),
        caller_digest.with_sequence(sequence),
    );
    let report = Corruption::new(Place::Entry, 0, found.to_bits(), expected.to_bits());
    Err(report.with_sequence(stored_sequence))
}

/// The digest of a node's bytes, and its sequence number.
#[cold]
#[inline(never)]
fn read_back(view: View<'_>, node: u32) -> Result<(Protected<Kvo>, SequenceNumber), Corruption> {
    let entry = view.open(node)?.verify(&view)?;
    let sequence = entry.sequence();
    Ok((entry.carried().without_sequence(sequence), sequence))
}
