//! Errors of jobs, and the party responsible: the model or Stokehold.

use serde::{Deserialize, Serialize};

/// The error of an attempt or a job, described so that a user can act on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// The kind of failure; a stable code.
    pub code: ErrorCode,
    /// The class of the exception or the name of the signal; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Description, one sentence.
    pub message: String,
    /// The traceback, when there was an exception; at most 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceback: Option<String>,
    /// The last lines that the handler wrote to stderr; at most 8 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

impl JobError {
    /// Creates an error from a code and a sentence.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, class: String::new(), message: message.into(), traceback: None, stderr: None }
    }

    /// The error of a reaped attempt.
    #[must_use]
    pub fn worker_lost() -> Self {
        Self::new(ErrorCode::WorkerLost, "the worker stopped sending heartbeats and its lease expired")
    }

    /// The error of a job that crashes its runners.
    #[must_use]
    pub fn poison() -> Self {
        let message = "the job crashed its runner repeatedly, on more than one worker; its attempts have the details";
        Self::new(ErrorCode::Poison, message)
    }

    /// The error of a job that did not start in time.
    #[must_use]
    pub fn queue_timeout() -> Self {
        Self::new(
            ErrorCode::QueueTimeout,
            "the job expired in the queue: it did not start within its queue_timeout_s (7 days by default)",
        )
    }

    /// The error of a job that did not end in time.
    #[must_use]
    pub fn deadline() -> Self {
        Self::new(ErrorCode::Deadline, "the job did not end within its deadline_s")
    }
}

/// The kinds of failure. A kind exists only if a caller would act differently on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The handler raised.
    HandlerError,
    /// The handler rejected the input (`stokehold.Reject`): not retried.
    Rejected,
    /// `setup()` or the import raised.
    SetupFailed,
    /// The environment could not be built.
    EnvironmentFailed,
    /// The weights could not be fetched, differ from the pinned ones, or are pickles although pickles are not allowed.
    WeightsFailed,
    /// The runner's process exited by itself.
    RunnerExited,
    /// A signal killed the runner's process.
    RunnerCrashed,
    /// The attempt ran longer than `timeout_s`.
    Timeout,
    /// The handler returned a value that JSON cannot represent: not retried.
    BadOutput,
    /// The result or one of its files exceeds the limit: not retried.
    ResultTooLarge,
    /// The handler wrote more log than a job may: not retried.
    LogFlood,
    /// The runner violated its protocol.
    Protocol,
    /// The GPU's memory ran out, even with the job alone on the GPU.
    OomGpu,
    /// The host's memory ran out.
    OomHost,
    /// The job crashed its runner repeatedly, on more than one worker: not retried.
    Poison,
    /// A dependency or a step of the job did not succeed.
    DependencyFailed,
    /// The job did not start within its queue timeout.
    QueueTimeout,
    /// The job did not end by `deadline_ms`.
    Deadline,
    /// The worker stopped sending heartbeats and its lease expired.
    WorkerLost,
    /// The worker itself failed (S3, disk): not charged to the user.
    Infra,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 20] = [
        Self::HandlerError,
        Self::Rejected,
        Self::SetupFailed,
        Self::EnvironmentFailed,
        Self::WeightsFailed,
        Self::RunnerExited,
        Self::RunnerCrashed,
        Self::Timeout,
        Self::BadOutput,
        Self::ResultTooLarge,
        Self::LogFlood,
        Self::Protocol,
        Self::OomGpu,
        Self::OomHost,
        Self::Poison,
        Self::DependencyFailed,
        Self::QueueTimeout,
        Self::Deadline,
        Self::WorkerLost,
        Self::Infra,
    ];

    /// The name of the code in Redis, JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HandlerError => "handler_error",
            Self::Rejected => "rejected",
            Self::SetupFailed => "setup_failed",
            Self::EnvironmentFailed => "environment_failed",
            Self::WeightsFailed => "weights_failed",
            Self::RunnerExited => "runner_exited",
            Self::RunnerCrashed => "runner_crashed",
            Self::Timeout => "timeout",
            Self::BadOutput => "bad_output",
            Self::ResultTooLarge => "result_too_large",
            Self::LogFlood => "log_flood",
            Self::Protocol => "protocol",
            Self::OomGpu => "oom_gpu",
            Self::OomHost => "oom_host",
            Self::Poison => "poison",
            Self::DependencyFailed => "dependency_failed",
            Self::QueueTimeout => "queue_timeout",
            Self::Deadline => "deadline",
            Self::WorkerLost => "worker_lost",
            Self::Infra => "infra",
        }
    }

    /// Parses a code.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }

    /// The party responsible for the failure. It decides the retry budget that the failure is charged to, and whether a
    /// retry makes sense.
    #[must_use]
    pub fn fault(self) -> Responsible {
        match self {
            Self::Rejected
            | Self::BadOutput
            | Self::ResultTooLarge
            | Self::LogFlood
            | Self::Poison
            | Self::DependencyFailed
            | Self::QueueTimeout
            | Self::Deadline => Responsible::Final,
            Self::HandlerError
            | Self::SetupFailed
            | Self::EnvironmentFailed
            | Self::WeightsFailed
            | Self::Timeout
            | Self::Protocol => Responsible::Model,
            Self::RunnerExited | Self::RunnerCrashed => Responsible::Crash,
            Self::OomGpu | Self::OomHost => Responsible::Oom,
            Self::WorkerLost | Self::Infra => Responsible::Infra,
        }
    }
}

/// The party responsible for the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Responsible {
    /// The model is responsible, and a retry would fail again: the job fails now.
    Final,
    /// The model is responsible: retried within `max_attempts`.
    Model,
    /// The model is responsible and crashed its runner. Handled like [`Responsible::Model`], and also counted
    /// separately ([`crate::retry::POISON_CRASHES`]).
    Crash,
    /// The GPU's or the host's memory ran out: retried within a separate budget ([`crate::retry::MAX_OOM_ATTEMPTS`]).
    Oom,
    /// Stokehold is responsible: retried within a separate budget ([`crate::retry::MAX_INFRA_ATTEMPTS`]).
    Infra,
}
