//! The specification of a job: the part that is fixed at submit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ErrorCode, StepSpec, TraceContext, TraceId};
use crate::capability::class_of;
use crate::id::JobId;

/// The urgency of a job. Each priority has its own lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// A user is waiting for the result.
    Interactive,
    /// The default.
    #[default]
    Standard,
    /// Offline work, served if nothing more urgent fits.
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

/// The part of a job that is fixed at submit. Stored as one JSON field of the record.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobSpec {
    /// The tenant that owns the job.
    pub tenant: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// The endpoint version, fixed at submit.
    pub version: u32,
    /// Whether the submitter requested this version rather than the current one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Priority of the job.
    #[serde(default)]
    pub priority: Priority,
    /// VRAM class, GiB (see [`crate::vram`]): the least memory that the job needs on any GPU, rounded up; 0 is a CPU
    /// job.
    #[serde(default)]
    pub vram_class_gib: u32,
    /// The number of its endpoint's requirement set, i.e. all requirements but memory (see [`crate::requirements`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub demands: u32,
    /// Number of jobs of the endpoint version that run at once in one slot; 0 if each job has its own slot, or if
    /// unknown.
    #[serde(default, skip_serializing_if = "is_unshared")]
    pub share: u32,
    /// Time limit of one attempt, milliseconds.
    pub timeout_ms: u64,
    /// Number of attempts that may fail because of the model before the job fails.
    pub max_attempts: u32,
    /// The submitter's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Uploaded files that the input names, by file id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Latest start of the job, Unix milliseconds. Absent: a job without a deadline starts within
    /// [`QUEUE_TIMEOUT_DEFAULT_S`] of its submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by_ms: Option<u64>,
    /// Latest end of the job, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Retention in the queue after its end, milliseconds; the queue's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// Limit on concurrent jobs of the tenant with the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// Which failures are retried, and when.
    #[serde(default, skip_serializing_if = "RetryPolicy::is_default")]
    pub retry: RetryPolicy,
    /// Jobs that must end before it may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    /// Webhook of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
    /// The batch line that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchLine>,
    /// The ended job that it retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<JobId>,
    /// The schedule that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The job that it is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_of: Option<JobId>,
    /// Steps that must allow it before and after it runs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepSpec>,
    /// The caller's trace context; the job starts its own trace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// Time from the start of the caller's submit to its receipt by the API, milliseconds; absent if not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk_ms: Option<u64>,
}

/// Time within which a job must start if neither it nor its endpoint sets `queue_timeout_s`, seconds: 7 days. Without a
/// limit, a job that no worker can run would wait forever.
pub const QUEUE_TIMEOUT_DEFAULT_S: u64 = 7 * 24 * 3_600;

impl JobSpec {
    /// The trace of the job with this id and spec.
    #[must_use]
    pub fn trace_id(&self, id: JobId) -> TraceId {
        self.trace.map_or(TraceId::of(id), |trace| trace.trace_id)
    }

    /// The part of a worker's slot that the job takes, in millionths.
    #[must_use]
    pub fn part(&self) -> u64 {
        SLOT_PARTS.div_ceil(u64::from(self.share.max(1)))
    }

    /// The class of the job (see [`crate::capability`]).
    #[must_use]
    pub fn class(&self) -> u32 {
        class_of(self.demands, self.vram_class_gib)
    }
}

/// Parts of one slot. Jobs that share a slot each take a fraction of it.
pub const SLOT_PARTS: u64 = 1_000_000;

/// Whether a job has its own slot, or sharing is unknown.
#[must_use]
pub fn is_unshared(share: &u32) -> bool {
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

/// A concurrency key: at most `max` of a tenant's jobs with the same `key` run at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// The caller's key, 1 to 255 characters.
    pub key: String,
    /// Maximum number of concurrent jobs, at least 1.
    pub max: u32,
}

/// Policy for retries of failed attempts. [`JobSpec::max_attempts`] limits the number of attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Maximum delay of the first retry, milliseconds. It doubles for each further one.
    pub backoff_ms: u64,
    /// Maximum delay of any retry, milliseconds.
    pub backoff_max_ms: u64,
    /// The random part of the delay, 0 to 1: the delay is `1 - jitter` to 1 times the backoff.
    pub jitter: f64,
    /// The failures that are retried; empty means all that can be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<ErrorCode>,
}

impl Default for RetryPolicy {
    /// 1 s, doubling up to 60 s, half of it random.
    fn default() -> Self {
        Self { backoff_ms: 1_000, backoff_max_ms: 60_000, jitter: 0.5, on: Vec::new() }
    }
}

impl RetryPolicy {
    /// Whether it is the default policy.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A job that another job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// Id of the job.
    pub job: JobId,
    /// The required outcome of the job.
    #[serde(default)]
    pub on: DependencyOn,
}

/// The outcome of a dependency that lets the waiting job go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyOn {
    /// Only `succeeded`; any other outcome fails the waiting job.
    #[default]
    Success,
    /// Any outcome.
    Completion,
}

/// The webhook of a job: its URL and events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// URL that receives the POST requests.
    pub url: String,
    /// Events to send.
    pub events: Vec<HookEvent>,
}

/// The events of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HookEvent {
    /// An attempt started.
    #[serde(rename = "job.started")]
    JobStarted,
    /// The handler produced an output before its end.
    #[serde(rename = "job.output")]
    JobOutput,
    /// The handler reported progress.
    #[serde(rename = "job.progress")]
    JobProgress,
    /// The job ended, with any outcome.
    #[serde(rename = "job.completed")]
    JobCompleted,
    /// The batch ended, with any outcome.
    #[serde(rename = "batch.completed")]
    BatchCompleted,
}

impl HookEvent {
    /// Every event.
    pub const ALL: [Self; 5] =
        [Self::JobStarted, Self::JobOutput, Self::JobProgress, Self::JobCompleted, Self::BatchCompleted];

    /// The name of the event in Redis, JSON and metrics.
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

/// The position of a job in its batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLine {
    /// The batch, `batch_<32 hex>`.
    pub id: String,
    /// The line of the batch's input, from 1.
    pub line: u64,
    /// The owner's id of the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_id: Option<String>,
}
