//! The job record: passive data, as it is stored, returned and sent.

mod attempt;
mod error;
mod input;
mod new;
mod spec;
mod step;
mod tokens;
mod trace;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::attempt::{Attempt, AttemptOutcome, LOADED_AHEAD_MAX_MS, Timing};
pub use self::error::{ErrorCode, JobError, Responsible};
pub use self::input::{INLINE_INPUT_BYTES, InputFile};
pub use self::new::{Idempotency, NewJob};
pub use self::spec::{
    BatchLine, Concurrency, Dependency, DependencyOn, Hook, HookEvent, JobSpec, Priority, QUEUE_TIMEOUT_DEFAULT_S,
    RetryPolicy, SLOT_PARTS, is_unshared,
};
pub use self::step::{Decision, Stage, StepRun, StepSpec};
pub use self::tokens::{TOKENS_MAX, TokenUsage};
pub use self::trace::{ParseTraceError, SpanId, TraceContext, TraceId};
use crate::id::{Fence, JobId};

/// The state of a job. [`crate::state`] defines the transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for a time: `run_after`, or the backoff before a retry. `promote` ends the wait.
    Scheduled,
    /// Waits for other jobs (pipelines). The end of the last of them ends the wait.
    Blocked,
    /// Ready, in a lane, until a worker leases it.
    Queued,
    /// Leased to a worker, until `finish`, `release`, `cancel` or `reap`.
    Running,
    /// Ended with a result.
    Succeeded,
    /// Ended without a result; `error` has the reason.
    Failed,
    /// Cancelled by its owner.
    Cancelled,
    /// Ended because its deadline passed.
    Expired,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Blocked,
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
    ];

    /// Whether the state is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Scheduled | Self::Blocked | Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired => true,
        }
    }

    /// The name of the state in Redis, JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Blocked => "blocked",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Parses a state.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// The result of a finished job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobResult {
    /// A small result: the JSON itself, at most [`INLINE_RESULT_BYTES`].
    Inline(Box<RawValue>),
    /// A large result: the S3 key of a JSON document, and its size.
    Object {
        /// S3 key below the winning attempt's prefix.
        key: String,
        /// Bytes.
        size_bytes: u64,
    },
}

/// The name of a result that is too large for the record, below the attempt's prefix.
pub const OUTPUT_NAME: &str = "output.json";

/// Results up to this size are stored in the job record; larger ones go to S3.
pub const INLINE_RESULT_BYTES: usize = 16 * 1024;

/// The latest progress of a running job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The completed fraction, 0 to 1.
    pub fraction: f64,
    /// Description of what the job is doing.
    #[serde(default)]
    pub message: String,
}

/// The whole record, decoded. The archive keeps its serialized form forever: a member may be added with a default, but
/// never removed or given another meaning.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The job's id.
    pub id: JobId,
    /// The job's spec, which does not change.
    pub spec: JobSpec,
    /// The input as submitted.
    pub input: Box<RawValue>,
    /// The current state.
    pub state: JobState,
    /// Every attempt so far, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The result, once `succeeded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// The result of a job that has run and is `blocked` until its steps allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<JobResult>,
    /// The last error, once `failed` or `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
    /// The latest progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Number of attempts that ran out of GPU or host memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub oom_events: u32,
    /// Time at which a `scheduled` job becomes ready, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_after_ms: Option<u64>,
    /// Time of the job's end, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The steps so far, in the order of [`JobSpec::steps`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRun>,
    /// The revision that `settle` compares. It changes with every transition and every settlement. Archived jobs are
    /// never settled.
    #[serde(skip)]
    pub revision: String,
}

impl Job {
    /// Time of the submit, Unix milliseconds.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.id.created_ms()
    }

    /// The trace of the job: its caller's, or its own.
    #[must_use]
    pub fn trace_id(&self) -> TraceId {
        self.spec.trace_id(self.id)
    }

    /// The job of the step that has started and not decided yet.
    #[must_use]
    pub fn open_step(&self) -> Option<JobId> {
        self.steps.last().filter(|run| run.decision.is_none()).map(|run| run.job)
    }

    /// The attempt that produced the result, once `succeeded`.
    #[must_use]
    pub fn winner(&self) -> Option<&Attempt> {
        self.attempts.iter().rev().find(|attempt| attempt.outcome == AttemptOutcome::Succeeded)
    }

    /// The tokens that the attempt with the result used; `None` if its result does not contain them.
    #[must_use]
    pub fn usage(&self) -> Option<TokenUsage> {
        self.winner()?.usage
    }

    /// The S3 prefix of one attempt. Nothing else writes below it.
    #[must_use]
    pub fn attempt_prefix(tenant: &str, id: JobId, attempt: u32, fence: &Fence) -> String {
        format!("results/{tenant}/{id}/{attempt}-{fence}/")
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
