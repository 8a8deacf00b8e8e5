//! The planner, shared by the live loop and simulations: learns from observations and plans.

use crate::decide::decide;
use crate::learned::Observer;
use crate::observation::Observation;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::snapshot::{Learned, Snapshot};

/// Learns from observations and plans.
pub struct Planner {
    policy: Policy,
    observer: Observer,
}

impl Planner {
    /// Creates a planner without observations.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { observer: Observer::new(&policy), policy }
    }

    /// Settings of the planner.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Statistics learned so far.
    #[must_use]
    pub fn learned(&self) -> &Learned {
        self.observer.learned()
    }

    /// Learns from an observation and plans.
    pub fn plan(&mut self, seen: &Observation) -> Plan {
        let learned = self.observer.note(seen);
        decide(&Snapshot { seen, learned }, &self.policy)
    }
}
