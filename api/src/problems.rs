//! Conversion of domain errors to problems of requests. Only this module decides it.

use stokehold_objects::Error as ObjectsError;
use stokehold_queue::Error as QueueError;

use crate::endpoints::catalog;
use crate::error::{Code, INTERNAL, Problem};
use crate::files::stored;
use crate::jobs::{feedback, inputs, large_inputs, submit};
use crate::tenants::storage;
use crate::{database, deletion, history, openai, schedules};

/// The code and the detail that a request would get for this error, for records of background work.
pub(crate) fn code_and_detail(error: impl Into<Problem>) -> (String, String) {
    let problem = error.into();
    let word = serde_json::to_value(problem.code()).ok();
    let code = word.as_ref().and_then(|word| word.as_str()).unwrap_or("internal").to_owned();
    (code, problem.detail().to_owned())
}

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Unavailable { .. } => Self::new(
                Code::Unavailable,
                "the queue is unavailable, so the outcome is unknown; repeat with the same Idempotency-Key",
            )
            .caused_by(error),
            QueueError::Full => Self::new(Code::QueueFull, "the queue is full; nothing was accepted, try again later"),
            QueueError::Closed(why) => Self::new(
                Code::Unavailable,
                format!("the queue takes no new work at present: {why}; nothing was accepted, try again later"),
            )
            .caused_by(QueueError::Closed(why)),
            // Only the feeder of batches gets this error, and it answers no requests.
            QueueError::StaleGuard => Self::new(Code::Internal, INTERNAL),
            QueueError::NoDependency { job, .. } => Self::new(
                Code::DependencyMissing,
                format!(
                    "job {job}, which this job waits for, is not in the queue; a job can wait only for jobs that are still in the queue"
                ),
            ),
            QueueError::Quota { scope, most, open } => {
                let whose = match scope.strip_prefix("e:").and_then(|scope| scope.split_once(':')) {
                    Some((_, endpoint)) => format!("endpoint {endpoint:?} has"),
                    None => "you have".to_owned(),
                };
                let detail =
                    format!("{whose} {open} open jobs, and the limit is {most}; nothing was accepted, try again later");
                Self::new(Code::QuotaExceeded, detail)
            }
            QueueError::Memory { most_bytes, held_bytes, .. } => {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                let detail = format!(
                    "your jobs and endpoint versions use {:.1} MiB of the queue's memory, and your limit is {:.1} \
                        MiB; nothing was accepted. Ended jobs free theirs when they move to the archive (sooner with \
                        a lower retention_s), versions when they are deleted; or ask the operator to raise \
                        max_memory_bytes",
                    mib(held_bytes),
                    mib(most_bytes),
                );
                Self::new(Code::QuotaExceeded, detail)
            }
            QueueError::IdempotencyConflict { key } => Self::new(
                Code::IdempotencyConflict,
                format!("idempotency key {key:?} was used with another request in the last 24 hours; use a new key"),
            ),
            QueueError::TooLarge(text) => Self::new(Code::InvalidRequest, text),
            QueueError::Corrupt { .. } | QueueError::Unfit(_) => Self::new(Code::Internal, INTERNAL).caused_by(error),
        }
    }
}

impl From<ObjectsError> for Problem {
    fn from(error: ObjectsError) -> Self {
        let problem = match &error {
            ObjectsError::Unavailable { .. } => {
                Self::new(Code::Unavailable, "the object store is unavailable; try again")
            }
            ObjectsError::Invalid(_)
            | ObjectsError::Refused { .. }
            | ObjectsError::TooLarge { .. }
            | ObjectsError::Folder { .. }
            | ObjectsError::Locked { .. } => Self::new(Code::Internal, INTERNAL),
        };
        problem.caused_by(error)
    }
}

impl From<database::Error> for Problem {
    fn from(error: database::Error) -> Self {
        match error {
            database::Error::Queue(error) => error.into(),
            database::Error::Timeout { .. } => {
                Self::new(Code::Unavailable, "the queue did not answer in time; repeat with the same Idempotency-Key")
                    .caused_by(error)
            }
        }
    }
}

impl From<history::Error> for Problem {
    fn from(error: history::Error) -> Self {
        match error {
            history::Error::Objects(error) => error.into(),
            history::Error::Queue(error) => error.into(),
            history::Error::Database(error) => error.into(),
            history::Error::Corrupt { .. } => Self::new(Code::Internal, INTERNAL).caused_by(error),
            history::Error::Restless(_) => {
                Self::new(Code::Unavailable, "the archive is busy; try again").caused_by(error)
            }
            history::Error::Timeout { .. } => {
                Self::new(Code::Unavailable, "the archive did not answer in time; try again").caused_by(error)
            }
        }
    }
}

impl From<catalog::Error> for Problem {
    fn from(error: catalog::Error) -> Self {
        match error {
            catalog::Error::Database(error) => error.into(),
            catalog::Error::UnknownEndpoint { .. } => Self::new(Code::UnknownEndpoint, error.to_string()),
            catalog::Error::UnknownVersion { .. } => Self::new(Code::UnknownVersion, error.to_string()),
            catalog::Error::SetsOfTenant(_) | catalog::Error::Sets(_) => Self::field("/demands", error.to_string()),
            catalog::Error::Unusable { .. } => {
                Self::new(Code::Internal, "this version of the endpoint can no longer be used; deploy it again")
                    .caused_by(error)
            }
        }
    }
}

impl From<deletion::Error> for Problem {
    fn from(error: deletion::Error) -> Self {
        match error {
            deletion::Error::Database(error) => error.into(),
            deletion::Error::Queue(error) => error.into(),
            deletion::Error::Objects(error) => error.into(),
            deletion::Error::Busy | deletion::Error::Timeout => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}

impl From<inputs::Error> for Problem {
    fn from(error: inputs::Error) -> Self {
        Self::new(Code::InvalidInput, error.to_string()).with_errors(error.0)
    }
}

impl From<inputs::FileError> for Problem {
    fn from(error: inputs::FileError) -> Self {
        match error {
            inputs::FileError::Objects(error) => error.into(),
            inputs::FileError::Missing(_) => Self::new(Code::FileMissing, error.to_string()),
        }
    }
}

impl From<submit::Error> for Problem {
    fn from(error: submit::Error) -> Self {
        match error {
            submit::Error::Field(error) => error.into(),
            submit::Error::Input(error) => error.into(),
            submit::Error::Fingerprint(_) => Self::new(Code::Internal, INTERNAL).caused_by(error),
        }
    }
}

impl From<storage::Error> for Problem {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Database(error) => error.into(),
            storage::Error::Objects(error) => error.into(),
            storage::Error::Exceeded { .. } => Self::new(Code::StorageExceeded, error.to_string()),
        }
    }
}

impl From<stored::Error> for Problem {
    fn from(error: stored::Error) -> Self {
        match error {
            stored::Error::Objects(error) => error.into(),
            stored::Error::Json(_) => Self::new(Code::Internal, INTERNAL).caused_by(error),
        }
    }
}

impl From<openai::files::Error> for Problem {
    fn from(error: openai::files::Error) -> Self {
        match error {
            openai::files::Error::Objects(error) => error.into(),
            openai::files::Error::Record { .. } => Self::new(Code::Internal, INTERNAL).caused_by(error),
        }
    }
}

impl From<large_inputs::Error> for Problem {
    fn from(error: large_inputs::Error) -> Self {
        match error {
            large_inputs::Error::Database(error) => error.into(),
            large_inputs::Error::Objects(error) => error.into(),
            large_inputs::Error::Storage(error) => error.into(),
            large_inputs::Error::File(error) => error.into(),
            large_inputs::Error::Reference(_) => Self::new(Code::Internal, INTERNAL).caused_by(error),
        }
    }
}

impl From<schedules::Error> for Problem {
    fn from(error: schedules::Error) -> Self {
        match error {
            schedules::Error::Request(error) => error.into(),
            schedules::Error::Endpoint(error) => error.into(),
            schedules::Error::Job(error) => error.into(),
            schedules::Error::Refers(error) => error.into(),
            schedules::Error::File(error) => error.into(),
            schedules::Error::Input(error) => error.into(),
            schedules::Error::Database(error) => error.into(),
        }
    }
}

impl From<feedback::Error> for Problem {
    fn from(error: feedback::Error) -> Self {
        match error {
            feedback::Error::Database(error) => error.into(),
            feedback::Error::Objects(error) => error.into(),
            feedback::Error::Input(error) => error.into(),
            feedback::Error::InputMissing => Self::new(Code::FileMissing, error.to_string()),
            feedback::Error::Json(_) => Self::new(Code::Internal, INTERNAL).caused_by(error),
        }
    }
}
