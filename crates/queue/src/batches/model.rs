//! The data of a batch, as it is stored and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budgets::AtBudget;
use crate::costs::Forecast;
use crate::id::JobId;
use crate::job::{BatchLine, Hook, Idempotency, JobError, JobResult, JobState, Priority, TokenUsage};

/// The part of a batch that its owner fixes at creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchSpec {
    /// The tenant that owns the batch.
    pub tenant: String,
    /// The endpoint of lines that name none.
    pub endpoint: String,
    /// The version of that endpoint; if absent, the one that is current during validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Time of the creation, Unix milliseconds. The ids of the batch's jobs contain this time.
    pub created_ms: u64,
    /// The priority of its jobs.
    pub priority: Priority,
    /// Treatment of invalid lines.
    pub on_invalid: OnInvalid,
    /// The format of its lines.
    pub format: LineFormat,
    /// The source of its lines.
    pub source: Source,
    /// The owner's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Time limit of one attempt, seconds; the endpoint's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Maximum number of attempts of a line; the endpoint's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The deadline of the batch, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The batch whose failed lines this batch retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    /// The webhook for the end of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
    /// The limit on the total cost of its lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BatchBudget>,
    /// Set for a batch that was created through the API of OpenAI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openai: Option<OpenAiBatch>,
}

/// The members of a batch that only the API of OpenAI has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAiBatch {
    /// Path of the call that each line makes, e.g. `/v1/chat/completions`.
    pub endpoint: String,
    /// Id of the file with the lines, as clients of OpenAI know it.
    pub input_file_id: String,
    /// Time for the whole batch, as its owner wrote it, e.g. `24h`.
    pub completion_window: String,
    /// Time for which the files of results and errors are kept, seconds.
    pub output_expires_after_s: u64,
}

/// The budget of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchBudget {
    /// The limit, micro-dollars.
    pub usd_micros: u64,
    /// Action at the limit: lines that have not started are cancelled, and with `stop` also those that run.
    #[serde(default)]
    pub at: AtBudget,
}

/// The treatment of a batch with invalid lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// No line of the batch runs.
    #[default]
    Fail,
    /// The valid lines run.
    Skip,
}

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineFormat {
    /// Detected for each line.
    #[default]
    Auto,
    /// Lines are `{"custom_id", "input", "endpoint", "metadata"}`.
    Stokehold,
    /// Lines are `{"custom_id", "method", "url", "body"}`.
    Openai,
}

/// The source of a batch's lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The lines are in the object that the batch's `input` names.
    Uploaded,
    /// The lines are in an object in S3 that has not been copied yet.
    Object {
        /// Key of the object.
        key: String,
    },
    /// The lines of another batch that failed or expired.
    Retry {
        /// Id of that batch.
        batch: String,
    },
}

/// The state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// The lines are being validated; none runs yet.
    Validating,
    /// The lines run.
    Running,
    /// All lines have ended; the files of results and errors are being written.
    Finalizing,
    /// Every line has ended without being cancelled or expired by the batch.
    Completed,
    /// The input was rejected.
    Failed,
    /// The owner cancelled the batch.
    Cancelled,
    /// The deadline of the batch passed.
    Expired,
}

impl BatchState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Validating,
        Self::Running,
        Self::Finalizing,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The name of the state in Redis and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Running => "running",
            Self::Finalizing => "finalizing",
            Self::Completed => "completed",
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

    /// Whether the state is final.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Validating | Self::Running | Self::Finalizing => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Expired => true,
        }
    }
}

/// The reason why lines that were not fed will not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The owner cancelled the batch.
    Cancelled,
    /// The deadline has passed.
    Expired,
}

impl StopReason {
    /// The state of those lines from then on.
    #[must_use]
    pub fn state(self) -> JobState {
        match self {
            Self::Cancelled => JobState::Cancelled,
            Self::Expired => JobState::Expired,
        }
    }
}

/// An invalid line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: u64,
    /// Description of the error.
    pub message: String,
}

/// A position in the input at which the feeder continues. After a crash it may be behind the actual position, never
/// ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeedPosition {
    /// Jobs fed before this position.
    pub jobs: u64,
    /// Lines before this position.
    pub lines: u64,
    /// Bytes before this position.
    pub bytes: u64,
}

/// A snapshot of a batch. It comes from one read, so its counts add up.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Id, `batch_<32 hex>`.
    pub id: String,
    /// The part that does not change.
    pub spec: BatchSpec,
    /// The state.
    pub state: BatchState,
    /// Lines seen so far.
    pub total: u64,
    /// Invalid lines among them.
    pub invalid: u64,
    /// Valid lines that became jobs or were dropped when the batch stopped.
    pub fed: u64,
    /// Valid lines that became jobs, known once the batch has stopped.
    pub handed: Option<u64>,
    /// Ended jobs whose results have been collected.
    pub collected: u64,
    /// Time at which jobs were last collected, Unix milliseconds.
    pub collected_ms: Option<u64>,
    /// Lines that succeeded.
    pub succeeded: u64,
    /// Lines that failed.
    pub failed: u64,
    /// Lines that were cancelled.
    pub cancelled: u64,
    /// Lines that expired.
    pub expired: u64,
    /// Jobs that run now.
    pub running: u64,
    /// Reason of the stop, once the batch stops.
    pub stop: Option<StopReason>,
    /// Whether the batch stops because its budget is exhausted.
    pub is_over_budget: bool,
    /// Whether running lines may finish while the batch stops.
    pub drains: bool,
    /// Cost of its ended attempts, micro-dollars.
    pub spent_usd_micros: u64,
    /// Tokens of its ended lines that have a result.
    pub usage: TokenUsage,
    /// The forecast of its cost when it started.
    pub forecast: Option<Forecast>,
    /// S3 key of its lines.
    pub input: Option<String>,
    /// S3 key of the bitmap of invalid lines.
    pub skip: Option<String>,
    /// The endpoint versions that its lines were validated against.
    pub versions: BTreeMap<String, u32>,
    /// The first invalid lines.
    pub errors: Vec<LineError>,
    /// Time at which the first line became ready to run, Unix milliseconds.
    pub started_ms: Option<u64>,
    /// Time of the batch's end, Unix milliseconds.
    pub ended_ms: Option<u64>,
    /// The position at which the feeder continues.
    pub place: FeedPosition,
    /// `(Unix ms, lines ended)`, oldest first: samples for the rate of the batch.
    pub samples: Vec<(u64, u64)>,
    /// Whether its parts have been deleted.
    pub tidied: bool,
}

impl Batch {
    /// Number of valid lines.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.total.saturating_sub(self.invalid)
    }

    /// Number of valid lines that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled + self.expired
    }

    /// Number of valid lines that have not ended.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.accepted().saturating_sub(self.ended())
    }

    /// The prefix of all its objects in S3.
    #[must_use]
    pub fn prefix(&self) -> String {
        Self::prefix_of(&self.spec.tenant, &self.id)
    }

    /// The prefix of the batch with this id, see [`Batch::prefix`].
    #[must_use]
    pub fn prefix_of(tenant: &str, id: &str) -> String {
        format!("batches/{tenant}/{id}/")
    }
}

/// A batch to create.
#[derive(Debug, Clone)]
pub struct NewBatch {
    /// Id of the batch. The caller generates it, so that it can look the batch up if the outcome is unknown.
    pub id: String,
    /// The part that does not change.
    pub spec: BatchSpec,
    /// S3 key of its lines, if they are uploaded already.
    pub input: Option<String>,
    /// Idempotency key: a second create with the same key returns the first batch.
    pub idempotency: Option<Idempotency>,
    /// Retention of the key, milliseconds; `None` is 24 hours.
    pub idempotency_ttl_ms: Option<u64>,
}

/// An ended job of a batch: the data for the result or error of its line.
#[derive(Debug, Clone)]
pub struct EndedLine {
    /// The job.
    pub id: JobId,
    /// Final state of the job.
    pub state: JobState,
    /// The line that it ran.
    pub line: BatchLine,
    /// Result of the job, if it succeeded.
    pub result: Option<JobResult>,
    /// Error of the job.
    pub error: Option<JobError>,
    /// Duration of its last attempt without loading, milliseconds; `None` if no attempt started.
    pub run_ms: Option<u64>,
}

/// One page of a list, newest first.
#[derive(Debug, Clone)]
pub struct BatchPage {
    /// The batches.
    pub batches: Vec<Batch>,
    /// Cursor of the next page; `None` at the end. A page can be short or empty even if more pages follow.
    pub next_cursor: Option<String>,
}
