//! What a decision must respect, and how it weighs what it sees.

use serde::{Deserialize, Serialize};

/// The settings of a decision. The defaults are the ones that all figures in the documentation were taken with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Machines at once, at most, stopped ones not counted.
    pub max_machines: u32,
    /// Machines that stay, whatever there is to do.
    pub min_machines: u32,
    /// What all machines together may cost, dollars per hour.
    pub max_usd_per_hour: f64,
    /// Interactive jobs are to start within this time, seconds.
    pub interactive_target_s: f64,
    /// Standard jobs are.
    pub standard_target_s: f64,
    /// Batch jobs are.
    pub batch_target_s: f64,
    /// Share of interactive jobs that may be late, 0 to 1: what the price of a late job is steered to.
    pub late_share: f64,
    /// What an interactive job that is late is thought to cost at first, dollars.
    pub late_usd: f64,
    /// Of the target of interactive jobs, what queueing may take, seconds; the rest is for loading and for chance.
    pub queueing_s: f64,
    /// A batch job is started so long before it would be late, beside what a boot and a load take, seconds.
    pub batch_margin_s: f64,
    /// Whether machines may be stopped and resumed.
    pub may_stop: bool,
    /// Kinds of card that may be rented; empty: any.
    pub kinds: Vec<String>,
    /// A resume that has not come to anything for so long never will, seconds.
    pub resume_deadline_s: f64,
    /// A boot that has not come to anything for so long never will, seconds.
    pub boot_deadline_s: f64,
    /// How fast the price of a late job follows what is seen, per job.
    pub late_gain: f64,
    /// Late jobs that a boot from nothing is thought to lead to.
    pub boot_late: f64,
    /// And a resume.
    pub resume_late: f64,
    pub drain_gain: f64,
    pub queueing_gain: f64,
    pub batch_late_share: f64,
    pub batch_late_gain: f64,
    /// Backlog is worked off within this time, seconds.
    pub drain_s: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_machines: 64,
            min_machines: 0,
            max_usd_per_hour: 100.0,
            interactive_target_s: 30.0,
            standard_target_s: 300.0,
            batch_target_s: 3_600.0,
            late_share: 0.04,
            late_usd: 0.02,
            queueing_s: 15.0,
            batch_margin_s: 180.0,
            may_stop: true,
            kinds: Vec::new(),
            resume_deadline_s: 45.0,
            boot_deadline_s: 900.0,
            late_gain: 0.02,
            boot_late: 3.0,
            resume_late: 0.7,
            drain_gain: 0.5,
            queueing_gain: 0.4,
            batch_late_share: 0.005,
            batch_late_gain: 0.05,
            drain_s: 200.0,
        }
    }
}
