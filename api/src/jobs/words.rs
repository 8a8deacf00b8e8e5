//! The enums of the queue's own types, for the OpenAPI document.

use utoipa::ToSchema;

/// The state of a job.
#[derive(ToSchema)]
#[schema(as = JobState, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
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

/// The priority of a job.
#[derive(ToSchema)]
#[schema(as = Priority, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum PriorityWord {
    Interactive,
    Standard,
    Batch,
}

/// The outcome of an attempt, or that it is still running.
#[derive(ToSchema)]
#[schema(as = AttemptState, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
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
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
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
    QueueTimeout,
    Deadline,
    WorkerLost,
    Infra,
}
