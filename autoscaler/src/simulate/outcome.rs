//! What a simulation came to.

use serde::{Deserialize, Serialize};

/// What a simulation came to; what `stoke simulate --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The policy's name.
    pub policy: String,
    /// Of the random numbers: boot times, losses, resumes that fail.
    pub seed: u64,
    /// Jobs of the trace.
    pub jobs: u64,
    /// What was paid, dollars.
    pub cost_usd: f64,
    /// What nobody could have stayed below: see [`crate::simulate`].
    pub bound_usd: f64,
    /// `cost_usd / bound_usd`.
    pub ratio: f64,
    /// Share of the jobs that started in time, 0 to 1; 1 where there are none.
    pub attainment: ByPriority<f64>,
    /// From a job's arrival to the start of its service, seconds.
    pub wait_s: ByPriority<Quantiles>,
    /// Seconds of service over seconds that were paid for, 0 to 1.
    pub utilisation: f64,
    /// Machines that were rented.
    pub boots: u64,
    /// Models that were fetched from elsewhere and loaded.
    pub cold_loads: u64,
    /// Models that were loaded from the machine's own disk.
    pub disk_loads: u64,
    /// Stopped machines that came back.
    pub resumes: u64,
    /// Machines that were taken away.
    pub losses: u64,
}

/// A figure for each priority that traces know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ByPriority<T> {
    /// Jobs that somebody waits for.
    pub interactive: T,
    /// Jobs that have an hour.
    pub batch: T,
}

/// Quantiles, by nearest rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
}

/// How things stood at one moment of a simulation, for its picture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the trace began.
    pub at_s: f64,
    /// Cards of the reference speed that the work which arrived since the last sample would have kept busy.
    pub demand_cards: f64,
    /// Machines that take jobs.
    pub ready: u32,
    /// Of those, the ones that run jobs.
    pub busy: u32,
    /// Machines that boot or resume.
    pub booting: u32,
    /// Machines that are stopped.
    pub stopped: u32,
    /// Interactive jobs that wait.
    pub waiting_interactive: u32,
    /// Batch jobs that wait.
    pub waiting_batch: u32,
    /// The longest wait among the interactive jobs that started since the last sample, seconds.
    pub wait_interactive_s: f64,
    /// The same of batch jobs.
    pub wait_batch_s: f64,
    /// What has been paid so far, dollars.
    pub spent_usd: f64,
}
