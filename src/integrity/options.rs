//! Options of integrity: what is checked, and when.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::integrity::digest::Width;

/// Which checks a table makes. [`MemTableOptionsBuilder::build`](crate::MemTableOptionsBuilder::build) refuses values that
/// contradict each other.
///
/// Link tags and header checks are verified at every hop under all options: no setting lets a damaged link or length
/// crash the process.
///
/// ```
/// use paranoid_memtable::{Error, MemTableOptions, ParanoidOptions};
/// let built = |paranoid| MemTableOptions::builder().paranoid(paranoid).build();
/// let paranoid = ParanoidOptions { protection_bytes: 4, checksum_on_seek: true, ..ParanoidOptions::default() };
/// assert_eq!(built(paranoid)?.paranoid().protection_bytes, 4);
/// let contradiction = ParanoidOptions { protection_bytes: 0, checksum_on_seek: true, order_checks: false };
/// assert!(matches!(built(contradiction), Err(Error::InvalidArgument(_))));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParanoidOptions {
    /// Stored bytes of each of an entry's two digests: 0, 1, 2, 4 or 8 (default). Random damage to an entry goes
    /// unnoticed with probability 2^-8 at 1 byte, 2^-16 at 2, 2^-32 at 4, 2^-64 at 8; at 0 only links, lengths and
    /// sequence numbers are checked.
    pub protection_bytes: u8,
    /// Also verify the key digest of every node that a search enters (default off). Needs protection bytes.
    pub checksum_on_seek: bool,
    /// Compare neighbours in searches and steps, and report what is out of order (default off). Finds comparators
    /// that disagree with themselves.
    pub order_checks: bool,
}

/// Whether searches verify every node that they enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeekChecks {
    /// Only the two nodes of the bracket around the answer.
    Bracket,
    /// Every node on the way, too.
    EveryNode,
}

/// Whether searches and steps compare adjacent entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderChecks {
    /// They do not.
    Off,
    /// They do.
    On,
}

impl Default for ParanoidOptions {
    fn default() -> Self {
        ParanoidOptions { protection_bytes: 8, checksum_on_seek: false, order_checks: false }
    }
}

impl ParanoidOptions {
    /// The width of digests. `InvalidArgument` for other protection bytes than 0, 1, 2, 4, 8, and for `checksum_on_seek`
    /// without any.
    pub(crate) fn width(&self) -> Result<Width> {
        let Some(width) = Width::new(self.protection_bytes) else {
            return Err(Error::InvalidArgument(format!(
                "protection_bytes must be 0, 1, 2, 4 or 8, not {}",
                self.protection_bytes
            )));
        };
        if width.bytes() == 0 && self.checksum_on_seek {
            return Err(Error::InvalidArgument(
                "checksum_on_seek needs protection_bytes: there is nothing to verify at 0".into(),
            ));
        }
        Ok(width)
    }

    pub(crate) fn seek_checks(&self) -> SeekChecks {
        if self.checksum_on_seek { SeekChecks::EveryNode } else { SeekChecks::Bracket }
    }

    pub(crate) fn neighbour_checks(&self) -> OrderChecks {
        if self.order_checks { OrderChecks::On } else { OrderChecks::Off }
    }
}
