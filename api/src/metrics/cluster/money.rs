//! Metrics of instances, their cost, and budgets.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use metrics::gauge;
use stokehold_queue::WorkerRecord;
use stokehold_queue::budgets::{Budgeted, standing};
use stokehold_queue::queue::LimitScope;
use stokehold_queue::registry::{MachineState, Wanted};

use super::catalogue::{
    AUTOSCALER_NOTICES, AUTOSCALER_TOLD, BUDGET, BUDGET_SPENT, BUDGETS, COST_TODAY, MACHINES, ORPHANS, SPEND,
};
use super::snapshot::Snapshot;
use super::{LeftOut, float, seconds, usd};

/// Maximum number of budgets with series of their own.
const BUDGETS_MAX: usize = 100;

/// Time after its release at which an instance should be confirmed as gone, milliseconds. The autoscaler checks every
/// half minute.
const ORPHAN_AFTER_MS: u64 = 600_000;

/// The provider of workers that the autoscaler did not start.
const JOINED: &str = "joined";

/// States in the order of [`place`].
const STATES: [&str; 7] = ["booting", "ready", "draining", "stopped", "resuming", "lost", "ending"];

/// Instances of a provider.
#[derive(Default)]
struct Provider {
    states: [u64; 7],
    orphans: u64,
    usd_micros_per_hour: u64,
}

pub(super) fn set_metrics(snapshot: &Snapshot, left_out: &mut LeftOut) {
    for (name, provider) in providers(snapshot) {
        for (state, machines) in STATES.into_iter().zip(provider.states) {
            gauge!(MACHINES, "provider" => name.to_owned(), "state" => state).set(float(machines));
        }
        gauge!(ORPHANS, "provider" => name.to_owned()).set(float(provider.orphans));
        gauge!(SPEND, "provider" => name.to_owned()).set(usd(provider.usd_micros_per_hour));
    }
    let cost = snapshot.cost_today;
    let parts = [
        ("run", cost.run),
        ("load", cost.load),
        ("boot", cost.boot),
        ("idle", cost.idle),
        ("stopped", cost.stopped),
        ("disk", cost.disk),
        ("traffic", cost.traffic),
    ];
    parts.into_iter().for_each(|(part, micros)| gauge!(COST_TODAY, "part" => part).set(usd(micros)));
    budgets(snapshot, left_out);
    if let Some(autoscaler) = &snapshot.autoscaler {
        gauge!(AUTOSCALER_TOLD).set(seconds(autoscaler.at_ms));
        for notice in &autoscaler.notices {
            gauge!(AUTOSCALER_NOTICES, "kind" => notice.kind.clone()).set(1);
        }
    }
}

/// Instances by provider. There is always one provider, so that zero instances are reported too.
fn providers(snapshot: &Snapshot) -> BTreeMap<&str, Provider> {
    let mut providers = BTreeMap::from([(JOINED, Provider::default())]);
    for machine in &snapshot.machines {
        let provider = providers.entry(&*machine.provider).or_default();
        let (state, _) = machine.state(machine.worker(&snapshot.workers), snapshot.now_ms, snapshot.silent_ms);
        provider.states[place(state)] += 1;
        let is_orphan =
            machine.wanted == Wanted::Gone && snapshot.now_ms.saturating_sub(machine.wanted_ms) > ORPHAN_AFTER_MS;
        provider.orphans += u64::from(is_orphan);
        provider.usd_micros_per_hour += match state {
            MachineState::Stopped => machine.stopped_usd_micros_per_hour,
            _ => machine.usd_micros_per_hour,
        };
    }
    let is_rented = |worker: &WorkerRecord| snapshot.machines.iter().any(|machine| machine.id == worker.name);
    for worker in snapshot.alive().filter(|worker| !is_rented(worker)) {
        let provider = providers.entry(JOINED).or_default();
        let state = if worker.status.draining { MachineState::Draining } else { MachineState::Ready };
        provider.states[place(state)] += 1;
        provider.usd_micros_per_hour += worker.price_usd_micros_per_hour;
    }
    providers
}

fn place(state: MachineState) -> usize {
    match state {
        MachineState::Booting => 0,
        MachineState::Ready => 1,
        MachineState::Draining => 2,
        MachineState::Stopped => 3,
        MachineState::Resuming => 4,
        MachineState::Lost => 5,
        MachineState::Ending => 6,
    }
}

fn budgets(snapshot: &Snapshot, left_out: &mut LeftOut) {
    let mut standings = [0_u64; 3];
    for budgeted in &snapshot.budgets {
        // The state found by the budget loop, which includes running jobs; before its first round, the state by ended
        // jobs.
        let spent = standing(budgeted.spent_usd_micros, budgeted.budget.usd_micros_per_day);
        let standing = budgeted.stood.map_or(spent, |stood| stood.standing.max(spent));
        standings[standing as usize] += 1;
    }
    for (state, budgets) in ["within", "warned", "reached"].into_iter().zip(standings) {
        gauge!(BUDGETS, "state" => state).set(float(budgets));
    }
    let share =
        |it: &&Budgeted| u128::from(it.spent_usd_micros) * 1_000_000 / u128::from(it.budget.usd_micros_per_day.max(1));
    let mut nearest: Vec<&Budgeted> = snapshot.budgets.iter().collect();
    nearest.sort_by_key(|it| (Reverse(share(it)), it.scope.to_string()));
    for budgeted in left_out.cut("budgets", &nearest, BUDGETS_MAX) {
        let endpoint = match &budgeted.scope {
            LimitScope::Tenant(_) => "*",
            LimitScope::Endpoint { endpoint, .. } => endpoint,
        };
        let labels = [("tenant", budgeted.scope.tenant().to_owned()), ("endpoint", endpoint.to_owned())];
        gauge!(BUDGET, &labels).set(usd(budgeted.budget.usd_micros_per_day));
        gauge!(BUDGET_SPENT, &labels).set(usd(budgeted.spent_usd_micros));
    }
}
