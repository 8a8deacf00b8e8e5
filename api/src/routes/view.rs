//! A job as every route shows it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use stokehold_queue::job::{
    Attempt, AttemptOutcome, ErrorCode, Job, JobError, JobResult, JobState, NewJob, Priority, Timing,
};
use utoipa::ToSchema;

use crate::config::Config;
use crate::stamp::rfc3339;

/// A job.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobView<'a> {
    /// 32 lower-case hex digits; ids sort by creation time.
    id: String,
    /// The endpoint it runs on.
    endpoint: &'a str,
    /// The endpoint's version, fixed at submit.
    version: u32,
    /// Where it stands.
    #[schema(value_type = StateWord)]
    state: JobState,
    /// How urgent it is.
    #[schema(value_type = PriorityWord)]
    priority: Priority,
    /// RFC 3339.
    created_at: String,
    /// When a scheduled job becomes ready, RFC 3339.
    run_after: Option<String>,
    /// RFC 3339, once it has ended.
    ended_at: Option<String>,
    /// The input as it was submitted.
    #[schema(value_type = serde_json::Value)]
    input: &'a RawValue,
    /// The caller's own labels.
    metadata: &'a BTreeMap<String, String>,
    /// The latest that the running job told.
    progress: Option<ProgressView<'a>>,
    /// Every attempt so far, oldest first.
    attempts: Vec<AttemptView<'a>>,
    /// The last attempt's timing, with `queued_ms` counted from submit to that lease.
    timing: Option<TimingView>,
    /// The result, when it is small; else see `result_url`.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<&'a RawValue>,
    /// Where the result is, once succeeded. Wants the same bearer token.
    result_url: Option<String>,
    /// Why it failed.
    error: Option<ErrorView<'a>>,
}

/// One try at a job.
#[derive(Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptView<'a> {
    /// 1, 2, ...
    attempt: u32,
    /// Who ran it.
    worker_id: &'a str,
    /// How it ended, or that it has not.
    #[schema(value_type = AttemptWord)]
    state: AttemptOutcome,
    /// RFC 3339.
    started_at: String,
    /// RFC 3339, once it has ended.
    ended_at: Option<String>,
    /// Where its time went.
    timing: TimingView,
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
    /// Starting the runner.
    boot_ms: u64,
    /// Loading the model.
    load_ms: u64,
    /// The handler itself.
    run_ms: u64,
    /// Putting result and files into S3.
    upload_ms: u64,
}

/// What a running job told of its progress.
#[derive(Serialize, ToSchema)]
#[schema(as = Progress)]
pub(crate) struct ProgressView<'a> {
    /// 0 to 1.
    fraction: f64,
    /// What it is doing.
    message: &'a str,
}

/// Why an attempt or a job failed.
#[derive(Serialize, ToSchema)]
#[schema(as = JobError)]
pub(crate) struct ErrorView<'a> {
    /// What kind of failure; stable.
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

impl<'a> JobView<'a> {
    /// The record, shown.
    pub(crate) fn new(job: &'a Job, config: &Config) -> Self {
        let created_ms = job.created_ms();
        Self {
            id: job.id.to_string(),
            endpoint: &job.spec.endpoint,
            version: job.spec.version,
            state: job.state,
            priority: job.spec.priority,
            created_at: rfc3339(created_ms),
            run_after: job.run_after_ms.map(rfc3339),
            ended_at: job.ended_ms.map(rfc3339),
            input: &job.input,
            metadata: &job.spec.metadata,
            progress: job
                .progress
                .as_ref()
                .map(|told| ProgressView { fraction: told.fraction, message: &told.message }),
            attempts: job.attempts.iter().map(AttemptView::new).collect(),
            timing: job.attempts.last().map(|last| {
                let queued_ms = last.leased_ms.saturating_sub(created_ms);
                TimingView::new(&Timing { queued_ms, ..last.timing })
            }),
            result: match &job.result {
                Some(JobResult::Inline(result)) => Some(result),
                Some(JobResult::Object { .. }) | None => None,
            },
            result_url: (job.state == JobState::Succeeded)
                .then(|| format!("{}/v1/jobs/{}/result", config.public_url, job.id)),
            error: job.error.as_ref().map(ErrorView::new),
        }
    }

    /// A job that has just been accepted, shown without asking for its record.
    pub(crate) fn accepted(job: &'a NewJob, now_ms: u64) -> Self {
        let scheduled = job.run_after_ms > now_ms;
        Self {
            id: job.id.to_string(),
            endpoint: &job.spec.endpoint,
            version: job.spec.version,
            state: if scheduled { JobState::Scheduled } else { JobState::Queued },
            priority: job.spec.priority,
            created_at: rfc3339(job.id.created_ms()),
            run_after: scheduled.then(|| rfc3339(job.run_after_ms)),
            ended_at: None,
            input: &job.input,
            metadata: &job.spec.metadata,
            progress: None,
            attempts: Vec::new(),
            timing: None,
            result: None,
            result_url: None,
            error: None,
        }
    }
}

impl<'a> AttemptView<'a> {
    fn new(attempt: &'a Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            worker_id: &attempt.worker_id,
            state: attempt.outcome,
            started_at: rfc3339(attempt.leased_ms),
            ended_at: attempt.ended_ms.map(rfc3339),
            timing: TimingView::new(&attempt.timing),
            error: attempt.error.as_ref().map(ErrorView::new),
        }
    }
}

impl TimingView {
    fn new(timing: &Timing) -> Self {
        Self {
            queued_ms: timing.queued_ms,
            env_ms: timing.env_ms,
            boot_ms: timing.boot_ms,
            load_ms: timing.load_ms,
            run_ms: timing.run_ms,
            upload_ms: timing.upload_ms,
        }
    }
}

impl<'a> ErrorView<'a> {
    fn new(error: &'a JobError) -> Self {
        Self {
            code: error.code,
            class: &error.class,
            message: &error.message,
            traceback: error.traceback.as_deref(),
            stderr: error.stderr.as_deref(),
        }
    }
}

/// Where a job stands.
#[derive(ToSchema)]
#[schema(as = JobState, rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the queue's own type, for the OpenAPI document")]
pub(crate) enum StateWord {
    Scheduled,
    Blocked,
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Expired,
}

/// How urgent a job is.
#[derive(ToSchema)]
#[schema(as = Priority, rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the queue's own type, for the OpenAPI document")]
pub(crate) enum PriorityWord {
    Interactive,
    Standard,
    Batch,
}

/// How an attempt ended, or that it has not.
#[derive(ToSchema)]
#[schema(as = AttemptState, rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the queue's own type, for the OpenAPI document")]
pub(crate) enum AttemptWord {
    Running,
    Succeeded,
    Failed,
    Released,
    Lost,
    Cancelled,
    Expired,
}

/// The kinds of failure.
#[derive(ToSchema)]
#[schema(as = JobErrorCode, rename_all = "snake_case")]
#[expect(dead_code, reason = "the words of the queue's own type, for the OpenAPI document")]
pub(crate) enum ErrorWord {
    HandlerError,
    Rejected,
    SetupFailed,
    EnvironmentFailed,
    RunnerExited,
    RunnerCrashed,
    Timeout,
    BadOutput,
    ResultTooLarge,
    LogFlood,
    Protocol,
    OomGpu,
    Poison,
    DependencyFailed,
    WorkerLost,
    Infra,
}
