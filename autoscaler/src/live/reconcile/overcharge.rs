//! Machines that are charged more than agreed.

use stokehold_queue::registry::{MachineRecord, Wanted};

use super::{Correction, ReconcileLimits, cool_down};
use crate::observe::RawState;
use crate::provider::Provider;

/// Machines that are charged more than agreed and must be released so that the limit holds, the worst first. Agreed
/// prices are within the limit, because nothing was rented beyond it. If the limit was lowered since, no machine at its
/// agreed price is released.
pub(crate) fn too_dear(seen: &RawState, most_usd_micros_per_hour: u64) -> Vec<&MachineRecord> {
    let costs = |machine: &MachineRecord| match machine.wanted {
        Wanted::Gone => 0,
        Wanted::Stopped if machine.is_done => machine.stopped_usd_micros_per_hour,
        Wanted::Stopped | Wanted::Running => machine.counted_usd_micros_per_hour(),
    };
    let beyond = |machine: &MachineRecord| {
        machine.usd_micros_per_hour.saturating_sub(machine.agreed_usd_micros_per_hour.unwrap_or(u64::MAX))
    };
    let mut spend: u64 = seen.machines.values().map(costs).sum();
    let mut dear: Vec<&MachineRecord> = seen
        .machines
        .values()
        .filter(|machine| machine.wanted == Wanted::Running && machine.is_overcharged())
        .collect();
    dear.sort_by(|a, b| beyond(b).cmp(&beyond(a)).then_with(|| a.id.cmp(&b.id)));
    dear.retain(|machine| {
        let goes = spend > most_usd_micros_per_hour;
        spend -= if goes { costs(machine) } else { 0 };
        goes
    });
    dear
}

/// Gives back a machine that costs too much, unless this has already begun. Its jobs end first.
pub(super) fn give_back(seen: &RawState, machine: &MachineRecord, corrections: &mut Vec<Correction>) {
    const WHY: &str = "it costs more than agreed, and the total exceeds max_usd_per_hour";
    let is_asked = |correction: &Correction| {
        matches!(correction, Correction::Ask { machine: asked, .. } if asked.id == machine.id)
            || matches!(correction, Correction::Forget { id, .. } if *id == machine.id)
    };
    if corrections.iter().any(is_asked) || machine.then == Some(Wanted::Gone) {
        return;
    }
    let noted = corrections
        .iter()
        .position(|correction| matches!(correction, Correction::Note(noted) if noted.id == machine.id));
    let machine = match noted.map(|place| corrections.remove(place)) {
        Some(Correction::Note(noted)) => noted,
        _ => machine.clone(),
    };
    corrections.push(match seen.worker_of(&machine) {
        Some(_) => Correction::Drain { machine, why: WHY },
        None => Correction::Ask { machine, wanted: Wanted::Gone, why: WHY },
    });
}

/// Starts a cooldown of a host that charges more than its offers.
pub(super) fn false_offer(
    seen: &RawState,
    limits: ReconcileLimits,
    provider: &dyn Provider,
    machine: &MachineRecord,
) -> Option<Correction> {
    let cool_down = cool_down(seen, limits, provider, machine).filter(|_| machine.is_overcharged())?;
    let is_cooling_down = matches!(&cool_down, Correction::CoolDown { host, .. } if seen.cooldowns.get(host).is_some_and(|ms| *ms > seen.now_ms));
    (!is_cooling_down).then_some(cool_down)
}
