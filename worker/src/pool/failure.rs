//! Why a model is not ready, as its job is told.

use stokehold_queue::job::{ErrorCode, JobError};

use crate::attempt::HOST_OOM;
use crate::runner::{RunEnd, StartError};

pub(crate) fn start_failure(error: StartError) -> JobError {
    match error {
        StartError::Spawn(why) => infra(format!("the runner could not be started: {why}")),
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
        StartError::TooSlow(limit) => failure(
            ErrorCode::SetupFailed,
            format!("importing the handler and setup() took longer than {} s", limit.as_secs()),
        ),
        StartError::Ended(RunEnd::OutOfMemory { stderr }) => {
            let stderr = Some(stderr).filter(|text| !text.is_empty());
            JobError { stderr, ..failure(ErrorCode::OomHost, HOST_OOM.to_owned()) }
        }
        StartError::Ended(end) => {
            let (code, class, what, stderr) = match end {
                RunEnd::Exited { code, stderr } => {
                    (ErrorCode::SetupFailed, String::new(), format!("exited with code {code}"), stderr)
                }
                RunEnd::Crashed { signal, stderr } => {
                    (ErrorCode::RunnerCrashed, signal.clone(), format!("died of {signal}"), stderr)
                }
                RunEnd::Broken { why, stderr } => {
                    (ErrorCode::Protocol, String::new(), format!("was stopped: {why}"), stderr)
                }
                RunEnd::Flooded { stderr, .. } | RunEnd::Failed { stderr, .. } => {
                    (ErrorCode::SetupFailed, String::new(), "was stopped".to_owned(), stderr)
                }
                RunEnd::Done { .. } | RunEnd::NotBegun | RunEnd::Stopped | RunEnd::OutOfMemory { .. } => {
                    (ErrorCode::Protocol, String::new(), "ended".to_owned(), String::new())
                }
            };
            let stderr = Some(stderr).filter(|text| !text.is_empty());
            let message = format!("the handler's process {what} before setup() was done");
            JobError { class, stderr, ..failure(code, message) }
        }
    }
}

pub(super) fn failure(code: ErrorCode, message: String) -> JobError {
    JobError { code, class: String::new(), message, traceback: None, stderr: None }
}

pub(super) fn infra(message: String) -> JobError {
    failure(ErrorCode::Infra, message)
}
