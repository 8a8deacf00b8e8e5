//! What is learned from one look to the next, and what is decided of it.

use crate::name::Name;
use crate::observation::Observation;
use crate::plan::{Action, Plan};
use crate::{Observer, Policy, Snapshot, decide};

/// Learns, and decides.
pub(crate) struct Mind {
    observer: Observer,
    policy: Policy,
}

impl Mind {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { observer: Observer::new(&policy), policy }
    }

    /// What is to be done now.
    pub(crate) fn decide(&mut self, seen: &Observation) -> Plan {
        let learned = self.observer.note(seen);
        decide(&Snapshot { seen, learned }, &self.policy)
    }
}

/// The machine that a step is about; `None` for one that is not there yet.
pub(crate) fn machine_of(action: &Action) -> Option<&Name> {
    match action {
        Action::Rent { .. } => None,
        Action::Resume { machine }
        | Action::Drain { machine }
        | Action::Undrain { machine }
        | Action::Stop { machine }
        | Action::Release { machine } => Some(machine),
    }
}
