//! Endpoints that decide on a job before or after it runs, and their decisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::spec::is_zero;
use super::{JobState, Timing};
use crate::id::JobId;

/// An endpoint that must allow a job: its input before it runs, or its output afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepSpec {
    /// What it is called in the job's record; the endpoint's name unless its owner chose another.
    pub name: String,
    /// When it runs.
    pub stage: Stage,
    /// The endpoint that decides.
    pub endpoint: String,
    /// Its version, fixed at submit.
    pub version: u32,
    /// The class of card that endpoint needs, GiB.
    #[serde(default)]
    pub vram_class_gib: u32,
    /// The number of its demands.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub demands: u32,
    /// The most that each label's score may be, 0 to 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub thresholds: BTreeMap<String, f64>,
    /// Longest one attempt of it may run, milliseconds.
    pub timeout_ms: u64,
    /// Its attempts.
    pub max_attempts: u32,
}

/// When a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Before the job: it sees the input, and may stop the job before it costs anything.
    Before,
    /// After the job: it sees input and output, and may keep the output back.
    After,
}

/// A step of a job, as far as it has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// The job that runs it.
    pub job: JobId,
    /// The state of that job, as last seen.
    pub state: JobState,
    /// Its decision, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Why it rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How much of each label it saw, 0 to 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, f64>,
    /// Where its time went.
    #[serde(default)]
    pub timing: Timing,
    /// What it cost; `None` when its worker's price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
}

impl StepRun {
    /// A step that `job` was just made for.
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

/// The decision of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Go on.
    Allow,
    /// The job fails as `rejected`.
    Reject,
    /// Go on with another input or output.
    Rewrite,
}
