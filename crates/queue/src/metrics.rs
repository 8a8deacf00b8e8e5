//! Every metric of the queue's: what happens between a process and its Redis.

use metrics::counter;
use stokehold_metrics::catalogue;

catalogue! {
    /// Every metric of the queue's.
    pub const METRICS;
    counter REDIS_ERRORS = "stokehold_redis_errors_total" by ["kind"], "Failed Redis calls: `refused` by Redis (out of memory, disk failure, too few replicas) or `unavailable` (outcome unknown).";
}

/// A call failed, with the code that Redis gave.
pub(crate) fn redis_failed(code: Option<&str>) {
    let kind = if matches!(code, Some("OOM" | "MISCONF" | "NOREPLICAS")) { "refused" } else { "unavailable" };
    counter!(REDIS_ERRORS, "kind" => kind).increment(1);
}
