//! Traces of jobs: CSV, gzipped or plain, with the header `arrival_s,endpoint,service_s,vram_gb,priority`, sorted by
//! arrival.

mod error;
mod read;
mod write;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::Name;

pub use error::{Error, ErrorKind};
pub use read::read;
pub use write::write;

/// The columns of a trace, in order.
const HEADER: [&str; 5] = ["arrival_s", "endpoint", "service_s", "vram_gb", "priority"];

/// A job of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Seconds since the trace began.
    pub arrival_s: f64,
    /// Endpoint, whose model the job needs.
    pub endpoint: Name,
    /// Run time on a GPU of speed 1.0, with the model loaded and no other job, seconds.
    pub service_s: f64,
    /// Memory of the loaded model, GB.
    pub vram_gb: f64,
    /// Priority, which determines the wait target.
    pub priority: Priority,
}

/// Priority of a job of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Target: start within 30 seconds.
    Interactive,
    /// Target: start within an hour.
    Batch,
}

impl Priority {
    /// Target for the time from arrival to start, seconds.
    #[must_use]
    pub fn target_s(self) -> f64 {
        match self {
            Self::Interactive => 30.0,
            Self::Batch => 3_600.0,
        }
    }

    /// Name in traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Overlays all periods on the first one: with 86,400 s, several days become one busy day. Jobs that then arrive at the
/// same time keep their order. A period that is not above 0 leaves the trace as it is.
#[must_use]
pub fn fold(mut jobs: Vec<Job>, period_s: f64) -> Vec<Job> {
    if period_s > 0.0 {
        jobs.iter_mut().for_each(|job| job.arrival_s %= period_s);
        jobs.sort_by(|one, other| one.arrival_s.total_cmp(&other.arrival_s));
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(arrival_s: f64, endpoint: &str) -> Job {
        Job { arrival_s, endpoint: endpoint.into(), service_s: 1.0, vram_gb: 8.0, priority: Priority::Batch }
    }

    #[test]
    fn a_folded_trace_is_sorted_and_keeps_the_order_of_equals() {
        let jobs = vec![job(5.0, "a"), job(12.0, "b"), job(15.0, "c"), job(20.0, "d")];
        let folded = fold(jobs, 10.0);
        let told: Vec<_> = folded.iter().map(|job| (job.arrival_s, &*job.endpoint)).collect();
        assert_eq!(told, [(0.0, "d"), (2.0, "b"), (5.0, "a"), (5.0, "c")]);
    }

    #[test]
    fn a_period_of_nothing_folds_nothing() {
        for period_s in [0.0, -1.0, f64::NAN] {
            assert_eq!(fold(vec![job(5.0, "a")], period_s), [job(5.0, "a")]);
        }
    }
}
