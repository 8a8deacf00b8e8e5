//! One round: corrections, plan, execution. The simulation of crashes runs the same code.

use std::collections::BTreeSet;
use std::time::Duration;

use stokehold_planner::observation::Observation;
use stokehold_planner::plan::{Action, Plan, Reason, Step};
use stokehold_planner::{AtBudget, Name, Planner};
use stokehold_queue::registry::{Decision, Granted, Wanted};
use tokio::time::Instant;

use crate::apply::{Executor, ExecutorError, Outcome, adopted};
use crate::live::budget::{Standing, standing, without_money};
use crate::live::collect::Poll;
use crate::live::notices::Notices;
use crate::live::reconcile::{self, Correction, ReconcileLimits, reconcile};
use crate::metrics;
use crate::observe::{self, RawState, SILENT_MS};

/// Time after which a round starts no further step.
const STEPS_LIMIT: Duration = Duration::from_secs(10);

/// Runs one round and returns the state at its end. `record` gets the observation and the plan before the plan is
/// executed.
pub(crate) async fn round(
    executor: &Executor<'_>,
    planner: &mut Planner,
    limits: ReconcileLimits,
    poll: Poll,
    notices: &mut Notices,
    record: impl FnOnce(&Observation, &Plan) + Send,
) -> Result<RawState, ExecutorError> {
    let Poll { mut seen, unreachable, no_offers, spent_usd_micros } = poll;
    let cooldowns: BTreeSet<String> = seen.cooldowns.keys().cloned().collect();
    executor.providers.iter().for_each(|provider| provider.avoid(&cooldowns));
    let until = Instant::now() + STEPS_LIMIT;
    unreachable.iter().for_each(|(provider, failure)| notices.provider_unreachable(provider, failure));
    no_offers.iter().for_each(|(provider, why)| notices.no_offers(provider, why));
    housekeep(executor, limits, &mut seen).await?;
    notices.unread(&observe::unread(&seen));
    let observation = observe::observation(&seen);
    let mut plan = planner.plan(&observation);
    record(&observation, &plan);
    let mut executor = *executor;
    match standing(planner.policy(), spent_usd_micros) {
        Standing::Well => {}
        Standing::Low { spent } => notices.low(spent, planner.policy()),
        Standing::Spent { spent } => {
            notices.spent(spent, planner.policy());
            plan = without_money(plan, &observation, planner.policy(), spent);
            executor.is_urgent = planner.policy().at_budget == AtBudget::Stop;
        }
    }
    if seen.is_gateway_unreachable() {
        // A plan made now would give back every machine and rent as many new ones.
        notices.gateway_unreachable();
        plan.steps.clear();
    }
    if seen.is_paused() {
        // Machines that came up during the pause could not report.
        let has_failed = |reason: &Reason| matches!(reason, Reason::BootFailed { .. } | Reason::ResumeFailed { .. });
        plan.steps.retain(|step| !has_failed(&step.reason));
    }
    let dear: Vec<String> =
        reconcile::too_dear(&seen, limits.most_usd_micros_per_hour).iter().map(|machine| machine.id.clone()).collect();
    // The planner uses the charged price, not the agreed price, and would undrain these machines.
    plan.steps
        .retain(|step| !matches!(&step.action, Action::Undrain { machine } if dear.iter().any(|id| **id == **machine)));
    let overcharged: Vec<_> = seen.machines.values().filter(|machine| machine.is_overcharged()).collect();
    notices.overcharged(&overcharged);
    plan.withheld.iter().for_each(|withheld| notices.withheld(withheld));
    for step in &plan.steps {
        // Each step takes time. The remaining ones are planned again from a newer state.
        if Instant::now() > until {
            break;
        }
        if touches(&observation, step).is_some_and(|provider| unreachable.iter().any(|(name, _)| **name == provider)) {
            tracing::info!(action = word(&step.action), reason = %step.reason, "skipped: its provider cannot be reached");
            continue;
        }
        let outcome = executor.step(&mut seen, step).await?;
        if let Outcome::Withheld(granted) = outcome {
            notices.limited(granted, executor.caps);
            // The limit applies to the following rents as well.
            if matches!(granted, Granted::Rents(_)) {
                break;
            }
        }
        if let Some(decision) = decision(step, &outcome, seen.now_ms) {
            notices.decided(decision);
        }
        log_step(step, &outcome);
    }
    Ok(seen)
}

async fn housekeep(executor: &Executor<'_>, limits: ReconcileLimits, seen: &mut RawState) -> Result<(), ExecutorError> {
    adopt(executor, seen).await?;
    for correction in reconcile(seen, limits, |name| executor.providers.get(name)) {
        match correction {
            Correction::Note(machine) => {
                executor.write(&machine).await?;
                seen.machines.insert(machine.id.clone(), machine);
            }
            Correction::Forget { id, why } => {
                tracing::info!(machine.id = id, "gone: {why}");
                executor.forget(&id, &seen.workers).await?;
                seen.machines.remove(&id);
                seen.workers.retain(|worker| worker.name != id);
            }
            Correction::Ask { machine, wanted, why } => {
                let id = machine.id.clone();
                let (after, failure) = executor.ended(machine, wanted).await?;
                match failure {
                    None => tracing::info!(machine.id = id, wanted = ?wanted, "{why}"),
                    Some(failure) => tracing::warn!(machine.id = id, wanted = ?wanted, %failure, "{why}"),
                }
                match after {
                    Some(machine) => seen.machines.insert(id, machine),
                    None => seen.machines.remove(&id),
                };
            }
            Correction::Drain { machine, why } => {
                tracing::warn!(machine.id = machine.id, "draining: {why}");
                let machine = executor.drain(&machine, Some(Wanted::Gone)).await?;
                seen.machines.insert(machine.id.clone(), machine);
            }
            Correction::CoolDown { host, until_ms } => {
                executor.cool_down(&host, until_ms).await?;
                seen.cooldowns.insert(host, until_ms);
            }
        }
    }
    Ok(())
}

/// Adopts machines of providers that something else started.
async fn adopt(executor: &Executor<'_>, seen: &mut RawState) -> Result<(), ExecutorError> {
    let mut found = Vec::new();
    for worker in seen.workers.iter().filter(|worker| !seen.is_silent(worker)) {
        if seen.machines.contains_key(&worker.name) {
            continue;
        }
        let offer = executor.providers.iter().find_map(|provider| Some((provider, provider.adopts(&worker.name)?)));
        found.extend(offer.map(|(provider, offer)| (worker.name.clone(), provider.name(), offer)));
    }
    for (id, provider, offer) in found {
        tracing::info!(machine.id = id, provider, "adopted: the machine already runs");
        // The worker has sent heartbeats before now.
        let machine = adopted(seen.now_ms.saturating_sub(SILENT_MS), &id, &offer);
        executor.write(&machine).await?;
        seen.machines.insert(id, machine);
    }
    Ok(())
}

/// Name of the provider whose machine or offer a step concerns.
fn touches(seen: &Observation, step: &Step) -> Option<String> {
    let of_machine =
        |id: &Name| seen.machines.iter().find(|known| known.id == *id).map(|known| known.provider.to_string());
    match &step.action {
        Action::Rent { offer, .. } => {
            seen.offers.iter().find(|known| known.id == *offer).map(|known| known.provider.to_string())
        }
        action => action.machine().and_then(of_machine),
    }
}

fn word(action: &Action) -> &'static str {
    match action {
        Action::Rent { .. } => "rent",
        Action::Resume { .. } => "resume",
        Action::Drain { .. } => "drain",
        Action::Undrain { .. } => "undrain",
        Action::Stop { .. } => "stop",
        Action::Release { .. } => "release",
    }
}

/// The decision to show to operators; `None` for a step that was left for another round.
fn decision(step: &Step, outcome: &Outcome, at_ms: u64) -> Option<Decision> {
    let (made, failure) = match outcome {
        Outcome::Done { machine } => (Some(machine.clone()), None),
        Outcome::AfterItsJobs => (None, None),
        Outcome::Failed(why) => (None, Some(why.clone())),
        Outcome::LeftAlone(_) | Outcome::Withheld(_) => return None,
    };
    let machine = step.action.machine().map(|machine| machine.to_string()).or(made);
    Some(Decision { at_ms, action: word(&step.action).to_owned(), reason: step.reason.to_string(), machine, failure })
}

/// Logs a step with its reason and outcome.
fn log_step(step: &Step, outcome: &Outcome) {
    let (action, reason) = (word(&step.action), &step.reason);
    let machine = step.action.machine().map(|machine| &**machine);
    let offer = match &step.action {
        Action::Rent { offer, .. } => Some(&**offer),
        _ => None,
    };
    let outcome_word = match outcome {
        Outcome::Done { machine: made } => {
            tracing::info!(machine.id = machine.unwrap_or(made), offer.id = offer, "{action}: {reason}");
            "done"
        }
        Outcome::AfterItsJobs => {
            tracing::info!(machine.id = machine, "{action} once its jobs have ended: {reason}");
            "after_its_jobs"
        }
        Outcome::Failed(why) => {
            tracing::warn!(machine.id = machine, offer.id = offer, failure = why, "{action} failed: {reason}");
            "failed"
        }
        Outcome::LeftAlone(why) => {
            tracing::debug!(machine.id = machine, offer.id = offer, "{action} skipped, {why}: {reason}");
            "left"
        }
        Outcome::Withheld(limit) => {
            tracing::debug!(machine.id = machine, offer.id = offer, ?limit, "{action} withheld: {reason}");
            "withheld"
        }
    };
    metrics::decided(action, &step.reason, outcome_word);
}
