//! Any bytes are a batch or an error; a batch that was taken is written again byte for byte; and in a batch with
//! digests every flipped bit is found.

#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::{Error, Kind, WriteBatch};

/// The batch's entries, written into a new batch.
fn rewritten(batch: &WriteBatch, protection: u8) -> Result<WriteBatch, Error> {
    let mut again = WriteBatch::with_protection(protection)?;
    for entry in batch.entries() {
        let entry = entry?;
        again.insert(entry.kind(), entry.key(), entry.value())?;
    }
    again.set_sequence(batch.sequence());
    Ok(again)
}

fn same_entries(left: &WriteBatch, right: &WriteBatch) -> bool {
    let entries = |batch: &WriteBatch| -> Vec<_> {
        let taken = batch.entries().map(|entry| entry.expect("the batch was taken"));
        taken.map(|entry| (entry.kind(), entry.key().to_vec(), entry.value().to_vec())).collect()
    };
    entries(left) == entries(right)
}

fuzz_target!(|data: &[u8]| {
    // The first two bytes choose the bit that is flipped at the end.
    let Some((choice, bytes)) = data.split_first_chunk::<2>() else { return };
    let batch = match WriteBatch::from_bytes(bytes) {
        Ok(batch) => batch,
        Err(Error::Corruption(report)) => return assert!(report.offset <= bytes.len() as u64),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(batch.as_bytes(), bytes);
    assert_eq!(batch.entries().count(), batch.len());
    let is_empty_range = |kind, key: &[u8], end: &[u8]| kind == Kind::RANGE_DELETE && key == end;
    let mut again = match rewritten(&batch, 8) {
        Ok(again) => again,
        Err(Error::InvalidArgument(_)) => {
            let found = batch
                .entries()
                .flatten()
                .any(|entry| is_empty_range(entry.kind(), entry.key(), entry.value()));
            return assert!(found, "what was read can be written");
        }
        Err(other) => panic!("{other}"),
    };
    assert!(same_entries(&batch, &again));
    // Log data is kept, but is no entry: the bytes are equal only without it.
    assert!(again.as_bytes() == bytes || again.data_size() < bytes.len());
    again.flip_buffer_bit(usize::from(u16::from_le_bytes(*choice)) % (again.data_size() * 8));
    let errors = again.entries().filter_map(Result::err).count();
    assert_eq!(errors, 1, "a flipped bit is reported once");
});
