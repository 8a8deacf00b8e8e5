//! Corrections of one machine: compares its provider's list and its worker with its record.

use stokehold_queue::registry::{MachineRecord, Wanted};
use stokehold_units::UsdMicros;

use super::{Correction, ReconcileLimits, cool_down};
use crate::observe::{self, RawState};
use crate::provider::{Provider, RentalState};

/// Time after which a call that its provider has not confirmed is repeated, milliseconds.
const ASK_AGAIN_MS: u64 = 30_000;

/// Time without a heartbeat after which a machine without a list counts as gone, milliseconds. Workers send one every
/// three seconds.
const QUIET_MS: u64 = 5_000;

/// Time for which a machine must be missing from its list to count as gone, milliseconds: at least two good lists,
/// because lists are read more often.
pub(super) const MISSED_MS: u64 = 10_000;

/// Maximum number of endpoints that are remembered as stored on a machine's disk.
const ON_DISK_MAX: usize = 200;

/// Appends the corrections of one machine.
pub(super) fn correct(
    seen: &RawState,
    limits: ReconcileLimits,
    provider: &dyn Provider,
    machine: &MachineRecord,
    corrections: &mut Vec<Correction>,
) {
    let age_ms = seen.now_ms.saturating_sub(machine.wanted_ms);
    // The state of machines whose provider could not be reached is unknown.
    let Some(listed) = seen.rentals.get(&machine.provider) else { return };
    let rental = seen.rental_of(machine);
    let worker = seen.worker_of(machine);
    let is_heard = worker.is_some_and(|worker| !seen.is_silent(worker));
    // A list kept in this process is exact. For any other provider, a machine whose worker is heard exists, whatever
    // its list contains.
    let is_exact = provider.settles_after().is_zero();
    let mut known = machine.clone();
    if let Some(rental) = rental {
        known.rental = Some(rental.id.clone());
        known.missed_ms = None;
        // Only the users of a machine that boots are interested in it.
        if worker.is_none() && machine.wanted == Wanted::Running {
            known.listed_ms.get_or_insert(seen.now_ms);
        }
        // The machine was created after all.
        known.is_done |= machine.wanted == Wanted::Running && machine.rental.is_none();
        known.is_done |= machine.wanted == Wanted::Stopped && rental.state == RentalState::Stopped;
        if let Some(micros) = rental.usd_per_hour.map(UsdMicros::micros).filter(|_| machine.wanted == Wanted::Running) {
            known.usd_micros_per_hour = micros;
        }
    } else if listed.is_some()
        && (is_exact || !is_heard)
        && u128::from(unlisted_ms(seen, machine)) >= provider.settles_after().as_millis()
    {
        let missed_ms = *known.missed_ms.get_or_insert(seen.now_ms);
        if seen.now_ms.saturating_sub(missed_ms) >= MISSED_MS || is_exact {
            return gone(seen, limits, provider, machine, corrections);
        }
    }
    // No list contains the machine, but its worker would be heard if it existed.
    if listed.is_none() && machine.wanted == Wanted::Gone && machine.is_done && !is_heard && age_ms >= QUIET_MS {
        return corrections.push(Correction::Forget { id: machine.id.clone(), why: "given back" });
    }
    if let Some(worker) = worker {
        for name in observe::loaded(worker) {
            if !known.on_disk.contains(&name) && known.on_disk.len() < ON_DISK_MAX {
                known.on_disk.push(name);
            }
        }
    }
    let ask = |wanted, why| Correction::Ask { machine: known.clone(), wanted, why };
    let never_came = machine.wanted == Wanted::Running
        && worker.is_none()
        && u128::from(age_ms) > provider.join_limit().as_millis()
        && !seen.is_paused();
    let correction = if machine.wanted == Wanted::Gone && !known.is_done && age_ms >= ASK_AGAIN_MS {
        Some(ask(Wanted::Gone, "the outcome of the last request is unknown"))
    } else if machine.wanted == Wanted::Gone && (rental.is_some() || is_heard) && age_ms >= ASK_AGAIN_MS {
        Some(ask(Wanted::Gone, "it still exists"))
    } else if machine.wanted == Wanted::Stopped && !known.is_done && age_ms >= ASK_AGAIN_MS {
        Some(ask(Wanted::Stopped, "the outcome of the last request is unknown"))
    } else if never_came {
        corrections.extend(cool_down(seen, limits, provider, machine));
        Some(ask(Wanted::Gone, "its worker did not join in time"))
    } else if seen.is_taken(machine) {
        corrections.extend(cool_down(seen, limits, provider, machine));
        let is_broken = rental.is_some_and(|rental| rental.state == RentalState::Broken);
        let why = if is_broken { "it will never run" } else { "it was taken away, and its disk still costs money" };
        Some(ask(Wanted::Gone, why))
    } else if let (Wanted::Running, Some(then), Some(drained_ms)) = (machine.wanted, machine.then, machine.drained_ms) {
        let is_late = seen.now_ms.saturating_sub(drained_ms) > limits.drain_ms;
        let is_silent = worker.is_some_and(|worker| seen.is_silent(worker));
        match (seen.is_done(machine), is_silent, is_late) {
            (true, ..) => Some(ask(then, "its jobs are done")),
            (_, true, _) => Some(ask(then, "its worker is silent")),
            (.., true) => Some(ask(then, "its drain deadline has passed")),
            _ => None,
        }
    } else {
        None
    };
    match correction {
        Some(correction) => corrections.push(correction),
        None if known != *machine => corrections.push(Correction::Note(known)),
        None => {}
    }
}

/// Age of the request that a list must reflect before a missing machine counts, milliseconds. A machine that was just
/// rented may not be listed yet, whatever its wanted state.
fn unlisted_ms(seen: &RawState, machine: &MachineRecord) -> u64 {
    // The release of a machine that may never have been created is not requested. Its wanted state is written
    // repeatedly, which must not restart the clock.
    let is_told = machine.is_done || machine.rental.is_none();
    let since_ms = if machine.wanted == Wanted::Gone && is_told { machine.rented_ms } else { machine.wanted_ms };
    seen.now_ms.saturating_sub(since_ms)
}

/// Strikes off a machine that its provider no longer lists.
fn gone(
    seen: &RawState,
    limits: ReconcileLimits,
    provider: &dyn Provider,
    machine: &MachineRecord,
    corrections: &mut Vec<Correction>,
) {
    let why = match (machine.wanted, machine.is_done) {
        (Wanted::Gone, _) => "given back",
        (_, false) => "it was never created",
        (_, true) => {
            corrections.extend(cool_down(seen, limits, provider, machine));
            "it no longer exists"
        }
    };
    corrections.push(Correction::Forget { id: machine.id.clone(), why });
}
