//! Planned changes of the market, ordered by time.

/// A change and its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) at_ms: u64,
    pub(crate) sequence: u64,
    pub(crate) step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A change of an instance; void once its life has ended.
    Of { instance: u64, life: u64, to: To },
    /// Other customers release GPUs.
    Release { machine: usize, release: u64 },
    /// Another customer rents GPUs.
    OthersRent,
    /// A listing ends, unless it was renewed.
    Expire { machine: usize, end_ms: u64 },
    /// A machine is listed again.
    Renew { machine: usize },
    /// A host is connected again.
    HostBack { machine: usize },
    /// A destroyed instance is no longer charged for.
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
    /// The factor in thousandths.
    DearerBy {
        factor: u64,
    },
    Deleted,
}
