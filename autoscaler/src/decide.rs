//! One decision.

use crate::observation::{Machine, Observation, Offer, Phase};
use crate::observer::{Group, Learned};
use crate::plan::{Action, Plan, Reason, Step};
use crate::policy::Policy;

/// What a decision looks at.
pub struct Snapshot<'a> {
    pub seen: &'a Observation,
    pub learned: &'a Learned,
}

fn because(action: Action, text: String) -> Step {
    Step { action, reason: Reason::Policy { text } }
}

/// What is to be done now.
pub fn decide(snapshot: &Snapshot<'_>, policy: &Policy) -> Plan {
    let (seen, learned) = (snapshot.seen, snapshot.learned);
    let now_s = seen.at_s;
    let mut plan = Plan::default();
    let Some(group) = learned.groups.first() else { return plan };
    let steps = &mut plan.steps;
    let mut on: Vec<&Machine> = Vec::new();
    let mut stopped: Vec<&Machine> = Vec::new();
    for machine in &seen.machines {
        let age_s = now_s - machine.since_s;
        let id = machine.id.clone();
        match machine.phase {
            Phase::Booting if age_s > policy.boot_deadline_s => {
                steps.push(because(Action::Release { machine: id }, "boot deadline".into()));
            }
            Phase::Resuming if age_s > policy.resume_deadline_s => {
                steps.push(because(Action::Release { machine: id }, "its card is taken".into()));
            }
            Phase::Lost => steps.push(because(Action::Release { machine: id }, "lost".into())),
            Phase::Booting | Phase::Ready | Phase::Resuming => on.push(machine),
            Phase::Stopped => stopped.push(machine),
            Phase::Draining => {
                if machine.running == 0 {
                    steps.push(because(Action::Stop { machine: id }, "drained".into()));
                }
            }
        }
    }
    let n = on.len();
    let ready = on.iter().filter(|it| it.phase == Phase::Ready).count();
    let need = need(group, policy, ready);
    if need > n {
        let mut missing = need - n;
        stopped.sort_by(|a, b| b.since_s.total_cmp(&a.since_s));
        for machine in stopped.iter().take(missing) {
            let id = machine.id.clone();
            steps.push(because(Action::Resume { machine: id }, format!("{need} needed, {n} on")));
            missing -= 1;
        }
        while missing > 0 {
            let Some(offer) = best_offer(seen, policy, group, learned) else { break };
            let action = Action::Rent { offer: offer.id.clone(), bid_usd_per_hour: None, prefetch: Vec::new() };
            steps.push(because(action, format!("{need} needed, {n} on: demand {:.2}", group.demand)));
            missing -= 1;
        }
        return plan;
    }
    // One machine at a time is given up.
    let idle = on.iter().filter(|it| it.phase == Phase::Ready && it.running == 0);
    let idle = idle.min_by(|a, b| a.idle_since_s.unwrap_or(now_s).total_cmp(&b.idle_since_s.unwrap_or(now_s)));
    if n > need
        && let Some(machine) = idle
    {
        let rate = (machine.usd_per_hour - machine.stopped_usd_per_hour) / 3_600.0;
        let value = learned.late_usd * policy.resume_late + machine.usd_per_hour * 30.0 / 3_600.0;
        let level = &group.levels[(n - 1).min(group.levels.len() - 1)];
        if level.gain(now_s, value, rate) <= 0.0 {
            let keep = keeps_stopped(learned, group, policy, n + stopped.len(), now_s, machine);
            let id = machine.id.clone();
            let action =
                if keep && policy.may_stop { Action::Stop { machine: id } } else { Action::Release { machine: id } };
            steps.push(because(action, format!("level {n} unused for {:.0} s", now_s - level.used_s)));
            return plan;
        }
    }
    if let Some(machine) = stopped.iter().min_by(|a, b| a.since_s.total_cmp(&b.since_s))
        && !keeps_stopped(learned, group, policy, n + stopped.len(), now_s, machine)
    {
        steps.push(because(Action::Release { machine: machine.id.clone() }, "nobody asks for it".into()));
    }
    plan
}

fn keeps_stopped(
    learned: &Learned,
    group: &Group,
    policy: &Policy,
    level: usize,
    now_s: f64,
    machine: &Machine,
) -> bool {
    let rate = machine.stopped_usd_per_hour / 3_600.0;
    let value =
        learned.late_usd * (policy.boot_late - policy.resume_late) + machine.usd_per_hour * (150.0 - 30.0) / 3_600.0;
    group.levels[(level - 1).min(group.levels.len() - 1)].gain(now_s, value, rate) > 0.0
}

fn need(group: &Group, policy: &Policy, ready: usize) -> usize {
    let interactive = (group.demand - 0.15).ceil().max(0.0);
    let steady = group.load + group.backlog / policy.drain_s;
    let batch = if group.batch_demand > 0.9 { (group.batch_demand + group.load - 0.1).ceil() } else { 0.0 };
    let _ = steady;
    let urgent = if group.urgent > 0.0 { ready as f64 + group.urgent.ceil() } else { 0.0 };
    (interactive.max(batch).max(urgent) as usize).min(policy.max_machines as usize)
}

fn best_offer<'a>(seen: &'a Observation, policy: &Policy, group: &Group, learned: &Learned) -> Option<&'a Offer> {
    let allowed = |offer: &&Offer| policy.kinds.is_empty() || policy.kinds.iter().any(|kind| **kind == *offer.kind);
    seen.offers.iter().filter(allowed).min_by(|a, b| {
        let score = |offer: &Offer| offer.usd_per_hour * (group.job_s / offer.speed + learned.load_s.max(1.0));
        score(a).total_cmp(&score(b))
    })
}
