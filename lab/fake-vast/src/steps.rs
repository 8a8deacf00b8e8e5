//! Planned changes of the market, ordered by time.

/// A step and the time at which it happens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at_ms: u64,
    pub(crate) sequence: u64,
    pub(crate) step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Of one instance, void once its life has moved on.
    Of { instance: u64, life: u64, to: To },
    /// Others give cards back.
    Release { machine: usize, release: u64 },
    /// Somebody else rents somewhere.
    OthersRent,
    /// A listing ends, unless it was renewed.
    Expire { machine: usize, end_ms: u64 },
    /// A box is listed again.
    Renew { machine: usize },
    /// A host answers again.
    HostBack { machine: usize },
    /// A destroyed instance costs nothing any more.
    StopBilling { instance: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum To {
    Created,
    Loading,
    Running,
    RuntimeError,
    Stopped,
    Rival,
    Outbid {
        look: u8,
    },
    Offline {
        for_ms: u64,
    },
    Unknown {
        for_ms: u64,
    },
    Exited,
    /// In thousandths.
    DearerBy {
        factor: u64,
    },
    Deleted,
}
