//! The job record: passive data, as it is stored, shown and sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::id::{Fence, JobId};

/// How urgent a job is. Each priority has lanes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Somebody is waiting for it now.
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

    /// The digit that stands for it in a lane's name; smaller is more urgent.
    #[must_use]
    pub fn digit(self) -> u8 {
        match self {
            Self::Interactive => 0,
            Self::Standard => 1,
            Self::Batch => 2,
        }
    }
}

/// Where a job stands. The moves between these are in [`crate::state`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for a time: `run_after`, or the backoff before a retry. `promote` moves it on.
    Scheduled,
    /// Waits for other jobs (pipelines). Whoever finishes the last of them moves it on.
    Blocked,
    /// Ready, in a lane. A worker's lease moves it on.
    Queued,
    /// Leased to a worker. `finish`, `release`, `cancel` or `reap` moves it on.
    Running,
    /// Ended with a result.
    Succeeded,
    /// Ended without one; `error` says why.
    Failed,
    /// Ended by its owner.
    Cancelled,
    /// Ended by its deadline before it could run to the end.
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

    /// Whether a job in this state has ended: nothing moves it again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Scheduled | Self::Blocked | Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired => true,
        }
    }

    /// The word for it, in Redis, JSON and metrics alike.
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

    /// The state a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
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
    /// How urgent it is.
    #[serde(default)]
    pub priority: Priority,
    /// VRAM class in GiB (see [`VRAM_CLASSES_GIB`]): the smallest card it may run on; 0 is a CPU job.
    #[serde(default)]
    pub vram_class_gib: u32,
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
    /// Whom to tell of it.
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
}

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
    /// Where that job stands, as last seen.
    pub state: JobState,
    /// What it said, once it has ended.
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

/// What a step says.
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

/// Whom to tell of a job, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Where to POST.
    pub url: String,
    /// What of.
    pub events: Vec<HookEvent>,
}

/// What a webhook tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HookEvent {
    /// An attempt started.
    #[serde(rename = "job.started")]
    JobStarted,
    /// The handler gave an output before its end.
    #[serde(rename = "job.output")]
    JobOutput,
    /// The handler told of its progress.
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

    /// The event a word stands for.
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

/// The VRAM sizes that real cards come in, GiB; 0 is "no GPU". A job stands on the shelf of the smallest that fits it.
pub const VRAM_CLASSES_GIB: [u32; 15] = [0, 4, 6, 8, 10, 12, 16, 24, 32, 40, 48, 80, 96, 141, 192];

/// The smallest VRAM class that holds `vram_gib`, or `None` when no single card does.
#[must_use]
pub fn vram_class_gib(vram_gib: f64) -> Option<u32> {
    VRAM_CLASSES_GIB.into_iter().find(|class| f64::from(*class) >= vram_gib)
}

/// A job as it is handed to `submit`.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Its id; the caller makes it, so that an unknown outcome can be asked after.
    pub id: JobId,
    /// The fixed part.
    pub spec: JobSpec,
    /// The input, JSON text as it came, already validated.
    pub input: Box<RawValue>,
    /// Not before this time, unix milliseconds; 0 means now.
    pub run_after_ms: u64,
    /// A second submit with this key in 24 hours gives the first one's id.
    pub idempotency: Option<Idempotency>,
    /// Those of its dependencies that the caller knows to have ended and left the queue for history.
    pub archived: Vec<JobId>,
}

impl NewJob {
    /// Whether it starts blocked: something must be looked at before it may run.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.spec.depends_on.is_empty() || self.spec.steps.iter().any(|step| step.stage == Stage::Before)
    }
}

/// What makes two submits the same submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// A hash of the whole request, without a space: same key with another hash is a conflict.
    pub request_hash: String,
    /// Which of the jobs that came in one submit under this key, from 0 and in their order.
    pub part: u32,
}

impl Idempotency {
    /// The key of a submit that makes one thing.
    #[must_use]
    pub fn new(key: impl Into<String>, request_hash: impl Into<String>) -> Self {
        Self { key: key.into(), request_hash: request_hash.into(), part: 0 }
    }
}

/// Where the milliseconds of an attempt went. Zero where a part was not needed (a warm runner has no boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// From ready to leased. Filled in by the queue.
    #[serde(default)]
    pub queued_ms: u64,
    /// Building or fetching the environment.
    #[serde(default)]
    pub env_ms: u64,
    /// Starting the runner's process.
    #[serde(default)]
    pub boot_ms: u64,
    /// `setup()`: loading the model.
    #[serde(default)]
    pub load_ms: u64,
    /// The handler itself.
    #[serde(default)]
    pub run_ms: u64,
    /// Putting result and files into S3.
    #[serde(default)]
    pub upload_ms: u64,
}

impl Timing {
    /// The time that a slot was taken, milliseconds.
    #[must_use]
    pub fn occupied_ms(&self) -> u64 {
        self.env_ms + self.boot_ms + self.load_ms + self.run_ms + self.upload_ms
    }
}

/// Why an attempt or a job failed, in words a user can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// What kind of failure; stable.
    pub code: ErrorCode,
    /// The exception's class, the signal's name, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// One sentence.
    pub message: String,
    /// The traceback, when there was an exception; at most 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// The last lines the handler wrote to stderr; at most 8 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

impl JobError {
    /// One that is said in a sentence.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, class: String::new(), message: message.into(), traceback: None, stderr: None }
    }

    /// Why a reaped attempt ended.
    #[must_use]
    pub fn worker_lost() -> Self {
        Self::new(ErrorCode::WorkerLost, "the worker went silent and its lease ran out")
    }

    /// Why a job fails that takes its runners with it.
    #[must_use]
    pub fn poison() -> Self {
        let message = "it crashed its runner again and again, on more than one worker; its attempts say how";
        Self::new(ErrorCode::Poison, message)
    }

    /// Why a job expires that nobody started in time.
    #[must_use]
    pub fn queue_timeout() -> Self {
        Self::new(ErrorCode::QueueTimeout, "it was not started within its queue_timeout_s")
    }

    /// Why a job expires that did not end in time.
    #[must_use]
    pub fn deadline() -> Self {
        Self::new(ErrorCode::Deadline, "it had not ended within its deadline_s")
    }
}

/// The kinds of failure. One exists because somebody acts differently on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The handler raised.
    HandlerError,
    /// The handler refused the input for good (`stokehold.Reject`): not retried.
    Rejected,
    /// `setup()` or the import raised.
    SetupFailed,
    /// The environment could not be built.
    EnvironmentFailed,
    /// The runner's process exited by itself.
    RunnerExited,
    /// The runner's process died of a signal.
    RunnerCrashed,
    /// The attempt ran longer than `timeout_s`.
    Timeout,
    /// The handler returned what JSON cannot hold: not retried.
    BadOutput,
    /// The result or one of its files is over the limit: not retried.
    ResultTooLarge,
    /// The handler wrote more log than a job may: not retried.
    LogFlood,
    /// The runner broke its protocol.
    Protocol,
    /// The card's memory ran out, also when the job had it alone.
    OomGpu,
    /// It crashed its runner again and again, on more than one worker: not retried.
    Poison,
    /// A job that it waits for, or one of its steps, did not succeed.
    DependencyFailed,
    /// It was not started by `start_by_ms`.
    QueueTimeout,
    /// It had not ended by `deadline_ms`.
    Deadline,
    /// The worker went silent; its lease ended.
    WorkerLost,
    /// The worker could not do its part (S3, disk): costs the user nothing.
    Infra,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 18] = [
        Self::HandlerError,
        Self::Rejected,
        Self::SetupFailed,
        Self::EnvironmentFailed,
        Self::RunnerExited,
        Self::RunnerCrashed,
        Self::Timeout,
        Self::BadOutput,
        Self::ResultTooLarge,
        Self::LogFlood,
        Self::Protocol,
        Self::OomGpu,
        Self::Poison,
        Self::DependencyFailed,
        Self::QueueTimeout,
        Self::Deadline,
        Self::WorkerLost,
        Self::Infra,
    ];

    /// The word for it, in Redis, JSON and metrics alike.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HandlerError => "handler_error",
            Self::Rejected => "rejected",
            Self::SetupFailed => "setup_failed",
            Self::EnvironmentFailed => "environment_failed",
            Self::RunnerExited => "runner_exited",
            Self::RunnerCrashed => "runner_crashed",
            Self::Timeout => "timeout",
            Self::BadOutput => "bad_output",
            Self::ResultTooLarge => "result_too_large",
            Self::LogFlood => "log_flood",
            Self::Protocol => "protocol",
            Self::OomGpu => "oom_gpu",
            Self::Poison => "poison",
            Self::DependencyFailed => "dependency_failed",
            Self::QueueTimeout => "queue_timeout",
            Self::Deadline => "deadline",
            Self::WorkerLost => "worker_lost",
            Self::Infra => "infra",
        }
    }

    /// The code a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }

    /// Whose failure it is, which decides the budget it is charged to and whether a retry makes sense.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self {
            Self::Rejected
            | Self::BadOutput
            | Self::ResultTooLarge
            | Self::LogFlood
            | Self::Poison
            | Self::DependencyFailed
            | Self::QueueTimeout
            | Self::Deadline => Fault::Final,
            Self::HandlerError | Self::SetupFailed | Self::EnvironmentFailed | Self::Timeout | Self::Protocol => {
                Fault::Model
            }
            Self::RunnerExited | Self::RunnerCrashed => Fault::Crash,
            Self::OomGpu => Fault::Oom,
            Self::WorkerLost | Self::Infra => Fault::Infra,
        }
    }
}

/// Whose failure an attempt's end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The model's, and it would happen again: the job fails now.
    Final,
    /// The model's: retried within `max_attempts`.
    Model,
    /// The model's, and it took its runner with it: as [`Fault::Model`], and counted on its own as well ([`crate::retry::POISON_CRASHES`]).
    Crash,
    /// The card's: retried within a budget of its own ([`crate::retry::MAX_OOM_ATTEMPTS`]).
    Oom,
    /// Ours: retried within a budget of its own ([`crate::retry::MAX_INFRA_ATTEMPTS`]).
    Infra,
}

/// How one attempt ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Still leased.
    Running,
    /// Gave the job its result.
    Succeeded,
    /// Failed; the job may have been retried.
    Failed,
    /// Handed back unharmed (drain).
    Released,
    /// Its worker went silent.
    Lost,
    /// The job was cancelled meanwhile.
    Cancelled,
    /// The job's deadline passed meanwhile.
    Expired,
}

/// One try at a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// 1, 2, ...
    pub attempt: u32,
    /// Who ran it.
    pub worker_id: String,
    /// The right it ran under.
    pub fence: Fence,
    /// When it was leased, unix milliseconds.
    pub leased_ms: u64,
    /// When it ended, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Where its time went.
    #[serde(default)]
    pub timing: Timing,
    /// What it cost: its time at the price its worker stands for. `None` when that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
}

/// What a finished job gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobResult {
    /// Small: the JSON itself, at most [`INLINE_RESULT_BYTES`].
    Inline(Box<RawValue>),
    /// Large: the S3 key of a JSON document, and its size.
    Object {
        /// S3 key below the winning attempt's prefix.
        key: String,
        /// Bytes.
        size_bytes: u64,
    },
}

/// The name, below an attempt's prefix, of a result that is too large to ride in the record.
pub const OUTPUT_NAME: &str = "output.json";

/// Results up to this size ride in the job record; larger ones go to S3.
pub const INLINE_RESULT_BYTES: usize = 16 * 1024;

/// The latest progress a running job told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// 0 to 1.
    pub fraction: f64,
    /// What it is doing.
    #[serde(default)]
    pub message: String,
}

/// The whole record, decoded. Serialised it is what the archive keeps for ever: a member may be added with a default, never taken
/// away or given another meaning.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The fixed part.
    pub spec: JobSpec,
    /// The input as it was submitted.
    pub input: Box<RawValue>,
    /// Where it stands.
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
    /// When a `scheduled` job becomes ready, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_after_ms: Option<u64>,
    /// When it ended, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Its steps, as far as they have come, in the order of [`JobSpec::steps`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRun>,
    /// What `settle` compares: changes with every move and every settlement. Nothing settles an archived job.
    #[serde(skip)]
    pub revision: String,
}

impl Job {
    /// When it was submitted, unix milliseconds.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.id.created_ms()
    }

    /// The job of the step that has been started and has not decided.
    #[must_use]
    pub fn open_step(&self) -> Option<JobId> {
        self.steps.last().filter(|run| run.decision.is_none()).map(|run| run.job)
    }

    /// The attempt that gave the job its result, once `succeeded`.
    #[must_use]
    pub fn winner(&self) -> Option<&Attempt> {
        self.attempts.iter().rev().find(|attempt| attempt.outcome == AttemptOutcome::Succeeded)
    }

    /// The prefix in S3 that belongs to one attempt alone: nobody else ever writes below it.
    #[must_use]
    pub fn attempt_prefix(tenant: &str, id: JobId, attempt: u32, fence: &Fence) -> String {
        format!("results/{tenant}/{id}/{attempt}-{fence}/")
    }
}
