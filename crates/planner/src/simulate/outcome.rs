//! The outcome of a simulation.

use serde::{Deserialize, Serialize};

/// Outcome of a simulation, which `stoke simulate --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The policy's name.
    pub policy: String,
    /// Seed of the random numbers: boot times, losses, failed resumes.
    pub seed: u64,
    /// Number of jobs of the trace.
    pub jobs: u64,
    /// Cost, dollars.
    pub cost_usd: f64,
    /// Lower bound of the cost of any policy, dollars, if it was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_usd: Option<f64>,
    /// `cost_usd / bound_usd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Share of the jobs that started in time, 0 to 1; 1 if there are none.
    pub attainment: ByPriority<f64>,
    /// Time from a job's arrival to the start of its service, seconds.
    pub wait_s: ByPriority<Quantiles>,
    /// Seconds of service divided by paid seconds, 0 to 1.
    pub utilisation: f64,
    /// Number of rented machines.
    pub boots: u64,
    /// Number of model loads that fetched the model first.
    pub cold_loads: u64,
    /// Number of model loads from the machine's own disk.
    pub disk_loads: u64,
    /// Number of resumes of stopped machines.
    pub resumes: u64,
    /// Number of lost machines.
    pub losses: u64,
}

/// A figure per priority of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ByPriority<T> {
    /// Interactive jobs.
    pub interactive: T,
    /// Batch jobs, which may wait for an hour.
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

/// The state at one moment of a simulation, for its plot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the trace began.
    pub at_s: f64,
    /// Number of GPUs of the reference speed that the work since the last sample would keep busy.
    pub demand_cards: f64,
    /// Machines that take jobs.
    pub ready: u32,
    /// Number of these that run jobs.
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
    /// The longest wait among the batch jobs that started since the last sample, seconds.
    pub wait_batch_s: f64,
    /// Cost so far, dollars.
    pub spent_usd: f64,
}
