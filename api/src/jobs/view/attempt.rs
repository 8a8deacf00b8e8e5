//! An attempt of a job: its outcome, its error, and its timings.

use serde::Serialize;
use stokehold_queue::job::{Attempt, AttemptOutcome, ErrorCode, JobError, Timing};
use utoipa::ToSchema;

use crate::jobs::words::{AttemptWord, ErrorWord};
use crate::time_format::rfc3339;

/// One attempt at a job.
#[derive(Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptView<'a> {
    /// 1, 2, 3, ...
    attempt: u32,
    /// The worker that ran it.
    worker_id: &'a str,
    /// The outcome of the attempt, or that it is still running.
    #[schema(value_type = AttemptWord)]
    state: AttemptOutcome,
    /// When it started, RFC 3339.
    started_at: String,
    /// When it ended, RFC 3339; null until then.
    ended_at: Option<String>,
    /// Where its time went.
    timing: TimingView,
    /// The cost; null if the worker's price is not known.
    cost_usd_micros: Option<u64>,
    /// Why it failed.
    error: Option<ErrorView<'a>>,
}

/// Where the milliseconds of an attempt went.
#[derive(Serialize, ToSchema)]
#[schema(as = Timing)]
pub(crate) struct TimingView {
    /// From ready to leased.
    queued_ms: u64,
    /// Building or fetching the environment.
    env_ms: u64,
    /// Fetching the weights, as far as it took longer than the environment.
    weights_ms: u64,
    /// Starting the runner.
    boot_ms: u64,
    /// Loading the model.
    load_ms: u64,
    /// Running its warm-up inputs.
    warmup_ms: u64,
    /// Waiting in the worker for a slot, or for the shared call of the handler; absent if it did not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_wait_ms: Option<u64>,
    /// Fetching the input's files; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs_ms: Option<u64>,
    /// How many jobs shared the call of the handler, including this one, as reported by the worker; at most what the
    /// version allows. Absent if it takes one at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_size: Option<u32>,
    /// The handler itself.
    run_ms: u64,
    /// Uploading result and files to S3.
    upload_ms: u64,
}

/// Why an attempt or a job failed.
#[derive(Serialize, ToSchema)]
#[schema(as = JobError)]
pub(crate) struct ErrorView<'a> {
    /// The kind of failure; stable.
    #[schema(value_type = ErrorWord)]
    code: ErrorCode,
    /// The exception's class, the signal's name, or empty.
    class: &'a str,
    /// One sentence.
    message: &'a str,
    /// The traceback, when there was an exception.
    traceback: Option<&'a str>,
    /// The last lines written to stderr.
    stderr: Option<&'a str>,
}

impl<'a> AttemptView<'a> {
    pub(super) fn new(attempt: &'a Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            worker_id: &attempt.worker_id,
            state: attempt.outcome,
            started_at: rfc3339(attempt.leased_ms),
            ended_at: attempt.ended_ms.map(rfc3339),
            timing: TimingView::new(&attempt.timing),
            cost_usd_micros: attempt.cost_usd_micros,
            error: attempt.error.as_ref().map(ErrorView::new),
        }
    }
}

impl TimingView {
    pub(super) fn new(timing: &Timing) -> Self {
        Self {
            queued_ms: timing.queued_ms,
            env_ms: timing.env_ms,
            weights_ms: timing.weights_ms,
            boot_ms: timing.boot_ms,
            load_ms: timing.load_ms,
            warmup_ms: timing.warmup_ms,
            worker_wait_ms: Some(timing.turn_ms).filter(|ms| *ms > 0),
            inputs_ms: Some(timing.inputs_ms).filter(|ms| *ms > 0),
            batch_size: Some(timing.batch_size).filter(|size| *size > 0),
            run_ms: timing.run_ms,
            upload_ms: timing.upload_ms,
        }
    }
}

impl<'a> ErrorView<'a> {
    pub(super) fn new(error: &'a JobError) -> Self {
        Self {
            code: error.code,
            class: &error.class,
            message: &error.message,
            traceback: error.traceback.as_deref(),
            stderr: error.stderr.as_deref(),
        }
    }
}
