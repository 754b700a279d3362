//! Planted bugs prove that the tests can fail. Each is a mistake that only another thread or damaged memory brings to
//! light. A mistake that a test with fixed inputs and a fixed fault must notice needs no planted bug.
//!
//! With the feature `__planted-bugs` the environment variable `PARANOID_PLANTED_BUG` switches one of them on by name,
//! and a test of the suite must fail. In a normal build [`planted`] is the constant `false`.

#![forbid(unsafe_code)]

macro_rules! bugs {
    ($($(#[$note:meta])* $name:ident,)*) => {
        /// One deliberate mistake each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Bug { $($(#[$note])* $name,)* }

        #[cfg(feature = "__planted-bugs")]
        impl Bug {
            const NAMES: &'static [(&'static str, Bug)] = &[$((stringify!($name), Bug::$name),)*];
        }
    };
}

bugs! {
    /// Links are followed without Acquire.
    LinkLoadRelaxed,
    /// A link is believed whatever its tag says.
    LinkTagIgnored,
    /// A node is published without Release.
    PublishRelaxed,
    /// Only the right side of a bracket is verified.
    BracketForgetsPred,
    /// The careful retry walks level 0 only and so cannot pass a broken link.
    RetryForgetsUpperLevels,
    /// The way back from a broken link ends after one step.
    BackwalkStopsEarly,
    /// A back link is believed without its forward link.
    BackLinkUnconfirmed,
    /// A back link is overwritten by a plain store, even if another writer changed it meanwhile.
    BackLinkStored,
    /// A link is believed without the back link of the node that it names.
    BackLinkNotAsked,
    /// A damaged entry is passed by its key as read, without a proof of that key.
    DamagedNodeUnproved,
    /// A journal's sync leaves the files' bytes to the operating system.
    JournalForgetsSync,
    /// A journal's sync leaves the files' names to the operating system.
    JournalForgetsNames,
    /// A page of the directory is written although another writer has its lock.
    LeafLockIgnored,
    /// A page of the directory that another one replaced takes names.
    ReplacedPageNamesOn,
    /// A name that finds its leaf locked is forgotten.
    BusyNameForgotten,
    /// Slots of a page are shifted from the first one on.
    SlotsShiftedUp,
    /// A flag whose value was zeroed reads as never set.
    ZeroedFlagBelieved,
    /// A reverse step over a damaged entry trusts that entry's own back link.
    GapTrustsBackLink,
    /// A scan shows the entry after a gap although the gap may have held a newer version of its key.
    GapShowsReplaced,
    /// A descending range passes a gap that it has reported as if there were none.
    DescendingForgetsGap,
    /// One end of a range does not compare itself with the other end while that one is in a gap.
    EndsForgetGaps,
    /// The entry that a parked cursor stands on is not verified again.
    ParkedBelieved,
    /// An insert that lost its race returns as if it had won.
    LostRaceBelieved,
    /// An insert that loses a race at a higher level ends that level at its predecessor.
    LinkTowerGivesUpNode,
    /// Freezing does not wait for the writers inside.
    FreezeSkipsBusyShards,
    /// A refused write returns while the freeze still has gates to close.
    RefusedTooEarly,
    /// A chunk of a dropped arena is handed out with what is in it.
    RecycledAsItWas,
    /// Two writers are given the same arena units.
    BumpLosesRace,
    /// A writer shard that is made after a freeze takes writes.
    LeaseBornOpen,
    /// The filter learns of a key after its node is published.
    FilterAfterPublication,
    /// Lines of filters are believed without their control word.
    LineForgetsControl,
    /// A control word still includes the mark of a word that was replaced.
    ControlKeepsOldWord,
    /// A log record is published before it is filled.
    LogPublishesBeforeFill,
    /// A block is painted although a record of it is still being written.
    PaintSkipsPending,
    /// A log record that went back to its pending mark is taken for one that is being written.
    LostRecordIsPending,
    /// A count of log records that went back to an earlier value is not noticed.
    TallyBelievesBegun,
    /// The set's view is replaced in one shard after the other, each under its own lock alone.
    SwapsShardByShard,
    /// A commit becomes visible although one before it is not done.
    PublishesOutOfOrder,
    /// Commits that wait to become visible are not woken.
    PublicationWakesNobody,
    /// A commit that is done before an earlier one does not say so to commits that publish without the lock.
    PublicationLocksInSecret,
    /// A view reads up to what is visible, whatever its active table has.
    ReadForgetsClosedTable,
    /// The leader of a sync answers for what was appended after it had begun.
    SyncCoversLaterAppends,
    /// A flush reads the snapshots before it waits for its tables.
    FlushReadsSnapshotsEarly,
    /// The flush thread, and writers, are not woken when a table is sealed.
    SealWakesNobody,
    /// Writers that wait for a flush are not woken at its end.
    FlushEndWakesNobody,
}

/// Whether this bug is switched on.
#[cfg(not(feature = "__planted-bugs"))]
#[inline(always)]
pub(crate) const fn planted(_bug: Bug) -> bool {
    false
}

/// Whether this bug is switched on.
#[cfg(feature = "__planted-bugs")]
pub(crate) fn planted(bug: Bug) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("PARANOID_PLANTED_BUG").ok()?;
        match Bug::NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, bug)) => Some(*bug),
            None => panic!("no planted bug is called {name}"),
        }
    });
    *chosen == Some(bug)
}
