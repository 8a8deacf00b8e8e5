//! Metrics of the autoscaler: name, unit, help and the function that updates each. Labels are bounded. The API exposes
//! the machines and their cost from the ledger, because they exist even while no autoscaler runs.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use stokehold_metrics::{Metric, Metrics, catalogue};
use stokehold_planner::Policy;
use stokehold_planner::observation::{Machine, Observation, Phase};
use stokehold_planner::plan::Reason;
use stokehold_units::UsdMicros;

/// Buckets from a poll of Redis, some milliseconds, to the timeout of a provider.
const SECONDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// Name of this set of metrics.
const COLLECTOR: &str = "autoscaler";

catalogue! {
    /// Metrics of an autoscaler process.
    pub const METRICS;
    gauge LEADS = "stokehold_autoscaler_leads", "1 while this autoscaler leads, 0 while it is a standby.";
    counter DECISIONS = "stokehold_autoscaler_decisions_total" by ["action", "reason", "outcome"], "Steps of plans, by action, reason and outcome.";
    counter UNREACHABLE = "stokehold_autoscaler_blind_total" by ["what"], "Polls in which Redis or a provider could not be read. Its machines stay as they are.";
    histogram TICK_SECONDS = "stokehold_autoscaler_tick_duration_seconds" in SECONDS, "Duration of one round of the autoscaler (poll, plan, execute), seconds.";
}

/// Metrics that only the leader exposes.
mod led {
    use stokehold_metrics::catalogue;

    catalogue! {
        /// State as the leader read it.
        pub const METRICS;
        gauge SPENT_TODAY = "stokehold_autoscaler_spent_today_usd", "Cost of rented machines since midnight UTC, including costs that are not charged yet.";
        gauge DAY_LIMIT = "stokehold_autoscaler_day_limit_usd", "Limit for the cost of rented machines per day (max_usd_per_day); absent without a limit.";
        gauge HOUR_SPEND = "stokehold_autoscaler_spend_usd_per_hour", "Cost of all machines per hour, as of the last round.";
        gauge HOUR_LIMIT = "stokehold_autoscaler_hour_limit_usd", "Limit for the cost of all machines per hour (max_usd_per_hour).";
        gauge MACHINES_LIMIT = "stokehold_autoscaler_machines_limit", "Limit for the number of machines (max_machines).";
        gauge UNREACHABLE_NOW = "stokehold_autoscaler_blind" by ["provider"], "1 for a provider that could not be read in the last poll, else 0.";
    }
}

pub use led::METRICS as LED;

/// All metrics of a process that runs an autoscaler.
#[must_use]
pub fn catalogues() -> [&'static [Metric]; 3] {
    [METRICS, stokehold_queue::metrics::METRICS, stokehold_supervise::metrics::METRICS]
}

pub(crate) fn leads(is_leading: bool) {
    gauge!(LEADS).set(f64::from(u8::from(is_leading)));
}

pub(crate) fn ticked(took: Duration) {
    histogram!(TICK_SECONDS).record(took);
}

pub(crate) fn unreachable(what: &'static str) {
    counter!(UNREACHABLE, "what" => what).increment(1);
}

/// `outcome`: `done`, `after_its_jobs`, `failed`, `left` or `withheld`.
pub(crate) fn decided(action: &'static str, reason: &Reason, outcome: &'static str) {
    counter!(DECISIONS, "action" => action, "reason" => reason_word(reason), "outcome" => outcome).increment(1);
}

/// The reason without its numbers.
fn reason_word(reason: &Reason) -> String {
    let value = serde_json::to_value(reason).unwrap_or_default();
    value["why"].as_str().unwrap_or("other").to_owned()
}

/// State that the leader read in a round.
pub(crate) struct Led {
    /// Cost of all machines per hour.
    pub(crate) usd_per_hour: UsdMicros,
    /// Cost of rented machines today, if known.
    pub(crate) spent_usd_micros: Option<u64>,
    /// Name of each provider, and whether it could not be reached.
    pub(crate) providers: Vec<(&'static str, bool)>,
}

pub(crate) fn led(exposition: &Metrics, policy: &Policy, round: &Led) {
    exposition.show(COLLECTOR, LED, || {
        gauge!(led::HOUR_SPEND).set(round.usd_per_hour.usd());
        gauge!(led::HOUR_LIMIT).set(policy.max_usd_per_hour);
        gauge!(led::MACHINES_LIMIT).set(policy.max_machines);
        if let Some(micros) = round.spent_usd_micros {
            gauge!(led::SPENT_TODAY).set(UsdMicros::from(micros).usd());
        }
        if let Some(most_usd) = policy.max_usd_per_day {
            gauge!(led::DAY_LIMIT).set(most_usd);
        }
        for (provider, is_unreachable) in &round.providers {
            gauge!(led::UNREACHABLE_NOW, "provider" => *provider).set(f64::from(u8::from(*is_unreachable)));
        }
    });
}

/// Hides the metrics of the leader.
pub(crate) fn not_led(exposition: &Metrics) {
    exposition.hide(COLLECTOR);
}

/// Current cost of all machines per hour.
#[must_use]
pub fn usd_per_hour(seen: &Observation) -> UsdMicros {
    let cost = |machine: &Machine| match machine.phase {
        Phase::Stopped => machine.stopped_usd_per_hour,
        Phase::Lost if machine.is_interruptible => machine.stopped_usd_per_hour,
        Phase::Booting | Phase::Ready | Phase::Draining | Phase::Resuming | Phase::Lost => machine.usd_per_hour,
    };
    seen.machines.iter().map(cost).sum()
}
