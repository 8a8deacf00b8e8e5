//! The metrics of background duties, the same in every program.

use metrics::counter;
use stokehold_metrics::catalogue;

use crate::state::RoundFailure;

catalogue! {
    /// The metrics of background duties.
    pub const METRICS;
    counter ROUNDS = "stokehold_duty_rounds_total" by ["duty"], "Finished rounds of a background duty, failed ones included.";
    counter FAILURES = "stokehold_duty_failures_total" by ["duty", "kind"], "Rounds of a background duty that failed, by kind: `error`, `timeout` or `panic`. Panics in work that the duty does beside its rounds count as well.";
    counter RESTARTS = "stokehold_duty_restarts_total" by ["duty"], "Restarts of a background duty after a panic.";
}

/// Creates the series of a duty, so that the first failure is an increase.
pub(crate) fn registered(duty: &'static str) {
    counter!(ROUNDS, "duty" => duty).increment(0);
    counter!(RESTARTS, "duty" => duty).increment(0);
    for failure in RoundFailure::ALL {
        counter!(FAILURES, "duty" => duty, "kind" => failure.as_str()).increment(0);
    }
}

/// Counts a finished round.
pub(crate) fn finished(duty: &'static str, failure: Option<RoundFailure>) {
    counter!(ROUNDS, "duty" => duty).increment(1);
    if let Some(failure) = failure {
        failed(duty, failure);
    }
}

/// Counts a failure without a round.
pub(crate) fn failed(duty: &'static str, failure: RoundFailure) {
    counter!(FAILURES, "duty" => duty, "kind" => failure.as_str()).increment(1);
}

/// Counts a restart after a panic.
pub(crate) fn restarted(duty: &'static str) {
    counter!(RESTARTS, "duty" => duty).increment(1);
}
