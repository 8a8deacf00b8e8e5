//! A job that is not in the queue yet.

use serde_json::value::RawValue;

use super::{JobSpec, Stage};
use crate::id::JobId;

/// A job as it is handed to `submit`.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Its id; the caller makes it, so that an unknown outcome can be asked after.
    pub id: JobId,
    /// The fixed part.
    pub spec: JobSpec,
    /// The input, JSON text as it came, already validated.
    pub input: Box<RawValue>,
    /// Not before this time, unix milliseconds; 0 means now.
    pub run_after_ms: u64,
    /// A second submit with this key in 24 hours gives the first one's id.
    pub idempotency: Option<Idempotency>,
    /// Those of its dependencies that the caller knows to have ended and left the queue for history.
    pub archived: Vec<JobId>,
    /// The replica that receives a signal at each change from the start, like [`crate::Queue::watch`].
    pub watcher: Option<String>,
}

impl NewJob {
    /// Whether it starts blocked: something must be looked at before it may run.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.spec.depends_on.is_empty() || self.spec.steps.iter().any(|step| step.stage == Stage::Before)
    }
}

/// What makes two submits the same submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// A hash of the whole request, without a space: same key with another hash is a conflict.
    pub request_hash: String,
    /// Which of the jobs that came in one submit under this key, from 0 and in their order.
    pub part: u32,
}

impl Idempotency {
    /// The key of a submit that makes one thing.
    #[must_use]
    pub fn new(key: impl Into<String>, request_hash: impl Into<String>) -> Self {
        Self { key: key.into(), request_hash: request_hash.into(), part: 0 }
    }
}
