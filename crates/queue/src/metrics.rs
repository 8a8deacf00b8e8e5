//! The metrics of the queue: the traffic between a process and its Redis.

use metrics::counter;
use stokehold_metrics::catalogue;

catalogue! {
    /// All metrics of this crate.
    pub const METRICS;
    counter REDIS_ERRORS = "stokehold_redis_errors_total" by ["kind"], "Failed Redis calls: `refused` by Redis (out of memory, disk failure, too few replicas) or `unavailable` (outcome unknown).";
}

/// Counts a failed call, with Redis's error code.
pub(crate) fn redis_failed(code: Option<&str>) {
    let kind = if matches!(code, Some("OOM" | "MISCONF" | "NOREPLICAS")) { "refused" } else { "unavailable" };
    counter!(REDIS_ERRORS, "kind" => kind).increment(1);
}
