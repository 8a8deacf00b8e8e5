//! Stokehold's own policy, as a simulation asks it: the code that decides live.

use super::scaler::Scaler;
use crate::decide::{Snapshot, decide};
use crate::observation::Observation;
use crate::observer::Observer;
use crate::plan::Plan;
use crate::policy::Policy;

/// Stokehold's own policy.
pub struct Own {
    policy: Policy,
    pub observer: Observer,
}

impl Own {
    /// With these settings.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { observer: Observer::new(&policy), policy }
    }
}

impl Scaler for Own {
    fn name(&self) -> &str {
        "stokehold"
    }

    fn plan(&mut self, seen: &Observation) -> Plan {
        self.observer.note(seen);
        decide(&Snapshot { seen, learned: &self.observer.learned }, &self.policy)
    }
}
