//! The budget of a day, and the plan once it is spent. Pure.

use stokehold_planner::observation::{Machine, Observation, Phase};
use stokehold_planner::plan::{Action, Plan, Reason, Step};
use stokehold_planner::{AtBudget, Policy};
use stokehold_units::UsdMicros;

/// Share of a day's budget from which the operator is warned.
const WARN_FROM: f64 = 0.8;

/// State of a day's budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Standing {
    /// There is no budget, or enough is left.
    Well,
    /// Little is left.
    Low {
        /// Cost so far.
        spent: UsdMicros,
    },
    /// The budget is spent.
    Spent {
        /// Cost so far.
        spent: UsdMicros,
    },
}

/// State of the budget at a cost in millionths of a dollar. `None`: the cost is not known yet.
pub(crate) fn standing(policy: &Policy, spent_usd_micros: Option<u64>) -> Standing {
    let Some(most) = policy.max_per_day() else { return Standing::Well };
    let known = spent_usd_micros.map(UsdMicros::from);
    // With a budget of 0 the cost does not matter.
    let Some(spent) = known.or((most <= UsdMicros::ZERO).then_some(UsdMicros::ZERO)) else { return Standing::Well };
    if spent.usd() < most.usd() * WARN_FROM {
        Standing::Well
    } else if spent < most {
        Standing::Low { spent }
    } else {
        Standing::Spent { spent }
    }
}

/// Adapts a plan to a spent budget: nothing that costs money is started, and machines that cost money are given back.
pub(crate) fn without_money(plan: Plan, seen: &Observation, policy: &Policy, spent: UsdMicros) -> Plan {
    let machine = |id: &str| seen.machines.iter().find(|machine| *machine.id == *id);
    let is_free = |step: &Step| match &step.action {
        Action::Rent { offer, .. } => {
            seen.offers.iter().any(|known| known.id == *offer && known.usd_per_hour <= UsdMicros::ZERO)
        }
        Action::Resume { machine: id } | Action::Undrain { machine: id } => {
            machine(id).is_some_and(|machine| machine.usd_per_hour <= UsdMicros::ZERO)
        }
        Action::Drain { .. } | Action::Stop { .. } | Action::Release { .. } => true,
    };
    let goes: Vec<&Machine> = seen
        .machines
        .iter()
        .filter(|machine| {
            machine.is_ours() && machine.usd_per_hour > UsdMicros::ZERO && may_go(machine, policy.at_budget)
        })
        .collect();
    let mut steps: Vec<Step> = plan.steps.into_iter().filter(is_free).collect();
    steps.retain(|step| step.action.machine().is_none_or(|id| goes.iter().all(|machine| machine.id != *id)));
    let budget_usd_micros = policy.max_per_day().unwrap_or_default();
    let reason = Reason::BudgetSpent { spent_usd_micros: spent, budget_usd_micros };
    steps.extend(
        goes.into_iter()
            .map(|machine| Step { action: Action::Release { machine: machine.id.clone() }, reason: reason.clone() }),
    );
    Plan { steps, ..plan }
}

/// Whether a machine is given back now. A draining machine ends by itself, unless it must be given back at once.
fn may_go(machine: &Machine, at_budget: AtBudget) -> bool {
    match (at_budget, machine.phase) {
        (AtBudget::Stop, _) => true,
        (AtBudget::Drain, Phase::Draining) => false,
        (AtBudget::Drain, _) => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn policy(at_budget: AtBudget) -> Policy {
        Policy { max_usd_per_day: Some(10.0), at_budget, ..Policy::default() }
    }

    #[test]
    fn a_budget_warns_before_it_is_spent() {
        let at = |usd: f64| standing(&policy(AtBudget::Drain), Some((usd * 1e6) as u64));
        assert_eq!(at(7.9), Standing::Well);
        assert_eq!([at(8.0), at(9.99)], [8.0, 9.99].map(|usd| Standing::Low { spent: UsdMicros::from_usd(usd) }));
        assert_eq!(at(10.0), Standing::Spent { spent: UsdMicros::from_usd(10.0) });
        assert_eq!(standing(&Policy::default(), Some(u64::MAX)), Standing::Well, "there is none");
        assert_eq!(standing(&policy(AtBudget::Stop), None), Standing::Well, "nobody knows yet");
        let nothing = Policy { max_usd_per_day: Some(0.0), ..Policy::default() };
        let spent = Standing::Spent { spent: UsdMicros::ZERO };
        assert_eq!([standing(&nothing, None), standing(&nothing, Some(0))], [spent; 2], "nothing may be spent");
    }

    #[test]
    fn a_spent_budget_lets_nothing_begin_and_what_costs_money_go() {
        let machine = |id: &str, phase: &str, usd: f64| {
            json!({"id": id, "provider": "vast", "kind": "RTX 4090", "phase": phase, "since_s": 0.0, "rented_s": 0.0, "usd_per_hour": usd,
                "cards": 1, "vram_gib": 24.0, "running": 1})
        };
        let seen: Observation = serde_json::from_value(json!({"at_s": 0.0, "endpoints": [], "offers": [],
            "machines": [machine("busy", "ready", 0.4), machine("going", "draining", 0.4), machine("desk", "stopped", 0.0)]}))
        .unwrap();
        let plan: Plan = serde_json::from_value(json!({"steps": [
            {"action": {"do": "rent", "offer": "77"}, "reason": {"why": "lost"}},
            {"action": {"do": "resume", "machine": "desk"}, "reason": {"why": "lost"}},
            {"action": {"do": "undrain", "machine": "going"}, "reason": {"why": "lost"}}]}))
        .unwrap();
        let left = |at_budget| {
            let plan = without_money(plan.clone(), &seen, &policy(at_budget), UsdMicros::from_usd(10.5));
            plan.steps.iter().map(|step| step.action.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(left(AtBudget::Drain), ["resume desk", "release busy"]);
        assert_eq!(left(AtBudget::Stop), ["resume desk", "release busy", "release going"]);
        let plan = without_money(plan.clone(), &seen, &policy(AtBudget::Stop), UsdMicros::from_usd(10.5));
        let reason = "$10.50 of today's budget of $10.00 is spent (max_usd_per_day)";
        assert_eq!(plan.steps[1].reason.to_string(), reason);
    }
}
