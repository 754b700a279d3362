//! Checks that any bytes are a batch or an error. A batch that was taken comes back byte for byte,
//! also as one from a log. Batches that are appended or taken back are the sum of their entries.
//! With digests, no flipped bit passes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use paranoid_memtable::batch::RangeOrder;
use paranoid_memtable::{Error, Kind, WriteBatch};

/// Writes the batch's entries into a new batch.
fn rewritten(batch: &WriteBatch, protection: u8) -> Result<WriteBatch, Error> {
    let mut again = WriteBatch::with_protection(protection)?.with_range_order(RangeOrder::OfTable);
    for entry in batch.entries() {
        let entry = entry?;
        again.insert_in(entry.family(), entry.kind(), entry.key(), entry.value())?;
    }
    again.set_sequence(batch.sequence());
    Ok(again)
}

fn same_entries(left: &WriteBatch, right: &WriteBatch) -> bool {
    let entries = |batch: &WriteBatch| -> Vec<_> {
        let taken = batch
            .entries()
            .map(|entry| entry.expect("the batch was taken"));
        taken
            .map(|entry| {
                (
                    entry.family(),
                    entry.kind(),
                    entry.key().to_vec(),
                    entry.value().to_vec(),
                )
            })
            .collect()
    };
    entries(left) == entries(right)
}

fuzz_target!(|data: &[u8]| {
    // The first two bytes choose the bit that is flipped at the end.
    let Some((choice, bytes)) = data.split_first_chunk::<2>() else {
        return;
    };
    let batch = match WriteBatch::from_bytes(bytes) {
        Ok(batch) => batch,
        Err(Error::Corruption(report)) => return assert!(report.offset <= bytes.len() as u64),
        Err(Error::NotSupported(name)) => return assert!(name.contains("RocksDB")),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(batch.as_bytes(), bytes);
    let logged =
        WriteBatch::from_verified(bytes.to_vec(), |_| Ok(())).expect("what is read is read again");
    assert!(logged.protection_bytes() == 8 && same_entries(&logged, &batch));
    for other in [&batch, &logged] {
        let mut sum = logged.clone();
        sum.append(other).expect("far below the limits");
        assert_eq!(
            (sum.len(), &sum.as_bytes()[12..]),
            (2 * batch.len(), &bytes[12..].repeat(2)[..])
        );
        assert_eq!(sum.entries().filter(Result::is_ok).count(), sum.len());
    }
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
    // Log data is kept, but is not an entry: the bytes are equal only without it.
    assert!(again.as_bytes() == bytes || again.as_bytes().len() < bytes.len());
    again.flip_buffer_bit(usize::from(u16::from_le_bytes(*choice)) % (again.as_bytes().len() * 8));
    let errors = again.entries().filter_map(Result::err).count();
    assert_eq!(errors, 1, "a flipped bit is reported once");
});
