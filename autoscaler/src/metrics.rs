//! Every metric of the autoscaler: its name, its unit, what it means, and the one function that moves it. Labels are bounded. Machines and what
//! they cost are told by the API, from the ledger: they are there, and paid for, also while no autoscaler is.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use stokehold_exposition::{Exposition, Metric, catalogue};

use crate::observation::{Machine, Observation, Phase};
use crate::plan::Reason;
use crate::policy::Policy;

/// From some milliseconds, a look at Redis, to the patience of a provider.
const SECONDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// Whose picture it is.
const TELLER: &str = "autoscaler";

catalogue! {
    /// Every metric of what happens in an autoscaler.
    pub const METRICS;
    gauge LEADS = "stokehold_autoscaler_leads", "1 while this autoscaler is the one that acts, 0 while it watches.";
    counter DECISIONS = "stokehold_autoscaler_decisions_total" by ["action", "reason", "outcome"], "Steps of plans, by what, why, and what became of them.";
    counter BLIND = "stokehold_autoscaler_blind_total" by ["what"], "Looks at which Redis or a provider could not be seen; nothing is done there then.";
    histogram TICK_SECONDS = "stokehold_autoscaler_tick_duration_seconds" in SECONDS, "Seconds of one round: look, decide, do.";
}

/// What only the one that leads tells.
mod led {
    use stokehold_exposition::catalogue;

    catalogue! {
        /// How the one that leads sees things.
        pub const METRICS;
        gauge SPENT_TODAY = "stokehold_autoscaler_spent_today_usd", "What rented machines have cost since midnight, UTC, or soon will have been charged.";
        gauge DAY_LIMIT = "stokehold_autoscaler_day_limit_usd", "What they may cost on a day (max_usd_per_day); absent where there is no limit.";
        gauge HOUR_SPEND = "stokehold_autoscaler_spend_usd_per_hour", "What all machines cost per hour, as it sees them.";
        gauge HOUR_LIMIT = "stokehold_autoscaler_hour_limit_usd", "What they may cost per hour (max_usd_per_hour).";
        gauge MACHINES_LIMIT = "stokehold_autoscaler_machines_limit", "As many machines may be there (max_machines).";
        gauge BLIND_NOW = "stokehold_autoscaler_blind" by ["provider"], "1 for a provider that could not be seen at the last look, else 0.";
    }
}

pub use led::METRICS as LED;

/// Everything that is counted in a process in which an autoscaler runs.
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

pub(crate) fn blind(what: &'static str) {
    counter!(BLIND, "what" => what).increment(1);
}

/// `outcome`: `done`, `after_its_jobs`, `failed`, `left` or `withheld`.
pub(crate) fn decided(action: &'static str, reason: &Reason, outcome: &'static str) {
    counter!(DECISIONS, "action" => action, "reason" => reason_word(reason), "outcome" => outcome).increment(1);
}

/// The reason without its numbers.
fn reason_word(reason: &Reason) -> String {
    let told = serde_json::to_value(reason).unwrap_or_default();
    told["why"].as_str().unwrap_or("other").to_owned()
}

/// How the one that leads saw things in a round.
pub(crate) struct Led {
    /// What all machines cost.
    pub(crate) usd_per_hour: f64,
    /// What rented machines have cost today, once that is known.
    pub(crate) spent_usd_micros: Option<u64>,
    /// Each provider, and whether it could not be seen.
    pub(crate) providers: Vec<(&'static str, bool)>,
}

pub(crate) fn led(exposition: &Exposition, policy: &Policy, round: &Led) {
    exposition.show(TELLER, LED, || {
        gauge!(led::HOUR_SPEND).set(round.usd_per_hour);
        gauge!(led::HOUR_LIMIT).set(policy.max_usd_per_hour);
        gauge!(led::MACHINES_LIMIT).set(policy.max_machines);
        if let Some(micros) = round.spent_usd_micros {
            #[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
            gauge!(led::SPENT_TODAY).set(micros as f64 / 1e6);
        }
        if let Some(most_usd) = policy.max_usd_per_day {
            gauge!(led::DAY_LIMIT).set(most_usd);
        }
        for (provider, is_blind) in &round.providers {
            gauge!(led::BLIND_NOW, "provider" => *provider).set(f64::from(u8::from(*is_blind)));
        }
    });
}

/// It is for another one to tell.
pub(crate) fn not_led(exposition: &Exposition) {
    exposition.hide(TELLER);
}

/// What all machines cost per hour now, dollars.
#[must_use]
pub fn usd_per_hour(seen: &Observation) -> f64 {
    let cost = |machine: &Machine| match machine.phase {
        Phase::Stopped => machine.stopped_usd_per_hour,
        Phase::Lost if machine.is_interruptible => machine.stopped_usd_per_hour,
        Phase::Booting | Phase::Ready | Phase::Draining | Phase::Resuming | Phase::Lost => machine.usd_per_hour,
    };
    seen.machines.iter().map(cost).sum()
}
