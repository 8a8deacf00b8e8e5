//! What a batch is: passive data, as it is stored and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budgets::AtBudget;
use crate::costs::Forecast;
use crate::id::JobId;
use crate::job::{BatchLine, Hook, Idempotency, JobError, JobResult, JobState, Priority};

/// What a batch's owner fixed once and for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchSpec {
    /// Whose it is.
    pub tenant: String,
    /// The endpoint of lines that name none.
    pub endpoint: String,
    /// In which version they do; when absent the one that is current while it validates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// When it was made, unix milliseconds: part of its jobs' ids.
    pub created_ms: u64,
    /// How urgent its jobs are.
    pub priority: Priority,
    /// What wrong lines mean for it.
    pub on_invalid: OnInvalid,
    /// How its lines are written.
    pub format: LineFormat,
    /// Where its lines come from.
    pub source: Source,
    /// The owner's own labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Longest one attempt may run, seconds; the endpoint's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Attempts of a line; the endpoint's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// It must have ended by then, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The batch whose failed lines these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    /// The webhook for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
    /// What its lines may cost together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BatchBudget>,
}

/// What a batch may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchBudget {
    /// Micro-dollars.
    pub usd_micros: u64,
    /// What happens then: lines that have not started are cancelled, with `stop` those that run too.
    #[serde(default)]
    pub at: AtBudget,
}

/// What wrong lines mean for their batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalid {
    /// None of it runs.
    #[default]
    Fail,
    /// The others run.
    Skip,
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineFormat {
    /// As each line shows.
    #[default]
    Auto,
    /// `{"custom_id", "input", "endpoint", "metadata"}`.
    Stokehold,
    /// `{"custom_id", "method", "url", "body"}`.
    Openai,
}

/// Where the lines of a batch come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The lines are where the batch's `input` points.
    Uploaded,
    /// An object in S3, still to be copied.
    Object {
        /// Its key.
        key: String,
    },
    /// The lines of another batch that failed or expired.
    Retry {
        /// That batch.
        batch: String,
    },
}

/// The state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// Its lines are looked at; none runs yet.
    Validating,
    /// Its lines run.
    Running,
    /// All have ended; results and errors are put together.
    Finalizing,
    /// Every line has ended by itself.
    Completed,
    /// Its input was refused.
    Failed,
    /// Ended by its owner.
    Cancelled,
    /// Ended by its deadline.
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

    /// The word for it, in Redis and JSON alike.
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

    /// Whether nothing moves it again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Validating | Self::Running | Self::Finalizing => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Expired => true,
        }
    }
}

/// Why lines that were not fed never will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Its owner cancelled it.
    Cancelled,
    /// The deadline has passed.
    Expired,
}

impl Stop {
    /// What the lines are from then on.
    #[must_use]
    pub fn state(self) -> JobState {
        match self {
            Self::Cancelled => JobState::Cancelled,
            Self::Expired => JobState::Expired,
        }
    }
}

/// A wrong line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineError {
    /// From 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
}

/// A place in the input: where the feeder goes on. Behind the truth after a crash, never ahead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Jobs fed before it.
    pub jobs: u64,
    /// Lines before it.
    pub lines: u64,
    /// Bytes before it.
    pub bytes: u64,
}

/// A snapshot of a batch: one read, so that its counts add up.
#[derive(Debug, Clone)]
pub struct Batch {
    /// `batch_<32 hex>`.
    pub id: String,
    /// The fixed part.
    pub spec: BatchSpec,
    /// The state.
    pub state: BatchState,
    /// Lines seen so far.
    pub total: u64,
    /// Wrong ones among them.
    pub invalid: u64,
    /// Good lines that became jobs, or were called off.
    pub fed: u64,
    /// Good lines that became jobs, once the others were called off.
    pub handed: Option<u64>,
    /// Ended jobs that are written down.
    pub collected: u64,
    /// When that last happened, unix milliseconds.
    pub collected_ms: Option<u64>,
    /// Lines that ended so.
    pub succeeded: u64,
    /// Lines that ended so.
    pub failed: u64,
    /// Lines that ended so.
    pub cancelled: u64,
    /// Lines that ended so.
    pub expired: u64,
    /// Jobs that run at this moment.
    pub running: u64,
    /// Why it stops, once it does.
    pub stop: Option<Stop>,
    /// It stops since its budget is reached.
    pub is_over_budget: bool,
    /// It stops, and what runs may end.
    pub drains: bool,
    /// What its ended attempts took, micro-dollars.
    pub spent_usd_micros: u64,
    /// What it was thought to cost when it started.
    pub forecast: Option<Forecast>,
    /// S3 key of its lines.
    pub input: Option<String>,
    /// S3 key of the bitmap of wrong lines.
    pub skip: Option<String>,
    /// The endpoint versions that its lines were held against.
    pub versions: BTreeMap<String, u32>,
    /// The first wrong lines.
    pub errors: Vec<LineError>,
    /// When its first line could run, unix milliseconds.
    pub started_ms: Option<u64>,
    /// When it ended, unix milliseconds.
    pub ended_ms: Option<u64>,
    /// Where the feeder goes on.
    pub place: Place,
    /// `(unix ms, lines ended)`, oldest first: the samples for its rate.
    pub samples: Vec<(u64, u64)>,
    /// Whether its parts were deleted.
    pub tidied: bool,
}

impl Batch {
    /// Good lines.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.total.saturating_sub(self.invalid)
    }

    /// Good lines that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled + self.expired
    }

    /// Good lines that have not.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.accepted().saturating_sub(self.ended())
    }

    /// The prefix in S3 of all that is its own.
    #[must_use]
    pub fn prefix(&self) -> String {
        Self::prefix_of(&self.spec.tenant, &self.id)
    }

    /// As [`Batch::prefix`], before there is one.
    #[must_use]
    pub fn prefix_of(tenant: &str, id: &str) -> String {
        format!("batches/{tenant}/{id}/")
    }
}

/// A batch as it is handed in.
#[derive(Debug, Clone)]
pub struct NewBatch {
    /// Its id; the caller makes it, so that an unknown outcome can be asked after.
    pub id: String,
    /// The fixed part.
    pub spec: BatchSpec,
    /// S3 key of its lines, when they are there already.
    pub input: Option<String>,
    /// A second create with this key in 24 hours gives the first one's batch.
    pub idempotency: Option<Idempotency>,
}

/// An ended job of a batch: what its line's result or error is made of.
#[derive(Debug, Clone)]
pub struct EndedLine {
    /// The job.
    pub id: JobId,
    /// How it ended.
    pub state: JobState,
    /// Which line it was.
    pub line: BatchLine,
    /// What it gave.
    pub result: Option<JobResult>,
    /// Why it failed.
    pub error: Option<JobError>,
    /// How long its last attempt ran, loading not counted; none when it never began.
    pub run_ms: Option<u64>,
}

/// One page of a list, newest first.
#[derive(Debug, Clone)]
pub struct BatchPage {
    /// The batches.
    pub batches: Vec<Batch>,
    /// Where the next page starts; `None` at the end. A page may be short, even empty, and still have a next one.
    pub next_cursor: Option<String>,
}
