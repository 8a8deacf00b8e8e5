//! Corrections that follow from earlier decisions: calls of unknown outcome are resolved, drained machines are given
//! back, and so are machines that never came up or that the ledger lacks. Pure.

use stokehold_queue::registry::{MachineRecord, Wanted};

use crate::money::micros;
use crate::observe::{self, RawState};
use crate::provider::{Provider, RentalState};

/// Time after which a call that its provider has not confirmed is repeated, milliseconds.
const ASK_AGAIN_MS: u64 = 30_000;

/// Time without a heartbeat after which a machine without a list counts as gone, milliseconds. Workers send one every
/// three seconds.
const QUIET_MS: u64 = 5_000;

/// Time for which a machine must be missing from its list to count as gone, milliseconds: at least two good lists,
/// because lists are read more often.
const MISSED_MS: u64 = 10_000;

/// Maximum number of endpoints that are remembered as stored on a machine's disk.
const ON_DISK_MAX: usize = 200;

/// Time limits and the limit of the cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Time that a draining machine has for its jobs, milliseconds.
    pub(crate) drain_ms: u64,
    /// Time during which nothing is rented from a host whose machine never came up or went away, milliseconds.
    pub(crate) cooldown_ms: u64,
    /// Limit for the cost of all machines together, millionths of a dollar per hour.
    pub(crate) most_usd_micros_per_hour: u64,
}

/// A correction beside the plan.
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
    patience: Patience,
    provider: impl Fn(&str) -> Option<&'a dyn Provider>,
) -> Vec<Correction> {
    let mut corrections = Vec::new();
    for machine in seen.machines.values() {
        if let Some(provider) = provider(&machine.provider) {
            one(seen, patience, provider, machine, &mut corrections);
            corrections.extend(false_offer(seen, patience, provider, machine));
        }
    }
    for machine in too_dear(seen, patience.most_usd_micros_per_hour) {
        if provider(&machine.provider).is_some() {
            give_back(seen, machine, &mut corrections);
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
                    // The machine counts towards the limits until it is gone.
                    usd_micros_per_hour: rental.usd_per_hour.map_or(0, micros),
                    agreed_usd_micros_per_hour: None,
                    booting_usd_micros_per_hour: None,
                    made_ms: None,
                    released_ms: None,
                    stopped_usd_micros_per_hour: 0,
                    is_interruptible: false,
                    missed_ms: None,
                    on_disk: Vec::new(),
                };
                corrections.push(Correction::Ask { machine, wanted: Wanted::Gone, why: "it is not in the ledger" });
            }
        }
    }
    let over = seen.cooldowns.iter().filter(|(_, until_ms)| **until_ms <= seen.now_ms);
    corrections.extend(over.map(|(host, _)| Correction::CoolDown { host: host.clone(), until_ms: 0 }));
    corrections
}

/// Machines that are charged more than agreed and must go so that the limit holds, the worst first. Agreed prices are
/// within the limit, because nothing was rented beyond it. A limit that was lowered since gives back no machine that
/// costs what was agreed.
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

/// Gives back a machine that costs too much, unless that is under way. Its jobs end first.
fn give_back(seen: &RawState, machine: &MachineRecord, corrections: &mut Vec<Correction>) {
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
fn false_offer(
    seen: &RawState,
    patience: Patience,
    provider: &dyn Provider,
    machine: &MachineRecord,
) -> Option<Correction> {
    let cool_down = cool_down(seen, patience, provider, machine).filter(|_| machine.is_overcharged())?;
    let is_cooling_down = matches!(&cool_down, Correction::CoolDown { host, .. } if seen.cooldowns.get(host).is_some_and(|ms| *ms > seen.now_ms));
    (!is_cooling_down).then_some(cool_down)
}

fn one(
    seen: &RawState,
    patience: Patience,
    provider: &dyn Provider,
    machine: &MachineRecord,
    corrections: &mut Vec<Correction>,
) {
    let age_ms = seen.now_ms.saturating_sub(machine.wanted_ms);
    // Nothing is known of machines whose provider could not be reached.
    let Some(listed) = seen.rentals.get(&machine.provider) else { return };
    let rental = seen.rental_of(machine);
    let worker = seen.worker_of(machine);
    let is_heard = worker.is_some_and(|worker| !seen.is_silent(worker));
    // A list kept in this process is exact. For any other provider, a machine whose worker is heard exists, whatever
    // the list says.
    let is_exact = provider.settles_after().is_zero();
    let mut known = machine.clone();
    if let Some(rental) = rental {
        known.rental = Some(rental.id.clone());
        known.missed_ms = None;
        // The machine was created after all.
        known.is_done |= machine.wanted == Wanted::Running && machine.rental.is_none();
        known.is_done |= machine.wanted == Wanted::Stopped && rental.state == RentalState::Stopped;
        if let Some(micros) = rental.usd_per_hour.map(micros).filter(|_| machine.wanted == Wanted::Running) {
            known.usd_micros_per_hour = micros;
        }
    } else if listed.is_some()
        && (is_exact || !is_heard)
        && u128::from(unlisted_ms(seen, machine)) >= provider.settles_after().as_millis()
    {
        let missed_ms = *known.missed_ms.get_or_insert(seen.now_ms);
        if seen.now_ms.saturating_sub(missed_ms) >= MISSED_MS || is_exact {
            return gone(seen, patience, provider, machine, corrections);
        }
    }
    // No list contains the machine, but its worker would be heard.
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
        corrections.extend(cool_down(seen, patience, provider, machine));
        Some(ask(Wanted::Gone, "its worker did not join in time"))
    } else if seen.is_taken(machine) {
        corrections.extend(cool_down(seen, patience, provider, machine));
        let is_broken = rental.is_some_and(|rental| rental.state == RentalState::Broken);
        let why = if is_broken { "it will never run" } else { "it was taken away, and its disk still costs money" };
        Some(ask(Wanted::Gone, why))
    } else if let (Wanted::Running, Some(then), Some(drained_ms)) = (machine.wanted, machine.then, machine.drained_ms) {
        let is_late = seen.now_ms.saturating_sub(drained_ms) > patience.drain_ms;
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
    // A machine that may never have been created is not requested to go; its wanted state is written repeatedly and
    // must not restart the clock.
    let is_told = machine.is_done || machine.rental.is_none();
    let since_ms = if machine.wanted == Wanted::Gone && is_told { machine.rented_ms } else { machine.wanted_ms };
    seen.now_ms.saturating_sub(since_ms)
}

/// Strikes off a machine that its provider no longer lists.
fn gone(
    seen: &RawState,
    patience: Patience,
    provider: &dyn Provider,
    machine: &MachineRecord,
    corrections: &mut Vec<Correction>,
) {
    let why = match (machine.wanted, machine.is_done) {
        (Wanted::Gone, _) => "given back",
        (_, false) => "it was never created",
        (_, true) => {
            corrections.extend(cool_down(seen, patience, provider, machine));
            "it no longer exists"
        }
    };
    corrections.push(Correction::Forget { id: machine.id.clone(), why });
}

/// Starts a cooldown of the host, or of the offer if the host is unknown. Not for this machine, which has no
/// alternative.
fn cool_down(
    seen: &RawState,
    patience: Patience,
    provider: &dyn Provider,
    machine: &MachineRecord,
) -> Option<Correction> {
    if provider.leaves_with_us() {
        return None;
    }
    let word = |member: &str| machine.offer[member].as_str().unwrap_or_default().to_owned();
    let host = Some(word("host")).filter(|host| !host.is_empty()).unwrap_or_else(|| word("id"));
    Some(Correction::CoolDown { host, until_ms: seen.now_ms + patience.cooldown_ms })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::time::Duration;

    use futures::future::BoxFuture;
    use stokehold_queue::WorkerRecord;
    use stokehold_queue::gateway::WorkerStatus;

    use super::*;
    use crate::observation::Offer;
    use crate::provider::{Failure, Order, Rental};

    const NOW_MS: u64 = 1_000_000_000;
    const PATIENCE: Patience =
        Patience { drain_ms: 600_000, cooldown_ms: 3_600_000, most_usd_micros_per_hour: 1_000_000 };

    /// Says of itself what any provider with a list would.
    struct Cloud;

    impl Provider for Cloud {
        fn name(&self) -> &'static str {
            "cloud"
        }
        fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, Failure>> {
            unreachable!("reconcile calls no provider")
        }
        fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, Failure>> {
            unreachable!("reconcile calls no provider")
        }
        fn rent<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<String, Failure>> {
            unreachable!("reconcile calls no provider")
        }
        fn stop<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
            unreachable!("reconcile calls no provider")
        }
        fn resume<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
            unreachable!("reconcile calls no provider")
        }
        fn release<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
            unreachable!("reconcile calls no provider")
        }
        fn join_limit(&self) -> Duration {
            Duration::from_secs(900)
        }
    }

    /// Rented this long ago.
    fn machine(age_s: u64) -> MachineRecord {
        let rented_ms = NOW_MS - age_s * 1_000;
        MachineRecord {
            id: "m-1".to_owned(),
            provider: "cloud".to_owned(),
            rental: Some("9001".to_owned()),
            offer: serde_json::json!({"id": "77", "host": "box-3"}),
            wanted: Wanted::Running,
            wanted_ms: rented_ms,
            is_done: true,
            rented_ms,
            drained_ms: None,
            then: None,
            usd_micros_per_hour: 300_000,
            agreed_usd_micros_per_hour: Some(300_000),
            booting_usd_micros_per_hour: None,
            made_ms: None,
            released_ms: None,
            stopped_usd_micros_per_hour: 10_000,
            is_interruptible: false,
            missed_ms: None,
            on_disk: Vec::new(),
        }
    }

    fn rental(label: &str, id: &str) -> Rental {
        Rental { id: id.to_owned(), label: label.to_owned(), state: RentalState::Running, usd_per_hour: None }
    }

    fn worker(seen_ms: u64, running: u32, draining: bool) -> WorkerRecord {
        WorkerRecord {
            worker_id: "w_1".to_owned(),
            name: "m-1".to_owned(),
            release: String::new(),
            slots: 1,
            gpus: Vec::new(),
            driver: None,
            cuda: None,
            price_usd_micros_per_hour: 0,
            sandbox: None,
            trust: stokehold_queue::demands::Trust::Datacenter,
            region: String::new(),
            leased_slots: None,
            joined_with: None,
            joined_ms: NOW_MS - 60_000,
            seen_ms,
            status: WorkerStatus { running, draining, ..WorkerStatus::default() },
        }
    }

    /// `rentals`: `None` when the provider could not be asked.
    fn seen(machine: MachineRecord, rentals: Option<Vec<Rental>>) -> RawState {
        RawState {
            now_ms: NOW_MS,
            machines: [(machine.id.clone(), machine)].into(),
            rentals: rentals.map(|rentals| ("cloud".to_owned(), Some(rentals))).into_iter().collect(),
            ..RawState::default()
        }
    }

    fn of(seen: &RawState) -> Vec<Correction> {
        reconcile(seen, PATIENCE, |name| (name == "cloud").then_some(&Cloud as &dyn Provider))
    }

    fn asked(corrections: &[Correction]) -> Option<(Wanted, &'static str)> {
        corrections.iter().find_map(|correction| match correction {
            Correction::Ask { wanted, why, .. } => Some((*wanted, *why)),
            _ => None,
        })
    }

    #[test]
    fn a_rent_of_unknown_outcome_is_found_by_its_label_or_given_up_and_never_repeated() {
        let unknown = || MachineRecord { rental: None, is_done: false, ..machine(130) };
        let [Correction::Note(found)] = &of(&seen(unknown(), Some(vec![rental("m-1", "9001")])))[..] else { panic!() };
        assert_eq!((found.rental.as_deref(), found.is_done), (Some("9001"), true));
        let [Correction::Note(missed)] = &of(&seen(unknown(), Some(vec![])))[..] else { panic!() };
        assert_eq!(missed.missed_ms, Some(NOW_MS), "one list may be behind");
        assert_eq!(of(&seen(missed.clone(), Some(vec![]))), [], "the same list, or one just after it");
        let missed = MachineRecord { missed_ms: Some(NOW_MS - 10_000), ..missed.clone() };
        let [Correction::Forget { why, .. }] = &of(&seen(missed, Some(vec![])))[..] else { panic!() };
        assert_eq!(*why, "it was never created");
        let early = MachineRecord { rental: None, is_done: false, ..machine(20) };
        assert_eq!(of(&seen(early, Some(vec![]))), [], "it may show yet");
    }

    #[test]
    fn a_rent_of_unknown_outcome_that_is_not_wanted_any_more_is_given_up_however_often_it_is_asked_to_go() {
        let asked_again = MachineRecord {
            rental: None,
            is_done: false,
            wanted: Wanted::Gone,
            wanted_ms: NOW_MS - 5_000,
            missed_ms: Some(NOW_MS - MISSED_MS),
            ..machine(130)
        };
        let corrections = of(&seen(asked_again, Some(vec![])));
        assert!(matches!(&corrections[..], [Correction::Forget { .. }]), "{corrections:?}");
    }

    #[test]
    fn nothing_is_done_about_a_provider_that_cannot_be_asked() {
        let late = MachineRecord { missed_ms: Some(1), ..machine(100_000) };
        assert_eq!(of(&seen(late, None)), []);
    }

    #[test]
    fn what_nobody_wrote_down_is_given_back() {
        let known = seen(machine(60), Some(vec![rental("m-1", "9001"), rental("m-2", "9002")]));
        let corrections = of(&known);
        let [Correction::Ask { machine, wanted: Wanted::Gone, .. }] = &corrections[..] else {
            panic!("{corrections:?}")
        };
        assert_eq!((machine.id.as_str(), machine.rental.as_deref()), ("m-2", Some("9002")));
    }

    #[test]
    fn one_whose_worker_never_joins_is_given_back_and_its_host_left_alone() {
        let listed = || Some(vec![rental("m-1", "9001")]);
        assert_eq!(of(&seen(machine(899), listed())), []);
        let corrections = of(&seen(machine(901), listed()));
        assert_eq!(asked(&corrections), Some((Wanted::Gone, "its worker did not join in time")));
        assert!(
            corrections
                .contains(&Correction::CoolDown { host: "box-3".to_owned(), until_ms: NOW_MS + PATIENCE.cooldown_ms })
        );
    }

    #[test]
    fn one_that_vanishes_is_forgotten_after_two_lists_and_one_that_will_not_go_is_asked_again() {
        let vanished = MachineRecord { missed_ms: Some(1), ..machine(1_000) };
        let corrections = of(&seen(vanished, Some(vec![])));
        assert!(
            matches!(&corrections[..], [Correction::CoolDown { .. }, Correction::Forget { .. }]),
            "{corrections:?}"
        );
        let clinging = MachineRecord { wanted: Wanted::Gone, is_done: true, ..machine(31) };
        let corrections = of(&seen(clinging.clone(), Some(vec![rental("m-1", "9001")])));
        assert_eq!(asked(&corrections), Some((Wanted::Gone, "it still exists")));
        let unsure = MachineRecord { is_done: false, ..clinging };
        assert!(asked(&of(&seen(unsure, Some(vec![rental("m-1", "9001")])))).is_some());
    }

    #[test]
    fn one_that_was_taken_away_or_will_never_run_is_given_back_and_its_host_left_alone() {
        let at = |age_s, state| {
            let rental = Rental { state, ..rental("m-1", "9001") };
            of(&seen(machine(age_s), Some(vec![rental])))
        };
        assert_eq!(at(10, RentalState::Stopped), [], "the list may be older than the machine");
        let outbid = at(60, RentalState::Stopped);
        assert_eq!(asked(&outbid).map(|(wanted, _)| wanted), Some(Wanted::Gone), "a stopped disk bills");
        assert!(
            outbid.iter().any(|correction| matches!(correction, Correction::CoolDown { host, .. } if host == "box-3"))
        );
        assert_eq!(asked(&at(5, RentalState::Broken)), Some((Wanted::Gone, "it will never run")));
        assert_eq!(at(60, RentalState::Starting), []);
    }

    #[test]
    fn what_was_given_back_is_gone_when_no_list_has_it() {
        let given_back =
            MachineRecord { wanted: Wanted::Gone, wanted_ms: NOW_MS - 12_000, is_done: true, ..machine(600) };
        let [Correction::Note(missed)] = &of(&seen(given_back.clone(), Some(vec![])))[..] else { panic!() };
        let missed = MachineRecord { missed_ms: Some(NOW_MS - 10_000), ..missed.clone() };
        assert!(matches!(&of(&seen(missed, Some(vec![])))[..], [Correction::Forget { why: "given back", .. }]));
        let fresh = MachineRecord { rented_ms: NOW_MS - 14_000, ..given_back };
        assert_eq!(of(&seen(fresh, Some(vec![]))), [], "it may not show yet");
    }

    #[test]
    fn a_drained_machine_goes_when_its_worker_has_said_that_it_holds_nothing() {
        let drained_ms = NOW_MS - 10_000;
        let draining = MachineRecord { drained_ms: Some(drained_ms), then: Some(Wanted::Gone), ..machine(1_000) };
        let at = |worker: WorkerRecord, machine: &MachineRecord| {
            let seen = RawState { workers: vec![worker], ..seen(machine.clone(), Some(vec![rental("m-1", "9001")])) };
            asked(&of(&seen)).map(|(_, why)| why)
        };
        assert_eq!(at(worker(NOW_MS, 1, true), &draining), None, "it has a job");
        assert_eq!(at(worker(drained_ms + 500, 0, true), &draining), None, "it may have been given one since");
        assert_eq!(at(worker(NOW_MS, 0, false), &draining), None, "its gateway does not know yet");
        assert_eq!(at(worker(NOW_MS, 0, true), &draining), Some("its jobs are done"));
        let asked = MachineRecord { wanted: Wanted::Gone, wanted_ms: NOW_MS - 1_000, ..draining.clone() };
        assert_eq!(at(worker(NOW_MS, 0, true), &asked), None, "it was asked for already");
        let long = MachineRecord { drained_ms: Some(NOW_MS - 600_001), ..draining };
        assert_eq!(at(worker(NOW_MS, 1, true), &long), Some("its drain deadline has passed"));
        assert_eq!(at(worker(NOW_MS - 16_000, 1, true), &long), Some("its worker is silent"));
    }

    #[test]
    fn one_that_nobody_lists_is_gone_when_its_worker_is_not_heard_any_more() {
        let stopped = |age_s| MachineRecord { wanted: Wanted::Gone, is_done: true, ..machine(age_s) };
        let at = |machine: MachineRecord, workers: Vec<WorkerRecord>| {
            let rentals = [("cloud".to_owned(), None)].into();
            of(&RawState { workers, rentals, ..seen(machine, None) })
        };
        assert_eq!(at(stopped(4), vec![]), [], "it may be heard once more");
        assert_eq!(at(stopped(10), vec![worker(NOW_MS - 1_000, 0, true)]), []);
        assert!(matches!(&at(stopped(6), vec![])[..], [Correction::Forget { .. }]));
        assert!(matches!(&at(stopped(29), vec![worker(NOW_MS - 16_000, 0, true)])[..], [Correction::Forget { .. }]));
        assert_eq!(
            asked(&at(stopped(31), vec![worker(NOW_MS, 0, true)])).map(|(wanted, _)| wanted),
            Some(Wanted::Gone)
        );
    }

    #[test]
    fn one_that_costs_more_than_was_agreed_goes_when_all_cost_more_than_they_may_and_its_host_is_left_alone() {
        let of_id = |id: &str, charged: u64| MachineRecord {
            id: id.to_owned(),
            rental: Some(id.to_owned()),
            offer: serde_json::json!({"id": "77", "host": format!("box of {id}")}),
            usd_micros_per_hour: charged,
            ..machine(60)
        };
        let at = |machines: &[MachineRecord], workers: Vec<WorkerRecord>| {
            let rentals = machines.iter().map(|machine| rental(&machine.id, &machine.id)).collect();
            let machines = machines.iter().map(|machine| (machine.id.clone(), machine.clone())).collect();
            of(&RawState { machines, workers, ..seen(machine(60), Some(rentals)) })
        };
        let cool_down = |id: &str| Correction::CoolDown { host: format!("box of {id}"), until_ms: NOW_MS + 3_600_000 };
        assert_eq!(at(&[of_id("m-1", 303_000), of_id("m-2", 290_000)], vec![]), [], "a cent is rounding");
        assert_eq!(
            at(&[of_id("m-1", 690_000), of_id("m-2", 300_000)], vec![]),
            [cool_down("m-1")],
            "all may cost a dollar"
        );
        let dear = [of_id("m-1", 420_000), of_id("m-2", 450_000), of_id("m-3", 100_000)];
        let corrections = at(&dear, vec![]);
        let [first, second, Correction::Ask { machine: dearest, wanted: Wanted::Gone, .. }] = &corrections[..] else {
            panic!("{corrections:?}")
        };
        assert_eq!(
            (first, second, dearest.id.as_str()),
            (&cool_down("m-1"), &cool_down("m-2"), "m-2"),
            "m-3 counts as was agreed"
        );
        let busy = WorkerRecord { name: "m-2".to_owned(), ..worker(NOW_MS, 1, false) };
        let corrections = at(&dear, vec![busy]);
        assert!(
            matches!(&corrections[2..], [Correction::Drain { machine, .. }] if machine.id == "m-2"),
            "{corrections:?}"
        );
        let raised = Rental { usd_per_hour: Some(0.9), ..rental("m-1", "9001") };
        let [Correction::Note(known)] = &of(&seen(machine(60), Some(vec![raised])))[..] else { panic!() };
        assert_eq!((known.usd_micros_per_hour, known.agreed_usd_micros_per_hour), (900_000, Some(300_000)));
    }

    #[test]
    fn a_penalty_ends() {
        let mut seen = seen(machine(60), Some(vec![rental("m-1", "9001")]));
        seen.cooldowns = [("box-1".to_owned(), NOW_MS - 1), ("box-2".to_owned(), NOW_MS + 1)].into();
        assert_eq!(of(&seen), [Correction::CoolDown { host: "box-1".to_owned(), until_ms: 0 }]);
    }
}
