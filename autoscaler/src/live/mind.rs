//! What is learned from one look to the next, and what is decided of it.

use std::collections::BTreeSet;

use crate::name::Name;
use crate::observation::{Machine, Observation, Phase};
use crate::observe::JOINED;
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

    /// What is to be done now. Workers that were not started from here count for what they do, but not as some of those that there may or
    /// must be, and stay: their coming and going is their operator's business.
    pub(crate) fn decide(&mut self, seen: &Observation) -> Plan {
        let joined = seen.machines.iter().filter(|machine| *machine.provider == *JOINED);
        let joined: BTreeSet<&Name> = joined.map(|machine| &machine.id).collect();
        let is_on = |machine: &&Machine| *machine.provider == *JOINED && machine.phase == Phase::Ready;
        let others = u32::try_from(seen.machines.iter().filter(is_on).count()).unwrap_or(u32::MAX);
        let Policy { min_machines, max_machines, .. } = self.policy;
        let policy = Policy {
            min_machines: min_machines.saturating_add(others),
            max_machines: max_machines.saturating_add(others),
            ..self.policy.clone()
        };
        let learned = self.observer.note(seen);
        let mut plan = decide(&Snapshot { seen, learned }, &policy);
        plan.steps.retain(|step| machine_of(&step.action).is_none_or(|machine| !joined.contains(machine)));
        plan
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
