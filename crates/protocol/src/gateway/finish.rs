//! The end of an attempt: the report of its worker, and the answer.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{LeaseRef, Offer, wire};
use crate::id::{Fence, JobId};
use crate::job::{JobError, Timing, TokenUsage};

/// Maximum number of jobs in one call of a handler.
pub const BATCH_SIZE_MAX: u32 = 256;

/// The end of an attempt, as its worker reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "wire::Report")]
pub struct FinishReport {
    /// The job.
    pub job_id: JobId,
    /// Proof of the lease.
    pub fence: Fence,
    /// Durations of its parts.
    #[serde(default)]
    pub timing: Timing,
    /// The cost of the attempt. Workers cannot set it: the gateway computes it from the stored price.
    #[serde(skip)]
    pub cost_usd_micros: Option<u64>,
    /// The tokens that the run used, if its result contains them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// With `oom_gpu`: the least GPU memory that the model was observed to need, MiB. Absent if another model may have
    /// been the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_need_mib: Option<u64>,
    /// The next place of a job that has outgrown its GPU. Workers cannot set it: the gateway has the list of GPUs.
    #[serde(skip)]
    pub outgrown: Option<Outgrown>,
    /// The model of the GPU that the attempt ran on, as named by [`crate::vram::kind_of_gpu`]. Workers cannot set it:
    /// the gateway has the list of each worker's GPUs.
    #[serde(skip)]
    pub card_kind: String,
    /// The instance that the attempt ran on: the name of its worker. Workers cannot set it: the gateway has the list of
    /// workers.
    #[serde(skip)]
    pub machine: String,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: FinishOutcome,
}

/// The next place of a job whose GPU was too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgrown {
    /// The job is requeued in this VRAM class, GiB, without using up an attempt.
    To(u32),
    /// No known GPU is larger: the job fails.
    All,
}

impl FinishReport {
    /// The end of the attempt under this lease.
    #[must_use]
    pub fn new(lease: LeaseRef, timing: Timing, outcome: FinishOutcome) -> Self {
        let LeaseRef { job_id, fence } = lease;
        Self {
            job_id,
            fence,
            timing,
            cost_usd_micros: None,
            usage: None,
            vram_need_mib: None,
            outgrown: None,
            card_kind: String::new(),
            machine: String::new(),
            outcome,
        }
    }

    /// The tokens that count for the job: those of the attempt with the result, as far as they are possible.
    #[must_use]
    pub fn tokens(&self) -> Option<TokenUsage> {
        match self.outcome {
            FinishOutcome::Succeeded { .. } | FinishOutcome::Stored { .. } => self.usage?.checked(),
            FinishOutcome::Failed { .. } => None,
        }
    }

    /// The number of jobs that shared the time of the attempt, in its call of the handler or in its process.
    #[must_use]
    pub fn sharers(&self) -> f64 {
        self.timing.sharers()
    }
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FinishOutcome {
    /// A small result.
    Succeeded {
        /// The JSON text, at most [`crate::job::INLINE_RESULT_BYTES`].
        result: Box<RawValue>,
    },
    /// A result that is already in S3 under this attempt's prefix, as `output.json`.
    Stored {
        /// Size of the result, bytes.
        size_bytes: u64,
    },
    /// The attempt has no result.
    Failed {
        /// The error of the attempt.
        error: JobError,
    },
}

/// The answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishAnswer {
    /// Accepted; the job moved on.
    Ok,
    /// The worker no longer had the lease: nothing of the attempt is stored.
    StaleFence,
    /// The job has already ended, by this attempt or otherwise.
    AlreadyEnded,
    /// The job does not exist, or not any more.
    NotFound,
}

/// `POST /worker/v1/finish`: only reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishRequest {
    /// Attempts that ended; at most 100.
    pub finish: Vec<FinishReport>,
    /// The worker's current capability, if its pending lease poll was sent with a smaller offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<Offer>,
}

/// The reply to `finish`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishReply {
    /// One answer per report, in order.
    pub finished: Vec<FinishAnswer>,
    /// Whether the lease poll uses the offer from now on; otherwise another replica holds the poll, or none does.
    #[serde(default)]
    pub offer_taken: bool,
}
