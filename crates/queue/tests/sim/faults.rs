//! Faults: their kinds, their probabilities, and their counts.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    RequestLost,
    ReplyLost,
    Duplicated,
    /// A message is delayed by more than a second: messages overtake one another.
    Delayed,
    /// A signal from the queue to a replica is lost.
    SignalLost,
    ReplicaKilled,
    WorkerKilled,
    /// A worker is paused for longer than a lease.
    WorkerPaused,
    /// The messages of a worker are dropped for a while.
    WorkerCutOff,
    /// A worker's wall clock jumps by an hour, in either direction.
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

/// The faults of a run and the probability of each where it may occur. Every seed has another mixture. Some runs have
/// no fault of a kind, which covers behaviour that needs its absence.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    odds: BTreeMap<Fault, f64>,
    pub(crate) landed: BTreeMap<Fault, u64>,
}

impl Faults {
    pub(crate) fn draw(rng: &mut StdRng, without: &[Fault]) -> Self {
        let mut odds = BTreeMap::new();
        for fault in Fault::ALL {
            // Both values are always drawn, so that removing one fault leaves the others unchanged.
            let (wanted, odd) = (rng.random_bool(0.6), rng.random_range(0.005..0.08));
            if wanted && !without.contains(&fault) {
                odds.insert(fault, odd);
            }
        }
        Self { odds, landed: BTreeMap::new() }
    }

    /// Whether the fault occurs here and now.
    pub(crate) fn strikes(&mut self, fault: Fault, rng: &mut StdRng) -> bool {
        let struck = self.odds.get(&fault).is_some_and(|odds| rng.random_bool(*odds));
        if struck {
            *self.landed.entry(fault).or_default() += 1;
        }
        struck
    }

    /// Disables all faults from now on.
    pub(crate) fn heal(&mut self) {
        self.odds.clear();
    }
}
