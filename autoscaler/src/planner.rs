//! What decides, live and in simulations: it learns from what it sees, and decides by that.

use crate::decide::decide;
use crate::learned::Observer;
use crate::observation::Observation;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::snapshot::Snapshot;

/// Learns, and decides.
pub struct Planner {
    policy: Policy,
    observer: Observer,
}

impl Planner {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { observer: Observer::new(&policy), policy }
    }

    /// What it goes by.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What is to be done now.
    pub fn plan(&mut self, seen: &Observation) -> Plan {
        let learned = self.observer.note(seen);
        decide(&Snapshot { seen, learned }, &self.policy)
    }
}
