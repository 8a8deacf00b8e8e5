//! Corrections that follow from earlier decisions: calls of unknown outcome are resolved, drained machines are given
//! back, and so are machines that never came up or that the ledger lacks. Pure.

mod machine;
mod overcharge;

use stokehold_queue::registry::{MachineRecord, Wanted};

pub(crate) use overcharge::too_dear;
use overcharge::{false_offer, give_back};
use stokehold_units::UsdMicros;

use crate::observe::RawState;
use crate::provider::Provider;

/// Time limits and the limit of the cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReconcileLimits {
    /// Time that a draining machine has for its jobs, milliseconds.
    pub(crate) drain_ms: u64,
    /// Time during which nothing is rented from a host whose machine never came up or went away, milliseconds.
    pub(crate) cooldown_ms: u64,
    /// Limit for the cost of all machines together, millionths of a dollar per hour.
    pub(crate) most_usd_micros_per_hour: u64,
}

/// A correction, which is independent of the plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Correction {
    /// Updates the record of a machine.
    Note(MachineRecord),
    /// Strikes a machine off that is gone.
    Forget {
        /// ID of the machine.
        id: String,
        why: &'static str,
    },
    /// Requests a state of a machine from its provider.
    Ask { machine: MachineRecord, wanted: Wanted, why: &'static str },
    /// Drains a machine, then gives it back.
    Drain { machine: MachineRecord, why: &'static str },
    /// Rents nothing from this host or offer until then, unix milliseconds; 0 ends the cooldown.
    CoolDown { host: String, until_ms: u64 },
}

/// Lists the corrections for a state. `provider` looks up a provider by name; machines of unknown providers stay as
/// they are.
pub(crate) fn reconcile<'a>(
    seen: &RawState,
    limits: ReconcileLimits,
    provider: impl Fn(&str) -> Option<&'a dyn Provider>,
) -> Vec<Correction> {
    let mut corrections = Vec::new();
    for machine in seen.machines.values() {
        if let Some(provider) = provider(&machine.provider) {
            machine::correct(seen, limits, provider, machine, &mut corrections);
            corrections.extend(false_offer(seen, limits, provider, machine));
        }
    }
    for machine in too_dear(seen, limits.most_usd_micros_per_hour) {
        if provider(&machine.provider).is_some() {
            give_back(seen, machine, &mut corrections);
        }
    }
    corrections.extend(unrecorded(seen));
    let over = seen.cooldowns.iter().filter(|(_, until_ms)| **until_ms <= seen.now_ms);
    corrections.extend(over.map(|(host, _)| Correction::CoolDown { host: host.clone(), until_ms: 0 }));
    corrections
}

/// Gives back the listed rentals that the ledger lacks.
fn unrecorded(seen: &RawState) -> impl Iterator<Item = Correction> {
    let listed =
        seen.rentals.iter().flat_map(|(name, rentals)| rentals.iter().flatten().map(move |rental| (name, rental)));
    let unknown = listed.filter(move |(name, rental)| {
        !seen.machines.values().any(|machine| {
            machine.provider == **name && (machine.id == rental.label || machine.rental.as_ref() == Some(&rental.id))
        })
    });
    unknown.map(move |(name, rental)| {
        let machine = MachineRecord {
            id: rental.label.clone(),
            provider: name.clone(),
            rental: Some(rental.id.clone()),
            offer: serde_json::Value::Null,
            wanted: Wanted::Gone,
            wanted_ms: seen.now_ms,
            is_done: false,
            rented_ms: seen.now_ms,
            drained_ms: None,
            then: None,
            // The machine counts towards the limits until it is gone.
            usd_micros_per_hour: rental.usd_per_hour.map_or(0, UsdMicros::micros),
            agreed_usd_micros_per_hour: None,
            booting_usd_micros_per_hour: None,
            made_ms: None,
            listed_ms: None,
            released_ms: None,
            stopped_usd_micros_per_hour: 0,
            is_interruptible: false,
            missed_ms: None,
            on_disk: Vec::new(),
        };
        Correction::Ask { machine, wanted: Wanted::Gone, why: "it is not in the ledger" }
    })
}

/// Starts a cooldown of the host, or of the offer if the host is unknown. Not for this machine, which has no
/// alternative.
fn cool_down(
    seen: &RawState,
    limits: ReconcileLimits,
    provider: &dyn Provider,
    machine: &MachineRecord,
) -> Option<Correction> {
    if provider.leaves_with_us() {
        return None;
    }
    let word = |member: &str| machine.offer[member].as_str().unwrap_or_default().to_owned();
    let host = Some(word("host")).filter(|host| !host.is_empty()).unwrap_or_else(|| word("id"));
    Some(Correction::CoolDown { host, until_ms: seen.now_ms + limits.cooldown_ms })
}

#[cfg(test)]
mod tests;
