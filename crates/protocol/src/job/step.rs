//! Endpoints that decide on a job before or after it runs, and their decisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spec::is_zero;
use super::{JobState, Timing};
use crate::id::JobId;

/// An endpoint that must allow a job: its input before it runs, or its output afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepSpec {
    /// Name of the step in the job's record; the endpoint's name unless the owner chose another.
    pub name: String,
    /// Stage of the job at which the step runs.
    pub stage: Stage,
    /// The endpoint that decides.
    pub endpoint: String,
    /// Version of that endpoint, fixed at submit.
    pub version: u32,
    /// The VRAM class that the endpoint needs, GiB.
    #[serde(default)]
    pub vram_class_gib: u32,
    /// The number of its requirement set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub demands: u32,
    /// Maximum score of each label, 0 to 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub thresholds: BTreeMap<String, f64>,
    /// Time limit of one of its attempts, milliseconds.
    pub timeout_ms: u64,
    /// Maximum number of attempts.
    pub max_attempts: u32,
}

/// Stage of a job at which a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Before the job: the step reads the input, and can stop the job before it costs anything.
    Before,
    /// After the job: the step reads input and output, and can withhold the output.
    After,
}

/// The current progress of a step of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// The job that runs it.
    pub job: JobId,
    /// The last observed state of that job.
    pub state: JobState,
    /// Decision of the step, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The reason why the step rejected the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The score of each label, 0 to 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
    /// Durations of its parts.
    #[serde(default)]
    pub timing: Timing,
    /// Cost of the step; `None` if the worker's price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
}

impl StepRun {
    /// A step whose job was just created.
    #[must_use]
    pub fn queued(job: JobId) -> Self {
        Self {
            job,
            state: JobState::Queued,
            decision: None,
            reason: None,
            scores: BTreeMap::new(),
            timing: Timing::default(),
            cost_usd_micros: None,
        }
    }
}

/// The decision of a step on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The job goes on.
    Allow,
    /// The job fails as `rejected`.
    Reject,
    /// The job goes on with another input or output.
    Rewrite,
}
