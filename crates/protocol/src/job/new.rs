//! Jobs that are not in the queue yet.

use serde_json::value::RawValue;

use super::{Job, JobSpec, JobState, Stage};
use crate::id::JobId;

/// A job to submit.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Id of the job. The caller generates it, so that it can look the job up if the outcome is unknown.
    pub id: JobId,
    /// The part that does not change.
    pub spec: JobSpec,
    /// The input: the JSON text as received, already validated.
    pub input: Box<RawValue>,
    /// Earliest start, Unix milliseconds; 0 means now.
    pub run_after_ms: u64,
    /// Idempotency key: a second submit with the same key within 24 hours returns the id of the first job.
    pub idempotency: Option<Idempotency>,
    /// Dependencies that have ended and moved to history, as determined by the caller.
    pub archived: Vec<JobId>,
    /// The replica that receives a signal at each change from the start, like `Queue::watch` of `stokehold-queue`.
    pub watcher: Option<String>,
}

impl NewJob {
    /// A job that may start now, without an idempotency key.
    #[must_use]
    pub fn new(id: JobId, spec: JobSpec, input: Box<RawValue>) -> Self {
        Self { id, spec, input, run_after_ms: 0, idempotency: None, archived: Vec::new(), watcher: None }
    }

    /// Whether the job starts `blocked`, because a dependency or a step must be checked before it may run.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.spec.depends_on.is_empty() || self.spec.steps.iter().any(|step| step.stage == Stage::Before)
    }

    /// The record of the job once it is accepted at `now_ms`, without a revision.
    #[must_use]
    pub fn into_accepted(self, now_ms: u64) -> Job {
        let is_scheduled = self.run_after_ms > now_ms;
        let state = match (self.waits(), is_scheduled) {
            (true, _) => JobState::Blocked,
            (false, true) => JobState::Scheduled,
            (false, false) => JobState::Queued,
        };
        Job {
            id: self.id,
            spec: self.spec,
            input: self.input,
            state,
            attempts: Vec::new(),
            result: None,
            held: None,
            error: None,
            progress: None,
            oom_events: 0,
            run_after_ms: is_scheduled.then_some(self.run_after_ms),
            ended_ms: None,
            steps: Vec::new(),
            revision: String::new(),
        }
    }
}

/// An idempotency key: identifies repeated submits as the same submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// A hash of the whole request, without spaces. The same key with another hash is a conflict.
    pub request_hash: String,
    /// Index of the job among those submitted together under this key, from 0.
    pub part: u32,
}

impl Idempotency {
    /// The key of a submit that creates one thing.
    #[must_use]
    pub fn new(key: impl Into<String>, request_hash: impl Into<String>) -> Self {
        Self { key: key.into(), request_hash: request_hash.into(), part: 0 }
    }
}
