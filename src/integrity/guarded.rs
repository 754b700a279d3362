//! Words that decide an answer, kept with their complement.
//!
//! ```text
//!   value       v
//!   complement  !v        v ^ complement must be all ones
//! ```
//! * G1: a word is set at most once after construction, from 0 to its value: complement first, value second. A reader
//!   that sees the value therefore sees the complement as well.
//! * G2: a reader that sees 0 knows only that the value is not set *yet*; one that needs it treats 0 as damage.
//!
//! Any thread may read; one thread sets. Damage to both copies at once is outside the fault model.

#![forbid(unsafe_code)]

use crate::error::{Corruption, Place};
use crate::sync::{AtomicU64, Ordering};

/// One word of the control block.
#[derive(Debug)]
pub(crate) struct Guarded {
    value: AtomicU64,
    complement: AtomicU64,
}

impl Guarded {
    /// A word with its complement.
    pub(crate) fn new(value: u64) -> Self {
        Guarded { value: AtomicU64::new(value), complement: AtomicU64::new(!value) }
    }

    /// Sets a word that was 0 (G1). The caller makes sure that only one thread does.
    pub(crate) fn set(&self, value: u64) {
        // ORDERING: Release pairs with the Acquire in `get`: the complement is visible before the value.
        self.complement.store(!value, Ordering::Release);
        // ORDERING: Release pairs with the Acquire in `get`: what the value announces is visible before it.
        self.value.store(value, Ordering::Release);
    }

    /// The value, or what was found instead.
    #[inline(always)]
    pub(crate) fn get(&self) -> Result<u64, Corruption> {
        // ORDERING: Acquire pairs with the Release stores in `set`.
        let value = self.value.load(Ordering::Acquire);
        // ORDERING: Relaxed: ordered behind the Acquire load above, whose Release partner stored this first.
        let complement = self.complement.load(Ordering::Relaxed);
        if value ^ complement == u64::MAX {
            return Ok(value);
        }
        if value == 0 { Ok(0) } else { Err(damage(value, complement)) }
    }

    /// The value and what does not fit its complement: 0 if all does. For checking many words with one branch.
    #[inline(always)]
    pub(crate) fn get_with_mismatch(&self) -> (u64, u64) {
        // ORDERING: Acquire pairs with the Release stores in `set`.
        let value = self.value.load(Ordering::Acquire);
        // ORDERING: Relaxed: ordered behind the Acquire load above, whose Release partner stored this first.
        let complement = self.complement.load(Ordering::Relaxed);
        (value, !(value ^ complement))
    }

    /// The value, where 0 is only believed if the complement agrees: for passes that run when nothing is being set.
    #[inline(always)]
    pub(crate) fn get_settled(&self) -> Result<u64, Corruption> {
        let value = self.get()?;
        // ORDERING: Relaxed: nothing is being set while a settled pass runs.
        let complement = self.complement.load(Ordering::Relaxed);
        if value ^ complement == u64::MAX { Ok(value) } else { Err(damage(value, complement)) }
    }

    /// The two words, for the fault door.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn words(&self) -> [&AtomicU64; 2] {
        [&self.value, &self.complement]
    }
}

#[cold]
fn damage(value: u64, complement: u64) -> Corruption {
    let difference = value ^ !complement;
    let mut report = Corruption::new(Place::Control, 0, !complement, value);
    if difference.is_power_of_two() {
        report.flipped_bit = Some(u64::from(difference.trailing_zeros()));
    }
    report
}
