//! What a submitter fixes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ErrorCode, StepSpec, TraceContext, TraceId};
use crate::id::JobId;
use crate::reach::class_of;

/// How urgent a job is. Each priority has lanes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// A user is waiting for the result.
    Interactive,
    /// The default.
    #[default]
    Standard,
    /// Offline work: served when nothing more urgent fits.
    Batch,
}

impl Priority {
    /// Every priority, most urgent first.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Standard, Self::Batch];

    /// The priority's digit in a lane's name; smaller is more urgent.
    #[must_use]
    pub fn digit(self) -> u8 {
        match self {
            Self::Interactive => 0,
            Self::Standard => 1,
            Self::Batch => 2,
        }
    }
}

/// What a submitter fixed once and for all. Stored as one JSON field of the record.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobSpec {
    /// Whose job it is.
    pub tenant: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// The endpoint version, fixed at submit.
    pub version: u32,
    /// Whether the submitter asked for this version, rather than for the current one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// How urgent it is.
    #[serde(default)]
    pub priority: Priority,
    /// VRAM class, GiB (see [`crate::vram`]): the least that it needs of any GPU, rounded up; 0 is a CPU job.
    #[serde(default)]
    pub vram_class_gib: u32,
    /// What it asks of its worker beside memory: the number of its endpoint's demands (see [`crate::demands`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub demands: u32,
    /// How many such jobs its endpoint's version takes at once in one slot; 0 if each has its own slot, or unknown.
    #[serde(default, skip_serializing_if = "is_unshared")]
    pub share: u32,
    /// Longest one attempt may run, milliseconds.
    pub timeout_ms: u64,
    /// How many attempts may fail by the model's own fault before the job fails.
    pub max_attempts: u32,
    /// The caller's own labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Uploaded files the input names, by file id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// It must have started by then, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by_ms: Option<u64>,
    /// It must have ended by then, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// How long after its end it stays in the queue; the queue's own default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// How many of the tenant's jobs with the same key may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// When and after which failures it is tried again.
    #[serde(default, skip_serializing_if = "RetryPolicy::is_default")]
    pub retry: RetryPolicy,
    /// The jobs it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    /// The webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
    /// The batch that it is a line of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchLine>,
    /// The ended job that it tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<JobId>,
    /// The schedule that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The job that it is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_of: Option<JobId>,
    /// What must allow it before and after it runs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepSpec>,
    /// Where its caller is in a trace; its trace is its own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// How long its caller had been submitting it when the API received it, milliseconds; absent if not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk_ms: Option<u64>,
}

impl JobSpec {
    /// The trace that the job of this id and spec is part of.
    #[must_use]
    pub fn trace_id(&self, id: JobId) -> TraceId {
        self.trace.map_or(TraceId::of(id), |trace| trace.trace_id)
    }

    /// The part of a worker's slot that it takes, in millionths.
    #[must_use]
    pub fn part(&self) -> u64 {
        SLOT_PARTS.div_ceil(u64::from(self.share.max(1)))
    }

    /// Its class (see [`crate::reach`]).
    #[must_use]
    pub fn class(&self) -> u32 {
        class_of(self.demands, self.vram_class_gib)
    }
}

/// What slots are counted in: jobs that share one take a part of it each.
pub const SLOT_PARTS: u64 = 1_000_000;

/// Whether a job has its own slot, or it is unknown.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn is_unshared(share: &u32) -> bool {
    *share <= 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// At most `max` of a tenant's jobs with the same `key` run at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// The caller's own word, 1 to 255 characters.
    pub key: String,
    /// At least 1.
    pub max: u32,
}

/// When a failed attempt is tried again. How often is [`JobSpec::max_attempts`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// The first retry waits at most this long, milliseconds; each further one twice as long.
    pub backoff_ms: u64,
    /// No retry waits longer, milliseconds.
    pub backoff_max_ms: u64,
    /// The part of the wait that is drawn, 0 to 1: the wait is `1 - jitter` to 1 times the backoff.
    pub jitter: f64,
    /// The failures that are tried again; empty means all that may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<ErrorCode>,
}

impl Default for RetryPolicy {
    /// 1 s, doubling up to 60 s, half of it drawn.
    fn default() -> Self {
        Self { backoff_ms: 1_000, backoff_max_ms: 60_000, jitter: 0.5, on: Vec::new() }
    }
}

impl RetryPolicy {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A job that another waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// The job waited for.
    pub job: JobId,
    /// Which end of it will do.
    #[serde(default)]
    pub on: DependencyOn,
}

/// Which end of a job lets those that wait for it go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyOn {
    /// Only `succeeded`; any other end fails the waiting job.
    #[default]
    Success,
    /// Any end.
    Completion,
}

/// The webhook of a job, and its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Where to POST.
    pub url: String,
    /// What of.
    pub events: Vec<HookEvent>,
}

/// The events of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HookEvent {
    /// An attempt started.
    #[serde(rename = "job.started")]
    JobStarted,
    /// The handler gave an output before its end.
    #[serde(rename = "job.output")]
    JobOutput,
    /// The handler reported progress.
    #[serde(rename = "job.progress")]
    JobProgress,
    /// The job ended, however.
    #[serde(rename = "job.completed")]
    JobCompleted,
    /// The batch ended, however.
    #[serde(rename = "batch.completed")]
    BatchCompleted,
}

impl HookEvent {
    /// Every event.
    pub const ALL: [Self; 5] =
        [Self::JobStarted, Self::JobOutput, Self::JobProgress, Self::JobCompleted, Self::BatchCompleted];

    /// The word for it, in Redis, JSON and metrics alike.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JobStarted => "job.started",
            Self::JobOutput => "job.output",
            Self::JobProgress => "job.progress",
            Self::JobCompleted => "job.completed",
            Self::BatchCompleted => "batch.completed",
        }
    }

    /// Parses an event.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

/// A job's place in its batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLine {
    /// The batch, `batch_<32 hex>`.
    pub id: String,
    /// The line of its input, from 1.
    pub line: u64,
    /// What its owner calls the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_id: Option<String>,
}
