//! What is learned from one look to the next, and what is decided of it.

use crate::decide::{Snapshot, decide};
use crate::observation::Observation;
use crate::observer::Observer;
use crate::plan::Plan;
use crate::policy::Policy;

/// Learns, and decides.
pub(crate) struct Mind {
    observer: Observer,
    policy: Policy,
}

impl Mind {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { observer: Observer::new(&policy), policy }
    }

    pub(crate) fn decide(&mut self, seen: &Observation) -> Plan {
        self.observer.note(seen);
        decide(&Snapshot { seen, learned: &self.observer.learned }, &self.policy)
    }
}
