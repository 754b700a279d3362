//! The options for the integrity checks of a table.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::integrity::digest::Width;

/// The integrity checks that a table makes. Built by [`ParanoidOptions::builder`].
///
/// Every step of a search verifies link tags and header checks under all options: no setting lets a
/// damaged link or length crash the process.
///
/// ```
/// use paranoid_memtable::ParanoidOptions;
/// # fn main() -> Result<(), paranoid_memtable::Error> {
/// let options = ParanoidOptions::builder().protection_bytes(4).checksum_on_seek(true).build()?;
/// assert_eq!(options.protection_bytes(), 4);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParanoidOptions {
    pub(crate) width: Width,
    pub(crate) checksum_on_seek: SeekChecks,
    pub(crate) order_checks: OrderChecks,
    pub(crate) repair: Repair,
}

/// Whether a table puts damaged memory right: set by [`ParanoidOptionsBuilder::repair`].
///
/// ```
/// use paranoid_memtable::integrity::Repair;
/// assert_eq!(Repair::default(), Repair::On { places_max: 16 });
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// A damaged place is reported as `Corruption`.
    Off,
    /// A damaged place whose content other words prove is put right, told, and costs no answer.
    On {
        /// The most places that one table puts right, at least 1. Its memory fails, so further
        /// damage is reported as `Corruption`.
        places_max: u32,
    },
}

/// On one line, because the output of a set's options has a limit.
impl std::fmt::Debug for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Repair::Off => f.write_str("Off"),
            Repair::On { places_max } => write!(f, "On({places_max})"),
        }
    }
}

impl Default for Repair {
    fn default() -> Self {
        Repair::On { places_max: 16 }
    }
}

/// Whether searches verify every node that they enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SeekChecks {
    /// They verify only the two neighbours of the answer.
    #[default]
    Bracket,
    /// They verify every node on the way too.
    EveryNode,
}

/// Whether searches and steps compare adjacent entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OrderChecks {
    /// They do not compare them.
    #[default]
    Off,
    /// They compare them.
    On,
}

impl ParanoidOptions {
    /// A builder with the defaults: 8 protection bytes, all other checks off.
    ///
    /// ```
    /// use paranoid_memtable::ParanoidOptions;
    /// let options = ParanoidOptions::builder().build()?;
    /// assert_eq!((options.protection_bytes(), options.checksum_on_seek(), options.order_checks()), (8, false, false));
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn builder() -> ParanoidOptionsBuilder {
        ParanoidOptionsBuilder::default()
    }

    /// The number of bytes stored of each of an entry's two digests: 0, 1, 2, 4 or 8.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 8")]
    pub fn protection_bytes(&self) -> u8 {
        self.width.bytes as u8
    }

    /// Whether searches verify every node that they enter.
    #[must_use]
    pub fn checksum_on_seek(&self) -> bool {
        self.checksum_on_seek == SeekChecks::EveryNode
    }

    /// Whether damaged memory is put right.
    #[must_use]
    pub fn repair(&self) -> Repair {
        self.repair
    }

    /// Whether searches and steps compare adjacent entries.
    #[must_use]
    pub fn order_checks(&self) -> bool {
        self.order_checks == OrderChecks::On
    }
}

/// The builder of [`ParanoidOptions`].
///
/// ```
/// use paranoid_memtable::ParanoidOptions;
/// let options = ParanoidOptions::builder().protection_bytes(4).order_checks(true).build()?;
/// assert_eq!((options.protection_bytes(), options.order_checks()), (4, true));
/// # Ok::<(), paranoid_memtable::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ParanoidOptionsBuilder {
    options: ParanoidOptions,
    /// Protection bytes that are not one of the five allowed numbers.
    refused: Option<u8>,
}

impl ParanoidOptionsBuilder {
    /// Sets the number of bytes stored of each of an entry's two digests: 0, 1, 2, 4 or 8
    /// (default). Random damage to an entry is missed with probability 2^-8 at 1 byte, 2^-16 at 2,
    /// 2^-32 at 4, 2^-64 at 8. At 0 only links, lengths and sequence numbers are checked.
    ///
    /// ```
    /// use paranoid_memtable::ParanoidOptions;
    /// assert_eq!(ParanoidOptions::builder().protection_bytes(2).build()?.protection_bytes(), 2);
    /// assert!(ParanoidOptions::builder().protection_bytes(3).build().is_err());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn protection_bytes(mut self, bytes: u8) -> Self {
        match Width::new(bytes) {
            Some(width) => (self.options.width, self.refused) = (width, None),
            None => self.refused = Some(bytes),
        }
        self
    }

    /// Makes searches verify the key digest of every node that they enter (default off). Needs
    /// protection bytes.
    ///
    /// ```
    /// use paranoid_memtable::{MemTable, MemTableOptions, ParanoidOptions};
    /// let paranoid = ParanoidOptions::builder().checksum_on_seek(true).build()?;
    /// let table = MemTable::new(MemTableOptions::builder().paranoid(paranoid).build()?)?;
    /// assert!(table.options().paranoid().checksum_on_seek());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the setter of a yes/no option"
    )]
    pub fn checksum_on_seek(mut self, on: bool) -> Self {
        self.options.checksum_on_seek = if on {
            SeekChecks::EveryNode
        } else {
            SeekChecks::Bracket
        };
        self
    }

    /// Makes searches and steps compare neighbours and report entries that are out of order
    /// (default off). This finds comparators that contradict themselves.
    ///
    /// ```
    /// use paranoid_memtable::ParanoidOptions;
    /// assert!(ParanoidOptions::builder().order_checks(true).build()?.order_checks());
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    #[expect(
        clippy::fn_params_excessive_bools,
        reason = "the setter of a yes/no option"
    )]
    pub fn order_checks(mut self, on: bool) -> Self {
        self.options.order_checks = if on {
            OrderChecks::On
        } else {
            OrderChecks::Off
        };
        self
    }

    /// Sets whether the table puts damaged memory right (default: up to 16 places).
    /// [`TableReader::healed`](crate::TableReader::healed) returns the places.
    ///
    /// ```
    /// use paranoid_memtable::ParanoidOptions;
    /// use paranoid_memtable::integrity::Repair;
    /// let options = ParanoidOptions::builder().repair(Repair::Off).build()?;
    /// assert_eq!(options.repair(), Repair::Off);
    /// # Ok::<(), paranoid_memtable::Error>(())
    /// ```
    pub fn repair(mut self, repair: Repair) -> Self {
        self.options.repair = repair;
        self
    }

    /// Builds the options.
    ///
    /// ```
    /// use paranoid_memtable::{Error, ParanoidOptions};
    /// assert!(ParanoidOptions::builder().build().is_ok());
    /// let contradiction = ParanoidOptions::builder().protection_bytes(0).checksum_on_seek(true);
    /// assert!(matches!(contradiction.build(), Err(Error::InvalidArgument(_))));
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument`:
    /// * protection bytes other than 0, 1, 2, 4 and 8;
    /// * `checksum_on_seek` with 0 protection bytes;
    /// * a `repair` of at most 0 places.
    pub fn build(self) -> Result<ParanoidOptions> {
        if let Some(bytes) = self.refused {
            return Err(Error::InvalidArgument(format!(
                "protection_bytes must be 0, 1, 2, 4 or 8, not {bytes}"
            )));
        }
        if self.options.protection_bytes() == 0 && self.options.checksum_on_seek() {
            return Err(Error::InvalidArgument(
                "checksum_on_seek needs protection_bytes: there is nothing to verify at 0".into(),
            ));
        }
        if self.options.repair == (Repair::On { places_max: 0 }) {
            return Err(Error::InvalidArgument(
                "repair of at most 0 places puts nothing right: use Repair::Off".into(),
            ));
        }
        Ok(self.options)
    }
}
