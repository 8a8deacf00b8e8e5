//! The metrics of the S3 client.

use metrics::counter;
use stokehold_metrics::catalogue;

catalogue! {
    /// All metrics of this crate.
    pub const METRICS;
    counter S3_ERRORS = "stokehold_s3_errors_total" by ["kind", "step"], "Object store calls that failed after all retries, by operation: `refused` by the store, or `unavailable`.";
}

pub(crate) fn failed(kind: &'static str, step: &'static str) {
    counter!(S3_ERRORS, "kind" => kind, "step" => step).increment(1);
}
