//! What goes wrong, how often, and how often it did.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    RequestLost,
    ReplyLost,
    Duplicated,
    /// By more than a second: messages overtake one another.
    Delayed,
    /// What the queue tells a replica without being asked.
    SignalLost,
    ReplicaKilled,
    WorkerKilled,
    /// For longer than a lease.
    WorkerPaused,
    /// Its messages get nowhere for a while.
    WorkerCutOff,
    /// Its wall clock jumps by an hour, either way.
    ClockStepped,
    WorkerDrained,
    RunnerCrashed,
    HandlerFailed,
    OutOfMemory,
}

impl Fault {
    pub(crate) const ALL: [Self; 14] = [
        Self::RequestLost,
        Self::ReplyLost,
        Self::Duplicated,
        Self::Delayed,
        Self::SignalLost,
        Self::ReplicaKilled,
        Self::WorkerKilled,
        Self::WorkerPaused,
        Self::WorkerCutOff,
        Self::ClockStepped,
        Self::WorkerDrained,
        Self::RunnerCrashed,
        Self::HandlerFailed,
        Self::OutOfMemory,
    ];

    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Which faults a run has, and how likely each is where it may strike. Every seed has another mixture: some have none of a kind, so
/// that what only happens in its absence is seen too.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    odds: BTreeMap<Fault, f64>,
    pub(crate) landed: BTreeMap<Fault, u64>,
}

impl Faults {
    pub(crate) fn draw(rng: &mut StdRng, without: &[Fault]) -> Self {
        let mut odds = BTreeMap::new();
        for fault in Fault::ALL {
            // Drawn either way: taking one fault out leaves the others as they were.
            let (wanted, odd) = (rng.random_bool(0.6), rng.random_range(0.005..0.08));
            if wanted && !without.contains(&fault) {
                odds.insert(fault, odd);
            }
        }
        Self { odds, landed: BTreeMap::new() }
    }

    /// Whether it strikes here and now.
    pub(crate) fn strikes(&mut self, fault: Fault, rng: &mut StdRng) -> bool {
        let struck = self.odds.get(&fault).is_some_and(|odds| rng.random_bool(*odds));
        if struck {
            *self.landed.entry(fault).or_default() += 1;
        }
        struck
    }

    /// From now on everything works.
    pub(crate) fn heal(&mut self) {
        self.odds.clear();
    }
}
