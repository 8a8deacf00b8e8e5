//! Job errors for failed loads and runs.

use stokehold_protocol::job::{ErrorCode, JobError};
use stokehold_wire::Failure;

use crate::runner::{RunEnd, StartError};

/// Message for a process that the kernel killed because memory ran out.
const HOST_OOM: &str = "the machine ran out of memory and the kernel killed the handler's process";

/// The error of a model that failed to load.
pub(crate) fn start_failure(error: StartError) -> JobError {
    match error {
        StartError::Spawn(why) => infra(format!("cannot start the runner: {why}")),
        StartError::Setup(raised, stderr) => JobError {
            code: match raised.code.as_str() {
                "oom_gpu" => ErrorCode::OomGpu,
                "oom_host" => ErrorCode::OomHost,
                _ => ErrorCode::SetupFailed,
            },
            class: raised.class,
            message: raised.message,
            traceback: Some(raised.traceback).filter(|text| !text.is_empty()),
            stderr: Some(stderr).filter(|text| !text.is_empty()),
        },
        StartError::TooSlow(limit) => failed(
            ErrorCode::SetupFailed,
            format!("importing the handler and setup() took longer than {} s", limit.as_secs()),
        ),
        StartError::Ended(RunEnd::OutOfMemory { stderr }) => {
            let stderr = Some(stderr).filter(|text| !text.is_empty());
            JobError { stderr, ..failed(ErrorCode::OomHost, HOST_OOM.to_owned()) }
        }
        StartError::Ended(end) => {
            let (code, class, what, stderr) = match end {
                RunEnd::Exited { code, stderr } => {
                    (ErrorCode::SetupFailed, String::new(), format!("exited with code {code}"), stderr)
                }
                RunEnd::Crashed { signal, stderr } => {
                    (ErrorCode::RunnerCrashed, signal.clone(), format!("was killed by {signal}"), stderr)
                }
                RunEnd::Broken { why, stderr } => {
                    (ErrorCode::Protocol, String::new(), format!("was stopped: {why}"), stderr)
                }
                RunEnd::Flooded { stderr, .. } | RunEnd::Overfull { stderr, .. } | RunEnd::Failed { stderr, .. } => {
                    (ErrorCode::SetupFailed, String::new(), "was stopped".to_owned(), stderr)
                }
                RunEnd::Done { .. } | RunEnd::NotBegun | RunEnd::Stopped | RunEnd::OutOfMemory { .. } => {
                    (ErrorCode::Protocol, String::new(), "ended".to_owned(), String::new())
                }
            };
            let stderr = Some(stderr).filter(|text| !text.is_empty());
            let message = format!("the handler's process {what} before setup() finished");
            JobError { class, stderr, ..failed(code, message) }
        }
    }
}

/// The end of the process's standard error, if it was kept.
pub(crate) fn stderr_of(end: &RunEnd) -> Option<String> {
    let stderr = match end {
        RunEnd::Done { .. } | RunEnd::NotBegun | RunEnd::Stopped => return None,
        RunEnd::Failed { stderr, .. }
        | RunEnd::Exited { stderr, .. }
        | RunEnd::Crashed { stderr, .. }
        | RunEnd::OutOfMemory { stderr }
        | RunEnd::Broken { stderr, .. }
        | RunEnd::Flooded { stderr, .. }
        | RunEnd::Overfull { stderr, .. } => stderr,
    };
    Some(stderr.clone()).filter(|text| !text.is_empty())
}

/// The error of a run whose handler raised an exception.
pub(crate) fn raised(failure: Failure, stderr: String) -> JobError {
    let code = match failure.code.as_str() {
        "rejected" => ErrorCode::Rejected,
        "bad_output" => ErrorCode::BadOutput,
        "result_too_large" => ErrorCode::ResultTooLarge,
        "setup_failed" => ErrorCode::SetupFailed,
        "oom_gpu" => ErrorCode::OomGpu,
        "oom_host" => ErrorCode::OomHost,
        _ => ErrorCode::HandlerError,
    };
    JobError {
        code,
        class: failure.class,
        message: failure.message,
        traceback: Some(failure.traceback).filter(|text| !text.is_empty()),
        stderr: Some(stderr).filter(|text| !text.is_empty()),
    }
}

/// The error of a run whose process exited.
pub(crate) fn died(end: RunEnd) -> JobError {
    let stderr = stderr_of(&end);
    let error = match end {
        RunEnd::Exited { code, .. } => {
            failed(ErrorCode::RunnerExited, format!("the handler's process exited with code {code}"))
        }
        RunEnd::Crashed { signal, .. } => {
            let message = format!("the handler's process was killed by {signal}");
            JobError { class: signal, ..failed(ErrorCode::RunnerCrashed, message) }
        }
        RunEnd::OutOfMemory { .. } => failed(ErrorCode::OomHost, HOST_OOM.to_owned()),
        RunEnd::Flooded { limit_bytes, .. } => {
            failed(ErrorCode::LogFlood, format!("the handler wrote more than {} MiB of logs", limit_bytes >> 20))
        }
        RunEnd::Overfull { limit_bytes, .. } => {
            let message = format!("the handler used more than {} MiB of scratch space", limit_bytes >> 20);
            failed(ErrorCode::HandlerError, message)
        }
        RunEnd::Broken { why, .. } => failed(ErrorCode::Protocol, format!("the runner was stopped: {why}")),
        RunEnd::Done { .. } | RunEnd::Failed { .. } | RunEnd::NotBegun | RunEnd::Stopped => {
            failed(ErrorCode::Protocol, "the runner reported the end of a run twice".to_owned())
        }
    };
    JobError { stderr, ..error }
}

pub(crate) fn failed(code: ErrorCode, message: String) -> JobError {
    JobError { code, class: String::new(), message, traceback: None, stderr: None }
}

pub(crate) fn infra(message: String) -> JobError {
    failed(ErrorCode::Infra, message)
}
