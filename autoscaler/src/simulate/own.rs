//! Stokehold's own policy, as a simulation asks it: the code that decides live.

use super::scaler::Scaler;
use crate::decide::decide;
use crate::learned::Observer;
use crate::observation::Observation;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::snapshot::Snapshot;

/// Stokehold's own policy.
pub struct Own {
    policy: Policy,
    observer: Observer,
}

impl Own {
    /// With these settings.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { observer: Observer::new(&policy), policy }
    }

    /// What it has learned.
    #[must_use]
    pub fn observer(&self) -> &Observer {
        &self.observer
    }
}

impl Scaler for Own {
    fn name(&self) -> &str {
        "stokehold"
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        let learned = self.observer.note(seen);
        decide(&Snapshot { seen, learned }, &self.policy)
    }
}
