#![allow(clippy::unwrap_used, reason = "tests")]
use std::time::Duration;

use futures::future::BoxFuture;
use stokehold_planner::observation::Offer;
use stokehold_queue::WorkerRecord;
use stokehold_queue::gateway::WorkerStatus;

use super::machine::MISSED_MS;
use super::*;
use crate::provider::{Order, ProviderError, Rental, RentalState};

const NOW_MS: u64 = 1_000_000_000;
const LIMITS: ReconcileLimits =
    ReconcileLimits { drain_ms: 600_000, cooldown_ms: 3_600_000, most_usd_micros_per_hour: 1_000_000 };

/// A provider with a list and default properties.
struct Cloud;

impl Provider for Cloud {
    fn name(&self) -> &'static str {
        "cloud"
    }
    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
        unreachable!("reconcile calls no provider")
    }
    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
        unreachable!("reconcile calls no provider")
    }
    fn rent<'a>(&'a self, _: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
        unreachable!("reconcile calls no provider")
    }
    fn stop<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        unreachable!("reconcile calls no provider")
    }
    fn resume<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        unreachable!("reconcile calls no provider")
    }
    fn release<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        unreachable!("reconcile calls no provider")
    }
    fn join_limit(&self) -> Duration {
        Duration::from_secs(900)
    }
}

/// A machine that was rented `age_s` seconds ago.
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
        listed_ms: Some(rented_ms),
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
        trust: stokehold_queue::requirements::Trust::Datacenter,
        region: String::new(),
        leased_slots: None,
        joined_with: None,
        joined_ms: NOW_MS - 60_000,
        seen_ms,
        status: WorkerStatus { running, draining, ..WorkerStatus::default() },
    }
}

/// `rentals`: `None` if the provider could not be reached.
fn seen(machine: MachineRecord, rentals: Option<Vec<Rental>>) -> RawState {
    RawState {
        now_ms: NOW_MS,
        machines: [(machine.id.clone(), machine)].into(),
        rentals: rentals.map(|rentals| ("cloud".to_owned(), Some(rentals))).into_iter().collect(),
        ..RawState::default()
    }
}

fn of(seen: &RawState) -> Vec<Correction> {
    reconcile(seen, LIMITS, |name| (name == "cloud").then_some(&Cloud as &dyn Provider))
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
fn the_time_at_which_a_booting_machine_is_first_listed_is_noted_once() {
    let new = || MachineRecord { listed_ms: None, ..machine(20) };
    let [Correction::Note(listed)] = &of(&seen(new(), Some(vec![rental("m-1", "9001")])))[..] else { panic!() };
    assert_eq!(listed.listed_ms, Some(NOW_MS));
    assert_eq!(of(&seen(listed.clone(), Some(vec![rental("m-1", "9001")]))), []);
    assert_eq!(of(&seen(new(), Some(vec![]))), [], "it may show yet");
    let mut joined = seen(new(), Some(vec![rental("m-1", "9001")]));
    joined.workers = vec![worker(NOW_MS, 0, false)];
    assert_eq!(of(&joined), [], "it boots no more");
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
    let [Correction::Ask { machine, wanted: Wanted::Gone, .. }] = &corrections[..] else { panic!("{corrections:?}") };
    assert_eq!((machine.id.as_str(), machine.rental.as_deref()), ("m-2", Some("9002")));
}

#[test]
fn one_whose_worker_never_joins_is_given_back_and_its_host_left_alone() {
    let listed = || Some(vec![rental("m-1", "9001")]);
    assert_eq!(of(&seen(machine(899), listed())), []);
    let corrections = of(&seen(machine(901), listed()));
    assert_eq!(asked(&corrections), Some((Wanted::Gone, "its worker did not join in time")));
    assert!(
        corrections.contains(&Correction::CoolDown { host: "box-3".to_owned(), until_ms: NOW_MS + LIMITS.cooldown_ms })
    );
}

#[test]
fn one_that_vanishes_is_forgotten_after_two_lists_and_one_that_will_not_go_is_asked_again() {
    let vanished = MachineRecord { missed_ms: Some(1), ..machine(1_000) };
    let corrections = of(&seen(vanished, Some(vec![])));
    assert!(matches!(&corrections[..], [Correction::CoolDown { .. }, Correction::Forget { .. }]), "{corrections:?}");
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
    assert!(outbid.iter().any(|correction| matches!(correction, Correction::CoolDown { host, .. } if host == "box-3")));
    assert_eq!(asked(&at(5, RentalState::Broken)), Some((Wanted::Gone, "it will never run")));
    assert_eq!(at(60, RentalState::Starting), []);
}

#[test]
fn what_was_given_back_is_gone_when_no_list_has_it() {
    let given_back = MachineRecord { wanted: Wanted::Gone, wanted_ms: NOW_MS - 12_000, is_done: true, ..machine(600) };
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
    assert_eq!(asked(&at(stopped(31), vec![worker(NOW_MS, 0, true)])).map(|(wanted, _)| wanted), Some(Wanted::Gone));
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
    assert!(matches!(&corrections[2..], [Correction::Drain { machine, .. }] if machine.id == "m-2"), "{corrections:?}");
    let raised = Rental { usd_per_hour: Some(900_000.into()), ..rental("m-1", "9001") };
    let [Correction::Note(known)] = &of(&seen(machine(60), Some(vec![raised])))[..] else { panic!() };
    assert_eq!((known.usd_micros_per_hour, known.agreed_usd_micros_per_hour), (900_000, Some(300_000)));
}

#[test]
fn a_penalty_ends() {
    let mut seen = seen(machine(60), Some(vec![rental("m-1", "9001")]));
    seen.cooldowns = [("box-1".to_owned(), NOW_MS - 1), ("box-2".to_owned(), NOW_MS + 1)].into();
    assert_eq!(of(&seen), [Correction::CoolDown { host: "box-1".to_owned(), until_ms: 0 }]);
}
