//! The cost of a job.

use serde::Serialize;
use stokehold_queue::costs::JobCost;
use utoipa::ToSchema;

/// The cost of a job. Its steps are separate jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = JobCost)]
pub(crate) struct JobCostView {
    /// The cost of its runs, at the instances' prices.
    run_usd_micros: u64,
    /// The cost of loading its model.
    load_usd_micros: u64,
    /// Its part of the other costs of the instances: boot, idle, stopped, disk, traffic.
    overhead_usd_micros: u64,
    /// The sum of these costs.
    total_usd_micros: u64,
    /// Whether a provider has not yet billed the final amount.
    is_estimate: bool,
}

impl From<JobCost> for JobCostView {
    fn from(JobCost { run, load, overhead, total, is_estimate }: JobCost) -> Self {
        Self {
            run_usd_micros: run,
            load_usd_micros: load,
            overhead_usd_micros: overhead,
            total_usd_micros: total,
            is_estimate,
        }
    }
}
