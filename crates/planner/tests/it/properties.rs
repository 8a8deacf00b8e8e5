//! Properties of every plan, whatever the observation.

use std::collections::{BTreeMap, BTreeSet};

use stokehold_planner::{Action, Machine, Name, Observation, Offer, Phase, Plan, Policy, Reason, Snapshot, decide};
use stokehold_units::{Mib, UsdMicros};

use crate::made_up::{Case, Sort, case};

const CASES: u64 = 10_000;

impl Case {
    fn plan(&self) -> Plan {
        decide(&Snapshot { seen: &self.seen, learned: &self.learned }, &self.policy)
    }
}

/// The observation at the same moment, once a plan has been carried out.
fn applied(seen: &Observation, plan: &Plan) -> Observation {
    let mut seen = seen.clone();
    let now_s = seen.at_s;
    for (number, step) in plan.steps.iter().enumerate() {
        let mut enter = |id: &Name, phase: Phase| {
            let machine = seen.machines.iter_mut().find(|machine| machine.id == *id).unwrap();
            (machine.phase, machine.since_s) = (phase, now_s);
            machine.idle_since_s = (phase == Phase::Ready && machine.running == 0).then_some(now_s);
        };
        match &step.action {
            Action::Rent { offer, bid_usd_per_hour, .. } => rent(&mut seen, number, offer, *bid_usd_per_hour),
            Action::Resume { machine } => enter(machine, Phase::Resuming),
            Action::Drain { machine } => enter(machine, Phase::Draining),
            Action::Undrain { machine } => enter(machine, Phase::Ready),
            Action::Stop { machine } => enter(machine, Phase::Stopped),
            Action::Release { machine } => seen.machines.retain(|it| it.id != *machine),
        }
    }
    seen
}

/// Adds a machine, and removes its GPUs from the offers.
fn rent(seen: &mut Observation, number: usize, offer: &Name, bid_usd_per_hour: Option<UsdMicros>) {
    let place = seen.offers.iter().position(|it| it.id == *offer).unwrap();
    seen.offers[place].count -= 1;
    let taken = seen.offers[place].clone();
    let overlaps = |it: &Offer| it.host == taken.host && it.gpu_ids.iter().any(|card| taken.gpu_ids.contains(card));
    seen.offers.retain(|it| it.id == taken.id || !overlaps(it));
    seen.machines.push(Machine {
        id: format!("new{number:03}").into(),
        provider: taken.provider,
        kind: taken.kind,
        host: taken.host,
        phase: Phase::Booting,
        since_s: seen.at_s,
        rented_s: seen.at_s,
        usd_per_hour: bid_usd_per_hour.unwrap_or(taken.usd_per_hour),
        stopped_usd_per_hour: taken.stopped_usd_per_hour.unwrap_or_default(),
        is_interruptible: bid_usd_per_hour.is_some(),
        can_stop: taken.stopped_usd_per_hour.is_some(),
        cards: taken.cards,
        vram: taken.vram,
        slots: taken.slots,
        traits: taken.traits,
        running: 0,
        running_vram: Mib::ZERO,
        idle_since_s: None,
        resident: Vec::new(),
        on_disk: Vec::new(),
    });
}

fn is_on(machine: &Machine) -> bool {
    matches!(machine.phase, Phase::Booting | Phase::Ready | Phase::Resuming)
}

/// Whether a machine is billed by the hour: it is on, or still ends its jobs.
fn is_running(machine: &Machine) -> bool {
    is_on(machine) || machine.phase == Phase::Draining
}

fn running(seen: &Observation) -> (usize, UsdMicros) {
    let running = || seen.machines.iter().filter(|it| is_running(it));
    (running().count(), running().map(|machine| machine.usd_per_hour).sum())
}

fn machine_of(action: &Action) -> Option<&Name> {
    match action {
        Action::Rent { .. } => None,
        Action::Resume { machine }
        | Action::Drain { machine }
        | Action::Undrain { machine }
        | Action::Stop { machine }
        | Action::Release { machine } => Some(machine),
    }
}

fn rented<'a>(case: &'a Case, plan: &'a Plan) -> impl Iterator<Item = (&'a Offer, bool)> {
    plan.steps.iter().filter_map(|step| match &step.action {
        Action::Rent { offer, bid_usd_per_hour, .. } => {
            Some((case.seen.offers.iter().find(|it| it.id == *offer).unwrap(), bid_usd_per_hour.is_some()))
        }
        _ => None,
    })
}

/// Runs a check on every case, and names the case that failed.
fn of_all(sort: Sort, check: impl Fn(&Case, &Plan)) {
    for seed in 0..CASES {
        let case = case(seed, sort);
        let plan = case.plan();
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&case, &plan)));
        assert!(told.is_ok(), "case {seed}:\n{plan}");
    }
}

#[test]
fn planning_again_after_a_plan_changes_nothing() {
    of_all(Sort::Any, |case, plan| {
        let after = Case { seen: applied(&case.seen, plan), ..case.clone() };
        let again = after.plan();
        assert!(again.steps.is_empty(), "and again:\n{again}");
    });
}

#[test]
fn a_plan_never_crosses_a_limit() {
    of_all(Sort::Any, |case, plan| {
        let Policy { max_machines, min_machines, .. } = case.policy;
        let ((before, before_usd), (after, after_usd)) = (running(&case.seen), running(&applied(&case.seen, plan)));
        assert!(after <= before.max(max_machines as usize), "{after} machines run after {before}");
        assert!(after_usd <= before_usd.max(case.policy.max_per_hour()), "${after_usd}/h after ${before_usd}/h");
        let is_idle = |reason: &Reason| matches!(reason, Reason::Idle { .. });
        if plan.steps.iter().any(|step| is_idle(&step.reason)) {
            let on = applied(&case.seen, plan).machines.iter().filter(|machine| is_on(machine)).count();
            assert!(on >= min_machines as usize, "{on} are left");
        }
    });
}

#[test]
fn nothing_is_rented_that_may_not_be() {
    of_all(Sort::Any, |case, plan| {
        let Policy { kinds, may_bid, min_reliability, .. } = &case.policy;
        for (offer, is_bid) in rented(case, plan) {
            assert!(kinds.is_empty() || kinds.iter().any(|kind| **kind == *offer.kind), "{}", offer.kind);
            assert!(!is_bid || *may_bid && offer.min_bid_usd_per_hour.is_some(), "{} is bid for", offer.id);
            assert!(offer.reliability >= *min_reliability, "{} is unreliable", offer.id);
            assert!(!case.learned.cooldowns.contains_key(&offer.host), "a boot failed on {}", offer.host);
            let boot_s = case.learned.kinds[&offer.kind].boot_s;
            assert!(offer.listed_for_s.is_none_or(|listed_s| listed_s > boot_s), "{} is gone by then", offer.id);
        }
    });
}

#[test]
fn no_offer_is_taken_more_often_than_it_can_be_had_and_no_gpu_twice() {
    of_all(Sort::Any, |case, plan| {
        let mut taken: BTreeMap<&Name, u32> = BTreeMap::new();
        let mut cards = BTreeSet::new();
        for (offer, _) in rented(case, plan) {
            *taken.entry(&offer.id).or_default() += 1;
            assert!(taken[&offer.id] <= offer.count, "{} of {}", taken[&offer.id], offer.id);
            for card in &offer.gpu_ids {
                assert!(cards.insert((&offer.host, card)), "card {card} of {}", offer.host);
            }
        }
    });
}

#[test]
fn what_is_rented_can_hold_what_it_is_rented_for() {
    of_all(Sort::Any, |case, plan| {
        let offers: BTreeMap<&Name, &Offer> = case.seen.offers.iter().map(|offer| (&offer.id, offer)).collect();
        for step in &plan.steps {
            let (Action::Rent { offer, .. }, Reason::Work(shortage)) = (&step.action, &step.reason) else { continue };
            // A shortage names its group by its memory; one of the groups with that memory matches.
            let mut groups = case.learned.groups.iter().filter(|group| group.needs.vram == shortage.vram);
            assert!(groups.any(|group| group.needs.are_met_by_offer(offers[offer])), "{offer} for {shortage}");
        }
    });
}

#[test]
fn a_boot_within_its_deadline_goes_on() {
    of_all(Sort::Any, |case, plan| {
        let boots = |machine: &&Machine| {
            machine.phase == Phase::Booting && case.seen.at_s - machine.since_s <= case.policy.boot_deadline_s
        };
        for machine in case.seen.machines.iter().filter(boots) {
            assert!(plan.steps.iter().all(|step| machine_of(&step.action) != Some(&machine.id)), "{}", machine.id);
        }
    });
}

#[test]
fn every_step_fits_the_phase_of_its_machine_and_none_is_named_twice() {
    of_all(Sort::Any, |case, plan| {
        let mut named = BTreeSet::new();
        for step in &plan.steps {
            let Some(id) = machine_of(&step.action) else { continue };
            assert!(named.insert(id), "{id} is named twice");
            let machine = case.seen.machines.iter().find(|machine| machine.id == *id).unwrap();
            let fits = match step.action {
                Action::Rent { .. } => true,
                Action::Resume { .. } => machine.phase == Phase::Stopped,
                Action::Drain { .. } => machine.phase == Phase::Ready,
                Action::Undrain { .. } => machine.phase == Phase::Draining,
                Action::Stop { .. } => machine.can_stop && matches!(machine.phase, Phase::Ready | Phase::Draining),
                Action::Release { .. } => true,
            };
            assert!(fits, "{}: it is {:?}", step.action, machine.phase);
            let gives_up = matches!(step.action, Action::Stop { .. } | Action::Release { .. });
            let is_overdue =
                machine.phase == Phase::Draining && case.seen.at_s - machine.since_s > case.policy.drain_deadline_s;
            assert!(!gives_up || machine.running == 0 || is_overdue, "{id} runs {} jobs", machine.running);
        }
    });
}

#[test]
fn the_same_is_decided_again_and_all_of_it_reads_back_from_json() {
    of_all(Sort::Any, |case, plan| {
        assert_eq!(case.plan(), *plan);
        assert_eq!(back(plan), *plan);
        assert_eq!(back(&case.seen), case.seen);
        assert_eq!(back(&case.learned), case.learned);
        assert_eq!(back(&case.policy), case.policy);
    });
}

fn back<T: serde::Serialize + serde::de::DeserializeOwned>(told: &T) -> T {
    serde_json::from_str(&serde_json::to_string(told).unwrap()).unwrap()
}

/// Only machines with one GPU and without a cost limit: otherwise one large machine may replace several small ones.
#[test]
fn more_work_never_leaves_fewer_machines_on() {
    of_all(Sort::Plain, |case, plan| {
        let on = |seen: &Observation| seen.machines.iter().filter(|machine| is_on(machine)).count();
        let before = on(&applied(&case.seen, plan));
        for (number, more) in (0..case.learned.groups.len()).flat_map(|group| [0.3, 1.0, 4.0].map(|more| (group, more)))
        {
            for part in 0..4 {
                let mut raised = case.clone();
                let group = &mut raised.learned.groups[number];
                *[&mut group.interactive, &mut group.burst, &mut group.deferred, &mut group.urgent][part] += more;
                let plan = raised.plan();
                let after = on(&applied(&case.seen, &plan));
                assert!(after >= before, "{after} after {before}, with {more} of part {part} more:\n{plan}");
            }
        }
    });
}
