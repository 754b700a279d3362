//! Point reads over all tables of a version, newest first.

use paranoid_memtable::read::Base;
use paranoid_memtable::{Error, Lookup};

use crate::tables::Version;

/// What a version says about a key. No benchmark writes merge operands; journals may hold some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A value of this many bytes.
    Value(usize),
    Absent,
}

/// What one table's lookup decides; `None`: the next table must be asked.
fn settle(lookup: Lookup<'_>) -> Result<Option<Answer>, Error> {
    Ok(match lookup {
        Lookup::Value(value) => Some(Answer::Value(value.len())),
        Lookup::Deleted { .. } => Some(Answer::Absent),
        Lookup::NotFound => None,
        // How operands combine is the engine's to know: here their bytes are counted.
        Lookup::Merge(mut operands) => {
            let base = operands.base()?;
            let mut bytes = 0;
            for operand in operands.by_ref() {
                bytes += operand?.value.len();
            }
            if let Base::Value(value) = base {
                bytes += value.len();
            }
            Some(Answer::Value(bytes))
        }
    })
}

impl Version {
    /// The newest value of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Answer, Error> {
        for table in &self.tables {
            if let Some(answer) = settle(table.get(key, u64::MAX)?)? {
                return Ok(answer);
            }
        }
        Ok(Answer::Absent)
    }
}

/// Buffers of a MultiGet, kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct MultiGet {
    answers: Vec<Option<Answer>>,
    /// Keys that no table has decided yet, by their index in the caller's list.
    open: Vec<usize>,
}

impl MultiGet {
    /// The newest values of many keys, in the order asked.
    pub(crate) fn get(
        &mut self,
        version: &Version,
        keys: &[Vec<u8>],
    ) -> Result<impl Iterator<Item = Answer>, Error> {
        self.answers.clear();
        self.answers.resize(keys.len(), None);
        self.open.clear();
        self.open.extend(0..keys.len());
        let mut lookups = Vec::with_capacity(keys.len());
        for (at, table) in version.tables.iter().enumerate() {
            if self.open.is_empty() {
                break;
            }
            if at == 0 {
                table.multi_get_into(keys, u64::MAX, &mut lookups);
            } else {
                let open: Vec<&[u8]> = self.open.iter().map(|at| keys[*at].as_slice()).collect();
                table.multi_get_into(&open, u64::MAX, &mut lookups);
            }
            for (at, lookup) in self.open.iter().zip(lookups.drain(..)) {
                self.answers[*at] = settle(lookup?)?;
            }
            self.open.retain(|at| self.answers[*at].is_none());
        }
        Ok(self.answers.iter().map(|answer| answer.unwrap_or(Answer::Absent)))
    }
}
