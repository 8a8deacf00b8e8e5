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

/// An event of a job that a webhook can receive.
#[derive(ToSchema)]
#[schema(as = JobHookEvent)]
#[expect(clippy::enum_variant_names, reason = "the names of the queue's type")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum JobHookEventWord {
    #[schema(rename = "job.started")]
    JobStarted,
    #[schema(rename = "job.output")]
    JobOutput,
    #[schema(rename = "job.progress")]
    JobProgress,
    #[schema(rename = "job.completed")]
    JobCompleted,
}

/// An event that a webhook can receive.
#[derive(ToSchema)]
#[schema(as = HookEvent)]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum HookEventWord {
    #[schema(rename = "job.started")]
    JobStarted,
    #[schema(rename = "job.output")]
    JobOutput,
    #[schema(rename = "job.progress")]
    JobProgress,
    #[schema(rename = "job.completed")]
    JobCompleted,
    #[schema(rename = "batch.completed")]
    BatchCompleted,
}

/// An event of a batch that a webhook can receive.
#[derive(ToSchema)]
#[schema(as = BatchHookEvent)]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum BatchHookEventWord {
    #[schema(rename = "batch.completed")]
    BatchCompleted,
}

/// The end of a job that another one waits for: `success`, or `completion` if any end will do.
#[derive(ToSchema)]
#[schema(as = DependencyOn, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum DependencyOnWord {
    Success,
    Completion,
}

/// When a step decides: before or after the endpoint runs the job.
#[derive(ToSchema)]
#[schema(as = StepStage, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum StageWord {
    Before,
    After,
}

/// The decision of a step.
#[derive(ToSchema)]
#[schema(as = StepDecision, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum DecisionWord {
    Allow,
    Reject,
    Rewrite,
}
