//! Every metric of a worker: what happens in it. How it and its cards stand is in its heartbeats, and told by the API: few can be reached from
//! where Prometheus is.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Counter, counter, gauge, histogram};
use stokehold_exposition::{Metric, catalogue};

/// From a small lock file, all of which is cached, to a large one over a slow line.
const BUILD: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0];

catalogue! {
    /// Every metric of a worker.
    pub const METRICS;
    gauge RUNNING = "stokehold_worker_attempts_running", "Attempts that run in this worker.";
    counter ENDED = "stokehold_worker_attempts_ended_total" by ["outcome"], "Attempts that ended: succeeded, failed, released (handed back unharmed) or lost (with their lease).";
    counter RUNNERS = "stokehold_worker_runners_started_total", "Processes of runners that were started.";
    histogram BUILD_SECONDS = "stokehold_worker_environment_build_seconds" in BUILD by ["outcome"], "Seconds that building an environment took: built or failed. One that was there already is not counted.";
    counter WEIGHTS = "stokehold_worker_weights_fetched_bytes_total", "Weights that were fetched and are what was pinned.";
    counter GATEWAY_ERRORS = "stokehold_worker_gateway_errors_total" by ["call"], "Tries of calls to the gateway that failed.";
}

/// Everything that is counted in a process in which a worker runs.
#[must_use]
pub fn catalogues() -> [&'static [Metric]; 2] {
    [METRICS, stokehold_supervise::metrics::METRICS]
}

const OUTCOMES: [&str; 4] = ["succeeded", "failed", "released", "lost"];

/// Counted for every job, so their series are made once.
static ENDED_BY: LazyLock<[Counter; 4]> =
    LazyLock::new(|| OUTCOMES.map(|outcome| counter!(ENDED, "outcome" => outcome)));

/// How an attempt ended, as it is counted.
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

/// `path` of the call; what follows its first part names an endpoint.
pub(crate) fn gateway_failed(path: &str) {
    let call = path.split('/').next().unwrap_or_default().to_owned();
    counter!(GATEWAY_ERRORS, "call" => call).increment(1);
}
