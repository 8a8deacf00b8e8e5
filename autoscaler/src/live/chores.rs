//! What follows from what was decided before, whatever is decided now: calls of unknown outcome are cleared up, drained machines go, those
//! that never came are given back, and what is nobody's is ended. Pure.

use stokehold_queue::registry::{MachineRecord, Wanted};

use crate::observe::{self, Seen};
use crate::provider::{Provider, RentalState};

/// A call that its provider has not confirmed is made again after this time, milliseconds.
const ASK_AGAIN_MS: u64 = 30_000;

/// Good lists in a row that a machine must be missing from to be gone: a fresh one may be missing from one.
const MISSED_MAX: u32 = 2;

/// Endpoints that are remembered to be on a machine's disk.
const ON_DISK_MAX: usize = 200;

/// How patient to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// A draining machine is ended with what it has after this time, milliseconds.
    pub(crate) drain_ms: u64,
    /// A host whose machine never came, or went away, is left alone for this time, milliseconds.
    pub(crate) shun_ms: u64,
}

/// Something to do beside the plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Chore {
    /// Write a machine down as it is now known to be.
    Note(MachineRecord),
    /// It is gone.
    Forget {
        /// Its id.
        id: String,
        why: &'static str,
    },
    /// Have its provider do this.
    Ask { machine: MachineRecord, wanted: Wanted, why: &'static str },
    /// Rent nothing of this host or offer until then, unix milliseconds; 0: it may be again.
    Shun { host: String, until_ms: u64 },
}

/// What there is to do. `provider`: by name; machines of a provider that there is none of are left as they are.
pub(crate) fn chores<'a>(
    seen: &Seen,
    patience: Patience,
    provider: impl Fn(&str) -> Option<&'a dyn Provider>,
) -> Vec<Chore> {
    let mut chores = Vec::new();
    for machine in seen.machines.values() {
        if let Some(provider) = provider(&machine.provider) {
            one(seen, patience, provider, machine, &mut chores);
        }
    }
    for (name, rentals) in &seen.rentals {
        for rental in rentals.iter().flatten() {
            let is_known = seen.machines.values().any(|machine| {
                machine.provider == *name && (machine.id == rental.label || machine.rental.as_ref() == Some(&rental.id))
            });
            if !is_known {
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
                    usd_micros_per_hour: 0,
                    stopped_usd_micros_per_hour: 0,
                    is_interruptible: false,
                    missed: 0,
                    on_disk: Vec::new(),
                };
                chores.push(Chore::Ask { machine, wanted: Wanted::Gone, why: "nobody wrote it down" });
            }
        }
    }
    let over = seen.shunned.iter().filter(|(_, until_ms)| **until_ms <= seen.now_ms);
    chores.extend(over.map(|(host, _)| Chore::Shun { host: host.clone(), until_ms: 0 }));
    chores
}

fn one(seen: &Seen, patience: Patience, provider: &dyn Provider, machine: &MachineRecord, chores: &mut Vec<Chore>) {
    let age_ms = seen.now_ms.saturating_sub(machine.wanted_ms);
    // It cannot be said of one whose provider could not be asked.
    let Some(listed) = seen.rentals.get(&machine.provider) else { return };
    let rental = seen.rental_of(machine);
    let mut known = machine.clone();
    if let Some(rental) = rental {
        known.rental = Some(rental.id.clone());
        known.missed = 0;
        // It was made after all.
        known.is_done |= machine.wanted == Wanted::Running && machine.rental.is_none();
        known.is_done |= machine.wanted == Wanted::Stopped && rental.state == RentalState::Stopped;
        if let Some(micros) = rental.usd_per_hour.map(micros).filter(|_| machine.wanted == Wanted::Running) {
            known.usd_micros_per_hour = micros;
        }
    } else if listed.is_some() && u128::from(age_ms) >= provider.settles_after().as_millis() {
        known.missed += 1;
        if known.missed >= MISSED_MAX || provider.settles_after().is_zero() {
            return gone(seen, patience, provider, machine, chores);
        }
    }
    let worker = seen.worker_of(machine);
    if let Some(worker) = worker {
        for name in observe::loaded(worker) {
            if !known.on_disk.contains(&name) && known.on_disk.len() < ON_DISK_MAX {
                known.on_disk.push(name);
            }
        }
    }
    let ask = |wanted, why| Chore::Ask { machine: known.clone(), wanted, why };
    let never_came =
        machine.wanted == Wanted::Running && worker.is_none() && u128::from(age_ms) > provider.join_limit().as_millis();
    let chore = if machine.wanted == Wanted::Gone && !known.is_done && age_ms >= ASK_AGAIN_MS {
        Some(ask(Wanted::Gone, "asked before without a certain answer"))
    } else if machine.wanted == Wanted::Gone && rental.is_some() && age_ms >= ASK_AGAIN_MS {
        Some(ask(Wanted::Gone, "it is still there"))
    } else if machine.wanted == Wanted::Stopped && !known.is_done && age_ms >= ASK_AGAIN_MS {
        Some(ask(Wanted::Stopped, "asked before without a certain answer"))
    } else if never_came {
        chores.extend(shun(seen, patience, provider, machine));
        Some(ask(Wanted::Gone, "its worker has not joined in time"))
    } else if let (Some(then), Some(drained_ms)) = (machine.then, machine.drained_ms) {
        let is_late = seen.now_ms.saturating_sub(drained_ms) > patience.drain_ms;
        let is_silent = worker.is_some_and(|worker| seen.is_silent(worker));
        match (seen.is_done(machine), is_silent, is_late) {
            (true, ..) => Some(ask(then, "its jobs are done")),
            (_, true, _) => Some(ask(then, "it has fallen silent")),
            (.., true) => Some(ask(then, "its time to end its jobs is over")),
            _ => None,
        }
    } else {
        None
    };
    match chore {
        Some(chore) => chores.push(chore),
        None if known != *machine => chores.push(Chore::Note(known)),
        None => {}
    }
}

/// It is in its provider's list no more.
fn gone(seen: &Seen, patience: Patience, provider: &dyn Provider, machine: &MachineRecord, chores: &mut Vec<Chore>) {
    let why = match (machine.wanted, machine.is_done) {
        (Wanted::Gone, _) => "given back",
        (_, false) => "it was never made",
        (_, true) => {
            chores.extend(shun(seen, patience, provider, machine));
            "it is not there any more"
        }
    };
    chores.push(Chore::Forget { id: machine.id.clone(), why });
}

/// Leaves the box alone for a while; the offer, where nobody says which box it is. Not this machine: there is no other.
fn shun(seen: &Seen, patience: Patience, provider: &dyn Provider, machine: &MachineRecord) -> Option<Chore> {
    if provider.leaves_with_us() {
        return None;
    }
    let word = |member: &str| machine.offer[member].as_str().unwrap_or_default().to_owned();
    let host = Some(word("host")).filter(|host| !host.is_empty()).unwrap_or_else(|| word("id"));
    Some(Chore::Shun { host, until_ms: seen.now_ms + patience.shun_ms })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some dollars an hour, never negative")]
pub(crate) fn micros(usd: f64) -> u64 {
    (usd.max(0.0) * 1e6).round() as u64
}
