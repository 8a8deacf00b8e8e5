//! Every metric of the autoscaler: its name, its unit, what it means, and the one function that moves it. Labels are bounded.

use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::routing::get;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::observation::{Machine, Observation, Phase};
use crate::plan::Reason;

const LEADS: &str = "stokehold_autoscaler_leads";
const MACHINES: &str = "stokehold_machines";
const SPEND: &str = "stokehold_spend_usd_per_hour";
const DECISIONS: &str = "stokehold_autoscaler_decisions_total";
const BLIND: &str = "stokehold_autoscaler_blind_total";
const TICK_SECONDS: &str = "stokehold_autoscaler_tick_duration_seconds";

const PHASES: [(Phase, &str); 6] = [
    (Phase::Booting, "booting"),
    (Phase::Ready, "ready"),
    (Phase::Draining, "draining"),
    (Phase::Stopped, "stopped"),
    (Phase::Resuming, "resuming"),
    (Phase::Lost, "lost"),
];

/// What each means, for the recorder that is in place.
pub fn describe() {
    describe_gauge!(LEADS, "1 while this autoscaler is the one that acts, 0 while it watches.");
    describe_gauge!(
        MACHINES,
        "Machines, by provider and where they are in their lives; `joined` were not started from here."
    );
    describe_gauge!(SPEND, "What all machines cost per hour now.");
    describe_counter!(DECISIONS, "Steps of plans, by what, why, and what became of them.");
    describe_counter!(BLIND, "Looks at which Redis or a provider could not be seen; nothing is done there then.");
    describe_histogram!(TICK_SECONDS, "Seconds of one round: look, decide, do.");
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

/// `outcome`: `done`, `after_its_jobs`, `failed` or `left`.
pub(crate) fn decided(action: &'static str, reason: &Reason, outcome: &'static str) {
    counter!(DECISIONS, "action" => action, "reason" => reason_word(reason), "outcome" => outcome).increment(1);
}

/// The reason without its numbers.
fn reason_word(reason: &Reason) -> String {
    let told = serde_json::to_value(reason).unwrap_or_default();
    told["why"].as_str().unwrap_or("other").to_owned()
}

pub(crate) fn machines(seen: &Observation) {
    let mut providers: Vec<&str> = seen.machines.iter().map(|machine| &*machine.provider).collect();
    providers.extend(seen.offers.iter().map(|offer| &*offer.provider));
    providers.sort_unstable();
    providers.dedup();
    for provider in providers {
        for (phase, word) in PHASES {
            let is_one = |machine: &&Machine| *machine.provider == *provider && machine.phase == phase;
            let machines = u32::try_from(seen.machines.iter().filter(is_one).count()).unwrap_or(u32::MAX);
            gauge!(MACHINES, "provider" => provider.to_owned(), "phase" => word).set(machines);
        }
    }
    gauge!(SPEND).set(usd_per_hour(seen));
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

/// From some milliseconds, a look at Redis, to the patience of a provider.
const SECONDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// Recorded samples are folded this often.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Tells them at `/metrics`, and at `/healthz` that this process is here, until `shutdown`.
///
/// # Errors
/// When there is a recorder already, or the listener fails.
pub async fn serve(listener: TcpListener, shutdown: CancellationToken) -> anyhow::Result<()> {
    let matcher = Matcher::Full(TICK_SECONDS.to_owned());
    let recorder = PrometheusBuilder::new().set_buckets_for_metric(matcher, &SECONDS)?.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).context("another metrics recorder is in place")?;
    describe();
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            upkeep.run_upkeep();
        }
    });
    let metrics = get(move || std::future::ready(handle.render()));
    let routes = Router::new().route("/metrics", metrics).route("/healthz", get(|| std::future::ready("ok\n")));
    axum::serve(listener, routes).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
    Ok(())
}
