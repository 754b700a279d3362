//! What a table reports about itself: counts, sizes, marks; and its next table.

use paranoid_memtable::{DuplicatePolicy, Kind, Lookup, MemTable, TableReader};

use super::trial::Trial;

impl Trial<'_> {
    /// Compares counts, which lie outside of the fault model: damage changes none of them.
    pub fn accounts(&mut self, table: &TableReader) {
        let model = self.model();
        let points = |kinds: fn(Kind) -> bool| model.rows.iter().filter(|row| kinds(row.kind)).count() as u64;
        let tombstones = model.tombstones.len() as u64;
        let displaced = model.writes.len() as u64 - tombstones - model.rows.len() as u64;
        let bytes = model.rows.iter().chain(&model.tombstones).map(|row| row.key.len() + row.value.len());
        let smallest = model.writes.iter().map(|row| row.sequence).min();
        let same = table.len() as u64 == points(|_| true) + tombstones
            && table.is_empty() == model.writes.is_empty()
            && table.num_deletes() == points(Kind::is_point_delete)
            && table.num_range_deletes() == tombstones
            && table.num_displaced() == displaced
            && table.data_bytes() == bytes.sum::<usize>() as u64
            && table.used_bytes() > table.data_bytes()
            && table.allocated_bytes() >= table.used_bytes()
            && table.remaining() > 0
            && !table.can_fit(0, u64::MAX)
            && !table.can_fit_range_delete(0, u64::MAX)
            && table.smallest_sequence() == smallest
            && table.largest_sequence() == Some(model.newest())
            && table.stats() == table.stats()
            && table.options().duplicates() == model.shape.duplicates
            && format!("{:?}", table.comparator()) == "Bytewise";
        let attachment = std::sync::Arc::new(());
        table.attach(attachment.clone());
        let same = same && std::sync::Arc::strong_count(&attachment) == 2;
        if !same {
            self.wrong(|| "the table's accounts changed".into());
        }
    }

    /// Sets what an engine sets on a mutable table.
    pub fn marks(&mut self, table: &MemTable) {
        let entries = self.model().shape.entries;
        let tag = table.tag();
        table.set_tag(tag + 1);
        let marked = table.should_flush();
        table.mark_for_flush();
        if table.tag() != tag + 1 || !table.should_flush() || (marked && entries < 100) {
            self.wrong(|| "the table's marks changed".into());
        }
        table.maintain();
    }

    /// The next table is new, and none of the damage is in it.
    pub fn fork(&mut self, table: &MemTable) {
        match table.fork() {
            Err(error) => self.refused(&error, "fork"),
            Ok(next) => {
                let written = next.put(1, b"key", b"value").is_ok();
                let read = matches!(next.get(b"key", 1), Ok(Lookup::Value(value)) if *value == *b"value");
                if !(written && read && next.len() == 1 && !next.is_frozen()) {
                    self.wrong(|| "the next table answers wrong".into());
                }
            }
        }
    }

    /// Whether equal entries replace each other in this table.
    pub fn replaces(&self) -> bool {
        self.model().shape.duplicates == DuplicatePolicy::Replace
    }
}
