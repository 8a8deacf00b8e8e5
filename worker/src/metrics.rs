//! The metrics of a worker: counts of events in it. The API exports the state of the worker and its GPUs from
//! heartbeats, because Prometheus can reach few workers.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Counter, counter, gauge, histogram};
use stokehold_metrics::{Metric, catalogue};

/// Buckets from a small lock file that is fully cached to a large one over a slow network.
const BUILD: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0];

catalogue! {
    /// All metrics of a worker.
    pub const METRICS;
    gauge RUNNING = "stokehold_worker_attempts_running", "Attempts currently running in this worker.";
    counter ENDED = "stokehold_worker_attempts_ended_total" by ["outcome"], "Ended attempts, by outcome: succeeded, failed, released (returned to the queue) or lost (the lease was lost).";
    counter RUNNERS = "stokehold_worker_runners_started_total", "Runner processes started.";
    histogram BUILD_SECONDS = "stokehold_worker_environment_build_seconds" in BUILD by ["outcome"], "Duration of environment builds in seconds, by outcome: built or failed. Reused environments are not counted.";
    counter WEIGHTS = "stokehold_worker_weights_fetched_bytes_total", "Bytes of weights fetched and verified.";
    counter GATEWAY_ERRORS = "stokehold_worker_gateway_errors_total" by ["call"], "Failed tries of calls to the gateway.";
}

/// Everything that is counted in a process in which a worker runs.
#[must_use]
pub fn catalogues() -> [&'static [Metric]; 2] {
    [METRICS, stokehold_supervise::metrics::METRICS]
}

const OUTCOMES: [&str; 4] = ["succeeded", "failed", "released", "lost"];

/// Incremented for every job, so their series are created once.
static ENDED_BY: LazyLock<[Counter; 4]> =
    LazyLock::new(|| OUTCOMES.map(|outcome| counter!(ENDED, "outcome" => outcome)));

/// Outcome of an attempt, as a label value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    Released,
    Lost,
}

pub(crate) fn ended(outcome: Outcome) {
    ENDED_BY[outcome as usize].increment(1);
}

pub(crate) fn running(attempts: u32) {
    gauge!(RUNNING).set(attempts);
}

pub(crate) fn runner_started() {
    counter!(RUNNERS).increment(1);
}

pub(crate) fn environment_built(took: Duration, is_usable: bool) {
    histogram!(BUILD_SECONDS, "outcome" => if is_usable { "built" } else { "failed" }).record(took);
}

pub(crate) fn weights_fetched(bytes: u64) {
    counter!(WEIGHTS).increment(bytes);
}

/// Counts a failed call. Only the first part of `path` becomes a label: the rest names an endpoint.
pub(crate) fn gateway_failed(path: &str) {
    let call = path.split('/').next().unwrap_or_default().to_owned();
    counter!(GATEWAY_ERRORS, "call" => call).increment(1);
}
